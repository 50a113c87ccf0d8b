"""Reading one Parquet data file: its footer, row groups that may match, wanted columns.

What pruning needs of the footer is parsed here: pyarrow ends the process over damaged column
metadata. (`RowGroupMetaData.column` lets C++ exceptions through, as for histograms of a wrong size
or statistics that are cut short.)
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.types import NestedField, PrimitiveType

from lakehouse.data.conversion.thrift import read_struct
from lakehouse.data.reading.bloom_filters import Filtered, askable, may_hold
from lakehouse.data.reading.column_projection import FileColumn, Projection, file_columns
from lakehouse.data.reading.scan_columns import FileShape, RowGroup, TaskReader, WantedRows
from lakehouse.data.reading.shredded_statistics import Statistic, shredded_fields, variant_bounds_of
from lakehouse.data.statistics.column_metrics import decode_statistic
from lakehouse.errors import (
    CorruptMetadataError,
    LakehouseError,
    NoSuchFileError,
    StorageError,
    UnsupportedFeatureError,
)
from lakehouse.expressions.bound_filter import TRUE, Bound, leaves
from lakehouse.scan.pruning.entry_pruning import may_match
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.types.arrow_types import physical_type, to_physical
from lakehouse.storage.storage_protocol import Storage

_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
_TRAILER_BYTES = 8
# What is read from the end of a file at first; most footers are smaller.
_TAIL_BYTES = 65_536

_PLAIN: dict[str, Callable[[bytes], Any]] = {
    "BOOLEAN": lambda raw: raw[0] != 0,
    "INT32": lambda raw: struct.unpack("<i", raw)[0],
    "INT64": lambda raw: struct.unpack("<q", raw)[0],
    "FLOAT": lambda raw: struct.unpack("<f", raw)[0],
    "DOUBLE": lambda raw: struct.unpack("<d", raw)[0],
    "BYTE_ARRAY": bytes,
    "FIXED_LEN_BYTE_ARRAY": bytes,
}


_BUFFER_BYTES = 262_144
PARQUET_OPTIONS: Mapping[str, Any] = {
    "coerce_int96_timestamp_unit": "us",
    "page_checksum_verification": True,
    "arrow_extensions_enabled": False,
}
# What pays for larger files only: buffers, decoding columns in parallel.
MANY_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Footer:
    """A file's footer, serialized and parsed; with it the whole file if one read brought it."""

    data: bytes
    parsed: pq.FileMetaData
    whole: bytes | None = None


class WholeParquet:
    """What the reader needs of a `pq.ParquetFile`, for a small file that is in memory.

    `ParquetFile` also looks for a file system and lists the paths of nested columns, which takes
    longer than opening the file.

    Args:
        data: the file.
        metadata: its footer.
    """

    def __init__(self, data: bytes, metadata: pq.FileMetaData) -> None:
        self.metadata = metadata
        self.reader = pq.core.ParquetReader()
        self.reader.open(pa.BufferReader(data), metadata=metadata, **PARQUET_OPTIONS)

    @property
    def schema_arrow(self) -> pa.Schema:
        """As columns are decoded."""
        return self.reader.schema_arrow

    def close(self) -> None:
        """Release the file."""
        self.reader.close()


def load_footer(storage: Storage, file: DataFile, *, counted: bool = True) -> Footer:
    """Read a file's footer.

    Args:
        storage: where the file is.
        file: its entry.
        counted: whether its `record_count` is known.

    Raises:
        NoSuchFileError, StorageError: it cannot be read.
        CorruptMetadataError: it is not valid Parquet, or holds another number of rows than
            recorded.
        UnsupportedFeatureError: another format, or an encrypted file.
    """
    if file.file_format.lower() != "parquet":
        raise UnsupportedFeatureError(
            f"file {file.file_path} has format {file.file_format}; Parquet, Avro and ORC are read",
            file=file.file_path,
        )
    tail = read_footer(storage, file.file_path, file.file_size_in_bytes)
    with readable(file.file_path):
        # as pq.read_metadata does, without the paths of nested columns, which take longer than the
        # metadata themselves
        reader = pq.core.ParquetReader()
        reader.open(pa.BufferReader(as_metadata_file(tail.footer)))
        footer = Footer(tail.footer, reader.metadata, tail.whole)
    if counted and footer.parsed.num_rows != file.record_count:
        raise CorruptMetadataError(
            f"{file.file_path} holds {footer.parsed.num_rows} rows, its manifest says "
            f"{file.record_count}",
            file=file.file_path,
        )
    return footer


def open_parquet(
    storage: Storage, file: DataFile, footer: Footer, dictionaries: Sequence[int] = ()
) -> pq.ParquetFile | WholeParquet:
    """Open a file whose footer was read; the leaf columns `dictionaries` stay dictionary encoded.

    Raises:
        NoSuchFileError, StorageError: it cannot be read.
        CorruptMetadataError: it is not valid Parquet.
    """
    with readable(file.file_path):
        parsed = footer.parsed
        if footer.whole is not None:
            return WholeParquet(footer.whole, parsed)
        filesystem, path = storage.filesystem(file.file_path)
        local = isinstance(filesystem, pafs.LocalFileSystem)
        return pq.ParquetFile(
            path,
            filesystem=filesystem,
            metadata=parsed,
            read_dictionary=list(dictionaries) or None,
            # Near files are read piece by piece, far ones with one request for each column.
            pre_buffer=not local,
            buffer_size=_BUFFER_BYTES if local and parsed.num_rows >= MANY_ROWS else 0,
            **PARQUET_OPTIONS,
        )


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Errors of pyarrow about a file as ours."""
    try:
        yield
    except LakehouseError:
        raise
    except FileNotFoundError as error:
        raise NoSuchFileError(f"file {path} of the table does not exist", file=path) from error
    except (
        pa.ArrowInvalid,
        pa.ArrowNotImplementedError,
        pa.ArrowTypeError,
        pa.ArrowKeyError,
        UnicodeDecodeError,
    ) as error:
        raise CorruptMetadataError(
            f"file {path} is not readable Parquet: {error}", file=path
        ) from error
    except (pa.ArrowMemoryError, MemoryError, OverflowError) as error:
        raise CorruptMetadataError(
            f"file {path} claims more data than memory can hold: {error}", file=path
        ) from error
    except OSError as error:
        # parquet-cpp reports damaged pages as plain OSError without errno
        if error.errno is None:
            raise CorruptMetadataError(
                f"file {path} is not readable Parquet: {error}", file=path
            ) from error
        raise StorageError(f"cannot read {path}: {error}", file=path) from error


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """One column of one row group.

    Attributes:
        start: first byte: dictionary page, else first data page.
        has_dictionary: whether there is a dictionary page.
        compressed_bytes: in the file.
        uncompressed_bytes: of its pages.
        values: number of values, nulls included.
        null_count: None when not recorded.
        minimum: plain-encoded statistic that may be trusted, None when there is none.
        maximum: the same.
        bloom: offset and length of its Bloom filter, the latter None where the writer did not say;
            None: there is none.
    """

    start: int
    has_dictionary: bool
    compressed_bytes: int
    uncompressed_bytes: int
    values: int
    null_count: int | None
    minimum: bytes | None
    maximum: bytes | None
    bloom: tuple[int, int | None] | None


def plain_value(raw: bytes | None, physical_type: str) -> Any:
    """A plain-encoded statistic as Python's value of the physical type; None when it is not one."""
    decode = _PLAIN.get(physical_type)
    if raw is None or decode is None:
        return None
    try:
        return decode(raw)
    except (struct.error, IndexError):
        return None


class Tail(NamedTuple):
    """The end of a Parquet file: its footer, and the whole file when it is that small."""

    footer: bytes
    whole: bytes | None


def read_footer(storage: Storage, path: str, recorded_size: int) -> Tail:
    """The serialized footer of a Parquet file.

    It mostly takes one read, which brings a small file as a whole.

    Args:
        storage: where the file is.
        path: its location.
        recorded_size: what the manifest says; writers have been wrong about it, so that the real
            size decides when it fails.

    Raises:
        NoSuchFileError, StorageError: it cannot be read.
        CorruptMetadataError: it does not end as a Parquet file.
        UnsupportedFeatureError: its footer is encrypted.
    """
    tail = _tail(storage, path, recorded_size)
    if tail is None:
        tail = _tail(storage, path, storage.size(path))
    if tail is None:
        raise CorruptMetadataError(f"{path} does not end as a Parquet file", file=path)
    return tail


def _tail(storage: Storage, path: str, size: int) -> Tail | None:
    if size < len(_MAGIC) + _TRAILER_BYTES:
        return None
    length = min(size, _TAIL_BYTES)
    tail = storage.read_range(path, size - length, length)
    if tail[-4:] == _ENCRYPTED_MAGIC:
        raise UnsupportedFeatureError(
            f"{path} has an encrypted footer, which this version does not read", file=path
        )
    if len(tail) != length or tail[-4:] != _MAGIC:
        return None
    (footer,) = struct.unpack("<I", tail[-_TRAILER_BYTES:-4])
    if footer > size - _TRAILER_BYTES - len(_MAGIC):
        return None
    if footer + _TRAILER_BYTES > length:
        return Tail(storage.read_range(path, size - _TRAILER_BYTES - footer, footer), None)
    whole = tail if length == size and tail[:4] == _MAGIC else None
    return Tail(tail[length - _TRAILER_BYTES - footer : length - _TRAILER_BYTES], whole)


def as_metadata_file(footer: bytes) -> bytes:
    """A footer alone as a Parquet file without data, from which pyarrow reads metadata."""
    return b"".join([_MAGIC, footer, struct.pack("<I", len(footer)), _MAGIC])


def column_chunks(footer: bytes, columns: int, path: str) -> list[list[ColumnChunk]]:
    """For each row group its column chunks, in order.

    Args:
        footer: serialized.
        columns: how many leaf columns each row group must have.
        path: of the file, for messages.

    Raises:
        CorruptMetadataError: a footer that is not what the Parquet format says.
    """
    try:
        root, _ = read_struct(footer, 0)
        ordered = bool(root.get(7))
        groups = [[_chunk(chunk, ordered) for chunk in group[1]] for group in root[4]]
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, struct.error) as error:
        raise CorruptMetadataError(
            f"the footer of {path} is not what the Parquet format says: {error!r}", file=path
        ) from error
    if any(len(group) != columns for group in groups):
        raise CorruptMetadataError(
            f"the row groups in the footer of {path} do not have one chunk a column", file=path
        )
    return groups


def _chunk(chunk: dict[int, Any], ordered: bool) -> ColumnChunk:
    meta = chunk[3]
    statistics = meta.get(12, {})
    # min_value and max_value mean something only where the order of the column is known; their
    # predecessors were compared as signed whatever the type, which is right for signed numbers
    # alone: those are left unused.
    minimum, maximum = (statistics.get(6), statistics.get(5)) if ordered else (None, None)
    dictionary = meta.get(11)
    bloom = None if meta.get(14) is None else (meta[14], meta.get(15))
    numbers = [
        *(meta[9], meta[7], meta[6], meta[5], dictionary or 0, statistics.get(3) or 0),
        *(number for number in bloom or () if number is not None),
    ]
    if any(type(value) is not int for value in numbers) or any(
        type(value) not in (bytes, NoneType) for value in (minimum, maximum)
    ):
        raise TypeError("a field of the column metadata has a wrong type")
    return ColumnChunk(
        start=min(dictionary, meta[9]) if dictionary else meta[9],
        has_dictionary=bool(dictionary),
        compressed_bytes=meta[7],
        uncompressed_bytes=meta[6],
        values=meta[5],
        null_count=statistics.get(3),
        minimum=minimum,
        maximum=maximum,
        bloom=bloom,
    )


_ARROW_SCHEMA = b"ARROW:schema"
# Decoding the filter's columns first pays when the others are this many times larger.
_PROBE_RATIO = 4
# What pays for large ones only: opening again to read dictionaries, decoding the filter's columns
# first.
_TWICE_ROWS = 50_000


class ParquetTaskReader(TaskReader):
    """Reads one scan task over a Parquet file.

    Args:
        rows: what is wanted of the file.
        storage: where the file is.

    Raises:
        see `open_parquet`; InvalidSchemaError when a column cannot be resolved.
    """

    def __init__(self, rows: WantedRows, storage: Storage) -> None:
        super().__init__(rows)
        self._storage = storage
        self._footer = load_footer(storage, rows.task.data_file)
        self._opened: pq.ParquetFile | WholeParquet | None = None
        with readable(self.path):
            self._columns = self._shape(rows.name_mapping)
            self.row_groups = self._select(self._columns)

    @cached_property
    def _file(self) -> pq.ParquetFile | WholeParquet:
        """The file, opened for its only row group."""
        if self._dictionaries or self._opened is None:
            self._opened = open_parquet(
                self._storage, self._task.data_file, self._footer, self._dictionaries
            )
        return self._opened

    @cached_property
    def _probe(self) -> Projection | None:
        """The columns of the filter alone; None where they do not decide it."""
        if not self._scan.can_probe:
            return None
        return self._project(self._columns, self._scan.filter_fields, self._scan.filter_arrow)

    def _shape(self, name_mapping: str | None) -> Sequence[FileColumn]:
        """The file's columns and projection, shared with the last file if schemas are equal."""
        parsed, scan = self._footer.parsed, self._scan
        hint = (parsed.metadata or {}).get(_ARROW_SCHEMA)
        known = scan.shape
        if (
            known is not None
            and known.hint == hint
            and known.name_mapping == name_mapping
            and known.schema.equals(parsed.schema)
            and known.groups == _groups(parsed.schema, known.columns, name_mapping)
        ):
            self._projection = known.projection.of(self.path)
            return known.columns
        self._opened = open_parquet(self._storage, self._task.data_file, self._footer)
        columns = file_columns(self._opened.schema_arrow, name_mapping, self.path)
        self._projection = self._project(columns, scan.read_fields, scan.read_arrow)
        if self._projection.plain:
            scan.shape = FileShape(
                parsed.schema,
                hint,
                columns,
                self._projection,
                name_mapping,
                _groups(parsed.schema, columns, name_mapping),
                len(self._footer.data),
            )
        return columns

    def ready(self) -> list[pa.RecordBatch] | None:
        if len(self.row_groups) > 1 or self._footer.whole is None:
            return None
        return [batch for group in self.row_groups for batch in self.batches(group)]

    def _project(
        self,
        columns: Sequence[FileColumn],
        fields: Sequence[NestedField],
        targets: Sequence[pa.Field],
    ) -> Projection:
        return Projection(
            columns, fields, targets, self._scan.constants(self._task.data_file), self.path
        )

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def batches(self, group: RowGroup) -> Iterator[pa.RecordBatch]:
        """Wanted rows and columns of a row group.

        Row groups may be read by several threads at a time.
        """
        with readable(self.path):
            if len(self.row_groups) > 1:
                # A ParquetFile buffers ahead for one reader at a time.
                source = open_parquet(
                    self._storage, self._task.data_file, self._footer, self._dictionaries
                )
            else:
                source = self._file
            if self._should_probe(group) and not self._any_match(source, group):
                return
            position = group.first_row
            for batch, rows in self._decoded(source, group, self._projection.leaves):
                wanted = self.wanted(batch, rows, position)
                position += rows
                if wanted is not None and wanted.num_rows:
                    yield wanted

    @cached_property
    def _chunks(self) -> list[list[ColumnChunk]]:
        """Column chunks by row group, parsed on demand: small files never need them."""
        return column_chunks(self._footer.data, self._footer.parsed.num_columns, self.path)

    def _select(self, columns: Sequence[FileColumn]) -> list[RowGroup]:
        footer = self._footer.parsed
        chosen = list(range(footer.num_row_groups))
        if len(chosen) > 1:
            start, length = self._task.start, self._task.length
            if length > 0 and (start > 0 or length < self._task.data_file.file_size_in_bytes):
                chosen = in_range(self._chunks, start, length)
            if self._scan.where != TRUE:
                chosen = prune(
                    footer, self._chunks, chosen, self._scan.where, columns, self._scan.types
                )
        if chosen and (footer.num_row_groups > 1 or footer.num_rows >= MANY_ROWS):
            chosen = self._without_absent(chosen, columns)
        keep = set(chosen)
        groups, first = [], 0
        for index in range(footer.num_row_groups):
            rows = footer.row_group(index).num_rows
            if index in keep and rows > 0:
                groups.append(RowGroup(index, first, rows))
            first += rows
        return groups

    def _without_absent(self, groups: list[int], columns: Sequence[FileColumn]) -> list[int]:
        """The row groups that may hold what the filter asks for, by Bloom filters."""
        where = self._scan.where
        asked = {leaf.field_id for leaf in leaves(where) if askable(leaf)}
        if not asked:
            return groups
        footer, leaf_of = self._footer.parsed, _primitive_leaves(_by_id(columns), self._scan.types)
        types = {
            field_id: column.physical_type
            for field_id in asked & leaf_of.keys()
            if not _is_unsigned(column := footer.schema.column(leaf_of[field_id]))
        }
        chosen = []
        for group in groups:
            chunks = self._chunks[group]
            filtered = {
                field_id: Filtered(physical_type, *bloom)
                for field_id, physical_type in types.items()
                if (bloom := chunks[leaf_of[field_id]].bloom) is not None
            }
            if not filtered or may_hold(where, filtered.get, self._bytes):
                chosen.append(group)
        return chosen

    def _bytes(self, offset: int, length: int) -> bytes:
        self.bloom_filters += 1
        whole = self._footer.whole
        if whole is not None:
            return whole[offset : offset + length]
        size = self._task.data_file.file_size_in_bytes
        return self._storage.read_range(self.path, offset, min(length, size - offset))

    @cached_property
    def _dictionaries(self) -> list[int]:
        """Text columns with few distinct values: faster to read as dictionaries, by Arrow."""
        if sum(group.rows for group in self.row_groups) < _TWICE_ROWS:
            return []
        wanted = set(self._projection.leaves)
        texts = [
            column
            for column in self._columns
            if not column.children and column.leaves[0] in wanted and _is_text(column.type)
        ]
        return [text.leaves[0] for text in texts if self._refers_to_dictionary(text.leaves[0])]

    def _refers_to_dictionary(self, leaf: int) -> bool:
        chunks = [self._chunks[group.index][leaf] for group in self.row_groups]
        # Plain text takes more than the four bytes of its length a value: below that, pages refer
        # to a dictionary.
        compact = sum(chunk.uncompressed_bytes for chunk in chunks) < 4 * sum(
            chunk.values for chunk in chunks
        )
        return compact and all(chunk.has_dictionary for chunk in chunks)

    def _decoded(
        self, source: pq.ParquetFile | WholeParquet, group: RowGroup, columns: Sequence[int]
    ) -> Iterator[tuple[pa.RecordBatch | None, int]]:
        """Decoded batches and their rows; no batch when no column of the file is needed."""
        if not columns:
            for start in range(0, group.rows, self._rows.batch_rows):
                yield None, min(self._rows.batch_rows, group.rows - start)
            return
        decoded = 0
        for batch in source.reader.iter_batches(
            self._rows.batch_rows,
            [group.index],
            column_indices=list(columns),
            use_threads=group.rows >= MANY_ROWS,
        ):
            decoded += batch.num_rows
            yield batch, batch.num_rows
        if decoded != group.rows:
            raise CorruptMetadataError(
                f"row group {group.index} of {self.path} holds {decoded} rows, its footer says "
                f"{group.rows}",
                file=self.path,
            )

    def _should_probe(self, group: RowGroup) -> bool:
        """Whether decoding the filter's columns alone first is cheap beside decoding everything."""
        if (
            group.rows < _TWICE_ROWS
            or self._probe is None
            or len(self._probe.leaves) == len(self._projection.leaves)
        ):
            return False
        chunks = self._chunks[group.index]
        everything = sum(chunks[leaf].compressed_bytes for leaf in self._projection.leaves)
        first = sum(chunks[leaf].compressed_bytes for leaf in self._probe.leaves)
        return everything >= (_PROBE_RATIO + 1) * first

    def _any_match(self, source: pq.ParquetFile | WholeParquet, group: RowGroup) -> bool:
        if self._probe is None:
            return True
        for batch, rows in self._decoded(source, group, self._probe.leaves):
            columns = pa.RecordBatch.from_arrays(
                self._probe.columns(batch, rows), schema=pa.schema(self._scan.filter_arrow)
            )
            if self._scan.any_matches(columns):
                return True
        return False


def _groups(
    schema: pq.ParquetSchema, columns: Sequence[FileColumn], name_mapping: str | None
) -> str:
    """Names and ids around the leaf columns, where there are groups or names tell columns apart.

    Schemas are equal where their leaf columns are, whatever the groups around these are called, and
    whichever ids they have: a list that was dropped and one that took its name can be alike.
    """
    if name_mapping is None and not any(column.children for column in columns):
        return ""
    return str(schema).partition("\n")[2]  # the first line says where it is in memory


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _is_unsigned(column: Any) -> bool:
    return "isSigned=false" in str(column.logical_type)


def _by_id(columns: Sequence[FileColumn]) -> dict[int, FileColumn]:
    """Columns outside lists and maps by field id."""
    result: dict[int, FileColumn] = {}
    for column in columns:
        if column.field_id is not None:
            result[column.field_id] = column
        if pa.types.is_struct(column.type):
            result.update(_by_id(column.children))
    return result


def _primitive_leaves(
    columns: Mapping[int, FileColumn], types: Mapping[int, PrimitiveType]
) -> dict[int, int]:
    return {
        field_id: column.leaves[0]
        for field_id, column in columns.items()
        if not column.children and field_id in types
    }


def in_range(chunks: Sequence[Sequence[ColumnChunk]], start: int, length: int) -> list[int]:
    """Row groups whose first byte lies in the byte range."""
    return [
        group
        for group, columns in enumerate(chunks)
        if columns and start <= columns[0].start < start + length
    ]


def prune(
    footer: pq.FileMetaData,
    chunks: Sequence[Sequence[ColumnChunk]],
    groups: Sequence[int],
    where: Bound,
    columns: Sequence[FileColumn],
    types: Mapping[int, PrimitiveType],
) -> list[int]:
    """The row groups that may hold a matching row.

    Args:
        footer: of the file.
        chunks: its column chunks by row group.
        groups: candidates.
        where: the filter.
        columns: of the file.
        types: field id -> type in the table's schema.
    """
    by_id = _by_id(columns)
    leaf_of = _primitive_leaves(by_id, types)
    wanted = sorted({leaf.field_id for leaf in leaves(where)} & leaf_of.keys())
    shredded = shredded_fields(where, by_id)
    if not (wanted or shredded) or not groups:
        return list(groups)
    table: dict[str, pa.Array] = {
        "record_count": pa.array(
            [footer.row_group(group).num_rows for group in groups], pa.int64()
        ),
        "split_offsets": pa.array([[chunks[group][0].start] for group in groups]),
    }
    for field_id in wanted:
        index = leaf_of[field_id]
        column = [chunks[group][index] for group in groups]
        table.update(_statistics(column, footer.schema.column(index), field_id, types[field_id]))
    for field_id, fields in shredded.items():
        pairs = [
            variant_bounds_of(fields, _statistic_of(footer, chunks[group])) for group in groups
        ]
        for side, edges in zip(("lower", "upper"), zip(*pairs, strict=True), strict=True):
            table[f"{side}.{field_id}"] = pa.array(edges, pa.binary())
    mask = may_match(Entries(pa.table(table), UNPARTITIONED_PARTITION_SPEC), where, types)
    return [group for group, keep in zip(groups, np.asarray(mask).tolist(), strict=True) if keep]


def _statistic_of(
    footer: pq.FileMetaData, chunks: Sequence[ColumnChunk]
) -> Callable[[int], Statistic]:
    def statistic(leaf: int) -> Statistic:
        chunk, kind = chunks[leaf], footer.schema.column(leaf).physical_type
        low, high = plain_value(chunk.minimum, kind), plain_value(chunk.maximum, kind)
        return Statistic(low, high, chunk.values, chunk.null_count)

    return statistic


def _statistics(
    chunks: Sequence[ColumnChunk], column: Any, field_id: int, kind: PrimitiveType
) -> dict[str, pa.Array]:
    def bound(raw: bytes | None) -> Any:
        return _usable(decode_statistic(plain_value(raw, column.physical_type), column, kind))

    target = physical_type(kind)
    return {
        f"lower.{field_id}": _array([bound(chunk.minimum) for chunk in chunks], target),
        f"upper.{field_id}": _array([bound(chunk.maximum) for chunk in chunks], target),
        f"null_count.{field_id}": pa.array([chunk.null_count for chunk in chunks], pa.int64()),
        f"value_count.{field_id}": pa.array([chunk.values for chunk in chunks], pa.int64()),
    }


def _usable(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _array(values: Sequence[Any], target: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(target):
        values = [None if value is None else _decimal(value, target.scale) for value in values]
    return pa.array([to_physical(value) for value in values], target)


def _decimal(unscaled: int, scale: int) -> Decimal:
    return Decimal((int(unscaled < 0), tuple(int(digit) for digit in str(abs(unscaled))), -scale))
