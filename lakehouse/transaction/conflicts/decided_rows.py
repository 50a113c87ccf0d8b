"""Rows that an operation decided on, by file and position, and what others may not do to them.

Pure. `(theirs & mine) - base`: rows that two writers changed. The base drops out of it, because an
operation decides on rows that are live in its base: none of them is deleted there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lakehouse.spec.manifests.data_file import DataFile

Positions = npt.NDArray[np.int64]


def _no_positions() -> Positions:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class DecidedRows:
    """Live rows of one data file that an operation decided on.

    Attributes:
        data_file: the file.
        gone: ascending distinct positions of the rows that it deletes, or replaces.
        seen: positions of rows that stay as they are, but must not go: another decision hangs on
            them, such as not to insert a row that is there.
        deletes: position deletes, or the deletion vector, of the file in the operation's base.
    """

    data_file: DataFile
    gone: Positions
    seen: Positions = field(default_factory=_no_positions)
    deletes: tuple[DataFile, ...] = ()

    @property
    def path(self) -> str:
        """Location of the data file."""
        return self.data_file.file_path


def decided_alike(rows: DecidedRows, deleted: Positions, *, with_seen: bool) -> Positions:
    """The rows of an operation that others deleted or replaced: it has to decide on them again.

    >>> import numpy as np
    >>> file = DataFile(file_path="a.parquet", record_count=9, file_size_in_bytes=1)
    >>> mine = DecidedRows(file, gone=np.array([1, 4]), seen=np.array([7]))
    >>> decided_alike(mine, np.array([2, 4, 7]), with_seen=False).tolist()
    [4]
    >>> decided_alike(mine, np.array([2, 4, 7]), with_seen=True).tolist()
    [4, 7]

    Args:
        rows: of the operation.
        deleted: positions of the file that are deleted by now, or those deleted since the base.
        with_seen: whether rows that it only saw count, too.
    """
    mine = np.union1d(rows.gone, rows.seen) if with_seen else rows.gone
    return np.intersect1d(mine, deleted)


def all_deleted(rows: DecidedRows, deleted: Positions) -> Positions:
    """What a new deletion vector of the file has to hold (spec: Deletion Vectors).

    >>> import numpy as np
    >>> file = DataFile(file_path="a.parquet", record_count=9, file_size_in_bytes=1)
    >>> all_deleted(DecidedRows(file, gone=np.array([1, 4])), np.array([2, 4])).tolist()
    [1, 2, 4]
    """
    return np.union1d(rows.gone, deleted)


def paths_of(rows: Iterable[DecidedRows], *, with_seen: bool) -> frozenset[str]:
    """The data files that have to be there still."""
    return frozenset(one.path for one in rows if len(one.gone) or (with_seen and len(one.seen)))


def about(deletes: Sequence[DataFile], file: DataFile) -> list[DataFile]:
    """The position deletes that can be about a data file: by name, else by partition and bounds."""
    return [
        one
        for one in deletes
        if one.may_name(file.file_path)
        and (one.named_file is not None or one.partition_key == file.partition_key)
    ]
