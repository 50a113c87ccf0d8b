"""Variants as Arrow: columns of values encoded, and shredded ones of Parquet put together again.

A variant is `struct<metadata: binary, value: binary>`. A file may hold it shredded (Parquet's
Variant Shredding): beside `value` there is a `typed_value`, and below that groups of the same kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.data.conversion.nested_arrays import list_parts, make_struct, map_parts
from lakehouse.errors import CorruptMetadataError, InvalidInputError
from lakehouse.spec.types import variant_values as bytes_of
from lakehouse.spec.types.arrow_types import VARIANT
from lakehouse.spec.types.variant_values import Names, encode_with, unscaled_of

_METADATA, _VALUE, _TYPED = "metadata", "value", "typed_value"
Encoded = list[bytes | None]


def is_variant(kind: pa.DataType) -> bool:
    """Whether an Arrow type has the form in which Parquet files hold variants."""
    if not pa.types.is_struct(kind):
        return False
    names = {field.name for field in kind}
    return _METADATA in names and names <= {_METADATA, _VALUE, _TYPED} and len(names) > 1


def variants_of_file(array: pa.StructArray) -> pa.StructArray:
    """A column of a file, shredded or not, as variants; null where it is null.

    Raises:
        CorruptMetadataError: what it holds is no variant.
    """
    metadata = _binary(array.field(_METADATA))
    present = array.is_valid() if array.null_count else None
    if array.type.get_field_index(_TYPED) < 0:
        return make_struct([metadata, _binary(array.field(_VALUE))], VARIANT, present, len(array))
    names = names_of(metadata, present)
    values = [bytes_of.NULL if value is None else value for value in _put_together(array, names)]
    encoded = [name.encoded() for name in names]
    return make_struct(
        [pa.array(encoded, pa.binary()), pa.array(values, pa.binary())],
        VARIANT,
        present,
        len(array),
    )


def variants_of(array: pa.Array) -> pa.StructArray:
    """Arrow values of any type as variants: structs become objects, lists arrays.

    Variants come back as they are; JSON (`arrow.json`) is parsed; null is null, and within a value
    it is the variant's null.

    Raises:
        InvalidInputError: a type or value that no variant holds, or text that is no JSON.
    """
    if is_variant(array.type) and array.type.num_fields == VARIANT.num_fields:
        return variants_of_file(array)
    names = Names()
    values = _encoded(array, [names] * len(array))
    present = pa.array([value is not None for value in values], pa.bool_())
    metadata = pa.repeat(pa.scalar(names.encoded(), pa.binary()), len(array))
    filled = pa.array([bytes_of.NULL if value is None else value for value in values], pa.binary())
    return make_struct([metadata, filled], VARIANT, present, len(array))


def with_json(rows: pa.Table) -> pa.Table:
    """Rows as they are shown: variants as JSON text.

    Raises CorruptMetadataError for what is no variant.
    """
    for at, kind in enumerate(rows.schema.types):
        if is_variant(kind) and kind.num_fields == VARIANT.num_fields:
            values = rows.column(at).to_pylist()
            texts = [None if value is None else bytes_of.variant_json(**value) for value in values]
            rows = rows.set_column(at, rows.field(at).name, pa.array(texts, pa.string()))
    return rows


def names_of(metadata: pa.Array, present: pa.BooleanArray | None) -> list[Names]:
    """The names of each row, one object for rows that have the same; none where not `present`.

    Raises CorruptMetadataError for bytes that are no metadata.
    """
    if present is not None:
        metadata = pc.if_else(present, metadata, pa.scalar(Names().encoded(), pa.binary()))
    given = [raw or b"" for raw in metadata.to_pylist()]
    shared = {raw: Names(raw) for raw in set(given)}
    return [shared[raw] for raw in given]


def edges_encoded(edges: pa.Array) -> tuple[bytes, bytes]:
    """A minimum and a maximum of a shredded column as values of one type, that of the column."""
    kind = edges.type
    if pa.types.is_decimal(kind):
        digits = bytes_of.DECIMAL_DIGITS
        number = next(one for one, most in digits.items() if kind.precision <= most)
        low, high = (
            bytes_of.decimal_value(number, unscaled_of(one), kind.scale)
            for one in edges.to_pylist()
        )
        return low, high
    if pa.types.is_floating(kind):  # zeros of either sign are equal
        low, high = edges.to_pylist()
        edges = pa.array([low or -0.0, high or 0.0], kind)
    low, high = map(_or_null, _plain(edges))
    return low, high


def _binary(array: pa.Array) -> pa.Array:
    plain = array if array.type == pa.binary() else array.cast(pa.binary())
    return plain.fill_null(bytes_of.NULL) if plain.null_count else plain


def _put_together(group: pa.StructArray, names: Sequence[Names]) -> Encoded:
    """Values of a shredded group; None where neither of its columns has one."""
    value = _member(group, _VALUE, len(names))
    typed_at = group.type.get_field_index(_TYPED)
    if typed_at < 0:
        return value
    typed = group.field(typed_at)
    if _is_never_shredded(typed.type):
        raise CorruptMetadataError(f"no variant is shredded to {typed.type}")
    own: frozenset[str] = frozenset()
    if pa.types.is_struct(typed.type):
        shredded = _encoded_object(typed, names)
        own = frozenset(field.name for field in typed.type)
    elif _is_list(typed.type):
        shredded = _lists(typed, names, _put_together)
    else:
        shredded = _encoded(typed, names)
    return [
        _merged(rest, known, row_names, own)
        for rest, known, row_names in zip(value, shredded, names, strict=True)
    ]


def _member(group: pa.StructArray, name: str, rows: int) -> Encoded:
    at = group.type.get_field_index(name)
    return [None] * rows if at < 0 else list(group.field(at).to_pylist())


def _is_never_shredded(kind: pa.DataType) -> bool:
    if pa.types.is_fixed_size_binary(kind):
        return bool(kind.byte_width != 16)  # 16: a uuid
    return bool(pa.types.is_unsigned_integer(kind))


def _merged(
    rest: bytes | None, typed: bytes | None, names: Names, own: frozenset[str]
) -> bytes | None:
    """A value of both columns: an object whose `own` fields are shredded, the rest is not."""
    if rest is None or typed is None:
        return rest if typed is None else typed
    fields = bytes_of.fields_of_object(rest, names)
    shredded = bytes_of.fields_of_object(typed, names)
    if fields.keys() & own:
        raise CorruptMetadataError("a shredded variant has a field both shredded and not")
    return bytes_of.object_value({**fields, **shredded}, names)


def _encoded_object(array: pa.StructArray, names: Sequence[Names]) -> Encoded:
    """A `typed_value` of an object: each of its fields is a group, and may be missing."""
    columns = [(field.name, _put_together(array.field(at), names))
               for at, field in enumerate(array.type)]  # fmt: skip
    valid = array.is_valid().to_pylist()

    def fields_at(row: int) -> dict[str, bytes]:
        pairs = ((name, column[row]) for name, column in columns)
        return {name: value for name, value in pairs if value is not None}

    return [
        bytes_of.object_value(fields_at(row), names[row]) if valid[row] else None
        for row in range(len(array))
    ]


def _encoded(array: pa.Array, names: Sequence[Names]) -> Encoded:
    """Values of an Arrow column, encoded; None for nulls."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        if kind.extension_name == "arrow.json":
            return [
                None if text is None else encode_with(_parsed(text), row_names)
                for text, row_names in zip(array.storage.to_pylist(), names, strict=True)
            ]
        if not isinstance(kind, pa.UuidType):
            return _encoded(array.storage, names)
        return [
            None if raw is None else bytes([bytes_of.UUID_TYPE << 2]) + raw
            for raw in array.storage.to_pylist()
        ]
    if pa.types.is_dictionary(kind):
        return _encoded(array.dictionary_decode(), names)
    if pa.types.is_struct(kind):
        return _structs(array, names)
    if pa.types.is_map(kind):
        keys, values, lengths = map_parts(array)
        if not (pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type)):
            raise InvalidInputError("a map in a variant is an object: its keys are text")
        return _maps(keys.to_pylist(), values, lengths, names)
    if _is_list(kind):
        return _lists(array, names, _encoded)
    return _plain(array)


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"a value is no JSON that can be read: {error}") from error


def _structs(array: pa.StructArray, names: Sequence[Names]) -> Encoded:
    columns = [(field.name, _encoded(array.field(n), names)) for n, field in enumerate(array.type)]
    return [
        bytes_of.object_value({name: _or_null(column[row]) for name, column in columns}, names[row])
        if valid
        else None
        for row, valid in enumerate(array.is_valid().to_pylist())
    ]


def _lists(
    array: pa.Array, names: Sequence[Names], encode: Callable[[pa.Array, Sequence[Names]], Encoded]
) -> Encoded:
    """Lists whose elements `encode` encodes: those of a shredded array are groups."""
    values, lengths = list_parts(array)
    below, spans = _below(lengths, names)
    inside = encode(values, below)
    return [
        None if span is None else bytes_of.array_value([_or_null(item) for item in inside[span]])
        for span in spans
    ]


def _maps(
    keys: Sequence[str], values: pa.Array, lengths: pa.Array, names: Sequence[Names]
) -> Encoded:
    below, spans = _below(lengths, names)
    inside = _encoded(values, below)
    return [
        None
        if span is None
        else bytes_of.object_value(
            dict(zip(keys[span], map(_or_null, inside[span]), strict=True)), row_names
        )
        for span, row_names in zip(spans, names, strict=True)
    ]


def _below(lengths: pa.Array, names: Sequence[Names]) -> tuple[list[Names], list[slice | None]]:
    """The names of each element, and where the elements of each row are; None for a null."""
    counts = lengths.to_pylist()
    below = [own for own, count in zip(names, counts, strict=True) for _ in range(count or 0)]
    ends = np.cumsum([count or 0 for count in counts]).tolist()
    spans = [
        None if count is None else slice(end - count, end)
        for count, end in zip(counts, ends, strict=True)
    ]
    return below, spans


def _or_null(value: bytes | None) -> bytes:
    return bytes_of.NULL if value is None else value


def _plain(array: pa.Array) -> Encoded:
    kind = array.type
    for test, number in _TICKS:
        if test(kind):
            wide = array.cast(_STORED[number]) if number in _STORED else array
            plain = wide.view(pa.int32() if wide.type.bit_width == 32 else pa.int64()) if (
                pa.types.is_temporal(wide.type)
            ) else wide  # fmt: skip
            return [
                None if value is None else bytes_of.ticks(number, value)
                for value in plain.to_pylist()
            ]
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width == 16:
        # Parquet shreds a uuid in this form
        return [
            None if raw is None else bytes([bytes_of.UUID_TYPE << 2]) + raw
            for raw in array.to_pylist()
        ]
    names = Names()
    return [None if value is None else encode_with(value, names) for value in array.to_pylist()]


def _is_timestamp(unit: str, *, zoned: bool) -> Callable[[pa.DataType], bool]:
    def test(kind: pa.DataType) -> bool:
        return bool(
            pa.types.is_timestamp(kind)
            and (kind.unit == "ns") == (unit == "ns")
            and (kind.tz is not None) == zoned
        )

    return test


_TICKS: Sequence[tuple[Callable[[pa.DataType], bool], int]] = (
    (pa.types.is_int8, bytes_of.INT8),
    (pa.types.is_int16, bytes_of.INT16),
    (pa.types.is_int32, bytes_of.INT32),
    (pa.types.is_int64, bytes_of.INT64),
    (pa.types.is_float32, bytes_of.FLOAT),
    (pa.types.is_float64, bytes_of.DOUBLE),
    (pa.types.is_date, bytes_of.DATE),
    (pa.types.is_time, bytes_of.TIME),
    (_is_timestamp("us", zoned=True), bytes_of.TIMESTAMPTZ),
    (_is_timestamp("us", zoned=False), bytes_of.TIMESTAMP),
    (_is_timestamp("ns", zoned=True), bytes_of.TIMESTAMPTZ_NS),
    (_is_timestamp("ns", zoned=False), bytes_of.TIMESTAMP_NS),
)
_STORED: dict[int, pa.DataType] = {
    bytes_of.DATE: pa.date32(),
    bytes_of.TIME: pa.time64("us"),
    bytes_of.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    bytes_of.TIMESTAMP: pa.timestamp("us"),
}
