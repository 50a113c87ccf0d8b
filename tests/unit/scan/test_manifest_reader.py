"""One door to the entries of manifests: the same entries, however they were decoded."""

from __future__ import annotations

import datetime as dt
import io
from collections import Counter
from dataclasses import replace

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile as TheirManifest

import lakehouse as lh
from lakehouse.errors import CorruptMetadataError
from lakehouse.maintenance.compaction.compaction_plan import plan_compaction
from lakehouse.manifests import manifest_reader
from lakehouse.manifests.avro_decoding import bulk_decode, decode_entries
from lakehouse.manifests.manifest_cache import DEFAULT_CACHE
from lakehouse.manifests.manifest_reader import ManifestReader, inherit, load_manifests
from lakehouse.spec.manifests.data_file import STATUS_ADDED
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.metadata.table_metadata import types_of
from lakehouse.storage.local import LocalStorage


def columns_of(entries: Entries) -> dict[str, list[object]]:
    """Values by column; a column of nulls is as good as none."""
    found = {name: entries.table[name].to_pylist() for name in entries.table.column_names}
    return {
        name: values for name, values in found.items() if any(value is not None for value in values)
    }


@pytest.fixture(params=[2, 3])
def table(request, tmp_path):
    lake = lh.load_catalog(str(tmp_path))
    made = lake.create_table(
        "ns.t",
        pa.schema({"id": pa.int64(), "city": pa.string(), "x": pa.float64()}),
        partition_by=["city"],
        properties={
            "format-version": str(request.param),
            "write.delete.mode": "merge-on-read",
        },
    )
    for n in range(4):
        cities = ["Oslo", "Rome", None][: n % 3 + 1]
        ids = [n, n + 1, n + 2][: len(cities)]
        made.append(pa.table({"id": ids, "city": cities, "x": [0.5] * len(ids)}))
    many = [f"c{n}" for n in range(40)]
    made.append(pa.table({"id": list(range(40)), "city": many, "x": [float(n) for n in range(40)]}))
    made.delete(where="city = 'Rome'")  # entries that exist, and deleted ones
    made.append(pa.table({"id": [100, 101], "city": ["Oslo"] * 2, "x": [0.0, 1.0]}))
    made.delete(where="id = 100")  # a delete file
    assert {one.content for one in manifests_of(made)} == {0, 1}
    return made


def manifests_of(table):
    return load_manifests(table.storage, table.metadata.current_snapshot())


def test_each_is_what_fastavro_and_pyiceberg_read(table):
    reader = ManifestReader.of(table.storage, table.metadata)
    for manifest in manifests_of(table):
        entries = reader.entries(manifest).to_manifest_entries()
        raw = list(fastavro.reader(io.BytesIO(table.storage.read(manifest.manifest_path))))
        assert [entry.data_file.file_path for entry in entries] == [
            row["data_file"]["file_path"] for row in raw
        ]
        theirs = TheirManifest.from_args(
            manifest_path=manifest.manifest_path,
            manifest_length=manifest.manifest_length,
            partition_spec_id=manifest.partition_spec_id,
            content=manifest.content,
            sequence_number=manifest.sequence_number,
            min_sequence_number=manifest.min_sequence_number,
            added_snapshot_id=manifest.added_snapshot_id,
        ).fetch_manifest_entry(PyArrowFileIO(), discard_deleted=False)
        for ours, entry, row in zip(entries, theirs, raw, strict=True):
            assert ours.status == entry.status
            assert ours.snapshot_id == entry.snapshot_id
            assert ours.sequence_number == entry.sequence_number
            file = row["data_file"]
            assert ours.data_file.record_count == file["record_count"]
            assert tuple(ours.data_file.partition) == tuple(file["partition"].values())
            for name in ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds"):
                listed = file[name] or []
                assert getattr(ours.data_file, name) == {
                    item["key"]: item["value"] for item in listed
                }


@pytest.mark.parametrize("least", [0, 10_000])
@pytest.mark.parametrize("columns", [None, ("file_path", "lower.1", "partition.1000")])
def test_in_bulk_together_and_entry_by_entry_are_equal(table, monkeypatch, least, columns):
    monkeypatch.setattr(manifest_reader, "_BULK_MIN_ENTRIES", least)
    reader = ManifestReader.of(table.storage, table.metadata)
    manifests = manifests_of(table)
    assert len(manifests) > 3
    spec, types = table.spec(), types_of(table.metadata)
    expected = [
        inherit(
            decode_entries(
                table.storage.read(manifest.manifest_path), manifest.manifest_path, spec, types
            ),
            manifest,
        )
        for manifest in manifests
    ]
    chosen = {*columns, "status", "sequence_number"} if columns is not None else None

    def picked(entries):
        return {
            name: values
            for name, values in columns_of(entries).items()
            if chosen is None or name in chosen
        }

    for manifest, entries in zip(manifests, expected, strict=True):
        assert picked(reader.entries(manifest, columns)) == picked(entries)
    for content in (0, 1):
        of_one = [manifest for manifest in manifests if manifest.content == content]
        together = list(reader.entries_of_all(of_one, columns))
        assert len(together) == 1, "small manifests of one writer come together"
        alone = [part for one, part in zip(manifests, expected, strict=True) if one in of_one]
        assert picked(together[0]) == picked(Entries.concat(alone))


def test_those_of_different_specs_and_contents_stay_apart(table):
    with table.update_partition_spec() as update:
        update.add("id")
    table.append(pa.table({"id": [7], "city": ["Oslo"], "x": [0.0]}))
    reader = ManifestReader.of(table.storage, table.metadata)
    parts = list(reader.entries_of_all(manifests_of(table)))
    assert {part.spec.spec_id for part in parts} == {0, 1}
    rows = Counter(path for part in parts for path in part.table["file_path"].to_pylist())
    each = Counter(
        path
        for manifest in manifests_of(table)
        for path in reader.entries(manifest).table["file_path"].to_pylist()
    )
    assert rows == each


def test_one_that_is_not_listed_yet_keeps_its_sequence_number_open(table):
    added = next(
        one for one in manifests_of(table) if not one.deleted_files_count and one.content == 0
    )
    new = replace(added, sequence_number=None, first_row_id=None, added_snapshot_id=77)
    reader = ManifestReader.of(table.storage, table.metadata)
    others = [one for one in manifests_of(table) if one.content == 0 and one != added]
    (together,) = reader.entries_of_all([*others, new])
    mine = together.slice(len(together) - len(reader.entries(new)))
    for entries in (reader.entries(new), mine):
        is_added = np.asarray(entries.table["status"]) == STATUS_ADDED
        numbers = entries.table["sequence_number"].filter(pa.array(is_added))
        assert set(numbers.to_pylist()) == {None}
        assert set(entries.table["snapshot_id"].to_pylist()) == {77}


def test_a_damaged_one_among_others_is_named(table):
    manifests = [one for one in manifests_of(table) if one.content == 0]
    broken = manifests[2].manifest_path
    table.storage.write(broken, table.storage.read(broken)[:-40])
    reader = ManifestReader.of(table.storage, table.metadata)
    with pytest.raises(CorruptMetadataError) as caught:
        list(reader.entries_of_all(manifests))
    assert broken in str(caught.value)


def test_a_spec_that_the_table_lacks_is_named(table):
    manifest = replace(manifests_of(table)[0], partition_spec_id=9)
    reader = ManifestReader.of(table.storage, table.metadata)
    with pytest.raises(CorruptMetadataError, match="partition spec 9"):
        reader.entries(manifest)


@pytest.fixture
def counted(monkeypatch):
    """How often each manifest was read from storage, and how often it was decoded."""
    read: Counter[str] = Counter()
    decoded: Counter[str] = Counter()
    bulk, slow, whole = bulk_decode, decode_entries, LocalStorage.read

    def counted_bulk(files, *arguments, **named):
        found = bulk(files, *arguments, **named)
        decoded.update(location for location, _ in files)
        return found

    def counted_slow(data, location, *arguments, **named):
        decoded[location] += 1
        return slow(data, location, *arguments, **named)

    def counted_read(storage, location):
        read[location] += "/snap-" not in location and location.endswith(".avro")
        return whole(storage, location)

    monkeypatch.setattr(manifest_reader, "bulk_decode", counted_bulk)
    monkeypatch.setattr(manifest_reader, "decode_entries", counted_slow)
    monkeypatch.setattr(LocalStorage, "read", counted_read)
    DEFAULT_CACHE.clear()
    return read, decoded


@pytest.mark.parametrize(
    ("verb", "most"),
    [
        ("append", 0),
        ("delete", 2),  # the plan that decides needs no metrics, the manifest that is written does
        ("compaction plan", 2),  # the plan, and deletes that no file is left for
        ("expiry", 1),
        ("inspect", 1),
        ("health", 1),
    ],
)
def test_each_verb_reads_and_decodes_a_manifest_so_often_at_most(table, counted, verb, most):
    {
        "append": lambda: table.append(pa.table({"id": [1], "city": ["Oslo"], "x": [0.0]})),
        "delete": lambda: table.delete(where="id = 3"),
        "compaction plan": lambda: plan_compaction(table.catalog, table.identifier),
        "expiry": lambda: table.expire_snapshots(older_than=dt.datetime.now(dt.UTC), retain_last=1),
        "inspect": table.inspect.files,
        "health": table.health,
    }[verb]()
    read, decoded = counted
    assert max(decoded.values(), default=0) <= most, decoded
    assert max(read.values(), default=0) <= most, read
    assert bool(decoded) == bool(most)
