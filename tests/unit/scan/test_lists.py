from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.manifests import manifest_cache as lists
from lakehouse.manifests.manifest_cache import ManifestCache, size_of
from lakehouse.manifests.manifest_reader import load_manifests
from lakehouse.spec.manifests.manifest_list import (
    FieldSummary,
    ManifestFile,
    read_manifest_list,
    write_manifest_list,
)

SCHEMA = pa.schema([("id", pa.int64()), ("region", pa.string()), ("amount", pa.float64())])


def manifest(number: int) -> ManifestFile:
    counts = dict.fromkeys(("added_files_count", "existing_files_count", "deleted_files_count"), 1)
    rows = dict.fromkeys(("added_rows_count", "existing_rows_count", "deleted_rows_count"), 5)
    return ManifestFile(
        manifest_path=f"m{number}.avro",
        manifest_length=1,
        partition_spec_id=0,
        added_snapshot_id=1,
        **counts,
        **rows,
    )


def listed(count: int) -> bytes:
    rows = [manifest(number) for number in range(count)]
    return write_manifest_list(
        rows, snapshot_id=1, parent_snapshot_id=None, sequence_number=1, format_version=2
    )[0]


@pytest.mark.parametrize("version", [2, 3])
def test_what_a_writer_remembers_is_what_the_file_says(tmp_path, version):
    lake = lh.load_catalog(tmp_path.as_uri())
    properties = {"write.delete.mode": "merge-on-read", "commit.manifest.min-count-to-merge": "4"}
    table = lake.create_table(
        "a.b", SCHEMA, partition_by=["region"], properties=properties, format_version=version
    )
    for number in range(6):
        table.append(
            pa.table([[number, number + 10], ["eu", "us"], [0.0, float("nan")]], schema=SCHEMA)
        )
    table.delete("id = 3 or region = 'us' and id > 12")
    table.compact(lh.maintenance.CompactionOptions(rewrite_all=True))
    table.rewrite_manifests()
    for snapshot in table.refresh().snapshots():
        assert load_manifests(table.storage, snapshot) == read_manifest_list(
            table.storage.read(snapshot.manifest_list)
        )
    assert table.metadata.format_version == version


def test_lists_are_decoded_once_and_known_by_their_bytes(monkeypatch):
    decoded = []
    monkeypatch.setattr(
        lists,
        "read_manifest_list",
        lambda data, where: decoded.append(where) or read_manifest_list(data, where),
    )
    kept, one, other = ManifestCache(), listed(2), listed(3)
    assert kept.listed(one, "a") == kept.listed(one, "b") == tuple(read_manifest_list(one))
    assert kept.listed(other, "a") == tuple(read_manifest_list(other)), "another of the same name"
    assert decoded == ["a", "a"]


def test_the_oldest_lists_are_dropped(monkeypatch):
    decoded = []
    monkeypatch.setattr(
        lists,
        "read_manifest_list",
        lambda data, where: decoded.append(where) or read_manifest_list(data, where),
    )
    kept = ManifestCache(5 * size_of([manifest(1)]))
    for count in (2, 3, 2, 4, 2, 9, 9):
        kept.listed(listed(count), str(count))
    assert decoded == ["2", "3", "4", "2", "9", "9"]


@pytest.mark.parametrize("fields", [0, 1, 3])
def test_no_list_takes_more_than_is_counted(fields):
    said = FieldSummary(contains_null=False, lower_bound=b"2018-02-01T", upper_bound=b"2018-02-02T")
    rows = [
        replace(
            manifest(number),
            manifest_path=f"s3://bucket/warehouse/namespace/table/metadata/{number:0100d}.avro",
            partitions=(said,) * fields or None,
            manifest_length=10_000 + number,
            sequence_number=1_000 + number,
            min_sequence_number=1_000 + number,
            added_snapshot_id=2**62 + number,
            added_rows_count=10**6 + number,
            existing_rows_count=10**6 + number,
        )
        for number in range(2000)
    ]
    data = write_manifest_list(
        rows, snapshot_id=1, parent_snapshot_id=None, sequence_number=1, format_version=2
    )[0]
    read_manifest_list(data)
    tracemalloc.start()
    try:
        found = read_manifest_list(data)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert size_of(found) / 2 < taken <= size_of(found)
