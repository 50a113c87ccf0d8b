"""`Source.transform`: a DataFrame program between the records as typed and the raw table.

Every line that goes in comes out once: as a row, or as a reject with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyspark import StorageLevel
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql.types import StructType

from lakehouse.data.reading.scan_reader import ReadRequest, read_tasks
from lakehouse.errors import InvalidInputError, InvalidSchemaError
from lakehouse.ingestion.definition_changes import make_room, tell
from lakehouse.ingestion.duplicates import in_tasks, reading
from lakehouse.ingestion.reading.formats.record_chunks import QUARANTINED_TEXT_MAX, REJECTS_SCHEMA
from lakehouse.ingestion.source import (
    EVENT_TS,
    LANDING_FILE,
    LANDING_LINE,
    QUARANTINE_REASON,
    Column,
    Source,
)
from lakehouse.ingestion.source_tables import COMPUTED_DOC
from lakehouse.ingestion.workers.quarantine_files import TableFiles
from lakehouse.ingestion.workers.row_pass import TakenRows
from lakehouse.ingestion.workers.worker_stages import shown_rows
from lakehouse.ingestion.workers.workers import SparkWorkers, ThisProcess, Workers
from lakehouse.ingestion.workplace import Workplace
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spark.reading.worker_reader import read_groups, shown_batch
from lakehouse.spark.spark_types import arrow_schema, to_iceberg_schema
from lakehouse.spark.writing.distribution import utc_day
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.partitioning.sort_order import UNSORTED_SORT_ORDER
from lakehouse.storage.storage_protocol import Storage
from lakehouse.table import Table

REASON = "transform"
"""Why lines are in quarantine that the transform of their source rejects."""
_LEFT_OUT = "left out by the transform"
_DAY = "__day"
_RESULT_SIZE = "spark.driver.maxResultSize"
_JSON = {"timeZone": "UTC", "ignoreNullFields": "true"}
"""How the record of a reject is spelled, whatever the settings of the session."""
_ORIGIN = (EVENT_TS, LANDING_FILE, LANDING_LINE)
# the rows as typed, what the program made of them, its rows without rejects, and `_lines`
_Made = tuple[DataFrame, DataFrame, object, Iterable[Any]]


def staging_files(raw: Table) -> TableFiles:
    """Where rows as typed wait for the transform, in few files: each is read once and deleted."""
    request = replace(
        raw.write_request(), spec=UNPARTITIONED_PARTITION_SPEC, sort_order=UNSORTED_SORT_ORDER
    )
    return TableFiles(request, dict(raw.storage.properties))


def transform_staged(
    work: Workplace,
    workers: Workers,
    source: Source,
    columns: Sequence[Column],
    raw: Table,
    quarantine: Table,
    taken: TakenRows,
) -> TakenRows:
    """What the source's transform makes of rows that are in data files; nothing is committed.

    The data files of the rows as typed are deleted, whatever happens.

    Args:
        work: where to work.
        workers: who typed the rows; what this process did is little, and goes to Spark and back.
        source: with a transform.
        columns: of the records, as typed.
        raw: it gets the columns that the transform adds, and is moved to the version with them.
        quarantine: takes what the transform rejects.
        taken: rows as typed.

    Raises:
        InvalidInputError: it returns no DataFrame, lacks a column that says where a row is from,
            returns a line twice, or moves it to another day.
        InvalidSchemaError: it returns a column as another type than the table's.
    """
    storage = raw.storage
    try:
        return _transformed(work, workers, source, columns, raw, quarantine, taken)
    finally:
        storage.delete([row.file_path for row in taken.rows])


def apply_transform(source: Source, rows: DataFrame) -> DataFrame:
    """What the transform makes of rows, with `QUARANTINE_REASON`: null for rows that stay.

    Raises:
        InvalidInputError: it returns no DataFrame, or lacks a column that it needs.
        InvalidSchemaError: it returns columns of one name, or changes the type of where a row is
            from.
    """
    if source.transform is None:
        return rows.withColumn(QUARANTINE_REASON, F.lit(None).cast("string"))
    where = f"source {source.name!r}: the transform"
    if QUARANTINE_REASON in rows.columns:
        raise InvalidInputError(
            f"{where} names the lines that it rejects in {QUARANTINE_REASON!r}, and records have a "
            "field of that name; rename it where the files are made",
            column=QUARANTINE_REASON,
        )
    made = source.transform(rows)
    if not isinstance(made, DataFrame):
        raise InvalidInputError(f"{where} has to return a DataFrame, not {type(made).__name__}")
    missing = [name for name in _ORIGIN if name not in made.columns]
    if missing:
        raise InvalidInputError(
            f"{where} returns no column {missing[0]!r}, which says where a row is from; it returns "
            f"{', '.join(made.columns)}"
        )
    folded = Counter(name.casefold() for name in made.columns)
    twice = [name for name in made.columns if folded[name.casefold()] > 1]
    if twice:
        raise InvalidSchemaError(
            f"{where} returns {' and '.join(map(repr, twice))}, which differ by case at most: give "
            "them other names",
            table=source.table,
        )
    for name in _ORIGIN:
        type_, left = (frame.schema[name].dataType.simpleString() for frame in (made, rows))
        if type_ != left:
            raise InvalidSchemaError(
                f"{where} returns column {name!r} as {type_}, and {left} went in: it has to leave "
                f"{', '.join(_ORIGIN)} as they are, since they say where a row is from",
                table=source.table,
            )
    if QUARANTINE_REASON not in made.columns:
        return made.withColumn(QUARANTINE_REASON, F.lit(None).cast("string"))
    return made.withColumn(QUARANTINE_REASON, F.col(QUARANTINE_REASON).cast("string"))


def _transformed(
    work: Workplace,
    workers: Workers,
    source: Source,
    columns: Sequence[Column],
    raw: Table,
    quarantine: Table,
    taken: TakenRows,
) -> TakenRows:
    schema = shown_rows(columns, source.rescue)
    where = work, source, schema, raw, taken.rows
    here = _in_process(*where) if isinstance(workers, ThisProcess) else None
    with _in_workers(*where) if here is None else nullcontext(here) as transformed:
        staged, made, accepted, lines = transformed
        rejected, left_out = _accounted(source, lines)
        _make_room(work, raw, made.drop(QUARANTINE_REASON), schema.names)
        rejects = [_as_rejects(made, F.col(QUARANTINE_REASON), staged.columns)] if rejected else []
        if left_out:
            lost = staged.join(made, [LANDING_FILE, LANDING_LINE], "left_anti")
            rejects.append(_as_rejects(lost, F.lit(_LEFT_OUT), staged.columns))
        of_transform = [file for frame in rejects for file in quarantine.write_files(frame)]
        rows = raw.write_files(accepted)
    work.say(
        f"the transform takes {sum(file.record_count for file in rows):,} rows and rejects "
        f"{rejected.total():,}"
    )
    return TakenRows(
        lines=taken.lines,
        rejected=taken.rejected + rejected,
        rows=rows,
        rejects=[*taken.rejects, *of_transform],
        rescued=taken.rescued,
    )


@contextmanager
def _in_workers(
    work: Workplace, source: Source, schema: StructType, raw: Table, files: Sequence[DataFile]
) -> Iterator[_Made]:
    """Workers read the data files, and Spark keeps what the program made of them on disk.

    It may tell otherwise when asked twice.
    """
    staged = _frame(work, schema, raw, files)
    put = _frame(work, StructType([schema[name] for name in _ORIGIN]), raw, files)
    made = apply_transform(source, staged).persist(StorageLevel.DISK_ONLY)
    try:
        accepted = made.where(F.col(QUARANTINE_REASON).isNull()).drop(QUARANTINE_REASON)
        yield staged, made, accepted, _lines(put, made).collect()
    finally:
        made.unpersist()


def _in_process(
    work: Workplace, source: Source, schema: StructType, raw: Table, files: Sequence[DataFile]
) -> _Made | None:
    """Spark runs the program and nothing else: rows go there and come back as Arrow.

    None, and nothing has happened, where more comes back than Spark's driver takes.
    """
    target, read = arrow_schema(schema), _reading(raw, schema)
    batches = (shown_batch(rows, target) for rows in _rows_of_files(files, read, raw.storage))
    typed = pa.Table.from_batches(batches, target)
    staged = work.spark.createDataFrame(typed, schema)
    program = apply_transform(source, staged)
    try:
        rows = program.toArrow()
    except Py4JJavaError as error:
        if _RESULT_SIZE not in str(error):
            raise
        work.say(
            f"Spark's workers write what the transform makes of {typed.num_rows:,} rows, which is "
            f"larger than {_RESULT_SIZE}; engine='spark' has them do so at once"
        )
        return None
    accepted = rows.filter(pc.is_null(rows[QUARANTINE_REASON])).drop_columns(QUARANTINE_REASON)
    lines = _lines_here(typed, rows)
    # not made where nobody is going to look at it
    has_rejects = any(of_day["rejected"] or of_day["left_out"] for of_day in lines)
    made = work.spark.createDataFrame(rows, program.schema) if has_rejects else program
    return staged, made, accepted, lines


def _reading(raw: Table, schema: StructType) -> ReadRequest:
    return reading(ReadRequest.of(raw.metadata, raw.metadata.schema()), schema.names)


def _rows_of_files(
    files: Iterable[DataFile], read: ReadRequest, storage: Storage
) -> Iterable[pa.RecordBatch]:
    return read_tasks([FileScanTask.whole(file) for file in files], read, storage)


def _frame(work: Workplace, schema: StructType, raw: Table, files: Sequence[DataFile]) -> DataFrame:
    """Columns of data files that are not committed."""
    groups = in_tasks(2 * SparkWorkers(work.spark).tasks(), files)
    read, properties = _reading(raw, schema), dict(raw.storage.properties)
    return read_groups(work.spark, groups, read, raw.location, properties, schema, _rows_of_files)


def _make_room(work: Workplace, raw: Table, made: DataFrame, typed: Sequence[str]) -> None:
    """Add the columns that the transform computes, and promote types that it has promoted."""
    fields = [
        field if field.name in typed else field.model_copy(update={"doc": COMPUTED_DOC})
        for field in to_iceberg_schema(made.schema).fields
    ]
    tell(make_room(raw, Schema(*fields)), work.say)


def _lines(put: DataFrame, made: DataFrame) -> DataFrame:
    """By file and day: lines that become no row, and one that came out as it must not."""
    nothing, once = F.lit(0), F.lit(1)
    place = [F.col(LANDING_FILE), F.col(LANDING_LINE), utc_day(F.col(EVENT_TS)).alias(_DAY)]
    is_rejected = F.col(QUARANTINE_REASON).isNotNull().cast("int")
    lines = (
        put.select(*place, once.alias("put"), nothing.alias("got"), nothing.alias("rejected"))
        .union(made.select(*place, nothing, once, is_rejected))
        .groupBy(LANDING_FILE, LANDING_LINE, _DAY)
        .agg(*(F.sum(name).alias(name) for name in ("put", "got", "rejected")))
    )
    wrong = F.when(
        (F.col("got") > 1) | (F.col("put") == 0), F.struct(LANDING_LINE, "put", "got")
    )  # fmt: skip
    return lines.groupBy(LANDING_FILE, _DAY).agg(
        F.min(wrong).alias("wrong"),
        F.sum("rejected").alias("rejected"),
        F.sum((F.col("got") == 0).cast("int")).alias("left_out"),
    )


def _lines_here(put: pa.Table, made: pa.Table) -> list[dict[str, Any]]:
    """The same of rows in memory."""
    import polars as pl  # noqa: PLC0415 - it has a thread: runs are forked from a process without

    place = [pl.col(LANDING_FILE), pl.col(LANDING_LINE), pl.col(EVENT_TS).dt.date().alias(_DAY)]
    is_rejected = pl.col(QUARANTINE_REASON).is_not_null().cast(pl.Int32)
    lines = pl.concat(
        [
            pl.DataFrame(put.select(_ORIGIN)).select(*place, put=1, got=0, rejected=0),
            pl.DataFrame(made.select([*_ORIGIN, QUARANTINE_REASON])).select(
                *place, put=0, got=1, rejected=is_rejected
            ),
        ]
    )
    wrong = pl.struct(LANDING_LINE, "put", "got").filter((pl.col("got") > 1) | (pl.col("put") == 0))
    return (
        lines.group_by(LANDING_FILE, LANDING_LINE, _DAY)
        .sum()
        .sort(LANDING_LINE)
        .group_by(LANDING_FILE, _DAY, maintain_order=True)
        .agg(
            wrong.first().alias("wrong"),
            pl.col("rejected").sum(),
            (pl.col("got") == 0).sum().alias("left_out"),
        )
        .to_dicts()
    )


def _accounted(source: Source, lines: Iterable[Any]) -> tuple[Counter[tuple[str, Any]], bool]:
    """How many lines become no row, by file and day; and whether some of them were left out.

    Raises:
        InvalidInputError: a line comes out twice, or on another day.
    """
    rejected: Counter[tuple[str, Any]] = Counter()
    left_out = False
    for of_day in lines:
        file, day = of_day[LANDING_FILE], of_day[_DAY]
        if of_day["wrong"] is not None:
            raise InvalidInputError(_refusal(source, file, day, of_day["wrong"]))
        rejected[file, day] += of_day["rejected"] + of_day["left_out"]
        left_out = left_out or of_day["left_out"] > 0
    return +rejected, left_out


def _refusal(source: Source, file: str | None, day: object, wrong: Any) -> str:
    where = f"source {source.name!r}: the transform returns line {wrong[LANDING_LINE]} of {file}"
    if wrong["put"]:
        return (
            f"{where} {wrong['got']} times. A line of a landing file is one row at most, so that "
            "all of them can be accounted for: make rows of rows in a derived table. Nothing was "
            "published"
        )
    return (
        f"{where} on {day}, and no such line went in: it has to leave {', '.join(_ORIGIN)} as they "
        "are, since they say where a row is from. Nothing was published"
    )


def _as_rejects(rows: DataFrame, why: SparkColumn, typed: Sequence[str]) -> DataFrame:
    """Rows as the quarantine keeps them: with what the transform was given, where it left that."""
    typed_columns = [F.col(f"`{name}`") for name in typed if name in rows.columns]
    as_json = F.to_json(F.struct(*typed_columns), _JSON)
    rejects = rows.where(why.isNotNull()).withColumn("__record", as_json)
    columns = {
        "event_day": utc_day(F.col(EVENT_TS)),
        "landing_file": F.col(LANDING_FILE),
        "landing_line": F.col(LANDING_LINE),
        "reason": F.lit(REASON),
        "detail": why,
        "record": F.substring("__record", 1, QUARANTINED_TEXT_MAX),
        "record_bytes": F.octet_length("__record").cast("long"),
    }
    return rejects.select(*(columns[name].alias(name) for name in REJECTS_SCHEMA.names))
