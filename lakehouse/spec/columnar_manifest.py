"""Columnar twins of manifests: derived, disposable, read column by column (docs/format.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.types import IcebergType, TimestampNanoType, TimestampType

from lakehouse.spec.entries import BOUNDS, Entries
from lakehouse.spec.field_types import FieldTypes
from lakehouse.spec.manifest_list import ManifestFile
from lakehouse.spec.physical import partition_types, physical_type

TWIN_SUFFIX = ".columnar.parquet"
TWIN_FORMAT_VERSION = "1"
ROW_GROUP_ENTRIES = 16_384

_PREFIX = "lakehouse.columnar-manifest."
_MICROS_PER_DAY = 86_400_000_000


def twin_path(manifest_path: str) -> str:
    """Where the twin of a manifest is: `X.avro` -> `X.columnar.parquet`."""
    return manifest_path.removesuffix(".avro") + TWIN_SUFFIX


def manifest_checksum(data: bytes) -> str:
    """Checksum of a manifest's bytes as its twin and the cache record it: `sha256:<hex>`."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def encode_twin(entries: Entries, *, manifest_path: str, manifest_length: int, checksum: str) -> bytes:
    """Serialize the entries of a manifest as its twin.

    Args:
        entries: as they were written to the manifest, in its order, before anything is inherited (null stays null).
        manifest_path: of the manifest.
        manifest_length: bytes of the manifest.
        checksum: `manifest_checksum` of the manifest's bytes.
    """
    table = entries.table
    kept = [name for name in table.column_names if table[name].null_count < table.num_rows or name.startswith(_ALWAYS)]
    metadata = {
        _PREFIX + "format-version": TWIN_FORMAT_VERSION,
        _PREFIX + "manifest-path": manifest_path,
        _PREFIX + "manifest-length": str(manifest_length),
        _PREFIX + "manifest-checksum": checksum,
    }
    written = table.select(kept).combine_chunks().replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    pq.write_table(
        written,
        sink,
        compression="zstd",
        compression_level=1,
        row_group_size=ROW_GROUP_ENTRIES,
        use_dictionary=_dictionaries(written),
        write_statistics=False,
        store_schema=True,
        write_page_checksum=True,
    )
    return bytes(sink.getvalue())


def mismatch(metadata: Mapping[bytes, bytes] | None, rows: int, manifest: ManifestFile) -> str | None:
    """Why a twin does not belong to a manifest; None when it does.

    Args:
        metadata: key-value metadata of the twin.
        rows: rows in the twin.
        manifest: the row of the manifest list.
    """
    found = {key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in (metadata or {}).items()}
    expected = {
        "format-version": TWIN_FORMAT_VERSION,
        "manifest-path": manifest.manifest_path,
        "manifest-length": str(manifest.manifest_length),
    }
    for key, value in expected.items():
        if found.get(_PREFIX + key) != value:
            return f"its {key} is {found.get(_PREFIX + key)!r}, not {value!r}"
    counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
    if None not in counts and sum(count or 0 for count in counts) != rows:
        return f"it has {rows} rows, the manifest has {sum(count or 0 for count in counts)} entries"
    return None


def twin_checksum(metadata: Mapping[bytes, bytes] | None) -> str | None:
    """The checksum of the manifest that a twin was made from."""
    value = (metadata or {}).get((_PREFIX + "manifest-checksum").encode())
    return None if value is None else value.decode("utf-8", "replace")


def conform(table: pa.Table, spec: PartitionSpec, types: FieldTypes) -> Entries:
    """Entries from columns of a twin, in the present types: columns promoted since it was written are widened.

    A bound whose type cannot be widened is left out, which makes it unknown.
    """
    kinds = partition_types(spec, types)
    for position, name in reversed(list(enumerate(table.column_names))):
        prefix, _, field_id = name.partition(".")
        if prefix not in (*BOUNDS, "partition"):
            continue
        kind = types.get(int(field_id)) if prefix in BOUNDS else kinds.get(int(field_id))
        if kind is None or table.schema.field(position).type == physical_type(kind):
            continue
        widened = _widen(table.column(position), kind)
        table = table.remove_column(position) if widened is None else table.set_column(position, name, widened)
    return Entries(table, spec)


_ALWAYS = ("status", "snapshot_id", "sequence_number", "file_sequence_number", "partition.")
_VARIED = ("file_path", "lower.", "upper.", "file_size_in_bytes", "column_size.", "split_offsets", "record_count", "value_count.")


def _dictionaries(table: pa.Table) -> list[str]:
    """Columns that repeat few values; a dictionary of all-different values only costs."""
    names = [name for name in table.column_names if not pa.types.is_boolean(table.schema.field(name).type)]
    return [name for name in names if not name.startswith(_VARIED)]


def _widen(column: pa.ChunkedArray, kind: IcebergType) -> pa.ChunkedArray | None:
    source, target = column.type, physical_type(kind)
    if source == pa.int32() and isinstance(kind, (TimestampType, TimestampNanoType)):
        scale = _MICROS_PER_DAY * (1000 if isinstance(kind, TimestampNanoType) else 1)
        return pc.multiply(column.cast(pa.int64()), scale)
    numbers = (source == pa.int32() and target == pa.int64()) or (source == pa.float32() and target == pa.float64())
    decimals = pa.types.is_decimal(source) and pa.types.is_decimal(target) and source.scale == target.scale
    return column.cast(target) if numbers or (decimals and source.precision < target.precision) else None
