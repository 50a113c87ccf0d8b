"""The two passes over landing files, by whoever does the work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql.types import StructType

from lakehouse.errors import StorageError
from lakehouse.ingestion.landing_ledger import LandingFile
from lakehouse.ingestion.reading.file_parts import FilePart, Stretch, look_at, parts_of
from lakehouse.ingestion.reading.typing.typed_rows import RowTyper, rows_schema
from lakehouse.ingestion.source import EVENT_TS, LANDING_FILE, LANDING_LINE, Column, Source
from lakehouse.ingestion.workers.index_pass import FilePiece, IndexedFiles, index_files, joined
from lakehouse.ingestion.workers.landing_reader import LandingReader
from lakehouse.ingestion.workers.quarantine_files import TableFiles
from lakehouse.ingestion.workers.row_pass import FileTask, TakenRows, row_batches, take_rows
from lakehouse.ingestion.workers.workers import SparkWorkers, Workers
from lakehouse.maintenance.shown_plan import Progress, no_progress
from lakehouse.spark.reading.worker_reader import shown_batch
from lakehouse.spark.spark_types import arrow_schema, shown_schema
from lakehouse.spark.worker_tasks import Batches, map_batches
from lakehouse.spark.writing.distribution import utc_day
from lakehouse.spec.types.arrow_types import schema_from_arrow

Item = TypeVar("Item", FilePiece, FileTask)
_MODIFIED, _RANK = "__modified_ms", "__rank"


def first_pass(
    workers: Workers,
    reader: LandingReader,
    files: Sequence[LandingFile],
    quarantine: TableFiles,
    progress: Progress = no_progress,
) -> IndexedFiles:
    """Index files."""
    parts = large_file_parts(workers, reader, files, progress)
    whole = [FilePiece(file) for file in files if file not in parts]
    pieces = [[FilePiece(file, part)] for file, cut in parts.items() for part in cut]
    groups = grouped(whole, workers)
    done = _indexed(workers, reader, [*groups, *pieces], quarantine, progress)
    of_parts, done = iter(done[len(groups) :]), done[: len(groups)]
    again: list[list[FilePiece]] = []
    for file, cut in parts.items():
        results = [next(of_parts) for _ in cut]
        rejects = [reject for result in results for reject in result.rejects]
        index = joined([result.files[0] for result in results], reader.source)
        if index is not None:
            done.append(IndexedFiles([index], rejects))
            continue
        again.append([FilePiece(file)])
        quarantine.storage.delete([reject.file_path for reject in rejects])
    done += _indexed(workers, reader, again, quarantine, progress)
    indexed = IndexedFiles()
    for result in done:
        indexed.files += result.files
        indexed.rejects += result.rejects
    return indexed


def _indexed(
    workers: Workers,
    reader: LandingReader,
    groups: list[list[FilePiece]],
    quarantine: TableFiles,
    progress: Progress,
) -> list[IndexedFiles]:
    def run(group: list[FilePiece], task: str) -> IndexedFiles:
        return index_files(group, reader, quarantine, task)

    return workers.results(groups, run, partial(progress, "tasks of indexing"))


def second_pass(
    workers: Workers,
    reader: LandingReader,
    tasks: Sequence[FileTask],
    columns: Sequence[Column],
    raw: TableFiles,
    quarantine: TableFiles,
    progress: Progress = no_progress,
) -> TakenRows:
    """Write the records of files as data files that are not committed."""

    def run(group: list[FileTask], task: str) -> TakenRows:
        return take_rows(group, reader, columns, raw, quarantine, task)

    taken = TakenRows()
    groups = _groups(workers, reader, tasks, progress)
    for rows in workers.results(groups, run, partial(progress, "tasks of writing rows")):
        taken.add(rows)
    return taken


PART_BYTES_MIN = 8 << 20
"""A task of its own is not worth less."""


def large_file_parts(
    workers: Workers,
    reader: LandingReader,
    files: Sequence[LandingFile],
    progress: Progress = no_progress,
) -> dict[LandingFile, list[FilePart]]:
    """The parts of those among the files that are large and can be read in parts."""
    total = sum(file.size_bytes for file in files)
    size = max(PART_BYTES_MIN, total // workers.tasks(total))
    spans = {
        file: [
            range(start, min(start + size, file.size_bytes))
            for start in range(0, file.size_bytes, size)
        ]
        for file in files
        if file.size_bytes >= 2 * size
    }
    items = [(file, span) for file, ranges in spans.items() for span in ranges]

    def run(group: Sequence[tuple[LandingFile, range]], _task: str) -> list[Stretch | None]:
        return [_shown(reader, file, span) for file, span in group]

    # a task takes longer to start than to count the lines of its part
    few = min(len(items), workers.tasks())
    groups = [items[len(items) * at // few : len(items) * (at + 1) // few] for at in range(few)]
    counted = workers.results(groups, run, partial(progress, "tasks of counting lines"))
    shown = chain.from_iterable(counted)
    parts = {
        file: parts_of([next(shown) for _ in ranges], file.size_bytes)
        for file, ranges in spans.items()
    }
    return {file: cut for file, cut in parts.items() if len(cut) > 1}


def _shown(reader: LandingReader, file: LandingFile, span: range) -> Stretch | None:
    try:
        with reader.open(file) as stream:
            return look_at(stream, file.path, reader.source, span)
    except (OSError, StorageError):
        return None  # who reads it as a whole tells


def shown_rows(columns: Sequence[Column], rescue: str | None) -> StructType:
    """The rows of a source as Spark sees them; `rescue` is the source's."""
    return shown_schema(schema_from_arrow(rows_schema(columns, rescue)))


def distinct_rows(
    spark: SparkSession,
    reader: LandingReader,
    tasks: Sequence[FileTask],
    columns: Sequence[Column],
    transform: Callable[[DataFrame], DataFrame],
) -> DataFrame:
    """The rows of files, transformed, each event once, as a frame: what ingestion would write."""
    groups = _groups(SparkWorkers(spark), reader, tasks)
    schema = shown_rows(columns, reader.source.rescue)
    target = arrow_schema(schema)

    def run(batches: Batches) -> Batches:
        typer = RowTyper(reader.source, columns, reader.clock())
        for number in (value for batch in batches for value in batch.column(0).to_pylist()):
            for task in groups[number]:
                for rows in row_batches(task, reader, typer, TakenRows(), None):
                    yield shown_batch(rows, target)

    count = len(groups)
    parsed = map_batches(spark.range(0, count, 1, count), run, schema)
    same = [F.col(f"`{name}`") for name in identity_columns(reader.source, columns)]
    first = Window.partitionBy(utc_day(F.col(EVENT_TS)), *same).orderBy(
        _MODIFIED, LANDING_FILE, LANDING_LINE
    )
    modified = {task.file.path: task.file.modified_ms for task in tasks}
    landed = spark.createDataFrame(
        list(modified.items()), f"{LANDING_FILE} string, {_MODIFIED} long"
    )
    rows = transform(parsed).join(F.broadcast(landed), LANDING_FILE)
    ranked = rows.withColumn(_RANK, F.row_number().over(first))
    return ranked.where(F.col(_RANK) == 1).drop(_RANK, _MODIFIED)


def identity_columns(source: Source, columns: Sequence[Column]) -> list[str]:
    """What two records of a day share when they are the same event: the key, or every column."""
    present = [EVENT_TS, *(column.name for column in columns)]
    present += [] if source.rescue is None else [source.rescue]
    return [name for name in source.natural_key if name in present] or present


def _groups(
    workers: Workers,
    reader: LandingReader,
    tasks: Sequence[FileTask],
    progress: Progress = no_progress,
) -> list[list[FileTask]]:
    """Files in groups, large ones in parts."""
    parts = large_file_parts(workers, reader, [task.file for task in tasks], progress)
    whole = [task for task in tasks if task.file not in parts]
    cut = [[replace(task, part=part)] for task in tasks for part in parts.get(task.file, ())]
    return grouped(whole, workers) + cut


def grouped(items: Sequence[Item], workers: Workers) -> list[list[Item]]:
    """Files in groups of about equal size, one group a worker's task, in the order of their names.

    Neighbours are likely to carry the same days, so that a worker writes few files.
    """
    ordered = sorted(items, key=lambda item: item.file.path)
    total = sum(item.file.size_bytes for item in ordered)
    count = max(1, min(len(ordered), workers.tasks(total)))
    groups: list[list[Item]] = []
    size, target = 0.0, total / count
    for item in ordered:
        if not groups or size + item.file.size_bytes / 2 > target * len(groups):
            groups.append([])
        groups[-1].append(item)
        size += item.file.size_bytes
    return groups
