"""Manifest entries as Avro, column by column, and the schemas of manifests and their lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
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
from lakehouse.spec.manifests.avro_container import write_long
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.manifests.manifest_entries import BOUNDS, COUNTS, FIXED_COLUMNS, Entries
from lakehouse.spec.schema.iceberg_types import FieldTypes
from lakehouse.spec.types.arrow_types import kind_of, partition_types, physical_type
from lakehouse.spec.types.internal_values import encode_bounds, settled_bound

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
        _optional(108, "column_sizes", _map_schema(117, 118, "long")),
        _optional(109, "value_counts", _map_schema(119, 120, "long")),
        _optional(110, "null_value_counts", _map_schema(121, 122, "long")),
        _optional(137, "nan_value_counts", _map_schema(138, 139, "long")),
        _optional(125, "lower_bounds", _map_schema(126, 127, "bytes")),
        _optional(128, "upper_bounds", _map_schema(129, 130, "bytes")),
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


def _map_schema(key_id: int, value_id: int, value: str) -> dict[str, Any]:
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


BLOCK_ENTRIES = 4096


def partition_kinds(entries: Entries, types: FieldTypes) -> dict[int, IcebergType]:
    """Partition field id -> type to write.

    Taken from the values themselves when no schema knows the source column.
    """
    kinds = partition_types(entries.spec, types)
    columns = {field_id: entries.table[f"partition.{field_id}"] for field_id in kinds}
    return {
        field_id: kind_of(columns[field_id].type) if kind is None else kind
        for field_id, kind in kinds.items()
    }


def entry_blocks(
    entries: Entries, kinds: Mapping[int, IcebergType], format_version: int
) -> Iterator[tuple[int, bytes]]:
    """(entries, encoding) of blocks of at most `BLOCK_ENTRIES`; `kinds` as in `partition_kinds`."""
    for start in range(0, len(entries), BLOCK_ENTRIES):
        part = entries.slice(start, BLOCK_ENTRIES)
        field_ids = part.field_ids()
        metrics = [
            segment
            for prefix in (*COUNTS, *BOUNDS)
            for segment in _map(part, prefix, field_ids.get(prefix, ()), len(part))
        ]
        yield len(part), _block(part, metrics, kinds, format_version)


def block_of_few(
    files: Sequence[DataFile],
    entries: Entries,
    kinds: Mapping[int, IcebergType],
    types: FieldTypes,
    format_version: int,
) -> tuple[int, bytes]:
    """What `entry_blocks` makes of a few entries, file by file.

    A column of each count and bound costs more than what stands in it, where there are few files.

    Args:
        files: of the entries.
        entries: those, without metrics.
        kinds: as in `partition_kinds`.
        types: of the schema.
        format_version: of the table.
    """
    metrics = pa.array([_metrics(file, types) for file in files], pa.binary())
    return len(files), _block(entries, [metrics], kinds, format_version)


def _metrics(file: DataFile, types: FieldTypes) -> bytes:
    parts: list[bytes] = []
    for attribute in COUNTS.values():
        counts = getattr(file, attribute)
        parts += _pairs({key: write_long(count) for key, count in counts.items()})
    for attribute in BOUNDS.values():
        bounds = {
            key: settled_bound(bound, types.get(key))
            for key, bound in getattr(file, attribute).items()
        }
        parts += _pairs(
            {
                key: write_long(len(bound)) + bound
                for key, bound in bounds.items()
                if bound is not None
            }
        )
    return b"".join(parts)


def _pairs(encoded: Mapping[int, bytes]) -> Iterator[bytes]:
    """An optional map of encoded values, as `maps` writes it."""
    if not encoded:
        yield b"\x00"
        return
    yield b"\x02" + write_long(len(encoded))
    for key in sorted(encoded):
        yield write_long(key) + encoded[key]
    yield b"\x00"


def _block(
    entries: Entries,
    metrics: Sequence[Segment],
    kinds: Mapping[int, IcebergType],
    format_version: int,
) -> bytes:
    rows = len(entries)
    column = _columns(entries)
    segments: list[Segment] = [
        *_long(column("status")),
        *optional(_long, column("snapshot_id")),
        *optional(_long, column("sequence_number")),
        *optional(_long, column("file_sequence_number")),
        *_long(column("content").fill_null(0)),
        *sized(column("file_path")),
        *sized(pc.utf8_upper(column("file_format"))),
    ]
    for field in entries.spec.fields:
        kind = kinds[field.field_id]
        values = _whole(entries.table[f"partition.{field.field_id}"].cast(physical_type(kind)))
        segments += optional(_raw if isinstance(kind, UUIDType) else _partition_value, values)
    segments += [*_long(column("record_count")), *_long(column("file_size_in_bytes"))]
    segments += [
        *metrics,
        *optional(sized, column("key_metadata")),
        *optional(lists, column("split_offsets")),
        *optional(lists, column("equality_ids")),
        *optional(_long, column("sort_order_id")),
    ]
    if format_version >= 3:
        segments += optional(_long, column("first_row_id"))
    segments += optional(sized, column("referenced_data_file"))
    if format_version >= 3:
        segments += optional(_long, column("content_offset"))
        segments += optional(_long, column("content_size_in_bytes"))
    return payload(join(segments, rows))


def _columns(entries: Entries) -> Callable[[str], pa.Array]:
    names = set(entries.table.column_names)

    def column(name: str) -> pa.Array:
        if name in names:
            return _whole(entries.table[name].cast(FIXED_COLUMNS[name]))
        return pa.nulls(len(entries), FIXED_COLUMNS[name])

    return column


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _map(entries: Entries, prefix: str, field_ids: Iterable[int], rows: int) -> list[Segment]:
    columns = [(field_id, _whole(entries.table[f"{prefix}.{field_id}"])) for field_id in field_ids]
    if prefix in COUNTS:
        return maps(columns, _long, rows)
    return maps([(field_id, encode_bounds(column)) for field_id, column in columns], sized, rows)


def _long(column: pa.Array) -> list[Segment]:
    return [longs(np.asarray(column).astype(np.int64))]


def _partition_value(column: pa.Array) -> list[Segment]:
    kind = column.type
    if pa.types.is_integer(kind):
        return _long(column)
    if pa.types.is_floating(kind):
        little = "<f4" if kind == pa.float32() else "<f8"
        values = _normalised(np.asarray(column).astype(little))
        return fixed(values.view("u1").reshape(len(values), values.itemsize))
    if kind == pa.bool_():
        return fixed(np.asarray(column).astype("u1").reshape(-1, 1))
    if pa.types.is_decimal(kind):
        size = decimal_bytes(kind.precision)
        words = np.frombuffer(column.buffers()[1], "u1")[
            column.offset * 16 : (column.offset + len(column)) * 16
        ]
        return fixed(words.reshape(-1, 16)[:, ::-1][:, 16 - size :])
    return sized(column)


def _raw(column: pa.Array) -> list[Segment]:
    return [column.cast(pa.binary())]


def _normalised(values: Any) -> Any:
    """Every NaN with the one bit pattern that equality of partitions asks for."""
    return np.where(np.isnan(values), np.asarray(np.nan, values.dtype), values)


Segment: TypeAlias = "bytes | pa.Array"
Encoder: TypeAlias = "Callable[[pa.Array], list[Segment]]"
Integers = npt.NDArray[np.int64]


# Avro encoding of whole columns: a field is a list of segments, joined once, row by row.


def join(segments: Sequence[Segment], rows: int) -> pa.Array:
    """Concatenate the segments of every row."""
    merged: list[Segment] = []
    constants: list[bytes] = []
    for segment in segments:
        if isinstance(segment, bytes):
            constants.append(segment)
            continue
        if together := b"".join(constants):
            merged.append(together)
        constants.clear()
        merged.append(segment)
    if not merged:
        return pa.array([b"".join(constants)] * rows, pa.binary())
    if together := b"".join(constants):
        merged.append(together)
    scalars = [
        pa.scalar(value, pa.binary()) if isinstance(value, bytes) else value for value in merged
    ]
    return pc.binary_join_element_wise(*scalars, pa.scalar(b"", pa.binary()))


def payload(column: pa.Array) -> bytes:
    """The bytes of all rows after each other."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[
        column.offset : column.offset + len(column) + 1
    ]
    return bytes(memoryview(column.buffers()[2])[int(offsets[0]) : int(offsets[-1])])


def longs(values: Integers) -> Segment:
    """`int` and `long`: zig-zag variable length."""
    if len(values) and (values == values[0]).all():
        return write_long(int(values[0]))
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    width = max((int(zigzag.max()).bit_length() + 6) // 7, 1) if len(values) else 1
    encoded = np.empty((len(values), width), "u1")
    keep = np.empty((len(values), width), bool)
    keep[:, 0] = True
    rest = zigzag
    for position in range(width):
        encoded[:, position] = rest & np.uint64(0x7F)
        rest = rest >> np.uint64(7)
        more = rest != 0
        encoded[:, position] |= more.view("u1") << 7
        if position + 1 < width:
            keep[:, position + 1] = more
    lengths = keep.sum(axis=1)
    return _ragged(
        encoded.reshape(-1) if lengths.min(initial=width) == width else encoded[keep], lengths
    )


def sized(column: pa.Array) -> list[Segment]:
    """`string` and `bytes`: the length, then the content."""
    content = column.cast(pa.binary())
    return [longs(np.asarray(pc.binary_length(content)).astype(np.int64)), content]


def fixed(rows: npt.NDArray[np.uint8]) -> list[Segment]:
    """Values of one width: a matrix with one row of bytes a value."""
    return [
        _ragged(np.ascontiguousarray(rows).reshape(-1), np.full(len(rows), rows.shape[1], np.int64))
    ]


def optional(encode: Encoder, column: pa.Array) -> list[Segment]:
    """A union of null and something; `encode` gets the values that are not null."""
    if column.null_count == len(column):
        return [b"\x00"]
    if column.null_count == 0:
        return [b"\x02", *encode(column)]
    valid = np.asarray(column.is_valid())
    kept = join([b"\x02", *encode(column.drop_null())], int(valid.sum()))
    return [_expand(kept, valid, b"\x00")]


def lists(column: pa.Array) -> list[Segment]:
    """`array` of longs, without nulls: one block of items, then the end."""
    lengths = np.asarray(pc.list_value_length(column)).astype(np.int64)
    items = np.asarray(pc.list_flatten(column)).astype(np.int64)
    if len(lengths) and (lengths == lengths[0]).all() and lengths[0] == 1:
        return [b"\x02", longs(items), b"\x00"]
    encoded = longs(items) if len(items) else b""
    if isinstance(encoded, bytes):
        encoded = pa.array([encoded] * len(items), pa.binary())
    sizes = np.asarray(pc.binary_length(encoded)).astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    byte_ends = np.concatenate([[0], np.cumsum(sizes)])
    packed = _ragged(np.frombuffer(payload(encoded), "u1"), np.diff(byte_ends[ends]))
    terminator = pc.if_else(
        pa.array(lengths > 0), pa.scalar(b"\x00", pa.binary()), pa.scalar(b"", pa.binary())
    )
    return [longs(lengths), packed, terminator]


def maps(columns: Sequence[tuple[int, pa.Array]], encode: Encoder, rows: int) -> list[Segment]:
    """An optional map with int keys, as an array of records; a row without keys is null."""
    present = [(key, column) for key, column in columns if column.null_count < len(column)]
    if not present or not rows:
        return [b"\x00"]
    if all(column.null_count == 0 for _, column in present):
        segments: list[Segment] = [b"\x02" + write_long(len(present))]
        for key, column in present:
            segments += [write_long(key), *encode(column)]
        return [*segments, b"\x00"]
    counts = np.zeros(rows, np.int64)
    items: list[Segment] = []
    for key, column in present:
        valid = np.asarray(column.is_valid())
        counts += valid
        item = join([write_long(key), *encode(column.drop_null())], int(valid.sum()))
        items.append(_expand(item, valid, b""))
    heads = pa.array(
        [b"\x00", *(b"\x02" + write_long(count) for count in range(1, len(present) + 1))],
        pa.binary(),
    )
    ends = pa.array([b"", *([b"\x00"] * len(present))], pa.binary())
    return [heads.take(pa.array(counts)), *items, ends.take(pa.array(counts))]


def _expand(column: pa.Array, valid: npt.NDArray[np.bool_], absent: bytes) -> pa.Array:
    """Put the rows of a dense column where `valid` is true, `absent` elsewhere."""
    positions = np.cumsum(valid) - 1
    return column.take(pa.array(positions, mask=~valid)).fill_null(absent)


def _ragged(data: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64]) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(
        pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data.tobytes())]
    )
