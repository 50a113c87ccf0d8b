"""Files of which no row is left."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakehouse as lh


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
    # from version 3 on the commit removes it
    assert len(table.scan().plan().files) == (2 if version == 2 else 1)
    assert table.scan(where="a > 0").to_arrow()["a"].to_pylist() == [3]
