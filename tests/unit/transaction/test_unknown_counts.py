"""Old manifests without counts (spec: Manifest Lists, optional in v1) are not taken for empty."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import lakehouse as lh
from lakehouse.errors import InvalidInputError, InvalidPropertyError
from lakehouse.spec.manifests.manifest_list import ManifestFile, write_manifest_list

COUNTS = {
    f"{what}_{unit}_count"
    for what in ("added", "existing", "deleted")
    for unit in ("files", "rows")
}


def local(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def forget_counts(table):
    """As an old writer left it: the list has no counts."""
    path = local(table.current_snapshot().manifest_list)
    with path.open("rb") as stream:
        reader = fastavro.reader(stream)
        rows, schema = list(reader), reader.writer_schema
    for field in schema["fields"]:
        if field["name"] in COUNTS:
            field |= {"type": ["null", field["type"]], "default": None}
    rewritten = io.BytesIO()
    fastavro.writer(rewritten, schema, [row | dict.fromkeys(COUNTS) for row in rows])
    path.write_bytes(rewritten.getvalue())


def list_in_metadata(table):
    """As the first writers left it: version 1, manifests named by the snapshot itself."""
    path = local(table.metadata_location)
    found = json.loads(path.read_bytes())
    found |= {
        "format-version": 1,
        "schema": found["schemas"][0],
        "partition-spec": found["partition-specs"][0]["fields"],
    }
    for key in (
        "last-sequence-number",
        "current-schema-id",
        "schemas",
        "default-spec-id",
        "partition-specs",
        "last-partition-id",
    ):
        del found[key]
    for snapshot in found["snapshots"]:
        with local(snapshot.pop("manifest-list")).open("rb") as stream:
            snapshot["manifests"] = [row["manifest_path"] for row in fastavro.reader(stream)]
        snapshot.pop("sequence-number", None)
    path.write_text(json.dumps(found))


@pytest.mark.parametrize("age", [forget_counts, list_in_metadata])
@pytest.mark.parametrize("version", [2, 3])
def test_what_was_there_stays_there(tmp_path, age, version):
    lake = lh.load_catalog(tmp_path.as_uri())
    table = lake.create_table(
        "a.b",
        pa.schema([("id", pa.int64()), ("day", pa.int64())]),
        partition_by=["day"],
        format_version=2,
    )
    table.append(pa.table({"id": [1, 2, 3], "day": [1, 1, 2]}))
    age(table)
    table = lh.load_catalog(tmp_path.as_uri()).load_table("a.b")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
    table.set_properties({"format-version": str(version)})
    assert table.refresh().metadata.format_version == version
    table.append(pa.table({"id": [4], "day": [2]}))
    table.delete("id = 1")
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [2, 3, 4]
    assert sorted(table.scan("day = 2").to_arrow()["id"].to_pylist()) == [3, 4]
    # pyiceberg does not read metadata whose old snapshots name their manifests themselves
    if age is forget_counts:
        peer = StaticTable.from_metadata(str(local(table.metadata_location))).scan().to_arrow()
        assert sorted(peer["id"].to_pylist()) == [2, 3, 4]
    if version == 3:
        rows = table.scan(select=["id", "_row_id"]).to_arrow()
        assert len(set(rows["_row_id"].to_pylist())) == 3


def test_the_format_version_is_a_property_as_elsewhere_and_never_goes_back(tmp_path):
    lake = lh.load_catalog(tmp_path.as_uri())
    schema = pa.schema([("id", pa.int64())])
    table = lake.create_table("a.v3", schema, properties={"format-version": "3", "owner": "us"})
    assert table.metadata.format_version == 3
    assert dict(table.metadata.properties) == {"owner": "us"}
    old = lake.create_table("a.v2", schema)
    old.append(pa.table({"id": [1]}))
    old.set_properties({"format-version": "3", "owner": "them"})
    old.refresh().append(pa.table({"id": [2]}))
    old = old.refresh()
    assert (old.metadata.format_version, dict(old.metadata.properties)) == (3, {"owner": "them"})
    rows = old.scan(select=["id", "_row_id"]).to_arrow().sort_by("id").to_pylist()
    assert len({row["_row_id"] for row in rows if row["_row_id"] is not None}) == 2
    with pytest.raises(InvalidInputError, match="cannot go back to v2"):
        old.set_properties({"format-version": "2"})
    with pytest.raises(InvalidPropertyError, match="'three'; it must be 2 or 3"):
        old.set_properties({"format-version": "three"})


def test_counts_that_nobody_knows_are_never_written():
    row = ManifestFile(
        manifest_path="old.avro",
        manifest_length=1,
        partition_spec_id=0,
        sequence_number=1,
        added_snapshot_id=1,
    )
    row = dataclasses.replace(row, min_sequence_number=1)
    with pytest.raises(InvalidInputError, match=r"counts of manifest old\.avro are unknown"):
        write_manifest_list(
            [row], snapshot_id=2, parent_snapshot_id=1, sequence_number=2, format_version=2
        )
