"""Sequences that make items on demand: a plan costs as much as its reader takes."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar, overload

T = TypeVar("T")
P = TypeVar("P")


class LazyItems(Sequence[T], Generic[P, T]):
    """The items of several parts in a row; a part is made into items when one is needed.

    Args:
        parts: what items are made from.
        lengths: items of each part.
        make: all items of a part.
    """

    def __init__(
        self, parts: Sequence[P], lengths: Sequence[int], make: Callable[[P], Sequence[T]]
    ) -> None:
        self._parts = parts
        self._ends = list(itertools.accumulate(lengths))
        self._make = make
        self._made: dict[int, Sequence[T]] = {}

    @property
    def parts(self) -> Sequence[P]:
        """What the items are made from."""
        return self._parts

    def forget(self) -> None:
        """Keep no item that was made; those that are needed again are made again."""
        self._made.clear()

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(index)
        part = bisect.bisect_right(self._ends, position)
        start = self._ends[part - 1] if part else 0
        return self._items(part)[position - start]

    def __iter__(self) -> Iterator[T]:
        for part in range(len(self._parts)):
            yield from self._items(part)

    def __repr__(self) -> str:
        return f"<{len(self)} items>"

    def _items(self, part: int) -> Sequence[T]:
        made = self._made.get(part)
        if made is None:
            made = self._made[part] = self._make(self._parts[part])
        return made
