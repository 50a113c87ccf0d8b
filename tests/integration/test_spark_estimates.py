"""What Spark's optimizer learns of a table's remaining files: bytes, rows, distinct values."""

from __future__ import annotations

import secrets

import pyarrow as pa
import pytest

from tests.integration.spark_support import configured, lake, session

__all__ = ["lake", "session"]

pytestmark = pytest.mark.spark


@pytest.fixture
def table(lake):
    made = lake.create_table(
        "e.events",
        pa.schema([("day", pa.int64()), ("user", pa.int64()), ("score", pa.float64())]),
        partition_by=["day"],
    )
    for day in range(4):
        rows = 100 * (day + 1)
        made.refresh().append(
            pa.table(
                {
                    "day": [day] * rows,
                    "user": [n % 7 for n in range(rows)],
                    "score": [n / 3 for n in range(rows)],
                }
            )
        )
    return made.refresh()


@pytest.fixture
def costed(spark):
    with configured(spark, {"spark.sql.cbo.enabled": "true"}):
        yield spark


def estimated(frame):
    """Rows that the optimizer expects of the frame's leaf; None when it does not know."""
    leaf = frame._jdf.queryExecution().optimizedPlan().collectLeaves().head()
    rows = leaf.stats().rowCount()
    return int(str(rows.get())) if rows.isDefined() else None


def test_rows_are_those_of_the_files_that_are_left(table, session, costed):
    assert estimated(session.table("e.events")) == 1000
    assert estimated(session.table("e.events").where("day = 2")) == 300
    assert estimated(session.table("e.events").where("day >= 2 and user = 3")) == 700
    assert estimated(session.table("e.events").where("day = 9")) == 0
    assert session.table("e.events").where("day = 2").count() == 300


def test_distinct_values_reach_the_optimizer(table, session, costed):
    table.compute_statistics()
    grouped = session.table("e.events").groupBy("user").count()
    plan = grouped._jdf.queryExecution().optimizedPlan()
    assert int(str(plan.stats().rowCount().get())) == 7
    assert sorted(grouped.collect())[0] == (
        0,
        sum(1 for day in range(4) for n in range(100 * (day + 1)) if n % 7 == 0),
    )


def test_of_a_table_with_deletes_rows_are_not_claimed(lake, session, costed):
    made = lake.create_table(
        "e.deleted",
        pa.schema([("id", pa.int64())]),
        properties={"write.delete.mode": "merge-on-read"},
        format_version=2,
    )
    made.append(pa.table({"id": list(range(50))}))
    made.refresh().delete("id < 10")
    frame = session.table("e.deleted")
    assert estimated(frame) is None
    assert frame.count() == 40


def size_in_bytes(frame) -> int:
    leaf = frame._jdf.queryExecution().optimizedPlan().collectLeaves().head()
    return int(str(leaf.stats().sizeInBytes()))


def test_the_size_is_that_of_rows_or_of_files_whichever_is_more(lake, table, session):
    frame = session.table("e.events").where("day = 1")
    assert size_in_bytes(frame) == 200 * (8 + 3 * 8)
    assert size_in_bytes(frame.select("user")) == 200 * (8 + 8)
    long = lake.create_table("e.long", pa.schema([("text", pa.string())]))
    long.append(pa.table({"text": [secrets.token_hex(500) for _ in range(100)]}))
    (file,) = long.scan().plan().files
    assert file.file_size_in_bytes > 100 * (8 + 20)
    assert size_in_bytes(session.table("e.long")) == file.file_size_in_bytes


@pytest.mark.parametrize("deleted", [False, True])
def test_many_rows_in_a_small_file_are_not_broadcast(lake, session, deleted):
    properties = {"write.delete.mode": "merge-on-read"}
    made = lake.create_table("e.many", pa.schema([("id", pa.int64())]), properties=properties)
    made.append(pa.table({"id": pa.array([7] * 1_000_000, pa.int64())}))
    made.append(pa.table({"id": [1, 2]}))
    if deleted:
        made.refresh().delete("id = 1")
    many, few = session.table("e.many"), session.table("e.many").where("id < 3")
    threshold = 10 * 1024 * 1024  # spark.sql.autoBroadcastJoinThreshold
    assert sum(file.file_size_in_bytes for file in made.refresh().scan().plan().files) < threshold
    assert size_in_bytes(many) == 1_000_002 * (8 + 8) > threshold
    assert 0 < size_in_bytes(few) < threshold
