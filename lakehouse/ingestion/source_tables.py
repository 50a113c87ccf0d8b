"""The three tables of a source: raw rows, quarantine, ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    LessThan,
    NotNull,
    Or,
)
from pyiceberg.transforms import IdentityTransform

from lakehouse.errors import InvalidSchemaError
from lakehouse.ingestion.definition_changes import record, tell
from lakehouse.ingestion.drift import Drift
from lakehouse.ingestion.landing_ledger import (
    LEDGER_SCHEMA,
    LandingFile,
    LedgerRow,
    day_ranges,
    ledger_from_arrow,
)
from lakehouse.ingestion.landing_listing import VERSION, unindexed
from lakehouse.ingestion.reading.formats.record_chunks import REJECTS_SCHEMA, reject_kind
from lakehouse.ingestion.reading.typing.typed_columns import arrow_type
from lakehouse.ingestion.redefined_source import ledger_property, raw_layout, read_again
from lakehouse.ingestion.source import (
    EVENT_TS,
    LANDING_FILE,
    LANDING_LINE,
    UNBUCKETED_TYPES,
    Column,
    Source,
)
from lakehouse.lake import Lakehouse
from lakehouse.table import Table

# tells a column of JSON text from one of plain text
JSON_DOC = "JSON text"
# tells the column of `Source.rescue` from those that records fill
COMPUTED_DOC = "Computed by the transform of the source."
"""Tells columns that `Source.transform` adds from those that records fill."""
REST_DOC = "What the record's columns did not take, as the text of a JSON object."


_LEDGER_DOCS = {
    "landing_file": "Path of the file below the landing folder.",
    "size_bytes": "Of the version that was read.",
    "modified_ms": "When that version was written, in milliseconds since 1970.",
    "event_day": "Day (UTC) of the file's lines; null: those without a usable event time.",
    "lines": "How many lines of this day the file has.",
    "pending": "Whether they wait for the raw table, or are to be taken again.",
    "replaces": "Whether the day has to be replaced: lines of the file were in it before.",
    "rows": "Lines that became rows.",
    "quarantined": "Lines that went to quarantine.",
    "duplicates": "Lines that repeat an event.",
    "problem": "What is wrong with the file as a whole, on its row without a day.",
    "kinds": "JSON: how many values of each kind each field has, on the row without a day.",
}
_QUARANTINE_DOCS = {
    "event_day": "Day (UTC) of the line; null: it has no usable event time.",
    "landing_file": "The file that it landed in.",
    "landing_line": "Its number; null: the file as a whole has the problem.",
    "reason": "Why it became no row.",
    "detail": "The field, the value, or what the parser said.",
    "record": "The first 64 KiB of its text.",
    "record_bytes": "The size of all of its text.",
}


def ledger_table(lake: Lakehouse, source: Source) -> Table:
    """The ledger, created when missing."""
    made_by = ledger_property(source)
    return _table(lake, source.ledger_table, _with(LEDGER_SCHEMA, _LEDGER_DOCS), (), made_by)


def quarantine_table(lake: Lakehouse, source: Source) -> Table:
    """The quarantine, created when missing."""
    schema = _with(REJECTS_SCHEMA, _QUARANTINE_DOCS)
    return _table(lake, source.quarantine_table, schema, ("month(event_day)",))


def _with(schema: pa.Schema, docs: Mapping[str, str]) -> pa.Schema:
    return pa.schema([field.with_metadata({"doc": docs[field.name]}) for field in schema])


def raw_table(lake: Lakehouse, source: Source, drift: Drift, say: Callable[[str], None]) -> Table:
    """The raw table, created or evolved (columns, types, layout) to hold the data as defined.

    Raises:
        InvalidSchemaError: no record has a partition column, or its type has no buckets.
    """
    layout = raw_layout(source)
    if not lake.table_exists(source.table):
        is_fine = any(column.type.endswith("_ns") for column in source.columns)
        return lake.create_table(
            source.table,
            _raw_schema(source, drift.added),
            partition_by=list(layout.partition_by or ()),
            properties={**({"format-version": "3"} if is_fine else {}), **layout.properties()},
        )
    table = lake.load_table(source.table)
    check_partitioning(source, [*source_columns(lake, source), *drift.added])
    rescue = _rest_to_add(table, source)
    if drift or rescue:
        with table.update_schema() as change:
            if rescue:
                change.add_column(rescue, pa.string(), doc=REST_DOC)
            for column in drift.added:
                change.add_column(
                    column.name,
                    arrow_type(column.type),
                    doc=JSON_DOC if column.type == "json" else None,
                )
            for column in drift.promoted:
                change.update_column(column.name, arrow_type(column.type))
    tell(layout.lay(table), say)
    record(table, layout.definition())
    return table


def _rest_to_add(table: Table, source: Source) -> str | None:
    """The column of what is rescued, where the table has none.

    Raises:
        InvalidSchemaError: the table has a column of that name that records fill.
    """
    name = source.rescue
    if name is None:
        return None
    for field in table.schema().fields:
        if field.name == name and field.doc == REST_DOC:
            return None
        if field.name.casefold() == name.casefold():
            raise InvalidSchemaError(
                f"source {source.name!r}: rescue={name!r} cannot be, {source.table} has a column "
                f"{field.name!r} already. Nothing was written; give rescue another name",
                table=source.table,
                column=field.name,
            )
    return name


def check_partitioning(source: Source, columns: Sequence[Column]) -> None:
    """Refuse partition columns that the raw table has not, or that have no buckets.

    Raises:
        InvalidSchemaError: it names the column and what to do.
    """
    types = {column.name: column.type for column in columns}
    for name in sorted(source.partition_columns - {EVENT_TS, LANDING_FILE, LANDING_LINE}):
        role = "bucket" if name in source.bucketed else "partition"
        if name not in types:
            wrong = f"there is no such column: {', '.join(types) or 'no record has any'}"
        elif role == "bucket" and types[name] in UNBUCKETED_TYPES:
            wrong = f"it is {types[name]}, whose values have no buckets"
        else:
            continue
        raise InvalidSchemaError(
            f"source {source.name!r}: {source.table} cannot be split by the {role} column "
            f"{name!r}: {wrong}. Nothing was written; name another column as {role}",
            table=source.table,
            column=name,
        )


def taken_names(lake: Lakehouse, source: Source) -> set[str]:
    """Names that no new column may have.

    Those of the raw table's partition fields, of every spec, and of columns that the source's
    transform computes.
    """
    names = {*source.partition_names, *(f"{EVENT_TS}_{unit}" for unit in ("day", "month", "year"))}
    if not lake.table_exists(source.table):
        return names
    metadata = lake.load_table(source.table).metadata
    fields = {
        field.name
        for spec in metadata.partition_specs
        for field in spec.fields
        if not isinstance(field.transform, IdentityTransform)
    }
    computed = {field.name for field in metadata.schema().fields if field.doc == COMPUTED_DOC}
    return fields | computed | names


def source_columns(lake: Lakehouse, source: Source, snapshot_id: int | None = None) -> list[Column]:
    """The raw table's source columns, now or at a snapshot; the declared ones if it is missing."""
    if not lake.table_exists(source.table):
        return [column for column in source.columns if column.name != EVENT_TS]
    schema = lake.load_table(source.table).metadata.schema_at(snapshot_id)
    return [
        Column(
            field.name, "json" if field.doc == JSON_DOC else str(field.field_type).replace(" ", "")
        )
        for field in schema.fields
        if field.name not in (EVENT_TS, LANDING_FILE, LANDING_LINE)
        and field.doc not in (REST_DOC, COMPUTED_DOC)
    ]


def read_ledger(
    ledger: Table, where: BooleanExpression | None = None, *, snapshot_id: int | None = None
) -> list[LedgerRow]:
    """Rows of the ledger, by file and day: now, or at a snapshot."""
    if ledger.metadata.current_snapshot_id is None:
        return []
    return ledger_from_arrow(ledger.scan(where, snapshot_id=snapshot_id).to_arrow())


def files_concerned(ledger: Table, days: Sequence[date]) -> set[str]:
    """Files with lines of the days, and those of any day that wait."""
    pending = EqualTo(term="pending", value=True)
    where = Or(pending, day_in(days)) if days else pending
    return set(ledger.scan(where, [LANDING_FILE]).to_arrow()[LANDING_FILE].to_pylist())


def file_problems(ledger: Table) -> dict[str, str]:
    """Files of which something is wrong as a whole, and what."""
    return {
        row.landing_file: row.problem
        for row in read_ledger(ledger, NotNull(term="problem"))
        if row.problem
    }


@dataclass(frozen=True, slots=True)
class RejectKind:
    """Lines that are in quarantine for one reason.

    Attributes:
        reason: as the table says it.
        field: or other beginning of the detail that they share; empty: the reason says it all.
        lines: how many.
        first: one of them, as the table has it.
    """

    reason: str
    field: str
    lines: int
    first: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.reason}: {self.field}" if self.field else self.reason


def reject_kinds(quarantine: Table, where: BooleanExpression | None = None) -> list[RejectKind]:
    """What lines are in quarantine for, the commonest first."""
    if quarantine.metadata.current_snapshot_id is None:
        return []
    counts: Counter[tuple[str, str]] = Counter()
    firsts: dict[tuple[str, str], dict[str, Any]] = {}
    names = ["reason", "detail", LANDING_FILE, LANDING_LINE, "record"]
    for batch in quarantine.scan(where, names).to_batches():
        reasons, details = batch["reason"].to_pylist(), batch["detail"].to_pylist()
        for position, kind in enumerate(map(reject_kind, reasons, details)):
            counts[kind] += 1
            if kind not in firsts:
                (firsts[kind],) = batch.slice(position, 1).to_pylist()
    return [RejectKind(*kind, lines, firsts[kind]) for kind, lines in counts.most_common()]


def rejects_by_day(quarantine: Table, where: BooleanExpression) -> dict[date | None, Counter[str]]:
    """How many lines of each day are in quarantine for each reason; None: lines without a day."""
    by_day: dict[date | None, Counter[str]] = {}
    if quarantine.metadata.current_snapshot_id is not None:
        for batch in quarantine.scan(where, ["event_day", "reason", "detail"]).to_batches():
            rows = zip(*(batch[name].to_pylist() for name in batch.schema.names), strict=True)
            for (day, reason, detail), count in Counter(rows).items():
                kind = reject_kind(reason, detail)
                by_day.setdefault(day, Counter())[": ".join(filter(None, kind))] += count
    return by_day


def pending_days(ledger: Table) -> tuple[date, ...]:
    """Days with lines that are not in the raw table yet, sorted."""
    return tuple(sorted(day for day, _ in oldest_pending(ledger) if day is not None))


def indexed_versions(ledger: Table) -> Iterator[pa.RecordBatch]:
    """Versions of files in the ledger (columns `VERSION`), in batches; files may repeat."""
    if ledger.metadata.current_snapshot_id is not None:
        yield from ledger.scan(select=VERSION).to_batches()


def unread(source: Source, ledger: Table, listing: pa.Table) -> pa.Table:
    """Files of a listing to be read: new or changed ones, and those to be read again.

    Again: a definition of the source that held before made other days or events of their records;
    or their rows without a day are pending.
    """
    fresh = unindexed(listing, indexed_versions(ledger))
    again = read_again(source, ledger, listing)
    if not again.num_rows:
        return fresh
    return pa.concat_tables([fresh, again.join(fresh, keys=VERSION, join_type="left anti")])


def oldest_pending(ledger: Table) -> list[tuple[date | None, LandingFile]]:
    """For each day with lines that are not in the raw table the file of them that landed first."""
    if ledger.metadata.current_snapshot_id is None:
        return []
    columns = ["event_day", "modified_ms", LANDING_FILE, "size_bytes"]
    schema = pa.schema([LEDGER_SCHEMA.field(name) for name in columns])
    oldest = schema.empty_table()
    pending = And(EqualTo(term="pending", value=True), NotNull(term="event_day"))
    for batch in ledger.scan(pending, columns).to_batches():
        together = pa.concat_tables([oldest, pa.Table.from_batches([batch.select(columns)])])
        ordered = together.sort_by([(name, "ascending") for name in columns])
        days = ordered.group_by("event_day", use_threads=False)
        first = days.aggregate([(name, "first") for name in columns[1:]])
        oldest = first.rename_columns(columns).cast(schema)
    return [
        (row["event_day"], LandingFile(row[LANDING_FILE], row["size_bytes"], row["modified_ms"]))
        for row in oldest.to_pylist()
    ]


def event_ts_in(days: Sequence[date]) -> BooleanExpression:
    """Rows whose timestamp lies on one of the days (UTC)."""
    return _any(
        [
            _between(
                EVENT_TS, f"{first}T00:00:00+00:00", f"{last + timedelta(days=1)}T00:00:00+00:00"
            )
            for first, last in day_ranges(days)
        ]
    )


def day_in(days: Sequence[date]) -> BooleanExpression:
    """Rows whose date is one of the days."""
    return _any(
        [
            _between("event_day", str(first), str(last + timedelta(days=1)))
            for first, last in day_ranges(days)
        ]
    )


def _between(column: str, low: str, high: str) -> BooleanExpression:
    return And(GreaterThanOrEqual(term=column, value=low), LessThan(term=column, value=high))


def _any(conditions: list[BooleanExpression]) -> BooleanExpression:
    either = conditions[0]
    for condition in conditions[1:]:
        either = Or(either, condition)
    return either


def _table(
    lake: Lakehouse,
    name: str,
    schema: pa.Schema,
    partition_by: Sequence[str],
    properties: Mapping[str, str] | None = None,
) -> Table:
    return (
        lake.load_table(name)
        if lake.table_exists(name)
        else lake.create_table(name, schema, partition_by=partition_by, properties=properties)
    )


def _raw_schema(source: Source, added: Sequence[Column]) -> pa.Schema:
    columns = [*(column for column in source.columns if column.name != EVENT_TS), *added]
    check_partitioning(source, columns)
    return pa.schema(
        [
            pa.field(
                EVENT_TS,
                pa.timestamp("us", "UTC"),
                nullable=False,
                metadata={"doc": "When the event happened."},
            ),
            *(
                pa.field(
                    c.name,
                    arrow_type(c.type),
                    metadata={"doc": JSON_DOC} if c.type == "json" else None,
                )
                for c in columns
            ),
            *(
                [pa.field(source.rescue, pa.string(), metadata={"doc": REST_DOC})]
                if source.rescue
                else ()
            ),
            pa.field(
                LANDING_FILE,
                pa.string(),
                nullable=False,
                metadata={"doc": "The landing file that the row is from."},
            ),
            pa.field(
                LANDING_LINE,
                pa.int64(),
                nullable=False,
                metadata={"doc": "The line of that file, from 1."},
            ),
        ]
    )
