"""Iceberg types as Arrow types and back, those of metadata columns too.

What one side cannot represent is refused with the column's name (UnsupportedTypeError), never bent.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from lakehouse.errors import InvalidSchemaError, UnsupportedTypeError
from lakehouse.kept_by_bytes import MadeOnce
from lakehouse.spec.schema.iceberg_types import (
    FieldTypes,
    VariantType,
    fields_by_id,
    primitive_from_string,
    primitive_to_string,
    schema_bytes,
)
from lakehouse.spec.schema.schema_json import assign_fresh_ids, check_names, make_field

FIELD_ID_KEY = b"PARQUET:field_id"
DOC_KEY = b"doc"
TYPE_KEY = b"iceberg.type"
"""Says what a column of an Arrow type that stands for several types is: a variant, a geometry."""
_EXTENSION_KEY = b"ARROW:extension:name"
_EXTENSIONS = {b"arrow.parquet.variant": b"variant", b"geoarrow.wkb": b"geometry"}
_ARROW: MadeOnce[pa.Schema] = MadeOnce()
VARIANT = pa.struct(
    [
        pa.field("metadata", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)
"""The Arrow type of variants, as Parquet stores them."""

_TO_ARROW: dict[IcebergType, pa.DataType] = {
    BooleanType(): pa.bool_(),
    IntegerType(): pa.int32(),
    LongType(): pa.int64(),
    FloatType(): pa.float32(),
    DoubleType(): pa.float64(),
    DateType(): pa.date32(),
    TimeType(): pa.time64("us"),
    TimestampType(): pa.timestamp("us"),
    TimestamptzType(): pa.timestamp("us", tz="UTC"),
    TimestampNanoType(): pa.timestamp("ns"),
    TimestamptzNanoType(): pa.timestamp("ns", tz="UTC"),
    StringType(): pa.string(),
    BinaryType(): pa.binary(),
    UUIDType(): pa.uuid(),
    UnknownType(): pa.null(),
    VariantType(): VARIANT,
}

_FROM_ARROW: tuple[tuple[Callable[[pa.DataType], bool], IcebergType], ...] = (
    (pa.types.is_boolean, BooleanType()),
    (pa.types.is_int8, IntegerType()),
    (pa.types.is_int16, IntegerType()),
    (pa.types.is_int32, IntegerType()),
    (pa.types.is_uint8, IntegerType()),
    (pa.types.is_uint16, IntegerType()),
    (pa.types.is_int64, LongType()),
    (pa.types.is_uint32, LongType()),
    (pa.types.is_float16, FloatType()),
    (pa.types.is_float32, FloatType()),
    (pa.types.is_float64, DoubleType()),
    (pa.types.is_date, DateType()),
    (pa.types.is_string, StringType()),
    (pa.types.is_large_string, StringType()),
    (pa.types.is_string_view, StringType()),
    (pa.types.is_binary, BinaryType()),
    (pa.types.is_large_binary, BinaryType()),
    (pa.types.is_binary_view, BinaryType()),
    (pa.types.is_null, UnknownType()),
)


def schema_to_arrow(schema: Schema, *, field_ids: bool = True) -> pa.Schema:
    """The Arrow schema of a table's data, made once for a schema.

    Strings are `string`, lists `list`, `timestamptz` has zone UTC, `uuid` is Arrow's extension
    type, a variant `struct<metadata: binary, value: binary>`, geometries and geographies WKB.

    Args:
        schema: the table's schema.
        field_ids: put ids under `PARQUET:field_id`, at every level, and docs under `doc`.

    Raises:
        UnsupportedTypeError: naming the columns that Arrow cannot hold, or no row.
    """
    return _ARROW.of(
        (schema,),
        field_ids,
        lambda: _schema_to_arrow(schema, field_ids),
        lambda _: 2 * schema_bytes(schema),
    )


def null_array(length: int, kind: pa.DataType) -> pa.Array:
    """Nulls of a type; required fields of null structs have values, which Parquet asks for."""
    if not pa.types.is_struct(kind) or not kind.num_fields:
        return pa.nulls(length, kind)
    children = [
        null_array(length, field.type) if field.nullable else _placeholders(length, field.type)
        for field in kind
    ]
    mask = pa.repeat(pa.scalar(True), length)
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


def _placeholders(length: int, kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _placeholders(length, kind.storage_type))
    if pa.types.is_struct(kind) and kind.num_fields:
        children = [
            null_array(length, field.type) if field.nullable else _placeholders(length, field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind))
    if pa.types.is_struct(kind):
        return pa.array([{}] * length, kind)
    offsets = pa.repeat(pa.scalar(0, pa.int32()), length + 1)
    if pa.types.is_map(kind):
        keys, items = pa.nulls(0, kind.key_type), pa.nulls(0, kind.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(offsets, pa.nulls(0, kind.value_type), type=kind)
    return pa.Array.from_buffers(kind, length, [None, *pa.nulls(length, kind).buffers()[1:]])


def no_rows(schema: pa.Schema) -> pa.Table:
    """An empty table; of all types, where `Schema.empty_table` fails on uuids in nested ones."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _schema_to_arrow(schema: Schema, field_ids: bool) -> pa.Schema:
    fields, refused = [], []
    for field in schema.fields:
        try:
            fields.append(field_to_arrow(field, field_ids=field_ids))
        except UnsupportedTypeError as error:
            refused.append(error.message)
    if refused:
        raise UnsupportedTypeError(" ".join(refused))
    return pa.schema(fields)


def field_to_arrow(field: NestedField, *, field_ids: bool = True, path: str = "") -> pa.Field:
    """The Arrow field of a column; raises UnsupportedTypeError."""
    name = f"{path}.{field.name}" if path else field.name
    if field.required and isinstance(field.field_type, UnknownType):
        raise UnsupportedTypeError(
            f"Column {name!r} is required and of type unknown, whose only value is null: no row "
            "can have it. Make it optional (update_schema().make_optional), drop it, or select "
            "others."
        )
    metadata: dict[bytes, bytes] = {}
    if field_ids:
        metadata[FIELD_ID_KEY] = str(field.field_id).encode()
        if field.doc:
            metadata[DOC_KEY] = field.doc.encode()
    if isinstance(field.field_type, VariantType | GeometryType | GeographyType):
        metadata[TYPE_KEY] = primitive_to_string(field.field_type).encode()
    arrow_type = type_to_arrow(field.field_type, field_ids=field_ids, column=name)
    return pa.field(field.name, arrow_type, nullable=not field.required, metadata=metadata or None)


def type_to_arrow(
    field_type: IcebergType, *, field_ids: bool = True, column: str = ""
) -> pa.DataType:
    """The Arrow type of an Iceberg type; raises UnsupportedTypeError naming `column`."""
    if isinstance(field_type, StructType):
        return pa.struct(
            [field_to_arrow(field, field_ids=field_ids, path=column) for field in field_type.fields]
        )
    if isinstance(field_type, ListType):
        return pa.list_(field_to_arrow(field_type.element_field, field_ids=field_ids, path=column))
    if isinstance(field_type, MapType):
        key = field_to_arrow(field_type.key_field, field_ids=field_ids, path=column)
        value = field_to_arrow(field_type.value_field, field_ids=field_ids, path=column)
        return pa.map_(key, value)
    if isinstance(field_type, DecimalType):
        return pa.decimal128(field_type.precision, field_type.scale)
    if isinstance(field_type, FixedType):
        return pa.binary(len(field_type))
    if isinstance(field_type, GeometryType | GeographyType):
        return pa.binary()
    arrow_type = _TO_ARROW.get(field_type)
    if arrow_type is None:
        raise UnsupportedTypeError(
            f"Column {column or '?'!r} of type {field_type} has no Arrow type: scans can select "
            "other columns; inserts into a table that has such a column are refused."
        )
    return arrow_type


def schema_from_arrow(schema: pa.Schema) -> Schema:
    """The Iceberg schema of Arrow data.

    Column ids come from `PARQUET:field_id` if every field has one, else they are assigned from 1.

    Args:
        schema: narrow and unsigned integers become `int` or `long`, dictionaries and run-end
            encodings their values, aware timestamps of any zone `timestamptz`, timestamps of
            seconds to microseconds `timestamp`, those of nanoseconds v3's `timestamp_ns`.

    Raises:
        UnsupportedTypeError: naming a column that Iceberg cannot hold.
        InvalidSchemaError: for a name or id that occurs twice.
    """
    has_ids = _all_have_ids(schema)
    counter = count(1)
    reader = _ArrowReader(None if has_ids else lambda: next(counter))
    struct = reader.struct(list(schema), "")
    check_names(struct)
    try:
        fields_by_id(struct.fields)
        parsed = Schema(*struct.fields, schema_id=0)
    except (ValueError, ValidationError) as error:
        raise InvalidSchemaError(f"Arrow schema cannot be used: {error}") from error
    return parsed if has_ids else assign_fresh_ids(parsed)[0]


def type_from_arrow(arrow_type: pa.DataType, *, column: str) -> IcebergType:
    """The Iceberg type of an Arrow type; nested ids count from 1.

    Raises UnsupportedTypeError naming `column`.
    """
    counter = count(1)
    return _ArrowReader(lambda: next(counter)).convert(arrow_type, column)


def stated_type(field: pa.Field) -> IcebergType | None:
    """The type that a field's metadata say: a variant, a geometry or a geography."""
    metadata = field.metadata or {}
    text = metadata.get(TYPE_KEY) or _EXTENSIONS.get(metadata.get(_EXTENSION_KEY, b""))
    return None if text is None else primitive_from_string(text.decode())


class _ArrowReader:
    """Converts types; `next_id` gives ids, None takes them from field metadata."""

    def __init__(self, next_id: Callable[[], int] | None) -> None:
        self._next_id = next_id

    def struct(self, fields: list[pa.Field], path: str) -> StructType:
        return StructType(
            *(self.field(field, f"{path}.{field.name}" if path else field.name) for field in fields)
        )

    def field(self, field: pa.Field, path: str) -> NestedField:
        doc = (field.metadata or {}).get(DOC_KEY)
        return make_field(
            self.field_id(field, path),
            field.name,
            stated_type(field) or self.convert(field.type, path),
            required=not field.nullable,
            doc=doc.decode() if doc else None,
        )

    def field_id(self, field: pa.Field, path: str) -> int:
        if self._next_id is not None:
            return self._next_id()
        text = field.metadata[FIELD_ID_KEY]
        if not text.isdigit():
            raise InvalidSchemaError(
                f"Column {path!r} has the field id {text.decode(errors='replace')!r}, which is no "
                "number."
            )
        return int(text)

    def convert(self, arrow_type: pa.DataType, path: str) -> IcebergType:
        for test, result in _FROM_ARROW:
            if test(arrow_type):
                return result
        if pa.types.is_struct(arrow_type):
            return self.struct([arrow_type.field(i) for i in range(arrow_type.num_fields)], path)
        if _is_list(arrow_type):
            element = arrow_type.value_field
            element_id = self.field_id(element, f"{path}.element")
            return ListType(
                element_id=element_id,
                element_type=stated_type(element) or self.convert(element.type, f"{path}.element"),
                element_required=not element.nullable,
            )
        if pa.types.is_map(arrow_type):
            key, item = arrow_type.key_field, arrow_type.item_field
            return MapType(
                self.field_id(key, f"{path}.key"),
                self.convert(key.type, f"{path}.key"),
                self.field_id(item, f"{path}.value"),
                stated_type(item) or self.convert(item.type, f"{path}.value"),
                not item.nullable,
            )
        if pa.types.is_dictionary(arrow_type) or pa.types.is_run_end_encoded(arrow_type):
            return self.convert(arrow_type.value_type, path)
        return self._parametric(arrow_type, path)

    def _parametric(self, arrow_type: pa.DataType, path: str) -> IcebergType:
        if (
            pa.types.is_decimal(arrow_type)
            and 1 <= arrow_type.precision <= 38
            and 0 <= arrow_type.scale <= arrow_type.precision
        ):
            return DecimalType(arrow_type.precision, arrow_type.scale)
        if pa.types.is_fixed_size_binary(arrow_type):
            return FixedType(arrow_type.byte_width)
        if pa.types.is_time(arrow_type):  # of nanoseconds: whole microseconds are taken
            return TimeType()
        if pa.types.is_timestamp(arrow_type):
            return self._timestamp(arrow_type)
        extension = getattr(arrow_type, "extension_name", None)
        if extension == "arrow.uuid":
            return UUIDType()
        if extension == "geoarrow.wkb":
            return GeometryType()
        if extension == "arrow.json":
            return self.convert(arrow_type.storage_type, path)
        raise UnsupportedTypeError(
            f"Column {path or '?'!r} of Arrow type {arrow_type} has no Iceberg type: cast it "
            "before writing.",
            column=path,
            type=str(arrow_type),
        )

    def _timestamp(self, arrow_type: Any) -> IcebergType:
        nanos = arrow_type.unit == "ns"
        if arrow_type.tz is not None:
            return TimestamptzNanoType() if nanos else TimestamptzType()
        return TimestampNanoType() if nanos else TimestampType()


def column_at(
    batch: pa.RecordBatch | pa.Table, path: tuple[int, ...]
) -> pa.Array | pa.ChunkedArray:
    """The column at a path of positions; null where a parent is null."""
    column = batch.column(path[0])
    return column if len(path) == 1 else pc.struct_field(column, list(path[1:]))


def field_id_of(field: pa.Field) -> int | None:
    """The field id in an Arrow field's metadata, as the Parquet reader puts it there."""
    text = (field.metadata or {}).get(FIELD_ID_KEY)
    return None if text is None else int(text)


def leaf_field_ids(footer: pq.FileMetaData) -> list[int | None]:
    """Field id of each leaf column of a row group, in order; None where the file has none."""
    ids: list[int | None] = []
    for field in footer.schema.to_arrow_schema():
        _collect(field, ids)
    return ids


def _collect(field: pa.Field, ids: list[int | None]) -> None:
    kind = field.type
    if pa.types.is_struct(kind):
        for child in kind:
            _collect(child, ids)
    elif pa.types.is_map(kind):
        _collect(kind.key_field, ids)
        _collect(kind.item_field, ids)
    elif _is_list(kind):
        _collect(kind.value_field, ids)
    else:
        ids.append(field_id_of(field))


def _is_list(arrow_type: pa.DataType) -> bool:
    tests = (
        pa.types.is_list,
        pa.types.is_large_list,
        pa.types.is_fixed_size_list,
        pa.types.is_list_view,
        pa.types.is_large_list_view,
    )
    return any(test(arrow_type) for test in tests)


def _all_have_ids(schema: pa.Schema) -> bool:
    pending = list(schema)
    while pending:
        field = pending.pop()
        if FIELD_ID_KEY not in (field.metadata or {}):
            return False
        if stated_type(field) is not None:
            continue
        arrow_type = field.type
        if pa.types.is_dictionary(arrow_type) or pa.types.is_run_end_encoded(arrow_type):
            arrow_type = arrow_type.value_type
        if pa.types.is_struct(arrow_type):
            pending.extend(arrow_type.field(i) for i in range(arrow_type.num_fields))
        elif pa.types.is_map(arrow_type):
            pending += [arrow_type.key_field, arrow_type.item_field]
        elif _is_list(arrow_type):
            pending.append(arrow_type.value_field)
    return True


_SIMPLE: dict[type[IcebergType], pa.DataType] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    DateType: pa.int32(),
    LongType: pa.int64(),
    TimeType: pa.int64(),
    TimestampType: pa.int64(),
    TimestamptzType: pa.int64(),
    TimestampNanoType: pa.int64(),
    TimestamptzNanoType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    UUIDType: pa.binary(16),
}


def physical_type(kind: IcebergType | None) -> pa.DataType:
    """Arrow type of the internal representation; plain bytes for types without a known order.

    Fixed is among these.
    """
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return _SIMPLE.get(type(kind), pa.binary()) if kind is not None else pa.binary()


def to_physical(value: Any) -> Any:
    """An internal value as Arrow takes it: UUIDs become their bytes."""
    return value.bytes if isinstance(value, UUID) else value


def from_physical(value: Any, kind: pa.DataType) -> Any:
    """Inverse of `to_physical`: only UUIDs are kept as 16 fixed bytes."""
    return (
        UUID(bytes=value)
        if isinstance(value, bytes) and pa.types.is_fixed_size_binary(kind)
        else value
    )


def partition_types(spec: PartitionSpec, types: FieldTypes) -> dict[int, IcebergType | None]:
    """Partition field id -> type of its values.

    None when the source column is in no schema and the transform keeps its type.
    """
    results: dict[int, IcebergType | None] = {}
    for field in spec.fields:
        source = types.get(field.source_id)
        if source is not None:
            results[field.field_id] = field.transform.result_type(source)
        else:
            fixed = str(field.transform).split("[", maxsplit=1)[0]
            results[field.field_id] = (
                {"day": DateType()}.get(fixed, IntegerType())
                if fixed in _INTEGER_TRANSFORMS
                else None
            )
    return results


def kind_of(physical: pa.DataType) -> IcebergType:
    """An Iceberg type for internal values whose column is in no schema any more."""
    if pa.types.is_decimal(physical):
        return DecimalType(physical.precision, physical.scale)
    return _REVERSE.get(physical, BinaryType())


_REVERSE: dict[pa.DataType, IcebergType] = {
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(16): UUIDType(),
}
_INTEGER_TRANSFORMS = frozenset({"bucket", "year", "month", "day", "hour"})
