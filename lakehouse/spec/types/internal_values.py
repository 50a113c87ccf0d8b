"""Iceberg's internal values (spec: Appendix D): of Python and Arrow, and as bytes in bounds.

Iceberg's Java library compares UUIDs as two signed 64-bit halves; everybody else, Parquet included,
compares sixteen unsigned bytes. The two agree on UUIDs of one class: those with the same top bits
of both halves. Bounds are written so that they hold in both orders.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
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

from lakehouse.spec.types.arrow_types import null_array, physical_type, type_to_arrow

_EPOCH_DAY = dt.date(1970, 1, 1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


def to_internal(value: Any, kind: IcebergType) -> Any:
    """A Python value (date, datetime, time, UUID, ...) or an internal one as the internal one."""
    if value is None:
        return None
    if isinstance(kind, DateType) and isinstance(value, dt.date):
        return (value - _EPOCH_DAY).days
    if isinstance(kind, TimeType) and isinstance(value, dt.time):
        return (
            (value.hour * 60 + value.minute) * 60 + value.second
        ) * 1_000_000 + value.microsecond
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        micros = (aware - _EPOCH) // _MICROSECOND
        return (
            micros * 1_000 if isinstance(kind, TimestampNanoType | TimestamptzNanoType) else micros
        )
    if isinstance(kind, UUIDType) and not isinstance(value, UUID):
        return UUID(bytes=bytes(value)) if isinstance(value, bytes) else UUID(value)
    if isinstance(kind, BinaryType | FixedType):
        return bytes(value)
    return value


def typed_array(values: Sequence[Any], kind: IcebergType | None) -> pa.Array:
    """Internal values of one Iceberg type; values of unknown types become text.

    A partition field whose source is long gone has such a type.
    """
    if kind is None:
        return pa.array([None if value is None else str(value) for value in values], pa.string())
    arrow = type_to_arrow(kind)
    if pa.types.is_date32(arrow) or pa.types.is_time(arrow) or pa.types.is_timestamp(arrow):
        width = pa.int32() if arrow.bit_width == 32 else pa.int64()
        return pa.array(values, width).cast(arrow)
    if isinstance(kind, UUIDType):
        raw = pa.array(
            [
                value if value is None or isinstance(value, bytes) else value.bytes
                for value in values
            ],
            pa.binary(16),
        )
        return (
            raw.cast(arrow)
            if not isinstance(arrow, pa.ExtensionType)
            else pa.ExtensionArray.from_storage(arrow, raw)
        )
    return pa.array(values, arrow)


_LONG_BACKED = (TimeType, TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)


def internal_values(array: pa.Array, kind: IcebergType) -> list[Any]:
    """Elements as Iceberg's internal values.

    Dates are days, timestamps are ticks (both int), uuids are UUID, fixed and binary are bytes.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_date32(array.type):
        return list(array.view(pa.int32()).to_pylist())
    if isinstance(kind, _LONG_BACKED) and array.type.bit_width == 64:
        return list(array.view(pa.int64()).to_pylist())
    values = list(array.to_pylist())
    if isinstance(kind, UUIDType):
        return [None if value is None else UUID(bytes=value) for value in values]
    return values


def to_scalar(value: Any, kind: IcebergType, arrow_type: pa.DataType) -> pa.Scalar:
    """A Python or internal value as a scalar of the Arrow type of `kind`."""
    internal = to_internal(value, kind)
    if internal is None:
        return pa.scalar(None, arrow_type)
    if isinstance(arrow_type, pa.BaseExtensionType):
        return pa.ExtensionScalar.from_storage(
            arrow_type, to_scalar(value, kind, arrow_type.storage_type)
        )
    if isinstance(kind, DateType):
        return pa.array([internal], pa.int32()).view(pa.date32()).cast(arrow_type)[0]
    if isinstance(kind, _LONG_BACKED):
        return pa.array([internal], pa.int64()).view(arrow_type)[0]
    if isinstance(kind, DecimalType):
        return pa.scalar(Decimal(internal), arrow_type)
    if isinstance(internal, UUID):
        return pa.scalar(internal.bytes, arrow_type)
    return pa.scalar(internal, arrow_type)


def constant_array(value: Any, kind: IcebergType, arrow_type: pa.DataType, length: int) -> pa.Array:
    """`length` times the same value."""
    if value is None:
        return null_array(length, arrow_type)
    scalar = to_scalar(value, kind, arrow_type)
    if isinstance(arrow_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(arrow_type, pa.repeat(scalar.value, length))
    return pa.repeat(scalar, length)


_MICROS_PER_DAY = 86_400_000_000
_PER_DAY: dict[type, int] = {
    TimestampType: _MICROS_PER_DAY,
    TimestampNanoType: _MICROS_PER_DAY * 1000,
}
_WIDTHS: dict[type, int] = {
    IntegerType: 4,
    DateType: 4,
    LongType: 8,
    TimeType: 8,
    TimestampType: 8,
    TimestamptzType: 8,
    TimestampNanoType: 8,
    TimestamptzNanoType: 8,
}
"""Of types all of whose bytes are values, one each."""
_DOUBLE = struct.Struct("<d")
_NARROWER = {pa.int64(): ("<i4", 4), pa.float64(): ("<f4", 4)}
_NUMPY = {pa.int32(): "<i4", pa.int64(): "<i8", pa.float32(): "<f4", pa.float64(): "<f8"}


def decode_bounds(column: pa.Array, kind: IcebergType | None) -> pa.Array:
    """Values of a binary column in `physical_type(kind)`.

    A bound written before its column was promoted (4 bytes for a long, a float for a double, a date
    for a timestamp) is read as the wider type. A bound that is no value of the type becomes null,
    which is unknown.
    """
    target = physical_type(kind)
    column = _binary(column)
    if target == pa.binary():
        return column
    if target == pa.string():
        return _strings(column)
    lengths = np.asarray(pc.fill_null(pc.binary_length(column), -1))
    if target == pa.bool_():
        first = _fixed(column, lengths, 1, "u1")
        return pa.array(first != 0, mask=lengths != 1)
    if pa.types.is_decimal(target):
        return _decimals(column, lengths, target)
    if pa.types.is_fixed_size_binary(target):
        return pc.if_else(pa.array(lengths == target.byte_width), column, None).cast(target)
    return _numbers(column, lengths, target, kind)


def settled_bound(bound: bytes, kind: IcebergType | None) -> bytes | None:
    """One bound as `decode_bounds` reads it and `encode_bounds` writes it; None: it is unknown."""
    if kind is None or isinstance(kind, BinaryType):
        return bound
    if _WIDTHS.get(type(kind)) == len(bound):
        return bound
    if isinstance(kind, StringType):
        return None if _text(bound) is None else bound
    if isinstance(kind, DoubleType) and len(bound) == _DOUBLE.size:
        return None if math.isnan(_DOUBLE.unpack(bound)[0]) else bound
    settled = encode_bounds(decode_bounds(pa.array([bound], pa.binary()), kind))
    return settled.to_pylist()[0]  # type: ignore[no-any-return]


def encode_bounds(column: pa.Array) -> pa.Array:
    """Bytes of a column of physical values; null stays null."""
    kind = column.type
    if kind in (pa.binary(), pa.string()) or pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    nulls = np.asarray(column.is_null())
    if pa.types.is_decimal(kind):
        return _encode_decimals(column, nulls)
    if kind == pa.bool_():
        return _from_matrix(np.asarray(column.fill_null(False)).astype("u1").reshape(-1, 1), nulls)
    values = np.asarray(column.fill_null(0)).astype(_NUMPY[kind])
    return _from_matrix(values.view("u1").reshape(len(values), values.itemsize), nulls)


def _binary(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return array.cast(pa.binary())


def _strings(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(value) for value in column.to_pylist()], pa.string())


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _fixed(column: pa.Array, lengths: npt.NDArray[Any], width: int, dtype: str) -> npt.NDArray[Any]:
    """Values of the rows that are `width` bytes long, zero for the others."""
    rows = lengths == width
    result = np.zeros(len(column), dtype)
    if rows.any():
        kept = column if rows.all() else column.filter(pa.array(rows))
        result[rows] = np.frombuffer(_payload(kept), dtype)
    return result


def _payload(column: pa.Array) -> memoryview:
    offsets = np.frombuffer(column.buffers()[1], np.int32)[
        column.offset : column.offset + len(column) + 1
    ]
    return memoryview(column.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


def _numbers(
    column: pa.Array, lengths: npt.NDArray[Any], target: pa.DataType, kind: IcebergType | None
) -> pa.Array:
    dtype = _NUMPY[target]
    width = np.dtype(dtype).itemsize
    values = _fixed(column, lengths, width, dtype)
    known = lengths == width
    if target in _NARROWER:
        narrow, narrow_width = _NARROWER[target]
        rows = lengths == narrow_width
        if rows.any():
            scale = _PER_DAY.get(type(kind), 1)
            values[rows] = _fixed(column, lengths, narrow_width, narrow)[rows].astype(dtype) * scale
            known |= rows
    if target in (pa.float32(), pa.float64()):
        known &= ~np.isnan(values)
    return pa.array(values, target, mask=~known)


def _decimals(column: pa.Array, lengths: npt.NDArray[Any], target: pa.DataType) -> pa.Array:
    known = (lengths >= 1) & (lengths <= 16)
    words = np.zeros((len(column), 16), "u1")
    for width in np.unique(lengths[known]):
        rows = lengths == width
        big_endian = np.frombuffer(_payload(column.filter(pa.array(rows))), "u1").reshape(-1, width)
        sign = np.where(big_endian[:, :1] >= 0x80, 0xFF, 0).astype("u1")
        words[rows] = np.hstack([big_endian[:, ::-1], np.repeat(sign, 16 - width, axis=1)])
    mask = pa.array(known)
    values = pa.Array.from_buffers(target, len(column), [None, pa.py_buffer(words.tobytes())])
    return pc.if_else(mask, values, pa.scalar(None, target))


def _encode_decimals(column: pa.Array, nulls: npt.NDArray[np.bool_]) -> pa.Array:
    words = np.frombuffer(column.buffers()[1], "u1")[
        column.offset * 16 : (column.offset + len(column)) * 16
    ].reshape(-1, 16)
    big_endian = words[:, ::-1]
    sign = np.where(big_endian[:, :1] >= 0x80, 0xFF, 0).astype("u1")
    differs = big_endian != sign
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), 15)
    keeps_sign = (big_endian[np.arange(len(words)), first] >= 0x80) == (sign[:, 0] == 0xFF)
    start = np.where(keeps_sign, first, first - 1)
    lengths = np.where(nulls, 0, 16 - start)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    kept = big_endian[np.arange(16)[None, :] >= (16 - lengths)[:, None]]
    return _from_buffers(offsets, kept.tobytes(), nulls)


def _from_matrix(rows: npt.NDArray[np.uint8], nulls: npt.NDArray[np.bool_]) -> pa.Array:
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    return _from_buffers(offsets, np.ascontiguousarray(rows).tobytes(), nulls)


def _from_buffers(
    offsets: npt.NDArray[np.int32], data: bytes, nulls: npt.NDArray[np.bool_]
) -> pa.Array:
    validity = None
    if nulls.any():
        validity = pa.py_buffer(np.packbits(~nulls, bitorder="little").tobytes())
    return pa.Array.from_buffers(
        pa.binary(), len(nulls), [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


MARK = b"lakehous"
"""The second half of every bound that this project writes; where it stands, all row groups are
inside. Java merges the bounds of row groups in one order that were taken in the other, so that a
file of several may hold values outside in any order."""

_TOP_BIT = np.uint64(1 << 63)
_HALVES = np.dtype([("first", ">u8"), ("second", ">u8")])

Mask = npt.NDArray[np.bool_]
Column: TypeAlias = pa.Array | pa.ChunkedArray


def holds_uuids(column: Column) -> bool:
    """Whether a column of physical values holds UUIDs: nothing else is kept in 16 fixed bytes."""
    return bool(pa.types.is_fixed_size_binary(column.type))


def order_classes(column: Column) -> npt.NDArray[np.uint8]:
    """The class, 0 to 3, of each value of a 16-byte column: values of one class are ordered alike.

    Null is in class 0.
    """
    first, second, _ = _halves(column)
    return ((first >= _TOP_BIT) * 2 + (second >= _TOP_BIT)).astype(np.uint8)


def is_ordered_alike(column: Column) -> bool:
    """Whether both orders agree on the values of a 16-byte column."""
    present = column.drop_null()
    classes = order_classes(present)
    return len(classes) == 0 or bool((classes == classes[0]).all())


def rounded_bounds(low: bytes, high: bytes) -> tuple[bytes | None, bytes | None]:
    """Marked bounds of all values between two UUIDs, valid in both orders; None where none is.

    The first half is rounded outward by one, so that the second never decides.

    Example:
        >>> low, high = bytes(7) + bytes([5]) + bytes(8), bytes(7) + bytes([9]) + bytes(8)
        >>> [bound.hex() for bound in rounded_bounds(low, high)]
        ['00000000000000046c616b65686f7573', '000000000000000a6c616b65686f7573']
    """
    half = 1 << 63
    first, last = int.from_bytes(low[:8], "big"), int.from_bytes(high[:8], "big")
    if first // half != last // half:
        return None, None
    return (
        (first - 1).to_bytes(8, "big") + MARK if first % half else None,
        (last + 1).to_bytes(8, "big") + MARK if (last + 1) % half else None,
    )


def order_free(lower: Column, upper: Column, exact: Mask) -> tuple[pa.Array, pa.Array]:
    """Bounds of UUIDs as unsigned bounds that hold in whichever order they were taken, else null.

    Args:
        lower: lower bounds, 16 bytes, null where unknown.
        upper: upper bounds.
        exact: rows whose bounds were taken in one order; others count only when they are marked.
    """
    low_first, low_second, low_known = _halves(lower)
    high_first, high_second, high_known = _halves(upper)
    mark = np.frombuffer(MARK, ">u8")[0]
    pair = exact & low_known & high_known & ((low_first ^ high_first) < _TOP_BIT)
    return (
        _column(low_first, 0, pair | (low_known & (low_second == mark))),
        _column(high_first, 2**64 - 1, pair | (high_known & (high_second == mark))),
    )


def _halves(column: Column) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], Mask]:
    """Both halves of each value, and which values are present."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    known = np.asarray(array.is_valid())
    filled = array.cast(pa.binary(16)).fill_null(bytes(16))
    data = filled.buffers()[1] if len(filled) else b""
    rows = np.frombuffer(data, _HALVES)[filled.offset : filled.offset + len(filled)]
    return rows["first"].astype(np.uint64), rows["second"].astype(np.uint64), known


def _column(first: npt.NDArray[np.uint64], second: int, known: Mask) -> pa.Array:
    rows = np.zeros(len(first), _HALVES)
    rows["first"], rows["second"] = first, second
    validity = pa.py_buffer(np.packbits(known, bitorder="little").tobytes())
    return pa.Array.from_buffers(
        pa.binary(16), len(first), [validity, pa.py_buffer(rows.tobytes())]
    )


def serialized_values(column: pa.Array, kind: IcebergType) -> pa.BinaryArray:
    r"""Each different value once, in single-value serialization (spec: Appendix D); no nulls.

    Args:
        column: values of the type, or of one that it may have been promoted from.
        kind: the type.

    >>> from pyiceberg.types import LongType
    >>> serialized_values(pa.array([7, 7, None], pa.int32()), LongType()).to_pylist()
    [b'\x07\x00\x00\x00\x00\x00\x00\x00']
    """
    values = pc.unique(column.storage if isinstance(column, pa.ExtensionArray) else column)
    target = physical_type(kind)
    if values.type != target:
        temporal = pa.types.is_temporal(values.type)
        values = values.view(target) if temporal else values.cast(target)
    return encode_bounds(values.drop_null())
