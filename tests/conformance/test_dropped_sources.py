"""pyiceberg's tables with dropped partition columns: old specs count, v1 keeps void fields."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable
from pyiceberg.transforms import IdentityTransform, YearTransform

import lakehouse as lh

SCHEMA = pa.schema([("id", pa.int64()), ("u", pa.string()), ("d", pa.date32())])
ROWS = {
    "id": [1, 2, 3],
    "u": ["a", "b", None],
    "d": [dt.date(1950, 1, 1), dt.date(1969, 12, 31), None],
}


@pytest.fixture(params=[1, 2])
def table(request, tmp_path, readers):
    theirs = SqlCatalog(
        "theirs", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse"
    )
    theirs.create_namespace("m")
    made = theirs.create_table("m.t", SCHEMA, properties={"format-version": str(request.param)})
    with made.update_spec() as spec:
        spec.add_field("u", IdentityTransform(), "u").add_field("d", YearTransform(), "d_year")
    made.append(pa.table(ROWS, schema=SCHEMA))
    with made.update_spec() as spec:
        spec.remove_field("u").remove_field("d_year")
    with made.update_schema() as schema:
        schema.delete_column("u").delete_column("d")
    theirs.engine.dispose()
    return readers.register_table(f"dropped.v{request.param}", made.metadata_location)


def ids(table, where=None, **point):
    return sorted(table.scan(where, **point).to_arrow()["id"].to_pylist())


def test_every_operation_goes_on(table):
    first = table.snapshots()[0].snapshot_id
    table.set_properties({"format-version": "2"})
    table.append(pa.table({"id": [4]}))
    assert ids(table) == [1, 2, 3, 4]
    assert ids(table, "id > 2") == [3, 4]
    assert table.inspect.partitions().num_rows == 4
    table.delete("id = 2")
    table.rewrite_manifests()
    assert ids(table) == [1, 3, 4]
    table.compact(lh.CompactionOptions(min_input_files=2))
    assert ids(table) == [1, 3, 4]
    assert sorted(
        StaticTable.from_metadata(table.metadata_location).scan().to_arrow()["id"].to_pylist()
    ) == [1, 3, 4]
    assert ids(table, "u = 'b'", snapshot_id=first) == [2]
    assert ids(table, "d < '1960-01-01'", snapshot_id=first) == [1]
    assert ids(table, "u is null", snapshot_id=first) == [3]
