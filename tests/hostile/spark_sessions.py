"""A session of Spark: what it has cached, options of its writes, columns with defaults.

The oracles: our own reader, which knows no cache of Spark; a model of partitions and of who
changed them; a model of rows in which every column has its default.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

import lakehouse as lh
from lakehouse.spark import attach
from tests.hostile.foreign_mutants import Mutant
from tests.integration.test_spark_defaults import CASES

Session = Callable[[], Any]
IDS = pa.schema([("id", pa.int64())])


def _ids(*values: int) -> pa.Table:
    return pa.table({"id": list(values)}, IDS)


class Cached:
    """A table and its branch that a session has cached while others commit to them."""

    def __init__(self, rng: random.Random, folder: Path, spark: Any) -> None:
        self.rng, self.spark, self.fresh = rng, spark, 10
        uri, more = (folder / "warehouse").as_uri(), {}
        self.joint = rng.random() < 0.5  # of such catalogs, several tables may be committed to
        if self.joint:
            uri, more = f"sqlite:///{folder}/c.db", {"warehouse": uri}
        self.lake = lh.load_catalog(uri, **more)
        self.session = attach(spark, lh.load_catalog(uri, **more))
        self.table = self.lake.create_table("c.t", IDS)
        self.table.append(_ids(1, 2))
        self.table.append(_ids(3))
        self.table.create_branch("b")
        self.table.append(_ids(4), branch="b")
        self.reads: Mapping[str, tuple[str, Callable[[], list[Any]]]] = {
            "lake.c.t": ("SELECT id FROM lake.c.t", lambda: self._rows("main")),
            "lake.c.t.branch_b": ("SELECT id FROM lake.c.t.branch_b", lambda: self._rows("b")),
            "lake.c.t.snapshots": (
                "SELECT snapshot_id FROM lake.c.t.snapshots",
                lambda: sorted((one.snapshot_id,) for one in self._now().snapshots()),
            ),
            "counted_of_t": (
                "SELECT * FROM counted_of_t",
                lambda: [(len(self._rows("main")),)],
            ),
        }

    def _now(self) -> Any:
        return self.lake.load_table("c.t")

    def _rows(self, ref: str) -> list[Any]:
        return sorted((one,) for one in self._now().scan(ref=ref).to_arrow()["id"].to_pylist())

    def _sql(self, text: str) -> list[Any]:
        return sorted(tuple(row) for row in self.spark.sql(text).collect())

    def cache(self) -> None:
        """Some of the reads, and others not."""
        counted = self.spark.table("lake.c.t").selectExpr("count(*) AS n")
        counted.createOrReplaceTempView("counted_of_t")
        for name in self.rng.sample(list(self.reads), self.rng.randint(1, len(self.reads))):
            self.spark.sql(f"CACHE TABLE {name}")

    def look(self, after: str) -> None:
        """Compare each read. Raises AssertionError."""
        for name, (query, right) in self.reads.items():
            found = self._sql(query)
            if found != right():
                raise AssertionError(f"{name} after {after}: {found} instead of {right()}")

    def change(self) -> str:
        """Commit in a random way; returns how."""
        self.fresh += 1
        new, table = self.fresh, self._now()
        ours = self.session.lake.load_table("c.t")
        some = self.rng.choice(table.snapshots()).snapshot_id
        ancestors = [one.snapshot_id for one in table.history()]
        back = self.rng.choice(ancestors)
        statements = [
            f"INSERT INTO lake.c.t VALUES ({new})",
            f"INSERT INTO lake.c.t.branch_b VALUES ({new})",
            f"INSERT INTO lake.c.t.branch_main VALUES ({new})",
            f"INSERT OVERWRITE lake.c.t VALUES ({new})",
            f"UPDATE lake.c.t SET id = {new} WHERE id % 2 = 1",
            "DELETE FROM lake.c.t.branch_main WHERE id % 3 = 0",
            f"MERGE INTO lake.c.t t USING (SELECT {new} AS id) s ON t.id = s.id "
            "WHEN NOT MATCHED THEN INSERT *",
            f"CALL lake.system.rollback_to_snapshot('c.t', {back})",
            f"CALL lake.system.set_current_snapshot('c.t', {some})",
            "CALL lake.system.set_current_snapshot(table => 'c.t', ref => 'b')",
            f"CALL lake.system.create_tag(table => 'c.t', tag => 'g{new}')",
        ]
        python = {
            "append": lambda: ours.append(_ids(new)),
            "append to b": lambda: ours.append(_ids(new), branch="b"),
            "delete": lambda: ours.delete("id % 2 = 0"),
            "rollback": lambda: ours.rollback_to(back),
            "registration": lambda: self._register(table),
        }
        if self.joint:
            python["transaction"] = lambda: self._together(new)
        how = self.rng.choice([*statements, *python])
        python[how]() if how in python else self.spark.sql(how)
        return how

    def _register(self, table: Any) -> None:
        """An earlier version of the table is the newest one again."""
        earlier = self.rng.choice(table.metadata.metadata_log).metadata_file
        lake = self.session.lake
        lake.catalog.unregister(table.identifier)
        version = lake.register_table("c.t", earlier)
        if version.current_snapshot() is None or "b" not in version.refs():
            lake.catalog.unregister(table.identifier)
            lake.register_table("c.t", table.metadata_location)

    def _together(self, new: int) -> None:
        lake = self.session.lake
        if not lake.table_exists("c.other"):
            lake.create_table("c.other", IDS)
        with lake.transaction() as both:
            both.table("c.t").append(_ids(new))
            both.table("c.other").append(_ids(new))


def cached_round(seed: int, folder: Path, session: Session) -> None:
    """Commits to what is cached. Raises AssertionError."""
    rng, spark = random.Random(seed), session()
    try:
        cached = Cached(rng, folder, spark)
        cached.cache()
        for _ in range(4):
            cached.look(cached.change())
    finally:
        spark.catalog.clearCache()


Rows = dict[str, list[tuple[int, str]]]
State = Mapping[str, Mapping[int, frozenset[int]]]
"""Partition -> file -> ids in it."""


def _filled(state: State) -> State:
    """Without files of which no row is left."""
    return {
        partition: {name: some for name, some in files.items() if some}
        for partition, files in state.items()
    }


def _changed(before: State, after: State, partitions: set[str], level: str) -> bool:
    """Whether an isolation level minds what became of partitions."""
    for partition in partitions:
        then, now = (set(one.get(partition, {})) for one in (before, after))
        if then - now or (level == "serializable" and now - then):
            return True
    return False


class Written:
    """A table by partitions, and what the options of writes have to make of it."""

    def __init__(self, rng: random.Random, folder: Path, spark: Any) -> None:
        self.rng, self.spark, self.fresh, self.files = rng, spark, 0, 0
        self.lake = lh.load_catalog((folder / "warehouse").as_uri())
        attach(spark, self.lake)
        schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
        self.mode = rng.choice(["copy-on-write", "merge-on-read"])
        self.table = self.lake.create_table(
            "o.t", schema, partition_by=["p"], properties={"write.delete.mode": self.mode}
        )
        self.state: State = {}
        self.states: dict[int, State] = {}
        self.did("nothing yet", self._insert)

    def _drawn(self, partitions: str = "abc") -> list[tuple[int, str]]:
        rows = []
        for _ in range(self.rng.randint(1, 3)):
            self.fresh += 1
            rows.append((self.fresh, self.rng.choice(partitions)))
        return rows

    def _added(self, base: State, rows: list[tuple[int, str]]) -> State:
        found = dict(base)
        for partition in {one for _, one in rows}:
            self.files += 1
            ids = frozenset(number for number, one in rows if one == partition)
            found[partition] = {**found.get(partition, {}), self.files: ids}
        return found

    def _frame(self, rows: list[tuple[int, str]]) -> Any:
        return self.spark.createDataFrame(rows, "id bigint, p string")

    def _insert(self) -> State:
        rows = self._drawn()
        self._frame(rows).writeTo("lake.o.t").append()
        return self._added(self.state, rows)

    def _delete(self) -> State:
        ids = [one for files in self.state.values() for some in files.values() for one in some]
        if not ids:
            return self.state
        gone = self.rng.choice(ids)
        self.spark.sql(f"DELETE FROM lake.o.t WHERE id = {gone}")
        found: dict[str, dict[int, frozenset[int]]] = {}
        for partition, files in self.state.items():
            found[partition] = {}
            for name, some in files.items():
                if gone not in some:
                    found[partition][name] = some
                elif some - {gone} or self.mode == "merge-on-read":
                    self.files += 1
                    found[partition][self.files] = some - {gone}
        return found

    def _overwrite(self) -> State | None:
        """Overwrite with options; None: it has to be refused, and was."""
        how = self.rng.choice(["insertInto", "insertInto", "partitions", "condition"])
        modes = ["dynamic", "DYNAMIC", "static", None] if how == "insertInto" else [None]
        mode = self.rng.choice(modes)
        only = self.rng.choice("abc")
        rows = self._drawn(only if how == "condition" else "abc")
        options = {} if mode is None else {"overwrite-mode": mode}
        since, level = self.rng.choice(list(self.states)), ""
        if self.rng.random() < 0.6:
            level = self.rng.choice(["serializable", "snapshot"])
            options |= {"isolation-level": level, "validate-from-snapshot-id": str(since)}
        dynamic = how == "partitions" or (mode or "").lower() == "dynamic"
        replaced = (
            {one for _, one in rows} if dynamic else {only} if how == "condition" else {*"abc"}
        )
        then, now = self.states[since], self.state
        conflict = bool(level) and _changed(_filled(then), _filled(now), replaced, level)
        try:
            if how == "insertInto":
                writer = self._frame(rows).write.mode("overwrite").options(**options)
                writer.insertInto("lake.o.t")
            else:
                target = self._frame(rows).writeTo("lake.o.t").options(**options)
                target.overwritePartitions() if dynamic else target.overwrite(F.col("p") == only)
        except Exception as error:
            # a file of which no row is left may have gone, too
            may = bool(level) and _changed(then, now, replaced, level)
            if may and "ValidationConflictError" in str(error):
                return None
            raise
        if conflict:
            raise AssertionError(f"{how} with {options}: others had changed {sorted(replaced)}")
        return self._added({p: f for p, f in self.state.items() if p not in replaced}, rows)

    def did(self, what: str, change: Callable[[], State | None]) -> None:
        """Compare the table with the model after a change. Raises AssertionError."""
        after = change()
        self.state = self.state if after is None else after
        right = sorted(
            (number, partition)
            for partition, files in self.state.items()
            for some in files.values()
            for number in some
        )
        found = sorted(tuple(row) for row in self.spark.table("lake.o.t").collect())
        if found != right:
            raise AssertionError(f"{what}: {found} instead of {right}")
        self.states[self.table.refresh().metadata.current_snapshot_id] = self.state

    def step(self) -> None:
        """A random change."""
        change = self.rng.choice([self._insert, self._delete, self._overwrite, self._overwrite])
        self.did(change.__name__, change)


def written_round(seed: int, folder: Path, session: Session) -> None:
    """Writes with options beside those of others. Raises AssertionError."""
    written = Written(random.Random(seed), folder, session())
    for _ in range(6):
        written.step()


KINDS = [*CASES, *[kind for kind in CASES if "uuid" in kind or "_ns" in kind] * 2]
"""Types of columns, those more often that Spark lacks."""


class Defaults:
    """Columns with defaults, also inside of others, that come while rows are written."""

    def __init__(self, rng: random.Random, folder: Path, spark: Any) -> None:
        self.rng, self.spark, self.fresh = rng, spark, 10
        self.lake = lh.load_catalog((folder / "warehouse").as_uri())
        attach(spark, self.lake)
        mode = rng.choice(["copy-on-write", "merge-on-read"])
        inside = pa.struct([("a", pa.int64())])
        schema = pa.schema([("i", pa.int64()), ("s", inside), ("l", pa.list_(inside))])
        self.table = self.lake.create_table(
            "d.t",
            schema,
            properties={
                "format-version": "3",
                **{f"write.{verb}.mode": mode for verb in ("update", "merge", "delete")},
            },
        )
        rows = [{"i": 1, "s": {"a": 1}, "l": [{"a": 1}, None]}, {"i": 2}, {"i": 3, "l": []}]
        self.table.append(pa.Table.from_pylist(rows, schema))
        self.rows: dict[int, dict[str, Any]] = {
            1: {"s": (1,), "l": [(1,), None]},
            2: {"s": None, "l": None},
            3: {"s": None, "l": []},
        }
        self.kinds: dict[str, str] = {}

    def add(self) -> str:
        """A column, or a field inside of one."""
        self.fresh += 1
        name, kind = f"c{self.fresh}", self.rng.choice(KINDS)
        place = self.rng.choice([(), (), ("s",), ("l", "element")])
        default = CASES[kind].default if self.rng.random() < 0.6 else None
        shown = None if default is None else CASES[kind].shown
        with self.table.refresh().update_schema() as update:
            update.add_column((*place, name), kind, default=default)
        for row in self.rows.values():
            if not place:
                row[name] = shown
            elif place == ("s",):
                row["s"] = None if row["s"] is None else (*row["s"], shown)
            elif row["l"] is not None:
                row["l"] = [None if one is None else (*one, shown) for one in row["l"]]
        if not place:
            self.kinds[name] = kind
            self.shown = {**getattr(self, "shown", {}), name: shown}
        return f"{'.'.join((*place, name))} {kind} with the default {default!r}"

    def _blank(self) -> dict[str, Any]:
        return {"s": None, "l": None, **getattr(self, "shown", {})}

    def verb(self) -> str:
        """Change rows; returns the statement."""
        self.fresh += 1
        new, column = self.fresh, self.rng.choice([*self.kinds, None])
        case = None if column is None else CASES[self.kinds[column]]
        row = self.rng.choice(list(self.rows))
        verbs = ["insert", "delete" if len(self.rows) > 2 else "insert", "key", "merge"]
        how = self.rng.choice([*verbs, *(["value", "value"] if case else [])])
        given = {} if case is None else {column: case.other_shown}
        names = "i" if case is None else f"i, {column}"
        if how == "insert":
            values = f"{new}" if case is None else f"{new}, {case.other}"
            text = f"INSERT INTO lake.d.t ({names}) VALUES ({values})"
            self.rows[new] = {**self._blank(), **given}
        elif how == "delete":
            text = f"DELETE FROM lake.d.t WHERE i = {row}"
            del self.rows[row]
        elif how == "key":
            text = f"UPDATE lake.d.t SET i = {new} WHERE i = {row}"
            self.rows[new] = self.rows.pop(row)
        elif how == "value":
            text = f"UPDATE lake.d.t SET {column} = {case.other} WHERE i = {row}"
            self.rows[row] |= given
        else:
            values = "s.i" if case is None else f"s.i, {case.other}"
            text = (
                f"MERGE INTO lake.d.t t USING (SELECT explode(array({row}L, {new}L)) AS i) s "
                f"ON t.i = s.i WHEN MATCHED THEN UPDATE SET i = {new + 1000} "
                f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})"
            )
            self.rows[new + 1000] = self.rows.pop(row)
            self.rows[new] = {**self._blank(), **given}
        self.spark.sql(text)
        return text

    def look(self, after: str) -> None:
        """Compare the rows. Raises AssertionError."""
        names = ["s", "l", *self.kinds]
        right = [(key, *(row[name] for name in names)) for key, row in sorted(self.rows.items())]
        found = self.spark.sql("SELECT * FROM lake.d.t").collect()
        found = sorted((tuple(row) for row in found), key=lambda row: row[0])
        if found != right:
            raise AssertionError(f"after {after}: {found} instead of {right}")


def defaults_round(seed: int, folder: Path, session: Session) -> None:
    """Columns with defaults beside rows that are written. Raises AssertionError."""
    rng = random.Random(seed)
    table = Defaults(rng, folder, session())
    for step in range(5):
        table.look(table.add() if step == 0 or rng.random() < 0.4 else table.verb())


_CACHE = "spark.catalog.cached_tables:RefreshingCatalog"
OF_CACHES = [
    Mutant("10: Spark is told of no commit", f"{_CACHE}._changed", "spark is not None", "False"),
    Mutant(
        "10: Spark is not told of transactions over several tables",
        f"{_CACHE}.commit_all",
        "self._changed(commit.base)",
        "pass",
        seed=8,
    ),
    Mutant(
        "10: Spark is not told of tables that are registered again",
        f"{_CACHE}.register",
        "self._changed(version)",
        "pass",
        seed=3,
    ),
]
OF_OPTIONS = [
    Mutant(
        "13a: the mode of an overwrite is not read",
        "spark.writing.write_options:write_options",
        'options.get("overwrite-mode") == "dynamic",',
        "False,",
    ),
    Mutant(
        "13a: what others did since the snapshot that was read is no conflict",
        "spark.writing.write_answers:check_unchanged_since",
        "if since is None or since == head:",
        "if True:",
    ),
    Mutant(
        "13a: the isolation level is not read",
        "spark.writing.write_answers:check_unchanged_since",
        'if options.isolation == "serializable"',
        "if True",
    ),
]
_TYPES = "spark.spark_types"
OF_DEFAULTS = [
    Mutant(
        "13b: Spark fills in defaults of bytes, structs and uuids",
        f"{_TYPES}:_is_filled_in",
        "return kind.is_primitive and not isinstance(kind, bytes_to_spark)",
        "return kind.is_primitive",
        seed=7,
    ),
    Mutant(
        "13b: defaults inside of columns are null in Spark",
        f"{_TYPES}:for_workers",
        "for part in _inside(field.field_type)",
        "for part in ()",
        seed=6,
    ),
    Mutant(
        "13b: a uuid or nanoseconds inside of a column make the table unreadable",
        f"{_TYPES}:is_foreign",
        "nested and",
        "False and",
    ),
    Mutant(
        "13b: the default of a struct has no fields",
        f"{_TYPES}:default_literal",
        "if not isinstance(kind, ice.StructType):",
        "if True:",
        seed=7,
    ),
]
