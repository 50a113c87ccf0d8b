"""Second pass over landing files: the records of some days as typed rows or rejects. Runs on Spark's workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime

import pyarrow as pa

from lakehouse.orchestration.ingestion.drift import usable_name
from lakehouse.orchestration.ingestion.event_time import instant_parser
from lakehouse.orchestration.ingestion.first_look import dated_records
from lakehouse.orchestration.ingestion.landing import LandingFile
from lakehouse.orchestration.ingestion.records import (
    QUARANTINED_TEXT_MAX,
    ByteStream,
    Chunk,
    read_records,
)
from lakehouse.orchestration.ingestion.source import (
    EVENT_TS,
    LANDING_FILE,
    LANDING_LINE,
    Column,
    Source,
)
from lakehouse.orchestration.ingestion.typed_columns import arrow_type, text_value, typed_column

# columns of the second pass that are not the raw table's
EVENT_DAY, MODIFIED_MS = "__event_day", "__modified_ms"
REASON, DETAIL, RECORD, RECORD_BYTES = "__reason", "__detail", "__record", "__record_bytes"


@dataclass(frozen=True, slots=True)
class FileTask:
    """Which days to take from a file."""

    file: LandingFile
    days: frozenset[date]


def parsed_schema(columns: Sequence[Column]) -> pa.Schema:
    """What the second pass yields: bookkeeping, then the raw table's columns (null in a reject)."""
    return pa.schema(
        [
            pa.field(EVENT_DAY, pa.date32()),
            pa.field(MODIFIED_MS, pa.int64()),
            pa.field(REASON, pa.string()),
            pa.field(DETAIL, pa.string()),
            pa.field(RECORD, pa.string()),
            pa.field(RECORD_BYTES, pa.int64()),
            pa.field(EVENT_TS, pa.timestamp("us", "UTC")),
            *(pa.field(column.name, arrow_type(column.type)) for column in columns),
            pa.field(LANDING_FILE, pa.string()),
            pa.field(LANDING_LINE, pa.int64()),
        ]
    )


def file_batches(
    task: FileTask, stream: ByteStream, source: Source, columns: Sequence[Column], today: date
) -> Iterator[pa.RecordBatch]:
    """The records of the task's days, each once: a typed row, or a reject with `__reason`.

    Args:
        task: file and days.
        stream: the file's bytes.
        source: how to read it.
        columns: the raw table's source columns, after drift was resolved.
        today: as for the first pass.
    """
    parse = instant_parser(source.event_time, source.first_day, source.last_day or today)
    schema = parsed_schema(columns)
    for chunk in read_records(stream, source):
        taken = [
            (position, instant)
            for position, instant in dated_records(chunk, source, parse)
            if isinstance(instant, datetime) and instant.date() in task.days
        ]
        if taken:
            yield _batch(task.file, chunk, taken, source, columns, schema)


def _batch(
    file: LandingFile,
    chunk: Chunk,
    taken: Sequence[tuple[int, datetime]],
    source: Source,
    columns: Sequence[Column],
    schema: pa.Schema,
) -> pa.RecordBatch:
    records = [chunk.values[position] for position, _ in taken]
    reasons = _record_reasons(records, source, columns)
    arrays: dict[str, pa.Array] = {}
    for column in columns:
        values: list[object] = [record.get(column.name) for record in records]
        if source.format == "csv":
            values = [text_value(value, column.type) for value in values]
        arrays[column.name], bad = typed_column(values, column.type)
        for index, why in bad.items():
            reasons.setdefault(index, ("type conflict", f"{column.name}: {why}"))
    rejected = [reasons.get(index) for index in range(len(taken))]
    texts = [
        chunk.text(position) if rejected[index] else None
        for index, (position, _) in enumerate(taken)
    ]
    arrays |= {
        EVENT_DAY: pa.array([instant.date() for _, instant in taken], pa.date32()),
        MODIFIED_MS: pa.array([file.modified_ms] * len(taken), pa.int64()),
        REASON: pa.array([r and r[0] for r in rejected], pa.string()),
        DETAIL: pa.array([r and r[1] for r in rejected], pa.string()),
        RECORD: pa.array(
            [
                t and t[:QUARANTINED_TEXT_MAX].decode("utf-8", errors="backslashreplace")
                for t in texts
            ],
            pa.string(),
        ),
        RECORD_BYTES: pa.array([None if t is None else len(t) for t in texts], pa.int64()),
        EVENT_TS: pa.array([instant for _, instant in taken], pa.timestamp("us", "UTC")),
        LANDING_FILE: pa.array([file.path] * len(taken), pa.string()),
        LANDING_LINE: pa.array([chunk.lines[position] for position, _ in taken], pa.int64()),
    }
    return pa.record_batch([arrays[name] for name in schema.names], schema=schema)


def _record_reasons(
    records: Sequence[dict[str, object]], source: Source, columns: Sequence[Column]
) -> dict[int, tuple[str, str]]:
    """Why records are rejected as a whole, by position: a column that has no place, a key without a value."""
    reasons: dict[int, tuple[str, str]] = {}
    known = {column.name for column in columns} | ({EVENT_TS} & {source.event_time.column})
    if any(record.keys() - known for record in records):
        for index, record in enumerate(records):
            for name in record.keys() - known:
                if record[name] is not None:
                    reason = "unexpected column" if usable_name(name) else "unusable column name"
                    reasons[index] = (reason, name[:200])
    for key in source.natural_key:
        for index, record in enumerate(records):
            if record.get(key) is None:
                reasons.setdefault(index, ("null key", key))
    return reasons
