"""Split block Bloom filters, as Parquet has them: of which keys a file surely has none."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lakehouse.spec.types.sorted_numbers import distinct

Hashes = npt.NDArray[np.uint64]

BITS_PER_KEY = 16
"""About one key in 1,500 is taken for one of those added."""
_WORDS = 8  # of 32 bits: a block
_SALTS = np.array(
    [
        0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D,
        0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31,
    ],
    np.uint32,
)  # fmt: skip


class SplitBlockFilter:
    """Hashes of keys, a bit in each of the eight words of one block for each of them.

    >>> import numpy as np
    >>> made = SplitBlockFilter.of(np.array([7, 123_456_789], np.uint64))
    >>> made.may_hold(np.array([123_456_789, 987_654_321], np.uint64)).tolist()
    [True, False]

    Args:
        words: blocks, as `to_bytes` writes them.
    """

    def __init__(self, words: npt.NDArray[np.uint32]) -> None:
        self._words = words.reshape(-1, _WORDS)

    @classmethod
    def of(cls, hashes: Hashes) -> SplitBlockFilter:
        """A filter of some keys, with room for them."""
        keys = distinct(hashes)
        blocks = max(1, -(-len(keys) * BITS_PER_KEY // (32 * _WORDS)))
        made = cls(np.zeros(blocks * _WORDS, np.uint32))
        at = made._blocks(keys)
        bits = _bits(keys)
        for word in range(_WORDS):
            np.bitwise_or.at(made._words[:, word], at, bits[:, word])
        return made

    @classmethod
    def from_bytes(cls, data: bytes) -> SplitBlockFilter:
        """A filter that `to_bytes` wrote."""
        return cls(np.frombuffer(data, "<u4"))

    def to_bytes(self) -> bytes:
        """The blocks one after the other, words in little-endian order."""
        return self._words.astype("<u4").tobytes()

    def may_hold(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Which of the keys may have been added; those for which it is false surely were not."""
        bits = _bits(hashes)
        found: npt.NDArray[np.bool_] = ((self._words[self._blocks(hashes)] & bits) == bits).all(1)
        return found

    def _blocks(self, hashes: Hashes) -> npt.NDArray[np.int64]:
        high = hashes >> np.uint64(32)
        return ((high * np.uint64(len(self._words))) >> np.uint64(32)).astype(np.int64)


def _bits(hashes: Hashes) -> npt.NDArray[np.uint32]:
    """The bit of each key in each word."""
    low = (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    shifts = (low[:, None] * _SALTS) >> np.uint32(27)
    return np.uint32(1) << shifts
