"""Columnar twins of manifests: derived, disposable, read column by column (docs/format.md)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.types import IcebergType, TimestampNanoType, TimestampType

from lakehouse.errors import CorruptMetadataError
from lakehouse.spec.entries import BOUNDS, Entries
from lakehouse.spec.field_types import FieldTypes
from lakehouse.spec.manifest_list import ManifestFile
from lakehouse.spec.physical import partition_types, physical_type

TWIN_SUFFIX = ".columnar.parquet"
TWIN_FORMAT_VERSION = "2"
ROW_GROUP_ENTRIES = 16_384

_PREFIX = "lakehouse.columnar-manifest."
_BLANK = "0" * 64
_SEAL = re.compile(rb"footer-checksum\x18\x40([0-9a-f]{64})")
"""Key, header and value of the footer's checksum, as Parquet's footers hold it."""
_TAIL_BYTES = 65_536
_MICROS_PER_DAY = 86_400_000_000


def twin_path(manifest_path: str) -> str:
    """Where the twin of a manifest is: `X.avro` -> `X.columnar.parquet`."""
    return manifest_path.removesuffix(".avro") + TWIN_SUFFIX


def manifest_checksum(data: bytes) -> str:
    """Checksum of a manifest's bytes as its twin and the cache record it: `sha256:<hex>`."""
    return "sha256:" + _digest(data)


def encode_twin(
    entries: Entries, *, manifest_path: str, manifest_length: int, checksum: str
) -> bytes:
    """Serialize the entries of a manifest as its twin.

    Args:
        entries: as they were written to the manifest, in its order, before anything is inherited (null stays null).
        manifest_path: of the manifest.
        manifest_length: bytes of the manifest.
        checksum: `manifest_checksum` of the manifest's bytes.
    """
    table = entries.table
    kept = [
        name
        for name in table.column_names
        if table[name].null_count < table.num_rows or name.startswith(_ALWAYS)
    ]
    metadata = {
        _PREFIX + "format-version": TWIN_FORMAT_VERSION,
        _PREFIX + "manifest-path": manifest_path,
        _PREFIX + "manifest-length": str(manifest_length),
        _PREFIX + "manifest-checksum": checksum,
        _PREFIX + "footer-checksum": _BLANK,
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
    return _sealed(bytes(sink.getvalue()))


def open_twin(source: pa.NativeFile) -> pq.ParquetFile:
    """Open a twin whose footer is as it was written: pages have checksums, and a footer that lies would prune what matches.

    Raises:
        CorruptMetadataError: it is not.
        OSError, pa.ArrowException: as pyarrow has it.
    """
    size = source.size()
    tail = source.read_at(min(size, _TAIL_BYTES), max(size - _TAIL_BYTES, 0))
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if not 12 < length <= size:
        raise CorruptMetadataError("it is no Parquet file")
    footer = tail[-length:] if length <= len(tail) else source.read_at(length, size - length)
    found = _SEAL.findall(footer)
    if (
        len(found) != 1
        or _digest(footer.replace(found[0], _BLANK.encode(), 1)) != found[0].decode()
    ):
        raise CorruptMetadataError("its footer is not as it was written")
    metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + footer))
    return pq.ParquetFile(source, metadata=metadata, page_checksum_verification=True)


def _sealed(data: bytes) -> bytes:
    """The file with the checksum of its footer, taken while the checksum is blank, in the footer."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:]
    return data[:start] + footer.replace(_BLANK.encode(), _digest(footer).encode(), 1)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def mismatch(
    metadata: Mapping[bytes, bytes] | None, rows: int, manifest: ManifestFile
) -> str | None:
    """Why a twin does not belong to a manifest; None when it does.

    Args:
        metadata: key-value metadata of the twin.
        rows: rows in the twin.
        manifest: the row of the manifest list.
    """
    found = {
        key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for key, value in (metadata or {}).items()
    }
    expected = {
        "format-version": TWIN_FORMAT_VERSION,
        "manifest-path": manifest.manifest_path,
        "manifest-length": str(manifest.manifest_length),
    }
    for key, value in expected.items():
        if found.get(_PREFIX + key) != value:
            return f"its {key} is {found.get(_PREFIX + key)!r}, not {value!r}"
    counts = (
        manifest.added_files_count,
        manifest.existing_files_count,
        manifest.deleted_files_count,
    )
    if None not in counts and sum(count or 0 for count in counts) != rows:
        return f"it has {rows} rows, the manifest has {sum(count or 0 for count in counts)} entries"
    return None


def lacking(names: Collection[str], spec: PartitionSpec) -> str | None:
    """Why columns are not those of a twin; None when none that every twin has is missing."""
    partition = (f"partition.{field.field_id}" for field in spec.fields)
    missing = sorted(
        {*_FILLED, "snapshot_id", "sequence_number", "file_sequence_number", *partition}
        - set(names)
    )
    return f"it has no column {', '.join(missing)}" if missing else None


def twin_checksum(metadata: Mapping[bytes, bytes] | None) -> str | None:
    """The checksum of the manifest that a twin was made from."""
    value = (metadata or {}).get((_PREFIX + "manifest-checksum").encode())
    return None if value is None else value.decode("utf-8", "replace")


def conform(table: pa.Table, spec: PartitionSpec, types: FieldTypes) -> Entries:
    """Entries from columns of a twin, in the present types: columns promoted since it was written are widened.

    A bound whose type cannot be widened is left out, which makes it unknown.

    Raises:
        CorruptMetadataError: a column that the entries of a manifest always fill has nulls.
    """
    for name in _FILLED:
        if name in table.column_names and table[name].null_count:
            raise CorruptMetadataError(f"its column {name} has nulls")
    kinds = partition_types(spec, types)
    for position, name in reversed(list(enumerate(table.column_names))):
        prefix, _, field_id = name.partition(".")
        if prefix not in (*BOUNDS, "partition"):
            continue
        kind = types.get(int(field_id)) if prefix in BOUNDS else kinds.get(int(field_id))
        if kind is None or table.schema.field(position).type == physical_type(kind):
            continue
        widened = _widen(table.column(position), kind)
        table = (
            table.remove_column(position)
            if widened is None
            else table.set_column(position, name, widened)
        )
    return Entries(table, spec)


_FILLED = ("status", "file_path", "file_format", "record_count", "file_size_in_bytes")
_ALWAYS = ("status", "snapshot_id", "sequence_number", "file_sequence_number", "partition.")
_VARIED = (
    "file_path",
    "lower.",
    "upper.",
    "file_size_in_bytes",
    "column_size.",
    "split_offsets",
    "record_count",
    "value_count.",
)


def _dictionaries(table: pa.Table) -> list[str]:
    """Columns that repeat few values; a dictionary of all-different values only costs."""
    names = [
        name
        for name in table.column_names
        if not pa.types.is_boolean(table.schema.field(name).type)
    ]
    return [name for name in names if not name.startswith(_VARIED)]


def _widen(column: pa.ChunkedArray, kind: IcebergType) -> pa.ChunkedArray | None:
    source, target = column.type, physical_type(kind)
    if source == pa.int32() and isinstance(kind, (TimestampType, TimestampNanoType)):
        scale = _MICROS_PER_DAY * (1000 if isinstance(kind, TimestampNanoType) else 1)
        return pc.multiply(column.cast(pa.int64()), scale)
    numbers = (source == pa.int32() and target == pa.int64()) or (
        source == pa.float32() and target == pa.float64()
    )
    decimals = (
        pa.types.is_decimal(source) and pa.types.is_decimal(target) and source.scale == target.scale
    )
    return (
        column.cast(target)
        if numbers or (decimals and source.precision < target.precision)
        else None
    )
