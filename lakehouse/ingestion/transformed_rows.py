"""`Source.transform`: a DataFrame program between the records as typed and the raw table.

Every line that goes in comes out once: as a row, or as a reject with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyspark import StorageLevel
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql.pandas.types import from_arrow_schema

from lakehouse.data.reading.scan_reader import ReadRequest, read_tasks
from lakehouse.errors import InvalidInputError, InvalidSchemaError
from lakehouse.ingestion.definition_changes import make_room, tell
from lakehouse.ingestion.duplicates import in_tasks, reading
from lakehouse.ingestion.reading.formats.record_chunks import QUARANTINED_TEXT_MAX, REJECTS_SCHEMA
from lakehouse.ingestion.reading.typing.typed_rows import rows_schema
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
from lakehouse.ingestion.workers.workers import SparkWorkers
from lakehouse.ingestion.workplace import Workplace
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spark.spark_types import to_iceberg_schema
from lakehouse.spark.worker_tasks import Batches, map_batches
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.partitioning.sort_order import UNSORTED_SORT_ORDER
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.table import Table

REASON = "transform"
"""Why lines are in quarantine that the transform of their source rejects."""
_LEFT_OUT = "left out by the transform"
_DAY = "__day"
_ORIGIN = (EVENT_TS, LANDING_FILE, LANDING_LINE)


def staging_files(raw: Table) -> TableFiles:
    """Where rows as typed wait for the transform, in few files: each is read once and deleted."""
    request = replace(
        raw.write_request(), spec=UNPARTITIONED_PARTITION_SPEC, sort_order=UNSORTED_SORT_ORDER
    )
    return TableFiles(request, dict(raw.storage.properties))


def transform_staged(
    work: Workplace,
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
        return _transformed(work, source, columns, raw, quarantine, taken)
    finally:
        storage.delete([row.file_path for row in taken.rows])


def apply_transform(source: Source, rows: DataFrame) -> DataFrame:
    """What the transform makes of rows, with `QUARANTINE_REASON`: null for rows that stay.

    Raises:
        InvalidInputError: it returns no DataFrame, or lacks a column that it needs.
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
    if QUARANTINE_REASON not in made.columns:
        return made.withColumn(QUARANTINE_REASON, F.lit(None).cast("string"))
    return made.withColumn(QUARANTINE_REASON, F.col(QUARANTINE_REASON).cast("string"))


def _transformed(
    work: Workplace,
    source: Source,
    columns: Sequence[Column],
    raw: Table,
    quarantine: Table,
    taken: TakenRows,
) -> TakenRows:
    schema = rows_schema(columns, source.rescue)
    staged = _frame(work, schema, raw, taken.rows)
    put = _frame(work, pa.schema([schema.field(name) for name in _ORIGIN]), raw, taken.rows)
    made = apply_transform(source, staged)
    made = made.persist(StorageLevel.DISK_ONLY)  # a program may tell otherwise when asked twice
    try:
        rejected, left_out = _accounted(source, put, made)
        _make_room(work, raw, made.drop(QUARANTINE_REASON), staged.columns)
        accepted = made.where(F.col(QUARANTINE_REASON).isNull()).drop(QUARANTINE_REASON)
        rejects = [_as_rejects(made, F.col(QUARANTINE_REASON), staged.columns)]
        if left_out:
            lost = staged.join(made, [LANDING_FILE, LANDING_LINE], "left_anti")
            rejects.append(_as_rejects(lost, F.lit(_LEFT_OUT), staged.columns))
        of_transform = [
            file for frame in rejects if rejected for file in quarantine.write_files(frame)
        ]
        rows = raw.write_files(accepted)
    finally:
        made.unpersist()
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


def _frame(work: Workplace, schema: pa.Schema, raw: Table, files: Sequence[DataFile]) -> DataFrame:
    """Columns of the rows of data files that are not committed."""
    request = reading(ReadRequest.of(raw.metadata, raw.metadata.schema()), schema.names)
    location, properties = raw.location, dict(raw.storage.properties)
    groups = in_tasks(2 * SparkWorkers(work.spark).tasks(), files)

    def run(batches: Batches) -> Batches:
        storage = storage_for(location, properties)
        for number in (value for batch in batches for value in batch.column(0).to_pylist()):
            for rows in read_tasks(
                [FileScanTask.whole(file) for file in groups[number]], request, storage
            ):
                yield rows.cast(schema)

    count = len(groups)
    return map_batches(work.spark.range(0, count, 1, count), run, from_arrow_schema(schema))


def _make_room(work: Workplace, raw: Table, made: DataFrame, typed: Iterable[str]) -> None:
    """Add the columns that the transform computes, and promote types that it has promoted."""
    typed_names, folded = set(typed), Counter(name.casefold() for name in made.columns)
    twice = [name for name in made.columns if folded[name.casefold()] > 1]
    if twice:
        raise InvalidSchemaError(
            f"{raw.name}: the transform returns {' and '.join(map(repr, twice))}, which differ by "
            "case at most: give them other names",
            table=raw.name,
        )
    fields = [
        field if field.name in typed_names else field.model_copy(update={"doc": COMPUTED_DOC})
        for field in to_iceberg_schema(made.schema).fields
    ]
    tell(make_room(raw, Schema(*fields)), work.say)


def _accounted(
    source: Source, put: DataFrame, made: DataFrame
) -> tuple[Counter[tuple[str, Any]], bool]:
    """How many lines become no row, by file and day; and whether some of them were left out.

    Raises:
        InvalidInputError: a line comes out twice, or on another day.
    """
    nothing, once = F.lit(0), F.lit(1)
    place = [F.col(LANDING_FILE), F.col(LANDING_LINE), F.to_date(EVENT_TS).alias(_DAY)]
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
    rejected: Counter[tuple[str, Any]] = Counter()
    left_out = False
    for row in (
        lines.groupBy(LANDING_FILE, _DAY)
        .agg(
            F.min(wrong).alias("wrong"),
            F.sum("rejected").alias("rejected"),
            F.sum((F.col("got") == 0).cast("int")).alias("left_out"),
        )
        .collect()
    ):
        if row["wrong"] is not None:
            raise InvalidInputError(_refusal(source, row[LANDING_FILE], row[_DAY], row["wrong"]))
        rejected[row[LANDING_FILE], row[_DAY]] += row["rejected"] + row["left_out"]
        left_out = left_out or row["left_out"] > 0
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
    rejects = rows.where(why.isNotNull()).withColumn(
        "__record", F.to_json(F.struct(*typed_columns))
    )
    columns = {
        "event_day": F.to_date(EVENT_TS),
        "landing_file": F.col(LANDING_FILE),
        "landing_line": F.col(LANDING_LINE),
        "reason": F.lit(REASON),
        "detail": why,
        "record": F.substring("__record", 1, QUARANTINED_TEXT_MAX),
        "record_bytes": F.octet_length("__record").cast("long"),
    }
    return rejects.select(*(columns[name].alias(name) for name in REJECTS_SCHEMA.names))
