"""A reader's task: a range of a data file, its deletes, and what is left of the filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.expressions.bound_filter import TRUE, Bound
from lakehouse.spec.manifests.data_file import DataFile


@dataclass(frozen=True, slots=True, kw_only=True)
class FileScanTask:
    """A byte range of one data file; picklable.

    Attributes:
        data_file: the file; its metrics are left out unless the scan asked for them.
        deletes: delete files and deletion vectors to apply, oldest first.
        residual: the part of the filter that the file's partition does not already guarantee.
        start: first byte of the range; a row group belongs to the range that holds its first byte.
        length: bytes in the range.
        sequence_number: data sequence number of the file, the default of
            `_last_updated_sequence_number`.
    """

    data_file: DataFile
    deletes: tuple[DataFile, ...] = ()
    residual: Bound = TRUE
    start: int = 0
    length: int = 0
    sequence_number: int = 0

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
    return None if None in counts else sum(one or 0 for one in counts)


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
