"""`python -m tests.orchestration.demo_cells --cells 500`: cells of the demo's marts, explained.

Run it in a checkout after `make demo`. `--edits FILE` asks about Wikipedia's edits instead (JSON
lines, such as those of Apache Druid's tutorial): they are ingested into a new warehouse, and marts
are made of them here. For each cell, drawn at random, the landing lines that `why` names are read
from the landing files, by their numbers, and nothing else is: DuckDB types them, runs the SQL of
the models and has to give the cell. Lines that count, left out, have to change it.
"""

from __future__ import annotations

import argparse
import gzip
import math
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot

import lakehouse as lh
from assets.flights.source import FLIGHTS
from assets.flights.tables import AIRCRAFTS, CARRIER_DAYS, CLEAN_FLIGHTS
from assets.wiki.source import WIKI_EDITS
from lakehouse.ingestion.ingest import index_landing, ingest_days
from lakehouse.ingestion.source import Source
from lakehouse.ingestion.stamp import RunStamp
from lakehouse.ingestion.workplace import Workplace
from lakehouse.lake import Lakehouse
from lakehouse.orchestration import SqlModel
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.lineage.why import Why, explained_rows
from lakehouse.spark import build_session
from tests.orchestration.test_why import stored
from tests.orchestration.why_cells import comparable, condition

Lines = Mapping[str, Sequence[int]]
LEFT_OUT = 5
"""Lines of a cell that are left out, one by one."""
FLIGHT_TYPES = {column.name: column.type for column in FLIGHTS.columns}
AIRPORTS = """SELECT origin, count(*) AS flights, count(DISTINCT dest) AS destinations,
avg(departure_delay_minutes) AS departure_delay_avg_minutes FROM clean.flights
WHERE status = 'flown' GROUP BY origin"""
"""What the program of `marts.busiest_airports` does."""
EVENT_OF_FLIGHT = "timezone('America/New_York', CAST(scheduled_departure AS TIMESTAMP))"
EDITS = (
    SqlModel(
        name="clean.edits",
        sql="SELECT event_ts, channel, page, user, delta, added, deleted, isRobot AS robot, "
        "isNew AS is_new, namespace, countryName AS country, landing_file, landing_line "
        "FROM raw.wiki_edits WHERE namespace IS NOT NULL",
        engine="datafusion",
        day_column="event_ts",
    ),
    SqlModel(
        name="marts.channel_hour",
        sql="SELECT date_trunc('hour', event_ts) AS hour, channel, count(*) AS edits, "
        "count_if(robot) AS by_robots, sum(delta) AS delta, max(added) AS most, "
        "count(country) AS placed FROM clean.edits "
        "GROUP BY date_trunc('hour', event_ts), channel",
        engine="datafusion",
    ),
    SqlModel(
        name="marts.pages",
        sql="SELECT page, channel, user, delta, edits FROM (SELECT page, channel, user, delta, "
        "count(*) OVER (PARTITION BY channel, page) AS edits, row_number() OVER (PARTITION BY "
        "channel, page ORDER BY event_ts DESC, landing_file, landing_line) AS r FROM clean.edits) "
        "AS t WHERE r = 1",
        engine="datafusion",
    ),
    SqlModel(
        name="marts.users",
        sql="WITH created AS (SELECT user, count(*) AS pages FROM clean.edits WHERE is_new GROUP "
        "BY user) SELECT e.user, count(*) AS edits, sum(e.deleted) AS deleted, "
        "max(c.pages) AS created FROM clean.edits AS e LEFT JOIN created AS c ON e.user = c.user "
        "GROUP BY e.user",
        engine="datafusion",
    ),
    SqlModel(
        name="marts.sides",
        sql="SELECT 'robots' AS side, channel, count(*) AS edits, sum(added) AS added FROM "
        "clean.edits WHERE robot GROUP BY channel UNION ALL SELECT 'people' AS side, channel, "
        "count(*) AS edits, sum(added) AS added FROM clean.edits WHERE NOT robot GROUP BY channel",
        engine="datafusion",
    ),
)


@dataclass(frozen=True)
class Mart:
    """A mart.

    Attributes:
        name: of the table.
        keys: columns that tell its rows apart.
        counts: columns that are other values without any one line that counts for them.
        witnesses: columns that are other values without all of their lines together.
        share: of the cells that are drawn.
        proves: whether `why` proves its answer: not that of a function.
    """

    name: str
    keys: tuple[str, ...]
    counts: frozenset[str]
    witnesses: frozenset[str] = frozenset()
    share: int = 1
    proves: bool = True


FLIGHT_MARTS = (
    Mart(
        CARRIER_DAYS.name,
        ("day", "carrier", "origin"),
        frozenset({"flights", "cancelled", "late", "distance_miles"}),
        share=12,
    ),
    Mart(
        AIRCRAFTS.name,
        ("tailnum",),
        frozenset({"flights", "flown", "flown_miles", "air_minutes"}),
        frozenset({"first_seen", "last_seen"}),
        share=4,
    ),
    # rows with the origin, as the asset declares: those that do not count are among them
    Mart("marts.busiest_airports", ("origin",), frozenset(), proves=False),
)
EDIT_MARTS = (
    Mart(
        "marts.channel_hour",
        ("hour", "channel"),
        frozenset({"edits", "by_robots", "placed"}),
        frozenset({"most"}),
        share=4,
    ),
    Mart("marts.pages", ("channel", "page"), frozenset({"edits"}), share=4),
    Mart("marts.users", ("user",), frozenset({"edits"}), share=4),
    Mart("marts.sides", ("side", "channel"), frozenset({"edits"})),
)


@dataclass
class World:
    """Tables, and the landing files that they came from.

    Attributes:
        lake: the tables.
        derived: their definitions.
        source: of the landing files.
        landing: their folder.
        marts: that are asked about.
        sql: derived table -> SELECT, in order.
        typed: SELECT of a raw row's columns from the texts of a line.
        keys: columns that functions keep, by table.
        read: landing file -> its lines.
    """

    lake: Lakehouse
    derived: Mapping[str, DerivedTable]
    source: Source
    landing: Path
    marts: Sequence[Mart]
    sql: Mapping[str, str]
    typed: str
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    read: dict[str, list[bytes]] = field(default_factory=dict)

    def records(self, lines: Lines) -> pa.Table:
        """Lines of landing files, as texts."""
        found: list[dict[str, Any]] = []
        for file, numbers in lines.items():
            if file not in self.read:
                with gzip.open(self.landing / file) as opened:
                    self.read[file] = opened.readlines()
            found += [
                {"record": self.read[file][n - 1].decode(), "landing_file": file, "landing_line": n}
                for n in numbers
            ]
        kinds = [("record", pa.string()), ("landing_file", pa.string())]
        return pa.Table.from_pylist(found, pa.schema([*kinds, ("landing_line", pa.int64())]))

    def by_duckdb(self, mart: Mart, lines: Lines) -> list[dict[str, Any]]:
        """The mart of these lines."""
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'; CREATE SCHEMA raw; CREATE SCHEMA clean")
        connection.register("given", self.records(lines))
        connection.execute(f"CREATE TABLE {self.source.table} AS {self.typed}")
        for name, sql in self.sql.items():
            if name == mart.name:
                rows: list[dict[str, Any]] = connection.execute(sql).to_arrow_table().to_pylist()
                return rows
            if name.startswith("clean."):
                connection.execute(f"CREATE TABLE {name} AS {sql}")
        raise AssertionError(mart)

    def explained(self, mart: Mart, row: Mapping[str, Any], column: str | None) -> Why:
        """What `why` says of a cell."""

        def no_spark() -> Any:
            raise AssertionError("no JVM is needed")

        asked = condition({name: row[name] for name in mart.keys})
        return explained_rows(
            self.lake,
            self.derived,
            mart.name,
            asked,
            column=column,
            keys=self.keys,
            session=no_spark,
        )


@cache
def in_duckdb(sql: str) -> str:
    """A model's SQL as DuckDB reads it."""
    return sqlglot.transpile(sql, read="spark", write="duckdb")[0]


def flights(checkout: Path) -> World:
    """What the demo left."""
    models = (CLEAN_FLIGHTS, CARRIER_DAYS, AIRCRAFTS)
    kinds = {"int": "INTEGER", "string": "VARCHAR"}
    columns = [
        f"CAST(record ->> '$.{name}' AS {kinds[str(kind)]}) AS {name}"
        for name, kind in FLIGHT_TYPES.items()
    ]
    typed = (
        f"SELECT *, {EVENT_OF_FLIGHT} AS event_ts FROM (SELECT {', '.join(columns)}, "
        "landing_file, landing_line FROM given) AS t"
    )
    return World(
        lh.load_catalog(str(checkout / ".lakehouse" / "warehouse")),
        {model.name: model.table() for model in models},
        FLIGHTS,
        checkout / ".lakehouse" / "landing" / FLIGHTS.name,
        FLIGHT_MARTS,
        {model.name: in_duckdb(model.sql) for model in models}
        | {"marts.busiest_airports": AIRPORTS},
        typed,
        {"marts.busiest_airports": ("origin",)},
    )


def edits(file: Path, folder: Path) -> World:
    """Edits of Wikipedia, ingested from a landing file."""
    landing = folder / "landing" / WIKI_EDITS.name
    landing.mkdir(parents=True)
    shutil.copy(file, landing)
    lake = lh.load_catalog(str(folder / "lake"))
    spark = build_session("cells")
    try:
        stamp = RunStamp("cells", "raw/wiki_edits")
        last = WIKI_EDITS.last_day
        work = Workplace(lake, lambda: spark, str(folder / "landing"), last or date.max, stamp)
        days = index_landing(work, WIKI_EDITS).days
        taken = ingest_days(work, WIKI_EDITS, days, "increment", lambda _snapshot, _days: ())
    finally:
        spark.stop()
    print(f"{taken.counts.rows:,} edits of {taken.counts.lines:,} lines")  # noqa: T201
    kinds = {"boolean": "BOOLEAN", "long": "BIGINT", "string": "VARCHAR", "int": "INTEGER"}
    raw = lake.load_table(WIKI_EDITS.table)
    columns = [
        f"CAST(record ->> '$.{one.name}' AS {kinds[str(one.field_type)]}) AS {one.name}"
        for one in raw.schema().fields
        if str(one.field_type) in kinds and not one.name.startswith("landing_")
    ]
    return World(
        lake,
        stored(lake, *EDITS),
        WIKI_EDITS,
        landing,
        EDIT_MARTS,
        {model.name: in_duckdb(model.sql) for model in EDITS},
        f"SELECT {', '.join(columns)}, CAST(record ->> '$.time' AS TIMESTAMPTZ) AS event_ts, "
        "landing_file, landing_line FROM given",
    )


def drawn(world: World, chance: random.Random, cells: int) -> Iterator[tuple[Mart, Any, str]]:
    """Cells at random: a mart, a row, a column."""
    rows = {
        mart: world.lake.load_table(mart.name).scan().to_arrow().to_pylist() for mart in world.marts
    }
    weights = [mart.share for mart in world.marts]
    for mart in chance.choices(list(rows), weights, k=cells):
        row = chance.choice(rows[mart])
        if all(row[name] is not None for name in mart.keys):
            yield mart, row, chance.choice([name for name in row if name not in mart.keys])


def check(world: World, mart: Mart, row: Mapping[str, Any], column: str) -> tuple[int, int]:
    """Compute a cell from its lines, and without some: how many it has, and were left out."""
    found = world.explained(mart, row, column)
    told = f"{mart.name} {row}, {column}"
    if found.equal is not True and mart.proves:
        raise AssertionError(f"{told}: {found.verdict()}")
    lines = {file: some for (_, file), some in found.lines.items()}
    wanted = comparable({name: row[name] for name in (*mart.keys, column)})

    def is_there(some: Lines) -> bool:
        given = world.by_duckdb(mart, some)
        return wanted in [comparable({n: one[n] for n in (*mart.keys, column)}) for one in given]

    if not is_there(lines):
        raise AssertionError(f"{told}: not from {lines}")
    every = [(file, line) for file, some in lines.items() for line in some]
    # of a column where nothing counts, each line is enough for the row
    none_counts = row[column] in (None, 0) and column != "flights"
    left_out = 0
    if column in mart.counts and not none_counts:
        for file, line in random.Random(0).sample(every, min(LEFT_OUT, len(every))):
            without = dict(lines) | {file: [one for one in lines[file] if one != line]}
            left_out += 1
            if is_there(without):
                raise AssertionError(f"{told}: the same without line {line} of {file}")
    if column in mart.witnesses:
        group = world.explained(mart, row, None)
        others = {
            file: sorted(set(some) - set(lines.get(file, ())))
            for (_, file), some in group.lines.items()
        }
        left_out += len(every)
        if is_there(others):
            raise AssertionError(f"{told}: the same without {lines}")
    return len(every), left_out


def main() -> None:
    """Print how many cells were explained; a wrong one raises."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--cells", type=int, default=500)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--seconds", type=float, default=math.inf, help="stop after so many")
    asked.add_argument("--edits", type=Path, metavar="FILE")
    given = asked.parse_args()
    chance = random.Random(given.seed)
    tried: Counter[str] = Counter()
    lines = left_out = 0
    with tempfile.TemporaryDirectory() as folder:
        world = edits(given.edits, Path(folder)) if given.edits else flights(Path.cwd())
        ends = time.monotonic() + given.seconds
        for mart, row, column in drawn(world, chance, given.cells):
            if time.monotonic() > ends:
                break
            counted, without = check(world, mart, row, column)
            tried[mart.name] += 1
            lines, left_out = lines + counted, left_out + without
            print(f"{tried.total():,} cells", end="\r", flush=True)  # noqa: T201
    told = ", ".join(f"{count:,} of {name}" for name, count in sorted(tried.items()))
    print(  # noqa: T201
        f"{tried.total():,} cells ({told}), from {lines:,} lines: each is the cell when computed "
        f"from its lines; {left_out:,} lines were left out, and it was another each time"
    )


if __name__ == "__main__":
    main()
