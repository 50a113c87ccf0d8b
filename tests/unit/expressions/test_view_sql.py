"""What a view's text may be: one query of its dialect."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import InvalidViewError
from lakehouse.expressions.sql.dialects import check_select

SCHEMA = pa.schema({"n": pa.int32()})
QUERIES = [
    "WITH a AS (SELECT 1 AS n) SELECT n FROM a",
    "FROM t SELECT n",
    "(SELECT 1) UNION ALL SELECT 2",
    "VALUES (1), (2)",
    "-- counted\nSELECT /*+ BROADCAST(a) */ count(*) FROM a LATERAL VIEW explode(b) x AS c",
    "SELECT transform(xs, x -> x + 1) FROM t VERSION AS OF 3",
]
NO_QUERIES = {
    "selekt 1": "does not parse",
    "SELECT FROM WHERE": "does not parse",
    "DROP TABLE t": "is no SELECT: DROP TABLE t",
    "INSERT INTO t SELECT 1": "is no SELECT",
    "SELECT 1; DROP TABLE t": "is no SELECT",
}


@pytest.mark.parametrize("sql", QUERIES)
def test_queries_are_taken(sql):
    check_select(sql, "spark")


@pytest.mark.parametrize("dialect", ["spark", "DataFusion", "trino", "duckdb"])
@pytest.mark.parametrize("sql", NO_QUERIES)
def test_what_is_no_query_is_refused(dialect, sql):
    with pytest.raises(InvalidViewError, match=f"SQL of {dialect} {NO_QUERIES[sql]}"):
        check_select(sql, dialect)


def test_of_an_unknown_dialect_nothing_is_known():
    check_select("selekt 1", "of-some-engine")


def test_a_view_is_not_made_or_changed_by_what_is_no_query(tmp_path):
    lake = lh.load_catalog(str(tmp_path))
    with pytest.raises(InvalidViewError):
        lake.create_view("a.v", "selekt 1", SCHEMA)
    with pytest.raises(InvalidViewError):
        lake.create_view("a.v", {"spark": "SELECT 1 AS n", "trino": "DELETE FROM t"}, SCHEMA)
    assert lake.list_views() == []
    view = lake.create_view("a.v", "SELECT 1 AS n", SCHEMA)
    with pytest.raises(InvalidViewError):
        view.replace("DROP TABLE t", SCHEMA)
    assert lake.load_view("a.v").sql() == "SELECT 1 AS n"
