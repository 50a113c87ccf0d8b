"""Columns of columnar twins kept in memory for the next plan.

A twin is known by the path of its manifest, whose name holds the seal of the twin: what was read
and verified under it never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakehouse.kept_by_bytes import KeptByBytes
from lakehouse.spec.manifests.columnar_manifest import TwinFile
from lakehouse.spec.manifests.manifest_entries import Entries

TWIN_BYTES_MAX = 64 * 1024 * 1024
_COLUMN_BYTES = 2048
"""What a column of a table takes beside its values: 0.8 KB in Arrow's objects (13 KB for the 17
columns of a manifest of one file, whose values are 0.5 KB), and about as much again that allocators
leave free between tables of different age: a process grew by 54 MB with 583 of them."""
_ENTRY_COLUMN_BYTES = 512
"""What a table takes for a column that it shares."""
_MADE_BYTES_MAX = 1 << 18
_MADE_MAX = 4
"""A scan takes two: those that its filter looks at, and those that are returned."""


@dataclass(frozen=True, slots=True)
class KeptTwin:
    """What is known of a twin.

    Attributes:
        names: of all its columns.
        rows: how many.
        columns: those that were read, as they stand in the file.
        size: bytes that these take.
        made: the last entries that were made of columns, by what they were made for.
    """

    names: Sequence[str]
    rows: int
    columns: Mapping[str, pa.ChunkedArray]
    size: int
    made: Mapping[Hashable, MadeEntries] = field(default_factory=dict)

    @property
    def bytes_held(self) -> int:
        """Bytes of columns, and of what was made of them beside these."""
        return self.size + sum(one.size for one in self.made.values())


@dataclass(frozen=True, slots=True)
class MadeEntries:
    """Entries made of a twin.

    Attributes:
        entries: inheritance applied.
        of: the objects they were made for, which stay what they are as long as these are held.
        size: bytes beside those of the twin's columns.
    """

    entries: Entries
    of: tuple[object, ...]
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

    def entries(
        self,
        names: Sequence[str],
        objects: tuple[object, ...],
        beside: Hashable,
        make: Callable[[pa.Table], Entries],
        beside_bytes: int = 0,
    ) -> Entries:
        """The entries that `make` gives of columns, made once while the twin is kept.

        Only small ones are kept: making large ones takes little beside comparing them.

        Args:
            names: of the columns.
            objects: that never change, on which `make` depends.
            beside: what else it depends on.
            make: makes them; what it raises is raised.
            beside_bytes: what the objects take.

        Raises as `read` does.
        """
        key = (*names, *map(id, objects), beside)
        known = self._kept.made.get(key)
        if known is not None:
            return known.entries
        found = make(self.read(names))
        kept = self._kept
        size = _made_bytes(found, kept.columns) + beside_bytes
        if self._cache is not None and size <= _MADE_BYTES_MAX:
            made = dict(list(kept.made.items())[1 - _MADE_MAX :])
            made[key] = MadeEntries(found, objects, size)
            self._kept = KeptTwin(kept.names, kept.rows, kept.columns, kept.size, made)
            self._cache.put(self._path, self._kept, self._kept.bytes_held)
        return found

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
            size = kept.size + table_bytes(table)
            self._kept = KeptTwin(kept.names, kept.rows, columns, size, kept.made)
            if self._cache is not None:
                self._cache.put(self._path, self._kept, self._kept.bytes_held)
        return pa.table({name: self._kept.columns[name] for name in names})


def _made_bytes(entries: Entries, columns: Mapping[str, pa.ChunkedArray]) -> int:
    """What entries take beside the columns of the twin: their table, and what was filled in."""
    table = entries.table
    own = [
        name
        for name, column in zip(table.column_names, table.columns, strict=True)
        if name not in columns or _first_buffer(columns[name]) != _first_buffer(column)
    ]
    return int(_ENTRY_COLUMN_BYTES * table.num_columns) + table_bytes(table.select(own))


def _first_buffer(column: pa.ChunkedArray) -> int:
    """Where the values of a column begin in memory, 0 for none."""
    buffers = column.chunk(0).buffers() if column.num_chunks else []
    return int(next((one.address for one in reversed(buffers) if one is not None), 0))


def table_bytes(table: pa.Table) -> int:
    """What a table takes in memory, Arrow's objects around it included."""
    chunks = sum(one.num_chunks for one in table.columns)
    return int(table.nbytes + _COLUMN_BYTES * chunks)
