"""Manifests: Avro files that list data files or delete files (spec: Manifests)."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
from collections.abc import Collection, Mapping
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fastavro.schema import SchemaParseException
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from lakehouse.errors import CorruptMetadataError, InvalidInputError
from lakehouse.kept_by_bytes import MadeOnce
from lakehouse.spec.manifests.avro_container import (
    AVRO_SCHEMA,
    Header,
    inflated_blocks,
    read_header,
    write_container,
)
from lakehouse.spec.manifests.avro_schema import manifest_schema
from lakehouse.spec.manifests.bounds_columns import encode_bounds
from lakehouse.spec.manifests.data_file import (
    CONTENT_DATA,
    STATUS_ADDED,
    STATUS_DELETED,
    STATUS_EXISTING,
)
from lakehouse.spec.manifests.manifest_encoder import entry_blocks, partition_kinds
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import CONTENT_DATA_MANIFEST, FieldSummary, ManifestFile
from lakehouse.spec.manifests.manifest_rows import flatten, nested_type
from lakehouse.spec.partitioning.spec_json import spec_to_json
from lakehouse.spec.schema.field_types import FieldTypes, field_types
from lakehouse.spec.schema.iceberg_types import schema_bytes
from lakehouse.spec.schema.schema_json import schema_to_json
from lakehouse.spec.types.uuid_order import holds_uuids, is_ordered_alike

DEFLATE_LEVEL = 3
_SCHEMAS: MadeOnce[str] = MadeOnce()
_WITH_LENGTHS: MadeOnce[bytes | None] = MadeOnce()
_READERS: MadeOnce[tuple[Any, pa.DataType]] = MadeOnce()
_DAMAGE = (
    EOFError,
    IndexError,
    KeyError,
    ValueError,
    TypeError,
    OverflowError,
    RecursionError,
    SchemaParseException,
    fastavro.schema.UnknownType,
    pa.ArrowException,
)


def encode_manifest(
    entries: Entries,
    schema: Schema,
    *,
    format_version: int,
    content: int = CONTENT_DATA_MANIFEST,
    level: int = DEFLATE_LEVEL,
) -> bytes:
    """Serialize entries as a v2 or v3 manifest, many to a block; equal input gives equal bytes.

    Null sequence numbers and snapshot ids are written as null, to be inherited at read time, so
    that a manifest can be written before its commit and reused in retries. `schema` is the table's
    schema; `level` the deflate level, 1 to 9.

    Raises:
        InvalidInputError: format version other than 2 and 3, no entries, an existing or deleted
            entry without sequence numbers, a delete file in a data manifest or the reverse, a
            deletion vector in v2.
    """
    _check(entries, format_version, content)
    kinds = partition_kinds(entries, field_types(schema))
    metadata = {
        "schema": _SCHEMAS.of(
            (schema,),
            None,
            lambda: json.dumps(schema_to_json(schema)),
            lambda text: len(text) + schema_bytes(schema),
        ),
        "schema-id": str(schema.schema_id),
        "partition-spec": json.dumps(spec_to_json(entries.spec)["fields"]),
        "partition-spec-id": str(entries.spec.spec_id),
        "format-version": str(format_version),
        "content": "data" if content == CONTENT_DATA_MANIFEST else "deletes",
    }
    avro = manifest_schema(entries.spec, kinds, format_version)
    return write_container(
        avro, metadata, entry_blocks(entries, kinds, format_version), level=level
    )


def manifest_file(
    entries: Entries,
    *,
    manifest_path: str,
    manifest_length: int,
    snapshot_id: int,
    content: int = CONTENT_DATA_MANIFEST,
) -> ManifestFile:
    """The manifest-list row of a new manifest: counts, minimum sequence number, summaries.

    `sequence_number` is None (assigned by `write_manifest_list`); `min_sequence_number` is the
    least explicit one of the live entries, None when they all inherit. There are no partition
    summaries when others order UUIDs among the partition values differently: they would skip a
    manifest whose bounds they misread.
    """
    status = np.asarray(entries.table["status"])
    live = entries.table["sequence_number"].filter(pa.array(status != STATUS_DELETED))
    return ManifestFile(
        manifest_path=manifest_path,
        manifest_length=manifest_length,
        partition_spec_id=entries.spec.spec_id,
        content=content,
        min_sequence_number=pc.min(live).as_py(),
        added_snapshot_id=snapshot_id,
        **_counts(entries),
        partitions=_summaries(entries),
    )


def decode_entries(
    data: bytes,
    location: str,
    spec: PartitionSpec,
    types: FieldTypes,
    *,
    wanted: Collection[str] | None = None,
) -> Entries:
    """Entries of a v1, v2 or v3 manifest one by one, as it has them: nothing is inherited.

    Deleted entries are included. `wanted` are the columns to make; None makes all.

    Raises:
        CorruptMetadataError: not a manifest, truncated, or a block that claims or inflates to more
            than it may.
        UnsupportedFeatureError: an unknown Avro codec.
    """
    return _decode_rows(data, read_header(data, location), location, spec, types, wanted)


def _counts(entries: Entries) -> dict[str, Any]:
    """Files and rows by status, under the names of the manifest list."""
    status = np.asarray(entries.table["status"])
    rows = np.asarray(entries.table["record_count"])
    found: dict[str, int] = {}
    for name, code in (
        ("added", STATUS_ADDED),
        ("existing", STATUS_EXISTING),
        ("deleted", STATUS_DELETED),
    ):
        found[f"{name}_files_count"] = int((status == code).sum())
        found[f"{name}_rows_count"] = int(rows[status == code].sum())
    return found


def with_counts(manifest: ManifestFile, entries: Entries) -> ManifestFile:
    """The row of a manifest with counts taken from its entries.

    In v1 lists they are optional (spec: Manifest Lists).
    """
    return dataclasses.replace(manifest, **_counts(entries))


def manifest_spec_id(data: bytes, location: str) -> int:
    """The partition spec that a manifest says it was written with; 0 when it does not say (v1).

    Raises:
        CorruptMetadataError: not a manifest.
    """
    text = read_header(data, location).text("partition-spec-id")
    return int(text) if text is not None and text.isdigit() else 0


def _decode_rows(
    data: bytes,
    header: Header,
    location: str,
    spec: PartitionSpec,
    types: FieldTypes,
    wanted: Collection[str] | None,
) -> Entries:
    schema = header.metadata["avro.schema"]
    with_lengths = schema_with_lengths(schema)
    if with_lengths is not None:
        # all columns: that the lengths are right can be seen of partition values only
        with contextlib.suppress(CorruptMetadataError):
            return _decode_as(with_lengths, data, header, location, spec, types, None)
    return _decode_as(schema, data, header, location, spec, types, wanted)


def schema_with_lengths(schema: bytes) -> bytes | None:
    """What Java may mean by a manifest's Avro schema; None where it cannot mean anything else.

    Before a partition value that is an Avro `fixed` Iceberg's Java library writes the length, as if
    it were `bytes`. Such a manifest is decoded entry by entry: as Java means it if all lengths are
    right, else as its schema says. (The other way round a value that ends with a byte above 0x7f
    may swallow what follows it, and nobody notices.)
    """

    def make() -> bytes | None:
        plain = json.loads(schema)
        changed = _fixed_as_bytes(plain, set())
        return None if changed == plain else json.dumps(changed).encode()

    return _WITH_LENGTHS.of((), schema, make, lambda _: 3 * len(schema))


def _fixed_as_bytes(schema: Any, names: set[str]) -> Any:
    """The schema with `bytes` for each fixed, by its definition or, further on, by its name."""
    if isinstance(schema, list):
        return [_fixed_as_bytes(branch, names) for branch in schema]
    if not isinstance(schema, dict):
        return "bytes" if schema in names else schema
    if schema.get("type") == "fixed" and "logicalType" not in schema:
        names.add(schema["name"])
        return "bytes"
    return {
        key: _fixed_as_bytes(value, names)
        if key in ("type", "fields", "items", "values")
        else value
        for key, value in schema.items()
    }


def _decode_as(
    schema: bytes,
    data: bytes,
    header: Header,
    location: str,
    spec: PartitionSpec,
    types: FieldTypes,
    wanted: Collection[str] | None,
) -> Entries:
    try:
        records = _records(schema, data, header, location)
        rows = pa.Table.from_struct_array(pa.array(records, _reader(schema)[1]))
        return flatten(rows, header.schema, spec, types, location, wanted=wanted)
    except _DAMAGE as error:
        raise CorruptMetadataError(
            f"{location} cannot be read as a manifest: {error!r}", location=location
        ) from error


def _records(schema: bytes, data: bytes, header: Header, location: str) -> list[Any]:
    reader_schema, _ = _reader(schema)
    records: list[Any] = []
    for count, plain in inflated_blocks(data, header, location):
        stream = io.BytesIO(plain)
        records += [fastavro.schemaless_reader(stream, reader_schema, None) for _ in range(count)]
        if stream.tell() != len(plain):
            raise CorruptMetadataError(
                f"{location}: a block holds more than its {count} records", location=location
            )
    return records


def _reader(schema: bytes) -> tuple[Any, pa.DataType]:
    """What reads records of a writer's schema, and the type that holds them.

    Manifests of one writer share it.
    """

    def make() -> tuple[Any, pa.DataType]:
        plain = _without_logical_types(json.loads(schema))
        return fastavro.parse_schema(plain), nested_type(plain)

    return _READERS.of((), schema, make, lambda _: AVRO_SCHEMA * len(schema))


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(branch) for branch in schema]
    if isinstance(schema, Mapping):
        return {
            key: _without_logical_types(value)
            for key, value in schema.items()
            if key != "logicalType"
        }
    return schema


def _check(entries: Entries, format_version: int, content: int) -> None:
    if format_version not in (2, 3):
        raise InvalidInputError(
            f"manifests are written as format version 2 or 3, not {format_version}"
        )
    if not len(entries):
        raise InvalidInputError("a manifest needs at least one entry")
    table = entries.table
    inherited = table.filter(pa.array(np.asarray(table["status"]) != STATUS_ADDED))
    if any(
        inherited[name].null_count
        for name in ("snapshot_id", "sequence_number", "file_sequence_number")
    ):
        raise InvalidInputError(
            "existing and deleted entries carry their snapshot id and both sequence numbers "
            "explicitly"
        )
    is_data = np.asarray(table["content"].fill_null(CONTENT_DATA)) == CONTENT_DATA
    if not (is_data if content == CONTENT_DATA_MANIFEST else ~is_data).all():
        raise InvalidInputError("a manifest holds either data files or delete files, not both")
    offsets = table["content_offset"] if "content_offset" in table.column_names else None
    if format_version == 2 and offsets is not None and offsets.null_count < len(offsets):
        raise InvalidInputError("deletion vectors need format version 3")


def _summaries(entries: Entries) -> tuple[FieldSummary, ...] | None:
    columns = [entries.table[f"partition.{field.field_id}"] for field in entries.spec.fields]
    if not all(is_ordered_alike(column) for column in columns if holds_uuids(column)):
        return None
    return tuple(_summary(column) for column in columns)


def _summary(column: pa.ChunkedArray) -> FieldSummary:
    values = column.combine_chunks()
    floating = pa.types.is_floating(values.type)
    contains_nan = bool(pc.any(pc.is_nan(values)).as_py()) if floating else False
    kept = values.filter(pc.invert(pc.is_nan(values))) if floating else values
    kept = kept.cast(pa.binary()) if pa.types.is_fixed_size_binary(kept.type) else kept
    extremes = pc.min_max(kept)
    bounds = [extremes["min"].as_py(), extremes["max"].as_py()]
    if floating:
        bounds = _signed_zeros(np.asarray(kept.drop_null()), bounds)
    lower, upper = (encode_bounds(pa.array([bound], kept.type)).to_pylist()[0] for bound in bounds)
    return FieldSummary(values.null_count > 0, contains_nan, lower, upper)


def _signed_zeros(values: Any, bounds: list[Any]) -> list[Any]:
    """A bound that is zero gets the sign that keeps every zero inside: -0.0 is below +0.0."""
    signs = np.signbit(values[values == 0.0])
    lower, upper = bounds
    if lower == 0.0:
        lower = -0.0 if signs.any() else 0.0
    if upper == 0.0:
        upper = -0.0 if signs.all() else 0.0
    return [lower, upper]
