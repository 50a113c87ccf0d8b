"""Derived tables that follow their inputs by what changed, over random histories.

The oracle: DuckDB executes the SQL over all rows that the inputs have. What a history allows to
follow has to be followed: a table that is computed again whatever happens would be right, too.
The histories of a round share their beginning: of its inputs, which several queries are asked of,
and those of a query some of what follows. Each step of each is compared.
"""

from __future__ import annotations

import copy
import datetime as dt
import functools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot

from lakehouse import CompactionOptions, ExpiryOptions
from lakehouse.ingestion.source_tables import event_ts_in
from lakehouse.ingestion.stamp import RunStamp
from lakehouse.orchestration.assets.derived_table import Computation
from lakehouse.orchestration.assets.frames import open_engine
from lakehouse.orchestration.assets.incremental import ResultDelta
from lakehouse.orchestration.assets.sql_model import SqlModel
from lakehouse.table import Table
from tests.hostile.foreign_mutants import Mutant
from tests.hostile.forked_lakes import ForkedLake

T = pa.schema(
    [
        ("event_ts", pa.timestamp("us", "UTC")),
        ("id", pa.int64()),
        ("k", pa.int32()),
        ("s", pa.string()),
        ("v", pa.int64()),
        ("x", pa.float64()),
    ]
)
U = pa.schema([("k", pa.int32()), ("name", pa.string()), ("w", pa.int64())])
DAYS = [dt.date(2026, 6, number) for number in range(1, 5)]
_AGGREGATES = (
    "count(*)", "count(t.v)", "sum(t.v)", "min(t.v)", "max(t.s)", "count(DISTINCT t.s)",
    "avg(t.k)", "max(t.event_ts)", "min(t.x)", "count(CASE WHEN t.v > 3 THEN 1 END)",
)  # fmt: skip
_ORDER = "t.v DESC NULLS LAST, t.id NULLS LAST, t.s NULLS LAST, t.event_ts NULLS LAST, t.x"


QUERIES = 4
"""Of each round, and each has two histories."""
STEPS = [(2,), (2,), (1, 2), (1, 1, 2)]
"""In how many ways a history goes on after each step."""


class Drawn:
    """A query. It names `raw.t AS t`, and maybe `raw.u AS u`.

    Attributes:
        sql: the text.
        simple: whether each engine runs it.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.simple = True
        shapes: Sequence[Callable[[], str]] = (
            self.rows, self.groups, self.groups, self.distinct, self.joined, self.joined_groups,
            self.left, self.semi, self.union, self.union_groups, self.best, self.nested,
        )  # fmt: skip
        self.sql = rng.choice(shapes)()

    def where(self, *more: str) -> str:
        condition = self.rng.choice(
            ["", "", f"t.v > {self.rng.randrange(5)}", "t.s IS NOT NULL", "t.s <> 'b' OR t.k = 1"]
        )
        parts = [f"({one})" for one in (condition, *more) if one]
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def keys(self) -> list[str]:
        return self.rng.sample(["t.k", "t.s", "to_date(t.event_ts)"], self.rng.randint(1, 2))

    def grouped(self, source: str, keys: Sequence[str], where: str) -> str:
        shown = [f"{one} AS g{number}" for number, one in enumerate(keys)]
        shown += [
            f"{one} AS a{number}"
            for number, one in enumerate(self.rng.sample(_AGGREGATES, self.rng.randint(1, 4)))
        ]
        having = self.rng.choice(["", "", " HAVING count(*) > 1", " HAVING sum(t.v) > 4"])
        return f"SELECT {', '.join(shown)} FROM {source}{where} GROUP BY {', '.join(keys)}{having}"

    def rows(self) -> str:
        chosen = self.rng.sample(
            ["t.id", "t.k", "t.s", "t.v + 1 AS v1", "t.x", "t.event_ts", "t.v * t.k AS p"], 3
        )
        return f"SELECT {', '.join(chosen)} FROM raw.t AS t{self.where()}"

    def groups(self) -> str:
        return self.grouped("raw.t AS t", self.keys(), self.where())

    def distinct(self) -> str:
        return f"SELECT DISTINCT t.k, t.s, t.x FROM raw.t AS t{self.where()}"

    def joined(self) -> str:
        self.simple = False
        both = "raw.t AS t JOIN raw.u AS u ON t.k = u.k"
        if self.rng.random() < 0.5:
            return f"SELECT t.id, t.x, u.name, u.w FROM {both}{self.where()}"
        return f"SELECT t.id, u.w FROM raw.t AS t, raw.u AS u{self.where('t.k = u.k')}"

    def joined_groups(self) -> str:
        self.simple = False
        keys = self.rng.sample(["t.k", "u.name", "t.s"], self.rng.randint(1, 2))
        join = "raw.t AS t JOIN raw.u AS u ON t.k = u.k AND u.w > 1"
        return self.grouped(join, keys, self.where())

    def left(self) -> str:
        self.simple = False
        join = "raw.t AS t LEFT JOIN raw.u AS u ON t.k = u.k AND u.w < 4"
        if self.rng.random() < 0.5:
            more = self.rng.choice([(), ("u.k IS NULL",), ("u.w > 1",)])
            return f"SELECT t.k, t.id, t.x, u.name FROM {join}{self.where(*more)}"
        return self.grouped(join, ["t.k"], self.where())

    def semi(self) -> str:
        self.simple = False
        kind = self.rng.choice(["SEMI", "ANTI"])
        return f"SELECT t.k, t.id, t.v FROM raw.t AS t LEFT {kind} JOIN raw.u AS u ON t.k = u.k"

    def union(self) -> str:
        self.simple = False
        every = self.rng.choice(["UNION ALL", "UNION ALL", "UNION"])
        first = f"SELECT t.k, t.v FROM raw.t AS t{self.where()}"
        second = self.rng.choice(
            [
                "SELECT u.k, u.w FROM raw.u AS u",
                "SELECT t.k, t.id FROM raw.t AS t WHERE t.v > 2",
                "SELECT t.k, u.w FROM raw.t AS t JOIN raw.u AS u ON t.k = u.k",
            ]
        )
        return f"{first} {every} {second}"

    def union_groups(self) -> str:
        self.simple = False
        inner = "SELECT t.k, t.v FROM raw.t AS t UNION ALL SELECT u.k, u.w AS v FROM raw.u AS u"
        return f"SELECT a.k, sum(a.v) AS v, count(*) AS n FROM ({inner}) AS a GROUP BY a.k"

    def best(self) -> str:
        self.simple = False
        window = f"row_number() OVER (PARTITION BY t.k ORDER BY {_ORDER}) AS n"
        inner = f"SELECT t.k, t.id, t.v, {window} FROM raw.t AS t{self.where()}"
        return f"SELECT b.k, b.id, b.v, b.n FROM ({inner}) AS b WHERE b.n <= 2"

    def nested(self) -> str:
        self.simple = False
        inner = "SELECT t.k, count(*) AS n, sum(t.v) AS v FROM raw.t AS t GROUP BY t.k"
        if self.rng.random() < 0.5:
            return (
                f"WITH c AS ({inner}) SELECT c.k, c.n, u.name FROM c JOIN raw.u AS u ON c.k = u.k "
                "WHERE c.n > 1"
            )
        return (
            f"WITH c AS ({inner}), d AS (SELECT c.k, c.n FROM c WHERE c.v > 2) "
            "SELECT u.k, u.name, d.n FROM raw.u AS u LEFT JOIN d ON d.k = u.k"
        )


class Followed:
    """Two inputs, and a table that follows them."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self.rng, self.serial, self.runs = rng, 0, 0
        self.changed: set[str] = set()  # inputs
        self.files = ForkedLake(folder)
        self.lake = self.files.lake
        for name, schema in (("raw.t", T), ("raw.u", U)):
            by = ["day(event_ts)"] if name == "raw.t" and rng.random() < 0.5 else []
            modes = rng.choice(["copy-on-write", "merge-on-read"])
            properties = {f"write.{one}.mode": modes for one in ("delete", "update", "merge")}
            properties["format-version"] = rng.choice(["2", "3"])
            self.lake.create_table(name, schema, partition_by=by, properties=properties)
        self.done: list[str] = []

    def asks(self) -> None:
        """A query, and the table that follows."""
        rng = self.rng
        drawn = Drawn(rng)
        self.sql = drawn.sql
        self.engine = rng.choice(["duckdb", "datafusion", *(["polars"] if drawn.simple else [])])
        # beside NaN it depends on the order of rows there
        self.sql = self.sql if self.engine == "duckdb" else self.sql.replace("min(t.x)", "max(t.v)")
        self.refresh = rng.choice(["incremental", "auto", "incremental_strict"])
        self.daily = drawn.sql.count("raw.") == 1 and "AS g0" in drawn.sql and rng.random() < 0.7
        self.daily &= "to_date(t.event_ts) AS g0" in drawn.sql
        self.computed = False  # once
        self.breaks = False  # something came that is not followed
        self.renames = False
        self.bent = False  # by others: it is not the answer of its query any more
        daily: dict[str, Any] = {"day_column": "g0", "day_is_date": True} if self.daily else {}
        self.table = SqlModel(
            name="marts.m", sql=self.sql, engine=self.engine, refresh=self.refresh, **daily
        ).table()
        self.opened = open_engine(self.engine, lambda: None)
        (self.right,) = sqlglot.transpile(
            self.sql.replace("raw.", ""), read="spark", write="duckdb"
        )

    def forked(self, chance: random.Random) -> Followed:
        """One whose history goes on in another way."""
        other = copy.copy(self)
        other.rng, other.files = chance, self.files.forked()
        other.lake = other.files.lake
        other.done = list(self.done)
        return other

    def one(self) -> Table:
        names = ["raw.t", "raw.t", "raw.u"]
        return self.lake.load_table(self.rng.choice(names))

    def rows(self, table: Table, most: int = 6) -> pa.Table:
        rng = self.rng

        def row() -> dict[str, Any]:
            self.serial += 1
            if table.name == "raw.u":
                return {
                    "k": rng.choice([None, *range(6)]), "name": rng.choice("pqr"),
                    "w": rng.randrange(6),
                }  # fmt: skip
            hour = dt.time(rng.randrange(24))
            return {
                "event_ts": dt.datetime.combine(rng.choice(DAYS), hour, dt.UTC),
                "id": self.serial if rng.random() < 0.8 else 1, "k": rng.choice([None, *range(6)]),
                "s": rng.choice([None, "a", "b", "c"]), "v": rng.choice([None, *range(8)]),
                "x": rng.choice([None, 0.1, -1.5, float("nan"), 7.0]),
            }  # fmt: skip

        rows = [row() for _ in range(rng.randint(1, most))]
        rows += rows[:1] if rng.random() < 0.3 else []
        return pa.Table.from_pylist(rows, U if table.name == "raw.u" else T)

    def condition(self) -> str:
        return self.rng.choice([f"k = {self.rng.randrange(6)}", "k IS NULL", "k > 3"])

    def append(self, most: int = 6) -> None:
        """Rows, some of them twice."""
        table = self.one()
        table.append(self._known(table, self.rows(table, most)))
        self.changed.add(table.name)

    def _known(self, table: Table, rows: pa.Table) -> pa.Table:
        return rows.rename_columns(
            [
                name if name in table.schema().column_names else f"{name}2"
                for name in rows.column_names
            ]
        )

    def delete(self) -> None:
        """Of a key."""
        table = self.one()
        if table.delete(self.condition()) is not None:
            self.changed.add(table.name)

    def update(self) -> None:
        """Of a key."""
        table = self.one()
        values = {"w": "w + 1"} if table.name == "raw.u" else {"v": "v + 1"}
        if table.update(values, where=self.condition()).rows_updated:
            self.changed.add(table.name)

    def overwrite(self) -> None:
        """A day, late."""
        table = self.lake.load_table("raw.t")
        day = self.rng.choice(DAYS)
        table.overwrite(self._known(table, self.rows(table)), event_ts_in([day]))
        self.changed.add(table.name)

    def upsert(self) -> None:
        """By id."""
        table = self.lake.load_table("raw.t")
        rows = self._known(table, self.rows(table, 3))
        ids = rows["id"].to_pylist()
        rows = rows.take([ids.index(one) for one in dict.fromkeys(ids)])
        table.upsert(rows, ["id"])
        self.changed.add(table.name)

    def compact(self) -> None:
        """Files move, rows do not."""
        own = self.computed and self.rng.random() < 0.5
        table = self.lake.load_table("marts.m") if own else self.one()
        table.compact(CompactionOptions(min_input_files=2))
        table.rewrite_manifests()

    def column(self) -> None:
        """One that no query reads."""
        self.serial += 1
        with self.one().update_schema() as change:
            change.add_column(f"extra{self.serial}", "int")

    def renamed(self) -> None:
        """Rows come while a column that queries read has another name."""
        table = self.one()
        name = "w" if table.name == "raw.u" else "v"
        for old, new in ((name, f"{name}2"), (f"{name}2", name)):
            with table.update_schema() as change:
                change.rename_column(old, new)
            if new != name:
                table.append(self._known(table, self.rows(table)))
        self.changed.add(table.name)
        self.breaks = self.renames = True  # rows that were read have that other name

    def back(self) -> None:
        """To an earlier snapshot: what was read last may be no ancestor any more."""
        table = self.one()
        line = list(table.metadata.ancestors(table.metadata.current_snapshot_id))
        if len(line) > 1:
            table.rollback_to(self.rng.choice(line[1:]).snapshot_id)
            self.breaks = True

    def expire(self) -> None:
        """Also what was read last."""
        table = self.one()
        last = table.metadata.last_updated_ms + 1
        table.expire_snapshots(ExpiryOptions(older_than_ms=last, retain_last=1, remove_files=False))
        self.breaks = True

    def by_hand(self) -> None:
        """Others write rows of the derived table."""
        if self.computed:
            table = self.lake.load_table("marts.m")
            table.delete(f"{_quoted(table.schema().column_names[0])} IS NULL")
            self.breaks = self.bent = True

    def run(self) -> None:
        """Bring the table up to date."""
        table = self.table
        found = table.staleness(self.lake)
        days = None
        if self.daily:
            days = sorted(self.rng.sample(DAYS, self.rng.randint(1, len(DAYS))))
            days = [day for day in map(str, days) if day in found.partitions]
            if not days:
                return
        elif not found.whole:
            seen = self.breaks or not self.changed & set(table.inputs)
            assert seen, "a change is not seen"
            return
        elif self.computed and not self.breaks:
            assert self.changed & set(table.inputs), "what changed no row is taken for a change"
        self.runs += 1
        work = Computation(table, self.lake, self.opened, found, days)
        full = self.refresh == "incremental_strict" and self.breaks
        delta = work.delta(full=full)
        refresh = delta.refresh if isinstance(delta, ResultDelta) else delta
        self.done.append(f"{refresh.mode} ({refresh.reason})")
        allowed = not self.computed or self.breaks or self.refresh == "auto"
        allowed |= "left out before" in refresh.reason
        assert refresh.mode == "incremental" or allowed, "it was not followed"
        stamp = RunStamp(f"run-{self.runs}", "marts/m")
        write = work.write(stamp, delta, lambda _: None)
        if self.rng.random() < 0.2:
            write.staged().publish(lambda _: [])
        else:
            write("main", stamp.commit_id("rows"))
        self.computed, self.breaks, self.bent, self.changed = True, self.renames, False, set()

    def look(self) -> None:
        """Compare with DuckDB. Raises AssertionError."""
        if not self.computed or self.bent:
            return
        behind = self.table.staleness(self.lake).partitions if self.daily else ()
        connection = oracle()
        for name in ("t", "u"):
            connection.register(name, self.lake.load_table(f"raw.{name}").scan().to_arrow())
        right = connection.sql(self.right).to_arrow_table().to_pylist()
        scan = self.lake.load_table("marts.m").scan()
        parts = [
            sorted(
                repr([_plain(value) for value in row.values()])
                for row in rows
                if not self.daily or str(row["g0"]) not in behind
            )
            for rows in (scan.to_arrow().to_pylist(), right)
        ]
        assert parts[0] == parts[1], f"{parts[0]} instead of {parts[1]}"

    def step(self) -> None:
        """Something happens, and the table follows."""
        verbs = [
            self.append, self.append, self.delete, self.update, self.overwrite, self.upsert,
            self.compact, self.column, self.renamed, self.back, self.expire, self.by_hand,
        ]  # fmt: skip
        weights = [3, 3, 2, 2, 3, 2, 2, 0.3, 0.3, 0.5, 0.3, 0.4]
        for verb in self.rng.choices(verbs, weights, k=self.rng.randint(1, 3)):
            self.done.append(verb.__name__)
            verb()
        self.run()
        self.look()

    @contextmanager
    def telling(self) -> Iterator[None]:
        """What fails says what was done."""
        try:
            yield
        except Exception as error:
            raise AssertionError(f"{self.sql} on {self.engine}, {self.done}: {error!r}") from error


@functools.cache
def oracle() -> duckdb.DuckDBPyConnection:
    """It lasts: to open one takes longer than a query."""
    connection = duckdb.connect(config={"threads": 1})
    connection.sql("SET TimeZone = 'UTC'")
    return connection


def _plain(value: object) -> object:
    return int(value) if isinstance(value, Decimal) and value == int(value) else value


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def round_of(seed: int, folder: Path, *_: object) -> None:
    """Histories, and what follows them. Raises AssertionError."""
    rng = random.Random(seed)
    inputs = Followed(rng, folder)
    for _ in range(rng.randint(1, 3)):
        inputs.append(30)
    for _ in range(QUERIES):
        world = inputs.forked(random.Random(rng.random()))
        world.asks()
        with world.telling():
            world.run()
        _grow(world, rng.choice(STEPS))


def _grow(world: Followed, widths: Sequence[int]) -> None:
    for _ in range(widths[0] if widths else 0):
        other = world.forked(random.Random(world.rng.random()))
        other.changed = set(world.changed)
        with other.telling():
            other.step()
        _grow(other, widths[1:])


_QUERIES, _FOLLOWER = "incremental_queries", "orchestration.assets.incremental:Follower"
MUTANTS = [
    Mutant(
        "34: rows that went from an input are forgotten",
        f"{_FOLLOWER}._changes",
        "went = pc.equal(kinds, DELETE)",
        "went = pc.equal(kinds, 'none')",
    ),
    Mutant(
        "34: of rows that came no key is touched",
        f"{_FOLLOWER}._delta",
        "pa.concat_tables([old, new])",
        "old",
    ),
    Mutant(
        "34: groups that lost rows are put together with those that came",
        f"{_FOLLOWER}._delta",
        "more = tuple(_without_keys(part, touched) for part in come)",
        "more = tuple(come)",
    ),
    Mutant(
        "34: the sum of a group is that of the rows that came",
        "orchestration.assets.incremental:_both",
        "pc.coalesce(both, mine, other)",
        "mine",
    ),
    Mutant(
        "34: both inputs are taken as they are now, and pairs of changes are missed",
        f"{_FOLLOWER}._delta",
        "state = {name: self._then[name] for name in self._now}",
        "state = dict(self._now)",
    ),
    Mutant(
        "34: a query of two inputs in a UNION adds the other one again",
        f"{_QUERIES}:_with",
        "if all(reading) or not any(reading):",
        "if True:",
        seed=2,
    ),
    Mutant(
        "34: rows of a null key are not found",
        "orchestration.assets.incremental:having",
        "if values.null_count else []",
        "if False else []",
    ),
    Mutant(
        "34: compaction is taken for a change",
        "orchestration.assets.staleness:staleness",
        "[s for s in later if s.operation != OPERATION_REPLACE]",
        "list(later)",
        seed=2,
    ),
    Mutant(
        "34: rows that came have the names of columns that their snapshot had",
        f"{_FOLLOWER}._changes",
        "changelog(since, now.snapshot_id,",
        "changelog(since, self._id(name),",
        seed=2,
    ),
    Mutant(
        "34: a late day that a run leaves out is forgotten",
        "orchestration.assets.staleness:Staleness.after",
        "tuple(sorted(self.partitions.keys() - set(done)))",
        "()",
        seed=2,
    ),
    Mutant(
        "34: a row that was there twice goes as a whole",
        "row_changes.row_verbs:replace_rows",
        "leaves = ~surplus(old, of_gone)",
        "leaves = np.isin(old, asked)",
    ),
]
