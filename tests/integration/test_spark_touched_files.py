"""The query by which Spark finds the files that a statement changes, beside rows in memory."""

from __future__ import annotations

import pytest

from tests.integration.spark_support import configured, lake, session, sql

__all__ = ["lake", "session", "sql"]

pytestmark = pytest.mark.spark

ROWS = "SELECT CAST(id % 4 AS INT) AS part, id, CAST(id AS STRING) AS text FROM range(400)"
CHANGES = "SELECT CAST(id % 4 AS INT) AS part, id, 'new' AS text FROM range(390, 410)"
MERGED = (
    f"SELECT part, id, coalesce(s.text, t.text) FROM ({ROWS}) t FULL JOIN ({{source}}) s "
    "USING (part, id)"
)
MERGE = """
    MERGE INTO lake.raw.rows t USING ({source}) s ON t.part = s.part AND t.id = s.id
    WHEN MATCHED THEN UPDATE SET text = s.text WHEN NOT MATCHED THEN INSERT *
"""


def make(sql, parts):
    sql("CREATE NAMESPACE lake.raw")
    sql("CREATE TABLE lake.raw.rows PARTITIONED BY (part) AS " + ROWS.replace("% 4", f"% {parts}"))


def query_for_files(spark, statement):
    """The plan of the subquery whose values leave out files, and what is told of its steps."""
    [[told]] = spark.sql(f"EXPLAIN FORMATTED {statement}").collect()
    plan, _, steps = told.partition("Subquery:1")[2].partition("\n\n\n")
    return plan, steps


@pytest.fixture
def tasks(spark):
    """Sets how many tasks there should be; a small file is not cut."""
    name = "spark.sql.files.minPartitionNum"
    yield lambda number: spark.conf.set(name, str(number))
    spark.conf.unset(name)


@pytest.mark.parametrize(
    ("files", "shuffled"), [(1, False), (4, False), (9, True)], ids=["one", "as many", "more"]
)
@pytest.mark.parametrize(
    "statement",
    [
        MERGE.format(source=CHANGES),
        "UPDATE lake.raw.rows SET text = 'new' WHERE id + 1 > 395",
        "DELETE FROM lake.raw.rows WHERE id IN (SELECT id + 390 FROM range(7))",
    ],
    ids=["merge", "update", "delete"],
)
def test_a_file_of_a_task_is_named_without_a_shuffle(spark, sql, tasks, files, shuffled, statement):
    make(sql, files)
    tasks(4)
    told, _ = query_for_files(spark, statement)
    assert "HashAggregate" in told
    assert told.replace("BroadcastExchange", "").count("Exchange") == shuffled, told


@pytest.mark.parametrize(
    "source", [CHANGES, f"SELECT * FROM ({CHANGES}) WHERE part = 2 AND length(text) = 3"]
)
@pytest.mark.parametrize("files", ["one a task", "several a task", "several tasks a file"])
def test_rows_change_whichever_files_are_found(spark, sql, lake, tasks, source, files):
    make(sql, 4)
    tasks(1 if files == "several a task" else 4)
    size = "300" if "tasks" in files else "128m"
    with configured(spark, {"spark.sql.files.maxPartitionBytes": size}):
        sql(MERGE.format(source=source))
    assert sorted(sql("SELECT * FROM lake.raw.rows")) == sorted(sql(MERGED.format(source=source)))
    summary = lake.load_table("raw.rows").current_snapshot().summary
    assert summary["deleted-data-files"] == ("1" if "WHERE" in source else "4")


def test_files_left_out_while_the_query_runs(spark, sql, lake, tasks):
    """By the values of a partition column that a small side of a join has."""
    make(sql, 4)
    sql("CREATE TABLE lake.raw.small AS SELECT 2 AS part, id FROM range(402)")
    statement = (
        "DELETE FROM lake.raw.rows WHERE id % 8 = 2 AND part IN "
        "(SELECT part FROM lake.raw.small WHERE id = 3)"
    )
    tasks(4)
    plan, steps = query_for_files(spark, statement)
    assert plan.count("Exchange") == plan.count("BroadcastExchange"), plan
    assert "dynamicpruning" in steps, steps
    sql(statement)
    assert lake.load_table("raw.rows").current_snapshot().summary["deleted-data-files"] == "1"
    assert sorted(sql("SELECT * FROM lake.raw.rows")) == sorted(
        sql(f"SELECT * FROM ({ROWS}) WHERE id % 8 != 2")
    )
