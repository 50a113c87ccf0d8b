"""First pass over landing files, on Spark's workers: which days each carries, what kinds of values, which lines have no day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime

import orjson

from lakehouse.orchestration.ingestion.event_time import BadEventTime, instant_parser
from lakehouse.orchestration.ingestion.kinds import kinds_of
from lakehouse.orchestration.ingestion.landing import LandingFile, LedgerRow
from lakehouse.orchestration.ingestion.records import (
    ByteStream,
    Chunk,
    Reject,
    read_records,
    reject,
)
from lakehouse.orchestration.ingestion.source import Source
from lakehouse.orchestration.ingestion.typed_columns import guessed_value


@dataclass(slots=True)
class FileIndex:
    """What was found in one file.

    Attributes:
        ledger: one row a day, all pending, and one without a day.
        rejects: lines without a usable event time, and problems of the file as a whole (those have no line number).
    """

    ledger: list[LedgerRow] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)


@dataclass(slots=True)
class _Day:
    lines: int = 0
    kinds: dict[str, Counter[str]] = field(default_factory=dict)


def index_file(file: LandingFile, stream: ByteStream, source: Source, today: date) -> FileIndex:
    """Index one file.

    Args:
        file: the version that is being read.
        stream: its bytes.
        source: how to read it.
        today: the last day that events may have when the source names none.
    """
    parse = instant_parser(source.event_time, source.first_day, source.last_day or today)
    days: dict[date, _Day] = {}
    rejects: list[Reject] = []
    for chunk in read_records(stream, source):
        rejects += chunk.rejects
        for day, records in _by_day(chunk, source, parse, rejects).items():
            _observe(days.setdefault(day, _Day()), records, guess=source.format == "csv")
    found = FileIndex(rejects=rejects)
    found.ledger += [
        LedgerRow(
            landing_file=file.path, size_bytes=file.size_bytes, modified_ms=file.modified_ms, event_day=day, lines=seen.lines,
            pending=True, kinds=orjson.dumps(seen.kinds).decode(),
        )
        for day, seen in sorted(days.items())
    ]  # fmt: skip
    found.ledger.append(undated(file, rejects))
    return found


def unreadable(file: LandingFile, error: Exception) -> FileIndex:
    """The index of a file that could not be read: no line, one problem."""
    problems = [reject(None, "unreadable file", f"{type(error).__name__}: {error}"[:500])]
    return FileIndex([undated(file, problems)], problems)


def undated(file: LandingFile, rejects: Sequence[Reject]) -> LedgerRow:
    """The ledger's row for lines without a day; every file has one, so that a file without any line is known as well."""
    lines = sum(1 for r in rejects if r.line is not None)
    problems = [r for r in rejects if r.line is None]
    return LedgerRow(
        landing_file=file.path, size_bytes=file.size_bytes, modified_ms=file.modified_ms, event_day=None, lines=lines,
        pending=False, quarantined=lines, problem="; ".join(f"{p.reason} {p.detail}".strip() for p in problems) or None,
    )  # fmt: skip


def dated_records(
    chunk: Chunk, source: Source, parse: Callable[[object], datetime | BadEventTime]
) -> Iterator[tuple[int, datetime | BadEventTime]]:
    """For each record of a chunk its position and its instant, or why it has none."""
    column = source.event_time.column
    for position, record in enumerate(chunk.values):
        yield position, parse(record.get(column))


def _by_day(
    chunk: Chunk,
    source: Source,
    parse: Callable[[object], datetime | BadEventTime],
    rejects: list[Reject],
) -> dict[date, list[dict[str, object]]]:
    days: dict[date, list[dict[str, object]]] = {}
    for position, instant in dated_records(chunk, source, parse):
        if isinstance(instant, BadEventTime):
            rejects.append(
                reject(chunk.lines[position], instant.reason, instant.detail, chunk.text(position))
            )
        else:
            days.setdefault(instant.date(), []).append(chunk.values[position])
    return days


def _observe(day: _Day, records: list[dict[str, object]], *, guess: bool) -> None:
    day.lines += len(records)
    for name in dict.fromkeys(name for record in records for name in record):
        values: list[object] = [record.get(name) for record in records]
        day.kinds.setdefault(name, Counter()).update(
            kinds_of(map(guessed_value, values) if guess else values)
        )
