"""Parts of a large text file, for tasks of their own: where lines begin, and their numbers.

A part begins with a line and ends with one. JSON lines can be cut after any line; CSV where no
record spans lines, which is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from lakehouse.ingestion.reading.content import READ_BYTES, UnreadableContentError
from lakehouse.ingestion.reading.formats.csv_records import ends_its_records, header_delimiter
from lakehouse.ingestion.reading.formats.line_blocks import BYTE_ORDER_MARK, LineReader
from lakehouse.ingestion.reading.formats.record_chunks import Chunk
from lakehouse.ingestion.reading.landing_file import (
    file_chunks,
    line_chunks,
    lines_format,
    with_aliases,
)
from lakehouse.ingestion.source import Source


@dataclass(frozen=True, slots=True)
class FilePart:
    """Some consecutive lines of a file.

    Attributes:
        start: byte at which the first of them begins.
        end: byte after the last of them.
        first_line: number of the first.
        header: of CSV, where it is not among them.
        is_csv: else JSON lines.
    """

    start: int
    end: int
    first_line: int
    header: bytes
    is_csv: bool


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a range of bytes has shown.

    Attributes:
        lines: how many end in it.
        begins: where the first line begins that does; None: none does.
        header: of the file, if it is CSV.
        is_csv: else JSON lines.
    """

    lines: int
    begins: int | None
    header: bytes
    is_csv: bool


def look_at(stream: pa.NativeFile, path: str, source: Source, span: range) -> Stretch | None:
    """Count the lines of a range of a file; None when the file cannot be read in parts.

    Args:
        stream: the file, opened for reading at any place.
        path: tells the format, where the source does not.
        source: how to read it.
        span: bytes.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        text_format = lines_format(stream, path, source)
    except UnreadableContentError:
        return None
    if text_format is None:
        return None
    header, delimiter = b"", ""
    if text_format == "csv":
        stream.seek(0)
        first, ended, _ = stream.read(READ_BYTES).partition(b"\n")
        header = first.removeprefix(BYTE_ORDER_MARK)
        delimiter = header_delimiter(header, source.read) or ""
        if not ended or not delimiter:
            return None
    lines, begins = 0, None
    for at, block in _blocks(stream, span):
        if begins is None and (end_of_line := block.find(b"\n")) >= 0:
            begins = at + end_of_line + 1
        lines += block.count(b"\n")
    if delimiter and begins is not None:
        whole = _whole_lines(stream, range(begins, span.stop), source.max_line_bytes)
        if not all(ends_its_records(part, delimiter) for part in whole):
            return None
    return Stretch(lines, begins, header, text_format == "csv")


def parts_of(stretches: Sequence[Stretch | None], size: int) -> list[FilePart]:
    """The parts of a file from what its consecutive ranges have shown; none if it has to be whole.

    >>> shown = [Stretch(2, 4, b"", False), Stretch(1, 9, b"", False), Stretch(0, None, b"", False)]
    >>> [(part.start, part.end, part.first_line) for part in parts_of(shown, 12)]
    [(0, 9, 1), (9, 12, 4)]
    """
    shown = [stretch for stretch in stretches if stretch is not None]
    if len(shown) < len(stretches):
        return []
    parts: list[FilePart] = []
    start, number, ended = 0, 1, 0
    for at, stretch in enumerate(shown):
        if at and stretch.begins is not None and stretch.begins < size:
            parts.append(_part(start, stretch.begins, number, stretch))
            start, number = stretch.begins, ended + 2
        ended += stretch.lines
    return [*parts, _part(start, size, number, shown[-1])] if shown else []


def _part(start: int, end: int, number: int, shown: Stretch) -> FilePart:
    return FilePart(start, end, number, shown.header if start else b"", shown.is_csv)


def read_chunks(
    stream: pa.NativeFile, path: str, source: Source, part: FilePart | None
) -> Iterator[Chunk]:
    """`file_chunks` of a part of a file, as they are of the whole; of all of it without a part.

    Raises:
        UnreadableContentError: see `file_chunks`.
        OSError: the file cannot be read.
    """
    if part is None:
        yield from file_chunks(stream, path, source)
        return
    blocks: Iterator[bytes] = (block for _, block in _blocks(stream, range(part.start, part.end)))
    before, limit = part.first_line - 1, source.max_line_bytes
    if part.header:
        blocks, before = chain([part.header + b"\n"], blocks), before - 1
    lines = LineReader(blocks, max_line_bytes=limit, before=before)
    yield from with_aliases(line_chunks(lines, source, is_csv=part.is_csv), source)


def _blocks(stream: pa.NativeFile, span: range) -> Iterator[tuple[int, bytes]]:
    """The bytes of a range, with where each block begins."""
    stream.seek(span.start)
    at = span.start
    while at < span.stop and (block := stream.read(min(READ_BYTES, span.stop - at))):
        yield at, block
        at += len(block)


def _whole_lines(stream: pa.NativeFile, span: range, max_line_bytes: int) -> Iterator[bytes]:
    """The lines that begin in a range, in blocks; of one that is too long its end."""
    unfinished = b""
    for _, block in _blocks(stream, span):
        text = unfinished + block
        cut = text.rfind(b"\n") + 1
        yield text[:cut]
        unfinished = text[cut:] if len(text) - cut <= max_line_bytes else b""
    while unfinished and len(unfinished) <= max_line_bytes and (block := stream.read(READ_BYTES)):
        end = block.find(b"\n")
        unfinished += block if end < 0 else block[:end]
        if end >= 0:
            break
    yield unfinished
