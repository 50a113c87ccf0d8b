"""`variant_get` in filters, against the values that went into the variants."""

from __future__ import annotations

import datetime as dt
import json
import random
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StructType

import lakehouse as lh
from lakehouse.errors import InvalidExpressionError
from lakehouse.expressions.functions.variant_paths import normalized_path, variant_get
from lakehouse.spec.schema.iceberg_types import VariantType
from lakehouse.spec.types.arrow_types import VARIANT
from lakehouse.spec.types.variant_values import encode_variant

SCHEMA = Schema(
    NestedField(1, "i", LongType(), required=False),
    NestedField(2, "v", VariantType(), required=False),
    NestedField(3, "s", StructType(NestedField(4, "v", VariantType(), required=False)),
                required=False),
)  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    chance = random.Random(37)
    return [
        chance.choice([
            None,
            {},
            {"a": {"b": chance.randrange(5), "c d": chance.choice(["x", "y", None])}},
            {"a": [chance.randrange(5), {"b": chance.randrange(5)}]},
            {"a": None},
            [{"a": 1}],
            7,
        ])
        for _ in range(300)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def table(rows, tmp_path_factory):
    lake = lh.load_catalog(tmp_path_factory.mktemp("lake"))
    lake.create_namespace("d")
    table = lake.create_table("d.t", SCHEMA, properties={"format-version": "3"})
    texts = pa.array([None if row is None else json.dumps(row) for row in rows], pa.json_())
    table.append(pa.table({"i": range(len(rows)), "v": texts}))
    return table.refresh()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("variant_get(v, '$.a.b', 'int') > 2", "(v->>'$.a.b')::INT > 2"),
        ("NOT variant_get(v, '$.a.b', 'bigint') = 1", "NOT (v->>'$.a.b')::BIGINT = 1"),
        ("variant_get(v, '$.a.b', 'int') IS NULL", "v->>'$.a.b' IS NULL"),
        ("variant_get(v, '$.a[1].b', 'double') >= 1", "(v->>'$.a[1].b')::DOUBLE >= 1"),
        ("variant_get(v, '$[''a''][\"c d\"]', 'string') = 'x'", "v->>'$.a.\"c d\"' = 'x'"),
        ("variant_get(v, '$[0].a', 'int') = 1 OR i < 3", "(v->>'$[0].a')::INT = 1 OR i < 3"),
    ],
)  # fmt: skip
def test_the_rows_are_those_that_duckdb_finds_in_the_json(table, rows, ours, theirs):
    given = [(i, None if row is None else json.dumps(row)) for i, row in enumerate(rows)]
    known = pa.table({"i": [i for i, _ in given], "v": [text for _, text in given]})
    with duckdb.connect() as con:
        con.register("known", known)
        right = con.sql(f"SELECT i FROM (SELECT i, v::JSON AS v FROM known) WHERE {theirs}")
        wanted = sorted(row[0] for row in right.fetchall())
    assert 0 < len(wanted) < len(rows)
    assert sorted(table.scan(where=ours).to_arrow()["i"].to_pylist()) == wanted


@pytest.mark.parametrize(
    ("value", "kind", "found"),
    [
        (2**31 - 1, "int", 2**31 - 1),
        (-(2**63), "bigint", -(2**63)),
        (True, "boolean", True),
        (3, "double", 3.0),
        (Decimal("1.25"), "double", 1.25),
        (dt.date(1969, 1, 1), "date", dt.date(1969, 1, 1)),
        (dt.datetime(1969, 1, 1, tzinfo=dt.UTC), "timestamp",
         dt.datetime(1969, 1, 1, tzinfo=dt.UTC)),
        (b"\0", "binary", b"\0"),
        (None, "int", None),
    ],
)  # fmt: skip
def test_values_come_as_the_type(value, kind, found):
    assert got(value, kind) == [found]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (2**31, "int"),
        (-(2**15) - 1, "smallint"),
        (True, "int"),
        ("1", "int"),
        (1.0, "bigint"),
        (1, "string"),
        (dt.datetime(2020, 1, 1), "timestamp"),  # noqa: DTZ001
        (dt.datetime(2020, 1, 1), "date"),  # noqa: DTZ001
        ({"a": 1}, "string"),
    ],
)
def test_a_value_of_another_kind_is_an_error(value, kind):
    with pytest.raises(pa.ArrowInvalid, match="is no"):
        got(value, kind)


def got(value, kind):
    metadata, encoded = encode_variant(value)
    column = pa.array([{"metadata": metadata, "value": encoded}], VARIANT)
    return variant_get(column, pa.scalar("$"), pa.scalar(kind)).to_pylist()


@pytest.mark.parametrize(
    "where",
    [
        "variant_get(i, '$.a', 'int') = 1",
        "variant_get(v, 'a', 'int') = 1",
        "variant_get(v, '$.a.', 'int') = 1",
        "variant_get(v, '$.a', 'array') = 1",
        "variant_get(v, '$.a') = 1",
        "variant_get(v, '$', 'int') = 7",
    ],
)
def test_what_cannot_be_asked_is_said(table, where):
    with pytest.raises(InvalidExpressionError, match="variant_get"):
        table.scan(where=where).to_arrow()


def test_rows_are_deleted_by_what_is_in_a_variant(tmp_path: Path):
    lake = lh.load_catalog(tmp_path / "lake")
    lake.create_namespace("d")
    table = lake.create_table("d.t", SCHEMA, properties={"format-version": "3"})
    table.append(pa.table({"i": [1, 2, 3], "v": [{"a": 1}, {"a": 2}, None]}))
    table.refresh().delete(where="variant_get(v, '$.a', 'int') = 2")
    assert sorted(table.refresh().scan().to_arrow()["i"].to_pylist()) == [1, 3]


@pytest.mark.parametrize(
    ("path", "spelled"),
    [
        ("$", "$"),
        ("$.a.b", "$['a']['b']"),
        ("$['a b'][\"c\"]", "$['a b']['c']"),
        ('$["it\'s"]', r"$['it\'s']"),
        ("$.a\\\t\x01", r"$['a\\\t\u0001']"),
        ("$.a[0].b", None),
    ],
)
def test_paths_are_spelled_as_rfc_9535_normalizes_them(path, spelled):
    assert normalized_path(path) == spelled
