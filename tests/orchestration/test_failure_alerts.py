"""Who is told of what, held against runs of a real instance."""

import sys
import time
from datetime import timedelta
from pathlib import Path

import dagster as dg
import orjson
import pytest
from dagster._core.definitions.freshness import FreshnessState, FreshnessStateChange

from lakehouse.errors import InvalidInputError
from lakehouse.orchestration import by_command, failure_alerts
from lakehouse.orchestration.asset_results import explained

DAYS = dg.DailyPartitionsDefinition("2026-06-01")


@dg.asset(partitions_def=DAYS)
def broken() -> None:
    raise InvalidInputError("raw.events: 3 lines\nhave no time", table="raw.events")


@dg.asset
def declared() -> None:
    raise dg.Failure(description="the audit failed", allow_retries=False)


@dg.asset
def fine() -> int:
    return 1


def told_of(asset: dg.AssetsDefinition, url: str = "", **kwargs: object) -> list[str]:
    """The texts that one evaluation of the sensor sends after a run of the asset."""
    texts: list[str] = []
    sensor = failure_alerts(texts.append, url=url)
    job = dg.define_asset_job("job", dg.AssetSelection.assets(*asset.keys))
    defs = dg.Definitions(assets=[asset], jobs=[job], sensors=[sensor])
    with dg.DagsterInstance.ephemeral() as instance:
        defs.resolve_job_def("job").execute_in_process(
            instance=instance, raise_on_error=False, **kwargs
        )
        sensor(dg.build_sensor_context(instance=instance))
    return texts


def test_the_text_says_what_failed_why_and_where_to_look() -> None:
    (text,) = told_of(broken, "http://ui:3000/", partition_key="2026-06-02")
    first, *why, last = text.splitlines()
    assert first == "job failed for 2026-06-02."
    assert [line.partition(": ")[0] for line in why] == ["broken"] * len(why)
    assert why[0] == "broken: InvalidInputError: raw.events: 3 lines"
    assert "http://ui:3000/runs/" in last


def test_an_error_of_ours_is_told_by_its_type_and_printed_once(capfd) -> None:
    """Once for the step and once for the run, which Dagster prints both; never as its own cause."""

    @dg.asset
    def refused() -> None:
        with explained():
            raise InvalidInputError("raw.events: 3 lines")

    (text,) = told_of(refused)
    assert "refused: InvalidInputError: raw.events: 3 lines" in text.splitlines()
    printed = capfd.readouterr().err
    assert printed.count("raw.events: 3 lines") == 2
    assert "caused by" not in printed


def test_a_failure_that_says_why_is_told_as_it_says() -> None:
    (text,) = told_of(declared)
    assert "declared: " in text
    assert "the audit failed" in text
    assert "in the UI" in text


def test_nobody_is_told_of_what_went_well_or_is_tried_again() -> None:
    assert told_of(fine) == []
    assert told_of(declared, tags={"dagster/will_retry": "true"}) == []


def test_a_command_gets_the_text_as_its_input(tmp_path: Path) -> None:
    path = tmp_path / "said.txt"
    write = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())"
    by_command(f'{sys.executable} -c "{write}" "{path}"')("two\nlines")
    assert path.read_text() == "two\nlines"


def test_a_command_that_fails_says_so() -> None:
    with pytest.raises(Exception, match="exit status 3"):
        by_command(f'{sys.executable} -c "raise SystemExit(3)"')("x")


class Alerts:
    """The sensor over an instance, made anew for each tick as by a daemon that started again."""

    def __init__(self, instance: dg.DagsterInstance, defs: dg.Definitions) -> None:
        self.instance, self.defs, self.cursor = instance, defs, None
        self.texts: list[str] = []
        self.refuse = False

    def tell(self, text: str) -> None:
        if self.refuse:
            raise OSError("the mail is down")
        self.texts.append(text)

    def tick(self) -> list[str]:
        """First lines of what a tick tells."""
        before = len(self.texts)
        context = dg.build_sensor_context(
            instance=self.instance,
            cursor=self.cursor,
            repository_def=self.defs.get_repository_def(),
        )
        failure_alerts(self.tell).evaluate_tick(context)
        self.cursor = context.cursor
        return [text.partition("\n")[0] for text in self.texts[before:]]


class World:
    """Assets and jobs that fail while they are told to."""

    def __init__(self) -> None:
        self.bad: set[str] = set()

        @dg.asset(partitions_def=DAYS, key_prefix="raw")
        def daily(context: dg.AssetExecutionContext) -> None:
            self.run(context.partition_key)

        @dg.asset
        def one() -> None:
            self.run("one")

        @dg.asset(deps=[one])
        def two() -> None:
            self.run("two")

        @dg.asset_check(asset=one)
        def right() -> dg.AssetCheckResult:
            return dg.AssetCheckResult(passed="right" not in self.bad, description="is wrong")

        @dg.op
        def step() -> None:
            self.run("step")

        @dg.op
        def another() -> None:
            self.run("another")

        @dg.job
        def steps() -> None:
            step()
            another()

        self.defs = dg.Definitions(
            assets=[daily, one, two],
            asset_checks=[right],
            jobs=[dg.define_asset_job("days", dg.AssetSelection.assets(daily)), steps],
        )

    def run(self, what: str) -> None:
        if what in self.bad:
            raise ValueError(f"{what} is bad")

    def execute(self, instance: dg.DagsterInstance, job: str, **kwargs: object) -> None:
        found = self.defs.resolve_job_def(job)
        found.execute_in_process(instance=instance, raise_on_error=False, **kwargs)

    def materialize(self, instance: dg.DagsterInstance, *assets: str) -> None:
        """As the UI's button does: by the job without a name."""
        found = self.defs.resolve_implicit_global_asset_job_def()
        keys = [dg.AssetKey(one) for one in assets]
        found.execute_in_process(instance=instance, raise_on_error=False, asset_selection=keys)


@pytest.fixture
def world():
    with dg.DagsterInstance.ephemeral() as instance:
        made = World()
        yield made, instance, Alerts(instance, made.defs)


def test_a_job_is_told_of_until_all_that_failed_has_succeeded(world) -> None:
    made, instance, alerts = world
    made.bad = {"2026-06-01", "2026-06-02"}
    for day in ("2026-06-01", "2026-06-02", "2026-06-01"):
        made.execute(instance, "days", partition_key=day)
    assert alerts.tick() == ["days failed for 2026-06-01."]
    made.execute(instance, "days", partition_key="2026-06-02")
    assert alerts.tick() == []
    made.bad = {"2026-06-02"}
    made.execute(instance, "days", partition_key="2026-06-01")
    assert alerts.tick() == []
    made.execute(instance, "days", partition_key="2026-06-02")
    assert alerts.tick() == [], "known, though another worked in between"
    made.bad.add("2026-06-03")
    made.execute(instance, "days", partition_key="2026-06-03")
    assert alerts.tick() == ["days failed for 2026-06-03."], "something else, after it had worked"
    made.bad = set()
    made.execute(instance, "days", partition_key="2026-06-03")
    assert alerts.tick() == []
    made.execute(instance, "days", partition_key="2026-06-02")
    assert alerts.tick() == ["days: works again."]
    made.execute(instance, "days", partition_key="2026-06-02")
    assert alerts.tick() == []
    assert orjson.loads(alerts.cursor)["troubles"] == {}


def test_who_computes_it_again_does_not_matter(world) -> None:
    made, instance, alerts = world
    made.bad = {"2026-06-01"}
    made.execute(instance, "days", partition_key="2026-06-01")
    assert alerts.tick() == ["days failed for 2026-06-01."]
    made.bad = set()
    made.defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance,
        asset_selection=[dg.AssetKey(["raw", "daily"])],
        partition_key="2026-06-01",
    )
    assert alerts.tick() == ["days: works again."]


def test_assets_without_a_job_are_told_of_together_and_each_on_its_own(world) -> None:
    made, instance, alerts = world
    made.bad = {"one"}
    made.materialize(instance, "one", "two")
    assert alerts.tick() == ["one, two failed."]
    made.materialize(instance, "two", "one")
    made.materialize(instance, "one")
    assert alerts.tick() == []
    made.bad = {"two"}
    made.materialize(instance, "one", "two")
    assert alerts.tick() == ["one: works again."]
    made.bad = set()
    made.materialize(instance, "two")
    assert alerts.tick() == ["two: works again."]


def test_steps_of_a_job_without_assets(world) -> None:
    made, instance, alerts = world
    made.bad = {"step"}
    for _ in range(3):
        made.execute(instance, "steps")
        alerts.tick()
    made.bad = {"another"}
    made.execute(instance, "steps")
    alerts.tick()
    made.bad = set()
    made.execute(instance, "steps")
    alerts.tick()
    assert [text.partition("\n")[0] for text in alerts.texts] == [
        "steps failed.",
        "steps: works again.",
    ]


def test_a_failure_that_was_mended_before_anybody_looked_is_not_told(world) -> None:
    made, instance, alerts = world
    made.bad = {"step"}
    made.execute(instance, "steps")
    made.bad = set()
    made.execute(instance, "steps")
    assert alerts.tick() == []


def test_a_check_is_told_of_when_it_turns(world) -> None:
    made, instance, alerts = world
    for bad, told in (
        (set(), []),
        ({"right"}, ["Check right of one failed."]),
        ({"right"}, []),
        (set(), ["Check right of one does not fail any more."]),
        (set(), []),
        ({"right"}, ["Check right of one failed."]),
    ):
        made.bad = bad
        made.materialize(instance, "one")
        assert alerts.tick() == told
    assert "is wrong" in alerts.texts[0]


def test_a_freshness_policy_is_told_of_when_it_turns() -> None:
    policy = dg.FreshnessPolicy.time_window(timedelta(hours=1))
    spec = dg.AssetSpec(["marts", "late"], freshness_policy=policy)
    with dg.DagsterInstance.ephemeral() as instance:
        alerts = Alerts(instance, dg.Definitions(assets=[spec]))
        told = []
        for state in ("PASS", "FAIL", "FAIL", "UNKNOWN", "PASS", "PASS", "WARN"):
            change = FreshnessStateChange(
                key=spec.key,
                new_state=FreshnessState(state),
                previous_state=FreshnessState.UNKNOWN,
                state_change_timestamp=1.0,
            )
            instance.report_runless_asset_event(change)
            told.append([text.partition(",")[0] for text in alerts.tick()])
    late = ["marts/late is late"]
    assert told == [[], late, [], [], ["marts/late is not late any more."], [], late]


def test_what_could_not_be_told_is_told_later_and_once(world) -> None:
    made, instance, alerts = world
    made.bad = {"step", "one"}
    made.execute(instance, "steps")
    made.materialize(instance, "one")
    alerts.refuse = True
    assert alerts.tick() == []
    alerts.refuse = False
    assert alerts.tick() == [], "a minute has not passed"
    known = orjson.loads(alerts.cursor)
    assert known["silent_until_ms"] > time.time() * 1000
    alerts.cursor = orjson.dumps(known | {"silent_until_ms": 0}).decode()
    assert sorted(alerts.tick()) == ["one failed.", "steps failed."]
    assert alerts.tick() == []


def test_a_cursor_of_another_version_starts_anew(world) -> None:
    made, instance, alerts = world
    made.bad = {"step"}
    made.execute(instance, "steps")
    alerts.cursor = '{"record_id": 12, "update_timestamp": "2026-06-01T00:00:00"}'
    assert alerts.tick() == ["steps failed."]


def test_what_the_project_no_longer_has_is_over(world) -> None:
    made, instance, alerts = world
    made.bad = {"step", "one", "2026-06-01"}
    made.execute(instance, "steps")
    made.execute(instance, "days", partition_key="2026-06-01")
    made.materialize(instance, "one")
    assert len(alerts.tick()) == 3
    alerts.defs = dg.Definitions(assets=[fine])
    over = [f"{name}: works again." for name in ("days", "one", "steps")]
    assert sorted(alerts.tick()) == over
    assert alerts.tick() == []
