"""Partition statistics: the file of the specification, its figures as pyiceberg counts them."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.table import StaticTable
from pyiceberg.transforms import DayTransform
from typer.testing import CliRunner

from lakehouse.cli import app
from lakehouse.errors import InvalidInputError
from lakehouse.lake import load_catalog
from lakehouse.spec.manifests.data_file import CONTENT_EQUALITY_DELETES, DataFile
from lakehouse.storage.location import local_path
from tests.table_census import take_census

COUNTED = {
    "record_count": "data_record_count",
    "file_count": "data_file_count",
    "total_data_file_size_in_bytes": "total_data_file_size_in_bytes",
    "position_delete_record_count": "position_delete_record_count",
    "equality_delete_record_count": "equality_delete_record_count",
    "equality_delete_file_count": "equality_delete_file_count",
    "last_updated_snapshot_id": "last_updated_snapshot_id",
}
FIELDS = {
    1: ("partition", True),
    2: ("spec_id", True),
    3: ("data_record_count", True),
    4: ("data_file_count", True),
    5: ("total_data_file_size_in_bytes", True),
    6: ("position_delete_record_count", None),
    7: ("position_delete_file_count", None),
    8: ("equality_delete_record_count", None),
    9: ("equality_delete_file_count", None),
    10: ("total_record_count", False),
    11: ("last_updated_at", False),
    12: ("last_updated_snapshot_id", False),
    13: ("dv_count", True),
}


@pytest.fixture
def lake(tmp_path):
    return load_catalog(f"file://{tmp_path}/warehouse")


def rows(ids, region="eu"):
    return pa.table({"id": ids, "region": [None if n % 4 == 0 else region for n in ids]})


def make(lake, version):
    """Rows of three inserts under two specs, some of them deleted."""
    table = lake.create_table(
        "raw.parts",
        rows([1]).schema,
        partition_by=["region"],
        properties={"format-version": str(version), "write.delete.mode": "merge-on-read"},
    )
    table.append(rows(range(20)))
    table.append(rows(range(20, 50), "us"))
    with table.update_partition_spec() as update:
        update.add("bucket(2, id)")
    table.append(rows(range(50, 90), "ap"))
    return table


def read(table, result):
    assert result.location == table.metadata.partition_statistics[-1]["statistics-path"]
    return pq.read_table(local_path(result.location))


@pytest.mark.parametrize("version", [2, 3])
def test_figures_are_those_of_pyiceberg_and_of_the_rows(lake, version):
    table = make(lake, version)
    table.delete("id in (3, 21, 22, 60)")
    found = read(table, table.compute_partition_statistics())
    theirs = StaticTable.from_metadata(table.metadata_location).inspect.partitions()
    ours = {_key(row): row for row in found.to_pylist()}
    assert len(ours) == found.num_rows == theirs.num_rows
    for row in theirs.to_pylist():
        mine = ours[_key(row)]
        assert {ours: mine[ours] for ours in COUNTED.values()} == {
            ours: row[name] for name, ours in COUNTED.items()
        }
        deleted = row["position_delete_file_count"]
        told = (mine["position_delete_file_count"], mine.get("dv_count", 0))
        assert told == ((0, deleted) if version == 3 else (deleted, 0))
        assert mine["last_updated_at"] == row["last_updated_at"].timestamp() * 1000
    left = Counter(row["region"] for row in table.scan().to_arrow().to_pylist())
    totals = Counter()
    for row in ours.values():
        totals[row["partition"]["region"]] += row["total_record_count"] or 0
    assert totals == (left if version == 3 else Counter(dict.fromkeys(left, 0)))


def _key(row):
    return row["spec_id"], tuple(row["partition"].values())


@pytest.mark.parametrize("version", [2, 3])
def test_columns_have_the_ids_of_the_specification(lake, version):
    table = make(lake, version)
    location = local_path(table.compute_partition_statistics().location)
    schema = pyarrow_to_schema(pq.read_schema(location))
    told = {field.field_id: (field.name, field.required) for field in schema.fields}
    expected = {
        field_id: (name, version == 3 if required is None else required)
        for field_id, (name, required) in FIELDS.items()
        if version == 3 or field_id != 13
    }
    assert told == expected
    partition = schema.find_field(1).field_type
    assert [(field.field_id, field.name, field.required) for field in partition.fields] == [
        (1000, "region", False),
        (1001, "id_bucket_2", False),
    ]
    struct = pq.read_table(location)["partition"].to_pylist()
    assert [tuple(one.values()) for one in struct] == [
        (None, None),
        (None, 0),
        (None, 1),
        ("ap", 0),
        ("ap", 1),
        ("eu", None),
        ("us", None),
    ]


def test_equality_deletes_leave_the_number_of_rows_open(lake):
    table = make(lake, 3)
    path = f"{local_path(table.location)}/data/eq.parquet"
    field = pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"})
    pq.write_table(pa.table([pa.array([1, 2])], schema=pa.schema([field])), path)
    delete = DataFile(
        content=CONTENT_EQUALITY_DELETES,
        file_path=path,
        record_count=2,
        file_size_in_bytes=1,
        equality_ids=(1,),
        partition=("eu",),
        spec_id=0,
    )
    table.refresh().transaction().row_delta(delete_files=[delete]).commit()
    found = {
        _key(one): one for one in read(table, table.compute_partition_statistics()).to_pylist()
    }
    told = found[(0, ("eu", None))]
    assert (told["equality_delete_record_count"], told["equality_delete_file_count"]) == (2, 1)
    assert {one["total_record_count"] for one in found.values()} == {None}


def test_a_dropped_field_of_version_1_keeps_its_type(lake, tmp_path):
    theirs = SqlCatalog(
        "theirs", uri=f"sqlite:///{tmp_path}/theirs.db", warehouse=f"file://{tmp_path}/warehouse"
    )
    theirs.create_namespace("raw")
    old = theirs.create_table(
        "raw.old",
        pa.schema([("n", pa.int64()), ("at", pa.timestamp("us"))]),
        properties={"format-version": "1"},
    )
    with old.update_spec() as update:
        update.add_field("at", DayTransform(), "at_day").add_identity("n")
    moments = pa.array([0, 3 * 86_400_000_000], pa.timestamp("us"))
    old.append(pa.table({"n": [1, 2], "at": moments}))
    with old.update_spec() as update:
        update.remove_field("at_day")
    old.append(pa.table({"n": [5], "at": moments[:1]}))
    table = lake.register_table("raw.old", old.metadata_location)
    found = read(table, table.compute_partition_statistics())
    assert found["partition"].type.field("at_day").type == pa.date32()
    days = [one["at_day"] for one in found["partition"].to_pylist()]
    assert [None if day is None else day.isoformat() for day in days] == [
        None,
        "1970-01-01",
        "1970-01-04",
    ]
    partitions = table.inspect.partitions()["partition"].to_pylist()
    assert sorted(str(partition["at_day"]) for partition in partitions) == sorted(map(str, days))


def test_a_snapshot_keeps_its_file_and_expiry_takes_it_away(lake):
    table = make(lake, 2)
    first = table.compute_partition_statistics()
    again = table.compute_partition_statistics()
    assert (again.location, again.partitions) == (first.location, None)
    table.append(rows([100]))
    table.compute_partition_statistics()
    assert len(table.metadata.partition_statistics) == 2
    census = take_census(table.catalog, table.identifier)
    assert (census.missing, census.unreachable) == (frozenset(), frozenset())
    table.expire_snapshots(older_than=table.current_snapshot().timestamp_ms, retain_last=1)
    assert not table.storage.exists(first.location)
    assert len(table.refresh().metadata.partition_statistics) == 1


def test_a_table_without_partitions_is_refused(lake):
    table = lake.create_table("raw.flat", rows([1]).schema)
    table.append(rows([1]))
    with pytest.raises(InvalidInputError, match="is not partitioned"):
        table.compute_partition_statistics()


def test_the_command_line(lake, tmp_path):
    table = make(lake, 3)
    command = ["analyze", "raw.parts", "--partitions", "--json"]
    command += ["--catalog", f"file://{tmp_path}/warehouse"]
    planned = CliRunner().invoke(app, [*command, "--dry-run"])
    assert json.loads(planned.stdout)["manifests"] == 3
    assert not table.refresh().metadata.partition_statistics
    assert json.loads(CliRunner().invoke(app, command).stdout)["partitions"] == 7
    assert CliRunner().invoke(app, [*command, "--column", "id"]).exit_code
