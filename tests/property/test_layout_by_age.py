"""Moving closed periods into coarser specs changes no answer: DuckDB has the same rows.

Varied: what is written between moves and what of it is late, days that are replaced, deletes and
updates by copy on write and merge on read, format version, the clock of each move, one step or two,
budgets and filters of moves, moves beside writers. Held fixed: one schema. Judged after each
step: rows, filters by time, every older snapshot, what changed since one, and where files are.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import Counter
from random import Random

import duckdb
import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.environment import Environment
from lakehouse.errors import InvalidPropertyError
from lakehouse.maintenance.compaction.compaction import compact, execute_compaction
from lakehouse.maintenance.compaction.compaction_plan import CompactionPlan, plan_compaction
from lakehouse.maintenance.health.table_health import health
from lakehouse.spec.manifests.data_file import CONTENT_EQUALITY_DELETES, DataFile
from tests.integration.maintenance_support import lake_in_memory
from tests.seeds import seeds

pytestmark = pytest.mark.filterwarnings("ignore:Merge on read")
FIRST = dt.date(2023, 11, 20)
DAYS = 160
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
PROPERTY = "lakehouse.maintenance.layout-by-age"
POLICIES = (
    "10d: month(ts)", "0d: month(ts)", "10d: month(ts); 40d: year(ts)",
    "5d: day(ts); 30d: month(ts), bucket(2, id)",
)  # fmt: skip
FINE = ("day(ts)", "bucket(4, id)")
Rows = Counter


def clock(day: dt.date) -> Environment:
    now = int(dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC).timestamp() * 1000)
    return dataclasses.replace(Environment.system(), now_ms=lambda: now)


class World:
    """A table and the same rows in DuckDB."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.policy = self.random.choice(POLICIES)
        mode = self.random.choice(("copy-on-write", "merge-on-read"))
        self.table = lake_in_memory().create_table(
            "t.w", SCHEMA, partition_by=list(FINE), format_version=self.random.choice((2, 3)),
            properties={
                PROPERTY: self.policy,
                "lakehouse.maintenance.min-input-files": "2",
                "write.delete.mode": mode, "write.update.mode": mode, "write.merge.mode": mode,
            },
        )  # fmt: skip
        self.oracle = duckdb.connect()
        self.oracle.execute("SET TimeZone = 'UTC'")
        self.oracle.execute("CREATE TABLE w (id BIGINT, ts TIMESTAMPTZ, v BIGINT)")
        self.count = 0
        self.today = FIRST + dt.timedelta(days=40)
        self.then: dict[int, Rows] = {}

    def new(self, days: list[dt.date]) -> pa.Table:
        rows = []
        for day in days:
            for _ in range(self.random.randint(1, 4)):
                time = dt.time(self.random.choice((0, 12, 23)), 59, tzinfo=dt.UTC)
                rows.append((self.count, dt.datetime.combine(day, time), self.count % 7))
                self.count += 1
        ids, times, values = zip(*rows, strict=True)
        return pa.table([ids, times, values], schema=SCHEMA)

    def days(self, most: int) -> list[dt.date]:
        number = self.random.randint(1, most)
        span = (self.today - FIRST).days
        return [FIRST + dt.timedelta(days=self.random.randrange(span + 1)) for _ in range(number)]

    def insert(self, rows: pa.Table) -> None:
        self.oracle.register("given", rows)
        self.oracle.execute("INSERT INTO w SELECT * FROM given")
        self.oracle.unregister("given")

    def append(self) -> None:
        rows = self.new(self.days(12))
        self.insert(rows)
        self.table.append(rows)

    def replace_days(self) -> None:
        day = self.days(1)[0]
        where = f"ts >= '{day} 00:00:00+00:00' AND ts < '{day + dt.timedelta(1)} 00:00:00+00:00'"
        rows = self.new([day])
        self.oracle.execute(f"DELETE FROM w WHERE {where}")
        self.insert(rows)
        self.table.overwrite(rows, where, must_match=True)

    def delete(self) -> None:
        where = self.random.choice(
            (f"v = {self.random.randrange(7)} AND id % 3 = 0", f"ts < '{FIRST}T12:00:00+00:00'")
        )
        self.oracle.execute(f"DELETE FROM w WHERE {where}")
        self.table.delete(where)

    def update(self) -> None:
        where = f"id % 5 = {self.random.randrange(5)}"
        # rows leave their month
        changed = {"ts": "ts + INTERVAL '31' DAY"} if self.random.random() < 0.3 else {"v": "v + 7"}
        (column, value), *_ = changed.items()
        self.oracle.execute(f"UPDATE w SET {column} = {value} WHERE {where}")
        self.table.update(changed, where)

    def upsert(self) -> None:
        there = self.oracle.execute("SELECT * FROM w ORDER BY id LIMIT 3").to_arrow_table()
        rows = pa.concat_tables([there.cast(SCHEMA), self.new(self.days(2))])
        values = pa.array([row + 100 for row in rows["v"].to_pylist()])
        rows = rows.set_column(2, "v", values)
        self.oracle.register("given", rows)
        self.oracle.execute("DELETE FROM w WHERE id IN (SELECT id FROM given)")
        self.oracle.execute("INSERT INTO w SELECT * FROM given")
        self.oracle.unregister("given")
        self.table.upsert(rows, ["id"])

    def move(self) -> None:
        self.today = min(
            self.today + dt.timedelta(days=self.random.randint(0, 25)),
            FIRST + dt.timedelta(days=DAYS),
        )
        environment = clock(self.today)
        catalog, name = self.table.catalog, self.table.identifier
        before = self.table.refresh().metadata
        plan = plan_compaction(catalog, name, environment=environment)
        if self.random.random() < 0.3:
            # somebody else is faster, or not
            self.random.choice((self.append, self.delete, self.replace_days))()
        execute_compaction(catalog, plan, environment=environment)
        after = self.table.refresh().metadata
        assert after.default_spec_id == before.default_spec_id
        assert [str(field.transform) for field in after.spec().fields] == ["day", "bucket[4]"]

    def rows(self) -> Rows:
        return Counter(self.oracle.execute("SELECT id, epoch_us(ts), v FROM w").fetchall())

    def check(self) -> None:
        table, rows = self.table.refresh(), self.rows()
        assert of(table.scan()) == rows
        head = table.current_snapshot()
        if head is not None:
            self.then[head.snapshot_id] = rows
        day = self.days(1)[0]
        where = f"ts >= '{day} 00:00:00+00:00' AND ts < '{day + dt.timedelta(40)} 00:00:00+00:00'"
        expected = self.oracle.execute(f"SELECT id, epoch_us(ts), v FROM w WHERE {where}")
        assert of(table.scan(where)) == Counter(expected.fetchall())
        known = [one for one in self.then if one != (head and head.snapshot_id)]
        if known:
            since = self.random.choice(known)
            assert of(table.scan(snapshot_id=since)) == self.then[since]


def of(scan: lh.Scan) -> Rows:
    rows = scan.to_arrow()
    times = rows["ts"].cast(pa.int64())
    return Counter(
        zip(rows["id"].to_pylist(), times.to_pylist(), rows["v"].to_pylist(), strict=True)
    )


def net(changes: pa.Table) -> tuple[Counter, Counter]:
    added, gone = Counter(), Counter()
    for row in changes.to_pylist():
        key = (row["id"], int(row["ts"].timestamp() * 1_000_000), row["v"])
        into = gone if row["_change_type"] in ("DELETE", "UPDATE_BEFORE") else added
        into[key] += 1
    return added, gone


@pytest.mark.parametrize("seed", seeds(2, of=60))
def test_moves_change_no_answer(seed):
    world = World(seed)
    world.append()
    world.check()
    start = world.table.current_snapshot().snapshot_id
    steps = (
        world.append, world.append, world.replace_days, world.delete, world.update, world.upsert,
        world.move, world.move, world.move,
    )  # fmt: skip
    for _ in range(14):
        world.random.choice(steps)()
        world.check()
    added, gone = net(world.table.changelog(start).to_arrow())
    before = world.then[start]
    assert before + added == world.rows() + gone
    settled(world)
    world.check()


def settled(world: World) -> None:
    """After a move nothing is left to move: the next finds nothing, and health counts as it does.

    Files of closed periods are of the coarsest spec that their age has, where there are two or more
    of them.
    """
    environment = clock(FIRST + dt.timedelta(days=DAYS + 30))
    catalog, name = world.table.catalog, world.table.identifier
    expected = health(catalog, name, environment=environment)
    compact(catalog, name, environment=environment)
    again = plan_compaction(catalog, name, environment=environment)
    assert again.groups == ()
    found = health(catalog, name, environment=environment)
    assert found.data_files <= expected.expected_files + expected.delete_files
    coarsest = again.layout.coarsest.spec_id
    alone = Counter(
        again.layout.place(task.data_file.spec_id, task.data_file.partition)[1]
        for task in world.table.refresh().scan().plan().tasks
        if task.data_file.spec_id != coarsest
    )
    assert all(count == 1 for count in alone.values())


@pytest.mark.parametrize("today", [dt.date(2024, 2, 9), dt.date(2024, 2, 10), dt.date(2024, 3, 1)])
def test_files_are_where_the_age_of_their_period_says(today):
    """By the calendar: days until ten are over since the month's end, years forty after theirs."""
    properties = {
        PROPERTY: "10d: month(ts); 40d: year(ts)", "lakehouse.maintenance.min-input-files": "2"
    }  # fmt: skip
    table = lake_in_memory().create_table(
        "t.w", SCHEMA, partition_by=["day(ts)"], properties=properties
    )
    days = [dt.date(2022, 12, 31) + dt.timedelta(days=n) for n in range(0, 425, 6)]
    days += [dt.date(1969, 12, 31), dt.date(1969, 12, 30)]
    times = pa.array(days, pa.date32()).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    numbers = pa.array(range(len(days)), pa.int64())
    table.append(pa.table([numbers, times, numbers], schema=SCHEMA))

    def place(day: dt.date) -> str:
        month_end = (day.replace(day=1) + dt.timedelta(days=32)).replace(day=1)
        if dt.date(day.year + 1, 1, 1) + dt.timedelta(days=40) <= today:
            return f"ts_year={day.year}"
        if month_end + dt.timedelta(days=10) <= today:
            return f"ts_month={day:%Y-%m}"
        return f"ts_day={day}"

    expected = health(table.catalog, table.identifier, environment=clock(today))
    compact(table.catalog, table.identifier, environment=clock(today))
    rows = table.refresh().scan(select=["ts", "_file"]).to_arrow().to_pylist()
    found = {(row["ts"].date(), row["_file"].split("/")[-2], row["_file"]) for row in rows}
    # a period with one file gains nothing
    periods = Counter(place(day) for day in days)
    assert {(day, folder) for day, folder, _ in found} == {
        (day, place(day) if periods[place(day)] > 1 else f"ts_day={day}") for day in days
    }
    assert len({file for *_, file in found}) == len(periods) == expected.expected_files
    assert {partition.partition for partition in expected.partitions} == set(periods)


def test_equality_deletes_of_others_keep_rows_where_they_are():
    """They reach rows of their own spec alone."""
    world = World(1)
    world.append()
    table, environment = world.table, clock(dt.date(2026, 1, 1))
    assert any(group.output_spec_id for group in planned(table, environment).groups)
    partition = next(iter(table.scan().plan().tasks)).data_file.partition
    delete = DataFile(
        content=CONTENT_EQUALITY_DELETES, file_path=f"{table.location}/data/theirs.parquet",
        record_count=1, file_size_in_bytes=1, partition=partition, equality_ids=(1,),
    )  # fmt: skip
    table.transaction().row_delta(delete_files=[delete]).commit()
    plan = planned(table, environment)
    assert not any(group.output_spec_id for group in plan.groups)
    assert "equality deletes" in dict(plan.facts())["layout by age"]


def planned(table: lh.Table, environment: Environment) -> CompactionPlan:
    return plan_compaction(table.catalog, table.identifier, environment=environment)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("30d month(ts)", "must be ages and partition terms"),
        ("30d: month(ts); 30d: year(ts)", "ages that grow"),
        ("30d: bucket(2, id)", "no layout for closed periods"),
        ("30d: hour(ts)", "no layout for closed periods"),
        ("30d: month(nowhere)", "no layout for closed periods"),
        ("30d: month(ts), bucket(3, id)", "no layout for closed periods"),
    ],
)
def test_what_is_no_layout_by_age_is_refused(policy, said):
    properties = {PROPERTY: policy} if "nowhere" in policy or "no layout" in said else {}
    table = lake_in_memory().create_table(
        "t.w", SCHEMA, partition_by=list(FINE), properties=properties
    )
    asks = table.compact if properties else lambda: table.set_properties({PROPERTY: policy})
    with pytest.raises(InvalidPropertyError, match=said):
        asks()
