"""Manifest lists: which manifests make up a snapshot (spec: Manifest Lists)."""

from __future__ import annotations

import dataclasses
import functools
import io
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro

from lakehouse.errors import CorruptMetadataError, InvalidInputError
from lakehouse.kept_by_bytes import MadeOnce
from lakehouse.spec.manifests.avro_container import (
    DECODING_ERRORS,
    inflated_blocks,
    read_header,
    write_container,
)
from lakehouse.spec.manifests.manifest_encoder import manifest_list_schema

CONTENT_DATA_MANIFEST = 0
CONTENT_DELETE_MANIFEST = 1

_BLOCK_MANIFESTS = 4096
_ENCODED_ROWS: MadeOnce[bytes] = MadeOnce()
_ROW_BYTES, _SUMMARY_BYTES = 1536, 512
_DAMAGE = (*DECODING_ERRORS, AttributeError)
_COUNTS = (
    "added_files_count",
    "existing_files_count",
    "deleted_files_count",
    "added_rows_count",
    "existing_rows_count",
    "deleted_rows_count",
)
_SUMMARY_IDS = {509: "contains_null", 518: "contains_nan", 510: "lower_bound", 511: "upper_bound"}
_FIELD_IDS = {
    500: "manifest_path",
    501: "manifest_length",
    502: "partition_spec_id",
    517: "content",
    515: "sequence_number",
    516: "min_sequence_number",
    503: "added_snapshot_id",
    504: "added_files_count",
    505: "existing_files_count",
    506: "deleted_files_count",
    512: "added_rows_count",
    513: "existing_rows_count",
    514: "deleted_rows_count",
    519: "key_metadata",
    520: "first_row_id",
}
_ROW_NAMES = tuple(_FIELD_IDS.values())
_ROW, _ROW_COUNTS = operator.attrgetter(*_ROW_NAMES), operator.attrgetter(*_COUNTS)


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
    """One row of a manifest list, with the field names of the spec.

    Counts are None when unknown (v1).
    """

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
    """The manifests of a v1, v2 or v3 list, in order; v1 rows get content 0 and sequence number 0.

    Raises:
        CorruptMetadataError: the bytes are not a manifest list, or one that names a manifest twice,
            whose rows would count twice; the message names `location`.
        UnsupportedFeatureError: an unknown Avro codec.
    """
    header = read_header(data, location)
    manifests: dict[str, ManifestFile] = {}
    try:
        names = _names(header.schema)
        if 500 not in names:
            raise CorruptMetadataError(
                f"{location} is not a manifest list: its records have no manifest_path",
                location=location,
            )
        columns = [
            (name, names[field_id]) for field_id, name in _FIELD_IDS.items() if field_id in names
        ]
        summaries = _summary_names(header.schema)
        schema = fastavro.parse_schema(header.schema)
        for count, plain in inflated_blocks(data, header, location):
            stream = io.BytesIO(plain)
            for _ in range(count):
                row: Any = fastavro.schemaless_reader(stream, schema, None)
                values = {name: row[key] for name, key in columns}
                if summaries is not None and row[summaries[0]] is not None:
                    values["partitions"] = tuple(
                        _summary(summary, summaries[1]) for summary in row[summaries[0]]
                    )
                manifest = _with_defaults(values)
                if manifests.setdefault(manifest.manifest_path, manifest) is not manifest:
                    raise CorruptMetadataError(
                        f"{location} names the manifest {manifest.manifest_path} twice",
                        location=location,
                    )
    except _DAMAGE as error:
        raise CorruptMetadataError(
            f"{location} cannot be read as a manifest list: {error!r}", location=location
        ) from error
    return list(manifests.values())


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

    A manifest with `sequence_number` None is new: it gets `sequence_number`, and
    `min_sequence_number` the same when None. With v3, data manifests without `first_row_id` are
    assigned one from `first_row_id` on (spec: First Row ID Assignment).

    Raises:
        InvalidInputError: format version other than 2 and 3, v3 without `first_row_id`, or a
            manifest of another snapshot without sequence number.
    """
    rows, next_row_id = numbered_manifests(
        manifests,
        snapshot_id=snapshot_id,
        sequence_number=sequence_number,
        format_version=format_version,
        first_row_id=first_row_id,
    )
    metadata = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_snapshot_id is None else str(parent_snapshot_id),
        "sequence-number": str(sequence_number),
        "format-version": str(format_version),
    }
    if format_version == 3:
        metadata["first-row-id"] = str(first_row_id)
    schema = manifest_list_schema(format_version)
    blocks = [
        _encode(rows[start : start + _BLOCK_MANIFESTS], format_version)
        for start in range(0, len(rows), _BLOCK_MANIFESTS)
    ]
    return write_container(schema, metadata, blocks, level=5), next_row_id


def numbered_manifests(
    manifests: Sequence[ManifestFile],
    *,
    snapshot_id: int,
    sequence_number: int,
    format_version: int,
    first_row_id: int | None,
) -> tuple[list[ManifestFile], int | None]:
    """The manifests as they are read again after `write_manifest_list`, and the next row id.

    Arguments and errors as there; manifests that are listed like this already are returned as they
    are.
    """
    if format_version not in (2, 3):
        raise InvalidInputError(
            f"manifest lists are written as format version 2 or 3, not {format_version}"
        )
    if format_version == 3 and first_row_id is None:
        raise InvalidInputError("a v3 manifest list needs the snapshot's first row id")
    next_row_id = first_row_id if format_version == 3 else None
    rows = []
    for manifest in manifests:
        assigned = _assign_sequence(manifest, snapshot_id, sequence_number)
        if (
            next_row_id is not None
            and assigned.content == CONTENT_DATA_MANIFEST
            and assigned.first_row_id is None
        ):
            assigned = dataclasses.replace(assigned, first_row_id=next_row_id)
            next_row_id += (assigned.added_rows_count or 0) + (assigned.existing_rows_count or 0)
        rows.append(_as_read(assigned, format_version))
    return rows, next_row_id


def _as_read(manifest: ManifestFile, format_version: int) -> ManifestFile:
    """What reading the row gives: version 2 knows no row ids."""
    if not has_counts(manifest):
        raise InvalidInputError(
            f"the counts of manifest {manifest.manifest_path} are unknown, and readers skip a "
            "manifest that counts no files: count its entries first"
        )
    if format_version < 3 and manifest.first_row_id is not None:
        return dataclasses.replace(manifest, first_row_id=None)
    return manifest


def has_counts(manifest: ManifestFile) -> bool:
    """Whether all counts are known and can be true; in v1 lists they are optional."""
    counts = _ROW_COUNTS(manifest)
    if None in counts or min(counts) < 0:
        return False
    return all(files or not rows for files, rows in zip(counts[:3], counts[3:], strict=True))


def _assign_sequence(
    manifest: ManifestFile, snapshot_id: int, sequence_number: int
) -> ManifestFile:
    if manifest.sequence_number is not None and manifest.min_sequence_number is not None:
        return manifest
    if manifest.added_snapshot_id != snapshot_id:
        owner = manifest.added_snapshot_id
        raise InvalidInputError(
            f"{manifest.manifest_path} is of snapshot {owner}, not new in {snapshot_id}, and has "
            "no sequence number"
        )
    return dataclasses.replace(
        manifest,
        sequence_number=sequence_number
        if manifest.sequence_number is None
        else manifest.sequence_number,
        min_sequence_number=sequence_number
        if manifest.min_sequence_number is None
        else manifest.min_sequence_number,
    )


def _encode(rows: Sequence[ManifestFile], format_version: int) -> tuple[int, bytes]:
    return len(rows), b"".join(_encoded(row, format_version) for row in rows)


def _encoded(row: ManifestFile, format_version: int) -> bytes:
    """The Avro of one row. Lists that follow each other share most rows."""
    return _ENCODED_ROWS.of(
        (),
        (row, format_version),
        lambda: _encoded_row(row, format_version),
        lambda data: _ROW_BYTES + 6 * len(data) + _SUMMARY_BYTES * len(row.partitions or ()),
    )


def _encoded_row(row: ManifestFile, format_version: int) -> bytes:
    stream = io.BytesIO()
    record = dict(zip(_ROW_NAMES, _ROW(row), strict=True))
    record["partitions"] = (
        None
        if row.partitions is None
        else [_summary_record(partition) for partition in row.partitions]
    )
    fastavro.schemaless_writer(stream, _parsed_schema(format_version), record)
    return stream.getvalue()


@functools.cache
def _parsed_schema(format_version: int) -> Any:
    return fastavro.parse_schema(dict(manifest_list_schema(format_version)))


def _summary_record(summary: FieldSummary) -> dict[str, Any]:
    return {
        "contains_null": summary.contains_null,
        "contains_nan": summary.contains_nan,
        "lower_bound": summary.lower_bound,
        "upper_bound": summary.upper_bound,
    }


def _names(record: Any) -> dict[int, str]:
    fields = record.get("fields", ()) if isinstance(record, dict) else ()
    return {field["field-id"]: field["name"] for field in fields if "field-id" in field}


def _summary_names(schema: Any) -> tuple[str, dict[str, str]] | None:
    """(name of the partitions field, attribute -> name in the summary record)."""
    for field in schema["fields"]:
        if field.get("field-id") == 507:
            branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
            array = next((branch for branch in branches if isinstance(branch, dict)), {})
            names = _names(array.get("items"))
            return field["name"], {
                attribute: names[id_] for id_, attribute in _SUMMARY_IDS.items() if id_ in names
            }
    return None


def _summary(record: Mapping[str, Any], names: Mapping[str, str]) -> FieldSummary:
    return FieldSummary(**{attribute: record[name] for attribute, name in names.items()})


def _with_defaults(values: dict[str, Any]) -> ManifestFile:
    for name in ("content", "sequence_number", "min_sequence_number"):
        if values.get(name) is None:
            values[name] = 0
    return ManifestFile(**values)
