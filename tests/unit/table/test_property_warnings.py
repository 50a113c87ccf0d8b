"""What is set and nothing honours is named, at each door of ours."""

from __future__ import annotations

import logging
import uuid

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import InvalidPropertyError
from lakehouse.spec.table_properties import all_properties

SCHEMA = pa.schema({"id": pa.int64()})
DOORS = {
    "create": lambda lake, given: lake.create_table("t.new", SCHEMA, properties=given),
    "staged": lambda lake, given: lake.create_table("t.new", SCHEMA, properties=given, staged=True),
    "set": lambda lake, given: lake.load_table("t.rows").set_properties(given),
    "transaction": lambda lake, given: (
        lake.load_table("t.rows").transaction().set_properties(given).commit()
    ),
}


@pytest.fixture
def lake():
    lake = lh.load_catalog(f"memory://{uuid.uuid4().hex}/warehouse")
    lake.create_table("t.rows", SCHEMA)
    return lake


@pytest.mark.parametrize("door", DOORS)
def test_each_that_does_nothing_is_named(lake, caplog, door):
    given = {"nonsense": "1", "write.upsert.enabled": "true", "write.delete.mod": "x"}
    with caplog.at_level(logging.WARNING):
        DOORS[door](lake, {**given, "gc.enabled": "false", "comment": "a", "format-version": "3"})
    told = [record.getMessage() for record in caplog.records]
    assert [line.split()[1] for line in told] == sorted(given)
    assert "is it write.delete.mode?" in told[1]
    assert all(line.startswith("t.") and "docs/properties.md" in line for line in told)


@pytest.mark.parametrize("door", DOORS)
def test_what_is_honoured_is_taken_without_a_word(lake, caplog, door):
    given = {
        one.name: str(one.default).lower()
        for one in all_properties()
        if isinstance(one.default, str | int | float)
    }
    with caplog.at_level(logging.WARNING):
        DOORS[door](lake, given)
    assert not caplog.records
    with pytest.raises(InvalidPropertyError, match="orc"):
        DOORS[door](lake, {"write.format.default": "orc"})


def test_what_others_set_says_nothing_when_the_table_is_used(lake, caplog):
    table = lake.load_table("t.rows")
    table.set_properties({"write.upsert.enabled": "true"})
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        table.append(pa.table({"id": [1]}))
        lake.load_table("t.rows").delete("id = 1")
    assert not caplog.records
