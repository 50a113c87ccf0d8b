"""Cutting tasks at split offsets and packing them to a target size."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lakehouse.scan.scan_tasks import FileScanTask, TaskGroup


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
