"""Avro encoding of whole columns: a field is a list of segments, joined once, row by row.

A segment that is the same in every row is plain `bytes`; neighbours of that kind merge, so that
constants cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.spec.manifests.avro_container import write_long

Segment: TypeAlias = "bytes | pa.Array"
Encoder: TypeAlias = "Callable[[pa.Array], list[Segment]]"
Integers = npt.NDArray[np.int64]


def join(segments: Sequence[Segment], rows: int) -> pa.Array:
    """Concatenate the segments of every row."""
    merged: list[Segment] = []
    constants: list[bytes] = []
    for segment in segments:
        if isinstance(segment, bytes):
            constants.append(segment)
            continue
        if together := b"".join(constants):
            merged.append(together)
        constants.clear()
        merged.append(segment)
    if not merged:
        return pa.array([b"".join(constants)] * rows, pa.binary())
    if together := b"".join(constants):
        merged.append(together)
    scalars = [pa.scalar(one, pa.binary()) if isinstance(one, bytes) else one for one in merged]
    return pc.binary_join_element_wise(*scalars, pa.scalar(b"", pa.binary()))


def payload(column: pa.Array) -> bytes:
    """The bytes of all rows after each other."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[
        column.offset : column.offset + len(column) + 1
    ]
    return bytes(memoryview(column.buffers()[2])[int(offsets[0]) : int(offsets[-1])])


def longs(values: Integers) -> Segment:
    """`int` and `long`: zig-zag variable length."""
    if len(values) and (values == values[0]).all():
        return write_long(int(values[0]))
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    width = max((int(zigzag.max()).bit_length() + 6) // 7, 1) if len(values) else 1
    encoded = np.empty((len(values), width), "u1")
    keep = np.empty((len(values), width), bool)
    keep[:, 0] = True
    rest = zigzag
    for position in range(width):
        encoded[:, position] = rest & np.uint64(0x7F)
        rest = rest >> np.uint64(7)
        more = rest != 0
        encoded[:, position] |= more.view("u1") << 7
        if position + 1 < width:
            keep[:, position + 1] = more
    lengths = keep.sum(axis=1)
    return _ragged(
        encoded.reshape(-1) if lengths.min(initial=width) == width else encoded[keep], lengths
    )


def sized(column: pa.Array) -> list[Segment]:
    """`string` and `bytes`: the length, then the content."""
    content = column.cast(pa.binary())
    return [longs(np.asarray(pc.binary_length(content)).astype(np.int64)), content]


def fixed(rows: npt.NDArray[np.uint8]) -> list[Segment]:
    """Values of one width: a matrix with one row of bytes a value."""
    return [
        _ragged(np.ascontiguousarray(rows).reshape(-1), np.full(len(rows), rows.shape[1], np.int64))
    ]


def optional(encode: Encoder, column: pa.Array) -> list[Segment]:
    """A union of null and something; `encode` gets the values that are not null."""
    if column.null_count == len(column):
        return [b"\x00"]
    if column.null_count == 0:
        return [b"\x02", *encode(column)]
    valid = np.asarray(column.is_valid())
    kept = join([b"\x02", *encode(column.drop_null())], int(valid.sum()))
    return [_expand(kept, valid, b"\x00")]


def lists(column: pa.Array) -> list[Segment]:
    """`array` of longs, without nulls: one block of items, then the end."""
    lengths = np.asarray(pc.list_value_length(column)).astype(np.int64)
    items = np.asarray(pc.list_flatten(column)).astype(np.int64)
    if len(lengths) and (lengths == lengths[0]).all() and lengths[0] == 1:
        return [b"\x02", longs(items), b"\x00"]
    encoded = longs(items) if len(items) else b""
    if isinstance(encoded, bytes):
        encoded = pa.array([encoded] * len(items), pa.binary())
    sizes = np.asarray(pc.binary_length(encoded)).astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    byte_ends = np.concatenate([[0], np.cumsum(sizes)])
    packed = _ragged(np.frombuffer(payload(encoded), "u1"), np.diff(byte_ends[ends]))
    terminator = pc.if_else(
        pa.array(lengths > 0), pa.scalar(b"\x00", pa.binary()), pa.scalar(b"", pa.binary())
    )
    return [longs(lengths), packed, terminator]


def maps(columns: Sequence[tuple[int, pa.Array]], encode: Encoder, rows: int) -> list[Segment]:
    """An optional map with int keys, as an array of records; a row without keys is null."""
    present = [(key, column) for key, column in columns if column.null_count < len(column)]
    if not present or not rows:
        return [b"\x00"]
    if all(column.null_count == 0 for _, column in present):
        segments: list[Segment] = [b"\x02" + write_long(len(present))]
        for key, column in present:
            segments += [write_long(key), *encode(column)]
        return [*segments, b"\x00"]
    counts = np.zeros(rows, np.int64)
    items: list[Segment] = []
    for key, column in present:
        valid = np.asarray(column.is_valid())
        counts += valid
        item = join([write_long(key), *encode(column.drop_null())], int(valid.sum()))
        items.append(_expand(item, valid, b""))
    heads = pa.array(
        [b"\x00", *(b"\x02" + write_long(count) for count in range(1, len(present) + 1))],
        pa.binary(),
    )
    ends = pa.array([b"", *([b"\x00"] * len(present))], pa.binary())
    return [heads.take(pa.array(counts)), *items, ends.take(pa.array(counts))]


def _expand(column: pa.Array, valid: npt.NDArray[np.bool_], absent: bytes) -> pa.Array:
    """Put the rows of a dense column where `valid` is true, `absent` elsewhere."""
    positions = np.cumsum(valid) - 1
    return column.take(pa.array(positions, mask=~valid)).fill_null(absent)


def _ragged(data: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64]) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(
        pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data.tobytes())]
    )
