"""Parquet files by their footers: opening them, and the part of it that pruning needs.

That part is parsed here: pyarrow ends the process over damaged column metadata.

(`RowGroupMetaData.column` lets C++ exceptions through, as for histograms of a wrong size or
statistics that are cut short.)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import NoneType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakehouse.errors import (
    CorruptMetadataError,
    LakehouseError,
    NoSuchFileError,
    StorageError,
    UnsupportedFeatureError,
)
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.storage.storage_protocol import Storage

_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
_TRAILER_BYTES = 8
# What is read from the end of a file at first; most footers are smaller.
_TAIL_BYTES = 65_536
_DEEPEST = 32

# Thrift compact protocol
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)

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
    """What is asked of a `pq.ParquetFile` here, for a small file that is in memory.

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


def load_footer(storage: Storage, one: DataFile, *, counted: bool = True) -> Footer:
    """Read a file's footer.

    Args:
        storage: where the file is.
        one: the file.
        counted: whether its `record_count` is known.

    Raises:
        NoSuchFileError, StorageError: it cannot be read.
        CorruptMetadataError: it is not valid Parquet, or holds another number of rows than
            recorded.
        UnsupportedFeatureError: another format, or an encrypted file.
    """
    if one.file_format.lower() != "parquet":
        raise UnsupportedFeatureError(
            f"file {one.file_path} has format {one.file_format}; this version reads Parquet",
            file=one.file_path,
        )
    tail = read_footer(storage, one.file_path, one.file_size_in_bytes)
    with readable(one.file_path):
        # as pq.read_metadata does, without the paths of nested columns, which take longer than the
        # metadata themselves
        reader = pq.core.ParquetReader()
        reader.open(pa.BufferReader(as_metadata_file(tail.footer)))
        found = Footer(tail.footer, reader.metadata, tail.whole)
    if counted and found.parsed.num_rows != one.record_count:
        raise CorruptMetadataError(
            f"{one.file_path} holds {found.parsed.num_rows} rows, its manifest says "
            f"{one.record_count}",
            file=one.file_path,
        )
    return found


def open_parquet(
    storage: Storage, one: DataFile, found: Footer, dictionaries: Sequence[int] = ()
) -> pq.ParquetFile | WholeParquet:
    """Open a file whose footer was read; the leaf columns `dictionaries` stay dictionary encoded.

    Raises:
        NoSuchFileError, StorageError: it cannot be read.
        CorruptMetadataError: it is not valid Parquet.
    """
    with readable(one.file_path):
        footer = found.parsed
        if found.whole is not None:
            return WholeParquet(found.whole, footer)
        filesystem, path = storage.filesystem(one.file_path)
        local = isinstance(filesystem, pafs.LocalFileSystem)
        return pq.ParquetFile(
            path,
            filesystem=filesystem,
            metadata=footer,
            read_dictionary=list(dictionaries) or None,
            # Near files are read piece by piece, far ones with one request for each column.
            pre_buffer=not local,
            buffer_size=_BUFFER_BYTES if local and footer.num_rows >= MANY_ROWS else 0,
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
    """

    start: int
    has_dictionary: bool
    compressed_bytes: int
    uncompressed_bytes: int
    values: int
    null_count: int | None
    minimum: bytes | None
    maximum: bytes | None


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
        groups = [[_chunk(one, ordered) for one in group[1]] for group in root[4]]
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, struct.error) as error:
        raise CorruptMetadataError(
            f"the footer of {path} is not what the Parquet format says: {error!r}", file=path
        ) from error
    if any(len(group) != columns for group in groups):
        raise CorruptMetadataError(
            f"the row groups in the footer of {path} do not have one chunk a column", file=path
        )
    return groups


def _chunk(one: dict[int, Any], ordered: bool) -> ColumnChunk:
    meta = one[3]
    statistics = meta.get(12, {})
    # min_value and max_value mean something only where the order of the column is known; their
    # predecessors were compared as signed whatever the type, which is right for signed numbers
    # alone: those are left unused.
    minimum, maximum = (statistics.get(6), statistics.get(5)) if ordered else (None, None)
    dictionary = meta.get(11)
    numbers = [meta[9], meta[7], meta[6], meta[5], dictionary or 0, statistics.get(3) or 0]
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
    )


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    result, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at + 1
        shift += 7
        if shift > 70:
            raise ValueError("a number is too long")


def _integer(data: bytes, at: int) -> tuple[int, int]:
    raw, at = _varint(data, at)
    return (raw >> 1) ^ -(raw & 1), at


def read_struct(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """A struct of Thrift's compact protocol as its fields by number, and where it ends.

    Raises:
        IndexError, KeyError, TypeError, ValueError, struct.error: it is not one; callers add the
            file.
    """
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    result: dict[int, Any] = {}
    field_id = 0
    while True:
        head = data[at]
        at += 1
        if head == 0:
            return result, at
        kind, delta = head & 0x0F, head >> 4
        if delta:
            field_id += delta
        else:
            field_id, at = _integer(data, at)
        result[field_id], at = _read_value(data, at, kind, depth)


def _read_value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (_I16, _I32, _I64):
        return _integer(data, at)
    if kind == _BINARY:
        length, at = _varint(data, at)
        if at + length > len(data):
            raise ValueError("a text is longer than the footer")
        return data[at : at + length], at + length
    if kind == _STRUCT:
        return read_struct(data, at, depth + 1)
    if kind in (_LIST, _SET):
        return _read_list(data, at, depth + 1)
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, at
    if kind == _BYTE:
        return data[at], at + 1
    if kind == _DOUBLE:
        return struct.unpack_from("<d", data, at)[0], at + 8
    raise ValueError(f"unknown type {kind}")


def _read_list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    head = data[at]
    count, kind, at = head >> 4, head & 0x0F, at + 1
    if count == 15:
        count, at = _varint(data, at)
    if count > len(data) - at:
        raise ValueError("a list is longer than the footer")
    items = []
    for _ in range(count):
        if kind in (_TRUE, _FALSE):
            item, at = data[at] == _TRUE, at + 1
        else:
            item, at = _read_value(data, at, kind, depth)
        items.append(item)
    return items, at
