"""Safe casts of primitive Arrow arrays to Iceberg types: nothing overflows, is rounded or cut."""

from __future__ import annotations

import uuid
from collections.abc import Callable

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
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)


class CastError(ValueError):
    """Why an array does not fit; the caller adds the column's name."""


def without_encoding(array: pa.Array) -> pa.Array:
    """Plain values for dictionaries, run-end encodings and extension types (all but uuid)."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        if _is_view(array.type.value_type):
            values = _without_view(array.dictionary)
            array = pa.DictionaryArray.from_arrays(array.indices, values)
        array = array.dictionary_decode()
    if pa.types.is_run_end_encoded(array.type):
        if _is_view(array.type.value_type):
            runs = pa.RunEndEncodedArray.from_arrays(array.run_ends, _without_view(array.values))
            array = runs.slice(array.offset, len(array))
        array = pc.run_end_decode(array)
    return array


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _without_view(array: pa.Array) -> pa.Array:
    """Text and bytes that pyarrow has kernels for: it takes, decodes and measures no views."""
    if pa.types.is_string_view(array.type):
        return array.cast(pa.large_string())
    return array.cast(pa.large_binary()) if pa.types.is_binary_view(array.type) else array


def cast_primitive(array: pa.Array, kind: IcebergType, target: pa.DataType) -> pa.Array:
    """Cast to the Arrow type of a primitive Iceberg type.

    Args:
        array: plain values (see `without_encoding`).
        kind: Iceberg type.
        target: Arrow type that stands for it.

    Raises:
        CastError: the type may not be cast, or a value does not fit.
    """
    if isinstance(kind, TimeType) and pa.types.is_time(array.type):
        _check_time_of_day(array)
    if array.type == target:
        return array
    accepts = _ACCEPTS.get(type(kind))
    if accepts is None or not accepts(array.type):
        raise CastError(
            f"is {array.type} in the data but {kind} in the table{_advice(array.type, kind)}"
        )
    storage = target.storage_type if isinstance(target, pa.BaseExtensionType) else target
    try:
        plain = _to_storage(array, kind, storage)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise CastError(f"holds a value that is not a valid {kind}: {error}") from error
    if isinstance(target, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(target, plain)
    return plain


def _to_storage(array: pa.Array, kind: IcebergType, storage: pa.DataType) -> pa.Array:
    if array.type == storage:
        return array
    if isinstance(kind, UUIDType) and (_is_text(array.type)):
        parsed = [None if text is None else uuid.UUID(text).bytes for text in array.to_pylist()]
        return pa.array(parsed, storage)
    if isinstance(kind, UUIDType | FixedType) and not pa.types.is_fixed_size_binary(array.type):
        array = _without_view(array)
        width = storage.byte_width if pa.types.is_fixed_size_binary(storage) else 16
        lengths = pc.binary_length(array)
        if pc.any(pc.not_equal(lengths, width)).as_py():
            raise CastError(f"holds values that are not {width} bytes long, as {kind} must be")
        return array.cast(pa.binary()).cast(storage)
    if isinstance(kind, FloatType) and pa.types.is_float64(array.type):
        return _exact_float(array, storage)
    if isinstance(kind, DecimalType) and pa.types.is_integer(array.type):
        return array.cast(pa.decimal128(20, 0)).cast(pa.decimal128(38, kind.scale)).cast(storage)
    return array.cast(storage, safe=True)


def _check_time_of_day(array: pa.Array) -> None:
    """Arrow takes any number for a time, and reads it modulo 24 h."""
    whole = pa.int32() if array.type.bit_width == 32 else pa.int64()
    ends = pc.min_max(array.view(whole)).as_py()
    least, most = ends["min"], ends["max"]
    if least is not None and (least < 0 or most >= 86_400 * _PER_SECOND[array.type.unit]):
        wrong = least if least < 0 else most
        raise CastError(
            f"holds a time of {wrong} {array.type.unit}, which is outside a day (00:00 to before "
            "24:00): a duration is a number"
        )


_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


def _exact_float(array: pa.Array, storage: pa.DataType) -> pa.Array:
    narrow = array.cast(storage, safe=False)
    back = narrow.cast(array.type)
    changed = pc.and_(pc.not_equal(back, array), pc.invert(pc.is_nan(array)))
    row = pc.index(pc.fill_null(changed, False), True).as_py()
    if row >= 0:
        raise CastError(
            f"holds {array[row].as_py()!r}, which a 32-bit float cannot represent exactly; round "
            "it first"
        )
    return narrow


def _advice(source: pa.DataType, kind: IcebergType) -> str:
    if pa.types.is_timestamp(source) and isinstance(kind, _ZONED) and source.tz is None:
        return "; a time without a zone is no instant: attach its zone first (assume_timezone)"
    if pa.types.is_timestamp(source) and isinstance(kind, _NAIVE) and source.tz is not None:
        return "; convert to local time without a zone first, or make the column timestamptz"
    return ""


_ZONED = (TimestamptzType, TimestamptzNanoType)
_NAIVE = (TimestampType, TimestampNanoType)


def _is_text(source: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(source)
        or pa.types.is_large_string(source)
        or pa.types.is_string_view(source)
    )


def _is_bytes(source: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(source)
        or pa.types.is_large_binary(source)
        or pa.types.is_binary_view(source)
        or pa.types.is_fixed_size_binary(source)
    )


def _is_float_source(source: pa.DataType) -> bool:
    return bool(pa.types.is_floating(source) or pa.types.is_integer(source))


def _is_naive(source: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(source) and source.tz is None)


def _is_zoned(source: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(source) and source.tz is not None)


_ACCEPTS: dict[type[IcebergType], Callable[[pa.DataType], bool]] = {
    BooleanType: pa.types.is_boolean,
    IntegerType: pa.types.is_integer,
    LongType: pa.types.is_integer,
    FloatType: _is_float_source,
    DoubleType: _is_float_source,
    DecimalType: lambda source: pa.types.is_decimal(source) or pa.types.is_integer(source),
    DateType: pa.types.is_date,
    TimeType: pa.types.is_time,
    TimestampType: _is_naive,
    TimestampNanoType: _is_naive,
    TimestamptzType: _is_zoned,
    TimestamptzNanoType: _is_zoned,
    StringType: _is_text,
    UUIDType: lambda source: _is_text(source) or _is_bytes(source),
    FixedType: _is_bytes,
    BinaryType: _is_bytes,
    GeometryType: _is_bytes,
    GeographyType: _is_bytes,
    UnknownType: pa.types.is_null,
}
