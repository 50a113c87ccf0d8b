"""Manifests and manifest lists that say what is not so: a typed error, and soon."""

from __future__ import annotations

import io
import json
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import lakehouse as lh

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("s", pa.string())])


@pytest.fixture
def table(tmp_path):
    made = lh.load_catalog(f"{tmp_path}/warehouse").create_table("raw.events", SCHEMA)
    made.append(rows(10))
    return made


def rows(count):
    return pa.table(
        {"id": range(count), "at": [0] * count, "s": [f"s{n}" for n in range(count)]},
        schema=SCHEMA,
    )


def rewritten(path, change):
    """An Avro file whose records somebody changed."""
    path = path.removeprefix("file://")
    with Path(path).open("rb") as file:
        reader = fastavro.reader(file)
        records, schema = list(reader), reader.writer_schema
        kept = {
            key: value
            for key, value in reader.metadata.items()
            if not key.startswith("avro.") and key != "lakehouse.checksum"
        }
    out = io.BytesIO()
    fastavro.writer(out, schema, change(records), codec="deflate", metadata=kept)
    Path(path).write_bytes(out.getvalue())
    return len(out.getvalue())


def lie(table, change):
    """The one manifest's one data file is said to be different; the list says its new length."""
    manifest_list = table.current_snapshot().manifest_list
    (manifest,) = table.inspect.manifests()["path"].to_pylist()

    def entries(records):
        return [{**record, "data_file": {**record["data_file"], **change}} for record in records]

    length = rewritten(manifest, entries)
    rewritten(manifest_list, lambda found: [{**one, "manifest_length": length} for one in found])


def fresh(table):
    return lh.load_catalog(table.catalog.warehouse).load_table(table.name)


@pytest.mark.parametrize("times", [2, 200_000])
def test_a_manifest_listed_twice(table, times):
    rewritten(table.current_snapshot().manifest_list, lambda records: records * times)
    for verb in (
        lambda one: one.scan().plan().files[0],
        lambda one: one.append(rows(1)),
        lambda one: one.delete("id = 1"),
        lambda one: one.overwrite(rows(1)),
        lambda one: one.inspect.manifests(),
    ):
        with pytest.raises(lh.CorruptMetadataError, match=r"names the manifest .* twice"):
            verb(fresh(table))


@pytest.mark.parametrize("count", [0, 9, 11, 2**62])
@pytest.mark.parametrize("where", [None, "id = 5"])
def test_a_data_file_of_another_number_of_rows(table, count, where):
    lie(table, {"record_count": count})
    for verb in (
        lambda one: one.scan(where).to_arrow(),
        lambda one: list(one.scan(where).to_batches()),
        lambda one: one.delete("id = 5"),
    ):
        if count == 0 and where is not None:
            continue  # a file said to be empty is not read
        with pytest.raises(lh.CorruptMetadataError, match=r"holds 10 rows, its manifest says"):
            verb(fresh(table))


def test_unpartitioned_manifests_are_decoded_in_bulk(tmp_path, table, monkeypatch):
    """Ours and those of another writer."""
    monkeypatch.setattr("lakehouse.manifests.manifest_reader._BULK_MIN_ENTRIES", 0)
    foreign = SqlCatalog("f", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    foreign.create_namespace("raw")
    theirs = foreign.create_table("raw.events", schema=pa.schema([("x", pa.int64())]))
    for start in range(3):
        theirs.append(pa.table({"x": [start, start + 10]}))
    ours = lh.load_catalog(
        f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w", name="f"
    ).load_table("raw.events")
    (manifest, *_) = ours.inspect.manifests()["path"].to_pylist()
    with Path(manifest.removeprefix("file://")).open("rb") as file:
        schema = json.loads(fastavro.reader(file).metadata["avro.schema"])
    assert schema["fields"][4]["type"]["fields"][3]["type"]["fields"] == []
    for one, where in ((ours, "x = 1"), (table, "id = 1")):
        plan = one.scan(where).plan()
        assert 1 <= len(plan.files) <= 2
        assert plan.report.data_manifests.read_slow == 0
        assert plan.report.notes == []
    found = ours.scan().to_arrow()["x"].to_pylist()
    assert sorted(found) == [0, 1, 2, 10, 11, 12]
