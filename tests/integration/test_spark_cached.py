"""`CACHE TABLE` never answers with the rows of an earlier version."""

from __future__ import annotations

import pytest

from tests.integration.spark_support import lake, session, sql

__all__ = ["lake", "session", "sql"]

pytestmark = pytest.mark.spark

CALL = "CALL lake.system."
CHANGES = {
    "rollback": (CALL + "rollback_to_snapshot('c.t', {first})", {1}),
    "current": (CALL + "set_current_snapshot('c.t', {first})", {1}),
    "fast_forward": (CALL + "fast_forward('c.t', 'main', 'b')", {1, 2, 3}),
    "cherrypick": (CALL + "cherrypick_snapshot('c.t', {third})", {1, 2, 3}),
    "insert": ("INSERT INTO lake.c.t.branch_main VALUES (4)", {1, 2, 4}),
    "update": ("UPDATE lake.c.t.branch_main SET id = id + 10 WHERE id = 1", {2, 11}),
    "delete": ("DELETE FROM lake.c.t.branch_main WHERE id = 1", {2}),
}


@pytest.mark.parametrize("cached", ["table", "view"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_cached_table_follows_every_commit(spark, sql, cached, change):
    sql("CREATE NAMESPACE IF NOT EXISTS lake.c")
    sql("CREATE TABLE lake.c.t (id INT) USING iceberg")
    sql("INSERT INTO lake.c.t VALUES (1)")
    sql("INSERT INTO lake.c.t VALUES (2)")
    sql("CALL lake.system.create_branch('c.t', 'b')")
    sql("INSERT INTO lake.c.t.branch_b VALUES (3)")
    first, _, third = (
        row[0] for row in sql("SELECT snapshot_id FROM lake.c.t.snapshots ORDER BY committed_at")
    )
    name = "lake.c.t"
    if cached == "view":
        spark.table(name).createOrReplaceTempView("cached_of_t")
        name = "cached_of_t"
    sql(f"CACHE TABLE {name}")
    try:
        assert {row[0] for row in sql(f"SELECT id FROM {name}")} == {1, 2}
        statement, expected = CHANGES[change]
        sql(statement.format(first=first, third=third))
        assert {row[0] for row in sql(f"SELECT id FROM {name}")} == expected
    finally:
        spark.catalog.clearCache()
