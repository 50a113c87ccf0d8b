"""32-bit Murmur3 (x86 variant, seed 0) of whole columns (spec: Appendix B)."""

from __future__ import annotations

import mmh3
import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]

_C1 = np.uint32(0xCC9E2D51)
_C2 = np.uint32(0x1B873593)
# Rows handled at a time: temporaries of this size stay in the cache.
_BLOCK = 16_384
# Longer values are hashed one by one: a block costs as many steps as its longest value has words.
_LONGEST_BY_BLOCK = 256
_TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], dtype=np.uint32)


def _rotate(words: Words, bits: int) -> Words:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


def _scramble(words: Words) -> Words:
    return _rotate(words * _C1, 15) * _C2


def _mix(state: Words, words: Words) -> Words:
    return _rotate(state ^ _scramble(words), 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finish(state: Words, length: np.uint32 | Words) -> Words:
    state = state ^ length
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))


def hash_longs(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Hash of each value as eight little-endian bytes (`hashLong`)."""
    result = np.empty(len(values), dtype=np.uint32)
    for start in range(0, len(values), _BLOCK):
        words = (
            np.ascontiguousarray(values[start : start + _BLOCK], dtype="<i8")
            .view("<u4")
            .reshape(-1, 2)
        )
        state = _mix(np.zeros(len(words), dtype=np.uint32), words[:, 0])
        result[start : start + _BLOCK] = _finish(_mix(state, words[:, 1]), np.uint32(8))
    return result.view(np.int32)


def hash_rows(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """Hash of each row of a two-dimensional byte array (`hashBytes` of values of one length)."""
    count, width = rows.shape
    result = np.empty(count, dtype=np.uint32)
    whole = width // 4
    for start in range(0, count, _BLOCK):
        block = rows[start : start + _BLOCK]
        state = np.zeros(len(block), dtype=np.uint32)
        words = np.ascontiguousarray(block[:, : whole * 4]).view("<u4") if whole else None
        for index in range(whole):
            state = _mix(state, words[:, index]) if words is not None else state
        if width % 4:
            tail = np.zeros((len(block), 4), dtype=np.uint8)
            tail[:, : width % 4] = block[:, whole * 4 :]
            state = state ^ _scramble(tail.view("<u4")[:, 0])
        result[start : start + _BLOCK] = _finish(state, np.uint32(width))
    return result.view(np.int32)


def hash_slices(data: bytes | memoryview, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Hash of each `data[offsets[i]:offsets[i + 1]]` (`hashBytes` of values of any length)."""
    count = len(offsets) - 1
    result = np.empty(count, dtype=np.int32)
    if count == 0:
        return result
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + 4, dtype=np.uint8)
    padded[: last - first] = np.frombuffer(data, dtype=np.uint8, count=last - first, offset=first)
    words = np.ndarray(shape=(last - first + 1,), dtype="<u4", buffer=padded, strides=(1,))
    starts, lengths = offsets[:-1] - first, np.diff(offsets)
    short = lengths <= _LONGEST_BY_BLOCK
    rows = None if short.all() else np.flatnonzero(short)
    for start in range(0, count if rows is None else len(rows), _BLOCK):
        chosen = slice(start, start + _BLOCK) if rows is None else rows[start : start + _BLOCK]
        result[chosen] = _hash_block(words, starts[chosen], lengths[chosen])
    for row in [] if rows is None else np.flatnonzero(~short).tolist():
        result[row] = mmh3.hash(padded[starts[row] : starts[row] + lengths[row]].tobytes())
    return result


def _hash_block(
    words: Words, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.int32]:
    whole = lengths >> 2
    state = np.zeros(len(starts), dtype=np.uint32)
    everywhere = int(whole.min())
    for index in range(int(whole.max())):
        if index < everywhere:
            state = _mix(state, words[starts + 4 * index])
        else:
            longer = np.flatnonzero(whole > index)
            state[longer] = _mix(state[longer], words[starts[longer] + 4 * index])
    state ^= _scramble(words[starts + 4 * whole] & _TAIL_MASKS[lengths & 3])
    return _finish(state, lengths.astype(np.uint32)).view(np.int32)
