"""Derived tables of any partitions, against DuckDB: what is computed, what is stale."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import duckdb
import pyarrow as pa
import pytest

from lakehouse.errors import InvalidInputError
from lakehouse.lake import Lakehouse, load_catalog
from lakehouse.orchestration import Pipeline, SqlModel
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.checks.expectations import Suite, expect
from lakehouse.orchestration.lineage.replay import replayed
from lakehouse.orchestration.lineage.trace import read_lineage
from tests.orchestration.conftest import materialized
from tests.seeds import seeds

SCHEMA = pa.schema(
    [("event_ts", pa.timestamp("us", "UTC")), ("region", pa.string()), ("n", pa.int64())]
)
REGIONS = ["ap", "eu", "us"]
DAYS = dg.DailyPartitionsDefinition("2026-05-30", end_date="2026-06-03")
KINDS: dict[str, tuple[dg.PartitionsDefinition, Any, str, Callable[[str], list[str]]]] = {
    "hourly": (
        dg.HourlyPartitionsDefinition("2026-05-30-00:00", end_date="2026-06-03-00:00"),
        "since",
        "date_trunc('hour', event_ts) AS since",
        lambda key: [f"strftime(since, '%Y-%m-%d-%H:00') = '{key}'"],
    ),
    "monthly": (
        dg.MonthlyPartitionsDefinition("2026-05-01", end_date="2026-07-01"),
        "since",
        "CAST(date_trunc('month', event_ts) AS DATE) AS since",
        lambda key: [f"since = DATE '{key}'"],
    ),
    "static": (
        dg.StaticPartitionsDefinition(REGIONS),
        "region",
        "region",
        lambda key: [f"region = '{key}'"],
    ),
    "multi": (
        dg.MultiPartitionsDefinition(
            {"where": dg.StaticPartitionsDefinition(REGIONS), "when": DAYS}
        ),
        {"where": "region", "when": "since"},
        "region, CAST(event_ts AS DATE) AS since",
        lambda key: [f"since = DATE '{key.split('|')[0]}'", f"region = '{key.split('|')[1]}'"],
    ),
}


def rows(rng: random.Random, count: int, days: tuple[int, ...] = (0, 1, 2, 3)) -> pa.Table:
    first = dt.datetime(2026, 5, 30, tzinfo=dt.UTC)
    made = [
        {
            "event_ts": first + dt.timedelta(days=rng.choice(days), minutes=rng.randrange(1440)),
            "region": rng.choice(REGIONS),
            "n": rng.randrange(100),
        }
        for _ in range(count)
    ]
    return pa.Table.from_pylist(made, SCHEMA)


@pytest.fixture
def lake(tmp_path: Path) -> Lakehouse:
    return load_catalog(str(tmp_path / "warehouse"))


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def model(kind: str, **more: Any) -> DerivedTable:
    partitions, expr, columns, _ = KINDS[kind]
    sql = f"SELECT {columns}, count(*) AS events, sum(n)::BIGINT AS n FROM raw.events GROUP BY ALL"
    given: dict[str, Any] = {"sql": sql, "engine": "duckdb", "dialect": "duckdb", **more}
    return SqlModel(
        name="marts.counted", partitions=partitions, partition_expr=expr, **given
    ).table()


def run(
    lake: Lakehouse,
    table: DerivedTable,
    instance: dg.DagsterInstance,
    first: str,
    last: str,
    **config: Any,
) -> dg.ExecuteInProcessResult:
    return materialized(lake, table, instance, first, last, **config)


class Oracle:
    """What DuckDB makes of the rows that there are."""

    def __init__(self, lake: Lakehouse, kind: str) -> None:
        _, self._expr, columns, self._where = KINDS[kind]
        self._duck = duckdb.connect()
        self._duck.execute("SET TimeZone = 'UTC'")
        self._duck.register("events", lake.load_table("raw.events").scan().to_arrow())
        self._duck.execute(
            f"CREATE TABLE right_now AS SELECT {columns}, count(*) AS events, "
            "sum(n)::BIGINT AS n FROM events GROUP BY ALL"
        )
        there = lake.table_exists("marts.counted")
        held = lake.load_table("marts.counted").scan().to_arrow() if there else None
        self._duck.execute("CREATE TABLE held AS SELECT * FROM right_now LIMIT 0")
        if held is not None:
            self._duck.register("written", held)
            self._duck.execute("INSERT INTO held SELECT * FROM written")

    def of(self, table: str, key: str) -> list[tuple[Any, ...]]:
        where = " AND ".join(self._where(key))
        return sorted(self._duck.sql(f"FROM {table} WHERE {where}").fetchall(), key=repr)

    def same(self, key: str) -> bool:
        return self.of("held", key) == self.of("right_now", key)

    def count(self, table: str) -> int:
        return len(self._duck.sql(f"FROM {table}").fetchall())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", seeds(1, of=6))
def test_each_partition_is_what_duckdb_computes_of_it(
    kind: str, seed: int, lake: Lakehouse, instance: dg.DagsterInstance
) -> None:
    rng = random.Random(seed)
    specs = [(), ("day(event_ts)",), ("region",), ("region", "hour(event_ts)")]
    spec = specs[(list(KINDS).index(kind) + seed) % len(specs)]
    events = lake.create_table("raw.events", SCHEMA, partition_by=spec)
    events.append(rows(rng, 40))
    table = model(kind)
    keys = list(KINDS[kind][0].get_partition_keys())
    known = set(keys)
    changes: list[Callable[[], object]] = [
        lambda: events.append(rows(rng, 5, (3,))),
        lambda: events.append(rows(rng, 3, (0,))),  # late
        lambda: events.overwrite(rows(rng, 4, (1,)), "event_ts::date = DATE '2026-05-31'"),
        lambda: events.delete(f"region = '{rng.choice(REGIONS)}' AND n < 30"),
        events.compact,
    ]
    for change in [lambda: None, *rng.sample(changes, 3)]:
        change()
        stale = set(table.staleness(lake).partitions)
        oracle = Oracle(lake, kind)
        differ = {key for key in keys if not oracle.same(key)}
        assert differ <= stale <= known, (spec, "what differs is not named")
        # a backfill over a range, of which only what is stale is computed
        ends = sorted(rng.sample(range(len(keys)), 2))
        first, last = keys[ends[0]], keys[ends[1]]
        done = run(lake, table, instance, first, last, mode="STALE")
        assert done.success
        of_range = set(
            KINDS[kind][0].get_partition_keys_in_range(dg.PartitionKeyRange(first, last))
        )
        oracle, left = Oracle(lake, kind), set(table.staleness(lake).partitions)
        assert left == stale - of_range, (spec, "what was computed, and nothing else, is done")
        assert all(oracle.same(key) for key in known - left), spec
    done = run(lake, table, instance, keys[0], keys[-1], mode="STALE")
    assert done.success
    oracle = Oracle(lake, kind)
    assert all(oracle.same(key) for key in keys)
    assert oracle.count("held") == oracle.count("right_now")
    assert not table.staleness(lake).partitions
    told = {
        one.partition: one.metadata["dagster/partition_row_count"].value
        for one in done.asset_materializations_for_node(table.op_name)
        if "dagster/partition_row_count" in one.metadata
    }
    assert told == {key: len(oracle.of("held", key)) for key in told}
    # the partition with most rows is replayed, and another is replaced alone
    most = max(keys, key=lambda key: len(oracle.of("held", key)))
    assert run(lake, table, instance, most, most).success
    checkout = SimpleNamespace(pipeline=Pipeline((), (table,), ""), defs=dg.Definitions())
    lineage = read_lineage(instance, lake, "marts/counted", most)
    again = replayed(checkout, lineage, lake, lambda: None)
    assert (again.equal, again.rows) == (True, len(oracle.of("held", most))), again.examples


def test_a_bad_partition_stays_bad_until_it_is_mended(
    lake: Lakehouse, instance: dg.DagsterInstance
) -> None:
    events = lake.create_table("raw.events", SCHEMA)
    events.append(rows(random.Random(0), 40))
    small = (expect("column_values_to_be_between", column="n", max_value=100_000),)
    table = model("static", suites=(Suite("small", small),))
    at = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)
    events.append(pa.table({"event_ts": [at], "region": ["eu"], "n": [10**6]}, SCHEMA))
    for keys, bad in ((("ap", "us"), ["eu"]), (("us", "us"), ["eu"])):
        assert not run(lake, table, instance, *keys).success or keys[0] == keys[1]
        check = dg.AssetCheckKey(table.key, "small")
        (last,) = instance.event_log_storage.get_asset_check_execution_history(check, limit=1)
        told = last.event.dagster_event.asset_check_evaluation_data
        assert list(told.metadata["lakehouse/bad_days"].value) == bad
        assert not told.passed
    events.delete("n = 1000000")
    assert run(lake, table, instance, "eu", "eu").success
    (last,) = instance.event_log_storage.get_asset_check_execution_history(check, limit=1)
    assert last.event.dagster_event.asset_check_evaluation_data.passed


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"day_column": "since"}, "leave out one"),
        ({"partition_expr": None}, "name the column that tells them"),
        ({"partition_expr": {"where": "region"}}, "partition dimensions"),
    ],
)
def test_partitions_that_no_column_tells_are_refused(more: dict[str, Any], said: str) -> None:
    kind = "multi" if isinstance(more.get("partition_expr"), dict) else "hourly"
    partitions, expr, *_ = KINDS[kind]
    given = {"partitions": partitions, "partition_expr": expr, **more}
    with pytest.raises(InvalidInputError, match=said):
        SqlModel(name="marts.x", sql="SELECT since FROM raw.events", **given).table()
