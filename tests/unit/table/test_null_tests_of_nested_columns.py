"""`is null` of structs, lists and maps, read and deleted by, against brute force over the rows."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

import lakehouse as lh

STRUCT = pa.struct([("x", pa.list_(pa.int64())), ("y", pa.int64())])
SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("l", pa.list_(pa.int64())),
        ("ll", pa.list_(pa.list_(pa.int32()))),
        ("m", pa.map_(pa.string(), STRUCT)),
        ("s", STRUCT),
        ("o", pa.struct([("s", STRUCT), ("k", pa.int64())])),
    ]
)
FULL = {"x": [1, None], "y": 1}
EMPTY = {"x": None, "y": None}
ROWS = [
    {"i": 1, "l": [1], "ll": [[1], None], "m": [("a", FULL)], "s": FULL, "o": {"s": FULL, "k": 1}},
    {"i": 2, "l": None, "ll": None, "m": None, "s": None, "o": None},
    {"i": 3, "l": [], "ll": [], "m": [], "s": EMPTY, "o": {"s": None, "k": None}},
    {"i": 4, "l": None, "ll": [None], "m": [("b", None)], "s": None, "o": {"s": EMPTY, "k": 4}},
]
PATHS = ["l", "ll", "m", "s", "s.x", "s.y", "o", "o.s", "o.s.x", "o.k"]
WHERES = {
    **{f"{path} is null": (lambda row, path=path: value(row, path) is None) for path in PATHS},
    **{
        f"{path} is not null": (lambda row, path=path: value(row, path) is not None)
        for path in PATHS
    },
    "o.s is null or l is null": lambda row: value(row, "o.s") is None or row["l"] is None,
    "not (s is null and m is null) and i > 1": lambda row: (
        not (row["s"] is None and row["m"] is None) and row["i"] > 1
    ),
}
SELECTS = [None, ["i"], ["l"], ["i", "s.x"], ["o.k", "i"], ["m", "_pos"]]


def value(row, path):
    for part in path.split("."):
        if row is None:
            return None
        row = row[part]
    return row


def table_of(rows, **settings):
    catalog = lh.load_catalog(f"memory://nested-{uuid.uuid4().hex}/warehouse")
    table = catalog.create_table("t.rows", SCHEMA, **settings)
    table.append(pa.Table.from_pylist(rows, schema=SCHEMA))
    return table


def kept(table, **scan):
    return sorted(table.scan(**scan).to_arrow()["i"].to_pylist())


@pytest.fixture(scope="module")
def table():
    return table_of(ROWS)


@pytest.mark.parametrize("select", SELECTS, ids=str)
@pytest.mark.parametrize("where", WHERES)
def test_scan(table, where, select):
    wanted = [row["i"] for row in ROWS if WHERES[where](row)]
    scan = table.scan(where=where, select=select)
    assert scan.to_arrow().num_rows == len(wanted)
    assert scan.to_batches().read_all().num_rows == scan.count() == len(wanted)
    if select is None or "i" in select:
        assert kept(table, where=where, select=select) == wanted


@pytest.mark.parametrize("where", WHERES)
@pytest.mark.parametrize(
    ("version", "mode"), [(2, "copy-on-write"), (2, "merge-on-read"), (3, "merge-on-read")]
)
def test_delete(version, mode, where):
    table = table_of(ROWS, format_version=version, properties={"write.delete.mode": mode})
    table.delete(where=where)
    assert kept(table) == [row["i"] for row in ROWS if not WHERES[where](row)]


def test_of_columns_that_the_file_does_not_have():
    table = table_of(ROWS)
    with table.update_schema() as change:
        change.add_column("late", "struct<a: int>")
        change.add_column("s.z", "int")
        change.drop_column("s.x")
        change.drop_column("s.y")
    assert kept(table, where="late is null") == [1, 2, 3, 4]
    assert kept(table, where="late is not null") == []
    assert kept(table, where="s is null") == [2, 4]
    assert kept(table, where="s is null", select=["i"]) == [2, 4]
