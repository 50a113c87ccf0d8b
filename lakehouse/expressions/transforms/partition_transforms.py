"""Partition transforms of arrays and of single values (spec: Partition Transforms, Appendix B)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
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

from lakehouse.errors import InvalidInputError, InvalidPartitionSpecError, UnsupportedFeatureError
from lakehouse.expressions.transforms.murmur3 import hash_longs, hash_rows, hash_slices
from lakehouse.kept_by_bytes import short_only
from lakehouse.spec.types.arrow_types import from_physical, physical_type, to_physical

Longs = npt.NDArray[np.int64]

_TIMESTAMPS = (TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)
_TICKS_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_WIDEST_LONG_DECIMAL = 18


def transform_array(
    transform: Transform[Any, Any], array: pa.Array | pa.ChunkedArray, source_type: IcebergType
) -> pa.Array | pa.ChunkedArray:
    """Apply a transform to a whole array.

    Args:
        transform: pyiceberg's transform object (identity, bucket, truncate, year, month, day, hour,
            void).
        array: source values in the Arrow type of `source_type` (large, view and dictionary
            encodings are accepted).
        source_type: Iceberg type of the source column.

    Returns:
        An array of the same length: int32 for bucket, year, month and hour, date32 for day, the
        type of `array` (without dictionary or view encoding) otherwise. Null stays null.

    Raises:
        InvalidPartitionSpecError: the transform does not apply to the type.
        InvalidInputError: a result lies outside its type (`truncate` next to the smallest integer,
            `hour` in the year 246,000).
        UnsupportedFeatureError: an unknown transform, which cannot be computed.
    """
    if isinstance(transform, UnknownTransform):
        raise _unknown(transform)
    if not isinstance(transform, VoidTransform) and not transform.can_transform(source_type):
        raise InvalidPartitionSpecError(
            f"Transform {transform} does not apply to type {source_type}",
            transform=str(transform),
            type=str(source_type),
        )
    if isinstance(array, pa.ChunkedArray):
        chunks = [transform_array(transform, chunk, source_type) for chunk in array.chunks]
        empty = transform_array(transform, pa.array([], array.type), source_type)
        return pa.chunked_array(chunks, empty.type)
    plain = _plain(array)
    if isinstance(transform, IdentityTransform):
        return plain
    if isinstance(transform, VoidTransform):
        return pa.nulls(len(plain), plain.type)
    if isinstance(transform, BucketTransform):
        return _bucket(plain, source_type, transform.num_buckets)
    if isinstance(transform, TruncateTransform):
        return _truncate(plain, source_type, transform.width)
    return _calendar(transform, plain, source_type)


def _unknown(transform: Transform[Any, Any]) -> UnsupportedFeatureError:
    message = (
        f"{transform!r} is unknown to this version and cannot be computed; write with a version "
        "that knows it"
    )
    return UnsupportedFeatureError(message, transform=repr(transform))


def _plain(array: pa.Array) -> pa.Array:
    """The storage of extension types, the values of dictionaries, views as large types."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_string_view(array.type):
        return array.cast(pa.large_string())
    if pa.types.is_binary_view(array.type):
        return array.cast(pa.large_binary())
    return array


def _raw(array: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    """The values of a fixed-width array without copying; whatever lies under nulls is undefined."""
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return np.zeros(len(array), dtype=dtype)
    return np.frombuffer(
        buffer, dtype=dtype, count=len(array), offset=array.offset * np.dtype(dtype).itemsize
    )


def _raw_bytes(array: pa.Array, width: int) -> npt.NDArray[np.uint8]:
    """The values of a fixed-size binary or decimal array, one row each."""
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return np.zeros((len(array), width), dtype=np.uint8)
    flat = np.frombuffer(
        buffer, dtype=np.uint8, count=len(array) * width, offset=array.offset * width
    )
    return flat.reshape(len(array), width)


def _nulls(array: pa.Array) -> npt.NDArray[np.bool_] | None:
    return None if array.null_count == 0 else array.is_null().to_numpy(zero_copy_only=False)


def _longs(array: pa.Array) -> Longs:
    """Integers, dates, times and timestamps as 64-bit integers in their own unit."""
    dtype = np.int32 if array.type.bit_width == 32 else np.int64
    return _raw(array, dtype).astype(np.int64, copy=False)


def _int32(values: Longs, array: pa.Array, what: str) -> pa.Array:
    return pa.array(
        _checked(values, _longs(array), array, np.int32, what), pa.int32(), mask=_nulls(array)
    )


def _checked(
    values: Longs, sources: Longs, array: pa.Array, dtype: Any, what: str
) -> npt.NDArray[Any]:
    """Narrow to `dtype`; the error shows the source value that does not fit."""
    limits = np.iinfo(dtype)
    wrong = (values < limits.min) | (values > limits.max)
    nulls = _nulls(array)
    if nulls is not None:
        wrong &= ~nulls
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise _outside(what, sources[row])
    return values.astype(dtype, copy=False)


def _outside(what: str, value: Any) -> InvalidInputError:
    return InvalidInputError(
        f"{what} of {value!s} lies outside its result type; the value cannot be partitioned or "
        "sorted by it"
    )


# bucket


def _bucket(array: pa.Array, source_type: IcebergType, buckets: int) -> pa.Array:
    positive = _hashes(array, source_type) & np.int32(0x7FFF_FFFF)
    return pa.array(positive % np.int32(buckets), pa.int32(), mask=_nulls(array))


def _hashes(array: pa.Array, source_type: IcebergType) -> npt.NDArray[np.int32]:
    if isinstance(source_type, _TIMESTAMPS):
        ticks = _longs(array)
        per_micro = _TICKS_PER_DAY[array.type.unit] / _TICKS_PER_DAY["us"]
        return hash_longs(
            ticks // np.int64(per_micro) if per_micro >= 1 else ticks * np.int64(1 / per_micro)
        )
    if isinstance(source_type, IntegerType | LongType | DateType | TimeType):
        return hash_longs(_longs(array))
    if isinstance(source_type, DecimalType):
        return _hash_decimals(_decimal_bytes(array))
    if isinstance(source_type, UUIDType | FixedType) and pa.types.is_fixed_size_binary(array.type):
        return hash_rows(_raw_bytes(array, array.type.byte_width))
    return _hash_variable(array)


def _hash_variable(array: pa.Array) -> npt.NDArray[np.int32]:
    _, offsets_buffer, data = array.buffers()
    if len(array) == 0 or offsets_buffer is None:
        return np.zeros(len(array), dtype=np.int32)
    dtype = np.dtype(
        np.int64
        if pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
        else np.int32
    )
    offsets = np.frombuffer(
        offsets_buffer, dtype=dtype, count=len(array) + 1, offset=array.offset * dtype.itemsize
    )
    return hash_slices(
        b"" if data is None else memoryview(data), offsets.astype(np.int64, copy=False)
    )


def _decimal_bytes(array: pa.Array) -> npt.NDArray[np.uint8]:
    """Unscaled values as little-endian two's complement, 16 bytes each."""
    kind = array.type
    if kind.byte_width != 16:
        array = array.cast(pa.decimal128(kind.precision, kind.scale))
    return _raw_bytes(array, 16)


def _hash_decimals(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """`hashBytes(minBigEndian(unscaled))`: the fewest bytes that still hold the sign."""
    sign = np.where(rows[:, 15] & 0x80, np.uint8(0xFF), np.uint8(0))
    lengths = np.ones(len(rows), dtype=np.int8)
    for index in range(1, 16):
        needed = (rows[:, index] != sign) | ((rows[:, index - 1] ^ sign) >= 0x80)
        lengths[needed] = index + 1
    result = np.empty(len(rows), dtype=np.int32)
    for length in np.unique(lengths).tolist():
        chosen = np.flatnonzero(lengths == length)
        result[chosen] = hash_rows(np.ascontiguousarray(rows[chosen, :length][:, ::-1]))
    return result


# truncate


def _truncate(array: pa.Array, source_type: IcebergType, width: int) -> pa.Array:
    if isinstance(source_type, StringType):
        return pc.utf8_slice_codeunits(array, 0, width)
    if isinstance(source_type, BinaryType):
        if pa.types.is_fixed_size_binary(array.type):
            array = array.cast(pa.binary())
        return pc.binary_slice(array, 0, width)
    if isinstance(source_type, DecimalType):
        return _truncate_decimals(array, width)
    values = _longs(array)
    remainders = values % np.int64(width)
    _refuse_underflow(values, remainders, array, width)
    dtype = np.int32 if array.type.bit_width == 32 else np.int64
    truncated = _checked(values - remainders, values, array, dtype, f"truncate[{width}]")
    return pa.array(truncated, array.type, mask=_nulls(array))


def _refuse_underflow(values: Longs, remainders: Longs, array: pa.Array, width: int) -> None:
    wrong = values < np.iinfo(np.int64).min + remainders
    nulls = _nulls(array)
    if nulls is not None:
        wrong &= ~nulls
    if wrong.any():
        raise _outside(f"truncate[{width}]", values[int(np.flatnonzero(wrong)[0])])


def _truncate_decimals(array: pa.Array, width: int) -> pa.Array:
    kind = array.type
    pairs = np.ascontiguousarray(_decimal_bytes(array)).view("<i8").reshape(-1, 2)
    if kind.precision <= _WIDEST_LONG_DECIMAL:
        values = pairs[:, 0]
        unscaled: Any = values - values % np.int64(width)
    else:
        wide = pairs[:, 1].astype(object) * (1 << 64) + pairs[:, 0].view("<u8").astype(object)
        unscaled = wide - wide % width
    nulls = _nulls(array)
    too_wide = (unscaled <= -(10**kind.precision)) & (True if nulls is None else ~nulls)
    if too_wide.any():
        raise _outside(f"truncate[{width}]", array[int(np.flatnonzero(too_wide)[0])])
    if kind.precision <= _WIDEST_LONG_DECIMAL:
        words = np.stack([unscaled, unscaled >> np.int64(63)], axis=1).tobytes()
    else:
        masked = unscaled if nulls is None else np.where(nulls, 0, unscaled)
        words = b"".join(value.to_bytes(16, "little", signed=True) for value in masked)
    validity = None if nulls is None else array.is_valid().buffers()[1]
    decimal = pa.decimal128(kind.precision, kind.scale)
    result = pa.Array.from_buffers(decimal, len(array), [validity, pa.py_buffer(words)])
    return result.cast(kind)


# year, month, day, hour


def _calendar(
    transform: Transform[Any, Any], array: pa.Array, source_type: IcebergType
) -> pa.Array:
    if isinstance(transform, HourTransform):
        hours = _longs(array) // np.int64(_TICKS_PER_DAY[array.type.unit] // 24)
        return _int32(hours, array, "hour")
    days = _longs(array)
    if not isinstance(source_type, DateType):
        days = days // np.int64(_TICKS_PER_DAY[array.type.unit])
    if isinstance(transform, DayTransform):
        return _int32(days, array, "day").view(pa.date32())
    unit = _CALENDAR_UNITS.get(type(transform))
    if unit is None:
        raise _unknown(transform)
    return _int32(unit(days), array, str(transform))


def _months_of(days: Longs) -> Longs:
    return days.view("datetime64[D]").astype("datetime64[M]").view(np.int64)


def _years_of(days: Longs) -> Longs:
    return days.view("datetime64[D]").astype("datetime64[Y]").view(np.int64)


_CALENDAR_UNITS: dict[type[Transform[Any, Any]], Callable[[Longs], Longs]] = {
    MonthTransform: _months_of,
    YearTransform: _years_of,
}


Datum: TypeAlias = pa.Array | pa.Scalar
"""Values of rows, or a constant."""
_LONGS = (IntegerType, LongType, DateType, TimeType, TimestampType, TimestamptzType)
"""Types whose values are hashed as eight bytes; arrays of one value take ten times as long."""
_UNITS: dict[type[IcebergType], pa.DataType] = {
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", "UTC"),
    TimestampNanoType: pa.timestamp("ns"),
    TimestamptzNanoType: pa.timestamp("ns", "UTC"),
}


def arrow_type(kind: IcebergType) -> pa.DataType:
    """The Arrow type that values of a primitive type are computed with."""
    return _UNITS.get(type(kind)) or physical_type(kind)


def arrow_array(values: list[Any], kind: IcebergType) -> pa.Array:
    """Internal values in the Arrow type that data files are read with."""
    array = pa.array([to_physical(value) for value in values], physical_type(kind))
    unit = _UNITS.get(type(kind))
    return array if unit is None else array.cast(unit)


def constant_of(data: Datum, what: str) -> Any:
    """The Python value of a constant. Raises TypeError for rows and for null, naming `what`."""
    if not isinstance(data, pa.Scalar):
        raise TypeError(f"{what} must be a constant")
    if not data.is_valid:
        raise TypeError(f"{what} must not be null")
    return data.as_py()


@short_only(4096)
def transform_value(transform: Transform[Any, Any], value: Any, kind: IcebergType) -> Any:
    """The partition value of an internal value, by the same code that partitions data.

    Raises:
        InvalidInputError: the result lies outside its type.
    """
    if isinstance(transform, BucketTransform) and type(value) is int and isinstance(kind, _LONGS):
        digest = mmh3.hash(value.to_bytes(8, "little", signed=True))
        return (digest & 0x7FFF_FFFF) % transform.num_buckets
    result = transform_array(transform, arrow_array([value], kind), kind)
    result_kind = transform.result_type(kind)
    physical = (
        result.cast(physical_type(result_kind))
        if result.type != physical_type(result_kind)
        else result
    )
    return from_physical(physical[0].as_py(), physical.type)
