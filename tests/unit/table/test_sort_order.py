"""Appends honour sort orders: in every file, in the current order, nulls and NaN in place."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse as lh

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("p", pa.string())])
VALUES = [2.0, None, -1.0, float("nan"), 0.5, -7.5, float("inf"), 3.0]


def rows() -> pa.Table:
    return pa.table(
        {"id": list(range(16)), "x": VALUES * 2, "p": ["a"] * 8 + ["b"] * 8}, schema=SCHEMA
    )


def key(value: float | None, *, down: bool, nulls_first: bool):
    if value is None:
        return (0 if nulls_first else 2, 0.0, 0.0)
    number = (1.0, 0.0) if math.isnan(value) else (0.0, value)
    return (1, *((-number[0], -number[1]) if down else number))


def files(table: lh.Table) -> dict[int, list[list[float | None]]]:
    found: dict[int, list[list[float | None]]] = {}
    for file in table.scan().plan().files:
        filesystem, path = table.storage.filesystem(file.file_path)
        found.setdefault(file.sort_order_id or 0, []).append(
            pq.read_table(path, filesystem=filesystem)["x"].to_pylist()
        )
    return found


@pytest.mark.parametrize(
    ("term", "down", "nulls_first"),
    [("x", False, True), ("x desc nulls last", True, False), ("x asc nulls last", False, False)],
)
def test_rows_of_each_file_are_sorted(tmp_path, term, down, nulls_first):
    catalog = lh.load_catalog(f"file://{tmp_path}/warehouse")
    table = catalog.create_table("raw.t", SCHEMA, partition_by=["p"], sort_by=[term])
    table.append(rows())
    (found,) = files(table).values()
    expected = sorted(VALUES, key=lambda value: key(value, down=down, nulls_first=nulls_first))
    assert [list(map(repr, one)) for one in found] == [list(map(repr, expected))] * 2


def test_a_new_order_is_for_new_files(tmp_path):
    catalog = lh.load_catalog(f"file://{tmp_path}/warehouse")
    table = catalog.create_table("raw.t", SCHEMA)
    table.append(rows())
    with table.update_sort_order() as order:
        order.desc("x", nulls="last")
    table.append(rows())
    found = files(table)
    assert sorted(found) == [0, table.metadata.default_sort_order_id]
    assert list(map(repr, found[0][0])) == list(map(repr, VALUES * 2))
    expected = sorted(VALUES * 2, key=lambda value: key(value, down=True, nulls_first=False))
    assert list(map(repr, found[table.metadata.default_sort_order_id][0])) == list(
        map(repr, expected)
    )
    table.compact(lh.CompactionOptions(min_input_files=2))
    assert list(files(table)) == [table.metadata.default_sort_order_id]


@pytest.mark.parametrize(
    "unknown",
    [
        {"transform": "hilbert[8]", "source-id": 1},
        {"transform": "zorder", "source-ids": [1, 2]},
    ],
    ids=["transform", "columns"],
)
def test_an_order_that_we_do_not_know_sorts_nothing_and_stops_nobody(tmp_path, unknown):
    catalog = lh.load_catalog(f"file://{tmp_path}/warehouse")
    table = catalog.create_table("raw.t", SCHEMA)
    table.append(rows())
    location = Path(table.metadata_location.removeprefix("file://"))
    content = json.loads(location.read_bytes())
    order = {**unknown, "direction": "asc", "null-order": "nulls-first"}
    content["sort-orders"].append({"order-id": 7, "fields": [order]})
    content["default-sort-order-id"] = 7
    location.unlink()
    location.write_text(json.dumps(content))
    table = lh.load_catalog(f"file://{tmp_path}/warehouse").load_table("raw.t")
    table.append(rows())
    table.overwrite(rows(), "id = 3")
    table.delete("id = 4")
    table.compact(lh.CompactionOptions(rewrite_all=True))
    assert set(files(table)) == {0}
    assert table.metadata.default_sort_order_id == 7
    assert table.scan().count() == 3 * len(rows()) - 2 - 3
    assert table.health() is not None
    written = json.loads(Path(table.metadata_location.removeprefix("file://")).read_bytes())
    assert written["sort-orders"][-1]["fields"] == content["sort-orders"][-1]["fields"]
