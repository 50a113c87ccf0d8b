"""Options of reads and writes: honoured, refused, or warned of."""

from __future__ import annotations

import logging

import pytest
from pyspark.sql import functions as F  # noqa: N812

from tests.integration.spark_support import lake, session, sql

__all__ = ["lake", "session", "sql"]

pytestmark = pytest.mark.spark


@pytest.fixture
def table(sql):
    sql("CREATE NAMESPACE IF NOT EXISTS lake.o")
    sql("CREATE TABLE lake.o.t (id BIGINT, p STRING) USING iceberg PARTITIONED BY (p)")
    sql("INSERT INTO lake.o.t VALUES (1, 'a'), (2, 'b')")
    return "lake.o.t"


@pytest.fixture
def new(spark):
    return spark.createDataFrame([(9, "b")], "id bigint, p string")


def rows(sql):
    return sorted(sql("SELECT id, p FROM lake.o.t"))


def head(sql):
    return sql("SELECT snapshot_id FROM lake.o.t.refs WHERE name = 'main'")[0][0]


@pytest.mark.parametrize("mode", ["dynamic", "DYNAMIC", "static", None])
def test_the_mode_of_an_overwrite_says_which_rows_go(sql, table, new, mode):
    writer = new.write.mode("overwrite")
    (writer if mode is None else writer.option("overwrite-mode", mode)).insertInto(table)
    kept = [(1, "a")] if mode and mode.lower() == "dynamic" else []
    assert rows(sql) == [*kept, (9, "b")]


REPLACING = {
    "condition": lambda writer: writer.overwrite(F.col("p") == "b"),
    "partitions": lambda writer: writer.overwritePartitions(),
}
OTHERS = {
    "INSERT INTO lake.o.t VALUES (3, 'b')": {"serializable"},
    "DELETE FROM lake.o.t WHERE id = 2": {"serializable", "snapshot"},
    "INSERT INTO lake.o.t VALUES (3, 'a')": set(),
}


@pytest.mark.parametrize("how", REPLACING)
@pytest.mark.parametrize("level", ["serializable", "snapshot"])
@pytest.mark.parametrize("other", OTHERS)
def test_what_others_did_since_the_snapshot_read_is_a_conflict(sql, table, new, how, level, other):
    read = head(sql)
    sql(other)
    before = rows(sql)
    writer = new.writeTo(table).option("isolation-level", level)
    writer = writer.option("validate-from-snapshot-id", read)
    if level in OTHERS[other]:
        with pytest.raises(Exception, match="ValidationConflictError"):
            REPLACING[how](writer)
        assert rows(sql) == before
    else:
        REPLACING[how](writer)
        assert rows(sql) == sorted([*(row for row in before if row[1] != "b"), (9, "b")])


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("overwrite-mode", "sometimes"),
        ("isolation-level", "none"),
        ("write-format", "orc"),
        ("output-spec-id", "77"),
        ("validate-from-snapshot-id", "1"),
        ("compression-codec", "magic"),
        ("target-file-size-bytes", "-1"),
        ("distribution-mode", "magic"),
    ],
)
def test_a_write_option_that_cannot_be_honoured_is_refused(sql, table, new, option, text):
    with pytest.raises(Exception, match=text):
        new.writeTo(table).option(option, text).append()
    assert rows(sql) == [(1, "a"), (2, "b")]


def test_the_codec_of_a_write_is_that_of_its_files(lake, table, new):
    import pyarrow.parquet as pq

    new.writeTo(table).option("compression-codec", "snappy").append()
    found = {
        pq.read_metadata(file.file_path.removeprefix("file://")).row_group(0).column(0).compression
        for file in lake.load_table("o.t").scan().plan().files
    }
    assert found == {"ZSTD", "SNAPPY"}


def test_options_hold_for_a_new_table_too(spark, lake, table, new):
    with pytest.raises(Exception, match="write-format=orc"):
        new.writeTo("lake.o.made").option("write-format", "orc").create()
    assert not lake.table_exists("o.made")
    new.writeTo("lake.o.made").option("write-format", "parquet").create()
    assert [tuple(row) for row in spark.table("lake.o.made").collect()] == [(9, "b")]


def test_options_that_nothing_honours_are_warned_of(spark, sql, table, new, caplog):
    with caplog.at_level(logging.WARNING, "lakehouse.spark"):
        new.writeTo(table).option("overwrite-mod", "dynamic").append()
        assert "write option overwrite-mod" in caplog.text
        spark.read.option("split-sise", "1").table(table).collect()
        assert "read option split-sise" in caplog.text


def test_a_read_option_that_chooses_rows_is_refused(spark, table):
    with pytest.raises(Exception, match="create_changelog_view"):
        spark.read.option("start-timestamp", "1").table(table).collect()
