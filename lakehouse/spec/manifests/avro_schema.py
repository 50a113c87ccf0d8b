"""Avro schemas of manifests and manifest lists (spec: Manifests, Manifest Lists, Appendix A)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakehouse.errors import UnsupportedTypeError

AvroType = str | dict[str, Any] | list[Any]

_PRIMITIVES: dict[type[IcebergType], AvroType] = {
    BooleanType: "boolean",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
    DateType: {"type": "int", "logicalType": "date"},
    TimeType: {"type": "long", "logicalType": "time-micros"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
    TimestamptzType: {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
    TimestampNanoType: {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": False},
    TimestamptzNanoType: {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": True},
}


def manifest_schema(
    spec: PartitionSpec, kinds: Mapping[int, IcebergType], format_version: int
) -> dict[str, Any]:
    """The `manifest_entry` record of a v2 or v3 manifest.

    `kinds` are the types of the partition values by partition field id.

    Raises:
        UnsupportedTypeError: a partition value has a type that Avro cannot hold.
    """
    fields = [
        _partition_field(field.field_id, field.name, kinds[field.field_id]) for field in spec.fields
    ]
    partition = _record("r102", fields)
    data_file = _record("r2", _data_file_fields(partition, format_version))
    return _record(
        "manifest_entry",
        [
            _field(0, "status", "int"),
            _optional(1, "snapshot_id", "long"),
            _optional(3, "sequence_number", "long"),
            _optional(4, "file_sequence_number", "long"),
            _field(2, "data_file", data_file),
        ],
    )


def manifest_list_schema(format_version: int) -> dict[str, Any]:
    """The `manifest_file` record of a v2 or v3 manifest list."""
    summary = _record(
        "r508",
        [
            _field(509, "contains_null", "boolean"),
            _optional(518, "contains_nan", "boolean"),
            _optional(510, "lower_bound", "bytes"),
            _optional(511, "upper_bound", "bytes"),
        ],
    )
    fields = [
        _field(500, "manifest_path", "string"),
        _field(501, "manifest_length", "long"),
        _field(502, "partition_spec_id", "int"),
        _field(517, "content", "int"),
        _field(515, "sequence_number", "long"),
        _field(516, "min_sequence_number", "long"),
        _field(503, "added_snapshot_id", "long"),
        _field(504, "added_files_count", "int"),
        _field(505, "existing_files_count", "int"),
        _field(506, "deleted_files_count", "int"),
        _field(512, "added_rows_count", "long"),
        _field(513, "existing_rows_count", "long"),
        _field(514, "deleted_rows_count", "long"),
        _optional(507, "partitions", {"type": "array", "items": summary, "element-id": 508}),
        _optional(519, "key_metadata", "bytes"),
    ]
    if format_version >= 3:
        fields.append(_optional(520, "first_row_id", "long"))
    return _record("manifest_file", fields)


def partition_avro_type(kind: IcebergType, field_id: int) -> AvroType:
    """Avro type of a partition value; fixed types are named after the field so that two can differ.

    A `fixed` is written as `bytes`: Iceberg's Java library reads an Avro `fixed` here as if its
    length stood before it, and everybody reads `bytes`.
    """
    if isinstance(kind, DecimalType):
        size = decimal_bytes(kind.precision)
        logical = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return {"type": "fixed", "size": size, "name": f"decimal_{field_id}", **logical}
    if isinstance(kind, FixedType):
        return "bytes"
    if isinstance(kind, UUIDType):
        return {"type": "fixed", "size": 16, "logicalType": "uuid", "name": f"uuid_{field_id}"}
    avro = _PRIMITIVES.get(type(kind))
    if avro is None:
        raise UnsupportedTypeError(
            f"partition field {field_id} of type {kind} cannot be written to a manifest"
        )
    return avro


def decimal_bytes(precision: int) -> int:
    """Bytes of the smallest two's complement that holds every value of a precision."""
    largest: int = 10**precision - 1
    return (largest.bit_length() + 8) // 8


def _data_file_fields(partition: dict[str, Any], format_version: int) -> list[dict[str, Any]]:
    fields = [
        _field(134, "content", "int"),
        _field(100, "file_path", "string"),
        _field(101, "file_format", "string"),
        _field(102, "partition", partition),
        _field(103, "record_count", "long"),
        _field(104, "file_size_in_bytes", "long"),
        _optional(108, "column_sizes", _map(117, 118, "long")),
        _optional(109, "value_counts", _map(119, 120, "long")),
        _optional(110, "null_value_counts", _map(121, 122, "long")),
        _optional(137, "nan_value_counts", _map(138, 139, "long")),
        _optional(125, "lower_bounds", _map(126, 127, "bytes")),
        _optional(128, "upper_bounds", _map(129, 130, "bytes")),
        _optional(131, "key_metadata", "bytes"),
        _optional(132, "split_offsets", {"type": "array", "items": "long", "element-id": 133}),
        _optional(135, "equality_ids", {"type": "array", "items": "int", "element-id": 136}),
        _optional(140, "sort_order_id", "int"),
    ]
    if format_version >= 3:
        fields.append(_optional(142, "first_row_id", "long"))
    fields.append(_optional(143, "referenced_data_file", "string"))
    if format_version >= 3:
        fields += [
            _optional(144, "content_offset", "long"),
            _optional(145, "content_size_in_bytes", "long"),
        ]
    return fields


def _record(name: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields}


def _field(field_id: int, name: str, kind: AvroType) -> dict[str, Any]:
    return {"name": name, "type": kind, "field-id": field_id}


def _optional(field_id: int, name: str, kind: AvroType) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": field_id}


def _map(key_id: int, value_id: int, value: str) -> dict[str, Any]:
    item = _record(
        f"k{key_id}_v{value_id}", [_field(key_id, "key", "int"), _field(value_id, "value", value)]
    )
    return {"type": "array", "logicalType": "map", "items": item}


def _partition_field(field_id: int, name: str, kind: IcebergType) -> dict[str, Any]:
    return {
        **_optional(field_id, _avro_name(name), partition_avro_type(kind, field_id)),
        **_original_name(name),
    }


def _avro_name(name: str) -> str:
    """A name as Avro allows it: other characters as `_x<HEX>`, a leading digit behind `_`."""
    safe = "".join(
        char if char == "_" or (char.isascii() and char.isalnum()) else f"_x{ord(char):X}"
        for char in name
    )
    return f"_{safe}" if safe[:1].isdigit() else safe


def _original_name(name: str) -> dict[str, str]:
    return {} if _avro_name(name) == name else {"iceberg-field-name": name}
