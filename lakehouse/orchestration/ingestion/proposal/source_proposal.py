"""A source for sample files: event time, zone, key, bucket and types, and what it would reject."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import get_args

from rich.console import Group, RenderableType

from lakehouse.errors import InvalidInputError
from lakehouse.maintenance.shown_plan import Report, listing
from lakehouse.orchestration.ingestion.drift import usable_name
from lakehouse.orchestration.ingestion.proposal.sampled_records import (
    Field,
    Sample,
    SampledRecords,
)
from lakehouse.orchestration.ingestion.reading.file_index import FileIndex, days_of
from lakehouse.orchestration.ingestion.reading.typing.event_time import EventClock
from lakehouse.orchestration.ingestion.reading.typing.typed_rows import RowTyper
from lakehouse.orchestration.ingestion.reading.typing.value_kinds import fits, inferred
from lakehouse.orchestration.ingestion.source import (
    EVENT_TS,
    RESERVED_COLUMNS,
    Column,
    EventTime,
    Source,
    TimeUnit,
)

_FIRST = date(2000, 1, 1)
_TIME_NAMES = re.compile(r"(?i)(^|_)(event_?)?(ts|time|timestamp|at|date|datetime|when)(_?ms)?$")
_KEY_NAMES = re.compile(r"(?i)(^|_)(id|uuid|guid|key)$|[a-z](Id|ID|Uuid)$")
_BUCKET_NAMES = re.compile(r"(?i)user|customer|account|client|device|session|visitor|member")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_HASHED = ("int", "long", "string")
_BUCKET_BYTES = 128 << 20
_MOST_BUCKETS = 64


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user says; None and nothing are left to the data.

    Attributes:
        event_time: the field that tells when an event happened.
        zone: of times without an offset.
        key: fields that identify an event within its day.
        bucket: the field whose hash splits a day.
    """

    event_time: str | None = None
    zone: str | None = None
    key: tuple[str, ...] = ()
    bucket: str | None = None


@dataclass(frozen=True)
class Proposal(Report):
    """A source, and what would become of the sample under it.

    Attributes:
        source: the proposal.
        records: that were looked at.
        files: of the sample.
        days: of the events.
        rows: that it would take.
        duplicates: of them, events that come again.
        rejected: lines that it would quarantine, by reason.
        examples: of these: file, line, reason, detail.
        problems: of files as a whole, by path.
        notes: what the data could not tell.
        kinds: of the values of each column.
    """

    source: Source
    records: int
    files: int
    days: tuple[date, ...]
    rows: int
    duplicates: int
    rejected: Mapping[str, int]
    examples: tuple[tuple[str, int | None, str, str], ...]
    problems: Mapping[str, str]
    notes: tuple[str, ...]
    kinds: Mapping[str, Mapping[str, int]]

    def title(self) -> str:
        """`Source clicks`."""
        return f"Source {self.source.name}"

    def facts(self) -> Iterable[tuple[str, object]]:
        """What is proposed, then what becomes of the sample."""
        source, time = self.source, self.source.event_time
        unit = "ISO 8601" if time.unit == "iso" else f"{time.unit} since 1970"
        yield "event time", f"{time.column} ({unit}, zone {time.zone})"
        yield "first day", source.first_day
        yield "natural key", ", ".join(source.natural_key) or "none: equal records are one event"
        yield "partitions", f"day(event_ts), bucket({source.buckets}, {source.bucket})"
        yield "looked at", f"{self.records:,} lines of {self.files:,} files"
        yield "rows", f"{self.rows:,} on {len(self.days):,} days"
        yield "duplicates", self.duplicates
        yield "quarantined", sum(self.rejected.values())
        for note in self.notes:
            yield "note", note

    def detail(self) -> RenderableType:
        """Columns, then rejects."""
        kinds = {
            name: ", ".join(f"{kind} {count:,}" for kind, count in sorted(found.items()))
            for name, found in self.kinds.items()
        }
        parts = [
            listing(
                ["column", "type", "#values"],
                [(one.name, one.type, kinds.get(one.name, "")) for one in self.source.columns],
                limit=100,
            )
        ]
        if self.rejected:
            parts.append(listing(["quarantined because", "#lines"], sorted(self.rejected.items())))
            parts.append(listing(["file", "#line", "reason", "detail"], self.examples))
        if self.problems:
            parts.append(listing(["file", "problem"], sorted(self.problems.items())))
        return Group(*parts)

    def to_dict(self) -> dict[str, object]:
        """All of it."""
        source = self.source
        return {
            "name": source.name,
            "event_time": {
                "column": source.event_time.column,
                "zone": source.event_time.zone,
                "unit": source.event_time.unit,
            },
            "first_day": str(source.first_day),
            "natural_key": list(source.natural_key),
            "bucket": source.bucket,
            "buckets": source.buckets,
            "columns": {one.name: one.type for one in source.columns},
            "records": self.records,
            "files": self.files,
            "days": [str(day) for day in self.days],
            "rows": self.rows,
            "duplicates": self.duplicates,
            "rejected": dict(self.rejected),
            "problems": dict(self.problems),
            "notes": list(self.notes),
        }


def propose_source(name: str, sample: Sample, wishes: Wishes, today: date) -> Proposal:
    """Look at a sample twice: what it holds, and what would become of it.

    Args:
        name: of the source.
        sample: its files.
        wishes: what is decided already.
        today: the last day that events may have.

    Raises:
        InvalidInputError: no record, no field that tells an event time, or a wish that is none of
            the fields.
    """
    found = SampledRecords()
    blank = Source(name=name, event_time=EventTime(""), first_day=_FIRST, bucket="")
    for _, chunk in sample.chunks(blank, today, found.problems):
        found.add(chunk)
    if not found.fields:
        why = "; ".join(f"{path}: {text}" for path, text in found.problems.items())
        raise InvalidInputError(f"there is no record in {sample.folder}: {why or 'no fields'}")
    for wish in (wishes.event_time, wishes.bucket, *wishes.key):
        if wish is not None and wish not in found.fields:
            raise InvalidInputError(f"no record has the field {wish!r}: {', '.join(found.fields)}")
    notes: list[str] = []
    time = _event_time(found.fields, wishes, today, notes)
    columns, kinds = _columns(found, time.column, notes)
    key = wishes.key or _key(found, time.column, columns)
    source = Source(
        name=name,
        event_time=time,
        first_day=_FIRST,
        bucket=wishes.bucket or _bucket(found, columns, key, time.column),
        natural_key=key,
        columns=columns,
    )
    return _tried(source, sample, found, tuple(notes), kinds, today)


def _event_time(
    fields: Mapping[str, Field], wishes: Wishes, today: date, notes: list[str]
) -> EventTime:
    zone = wishes.zone or "UTC"
    names = [wishes.event_time] if wishes.event_time else list(fields)
    ranked = []
    for place, name in enumerate(names):
        for unit in get_args(TimeUnit):
            share = _share(fields[name], EventTime(name, zone, unit), today)
            if share >= (0.5 if unit == "iso" else 0.9) or (wishes.event_time and share):
                named = bool(_TIME_NAMES.search(name))
                ranked.append((unit == "iso" or named, named, share, -place, name, unit))
    if not ranked:
        raise InvalidInputError(
            f"no field tells when an event happened: {', '.join(names)}; times are ISO 8601 with a "
            "time of day, or numbers of seconds, milliseconds or microseconds since 1970"
        )
    *_, name, unit = max(ranked)
    if unit == "iso" and wishes.zone is None and _without_offset(fields[name]):
        notes.append(f"times of {name} carry no offset: UTC is assumed, say --zone Europe/Berlin")
    others = sorted({one[4] for one in ranked} - {name})
    if others:
        notes.append(f"other fields with times: {', '.join(others)}")
    return EventTime(name, zone, unit)


def _share(field: Field, time: EventTime, today: date) -> float:
    """How many of a field's values are usable event times."""
    if not field.values or "boolean" in field.kinds:
        return 0.0
    _, bad = EventClock(time, _FIRST, today + timedelta(days=1)).instants(list(field.values))
    return 1 - len(bad) / len(field.values)


def _without_offset(field: Field) -> bool:
    texts = [str(value) for value in field.values if isinstance(value, str)]
    return bool(texts) and not any(re.search(r"(Z|[+-]\d\d:?\d\d)$", one) for one in texts)


def _columns(
    found: SampledRecords, time: str, notes: list[str]
) -> tuple[tuple[Column, ...], dict[str, dict[str, int]]]:
    columns: dict[str, Column] = {}
    for name, field in found.fields.items():
        kind = _fitting(name, field, notes)
        folded = name.casefold()
        reserved = name in RESERVED_COLUMNS and not name == time == EVENT_TS
        if kind is None:
            notes.append(f"{name} has no value: it becomes a column with its first one")
        elif not usable_name(name) or reserved or folded in columns:
            notes.append(f"{name!r} cannot be a column: records with a value in it are quarantined")
        else:
            columns[folded] = Column(name, kind)
    known = [one.name for one in columns.values()]
    return tuple(columns.values()), {name: dict(found.fields[name].kinds) for name in known}


def _fitting(name: str, field: Field, notes: list[str]) -> str | None:
    """The type that takes the field's values: of a mixture a decimal, else JSON text.

    A twentieth of the values may be strangers, which are quarantined.
    """
    kind = inferred(field.kinds)
    if kind is None or field.untyped:
        return kind
    misfits = sum(count for one, count in field.kinds.items() if not fits(one, kind))
    if misfits * 20 <= field.kinds.total():
        return kind
    numbers = [str(value) for value in field.values if not isinstance(value, bool)]
    mixed = ", ".join(f"{one} {count:,}" for one, count in sorted(field.kinds.items()))
    if all(_NUMBER.fullmatch(text) for text in numbers):
        scale = max(len(text.partition(".")[2]) for text in numbers)
        whole = max(len(text.lstrip("-").partition(".")[0]) for text in numbers)
        kind = f"decimal({min(38, max(12, whole + scale))},{scale})"
    else:
        kind = "json"
    notes.append(f"{name} is mixed ({mixed}): {kind} takes all of it")
    return kind


def _key(found: SampledRecords, time: str, columns: Sequence[Column]) -> tuple[str, ...]:
    """A field that is named like a key, has a value in each record, and tells records apart."""
    for column in columns:
        field = found.fields[column.name]
        if (
            column.name != time
            and column.type in _HASHED
            and _KEY_NAMES.search(column.name)
            and field.count == found.records
            and field.distinct is not None
            and len(field.distinct) == len(found.distinct_records)
        ):
            return (column.name,)
    return ()


def _bucket(found: SampledRecords, columns: Sequence[Column], key: Sequence[str], time: str) -> str:
    """What queries are likely to ask for: who did it, else another id, else the key."""

    def rank(column: Column) -> tuple[bool, bool, bool, int]:
        name, different = column.name, found.fields[column.name].distinct or ()
        return (
            bool(_BUCKET_NAMES.search(name)) and len(different) > 1,
            bool(_KEY_NAMES.search(name)) and name not in key,
            name in key,
            len(different),
        )

    usable = [one for one in columns if one.type in _HASHED and one.name != time]
    if not usable:
        raise InvalidInputError(
            "no field can be the bucket, which must be a whole number or a text that is not the "
            "event time"
        )
    return max(usable, key=rank).name


def _warnings(rejected: int, records: int) -> list[str]:
    if rejected * 100 <= records:
        return []
    return [
        f"WARNING: {rejected / records:.0%} of the lines would be quarantined ({rejected:,} of "
        f"{records:,}); the commonest reasons are below, one line of each"
    ]


def _tried(
    source: Source,
    sample: Sample,
    found: SampledRecords,
    notes: tuple[str, ...],
    kinds: Mapping[str, Mapping[str, int]],
    today: date,
) -> Proposal:
    """The proposal with what becomes of the sample under it."""
    clock, index, lines = EventClock(source.event_time, _FIRST, today), FileIndex(), Counter[date]()
    typer = RowTyper(source, source.columns, clock)
    identity = list(source.natural_key) or [one.name for one in source.columns]
    rejected: Counter[str] = Counter()
    examples: dict[tuple[str, str], tuple[str, int | None, str, str]] = {}
    of_kind: Counter[tuple[str, str]] = Counter()
    events: set[tuple[object, ...]] = set()
    rows = 0
    for path, chunk in sample.chunks(source, today, {}):
        rejects = index.add(chunk, replace(source, max_rejects=sample.most_records), clock)
        if chunk.records is not None:
            batch = typer.rows(chunk.records, path, list(index.lines), lines, rejects)
            if batch is not None:
                rows += batch.num_rows
                numbers = days_of(batch[EVENT_TS].cast("int64").to_numpy(zero_copy_only=False))
                told = [batch[name].to_pylist() for name in identity if name in batch.schema.names]
                events.update(zip(numbers.tolist(), *told, strict=True))
        rejected.update(rejects.reasons)
        found_here = zip(rejects.lines, rejects.reasons, rejects.details, strict=True)
        for line, reason, detail in found_here:
            kind = (reason, detail.partition(":")[0])
            of_kind[kind] += 1
            examples.setdefault(kind, (path, line, reason, detail))
    if any("nanoseconds" in detail for _, _, _, detail in examples.values()):
        finer = replace(source, nanoseconds="cut")
        note = 'times are finer than a microsecond: they are cut (nanoseconds="cut")'
        if source.nanoseconds != "cut":
            return _tried(finer, sample, found, (*notes, note), kinds, today)
    days = tuple(sorted(index.lines))
    per_day = sample.size_bytes / max(1, len(days))
    return Proposal(
        source=replace(
            source,
            first_day=days[0] if days else today,
            buckets=max(1, min(_MOST_BUCKETS, round(per_day / _BUCKET_BYTES))),
        ),
        records=found.records + found.unreadable,
        files=len(sample.files),
        days=days,
        rows=rows,
        duplicates=rows - len(events),
        rejected=dict(rejected),
        examples=tuple(examples[kind] for kind, _ in of_kind.most_common(10)),
        problems=found.problems,
        notes=(*notes, *_warnings(rejected.total(), found.records + found.unreadable)),
        kinds=kinds,
    )
