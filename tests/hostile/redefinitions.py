"""Definitions that change while their tables are there: of derived tables, and of sources.

The oracles: DuckDB executes the present SQL over the present rows; a source that lands the same
files into tables of its own, under the definition that each file has met.
"""

from __future__ import annotations

import datetime as dt
import random
import shutil
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pyarrow as pa

from lakehouse.errors import InvalidSchemaError
from lakehouse.ingestion.source import Column, EventTime
from lakehouse.orchestration import LakehouseResource, LakehouseSpark
from lakehouse.orchestration.assets.derived_table import DerivedTable, RefreshMode
from lakehouse.orchestration.assets.sql_model import SqlModel
from tests.hostile.foreign_mutants import Mutant
from tests.orchestration.conftest import EVENTS, Pipe, event, june

SCHEMA = pa.schema([("event_ts", pa.timestamp("us", "UTC")), ("id", pa.int64()), ("v", pa.int64())])
DAYS = [dt.date(2026, 6, number) for number in range(1, 6)]
PARTITIONS = dg.DailyPartitionsDefinition("2026-06-01", end_date="2026-06-06")
RANGE = "dagster/asset_partition_range"
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class Model:
    """A table that is computed from another by SQL that changes."""

    def __init__(self, rng: random.Random, folder: Path, instance: dg.DagsterInstance) -> None:
        self.rng, self.instance = rng, instance
        self.resource = LakehouseResource(catalog=(folder / "lake").as_uri())
        self.lake = self.resource.lake()
        self.daily = rng.random() < 0.6
        self.raw = self.lake.create_table("raw.events", SCHEMA)
        self.columns, self.changes = ["id", "v"], 0
        self.sql = self._drawn()

    def _drawn(self) -> str:
        """A query over the columns that the input has, which gives event_ts, x and y."""
        number = self.rng.randrange(100)
        one, other = self.rng.choice(self.columns), self.rng.choice(self.columns)
        where = self.rng.choice(["", f" where {one} > {number % 40}", f" where {one} is null"])
        return f"select event_ts, {one} + {number} as x, {other} * 2 as y from raw.events{where}"

    def append(self) -> None:
        """Rows of a few days."""
        names = ["event_ts", *self.columns]
        rows = []
        for _ in range(self.rng.randint(1, 6)):
            at = dt.datetime.combine(self.rng.choice(DAYS), dt.time(12), dt.UTC)
            numbers = [self.rng.choice([None, self.rng.randrange(50)]) for _ in self.columns]
            rows.append(dict(zip(names, [at, *numbers], strict=True)))
        kinds = {"event_ts": SCHEMA.field("event_ts").type}
        schema = pa.schema([(name, kinds.get(name, pa.int64())) for name in names])
        self.raw.refresh().append(pa.Table.from_pylist(rows, schema))

    def evolve(self) -> None:
        """Add, drop or rename a column of the input; the SQL follows."""
        self.changes += 1
        fresh, old = f"c{self.changes}", self.rng.choice(self.columns)
        how = self.rng.choice(["add", "rename", "drop"] if len(self.columns) > 1 else ["add"])
        with self.raw.refresh().update_schema() as update:
            if how == "add":
                update.add_column(fresh, "long")
            elif how == "rename":
                update.rename_column(old, fresh)
            else:
                update.drop_column(old)
        kept = [one for one in self.columns if one != old or how == "add"]
        self.columns = kept if how == "drop" else [*kept, fresh]
        self.sql = self._drawn()

    def redefine(self) -> None:
        """Another query."""
        self.sql = self._drawn()

    def run(self, days: Sequence[dt.date]) -> None:
        """What is stale of the days is computed."""
        daily = {"day_column": "event_ts"} if self.daily else {}
        table: DerivedTable = SqlModel(
            name="marts.m", sql=self.sql, engine="duckdb", **daily
        ).table()
        tags = {f"{RANGE}_start": str(days[0]), f"{RANGE}_end": str(days[-1])}
        dg.materialize(
            [table.build(PARTITIONS if self.daily else None)],
            resources={"lakehouse": self.resource, "spark": LakehouseSpark()},
            run_config={
                "ops": {table.op_name: {"config": {"mode": RefreshMode.STALE.name}}},
                **QUIET,
            },
            tags=tags if self.daily else {},
            instance=self.instance,
        )

    def look(self, days: Sequence[dt.date]) -> None:
        """Compare the days with the present SQL over the present rows. Raises AssertionError."""
        query = self.sql.replace("raw.events", "rows")
        connection = duckdb.connect()
        connection.sql("SET TimeZone = 'UTC'")
        connection.register("rows", self.raw.refresh().scan().to_arrow())
        right = connection.sql(query).to_arrow_table().to_pylist()
        columns = ["event_ts", "x", "y"]
        found = self.lake.load_table("marts.m").scan(select=columns).to_arrow().to_pylist()
        wanted = set(DAYS if not self.daily else days)
        parts = [
            sorted(repr(tuple(row.values())) for row in rows if _day(row) in wanted)
            for rows in (found, right)
        ]
        if parts[0] != parts[1]:
            raise AssertionError(f"{self.sql}, days {days}: {parts[0]} instead of {parts[1]}")


def _day(row: dict[str, Any]) -> dt.date:
    found: dt.date = row["event_ts"].astimezone(dt.UTC).date()
    return found


def derived_round(seed: int, folder: Path, *_: object) -> None:
    """A derived table beside changes of its input and its SQL. Raises AssertionError."""
    rng = random.Random(seed)
    with dg.DagsterInstance.ephemeral() as instance:
        model = Model(rng, folder, instance)
        model.append()
        for _ in range(rng.randint(2, 4)):
            rng.choice([model.append, model.evolve, model.redefine, model.redefine])()
            first = rng.randrange(len(DAYS))
            days = DAYS[first : rng.randrange(first, len(DAYS)) + 1]
            model.run(days)
            model.look(days)
        model.run(DAYS)
        model.look(DAYS)


class Redefined:
    """A source whose definition changes once, and the same files beside it."""

    def __init__(self, rng: random.Random, folder: Path, spark: Any) -> None:
        self.rng = rng
        self.old = Pipe(folder / "old", spark, replace(EVENTS, last_day=dt.date(2026, 6, 3)))
        self.numbers = iter(range(1_000))

    def _lines(self) -> list[bytes]:
        """Of one day of the file's own."""
        lines, day = [], self.rng.randint(1, 4)
        for _ in range(self.rng.randint(1, 4)):
            number = next(self.numbers) if self.rng.random() < 0.8 else self.rng.randrange(5)
            hour = self.rng.choice([0, 1, 12, 23])
            lines.append(event(number, day, hour=hour, other=f"2026-06-0{5 - day}T01:00:00"))
        return lines

    def _amount(self) -> tuple[str, str | None]:
        """Another type of `amount`, which is an int, and what it becomes; None: it is refused."""
        kind = self.rng.choice(["long", "long", "int", "double", "string", "boolean"])
        return kind, {"long": "long", "int": "int"}.get(kind)

    def judge(self) -> None:
        """Land, ingest, change the definition, and do so again. Raises AssertionError."""
        old, mode = self.old, self.rng.choice(["replace", "increment"])
        halves = self.rng.choice([(june(1, 2), june(3, 5)), (june(2, 5), june(1))])
        for at in range(4):
            old.land(f"{at}.jsonl.gz", self._lines(), modified=1_000_000_000 + at)
        old.index()
        old.ingest(june(1, 5))
        changes: dict[str, Any] = self.rng.choice(
            [
                {"event_time": EventTime("ts", zone="Pacific/Auckland")},
                {"event_time": EventTime("other", zone="Europe/Berlin")},
                {"natural_key": ("id", "user")},
                {"natural_key": ()},
                {"last_day": dt.date(2026, 6, 30)},
                {},
                {},
                {},
            ]
        )
        kind, stored = self._amount() if not changes else ("int", "int")
        columns = [Column("amount", kind) if c.name == "amount" else c for c in EVENTS.columns]
        if more := self.rng.random() < 0.3:
            columns.append(Column("note", "string"))
        new = copy(old)
        new.source = replace(old.source, columns=tuple(columns), **changes)
        new.land("9.jsonl.gz", self._lines(), modified=1_000_000_010)
        what = f"{changes} and {columns}"
        try:
            new.index()
            for days in halves:
                new.ingest(days, mode)
        except InvalidSchemaError:
            if stored is None:
                return
            raise
        if stored is None:
            raise AssertionError(f"{what}: taken")
        schema = new.lake.load_table("raw.events").schema()
        found = str(schema.find_field("amount").field_type)
        if found != stored:
            raise AssertionError(f"{what}: amount is {found}")
        if more != ("note" in schema.column_names):
            raise AssertionError(f"{what}: the columns are {schema.column_names}")
        fresh = Pipe(new.root.parent / "fresh", new.spark, new.source)
        for path in sorted(new.folder.iterdir()):
            shutil.copy2(path, fresh.folder / path.name)
        fresh.index()
        fresh.ingest(june(1, 5))
        names = ("id", "event_ts", "user", "amount", "landing_file")
        parts = [(sorted(map(repr, one.rows(*names))), one.quarantine()) for one in (new, fresh)]
        if parts[0] != parts[1]:
            raise AssertionError(f"{what}: {parts[0]} instead of {parts[1]}")


def source_round(seed: int, folder: Path, session: Callable[[], Any]) -> None:
    """A source beside a change of its definition. Raises AssertionError."""
    Redefined(random.Random(seed), folder, session()).judge()


OF_SOURCES = [
    Mutant(
        "11: the changed type of a source's column is ignored",
        "ingestion.ingest:_columns",
        "redeclaration = redeclared(source, current)",
        "redeclaration = Drift((), ())",
    ),
    Mutant(
        "11: files that another definition has read are not read again",
        "ingestion.redefined_source:read_again",
        "change.what in _READ_AGAIN",
        "False",
        seed=3,
    ),
    Mutant(
        "11: days that a source's former definition had no place for stay quarantined",
        "ingestion.redefined_source:read_again",
        'change.effect == "recompute"',
        "False",
        seed=27,
    ),
]
_STALE = "orchestration.assets.staleness"
OF_DERIVED = [
    Mutant(
        "11: a derived table whose SQL has changed is fresh",
        f"{_STALE}:staleness",
        "state is not None and state.definition",
        "False and state.definition",
    ),
    Mutant(
        "11: a derived table ends as a mixture of two SQLs by day",
        f"{_STALE}:Staleness.after",
        "self.partitions.keys() - set(done)",
        "self.partitions.keys() - self.partitions.keys()",
        seed=3,
    ),
    Mutant(
        "11: days that another SQL had computed are recomputed only where rows have come",
        f"{_STALE}:staleness",
        "if changed is None or redefined:",
        "if changed is None:",
        seed=3,
    ),
    Mutant(
        "13: derived tables read the head with the columns of its snapshot",
        "orchestration.assets.frames:InputRows.at",
        "if snapshot_id == self.head_id():",
        "if False:",
    ),
]
