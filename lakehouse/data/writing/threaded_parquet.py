"""One Parquet file encoded by several threads, byte for byte as pyarrow's writer makes it alone.

pyarrow encodes the columns of a row group one after the other. Here each thread encodes some of
them, as a file in memory; their bytes are put one behind the other, and what says where they lie
(footer, page indexes) is moved along.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.data.conversion.thrift import (
    I32,
    I64,
    LIST,
    STOP,
    edited,
    fields,
    number_at,
    structs,
    write_fields,
    write_list,
    write_number,
)

_MAGIC = b"PAR1"
_LENGTH = struct.Struct("<I")
_TRAILER_BYTES = _LENGTH.size + len(_MAGIC)
_WORTH_BYTES = 8 << 20
"""Of a row group in memory; about 40 ms for one thread."""
_TASKS_A_THREAD = 4
_COMPARED = frozenset({"25"})
"""Of pyarrow the versions whose bytes tests compared: others may say in a footer where something
lies that is not moved along, and write on one thread."""

# numbers of fields in parquet.thrift: FileMetaData, RowGroup, ColumnChunk, ColumnMetaData, and
# those of OffsetIndex
_NUM_ROWS, _ROW_GROUPS = 3, 4
_COLUMNS, _UNCOMPRESSED, _GROUP_START, _COMPRESSED = 1, 2, 5, 6
_CHUNK_START, _METADATA = 2, 3
_OFFSETS_AT, _OFFSETS_LENGTH, _BOUNDS_AT, _BOUNDS_LENGTH = 4, 5, 6, 7
_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE = 9, 10, 11
_PAGES, _PAGE_START = 1, 1


class _Sink(Protocol):
    def write(self, data: Any) -> object: ...


def is_worth_threads(rows: pa.Table) -> bool:
    """Whether several threads encode a row group of these rows sooner than one does, and alike."""
    return bool(
        rows.num_columns > 1
        and pa.cpu_count() > 1
        and rows.nbytes >= _WORTH_BYTES
        and pa.__version__.partition(".")[0] in _COMPARED
    )


@dataclass(slots=True)
class _Chunk:
    """A column of a row group: its entry in the footer, and its part of the page indexes.

    Attributes:
        moved: its entry, of a file that ends before the page indexes.
        bounds: of its pages; empty for a column without statistics.
        offsets: of its pages.
        bounds_at: where they lie, once they are written.
        offsets_at: where they lie, once they are written.
    """

    moved: bytes
    bounds: bytes
    offsets: bytes
    bounds_at: int = 0
    offsets_at: int = 0

    def entry(self) -> bytes:
        indexes = {
            _OFFSETS_AT: (I64, write_number(self.offsets_at)),
            _OFFSETS_LENGTH: (I32, write_number(len(self.offsets))),
        }
        if self.bounds:
            indexes[_BOUNDS_AT] = (I64, write_number(self.bounds_at))
            indexes[_BOUNDS_LENGTH] = (I32, write_number(len(self.bounds)))
        return edited(self.moved, 0, {}, indexes)


@dataclass(slots=True)
class _RowGroup:
    """What the footer says of a row group."""

    start: int
    rows: int
    uncompressed: int = 0
    compressed: int = 0
    chunks: list[_Chunk] = field(default_factory=list)

    def entry(self) -> bytes:
        members = {
            _COLUMNS: (LIST, write_list([chunk.entry() for chunk in self.chunks])),
            _UNCOMPRESSED: (I64, write_number(self.uncompressed)),
            _NUM_ROWS: (I64, write_number(self.rows)),
            _GROUP_START: (I64, write_number(self.start)),
            _COMPRESSED: (I64, write_number(self.compressed)),
        }
        return write_fields(members) + STOP


class ThreadedParquetWriter:
    """Writes row groups like `pyarrow.parquet.ParquetWriter`, on `pyarrow.cpu_count()` threads.

    An encoded row group is in memory until it is written.

    Args:
        sink: takes bytes; stays open.
        schema: of the rows.
        options: of `pyarrow.parquet.ParquetWriter`; page indexes are written, whatever they say,
            Bloom filters must not be.
    """

    def __init__(self, sink: _Sink, schema: pa.Schema, **options: Any) -> None:
        self._sink, self._schema = sink, schema
        self._options = options | {"write_page_index": True}
        self._footer_properties: dict[str, str] = {}
        self._groups: list[_RowGroup] = []
        self._size = 0
        self.metadata: pq.FileMetaData | None = None
        self._put(_MAGIC)

    def add_key_value_metadata(self, properties: Mapping[str, str]) -> None:
        """Put more into the footer."""
        self._footer_properties |= properties

    def write_table(self, table: pa.Table, row_group_size: int) -> None:
        """Append the rows, no more than `row_group_size`, as one row group."""
        if table.num_rows > row_group_size:
            raise ValueError(f"{table.num_rows} rows are more than {row_group_size}")
        group = _RowGroup(self._size, table.num_rows)
        with ThreadPoolExecutor(pa.cpu_count(), thread_name_prefix="encode") as pool:
            parts = [pool.submit(self._encode, columns, table) for columns in _shares(table)]
            try:
                while parts:
                    self._place(parts.pop(0).result(), group)
            finally:
                for part in parts:
                    part.cancel()
        self._groups.append(group)

    def close(self) -> None:
        """Write the end of the file; the sink stays open."""
        chunks = [chunk for group in self._groups for chunk in group.chunks]
        for chunk in chunks:
            chunk.bounds_at = self._put(chunk.bounds)
        for chunk in chunks:
            chunk.offsets_at = self._put(chunk.offsets)
        rows = sum(group.rows for group in self._groups)
        footer = edited(
            _footer(memoryview(self._encode(range(len(self._schema)), None))),
            0,
            {_NUM_ROWS: lambda _data, _at: write_number(rows)},
            {_ROW_GROUPS: (LIST, write_list([group.entry() for group in self._groups]))},
        )
        end = b"".join([footer, _LENGTH.pack(len(footer)), _MAGIC])
        self._put(end)
        self.metadata = pq.read_metadata(pa.BufferReader(_MAGIC + end))

    def _encode(self, columns: Sequence[int], table: pa.Table | None) -> pa.Buffer:
        """A file of some of the columns, with one row group or none."""
        # the writer's fields, not those of the rows: they have the ids
        schema = pa.schema([self._schema.field(number) for number in columns])
        out = pa.BufferOutputStream()
        with pq.ParquetWriter(out, schema, **self._options) as writer:
            if table is not None:
                writer.write_table(table.select(columns), max(table.num_rows, 1))
            elif self._footer_properties:
                writer.add_key_value_metadata(self._footer_properties)
        return out.getvalue()

    def _place(self, part: pa.Buffer, group: _RowGroup) -> None:
        """Write the columns of a part, and note what has to be said of them."""
        data = memoryview(part)
        footer = _footer(data)
        (entry,) = structs(footer, _starts(footer)[_ROW_GROUPS])
        starts = _starts(footer, entry)
        by = self._size - len(_MAGIC)
        compressed = number_at(footer, starts[_COMPRESSED])
        group.uncompressed += number_at(footer, starts[_UNCOMPRESSED])
        group.compressed += compressed
        for at in structs(footer, starts[_COLUMNS]):
            numbers = _starts(footer, at)
            bounds = _index(data, footer, numbers, _BOUNDS_AT)
            offsets = _index(data, footer, numbers, _OFFSETS_AT)
            entry_of = edited(footer, at, _moved_chunk(by))
            group.chunks.append(_Chunk(entry_of, bounds, edited(offsets, 0, _moved_pages(by))))
        self._put(data[len(_MAGIC) : len(_MAGIC) + compressed])

    def _put(self, data: bytes | memoryview) -> int:
        """Write bytes; where they lie."""
        at = self._size
        self._sink.write(data)
        self._size += len(data)
        return at


def _shares(table: pa.Table) -> list[list[int]]:
    """Columns beside each other that take about as long as others."""
    sizes = [column.nbytes for column in table.columns]
    each = sum(sizes) / (pa.cpu_count() * _TASKS_A_THREAD)
    shares: list[list[int]] = [[]]
    taken = 0
    for number, size in enumerate(sizes):
        if taken >= each:
            shares.append([])
            taken = 0
        shares[-1].append(number)
        taken += size
    return shares


def _footer(file: memoryview) -> bytes:
    end = len(file) - _TRAILER_BYTES
    (length,) = _LENGTH.unpack(file[end : end + _LENGTH.size])
    return bytes(file[end - length : end])


def _starts(data: bytes, at: int = 0) -> dict[int, int]:
    """Where the value of each field of a struct begins."""
    return {member.number: member.start for member in fields(data, at)}


def _index(data: memoryview, footer: bytes, starts: Mapping[int, int], number: int) -> bytes:
    """The page index whose place is in this field, and its length in the next; empty: none."""
    if number not in starts:
        return b""
    at, length = (number_at(footer, starts[field]) for field in (number, number + 1))
    return bytes(data[at : at + length])


_Edits = Mapping[int, Callable[[bytes, int], bytes]]


def _moved_chunk(by: int) -> _Edits:
    moved = _moved(by)
    inside = dict.fromkeys((_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE), moved)
    return {_CHUNK_START: moved, _METADATA: lambda data, at: edited(data, at, inside)}


def _moved_pages(by: int) -> _Edits:
    page = {_PAGE_START: _moved(by)}
    return {
        _PAGES: lambda data, at: write_list(
            [edited(data, page_at, page) for page_at in structs(data, at)]
        )
    }


def _moved(by: int) -> Callable[[bytes, int], bytes]:
    """An offset further on; 0 is none."""

    def later(data: bytes, at: int) -> bytes:
        offset = number_at(data, at)
        return write_number(offset + by if offset else 0)

    return later
