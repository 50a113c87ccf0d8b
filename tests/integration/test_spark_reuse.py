"""What a statement reads once, and what a join tells a scan while it runs."""

from __future__ import annotations

import pytest

from tests.integration.spark_support import configured, lake, session

__all__ = ["lake", "session"]

pytestmark = pytest.mark.spark
DAYS = 10


@pytest.fixture
def tables(spark, session):
    """Ten files, a day each, a small table of the days, and both in Spark's own views."""
    spark.sql("CREATE NAMESPACE lake.raw")
    spark.sql(
        "SELECT id, date_add(DATE '2026-01-01', CAST(id % 10 AS INT)) AS day, "
        "CAST(id % 10 AS INT) AS k FROM range(100)"
    ).createOrReplaceTempView("plain_facts")
    spark.sql(
        "SELECT date_add(DATE '2026-01-01', CAST(id AS INT)) AS day, CAST(id AS INT) AS k, "
        "concat('w', id % 5) AS week, CAST(id AS BIGINT) AS big FROM range(10)"
    ).createOrReplaceTempView("plain_days")
    for name, by in (("facts", "PARTITIONED BY (day)"), ("days", "")):
        spark.sql(f"CREATE TABLE lake.raw.{name} {by} AS SELECT * FROM plain_{name}")
    spark.sql(
        "CREATE TABLE lake.raw.buckets PARTITIONED BY (bucket(4, k)) AS SELECT * FROM plain_facts"
    )


def executed(frame):
    return frame._jdf.queryExecution().executedPlan()


def scans(plan):
    """(text of a scan, files that it read) of all that a plan has run, in stages too."""
    found, waiting = [], [plan]
    while waiting:
        one = waiting.pop()
        name = one.getClass().getSimpleName()
        if name == "AdaptiveSparkPlanExec":
            waiting.append(one.executedPlan())
        elif name.endswith("QueryStageExec"):
            waiting.append(one.plan())
        elif name == "BatchScanExec":
            files = one.metrics().get("numFiles")
            found.append((one.toString(), files.get().value() if files.isDefined() else 0))
        children = one.children()
        waiting += [children.apply(position) for position in range(children.size())]
    return found


def compared(spark, text, **names):
    """Our rows, which are those of Spark's own views, and the plan that gave them."""
    ours = {key: f"lake.raw.{value}" for key, value in names.items()}
    theirs = {
        key: "plain_days" if value == "days" else "plain_facts" for key, value in names.items()
    }
    frame = spark.sql(text.format(**ours))
    rows = sorted(map(tuple, frame.collect()))
    assert rows == sorted(map(tuple, spark.sql(text.format(**theirs)).collect()))
    assert rows
    return executed(frame)


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_a_join_leaves_out_files_of_partitions_that_the_other_side_lacks(spark, tables, adaptive):
    text = "SELECT f.id FROM {f} f JOIN {d} d ON f.{key} = d.{key} WHERE d.week = 'w3'"
    with configured(spark, {"spark.sql.adaptive.enabled": adaptive}):
        for table, key in (("facts", "day"), ("buckets", "k")):
            plan = compared(spark, text.replace("{key}", key), f=table, d="days")
            read = dict(scans(plan))
            (files,) = (read[one] for one in read if f"raw.{table}" in one)
            assert "dynamicpruning" in plan.toString()
            # two days; their buckets may be one
            assert files == 2 or (table == "buckets" and files == 1), read


def test_a_join_by_another_column_or_type_reads_all_files(spark, tables):
    for on in ("f.id = d.big", "CAST(f.day AS STRING) = CAST(d.day AS STRING)"):
        plan = compared(
            spark, f"SELECT f.id FROM {{f}} f JOIN {{d}} d ON {on} WHERE d.week = 'w3'",
            f="facts", d="days",
        )  # fmt: skip
        assert [n for one, n in scans(plan) if "raw.facts" in one] == [DAYS]


def test_tables_joined_twice_are_filtered_each_by_itself(spark, tables):
    compared(
        spark,
        "SELECT a.id, b.id FROM {f} a JOIN {d} d ON a.day = d.day AND d.week = 'w3' "
        "JOIN {f} b ON a.k = b.k AND b.id < 50",
        f="facts", d="days",
    )  # fmt: skip
    compared(
        spark,
        "SELECT f.id FROM {f} f JOIN {d} d ON f.day = d.day WHERE d.week = 'w3' "
        "UNION ALL SELECT id FROM {f} UNION ALL "
        "SELECT f.id FROM {f} f LEFT JOIN {d} d ON f.day = d.day AND d.week = 'w1'",
        f="facts", d="days",
    )  # fmt: skip


def test_deleted_rows_stay_deleted_in_a_filtered_scan(spark, tables):
    spark.sql(
        "ALTER TABLE lake.raw.facts SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')"
    )
    spark.sql("DELETE FROM lake.raw.facts WHERE id = 3")
    frame = spark.sql(
        "SELECT f.id FROM lake.raw.facts f JOIN lake.raw.days d ON f.day = d.day "
        "WHERE d.week = 'w3'"
    )
    found = sorted(one.id for one in frame.collect())
    assert found == [one for one in range(100) if one % 5 == 3 and one != 3]


def test_the_same_subquery_is_run_once(spark, tables):
    text = (
        "SELECT id FROM {f} WHERE k < (SELECT max(k) - 3 FROM {d} WHERE week <> 'w0') "
        "AND id > (SELECT max(k) - 3 FROM {d} WHERE week <> 'w0')"
    )
    with configured(spark, {"spark.sql.adaptive.enabled": "false"}):
        plan = compared(spark, text, f="facts", d="days").toString()
    assert "ReusedSubquery" in plan or plan.count("Subquery scalar-subquery") == 1


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_the_same_rows_are_shuffled_once(spark, tables, adaptive):
    text = (
        "SELECT a.k, a.n, b.n FROM (SELECT k, count(id) n FROM {f} WHERE id > 5 GROUP BY k) a "
        "JOIN (SELECT k, count(id) n FROM {f} WHERE id > 5 GROUP BY k) b ON a.n = b.n"
    )
    asked = {
        "spark.sql.adaptive.enabled": adaptive,
        "spark.sql.autoBroadcastJoinThreshold": "-1",
    }
    with configured(spark, asked):
        plan = compared(spark, text, f="facts")
    assert "ReusedExchange" in plan.toString()
