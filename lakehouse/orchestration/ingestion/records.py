"""Reading one landing file record by record, never losing one.

A record is a mapping with its line number, or a reject with the reason. What is wrong with the file as a whole (unreadable,
empty, cut off) is told once, as its problem; the complete lines before a cut are records like any other.
"""

from __future__ import annotations

import csv
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.orchestration.ingestion.source import Source

CHUNK_RECORDS = 8_192
_READ_BYTES = 1 << 20
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
QUARANTINED_TEXT_MAX = 64 << 10


class ByteStream(Protocol):
    """A file opened for reading."""

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes, none at the end."""


@dataclass(frozen=True, slots=True)
class Reject:
    """A line that is no row.

    Attributes:
        line: from 1; None for a problem of the file as a whole, which is no line.
        reason: one of few, to group by.
        detail: what exactly.
        record: its text, at most `QUARANTINED_TEXT_MAX` bytes of it.
        record_bytes: how long it was.
    """

    line: int | None
    reason: str
    detail: str = ""
    record: str | None = None
    record_bytes: int = 0


@dataclass(slots=True)
class Chunk:
    """Some consecutive records: `values[i]` was line `lines[i]` and read `texts[i]` (empty where the format has none)."""

    lines: list[int] = field(default_factory=list)
    values: list[dict[str, object]] = field(default_factory=list)
    texts: list[bytes] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)

    def text(self, position: int) -> bytes:
        """The record as text; what the format does not have as text is rendered as JSON."""
        return self.texts[position] or orjson.dumps(
            self.values[position], default=str, option=orjson.OPT_NON_STR_KEYS
        )

    def full(self) -> bool:
        """Whether it is time for the next chunk."""
        return len(self.lines) + len(self.rejects) >= CHUNK_RECORDS


def reject(
    line: int | None,
    reason: str,
    detail: str = "",
    text: bytes | None = None,
    length: int | None = None,
) -> Reject:
    """A reject with its text shortened and made printable."""
    if text is None:
        return Reject(line, reason, detail)
    shown = text[:QUARANTINED_TEXT_MAX].decode("utf-8", errors="backslashreplace")
    return Reject(line, reason, detail, shown, len(text) if length is None else length)


def read_records(stream: ByteStream, source: Source) -> Iterator[Chunk]:
    """The records of a file as it comes from storage.

    Raises nothing about the contents: a problem of the file is a reject without a line. OSError is the caller's.
    """
    if source.format == "parquet":
        yield from _parquet(stream)
        return
    lines = _Lines(stream, gzip=source.gzip, max_bytes=source.max_line_bytes)
    yield from _jsonl(lines) if source.format == "jsonl" else _csv(lines)
    if lines.problem:
        yield Chunk(rejects=[reject(None, lines.problem, f"after line {lines.count}")])
    elif lines.count == 0:
        yield Chunk(rejects=[reject(None, "empty file")])


class _Lines:
    """Lines of a stream, decompressed, in bounded memory.

    Iterating gives `(number, bytes, length)`; bytes are cut off after `max_bytes`, length is the whole. A last line without a
    line end is a line; where the stream was cut off there its length is -1.
    """

    def __init__(self, stream: ByteStream, *, gzip: bool, max_bytes: int) -> None:
        self.problem = ""
        self.count = 0
        self._stream, self._gzip, self._max_bytes = stream, gzip, max_bytes

    def __iter__(self) -> Iterator[tuple[int, bytes, int]]:
        rest, dropped = b"", 0
        for block in self._plain_blocks():
            *complete, tail = block.split(b"\n")
            if complete:
                rest, dropped = self._grown(rest, dropped, complete[0])
                self.count += 1
                yield self.count, self._start(rest), len(rest) + dropped
                for line in complete[1:]:
                    self.count += 1
                    yield self.count, line[: self._max_bytes], len(line)
                rest, dropped = b"", 0
            rest, dropped = self._grown(rest, dropped, tail)
        if rest:
            self.count += 1
            yield self.count, self._start(rest), -1 if self.problem else len(rest) + dropped

    def _start(self, line: bytes) -> bytes:
        return (
            line.removeprefix(b"\xef\xbb\xbf") + b" " * 3
            if self.count == 1 and line.startswith(b"\xef\xbb\xbf")
            else line
        )

    def _grown(self, rest: bytes, dropped: int, more: bytes) -> tuple[bytes, int]:
        """The beginning of a line that goes on, at most `max_bytes` of it, and how much of it was dropped."""
        room = self._max_bytes - len(rest)
        return (rest + more[:room] if room > 0 and more else rest), dropped + max(
            0, len(more) - max(0, room)
        )

    def _plain_blocks(self) -> Iterator[bytes]:
        if not self._gzip:
            while block := self._stream.read(_READ_BYTES):
                yield block
            return
        yielded = False
        try:
            for plain in _inflated(self._stream):
                yielded = yielded or bool(plain)
                yield plain
        except EOFError:
            self.problem = "truncated gzip"
        except zlib.error as error:
            self.problem = f"corrupt gzip: {error}" if yielded else "not gzip"


def _inflated(stream: ByteStream) -> Iterator[bytes]:
    """Decompressed blocks of bounded size. Raises zlib.error, and EOFError when the last member does not end."""
    inflater, fresh, compressed = zlib.decompressobj(_GZIP_WINDOW), True, b""
    while True:
        compressed = compressed or stream.read(_READ_BYTES)
        at_end = not compressed
        if at_end and fresh:
            return
        fresh = False
        plain = inflater.decompress(compressed, _READ_BYTES)
        compressed = inflater.unconsumed_tail
        if plain:
            yield plain
        if inflater.eof:
            # several members may follow each other, and zero padding the last one
            compressed = (inflater.unused_data + compressed).lstrip(b"\0")
            inflater, fresh = zlib.decompressobj(_GZIP_WINDOW), True
        elif at_end and not plain:
            raise EOFError


def _jsonl(lines: _Lines) -> Iterator[Chunk]:
    chunk = Chunk()
    for number, text, length in lines:
        if length != len(text):
            cut = length < 0
            chunk.rejects.append(
                reject(
                    number,
                    "truncated line" if cut else "line too long",
                    "" if cut else f"{length} bytes",
                    text,
                    max(length, len(text)),
                )
            )
        elif not text.strip():
            chunk.rejects.append(reject(number, "blank line", "", text))
        else:
            try:
                value = orjson.loads(text)
            except orjson.JSONDecodeError as error:
                chunk.rejects.append(reject(number, "malformed JSON", str(error), text))
            else:
                if isinstance(value, dict):
                    chunk.lines.append(number)
                    chunk.values.append(value)
                    chunk.texts.append(text)
                else:
                    chunk.rejects.append(
                        reject(number, "not a JSON object", type(value).__name__, text)
                    )
        if chunk.full():
            yield chunk
            chunk = Chunk()
    yield chunk


def _csv(lines: _Lines) -> Iterator[Chunk]:
    """Records after the header line; a record may span lines, its number is that of its last line."""
    pending = _CsvRecord()
    header: list[str] | None = None
    chunk = Chunk()
    reader = csv.reader(pending.feed(lines), strict=True)
    while True:
        pending.clear()
        try:
            fields = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            chunk.rejects.append(pending.reject("malformed CSV", str(error)))
            continue
        if header is None and not pending.cut:
            header = [name.strip() for name in fields]
        elif pending.cut:
            chunk.rejects.append(pending.reject("truncated line"))
        elif pending.too_long:
            chunk.rejects.append(pending.reject("line too long", f"{pending.too_long} bytes"))
        elif not fields:
            chunk.rejects.append(pending.reject("blank line"))
        elif header is None or len(fields) != len(header):
            chunk.rejects.append(
                pending.reject(
                    "malformed CSV", f"{len(fields)} fields under {len(header or ())} names"
                )
            )
        else:
            chunk.lines.append(pending.number)
            chunk.values.append(
                {name: value or None for name, value in zip(header, fields, strict=True)}
            )
            chunk.texts.append(pending.text())
        if chunk.full():
            yield chunk
            chunk = Chunk()
    yield chunk


class _CsvRecord:
    """The lines that the record being read consists of."""

    def __init__(self) -> None:
        self.number = 0
        self.clear()

    def clear(self) -> None:
        self._texts: list[bytes] = []
        self.too_long = 0
        self.cut = False

    def feed(self, lines: _Lines) -> Iterator[str]:
        for number, text, length in lines:
            self.number = number
            self.cut = length < 0
            self.too_long = max(self.too_long, length if length > len(text) else 0)
            self._texts.append(text)
            yield text.decode("utf-8", errors="backslashreplace") + "\n"

    def text(self) -> bytes:
        return b"\n".join(self._texts)

    def reject(self, reason: str, detail: str = "") -> Reject:
        return reject(
            self.number, reason, detail, self.text(), max(self.too_long, len(self.text()))
        )


def _parquet(stream: ByteStream) -> Iterator[Chunk]:
    """Rows of a Parquet file; the line is the row's number."""
    number = 0
    try:
        file = pq.ParquetFile(stream)
        for batch in file.iter_batches(batch_size=CHUNK_RECORDS):
            rows = batch.to_pylist()
            yield Chunk(list(range(number + 1, number + 1 + len(rows))), rows, [b""] * len(rows))
            number += len(rows)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        yield Chunk(
            rejects=[reject(None, "unreadable Parquet", f"after row {number}: {str(error)[:500]}")]
        )
        return
    if number == 0:
        yield Chunk(rejects=[reject(None, "empty file")])
