"""Theta sketches: a column's distinct count, in kilobytes, mergeable across engines.

A sketch keeps the smallest hashes of the values; how close together they lie says how many there
are. The values are hashed as bytes of Iceberg's single-value serialization, with the hash and in
the form of Apache DataSketches, as the Puffin spec asks for `apache-datasketches-theta-v1`. (The
library's own Python build takes no bytes; in the tests it reads and unites these.)
"""

from __future__ import annotations

import struct

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakehouse.spec.metadata.table_metadata import SKETCH_ENTRIES
from lakehouse.spec.types.sorted_numbers import union

_SEED = 9001
_SEED_HASH = 0x93CC
"""Of 9001; sketches with another one are not comparable."""
_FOREVER = (1 << 63) - 1
_COMPACT, _SERIAL_VERSION = 3, 3
_READ_ONLY, _EMPTY, _IS_COMPACT, _ORDERED = 0x02, 0x04, 0x08, 0x10


class ThetaSketch:
    """A sketch of 4,096 nominal entries.

    Exact up to as many values, beyond within about 3 percent (two standard errors).
    """

    def __init__(self) -> None:
        self._hashes: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
        self._theta = _FOREVER

    def add(self, values: pa.BinaryArray) -> None:
        """Take in values as bytes; nulls and empty ones do not count, as in the library.

        Different ones only is faster.
        """
        hash64 = mmh3.hash64
        hashes = np.array(
            [hash64(value, seed=_SEED, signed=False)[0] for value in values.to_pylist() if value],
            np.uint64,
        ) >> np.uint64(1)
        hashes = hashes[(hashes < self._theta) & (hashes > 0)]
        kept = union(self._hashes, hashes)
        if len(kept) > SKETCH_ENTRIES:
            self._theta = int(kept[SKETCH_ENTRIES])
            kept = kept[:SKETCH_ENTRIES]
        self._hashes = kept

    @property
    def estimate(self) -> int:
        """Different values, rounded."""
        return (
            len(self._hashes)
            if self._theta == _FOREVER
            else round(len(self._hashes) * (1 << 63) / self._theta)
        )

    def to_bytes(self) -> bytes:
        """The compact, ordered form."""
        flags = _READ_ONLY | _IS_COMPACT | _ORDERED
        count, exact = len(self._hashes), self._theta == _FOREVER
        if not count:
            flags |= _EMPTY
        longs = (1 if count < 2 else 2) if exact else 3
        parts = [struct.pack("<BBBBBBH", longs, _SERIAL_VERSION, _COMPACT, 0, 0, flags, _SEED_HASH)]
        if longs > 1:
            parts.append(struct.pack("<II", count, 0))
        if longs > 2:
            parts.append(struct.pack("<Q", self._theta))
        return b"".join([*parts, self._hashes.astype("<u8").tobytes()])
