"""Spark on a table whose closed months are of a coarser spec; lists of rows say what is right."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from lakehouse.maintenance.compaction.compaction import compact
from tests.integration.spark_support import lake, session, sql

__all__ = ["lake", "session", "sql"]

pytestmark = pytest.mark.spark
DAYS = [dt.date(2024, 1, 1) + dt.timedelta(days=n) for n in range(0, 60, 4)]
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("v", pa.int64())])


def days_of(table):
    rows = table.refresh().scan().to_arrow().to_pylist()
    return sorted((row["id"], row["day"], row["v"]) for row in rows)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_rows_of_moved_months_are_read_replaced_and_deleted(sql, spark, lake, mode):
    sql("CREATE NAMESPACE lake.raw")
    table = lake.create_table(
        "raw.aged", SCHEMA, partition_by=["day(day)", "bucket(2, id)"],
        properties={
            "lakehouse.maintenance.layout-by-age": "30d: month(day)",
            "lakehouse.maintenance.min-input-files": "2",
            "write.delete.mode": mode, "write.update.mode": mode,
        },
    )  # fmt: skip
    rows = [(n * 10 + k, day, k) for n, day in enumerate(DAYS) for k in range(3)]
    ids, days, values = zip(*rows, strict=True)
    table.append(pa.table([ids, days, values], schema=SCHEMA))
    before = table.current_snapshot().snapshot_id
    compact(table.catalog, table.identifier)
    assert len(table.refresh().scan().plan().tasks) == 2
    expected = list(rows)

    def check():
        found = sql("SELECT id, day, v FROM lake.raw.aged ORDER BY id")
        assert [tuple(row) for row in found] == sorted(expected) == days_of(table)

    check()
    (count,) = sql("SELECT count(*) FROM lake.raw.aged WHERE day = DATE '2024-01-09'")
    assert tuple(count) == (3,)
    then = sql(f"SELECT id, day, v FROM lake.raw.aged VERSION AS OF {before} ORDER BY id")
    assert [tuple(row) for row in then] == sorted(rows)

    # a day and bucket of it is replaced by a dynamic overwrite, whatever the spec of its rows
    bucket = "lake.system.bucket(2, id)"
    day = DAYS[2]
    gone = sql(
        f"SELECT id FROM lake.raw.aged WHERE day = DATE '{day}' AND {bucket} = "
        "lake.system.bucket(2, 500L)"
    )
    new = spark.createDataFrame([(500, day, 9)], "id bigint, day date, v bigint")
    new.writeTo("lake.raw.aged").overwritePartitions()
    gone_ids = {row[0] for row in gone}
    assert gone_ids
    expected = [row for row in expected if row[0] not in gone_ids] + [(500, day, 9)]
    check()
    sql("DELETE FROM lake.raw.aged WHERE v = 1 AND day < DATE '2024-02-10'")
    expected = [r for r in expected if not (r[2] == 1 and r[1] < dt.date(2024, 2, 10))]
    check()
    sql("UPDATE lake.raw.aged SET v = v + 7 WHERE id % 3 = 0")
    expected = [(i, d, v + 7 if i % 3 == 0 else v) for i, d, v in expected]
    check()
    compact(table.catalog, table.identifier)
    assert len(table.refresh().scan().plan().tasks) == 2
    check()
