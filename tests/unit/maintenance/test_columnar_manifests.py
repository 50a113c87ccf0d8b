"""Columnar manifests beside those of another writer: planning finds the same files."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

import lakehouse as lh
from lakehouse.maintenance.manifest_rewrite import execute_columnar, plan_columnar
from lakehouse.scan.planner import ScanRequest, plan_scan


def test_twins_of_a_foreign_table_are_written_once_and_read(tmp_path):
    foreign = SqlCatalog(
        "foreign", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse"
    )
    foreign.create_namespace("raw")
    theirs = foreign.create_table("raw.events", schema=pa.schema([("x", pa.int64())]))
    for start in range(0, 50, 10):
        theirs.append(pa.table({"x": pa.array(range(start, start + 10), pa.int64())}))
    lake = lh.load_catalog(
        f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse", name="foreign"
    )
    table = lake.load_table("raw.events")
    request = ScanRequest(metadata=table.metadata, where="x >= 42")
    before = plan_scan(request, table.storage)
    assert before.report.data_manifests.read_columnar == 0

    plan = plan_columnar(table.catalog, table.identifier)
    assert len(plan.missing) == plan.manifests == 5
    result = execute_columnar(table.catalog, plan)
    assert result.written == 5
    table.refresh()
    assert result.snapshot_id == table.metadata.current_snapshot_id
    assert dict(table.current_snapshot().summary)["operation"] == "replace"

    after = plan_scan(ScanRequest(metadata=table.metadata, where="x >= 42"), table.storage)
    assert after.report.data_manifests.read_columnar == 5
    assert [f.file_path for f in after.files] == [f.file_path for f in before.files]
    assert len(after.files) == 1
    assert plan_columnar(table.catalog, table.identifier).missing == ()
    assert execute_columnar(table.catalog, plan).snapshot_id is None, "each has one by now"
    for found in (theirs.refresh().scan("x >= 42").to_arrow(), table.scan("x >= 42").to_arrow()):
        assert sorted(found["x"].to_pylist()) == list(range(42, 50))
