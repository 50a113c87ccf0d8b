"""DELETE, UPDATE, MERGE and writes by Spark SQL: rows, files, lineage, conflicts, failures."""

from __future__ import annotations

import datetime as dt
from itertools import cycle

import pyspark
import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException
from pyspark.sql import functions as F  # noqa: N812

from tests.integration.spark_support import configured, lake, session, sql

__all__ = ["lake", "session", "sql"]

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


JOINS = {
    "broadcast of the source": {},
    "sort-merge": {"spark.sql.autoBroadcastJoinThreshold": "-1"},
    "hashed": {
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.join.preferSortMergeJoin": "false",
        "spark.sql.adaptive.enabled": "false",
    },
    "interpreted": {"spark.sql.codegen.wholeStage": "false", "spark.sql.shuffle.partitions": "1"},
}


@pytest.mark.parametrize(
    ("version", "on"), [(2, "t.id = s.id"), (3, "t.id < s.id AND s.id < 9 OR t.id = s.id")]
)
def test_a_row_that_matches_twice_is_kept_once_where_no_clause_changes_it(
    spark, sql, lake, version, on
):
    """With copy-on-write Spark itself writes it once for each row of the source."""
    make(sql, version)
    rows = sql("SELECT id, k, d FROM lake.raw.rows")
    source = [2, 2, 3, 3, 3, 9, 9]
    listed = ", ".join(f"({one})" for one in source)

    def matches(one, other):
        return one == other or (" OR " in on and one < other < 9)

    kept = [row for row in rows if any(matches(row[0], one) for one in source)]
    alone = [row for row in rows if row not in kept]
    new = [(one, "s", None) for one in source if not any(matches(row[0], one) for row in rows)]
    gone, changed = "DELETE", "UPDATE SET k = 'n'"
    expected = {
        f"WHEN NOT MATCHED BY SOURCE THEN {gone}": kept,
        f"WHEN NOT MATCHED BY SOURCE AND t.id = 4 THEN {gone} WHEN NOT MATCHED BY SOURCE THEN "
        f"{changed}": kept + [(one, "n", d) for one, _, d in alone if one != 4],
        "WHEN NOT MATCHED THEN INSERT (id, k) VALUES (s.id, 's') WHEN NOT MATCHED BY SOURCE THEN "
        f"{changed}": kept + new + [(one, "n", d) for one, _, d in alone],
    }
    first = lake.load_table("raw.rows").current_snapshot().snapshot_id
    for asked, (clauses, left) in zip(JOINS.values(), cycle(expected.items()), strict=False):
        with configured(spark, asked):
            sql(
                f"MERGE INTO lake.raw.rows t USING (SELECT id FROM VALUES {listed} AS s(id)) s "
                f"ON {on} {clauses}"
            )
        assert sorted(sql("SELECT id, k, d FROM lake.raw.rows"), key=str) == sorted(left, key=str)
        sql(f"CALL lake.system.rollback_to_snapshot('raw.rows', {first})")


@pytest.mark.parametrize(
    "condition",
    [
        "k IS DISTINCT FROM 'a'",
        "NOT (k <=> NULL)",
        "k NOT IN ('a', 'b')",
        "NOT (k <=> 'a' AND k = 'b')",
    ],
)
def test_rows_with_nulls_go_where_a_condition_of_whole_files_is_true(sql, lake, condition):
    """Conditions on a partition column, which need no row to be read."""
    sql("CREATE NAMESPACE lake.raw")
    sql("CREATE TABLE lake.raw.parts (id INT, k STRING) PARTITIONED BY (k)")
    sql("INSERT INTO lake.raw.parts VALUES (1, 'a'), (2, 'b'), (3, NULL)")
    rows = "VALUES (1, 'a'), (2, 'b'), (3, NULL) AS s(id, k)"
    left = sql(f"SELECT * FROM {rows} WHERE NOT coalesce({condition}, false) ORDER BY id")
    first = lake.load_table("raw.parts").current_snapshot().snapshot_id
    for statement in (
        f"DELETE FROM lake.raw.parts WHERE {condition}",
        f"INSERT INTO lake.raw.parts REPLACE WHERE {condition} SELECT 0, 'x' WHERE false",
    ):
        sql(statement)
        assert sql("SELECT * FROM lake.raw.parts ORDER BY id") == left, statement
        sql(f"CALL lake.system.rollback_to_snapshot('raw.parts', {first})")


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
    with configured(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
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


def test_overwrites(sql, lake, spark):
    make(sql)
    sql("INSERT OVERWRITE lake.raw.rows SELECT 1, 'only', 1.5")
    assert sql("SELECT * FROM lake.raw.rows") == [(1, "only", 1.5)]
    sql("INSERT INTO lake.raw.rows VALUES (2, 'two', 2), (3, 'three', 3)")
    sql("INSERT INTO lake.raw.rows REPLACE WHERE id >= 3 SELECT 4, 'four', 4")
    assert sql("SELECT id FROM lake.raw.rows ORDER BY id") == [(1,), (2,), (4,)]
    with configured(spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
        sql("CREATE TABLE lake.raw.parts (id INT, p STRING) PARTITIONED BY (p)")
        sql("INSERT INTO lake.raw.parts VALUES (1, 'a'), (2, 'b')")
        sql("INSERT OVERWRITE lake.raw.parts VALUES (3, 'b'), (4, 'c')")
        # a table without partitions is one partition, of which nothing is written here
        sql("INSERT OVERWRITE lake.raw.rows SELECT * FROM lake.raw.rows WHERE id > 9")
        assert sql("SELECT id FROM lake.raw.rows ORDER BY id") == [(1,), (2,), (4,)]
    sql("INSERT OVERWRITE lake.raw.rows SELECT * FROM lake.raw.rows WHERE id > 2")
    assert sql("SELECT id FROM lake.raw.rows") == [(4,)]
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


WRITES = (
    "INSERT INTO lake.raw.rows VALUES (9, 'z', 9)",
    "UPDATE lake.raw.rows SET k = 'x' WHERE id = 1",
    "DELETE FROM lake.raw.rows WHERE id = 2",
    MERGE,
    "INSERT OVERWRITE lake.raw.rows SELECT 8, 'all', 8",
    "DELETE FROM lake.raw.rows",
)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_what_is_staged_shows_when_it_is_published(sql, lake, spark, mode):
    """Each statement by itself, on rows that nobody changes meanwhile."""
    make(sql, 3, mode, extra=", 'write.wap.enabled' = 'true'")
    rows = "SELECT id, k, d FROM lake.raw.rows ORDER BY id"
    before, table = sql(rows), lake.load_table("raw.rows")
    first = table.current_snapshot().snapshot_id
    for number, statement in enumerate(WRITES):
        sql(statement)  # as it is without staging
        expected = sql(rows)
        sql(f"CALL lake.system.rollback_to_snapshot('raw.rows', {first})")
        with configured(spark, {"spark.wap.id": f"run{number}"}):
            sql(statement)
        assert sql(rows) == before, "nothing shows by itself"
        staged = table.refresh().snapshots()[-1]
        assert (staged.summary["wap.id"], staged.parent_snapshot_id) == (f"run{number}", first)
        assert list(table.refs()) == ["main"]
        published = sql(f"CALL lake.system.publish_changes('raw.rows', 'run{number}')")
        assert published == [(staged.snapshot_id, staged.snapshot_id)]
        assert sql(rows) == expected, statement
        sql(f"CALL lake.system.rollback_to_snapshot('raw.rows', {first})")


def test_what_is_staged_is_published_once_and_onto_what_came_meanwhile(sql, lake, spark):
    make(sql, extra=", 'write.wap.enabled' = 'true'")
    for wap_id, number in (("one", 11), ("twice", 12), ("twice", 13)):
        with configured(spark, {"spark.wap.id": wap_id}):
            sql(f"INSERT INTO lake.raw.rows VALUES ({number}, 'staged', 0)")
    sql("INSERT INTO lake.raw.rows VALUES (10, 'meanwhile', 0)")
    publish = "CALL lake.system.publish_changes(table => 'raw.rows', wap_id => '{}')"
    sql(publish.format("one"))
    assert sql("SELECT id FROM lake.raw.rows WHERE id > 6 ORDER BY id") == [(10,), (11,)]
    summary = lake.load_table("raw.rows").current_snapshot().summary
    assert summary["published-wap-id"] == "one"
    for wap_id, told in (("one", "already"), ("twice", "2 snapshots"), ("none", "no snapshots")):
        with pytest.raises(PySparkException, match=told):
            sql(publish.format(wap_id))
    assert sql("SELECT count(*) FROM lake.raw.rows") == [(8,)]


def test_a_session_works_on_its_branch(sql, lake, spark):
    make(sql, 3, extra=", 'write.wap.enabled' = 'true'")
    rows = "SELECT * FROM lake.raw.rows ORDER BY id"
    before = sql(rows)
    with configured(spark, {"spark.wap.branch": "audit"}):
        assert sql(rows) == before, "a branch that is not there yet is main"
        for statement in WRITES[:4]:
            sql(statement)
        changed = sql(rows)
        assert changed != before
        assert sql("SELECT * FROM lake.raw.rows.branch_main ORDER BY id") == before
        with pytest.raises(PySparkException, match="made or replaced at once"):
            sql("CREATE OR REPLACE TABLE lake.raw.rows AS SELECT 1 AS one")
        with (
            configured(spark, {"spark.wap.id": "both"}),
            pytest.raises(PySparkException, match="RESET one"),
        ):
            sql(rows)
    assert sql(rows) == before
    assert sql("SELECT * FROM lake.raw.rows.branch_audit ORDER BY id") == changed
    sql("CALL lake.system.fast_forward('raw.rows', 'main', 'audit')")
    assert sql(rows) == changed


def test_a_write_says_what_its_snapshot_says(sql, lake, spark):
    make(sql)
    frame = spark.sql("SELECT 9L AS id, 'z' AS k, 0D AS d")
    frame.writeTo("lake.raw.rows").option("snapshot-property.reason", "late").append()
    assert lake.load_table("raw.rows").current_snapshot().summary["reason"] == "late"
    frame.writeTo("lake.raw.made").option("snapshot-property.reason", "new").create()
    assert lake.load_table("raw.made").current_snapshot().summary["reason"] == "new"


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_columns_come_with_schema_evolution(sql, lake, mode):
    make(sql, mode=mode)
    lake.load_table("raw.rows").create_branch("audit")
    into = "MERGE WITH SCHEMA EVOLUTION INTO lake.raw.rows{} t USING ({}) s ON t.id = s.id"
    clauses = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    source = "SELECT 2L AS id, 'two' AS k, 'x' AS extra UNION ALL SELECT 9L, 'new', 'y'"
    sql(f"{into.format('', source)} {clauses}")
    assert sql("SELECT id, k, d, extra FROM lake.raw.rows WHERE k > 'f' ORDER BY id") == [
        (2, "two", 2.0, "x"),
        (9, "new", None, "y"),
    ]
    assert sql("SELECT count(*) FROM lake.raw.rows WHERE extra IS NULL") == [(5,)]
    other = "SELECT 3L AS id, 7 AS more"
    sql(f"{into.format('.branch_audit', other)} {clauses}")
    assert sql("SELECT id, more FROM lake.raw.rows.branch_audit WHERE more > 0") == [(3, 7)]
    assert sql("SELECT count(*), count(more) FROM lake.raw.rows") == [(7, 0)]
    sql(f"MERGE INTO lake.raw.rows t USING ({other}) s ON t.id = s.id WHEN MATCHED THEN DELETE")
    with pytest.raises(PySparkException, match=r"snapshots is no table: alter"):
        sql("ALTER TABLE lake.raw.rows.snapshots ADD COLUMN no INT")


@pytest.mark.skipif(pyspark.__version__ < "4.3", reason="INSERT WITH SCHEMA EVOLUTION is of 4.3")
def test_an_insert_adds_columns_and_widens_types(sql, lake):
    sql("CREATE NAMESPACE lake.raw")
    sql("CREATE TABLE lake.raw.wide (id INT, at DATE)")
    into = "INSERT WITH SCHEMA EVOLUTION INTO lake.raw.wide BY NAME SELECT"
    sql(f"{into} 1L + 4294967296L AS id, true AS flag")
    sql(f"{into} 7 AS id, DATE '2026-06-01' AS at")  # narrower: the column stays as it is
    assert sql("SELECT * FROM lake.raw.wide ORDER BY id") == [
        (7, dt.date(2026, 6, 1), None),
        (4294967297, None, True),
    ]
    with pytest.raises(PySparkException, match=r"(?i)cast"):
        sql(f"{into} 'text' AS at")


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
        with configured(spark, {"spark.sql.ansi.enabled": ansi}):
            with pytest.raises(AnalysisException, match="CANNOT_SAFELY_CAST"):
                sql("INSERT INTO lake.raw.strict SELECT 'abc', 'x'")
            with pytest.raises(PySparkException, match="CAST_OVERFLOW"):
                sql("INSERT INTO lake.raw.strict SELECT 3000000000, 'x'")
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
