"""Where the entries of a manifest come from: its columnar twin, or the Avro manifest itself."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import PartitionSpec

from lakehouse.errors import NoSuchFileError, StorageError
from lakehouse.scan.bulk_avro import BulkRefusedError, bulk_decode
from lakehouse.spec.columnar_manifest import conform, mismatch, twin_path
from lakehouse.spec.entries import Entries
from lakehouse.spec.field_types import FieldTypes
from lakehouse.spec.inheritance import INHERITING, inherit
from lakehouse.spec.manifest import decode_manifest
from lakehouse.spec.manifest_list import ManifestFile
from lakehouse.storage.protocol import Storage

_TWIN_DAMAGE = (OSError, pa.ArrowException, StorageError)


@dataclass(slots=True)
class SourceContext:
    """What opening manifests needs, and what is to be reported.

    Attributes:
        storage: where they are.
        types: field types of the table.
        use_twins: whether columnar twins may be used.
        notes: unusual events, appended to.
    """

    storage: Storage
    types: FieldTypes
    use_twins: bool = True
    notes: list[str] = field(default_factory=list)


class ManifestSource:
    """The entries of one manifest, inheritance applied.

    Attributes:
        manifest: the row of the manifest list.
        kind: how the entries were had: `columnar`, `cached`, `bulk` or `slow`; known after the first `entries`.
        bytes_read: bytes of Avro read from storage.
    """

    def __init__(self, manifest: ManifestFile, spec: PartitionSpec, context: SourceContext) -> None:
        self.manifest = manifest
        self.kind = "slow"
        self.bytes_read = 0
        self._spec = spec
        self._context = context
        self._twin = self._open_twin() if context.use_twins else None
        self._loaded: Entries | None = None

    def entries(self, columns: Collection[str] | None) -> Entries:
        """All entries with at least the columns asked for, as far as they exist; None is all columns.

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
        context, location = self._context, self.manifest.manifest_path
        try:
            entries, self.bytes_read = bulk_decode(context.storage, location, self._spec, context.types)
        except BulkRefusedError as error:
            context.notes.append(f"decoded {location} entry by entry: {error}")
        else:
            self.kind = "bulk"
            return inherit(entries, self.manifest)
        data = context.storage.read(location)
        self.bytes_read = len(data)
        return decode_manifest(data, self.manifest, self._spec, context.types)

    def _from_twin(self, twin: pq.ParquetFile, columns: Collection[str] | None) -> Entries:
        present = twin.schema_arrow.names
        wanted = present
        if columns is not None:
            needed = {"status", *columns}
            if needed & {"first_row_id", "sequence_number", "file_sequence_number"}:
                needed.update(INHERITING)
            wanted = [name for name in present if name in needed]
        table = twin.read(columns=wanted, use_threads=False).replace_schema_metadata()
        return inherit(conform(table, self._spec, self._context.types), self.manifest)

    def _open_twin(self) -> pq.ParquetFile | None:
        try:
            filesystem, path = self._context.storage.filesystem(twin_path(self.manifest.manifest_path))
            file = pq.ParquetFile(filesystem.open_input_file(path), page_checksum_verification=True)
        except (FileNotFoundError, NoSuchFileError):
            return None
        except _TWIN_DAMAGE as error:
            self._ignore_twin(str(error))
            return None
        reason = mismatch(file.metadata.metadata, file.metadata.num_rows, self.manifest)
        if reason is not None:
            self._ignore_twin(reason)
            return None
        return file

    def _ignore_twin(self, reason: str) -> None:
        self._twin = None
        self._context.notes.append(f"ignored the columnar twin of {self.manifest.manifest_path}: {reason}")
