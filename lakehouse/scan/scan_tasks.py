"""A reader's tasks: ranges of data files, with their deletes and the rest of the filter.

A plan makes them on demand; they are cut at split offsets and packed to a target size.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Self, TypeVar, overload

from lakehouse.expressions.bound_filter import TRUE, Bound
from lakehouse.spec.manifests.data_file import DataFile


@dataclass(frozen=True, slots=True, kw_only=True)
class FileScanTask:
    """A byte range of one data file; picklable.

    Attributes:
        data_file: the file, without its metrics unless the scan includes them.
        deletes: delete files and deletion vectors to apply, oldest first.
        residual: the part of the filter that the file's partition does not already guarantee.
        start: first byte of the range; a row group belongs to the range that holds its first byte.
        length: bytes in the range.
        sequence_number: data sequence number of the file, the default of
            `_last_updated_sequence_number` where its rows have ids.
    """

    data_file: DataFile
    deletes: tuple[DataFile, ...] = ()
    residual: Bound = TRUE
    start: int = 0
    length: int = 0
    sequence_number: int = 0

    @classmethod
    def whole(cls, file: DataFile) -> Self:
        """All rows of a file that nothing deletes, such as one that is not committed yet."""
        return cls(data_file=file, length=file.file_size_in_bytes)

    @property
    def live_rows(self) -> int | None:
        """Rows of the file that no delete removed; None when only reading the deletes tells.

        A deletion vector tells how many rows it deletes (specification: Delete Formats), of a
        file that no older delete is about.
        """
        rows = self.data_file.record_count
        if not self.deletes:
            return rows
        if len(self.deletes) == 1 and self.deletes[0].is_deletion_vector:
            return rows - self.deletes[0].record_count
        return None


def total_rows(counts: Sequence[int | None]) -> int | None:
    """The sum; None when one of the counts is not known."""
    return None if None in counts else sum(count or 0 for count in counts)


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """File ranges that one reader should read, about `read.split.target-size` bytes together."""

    tasks: tuple[FileScanTask, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes to read, deletes included."""
        return sum(
            task.length + sum(delete.file_size_in_bytes for delete in task.deletes)
            for task in self.tasks
        )


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


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """The properties `read.split.*`.

    Attributes:
        target_size_bytes: what a group aims at (`read.split.target-size`).
        lookback: groups kept open for a next task that fits (`read.split.planning-lookback`).
        open_file_cost_bytes: what opening a file counts for at least (`read.split.open-file-cost`).
    """

    target_size_bytes: int
    lookback: int
    open_file_cost_bytes: int


def combine(tasks: Iterable[FileScanTask], options: SplitOptions) -> Iterator[TaskGroup]:
    """Groups of about the target size, by bin packing with lookback.

    Every byte of every task is in exactly one group.
    """
    bins: list[tuple[list[FileScanTask], int]] = []
    for task in tasks:
        for piece in split(task, options.target_size_bytes):
            weight = _weight(piece, options)
            for position, (pieces, filled) in enumerate(bins):
                if filled + weight <= options.target_size_bytes:
                    pieces.append(piece)
                    bins[position] = (pieces, filled + weight)
                    break
            else:
                bins.append(([piece], weight))
                if len(bins) > options.lookback:
                    largest = max(range(len(bins)), key=lambda position: bins[position][1])
                    yield TaskGroup(tuple(bins.pop(largest)[0]))
    for pieces, _ in bins:
        yield TaskGroup(tuple(pieces))


def split(task: FileScanTask, target_size_bytes: int) -> list[FileScanTask]:
    """A task cut at split offsets into ranges of about the target size; whole without any."""
    size = task.data_file.file_size_in_bytes
    offsets = task.data_file.split_offsets
    if size <= target_size_bytes or not _usable(offsets, size):
        return [task]
    pieces = []
    start = 0
    for offset in [*(offsets or ())[1:], size]:
        if offset == size or offset - start >= target_size_bytes:
            pieces.append(dataclasses.replace(task, start=start, length=offset - start))
            start = offset
    return pieces


def _usable(offsets: tuple[int, ...] | None, size: int) -> bool:
    """Split offsets; ignored unless ascending within the file, as the spec asks.

    Writers with a known bug made others.
    """
    if not offsets or offsets[0] < 0 or offsets[-1] >= size:
        return False
    return all(left < right for left, right in itertools.pairwise(offsets))


def _weight(task: FileScanTask, options: SplitOptions) -> int:
    files = 1 + len(task.deletes)
    size = task.length + sum(
        delete.content_size_in_bytes or delete.file_size_in_bytes for delete in task.deletes
    )
    return max(size, files * options.open_file_cost_bytes)
