"""Input data to the table's schema, by column name, with errors that name the column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from lakehouse.data.conversion.nested_arrays import (
    list_parts,
    make_list,
    make_map,
    make_struct,
    map_parts,
    without_nulls,
)
from lakehouse.data.conversion.safe_casts import CastError, cast_primitive, without_encoding
from lakehouse.data.conversion.variant_arrays import variants_of
from lakehouse.errors import CorruptMetadataError, InvalidInputError, InvalidSchemaError
from lakehouse.spec.schema.iceberg_types import VariantType
from lakehouse.spec.types.arrow_types import null_array, schema_to_arrow
from lakehouse.spec.types.internal_values import constant_array

ArrowData: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch]


_AS_THEY_ARE = (
    BooleanType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    DateType,
    TimestampType,
    TimestamptzType,
    StringType,
    BinaryType,
)
"""Types of which every value of the Arrow type that stands for them is one."""


def coerce(data: ArrowData, schema: Schema, *, table: str = "") -> Iterator[pa.RecordBatch]:
    """Bring data to a table schema.

    Columns are matched by name, at every nesting level. Casts are safe ones only: nothing
    overflows, is rounded or cut. A missing optional column becomes its write default or null. Naive
    timestamps fit `timestamp`, aware ones `timestamptz` (converted to UTC); never the other way.
    Dictionary, large, view and fixed-size-list types are accepted. A variant takes values of any
    type, encoded (`variants_of`); geometries and geographies take WKB. Data with a schema but
    without rows is checked too.

    Yields:
        Batches with the Arrow schema `schema_to_arrow(schema)`, field ids included.

    Raises:
        InvalidSchemaError: an unknown column, a missing required column, a null in a required
            column, or a value that does not fit; the message names table, column and value.
    """
    coercer = Coercer(schema, table)
    if isinstance(data, pa.RecordBatch):
        yield coercer.batch(data)
        return
    batch = None
    for batch in data.to_batches() if isinstance(data, pa.Table) else data:
        yield coercer.batch(batch)
    if batch is None and isinstance(data, pa.Table | pa.RecordBatchReader):
        nullable = pa.schema([field.with_nullable(True) for field in data.schema])
        empty = [pa.nulls(0, field.type) for field in nullable]
        coercer.batch(pa.RecordBatch.from_arrays(empty, schema=nullable))


class Coercer:
    """Coerces batch after batch to one table schema.

    Args:
        schema: of the table.
        table: its name, for messages.
    """

    def __init__(self, schema: Schema, table: str = "") -> None:
        self._schema = schema
        self._table = table
        self.arrow_schema: pa.Schema = schema_to_arrow(schema)

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """One batch in the table's Arrow schema; see `coerce` for the errors."""
        sources = list(zip(batch.schema.names, batch.columns, strict=True))
        columns = self._fields(
            sources, self._schema.fields, list(self.arrow_schema), batch.num_rows, None, ""
        )
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)

    def _fields(
        self,
        sources: Sequence[tuple[str, pa.Array]],
        fields: Sequence[NestedField],
        targets: Sequence[pa.Field],
        rows: int,
        present: pa.BooleanArray | None,
        prefix: str,
    ) -> list[pa.Array]:
        """The children of a struct (or the columns of the batch) in the order of `fields`."""
        by_name: dict[str, pa.Array] = {}
        for name, array in sources:
            if name in by_name:
                raise self._error(prefix + name, "is there twice in the data")
            by_name[name] = array
        known_names = {f.name for f in fields}
        unknown = [name for name in by_name if name not in known_names]
        if unknown:
            known = ", ".join(f.name for f in fields)
            what = (
                f"is not in the table's schema (columns there: {known}); add it or drop it from "
                "the data"
            )
            raise self._error(prefix + unknown[0], what)
        result = []
        for field, target in zip(fields, targets, strict=True):
            path = prefix + field.name
            if field.name in by_name:
                result.append(self._field(by_name[field.name], field, target, present, path))
            elif field.write_default is not None:
                result.append(self._default(field, target, rows, path))
            elif field.required:
                raise self._error(path, "is required and missing from the data")
            else:
                result.append(null_array(rows, target.type))
        return result

    def _default(self, field: NestedField, target: pa.Field, rows: int, path: str) -> pa.Array:
        kind = field.field_type
        if not isinstance(kind, StructType):
            return constant_array(field.write_default, kind, target.type, rows)
        # the default of a struct is `{}`: its fields have their own (spec: Default values)
        children = self._fields([], kind.fields, list(target.type), rows, None, path + ".")
        return make_struct(children, target.type, None, rows)

    def _field(
        self,
        array: pa.Array,
        field: NestedField,
        target: pa.Field,
        present: pa.BooleanArray | None,
        path: str,
    ) -> pa.Array:
        result = self._array(array, field.field_type, target.type, path)
        if field.required and result.null_count:
            self._require(result, present, path)
            return without_nulls(result)
        return result

    def _require(self, array: pa.Array, present: pa.BooleanArray | None, path: str) -> None:
        missing = array.is_null() if present is None else pc.and_(array.is_null(), present)
        row = pc.index(missing, True).as_py()
        if row >= 0:
            raise self._error(path, f"is required but null in row {row} of the batch")

    def _array(
        self, array: pa.Array, kind: IcebergType, target: pa.DataType, path: str
    ) -> pa.Array:
        if array.type == target and isinstance(kind, _AS_THEY_ARE):
            return array
        if isinstance(kind, VariantType) and not pa.types.is_null(array.type):
            return self._variants(array, path)
        array = without_encoding(array)
        if pa.types.is_null(array.type):
            return null_array(len(array), target)
        if isinstance(kind, StructType):
            return self._struct(array, kind, target, path)
        if isinstance(kind, ListType):
            return self._list(array, kind, target, path)
        if isinstance(kind, MapType):
            return self._map(array, kind, target, path)
        try:
            return cast_primitive(array, kind, target)
        except CastError as error:
            raise self._error(path, str(error)) from error

    def _variants(self, array: pa.Array, path: str) -> pa.Array:
        try:
            return variants_of(array)
        except (InvalidInputError, CorruptMetadataError) as error:
            raise self._error(path, f"has no such value: {error.message}") from error

    def _struct(
        self, array: pa.Array, kind: StructType, target: pa.DataType, path: str
    ) -> pa.Array:
        if not pa.types.is_struct(array.type):
            raise self._error(path, f"is {array.type} in the data but a struct in the table")
        present = array.is_valid()
        sources = [(f.name, array.field(i)) for i, f in enumerate(array.type)]
        children = self._fields(sources, kind.fields, list(target), len(array), present, path + ".")
        return make_struct(children, target, None if array.null_count == 0 else present, len(array))

    def _list(self, array: pa.Array, kind: ListType, target: pa.DataType, path: str) -> pa.Array:
        if not _is_list(array.type):
            raise self._error(path, f"is {array.type} in the data but a list in the table")
        field = target.value_field
        values, lengths = list_parts(array)
        values = self._field(values, kind.element_field, field, None, path + ".element")
        return make_list(values, lengths, target)

    def _map(self, array: pa.Array, kind: MapType, target: pa.DataType, path: str) -> pa.Array:
        if not pa.types.is_map(array.type):
            raise self._error(path, f"is {array.type} in the data but a map in the table")
        keys, values, lengths = map_parts(array)
        keys = self._field(keys, kind.key_field, target.key_field, None, path + ".key")
        values = self._field(values, kind.value_field, target.item_field, None, path + ".value")
        return make_map(keys, values, lengths, target)

    def _error(self, column: str, what: str) -> InvalidSchemaError:
        where = f" of table {self._table}" if self._table else ""
        return InvalidSchemaError(
            f"column {column!r}{where} {what}", table=self._table, column=column
        )


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )
