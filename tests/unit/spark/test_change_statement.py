"""Statements that change tables, taken apart without Spark."""

from __future__ import annotations

import pytest

from lakehouse.errors import InvalidInputError
from lakehouse.spark.change_statement import (
    CreateTable,
    Delete,
    DropTable,
    Insert,
    NotHere,
    Update,
    parse_change,
)


def test_create_table_with_everything():
    text = """create table if not exists raw.`my events` (
        id BIGINT NOT NULL COMMENT 'the, id', tags ARRAY<STRING>, price DECIMAL(9,2), at TIMESTAMP
    ) USING iceberg
    PARTITIONED BY (days(at), bucket(16, id), truncate(4, name), `region`)
    TBLPROPERTIES ('write.format.default' = 'parquet', a.b = 'c, d')
    COMMENT 'all of them' LOCATION 'file:///data/x';"""
    assert parse_change(text) == CreateTable(
        name=("raw", "my events"),
        if_not_exists=True,
        columns="id BIGINT NOT NULL COMMENT 'the, id', tags ARRAY<STRING>, price DECIMAL(9,2), at TIMESTAMP",
        partition_by=("day(at)", "bucket(16, id)", "truncate(4, name)", "region"),
        properties={"write.format.default": "parquet", "a.b": "c, d", "comment": "all of them"},
        location="file:///data/x",
        query=None,
    )


def test_create_table_as():
    found = parse_change(
        "CREATE TABLE a.b USING lakehouse PARTITIONED BY (k) AS SELECT id, ')' AS k FROM c.d WHERE x IN (1, 2)"
    )
    assert isinstance(found, CreateTable)
    assert (found.columns, found.partition_by) == (None, ("k",))
    assert found.query == "SELECT id, ')' AS k FROM c.d WHERE x IN (1, 2)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INSERT INTO a.b VALUES (1, 'x')", Insert(("a", "b"), None, False, "VALUES (1, 'x')")),
        (
            "insert into table a.b (`k`, id) SELECT 1, 2",
            Insert(("a", "b"), ("k", "id"), False, "SELECT 1, 2"),
        ),
        ("INSERT INTO a.b (SELECT 1)", Insert(("a", "b"), None, False, "(SELECT 1)")),
        (
            "INSERT INTO a.b BY NAME FROM c SELECT *",
            Insert(("a", "b"), None, True, "FROM c SELECT *"),
        ),
        (
            "DELETE FROM a.b WHERE k = 'WHERE' and (id > 3)",
            Delete(("a", "b"), "k = 'WHERE' and (id > 3)"),
        ),
        ("DELETE FROM a.b", Delete(("a", "b"), None)),
        (
            "UPDATE a.b SET k = concat(k, ', where'), id = id + 1 WHERE id IN (1, 2)",
            Update(("a", "b"), (("k", "concat(k, ', where')"), ("id", "id + 1")), "id IN (1, 2)"),
        ),
        ("UPDATE a.b SET k = NULL", Update(("a", "b"), (("k", "NULL"),), None)),
        ("DROP TABLE IF EXISTS a.b PURGE", DropTable(("a", "b"), True, True)),
        ("DROP TABLE a.b", DropTable(("a", "b"), False, False)),
    ],
)
def test_statements(text, expected):
    assert parse_change(text) == expected
    assert parse_change(f"/* first */ {text} ;") == expected


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("MERGE INTO a.b USING c ON a.id = c.id WHEN MATCHED THEN DELETE", "overwrite"),
        ("INSERT OVERWRITE a.b SELECT 1", "overwrite"),
        ("INSERT OVERWRITE TABLE a.b SELECT 1", "overwrite"),
        ("TRUNCATE TABLE a.b", "DELETE FROM"),
        ("ALTER TABLE a.b ADD COLUMN c INT", "update_schema"),
        ("CREATE OR REPLACE TABLE a.b USING lakehouse AS SELECT 1", "overwrite"),
        ("INSERT INTO a.b PARTITION (k = 1) SELECT 1", "BY NAME"),
    ],
)
def test_what_sql_does_not_do_names_what_does(text, word):
    found = parse_change(text)
    assert isinstance(found, NotHere)
    assert found.name == ("a", "b")
    assert word in found.instead


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "CREATE TABLE a.b (id INT) USING parquet",
        "CREATE TABLE a.b (id INT)",
        "CREATE TABLE a.b LIKE c.d",
        "CREATE VIEW a.b AS SELECT 1",
        "SET x = 1",
        "",
    ],
)
def test_what_is_none_of_ours(text):
    assert parse_change(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE a.b USING lakehouse",
        "CREATE TABLE a.b (id INT) USING lakehouse AS SELECT 1",
        "CREATE TABLE a.b (id INT USING lakehouse",
        "CREATE TABLE a.b (id INT) USING lakehouse CLUSTERED BY (id)",
        "DELETE FROM a.b USING c",
        "UPDATE a.b AS x SET k = 1",
        "UPDATE a.b SET s.k = 1",
        "UPDATE a.b SET k =",
        "DROP TABLE a.b c",
        "DROP TABLE",
    ],
)
def test_what_is_half_a_change(text):
    with pytest.raises(InvalidInputError):
        parse_change(text)
