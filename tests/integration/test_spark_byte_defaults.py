"""Initial defaults of bytes, which Spark's own Parquet reader cannot fill in."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.integration.spark_support import lake, session, sql

__all__ = ["lake", "session", "sql"]

pytestmark = pytest.mark.spark

DEFAULTS = {"binary": b"ab", "fixed[2]": b"ab"}


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("kind", DEFAULTS)
def test_rows_older_than_a_default_of_bytes_are_read_and_changed(lake, sql, kind, mode):
    default = DEFAULTS[kind]
    properties = {"format-version": "3"} | {
        f"write.{command}.mode": mode for command in ("update", "merge", "delete")
    }
    lake.create_namespace("d")
    table = lake.create_table("d.t", pa.schema({"i": pa.int64()}), properties=properties)
    table.append(pa.table({"i": [1, 2]}))
    with table.update_schema() as update:
        update.add_column("g", kind, default=default)
    assert sorted(sql("SELECT * FROM lake.d.t")) == [(1, default), (2, default)]
    sql("INSERT INTO lake.d.t (i) VALUES (3)")
    sql("UPDATE lake.d.t SET i = 10 WHERE i = 1")
    sql(
        "MERGE INTO lake.d.t t USING (SELECT 2L AS i) s ON t.i = s.i "
        "WHEN MATCHED THEN UPDATE SET i = 20"
    )
    assert sorted(sql("SELECT * FROM lake.d.t")) == [(3, default), (10, default), (20, default)]
