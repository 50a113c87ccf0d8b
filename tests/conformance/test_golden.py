"""Small tables that Iceberg's Java library wrote, kept in `golden/`; see `java/golden.py`.

A table's files name each other below `memory://golden/db/<table>`, so that is where they are put:
nothing in them is changed. What is expected are the rows that were given to Java, which read the
same (`java/golden.py` checks that).
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

import lakehouse as lh
from lakehouse.manifests.manifest_reader import ManifestReader, load_manifests
from lakehouse.spec.manifests.data_file import STATUS_ADDED, STATUS_DELETED
from lakehouse.storage import MemoryStorage
from lakehouse.transaction.snapshot_producer import SummaryBuilder
from tests.conformance.java.golden import in_order
from tests.conformance.java.json_rows import rows_of
from tests.conformance.java.random_filters import filter_of
from tests.conformance.java.random_rows import leaves

CORPUS = sorted(Path(__file__).parent.joinpath("golden").glob("*.tar.xz"))
IDENTITIES = [path for path in CORPUS if path.name.startswith("identity_")]
FILTERED = [path for path in CORPUS if not path.name.startswith("equality_v")]  # these are slow
CHANGED = [path for path in CORPUS if not path.name.startswith(("identity", "types", "equality_"))]
ROOT = "memory://golden/db"


def name_of(path):
    """The table of an archive."""
    return path.name.removesuffix(".tar.xz")


@pytest.fixture(params=CORPUS, ids=name_of)
def golden(request, tmp_path):
    """(table, what is expected)."""
    storage = MemoryStorage()
    name = name_of(request.param)
    with tarfile.open(request.param) as archive:
        files = {one.name: archive.extractfile(one).read() for one in archive}
    expected = json.loads(files.pop("expected.json"))
    for path, data in files.items():
        storage.write(f"{ROOT}/{name}/{path}", data)
    lake = lh.load_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse="memory://golden")
    yield lake.register_table(f"db.{name}", expected["metadata"]), expected
    storage.delete([one.location for one in storage.list("memory://golden")])


def test_head_and_snapshots(golden):
    table, expected = golden
    metadata = table.metadata
    assert in_order(rows_of(table.scan().to_arrow(), table.schema())) == in_order(expected["rows"])
    for snapshot_id, rows in expected["snapshots"].items():
        schema = metadata.schema_for(metadata.snapshot(int(snapshot_id)))
        found = table.scan(snapshot_id=int(snapshot_id)).to_arrow()
        assert in_order(rows_of(found, schema)) == in_order(rows), snapshot_id


def test_row_lineage(golden):
    table, expected = golden
    columns = ["rid", "_row_id", "_last_updated_sequence_number"]
    if "lineage" in expected:
        found = table.scan(select=columns).to_arrow().to_pylist()
        assert sorted(list(row.values()) for row in found) == sorted(expected["lineage"])


def in_parts(summary):
    """What a summary counts; that of a partition in any order."""
    return {
        key: sorted(counts.split(",")) if key.startswith("partitions.") else counts
        for key, counts in summary.items()
        if not key.startswith(("operation", "iceberg-version", "manifests-", "entries-"))
    }


@pytest.mark.parametrize("golden", CHANGED, ids=name_of, indirect=True)
def test_summaries(golden):
    """What comes and goes, in all and by partition, as Java counts it of the same files."""
    table, _ = golden
    metadata = table.metadata
    reader = ManifestReader.of(table.storage, metadata)
    for snapshot in metadata.snapshots:
        made = [
            entry
            for manifest in load_manifests(table.storage, snapshot)
            for entry in reader.entries(manifest).to_manifest_entries()
            if entry.snapshot_id == snapshot.snapshot_id
        ]
        ours = SummaryBuilder.of(
            added=[entry.data_file for entry in made if entry.status == STATUS_ADDED],
            removed=[entry.data_file for entry in made if entry.status == STATUS_DELETED],
        )
        parent = snapshot.parent_snapshot_id
        before = None if parent is None else metadata.snapshot(parent).summary
        assert in_parts(ours.build(before, metadata)) == in_parts(snapshot.summary)


def sampled(rows, field_id, most):
    """Some of the values of a column."""
    found = sorted({row[field_id] for row in rows if field_id in row} - {None, "nan"})
    return found[:: max(1, -(-len(found) // most))]


@pytest.mark.parametrize("golden", FILTERED, ids=name_of, indirect=True)
def test_filters(golden):
    """Every column by a value of it; those of the partition spec by null and at more operators."""
    table, expected = golden
    schema, rows = table.schema(), expected["rows"]
    sources = {field.source_id for spec in table.metadata.partition_specs for field in spec.fields}
    for path, field_id, kind in leaves(schema.as_struct()):
        made = [filter_of("is-null", path, field_id, kind, [], schema)] * (field_id in sources)
        for value in sampled(rows, str(field_id), 3 if field_id in sources else 1):
            ops = ("eq", "lt-eq", "gt") if field_id in sources else ("eq",)
            made += [filter_of(op, path, field_id, kind, [value], schema) for op in ops]
        for one in made:
            found = rows_of(table.scan(where=one.ours).to_arrow(), schema)
            assert in_order(found) == in_order(row for row in rows if one.means(row)), one.ours


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("golden", IDENTITIES, ids=name_of, indirect=True)
def test_deletes(golden, mode):
    """By the values of a partition: what a filter finds is what a delete deletes."""
    table, expected = golden
    schema, rows = table.schema(), expected["rows"]
    table.set_properties({"write.delete.mode": mode})
    field = schema.find_field("c")
    for value in sampled(rows, str(field.field_id), 2):
        where = filter_of("eq", "c", field.field_id, field.field_type, [value], schema)
        table.delete(where.ours)
        rows = [row for row in rows if not where.means(row)]
    assert in_order(rows_of(table.scan().to_arrow(), schema)) == in_order(rows)
