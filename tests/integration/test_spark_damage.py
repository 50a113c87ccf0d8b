"""Spark meets bytes that changed after writing: an error names the file, no wrong rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehouse.spark.connect.path_reader import read_paths
from lakehouse.spark.reading.file_answer import sized
from lakehouse.spark.spark_types import to_spark_schema
from lakehouse.storage.location import local_path
from tests.integration.spark_support import collected, lake

__all__ = ["lake"]

pytestmark = pytest.mark.spark

ROWS = 4000
SCHEMA = pa.schema([("id", pa.int64()), ("kind", pa.string()), ("amount", pa.float64())])


def rows():
    ids = range(ROWS)
    return pa.table([list(ids), [f"k{n % 5}" for n in ids], [n / 7 for n in ids]], schema=SCHEMA)


def written(lake, spark, writer, **properties):
    table = lake.create_table(
        "raw.events",
        SCHEMA,
        properties={"write.parquet.compression-codec": "uncompressed", **properties},
    )
    table.append(rows() if writer == "arrow" else spark.createDataFrame(rows()))
    return table


def damage(path, column, page):
    """Change one byte near the end of a column's data page or dictionary page."""
    chunk = pq.read_metadata(path).row_group(0).column(column)
    end = chunk.data_page_offset if page == "dictionary" else 0
    start = chunk.dictionary_page_offset if page == "dictionary" else chunk.data_page_offset
    whole = start - (chunk.dictionary_page_offset or start)
    end = end or start + chunk.total_compressed_size - whole
    data = bytearray(Path(path).read_bytes())
    data[end - (end - start) // 4] ^= 1
    Path(path).write_bytes(data)


@pytest.mark.parametrize("reading", ["planned", "paths"])
@pytest.mark.parametrize(
    ("column", "page"), [("id", "data"), ("kind", "dictionary"), ("kind", "data")]
)
@pytest.mark.parametrize("writer", ["arrow", "spark"])
def test_a_damaged_page_is_an_error(spark, lake, writer, column, page, reading):
    table = written(lake, spark, writer)
    files = table.scan().plan().files
    assert sum(file.record_count for file in files) == ROWS

    def read():
        if reading == "planned":
            return collected(table.scan().to_spark(spark))
        shown = to_spark_schema(table.schema())
        return collected(read_paths(spark, "raw.events", sized(files), shown))

    assert len(read()) == ROWS
    damage(local_path(files[0].file_path), SCHEMA.names.index(column), page)
    name = files[0].file_path.rpartition("/")[2]
    with pytest.raises(Exception, match=f"Encountered error while reading file .*{name}"):
        read()
