"""Plain assets: partition keys of any spelling, times of any unit, heads with a new schema.

The oracles are Dagster's own definitions (keys, windows, what its managers give a first run) and
the rows that went in.
"""

from __future__ import annotations

import datetime as dt
import warnings
from zoneinfo import ZoneInfo

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import InvalidInputError
from lakehouse.ingestion.stamp import RunStamp
from lakehouse.orchestration import LakehouseIOManager, LakehouseResource
from lakehouse.orchestration.assets.partition_filter import partition_filter
from lakehouse.spec.types.arrow_types import schema_to_arrow

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-05")
KEYS = [
    *("New York", "Zürich", "東京", 'say "hi"', "it's", "back\\slash", "a,b;c", "100%", "x" * 300),
    *("🙂", "a=b&c", "../up", "*"),
]


@pytest.fixture
def run(tmp_path):
    lake = lh.load_catalog(str(tmp_path))
    manager = LakehouseIOManager(lakehouse=LakehouseResource(catalog=str(tmp_path)))
    with dg.DagsterInstance.ephemeral() as instance:

        def materialize(asset, key=None, selection=None):
            return dg.materialize(
                asset if isinstance(asset, list) else [asset],
                partition_key=key,
                selection=selection,
                resources={"io_manager": manager},
                instance=instance,
            )

        materialize.lake, materialize.manager, materialize.instance = lake, manager, instance
        yield materialize


@pytest.mark.parametrize("mode", ["overwrite", "append", "upsert"])
@pytest.mark.parametrize("key", KEYS)
def test_partition_keys_are_spelled_as_they_like(run, key, mode):
    more = {"upsert_keys": ["n"]} if mode == "upsert" else {}

    @dg.asset(
        key_prefix="q",
        partitions_def=dg.StaticPartitionsDefinition([key, "other"]),
        metadata={"partition_expr": "p", "write_mode": mode, **more},
    )
    def rows(context) -> pd.DataFrame:
        return pd.DataFrame(
            {"p": [context.partition_key], "n": [int(context.partition_key == key)]}
        )

    for one in ("other", key):
        assert run(rows, one).success
    table = run.lake.load_table("q.rows").scan().to_arrow()
    assert sorted(table["p"].to_pylist()) == sorted([key, "other"])


@pytest.mark.parametrize("name", ["users", "my table", "Zürich", "x" * 150, "a.b"])
@pytest.mark.parametrize("partition", [None, *KEYS])
def test_names_of_commits_and_branches_are_told_apart(name, partition):
    stamp = RunStamp("0123-abc", f"marts/{name}", partition)
    others = [RunStamp("0123-abc", f"marts/{name}", f"{partition}2"), RunStamp("9", "marts/x")]
    for what in ("rows", "ledger"):
        commit_id = stamp.commit_id(what)
        assert commit_id == stamp.commit_id(what)
        assert len(commit_id) <= 200
        assert commit_id.isascii()
        assert commit_id.isprintable()
        assert '"' not in commit_id
        assert commit_id not in {other.commit_id(what) for other in others}
    assert stamp.branch().startswith("audit-0123-")
    assert not set(stamp.branch()) & set(' /\\"')


@pytest.mark.parametrize("unit", ["us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_a_day_is_whole_whatever_the_unit_of_its_times(run, unit, zone):
    kind = pa.timestamp(unit, zone)
    schema = pa.schema([("ts", kind), ("x", pa.int64())])
    table = run.lake.create_table("raw.t", schema, format_version=3, partition_by=["day(ts)"])
    texts = [*(f"2026-01-01T{hour:02}:00:00" for hour in (0, 10, 23)), "2026-01-02T05:00:00"]
    times = pa.array(texts).cast(pa.timestamp(unit))
    times = times.cast(kind)
    table.append(pa.table({"ts": times, "x": pa.array(range(4), pa.int64())}, schema=schema))
    seen = []
    up = dg.AssetSpec(
        dg.AssetKey(["raw", "t"]),
        partitions_def=DAYS,
        metadata={"partition_expr": "ts", "dagster/io_manager_key": "io_manager"},
    )

    @dg.asset(
        key=["marts", "t"],
        partitions_def=DAYS,
        metadata={"partition_expr": "ts", "table_properties": {"format-version": "3"}},
        ins={"rows": dg.AssetIn(key=["raw", "t"])},
    )
    def down(rows: pa.Table) -> pa.Table:
        seen.append(rows["x"].to_pylist())
        return rows

    assert run([up, down], "2026-01-01", [dg.AssetKey(["marts", "t"])]).success
    assert sorted(seen[0]) == [0, 1, 2]
    made = run.lake.load_table("marts.t")
    assert [str(field.transform) for field in made.spec().fields] == ["day"]
    assert made.scan().count() == 3


def test_the_head_of_an_input_has_its_present_columns(run):
    schema = pa.schema([("day", pa.date32()), ("x", pa.int64()), ("secret", pa.string())])
    table = run.lake.create_table("raw.t", schema)
    days = [dt.date(2026, 1, 1), dt.date(2026, 1, 2)]
    table.append(pa.table({"day": days, "x": [1, 2], "secret": ["a", "b"]}, schema=schema))
    with table.update_schema() as change:
        change.drop_column("secret").rename_column("x", "y").rename_column("day", "d")
    seen = []
    up = dg.AssetSpec(
        dg.AssetKey(["raw", "t"]),
        partitions_def=DAYS,
        metadata={"partition_expr": "d", "dagster/io_manager_key": "io_manager"},
    )

    @dg.asset(
        key=["marts", "t"], partitions_def=DAYS, ins={"rows": dg.AssetIn(key=["raw", "t"])},
        metadata={"partition_expr": "d"},
    )  # fmt: skip
    def down(rows: pa.Table) -> None:
        seen.append(rows.to_pylist())

    assert run([up, down], "2026-01-01", [dg.AssetKey(["marts", "t"])]).success
    assert seen == [[{"d": days[0], "y": 1}]]


def test_integers_beside_nulls_keep_their_digits_through_pandas(run):
    schema = pa.schema([("n", pa.int64())])
    exact = [2**60 + 1, None, -(2**62) + 3]
    run.lake.create_table("raw.t", schema).append(pa.table({"n": exact}, schema))

    @dg.asset(key_prefix="marts", ins={"rows": dg.AssetIn(["raw", "t"])})
    def copied(rows: pd.DataFrame) -> pd.DataFrame:
        return rows

    assert run(
        [dg.AssetSpec(["raw", "t"]), copied], selection=[dg.AssetKey(["marts", "copied"])]
    ).success
    assert run.lake.load_table("marts.copied").scan().to_arrow()["n"].to_pylist() == exact


def test_a_column_that_differs_by_case_alone_is_refused(run):
    @dg.asset(key_prefix="q")
    def rows(context) -> pd.DataFrame:
        return pd.DataFrame({"a": [1]} if "q.rows" not in run.lake.list_tables() else {"A": [1]})

    assert run(rows).success
    with pytest.raises(dg.Failure, match=r"'A', and q\.rows has 'a'"):
        run(rows)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pl.DataFrame({"b": [1], "n": [None]}), pl.DataFrame({"b": [1], "n": [5]})),
        (pd.DataFrame({"b": [1], "n": [None]}), pd.DataFrame({"b": [1], "n": ["x"]})),
        (
            pl.DataFrame({"s": [{"a": None, "b": 1}]}),
            pl.DataFrame({"s": [{"a": 7, "b": 1}]}),
        ),
    ],
)
def test_a_column_of_nulls_alone_waits_for_its_first_value(run, first, second):
    frames = iter([first, second])

    @dg.asset(key_prefix="q")
    def rows(context):
        return next(frames)

    assert run(rows).success
    assert run(rows).success
    expected = second.to_dict("records") if isinstance(second, pd.DataFrame) else second.to_dicts()
    assert run.lake.load_table("q.rows").scan().to_arrow().to_pylist() == expected


@pytest.mark.parametrize("values", [[], [None]], ids=["no rows", "nulls alone"])
def test_a_column_of_partitions_without_a_type_is_told_as_such(run, values):
    given = iter([None, "string"])

    @dg.asset(
        key_prefix="q",
        partitions_def=dg.StaticPartitionsDefinition(["a"]),
        metadata={"partition_expr": "p"},
    )
    def rows() -> pd.DataFrame:
        kind = next(given)
        frame = pd.DataFrame({"p": pd.Series(values[:1] if kind is None else [], dtype="object")})
        frame["n"] = range(len(frame))
        return frame if kind is None else frame.astype({"p": kind})

    with pytest.raises(dg.Failure, match=r"has no type.*astype\('string'\)"):
        run(rows, "a")
    assert run(rows, "a").success
    assert run.lake.load_table("q.rows").scan().count() == 0


@pytest.mark.parametrize("at", [dt.time(1, 2, 3, 4), dt.time(23, 59, 59, 999_999)])
def test_times_of_day_of_polars_are_stored(run, at):
    @dg.asset(key_prefix="q")
    def rows() -> pl.DataFrame:
        return pl.DataFrame({"t": [at, None], "nested": [[at], []]})

    assert run(rows).success
    found = run.lake.load_table("q.rows").scan().to_arrow()
    assert found.to_pylist() == [{"t": at, "nested": [at]}, {"t": None, "nested": []}]


def test_the_first_run_of_an_asset_that_reads_itself_is_given_none(run):
    before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
    seen = []

    @dg.asset(
        key_prefix="q",
        partitions_def=DAYS,
        metadata={"partition_expr": "d"},
        ins={"total": dg.AssetIn(["q", "total"], partition_mapping=before)},
    )
    def total(context, total: pd.DataFrame | None) -> pd.DataFrame:
        seen.append(None if total is None else total["n"].tolist())
        n = 1 + (0 if total is None or total.empty else int(total["n"].sum()))
        return pd.DataFrame({"d": [dt.date.fromisoformat(context.partition_key)], "n": [n]})

    for key in DAYS.get_partition_keys():
        assert run(total, key).success
    assert seen == [None, [1], [2], [3]]


def test_the_first_run_of_an_asset_that_reads_itself_says_what_its_input_lacks(run):
    @dg.asset(
        key_prefix="q",
        partitions_def=DAYS,
        metadata={"partition_expr": "d"},
        ins={
            "total": dg.AssetIn(
                ["q", "total"],
                partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1),
            )
        },
    )
    def total(context, total: pd.DataFrame) -> pd.DataFrame:
        return total

    with pytest.raises(dg.Failure, match=r"annotate the input with `\.\.\. \| None`"):
        run(total, "2026-01-01")


def test_values_are_loaded_without_a_run(run):
    @dg.asset(key_prefix="q")
    def rows() -> pd.DataFrame:
        return pd.DataFrame({"a": [1, 2]})

    assert run(rows).success
    definitions = dg.Definitions(assets=[rows], resources={"io_manager": run.manager})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = definitions.load_asset_value(
            ["q", "rows"], python_type=pl.DataFrame, instance=run.instance
        )
        assert loaded.to_dict(as_series=False) == {"a": [1, 2]}
        with definitions.get_asset_value_loader(instance=run.instance) as loader:
            found = loader.load_asset_value(dg.AssetKey(["q", "rows"]), python_type=pa.Table)
    assert found.to_pylist() == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_an_hour_that_clocks_show_twice_is_refused_for_wall_times_and_found_for_instants(unit):
    berlin = dg.HourlyPartitionsDefinition(
        "2026-10-24-22:00", end_date="2026-10-25-06:00", timezone="Europe/Berlin"
    )
    keys = berlin.get_partition_keys()
    walls, instants = (_schema(pa.timestamp(unit, zone)) for zone in (None, "UTC"))
    refused = 0
    for key in keys:
        window = berlin.time_window_for_partition_key(key)
        assert str(partition_filter(berlin, [key], "ts", instants, "a"))
        twice = window.start.astimezone(ZoneInfo("Europe/Berlin")).hour == 2
        if twice:
            refused += 1
            with pytest.raises(InvalidInputError, match="show twice"):
                partition_filter(berlin, [key], "ts", walls, "a")
        else:
            assert str(partition_filter(berlin, [key], "ts", walls, "a"))
    assert refused == 2


def _schema(kind: pa.DataType):
    from lakehouse.engines import to_schema

    schema = to_schema(pa.schema([("ts", kind)]))
    assert schema_to_arrow(schema).field("ts").type.unit == kind.unit
    return schema
