"""Filters on metadata columns, against the same condition in Python on rows that show them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lakehouse as lh

SHOWN = ["_file", "_pos", "_spec_id", "_row_id", "_last_updated_sequence_number", "i", "s"]
FILTERS = {
    "_pos = 1": lambda row: row["_pos"] == 1,
    "_pos >= 1 and i > 2": lambda row: row["_pos"] >= 1 and row["i"] > 2,
    "_pos = i - 1": lambda row: row["_pos"] == row["i"] - 1,
    "_pos = 0 or s = 'a_'": lambda row: row["_pos"] == 0 or row["s"] == "a_",
    "_file like '%/data/%.parquet'": lambda row: True,
    "_row_id = 4": lambda row: row["_row_id"] == 4,
    "_last_updated_sequence_number > 1": lambda row: (
        (row["_last_updated_sequence_number"] or 0) > 1
    ),
    "_spec_id = 0 and not _pos % 2 = 0": lambda row: row["_pos"] % 2 == 1,
}


def table_of_three_files(tmp_path: Any, version: int, mode: str = "merge-on-read") -> lh.Table:
    catalog = lh.load_catalog(f"file://{tmp_path}/warehouse")
    table = catalog.create_table(
        "db.t",
        pa.schema([("i", pa.int32()), ("s", pa.string())]),
        format_version=version,
        properties={"write.delete.mode": mode},
    )
    for start in (1, 4, 7):
        numbers = pa.array(range(start, start + 3), pa.int32())
        table.append(pa.table({"i": numbers, "s": ["a", "ab", "a_"]}))
    table.delete("i = 5")
    return table


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("where", FILTERS)
def test_scans(tmp_path, version, where):
    table = table_of_three_files(tmp_path, version)
    every = table.scan(select=SHOWN).to_arrow().to_pylist()
    expected = sorted(row["i"] for row in every if FILTERS[where](row))
    for select in (None, ["i"], ["s", "i"], ["i", "_pos"], ["_row_id", "i"]):
        scan = table.scan(where=where, select=select)
        assert sorted(scan.to_arrow()["i"].to_pylist()) == expected, select
        assert scan.count() == len(expected)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    "where", ["_pos = 1", "_pos = i - 1", "_row_id = 4", "s like '_' and _pos < 2"]
)
def test_deletes(tmp_path, version, mode, where):
    table = table_of_three_files(tmp_path, version, mode)
    gone = table.scan(where=where, select=["i"]).to_arrow()["i"].to_pylist()
    before = table.scan(select=["i"]).to_arrow()["i"].to_pylist()
    table.delete(where)
    left = table.scan(select=["i"]).to_arrow()["i"].to_pylist()
    assert sorted(left + gone) == sorted(before)
    assert not set(left) & set(gone)


def test_a_filter_on_deleted_is_refused(tmp_path):
    table = table_of_three_files(tmp_path, 2)
    with pytest.raises(lh.errors.InvalidExpressionError, match="select _deleted"):
        table.scan(where="_deleted").to_arrow()


def test_a_column_of_the_name_wins(tmp_path):
    catalog = lh.load_catalog(f"file://{tmp_path}/warehouse")
    table = catalog.create_table("db.t", pa.schema([("_pos", pa.int64())]))
    table.append(pa.table({"_pos": [10, 11]}))
    assert table.scan(where="_pos = 10").to_arrow()["_pos"].to_pylist() == [10]
