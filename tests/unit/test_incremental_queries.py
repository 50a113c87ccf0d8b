"""Which queries can be kept by what changed, by which keys, and why others cannot."""

from __future__ import annotations

import duckdb
import pytest
from sqlglot import parse_one
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

from lakehouse.incremental_queries import DeltaPlan, Refusal, compile_deltas

SCHEMA = {
    "t": {"a": "bigint", "b": "string", "ts": "timestamp", "x": "double", "i": "int"},
    "u": {"a": "bigint", "n": "string"},
}


def compiled(sql: str, engine: str = "spark") -> DeltaPlan | Refusal:
    tree = qualify(parse_one(sql, read="spark"), schema=SCHEMA, dialect="spark")
    return compile_deltas(annotate_types(tree, schema=SCHEMA, dialect="spark"), engine)


@pytest.mark.parametrize(
    ("sql", "keys"),
    [
        ("SELECT a, b, a * 2 AS c FROM t WHERE x > 1", ""),
        ("SELECT t.b, u.n FROM t JOIN u ON t.a = u.a", ""),
        ("SELECT a FROM t UNION ALL SELECT a FROM u", ""),
        ("WITH c AS (SELECT a, b FROM t) SELECT a FROM c", ""),
        ("SELECT a, count(*) AS n FROM t GROUP BY a HAVING count(*) > 1", "a"),
        ("SELECT to_date(ts) AS d, b, avg(i) AS m FROM t GROUP BY to_date(ts), b", "d b"),
        ("SELECT x, b, max(x) AS m FROM t GROUP BY x, b", "b"),
        ("SELECT upper(b) AS k, b, count(*) AS n FROM t GROUP BY b", "k b"),
        ("SELECT u.n, sum(t.i) AS s FROM t JOIN u ON t.a = u.a GROUP BY u.n", "n"),
        ("SELECT DISTINCT a, x FROM t", "a"),
        ("SELECT a FROM t UNION SELECT a FROM u", "a"),
        ("SELECT t.a, t.b, u.n FROM t LEFT JOIN u ON t.a = u.a", "a b"),
        ("SELECT t.a FROM t LEFT SEMI JOIN u ON t.a = u.a", "a"),
        (
            "SELECT * FROM (SELECT a, b, row_number() OVER (PARTITION BY a ORDER BY ts) AS n "
            "FROM t) AS w WHERE n <= 3",
            "a",
        ),
        (
            "WITH c AS (SELECT a, count(*) AS n FROM t GROUP BY a) "
            "SELECT c.a, c.n, u.n AS m FROM c JOIN u ON c.a = u.a",
            "a m",
        ),
        ("SELECT a, listagg(DISTINCT b) WITHIN GROUP (ORDER BY b) AS l FROM t GROUP BY a", "a"),
    ],
)
def test_what_is_followed_by_rows_or_by_keys(sql: str, keys: str) -> None:
    found = compiled(sql)
    assert isinstance(found, DeltaPlan), found
    assert " ".join(found.keys) == keys


@pytest.mark.parametrize(
    ("sql", "part", "why"),
    [
        ("SELECT a, rand() AS r FROM t", "RAND()", "another one each time"),
        ("SELECT a, current_timestamp() AS r FROM t", "CURRENT_TIMESTAMP()", "another one each"),
        ("SELECT a, mine(b) AS r FROM t", "MINE(t.b)", "mine() is not known"),
        ("SELECT b, sum(x) AS s FROM t GROUP BY b", "SUM(t.x)", "cast them to a decimal"),
        ("SELECT b, avg(a) AS s FROM t GROUP BY b", "AVG(t.a)", "spark averages 64-bit integers"),
        ("SELECT b, first(a) AS s FROM t GROUP BY b", "FIRST(t.a)", "order of rows"),
        ("SELECT b, listagg(i) AS s FROM t GROUP BY b", "LISTAGG(t.i, ',')", "order of rows"),
        ("SELECT b, collect_list(a) AS s FROM t GROUP BY b", "COLLECT_LIST(t.a)", "order of rows"),
        ("SELECT a FROM t LIMIT 3", "LIMIT 3", "LIMIT is not followed"),
        ("SELECT t.a FROM t JOIN t AS s ON t.a = s.a", "JOIN t AS s ON t.a = s.a", "with itself"),
        ("SELECT t.a FROM t FULL JOIN u ON t.a = u.a", "FULL JOIN", "only LEFT JOIN"),
        ("SELECT t.a FROM t LEFT JOIN u ON t.a < u.a", "LEFT JOIN", "columns that are equal"),
        ("SELECT a FROM t WHERE a IN (SELECT a FROM u)", "t.a IN", "LEFT SEMI JOIN"),
        ("SELECT count(*) AS n FROM t", "", "no column of the result says"),
        ("SELECT x, count(*) AS n FROM t GROUP BY x", "", "no column of the result says"),
        ("SELECT upper(b) AS k, count(*) AS n FROM t GROUP BY upper(b)", "", "plain column"),
        ("SELECT a, count(*) AS n FROM t GROUP BY ROLLUP (a)", "ROLLUP (t.a)", "several groupings"),
        ("SELECT explode(array(1, 2)) AS e FROM t", "EXPLODE(", "made of values"),
    ],
)
def test_what_is_refused_names_the_part_and_the_reason(sql: str, part: str, why: str) -> None:
    found = compiled(sql)
    assert isinstance(found, Refusal), found
    assert part in found.part
    assert why in found.why
    assert bool(found.part) == bool(part)


@pytest.mark.parametrize("kind", ["LEFT", "LEFT SEMI", "LEFT ANTI"])
def test_a_change_touches_the_keys_that_it_meets_and_no_others(kind: str) -> None:
    """A change of the right touches what it meets on the left, a change of the left itself."""
    found = compiled(f"SELECT t.a, t.b FROM t {kind} JOIN u ON t.a = u.a")
    assert isinstance(found, DeltaPlan)
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT range AS a, 'b' || range AS b FROM range(9)")
    connection.execute(
        "CREATE TABLE u (a bigint, n text); INSERT INTO u VALUES (4, 'x'), (99, 'y')"
    )
    touched = {
        name: sorted(connection.execute(query.sql(dialect="duckdb")).fetchall())
        for name, query in found.deltas.items()
    }
    assert touched == {"t": [(n, f"b{n}") for n in range(9)], "u": [(4, "b4")]}


def test_what_depends_on_the_order_of_rows_depends_on_the_engine() -> None:
    averages = "SELECT b, avg(a) AS s FROM t GROUP BY b"
    least = "SELECT b, min(x) AS s FROM t GROUP BY b"
    assert isinstance(compiled(averages, "duckdb"), DeltaPlan)
    assert isinstance(compiled(least, "spark"), DeltaPlan)
    assert "beside NaN" in str(compiled(least, "datafusion"))
