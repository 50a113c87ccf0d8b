"""The first pass over landing files, on a worker: days of each file, lines without a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date

import orjson

from lakehouse.errors import NoSuchFileError, StorageError
from lakehouse.ingestion.landing_ledger import LandingFile, LedgerRow
from lakehouse.ingestion.reading.content import UnreadableContentError
from lakehouse.ingestion.reading.file_index import BeyondLimitsError, FileIndex
from lakehouse.ingestion.reading.file_parts import FilePart, read_chunks
from lakehouse.ingestion.reading.formats.record_chunks import Rejects
from lakehouse.ingestion.reading.landing_file import count_lines
from lakehouse.ingestion.reading.typing.event_time import EventClock
from lakehouse.ingestion.source import Source
from lakehouse.ingestion.workers.landing_reader import LandingReader, no_collection
from lakehouse.ingestion.workers.quarantine_files import QuarantineFiles, TableFiles
from lakehouse.spec.manifests.data_file import DataFile

VANISHED, UNREADABLE = "vanished", "unreadable"
_SHOWN = 500
_MOST_LINES = 100_000


@dataclass(frozen=True, slots=True)
class FilePiece:
    """What to index.

    Attributes:
        file: the version that is expected.
        part: of it; None: all of it.
    """

    file: LandingFile
    part: FilePart | None = None


@dataclass(slots=True)
class IndexedFile:
    """What one landing file carries: its lines by day, and lines without a time.

    Attributes:
        file: the version that was read.
        index: of its records.
        undated: lines without a usable event time; all of them when the file is beyond limits.
        problem: what is wrong with the file as a whole.
        lost: `vanished` or `unreadable` when nothing is known of the file.
    """

    file: LandingFile
    index: FileIndex | None = None
    undated: int = 0
    problem: str | None = None
    lost: str | None = None


@dataclass(slots=True)
class IndexedFiles:
    """What a worker has indexed.

    Attributes:
        files: what each holds.
        rejects: data files of the quarantine.
    """

    files: list[IndexedFile] = field(default_factory=list)
    rejects: list[DataFile] = field(default_factory=list)


def index_files(
    pieces: Sequence[FilePiece], reader: LandingReader, quarantine: TableFiles, task: str
) -> IndexedFiles:
    """Index files; when anything fails, what was written is deleted.

    Args:
        pieces: in this order.
        reader: opens them.
        quarantine: where their lines without an event time go.
        task: distinguishes parallel workers, part of file names.

    Raises:
        StorageError: a landing file could not be read to its end, or a data file not written.
    """
    result, rejects, clock = IndexedFiles(), QuarantineFiles(quarantine, task), reader.clock()
    try:
        with no_collection():
            for piece in pieces:
                rejects.begin()
                result.files.append(_indexed(piece, reader, clock, rejects))
        result.rejects = rejects.finish()
    except BaseException:
        rejects.discard()
        raise
    return result


def days_in(files: Sequence[LandingFile], reader: LandingReader) -> frozenset[date]:
    """Days that lines of files have, as far as they can be read; nothing is written.

    Args:
        files: few and small, in this order; of what unpacks to more than 100,000 lines the rest is
            not read.
        reader: opens them.
    """
    days: set[date] = set()
    lines = 0
    for file in files:
        index, clock = FileIndex(), reader.clock()
        try:
            with reader.open(file) as stream:
                for chunk in read_chunks(stream, file.path, reader.source, None):
                    index.add(chunk, reader.source, clock)
                    if lines + index.lines.total() > _MOST_LINES:
                        break
        except (OSError, StorageError, UnreadableContentError, BeyondLimitsError):
            pass  # what is wrong with it is said where it is indexed
        days |= index.lines.keys()
        lines += index.lines.total()
        if lines > _MOST_LINES:
            break
    return frozenset(days)


def joined(parts: Sequence[IndexedFile], source: Source) -> IndexedFile | None:
    """A file from what its parts are, in order; None where it has to be looked at as a whole.

    That is one with a problem, or with more rejects or fields than the source allows.
    """
    whole = IndexedFile(parts[0].file, FileIndex())
    for part in parts:
        if whole.index is None or part.index is None or part.problem or part.lost:
            return None
        try:
            whole.index.join(part.index, source)
        except BeyondLimitsError:
            return None
    whole.undated = 0 if whole.index is None else whole.index.undated
    return whole


def _indexed(
    piece: FilePiece, reader: LandingReader, clock: EventClock, rejects: QuarantineFiles
) -> IndexedFile:
    file, source, begun = piece.file, reader.source, False
    indexed = IndexedFile(file, index := FileIndex())
    whole = Rejects()
    try:
        with reader.open(file) as stream:
            try:
                for chunk in read_chunks(stream, file.path, source, piece.part):
                    begun = True
                    rejects.add(index.add(chunk, source, clock), file.path)
            except BeyondLimitsError as error:
                rejects.take_back()
                indexed.undated = count_lines(stream, file.path, source)
                indexed.index = None
                indexed.problem = f"{error.reason}: {error.detail}; none of its lines is taken"
                whole.add(None, error.reason, f"{error.detail}; {indexed.undated} lines")
            else:
                indexed.undated = index.undated
    except UnreadableContentError as error:
        indexed.undated = index.undated
        indexed.problem = error.message[:_SHOWN]
        whole.add(None, error.reason, error.detail[:_SHOWN])
    except (OSError, StorageError) as error:
        return _lost(file, error, reader, begun=begun)
    rejects.add(whole, file.path)
    return indexed


def _lost(
    file: LandingFile, error: OSError | StorageError, reader: LandingReader, *, begun: bool
) -> IndexedFile:
    if begun:
        location = reader.location(file)
        message = f"landing file {location} could not be read to its end: {error}"
        raise StorageError(message, retryable=True, file=location) from error
    if isinstance(error, FileNotFoundError | NoSuchFileError):
        return IndexedFile(file, lost=VANISHED)
    why = f"unreadable file {type(error).__name__}: {error}"
    return IndexedFile(file, problem=why[:_SHOWN], lost=UNREADABLE)


def ledger_rows(indexed: IndexedFile) -> list[LedgerRow]:
    """One row a day, and one without a day.

    Every file has that one, so that a file without any line is known as well.
    """

    def row(day: date | None, lines: int) -> LedgerRow:
        return LedgerRow(
            landing_file=indexed.file.path,
            size_bytes=indexed.file.size_bytes,
            modified_ms=indexed.file.modified_ms,
            event_day=day,
            lines=lines,
            pending=day is not None,
        )

    index = indexed.index
    undated = replace(
        row(None, indexed.undated), quarantined=indexed.undated, problem=indexed.problem
    )
    if index is None:
        return [undated]
    dated = [row(day, lines) for day, lines in sorted(index.lines.items())]
    return [*dated, replace(undated, kinds=orjson.dumps(index.kinds).decode())]


def reindexed(rows: Sequence[LedgerRow], ledger: Sequence[LedgerRow]) -> list[LedgerRow]:
    """New ledger rows, marked where an earlier version of the file is known.

    The days of both versions have to be replaced.
    """
    earlier: dict[str, list[LedgerRow]] = {}
    for row in ledger:
        earlier.setdefault(row.landing_file, []).append(row)
    result = [
        replace(row, replaces=row.event_day is not None and row.landing_file in earlier)
        for row in rows
    ]
    present = {(row.landing_file, row.event_day) for row in rows}
    version = {row.landing_file: row.file for row in rows}
    for path, file in version.items():
        result += [
            replace(
                old, size_bytes=file.size_bytes, modified_ms=file.modified_ms, lines=0, rows=0,
                quarantined=0, duplicates=0,
                pending=True, replaces=True, kinds="{}",
            )
            for old in earlier.get(path, ())
            if old.event_day is not None and (path, old.event_day) not in present
        ]  # fmt: skip
    return result
