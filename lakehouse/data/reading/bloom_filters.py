"""Bloom filters of Parquet: which row groups surely hold no row that a filter asks for.

A filter knows the values of one column in one row group (Parquet format: Bloom Filter). Comparisons
with `=` and `in` can be decided by it, where a value has one encoding: whole numbers, dates, text,
bytes and UUIDs. Times have several units, decimals several widths, and zero has two signs.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import xxhash
from pyiceberg.types import (
    BinaryType,
    DateType,
    FixedType,
    IntegerType,
    LongType,
    StringType,
    UUIDType,
)

from lakehouse.data.conversion.thrift import read_struct
from lakehouse.data.statistics.key_filters import Hashes, SplitBlockFilter
from lakehouse.expressions.bound_filter import FALSE, Bound, Leaf, Op, map_leaves

_LOG = logging.getLogger(__name__)
_WHOLE = {"INT32": ("<i", -(1 << 31), (1 << 31) - 1), "INT64": ("<q", -(1 << 63), (1 << 63) - 1)}
_BYTES = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_NUMBERS = (IntegerType, LongType, DateType)
_TYPES = (*_NUMBERS, StringType, BinaryType, FixedType, UUIDType)
_MOST_VALUES = 256  # of many one is likely to be there
_HEADER_BYTES = 64  # at least what one takes: four fields, three of them empty structs
_SPLIT_BLOCK: dict[int, dict[int, Any]] = {1: {}}  # the only member of the unions in a header
_BLOCK_BYTES = 32

ReadRange = Callable[[int, int], bytes]
"""Bytes of the file: offset, and how many at most."""


class Filtered(NamedTuple):
    """A column chunk that has a filter.

    Attributes:
        physical_type: of Parquet.
        offset: of the filter in the file.
        length: header and bits; None: the writer did not say.
    """

    physical_type: str
    offset: int
    length: int | None


def askable(leaf: Leaf) -> bool:
    """Whether a filter may know that no row passes: `=` and `in`, of types with one encoding."""
    return bool(_values(leaf))


def may_hold(where: Bound, filtered: Callable[[int], Filtered | None], read: ReadRange) -> bool:
    """Whether a row group may hold a row that passes; one without filters may.

    Args:
        where: the filter.
        filtered: the column chunk of a field id, where it has a Bloom filter.
        read: bytes of the file.
    """
    opened: dict[int, SplitBlockFilter | None] = {}

    def lacks(leaf: Leaf) -> bool:
        values, chunk = _values(leaf), filtered(leaf.field_id)
        if not values or chunk is None:
            return False
        hashes = _hashes(values, chunk.physical_type)
        if hashes is None:
            return False
        if not len(hashes):
            return True
        if leaf.field_id not in opened:
            opened[leaf.field_id] = _load(chunk, read)
        known = opened[leaf.field_id]
        return known is not None and not known.may_hold(hashes).any()

    return map_leaves(where, lambda leaf: FALSE if lacks(leaf) else leaf) != FALSE


def _values(leaf: Leaf) -> tuple[Any, ...]:
    if not isinstance(leaf.type, _TYPES):
        return ()
    if leaf.op is Op.EQ:
        return (leaf.value,)
    return leaf.value if leaf.op is Op.IN and len(leaf.value) <= _MOST_VALUES else ()


def _hashes(values: tuple[Any, ...], physical_type: str) -> Hashes | None:
    """Hashes of values as they are encoded; those that the type cannot hold are left out.

    None where the file has another type than the table's values have.
    """
    if physical_type in _WHOLE and all(type(value) is int for value in values):
        code, least, most = _WHOLE[physical_type]
        encoded = [struct.pack(code, value) for value in values if least <= value <= most]
    elif physical_type in _BYTES and all(isinstance(value, str | bytes | UUID) for value in values):
        encoded = [_bytes(value) for value in values]
    else:
        return None
    return np.array([xxhash.xxh64_intdigest(value) for value in encoded], np.uint64)


def _bytes(value: str | bytes | UUID) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return value.bytes if isinstance(value, UUID) else value


def _load(chunk: Filtered, read: ReadRange) -> SplitBlockFilter | None:
    """A filter; None for one that is of a later version of the format, or damaged.

    Filters are hints: without one the row group is read.
    """
    start = read(chunk.offset, chunk.length or _HEADER_BYTES)
    try:
        header, end = read_struct(start, 0)
        size, *kinds = (header[number] for number in (1, 2, 3, 4))
    except (IndexError, KeyError, TypeError, ValueError, struct.error) as error:
        _LOG.warning("a Bloom filter at byte %d is not used: %r", chunk.offset, error)
        return None
    if any(kind != _SPLIT_BLOCK for kind in kinds):
        return None
    bits = start[end : end + size] if chunk.length else read(chunk.offset + end, size)
    if size <= 0 or size % _BLOCK_BYTES or len(bits) != size:
        _LOG.warning(
            "a Bloom filter at byte %d is not used: it has %d of %d bytes",
            chunk.offset, len(bits), size,
        )  # fmt: skip
        return None
    return SplitBlockFilter.from_bytes(bits)
