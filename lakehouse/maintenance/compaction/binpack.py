"""Bin packing of weights. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

_LOOKBACK = 32


def pack(
    items: Iterable[T], weight: Callable[[T], int], capacity: int, *, lookback: int = _LOOKBACK
) -> list[list[T]]:
    """First-fit into bins of `capacity`; only the last `lookback` open bins are tried.

    Items keep their order inside a bin.

    An item heavier than `capacity` gets a bin of its own. Bins come out in the order in which they
    were opened.
    """
    bins: list[list[T]] = []
    rooms: list[int] = []
    for item in items:
        size = weight(item)
        start = max(0, len(bins) - lookback)
        for index in range(start, len(bins)):
            if size <= rooms[index]:
                bins[index].append(item)
                rooms[index] -= size
                break
        else:
            bins.append([item])
            rooms.append(capacity - size)
    return bins


def output_file_count(
    total_bytes: int, target_bytes: int, *, min_ratio: float = 0.75, max_ratio: float = 1.1
) -> int:
    """How many files `total_bytes` should become, so that none is a small remainder.

    The remainder gets its own file when it is at least `min_ratio` of the target; otherwise the
    others absorb it as long as none grows beyond `max_ratio` of the target.
    """
    if total_bytes <= target_bytes:
        return 1
    whole, rest = divmod(total_bytes, target_bytes)
    if rest == 0:
        return whole
    if rest >= min_ratio * target_bytes or total_bytes / whole > max_ratio * target_bytes:
        return whole + 1
    return whole
