"""Filtered reads, with row groups skipped and rows deleted, against plain Python over all rows."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.expressions import (
    And,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType, StructType

from lakehouse.data.reading.scan_reader import ReadRequest, read_table, read_tasks
from lakehouse.data.writing.data_file_writer import WriteRequest, write_all
from lakehouse.data.writing.delete_writer import FileDeletes, write_deletes
from lakehouse.expressions.filter_binding import bind
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import CONTENT_EQUALITY_DELETES, DataFile
from lakehouse.spec.schema.iceberg_types import METADATA_COLUMNS
from lakehouse.spec.types.arrow_types import schema_to_arrow
from lakehouse.storage.memory import MemoryStorage

SCHEMA = Schema(
    NestedField(1, "i", IntegerType()),
    NestedField(2, "x", DoubleType()),
    NestedField(3, "s", StringType()),
    NestedField(4, "n", StructType(NestedField(5, "l", LongType()))),
)
INTS, FLOATS = (
    st.integers(-3, 3),
    st.sampled_from([-1.5, -0.0, 0.0, 2.0, math.inf, -math.inf, math.nan]),
)
TEXTS = st.sampled_from(["", "a", "ab", "abc", "b", "ü", "z" * 20])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | INTS,
            "x": st.none() | FLOATS,
            "s": st.none() | TEXTS,
            "n": st.none() | st.fixed_dictionaries({"l": st.none() | INTS}),
        }
    ),
    max_size=40,
)
COLUMNS = {"i": INTS, "x": FLOATS.filter(lambda v: not math.isnan(v)), "s": TEXTS, "n.l": INTS}
COMPARISONS = [EqualTo, NotEqualTo, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual]


@st.composite
def leaf(draw):
    name = draw(st.sampled_from(sorted(COLUMNS)))
    value = COLUMNS[name]
    kinds = (
        ["compare", "null", "in"]
        + (["nan"] if name == "x" else [])
        + (["prefix"] if name == "s" else [])
    )
    match draw(st.sampled_from(kinds)):
        case "compare":
            return draw(st.sampled_from(COMPARISONS))(name, draw(value))
        case "null":
            return draw(st.sampled_from([IsNull, NotNull]))(name)
        case "nan":
            return draw(st.sampled_from([IsNaN, NotNaN]))(name)
        case "prefix":
            return draw(st.sampled_from([StartsWith, NotStartsWith]))(name, draw(value))
        case _:
            return draw(st.sampled_from([In, NotIn]))(
                name, draw(st.lists(value, min_size=1, max_size=3))
            )


PREDICATES = st.recursive(
    leaf(), lambda p: st.builds(And, p, p) | st.builds(Or, p, p) | st.builds(Not, p), max_leaves=4
)


def value_of(row, name):
    if name == "n.l":
        return None if row["n"] is None else row["n"]["l"]
    return row[name]


def ordered(value):
    """NaN above everything else and equal to itself."""
    return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value)


def truth(node, row):
    """Three-valued: True, False or None."""
    if isinstance(node, Not):
        inner = truth(node.child, row)
        return None if inner is None else not inner
    if isinstance(node, And | Or):
        sides = [truth(node.left, row), truth(node.right, row)]
        decisive = isinstance(node, Or)
        if decisive in sides:
            return decisive
        return None if None in sides else not decisive
    value = value_of(row, node.term.name)
    if isinstance(node, IsNull | NotNull):
        return (value is None) == isinstance(node, IsNull)
    if value is None:
        return None
    if isinstance(node, IsNaN | NotNaN):
        return math.isnan(value) == isinstance(node, IsNaN)
    if isinstance(node, In | NotIn):
        return any(
            ordered(value) == ordered(literal.value) for literal in node.literals
        ) == isinstance(node, In)
    literal = node.literal.value
    if isinstance(node, StartsWith | NotStartsWith):
        return value.startswith(literal) == isinstance(node, StartsWith)
    left, right = ordered(value), ordered(literal)
    return {
        EqualTo: left == right,
        NotEqualTo: left != right,
        LessThan: left < right,
        LessThanOrEqual: left <= right,
        GreaterThan: left > right,
        GreaterThanOrEqual: left >= right,
    }[type(node)]


def write(rows, storage, **properties):
    table = pa.Table.from_pylist(
        rows,
        schema=pa.schema(
            [
                ("i", pa.int32()),
                ("x", pa.float64()),
                ("s", pa.string()),
                ("n", pa.struct([("l", pa.int64())])),
            ]
        ),
    )
    request = WriteRequest(
        schema=SCHEMA,
        spec=UNPARTITIONED_PARTITION_SPEC,
        location="memory://t/data",
        write_id="w",
        properties={"write.parquet.row-group-limit": "5", **properties},
    )
    return write_all(table, request, storage), request


def streamed(tasks, request, storage):
    """Batches smaller than row groups, to cross boundaries; one table must have the same rows."""
    found = pa.Table.from_batches(
        read_tasks(tasks, request, storage), schema=schema_to_arrow(request.schema)
    )
    whole = read_table(tasks, request, storage)
    assert whole.schema == found.schema
    assert shown(whole.to_pylist()) == shown(found.to_pylist())
    return found


def shown(rows):
    return [repr(row) for row in rows]


@given(
    rows=ROWS,
    where=PREDICATES,
    columns=st.lists(st.sampled_from(["i", "x", "s", "n"]), unique=True, min_size=1),
)
def test_filter_and_projection(rows, where, columns):
    storage = MemoryStorage()
    files, _ = write(rows, storage)
    tasks = [FileScanTask(data_file=file, residual=bind(where, SCHEMA)) for file in files]
    schema = Schema(*(SCHEMA.find_field(name) for name in columns))
    got = streamed(tasks, ReadRequest(schema=schema, table_schema=SCHEMA, batch_rows=3), storage)
    expected = [{name: row[name] for name in columns} for row in rows if truth(where, row) is True]
    assert shown(got.to_pylist()) == shown(expected)


@given(rows=ROWS, where=PREDICATES, version=st.sampled_from([2, 3]), data=st.data())
def test_positional_deletes(rows, where, version, data):
    storage = MemoryStorage()
    files, request = write(rows, storage)
    gone = data.draw(st.sets(st.integers(0, len(rows) - 1))) if rows else set()
    items = [FileDeletes(file, np.array(sorted(gone), dtype=np.int64)) for file in files]
    deletes = write_deletes(
        items,
        WriteRequest(**{**request.__dict__, "format_version": version, "write_id": "d"}),
        storage,
    )
    assert bool(deletes) == bool(gone)
    tasks = [
        FileScanTask(data_file=file, deletes=tuple(deletes), residual=bind(where, SCHEMA))
        for file in files
    ]
    schema = Schema(METADATA_COLUMNS["_pos"], SCHEMA.find_field("i"))
    got = streamed(tasks, ReadRequest(schema=schema, table_schema=SCHEMA, batch_rows=4), storage)
    expected = [
        {"_pos": number, "i": row["i"]}
        for number, row in enumerate(rows)
        if number not in gone and truth(where, row) is True
    ]
    assert got.to_pylist() == expected


KEYS = st.lists(st.sampled_from(["i", "x", "s"]), unique=True, min_size=1)


@given(
    rows=ROWS,
    deleted=ROWS,
    keys=KEYS,
    other=KEYS,
    columns=st.sampled_from([["i"], ["s"], ["i", "x", "s", "n"]]),
)
def test_equality_deletes(rows, deleted, keys, other, columns):
    storage = MemoryStorage()
    files, request = write(rows, storage)
    deletes = []
    for number, names in enumerate([keys, other]):
        schema = Schema(*(SCHEMA.find_field(name) for name in names))
        table = pa.Table.from_pylist(
            [{name: row[name] for name in names} for row in deleted[number::2]],
            schema=schema.as_arrow(),
        )
        written = write_all(
            table,
            WriteRequest(**{**request.__dict__, "schema": schema, "write_id": f"e{number}"}),
            storage,
        )
        deletes += [
            equality(one, [SCHEMA.find_field(name).field_id for name in names]) for one in written
        ]
    tasks = [FileScanTask(data_file=file, deletes=tuple(deletes)) for file in files]
    schema = Schema(*(SCHEMA.find_field(name) for name in columns))
    got = streamed(tasks, ReadRequest(schema=schema, table_schema=SCHEMA, batch_rows=7), storage)
    gone = [
        {key_of(row, names) for row in deleted[number::2]}
        for number, names in enumerate([keys, other])
    ]
    expected = [
        {name: row[name] for name in columns}
        for row in rows
        if all(
            key_of(row, names) not in some for names, some in zip([keys, other], gone, strict=True)
        )
    ]
    assert shown(got.to_pylist()) == shown(expected)


def key_of(row, names):
    # as Java compares boxed numbers: NaN equals NaN, and 0.0 is not -0.0
    return tuple(None if row[name] is None else repr(row[name]) for name in names)


def equality(one, ids):
    record = one.to_record()
    return DataFile.from_record(
        {**record, "content": CONTENT_EQUALITY_DELETES, "equality_ids": ids}
    )
