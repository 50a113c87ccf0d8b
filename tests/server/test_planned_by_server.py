"""Our client has scans planned by the server, and finds the rows that Arrow finds."""

from __future__ import annotations

import datetime as dt
import decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.partitioning import PartitionSpec

import lakehouse as lh
from lakehouse.errors import CorruptMetadataError, UnsupportedFeatureError
from lakehouse.expressions.bound_filter import TRUE
from lakehouse.server.operations import scan_operations
from lakehouse.table.served_plan import tasks_from_json
from tests.conformance.managed_rest import CLIENT, NAME, SECRET, managed_rest
from tests.server.conftest import open_lake, serve

DAY = dt.date(2026, 1, 1)
ROWS = pa.table(
    {
        "id": pa.array(range(400), pa.int64()),
        "day": pa.array([DAY + dt.timedelta(days=n // 40) for n in range(400)], pa.date32()),
        "at": pa.array(
            [dt.datetime(2026, 1, 1, n % 24, tzinfo=dt.UTC) for n in range(400)],
            pa.timestamp("us", "UTC"),
        ),
        "name": pa.array([None if n % 7 == 0 else f"n{n % 50}" for n in range(400)]),
        "price": pa.array([decimal.Decimal(n) / 4 for n in range(400)], pa.decimal128(9, 2)),
        "share": pa.array([float("nan") if n % 9 == 0 else n / 7 for n in range(400)]),
        "flag": pa.array([n % 3 == 0 for n in range(400)]),
    }
)
FILTERS = {
    "id = 7": pc.field("id") == 7,
    "id IN (3, 300) AND flag": pc.field("id").isin([3, 300]) & pc.field("flag"),
    "day >= '2026-01-09'": pc.field("day") >= DAY + dt.timedelta(days=8),
    "day < '2026-01-02' OR name = 'n8'": (pc.field("day") < DAY + dt.timedelta(days=1))
    | (pc.field("name") == "n8"),
    "name IS NULL AND id > 350": pc.field("name").is_null() & (pc.field("id") > 350),
    "name LIKE 'n4%'": pc.starts_with(pc.field("name"), "n4"),
    "NOT name = 'n4'": pc.field("name") != "n4",
    "price <= 1.25": pc.field("price") <= decimal.Decimal("1.25"),
    "share > 50 AND NOT isnan(share)": (pc.field("share") > 50) & ~pc.is_nan(pc.field("share")),
    "at = '2026-01-01 05:00:00+00:00'": pc.field("at") == dt.datetime(2026, 1, 1, 5, tzinfo=dt.UTC),
    "id + 1 = 8": pc.field("id") == 7,
}


@pytest.fixture(scope="module", params=[2, 3])
def tables(request, tmp_path_factory):
    """The same table, planned by the server and by us."""
    lake = open_lake("sqlite", tmp_path_factory.mktemp("planned"))
    table = lake.create_table(
        "planned.t",
        ROWS.schema,
        format_version=request.param,
        partition_by=["day(day)", "bucket(3, name)"],
        properties={"write.delete.mode": "merge-on-read"},
    )
    table.append(ROWS.slice(0, 250))
    table.append(ROWS.slice(250))
    table.delete(where="id % 10 = 0")
    with serve(lake) as server:
        served = lh.load_catalog(server.url, **{"scan-planning-mode": "server"})
        yield served.load_table("planned.t"), table


LIVE = ROWS.filter(pc.field("id").isin([n for n in range(400) if n % 10]))


@pytest.mark.parametrize("where", FILTERS)
def test_the_rows_are_those(tables, where):
    served, _ = tables
    scan = served.scan(where=where)
    assert scan.plan().report.notes == ["planned by the catalog's server"]
    found = sorted(scan.to_arrow()["id"].to_pylist())
    assert found == sorted(LIVE.filter(FILTERS[where])["id"].to_pylist())
    assert scan.count() == len(found)


def test_the_server_leaves_files_out(tables):
    served, ours = tables
    where = "day = '2026-01-03'"
    planned = served.scan(where=where).plan()
    assert len(planned.files) == len(ours.scan(where=where).plan().files)
    assert len(planned.files) < len(served.scan().plan().files)
    assert served.scan().count() == LIVE.num_rows
    assert planned.locations().num_rows == len(planned.files)


def test_of_many_files_there_are_several_answers(tables, monkeypatch):
    served, ours = tables
    monkeypatch.setattr(scan_operations, "TASKS_MAX", 4)
    plan = served.scan(where="id > 1").plan()
    assert {file.file_path for file in plan.files} == {
        file.file_path for file in ours.scan(where="id > 1").plan().files
    }
    assert sorted(served.scan().to_arrow()["id"].to_pylist()) == LIVE["id"].to_pylist()


def test_snapshots_and_what_was_appended_between(tables):
    served, _ = tables
    first, second, _ = served.snapshots()
    assert served.scan(snapshot_id=first.snapshot_id).count() == 250
    appended = served.scan_appends(first.snapshot_id, second.snapshot_id)
    assert appended.to_arrow().num_rows == 150


def test_what_a_server_does_not_tell_is_refused(tables):
    served, _ = tables
    with pytest.raises(UnsupportedFeatureError, match="_last_updated_sequence_number"):
        served.scan(select=["id", "_last_updated_sequence_number"]).plan()


def test_a_server_that_wants_to_plan_has_to(tmp_path):
    with managed_rest(tmp_path) as server:
        lake = lh.load_catalog(server.url, warehouse=NAME, credential=f"{CLIENT}:{SECRET}")
        table = lake.create_table("m.t", ROWS.schema)
        server.policy.config = {"scan-planning-mode": "server"}
        lake = lh.load_catalog(server.url, warehouse=NAME, credential=f"{CLIENT}:{SECRET}")
        with pytest.raises(UnsupportedFeatureError, match="does not plan"):
            lake.load_table("m.t").scan()
        assert table.scan().count() == 0


def vector(name, offset):
    return {
        "content": "position-deletes",
        "file-path": "s3://b/v.puffin",
        "file-format": "puffin",
        "spec-id": 0,
        "partition": [],
        "file-size-in-bytes": 100,
        "record-count": 1,
        "referenced-data-file": name,
        "content-offset": offset,
        "content-size-in-bytes": 40,
    }


def test_a_vector_is_of_the_file_that_it_names():
    """As Iceberg's Java 1.11 answers where vectors share a Puffin file (apache/iceberg 17497)."""
    data = {
        "content": "data",
        "file-format": "parquet",
        "spec-id": 0,
        "partition": [],
        "file-size-in-bytes": 100,
        "record-count": 2,
    }
    tasks = [
        {"data-file": {**data, "file-path": name}, "delete-file-references": [1]}
        for name in ("s3://b/one", "s3://b/two")
    ]
    page = {
        "delete-files": [vector("s3://b/one", 4), vector("s3://b/two", 46)],
        "file-scan-tasks": tasks,
    }
    found = tasks_from_json(page, {0: PartitionSpec()}, {}, TRUE)
    assert [one.deletes[0].content_offset for one in found] == [4, 46]
    page["delete-files"][0] = vector("s3://b/three", 4)
    with pytest.raises(CorruptMetadataError, match="s3://b/one"):
        tasks_from_json(page, {0: PartitionSpec()}, {}, TRUE)
