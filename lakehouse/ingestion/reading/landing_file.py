"""A landing file as chunks of records, in the format that name and first bytes tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

import fastavro
import orjson
import pyarrow as pa

from lakehouse.errors import LakehouseError
from lakehouse.ingestion.reading.content import (
    COMPRESSED,
    HEAD_BYTES,
    UnreadableContentError,
    as_utf8,
    kind_of,
    not_in_encoding,
    plain_blocks,
    refuse_binary,
)
from lakehouse.ingestion.reading.formats.csv_records import csv_chunks
from lakehouse.ingestion.reading.formats.json_lines import (
    JsonRecords,
    MalformedElement,
    are_objects,
    elements_before_damage,
    json_chunks,
    object_lines,
)
from lakehouse.ingestion.reading.formats.json_text import exact_json
from lakehouse.ingestion.reading.formats.line_blocks import BYTE_ORDER_MARK, LineReader
from lakehouse.ingestion.reading.formats.parquet_rows import parquet_chunks
from lakehouse.ingestion.reading.formats.record_chunks import (
    CHUNK_ROWS,
    AliasedRecords,
    Chunk,
    Rejects,
)
from lakehouse.ingestion.source import Source

_JSON, _CSV = frozenset({".json", ".jsonl", ".ndjson"}), frozenset({".csv", ".tsv"})
# an array is parsed as a whole, and a value takes up to thirty times the bytes of its text
_MOST_ARRAY_BYTES = 16 << 20


def file_chunks(stream: pa.NativeFile, path: str, source: Source) -> Iterator[Chunk]:
    """The records of a file, each once, and its lines that are no record.

    Args:
        stream: the file, opened for reading at any place.
        path: tells the format of text, where the source does not.
        source: how to read it.

    Raises:
        UnreadableContentError: what is wrong with the file as a whole; what could be read was
            yielded before.
        OSError: the file cannot be read.
    """
    kind = _rewound_kind(stream, path, source)
    if kind == "parquet":
        chunks = parquet_chunks(stream)
    elif kind == "avro":
        chunks = _avro_chunks(stream)
    else:
        chunks = _text_chunks(_text(stream, kind, source), path, source)
    empty = True
    for chunk in with_aliases(chunks, source):
        empty = empty and chunk.records is None and not len(chunk.rejects)
        yield chunk
    if empty:
        raise UnreadableContentError("empty file")


def with_aliases(chunks: Iterable[Chunk], source: Source) -> Iterator[Chunk]:
    """The chunks with the source's columns in the place of their aliases."""
    names = source.field_names
    for chunk in chunks:
        if names and chunk.records is not None:
            yield Chunk(AliasedRecords(chunk.records, names), chunk.rejects)
        else:
            yield chunk


def lines_format(stream: pa.NativeFile, path: str, source: Source) -> str | None:
    """`jsonl` or `csv` for a file of lines that can be cut at line ends; None for any other.

    Those are files in UTF-8 that are not compressed, quoted as usual where they are CSV.

    Args:
        stream: the file, opened for reading at any place.
        path: see `file_chunks`.
        source: see `file_chunks`.

    Raises:
        UnreadableContentError: an archive, or a format that is not read.
        OSError: the file cannot be read.
    """
    if _rewound_kind(stream, path, source) != "text" or not source.read.is_utf8:
        return None
    head = next(plain_blocks(stream, "text"), b"")
    text_format = format_of(source, path, head)
    whole = _knows_no_lines(head) if text_format == "jsonl" else not source.read.lines_are_records
    return None if whole else text_format


def count_lines(stream: pa.NativeFile, path: str, source: Source) -> int:
    """The lines of a file, or its records where the format knows no lines, up to a damage.

    Args:
        stream: the file, opened for reading at any place.
        path: see `file_chunks`.
        source: see `file_chunks`.
    """
    kind = _rewound_kind(stream, path, source)
    count, ended = 0, True
    try:
        if kind in ("parquet", "avro") or _holds_whole(stream, kind, path, source):
            for chunk in file_chunks(stream, path, source):
                count += len(chunk.rejects)
                count += 0 if chunk.records is None else len(chunk.records.lines)
            return count
        for block in _text(stream, kind, source):
            count += block.count(b"\n")
            ended = block.endswith(b"\n")
    except UnreadableContentError:
        pass  # what is before the damage is all there is
    return count + (not ended)


def _text(stream: pa.NativeFile, kind: str, source: Source) -> Iterator[bytes]:
    """The text of a file in UTF-8."""
    blocks = plain_blocks(stream, kind, wide=source.read.is_wide)
    return blocks if source.read.is_utf8 else as_utf8(blocks, source.read.encoding)


def _rewound_kind(stream: pa.NativeFile, path: str, source: Source) -> str:
    stream.seek(0)
    head = stream.read(HEAD_BYTES)
    kind = kind_of(head, wide=source.read.is_wide)
    if kind == "text" and not source.read.is_wide:
        refuse_binary(head, path)
    stream.seek(0)
    return kind


def _holds_whole(stream: pa.NativeFile, kind: str, path: str, source: Source) -> bool:
    head = next(_text(stream, kind, source), b"")
    stream.seek(0)
    return format_of(source, path, head) == "jsonl" and _knows_no_lines(head)


def _text_chunks(blocks: Iterator[bytes], path: str, source: Source) -> Iterator[Chunk]:
    head = b""
    failure: UnreadableContentError | None = None
    try:
        while len(head) < HEAD_BYTES and (block := next(blocks, b"")):
            head += block
    except UnreadableContentError as error:
        failure = error
    if kind_of(head, wide=source.read.is_wide) in ("parquet", "avro"):
        raise UnreadableContentError("unsupported file", "it is compressed as a whole: unpack it")
    text: Iterable[bytes] = chain([head], blocks if failure is None else _Failing(failure))
    text_format = format_of(source, path, head)
    if text_format == "jsonl" and _is_array(head):
        yield from _array_chunks(text, source.read.encoding)
        return
    if text_format == "jsonl" and are_objects(_begun(head)):
        text = object_lines(text, source.max_line_bytes)
    lines = LineReader(text, max_line_bytes=source.max_line_bytes)
    yield from line_chunks(lines, source, is_csv=text_format == "csv")
    if lines.problem is not None:
        where = f"after line {lines.count}"
        detail = f"{where}: {lines.problem.detail}" if lines.problem.detail else where
        raise UnreadableContentError(lines.problem.reason, detail)


def line_chunks(lines: LineReader, source: Source, *, is_csv: bool) -> Iterator[Chunk]:
    """The records of lines of CSV or JSON."""
    if not is_csv:
        return json_chunks(lines, source.read.encoding)
    names = () if source.read.header else [column.name for column in source.columns]
    return csv_chunks(lines, source.read, names)


class _Failing:
    """Blocks of which the first cannot be read."""

    def __init__(self, failure: UnreadableContentError) -> None:
        self._failure = failure

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        raise self._failure


def format_of(source: Source, path: str, head: bytes) -> str:
    """`csv` or `jsonl`, which is JSON in any layout, by the source, the name, or the text."""
    if source.format != "auto":
        return source.format
    suffixes = [suffix.lower() for suffix in PurePosixPath(path).suffixes]
    while suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    if suffixes and suffixes[-1] in _JSON | _CSV:
        return "csv" if suffixes[-1] in _CSV else "jsonl"
    return "jsonl" if _begun(head)[:1] in (b"{", b"[") else "csv"


def _begun(head: bytes) -> bytes:
    """The text from its first character on that is no mark and no blank."""
    return head.removeprefix(BYTE_ORDER_MARK).lstrip()


def _knows_no_lines(head: bytes) -> bool:
    """Whether the text is one array, or objects that stand otherwise than one a line."""
    return _is_array(head) or are_objects(_begun(head))


def _is_array(head: bytes) -> bool:
    """Whether the text is one array, and not a value a line."""
    text = _begun(head)
    if not text.startswith(b"["):
        return False
    first, ended, later = text.partition(b"\n")
    if not ended:
        return True
    try:
        values = orjson.loads(first)
    except orjson.JSONDecodeError:
        return True
    return not later.strip() and any(isinstance(value, dict) for value in values)


def _array_chunks(blocks: Iterable[bytes], encoding: str) -> Iterator[Chunk]:
    """The objects of a JSON array, up to a damage; the line is their number."""
    pieces, size = [], 0
    problem: UnreadableContentError | None = None
    try:
        for block in blocks:
            pieces.append(block)
            size += len(block)
            if size > _MOST_ARRAY_BYTES:
                break
    except UnreadableContentError as error:
        problem = error
    if size > _MOST_ARRAY_BYTES:
        raise UnreadableContentError(
            "unsupported file",
            f"a JSON array of more than {_MOST_ARRAY_BYTES >> 20} MiB: write an object a line",
        )
    text = b"".join(pieces).removeprefix(BYTE_ORDER_MARK)
    try:
        values = exact_json(text)
    except ValueError as error:
        why = str(error) if encoding == "utf-8" else not_in_encoding(text, encoding) or str(error)
        problem = problem or UnreadableContentError("malformed JSON array", why)
        values = elements_before_damage(text)
    if not isinstance(values, list):
        raise UnreadableContentError("malformed JSON array", "it is no array")
    yield from _value_chunks(iter(values))
    if problem is not None:
        detail = f"after element {len(values)}: {problem.detail}".removesuffix(": ")
        raise UnreadableContentError(problem.reason, detail) from problem


def _avro_chunks(stream: pa.NativeFile) -> Iterator[Chunk]:
    """The records of an Avro container file; the line is the record's number."""
    failed: list[Exception] = []
    count = 0
    for chunk in _value_chunks(_avro_records(stream, failed)):
        yield chunk
        count += 0 if chunk.records is None else len(chunk.records.lines)
    for error in failed:
        detail = f"after record {count}: {error}"
        raise UnreadableContentError("unreadable Avro", detail[:500]) from error


def _avro_records(stream: pa.NativeFile, failed: list[Exception]) -> Iterator[Any]:
    """The records before the damage, and what it is.

    Each codec fails in its own way, and a value that Python has no date for in another.
    """
    try:
        yield from fastavro.reader(stream)
    except LakehouseError:
        raise  # of the storage: it says nothing of the file
    except Exception as error:  # noqa: BLE001 - of the codecs, of logical types, of the schema
        failed.append(error)


def _value_chunks(values: Iterator[Any]) -> Iterator[Chunk]:
    first = 1
    while True:
        chunk = [value for _, value in zip(range(CHUNK_ROWS), values, strict=False)]
        if not chunk:
            return
        rejects = Rejects()
        numbers: list[int] = []
        records: list[dict[str, object]] = []
        for number, value in enumerate(chunk, start=first):
            if isinstance(value, dict):
                numbers.append(number)
                records.append(value)
            elif isinstance(value, MalformedElement):
                rejects.add(number, "malformed JSON", value.why, value.text)
            else:
                rejects.add(number, "not a JSON object", type(value).__name__)
        first += len(chunk)
        yield Chunk(JsonRecords(numbers, records) if records else None, rejects)
