"""Columns of columnar twins kept in memory for the next plan.

A twin is known by the path of its manifest, whose name holds the seal of the twin: what was read
and verified under it never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakehouse.kept_by_bytes import KeptByBytes
from lakehouse.spec.manifests.columnar_manifest import TwinFile

TWIN_BYTES_MAX = 64 * 1024 * 1024
_COLUMN_BYTES = 2048
"""What a column of a table takes beside its values: 0.8 KB in Arrow's objects (13 KB for the 17
columns of a manifest of one file, whose values are 0.5 KB), and about as much again that allocators
leave free between tables of different age: a process grew by 54 MB with 583 of them."""


@dataclass(frozen=True, slots=True)
class KeptTwin:
    """What is known of a twin.

    Attributes:
        names: of all its columns.
        rows: how many.
        columns: those that were read, as they stand in the file.
        size: bytes that these take.
    """

    names: Sequence[str]
    rows: int
    columns: Mapping[str, pa.ChunkedArray]
    size: int


KeptTwins = KeptByBytes[str, KeptTwin]
"""Twins by the path of their manifest; their bytes are those of columns and Arrow's objects."""


class ReadTwin:
    """A twin whose columns are read once; the file is opened for those that are not kept.

    Args:
        path: of its manifest, which names its seal.
        opened: opens the file.
        cache: where columns are kept; None keeps them for this object alone.

    Raises what `opened` raises, unless the twin is kept.
    """

    def __init__(self, path: str, opened: Callable[[], TwinFile], cache: KeptTwins | None) -> None:
        self._path, self._opened, self._cache = path, opened, cache
        self._file: TwinFile | None = None
        kept = None if cache is None else cache.get(path)
        if kept is None:
            self._file = opened()
            kept = KeptTwin(self._file.names, self._file.rows, {}, 0)
        self._kept = kept

    @property
    def names(self) -> Sequence[str]:
        """Of its columns."""
        return self._kept.names

    @property
    def rows(self) -> int:
        """How many."""
        return self._kept.rows

    def read(self, names: Collection[str]) -> pa.Table:
        """Columns, as they stand in the file.

        Raises:
            CorruptMetadataError: they are not as they were written.
            NoSuchFileError, OSError, pa.ArrowException: as storage and pyarrow have it.
        """
        kept = self._kept
        missing = [name for name in names if name not in kept.columns]
        if missing:
            if self._file is None:
                self._file = self._opened()
            table = self._file.read(missing)
            columns = {**kept.columns, **dict(zip(table.column_names, table.columns, strict=True))}
            self._kept = KeptTwin(kept.names, kept.rows, columns, kept.size + table_bytes(table))
            if self._cache is not None:
                self._cache.put(self._path, self._kept, self._kept.size)
        return pa.table({name: self._kept.columns[name] for name in names})


def table_bytes(table: pa.Table) -> int:
    """What a table takes in memory, Arrow's objects around it included."""
    chunks = sum(one.num_chunks for one in table.columns)
    return int(table.nbytes + _COLUMN_BYTES * chunks)
