"""Derived tables that follow their inputs by what changed, as assets: what is recorded, and what is
done where they cannot. That the rows are right is the hunt `followed` (tests/hostile)."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from lakehouse import CompactionOptions
from lakehouse.errors import CommitConflictError, InvalidInputError
from lakehouse.ingestion.stamp import RunStamp
from lakehouse.lake import Lakehouse, load_catalog
from lakehouse.orchestration import Pipeline, SqlModel
from lakehouse.orchestration.assets.derived_table import Computation, DerivedTable
from lakehouse.orchestration.assets.frames import open_engine
from lakehouse.orchestration.assets.incremental import (
    MODE,
    REASON,
    Refresh,
    having,
    predicted,
    taken_apart,
)
from lakehouse.orchestration.lineage.replay import replayed
from lakehouse.orchestration.lineage.trace import read_lineage
from lakehouse.spec.metadata.snapshot import REFRESH_STATE
from lakehouse.transaction import snapshot_producer
from tests.orchestration.conftest import materialized

SCHEMA = pa.schema([("event_ts", pa.timestamp("us", "UTC")), ("user", pa.string()), ("n", "int32")])
SQL = "SELECT user, count(*) AS events, sum(n) AS n FROM raw.events GROUP BY user"
DAYS = dg.DailyPartitionsDefinition("2026-06-01", end_date="2026-06-05")


def rows(*given: tuple[int, str, int]) -> pa.Table:
    made = [
        {"event_ts": dt.datetime(2026, 6, day, 12, tzinfo=dt.UTC), "user": user, "n": n}
        for day, user, n in given
    ]
    return pa.Table.from_pylist(made, SCHEMA)


@pytest.fixture
def lake(tmp_path: Path) -> Lakehouse:
    made = load_catalog(str(tmp_path / "warehouse"))
    events = made.create_table("raw.events", SCHEMA, partition_by=("day(event_ts)",))
    events.append(rows(*((1, f"u{number % 20}", number) for number in range(60))))
    return made


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def model(refresh: str = "incremental", **more: Any) -> DerivedTable:
    given: dict[str, Any] = {"sql": SQL, "engine": "duckdb", "refresh": refresh, **more}
    return SqlModel(name="marts.users", **given).table()


def run(
    lake: Lakehouse, table: DerivedTable, instance: dg.DagsterInstance, day: str = "", **how: Any
) -> tuple[bool, Mapping[str, Any]]:
    """Whether the run succeeded, and how the table was refreshed."""
    done = materialized(lake, table, instance, day, days=DAYS, **how)
    if not done.success:
        failed = [one for one in done.all_events if one.is_step_failure]
        return False, {"reason": failed[0].step_failure_data.error_display_string}
    (event,) = done.get_asset_materialization_events()
    return True, event.materialization.metadata["lakehouse/refresh"].value


def answer(lake: Lakehouse, sql: str = SQL) -> tuple[list[str], list[str]]:
    """What the table has, and what its query gives now, by Polars."""
    import duckdb

    events = lake.load_table("raw.events").scan().to_arrow()  # noqa: F841 - DuckDB reads it
    right = duckdb.sql(sql.replace("raw.events", "events")).fetchall()
    found = lake.load_table("marts.users").scan().to_arrow().to_pylist()
    return sorted(repr(tuple(row.values())) for row in found), sorted(map(repr, right))


def test_what_a_run_did_is_shown_and_replayed(lake: Lakehouse, instance: dg.DagsterInstance):
    table = model("incremental_strict")
    done, first = run(lake, table, instance)
    assert (done, first["mode"], first["reason"]) == (
        True, "full", "the table has not been computed yet",
    )  # fmt: skip
    events = lake.load_table("raw.events")
    events.append(rows((2, "u1", 5), (2, "new", 6)))
    events.delete("user = 'u2'")
    done, then = run(lake, table, instance)
    assert (then["mode"], then["changed"], then["keys"]) == ("incremental", 5, 3)
    assert then["reason"] == "5 rows of the inputs changed, of 59; they touch 3 keys"
    again = run(lake, table, instance)[1]
    assert again["reason"] == "0 rows of the inputs changed, of 59; they touch 0 keys"
    found, right = answer(lake)
    assert found == right
    summary = lake.load_table("marts.users").current_snapshot().summary
    assert (summary[MODE], summary[REASON]) == (again["mode"], again["reason"])
    size = "write.parquet.row-group-size-bytes"
    assert lake.load_table("marts.users").properties[size] == str(8 << 20)
    assert model(table_properties={size: "9"}).target.properties[size] == "9"
    assert size not in model("full").target.properties
    checkout = SimpleNamespace(pipeline=Pipeline((), (table,), ""), defs=dg.Definitions())
    lineage = read_lineage(instance, lake, "marts/users")
    events.append(rows((3, "u3", 5)))  # the replay reads what was read
    assert replayed(checkout, lineage, lake, lambda: None).equal


@pytest.mark.parametrize("name", ["*", "^n$", "^.*$", "row of the left"])
def test_keys_may_have_names_that_are_patterns_elsewhere(
    lake: Lakehouse, instance: dg.DagsterInstance, name: str
):
    sql = SQL.replace("SELECT user", f'SELECT user AS "{name}"')
    table = model("incremental_strict", sql=sql)
    assert run(lake, table, instance)[1]["mode"] == "full"
    events = lake.load_table("raw.events")
    events.append(rows((2, "u1", 5), (2, "new", 6)))
    events.delete("user = 'u2'")
    done, then = run(lake, table, instance)
    assert (done, then.get("mode")) == (True, "incremental"), then["reason"]
    found, right = answer(lake, sql)
    assert found == right


def test_days_follow_by_what_changed_in_them(lake: Lakehouse, instance: dg.DagsterInstance):
    sql = (
        "SELECT to_date(event_ts) AS day, user, count(*) AS events FROM raw.events "
        "GROUP BY to_date(event_ts), user"
    )
    table = model(sql=sql, day_column="day", day_is_date=True)
    events = lake.load_table("raw.events")
    events.append(rows(*((2, f"u{number}", number) for number in range(9))))
    assert run(lake, table, instance, "2026-06-01")[1]["mode"] == "full"
    done = run(lake, table, instance, "2026-06-02")[1]
    assert done["reason"] == "partitions were left out before, such as 2026-06-02"
    events.append(rows((1, "late", 1), (2, "u1", 1)))  # a late day, and one that is not asked for
    done = run(lake, table, instance, "2026-06-01")[1]
    assert (done["mode"], done["changed"], done["keys"]) == ("incremental", 1, 1)
    found = lake.load_table("marts.users").scan("user = 'late' or user = 'u1'").to_arrow()
    assert sorted(found["events"].to_pylist()) == [1, 1, 3]
    assert run(lake, table, instance, "2026-06-02")[1]["mode"] == "full"
    found, right = answer(lake, sql.replace("to_date(event_ts)", "event_ts::date"))
    assert found == right


def test_rows_of_touched_days_are_read_to_their_last_microsecond(tmp_path: Path) -> None:
    """Brute force: days of times without and with a zone, which may be another day there."""
    length = 86_400_000_000
    ends = [day * length + end for day in (9, 10, 11) for end in (0, length - 1)]
    for zone, wanted in ((None, ends[2:4]), ("UTC", ends)):
        table = load_catalog(str(tmp_path / str(zone))).create_table(
            "raw.times", pa.schema([("at", pa.timestamp("us", zone))])
        )
        table.append(pa.table({"at": pa.array(ends, pa.timestamp("us", zone))}))
        touched = pa.chunked_array([pa.array([10], pa.date32())])
        found = table.scan(having("at", touched, table.schema(), days=True)).to_arrow()["at"]
        assert sorted(found.cast(pa.int64()).to_pylist()) == wanted


@pytest.mark.parametrize("who", ["we", "another engine"])
def test_who_compacted_the_table_changed_no_row(
    who: str, lake: Lakehouse, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
):
    table = model("incremental_strict")
    assert run(lake, table, instance)[0]
    for day in (2, 3):
        lake.load_table("raw.events").append(rows((day, f"new{day}", day)))
        assert run(lake, table, instance)[0]
    if who == "another engine":  # which knows nothing of refresh states
        monkeypatch.setattr(snapshot_producer, "CARRIED", ())
    users = lake.load_table("marts.users")
    users.compact(CompactionOptions(min_input_files=2))
    assert (REFRESH_STATE in users.refresh().current_snapshot().summary) == (who == "we")
    lake.load_table("raw.events").append(rows((4, "last", 4)))
    done, then = run(lake, table, instance)
    assert (done, then["mode"], then["keys"]) == (True, "incremental", 1)
    found, right = answer(lake)
    assert found == right


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        ("rollback", "is no ancestor of it any more"),
        ("expiry", "has expired"),
        ("column", "column n of raw.events has changed since then"),
        ("by hand", "others have written rows to it since it was computed"),
        ("definition", "its definition has changed"),
        ("engine", "datafusion averages 64-bit integers"),
    ],
)
def test_what_is_not_followed_is_computed_or_refused_with_its_reason(
    happens: str, why: str, lake: Lakehouse, instance: dg.DagsterInstance
):
    events, sql = lake.load_table("raw.events"), SQL
    events.append(rows((2, "u1", 5)))
    if happens == "engine":
        sql = "SELECT user, avg(cast(n AS bigint)) AS n FROM raw.events GROUP BY user"
    more = {"sql": sql, "engine": "datafusion"}
    assert run(lake, model(**more), instance)[0]
    if happens == "rollback":
        events.rollback_to(events.snapshots()[0].snapshot_id)
    elif happens == "by hand":
        lake.load_table("marts.users").delete("user = 'u1'")
    elif happens == "column":
        with events.update_schema() as change:
            change.update_column("n", "long")
    elif happens == "definition":
        more["sql"] = sql.replace("sum(n)", "max(n)")
    events.append(rows((3, "u7", 5)))
    if happens == "expiry":
        events.expire_snapshots(older_than=events.metadata.last_updated_ms + 1, retain_last=1)
    refused = run(lake, model("incremental_strict", **more), instance)
    assert not refused[0]
    assert why in refused[1]["reason"]
    assert "full: true" in refused[1]["reason"]
    done, shown = run(lake, model(**more), instance)
    assert (done, shown["mode"]) == (True, "full")
    assert why in shown["reason"]
    found, right = answer(lake, more["sql"])
    assert found == right
    events.append(rows((3, "u8", 5)))
    assert run(lake, model(**more), instance, full=True)[1]["reason"] == "the run says so"


def test_compaction_is_nothing_to_do(lake: Lakehouse, instance: dg.DagsterInstance):
    events, table = lake.load_table("raw.events"), model("incremental_strict")
    assert run(lake, table, instance)[0]
    for number in range(2):
        events.append(rows((1, "u1", number)))
        events.compact(CompactionOptions(min_input_files=2))
        done, shown = run(lake, table, instance)
        assert (done, shown["changed"]) == (True, 1)
        assert not table.staleness(lake).whole
        users = lake.load_table("marts.users")
        users.compact(CompactionOptions(min_input_files=2))
        for one in (events, users):
            assert one.refresh().current_snapshot().operation == "replace"
    found, right = answer(lake)
    assert found == right


def test_of_two_refreshes_at_once_one_wins_and_none_is_wrong(lake: Lakehouse):
    table, written = model("incremental_strict"), []

    def refresh(number: int, between: Callable[[], None] | None = None) -> None:
        found, engine = table.staleness(lake), open_engine("duckdb", lambda: None)
        work = Computation(table, lake, engine, found, None)
        delta = work.delta()
        stamp = RunStamp(f"run-{number}", f"marts/users{number}")
        write = work.write(stamp, delta, lambda _: None)
        if between is not None:
            between()
        staged = write.staged()
        staged.publish(lambda _: [])
        written.append(number)

    events = lake.load_table("raw.events")
    refresh(0)
    events.append(rows((1, "u1", 5)))

    def other() -> None:
        events.append(rows((1, "u1", 7)))
        refresh(2)

    with pytest.raises(CommitConflictError, match="written meanwhile: refresh it again"):
        refresh(1, other)
    assert written == [0, 2]
    found, right = answer(lake)
    assert found == right


def test_auto_computes_in_full_where_that_costs_less(lake: Lakehouse, instance: dg.DagsterInstance):
    events, table = lake.load_table("raw.events"), model("auto")
    assert run(lake, table, instance)[0]
    events.append(rows(*((2, "u1", number) for number in range(70))))
    done = run(lake, table, instance)[1]
    assert (done["mode"], done["reason"]) == (
        "full", "70 rows of the inputs came or went, of 130",
    )  # fmt: skip
    found, right = answer(lake)
    assert found == right
    full = {"seconds": 2.0, "rows": 100, "moved": 0, "ago": 1}
    change = {"seconds": 3.0, "rows": 100, "moved": 10, "ago": 0}
    assert predicted({"full": full}, 10, 100) == (True, "")
    both = {"full": full, "incremental": change}
    assert predicted(both, 10, 200) == (  # twice as many rows take twice as long
        True, "by the last runs 10 changed rows would take 3.0 s, and all 200 rows 4.0 s",
    )  # fmt: skip
    assert predicted(both, 10, 100) == (
        False, "by the last runs 10 changed rows would take 3.0 s, and all 100 rows 2.0 s",
    )  # fmt: skip
    assert "20 changed rows would take 6.0 s" in predicted(both, 20, 200)[1]


_MERGED = {"n": "rows", "xs": "count", "x": "sum", "low": "least", "high": "greatest"}


def grouped(given: list[tuple[int, int | None]], chosen: list[str]) -> pa.Table:
    """Brute force: the aggregates of (key, value) by key."""
    found = []
    for key in sorted({key for key, _ in given}):
        values = [value for one, value in given if one == key]
        known = [value for value in values if value is not None]
        row = {"k": key, "n": len(values), "xs": len(known), "x": sum(known) if known else None}
        ends = (min(known), max(known)) if known else (None, None)
        found.append({**row, "low": ends[0], "high": ends[1]})
    schema = pa.schema([(name, pa.int64()) for name in ("k", *_MERGED)])
    return pa.Table.from_pylist(found, schema).select(["k", *chosen])


@pytest.mark.parametrize("alone", [True, False])
def test_what_follows_of_groups_that_lost_rows_is_what_they_are(alone: bool):
    """Where several inputs change, rows that come may go again."""
    chance, told = random.Random(int(alone)), 0
    for _ in range(300):
        chosen = [name for name in _MERGED if chance.random() < 0.7] or ["n"]
        merged = {name: _MERGED[name] for name in chosen}

        def some(most: int) -> list[tuple[int, int | None]]:
            values = [None, 1, 2, 3, 4]
            return [(chance.randrange(4), chance.choice(values)) for _ in range(most)]

        before, came = some(12), some(chance.choice([0, 3, 6]))
        whole = before if alone else before + came
        went = chance.sample(whole, chance.randint(1, min(6, len(whole))))
        after = list((Counter(before) + Counter(came) - Counter(went)).elements())
        counted = {"x": "xs"} if {"x", "xs"} <= set(chosen) else {}
        there, gone = grouped(before, chosen), grouped(went, chosen)
        follows, again = taken_apart(
            there, gone, grouped(came, chosen), merged, counted, alone=alone
        )
        left = set(again["k"].to_pylist())
        wanted = [
            row
            for row in grouped(after, chosen).to_pylist()
            if row["k"] in gone["k"].to_pylist() and row["k"] not in left
        ]
        assert sorted(follows.to_pylist(), key=lambda row: row["k"]) == wanted
        told += gone.num_rows - len(left)
    assert told > 200


def test_definitions_that_cannot_be() -> None:
    with pytest.raises(InvalidInputError, match="no refresh 'sometimes'; there are full, auto"):
        model("sometimes")
    with pytest.raises(InvalidInputError, match="write it as an SqlModel"):
        DerivedTable(name="a.b", inputs=("raw.x",), transform=lambda _: None, refresh="auto")


@pytest.mark.spark
def test_spark_follows_too(lake: Lakehouse, spark: Any) -> None:
    names = lake.create_table(
        "raw.names", pa.schema([("user", pa.string()), ("name", pa.string())])
    )
    names.append(pa.table({"user": ["u1", "u2", None], "name": ["one", "two", "none"]}))
    events = lake.load_table("raw.events")
    grouped = "SELECT e.user, count(*) AS n, listagg(DISTINCT m.name, ',') WITHIN GROUP "
    grouped += "(ORDER BY m.name) AS names FROM raw.events AS e LEFT JOIN raw.names AS m "
    grouped += "ON e.user = m.user GROUP BY e.user"
    for sql in (
        grouped,
        "SELECT e.event_ts, e.n, m.name FROM raw.events e JOIN raw.names m ON e.user = m.user",
    ):
        table = model("incremental_strict", sql=sql, engine="spark")
        if lake.table_exists("marts.users"):
            lake.drop_table("marts.users")
        for number in range(3):
            found, engine = table.staleness(lake), open_engine("spark", lambda: spark)
            work = Computation(table, lake, engine, found, None)
            delta = work.delta()
            stamp = RunStamp(f"run-{number}", "marts/users")
            write = work.write(stamp, delta, lambda _: None)
            write.staged().publish(lambda _: [])
            assert isinstance(delta, Refresh) == (number == 0)
            events.append(rows((1, "u1", 5 + number), (2, "u2", 3)))
            events.delete(f"n = {number}")
            names.append(pa.table({"user": [f"u{number}"], "name": [f"more{number}"]}))
        lake.load_table("raw.events").rollback_to(found.inputs["raw.events"])
        lake.load_table("raw.names").rollback_to(found.inputs["raw.names"])
        right = table.compute(lake, spark, found.inputs, None).toArrow().to_pylist()
        now = lake.load_table("marts.users").scan().to_arrow().to_pylist()
        assert sorted(map(repr, now)) == sorted(map(repr, right))
