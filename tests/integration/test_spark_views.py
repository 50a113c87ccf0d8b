"""Views of a lakehouse in Spark; temporary views of Spark over the same rows are the oracle."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    UnsupportedOperationException,
)

import lakehouse as lh
from lakehouse.errors import InvalidInputError, InvalidViewError
from lakehouse.queries import QueryEngine
from lakehouse.spark import attach
from tests.integration.spark_support import configured, rows_in

pytestmark = pytest.mark.spark
ASKS_FOR_VIEWS = tuple(int(one) for one in pyspark.__version__.split(".")[:2]) >= (4, 2)
with_views = pytest.mark.skipif(not ASKS_FOR_VIEWS, reason="this Spark asks no catalog for views")
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, None], pa.int64()),
        "k": ["a", "b", None, "a", "c"],
        "price": pa.array([1, 2, 3, None, 5], pa.decimal128(9, 2)),
        "at": pa.array([0, 86_400_000_000, None, 1, 2], pa.timestamp("us", tz="UTC")),
        "s": [{"x": 1, "y": "p"}, {"x": 2, "y": None}, None, {"x": None, "y": "q"}, None],
    }
)
SELECTS = [
    "SELECT * FROM events",
    "SELECT id, upper(k) AS u FROM events WHERE id > 1",
    "SELECT k, count(*) AS n, sum(price) AS total FROM events GROUP BY k",
    "SELECT id, s.x AS x, s FROM events",
    "WITH e AS (SELECT id FROM events) SELECT max(id) AS m FROM e",
    "SELECT a.id, b.k FROM events a LEFT JOIN events b ON a.id = b.id + 1",
    "SELECT id FROM events UNION ALL SELECT id FROM events",
    "SELECT id, row_number() OVER (PARTITION BY k ORDER BY id) AS r FROM events",
    "SELECT cast(at AS date) AS day, price * 2 AS twice, CAST(id AS SMALLINT) AS small FROM events",
    "SELECT id FROM events WHERE id IN (SELECT id FROM events WHERE k = 'a')",
    "SELECT id, explode(array(1, 2)) AS e FROM events",
    "SELECT 1 AS one, 'x' AS `a b`, current_catalog() IS NOT NULL AS c",
    "FROM events |> WHERE id > 1 |> SELECT id",
]

# Where engines are known to differ, among others: division, rounding, casts, nulls, case.
EXPRESSIONS = [
    "id / 2", "-id % 2", "price / 3", "price * price", "round(price / 3, 2)", "round(2.5)",
    "0.1 + 0.2", "1 / 3", "cast(2.9 AS int)", "cast(price AS double)", "cast(at AS date)",
    "year(at)", "date_add(cast(at AS date), 1)", "date_trunc('DAY', at)", "at + interval 1 hour",
    "datediff(cast(at AS date), date'1970-01-01')", "concat(k, 'x')", "concat_ws('-', k, 'x')",
    "substring(k, 1, 1)", "length('häß')", "nvl(k, 'z')", "if(id > 2, 'big', 'small')",
    "k LIKE 'a%'", "k IN ('a', null)", "id <=> null", "greatest(id, 2)", "'a' = 'a '",
    "array(1, 2, 3)[0]", "s.x", "ID", "K", "count(*) OVER ()",
    "row_number() OVER (ORDER BY k DESC, id)", "'it\\'s'",
]  # fmt: skip


@pytest.fixture
def lake(spark, tmp_path):
    lake = lh.load_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "w"))
    lake.create_table("raw.events", ROWS.schema).append(ROWS)
    attach(spark, lake)
    yield lake
    spark.sql("USE spark_catalog.default")


@pytest.fixture
def sql(spark):
    return rows_in(spark)


def rows_of(frame):
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def columns_of(schema):
    return [(one.name, one.dataType.simpleString()) for one in schema]


@with_views
@pytest.mark.parametrize("select", SELECTS)
def test_rows_and_columns_are_those_of_a_temporary_view(spark, lake, select):
    spark.sql("USE lake.raw")
    spark.sql(f"CREATE VIEW seen AS {select}")
    spark.sql("USE spark_catalog.default")
    ours = spark.sql("SELECT * FROM lake.raw.seen")
    found = ours.schema, rows_of(ours), spark.sql("SELECT count(*) FROM lake.raw.seen").first()[0]
    spark.table("lake.raw.events").createOrReplaceTempView("events")
    try:
        theirs = spark.sql(select)
        assert columns_of(found[0]) == [
            # the format has no 16 bits
            (name, kind.replace("smallint", "int"))
            for name, kind in columns_of(theirs.schema)
        ]
        assert found[1] == rows_of(theirs)
        assert found[2] == theirs.count()
    finally:
        spark.catalog.dropTempView("events")


@with_views
def test_views_of_spark_mean_the_same_without_spark(spark, lake):
    """DataFusion gives the rows that Spark gives, or says that it cannot."""
    spark.sql("USE lake.raw")
    every = ", ".join(f"{one} AS c{number}" for number, one in enumerate(EXPRESSIONS))
    selects = [*SELECTS, f"SELECT {every} FROM events"]
    refused = {}
    for number, select in enumerate(selects):
        spark.sql(f"CREATE VIEW v{number} AS {select}")
        try:
            ours = QueryEngine(lake, lake.environment).run(f"SELECT * FROM raw.v{number}")
        except InvalidInputError as error:
            refused[select] = error.message
            continue
        theirs = spark.sql(f"SELECT * FROM v{number}")
        assert ours.column_names == theirs.columns
        assert plain(ours.to_pylist()) == plain([row.asDict(True) for row in theirs.collect()])
    [(select, reason)] = refused.items()
    assert "current_catalog" in select
    assert "current_catalog" in reason.lower()


def plain(rows):
    """Rows in an order of their own; Spark's driver gives times in the zone of this machine."""
    told = [
        {
            key: value.timestamp() if isinstance(value, dt.datetime) else value
            for key, value in row.items()
        }
        for row in rows
    ]
    return sorted(told, key=repr)


@with_views
def test_names_are_those_of_the_place_where_it_was_made(spark, lake, sql):
    lake.create_namespace("other")
    spark.sql("USE lake.raw")
    spark.sql(
        "CREATE VIEW lake.other.seen (n COMMENT 'how many') AS SELECT count(*) AS c FROM events"
    )
    spark.sql("USE lake.other")
    spark.sql("CREATE VIEW again AS SELECT n + 1 AS m FROM seen")
    spark.sql("USE spark_catalog.default")
    assert sql("SELECT n FROM lake.other.seen") == [(5,)]
    assert sql("SELECT m FROM lake.other.again") == [(6,)]
    attach(spark, lake, name="renamed")
    assert sql("SELECT m FROM renamed.other.again") == [(6,)]
    version = lake.load_view("other.seen").metadata.current_version()
    assert (version.default_catalog, version.default_namespace) == (None, ("raw",))
    assert lake.load_view("other.seen").schema().find_field("n").doc == "how many"


@with_views
def test_a_view_shows_what_is_committed_later_and_keeps_its_configured(spark, lake, sql):
    with configured(spark, {"spark.sql.ansi.enabled": "false"}):
        spark.sql("CREATE VIEW lake.raw.casts AS SELECT cast(k AS int) AS n FROM lake.raw.events")
    with configured(spark, {"spark.sql.ansi.enabled": "true"}):
        assert sql("SELECT count(*), count(n) FROM lake.raw.casts") == [(5, 0)]
        lake.load_table("raw.events").append(ROWS.slice(0, 1))
        assert sql("SELECT count(*) FROM lake.raw.casts") == [(6,)]


@with_views
def test_replacing_keeps_history_and_settings_of_properties_do_not_add_to_it(spark, lake, sql):
    spark.sql("CREATE VIEW lake.raw.seen COMMENT 'c' TBLPROPERTIES ('a'='1') AS SELECT 1 AS n")
    made = lake.load_view("raw.seen")
    spark.sql("ALTER VIEW lake.raw.seen SET TBLPROPERTIES ('b'='2')")
    spark.sql("ALTER VIEW lake.raw.seen UNSET TBLPROPERTIES ('a')")
    changed = lake.load_view("raw.seen")
    assert changed.metadata.versions == made.metadata.versions
    assert dict(sql("SHOW TBLPROPERTIES lake.raw.seen")) == {"b": "2"}
    spark.sql("ALTER VIEW lake.raw.seen AS SELECT 2 AS n, 'x' AS s")
    spark.sql("CREATE OR REPLACE VIEW lake.raw.seen AS SELECT 3 AS n")
    assert sql("SELECT * FROM lake.raw.seen") == [(3,)]
    metadata = lake.load_view("raw.seen").metadata
    texts = [one.dialects()["spark"].sql for one in metadata.versions]
    assert texts == ["SELECT 1 AS n", "SELECT 2 AS n, 'x' AS s", "SELECT 3 AS n"]
    assert metadata.view_uuid == made.metadata.view_uuid
    assert [one.version_id for one in metadata.version_log] == [1, 2, 3]
    assert metadata.current_version().summary["engine-name"] == "Spark"


@with_views
def test_what_is_shown(spark, lake, sql):
    spark.sql("USE lake.raw")
    spark.sql("CREATE VIEW seen (x COMMENT 'an x', y) COMMENT 'what' AS SELECT id, k FROM events")
    assert sql("SHOW VIEWS IN lake.raw") == [("raw", "seen", False)]
    assert ("raw", "events", False) in sql("SHOW TABLES IN lake.raw")
    assert sql("DESCRIBE seen") == [("x", "bigint", "an x"), ("y", "string", None)]
    told = {row[0]: row[1] for row in sql("DESCRIBE EXTENDED seen")}
    assert told["Comment"] == "what"
    assert told["View Text"] == "SELECT id, k FROM events"
    shown = sql("SHOW CREATE TABLE seen")[0][0]
    spark.sql("DROP VIEW seen")
    spark.sql(shown)
    assert sql("SELECT count(x) FROM seen") == [(4,)]
    assert spark.catalog.tableExists("lake.raw.seen")


@with_views
def test_dropping_and_renaming(spark, lake, sql):
    spark.sql("CREATE VIEW lake.raw.seen AS SELECT 1 AS n")
    spark.sql("ALTER VIEW lake.raw.seen RENAME TO raw.other")
    spark.sql("ALTER VIEW lake.raw.other RENAME TO lake.raw.third")
    assert lake.list_views() == ["raw.third"]
    spark.sql("ALTER TABLE lake.raw.events RENAME TO lake.raw.renamed")
    assert lake.list_tables() == ["raw.renamed"]
    spark.sql("DROP VIEW lake.raw.third")
    spark.sql("DROP VIEW IF EXISTS lake.raw.third")
    assert lake.list_views() == []
    spark.sql("CREATE VIEW lake.raw.seen AS SELECT 1 AS n")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_EMPTY"):
        spark.sql("DROP NAMESPACE lake.raw")
    spark.sql("DROP NAMESPACE lake.raw CASCADE")
    assert lake.list_namespaces() == []


@with_views
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("SELECT * FROM lake.raw.nothing", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELECT * FROM lake.raw.broken", "TABLE_OR_VIEW_NOT_FOUND"),
        ("DROP VIEW lake.raw.nothing", "VIEW_NOT_FOUND"),
        ("CREATE VIEW lake.raw.seen AS SELECT 1", "ALREADY_EXISTS"),
        ("CREATE VIEW lake.raw.events AS SELECT 1", "ALREADY_EXISTS"),
        ("CREATE VIEW lake.no.seen AS SELECT 1", "SCHEMA_NOT_FOUND"),
        ("CREATE OR REPLACE VIEW lake.raw.events AS SELECT 1", "EXPECT_VIEW_NOT_TABLE"),
        ("CREATE OR REPLACE VIEW lake.raw.seen AS SELECT * FROM lake.raw.seen", "RECURSIVE_VIEW"),
        ("CREATE VIEW lake.raw.bad AS SELECT nothing FROM lake.raw.events", "UNRESOLVED_COLUMN"),
        ("CREATE VIEW lake.raw.bad (a, b) AS SELECT 1", "NOT_ENOUGH_DATA_COLUMNS"),
        ("CREATE TABLE lake.raw.seen (a INT)", "ALREADY_EXISTS"),
        ("CREATE TABLE lake.raw.seen AS SELECT 1 AS a", "ALREADY_EXISTS"),
        ("CREATE OR REPLACE TABLE lake.raw.seen (a INT)", "ViewAlreadyExistsError"),
        ("ALTER TABLE lake.raw.events RENAME TO raw.seen", "ALREADY_EXISTS"),
        ("ALTER VIEW lake.raw.seen RENAME TO raw.events", "ALREADY_EXISTS"),
        ("DROP TABLE lake.raw.seen", "WRONG_COMMAND_FOR_OBJECT_TYPE"),
        ("DROP VIEW lake.raw.events", "WRONG_COMMAND_FOR_OBJECT_TYPE"),
        ("INSERT INTO lake.raw.seen VALUES (1)", "TABLE_OR_VIEW_NOT_FOUND"),
        ("DELETE FROM lake.raw.seen", "(?s)."),
    ],
)
def test_errors_are_those_of_spark(spark, lake, text, error):
    spark.sql("CREATE VIEW lake.raw.seen AS SELECT 1 AS n")
    gone = lake.create_table("raw.gone", ROWS.schema)
    spark.sql("CREATE VIEW lake.raw.broken AS SELECT * FROM lake.raw.gone")
    lake.drop_table(gone.name)
    before = lake.list_views(), lake.list_tables()
    with pytest.raises((AnalysisException, IllegalArgumentException), match=error):
        spark.sql(text).collect()
    assert (lake.list_views(), lake.list_tables()) == before
    assert lake.load_view("raw.seen").sql() == "SELECT 1 AS n"


@with_views
def test_views_of_other_engines(spark, lake, sql):
    pair = pa.schema({"a": pa.int64(), "b": pa.string()})
    lake.create_view("raw.renaming", "SELECT id, k FROM events", pair)
    lake.create_view("raw.trino", {"trino": "SELECT id AS a, k AS b FROM raw.events"}, pair)
    lake.create_view("raw.star", {"trino": "SELECT * FROM (VALUES (1, 'x')) AS t (p, q)"}, pair)
    for name in ("renaming", "trino"):
        assert sql(f"SELECT a, b FROM lake.raw.{name} WHERE a = 2") == [(2, "b")]
    assert sql("SELECT a, b FROM lake.raw.star") == [(1, "x")]
    lake.create_view("raw.odd", {"klingon": "SELECT 1"}, pair)
    with pytest.raises(IllegalArgumentException, match=r"raw\.odd has no SQL in spark"):
        sql("SELECT * FROM lake.raw.odd")
    with pytest.raises(IllegalArgumentException, match="trino"):
        spark.sql("ALTER VIEW lake.raw.trino AS SELECT 1 AS a, 'x' AS b")
    spark.sql("ALTER VIEW lake.raw.trino SET TBLPROPERTIES ('replace.drop-dialect.allowed'='true')")
    spark.sql("ALTER VIEW lake.raw.trino AS SELECT 1 AS a, 'x' AS b")
    assert sql("SELECT a, b FROM lake.raw.trino") == [(1, "x")]
    # as Iceberg's own Spark catalog leaves them
    lake.create_view(
        "raw.theirs",
        "SELECT id, k FROM lake.raw.events",
        pair,
        properties={"spark.query-column-names": "id,k"},
    )
    assert sql("SELECT max(a), max(b) FROM lake.raw.theirs") == [(4, "c")]


@with_views
def test_what_is_kept_is_what_the_specification_has(spark, lake, tmp_path):
    spark.sql("CREATE VIEW lake.raw.seen AS SELECT id FROM lake.raw.events")
    with sqlite3.connect(tmp_path / "catalog.db") as database:
        rows = database.execute(
            "SELECT table_name, iceberg_type FROM iceberg_tables ORDER BY 1"
        ).fetchall()
    assert rows == [("events", "TABLE"), ("seen", "VIEW")]
    location = lake.load_view("raw.seen").metadata_location
    document = json.loads(lake.catalog.storage(location).read(location))
    assert document["properties"] == {"spark.query-column-names": "id"}
    assert document["versions"][0]["default-catalog"] == "spark_catalog"
    assert document["versions"][0]["representations"] == [
        {"type": "sql", "sql": "SELECT id FROM lake.raw.events", "dialect": "spark"}
    ]


@with_views
def test_views_in_folders(spark, tmp_path, sql):
    lake = lh.load_catalog(str(tmp_path / "folders"))
    lake.create_table("raw.events", ROWS.schema).append(ROWS)
    attach(spark, lake, name="folders")
    spark.sql("CREATE VIEW folders.raw.seen AS SELECT max(id) AS m FROM folders.raw.events")
    spark.sql("CREATE OR REPLACE VIEW folders.raw.seen AS SELECT min(id) AS m FROM lake.raw.events")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql("SELECT * FROM folders.raw.nothing")
    spark.sql("DROP VIEW folders.raw.seen")
    assert lake.list_views() == []


@pytest.mark.skipif(ASKS_FOR_VIEWS, reason="this Spark asks catalogs for views")
def test_a_spark_that_asks_for_no_views_says_so(spark, lake, sql):
    lake.create_view("raw.seen", "SELECT 1 AS n", pa.schema({"n": pa.int32()}))
    with pytest.raises(UnsupportedOperationException, match=r"lake\.raw\.seen is a view.*4\.2"):
        sql("SELECT * FROM lake.raw.seen")
    with pytest.raises(AnalysisException, match="VIEW"):
        spark.sql("CREATE VIEW lake.raw.other AS SELECT 1 AS n")
    assert sql("SELECT count(*) FROM lake.raw.events") == [(5,)]


def test_sql_that_cannot_be_translated_is_said(lake):
    odd = lake.create_view("raw.odd", {"klingon": "SELECT 1"}, pa.schema({"a": pa.int64()}))
    with pytest.raises(InvalidViewError, match=r"raw\.odd.*klingon"):
        odd.sql("spark")
