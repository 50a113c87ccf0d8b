"""Metadata tables, with pyiceberg's own as the oracle where it has one."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

import lakehouse.lake
from lakehouse.errors import InvalidInputError, NoSuchSnapshotError
from lakehouse.inspect.metadata_tables import METADATA_TABLES

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("name", pa.string()),
        pa.field("price", pa.decimal128(10, 2)),
    ]
)
_COMPARABLE = {
    "content",
    "file_path",
    "file_format",
    "record_count",
    "file_size_in_bytes",
    "column_sizes",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
    "split_offsets",
}


def data(start, day):
    at = dt.datetime(2026, 6, day, 12, tzinfo=dt.UTC)
    return pa.table(
        {
            "id": [start, start + 1, None],
            "day": [dt.date(1969, 12, 31), dt.date(2026, 6, day), None],
            "at": [at, at, None],
            "name": ["a" * 30, "é", None],
            "price": pa.array([None, "1.50", "-2.25"]).cast(pa.decimal128(10, 2)),
        },
        schema=SCHEMA,
    )


@pytest.fixture
def table(tmp_path):
    lake = lakehouse.lake.load_catalog(str(tmp_path / "warehouse"))
    found = lake.create_table("raw.events", SCHEMA, partition_by=["day(at)", "bucket(4, id)"])
    found.append(data(1, 2))
    found.append(data(10, 3))
    found.delete("id = 1")
    found.create_tag("first", found.snapshots()[0].snapshot_id)
    return found


def sorted_rows(arrow, *keys):
    return sorted(arrow.to_pylist(), key=lambda row: tuple(str(row[key]) for key in keys))


def test_snapshots_history_and_refs_agree_with_pyiceberg(table):
    theirs = StaticTable.from_metadata(table.metadata_location).inspect
    ours = table.inspect
    for mine, other in zip(
        ours.snapshots().to_pylist(), theirs.snapshots().to_pylist(), strict=True
    ):
        assert mine["committed_at"].replace(tzinfo=None) == other.pop("committed_at")
        assert {key: mine[key] for key in ("snapshot_id", "parent_id", "manifest_list")} == {
            key: other[key] for key in ("snapshot_id", "parent_id", "manifest_list")
        }
        assert mine["operation"] == other["operation"].lower().removeprefix("operation.")
        assert dict(mine["summary"]) == dict(other["summary"])
    assert (
        ours.history().drop_columns(["made_current_at"]).to_pylist()
        == theirs.history().drop_columns(["made_current_at"]).to_pylist()
    )
    assert sorted_rows(ours.refs(), "name") == sorted_rows(theirs.refs(), "name")


def test_files_agree_with_pyiceberg(table):
    theirs = sorted_rows(
        StaticTable.from_metadata(table.metadata_location).inspect.files(), "file_path"
    )
    ours = sorted_rows(table.inspect.files(), "file_path")
    for mine, other in zip(ours, theirs, strict=True):
        assert {key: mine[key] for key in _COMPARABLE} == {key: other[key] for key in _COMPARABLE}
        assert mine["readable_metrics"].keys() == other["readable_metrics"].keys()
        for column, metrics in other["readable_metrics"].items():
            assert mine["readable_metrics"][column]["value_count"] == metrics["value_count"]
            assert (
                mine["readable_metrics"][column]["null_value_count"] == metrics["null_value_count"]
            )


def test_partitions_agree_with_pyiceberg(table):
    theirs = StaticTable.from_metadata(table.metadata_location).inspect.partitions()
    ours = table.inspect.partitions()
    assert ours.schema.field("partition").type == theirs.schema.field("partition").type
    columns = [name for name in theirs.column_names if name != "last_updated_at"]
    assert sorted_rows(ours.select(columns), "partition") == sorted_rows(
        theirs.select(columns), "partition"
    )


def test_manifests_agree_with_pyiceberg(table):
    theirs = sorted_rows(
        StaticTable.from_metadata(table.metadata_location).inspect.manifests(), "path"
    )
    ours = sorted_rows(table.inspect.manifests(), "path")
    for mine, other in zip(ours, theirs, strict=True):
        shared = set(other) - {"partition_summaries"}
        assert {key: mine[key] for key in shared} == {key: other[key] for key in shared}
        assert len(mine["partition_summaries"]) == len(other["partition_summaries"])


def test_entries_hold_the_deleted_file_too(table):
    entries = table.inspect.entries()
    statuses = sorted(entries["status"].to_pylist())
    assert 2 in statuses
    assert entries.num_rows == len(statuses) > table.inspect.files().num_rows
    theirs = StaticTable.from_metadata(table.metadata_location).inspect.entries()
    keys = ("status", "snapshot_id", "sequence_number", "file_sequence_number")
    assert sorted(map(str, entries.select(keys).to_pylist())) == sorted(
        map(str, theirs.select(keys).to_pylist())
    )


def test_partition_values_have_the_type_of_the_transform(table):
    struct = table.inspect.files().schema.field("partition").type
    assert [(field.name, field.type) for field in struct] == [
        ("at_day", pa.date32()),
        ("id_bucket", pa.int32()),
    ]
    days = {row["at_day"] for row in table.inspect.files()["partition"].to_pylist()}
    assert days == {dt.date(2026, 6, 2), dt.date(2026, 6, 3), None}


def test_readable_bounds_are_values(table):
    lows = [
        row["day"]["lower_bound"] for row in table.inspect.files()["readable_metrics"].to_pylist()
    ]
    assert dt.date(1969, 12, 31) in lows


def test_metadata_log_ends_with_the_current_file(table):
    found = table.inspect.metadata_log_entries()
    assert found["file"][-1].as_py() == table.metadata_location
    assert found["latest_snapshot_id"][-1].as_py() == table.metadata.current_snapshot_id
    assert found["latest_snapshot_id"][0].as_py() is None


def test_all_tables_cover_every_snapshot(table):
    live = table.inspect.files()["file_path"].to_pylist()
    ever = set(table.inspect.all_data_files()["file_path"].to_pylist())
    assert set(live) < ever
    assert ever == {
        path
        for snapshot in table.snapshots()
        for path in table.inspect.files(snapshot.snapshot_id)["file_path"].to_pylist()
    }
    assert table.inspect.all_manifests()["key_metadata"].null_count > 0
    assert set(table.inspect.all_manifests()["reference_snapshot_id"].to_pylist()) == {
        snapshot.snapshot_id for snapshot in table.snapshots()
    }
    assert table.inspect.all_entries().num_rows >= len(ever)


def test_a_snapshot_can_be_chosen_and_an_unknown_one_is_an_error(table):
    first = table.snapshots()[0].snapshot_id
    assert sum(table.inspect.files(first)["record_count"].to_pylist()) == 3
    with pytest.raises(NoSuchSnapshotError):
        table.inspect.files(1)


def test_every_table_by_name_also_without_snapshots(tmp_path):
    lake = lakehouse.lake.load_catalog(str(tmp_path / "warehouse"))
    empty = lake.create_table("raw.empty", SCHEMA)
    for name in METADATA_TABLES:
        found = empty.inspect.table(name)
        assert isinstance(found, pa.Table)
        assert found.num_rows == (1 if name == "metadata_log_entries" else 0)
    with pytest.raises(InvalidInputError, match="all_manifests"):
        empty.inspect.table("nope")
    with pytest.raises(InvalidInputError, match="all snapshots"):
        empty.inspect.table("all_files", 1)


def test_an_evolved_spec_gives_one_struct_over_both(table):
    with table.update_partition_spec() as change:
        change.replace("bucket(4, id)", "truncate(1, name)")
    table.append(data(20, 4))
    struct = table.inspect.files().schema.field("partition").type
    assert [field.name for field in struct] == ["at_day", "id_bucket", "name_trunc_1"]
    by_spec = {}
    for row in table.inspect.files().to_pylist():
        by_spec.setdefault(row["spec_id"], []).append(row["partition"])
    assert all(one["name_trunc_1"] is None for one in by_spec[0])
    assert all(one["id_bucket"] is None for one in by_spec[1])


@pytest.mark.parametrize("version", [2, 3])
def test_position_deletes_are_the_rows_that_are_gone_of_each_file(tmp_path, version):
    lake = lakehouse.lake.load_catalog(str(tmp_path / "warehouse"))
    table = lake.create_table(
        "raw.events",
        SCHEMA,
        partition_by=["day(at)"],
        properties={"format-version": str(version), "write.delete.mode": "merge-on-read"},
    )
    table.append(data(1, 2))
    table.append(data(10, 3))
    first = table.delete("id = 1")
    table.delete("id = 10 and at is not null")
    found = table.inspect.position_deletes()
    files = table.inspect.data_files()["file_path"].to_pylist()
    # pyarrow reads all rows of the files, whatever is deleted
    held = {path: pq.read_table(path.removeprefix("file://"), columns=["id"]) for path in files}
    gone = {
        (path, position)
        for path, rows in held.items()
        for position, value in enumerate(rows["id"].to_pylist())
        if value in (1, 10)
    }
    listed = list(zip(found["file_path"].to_pylist(), found["pos"].to_pylist(), strict=True))
    assert len(listed) == len(gone) == 2
    assert set(listed) == gone
    assert found["row"].null_count == 2
    of_files = table.inspect.delete_files()
    by_path = dict(
        zip(
            of_files["file_path"].to_pylist(),
            of_files.select(["partition", "spec_id"]).to_pylist(),
            strict=True,
        )
    )
    for row in found.to_pylist():
        assert by_path[row["delete_file_path"]] == {
            "partition": row["partition"],
            "spec_id": row["spec_id"],
        }
    in_vectors = ["content_offset", "content_size_in_bytes"]
    assert found.schema.names[6:] == (in_vectors if version == 3 else [])
    assert version == 2 or None not in found["content_offset"].to_pylist()
    assert table.inspect.table("position_deletes", first.snapshot_id).num_rows == 1
