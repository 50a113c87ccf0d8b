"""Column defaults of every type, from schema change to rows (spec: Default values)."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

import lakehouse as lh

DEFAULTS = {
    "boolean": True,
    "int": 5,
    "long": -5,
    "float": 1.5,
    "double": 2.5,
    "decimal(9, 2)": "1.50",
    "date": "2020-01-01",
    "time": "10:00:00",
    "timestamp": "2020-01-01T00:00:00.000001",
    "timestamptz": "2020-01-01T00:00:00.000001+00:00",
    "timestamp_ns": "2020-01-01T00:00:00.123456789",
    "timestamptz_ns": "2020-01-01T00:00:00.123456789+00:00",
    "string": "x",
    "uuid": str(uuid.UUID(int=5)),
    "fixed[3]": "616263",
    "binary": "616263",
    "struct<x: int>": {},
}


def table_with_row():
    catalog = lh.load_catalog(f"memory://defaults-{uuid.uuid4().hex}/warehouse")
    table = catalog.create_table("t.rows", pa.schema({"i": pa.int64()}), format_version=3)
    table.append(pa.table({"i": [1]}))
    return table


@pytest.mark.parametrize("kind", DEFAULTS)
def test_rows_of_old_and_new_files_have_it(kind):
    table = table_with_row()
    with table.update_schema() as change:
        change.add_column("x", kind, default=DEFAULTS[kind])
    table.append(pa.table({"i": [2]}))
    rows = table.scan(where="x is not null").to_arrow().sort_by("i")
    assert rows["i"].to_pylist() == [1, 2]
    assert rows["x"][0] == rows["x"][1]
    table.delete(where="i = 2")
    table.compact()
    assert table.scan().to_arrow().equals(rows.slice(0, 1))


def test_a_struct_takes_the_defaults_of_its_fields():
    table = table_with_row()
    with table.update_schema() as change:
        change.add_column("s", "struct<x: int>", default={})
    with table.update_schema() as change:
        change.add_column("s.y", "int", default=7)
    table.append(pa.table({"i": [2]}))
    table.append(pa.table({"i": [3], "s": [{"x": 1}]}))
    rows = table.scan().to_arrow().sort_by("i")["s"].to_pylist()
    assert rows == [{"x": None, "y": 7}, {"x": None, "y": 7}, {"x": 1, "y": 7}]
    assert table.scan(where="s.y = 7 and s.x is null").count() == 2
