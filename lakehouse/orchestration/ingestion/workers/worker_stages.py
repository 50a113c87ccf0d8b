"""The two passes over landing files, on Spark's workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql.pandas.types import from_arrow_schema

from lakehouse.maintenance.shown_plan import Progress, no_progress
from lakehouse.orchestration.ingestion.landing_ledger import LandingFile
from lakehouse.orchestration.ingestion.reading.typing.typed_rows import RowTyper, rows_schema
from lakehouse.orchestration.ingestion.source import (
    EVENT_TS,
    LANDING_FILE,
    LANDING_LINE,
    Column,
    Source,
)
from lakehouse.orchestration.ingestion.workers.index_pass import IndexedFiles, index_files
from lakehouse.orchestration.ingestion.workers.landing_reader import LandingReader
from lakehouse.orchestration.ingestion.workers.on_workers import on_workers
from lakehouse.orchestration.ingestion.workers.quarantine_files import TableFiles
from lakehouse.orchestration.ingestion.workers.row_pass import (
    FileTask,
    TakenRows,
    row_batches,
    take_rows,
)

Item = TypeVar("Item", LandingFile, FileTask)
_TASK_BYTES = 32 << 20
_MODIFIED, _RANK = "__modified_ms", "__rank"


def first_pass(
    spark: SparkSession,
    reader: LandingReader,
    files: Sequence[LandingFile],
    quarantine: TableFiles,
    progress: Progress = no_progress,
) -> IndexedFiles:
    """Index files."""

    def run(group: list[LandingFile], task: str) -> IndexedFiles:
        return index_files(group, reader, quarantine, task)

    found = IndexedFiles()
    groups = grouped(files, _parallelism(spark))
    for one in on_workers(spark, groups, run, partial(progress, "tasks of indexing")):
        found.found += one.found
        found.rejects += one.rejects
    return found


def second_pass(
    spark: SparkSession,
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
    groups = grouped(tasks, _parallelism(spark))
    for one in on_workers(spark, groups, run, partial(progress, "tasks of writing rows")):
        taken.add(one)
    return taken


def distinct_rows(
    spark: SparkSession,
    reader: LandingReader,
    tasks: Sequence[FileTask],
    columns: Sequence[Column],
) -> DataFrame:
    """The rows of files, each event once, as a frame: what `second_pass` would write."""
    groups = grouped(tasks, _parallelism(spark))
    schema = rows_schema(columns).append(pa.field(_MODIFIED, pa.int64()))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        typer = RowTyper(reader.source, columns, reader.clock())
        for number in (one for batch in batches for one in batch.column(0).to_pylist()):
            for task in groups[number]:
                for rows in row_batches(task, reader, typer, TakenRows(), None):
                    modified = pa.repeat(pa.scalar(task.file.modified_ms), rows.num_rows)
                    yield pa.RecordBatch.from_arrays([*rows.columns, modified], schema=schema)

    count = len(groups)
    parsed = spark.range(0, count, 1, count).mapInArrow(run, from_arrow_schema(schema))
    same = [F.col(f"`{name}`") for name in identity_columns(reader.source, columns)]
    first = Window.partitionBy(F.to_date(EVENT_TS), *same).orderBy(
        _MODIFIED, LANDING_FILE, LANDING_LINE
    )
    ranked = parsed.withColumn(_RANK, F.row_number().over(first))
    return ranked.where(F.col(_RANK) == 1).drop(_RANK, _MODIFIED)


def identity_columns(source: Source, columns: Sequence[Column]) -> list[str]:
    """What two records of a day share when they are the same event: the key, or every column."""
    present = [EVENT_TS, *(column.name for column in columns)]
    return [name for name in source.natural_key if name in present] or present


def grouped(items: Sequence[Item], parallelism: int) -> list[list[Item]]:
    """Files in groups of about equal size, one group a worker's task, in the order of their names.

    Neighbours are likely to carry the same days, so that a worker writes few files. There are as
    many groups as keep every core busy, and more when there is much to read.
    """
    ordered = sorted(items, key=lambda one: _file(one).path)
    total = sum(_file(one).size_bytes for one in ordered)
    count = max(1, min(len(ordered), max(2 * parallelism, total // _TASK_BYTES)))
    groups: list[list[Item]] = []
    size, target = 0.0, total / count
    for one in ordered:
        if not groups or size + _file(one).size_bytes / 2 > target * len(groups):
            groups.append([])
        groups[-1].append(one)
        size += _file(one).size_bytes
    return groups


def _file(item: LandingFile | FileTask) -> LandingFile:
    return item if isinstance(item, LandingFile) else item.file


def _parallelism(spark: SparkSession) -> int:
    return spark.sparkContext.defaultParallelism
