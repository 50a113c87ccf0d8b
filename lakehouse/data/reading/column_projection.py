"""From a file's columns to the table's schema, by field id only (spec: Column Projection).

The columns of a Parquet file are a tree with field ids, its own or those of a name mapping. Values
of the file's types become those of the table by Iceberg's promotions, and by what other
writers are used to.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
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

from lakehouse.data.conversion.nested_arrays import (
    list_parts,
    make_list,
    make_map,
    make_struct,
    map_parts,
)
from lakehouse.data.conversion.safe_casts import without_encoding
from lakehouse.data.conversion.variant_arrays import is_variant, variants_of_file
from lakehouse.errors import InvalidSchemaError
from lakehouse.spec.schema.iceberg_types import VariantType
from lakehouse.spec.schema.name_mapping import MappedField, parse_name_mapping
from lakehouse.spec.table_properties import NAME_MAPPING
from lakehouse.spec.types.arrow_types import field_id_of
from lakehouse.spec.types.internal_values import constant_array


@dataclass(slots=True)
class FileColumn:
    """A column, nested or not, of a Parquet file.

    Attributes:
        name: in the file.
        type: Arrow type in which it is read.
        field_id: Iceberg field id, None when it has none.
        children: struct fields; the element of a list; key and value of a map.
        leaves: indices of its Parquet leaf columns.
    """

    name: str
    type: pa.DataType
    field_id: int | None
    children: list[FileColumn] = field(default_factory=list)
    leaves: range = range(0)


def file_columns(arrow_schema: pa.Schema, name_mapping: str | None, path: str) -> list[FileColumn]:
    """Top-level columns of a file.

    Args:
        arrow_schema: of the file, with `PARQUET:field_id` metadata where the file has ids.
        name_mapping: JSON of `schema.name-mapping.default`, for columns without ids.
        path: of the file, for messages.

    Raises:
        InvalidSchemaError: a column without field id and no name mapping, or an id of two columns.
        InvalidPropertyError: the name mapping is not valid.
    """
    counter = [0]
    columns = [_column(field, counter) for field in arrow_schema]
    lacking = next(_without_id(columns), None)
    if lacking is None:
        return _told_apart(columns, path)
    if name_mapping is None:
        raise InvalidSchemaError(
            f"column {lacking!r} of file {path} has no field id and the table no {NAME_MAPPING}; "
            "set the property to say which column is which",
            file=path,
            column=lacking,
        )
    _assign(columns, parse_name_mapping(name_mapping))
    return _told_apart(columns, path)


def _column(field: pa.Field, counter: list[int]) -> FileColumn:
    kind = field.type
    start = counter[0]
    if pa.types.is_struct(kind):
        children = [_column(child, counter) for child in kind]
    elif pa.types.is_map(kind):
        children = [_column(kind.key_field, counter), _column(kind.item_field, counter)]
    elif (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    ):
        children = [_column(kind.value_field, counter)]
    else:
        children = []
        counter[0] += 1
    return FileColumn(field.name, kind, field_id_of(field), children, range(start, counter[0]))


def _told_apart(columns: list[FileColumn], path: str) -> list[FileColumn]:
    """The columns. Raises InvalidSchemaError if two of them have one id, at any depth.

    Structs may come twice: delete files can repeat one around each key.
    """
    names: dict[int, str] = {}
    for name, column in _named(columns):
        if column.field_id is None or pa.types.is_struct(column.type):
            continue
        other = names.setdefault(column.field_id, name)
        if other is not name:
            raise twice(path, column.field_id, other, name)
    return columns


def twice(path: str, field_id: int, first: str, second: str) -> InvalidSchemaError:
    """The error of two columns of a file that have one id."""
    return InvalidSchemaError(
        f"file {path} has field id {field_id} twice, for {first!r} and {second!r}: which of them "
        "is the table's column is not known",
        file=path,
        column=second,
    )


def _named(columns: Sequence[FileColumn], above: str = "") -> Iterator[tuple[str, FileColumn]]:
    for column in columns:
        name = f"{above}{column.name}"
        yield name, column
        yield from _named(column.children, f"{name}.")


def _without_id(columns: Sequence[FileColumn], above: str = "") -> Iterator[str]:
    """Names of columns and fields of structs without an id; parts of collections need none."""
    for column in columns:
        name = f"{above}{column.name}"
        if column.field_id is None:
            yield name
        yield from _without_id_below(column, name)


def _without_id_below(column: FileColumn, name: str) -> Iterator[str]:
    if is_variant(column.type) and all(child.field_id is None for child in column.children):
        return
    if pa.types.is_struct(column.type):
        yield from _without_id(column.children, f"{name}.")
        return
    for part in column.children:
        yield from _without_id_below(part, f"{name}.{part.name}")


def _assign(columns: Sequence[FileColumn], mapped: Sequence[MappedField]) -> None:
    """Give columns without an id that of their name, unless another column has it."""
    by_name = {name: field for field in mapped for name in field.names}
    by_id = {field.field_id: field for field in mapped}
    taken = {column.field_id for column in columns}
    for column in columns:
        if column.field_id is not None:
            field = by_id.get(column.field_id)
        else:
            field = by_name.get(column.name)
            if field is not None and field.field_id not in taken:
                column.field_id = field.field_id
        if field is not None:
            _assign(_renamed(column), field.fields)


def _renamed(column: FileColumn) -> list[FileColumn]:
    """Children under the names that mappings use, however the file names parts of collections."""
    if pa.types.is_struct(column.type):
        return column.children
    names = ["element"] if len(column.children) == 1 else ["key", "value"]
    for child, name in zip(column.children, names, strict=False):
        child.name = name
    return column.children


Build = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True, slots=True)
class _Part:
    """How to make one column out of a decoded one.

    `leaves` are the Parquet columns to decode; `exact` means that the column is returned as it is.
    """

    build: Build
    leaves: tuple[int, ...]
    exact: bool


class Projection:
    """Turns decoded batches of one file schema into columns of the wanted schema.

    Args:
        columns: of the file.
        fields: wanted, in order.
        targets: their Arrow fields.
        constants: field id -> value of the whole file (identity partition values) for fields that
            the file lacks.
        path: of the file, for messages.
        pruned: whether batches hold only the columns of `leaves`; else all columns, nested ones
            too.

    Attributes:
        leaves: Parquet leaf columns to decode, ascending.

    Raises:
        InvalidSchemaError: a type that cannot be promoted, a required column that is missing and
            has no default, or an id that two columns have.
    """

    def __init__(
        self,
        columns: Sequence[FileColumn],
        fields: Sequence[NestedField],
        targets: Sequence[pa.Field],
        constants: Mapping[int, Any],
        path: str,
        *,
        pruned: bool = True,
    ) -> None:
        self._path = path
        self._pruned = pruned
        self._constants = constants
        self._fields = list(zip(fields, targets, strict=True))
        by_id: dict[int, FileColumn] = {}
        for column in columns:
            if column.field_id is not None:
                other = by_id.setdefault(column.field_id, column)
                if other is not column:
                    raise twice(path, column.field_id, other.name, column.name)
        self._parts: list[_Part | None] = []
        chosen: list[int] = []
        for number, (wanted, target) in enumerate(self._fields):
            source = by_id.get(wanted.field_id)
            if source is None or isinstance(wanted.field_type, UnknownType):
                self._check_absent(wanted, wanted.name)
                self._parts.append(None)
            else:
                part = self._part(source, wanted, target, wanted.name)
                self._parts.append(part)
                chosen.append(number)
        self.leaves = sorted(
            leaf for part in self._parts if part is not None for leaf in part.leaves
        )
        # Columns come in the order of the file.
        decoded = set(self.leaves)
        present = [
            rank
            for rank, column in enumerate(columns)
            if not pruned or not decoded.isdisjoint(column.leaves)
        ]
        rank_of = {id(columns[position]): rank for rank, position in enumerate(present)}
        self._source = {
            number: rank_of[id(by_id[self._fields[number][0].field_id])] for number in chosen
        }

    @property
    def plain(self) -> bool:
        """Whether every wanted column is in the file and taken as it is."""
        return all(part is not None and part.exact for part in self._parts)

    def of(self, path: str) -> Projection:
        """The same for another file with the same columns; only where it is `plain`."""
        other = copy.copy(self)
        other._path = path  # noqa: SLF001 - of the same class
        return other

    def columns(
        self, batch: pa.RecordBatch | None, rows: int, present: pa.BooleanArray | None = None
    ) -> list[pa.Array]:
        """The wanted columns.

        Args:
            batch: decoded columns, None when nothing was decoded.
            rows: length of the columns.
            present: where the struct around these columns is not null; required ones may be null
                elsewhere.

        Raises:
            InvalidSchemaError: a required column holds nulls, or a value cannot be promoted.
        """
        result = []
        for number, ((wanted, target), part) in enumerate(
            zip(self._fields, self._parts, strict=True)
        ):
            if part is None or batch is None:
                result.append(self._absent(wanted, target, rows))
                continue
            source = batch.column(self._source[number])
            array = source if part.exact and source.type == target.type else part.build(source)
            if wanted.required and array.null_count and _any_null(array, present):
                raise InvalidSchemaError(
                    f"column {wanted.name!r} of {self._path} is required and holds nulls",
                    file=self._path,
                )
            result.append(array)
        return result

    def _absent(self, field: NestedField, target: pa.Field, rows: int) -> pa.Array:
        value = self._constants.get(field.field_id, field.initial_default)
        kind = field.field_type
        if value is not None and isinstance(kind, StructType):
            # the default of a struct is `{}`: its fields have their own (spec: Default values)
            below = zip(kind.fields, target.type, strict=True)
            children = [self._absent(child, field, rows) for child, field in below]
            return make_struct(children, target.type, None, rows)
        return constant_array(value, kind, target.type, rows)

    def _check_absent(self, field: NestedField, name: str) -> None:
        if (
            field.required
            and field.initial_default is None
            and self._constants.get(field.field_id) is None
        ):
            raise InvalidSchemaError(
                f"file {self._path} lacks required column {name!r} (field id {field.field_id}), "
                "which has no default",
                file=self._path,
                column=name,
            )
        if isinstance(field.field_type, StructType) and field.initial_default is not None:
            for child in field.field_type.fields:
                self._check_absent(child, f"{name}.{child.name}")

    def _part(self, column: FileColumn, field: NestedField, target: pa.Field, name: str) -> _Part:
        kind = field.field_type
        if isinstance(kind, VariantType):
            self._expect(is_variant(column.type), column, field, name)
            leaves = tuple(column.leaves)
            return _Part(variants_of_file, leaves, exact=column.type == target.type)
        if isinstance(kind, StructType):
            self._expect(pa.types.is_struct(column.type), column, field, name)
            return self._struct_part(column, kind, target.type)
        if isinstance(kind, ListType):
            self._expect(
                len(column.children) == 1 and not pa.types.is_struct(column.type),
                column,
                field,
                name,
            )
            return self._list_part(column, kind, target.type, name)
        if isinstance(kind, MapType):
            self._expect(pa.types.is_map(column.type), column, field, name)
            return self._map_part(column, kind, target.type, name)
        self._expect(
            not column.children and can_promote(_plain(column.type), kind), column, field, name
        )
        return _Part(
            lambda array: self._promote(array, field, target, name),
            tuple(column.leaves),
            exact=column.type == target.type,
        )

    def _promote(
        self, array: pa.Array, field: NestedField, target: pa.Field, name: str
    ) -> pa.Array:
        try:
            return promote(array, field.field_type, target.type)
        except PromotionError as error:
            raise InvalidSchemaError(
                f"column {name!r} of {self._path} {error}", file=self._path, column=name
            ) from error

    def _expect(self, fits: bool, column: FileColumn, field: NestedField, name: str) -> None:
        if not fits:
            what = f"column {name!r} (field id {field.field_id}) is {column.type} in {self._path}"
            raise InvalidSchemaError(
                f"{what}, which cannot be read as {field.field_type}", file=self._path, column=name
            )

    def _struct_part(self, column: FileColumn, kind: StructType, target: pa.StructType) -> _Part:
        below = Projection(
            column.children,
            kind.fields,
            list(target),
            self._constants,
            self._path,
            pruned=self._pruned,
        )
        if not below.leaves:
            # None of the wanted children is in the file: any leaf tells where the struct itself is
            # null.
            leaves = (column.leaves[0],)
            return _Part(
                lambda array: _rebuild(array, below, target, decoded=False), leaves, exact=False
            )
        names_in_order = [
            child.name
            for child in column.children
            if not self._pruned or set(child.leaves) & set(below.leaves)
        ]
        exact = below.passes_through() and names_in_order == [f.name for f in target]
        return _Part(
            lambda array: _rebuild(array, below, target, decoded=True),
            tuple(below.leaves),
            exact=exact,
        )

    def passes_through(self) -> bool:
        """Whether every column is taken as it is and in the order of the file."""
        return self.plain and [self._source[number] for number in range(len(self._parts))] == list(
            range(len(self._parts))
        )

    def _list_part(
        self, column: FileColumn, kind: ListType, target: pa.DataType, name: str
    ) -> _Part:
        (element,) = column.children
        part = self._child(element, kind.element_field, target.value_field, name + ".element")

        def build(array: pa.Array) -> pa.Array:
            values, lengths = list_parts(array)
            return make_list(part.build(values), lengths, target)

        return _Part(build, part.leaves, exact=part.exact)

    def _map_part(self, column: FileColumn, kind: MapType, target: pa.MapType, name: str) -> _Part:
        key_column, value_column = column.children
        key = self._child(key_column, kind.key_field, target.key_field, name + ".key")
        value = self._child(value_column, kind.value_field, target.item_field, name + ".value")

        def build(array: pa.Array) -> pa.Array:
            keys, values, lengths = map_parts(array)
            return make_map(key.build(keys), value.build(values), lengths, target)

        return _Part(build, (*key.leaves, *value.leaves), exact=key.exact and value.exact)

    def _child(self, column: FileColumn, field: NestedField, target: pa.Field, name: str) -> _Part:
        """The element of a list, or the key or value of a map; no id is needed to find it."""
        if column.field_id is not None and column.field_id != field.field_id:
            raise InvalidSchemaError(
                f"{name!r} has field id {column.field_id} in {self._path} but {field.field_id} in "
                "the table",
                file=self._path,
            )
        return self._part(column, field, target, name)


def _rebuild(
    array: pa.StructArray, below: Projection, target: pa.StructType, *, decoded: bool
) -> pa.Array:
    present = array.is_valid() if array.null_count else None
    inner = pa.RecordBatch.from_arrays(
        [array.field(i) for i in range(array.type.num_fields)], schema=pa.schema(list(array.type))
    )
    children = below.columns(inner if decoded else None, len(array), present)
    return make_struct(children, target, present, len(array))


def _any_null(array: pa.Array, present: pa.BooleanArray | None) -> bool:
    return present is None or bool(pc.any(pc.and_(array.is_null(), present)).as_py())


def _plain(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    return (
        kind.value_type
        if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind)
        else kind
    )


_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_DIGITS_OF_UINT64 = 20


class PromotionError(ValueError):
    """A file's type cannot be read as the table's type; the caller adds file and column."""


def promote(array: pa.Array, kind: IcebergType, target: pa.DataType) -> pa.Array:
    """Read a primitive column as `kind`.

    Allowed: int to long, float to double, decimal to a wider one of the same scale, date to
    timestamp, any width of integer and any unit of time that foreign writers use (finer units are
    floored), strings without annotation, unsigned integers of 64 bits to decimals of 20 digits.

    Raises:
        PromotionError: anything else.
    """
    if array.type == target:
        return array
    array = without_encoding(array)
    storage = target.storage_type if isinstance(target, pa.BaseExtensionType) else target
    if isinstance(kind, UnknownType):
        return pa.nulls(len(array), target)
    if not can_promote(array.type, kind):
        raise PromotionError(f"is {array.type} in the file, which cannot be read as {kind}")
    try:
        plain = array if array.type == storage else _convert(array, kind, storage)
    except pa.ArrowInvalid as error:
        raise PromotionError(f"holds a value that is not a valid {kind}: {error}") from error
    return (
        pa.ExtensionArray.from_storage(target, plain)
        if isinstance(target, pa.BaseExtensionType)
        else plain
    )


def can_promote(source: pa.DataType, kind: IcebergType) -> bool:
    """Whether a file's Arrow type can be read as an Iceberg type."""
    types = pa.types
    if types.is_null(source):
        return True
    if isinstance(kind, BooleanType):
        return bool(types.is_boolean(source))
    if isinstance(kind, IntegerType | LongType):
        return bool(
            types.is_integer(source) and (isinstance(kind, LongType) or source.bit_width <= 32)
        )
    if isinstance(kind, FloatType | DoubleType):
        return bool(
            types.is_floating(source) and (isinstance(kind, DoubleType) or source.bit_width <= 32)
        )
    if isinstance(kind, DecimalType):
        if types.is_uint64(source):
            return kind.scale == 0 and kind.precision >= _DIGITS_OF_UINT64
        return bool(
            types.is_decimal(source)
            and source.scale == kind.scale
            and source.precision <= kind.precision
        )
    if isinstance(kind, DateType):
        return bool(types.is_date(source))
    if isinstance(kind, TimeType):
        return bool(types.is_time(source))
    if isinstance(kind, TimestampType | TimestamptzType | TimestampNanoType | TimestamptzNanoType):
        naive = isinstance(kind, TimestampType | TimestampNanoType)
        return bool(types.is_timestamp(source) or (naive and types.is_date32(source)))
    if isinstance(kind, StringType | BinaryType | GeometryType | GeographyType):
        return _is_bytes(source)
    if isinstance(kind, UUIDType | FixedType):
        width = 16 if isinstance(kind, UUIDType) else len(kind)
        return bool(types.is_fixed_size_binary(source) and source.byte_width == width)
    return False


def _convert(array: pa.Array, kind: IcebergType, storage: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(storage) and pa.types.is_timestamp(array.type):
        return _timestamps(array, storage)
    if pa.types.is_timestamp(storage):
        return array.cast(pa.timestamp("s")).cast(storage)
    if isinstance(kind, TimeType) and array.type == pa.time64("ns"):
        return _floor(array.view(pa.int64()), 1_000).view(storage)
    return array.cast(storage)


def _timestamps(array: pa.Array, storage: pa.DataType) -> pa.Array:
    """Other time units; instants keep their moment.

    A file without a zone means UTC (INT96, old writers).
    """
    source, wanted = _NANOS[array.type.unit], _NANOS[storage.unit]
    ticks = array.view(pa.int64())
    if source > wanted:
        ticks = pc.multiply_checked(ticks, source // wanted)
    elif source < wanted:
        ticks = _floor(ticks, wanted // source)
    return ticks.view(storage)


def _floor(ticks: pa.Array, divisor: int) -> pa.Array:
    quotient = pc.divide(ticks, divisor)
    inexact = pc.and_(pc.less(ticks, 0), pc.not_equal(pc.multiply(quotient, divisor), ticks))
    return pc.subtract(quotient, pc.cast(inexact, pa.int64()))


def _is_bytes(source: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(source)
        or types.is_large_string(source)
        or types.is_string_view(source)
        or types.is_binary(source)
        or types.is_large_binary(source)
        or types.is_binary_view(source)
    )
