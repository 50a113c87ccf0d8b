"""Tables that accept any columns, and get new ones with the rows (`mergeSchema`)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException
from pyspark.sql.functions import col, lit

from tests.integration.spark_support import configured, lake, session

__all__ = ["lake", "session"]

pytestmark = pytest.mark.spark
ACCEPTS = {"write.spark.accept-any-schema": "true"}
NAME = "lake.raw.wide"


@pytest.fixture(params=["", "day", "bucket(2, id)"])
def table(request, lake, session):
    schema = pa.schema([("id", pa.int32()), ("day", pa.date32()), ("name", pa.string())])
    by = [request.param] if request.param else []
    table = lake.create_table("raw.wide", schema, partition_by=by, properties=ACCEPTS)
    session.spark.sql(f"INSERT INTO {NAME} (id, day, name) VALUES (1, DATE '2026-01-01', 'a')")
    return table.refresh()


@pytest.fixture(params=["option", "older option", "setting"])
def written(request, spark):
    """A write that asks for columns to be merged, in each way there is."""
    if request.param == "setting":
        with configured(spark, {"spark.sql.iceberg.merge-schema": "true"}):
            yield lambda frame: frame.writeTo(NAME)
    else:
        key = "mergeSchema" if request.param == "option" else "merge-schema"
        yield lambda frame: frame.writeTo(NAME).option(key, "true")


def columns(table):
    return [one.name for one in table.schema().fields]


def rows(spark):
    return sorted((tuple(one) for one in spark.table(NAME).collect()), key=repr)


def test_new_columns_come_in_the_commit_of_the_rows(spark, table, written):
    frame = spark.sql(
        "SELECT 7 AS extra, 'b' AS name, 2L AS id, DATE '2026-01-02' AS day, "
        "named_struct('x', 1, 'y', array('q')) AS place"
    )
    before = len(table.metadata.metadata_log)
    written(frame).append()
    after = table.refresh()
    assert len(after.metadata.metadata_log) == before + 1
    assert after.current_snapshot().schema_id == after.metadata.current_schema_id
    assert columns(after) == ["id", "day", "name", "extra", "place"]
    found = spark.sql(f"SELECT id, name, extra, place.x, place.y[0] FROM {NAME} ORDER BY id")
    assert [tuple(one) for one in found.collect()] == [
        (1, "a", None, None, None),
        (2, "b", 7, 1, "q"),
    ]
    assert spark.table(NAME).schema["id"].dataType.simpleString() == "bigint"
    first = after.snapshots()[0].snapshot_id
    old = spark.sql(f"SELECT * FROM {NAME} VERSION AS OF {first}")
    assert old.columns == ["id", "day", "name"]
    # what was read by Spark is read by others too
    assert lake_rows(after) == [(1, None), (2, 7)]


def lake_rows(table):
    found = table.scan(select=["id", "extra"]).to_arrow().to_pylist()
    return sorted((one["id"], one["extra"]) for one in found)


def test_without_the_option_further_columns_are_refused(spark, table):
    wider = spark.sql("SELECT 2 AS id, 'b' AS name, 7 AS extra")
    with pytest.raises(AnalysisException, match="EXTRA_COLUMNS"):
        wider.writeTo(NAME).append()
    with pytest.raises(AnalysisException, match="EXTRA_COLUMNS"):
        spark.sql(f"INSERT INTO {NAME} VALUES (2, DATE '2026-01-01', 'b')")
    assert len(table.refresh().snapshots()) == 1


def test_rows_are_matched_by_name_with_sparks_rules(spark, table):
    spark.sql("SELECT 'b' AS NAME, 2L AS id").writeTo(NAME).append()
    spark.sql(f"INSERT INTO {NAME} (name, id) VALUES ('c', 3)")
    spark.sql(f"INSERT INTO {NAME} BY NAME SELECT 4 AS id")
    assert [one[0::2] for one in rows(spark)] == [(1, "a"), (2, "b"), (3, "c"), (4, None)]
    with pytest.raises(AnalysisException, match="CANNOT_SAFELY_CAST"):
        spark.sql("SELECT 'x' AS id").writeTo(NAME).append()
    with pytest.raises(PySparkException, match="CAST_OVERFLOW"):
        spark.sql("SELECT 9999999999L AS id").writeTo(NAME).append()
    assert spark.table(NAME).count() == 4


def test_other_writes_merge_columns_too(spark, table, written):
    wider = spark.sql("SELECT 2 AS id, DATE '2026-01-01' AS day, 'b' AS name, 1 AS one")
    written(wider).overwrite(col("id") == 1)
    assert rows(spark) == [(2, wider.first().day, "b", 1)]
    wider = wider.withColumn("two", lit(2))
    written(wider).overwritePartitions()
    kept = rows(spark)
    assert (2, wider.first().day, "b", 1, 2) in kept
    spark.sql(f"UPDATE {NAME} SET two = 3")
    spark.sql(f"DELETE FROM {NAME} WHERE two IS NULL")
    source = "(SELECT 2 AS id, 'm' AS name)"
    spark.sql(
        f"MERGE INTO {NAME} t USING {source} s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = s.name"
    )
    assert rows(spark) == [(2, wider.first().day, "m", 1, 3)]


def test_a_failed_write_leaves_columns_as_they_were(spark, table, written):
    frame = spark.sql("SELECT 2 AS id, raise_error('no') AS extra FROM range(3)")
    with pytest.raises(PySparkException):
        written(frame.selectExpr("id", "CAST(extra AS INT) AS extra")).append()
    with pytest.raises(PySparkException):
        written(spark.sql("SELECT 2 AS id, INTERVAL '1' DAY AS extra")).append()
    after = table.refresh()
    assert columns(after) == ["id", "day", "name"]
    assert len(after.snapshots()) == 1


def test_nested_fields_are_merged(spark, lake, session):
    lake.create_namespace("raw")
    spark.sql(
        f"CREATE TABLE {NAME} (id INT, s STRUCT<a: INT>, l ARRAY<STRUCT<a: INT>>, "
        "m MAP<STRING, STRUCT<a: INT>>, d DECIMAL(9, 2), f FLOAT) "
        "TBLPROPERTIES ('write.spark.accept-any-schema' = 'true', 'format-version' = '3')"
    )
    wider = spark.sql(
        "SELECT 1 AS id, named_struct('B', 'x', 'A', 2L) AS s, array(named_struct('a', 1, 'b', 2)) "
        "AS l, map('k', named_struct('b', 3, 'a', 1)) AS m, CAST(1.5 AS DECIMAL(12, 2)) AS d, "
        "1.5D AS f"
    )
    wider.writeTo(NAME).option("mergeSchema", "true").append()
    found = spark.sql(f"SELECT s.a, s.B, l[0].b, m['k'].b, d, f, _row_id FROM {NAME}").collect()
    assert [(*map(str, one),) for one in found] == [("2", "x", "2", "3", "1.50", "1.5", "0")]
    names = lake.load_table("raw.wide").schema().column_names
    assert {"s.a", "s.B", "l.element.b", "m.value.b"} <= set(names)
    assert "s.A" not in names
    with pytest.raises((AnalysisException, IllegalArgumentException)):
        spark.sql("SELECT 'x' AS s").writeTo(NAME).option("mergeSchema", "true").append()


def test_without_the_property_spark_refuses(spark, lake, session):
    lake.create_table("raw.wide", pa.schema([("id", pa.int32())]))
    wider = spark.sql("SELECT 2 AS id, 7 AS extra")
    with pytest.raises(AnalysisException, match=r"TOO_MANY_DATA_COLUMNS|EXTRA_COLUMNS"):
        wider.writeTo(NAME).option("mergeSchema", "true").append()


MERGES = (
    "WHEN NOT MATCHED THEN INSERT *",
    "WHEN NOT MATCHED AND s.id > 2 THEN INSERT (name, id) VALUES (s.name, s.id)",
    "WHEN MATCHED AND s.name = 'x' THEN DELETE WHEN NOT MATCHED THEN INSERT *",
    "WHEN NOT MATCHED BY SOURCE THEN DELETE",
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
)


@pytest.mark.parametrize("clauses", MERGES)
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_any_merge_does_what_it_does_elsewhere(spark, lake, session, clauses, mode):
    """With columns in another order and of another case, one more of them, and the setting."""
    lake.create_namespace("raw")
    spark.sql(
        "SELECT 'x' AS NAME, CAST(id AS INT) AS id, 5 AS more, DATE '2026-02-02' AS day "
        "FROM range(1, 5)"
    ).createOrReplaceTempView("merged_source")
    with configured(spark, {"spark.sql.iceberg.merge-schema": "true"}):
        for name, properties in (("wide", ACCEPTS), ("narrow", {})):
            told = {**properties, "write.merge.mode": mode}
            schema = pa.schema([("id", pa.int32()), ("day", pa.date32()), ("name", pa.string())])
            lake.create_table(f"raw.{name}", schema, partition_by=["day"], properties=told)
            spark.sql(
                f"INSERT INTO lake.raw.{name} (id, day, name) VALUES (1, DATE '2026-01-01', 'a'), "
                "(7, DATE '2026-01-01', 'b'), (2, NULL, 'c')"
            )
            spark.sql(
                f"MERGE INTO lake.raw.{name} t USING merged_source s ON t.id = s.id {clauses}"
            )
    expected = sorted((tuple(one) for one in spark.table("lake.raw.narrow").collect()), key=repr)
    assert rows(spark) == expected
    assert columns(lake.load_table("raw.wide")) == ["id", "day", "name"]


@pytest.mark.parametrize("by", ["weird.name", "inside.n"])
def test_rows_come_in_the_order_of_the_table(lake, spark, session, by, written):
    """As pyarrow finds them in the file: by a column with a dot in its name, by one in a struct."""
    inside = pa.struct([("n", pa.int32())])
    schema = pa.schema([("id", pa.int32()), ("weird.name", pa.int32()), ("inside", inside)])
    quoted = "`weird.name`" if by == "weird.name" else by
    table = lake.create_table("raw.wide", schema, sort_by=[quoted], properties=ACCEPTS)
    frame = spark.sql(
        "SELECT int(id) AS id, int(id * 7 % 50) AS `weird.name`, "
        "named_struct('n', int(id * 11 % 50)) AS inside, 'x' AS added FROM range(50)"
    )
    written(frame.coalesce(1)).append()
    (file,) = table.refresh().scan().plan().files
    found = pq.read_table(file.file_path.removeprefix("file://"))
    assert "added" in found.column_names
    values = found[by] if by == "weird.name" else pc.struct_field(found["inside"], "n")
    assert values.to_pylist() == sorted(values.to_pylist())
