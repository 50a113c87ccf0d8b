"""DELETE, UPDATE, MERGE and writes by Spark SQL: rows, files, lineage, conflicts, failures."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException
from pyspark.sql import functions as F  # noqa: N812

from tests.integration.spark_support import lake, session

__all__ = ["lake", "session"]

pytestmark = pytest.mark.spark

WAYS = [(2, "copy-on-write"), (2, "merge-on-read"), (3, "copy-on-write"), (3, "merge-on-read")]
MERGE = """
    MERGE INTO lake.raw.rows t USING (
        SELECT * FROM VALUES (2, 'm', 9.0), (5, 'gone', 0.0), (9, 'new', 9.5) AS s(id, k, d)
    ) s ON t.id = s.id
    WHEN MATCHED AND s.k = 'gone' THEN DELETE
    WHEN MATCHED THEN UPDATE SET *
    WHEN NOT MATCHED THEN INSERT *
    WHEN NOT MATCHED BY SOURCE AND t.d IS NULL THEN UPDATE SET d = -1
"""


@pytest.fixture
def sql(spark, session):
    def run(text):
        return [tuple(row) for row in spark.sql(text).collect()]

    return run


def make(sql, version=2, mode="copy-on-write", extra=""):
    sql("CREATE NAMESPACE IF NOT EXISTS lake.raw")
    sql(
        "CREATE TABLE lake.raw.rows (id BIGINT, k STRING, d DOUBLE) PARTITIONED BY (bucket(2, id)) "
        f"TBLPROPERTIES ('format-version' = '{version}', 'write.delete.mode' = '{mode}', "
        f"'write.update.mode' = '{mode}', 'write.merge.mode' = '{mode}'{extra})"
    )
    sql("INSERT INTO lake.raw.rows VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', NULL), (4, 'd', 4)")
    sql("INSERT INTO lake.raw.rows VALUES (5, 'e', 1.0), (6, 'f', 2.0)")


@pytest.mark.parametrize(("version", "mode"), WAYS)
def test_rows_change(sql, lake, version, mode):
    make(sql, version, mode)
    table = lake.load_table("raw.rows")
    files = {one.file_path for one in table.scan().plan().files}
    sql(
        "UPDATE lake.raw.rows SET k = upper(k) WHERE id IN (SELECT id FROM lake.raw.rows "
        "WHERE d > 3)"
    )
    sql("DELETE FROM lake.raw.rows WHERE id = 1")
    sql(
        "DELETE FROM lake.raw.rows t WHERE EXISTS "
        "(SELECT 1 FROM lake.raw.rows u WHERE u.id = t.id AND u.k = 'f')"
    )
    sql(MERGE)
    expected = [(2, "m", 9.0), (3, "c", -1.0), (4, "D", 4.0), (9, "new", 9.5)]
    assert sql("SELECT * FROM lake.raw.rows ORDER BY id") == expected
    arrow = table.refresh().scan().to_arrow().sort_by("id")
    assert list(zip(*arrow.to_pydict().values(), strict=True)) == expected
    tasks = list(table.scan().plan().tasks)
    if mode == "merge-on-read" and version == 2:
        assert any(one.deletes for one in tasks)
        assert files & {one.data_file.file_path for one in tasks}
    else:  # from version 3 on a file goes with the last of its rows, and here all of them do
        assert not any(one.deletes for one in tasks)
    if version == 3 and mode == "merge-on-read":
        kept = dict(sql("SELECT id, _row_id FROM lake.raw.rows WHERE id IN (2, 3, 4)"))
        first = dict(
            sql(
                "SELECT id, _row_id FROM lake.raw.rows VERSION AS OF "
                f"{table.snapshots()[1].snapshot_id} WHERE id IN (2, 3, 4)"
            )
        )
        assert kept == first, "a row keeps its id when it changes"
    sql("DELETE FROM lake.raw.rows")
    assert sql("SELECT count(*) FROM lake.raw.rows") == [(0,)]


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_row_that_matches_twice_is_an_error_and_nothing_happens(sql, lake, mode, tmp_path):
    make(sql, 3, mode)
    table = lake.load_table("raw.rows")
    before = set(tmp_path.rglob("*.parquet"))
    with pytest.raises(PySparkException, match="MERGE_CARDINALITY_VIOLATION"):
        sql(
            "MERGE INTO lake.raw.rows t USING (SELECT * FROM "
            "VALUES (2, 'x'), (2, 'y') AS s(id, k)) s ON t.id = s.id WHEN MATCHED THEN UPDATE "
            "SET k = s.k"
        )
    assert len(table.refresh().snapshots()) == 2
    assert set(tmp_path.rglob("*.parquet")) == before


def test_only_files_with_a_match_are_rewritten(sql, lake):
    make(sql)
    sql("UPDATE lake.raw.rows SET d = 7 WHERE k = 'e'")
    summary = lake.load_table("raw.rows").current_snapshot().summary
    assert (summary["deleted-data-files"], summary["added-data-files"]) == ("1", "1")
    sql("DELETE FROM lake.raw.rows WHERE k = 'no such row'")
    assert len(lake.load_table("raw.rows").snapshots()) == 3, "nothing to do makes no snapshot"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {0} SET id = id + 100 WHERE k LIKE 'a_b%'",
        "UPDATE {0} SET id = id + 100 WHERE f = 0.1",
        "UPDATE {0} SET id = id + 100 WHERE f > 0.1",
        "UPDATE {0} SET id = id + 100 WHERE NOT (f > 0.1)",
        "UPDATE {0} SET id = id + 100 WHERE p >= 1.004",
        "UPDATE {0} SET k = 'z' WHERE id >= 1.5",
        "DELETE FROM {0} WHERE at >= '2026-06-02 00:00:00'",
        "DELETE FROM {0} WHERE length(k) = 3",
    ],
)
def test_one_reading_of_a_condition(sql, lake, spark, statement):
    rows = (
        "SELECT * FROM VALUES "
        "(1L, 'a_b1', FLOAT(0.1), 1.00BD, TIMESTAMP '2026-06-01 16:00:00Z'), "
        "(2L, 'axb2', FLOAT('NaN'), 2.00BD, TIMESTAMP '2026-06-01 14:00:00Z'), "
        "(3L, 'zzz', CAST(NULL AS FLOAT), 3.00BD, NULL) AS v(id, k, f, p, at)"
    )
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        sql("CREATE NAMESPACE IF NOT EXISTS lake.raw")
        sql(f"CREATE TABLE lake.raw.one AS {rows}")
        sql(statement.format("lake.raw.one"))
        kind, _, condition = statement.partition(" WHERE ")
        if kind.startswith("DELETE"):
            told = f"SELECT * FROM ({rows}) WHERE NOT coalesce({condition}, false)"
        else:
            name, value = kind.partition(" SET ")[2].split(" = ")
            changed = f"if(coalesce({condition}, false), {value}, {name}) AS {name}"
            columns = [changed if one == name else one for one in ("id", "k", "f", "p", "at")]
            told = f"SELECT {', '.join(columns)} FROM ({rows})"
        assert sorted(map(repr, sql("SELECT * FROM lake.raw.one"))) == sorted(map(repr, sql(told)))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_overwrites(sql, lake, spark):
    make(sql)
    sql("INSERT OVERWRITE lake.raw.rows SELECT 1, 'only', 1.5")
    assert sql("SELECT * FROM lake.raw.rows") == [(1, "only", 1.5)]
    sql("INSERT INTO lake.raw.rows VALUES (2, 'two', 2), (3, 'three', 3)")
    sql("INSERT INTO lake.raw.rows REPLACE WHERE id >= 3 SELECT 4, 'four', 4")
    assert sql("SELECT id FROM lake.raw.rows ORDER BY id") == [(1,), (2,), (4,)]
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        sql("CREATE TABLE lake.raw.parts (id INT, p STRING) PARTITIONED BY (p)")
        sql("INSERT INTO lake.raw.parts VALUES (1, 'a'), (2, 'b')")
        sql("INSERT OVERWRITE lake.raw.parts VALUES (3, 'b'), (4, 'c')")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert sql("SELECT * FROM lake.raw.parts ORDER BY id") == [(1, "a"), (3, "b"), (4, "c")]
    sql("INSERT OVERWRITE lake.raw.parts PARTITION (p = 'a') VALUES (9)")
    assert sql("SELECT * FROM lake.raw.parts ORDER BY id") == [(3, "b"), (4, "c"), (9, "a")]
    with pytest.raises(IllegalArgumentException, match="compare columns with literals"):
        sql("INSERT INTO lake.raw.rows REPLACE WHERE length(k) = 3 SELECT 5, 'five', 5")


def test_frames_are_written_by_every_verb(sql, lake, spark):
    sql("CREATE NAMESPACE IF NOT EXISTS lake.raw")
    frame = spark.range(4).selectExpr("id", "id % 2 AS p")
    frame.writeTo("lake.raw.frames").partitionedBy("p").create()
    frame.writeTo("lake.raw.frames").append()
    assert spark.table("lake.raw.frames").count() == 8
    frame.where("p = 0").writeTo("lake.raw.frames").overwritePartitions()
    assert spark.table("lake.raw.frames").count() == 6
    frame.writeTo("lake.raw.frames").overwrite(F.col("p") == 1)
    assert spark.table("lake.raw.frames").count() == 6
    frame.write.mode("append").saveAsTable("lake.raw.frames")
    frame.write.insertInto("lake.raw.frames")
    assert spark.table("lake.raw.frames").count() == 14
    frame.limit(1).writeTo("lake.raw.frames").createOrReplace()
    assert spark.table("lake.raw.frames").count() == 1
    assert lake.load_table("raw.frames").spec().is_unpartitioned()


def test_a_branch_is_written_to(sql, lake):
    make(sql)
    lake.load_table("raw.rows").create_branch("audit")
    sql("INSERT INTO lake.raw.rows.branch_audit VALUES (7, 'audited', 7)")
    sql("DELETE FROM lake.raw.rows.branch_audit WHERE id = 1")
    assert sql("SELECT count(*) FROM lake.raw.rows VERSION AS OF 'audit'") == [(6,)]
    assert sql("SELECT count(*) FROM lake.raw.rows") == [(6,)]
    assert sql("SELECT max(id) FROM lake.raw.rows") == [(6,)]
    for text in (
        "INSERT INTO lake.raw.rows.tag_nope VALUES (1, 'a', 1)",
        "DELETE FROM lake.raw.rows.snapshots",
    ):
        with pytest.raises(PySparkException):
            sql(text)


@pytest.mark.parametrize("setting", ["spark.wap.id", "spark.wap.branch"])
def test_rows_that_would_be_staged_are_not_published(sql, lake, spark, setting):
    """Rows that somebody wants to look at first must not show up by themselves."""
    make(sql, 3, "merge-on-read", extra=", 'write.wap.enabled' = 'true'")
    before = sql("SELECT * FROM lake.raw.rows ORDER BY id")
    spark.conf.set(setting, "audit")
    try:
        for statement in (
            "INSERT INTO lake.raw.rows VALUES (9, 'z', 9)",
            "DELETE FROM lake.raw.rows WHERE true",
            "UPDATE lake.raw.rows SET k = 'x' WHERE id = 1",
            MERGE,
        ):
            with pytest.raises(PySparkException, match=rf"{setting} is audit.*branch_audit"):
                sql(statement)
    finally:
        spark.conf.unset(setting)
    assert sql("SELECT * FROM lake.raw.rows ORDER BY id") == before
    sql("INSERT INTO lake.raw.rows VALUES (9, 'z', 9)")
    assert len(sql("SELECT * FROM lake.raw.rows")) == len(before) + 1


def test_names_without_the_catalog_through_attach(session, spark, sql):
    make(sql)
    before = spark.catalog.currentCatalog(), spark.catalog.currentDatabase()
    assert session.sql("SELECT count(*) FROM raw.rows").first()[0] == 6
    session.sql("DELETE FROM raw.rows WHERE id = 1")
    assert session.sql("SELECT count(*) FROM raw.rows").first()[0] == 5
    assert (spark.catalog.currentCatalog(), spark.catalog.currentDatabase()) == before


def test_store_assignment_is_sparks(sql, spark):
    sql("CREATE NAMESPACE IF NOT EXISTS lake.raw")
    sql("CREATE TABLE lake.raw.strict (i INT, k STRING)")
    for ansi in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        try:
            with pytest.raises(AnalysisException, match="CANNOT_SAFELY_CAST"):
                sql("INSERT INTO lake.raw.strict SELECT 'abc', 'x'")
            with pytest.raises(PySparkException, match="CAST_OVERFLOW"):
                sql("INSERT INTO lake.raw.strict SELECT 3000000000, 'x'")
        finally:
            spark.conf.unset("spark.sql.ansi.enabled")
    sql("INSERT INTO lake.raw.strict BY NAME SELECT 'a' AS K, 1 AS I")
    sql("INSERT INTO lake.raw.strict (K, I) VALUES ('b', 2)")
    sql("UPDATE lake.raw.strict SET K = 'c' WHERE I = 2")
    assert sql("SELECT * FROM lake.raw.strict ORDER BY i") == [(1, "a"), (2, "c")]


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_change_between_plan_and_commit_is_a_conflict(sql, lake, mode):
    make(sql, 2, mode)

    class DeletesTheRow:
        """Another writer, as soon as the statement has planned its files."""

        def scan_planned(self, report):
            lake.remove_listener(self)
            lake.load_table("raw.rows").delete("id = 2")

    lake.add_listener(DeletesTheRow())
    with pytest.raises(PySparkException, match="ValidationConflictError"):
        sql("UPDATE lake.raw.rows SET k = 'late' WHERE id = 2")
    assert sql("SELECT count(*) FROM lake.raw.rows WHERE id = 2") == [(0,)]


@pytest.mark.parametrize("version", [2, 3])
def test_other_rows_of_a_file_may_change_between_plan_and_commit(sql, lake, version):
    make(sql, version, "merge-on-read")
    sql("INSERT INTO lake.raw.rows SELECT id, 'x', 1.0 FROM range(10, 30)")

    class DeletesTheOthers:
        def scan_planned(self, report):
            lake.remove_listener(self)
            lake.load_table("raw.rows").delete("id >= 10 and id <> 12")

    lake.add_listener(DeletesTheOthers())
    sql("UPDATE lake.raw.rows SET k = 'late' WHERE id = 12")
    assert sql("SELECT id, k FROM lake.raw.rows WHERE id >= 10") == [(12, "late")]
