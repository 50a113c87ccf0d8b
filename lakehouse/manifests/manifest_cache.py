"""What was read of manifests and manifest lists, kept in this process within one bound.

Nothing is known by its name alone: an Avro manifest is known by its path, its length and its last
sixteen bytes, the sync marker, which every writer draws at random or from the content; a manifest
list by what its file holds; a columnar manifest by the path of its manifest, which holds the
checksum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from lakehouse.kept_by_bytes import KeptByBytes, MadeOnce
from lakehouse.spec.manifests.avro_container import SYNC_BYTES
from lakehouse.spec.manifests.columnar_manifest import ColumnarFile
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import ManifestFile, read_manifest_list
from lakehouse.spec.schema.iceberg_types import FieldTypes
from lakehouse.storage.bucket_clients import SCHEMES
from lakehouse.storage.location import parse
from lakehouse.storage.storage_protocol import Storage

T = TypeVar("T")

CACHE_BYTES_MAX = 128 * 1024 * 1024
_COLUMN_BYTES = 2048
"""What a column of a table takes beside its values: 0.8 KB in Arrow's objects (13 KB for the 17
columns of a manifest of one file, whose values are 0.5 KB), and about as much again that allocators
leave free between tables of different age: a process grew by 54 MB with 583 of them."""
_MANIFEST_BYTES, _SUMMARY_BYTES = 768, 192
"""What a row of a manifest list takes, and each partition field that it summarizes."""
_FIELD_BYTES = 2048
"""What a field takes, its schema included."""
_SMALL_BYTES = 1 << 20
"""Entries of columnar manifests are kept up to this size: others are made as fast as compared."""


def size_of(value: bytes | pa.Table | Sequence[ManifestFile]) -> int:
    """Bytes that a value takes in memory, at most: the one rule by which the cache counts."""
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, pa.Table):
        chunks = sum(column.num_chunks for column in value.columns)
        return int(value.nbytes + _COLUMN_BYTES * chunks)
    fields = len(value[0].partitions or ()) if value else 0
    return len(value) * (_MANIFEST_BYTES + fields * _SUMMARY_BYTES)


class Listed(tuple[ManifestFile, ...]):  # noqa: SLOT001 - it holds more than its items
    """The manifests of a snapshot, and what is worked out of them: kept as long as they are.

    Args:
        manifests: in the order of the list.
    """

    def __init__(self, manifests: Iterable[ManifestFile] = ()) -> None:  # noqa: ARG002
        self._derived: dict[Hashable, Any] = {}
        self._grown: Callable[[int], None] | None = None

    def derive(self, what: Hashable, make: Callable[[Listed], T], size: Callable[[T], int]) -> T:
        """What `make` gives, made once.

        Args:
            what: `make` depends on nothing else and on the manifests.
            make: never gives None.
            size: bytes that it takes.
        """
        value: T | None = self._derived.get(what)
        if value is None:
            value = self._derived.setdefault(what, make(self))
            if self._grown is not None:
                self._grown(size(value))
        return value


@dataclass(frozen=True, slots=True)
class KeptColumns:
    """What is known of a columnar manifest.

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


class ManifestCache:
    """Files, manifest lists, entries and columns, least recently used ones dropped first.

    Safe between threads.

    Args:
        bytes_max: bytes kept, as `size_of` counts them.

    Attributes:
        kept: all of it.
    """

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self.kept: KeptByBytes[Hashable, Any] = KeptByBytes(bytes_max)

    def clear(self) -> None:
        """Forget everything."""
        self.kept.clear()

    # Files that never change

    def fetch(self, storage: Storage, location: str) -> bytes:
        """A manifest, a columnar manifest, or a manifest list.

        An object store is read once, as long as there is room; disks and memory every time.
        It is kept by the properties of the storage, too, which say who fetched it from where.

        Raises as `Storage.read` does.
        """
        if parse(location).scheme not in SCHEMES:
            return storage.read(location)
        key = ("file", location, *sorted(storage.properties.items()))
        data: bytes | None = self.kept.get(key)
        if data is None:
            data = storage.read(location)
            self.kept.put(key, data, size_of(data))
        return data

    def fetch_end(self, storage: Storage, location: str, size: int, length: int) -> bytes:
        """The last bytes of a file of a known size.

        From an object store the file is fetched as a whole: who asks for its end will need the
        rest.
        """
        if parse(location).scheme in SCHEMES:
            return self.fetch(storage, location)[-length:]
        return storage.read_range(location, max(size - length, 0), length)

    # Manifest lists

    def listed(self, data: bytes, location: str) -> Listed:
        """As `read_manifest_list`, with what was worked out of it before."""
        kept: Listed | None = self.kept.get(_list_key(data))
        return self.keep_list(data, read_manifest_list(data, location)) if kept is None else kept

    def keep_list(self, data: bytes, manifests: Sequence[ManifestFile]) -> Listed:
        """Keep what reading `data` gives, known to who read or wrote it."""
        key, listed, sizes = _list_key(data), Listed(manifests), [size_of(manifests)]

        def grown(size: int) -> None:
            sizes.append(size)
            self.kept.resize(key, listed, sum(sizes))

        listed._grown = grown  # noqa: SLF001 - of this module
        self.kept.put(key, listed, sizes[0])
        return listed

    # Entries of Avro manifests, before inheritance

    def avro_key(self, storage: Storage, manifest: ManifestFile, types: FieldTypes) -> Hashable:
        """Which manifest, and in which types its entries are decoded; reads its last bytes.

        Raises:
            NoSuchFileError: the manifest is missing.
        """
        path, length = manifest.manifest_path, manifest.manifest_length
        marker = self.fetch_end(storage, path, length, SYNC_BYTES)
        return ("entries", path, length, marker, _digest(types))

    def entries(self, key: Hashable, columns: Collection[str] | None) -> Entries | None:
        """Entries with at least these columns (None is all); None when they are not kept."""
        entries, has = self.kept.get(key) or (None, ())
        if has is None or (columns is not None and frozenset(columns) <= frozenset(has)):
            return entries
        return None

    def keep_entries(
        self, key: Hashable, columns: Collection[str] | None, entries: Entries
    ) -> None:
        """Keep entries that were decoded with these columns; None is all."""
        has = None if columns is None else frozenset(columns)
        self.kept.put(key, (entries, has), size_of(entries.table))


class ColumnsOnce:
    """A columnar manifest whose columns are read once; opened for those that are not kept.

    Args:
        path: of its manifest, which names its checksum.
        opened: opens the file.
        cache: where columns are kept; None keeps them for this object alone.

    Raises what `opened` raises, unless columns are kept.
    """

    def __init__(
        self, path: str, opened: Callable[[], ColumnarFile], cache: ManifestCache | None
    ) -> None:
        self._path, self._opened = path, opened
        self._cache: KeptByBytes[Hashable, Any] = KeptByBytes(0) if cache is None else cache.kept
        self._file: ColumnarFile | None = None
        kept: KeptColumns | None = self._cache.get(("columns", path))
        if kept is None:
            self._file = opened()
            kept = KeptColumns(self._file.names, self._file.rows, {}, 0)
        self._kept = kept

    @property
    def names(self) -> Sequence[str]:
        """The names of all columns."""
        return self._kept.names

    @property
    def rows(self) -> int:
        """How many entries there are."""
        return self._kept.rows

    def entries(
        self,
        names: Sequence[str],
        objects: tuple[object, ...],
        beside: Hashable,
        make: Callable[[pa.Table], Entries],
    ) -> Entries:
        """The entries that `make` gives of columns; small ones are kept.

        Args:
            names: of the columns.
            objects: that never change, on which `make` depends.
            beside: what else it depends on.
            make: makes them; what it raises is raised.

        Raises as `read` does.
        """
        # ids are those of the objects as long as these are held
        key = ("made", self._path, *names, *map(id, objects), beside)
        kept: tuple[Entries, tuple[object, ...]] | None = self._cache.get(key)
        if kept is not None:
            return kept[0]
        entries = make(self.read(names))
        size = size_of(entries.table)
        if size <= _SMALL_BYTES:
            self._cache.put(key, (entries, objects), size)
        return entries

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
            size = kept.size + size_of(table)
            self._kept = KeptColumns(kept.names, kept.rows, columns, size)
            self._cache.put(("columns", self._path), self._kept, size)
        return pa.table({name: self._kept.columns[name] for name in names})


def _list_key(data: bytes) -> Hashable:
    return ("list", hashlib.blake2b(data, digest_size=32).digest())


_DIGESTS: MadeOnce[int] = MadeOnce()


def _digest(types: FieldTypes) -> int:
    """Tells types of fields apart; they are hashed once, not for each manifest."""
    return _DIGESTS.of(
        (types,), None, lambda: hash(frozenset(types.items())), lambda _: _FIELD_BYTES * len(types)
    )


DEFAULT_CACHE = ManifestCache()
