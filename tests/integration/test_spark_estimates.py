"""What Spark's optimizer learns of a table's remaining files: bytes, rows, distinct values."""

from __future__ import annotations

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


def test_without_cost_based_optimization_the_size_counts(table, session):
    frame = session.table("e.events").where("day = 1")
    leaf = frame._jdf.queryExecution().optimizedPlan().collectLeaves().head()
    (file,) = table.scan("day = 1").plan().files
    assert int(str(leaf.stats().sizeInBytes())) == file.file_size_in_bytes
