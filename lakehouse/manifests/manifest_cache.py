"""What was fetched and decoded of manifests, kept in this process for who needs it next.

A decoded manifest is known by its path, its length and its last sixteen bytes: the sync marker,
random or derived from the content in every writer, so that a file replaced by another of the same
length is not mistaken for it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lakehouse.kept_by_bytes import KeptByBytes, MadeOnce
from lakehouse.manifests.twin_cache import TWIN_BYTES_MAX, KeptTwins, table_bytes
from lakehouse.spec.manifests.avro_container import SYNC_BYTES
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.schema.field_types import FieldTypes
from lakehouse.storage.bucket_clients import SCHEMES
from lakehouse.storage.location import parse
from lakehouse.storage.storage_protocol import Storage

MEMORY_BYTES_MAX = 64 * 1024 * 1024
FETCHED_BYTES_MAX = 64 * 1024 * 1024
FETCHED: KeptByBytes[tuple[object, ...], bytes] = KeptByBytes(FETCHED_BYTES_MAX)
"""Content by location and by the properties of the storage, which say who fetched it from where."""


def fetch(storage: Storage, location: str) -> bytes:
    """A file that never changes: a manifest, its columnar copy, or a manifest list.

    An object store is asked for it once, as long as there is room; disks and memory every time.

    Raises as `Storage.read` does.
    """
    if parse(location).scheme not in SCHEMES:
        return storage.read(location)
    key = (location, *sorted(storage.properties.items()))
    data = FETCHED.get(key)
    if data is None:
        data = storage.read(location)
        FETCHED.put(key, data, len(data))
    return data


def fetch_end(storage: Storage, location: str, size: int, length: int) -> bytes:
    """The last bytes of a file of a known size that never changes.

    From an object store the file is fetched as a whole: who asks for its end will need the rest.
    """
    if parse(location).scheme in SCHEMES:
        return fetch(storage, location)[-length:]
    return storage.read_range(location, max(size - length, 0), length)


@dataclass(frozen=True, slots=True)
class CacheKey:
    """Which manifest, and in which types its entries were decoded."""

    path: str
    length: int
    marker: bytes
    types: int


@dataclass(frozen=True, slots=True)
class _Kept:
    entries: Entries
    columns: frozenset[str] | None
    """What they were decoded with; None is all."""

    def has(self, columns: Collection[str] | None) -> bool:
        return self.columns is None or (columns is not None and self.columns.issuperset(columns))


class ManifestCache:
    """Entries of Avro manifests before inheritance, least recently used ones dropped first.

    Safe between threads.

    Args:
        memory_bytes_max: bytes of entries kept in memory, Arrow's objects around them included.

    Attributes:
        twins: columns of columnar twins, in memory, with a bound of their own.
    """

    def __init__(self, *, memory_bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self.kept: KeptByBytes[CacheKey, _Kept] = KeptByBytes(memory_bytes_max)
        self.twins: KeptTwins = KeptByBytes(TWIN_BYTES_MAX)

    def key(self, storage: Storage, manifest: ManifestFile, types: FieldTypes) -> CacheKey:
        """The identity of a manifest; reads its last bytes.

        Raises:
            NoSuchFileError: the manifest is missing.
        """
        marker = fetch_end(storage, manifest.manifest_path, manifest.manifest_length, SYNC_BYTES)
        return CacheKey(manifest.manifest_path, manifest.manifest_length, marker, _digest(types))

    def get(self, key: CacheKey, columns: Collection[str] | None) -> Entries | None:
        """Entries with at least these columns, from memory; None when they are not there."""
        kept = self.kept.get(key)
        return None if kept is None or not kept.has(columns) else kept.entries

    def put(self, key: CacheKey, columns: Collection[str] | None, entries: Entries) -> None:
        """Keep entries that were decoded with these columns (None is all) in memory."""
        kept = _Kept(entries, None if columns is None else frozenset(columns))
        self.kept.put(key, kept, table_bytes(entries.table))

    def clear(self) -> None:
        """Forget what is in memory."""
        self.kept.clear()
        self.twins.clear()


def _digest(types: FieldTypes) -> int:
    """Tells types of fields apart; they are hashed once, not for each manifest."""
    return _DIGESTS.of(
        (types,), None, lambda: hash(frozenset(types.items())), lambda _: _FIELD_BYTES * len(types)
    )


_FIELD_BYTES = 2048
"""What a field takes, its schema included."""
_DIGESTS: MadeOnce[int] = MadeOnce()
DEFAULT_CACHE = ManifestCache()
