"""Avro encoding of whole columns: one array of byte strings a field, joined row by row at the end.

A field that is the same in every row is a plain `bytes`; neighbours of that kind merge, so that constants cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.spec.avro_container import write_long

Segment = bytes | pa.Array
Integers = npt.NDArray[np.int64]


def join(segments: Sequence[Segment], rows: int) -> pa.Array:
    """Concatenate the segments of every row."""
    merged: list[Segment] = []
    for segment in segments:
        if isinstance(segment, bytes) and merged and isinstance(merged[-1], bytes):
            merged[-1] += segment
        elif not isinstance(segment, bytes) or segment:
            merged.append(segment)
    if all(isinstance(segment, bytes) for segment in merged):
        return pa.array([b"".join(merged)] * rows, pa.binary())  # type: ignore[arg-type]
    scalars = [pa.scalar(one, pa.binary()) if isinstance(one, bytes) else one for one in merged]
    return pc.binary_join_element_wise(*scalars, pa.scalar(b"", pa.binary()))


def payload(column: pa.Array) -> bytes:
    """The bytes of all rows after each other."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    return bytes(memoryview(column.buffers()[2])[int(offsets[0]) : int(offsets[-1])])


def longs(values: Integers) -> Segment:
    """`int` and `long`: zig-zag variable length."""
    if len(values) and (values == values[0]).all():
        return write_long(int(values[0]))
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    width = max((int(zigzag.max()).bit_length() + 6) // 7, 1) if len(values) else 1
    rest = zigzag[:, None] >> (np.arange(width, dtype=np.uint64) * np.uint64(7))[None, :]
    more = rest > np.uint64(0x7F)
    encoded = ((rest & np.uint64(0x7F)) | (more.astype(np.uint64) << np.uint64(7))).astype("u1")
    keep = np.ones(encoded.shape, bool)
    keep[:, 1:] = more[:, :-1]
    return _ragged(encoded[keep], keep.sum(axis=1))


def sized(column: pa.Array) -> Segment:
    """`string` and `bytes`: the length, then the content."""
    content = column.cast(pa.binary())
    lengths = np.asarray(pc.binary_length(content)).astype(np.int64)
    return join([longs(lengths), content], len(column))


def fixed(rows: npt.NDArray[np.uint8]) -> Segment:
    """Values of one width: a matrix with one row of bytes a value."""
    lengths = np.full(len(rows), rows.shape[1], np.int64)
    return _ragged(np.ascontiguousarray(rows).reshape(-1), lengths)


def optional(encode: Any, column: pa.Array) -> Segment:
    """A union of null and something: `encode` gets the column with its nulls replaced by any value."""
    if column.null_count == len(column):
        return b"\x00"
    if column.null_count == 0:
        return join([b"\x02", encode(column)], len(column))
    valid = column.is_valid()
    kept = encode(column.filter(valid))
    spread = _expand(join([b"\x02", kept], len(column) - column.null_count), np.asarray(valid))
    return spread.fill_null(b"\x00")


def lists(column: pa.Array) -> Segment:
    """`array` of longs, without nulls: one block of items, then the end."""
    lengths = np.asarray(pc.list_value_length(column)).astype(np.int64)
    items = np.asarray(pc.list_flatten(column)).astype(np.int64)
    counts = longs(lengths)
    encoded = longs(items) if len(items) else b""
    if isinstance(encoded, bytes):
        encoded = pa.array([encoded] * len(items), pa.binary())
    sizes = np.asarray(pc.binary_length(encoded)).astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    byte_ends = np.concatenate([[0], np.cumsum(sizes)])
    packed = _ragged(np.frombuffer(payload(encoded), "u1"), np.diff(byte_ends[ends]))
    terminator = pc.if_else(pa.array(lengths > 0), pa.scalar(b"\x00", pa.binary()), pa.scalar(b"", pa.binary()))
    return join([counts, packed, terminator], len(column))


def maps(columns: Sequence[tuple[int, pa.Array]], encode: Any, rows: int) -> Segment:
    """An optional map from int keys, stored as an array of records; a row without any key is null."""
    present = [(key, column) for key, column in columns if column.null_count < len(column)]
    if not present or not rows:
        return b"\x00"
    if all(column.null_count == 0 for _, column in present):
        segments: list[Segment] = [b"\x02" + write_long(len(present))]
        for key, column in present:
            segments += [write_long(key), encode(column)]
        return join([*segments, b"\x00"], rows)
    counts = np.zeros(rows, np.int64)
    items: list[Segment] = []
    for key, column in present:
        valid = np.asarray(column.is_valid())
        counts += valid
        item = join([write_long(key), encode(column.drop_null())], int(valid.sum()))
        items.append(_expand(item, valid).fill_null(b""))
    heads = pa.array([b"\x00", *(b"\x02" + write_long(count) for count in range(1, len(present) + 1))], pa.binary())
    ends = pa.array([b"", *([b"\x00"] * len(present))], pa.binary())
    return join([heads.take(pa.array(counts)), *items, ends.take(pa.array(counts))], rows)


def _expand(column: pa.Array, valid: npt.NDArray[np.bool_]) -> pa.Array:
    """Put the rows of a dense column where `valid` is true, null elsewhere."""
    positions = np.cumsum(valid) - 1
    return column.take(pa.array(positions, mask=~valid))


def _ragged(data: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64]) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data.tobytes())])
