"""The two passes over landing files as Spark jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

import orjson
import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql.pandas.types import from_arrow_schema

from lakehouse.orchestration.ingestion.landing import LandingFile, LedgerRow, LineCount
from lakehouse.orchestration.ingestion.landing_reader import (
    INDEX_SCHEMA,
    REJECTS_SCHEMA,
    UNREADABLE,
    VANISHED,
    LandingReader,
    balanced,
)
from lakehouse.orchestration.ingestion.source import (
    EVENT_TS,
    LANDING_FILE,
    LANDING_LINE,
    Column,
    Source,
)
from lakehouse.orchestration.ingestion.typed_rows import (
    DETAIL,
    EVENT_DAY,
    MODIFIED_MS,
    REASON,
    RECORD,
    RECORD_BYTES,
    FileTask,
    parsed_schema,
)

DUPLICATE = "__duplicate"
_ORDER = "__order"


@dataclass(frozen=True, slots=True)
class Indexed:
    """What the first pass found.

    Attributes:
        ledger: rows of all files that could be read to their end or to a cut.
        rejects: lines without a usable event time and problems of files, as the quarantine table keeps them; persisted.
        reject_count: how many.
        vanished: files that were gone when they were opened.
        unreadable: files that could not be opened or read.
    """

    ledger: list[LedgerRow]
    rejects: DataFrame
    reject_count: int
    vanished: list[str]
    unreadable: list[str]


def first_pass(spark: SparkSession, reader: LandingReader, files: Sequence[LandingFile]) -> Indexed:
    """Index files on the workers."""
    groups = balanced(files, spark.sparkContext.defaultParallelism)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for group in _ids(batches):
            for file in groups[group]:
                yield from reader.index_batches(file)

    found = _over_groups(spark, len(groups), run, INDEX_SCHEMA).persist()
    heads = (
        found.where("outcome is not null")
        .select("outcome", "landing_file", "ledger")
        .toArrow()
        .to_pylist()
    )
    rejects = found.where("outcome is null").select(*REJECTS_SCHEMA.names)
    return Indexed(
        ledger=[_ledger_row(row) for head in heads for row in orjson.loads(head["ledger"])],
        rejects=rejects,
        reject_count=rejects.count(),
        vanished=sorted(head["landing_file"] for head in heads if head["outcome"] == VANISHED),
        unreadable=sorted(head["landing_file"] for head in heads if head["outcome"] == UNREADABLE),
    )


def second_pass(
    spark: SparkSession,
    reader: LandingReader,
    tasks: Sequence[FileTask],
    columns: Sequence[Column],
    present: DataFrame | None = None,
) -> DataFrame:
    """Records of the tasks as typed rows and rejects (schema of `parsed_schema`), repeated events marked in `__duplicate`.

    Args:
        spark: the session.
        reader: opens the files on the workers.
        tasks: files and the days to take from each.
        columns: the raw table's source columns.
        present: rows of these days that are in the raw table already and come before any record of the tasks.
    """
    by_file = {task.file: task for task in tasks}
    groups = balanced(sorted(by_file), spark.sparkContext.defaultParallelism)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for group in _ids(batches):
            for file in groups[group]:
                yield from reader.row_batches(by_file[file], columns)

    parsed = _over_groups(spark, len(groups), run, parsed_schema(columns)).withColumn(
        _ORDER, F.lit(1)
    )
    if present is not None:
        earlier = (
            present.withColumn(EVENT_DAY, F.to_date(EVENT_TS))
            .withColumn(MODIFIED_MS, F.lit(0))
            .withColumn(_ORDER, F.lit(0))
        )
        parsed = parsed.unionByName(earlier, allowMissingColumns=True)
    rank = F.row_number().over(
        Window.partitionBy(
            EVENT_DAY, F.col(REASON).isNotNull(), *identity_columns(reader.source, columns)
        ).orderBy(_ORDER, MODIFIED_MS, LANDING_FILE, LANDING_LINE)
    )
    marked = parsed.withColumn(DUPLICATE, (rank > 1) & F.col(REASON).isNull())
    return marked.where(F.col(_ORDER) == 1).drop(_ORDER)


def identity_columns(source: Source, columns: Sequence[Column]) -> list[SparkColumn]:
    """What two records share when they are the same event: the natural key, or every column.

    Rejects are never duplicates, so their file and line stand in for what they lack.
    """
    present = [EVENT_TS, *(column.name for column in columns)]
    names = [name for name in source.natural_key if name in present] or present
    rejected = F.when(F.col(REASON).isNotNull(), F.concat_ws(":", LANDING_FILE, LANDING_LINE))
    return [*(F.col(f"`{name}`") for name in names), rejected]


def raw_rows(parsed: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """The rows of a second pass, as the raw table keeps them."""
    names = [EVENT_TS, *(column.name for column in columns), LANDING_FILE, LANDING_LINE]
    return parsed.where(F.col(REASON).isNull() & ~F.col(DUPLICATE)).select(
        *(F.col(f"`{name}`") for name in names)
    )


def rejected_rows(parsed: DataFrame) -> DataFrame:
    """The rejects of a second pass, as the quarantine table keeps them."""
    return parsed.where(F.col(REASON).isNotNull()).select(
        F.col(EVENT_DAY).alias("event_day"),
        LANDING_FILE,
        LANDING_LINE,
        F.col(REASON).alias("reason"),
        F.col(DETAIL).alias("detail"),
        F.col(RECORD).alias("record"),
        F.col(RECORD_BYTES).alias("record_bytes"),
    )


def line_counts(parsed: DataFrame) -> dict[tuple[str, date], LineCount]:
    """What became of the lines, by file and day."""
    rejected = F.col(REASON).isNotNull()
    counted = parsed.groupBy(LANDING_FILE, EVENT_DAY).agg(
        F.count("*").alias("lines"),
        F.count_if(~rejected & ~F.col(DUPLICATE)).alias("rows"),
        F.count_if(rejected).alias("quarantined"),
        F.count_if(F.col(DUPLICATE)).alias("duplicates"),
    )
    return {
        (row[LANDING_FILE], row[EVENT_DAY]): LineCount(
            row["lines"], row["rows"], row["quarantined"], row["duplicates"]
        )
        for row in counted.collect()
    }


def _over_groups(
    spark: SparkSession,
    count: int,
    run: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    return spark.range(0, count, 1, count).mapInArrow(run, from_arrow_schema(schema))


def _ids(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _ledger_row(row: dict[str, object]) -> LedgerRow:
    day = row["event_day"]
    parsed = date.fromisoformat(day) if isinstance(day, str) else None
    return LedgerRow(**{**row, "event_day": parsed})  # type: ignore[arg-type]
