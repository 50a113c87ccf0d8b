"""Checksums of Parquet pages, for files that are read by a decoder that does not look at them."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from mmap import mmap
from types import NoneType
from typing import NamedTuple

from isal import isal_zlib

from lakehouse.data.reading.parquet_footer import ColumnChunk, read_struct
from lakehouse.errors import CorruptMetadataError

# Fields of a page header.
_UNCOMPRESSED_BYTES, _COMPRESSED_BYTES, _CHECKSUM, _DATA_PAGE, _DATA_PAGE_V2 = 2, 3, 4, 5, 8
_MAGIC_BYTES = 4

_NUMBER = rb"([\x80-\xff]{0,4}[\x00-\x7f])"
# PageHeader (parquet.thrift) in Thrift's compact protocol, in one match, as parquet-cpp lays it
# out: type, uncompressed size, compressed size, checksum, then a data page without statistics
# (number of values, three encodings) or a dictionary page.
_USUAL = re.compile(
    rb"\x15.\x15%(n)s\x15%(n)s\x15%(n)s"
    rb"(?:\x1c\x15%(n)s\x15.\x15.\x15.\x00|\x3c\x15%(n)s\x15.[\x11\x12]?\x00)\x00"
    % {b"n": _NUMBER},
    re.DOTALL,
)


def verify_pages(data: bytes | mmap, chunks: Iterable[ColumnChunk], path: str) -> bool:
    """Check the CRC-32 of every page that carries one (Parquet format: Checksumming).

    Checksums cover the data of a page, not its header: what headers say is compared with what the
    footer says.

    Args:
        data: the whole file.
        chunks: what to check.
        path: of the file, for messages.

    Returns:
        Whether the headers are valid and say the same as the footer; else a decoder that trusts
        them must not read the pages.

    Raises:
        CorruptMetadataError: a checksum does not match.
    """
    with memoryview(data) as view:
        for chunk in chunks:
            at, end = chunk.start, chunk.start + chunk.compressed_bytes
            values = uncompressed = 0
            while at < end:
                page = _page(data, at)
                if page is None or page.body + page.size > end:
                    return False
                stop = page.body + page.size
                if (
                    page.checksum is not None
                    and isal_zlib.crc32(view[page.body : stop]) != page.checksum
                ):
                    raise CorruptMetadataError(
                        f"the page of {path} at byte {at} does not match its checksum", file=path
                    )
                values += page.values
                uncompressed += page.body - at + page.uncompressed
                at = stop
            if values != chunk.values or uncompressed != chunk.uncompressed_bytes:
                return False
    return True


def verified(data: bytes, columns: int, rows: int, uncompressed_bytes: int) -> bool:
    """Whether all pages of a file match their checksums, found without parsing its footer.

    Parsing the footer takes longer than checking a small file.

    False says nothing about the file but that it is not of the usual layout or damaged:
    `verify_pages` tells which.

    Args:
        data: a file with one row group of unrepeated columns.
        columns: how many.
        rows: how many.
        uncompressed_bytes: of all pages, their headers included.
    """
    at, uncompressed = _MAGIC_BYTES, 0
    with memoryview(data) as view:
        for _ in range(columns):
            left = rows
            while left > 0:
                page = _usual(data, at)
                if page is None:
                    return False
                uncompressed += page.body - at + page.uncompressed
                at = page.body + page.size
                if isal_zlib.crc32(view[page.body : at]) != page.checksum:
                    return False
                left -= page.values
            if left < 0:
                return False
    return uncompressed == uncompressed_bytes


class _Page(NamedTuple):
    """A page header: `body` is where its data start, `values` is zero for a dictionary page."""

    body: int
    size: int
    uncompressed: int
    values: int
    checksum: int | None


def _usual(data: bytes | mmap, at: int) -> _Page | None:
    """A page header of the usual layout; None for any other.

    Sizes below zero would lead backwards: None for these too.
    """
    found = _USUAL.match(data, at)
    if found is None:
        return None
    before, after, checksum, values, _ = found.groups()
    uncompressed, size, count = (
        _zigzag(before),
        _zigzag(after),
        0 if values is None else _zigzag(values),
    )
    if uncompressed < 0 or size < 0 or count < 0:
        return None
    return _Page(found.end(), size, uncompressed, count, _zigzag(checksum) & 0xFFFFFFFF)


def _page(data: bytes | mmap, at: int) -> _Page | None:
    """A page header; None when it is not what the Parquet format says."""
    usual = _usual(data, at)
    if usual is not None:
        return usual
    try:
        header, body = read_struct(data, at)
        kind = header.get(_DATA_PAGE) or header.get(_DATA_PAGE_V2) or {1: 0}
        page = _Page(
            body,
            header[_COMPRESSED_BYTES],
            header[_UNCOMPRESSED_BYTES],
            kind[1],
            header.get(_CHECKSUM),
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, struct.error):
        return None
    if any(type(number) is not int or number < 0 for number in page[1:4]) or type(
        page.checksum
    ) not in (int, NoneType):
        return None
    return page if page.checksum is None else page._replace(checksum=page.checksum & 0xFFFFFFFF)


def _zigzag(varint: bytes) -> int:
    raw = shift = 0
    for byte in varint:
        raw |= (byte & 0x7F) << shift
        shift += 7
    return (raw >> 1) ^ -(raw & 1)
