"""Columnar manifests: derived, disposable, read column by column (docs/format.md)."""

from __future__ import annotations

import hashlib
import mmap
import re
from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.types import IcebergType, TimestampNanoType, TimestampType

from lakehouse.errors import CorruptMetadataError
from lakehouse.spec.manifests.manifest_entries import BOUNDS, Entries
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.schema.iceberg_types import FieldTypes
from lakehouse.spec.types.arrow_types import partition_types, physical_type

COLUMNAR_SUFFIX = ".columnar.parquet"
COLUMNAR_FORMAT_VERSION = "3"
ROW_GROUP_ENTRIES = 16_384

_PREFIX = "lakehouse.columnar-manifest."
_DIGEST = 64
"""Hexadecimal digits of a whole digest; of a column chunk, and of a name, half as many are kept."""
_HALF = _DIGEST // 2
_FOOTER_BLANK, _CHUNK_BLANK = "0" * _DIGEST, "1" * _HALF
_FOOTER_KEY = re.compile(rb"footer-checksum\x18\x40([0-9a-f]{64})")
"""Key, header and value of the footer's checksum, as Parquet's footers hold it."""
_NAMED = re.compile(r"-t([0-9a-f]{32})\.avro$")
_TAIL_BYTES = 65_536
_MICROS_PER_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class EncodedColumnar:
    """An encoded columnar manifest and its checksum.

    Attributes:
        data: the file.
        checksum: 32 hexadecimal digits that no other content has, part of the manifest's name.
    """

    data: bytes
    checksum: str


def columnar_path(manifest_path: str) -> str:
    """Where the columnar manifest is: `X.avro` -> `X.columnar.parquet`."""
    return manifest_path.removesuffix(".avro") + COLUMNAR_SUFFIX


def name_with_checksum(name: str, checksum: str) -> str:
    """The name of a manifest whose columnar one has this checksum: `X` -> `X-t<checksum>.avro`."""
    return f"{name}-t{checksum}.avro"


def checksum_of(manifest_path: str) -> str | None:
    """The checksum of the columnar one, from a manifest's name; None where there is none."""
    match = _NAMED.search(manifest_path)
    return None if match is None else match[1]


def encode_columnar(entries: Entries) -> EncodedColumnar:
    """Serialize the entries of a manifest as columns; equal entries give equal bytes.

    Args:
        entries: as they were written to the manifest, in its order, before anything is inherited
            (null stays null).
    """
    table = entries.table
    kept = [
        name
        for name in table.column_names
        if table[name].null_count < table.num_rows or name.startswith(_ALWAYS)
    ]
    chunks = len(kept) * -(-table.num_rows // ROW_GROUP_ENTRIES)
    metadata = {
        _PREFIX + "format-version": COLUMNAR_FORMAT_VERSION,
        _PREFIX + "chunk-checksums": _CHUNK_BLANK * chunks,
        _PREFIX + "footer-checksum": _FOOTER_BLANK,
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
    )
    return _with_checksums(bytes(sink.getvalue()))


class ColumnarFile:
    """An open columnar manifest: reading it gives exactly what was written, or fails.

    Attributes:
        names: of its columns.
        rows: how many.
        checksum: of the columnar manifest.
    """

    def __init__(self, source: pa.NativeFile, metadata: pq.FileMetaData, checksum: str) -> None:
        self._source, self._metadata, self.checksum = source, metadata, checksum
        self._checksums = self._text("chunk-checksums")
        # checked bytes and decoded bytes have to be the same, also when somebody is writing
        whole = isinstance(source, pa.BufferReader)
        self._copy = None if whole else mmap.mmap(-1, source.size())
        checked = source if self._copy is None else pa.BufferReader(pa.py_buffer(self._copy))
        self._file = pq.ParquetFile(checked, metadata=metadata)
        self.names: list[str] = self._file.schema_arrow.names
        self.rows: int = metadata.num_rows
        if len(self.names) != metadata.num_columns:
            raise CorruptMetadataError("it has nested columns")
        if self._text("format-version") != COLUMNAR_FORMAT_VERSION:
            raise CorruptMetadataError(f"its format-version is {self._text('format-version')!r}")
        if len(self._checksums) != metadata.num_columns * metadata.num_row_groups * _HALF:
            raise CorruptMetadataError("it has checksums of other chunks")

    def read(self, names: Collection[str] | None = None) -> pa.Table:
        """Columns, None all of them.

        Raises:
            CorruptMetadataError: they are not as they were written.
            OSError, pa.ArrowException: as pyarrow has it.
        """
        wanted = [name for name in self.names if names is None or name in names]
        if not wanted:
            return pa.table({})
        places = {name: place for place, name in enumerate(self.names)}
        for group in range(self._metadata.num_row_groups):
            row_group = self._metadata.row_group(group)
            for name in wanted:
                self._check(group, places[name], row_group.column(places[name]))
        table = self._file.read(columns=wanted, use_threads=False)
        if self._copy is not None and hasattr(self._copy, "madvise"):
            self._copy.madvise(mmap.MADV_DONTNEED)
        return table.replace_schema_metadata()

    def _check(self, group: int, place: int, chunk: pq.ColumnChunkMetaData) -> None:
        start, length = _extent(chunk)
        if self._copy is None:
            self._source.seek(start)
            data = self._source.read_buffer(length)
        else:
            self._source.seek(start)
            data = memoryview(self._copy)[start : start + length]
            self._source.readinto(data)
        at = (group * self._metadata.num_columns + place) * _HALF
        if _digest(data)[:_HALF] != self._checksums[at : at + _HALF]:
            raise CorruptMetadataError(f"its column {self.names[place]} is not as it was written")

    def _text(self, key: str) -> str:
        value = (self._metadata.metadata or {}).get((_PREFIX + key).encode(), b"")
        return str(value.decode("utf-8", "replace"))


def open_columnar(source: pa.NativeFile, checksum: str | None = None) -> ColumnarFile:
    """Open a columnar manifest whose footer is as it was written, and is the one that is meant.

    Args:
        source: the file.
        checksum: the one in the manifest's name; None takes any.

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
    checksums = _FOOTER_KEY.findall(footer)
    if (
        len(checksums) != 1
        or _digest(footer.replace(checksums[0], _FOOTER_BLANK.encode(), 1)) != checksums[0].decode()
    ):
        raise CorruptMetadataError("its footer is not as it was written")
    has = checksums[0].decode()[:_HALF]
    if checksum is not None and has != checksum:
        raise CorruptMetadataError(f"its checksum is {has}, not {checksum}")
    metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + footer))
    return ColumnarFile(source, metadata, has)


def _with_checksums(data: bytes) -> EncodedColumnar:
    """The file with the checksums of its column chunks, and then that of the footer."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    metadata = pq.read_metadata(pa.BufferReader(data))
    view = memoryview(data)
    checksums = []
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for place in range(metadata.num_columns):
            at, length = _extent(row_group.column(place))
            checksums.append(_digest(view[at : at + length])[:_HALF])
    blank = (_CHUNK_BLANK * len(checksums)).encode()
    footer = data[start:].replace(blank, "".join(checksums).encode(), 1)
    checksum = _digest(footer)
    footer = footer.replace(_FOOTER_BLANK.encode(), checksum.encode(), 1)
    return EncodedColumnar(data[:start] + footer, checksum[:_HALF])


def _extent(chunk: pq.ColumnChunkMetaData) -> tuple[int, int]:
    """(first byte, bytes) of a column chunk."""
    starts = (chunk.dictionary_page_offset, chunk.data_page_offset)
    return min(start for start in starts if start), chunk.total_compressed_size


def _digest(data: bytes | memoryview | pa.Buffer) -> str:
    return hashlib.sha256(data).hexdigest()


def why_stale(rows: int, manifest: ManifestFile) -> str | None:
    """Why one of so many rows does not belong to a row of a manifest list; None when it does."""
    counts = (
        manifest.added_files_count,
        manifest.existing_files_count,
        manifest.deleted_files_count,
    )
    if None not in counts and sum(count or 0 for count in counts) != rows:
        return f"it has {rows} rows, the manifest has {sum(count or 0 for count in counts)} entries"
    return None


def missing_columns(names: Collection[str], spec: PartitionSpec) -> str | None:
    """Which columns that every columnar manifest has are missing, as a reason; None when none."""
    partition = (f"partition.{field.field_id}" for field in spec.fields)
    missing = sorted(
        {*_FILLED, "snapshot_id", "sequence_number", "file_sequence_number", *partition}
        - set(names)
    )
    return f"it has no column {', '.join(missing)}" if missing else None


def cast_to_table(table: pa.Table, spec: PartitionSpec, types: FieldTypes) -> Entries:
    """Entries from the columns of a columnar manifest, in the types to which columns were promoted.

    A bound that cannot be promoted is left out, which makes it unknown.

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
        promoted = _promoted(table.column(position), kind)
        table = (
            table.remove_column(position)
            if promoted is None
            else table.set_column(position, name, promoted)
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


def _promoted(column: pa.ChunkedArray, kind: IcebergType) -> pa.ChunkedArray | None:
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
