"""Where a manifest's entries come from: its columnar twin, a cache, or the Avro file."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.fs as pafs
from pyiceberg.partitioning import PartitionSpec

from lakehouse.errors import CorruptMetadataError, NoSuchFileError, StorageError
from lakehouse.scan.manifests.avro_manifests import decode_avro
from lakehouse.scan.manifests.manifest_cache import CacheKey, ManifestCache
from lakehouse.scan.manifests.partition_prefix import Keep
from lakehouse.scan.manifests.twin_cache import ReadTwin
from lakehouse.spec.manifests.columnar_manifest import (
    TwinFile,
    conform,
    lacking,
    mismatch,
    open_twin,
    seal_of,
    twin_path,
)
from lakehouse.spec.manifests.inheritance import INHERITING, inherit
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.schema.field_types import FieldTypes
from lakehouse.storage.storage_protocol import Storage

_FETCHED_WHOLE_BYTES = 8 << 20
"""Twins up to this size are read whole from object stores: one request instead of four."""
_KEPT_WHOLE_BYTES = 1 << 20
"""Avro manifests up to this size are decoded whole, for the cache."""
_TYPE_BYTES = 64
_TWIN_DAMAGE = (OSError, pa.ArrowException, StorageError, CorruptMetadataError, NoSuchFileError)


@dataclass(slots=True)
class SourceContext:
    """What opening manifests needs, and what is to be reported.

    Attributes:
        storage: where they are.
        types: field types of the table.
        use_twins: whether columnar twins may be used.
        cache: where entries decoded from Avro are kept; None keeps none.
        notes: unusual events, appended to.
    """

    storage: Storage
    types: FieldTypes
    use_twins: bool = True
    cache: ManifestCache | None = None
    notes: list[str] = field(default_factory=list)


class ManifestSource:
    """The entries of one manifest, inheritance applied.

    Args:
        manifest: the row of the manifest list.
        spec: its partition spec.
        context: see there.
        columns: every column that will be asked for, so that Avro is decoded once; None is all
            columns.
        keep: entries that are not chosen need not come; None for all entries.

    Attributes:
        manifest: the row of the manifest list.
        kind: how the entries were had: `columnar`, `cached`, `bulk` or `slow`; known after the
            first `entries`.
        bytes_read: bytes of Avro read from storage.
        skipped: live entries that were left out because `keep` does not choose them.
    """

    def __init__(
        self,
        manifest: ManifestFile,
        spec: PartitionSpec,
        context: SourceContext,
        columns: Collection[str] | None = None,
        keep: Keep | None = None,
    ) -> None:
        self.manifest = manifest
        self.kind = "slow"
        self.bytes_read = 0
        self.skipped = 0
        # row ids are counted over all entries
        self._keep = keep if manifest.first_row_id is None else None
        self._spec = spec
        self._context = context
        self._columns = None if columns is None else {"status", *INHERITING, *columns}
        self._twin = self._open_twin() if context.use_twins else None
        self._loaded: Entries | None = None

    @property
    def has_twin(self) -> bool:
        """Whether a columnar twin was found and opened."""
        return self._twin is not None

    def entries(self, columns: Collection[str] | None) -> Entries:
        """All entries with at least these columns where they exist; None is all columns.

        Raises:
            CorruptMetadataError: the manifest is damaged.
            NoSuchFileError: it is missing.
        """
        if self._twin is not None:
            try:
                entries = self._from_twin(self._twin, columns)
            except _TWIN_DAMAGE as error:
                self._ignore_twin(str(error))
            else:
                self.kind = "columnar"
                return entries
        if self._loaded is None:
            self._loaded = self._from_avro()
        return self._loaded

    def _from_avro(self) -> Entries:
        cache = self._context.cache
        if cache is None:
            return inherit(self._decode(self._columns, self._keep), self.manifest)
        key = cache.key(self._context.storage, self.manifest, self._context.types)
        entries = cache.get(key, self._columns)
        if entries is None:
            entries = cache.load(key, self.manifest, self._spec, self._context.types)
        if entries is not None:
            self.kind = "cached"
        elif cache.folder is None:
            # a large manifest would drive others out of memory: better to decode less of it
            large = self.manifest.manifest_length > _KEPT_WHOLE_BYTES
            entries = self._decode(self._columns, self._keep if large else None)
            if not self.skipped:
                cache.put(key, self._columns, entries)
        else:
            entries = self._decode(None)
            cache.put(key, None, entries)
            self._save(cache, key, entries)
        return inherit(entries, self.manifest)

    def _save(self, cache: ManifestCache, key: CacheKey, entries: Entries) -> None:
        try:
            cache.save(key, entries)
        except OSError as error:
            self._context.notes.append(f"cannot keep decoded manifests in {cache.folder}: {error}")

    def _decode(self, columns: Collection[str] | None, keep: Keep | None = None) -> Entries:
        """Entries as they stand in the Avro manifest, nothing inherited."""
        context, location = self._context, self.manifest.manifest_path
        decoded = decode_avro(
            context.storage, location, self._spec, context.types, columns=columns, keep=keep
        )
        self.kind, self.bytes_read, self.skipped = decoded.kind, decoded.bytes_read, decoded.skipped
        if decoded.refused is not None:
            context.notes.append(f"decoded {location} entry by entry: {decoded.refused}")
        return decoded.entries

    def _from_twin(self, twin: ReadTwin, columns: Collection[str] | None) -> Entries:
        present = twin.names
        wanted = present
        if columns is not None:
            needed = {"status", *columns}
            if needed & {"first_row_id", "sequence_number", "file_sequence_number"}:
                needed.update(INHERITING)
            wanted = [name for name in present if name in needed]
        spec, types, manifest = self._spec, self._context.types, self.manifest
        inherited = (
            manifest.content,
            manifest.added_snapshot_id,
            manifest.sequence_number,
            manifest.first_row_id,
        )
        return twin.entries(
            wanted,
            (spec, types),
            inherited,
            lambda table: inherit(conform(table, spec, types), manifest),
            _TYPE_BYTES * len(types),
        )

    def _open_twin(self) -> ReadTwin | None:
        context, path = self._context, self.manifest.manifest_path
        seal = seal_of(path)
        if seal is None:
            return None
        try:
            file = ReadTwin(
                path,
                partial(_opened, context.storage, self.manifest, seal),
                None if context.cache is None else context.cache.twins,
            )
        except (FileNotFoundError, NoSuchFileError):
            return None
        except _TWIN_DAMAGE as error:
            self._ignore_twin(str(error))
            return None
        reason = mismatch(file.rows, self.manifest) or lacking(file.names, self._spec)
        if reason is not None:
            self._ignore_twin(reason)
            return None
        return file

    def _ignore_twin(self, reason: str) -> None:
        self._twin = None
        self._context.notes.append(
            f"ignored the columnar twin of {self.manifest.manifest_path}: {reason}"
        )


def _opened(storage: Storage, manifest: ManifestFile, seal: str) -> TwinFile:
    """The twin of a manifest.

    It holds no source: that would hold it in turn, and what was read of both would stay in memory
    until cycles are looked for.
    """
    location = twin_path(manifest.manifest_path)
    filesystem, path = storage.filesystem(location)
    local = isinstance(filesystem, pafs.LocalFileSystem)
    if local or manifest.manifest_length > _FETCHED_WHOLE_BYTES:
        return open_twin(filesystem.open_input_file(path), seal)
    return open_twin(pa.BufferReader(storage.read(location)), seal)
