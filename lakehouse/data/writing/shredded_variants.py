"""Variants written shredded: what their files hold as columns of their own, and its bounds.

What is shredded follows from the first rows of a file, as Iceberg's Java decides it: at each place
of a value the type that most values have there, of fields that a tenth of the rows have. A value of
another type stays beside it, encoded (Parquet's Variant Shredding).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from lakehouse.data.conversion.nested_arrays import make_list, make_struct
from lakehouse.data.conversion.variant_arrays import edges_encoded, names_of
from lakehouse.data.statistics.column_metrics import (
    NONE,
    FileMetrics,
    MetricsMode,
    round_up_bytes,
    round_up_text,
)
from lakehouse.expressions.functions.variant_paths import normalized
from lakehouse.spec.schema.iceberg_types import VariantType
from lakehouse.spec.types import variant_values as bytes_of
from lakehouse.spec.types.variant_values import Names

_RARE = 10
"""A field that less than one in so many rows has is not shredded."""
_MOST_FIELDS, _DEEPEST = 300, 16
_INTEGERS = {
    bytes_of.INT8: pa.int8(),
    bytes_of.INT16: pa.int16(),
    bytes_of.INT32: pa.int32(),
    bytes_of.INT64: pa.int64(),
}
_TYPED: Mapping[int, pa.DataType] = {
    **_INTEGERS,
    bytes_of.TRUE: pa.bool_(),
    bytes_of.DOUBLE: pa.float64(),
    bytes_of.FLOAT: pa.float32(),
    bytes_of.DATE: pa.date32(),
    bytes_of.TIME: pa.time64("us"),
    bytes_of.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    bytes_of.TIMESTAMP: pa.timestamp("us"),
    bytes_of.TIMESTAMPTZ_NS: pa.timestamp("ns", "UTC"),
    bytes_of.TIMESTAMP_NS: pa.timestamp("ns"),
    bytes_of.BINARY: pa.binary(),
    bytes_of.STRING: pa.string(),
    bytes_of.UUID_TYPE: pa.uuid(),
}
_NUMBER_OF = {kind: number for number, kind in _TYPED.items()}
_REST = pa.field("value", pa.binary())
Values = Sequence[bytes | None]


class ShreddedVariants:
    """The variant columns of one file, not those inside other columns.

    Args:
        schema: of the file.
        arrow: the same for Arrow, with field ids.
        modes: metrics per field id.
        first: the file's first rows.
        looked_at: by how many of these it is decided what is shredded; 0: nothing is.

    Attributes:
        arrow: schema of the rows as they are written.
    """

    def __init__(
        self,
        schema: Schema,
        arrow: pa.Schema,
        modes: Mapping[int, MetricsMode],
        first: pa.Table,
        looked_at: int,
    ) -> None:
        self._modes = modes
        self._ids = {
            field.name: field.field_id
            for field in schema.fields
            if isinstance(field.field_type, VariantType)
        }
        self._counts = dict.fromkeys(self._ids.values(), (0, 0))
        self._bounds: dict[int, _Bounds] = {}
        self._typed: dict[str, pa.DataType] = {}
        for name, field_id in self._ids.items() if looked_at else ():
            typed = _shredding_of(first[name].slice(0, looked_at).combine_chunks())
            if typed is not None:
                self._typed[name] = typed
                self._bounds[field_id] = _Bounds()
        self.arrow = arrow
        for name, typed in self._typed.items():
            at = arrow.get_field_index(name)
            self.arrow = self.arrow.set(at, arrow.field(at).with_type(_column_type(typed)))

    def unordered(self) -> set[str]:
        """Paths of the UUIDs among what is shredded, which not all readers order alike."""
        return {
            path
            for name, typed in self._typed.items()
            for path in _uuids(f"{name}.typed_value", typed)
        }

    def rows(self, rows: pa.Table) -> pa.Table:
        """Rows as they are written; each row of the file is given once."""
        for name, field_id in self._ids.items():
            values, nulls = self._counts[field_id]
            column = rows[name]
            self._counts[field_id] = values + len(column), nulls + column.null_count
            typed = self._typed.get(name)
            if typed is not None:
                variants = _shredded(column.combine_chunks(), typed)
                self._bounds[field_id].add(variants)
                at = rows.schema.get_field_index(name)
                rows = rows.set_column(at, self.arrow.field(at), variants)
        return rows

    def put_into(self, metrics: FileMetrics) -> None:
        """Set counts and bounds of the file whose rows were given."""
        for field_id, (values, nulls) in self._counts.items():
            mode = self._modes.get(field_id, NONE)
            if mode.counts:
                metrics.value_counts[field_id] = values
                metrics.null_value_counts[field_id] = nulls
            if mode.bounds and field_id in self._bounds:
                lower, upper = self._bounds[field_id].serialized(mode.length)
                if lower and upper:
                    metrics.lower_bounds[field_id] = bytes_of.serialized_object(lower)
                    metrics.upper_bounds[field_id] = bytes_of.serialized_object(upper)


def _group_type(typed: pa.DataType) -> pa.DataType:
    return pa.struct([_REST, pa.field("typed_value", typed)])


def _column_type(typed: pa.DataType) -> pa.DataType:
    metadata = pa.field("metadata", pa.binary(), nullable=False)
    return pa.struct([metadata, *_group_type(typed)])


def _uuids(path: str, typed: pa.DataType) -> list[str]:
    if pa.types.is_struct(typed):
        below = [(f"{path}.{field.name}", field.type) for field in typed]
    elif pa.types.is_list(typed):
        below = [(f"{path}.list.element", typed.value_type)]
    else:
        return [path] if isinstance(typed, pa.UuidType) else []
    return [uuid for name, kind in below for uuid in _uuids(name, kind)]


def _shredding_of(first: pa.StructArray) -> pa.DataType | None:
    """The type of `typed_value` for variants like these; None where none suits."""
    seen = _Seen()
    values, names = _given(first)
    for value, own in zip(values, names, strict=True):
        if value is not None:
            seen.look_at(value, own, 0)
    return seen.typed(seen.count)


class _Seen:
    """What values lay at one place.

    Attributes:
        count: of values that are not null.
    """

    def __init__(self) -> None:
        self.count = 0
        self._kinds: Counter[tuple[int, int]] = Counter()
        """By type and scale; integers of all widths are of one type, and so are decimals."""
        self._widest: dict[tuple[int, int], int] = {}
        self._fields: dict[str, _Seen] = {}

    def look_at(self, value: bytes, names: Names, depth: int) -> None:
        number = bytes_of.type_of(value)
        if number == bytes_of.NULL_TYPE:
            return
        self.count += 1
        kind = _kind(number, value)
        self._kinds[kind] += 1
        self._widest[kind] = max(self._widest.get(kind, number), number)
        if depth == _DEEPEST:
            return
        if number == bytes_of.OBJECT:
            for name, part in bytes_of.fields_of_object(value, names).items():
                if name in self._fields or len(self._fields) < _MOST_FIELDS * 4:
                    self._fields.setdefault(name, _Seen()).look_at(part, names, depth + 1)
        elif number == bytes_of.ARRAY:
            for part in bytes_of.elements_of_array(value):
                self._fields.setdefault("", _Seen()).look_at(part, names, depth + 1)

    def typed(self, rows: int) -> pa.DataType | None:
        if not self._kinds:
            return None
        kind = max(self._kinds, key=lambda kind: (self._kinds[kind], kind))
        number, scale = self._widest[kind], kind[1]
        if number == bytes_of.OBJECT:
            return self._object(rows)
        if number == bytes_of.ARRAY:
            element = self._fields[""].typed(rows) if "" in self._fields else None
            if element is None:
                return None
            return pa.list_(pa.field("element", _group_type(element), nullable=False))
        if number in bytes_of.DECIMAL_DIGITS:
            return pa.decimal128(bytes_of.DECIMAL_DIGITS[number], scale)
        return _TYPED.get(number)

    def _object(self, rows: int) -> pa.DataType | None:
        frequent = [
            (name, seen)
            for name, seen in self._fields.items()
            if name and "\0" not in name and seen.count * _RARE >= rows
        ]
        frequent.sort(key=lambda item: (-item[1].count, item[0]))
        fields = [
            pa.field(name, _group_type(typed), nullable=False)
            for name, seen in sorted(frequent[:_MOST_FIELDS])
            if (typed := seen.typed(rows)) is not None
        ]
        return pa.struct(fields) if fields else None


def _kind(number: int, value: bytes) -> tuple[int, int]:
    if number in _INTEGERS:
        return bytes_of.INT64, 0
    if number in bytes_of.DECIMAL_DIGITS:
        return bytes_of.DECIMALS[0], value[1]
    return (bytes_of.TRUE if number == bytes_of.FALSE else number), 0


def _given(array: pa.StructArray) -> tuple[Values, list[Names]]:
    present = array.is_valid()
    value = pc.if_else(present, array.field("value"), None)
    return value.to_pylist(), names_of(array.field("metadata"), present)


def _shredded(array: pa.StructArray, typed: pa.DataType) -> pa.StructArray:
    values, names = _given(array)
    parts = _parts(typed, values, names)
    present = array.is_valid() if array.null_count else None
    return make_struct([array.field("metadata"), *parts], _column_type(typed), present, len(array))


def _parts(typed: pa.DataType, values: Values, names: Sequence[Names]) -> tuple[pa.Array, pa.Array]:
    """`value` and `typed_value` of a group: each value is in one of both, or an object in both."""
    if pa.types.is_struct(typed):
        return _object_parts(typed, values, names)
    wanted = bytes_of.ARRAY if pa.types.is_list(typed) else None
    taken: list[Any] = []
    rest: list[bytes | None] = []
    for value in values:
        if value is None:
            typed_value = None
        elif wanted is None:
            typed_value = _primitive(typed, value)
        else:
            typed_value = (
                bytes_of.elements_of_array(value) if bytes_of.type_of(value) == wanted else None
            )
        taken.append(typed_value)
        rest.append(value if typed_value is None else None)
    if wanted is None:
        return pa.array(rest, pa.binary()), _array(taken, typed)
    lengths = pa.array(
        [None if typed_value is None else len(typed_value) for typed_value in taken], pa.int32()
    )
    below = [own for own, typed_value in zip(names, taken, strict=True) for _ in typed_value or ()]
    elements = list(itertools.chain.from_iterable(typed_value or () for typed_value in taken))
    group = _group(typed.value_type, elements, below)
    return pa.array(rest, pa.binary()), make_list(group, lengths, typed)


def _group(kind: pa.StructType, values: Values, names: Sequence[Names]) -> pa.StructArray:
    return make_struct(_parts(kind.field(1).type, values, names), kind, None, len(values))


def _object_parts(
    typed: pa.StructType, values: Values, names: Sequence[Names]
) -> tuple[pa.Array, pa.Array]:
    columns: dict[str, list[bytes | None]] = {field.name: [] for field in typed}
    rest: list[bytes | None] = []
    present: list[bool] = []
    for value, own in zip(values, names, strict=True):
        is_object = value is not None and bytes_of.type_of(value) == bytes_of.OBJECT
        fields = bytes_of.fields_of_object(value, own) if is_object and value else {}
        for name, column in columns.items():
            column.append(fields.pop(name, None))
        present.append(is_object)
        if is_object:
            rest.append(bytes_of.object_value(fields, own) if fields else None)
        else:
            rest.append(value)
    groups = [_group(field.type, columns[field.name], names) for field in typed]
    return pa.array(rest, pa.binary()), make_struct(groups, typed, pa.array(present), len(values))


def _primitive(typed: pa.DataType, value: bytes) -> Any:
    """What a column of the type holds for a value; None where it holds no such value."""
    number = bytes_of.type_of(value)
    if pa.types.is_decimal(typed):
        if number not in bytes_of.DECIMAL_DIGITS or value[1] != typed.scale:
            return None
        typed_value = bytes_of.primitive_of(value)
        return typed_value if len(typed_value.as_tuple().digits) <= typed.precision else None
    wanted = _NUMBER_OF[typed]
    if pa.types.is_integer(typed):
        fits = bytes_of.INT8 <= number <= wanted
    else:
        fits = (bytes_of.TRUE if number == bytes_of.FALSE else number) == wanted
    if not fits:
        return None
    typed_value = bytes_of.primitive_of(value)
    return typed_value.bytes if isinstance(typed, pa.UuidType) else typed_value


def _array(values: Sequence[Any], typed: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(typed):
        stored = pa.int32() if typed.bit_width == 32 else pa.int64()
        return pa.array(values, stored).view(typed)
    if isinstance(typed, pa.UuidType):
        return pa.ExtensionArray.from_storage(typed, pa.array(values, typed.storage_type))
    return pa.array(values, typed)


class _Bounds:
    """The smallest and largest value at each path of a column that has values of one type alone.

    There are none below arrays (spec: Bounds for Variant, Geometry, and Geography).
    """

    def __init__(self) -> None:
        self._edges: dict[tuple[str, ...], list[pa.Array]] = {}
        self._mixed: set[tuple[str, ...]] = set()

    def add(self, variants: pa.StructArray) -> None:
        """Take in values that are shredded."""
        present = variants.is_valid()
        self._add(variants, present, ())

    def _add(self, group: pa.StructArray, present: pa.Array, path: tuple[str, ...]) -> None:
        rest, typed = group.field("value"), group.field("typed_value")
        if pa.types.is_struct(typed.type):
            for at, field in enumerate(typed.type):
                self._add(typed.field(at), present, (*path, field.name))
            return
        if pa.types.is_list(typed.type) or isinstance(typed.type, pa.UuidType):
            return
        if pc.any(pc.not_equal(rest, bytes_of.NULL)).as_py():
            self._mixed.add(path)
        edges = _edges_of(typed)
        if edges is not None:
            self._edges.setdefault(path, []).append(edges)

    def serialized(self, length: int | None) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """Lower and upper bounds by normalized path, encoded; those of texts cut to a length."""
        lower: dict[str, bytes] = {}
        upper: dict[str, bytes] = {}
        for path in sorted(self._edges.keys() - self._mixed):
            edges = _edges_of(pa.concat_arrays(self._edges[path]))
            if edges is None:
                continue
            cut = _cut(edges, length)
            if not cut.null_count:
                lower[normalized(path)], upper[normalized(path)] = edges_encoded(cut)
        return lower, upper


def _edges_of(values: pa.Array) -> pa.Array | None:
    """Minimum and maximum but for NaN; None without any."""
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))
    least_and_most = pc.min_max(values)
    edges = pa.array([least_and_most[side].as_py() for side in ("min", "max")], values.type)
    return None if edges.null_count else edges


def _cut(edges: pa.Array, length: int | None) -> pa.Array:
    """The same with texts and bytes cut; the upper one is null where none is above."""
    if length is None:
        return edges
    if pa.types.is_string(edges.type):
        low, high = edges.to_pylist()
        return pa.array([low[:length], round_up_text(high, length)], edges.type)
    if pa.types.is_binary(edges.type):
        low, high = edges.to_pylist()
        return pa.array([low[:length], round_up_bytes(high, length)], edges.type)
    return edges
