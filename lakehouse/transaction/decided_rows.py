"""Rows that an operation decided on, by position or by key, and what others may not do to them.

Pure. `(theirs & mine) - before`: rows that two writers changed. What was deleted before drops out
of it, because an operation decides on live rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema

from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.types.sorted_numbers import common, union

Positions = npt.NDArray[np.int64]


_NOTHING: Positions = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class DecidedRows:
    """Live rows of one data file that an operation decided on.

    Attributes:
        data_file: the file.
        gone: ascending distinct positions of the rows that it deletes, or replaces.
        seen: positions of rows that stay as they are, but must not go: another decision hangs on
            them, such as not to insert a row that is there.
        deletes: position deletes, or the deletion vector, of the file in the version decided on.
    """

    data_file: DataFile
    gone: Positions
    seen: Positions = field(default_factory=lambda: _NOTHING)
    deletes: tuple[DataFile, ...] = ()

    @property
    def path(self) -> str:
        """Location of the data file."""
        return self.data_file.file_path


def decided_alike(rows: DecidedRows, deleted: Positions) -> Positions:
    """The rows of an operation that others deleted or replaced: it has to decide on them again.

    >>> import numpy as np
    >>> file = DataFile(file_path="a.parquet", record_count=9, file_size_in_bytes=1)
    >>> mine = DecidedRows(file, gone=np.array([1, 4]), seen=np.array([7]))
    >>> decided_alike(mine, np.array([2, 4, 7])).tolist()
    [4, 7]

    Args:
        rows: of the operation.
        deleted: positions of the file that are deleted by now, or those deleted since.
    """
    return common(union(rows.gone, rows.seen), deleted)


def all_deleted(rows: DecidedRows, deleted: Positions) -> Positions:
    """What a new deletion vector of the file has to hold (spec: Deletion Vectors).

    >>> import numpy as np
    >>> file = DataFile(file_path="a.parquet", record_count=9, file_size_in_bytes=1)
    >>> all_deleted(DecidedRows(file, gone=np.array([1, 4])), np.array([2, 4])).tolist()
    [1, 2, 4]
    """
    return union(rows.gone, deleted)


def about(deletes: Sequence[DataFile], file: DataFile) -> list[DataFile]:
    """The position deletes that can be about a data file: by name, else by partition and bounds."""
    return [
        delete
        for delete in deletes
        if delete.may_name(file.file_path)
        and (delete.named_file is not None or delete.partition_key == file.partition_key)
    ]


@dataclass(frozen=True, slots=True, eq=False)
class RowIds:
    """The rows of a data file by `_row_id` (spec: Row Lineage).

    Attributes:
        data_file: the file.
        positions: of its rows that have an id.
        ids: the id of each of them.
    """

    data_file: DataFile
    positions: Positions
    ids: npt.NDArray[np.int64]


def follow(
    moved: Sequence[tuple[DecidedRows, RowIds]], to: Sequence[RowIds]
) -> tuple[DecidedRows, ...] | None:
    """The same rows in the files that they were moved to; None if one of them is in none.

    >>> import numpy as np
    >>> old, new = (DataFile(file_path=p, record_count=3, file_size_in_bytes=1) for p in "ab")
    >>> before = RowIds(old, np.arange(3), np.array([70, 71, 72]))
    >>> after = RowIds(new, np.arange(2), np.array([72, 70]))  # 71 was deleted
    >>> mine = DecidedRows(old, gone=np.array([2]))
    >>> [(rows.path, rows.gone.tolist()) for rows in follow([(mine, before)], [after])]
    [('b', [0])]
    >>> follow([(DecidedRows(old, gone=np.array([1, 2])), before)], [after]) is None
    True

    Args:
        moved: rows of files that are gone, with the ids of these files' rows.
        to: files that rows were moved to, whatever was deleted from them since.
    """
    gone = _ids([(ids, rows.gone) for rows, ids in moved])
    seen = _ids([(ids, rows.seen) for rows, ids in moved])
    places = [(file, np.isin(file.ids, gone), np.isin(file.ids, seen)) for file in to]
    there = np.concatenate([_NOTHING, *(file.ids[goes | stays] for file, goes, stays in places)])
    count = sum(len(rows.gone) + len(rows.seen) for rows, _ in moved)
    if count != len(there) or not np.array_equal(np.sort(there), union(gone, seen)):
        return None
    return tuple(
        DecidedRows(file.data_file, np.sort(file.positions[goes]), np.sort(file.positions[stays]))
        for file, goes, stays in places
        if goes.any() or stays.any()
    )


def _ids(parts: Sequence[tuple[RowIds, Positions]]) -> Positions:
    return np.concatenate(
        [_NOTHING, *(part.ids[np.isin(part.positions, at)] for part, at in parts)]
    )


@dataclass(frozen=True, slots=True, eq=False)
class KeyTest:
    """Finds rows that have one of the keys; pure.

    Attributes:
        columns: columns of the table that its keys are made of.
        may_hold: which entries may hold such a row, by their bounds.
        count: how many of some rows, with these columns, have one of the keys.
    """

    columns: Schema
    may_hold: Callable[[Entries], npt.NDArray[np.bool_]]
    count: Callable[[pa.Table], int]
