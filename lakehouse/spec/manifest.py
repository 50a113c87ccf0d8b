"""Manifests: Avro files that list data files or delete files (spec: Manifests)."""

from __future__ import annotations

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from lakehouse.spec.entries import Entries
from lakehouse.spec.field_types import FieldTypes
from lakehouse.spec.manifest_list import CONTENT_DATA_MANIFEST, ManifestFile


def encode_manifest(
    entries: Entries,
    schema: Schema,
    *,
    format_version: int,
    content: int = CONTENT_DATA_MANIFEST,
) -> bytes:
    """Serialize entries as a v2 or v3 manifest with many entries in a block.

    Null sequence numbers and snapshot ids are written as null, to be inherited at read time, so that a manifest can be written
    before its commit and reused in retries.

    Raises:
        InvalidInputError: format version 1, an existing or deleted entry without sequence numbers, or a delete file in a data
            manifest and the reverse.
    """
    raise AssertionError(entries, schema, format_version, content)


def manifest_file(
    entries: Entries, *, manifest_path: str, manifest_length: int, snapshot_id: int, content: int = CONTENT_DATA_MANIFEST
) -> ManifestFile:
    """The manifest-list row of a manifest just written: counts, minimum sequence number and partition summaries.

    `sequence_number` is None (assigned by `write_manifest_list`); `min_sequence_number` is None when a live entry inherits
    its own.
    """
    raise AssertionError(entries, manifest_path, manifest_length, snapshot_id, content)


def decode_manifest(data: bytes, manifest: ManifestFile, spec: PartitionSpec, types: FieldTypes) -> Entries:
    """Entries of a v1, v2 or v3 manifest with snapshot ids, sequence numbers and first row ids inherited.

    Deleted entries are included.

    Raises:
        CorruptMetadataError: not a manifest, truncated, or a block that claims or inflates to more than it may.
    """
    raise AssertionError(data, manifest, spec, types)
