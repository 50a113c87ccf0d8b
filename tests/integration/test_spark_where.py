"""The argument `where` of procedures, beside the rows that Spark finds by the same condition."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from tests.integration.spark_support import configured, lake, session

__all__ = ["lake", "session"]

pytestmark = pytest.mark.spark

COLUMNS = (
    "id BIGINT, k STRING, at TIMESTAMP, wall TIMESTAMP_NTZ, day DATE, amount DOUBLE, part FLOAT, "
    "price DECIMAL(9, 2), small INT, ok BOOLEAN, Mixed STRING, raw BINARY, `a b.c` INT"
)
ROWS = [
    "1, 'k1', TIMESTAMP '2026-01-01 23:30:00', TIMESTAMP_NTZ '2026-01-01 23:30:00', "
    "DATE '2026-01-01', 1.5, 1.5F, 1.10, 1, true, 'M', X'01', 1",
    "2, 'k2', TIMESTAMP '2026-01-05 00:30:00', TIMESTAMP_NTZ '2026-01-05 00:30:00', "
    "DATE '2026-01-05', -0.0D, -0.0F, -2.25, 200, false, 'm', X'02FF', 2",
    "3, 'it''s', TIMESTAMP '2026-02-01 12:00:00', TIMESTAMP_NTZ '2026-02-01 12:00:00', "
    "DATE '2026-02-01', double('NaN'), float('NaN'), 3.00, -7, true, NULL, NULL, 3",
    "4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL",
    "5, 'K1', TIMESTAMP '2027-03-01 00:00:00', TIMESTAMP_NTZ '2027-03-01 00:00:00', "
    "DATE '2027-03-01', double('Infinity'), 7.25F, 9.99, 7, false, 'x_y', X'FF', 5",
]
CONDITIONS = [
    'id >= 1 and k = "k2"',
    "k = 'k2' OR `id` = 3",
    "k = \"it's\" OR k = '\"no'",
    r"k = 'it\'s'",
    r"k = '\u006b1'",
    "at = TIMESTAMP '2026-01-05 00:30:00'",
    "at >= TIMESTAMP '2026-01-05 00:30:00Z' AND at < '2026-02-02'",
    "at BETWEEN DATE '2026-01-02' AND DATE'2026-02-28'",
    "at < TIMESTAMP '2026-01-05 00:00:00 America/New_York'",
    "wall > TIMESTAMP_NTZ '2026-01-05 00:30:00'",
    "wall = '2026-02-01 12:00'",
    "day = '2026-01-05'",
    "day <> DATE '2026-01-05'",
    "day NOT IN ('2026-01-05', DATE '2026-02-01')",
    "date(at) = '2026-02-01'",
    "CAST(wall AS DATE) < DATE '2026-01-05'",
    "date_trunc('MONTH', wall) = TIMESTAMP_NTZ '2027-03-01 00:00:00' OR year(day) = 2027",
    "day > DATE '2026-01-01' + INTERVAL 1 MONTH",
    "at < current_timestamp() - INTERVAL 400 YEARS",
    "id IN (1, 2.0, 4)",
    "ID not in (1, 3)",
    "mixed = 'M'",
    "MIXED LIKE 'x%'",
    "k LIKE 'k%' AND NOT k LIKE 'k2%'",
    "startswith(k, 'K')",
    "k IS NULL",
    "k IS NOT NULL AND NOT (small > 0)",
    "NOT (k = 'k1' OR small > 100)",
    "k <=> NULL",
    "amount > 1e0",
    "amount = 0",
    "amount <= 1.5 OR isnan(amount)",
    "part >= 1.5",
    "price > 1 AND price < 3.001",
    "small = 200L",
    "small > '100'",
    "small BETWEEN -10 AND 1",
    "ok",
    "NOT ok",
    "ok = false AND id > 2",
    "raw = X'02FF'",
    "`a b.c` = 5",
    "rows.id = 2",
    "1 = 1",
    "id = id + 1 AND 1 = 0",
    "false OR id < 2",
]
CALL = "CALL lake.system.rewrite_data_files(table => 'raw.rows', options => map({}), where => {})"
ALL = "'rewrite-all', 'true', 'min-input-files', '1'"


@pytest.fixture(params=["UTC", "Europe/Berlin"])
def zone(request, spark):
    with configured(spark, {"spark.sql.session.timeZone": request.param}):
        yield request.param


@pytest.fixture
def table(zone, spark, session, lake):
    """Each row in a file, and the same rows in memory."""
    spark.sql("CREATE NAMESPACE lake.raw")
    spark.sql(f"CREATE TABLE lake.raw.rows ({COLUMNS})")
    schema = spark.table("lake.raw.rows").schema
    for row in ROWS:
        spark.sql(f"INSERT INTO lake.raw.rows VALUES ({row})")
    spark.createDataFrame(spark.table("lake.raw.rows").collect(), schema).createOrReplaceTempView(
        "rows"
    )
    return lake.load_table("raw.rows")


def chosen(spark, table, where):
    """How many files a condition chooses, and the table as it was."""
    quoted = "'" + where.replace("\\", "\\\\").replace("'", "\\'") + "'"
    rewritten = spark.sql(CALL.format(ALL, quoted)).first()[0]
    head = table.current_snapshot().snapshot_id
    spark.sql(f"CALL lake.system.set_current_snapshot('raw.rows', {head})")
    return rewritten


def test_files_are_chosen_by_the_rows_that_spark_finds(spark, table):
    wrong = []
    for where in CONDITIONS:
        found = spark.sql(f"SELECT count(*) FROM rows WHERE {where}").first()[0]
        try:
            files = chosen(spark, table, where)
        except PySparkException as error:
            files = str(error)
        if files != found:
            wrong.append((where, found, files))
    assert wrong == []


@pytest.mark.parametrize("names", ["false", "true"], ids=["text", "names"])
def test_double_quotes_mean_what_the_session_says(spark, table, zone, names):
    asked = {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.ansi.doubleQuotedIdentifiers": names,
        "spark.sql.caseSensitive": names,
    }
    with configured(spark, asked):
        if names == "true":
            assert chosen(spark, table, "\"k\" = 'k1' AND \"Mixed\" = 'M'") == 1
            with pytest.raises(PySparkException, match=r"UNRESOLVED_COLUMN.*`K`"):
                chosen(spark, table, "K = 'k1'")
        else:
            assert chosen(spark, table, "K = \"k1\" AND MIXED = 'M'") == 1


@pytest.mark.parametrize(
    ("where", "told"),
    {
        "upper(k) = 'K1' AND id > 0": r"raw\.rows: files cannot be chosen by .*upper.*K1.*possible",
        "id > 1 OR rand() < 0.5": r"raw\.rows: files cannot be chosen by .*rand.*possible are",
        "k LIKE '%1'": "files cannot be chosen by .*1",
        "id % 2 = 0": "files cannot be chosen by .*2",
        "id IN (SELECT 1)": r"raw\.rows.*possible are",
        "nothing = 1": r"raw\.rows.*UNRESOLVED_COLUMN.*nothing",
        "id >": r"raw\.rows.*PARSE_SYNTAX_ERROR",
        "id": r"raw\.rows.*FILTER_NOT_BOOLEAN",
        "k = 1 AND day = 'never'": r"raw\.rows.*CAST_INVALID_INPUT",
        "": r"raw\.rows.*PARSE",
        "count(*) > 1": r"raw\.rows.*aggregate",
    }.items(),
)
def test_what_chooses_no_files_is_said(spark, lake, session, where, told):
    spark.sql("CREATE NAMESPACE lake.raw")
    spark.sql("CREATE TABLE lake.raw.rows (id BIGINT, k STRING, day DATE)")
    with pytest.raises(PySparkException, match=rf"(?s){told}"):
        spark.sql(CALL.format(ALL, '"' + where + '"')).collect()
