"""The two orders of UUIDs, and bounds that mean the same in both.

Iceberg's Java library compares UUIDs as two signed 64-bit halves; everybody else, Parquet included,
compares sixteen unsigned bytes. The two agree on UUIDs of one class: those with the same top bits
of both halves.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
