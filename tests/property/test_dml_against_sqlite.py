"""Deletes and overwrites by filter, with nulls and NaNs, give what SQLite gives."""

from __future__ import annotations

import math
import sqlite3
import uuid

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lakehouse as lh
from lakehouse.spec.manifests.data_file import CONTENT_POSITION_DELETES

SCHEMA = pa.schema(
    [pa.field("a", pa.int64()), pa.field("b", pa.float64()), pa.field("s", pa.string())]
)
# SQLite has no NaN. Ours sorts above every number and equals itself, as infinity does; no row holds
# a real one.
NAN = float("inf")

ints = st.one_of(st.none(), st.integers(-2, 3))
floats = st.one_of(st.none(), st.sampled_from([-1.5, -0.0, 0.0, 0.5, 2.0, math.nan]))
texts = st.one_of(st.none(), st.sampled_from(["", "a", "ab", "b", "B"]))
records = st.lists(st.tuples(ints, floats, texts), min_size=1, max_size=14)


@st.composite
def leaves(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from(["a", "b", "s"]))
    literal = {
        "a": st.integers(-2, 3).map(str),
        "b": st.sampled_from(["-1.5", "0.0", "0.5", "2.0"]),
        "s": st.sampled_from(["''", "'a'", "'ab'", "'b'"]),
    }[column]
    kind = draw(st.sampled_from(["compare", "in", "null"]))
    if kind == "null":
        return f"{column} {draw(st.sampled_from(['is null', 'is not null']))}"
    if kind == "in":
        values = draw(st.lists(literal, min_size=1, max_size=3, unique=True))
        return f"{column} {draw(st.sampled_from(['in', 'not in']))} ({', '.join(values)})"
    return f"{column} {draw(st.sampled_from(['=', '!=', '<', '<=', '>', '>=']))} {draw(literal)}"


predicates = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
            lambda t: f"({t[0]}) {t[1]} ({t[2]})"
        ),
        inner.map(lambda p: f"not ({p})"),
    ),
    max_leaves=4,
)


def arrow(rows: list[tuple]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA
    )


def canonical(rows: list[tuple]) -> list[tuple]:
    """Comparable rows: NaN as SQLite's stand-in, -0.0 as 0.0, nulls first."""
    clean = [(a, None if b is None else NAN if math.isnan(b) else b + 0.0, s) for a, b, s in rows]
    return sorted(
        clean,
        key=lambda row: tuple(
            (value is not None, value if value is not None else 0) for value in row
        ),
    )


def sqlite_after(rows: list[tuple], statement: str) -> list[tuple]:
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t (a integer, b real, s text)")
    connection.executemany("insert into t values (?, ?, ?)", canonical(rows))
    connection.execute(statement)
    left = connection.execute("select a, b, s from t").fetchall()
    connection.close()
    return canonical(left)


def ours(table: lh.Table) -> list[tuple]:
    return canonical(
        [tuple(row[name] for name in SCHEMA.names) for row in table.scan().to_arrow().to_pylist()]
    )


@settings(max_examples=40)
@given(
    first=records,
    second=records,
    where=predicates,
    partition_by=st.sampled_from([[], ["a"], ["bucket(2, s)"], ["truncate(2, a)"]]),
)
def test_delete(tmp_path_factory, first, second, where, partition_by):
    catalog = lh.load_catalog(str(tmp_path_factory.mktemp("warehouse")))
    table = catalog.create_table("t.rows", SCHEMA, partition_by=partition_by)
    table.append(arrow(first))
    table.append(arrow(second))
    table.delete(where=where)
    assert ours(table) == sqlite_after(first + second, f"delete from t where {where}")


@settings(max_examples=20)
@given(first=records, new=records, where=predicates)
def test_overwrite(tmp_path_factory, first, new, where):
    catalog = lh.load_catalog(str(tmp_path_factory.mktemp("warehouse")))
    table = catalog.create_table("t.rows", SCHEMA, partition_by=["a"])
    table.append(arrow(first))
    table.overwrite(arrow(new), where=where)
    kept = sqlite_after(first, f"delete from t where {where}")
    assert ours(table) == canonical([*kept, *canonical(new)])


@pytest.mark.slow
@settings(max_examples=30)
@given(
    first=records,
    second=records,
    wheres=st.lists(predicates, min_size=2, max_size=4),
    partition_by=st.sampled_from([[], ["bucket(2, s)"], ["truncate(2, a)"]]),
    mode=st.sampled_from(["copy-on-write", "merge-on-read"]),
    version=st.sampled_from([2, 3]),
)
def test_one_delete_after_another(first, second, wheres, partition_by, mode, version):
    """Deleted rows stay deleted: a deletion vector holds all that the one before it held."""
    catalog = lh.load_catalog(f"memory://dml-{uuid.uuid4().hex}/warehouse")
    properties = {"write.delete.mode": mode}
    table = catalog.create_table(
        "t.rows", SCHEMA, partition_by=partition_by, properties=properties, format_version=version
    )
    table.append(arrow(first))
    table.append(arrow(second))
    left = first + second
    for where in wheres:
        table.delete(where=where)
        left = sqlite_after(left, f"delete from t where {where}")
        assert ours(table) == left
    vectors = [
        file
        for file in table.inspect.delete_files()["referenced_data_file"].to_pylist()
        if version == 3
    ]
    assert len(set(vectors)) == len(vectors)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["delete", "delete", "delete", "overwrite", "compact", "upgrade"]),
        predicates,
        records,
        st.sampled_from([0, 1]),
    ),
    min_size=2,
    max_size=6,
)
MODES = [("copy-on-write", "file"), ("merge-on-read", "file"), ("merge-on-read", "partition")]


NOTHING = (None, None, None)


@pytest.mark.slow
@settings(max_examples=40)
@example(  # the first handle finds nothing where it looks; the other has added a row since
    first=[NOTHING],
    second=[NOTHING],
    steps=[
        ("delete", "a is null", [NOTHING], 0),
        ("delete", "not (a is null)", [NOTHING], 0),
        ("overwrite", "a = 0", [NOTHING], 1),
        ("delete", "a is null", [NOTHING], 0),
    ],
    partition_by=[],
    mode=("copy-on-write", "file"),
)
@given(
    first=records,
    second=records,
    steps=STEPS,
    partition_by=st.sampled_from([[], ["bucket(2, s)"], ["truncate(2, a)"]]),
    mode=st.sampled_from(MODES),
)
def test_two_handles(first, second, steps, partition_by, mode):
    """What two handles do on the versions that they saw is refused, or as if done in turn."""
    catalog = lh.load_catalog(f"memory://dml-{uuid.uuid4().hex}/warehouse")
    properties = {"write.delete.mode": mode[0], "write.delete.granularity": mode[1]}
    table = catalog.create_table("t.rows", SCHEMA, partition_by=partition_by, properties=properties)
    table.append(arrow(first))
    table.append(arrow(second))
    left = canonical(first + second)
    handles = [catalog.load_table("t.rows"), catalog.load_table("t.rows")]
    for verb, where, new, who in steps:
        handle = handles[who]
        try:
            change(handle, verb, where, new)
        except lh.ValidationConflictError:
            handle.refresh()
            continue
        if verb in ("delete", "overwrite"):
            left = sqlite_after(left, f"delete from t where {where}")
        if verb == "overwrite":
            left = canonical([*left, *canonical(new)])
        table.refresh()
        assert ours(table) == left
        check_deletes(table)


def change(table: lh.Table, verb: str, where: str, new: list[tuple]) -> None:
    if verb == "delete":
        table.delete(where=where)
    elif verb == "overwrite":
        table.overwrite(arrow(new), where=where)
    elif verb == "compact":
        table.compact(lh.CompactionOptions(min_input_files=2, delete_ratio_threshold=0.01))
    else:
        table.set_properties({"format-version": "3"})


def check_deletes(table: lh.Table) -> None:
    """The data files that deletes name are there, in version 3 with one vector each."""
    live = {file.file_path for file in table.scan().plan().files}
    found = table.inspect.delete_files().to_pylist()
    named = [file["referenced_data_file"] for file in found if file["referenced_data_file"]]
    assert set(named) <= live
    vectors = [file["referenced_data_file"] for file in found if file["file_format"] == "PUFFIN"]
    assert len(set(vectors)) == len(vectors)
    assert all(file["content"] == CONTENT_POSITION_DELETES for file in found)
