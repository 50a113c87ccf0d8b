"""What users get wrong is answered with an error of ours that says what to write instead."""

from __future__ import annotations

import datetime as dt
import uuid

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import InvalidInputError, InvalidPropertyError, NoSuchSnapshotError

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string())])
ROWS = pa.table({"id": [1, 2], "s": ["a", "b"]})


@pytest.fixture
def catalog():
    return lh.load_catalog(f"memory://mistakes-{uuid.uuid4().hex}/warehouse")


@pytest.fixture
def table(catalog):
    table = catalog.create_table("t.rows", SCHEMA)
    table.append(ROWS)
    return table


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([{"id": 1, "s": "x"}], "from_pylist"),
        ([ROWS.to_batches()[0], "x"], "not str"),
        ({"id": [1]}, "not dict"),
        ("x", "not str"),
        (5, "not int"),
        ([None], "NoneType"),
    ],
)
def test_rows_in_another_form(table, data, message):
    with pytest.raises(InvalidInputError, match=message):
        table.append(data)
    assert table.scan().count() == 2


def test_several_tables_are_rows(table):
    table.append([ROWS, ROWS.to_batches()[0]])
    table.append(one for one in (ROWS, ROWS))
    assert table.scan().count() == 10


@pytest.mark.parametrize("moment", [dt.date(2026, 1, 1), 1.5, True, [1]])
def test_a_point_in_time_in_another_form(table, moment):
    with pytest.raises(InvalidInputError, match="not a point in time"):
        table.scan(as_of=moment)


def test_a_point_in_time_before_the_table(table):
    with pytest.raises(
        NoSuchSnapshotError, match=r"1970-01-01T00:00:00\.005\+00:00.* begins at 20"
    ):
        table.scan(as_of=5)


@pytest.mark.parametrize(("value", "text"), [(4, "'4'"), (True, "'true'"), (None, "'None'")])
def test_property_values_that_are_no_text(catalog, table, value, text):
    for name in ("commit.retry.num-retries", "format-version"):
        with pytest.raises(InvalidPropertyError, match=f"must be strings.* write {text}"):
            table.set_properties({name: value})
        with pytest.raises(InvalidPropertyError, match=f"must be strings.* write {text}"):
            catalog.create_table("t.other", SCHEMA, properties={name: value})
