"""MERGE, UPDATE and upsert do to a table what DuckDB's do to the same rows.

Held fixed: one writer. Varied: types of keys and values, nulls, NaN and signed zeros, clauses and
conditions, format version, copy-on-write and merge-on-read, partitioning, files with deletes,
columns added and partition specs changed between, sources that fit in the memory allowed or are
spilled, given as tables, streams or batches.

`LAKEHOUSE_MERGE_EXAMPLES=1000` makes the run long.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections import Counter
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakehouse as lh
from lakehouse.errors import InvalidInputError

EXAMPLES = int(os.environ.get("LAKEHOUSE_MERGE_EXAMPLES", "40"))
TARGET = pa.schema(
    [
        ("id", pa.int64()),
        ("f", pa.float64()),
        ("d", pa.date32()),
        ("c", pa.decimal128(9, 2)),
        ("s", pa.string()),
        ("n", pa.int32()),
    ]
)
SOURCE = pa.schema(
    [
        ("id", pa.int32()),
        ("f", pa.float64()),
        ("d", pa.date32()),
        ("c", pa.decimal128(9, 2)),
        ("s", pa.string()),
        ("n", pa.int32()),
    ]
)
IDS = st.one_of(st.none(), st.integers(0, 12))
FLOATS = st.sampled_from([None, 0.0, -0.0, math.nan, 1.5, -2.0, math.inf])
DATES = st.sampled_from([None, date(1969, 12, 31), date(1970, 1, 1), date(2026, 6, 2)])
DECIMALS = st.sampled_from([None, Decimal("-1.50"), Decimal("0.00"), Decimal("7.25")])
TEXTS = st.sampled_from([None, "", "a", "b", "ä", "a'b"])
NUMBERS = st.one_of(st.none(), st.integers(-3, 3))
ROW = st.fixed_dictionaries(
    {"id": IDS, "f": FLOATS, "d": DATES, "c": DECIMALS, "s": TEXTS, "n": NUMBERS}
)
KEYS = {
    "t.id = s.id": ["id"],
    "s.id = t.id": ["id"],
    "t.f = s.f": ["f"],
    "t.id = s.id AND t.d = s.d": ["id", "d"],
    "t.s = s.s AND t.n = s.n": ["s", "n"],
    "t.c = s.c": ["c"],
    "t.id IS NOT DISTINCT FROM s.id": ["id"],
    "t.d IS NOT DISTINCT FROM s.d AND t.s = s.s": ["d", "s"],
    "t.id = s.id AND t.n > s.n": ["id"],
    "t.id = s.id AND s.s <> 'a'": ["id"],
    "t.id = s.id AND t.s IS NOT NULL": ["id"],
    "upper(t.s) = upper(s.s)": ["s"],
    "t.id + 1 = s.id": ["id"],
}
MATCHED_CONDITIONS = st.sampled_from(
    [None, "t.n > 0", "s.n < t.n", "t.s = 'a' OR s.s IS NULL", "s.f > 1", "t.d < s.d", "t.c = s.c"]
)
SOURCE_CONDITIONS = st.sampled_from([None, "s.n > 0", "s.s IS NOT NULL", "s.id > 4", "s.f = 0"])
TARGET_CONDITIONS = st.sampled_from([None, "t.n < 0", "t.s IS NULL", "t.id < 6", "t.f > 0"])
BOTH_VALUES = {
    "id": ["s.id", "t.id + 100"],
    "f": ["s.f", "t.f + s.f", "1.5", "NULL"],
    "d": ["s.d", "DATE '2026-01-31'"],
    "c": ["s.c", "2.25", "coalesce(t.c, s.c)"],
    "s": ["s.s", "t.s || s.s", "'new'", "CASE WHEN t.n > 0 THEN s.s ELSE t.s END"],
    "n": ["s.n", "t.n + s.n", "7", "t.n"],
}


def of_one_side(alias):
    other = "t" if alias == "s" else "s"
    return {
        column: [value for value in values if f"{other}." not in value] or [f"{alias}.{column}"]
        for column, values in BOTH_VALUES.items()
    }


def assignments(values):
    return st.dictionaries(
        st.sampled_from(sorted(values)), st.integers(0, 10), min_size=1, max_size=4
    ).map(lambda drawn: {one: values[one][at % len(values[one])] for one, at in drawn.items()})


@dataclass(frozen=True)
class Clause:
    when: str
    action: str
    condition: str | None
    values: dict[str, str] | None

    def sql(self) -> str:
        when = {
            "matched": "MATCHED",
            "not matched": "NOT MATCHED",
            "not matched by source": "NOT MATCHED BY SOURCE",
        }[self.when]
        also = f" AND ({self.condition})" if self.condition else ""
        if self.action == "delete":
            return f"WHEN {when}{also} THEN DELETE"
        if self.action == "update":
            values = self.values or {name: f"s.{name}" for name in TARGET.names}
            listed = ", ".join(f"{name} = {value}" for name, value in values.items())
            return f"WHEN {when}{also} THEN UPDATE SET {listed}"
        values = self.values or {name: f"s.{name}" for name in TARGET.names}
        return (
            f"WHEN {when}{also} THEN INSERT ({', '.join(values)}) "
            f"VALUES ({', '.join(values.values())})"
        )

    def add(self, merge):
        name = f"when_{self.when.replace(' ', '_')}_{self.action}"
        if self.action == "delete":
            return getattr(merge, name)(self.condition)
        if self.values is None:
            return getattr(merge, f"{name}_all")(self.condition)
        return getattr(merge, name)(self.values, self.condition)


def clauses_of(when, actions, conditions, values, alls):
    changing = st.builds(
        Clause,
        st.just(when),
        st.sampled_from([action for action in actions if action != "delete"]),
        conditions,
        st.one_of(st.none(), assignments(values)) if alls else assignments(values),
    )
    if "delete" not in actions:
        return changing
    return st.one_of(
        changing, st.builds(Clause, st.just(when), st.just("delete"), conditions, st.none())
    )


def upto_the_unconditional(clauses):
    for position, one in enumerate(clauses):
        if one.condition is None:
            return clauses[: position + 1]
    return clauses


CLAUSES = st.tuples(
    st.lists(
        clauses_of("matched", ["update", "delete"], MATCHED_CONDITIONS, BOTH_VALUES, True),
        max_size=3,
    ).map(upto_the_unconditional),
    st.lists(
        clauses_of("not matched", ["insert"], SOURCE_CONDITIONS, of_one_side("s"), True),
        max_size=2,
    ).map(upto_the_unconditional),
    st.lists(
        clauses_of(
            "not matched by source",
            ["update", "delete"],
            TARGET_CONDITIONS,
            of_one_side("t"),
            False,
        ),
        max_size=2,
    ).map(upto_the_unconditional),
).map(lambda parts: [one for part in parts for one in part])


def unique_by(rows, keys):
    """Rows of which no two match the same thing, by any equality that is asked here."""
    found = {}
    for row in rows:
        found.setdefault(tuple(spelled(row[key]) for key in keys), row)
    return list(found.values())


def spelled(value):
    if isinstance(value, str):
        return value.upper()
    return repr(value + 0.0 if isinstance(value, float) else value)


def shown(rows):
    # 0.0 and -0.0 are equal: after `t.f = s.f` DuckDB takes either for the other
    plain = ([v + 0.0 if isinstance(v, float) else v for v in row.values()] for row in rows)
    return Counter(tuple(map(repr, values)) for values in plain)


@dataclass
class World:
    """The same rows in a table of ours and in one of DuckDB."""

    table: lh.Table
    peer: duckdb.DuckDBPyConnection

    def append(self, rows):
        data = pa.Table.from_pylist(rows, schema=TARGET)
        self.table.append(data)
        self.peer.register("more", data)
        self.peer.execute("INSERT INTO t BY NAME SELECT * FROM more")

    def delete(self, where):
        self.table.delete(where)
        self.peer.execute(f"DELETE FROM t WHERE {where}")

    def check(self):
        ours = self.table.refresh().scan(select=TARGET.names).to_arrow().to_pylist()
        theirs = self.peer.execute(f"SELECT {', '.join(TARGET.names)} FROM t").to_arrow_table()
        assert shown(ours) == shown(theirs.to_pylist())
        if self.table.metadata.format_version >= 3:
            ids = self.table.scan(select=["_row_id"]).to_arrow()["_row_id"].to_pylist()
            assert None not in ids
            assert len(set(ids)) == len(ids), "a row id was given twice"


def a_world(draw, folder, modes=("merge-on-read", "copy-on-write")):
    mode = draw(st.sampled_from(modes))
    lake = lh.load_catalog(f"file://{folder}/warehouse")
    table = lake.create_table(
        "raw.t",
        TARGET,
        partition_by=draw(st.sampled_from([[], ["s"], ["bucket(3, id)"], ["month(d)", "n"]])),
        format_version=draw(st.sampled_from([2, 3])),
        properties={
            **{f"write.{one}.mode": mode for one in ("delete", "update", "merge")},
            "write.delete.granularity": draw(st.sampled_from(["file", "partition"])),
        },
    )
    peer = duckdb.connect()
    peer.register("empty", pa.Table.from_pylist([], schema=TARGET))
    peer.execute("CREATE TABLE t AS SELECT * FROM empty")
    world = World(table, peer)
    for step in draw(st.lists(st.sampled_from(["rows", "rows", "delete", "column", "spec"]))):
        if step == "rows":
            world.append(draw(st.lists(ROW, min_size=1, max_size=8)))
        elif step == "delete":
            world.delete(draw(st.sampled_from(["n > 0", "s = 'a'", "id IN (1, 2, 3)"])))
        elif step == "column" and "later" not in table.schema().column_names:
            with table.update_schema() as schema:
                schema.add_column("later", "string")
        elif step == "spec" and "s_bucket" not in {field.name for field in table.spec().fields}:
            with table.update_partition_spec() as spec:
                spec.add("bucket(2, s)", name="s_bucket")
    return world


MEMORY = st.sampled_from([1 << 30, 1 << 10])


def given_as(draw, source):
    forms = [lambda rows: rows, lambda rows: rows.to_reader(max_chunksize=2)]
    if source.num_rows:
        forms.append(lambda rows: iter(rows.to_batches(max_chunksize=3)))
    return draw(st.sampled_from(forms))(source)


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_a_merge_does_what_it_does_in_duckdb(data):
    with tempfile.TemporaryDirectory() as folder:
        world = a_world(data.draw, folder)
        for _ in range(data.draw(st.integers(1, 2))):
            on = data.draw(st.sampled_from(sorted(KEYS)))
            clauses = data.draw(CLAUSES)
            rows = unique_by(data.draw(st.lists(ROW, max_size=8)), KEYS[on])
            source = pa.Table.from_pylist(rows, schema=SOURCE)
            if not clauses:
                continue
            text = f"MERGE INTO t USING s ON {on} {' '.join(clause.sql() for clause in clauses)}"
            before = world.peer.execute("SELECT count(*) FROM t").fetchone()[0]
            world.peer.register("s", source)
            changed = world.peer.execute(text).fetchone()[0]
            memory = data.draw(MEMORY)
            merge = world.table.merge(given_as(data.draw, source), on, memory_bytes=memory)
            for clause in clauses:
                merge = clause.add(merge)
            done = merge.execute()
            world.check()
            after = world.peer.execute("SELECT count(*) FROM t").fetchone()[0]
            assert done.rows_inserted - done.rows_deleted == after - before
            assert done.rows_inserted + done.rows_updated + done.rows_deleted == changed


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_an_update_does_what_it_does_in_duckdb(data):
    where = st.sampled_from([None, "n > 0", "s = 'a' OR d IS NULL", "f > 1", "id % 2 = 0"])
    with tempfile.TemporaryDirectory() as folder:
        world = a_world(data.draw, folder)
        values = data.draw(assignments(of_one_side("t")))
        values = {name: value.replace("t.", "") for name, value in values.items()}
        condition = data.draw(where)
        listed = ", ".join(f"{name} = {value}" for name, value in values.items())
        also = f" WHERE {condition}" if condition else ""
        changed = world.peer.execute(f"UPDATE t SET {listed}{also}").fetchone()[0]
        assert world.table.update(values, condition).rows_updated == changed
        world.check()


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_an_upsert_does_what_it_does_in_duckdb(data):
    with tempfile.TemporaryDirectory() as folder:
        world = a_world(data.draw, folder)
        keys = data.draw(st.sampled_from([["id"], ["d", "s"], ["f"], ["c", "id"]]))
        rows = unique_by(data.draw(st.lists(ROW, max_size=8)), keys)
        kept = sorted({*keys, *data.draw(st.sets(st.sampled_from(TARGET.names)))})
        source = pa.Table.from_pylist(rows, schema=SOURCE).select(kept)
        world.peer.register("s", source)
        on = " AND ".join(f"t.{key} = s.{key}" for key in keys)
        clauses = [
            Clause("matched", "update", None, {one: f"s.{one}" for one in kept}),
            Clause("not matched", "insert", None, {one: f"s.{one}" for one in kept}),
        ]
        world.peer.execute(f"MERGE INTO t USING s ON {on} {' '.join(c.sql() for c in clauses)}")
        memory = data.draw(MEMORY)
        world.table.upsert(given_as(data.draw, source), keys, memory_bytes=memory)
        world.check()


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    rows=st.lists(IDS, max_size=8),
    source=st.lists(st.tuples(IDS, NUMBERS), max_size=8),
    conditions=st.tuples(SOURCE_CONDITIONS.filter(lambda one: one in (None, "s.n > 0"))),
    memory=MEMORY,
)
def test_two_source_rows_for_one_row_are_refused(rows, source, conditions, memory):
    with tempfile.TemporaryDirectory() as folder:
        table = lh.load_catalog(f"file://{folder}/w").create_table(
            "raw.t", pa.schema([("id", pa.int64()), ("n", pa.int64())])
        )
        table.append(pa.table({"id": pa.array(rows, pa.int64()), "n": pa.array([0] * len(rows))}))
        given_ = pa.table(
            {
                "id": pa.array([one for one, _ in source], pa.int64()),
                "n": pa.array([n for _, n in source], pa.int64()),
            }
        )
        acting = Counter(
            one
            for one, n in source
            if one in set(rows) - {None} and (conditions[0] is None or (n or 0) > 0)
        )
        merge = table.merge(given_, "t.id = s.id", memory_bytes=memory)
        merge = merge.when_matched_update({"n": "s.n"}, conditions[0])
        before = table.scan().to_arrow().to_pylist()
        if max(acting.values(), default=0) > 1:
            with pytest.raises(InvalidInputError, match="several source rows"):
                merge.execute()
            assert table.refresh().scan().to_arrow().to_pylist() == before
        else:
            assert merge.execute().rows_updated == sum(
                acting[row] for row in rows if row is not None
            )
