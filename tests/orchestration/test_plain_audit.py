"""Plain assets publish what passed their blocking checks, and nothing else."""

import dagster as dg
import polars as pl
import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.ingestion import audit
from lakehouse.orchestration import (
    DerivedTable,
    LakehouseIOManager,
    LakehouseResource,
    LakehouseSpark,
    Suite,
    expect,
    suite_checks,
)
from lakehouse.orchestration.lineage.materialization import SNAPSHOT_ID

KEY = dg.AssetKey(["marts", "paid"])
DAYS = dg.DailyPartitionsDefinition("2026-06-01", end_date="2026-06-05")
GOOD, BAD = {"id": [1], "amount": [5.0]}, {"id": [2], "amount": [-5.0]}


class World:
    """A catalog, an instance, and what the asset gives next."""

    def __init__(self, path, instance):
        self.path, self.instance, self.frame = path, instance, pl.DataFrame(GOOD)
        self.resource = LakehouseResource(catalog=path.as_uri())
        self.seen = []

    def run(self, *definitions, branch="main", **kwargs):
        manager = LakehouseIOManager(lakehouse=self.resource, branch=branch)
        return dg.materialize(
            definitions,
            resources={
                "io_manager": manager,
                "lakehouse": self.resource,
                "spark": LakehouseSpark(),
            },
            instance=self.instance,
            raise_on_error=False,
            **kwargs,
        )

    @property
    def table(self):
        return lh.load_catalog(self.path.as_uri()).load_table("marts.paid")

    def ids(self, ref="main"):
        return sorted(self.table.scan(ref=ref).to_arrow()["id"].to_pylist())

    def recorded(self):
        """Snapshot ids of materializations, newest first."""
        found = self.instance.fetch_materializations(KEY, limit=50).records
        return [one.asset_materialization.metadata[SNAPSHOT_ID].value for one in found]

    def checked(self, name="positive"):
        key = dg.AssetCheckKey(KEY, name)
        (newest,) = self.instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
        return newest.status.value

    def published(self):
        """Whether the last materialization is what `main` shows, and no branch is left."""
        table = self.table
        assert list(table.refs()) == ["main"]
        return self.recorded()[0] == str(table.current_snapshot().snapshot_id)


@pytest.fixture
def world(tmp_path):
    with dg.DagsterInstance.ephemeral() as instance:
        yield World(tmp_path / "lake", instance)


def paid(world, **kwargs):
    @dg.asset(key=KEY, **kwargs)
    def paid():
        return world.frame

    return paid


def right(frame):
    return bool((frame["amount"] > 0).all())


def by_input(world, blocking=True, severity=dg.AssetCheckSeverity.ERROR):
    @dg.asset_check(asset=KEY, name="positive", blocking=blocking)
    def positive(paid: pl.DataFrame):
        world.seen.append(sorted(paid["id"].to_list()))
        return dg.AssetCheckResult(passed=right(paid), severity=severity, description="negative")

    return positive


def by_resource(world):
    @dg.asset_check(asset=KEY, name="positive", blocking=True)
    def positive(lakehouse: LakehouseResource):
        frame = lakehouse.lake().load_table("marts.paid").scan().to_polars()
        world.seen.append(sorted(frame["id"].to_list()))
        return dg.AssetCheckResult(passed=right(frame))

    return positive


SEPARATE = pytest.mark.parametrize("check", [by_input, by_resource], ids=lambda one: one.__name__)


@SEPARATE
def test_rows_that_fail_a_check_of_their_own_step_are_not_published(world, check):
    definitions = paid(world), check(world)
    assert world.run(*definitions).success
    assert world.published()
    first = world.recorded()
    world.frame = pl.DataFrame(BAD)
    done = world.run(*definitions)
    assert not done.success
    assert [event.step_key for event in done.get_step_failure_events()] == ["marts__paid"]
    assert (
        "was not published"
        in done.get_step_failure_events()[0].step_failure_data.error_display_string
    )
    assert (world.ids(), world.recorded(), world.checked()) == ([1], first, "FAILED")
    assert world.seen[-1] == [2], "the check saw the rows"
    (rejected,) = set(world.table.metadata.snapshots.ids()) - {int(first[0])}
    assert world.table.scan(snapshot_id=rejected).to_arrow()["id"].to_pylist() == [2]
    world.frame = pl.DataFrame(GOOD)
    assert world.run(*definitions).success
    assert world.published()
    assert world.checked() == "SUCCEEDED"


@SEPARATE
def test_a_derived_table_is_published_as_a_plain_asset_is(world, check):
    raw = world.resource.lake().create_table("raw.paid", pa.table(GOOD).schema)
    raw.append(pa.table(GOOD))
    table = DerivedTable(
        name="marts.paid",
        inputs=("raw.paid",),
        transform=lambda inputs: inputs["raw.paid"],
        engine="polars",
        table_properties={"format-version": "3"},
    )
    definitions = table.build(None), check(world)
    assert world.run(*definitions).success
    assert world.published()
    assert world.table.metadata.format_version == 3
    raw.append(pa.table(BAD))
    done = world.run(*definitions)
    assert [event.step_key for event in done.get_step_failure_events()] == ["marts__paid"]
    assert (world.ids(), world.seen[-1], world.checked()) == ([1], [1, 2], "FAILED")
    assert list(world.table.refs()) == ["main"]


def test_great_expectations_stand_before_publication_of_a_plain_asset(world):
    positive = expect("column_values_to_be_between", column="amount", min_value=0)
    checks = suite_checks(KEY, [Suite("positive", (positive,))])
    assert world.run(paid(world), *checks).success
    world.frame = pl.DataFrame(BAD)
    done = world.run(paid(world), *checks)
    assert [event.step_key for event in done.get_step_failure_events()] == ["marts__paid"]
    assert (world.ids(), world.checked()) == ([1], "FAILED")


def test_of_a_first_run_that_fails_nothing_is_published(world):
    world.frame = pl.DataFrame(BAD)
    assert not world.run(paid(world), by_input(world)).success
    assert world.ids() == []
    assert world.recorded() == []


@pytest.mark.parametrize(
    "check",
    [
        lambda world: by_input(world, blocking=False),
        lambda world: by_input(world, severity=dg.AssetCheckSeverity.WARN),
    ],
    ids=["not blocking", "warns"],
)
def test_a_check_that_stops_nothing_stops_no_publication(world, check):
    world.frame = pl.DataFrame(BAD)
    assert world.run(paid(world), check(world)).success
    assert world.published()
    assert world.ids() == [2]


def test_without_blocking_checks_a_write_is_one_commit(world, monkeypatch):
    monkeypatch.delattr(audit.StagedWrite, "_stage")
    assert world.run(paid(world), by_input(world, blocking=False)).success
    table = world.table
    assert len(table.metadata.metadata_log) == 1, "created, and written to"
    assert len(world.seen) == 1


def test_a_check_that_is_not_part_of_the_run_is_not_asked(world):
    world.frame = pl.DataFrame(BAD)
    only = dg.AssetSelection.assets(KEY).without_checks()
    assert world.run(paid(world), by_input(world), selection=only).success
    assert world.seen == []
    assert world.ids() == [2]


def test_a_check_that_breaks_publishes_nothing(world):
    @dg.asset_check(asset=KEY, blocking=True)
    def broken():
        raise ValueError("no network")

    done = world.run(paid(world), broken)
    (failed,) = done.get_step_failure_events()
    assert "no network" in failed.step_failure_data.error_display_string
    assert world.ids() == []
    assert list(world.table.refs()) == []


def results(world, style):
    """Assets whose function gives the results of their checks, in Dagster's ways."""
    specs = [dg.AssetCheckSpec("positive", asset=KEY, blocking=True)]
    result = lambda: dg.AssetCheckResult(passed=right(world.frame))  # noqa: E731

    @dg.asset(key=KEY, check_specs=specs)
    def after():
        yield dg.Output(world.frame)
        yield result()

    @dg.asset(key=KEY, check_specs=specs)
    def before():
        yield result()
        yield dg.Output(world.frame)

    @dg.asset(key=KEY, check_specs=specs)
    def together():
        return dg.MaterializeResult(value=world.frame, check_results=[result()])

    @dg.multi_asset(outs={"rows": dg.AssetOut(key=KEY, dagster_type=dg.Any)}, check_specs=specs)
    def many():
        yield dg.MaterializeResult(asset_key=KEY, value=world.frame, check_results=[result()])

    return {"after": after, "before": before, "together": together, "many": many}[style]


STYLES = pytest.mark.parametrize("style", ["after", "before", "together", "many"])


@STYLES
def test_rows_that_fail_a_check_of_the_assets_own_step_are_not_published(world, style):
    asset = results(world, style)
    assert world.run(asset).success
    assert world.published()
    first = world.recorded()
    world.frame = pl.DataFrame(BAD)
    assert not world.run(asset).success
    assert (world.ids(), world.recorded(), world.checked()) == ([1], first, "FAILED")
    assert list(world.table.refs()) == ["main"]
    world.frame = pl.DataFrame({"id": [7], "amount": [1.0]})
    assert world.run(asset).success
    assert world.published()
    assert world.ids() == [7]


@STYLES
def test_what_comes_after_reads_what_was_published(world, style):
    read = []

    @dg.asset(deps=[KEY])
    def by_name(lakehouse: LakehouseResource) -> None:
        read.append(lakehouse.lake().load_table("marts.paid").scan().count())

    @dg.asset(ins={"paid": dg.AssetIn(key=KEY)})
    def by_input(paid: pl.DataFrame) -> None:
        read.append(paid.height)

    assert world.run(results(world, style), by_name, by_input).success
    assert read == [1, 1]


@STYLES
def test_both_kinds_of_checks_stand_before_publication(world, style):
    assert not world.run(results(world, style), breaks(world)).success
    assert world.ids() == []
    assert world.recorded() == []


def breaks(world):
    @dg.asset_check(asset=KEY, blocking=True)
    def few(paid: pl.DataFrame):
        return dg.AssetCheckResult(passed=paid.height == 0)

    return few


@pytest.mark.parametrize("inner", [False, True], ids=["separate", "inner"])
def test_a_step_that_is_retried_writes_anew(world, inner):
    tries = []
    retry = dg.RetryPolicy(max_retries=2)
    specs = [dg.AssetCheckSpec("later", asset=KEY, blocking=True)]

    @dg.asset(key=KEY, retry_policy=retry, check_specs=specs if inner else None)
    def flaky():
        tries.append(1)
        yield dg.Output(pl.DataFrame({"id": [len(tries)], "amount": [1.0]}))
        if inner and len(tries) == 1:
            raise ValueError("no network")
        if inner:
            yield dg.AssetCheckResult(passed=True)

    @dg.asset_check(asset=KEY, blocking=True)
    def broken(paid: pl.DataFrame):
        if paid["id"].to_list() == [1]:
            raise ValueError("no network")
        return dg.AssetCheckResult(passed=True)

    assert world.run(flaky, *([] if inner else [broken])).success
    assert world.ids() == [2]
    assert world.published()


def meddling(world, times):
    """A check beside which others write to the table, so many times."""
    left = [times]

    @dg.asset_check(asset=KEY, name="positive", blocking=True)
    def positive(paid: pl.DataFrame):
        world.seen.append(sorted(paid["id"].to_list()))
        if left[0] > 0:
            left[0] -= 1
            more = {"id": [100 + left[0]], "amount": [1.0], "day": ["2026-06-03"]}
            with_day = "day" in world.table.schema().column_names
            columns = more if with_day else {k: v for k, v in more.items() if k != "day"}
            world.table.append(pl.DataFrame(columns).to_arrow())
        return dg.AssetCheckResult(passed=right(paid))

    return positive


def as_stream(frame):
    arrow = frame.to_arrow()
    return pa.RecordBatchReader.from_batches(arrow.schema, arrow.to_batches())


@pytest.mark.parametrize("form", [lambda frame: frame, as_stream], ids=["frame", "stream"])
@pytest.mark.parametrize(
    ("mode", "kept"), [("append", [100, 101]), ("overwrite", []), ("upsert", [100, 101])]
)
@pytest.mark.parametrize("inner", [False, True], ids=["separate", "inner too"])
def test_what_others_wrote_meanwhile_is_kept_and_audited_with_it(world, form, mode, kept, inner):
    keys = {"upsert_keys": ["id"]} if mode == "upsert" else {}
    specs = [dg.AssetCheckSpec("any", asset=KEY, blocking=True)] if inner else None

    @dg.asset(key=KEY, metadata={"write_mode": mode, **keys}, check_specs=specs)
    def stored():
        yield dg.Output(form(world.frame))
        if inner:
            yield dg.AssetCheckResult(passed=True)

    assert world.run(stored, meddling(world, 2)).success
    assert world.ids() == [1, *kept]
    assert [1, *kept] in world.seen
    assert world.published()


def test_who_never_gets_a_turn_says_so(world):
    done = world.run(paid(world), meddling(world, 100))
    assert not done.success
    assert (
        "others committed"
        in done.get_step_failure_events()[0].step_failure_data.error_display_string
    )
    assert 1 not in world.ids()


def daily(world):
    @dg.asset(
        key=KEY,
        partitions_def=DAYS,
        metadata={"partition_expr": "day"},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def paid(context: dg.AssetExecutionContext):
        days = context.partition_keys
        ids = [int(day[-2:]) for day in days]
        frame = pl.DataFrame({"id": ids, "amount": [world.amount] * len(ids), "day": days})
        return frame.with_columns(pl.col("day").str.to_date())

    return paid


@pytest.mark.filterwarnings("ignore:Parameter `backfill_policy`")
@SEPARATE
def test_partitions_one_and_many(world, check):
    world.amount = 1.0
    definitions = daily(world), check(world)
    assert world.run(*definitions, partition_key="2026-06-01").success
    several = {
        "dagster/asset_partition_range_start": "2026-06-02",
        "dagster/asset_partition_range_end": "2026-06-04",
    }
    assert world.run(*definitions, tags=several).success
    assert world.ids() == [1, 2, 3, 4]
    assert world.published()
    count = len(world.recorded())
    world.amount = -1.0
    assert not world.run(*definitions, partition_key="2026-06-02").success
    assert not world.run(*definitions, tags=several).success
    assert world.table.scan("amount < 0").count() == 0
    assert len(world.recorded()) == count
    assert set(world.recorded()) <= {str(one) for one in world.table.metadata.snapshots.ids()}


def test_keys_that_come_and_go(world):
    parts = dg.DynamicPartitionsDefinition(name="shops")
    world.instance.add_dynamic_partitions("shops", ["a", "b"])

    @dg.asset(key=KEY, partitions_def=parts, metadata={"partition_expr": "shop"})
    def paid(context: dg.AssetExecutionContext):
        return pl.DataFrame({"id": [1], "amount": [1.0], "shop": [context.partition_key]})

    for key in ("a", "b"):
        assert world.run(paid, by_input(world), partition_key=key).success
    assert world.ids() == [1, 1]


def test_a_branch_of_the_whole_pipeline(world):
    definitions = paid(world), by_input(world)
    assert world.run(*definitions).success
    world.frame = pl.DataFrame({"id": [3], "amount": [1.0]})
    assert world.run(*definitions, branch="dev").success
    assert (world.ids(), world.ids("dev")) == ([1], [3])
    world.frame = pl.DataFrame(BAD)
    assert not world.run(*definitions, branch="dev").success
    assert (world.ids(), world.ids("dev")) == ([1], [3])
    assert sorted(world.table.refs()) == ["dev", "main"]
    assert world.seen[-1] == [2]


def test_a_check_that_waits_for_what_comes_later_cannot_be_asked_before(world):
    @dg.asset
    def beside() -> None:
        pass

    @dg.asset_check(asset=KEY, blocking=True, additional_deps=[beside])
    def both(paid: pl.DataFrame):
        world.seen.append(paid.height)
        return dg.AssetCheckResult(passed=True)

    @dg.asset
    def first() -> None:
        pass

    assert world.run(paid(world), beside, both).success
    assert world.seen == [1], "by Dagster alone"

    @dg.asset_check(asset=KEY, blocking=True, additional_deps=[first])
    def with_first(paid: pl.DataFrame):
        return dg.AssetCheckResult(passed=right(paid))

    world.frame = pl.DataFrame(BAD)
    assert not world.run(paid(world, deps=[first]), first, with_first).success
    assert world.ids() == [1]


def test_checks_of_several_assets_in_one_step(world):
    @dg.asset
    def another() -> None:
        pass

    @dg.multi_asset_check(
        specs=[
            dg.AssetCheckSpec("positive", asset=KEY, blocking=True),
            dg.AssetCheckSpec("another", asset=another.key),
        ]
    )
    def several(lakehouse: LakehouseResource):
        frame = lakehouse.lake().load_table("marts.paid").scan().to_polars()
        yield dg.AssetCheckResult(asset_key=KEY, check_name="positive", passed=right(frame))
        yield dg.AssetCheckResult(asset_key=another.key, check_name="another", passed=False)

    world.frame = pl.DataFrame(BAD)
    assert not world.run(paid(world, deps=[another]), another, several).success
    assert world.ids() == []
    assert world.checked() == "FAILED"
    world.frame = pl.DataFrame(GOOD)
    assert world.run(paid(world, deps=[another]), another, several).success
    assert world.published()
