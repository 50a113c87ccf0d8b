"""The second pass over landing files, on a worker: records of some days become rows or rejects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date

import pyarrow as pa

from lakehouse.data.writing.data_file_writer import write_all
from lakehouse.errors import NoSuchFileError, StorageError
from lakehouse.ingestion.landing_ledger import LandingFile
from lakehouse.ingestion.reading.content import UnreadableContentError
from lakehouse.ingestion.reading.file_parts import FilePart, read_chunks
from lakehouse.ingestion.reading.formats.record_chunks import Chunk, Rejects
from lakehouse.ingestion.reading.typing.typed_rows import RowTyper
from lakehouse.ingestion.source import Column
from lakehouse.ingestion.workers.landing_reader import LandingReader, no_collection
from lakehouse.ingestion.workers.quarantine_files import QuarantineFiles, TableFiles
from lakehouse.spec.manifests.data_file import DataFile

FileDay = tuple[str, date]


@dataclass(frozen=True, slots=True)
class FileTask:
    """What to take from a file.

    Attributes:
        file: the version that is expected.
        days: of event time.
        part: of the file; None: all of it.
    """

    file: LandingFile
    days: frozenset[date]
    part: FilePart | None = None


@dataclass(slots=True)
class TakenRows:
    """What files gave; nothing of it is committed.

    Attributes:
        lines: how many records, by landing file and day of event time.
        rejected: those among them that become no row.
        rows: data files of the raw table.
        rejects: data files of the quarantine.
        rescued: rows that keep something in the column `Source.rescue`.
    """

    lines: Counter[FileDay] = field(default_factory=Counter)
    rejected: Counter[FileDay] = field(default_factory=Counter)
    rows: list[DataFile] = field(default_factory=list)
    rejects: list[DataFile] = field(default_factory=list)
    rescued: int = 0

    def add(self, other: TakenRows) -> None:
        """Take what other files gave."""
        self.lines.update(other.lines)
        self.rejected.update(other.rejected)
        self.rows += other.rows
        self.rejects += other.rejects
        self.rescued += other.rescued


def take_rows(
    tasks: Sequence[FileTask],
    reader: LandingReader,
    columns: Sequence[Column],
    raw: TableFiles,
    quarantine: TableFiles,
    task: str,
) -> TakenRows:
    """Write the records of files to data files; when anything fails, what was written is deleted.

    Args:
        tasks: files, read in this order.
        reader: opens them.
        columns: the raw table's source columns.
        raw: where rows go.
        quarantine: where rejects go.
        task: distinguishes parallel workers, part of file names.

    Raises:
        NoSuchFileError: a landing file is gone.
        StorageError: a landing file could not be read, or a data file not written.
    """
    taken, rejects = TakenRows(), QuarantineFiles(quarantine, task)

    def batches() -> Iterator[pa.RecordBatch]:
        typer = RowTyper(reader.source, columns, reader.clock())
        for task in tasks:
            yield from row_batches(task, reader, typer, taken, rejects)

    try:
        with no_collection():
            taken.rows = write_all(batches(), raw.request, raw.storage, task=task)
        taken.rejects = rejects.finish()
    except BaseException:
        rejects.discard()
        if taken.rows:
            raw.storage.delete([row.file_path for row in taken.rows])
        raise
    return taken


def row_batches(
    task: FileTask,
    reader: LandingReader,
    typer: RowTyper,
    taken: TakenRows,
    rejects: QuarantineFiles | None,
) -> Iterator[pa.RecordBatch]:
    """The rows of one file; its lines are counted in `taken`.

    Raises:
        NoSuchFileError | StorageError: the file is gone, or cannot be read any more.
    """
    path, location = task.file.path, reader.location(task.file)
    rescue = reader.source.rescue
    lines: Counter[date] = Counter()
    rejected: Counter[date | None] = Counter()
    try:
        with reader.open(task.file) as stream:
            for chunk in _chunks(stream, task, reader):
                if chunk.records is None:
                    continue
                of_chunk = Rejects()
                batch = typer.rows(chunk.records, path, task.days, lines, of_chunk)
                rejected.update(of_chunk.days)
                if rejects is not None:
                    rejects.add(of_chunk, path)
                if batch is not None:
                    if rescue is not None:
                        taken.rescued += batch.num_rows - batch[rescue].null_count
                    yield batch
    except FileNotFoundError as error:
        message = f"landing file {location} vanished while it was read"
        raise NoSuchFileError(message, file=location) from error
    except OSError as error:
        message = f"landing file {location} could not be read: {error}"
        raise StorageError(message, retryable=True, file=location) from error
    taken.lines.update({(path, day): count for day, count in lines.items()})
    taken.rejected.update({(path, day): count for day, count in rejected.items() if day})


def _chunks(stream: pa.NativeFile, task: FileTask, reader: LandingReader) -> Iterator[Chunk]:
    """The chunks before whatever damage the first pass has reported."""
    try:
        yield from read_chunks(stream, task.file.path, reader.source, task.part)
    except UnreadableContentError:
        return
