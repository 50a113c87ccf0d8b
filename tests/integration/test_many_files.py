"""A commit of more files than one manifest samples names each of them once."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakehouse.lake import load_catalog
from lakehouse.spec.manifests.data_file import DataFile


@pytest.mark.parametrize("count", [1, 1_999, 2_000, 2_001, 4_500])
def test_each_file_is_in_one_manifest(tmp_path, count):
    table = load_catalog(f"file://{tmp_path}").create_table(
        "raw.many", pa.schema([("id", pa.int64())])
    )
    names = [f"{table.location}/data/{n}.parquet" for n in range(count)]
    files = [DataFile(file_path=name, record_count=1, file_size_in_bytes=10) for name in names]
    table.transaction().append(files).commit()
    paths = [file.file_path for file in table.refresh().scan().plan().files]
    assert sorted(paths) == sorted(names)
