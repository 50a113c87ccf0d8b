"""Manifest lists: which manifests make up a snapshot (spec: Manifest Lists)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CONTENT_DATA_MANIFEST = 0
CONTENT_DELETE_MANIFEST = 1


@dataclass(frozen=True, slots=True)
class FieldSummary:
    """What the values of one partition field are like in a manifest (spec: field_summary).

    Attributes:
        contains_null: at least one partition has a null value.
        contains_nan: at least one has NaN; None is unknown.
        lower_bound: single-value serialization; None when all values are null or NaN.
        upper_bound: single-value serialization.
    """

    contains_null: bool
    contains_nan: bool | None = None
    lower_bound: bytes | None = None
    upper_bound: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """One row of a manifest list, with the field names of the spec. Counts are None when unknown (v1)."""

    manifest_path: str
    manifest_length: int
    partition_spec_id: int
    content: int = CONTENT_DATA_MANIFEST
    sequence_number: int | None = None
    min_sequence_number: int | None = None
    added_snapshot_id: int | None = None
    added_files_count: int | None = None
    existing_files_count: int | None = None
    deleted_files_count: int | None = None
    added_rows_count: int | None = None
    existing_rows_count: int | None = None
    deleted_rows_count: int | None = None
    partitions: tuple[FieldSummary, ...] | None = None
    key_metadata: bytes | None = None
    first_row_id: int | None = None


def read_manifest_list(data: bytes, location: str = "manifest list") -> list[ManifestFile]:
    """The manifests of a v1, v2 or v3 manifest list, in file order; v1 rows get content 0 and sequence numbers 0.

    Raises:
        CorruptMetadataError: the bytes are not a manifest list; the message names `location`.
    """
    raise ValueError(location, data)


def write_manifest_list(
    manifests: Sequence[ManifestFile],
    *,
    snapshot_id: int,
    parent_snapshot_id: int | None,
    sequence_number: int,
    format_version: int,
    first_row_id: int | None = None,
) -> tuple[bytes, int | None]:
    """Serialize a manifest list; returns its bytes and the table's next row id (None below v3).

    A manifest with `sequence_number` None is new: it gets `sequence_number`, and `min_sequence_number` the same when
    None. With v3, data manifests without `first_row_id` are assigned one from `first_row_id` on
    (spec: First Row ID Assignment).

    Raises:
        InvalidInputError: format version below 2 or above 3, or v3 without `first_row_id`.
    """
    raise ValueError(manifests, snapshot_id, parent_snapshot_id, sequence_number, format_version, first_row_id)
