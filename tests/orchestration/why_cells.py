"""`python -m tests.orchestration.why_cells --cells 1000`: cells of generated pipelines, explained.

Each pipeline has raw tables with duplicate and late rows, an evolved schema and merged rows, tables
that filter, join, unite and deduplicate them, and a mart of those; more rows land afterwards. For a
cell of the mart `why` names landing lines. DuckDB, over these lines of what was landed and nothing
else, has to give the cell, and where every line counts not to give it without any one of them.
"""

from __future__ import annotations

import argparse
import datetime as dt
import functools
import math
import random
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

import lakehouse as lh
from lakehouse.lake import Lakehouse
from lakehouse.orchestration import SqlModel
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.assets.staleness import RefreshState
from lakehouse.orchestration.lineage.why import Why, explained_rows
from lakehouse.spec.metadata.snapshot import REFRESH_STATE

RAW = pa.schema(
    [
        pa.field("event_ts", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("id", pa.int64()),
        pa.field("k", pa.string()),
        pa.field("v", pa.int64()),
        pa.field("w", pa.int64()),
        pa.field("landing_file", pa.string(), nullable=False),
        pa.field("landing_line", pa.int64(), nullable=False),
    ]
)
EVOLVED = RAW.append(pa.field("x", pa.int64()))
Landed = dict[str, list[dict[str, Any]]]
CLEAN = {
    "kept": "SELECT event_ts, id, k, v, w, x FROM raw.a WHERE k IS NOT NULL",
    "changed": "SELECT event_ts, id, upper(k) AS k, v + 1 AS v, coalesce(w, 0) AS w, x FROM raw.a",
    "united": "SELECT event_ts, id, k, v, w, x FROM raw.a WHERE w > 0 "
    "UNION ALL SELECT event_ts, id, k, v, w, x FROM raw.b",
    "joined": "SELECT a.event_ts, a.id, m.k, a.v, m.w, a.x FROM raw.a AS a "
    "JOIN raw.m AS m ON a.id = m.id",
    "looked up": "SELECT a.event_ts, a.id, a.k, a.v, m.w, a.x FROM raw.a AS a "
    "LEFT JOIN raw.m AS m ON a.id = m.id AND m.v > 1",
    "first": "SELECT event_ts, id, k, v, w, x FROM (SELECT event_ts, id, k, v, w, x, row_number() "
    "OVER (PARTITION BY id ORDER BY event_ts, landing_file, landing_line) AS r FROM raw.a) "
    "AS t WHERE r = 1",
    "merged": "SELECT event_ts, id, k, v, w, x FROM raw.m",
    "known": "SELECT event_ts, id, k, v, w, x FROM raw.a WHERE id IN (SELECT id FROM raw.m)",
    "evolved": "SELECT event_ts, id, k, v, coalesce(x, w) AS w, x FROM raw.a "
    "WHERE x IS NULL OR x <> 2",
}
COUNTED = {"kept", "changed", "united", "joined", "merged", "evolved"}
"""Whose rows are there once for each row, or combination of rows, below."""
BY_DAY = {CLEAN[name] for name in ("kept", "changed", "united", "merged", "evolved")}
"""A day of whose rows comes from this day of their inputs."""
MARTS = {
    "by key": "SELECT k, count(*) AS n, sum(v) AS s, max(w) AS m, count_if(v > 2) AS high "
    "FROM clean.p GROUP BY k",
    "by day": "SELECT CAST(event_ts AS DATE) AS day, k, count(*) AS n, avg(v) AS mean, min(w) AS l "
    "FROM clean.p GROUP BY CAST(event_ts AS DATE), k",
    "many": "SELECT w, count(*) AS n, count(DISTINCT k) AS keys FROM clean.p GROUP BY w "
    "HAVING count(*) > 2",
    "whole": "SELECT count(*) AS n, sum(v) AS s, count(x) AS xs FROM clean.p",
    "of two": "SELECT p.k, count(*) AS n, sum(q.v) AS s FROM clean.p AS p JOIN clean.q AS q "
    "ON p.k = q.k AND p.w = q.w GROUP BY p.k",
    "perhaps two": "SELECT p.k, count(*) AS n, count(q.id) AS found FROM clean.p AS p "
    "LEFT JOIN clean.q AS q ON p.id = q.id GROUP BY p.k",
    "united": "SELECT k, count(*) AS n, sum(v) AS s FROM clean.p GROUP BY k UNION ALL "
    "SELECT 'all' AS k, count(*) AS n, sum(v) AS s FROM clean.q",
    "share": "SELECT id, k, v, sum(v) OVER (PARTITION BY k) AS s FROM clean.p WHERE v IS NOT NULL",
    "lead": "SELECT id, v, lead(v) OVER (PARTITION BY k ORDER BY id, coalesce(v, 0)) AS next "
    "FROM clean.p",
    "distinct": "SELECT DISTINCT k, w FROM clean.p",
    "not in": "SELECT p.id, p.k, p.v FROM clean.p AS p LEFT ANTI JOIN clean.q AS q "
    "ON p.id = q.id AND q.v > 2",
    "above": "SELECT k, id, v FROM clean.p WHERE v > (SELECT avg(v) FROM clean.q)",
    "of sums": "WITH t AS (SELECT k, w, count(*) AS c FROM clean.p GROUP BY k, w) "
    "SELECT k, max(c) AS most, count(*) AS n FROM t GROUP BY k",
}
KEYS = {
    "by key": ["k"],
    "by day": ["day", "k"],
    "many": ["w"],
    "whole": [],
    "of two": ["k"],
    "perhaps two": ["k"],
    "of sums": ["k"],
}
"""Of marts whose rows are told apart by some of their columns: the others are asked for one by one.
"""
EACH_COUNTS = {"by key": {"n", "high"}, "by day": {"n"}, "many": {"n"}, "whole": {"n", "xs"},
               "of two": {"n"}}  # fmt: skip
"""Columns that are another value without any one of the rows that count for them."""


@functools.cache
def duck() -> duckdb.DuckDBPyConnection:
    """One engine for all answers."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@dataclass
class World:
    """A pipeline.

    Attributes:
        chance: what it is made by.
        lake: its tables.
        landed: what its raw tables were made from, until the mart was.
        sql: derived table -> SELECT.
        derived: their definitions.
        counted: whether each row that is asked about counts.
    """

    chance: random.Random
    lake: Lakehouse
    mart: str
    landed: Landed = field(default_factory=dict)
    sql: dict[str, str] = field(default_factory=dict)
    derived: dict[str, DerivedTable] = field(default_factory=dict)
    counted: bool = False

    def build(self) -> None:
        """Land, derive, and land more."""
        chance = self.chance
        for name in ("raw.a", "raw.b", "raw.m"):
            table = self.lake.create_table(name, RAW, partition_by=["day(event_ts)"])
            for file in range(chance.randrange(2, 4)):
                self._land(name, file, evolved=file > 0)
                if file == 0:
                    with table.refresh().update_schema() as change:
                        change.add_column("x", "long")
        chosen = [chance.choice(list(CLEAN)) for _ in range(2)]
        self.sql = {"clean.p": CLEAN[chosen[0]], "clean.q": CLEAN[chosen[1]]}
        self.sql["marts.x"] = MARTS[self.mart]
        self.counted = set(chosen) <= COUNTED
        for name, sql in self.sql.items():
            is_by_day = sql in BY_DAY and chance.random() < 0.5
            day = "event_ts" if is_by_day else None
            self._derive(SqlModel(name=name, sql=sql, engine="datafusion", day_column=day))
        known = {name: list(rows) for name, rows in self.landed.items()}
        for name in known:
            self._land(name, 9, evolved=True)
        if chance.random() < 0.5:
            self.lake.load_table("raw.a").compact(lh.CompactionOptions(min_input_files=2))
        self.landed = known

    def _land(self, name: str, file: int, *, evolved: bool) -> None:
        """A file: rows of three days, some of them late, some there already."""
        chance, merged = self.chance, name == "raw.m"
        known = self.landed.setdefault(name, [])
        rows: list[dict[str, Any]] = []
        for line in range(1, chance.randrange(5, 16)):
            row = {
                "event_ts": dt.datetime(
                    2013, 1, chance.randint(1, 3), chance.randrange(24), tzinfo=dt.UTC
                ),
                "id": chance.randrange(8),
                "k": chance.choice(["a", "b", "c", "d'", None]),
                "v": chance.choice([None, *range(1, 5)]),
                "w": chance.choice([None, *range(4)]),
                "x": chance.choice([None, *range(3)]) if evolved else None,
            }
            if known and not merged and chance.random() < 0.2:
                again = chance.choice(known)
                row = {column: again[column] for column in row}
            rows.append({**row, "landing_file": f"{name}/{file}.jsonl", "landing_line": line})
        if merged:  # the last line of each key
            rows = list({row["id"]: row for row in rows}.values())
        schema = EVOLVED if evolved else RAW
        given = pa.Table.from_pylist([{c: row[c] for c in schema.names} for row in rows], schema)
        table = self.lake.load_table(name)
        if merged:
            table.upsert(given, ["id"])
            gone = {row["id"] for row in rows}
            known[:] = [row for row in known if row["id"] not in gone]
        else:
            table.append(given)
        known += rows

    def _derive(self, model: SqlModel) -> None:
        table = self.derived[model.name] = model.table()
        inputs = {
            name: self.lake.load_table(name).metadata.current_snapshot_id for name in table.inputs
        }
        found = table.compute(self.lake, None, inputs, None).read_all()
        state = RefreshState({name: id_ for name, id_ in inputs.items() if id_ is not None})
        made = self.lake.create_table(model.name, found.schema)
        made.append(found, summary={REFRESH_STATE: state.to_json()})

    def by_duckdb(self, lines: set[tuple[str, int]] | None = None) -> list[dict[str, Any]]:
        """The mart of these lines; None: of all."""
        connection = duck()
        for schema in ("raw", "clean"):
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")
        for name, rows in self.landed.items():
            some = [
                row
                for row in rows
                if lines is None or (row["landing_file"], row["landing_line"]) in lines
            ]
            given = pa.Table.from_pylist(some, EVOLVED)
            connection.register("given", given)
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
            connection.unregister("given")
        for name, sql in self.sql.items():
            text = sql.replace("LEFT ANTI", "ANTI")
            if name == "marts.x":
                return connection.execute(text).to_arrow_table().to_pylist()
            connection.execute(f"CREATE TABLE {name} AS {text}")
        raise AssertionError


def cells(world: World) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Rows of the mart, each with a column, or None for all of it."""
    found = world.lake.load_table("marts.x").scan().to_arrow().to_pylist()
    if sorted(map(comparable, found), key=str) != sorted(
        map(comparable, world.by_duckdb()), key=str
    ):
        raise AssertionError(f"{world.sql}: the mart is not what DuckDB computes")
    world.chance.shuffle(found)
    for row in found[:6]:
        keys = KEYS.get(world.mart)
        others = [] if keys is None else [name for name in row if name not in keys]
        for column in [None, *others]:
            yield row, column


def comparable(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(
        round(value, 9) if isinstance(value, float) and math.isfinite(value) else value
        for value in row.values()
    )


def condition(row: Mapping[str, Any]) -> str:
    told = []
    for name, value in row.items():
        text = str(value).replace("'", "''")
        quoted = f"'{text}'" if isinstance(value, str | dt.date) else repr(value)
        told.append(f"{name} is null" if value is None else f"{name} = {quoted}")
    return " and ".join(told) or "true"


def explained(world: World, row: Mapping[str, Any], column: str | None) -> Why:
    keys = KEYS.get(world.mart)
    asked = row if column is None or keys is None else {name: row[name] for name in keys}
    asked = {name: value for name, value in asked.items() if not isinstance(value, float)}

    def no_spark() -> Any:
        raise AssertionError("no JVM is needed")

    return explained_rows(
        world.lake, world.derived, "marts.x", condition(asked), column=column, session=no_spark
    )


def check(world: World, row: Mapping[str, Any], column: str | None) -> int:
    """Recompute a cell from its lines, and without any one of them; how many lines it has."""
    found = explained(world, row, column)
    told = f"{world.sql}, {row}, {column}: {found.lines}"
    assert found.equal, f"{found.verdict()}: {told}"
    lines = {(file, line) for (_, file), some in found.lines.items() for line in some}

    def has(some: set[tuple[str, int]]) -> int:
        """How often the cell is there."""
        rows = world.by_duckdb(some)
        if column is None:
            return [comparable(one) for one in rows].count(comparable(row))
        keys = KEYS[world.mart]
        wanted = {name: row[name] for name in (*keys, column)}
        of_cell = [comparable({name: one[name] for name in wanted}) for one in rows]
        return of_cell.count(comparable(wanted))

    every = [
        comparable(one) for one in world.lake.load_table("marts.x").scan().to_arrow().to_pylist()
    ]
    wanted = every.count(comparable(row)) if column is None else 1
    assert has(lines) == wanted, f"{has(lines)} of {wanted}: {told}"
    if each_counts(world, row, column):
        for line in sorted(lines):
            assert has(lines - {line}) < wanted, f"without {line} it is the same: {told}"
    return len(lines)


def each_counts(world: World, row: Mapping[str, Any], column: str | None) -> bool:
    """Whether the cell is another one without any one of its lines: of none, 0, each is enough."""
    counted = column or "n"
    return world.counted and counted in EACH_COUNTS.get(world.mart, ()) and row[counted] != 0


def worlds(seeds: range) -> Iterator[tuple[int, World]]:
    """A pipeline of each seed; every kind of mart in turn."""
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            mart = list(MARTS)[seed % len(MARTS)]
            world = World(random.Random(seed), lh.load_catalog(folder), mart)
            world.build()
            yield seed, world


def main() -> None:
    """Print how many cells were explained; a wrong one raises."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--cells", type=int, default=1000)
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    pipelines = tried = lines = minimal = 0
    for seed, world in worlds(range(given.seed, given.seed + given.cells)):
        print(f"{tried:,} cells, seed {seed}", end="\r", flush=True)  # noqa: T201
        pipelines += 1
        for row, column in cells(world):
            try:
                lines += check(world, row, column)
            except Exception as error:
                raise AssertionError(f"seed {seed}: {error}") from error
            tried += 1
            minimal += each_counts(world, row, column)
        if tried >= given.cells:
            break
    print(  # noqa: T201
        f"{tried:,} cells of {pipelines} pipelines, from {lines:,} lines: each is the cell when "
        f"computed from its lines; of {minimal:,} none of the lines can be left out"
    )


if __name__ == "__main__":
    main()
