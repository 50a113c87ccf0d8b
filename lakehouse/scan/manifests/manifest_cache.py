"""Decoded manifests kept for the next plan: in this process, and on disk when a folder is given.

A manifest is known by its path, its length and its last sixteen bytes: the sync marker, random or
derived from the content in every writer, so that a file replaced by another of the same length is
not mistaken for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec

from lakehouse.errors import CorruptMetadataError
from lakehouse.kept_by_bytes import KeptByBytes
from lakehouse.scan.manifests.twin_cache import TWIN_BYTES_MAX, KeptTwins, table_bytes
from lakehouse.spec.manifests.avro_container import SYNC_BYTES
from lakehouse.spec.manifests.columnar_manifest import (
    TWIN_SUFFIX,
    conform,
    encode_twin,
    lacking,
    mismatch,
    open_twin,
)
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.schema.field_types import FieldTypes
from lakehouse.storage.storage_protocol import Storage

CACHE_DIR_VARIABLE = "LAKEHOUSE_CACHE_DIR"
MEMORY_BYTES_MAX = 64 * 1024 * 1024
DISK_BYTES_MAX = 4 * 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CacheKey:
    """Which manifest, and in which types its entries were decoded."""

    path: str
    length: int
    marker: bytes
    types: int

    @property
    def identity(self) -> str:
        """What the file on disk says that it is of."""
        return f"{self.path}\n{self.length}\nsync:{self.marker.hex()}"


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
        folder: where decoded manifests are kept for other processes; None keeps none.
        disk_bytes_max: bytes kept there.

    Attributes:
        twins: columns of columnar twins, in memory, with a bound of their own.
    """

    def __init__(
        self,
        *,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
        folder: Path | None = None,
        disk_bytes_max: int = DISK_BYTES_MAX,
    ) -> None:
        self.folder = folder
        self.disk_bytes_max = disk_bytes_max
        self.kept: KeptByBytes[CacheKey, _Kept] = KeptByBytes(memory_bytes_max)
        self.twins: KeptTwins = KeptByBytes(TWIN_BYTES_MAX)

    def key(self, storage: Storage, manifest: ManifestFile, types: FieldTypes) -> CacheKey:
        """The identity of a manifest; reads its last bytes.

        Raises:
            NoSuchFileError: the manifest is missing.
        """
        marker = storage.read_range(
            manifest.manifest_path, max(manifest.manifest_length - SYNC_BYTES, 0), SYNC_BYTES
        )
        return CacheKey(
            manifest.manifest_path, manifest.manifest_length, marker, hash(frozenset(types.items()))
        )

    def get(self, key: CacheKey, columns: Collection[str] | None) -> Entries | None:
        """Entries with at least these columns, from memory; None when they are not there."""
        kept = self.kept.get(key)
        return None if kept is None or not kept.has(columns) else kept.entries

    def put(self, key: CacheKey, columns: Collection[str] | None, entries: Entries) -> None:
        """Keep entries that were decoded with these columns (None is all) in memory."""
        kept = _Kept(entries, None if columns is None else frozenset(columns))
        self.kept.put(key, kept, table_bytes(entries.table))

    def load(
        self, key: CacheKey, manifest: ManifestFile, spec: PartitionSpec, types: FieldTypes
    ) -> Entries | None:
        """Entries from disk, every column; None when they are not there or not usable."""
        if self.folder is None:
            return None
        path = self._path(key)
        try:
            with pa.OSFile(str(path)) as source:
                file = open_twin(source)
                wrong = mismatch(file.rows, manifest) or lacking(file.names, spec)
                if wrong is not None or file.of != key.identity:
                    return None
                table = file.read()
            os.utime(path)
            return conform(table, spec, types)
        except (OSError, pa.ArrowException, CorruptMetadataError):
            return None

    def save(self, key: CacheKey, entries: Entries) -> None:
        """Keep entries (every column) on disk.

        Raises:
            OSError: the folder cannot be written.
        """
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        data = encode_twin(entries, of=key.identity).data
        with tempfile.NamedTemporaryFile(dir=self.folder, suffix=".new", delete=False) as file:
            file.write(data)
        Path(file.name).replace(self._path(key))
        self._evict()

    def clear(self) -> None:
        """Forget what is in memory."""
        self.kept.clear()
        self.twins.clear()

    def _path(self, key: CacheKey) -> Path:
        name = hashlib.sha256(key.identity.encode()).hexdigest()
        return (self.folder or Path()) / (name + TWIN_SUFFIX)

    def _evict(self) -> None:
        files = []
        for path in (self.folder or Path()).glob(f"*{TWIN_SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                files.append((status.st_mtime, status.st_size, path))
        excess = sum(size for _, size, _ in files) - self.disk_bytes_max
        for _, size, path in sorted(files):
            if excess <= 0:
                break
            path.unlink(missing_ok=True)
            excess -= size


def _default() -> ManifestCache:
    folder = os.environ.get(CACHE_DIR_VARIABLE)
    return ManifestCache(folder=Path(folder) if folder else None)


DEFAULT_CACHE = _default()
