"""Plain assets take and give frames; what lies in the tables is read by pyiceberg."""

import datetime as dt
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest
from pyiceberg.table import StaticTable
from pyspark.sql import DataFrame as SparkFrame

import lakehouse as lh
from lakehouse.orchestration import (
    LakehouseIOManager,
    LakehouseResource,
    LakehouseSpark,
    Pipeline,
    SqlModel,
    with_code_versions,
)
from lakehouse.orchestration.assets.staleness import redefined_partitions
from lakehouse.orchestration.lineage.materialization import INPUTS, SNAPSHOT_ID
from lakehouse.orchestration.lineage.replay import replayed
from lakehouse.orchestration.lineage.trace import read_lineage

DAYS = dg.DailyPartitionsDefinition("2026-06-01", end_date="2026-06-06")
REGIONS = dg.StaticPartitionsDefinition(["eu", "o'us", "ap"])
AT = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)
COLUMNS = {"id": [1, 2], "at": [AT, AT + dt.timedelta(hours=1)], "name": ["a", None]}
SCHEMA = pa.schema({"id": pa.int64(), "at": pa.timestamp("us", "UTC"), "name": pa.string()})
ROWS = pa.table(COLUMNS, SCHEMA)
FRAMES = {
    pa.Table: lambda: ROWS,
    pa.RecordBatchReader: ROWS.to_reader,
    pl.DataFrame: lambda: pl.from_arrow(ROWS),
    pl.LazyFrame: lambda: pl.from_arrow(ROWS).lazy(),
    pd.DataFrame: ROWS.to_pandas,
    duckdb.DuckDBPyRelation: lambda: duckdb.connect().from_arrow(ROWS),
}


@pytest.fixture
def lake(tmp_path: Path) -> lh.Lakehouse:
    return lh.load_catalog(str(tmp_path / "warehouse"))


@pytest.fixture
def run(tmp_path: Path):
    """Materializes assets in one instance with their I/O manager."""
    with dg.DagsterInstance.ephemeral() as instance:

        def materialize(*assets, select=None, fails=False, settings=(), **more):
            manager = LakehouseIOManager(
                lakehouse=LakehouseResource(catalog=str(tmp_path / "warehouse")),
                spark=LakehouseSpark(master="local[2]"),
                **dict(settings),
            )
            result = dg.materialize(
                list(assets),
                resources={"io_manager": manager},
                instance=instance,
                selection=select,
                raise_on_error=not fails,
                **more,
            )
            assert result.success is not fails
            return result

        materialize.instance = instance
        yield materialize


def stored(lake: lh.Lakehouse, name: str, *columns: str) -> list[tuple]:
    """The rows of a table, as pyiceberg reads them."""
    table = StaticTable.from_metadata(lake.load_table(name).metadata_location)
    rows = table.scan().to_arrow().to_pylist()
    return sorted((tuple(row[c] for c in columns or row) for row in rows), key=repr)


def metadata(result, *key: str) -> dict:
    return dict(result.asset_materializations_for_node("__".join(key))[0].metadata)


def giver(frame, annotation, **more):
    def events():
        return frame()

    events.__annotations__ = {"return": annotation}
    return dg.asset(key_prefix="raw", **more)(events)


def taker(annotation, seen, **more):
    def copied(events):
        rows = events.collect() if isinstance(events, pl.LazyFrame) else events
        rows = rows.scan() if isinstance(rows, lh.Table) else rows
        rows = rows.to_arrow() if isinstance(rows, lh.TableScan) else pa.table(rows)
        seen.append((type(events), rows))
        return seen[-1][1]

    copied.__annotations__ = {"events": annotation, "return": pa.Table}
    ins = {"events": dg.AssetIn(key_prefix="raw")}
    return dg.asset(key_prefix="clean", ins=ins, **more)(copied)


@pytest.mark.parametrize("given", FRAMES, ids=lambda one: f"{one.__module__}.{one.__name__}")
def test_every_kind_of_frame_is_given_and_taken(given, run, lake) -> None:
    seen: list = []
    events = giver(FRAMES[given], given)
    result = run(events, taker(given, seen))
    wanted = sorted(zip(*COLUMNS.values(), strict=True), key=repr)
    assert stored(lake, "raw.events") == wanted
    assert stored(lake, "clean.copied") == wanted
    (kind, rows), read = seen[0], lake.load_table("raw.events").current_snapshot()
    assert issubclass(kind, given)
    assert rows.num_rows == 2
    found = metadata(result, "clean", "copied")
    assert found[INPUTS].value == {"raw.events": str(read.snapshot_id)}
    assert found["dagster/row_count"].value == 2
    own = lake.load_table("clean.copied").current_snapshot()
    assert found[SNAPSHOT_ID].value == str(own.snapshot_id)
    assert own.summary["dagster.run-id"] == result.run_id


@pytest.mark.parametrize("given", [lh.Table, lh.TableScan])
def test_a_handle_can_be_asked_for_instead_of_data(given, run, lake) -> None:
    seen: list = []
    result = run(giver(FRAMES[pa.Table], pa.Table), taker(given, seen))
    assert seen[0][0] is given
    assert stored(lake, "clean.copied") == stored(lake, "raw.events")
    assert list(metadata(result, "clean", "copied")[INPUTS].value) == ["raw.events"]


def test_lineage_knows_a_plain_asset(run, lake) -> None:
    run(giver(FRAMES[pa.Table], pa.Table), taker(pl.DataFrame, []))
    found = read_lineage(run.instance, lake, "clean/copied")
    assert found.table == "clean.copied"
    assert [one.table for one in found.inputs] == ["raw.events"]


@pytest.mark.spark
def test_spark_frames_are_given_and_taken(spark, run, lake) -> None:
    seen: list = []

    def copied(events):
        seen.append(events)
        return events.where("id = 2")

    copied.__annotations__ = {"events": SparkFrame, "return": SparkFrame}
    copied = dg.asset(key_prefix="clean", ins={"events": dg.AssetIn(key_prefix="raw")})(copied)
    run(giver(lambda: spark.createDataFrame(ROWS), SparkFrame), copied)
    assert stored(lake, "raw.events", "id", "name") == [(1, "a"), (2, None)]
    assert stored(lake, "clean.copied", "id") == [(2,)]
    assert isinstance(seen[0], SparkFrame)


def daily(at_type: pa.DataType, to_value, **more):
    """An asset whose runs write what `numbers` holds for their days."""
    numbers: dict[str, list[int]] = {}

    @dg.asset(
        key_prefix="raw",
        partitions_def=more.pop("partitions_def", DAYS),
        metadata={"partition_expr": "at", **more},
    )
    def events(context: dg.AssetExecutionContext) -> pa.Table:
        rows = [(to_value(key), n) for key in context.partition_keys for n in numbers.get(key, ())]
        return pa.table(
            {
                "at": pa.array([a for a, _ in rows], at_type),
                "n": pa.array([n for _, n in rows], pa.int64()),
            }
        )

    return events, numbers


def at_last(day: str) -> dt.datetime:
    """The last second of a day."""
    return dt.datetime.fromisoformat(f"{day[:10]}T23:59:59{day[10:]}")


KINDS = {
    "timestamptz": (
        pa.timestamp("us", "UTC"),
        lambda key: dt.datetime.fromisoformat(f"{key}T23:59:59+00:00"),
        "day",
    ),
    "timestamp": (pa.timestamp("us"), dt.datetime.fromisoformat, "day"),
    "date": (pa.date32(), dt.date.fromisoformat, "day"),
    "string": (pa.string(), str, "identity"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_days_are_replaced_whatever_holds_them(kind, run, lake) -> None:
    at_type, to_value, transform = KINDS[kind]
    events, numbers = daily(at_type, to_value)
    numbers |= {"2026-06-01": [1], "2026-06-02": [2, 3], "2026-06-03": [4]}
    for day in numbers:
        run(events, partition_key=day)
    first = lake.load_table("raw.events").current_snapshot().snapshot_id
    numbers["2026-06-02"] = [7]
    result = run(events, partition_key="2026-06-02")
    assert stored(lake, "raw.events", "n") == [(1,), (4,), (7,)]
    again = run(events, partition_key="2026-06-02")  # a rerun changes nothing
    assert stored(lake, "raw.events", "n") == [(1,), (4,), (7,)]
    table = lake.load_table("raw.events")
    assert [str(one.transform) for one in table.spec().fields] == [transform]
    assert table.scan(snapshot_id=first).count() == 4
    for one in (result, again):
        assert metadata(one, "raw", "events")["dagster/partition_row_count"].value == 1
    numbers["2026-06-01"] = []
    run(events, partition_key="2026-06-01")  # a day without rows is an empty day
    assert stored(lake, "raw.events", "n") == [(4,), (7,)]


@pytest.mark.parametrize(
    ("entries", "wanted"),
    [({}, "30d: month(at)"), ({"layout_by_age": "9d: year(at)"}, "9d: year(at)"),
     ({"layout_by_age": ""}, None), ({"partition_by": ["day(at)"]}, "30d: month(at)"),
     ({"partition_by": ["bucket(4, n)"]}, None), ({"partition_by": ["month(at)"]}, None)],
)  # fmt: skip
def test_closed_months_of_a_daily_asset_are_laid_out_as_those_of_sources(
    entries, wanted, run, lake
) -> None:
    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "at", **entries})
    def events(context) -> pl.DataFrame:
        at = dt.datetime.fromisoformat(context.partition_key)
        return pl.DataFrame({"at": [at], "n": [1]})

    run(events, partition_key="2026-06-01")
    found = lake.load_table("default.events")
    assert found.properties.get("lakehouse.maintenance.layout-by-age") == wanted
    run(events, partition_key="2026-06-01")
    assert len(lake.load_table("default.events").snapshots()) == 2
    assert found.refresh().properties.get("lakehouse.maintenance.layout-by-age") == wanted


@pytest.mark.parametrize(
    ("options", "wanted"),
    [({"partition_by": ("day(day)", "n")}, "30d: month(day)"), ({"partition_by": ("n",)}, None),
     ({"partition_by": ("day(day)",), "day_column": None}, None),
     ({"partition_by": ("day(day)",),
       "table_properties": {"lakehouse.maintenance.layout-by-age": ""}}, "")],
)  # fmt: skip
def test_so_are_those_of_a_daily_derived_table(options, wanted, lake) -> None:
    told = {"day_column": "day", "day_is_date": True, "sql": "SELECT 1 FROM a.b", **options}
    target = SqlModel(name="marts.days", **told).table().target
    schema = pa.schema([("day", pa.date32()), ("n", pa.int64())])
    found = target.ready(lake, schema, None, print)
    assert found.properties.get("lakehouse.maintenance.layout-by-age") == wanted


def test_a_range_of_days_is_one_run_and_rows_of_other_days_are_refused(run, lake) -> None:
    at_type, to_value, _ = KINDS["timestamptz"]
    events, numbers = daily(at_type, to_value)
    numbers |= {f"2026-06-0{day}": [day] for day in range(1, 6)}
    tags = {
        "dagster/asset_partition_range_start": "2026-06-02",
        "dagster/asset_partition_range_end": "2026-06-04",
    }
    run(events, tags=tags)
    assert stored(lake, "raw.events", "n") == [(2,), (3,), (4,)]
    assert len(lake.load_table("raw.events").snapshots()) == 1
    wrong, more = daily(at_type, lambda key: AT)
    more["2026-06-03"] = [9]
    failed = run(wrong, partition_key="2026-06-03", fails=True)
    assert "1 of 1 rows of a new file do not match" in str(failed.all_events)
    assert stored(lake, "raw.events", "n") == [(2,), (3,), (4,)]


def test_days_of_a_zone_are_those_of_its_wall_clock(run, lake) -> None:
    """A day of 23 hours: the clock goes forward in Berlin on 29 March 2026."""
    days = {"start_date": "2026-03-28", "end_date": "2026-03-31"}
    berlin = dg.DailyPartitionsDefinition(**days, timezone="Europe/Berlin")
    utc = {"2026-03-29": "2026-03-28T23:00:00+00:00", "2026-03-30": "2026-03-29T22:00:00+00:00"}
    events, numbers = daily(
        pa.timestamp("us", "UTC"),
        lambda key: dt.datetime.fromisoformat(utc[key]),
        partitions_def=berlin,
    )
    numbers |= {"2026-03-29": [29], "2026-03-30": [30]}
    run(events, partition_key="2026-03-29")
    run(events, partition_key="2026-03-30")
    numbers["2026-03-29"] = [0]
    run(events, partition_key="2026-03-29")
    assert stored(lake, "raw.events", "n") == [(0,), (30,)]


def test_a_downstream_day_reads_its_day_alone(run, lake) -> None:
    events, numbers = daily(*KINDS["timestamptz"][:2])
    numbers |= {"2026-06-01": [1], "2026-06-02": [2, 3]}
    run(events, partition_key="2026-06-01")
    run(events, partition_key="2026-06-02")
    seen: list = []
    one_day = taker(pl.DataFrame, seen, partitions_def=DAYS, metadata={"partition_expr": "at"})
    numbers_alone = dg.AssetIn(["raw", "events"], metadata={"columns": ["n"]})
    all_days = dg.asset(name="total", ins={"events": numbers_alone})(total)
    run(events, one_day, select=[one_day], partition_key="2026-06-02")
    assert seen[0][1]["n"].to_pylist() == [2, 3]
    run(events, all_days, select=[all_days])
    assert stored(lake, "default.total") == [(6,)]


def total(events: pl.DataFrame) -> pl.DataFrame:
    assert events.columns == ["n"]
    return events.select(pl.sum("n"))


def test_static_partitions_and_those_of_two_dimensions(run, lake) -> None:
    both = dg.MultiPartitionsDefinition({"region": REGIONS, "day": DAYS})
    count = [0]

    @dg.asset(partitions_def=REGIONS, metadata={"partition_expr": "region"})
    def regions(context: dg.AssetExecutionContext) -> pl.DataFrame:
        count[0] += 1
        return pl.DataFrame({"region": [context.partition_key], "n": [count[0]]})

    @dg.asset(partitions_def=both, metadata={"partition_expr": {"region": "region", "day": "at"}})
    def sales(context: dg.AssetExecutionContext) -> pl.DataFrame:
        count[0] += 1
        keys = context.partition_key.keys_by_dimension
        at = dt.datetime.fromisoformat(keys["day"])
        return pl.DataFrame({"region": [keys["region"]], "at": [at], "n": [count[0]]})

    for region in ("eu", "o'us", "eu"):
        run(regions, partition_key=region)
    assert set(stored(lake, "default.regions")) == {("eu", 3), ("o'us", 2)}
    for region, day in (("eu", 1), ("ap", 1), ("eu", 2), ("eu", 1)):
        key = dg.MultiPartitionKey({"region": region, "day": f"2026-06-0{day}"})
        run(sales, partition_key=key)
    assert stored(lake, "default.sales", "region", "n") == [("ap", 5), ("eu", 6), ("eu", 7)]
    spec = lake.load_table("default.sales").spec()
    terms = [(one.name, str(one.transform)) for one in spec.fields]
    assert terms == [("at_day", "day"), ("region", "identity")]


def test_rows_are_added_or_changed_by_key_where_the_asset_says_so(run, lake) -> None:
    rows = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]

    @dg.asset(metadata={"write_mode": "append"})
    def log() -> pl.DataFrame:
        return pl.DataFrame(rows)

    @dg.asset(metadata={"write_mode": "upsert", "upsert_keys": ["id"], "table": "marts.users"})
    def users() -> pl.DataFrame:
        return pl.DataFrame(rows)

    run(log, users)
    rows[:] = [{"id": 2, "v": "c"}, {"id": 3, "v": "d"}]
    run(log, users)
    assert stored(lake, "default.log") == [(1, "a"), (2, "b"), (2, "c"), (3, "d")]
    assert stored(lake, "marts.users") == [(1, "a"), (2, "c"), (3, "d")]


def test_a_step_that_is_tried_again_writes_once(run, lake, tmp_path) -> None:
    """The first attempt commits, and dies before Dagster knows."""
    tries = [0]

    class Dying(LakehouseIOManager):
        def handle_output(self, context, obj):
            super().handle_output(context, obj)
            tries[0] += 1
            if tries[0] == 1:
                raise dg.RetryRequested(max_retries=1)

    @dg.asset(metadata={"write_mode": "append"}, retry_policy=dg.RetryPolicy(max_retries=1))
    def log() -> pa.Table:
        return pa.table({"n": [1]})

    manager = Dying(lakehouse=LakehouseResource(catalog=str(tmp_path / "warehouse")))
    result = dg.materialize([log], resources={"io_manager": manager}, instance=run.instance)
    assert result.success
    assert tries == [2]
    assert stored(lake, "default.log") == [(1,)]


def test_columns_come_and_widen_and_their_documentation_is_the_assets(run, lake) -> None:
    frame = [pl.DataFrame({"n": pl.Series([1], dtype=pl.Int32)})]

    def numbers() -> pl.DataFrame:
        return frame[0]

    def described(**docs):
        columns = [dg.TableColumn(name, "int", description=doc) for name, doc in docs.items()]
        return dg.asset(metadata={"dagster/column_schema": dg.TableSchema(columns)})(numbers)

    run(described(n="how many"))
    (first,) = lake.load_table("default.numbers").schema().fields
    assert (first.name, str(first.field_type), first.doc) == ("n", "int", "how many")
    frame[0] = pl.DataFrame({"n": [1 << 40], "new": ["x"]})
    result = run(described(n="how very many", new="since June"))
    found = lake.load_table("default.numbers").schema()
    assert [(f.name, str(f.field_type), f.doc, f.required) for f in found.fields] == [
        ("n", "long", "how very many", False),
        ("new", "string", "since June", False),
    ]
    shown = metadata(result, "numbers")["dagster/column_schema"].value.columns
    assert [one.description for one in shown] == ["how very many", "since June"]
    frame[0] = pl.DataFrame({"n": pl.Series([2], dtype=pl.Int32)})
    run(dg.asset(numbers))  # what fits changes nothing
    assert lake.load_table("default.numbers").schema() == found
    assert stored(lake, "default.numbers") == [(2, None)]
    frame[0] = pl.DataFrame({"n": [3.0, None]})  # as pandas gives integers beside nulls
    run(dg.asset(numbers))
    assert stored(lake, "default.numbers") == [(3, None), (None, None)]
    for wrong, told in (([3.5], "cannot hold a value"), (["x"], "Compute n as long")):
        frame[0] = pl.DataFrame({"n": wrong})
        failed = run(dg.asset(numbers), fails=True)
        assert told in failed.failure_data_for_node("numbers").user_failure_data.description
    assert lake.load_table("default.numbers").schema() == found


def test_an_upsert_of_some_columns_leaves_the_others_as_they_are(run, lake) -> None:
    columns = [pa.field("n", pa.int64()), pa.field("kept", pa.string(), nullable=False)]
    table = lake.create_table("default.numbers", pa.schema(columns))
    table.append(pa.table({"n": [1], "kept": ["x"]}, pa.schema(columns)))

    @dg.asset(metadata={"write_mode": "upsert", "upsert_keys": ["n"]})
    def numbers() -> pl.DataFrame:
        return pl.DataFrame({"n": [1], "new": [True]})

    result = run(numbers)
    assert stored(lake, "default.numbers") == [(1, "x", True)]
    logs = [one.user_message for one in run.instance.all_logs(result.run_id)]
    assert [one for one in logs if "kept" in one] == []


def test_required_columns_stay_required(run, lake) -> None:
    required = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    lake.create_table("default.numbers", required)

    @dg.asset
    def numbers() -> pl.DataFrame:
        return pl.DataFrame({"n": values})

    values: list = [1]
    run(numbers)
    values = [None]
    run(numbers, fails=True)
    assert lake.load_table("default.numbers").schema().find_field("n").required
    assert stored(lake, "default.numbers") == [(1,)]


def test_a_branch_of_the_pipeline_leaves_main_alone(run, lake) -> None:
    n = [1]

    @dg.asset
    def base() -> pl.DataFrame:
        return pl.DataFrame({"n": [n[0]]})

    @dg.asset
    def top(base: pl.DataFrame) -> pl.DataFrame:
        return base.select(pl.col("n") * 10)

    run(base, top)
    n[0] = 2
    run(base, top, select=[top], settings={"branch": "dev"})  # reads main, as dev has no base
    run(base, top, settings={"branch": "dev"})
    assert stored(lake, "default.base") == [(1,)]
    assert stored(lake, "default.top") == [(10,)]
    assert lake.load_table("default.top").scan(ref="dev").to_arrow()["n"].to_pylist() == [20]


def test_an_asset_may_write_its_table_itself(run, lake) -> None:
    @dg.asset
    def own() -> lh.Table:
        table = lake.create_table("default.own", pa.schema({"n": pa.int64()}))
        table.append(pa.table({"n": [1, 2]}))
        return table

    result = run(own)
    assert metadata(result, "own")["dagster/row_count"].value == 2

    @dg.asset
    def other() -> lh.Table:
        return lake.load_table("default.own")

    failed = run(other, fails=True)
    assert "default.own.scan()" in str(failed.all_events)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({}, "name the column that tells them"),
        ({"partition_expr": "nowhere"}, "which is no column; there are at, n"),
        ({"partition_expr": "at", "write_mode": "replace"}, "one of overwrite, append, upsert"),
        ({"partition_expr": "at", "write_mode": "upsert"}, "upsert_keys"),
        ({"partition_expr": "at", "branch": 3}, "must be a text"),
        ({"refresh": "auto"}, "write its SQL as SqlModel(name='events', sql=..., refresh='auto')"),
    ],
)
def test_mistakes_are_told_by_asset_and_by_what_to_write(entries, message, run, lake) -> None:
    @dg.asset(partitions_def=DAYS, metadata=entries, retry_policy=dg.RetryPolicy(max_retries=3))
    def events() -> pa.Table:
        return pa.table({"at": [AT], "n": [1]})

    failed = run(events, partition_key="2026-06-01", fails=True)
    told = failed.failure_data_for_node("events").user_failure_data.description
    assert "asset events" in told
    assert message in told
    assert not failed.retry_attempts_for_node("events")


def test_a_plain_asset_is_replayed_from_the_snapshots_that_it_read(run, lake, tmp_path) -> None:
    n, factor = [1, 2], [10]

    @dg.asset
    def base() -> pl.DataFrame:
        return pl.DataFrame({"n": n})

    @dg.asset
    def top(base: pd.DataFrame) -> pd.DataFrame:
        return base * factor[0]

    @dg.asset(metadata={"write_mode": "append"})
    def log(base: pl.DataFrame) -> pl.DataFrame:
        return base

    @dg.asset(metadata={"write_mode": "upsert", "upsert_keys": ["n"]})
    def keyed(base: pl.DataFrame) -> pl.DataFrame:
        return base

    assets = [base, top, log, keyed]
    for values in ([1, 2], [2, 3, 3]):
        n[:] = values
        run(*assets[: 3 if values == [2, 3, 3] else 4])
    n[:] = [99]
    run(base, select=[base])
    manager = LakehouseIOManager(lakehouse=LakehouseResource(catalog=str(tmp_path / "warehouse")))
    defs = dg.Definitions(assets=assets, resources={"io_manager": manager})

    def session():
        pytest.fail("no Spark session is needed where there is no frame of Spark")

    def replay(key: str):
        checkout = SimpleNamespace(pipeline=Pipeline((), (), ""), defs=defs)
        return replayed(checkout, read_lineage(run.instance, lake, key), lake, session)

    snapshots = len(lake.load_table("default.top").snapshots())
    for key, rows in (("top", 3), ("log", 3), ("keyed", 2), ("base", 1)):
        again = replay(key)
        assert (again.equal, again.rows) == (True, rows), (key, again.examples)
    factor[0] = 11
    again = replay("top")
    assert (again.equal, again.missing, again.unexpected) == (False, 3, 3)
    # a column that came later is none of the rows' columns, one that is not computed is null
    with lake.load_table("default.top").update_schema() as change:
        change.add_column("late", "string")
    n[:] = []
    factor[0] = 10
    assert replay("top").equal
    assert len(lake.load_table("default.top").snapshots()) == snapshots  # it stores nothing


def test_an_input_that_was_empty_is_empty_in_a_replay(run, lake, tmp_path) -> None:
    events = giver(lambda: ROWS, pa.Table)

    @dg.asset(ins={"events": dg.AssetIn(key_prefix="raw")})
    def counted(events: pl.DataFrame) -> pl.DataFrame:
        return pl.DataFrame({"counted": [events.height]})

    lake.create_table("raw.events", SCHEMA)
    run(events, counted, select=[counted])
    sql = "SELECT count(*) AS counted FROM raw.events"
    derived = SqlModel(name="marts.counted", sql=sql, engine="duckdb").table()
    read = derived.staleness(lake).inputs
    run(events, counted, select=[events])
    assert derived.compute(lake, None, read, None).read_all().to_pydict() == {"counted": [0]}
    manager = LakehouseIOManager(lakehouse=LakehouseResource(catalog=str(tmp_path / "warehouse")))
    defs = dg.Definitions(assets=[events, counted], resources={"io_manager": manager})
    checkout = SimpleNamespace(pipeline=Pipeline((), (), ""), defs=defs)
    again = replayed(checkout, read_lineage(run.instance, lake, "counted"), lake, lambda: None)
    assert (again.equal, again.rows) == (True, 1), again.examples


def test_what_is_no_frame_is_told(run) -> None:
    @dg.asset
    def numbers():
        return [1, 2]

    @dg.asset
    def reader(missing):
        return missing

    failed = run(numbers, fails=True)
    assert "gave list" in failed.failure_data_for_node("numbers").user_failure_data.description
    missing = dg.AssetSpec("missing")
    failed = run(missing, reader, fails=True)
    told = failed.failure_data_for_node("reader").user_failure_data.description
    assert "materialize missing first" in told


def test_layout_and_properties_follow_the_assets_metadata(run, lake) -> None:
    def numbers() -> pl.DataFrame:
        return pl.DataFrame({"n": [1, 2], "s": ["a", "b"]})

    def asset(**entries):
        return dg.asset(metadata=entries)(numbers)

    first = {"partition_by": "s", "table_properties": {"a.b": "1", "gone": "x"}}
    run(asset(**first))
    versions = len(lake.load_table("default.numbers").metadata.metadata_log)
    run(asset(**first))
    table = lake.load_table("default.numbers")
    assert len(table.metadata.metadata_log) == versions + 1, "one commit a run"
    result = run(
        asset(partition_by="bucket(2, n)", sort_by="n", table_properties={"a.b": "2", "c": "3"})
    )
    table = lake.load_table("default.numbers")
    assert [str(one.transform) for one in table.spec().fields] == ["bucket[2]"]
    assert len(table.metadata.sort_order().fields) == 1
    assert {k: v for k, v in table.properties.items() if k in ("a.b", "c", "gone")} == {
        "a.b": "2",
        "c": "3",
    }
    logs = [one.user_message for one in run.instance.all_logs(result.run_id)]
    assert [one.split(" is ")[0] for one in logs if one.startswith("definition changed")] == [
        f"definition changed: default.numbers: {part}"
        for part in ("partition_by", "sort_by", "table_properties")
    ]
    # what somebody changed by hand stays while the metadata is as it was
    table.set_properties({"a.b": "9"})
    run(asset(partition_by="bucket(2, n)", sort_by="n", table_properties={"a.b": "2", "c": "3"}))
    assert lake.load_table("default.numbers").properties["a.b"] == "9"
    assert stored(lake, "default.numbers") == [(1, "a"), (2, "b")]


def closing_over(factor: int):
    def numbers() -> pl.DataFrame:
        return pl.DataFrame({"n": [factor]})

    return numbers


def otherwise():
    def numbers() -> pl.DataFrame:
        return pl.DataFrame({"n": [2 * 3]})

    return numbers


def test_code_that_changed_is_told_by_dagster_and_by_the_tables_own_record(run, lake) -> None:
    def status(asset) -> list[str]:
        graph = dg.Definitions(assets=[asset]).resolve_asset_graph()
        resolver = CachingStaleStatusResolver(
            run.instance, graph, LoadingContextForTest(run.instance)
        )
        causes = resolver.get_stale_causes(asset.key)
        return [cause.reason for cause in causes]

    (first,) = with_code_versions([dg.asset(closing_over(2))])
    (again,) = with_code_versions([dg.asset(closing_over(2))])
    (closed,) = with_code_versions([dg.asset(closing_over(3))])
    (other,) = with_code_versions([dg.asset(otherwise())])
    (told,) = with_code_versions([dg.asset(otherwise(), code_version="mine")])
    versions = [one.code_versions_by_key[one.key] for one in (first, again, closed, other, told)]
    assert versions[0] == versions[1]
    assert len({*versions}) == 4
    assert versions[4] == "mine"

    written = metadata(run(first), "numbers")["lakehouse/definition"].value
    assert written == versions[0]
    assert status(again) == []
    assert status(other) == ["has a new code version"]
    table = lake.load_table("default.numbers")
    assert redefined_partitions(table, versions[1]) == {}
    assert redefined_partitions(table, versions[3]) == {"": versions[0]}
    assert redefined_partitions(table, "") == {}, "unknown code tells nothing"
    # without `with_code_versions` the materialization says the same
    assert (
        metadata(run(dg.asset(otherwise())), "numbers")["lakehouse/definition"].value
        == (versions[3])
    )
    assert redefined_partitions(lake.load_table("default.numbers"), versions[3]) == {}
    compacted = lake.load_table("default.numbers")
    compacted.compact()
    assert redefined_partitions(compacted.refresh(), "x") == {"": versions[3]}


def test_each_partition_is_told_by_the_code_that_wrote_it_last(run, lake) -> None:
    def code(name: str):
        def events(context: dg.AssetExecutionContext) -> pl.DataFrame:
            return pl.DataFrame({"region": [context.partition_key], "by": [name]})

        return dg.asset(
            partitions_def=REGIONS, metadata={"partition_expr": "region"}, code_version=name
        )(events)

    run(code("old"), partition_key="eu")
    run(code("old"), partition_key="ap")
    run(code("new"), partition_key="ap")
    table = lake.load_table("default.events")
    assert redefined_partitions(table, "new") == {"eu": "old"}
    assert redefined_partitions(table, "old") == {"ap": "new"}
