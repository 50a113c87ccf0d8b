"""Filters that choose whole files: rows are not asked again, and metadata answers aggregates."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakehouse.spark.reading import table_answers
from tests.integration.spark_support import configured, lake, session

__all__ = ["lake", "session"]

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROWS = (
    "SELECT id, IF(id % 7 = 0, NULL, date_add(DATE '2026-01-01', CAST(id % 5 AS INT))) AS day, "
    "IF(id % 6 = 0, NULL, concat('r', id % 3)) AS region, "
    "IF(id % 11 = 0, NULL, timestamp_micros(1767225600000000 + id * 7200000000)) AS at, "
    "CAST(id % 4 AS INT) AS n FROM range(200)"
)
ASKED = "count(*), count(id), count(at), min(id), max(id), min(at), max(at)"
LAYOUTS = ("day", "region, days(at)", "bucket(3, id), n", "months(at), truncate(1, region)")


@pytest.fixture
def tables(spark, session):
    """The same rows in tables of each layout, and in a view of Spark's own."""
    spark.sql("CREATE NAMESPACE lake.raw")
    spark.sql(ROWS).createOrReplaceTempView("plain")
    for number, layout in enumerate(LAYOUTS):
        spark.sql(
            f"CREATE TABLE lake.raw.t{number} (id BIGINT, day DATE, region STRING, at TIMESTAMP, "
            f"n INT) PARTITIONED BY ({layout})"
        )
        spark.sql(f"INSERT INTO lake.raw.t{number} SELECT * FROM plain WHERE id < 150")
        spark.sql(f"INSERT INTO lake.raw.t{number} SELECT * FROM plain WHERE id >= 150")


def answered(frame):
    return "BatchScan" not in frame._jdf.queryExecution().executedPlan().toString()


def compare(spark, table, where):
    """Whether metadata answered; what is read and what is answered is what Spark finds itself."""
    text = f"SELECT {ASKED} FROM {{}} WHERE {where}"
    frame = spark.sql(text.format(f"lake.raw.{table}"))
    assert frame.collect() == spark.sql(text.format("plain")).collect(), (table, where)
    rows = f"SELECT * FROM {{}} WHERE {where} ORDER BY id"
    ours = spark.sql(rows.format(f"lake.raw.{table}")).collect()
    assert ours == spark.sql(rows.format("plain")).collect(), (table, where)
    return answered(frame)


WHOLE = {
    "t0": ["day = DATE '2026-01-02'", "day IS NULL", "day > DATE '2026-01-02'",
           "day < DATE '2020-01-01'",
           "day IN (DATE '2026-01-01', DATE '2026-01-03')", "NOT day <=> DATE '2026-01-02'"],
    "t1": ["region = 'r1'", "at >= TIMESTAMP '2026-01-03 00:00:00' AND region IS NOT NULL",
           "at < TIMESTAMP '2026-01-05 00:00:00'", "at IS NULL OR region = 'r2'"],
    "t2": ["n = 1", "n BETWEEN 1 AND 2", "n <> 3"],
    "t3": ["at < TIMESTAMP '2026-02-01 00:00:00'", "region LIKE 'r%'"],
}  # fmt: skip
PARTS = {
    "t0": ["id = 5", "day = DATE '2026-01-02' AND id < 100", "year(day) = 2026"],
    "t1": ["at >= TIMESTAMP '2026-01-03 01:00:00'", "region > 'r' AND n = 1"],
    "t2": ["id = 7", "id IN (1, 2)"],
    "t3": ["at < TIMESTAMP '2026-01-09 00:00:00'", "region = 'r1'"],
}


def test_whole_partitions_are_answered_by_metadata(spark, tables):
    for table, conditions in WHOLE.items():
        assert [one for one in conditions if not compare(spark, table, one)] == []
    for table, conditions in PARTS.items():
        assert [one for one in conditions if compare(spark, table, one)] == []


def test_a_filter_that_chooses_whole_files_is_not_asked_of_rows(spark, tables):
    frame = spark.sql("SELECT id FROM lake.raw.t0 WHERE day = DATE '2026-01-02'")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "Filter" not in plan.replace("RuntimeFilters", "")
    assert "files by" in plan


def test_files_are_planned_once(spark, tables, monkeypatch):
    plans = []
    plan_scan = table_answers.plan_scan
    monkeypatch.setattr(
        table_answers,
        "plan_scan",
        lambda request, storage: plans.append(request.where) or plan_scan(request, storage),
    )
    for where in ("day = DATE '2026-01-02'", "day = DATE '2026-01-02' AND id > 5"):
        plans.clear()
        rows = spark.sql(f"SELECT id FROM lake.raw.t0 WHERE {where} ORDER BY id").collect()
        assert rows == spark.sql(f"SELECT id FROM plain WHERE {where} ORDER BY id").collect()
        assert len(plans) == 1
    other = "SELECT id FROM lake.raw.t0 WHERE day = DATE '2026-01-03'"
    joined = f"SELECT count(*) FROM (SELECT id FROM lake.raw.t0 WHERE {where} UNION ALL {other})"
    assert spark.sql(joined).first() == spark.sql(joined.replace("lake.raw.t0", "plain")).first()


def test_planning_makes_no_reader(spark, tables):
    """A reader broadcasts Hadoop's settings, which costs more than all else of a plan."""

    def broadcasts():
        return spark.sparkContext._jsc.broadcast(1).id()

    before = broadcasts()
    text = "SELECT a.id FROM lake.raw.t0 a JOIN lake.raw.t1 b ON a.id = b.id WHERE b.id > 5"
    frame = spark.sql(text)
    frame._jdf.queryExecution().executedPlan()
    assert broadcasts() == before + 1
    assert sorted(frame.collect()) == sorted(spark.sql(text.replace("t1", "t0")).collect())


def test_another_zone_and_deleted_rows(spark, tables):
    with configured(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        assert not compare(spark, "t1", "at >= TIMESTAMP '2026-01-03 00:00:00'")
        assert compare(spark, "t1", "at >= TIMESTAMP '2026-01-03 09:00:00'")
    spark.sql("ALTER TABLE lake.raw.t0 SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    spark.sql("DELETE FROM lake.raw.t0 WHERE id = 1")
    text = "SELECT count(*) FROM {} WHERE day = DATE '2026-01-02'"
    ours, theirs = (spark.sql(text.format(one)).first()[0] for one in ("lake.raw.t0", "plain"))
    assert ours == theirs - 1


def test_files_of_an_earlier_partitioning_are_read(spark, tables):
    spark.sql("CALL lake.system.add_partition_field('raw.t0', 'region')")
    spark.sql("INSERT INTO lake.raw.t0 SELECT id + 200, day, region, at, n FROM plain")
    text = "SELECT count(*) FROM lake.raw.t0 WHERE region = 'r1'"
    frame = spark.sql(text)
    assert frame.first()[0] == 2 * spark.sql(text.replace("lake.raw.t0", "plain")).first()[0]
    assert not answered(frame)


LEAVES = st.one_of(
    st.builds("day {} DATE '2026-01-0{}'".format,
              st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]), st.integers(1, 6)),
    st.builds("region {} 'r{}'".format, st.sampled_from(["=", "<>", "<", ">=", "<=>"]),
              st.integers(0, 3)),
    st.builds("at {} TIMESTAMP '2026-01-{:02} {:02}:00:00'".format,
              st.sampled_from(["<", "<=", ">", ">="]), st.integers(1, 18),
              st.sampled_from([0, 0, 5])),
    st.builds("n IN ({}, {})".format, st.integers(0, 5), st.integers(0, 5)),
    st.builds("id {} {}".format, st.sampled_from(["<", ">="]), st.integers(0, 200)),
    st.builds("{} IS {}NULL".format, st.sampled_from(["day", "region", "at", "n"]),
              st.sampled_from(["", "NOT "])),
)  # fmt: skip
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=3,
)


def test_any_condition_gives_what_spark_finds_itself(spark, tables):
    told = []

    @settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)
    @given(st.sampled_from(range(len(LAYOUTS))), CONDITIONS)
    def check(number, where):
        told.append(compare(spark, f"t{number}", where))

    check()
    assert len(set(told)) == 2
