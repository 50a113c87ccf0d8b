"""Filters over what pyarrow's own `filter` stumbles on."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakehouse as lh
from lakehouse.expressions.arrow_filter import matches


def test_unknown_is_no_match_and_no_rows_match_nothing():
    rows = pa.table({"a": [1, None, 3]})
    assert matches(rows, pc.field("a") > 1).to_pylist() == [False, False, True]
    nothing = rows.slice(0, 0)
    for empty in (nothing, pa.RecordBatch.from_pylist([], schema=rows.schema)):
        found = matches(empty, pc.field("a") > 1)
        assert len(found) == 0
        assert len(pc.indices_nonzero(found)) == 0


@pytest.mark.parametrize("version", [2, 3])
def test_a_file_all_of_whose_rows_are_deleted_is_read_with_a_filter(tmp_path, version):
    catalog = lh.load_catalog(f"file://{tmp_path}/warehouse")
    properties = {
        "write.delete.mode": "merge-on-read",
        "write.metadata.metrics.default": "none",
    }
    table = catalog.create_table(
        "db.t", pa.schema([("a", pa.int64())]), properties=properties, format_version=version
    )
    table.append(pa.table({"a": [1, 2]}))
    table.append(pa.table({"a": [3]}))
    table.delete("a < 3")
    assert len(table.scan().plan().files) == 2
    assert table.scan(where="a > 0").to_arrow()["a"].to_pylist() == [3]
