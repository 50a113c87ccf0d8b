"""Debezium's placeholders for values that did not change and were not sent (TOAST in PostgreSQL).

Debezium gives the placeholder the form of the column's type: text, bytes, an array of it or of its
bytes as numbers, an hstore or UUID of it, and points that are nowhere.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.data.conversion.nested_arrays import list_parts, map_parts
from lakehouse.data.conversion.safe_casts import without_encoding

_TEXT = "__debezium_unavailable_value"
_BYTES = _TEXT.encode()
_UUID = uuid.UUID(bytes=hashlib.md5(_BYTES, usedforsecurity=False).digest(), version=3)
_POINTS = tuple(
    bytes.fromhex(digits)
    for digits in (
        "0101000000000000fc83d797c1000000fc83d797c1",
        "0101000020e6100000000000fc83d797c1000000fc83d797c1",
        "0101000020e61000000c21e7fdff7f66401842cefbff7f5640",
    )
)
_AS_BYTES = (_BYTES, *_POINTS)
_AS_TEXT = (
    _TEXT,
    str(_UUID),
    *(base64.b64encode(byte).decode() for byte in _AS_BYTES),
    *(byte.hex() for byte in _AS_BYTES),
)
_HSTORE = rf'^\s*\{{\s*"{_TEXT}"\s*:\s*"{_TEXT}"\s*\}}\s*$'


def is_placeholder(value: Any) -> bool:
    """Whether text or bytes are the placeholder."""
    return isinstance(value, str | bytes) and value in (_TEXT, _BYTES, _AS_TEXT[2])


def left_out(values: pa.Array | pa.ChunkedArray) -> int | None:
    """The first row whose value is a placeholder, or holds one at any depth."""
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    start = 0
    for chunk in chunks:
        placeholders = _placeholders(chunk)
        if placeholders.any():
            return start + int(placeholders.argmax())
        start += len(chunk)
    return None


def _placeholders(array: pa.Array) -> npt.NDArray[np.bool_]:
    array = without_encoding(array)
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        text = array.cast(pa.large_string())
        equal = pc.is_in(text, pa.array(_AS_TEXT, pa.large_string()))
        return _mask(pc.or_(equal, pc.match_substring_regex(text, _HSTORE)))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return _mask(
            pc.is_in(array.cast(pa.large_binary()), pa.array(_AS_BYTES, pa.large_binary()))
        )
    if pa.types.is_struct(kind):
        return _in_struct(array)
    if pa.types.is_map(kind):
        keys, items, lengths = map_parts(array)
        return _rows(_placeholders(keys) | _placeholders(items), lengths)
    if pa.types.is_nested(kind) and not pa.types.is_union(kind):
        items, lengths = list_parts(array)
        return _rows(_placeholders(items), lengths) | _byte_lists(items, lengths)
    return np.zeros(len(array), bool)


def _in_struct(array: pa.StructArray) -> npt.NDArray[np.bool_]:
    """Also an hstore whose keys became fields, for want of a schema."""
    mask = np.zeros(len(array), bool)
    for position, field in enumerate(array.type):
        child = array.field(position)
        mask |= _placeholders(child)
        if field.name == _TEXT:
            mask |= _mask(child.is_valid())
    return mask & _mask(array.is_valid())


def _byte_lists(items: pa.Array, lengths: pa.Array) -> npt.NDArray[np.bool_]:
    """Lists of the placeholder's bytes, as numbers or as days."""
    mask = np.zeros(len(lengths), bool)
    if pa.types.is_date32(items.type):
        items = items.cast(pa.int32())
    if not pa.types.is_integer(items.type):
        return mask
    sizes = np.asarray(lengths.fill_null(0))
    starts = np.cumsum(sizes) - sizes
    for row in np.flatnonzero(sizes == len(_BYTES)):
        mask[row] = items.slice(starts[row], len(_BYTES)).to_pylist() == list(_BYTES)
    return mask


def _rows(items: npt.NDArray[np.bool_], lengths: pa.Array) -> npt.NDArray[np.bool_]:
    """Which lists have an item that is one."""
    sizes = np.asarray(lengths.fill_null(0))
    mask = np.zeros(len(sizes), bool)
    mask[np.repeat(np.arange(len(sizes)), sizes)[items]] = True
    return mask


def _mask(values: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    return np.asarray(values.fill_null(False)).astype(bool)
