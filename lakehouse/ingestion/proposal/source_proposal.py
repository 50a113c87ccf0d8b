"""A source for sample files: event time, zone, key, bucket and types, and what it would reject."""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any, get_args

import pyarrow as pa
from rich.console import Group, RenderableType

from lakehouse.errors import InvalidInputError
from lakehouse.ingestion.drift import usable_name
from lakehouse.ingestion.ingest_log import alike, said_once
from lakehouse.ingestion.proposal.sample_spelling import (
    formats_of,
    number_options,
    only_format,
    reader_options,
    spelled_otherwise,
    text_options,
)
from lakehouse.ingestion.proposal.sampled_records import (
    Field,
    Sample,
    SampledRecords,
    aliased_columns,
)
from lakehouse.ingestion.read_options import ReadOptions
from lakehouse.ingestion.reading.file_index import FileIndex, days_of
from lakehouse.ingestion.reading.formats.record_chunks import reject_kind
from lakehouse.ingestion.reading.typing.event_time import EventClock
from lakehouse.ingestion.reading.typing.spelled_text import SpelledText
from lakehouse.ingestion.reading.typing.typed_columns import typed_column
from lakehouse.ingestion.reading.typing.typed_rows import RowTyper
from lakehouse.ingestion.reading.typing.value_kinds import fits, inferred
from lakehouse.ingestion.source import (
    EVENT_TS,
    RESERVED_COLUMNS,
    Column,
    EventTime,
    Source,
    TimeUnit,
)
from lakehouse.ingestion.workers.landing_reader import AHEAD
from lakehouse.maintenance.shown_plan import Report, human_bytes, listing

_FIRST = date(2000, 1, 1)
_TIME_NAMES = re.compile(r"(?i)(^|_)(event_?)?(ts|time|timestamp|at|date|datetime|when)(_?ms)?$")
_KEY_NAMES = re.compile(r"(?i)(^|_)(id|uuid|guid|key)$|[a-z](Id|ID|Uuid)$")
_MONEY_NAMES = re.compile(
    r"(?i)(^|_)(amount|price|cost|fee|fare|total|tax|vat|net|gross|balance|revenue"
    r"|betrag|preis|summe|saldo|umsatz|netto|brutto|kosten)"
)
_BUCKET_NAMES = re.compile(r"(?i)user|customer|account|client|device|session|visitor|member")
_DATE_LIKE = re.compile(r"\d{1,4}[-./]\w{1,9}[-./]\d{1,4}")
# a code such as 007 is no number
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")
_INSTANTS = ("timestamptz", "timestamp", "date", "time")
_MOST_SCALE, _MOST_DIGITS = 12, 38
_MOST = 0.9
_HASHED = ("int", "long", "string")
_BUCKET_BYTES, _FILE_BYTES = 128 << 20, 32 << 20
_MOST_BUCKETS = 64
_FEW_IDS, _ID = 8, re.compile(r"(?=.*\d)[\w-]+")
_UNITS = {"s": "s", "ms": "ms", "us": "us", "epoch": "s, ms or us"}
_RESTS = ("rest", "rest_of_record", "rest_of_the_record")


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user says; None and nothing are left to the data.

    Attributes:
        event_time: the field that tells when an event happened.
        zone: of times without an offset.
        key: fields that identify an event within its day.
        bucket: the field whose hash splits a day, whatever its volume.
        options: of the reader, as `name=value`; also `event_time_format`.
    """

    event_time: str | None = None
    zone: str | None = None
    key: tuple[str, ...] = ()
    bucket: str | None = None
    options: tuple[str, ...] = ()


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
        rescued: rows that keep something in the column `Source.rescue`, by field.
        examples: of these: file, line, reason, detail.
        problems: of files as a whole, by path.
        notes: what the data could not tell.
        kinds: of the values of each column.
        day_bytes: of landing files, for a day of events.
    """

    source: Source
    records: int
    files: int
    days: tuple[date, ...]
    rows: int
    duplicates: int
    rejected: Mapping[str, int]
    rescued: Mapping[str, int]
    examples: tuple[tuple[str, int | None, str, str], ...]
    problems: Mapping[str, str]
    notes: tuple[str, ...]
    kinds: Mapping[str, Mapping[str, int]]
    day_bytes: int

    def title(self) -> str:
        """`Source clicks`."""
        return f"Source {self.source.name}"

    def facts(self) -> Iterable[tuple[str, object]]:
        """What is proposed, then what becomes of the sample."""
        source, time = self.source, self.source.event_time
        unit = time.format or (
            "ISO 8601" if time.unit == "iso" else f"{_UNITS[time.unit]} since 1970"
        )
        yield "event time", f"{time.column} ({unit}, zone {time.zone})"
        yield "first day", source.first_day
        if used := source.read.used:
            yield "read options", ", ".join(f"{name}={value!r}" for name, value in used.items())
        yield "natural key", ", ".join(source.natural_key) or "none: equal records are one event"
        yield "partitions", ", ".join(source.partition_terms)
        yield "volume", f"{human_bytes(self.day_bytes)} of files a day"
        yield "closed periods", source.closed_periods or "as they were written"
        yield "looked at", f"{self.records:,} lines of {self.files:,} files"
        yield "rows", f"{self.rows:,} on {len(self.days):,} days"
        yield "duplicates", f"{self.duplicates:,} of these rows: events that come again"
        yield "quarantined", sum(self.rejected.values())
        if self.rescued:
            fields = ", ".join(f"{name} of {n:,} rows" for name, n in self.rescued.items())
            yield f"kept in {source.rescue}", fields
        for note in self.notes:
            yield "note", note

    def detail(self) -> RenderableType:
        """Columns, then rejects."""
        kinds = {
            name: ", ".join(f"{kind} {count:,}" for kind, count in sorted(counts.items()))
            for name, counts in self.kinds.items()
        }
        parts = [
            listing(
                ["column", "type", "#values"],
                [
                    (column.name, column.type, kinds.get(column.name, ""))
                    for column in self.source.columns
                ],
                limit=100,
            )
        ]
        if self.rejected:
            parts.append(listing(["quarantined because", "#lines"], sorted(self.rejected.items())))
            parts.append(listing(["file", "#line", "reason", "detail"], self.examples))
        if self.problems:
            parts.append(listing(["file", "problem"], alike(self.problems)))
        return Group(*parts)

    def to_dict(self) -> dict[str, object]:
        source = self.source
        return {
            "name": source.name,
            "event_time": {
                "column": source.event_time.column,
                "zone": source.event_time.zone,
                "unit": source.event_time.unit,
                **({"format": source.event_time.format} if source.event_time.format else {}),
            },
            "read": source.read.used,
            "rescue": source.rescue,
            "first_day": str(source.first_day),
            "natural_key": list(source.natural_key),
            "partition_by": list(source.partition_terms),
            "layout_by_age": source.closed_periods,
            "day_bytes": self.day_bytes,
            "columns": {column.name: column.type for column in source.columns},
            "aliases": {
                column.name: list(column.aliases) for column in source.columns if column.aliases
            },
            "records": self.records,
            "files": self.files,
            "days": [str(day) for day in self.days],
            "rows": self.rows,
            "duplicates": self.duplicates,
            "rejected": dict(self.rejected),
            "rescued": dict(self.rescued),
            "problems": dict(self.problems),
            "notes": list(self.notes),
        }


def propose_source(name: str, sample: Sample, wishes: Wishes, today: date) -> Proposal:
    """Look at a sample: its notation, what it holds, and what would become of it.

    Args:
        name: of the source.
        sample: its files.
        wishes: what is decided already.
        today: the last day that events may have.

    Raises:
        InvalidInputError: no record, no field that tells an event time, or a wish that is none of
            the fields.
    """
    notes: list[str] = []
    options, event_time_format = reader_options(wishes.options)
    blank = Source(name=name, event_time=EventTime(""), first_day=_FIRST)
    read = text_options(sample, blank, options, today, notes)
    unnamed = () if read.header else _unnamed_columns(sample, blank, read, today)
    blank = replace(blank, read=read, columns=unnamed)
    records = _looked_at(sample, blank, today)
    if not records.fields:
        why = said_once(records.problems)
        raise InvalidInputError(f"there is no record in {sample.folder}: {why or 'no fields'}")
    aliased = aliased_columns(records, sample, blank, today, notes) if read.header else ()
    if aliased:
        blank = replace(blank, columns=aliased)
        records = _looked_at(sample, blank, today)
    numbers = number_options(records.fields, read, options, notes)
    if numbers != read:
        read = numbers
        records = _looked_at(sample, replace(blank, read=read), today)
    for wish in (wishes.event_time, wishes.bucket, *wishes.key):
        if wish is not None and wish not in records.fields:
            raise InvalidInputError(
                f"no record has the field {wish!r}: {', '.join(records.fields)}"
            )
    formats = {name: of for name, field in records.fields.items() if (of := formats_of(field))}
    time = _event_time(records, wishes, event_time_format, formats, today, notes)
    of_time = records.fields[time.column]
    aliases = {column.name: column.aliases for column in aliased}
    spelled = (time.column, *aliases.get(time.column, ()))[-1]
    is_csv = of_time.untyped and "header" not in options
    if is_csv and _share(Field(values=[spelled]), time, today):
        unnamed_wishes = replace(wishes, options=(*wishes.options, "header=false"))
        proposal = propose_source(name, sample, unnamed_wishes, today)
        unheaded = (
            f"the first line has an event time, {spelled!r}, so it is an event, and no header: "
            "name the columns in the definition, which are those of the file in their order"
        )
        return replace(proposal, notes=(unheaded, *proposal.notes))
    if without := records.records - of_time.count:
        # what is quarantined anyway says nothing of types
        records = _looked_at(sample, replace(blank, read=read), today, dated=time.column)
        records.unreadable += without
        text = (records.undated or b"").decode("utf-8", "replace")
        notes.append(
            f"{without:,} records have no {time.column}, such as {text[:60]!r}: totals and "
            "headings are no events, and stay in quarantine"
        )
    read = _with_formats(read, formats, options, notes)
    columns, kinds = _columns(records, time.column, read, formats, notes)
    columns = tuple(replace(column, aliases=aliases.get(column.name, ())) for column in columns)
    notes += [
        note
        for column in columns
        if column.type == "string"
        and (note := spelled_otherwise(column.name, records.fields[column.name]))
    ]
    key = wishes.key or _key(records, time.column, columns)
    source = Source(
        name=name,
        event_time=time,
        first_day=_FIRST,
        natural_key=key,
        columns=columns,
        read=read,
        rescue=next(name for name in _RESTS if name not in records.fields),
    )
    tried = _tried(source, sample, records, tuple(notes), kinds, today)
    bucket = wishes.bucket or _bucket(records, columns, key, time.column)
    laid_out = _laid_out(tried.source, tried.day_bytes, tried.days, bucket, wishes.bucket)
    return replace(tried, source=laid_out)


def _unnamed_columns(
    sample: Sample, blank: Source, read: ReadOptions, today: date
) -> tuple[Column, ...]:
    """As many columns as the first line of CSV has fields, which no header names."""
    named = replace(blank, read=replace(read, header=True))
    for _, chunk in sample.chunks(named, today, {}):
        if chunk.records is not None and chunk.records.untyped:
            numbers = range(1, len(chunk.records.fields()) + 1)
            return tuple(Column(f"column{number}", "string") for number in numbers)
    return ()


def _looked_at(
    sample: Sample, source: Source, today: date, *, dated: str | None = None
) -> SampledRecords:
    """The sum of the sample's records as a source reads them; `dated`: of those with this field."""
    records = SampledRecords(spelled=SpelledText(source.read), dated=dated)
    for _, chunk in sample.chunks(source, today, records.problems):
        records.add(chunk)
    return records


def _with_formats(
    read: ReadOptions,
    formats: Mapping[str, Mapping[str, Sequence[str]]],
    options: Mapping[str, object],
    notes: list[str],
) -> ReadOptions:
    """The options with formats of dates and timestamps that all fields with some fit."""
    for option, has_time in (("date_format", False), ("timestamp_format", True)):
        of = {
            name: orders
            for name, orders in formats.items()
            if has_time == (":" in next(iter(orders.values()))[0])
        }
        if option not in options and (form := only_format(of, notes)):
            read = replace(read, **{option: form})  # type: ignore[arg-type]
    return read


def _event_time(
    records: SampledRecords,
    wishes: Wishes,
    event_time_format: str | None,
    formats: Mapping[str, Mapping[str, Sequence[str]]],
    today: date,
    notes: list[str],
) -> EventTime:
    zone, fields = wishes.zone or "UTC", records.fields
    names = [wishes.event_time] if wishes.event_time else list(fields)
    ranked: list[tuple[Any, ...]] = []
    for place, name in enumerate(names):
        orders = formats.get(name, {})
        sure = [forms[0] for forms in orders.values()] if len(orders) == 1 else []
        spellings = [EventTime(name, zone, unit) for unit in get_args(TimeUnit)]
        spellings += [EventTime(name, zone, format=pattern) for pattern in sure]
        if event_time_format is not None:
            spellings = [EventTime(name, zone, format=event_time_format)]
        for time in spellings:
            unit = time.unit
            if unit == "epoch" and any(rank[-2] == name for rank in ranked):
                continue  # one unit takes them
            share = _share(fields[name], time, today)
            if share >= (0.5 if unit == "iso" else 0.9) or (wishes.event_time and share):
                named = bool(_TIME_NAMES.search(name))
                timed = share * fields[name].count / records.records
                exact = time.format is None or ":" in time.format
                rank = (exact, timed >= _MOST, unit == "iso" or named, named, timed, -place)
                ranked.append((*rank, name, time))
    if not ranked:
        raise InvalidInputError(
            f"no field tells when an event happened: {', '.join(names)}; times are ISO 8601 with a "
            "time of day, or numbers of seconds, milliseconds or microseconds since 1970"
            + _spelled_otherwise({name: fields[name] for name in names}, formats)
        )
    chosen: EventTime
    *_, name, chosen = max(ranked, key=lambda rank: rank[:-1])
    if chosen.unit == "epoch":
        notes.append(f"{name} has numbers of several units: each is of the one its size tells")
    if chosen.unit == "iso" and wishes.zone is None and _without_offset(fields[name]):
        notes.append(f"times of {name} carry no offset: UTC is assumed, say --zone Europe/Berlin")
    others = sorted({rank[-2] for rank in ranked} - {name})
    if others:
        notes.append(f"other fields with times: {', '.join(others)}")
    return chosen


def _spelled_otherwise(
    fields: Mapping[str, Field], formats: Mapping[str, Mapping[str, Sequence[str]]]
) -> str:
    """Which fields look like times in another notation, with an example of each."""
    for name in fields:
        if len(forms := formats.get(name, {})) > 1:
            either = " or ".join(form[0] for form in forms.values())
            value = fields[name].values[0]
            return (
                f"; {name} ({value!r}) may be {either}, and the sample does not tell: say "
                "--option event_time_format=..."
            )
    proposals = [
        f"{name} ({value!r})"
        for name, field in fields.items()
        for value in field.values[:1]
        if isinstance(value, str) and _DATE_LIKE.match(value)
    ]
    if not proposals:
        return ""
    return f"; spelled otherwise: {', '.join(proposals)}: say --option event_time_format=..."


def _share(field: Field, time: EventTime, today: date) -> float:
    """How many of a field's values are usable event times."""
    if not field.values or "boolean" in field.kinds:
        return 0.0
    _, bad = EventClock(time, _FIRST, today + AHEAD).instants(list(field.values))
    return 1 - len(bad) / len(field.values)


def _without_offset(field: Field) -> bool:
    texts = [str(value) for value in field.values if isinstance(value, str)]
    return bool(texts) and not any(re.search(r"(Z|[+-]\d\d:?\d\d)$", text) for text in texts)


def _columns(
    records: SampledRecords,
    time: str,
    read: ReadOptions,
    formats: Mapping[str, Mapping[str, Sequence[str]]],
    notes: list[str],
) -> tuple[tuple[Column, ...], dict[str, dict[str, int]]]:
    columns: list[Column] = []
    empty: list[str] = []
    for name, field in records.fields.items():
        if not field.kinds and not read.header:
            columns.append(Column(name, "string"))  # each has its place
        elif not field.kinds:
            empty.append(name)
        elif not usable_name(name) or (name in RESERVED_COLUMNS and not name == time == EVENT_TS):
            notes.append(
                f"{name!r} cannot be a column: {field.count:,} records keep it among the rest"
            )
        else:
            fitting = {form for forms in formats.get(name, {}).values() for form in forms}
            if {read.date_format, read.timestamp_format} & fitting:
                kind = "date" if read.date_format in fitting else "timestamp"
                # without an event time there is no row, and no rest
                if name != time and (odd := _misfits(kind, field, read)):
                    notes.append(
                        f"{name}: {kind} leaves values such as {min(map(str, odd))!r} to the rest, "
                        "string would take them"
                    )
            else:
                kind = _fitting(name, field, read, notes)
            columns.append(Column(name, kind))
    if empty:
        names = ", ".join(map(repr, empty))
        notes.append(f"no value in {names}: each becomes a column with its first one")
    return tuple(columns), {
        column.name: dict(records.fields[column.name].kinds) for column in columns
    }


def _fitting(name: str, field: Field, read: ReadOptions, notes: list[str]) -> str:
    """The type that takes the field's values: of a mixture a decimal or a time, else text.

    A twentieth of the values may be strangers, which are kept among the rest.
    """
    kind = inferred(field.kinds) or "string"
    money = _money(name, field, read) if "double" in field.kinds else None
    if field.untyped and "code" in field.kinds and _all_signed(field, read):
        # +100 beside -20 is no telephone number
        kind = "double" if "double" in field.kinds else "long"
        if not _misfits(kind, field, read):
            return (kind == "double" and money) or kind
    if _takes(kind, field, read) or (field.untyped and kind == "string"):
        return (kind == "double" and money) or kind
    mixed = ", ".join(f"{seen} {count:,}" for seen, count in sorted(field.kinds.items()))
    exact = [*_decimal(field), *(instant for instant in _INSTANTS if instant in field.kinds)]
    whole = next((number for number in exact if _takes(number, field, read)), None)
    any_text = "string" if field.untyped else "json"
    strangers = sum(count for seen, count in field.kinds.items() if not fits(seen, kind))
    if whole is None and 0 < strangers * 20 <= field.kinds.total():
        kind = (kind == "double" and money) or kind
        notes.append(
            f"{name} is mixed ({mixed}): {kind} leaves {strangers:,} values to the rest, "
            f"{any_text} would take them"
        )
        return kind
    kind = whole or any_text
    notes.append(f"{name} is mixed ({mixed}): {kind} takes all of it")
    return kind


def _all_signed(field: Field, read: ReadOptions) -> bool:
    """Whether values are numbers of which some are negative, and all others but 0 have a plus."""
    texts = pa.array(sorted(map(str, field.distinct or ())), pa.string())
    plain = SpelledText(read).numbers(texts).to_pylist()
    signed = [number for number in plain if number is not None and number.strip("0.")]
    return (
        len(plain) > 0
        and None not in plain
        and all(number[0] in "+-" for number in signed)
        and any(number[0] == "-" for number in signed)
        and not any(re.match(r"[+-]0\d", number) for number in signed)
    )


def _takes(column_type: str, field: Field, read: ReadOptions) -> bool:
    """Whether a column of this type holds all values that were seen."""
    if not all(fits(kind, column_type) for kind in field.kinds):
        return False
    if len(field.kinds) == 1 and not {"large", "huge"} & field.kinds.keys():
        return True
    return not _misfits(column_type, field, read)


def _misfits(column_type: str, field: Field, read: ReadOptions) -> list[object]:
    """Values that were seen and that a column of this type does not hold."""
    seen = list(field.values if field.distinct is None else field.distinct)
    usual, misspelled = SpelledText(read).usual(seen, column_type)
    odd = {*misspelled, *typed_column(usual, column_type, from_text=field.untyped)[1]}
    return [seen[at] for at in sorted(odd)]


def _decimal(field: Field) -> list[str]:
    """The decimal type of numbers some of which are text; none for codes (007) and other text."""
    texts = [_plain(value) for value in field.distinct or ()]
    plain = texts and all(map(_NUMBER.fullmatch, texts))
    if field.untyped or "boolean" in field.kinds or not plain:
        return []
    scale = max(len(text.partition(".")[2]) for text in texts)
    whole = max(len(text.lstrip("-").partition(".")[0]) for text in texts)
    if scale > _MOST_SCALE or whole + scale > _MOST_DIGITS:
        return []
    room = min(_MOST_DIGITS, max(12, whole + scale + 2))
    return [f"decimal({room},{scale})"]


def _money(name: str, field: Field, read: ReadOptions) -> str | None:
    """The decimal type of fractions in CSV that are written as money is, or named so."""
    if not field.untyped:
        return None
    texts = pa.array(sorted(map(str, field.distinct or ())), pa.string())
    numbers = SpelledText(read).numbers(texts).drop_null().to_pylist()
    digits = [number.lstrip("+-").partition(".") for number in numbers]
    scales = {len(fraction) for _, _, fraction in digits}
    room = max(12, max((len(whole) for whole, _, _ in digits), default=0) + 4)
    is_money = scales == {2} or (max(scales, default=3) <= 2 and _MONEY_NAMES.search(name))
    if not is_money or room > _MOST_DIGITS or any("e" in number.lower() for number in numbers):
        return None
    return f"decimal({room},2)"


def _plain(value: object) -> str:
    """A number without an exponent."""
    return f"{Decimal(repr(value)):f}" if isinstance(value, float) else str(value)


def _key(records: SampledRecords, time: str, columns: Sequence[Column]) -> tuple[str, ...]:
    """A field that is named like a key, has a value in each record, and tells records apart."""
    for column in columns:
        field = records.fields[column.name]
        if (
            column.name != time
            and column.type in _HASHED
            and _KEY_NAMES.search(column.name)
            and field.count == records.records
            and field.distinct is not None
            and len(field.distinct) == len(records.distinct_records)
        ):
            return (column.name,)
    return ()


def _bucket(
    records: SampledRecords, columns: Sequence[Column], key: Sequence[str], time: str
) -> str:
    """What queries are likely to ask for: who did it, else another id, else the key; or none."""

    def rank(column: Column) -> tuple[bool, bool, bool, bool, int]:
        name, different = column.name, records.fields[column.name].distinct or ()
        return (
            records.fields[name].count * 2 >= records.records,
            bool(_BUCKET_NAMES.search(name)) and len(different) > 1,
            name not in key
            and (bool(_KEY_NAMES.search(name)) or _identifies(records.fields[name])),
            name in key,
            len(different),
        )

    usable = [column for column in columns if column.type in _HASHED and column.name != time]
    return max(usable, key=rank).name if usable else ""


def _identifies(field: Field) -> bool:
    """Whether values look like ids of what records are about, whatever the field is called.

    They come again, and are codes or whole numbers of about one length.
    """
    texts = [str(value) for value in field.distinct or ()]
    lengths = {len(text) for text in texts}
    return (
        _FEW_IDS <= len(texts) <= field.count / 2
        and all(map(_ID.fullmatch, texts))
        and max(lengths) - min(lengths) <= 1 < min(lengths)
        and not any(map(_DATE_LIKE.match, texts))
    )


def _laid_out(
    source: Source, day_bytes: int, days: Sequence[date], bucket: str, wished: str | None
) -> Source:
    """The source with partitions that its volume fills.

    Files of closed periods are to have `_FILE_BYTES` at least. A sample of less than four weeks may
    be a part of what lands, so it makes periods no longer than a day.
    """
    buckets = min(_MOST_BUCKETS, day_bytes // _BUCKET_BYTES)
    if bucket and (buckets >= 2 or wished):
        name = bucket if bucket.isidentifier() else f"`{bucket}`"
        terms = f"day({EVENT_TS})", f"bucket({max(2, buckets)}, {name})"
        return replace(source, partition_by=terms)
    short = not days or (days[-1] - days[0]).days < 28
    if short or 30 * day_bytes >= _FILE_BYTES:
        return replace(source, partition_by=(f"day({EVENT_TS})",))
    if 365 * day_bytes >= _FILE_BYTES:
        year = f"30d: year({EVENT_TS})"
        return replace(source, partition_by=(f"month({EVENT_TS})",), layout_by_age=year)
    return replace(source, partition_by=(f"year({EVENT_TS})",))


def _warnings(source: Source, rejected: int, records: int) -> list[str]:
    if rejected * 100 <= records:
        return []
    fails = rejected * 100 > source.max_rejected * records
    return [
        f"WARNING: {rejected / records:.0%} of the lines would be quarantined ({rejected:,} of "
        f"{records:,}); the commonest reasons are below, one line of each"
        + (f"; max_rejected={source.max_rejected:g} lets no such run through" if fails else "")
    ]


def _long_ago(by_day: Mapping[date, int]) -> list[str]:
    """What to do about few events a year or more before all others: of clocks that were reset."""
    days, few = sorted(by_day), 0
    for before, after in pairwise(days):
        few += by_day[before]
        if few * 20 > sum(by_day.values()):
            break
        if after - before > timedelta(days=365):
            return [
                f"{few:,} events of {days[0]} to {before} lie long before all others: "
                f"a first_day of {after} would leave them in quarantine"
            ]
    return []


def _beyond_limits(source: Source, indexes: Mapping[str, FileIndex]) -> list[str]:
    """Files of which nothing would be taken."""
    limits = f"max_fields={source.max_fields:,} or max_rejects={source.max_rejects:,}"
    return [
        f"{path}: {len(index.kinds):,} fields, {index.undated:,} lines without an event time; "
        f"more than {limits}, so it would be quarantined as a whole"
        for path, index in indexes.items()
        if len(index.kinds) > source.max_fields or index.undated > source.max_rejects
    ]


def _comparable(column: pa.Array) -> list[object]:
    """The values, each NaN the same object: as in duplicates, one is equal to another."""
    values: list[object] = column.to_pylist()
    if not pa.types.is_floating(column.type):
        return values
    return [math.nan if isinstance(value, float) and math.isnan(value) else value
            for value in values]  # fmt: skip


def _tried(
    source: Source,
    sample: Sample,
    records: SampledRecords,
    notes: tuple[str, ...],
    kinds: Mapping[str, Mapping[str, int]],
    today: date,
) -> Proposal:
    """The proposal with what becomes of the sample under it."""
    clock = EventClock(source.event_time, _FIRST, today + AHEAD)
    typer = RowTyper(source, source.columns, clock)
    identity = list(source.natural_key) or [column.name for column in source.columns]
    identity += [] if source.natural_key or source.rescue is None else [source.rescue]
    rescued: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    examples: dict[tuple[str, str], tuple[str, int | None, str, str]] = {}
    of_kind: Counter[tuple[str, str]] = Counter()
    events: set[tuple[object, ...]] = set()
    by_day: Counter[date] = Counter()
    indexes: dict[str, FileIndex] = {}
    rows = 0
    limits = replace(source, max_rejects=sys.maxsize, max_fields=sys.maxsize)
    for path, chunk in sample.chunks(source, today, {}):
        index = indexes.setdefault(path, FileIndex())
        rejects = index.add(chunk, limits, clock)
        if chunk.records is not None:
            batch = typer.rows(chunk.records, path, list(index.lines), by_day, rejects)
            if batch is not None:
                rows += batch.num_rows
                if source.rescue is not None:
                    for text in batch[source.rescue].drop_null().to_pylist():
                        rescued.update(json.loads(text).keys())
                numbers = days_of(batch[EVENT_TS].cast("int64").to_numpy(zero_copy_only=False))
                keys = [_comparable(batch[name]) for name in identity if name in batch.schema.names]
                events.update(zip(numbers.tolist(), *keys, strict=True))
        rejected.update(rejects.reasons)
        rejected_lines = zip(rejects.lines, rejects.reasons, rejects.details, strict=True)
        for line, reason, detail in rejected_lines:
            kind = reject_kind(reason, detail)
            of_kind[kind] += 1
            examples.setdefault(kind, (path, line, reason, detail))
    if any("nanoseconds" in detail for _, _, _, detail in examples.values()):
        finer = replace(source, nanoseconds="cut")
        note = 'times are finer than a microsecond: they are cut (nanoseconds="cut")'
        if source.nanoseconds != "cut":
            return _tried(finer, sample, records, (*notes, note), kinds, today)
    days = tuple(sorted(by_day))
    return Proposal(
        source=replace(
            source,
            first_day=days[0] if days else today,
        ),
        records=records.records + records.unreadable,
        files=len(sample.files),
        days=days,
        rows=rows,
        duplicates=rows - len(events),
        rejected=dict(rejected),
        rescued=dict(rescued.most_common()),
        examples=tuple(examples[kind] for kind, _ in of_kind.most_common(10)),
        problems=records.problems,
        notes=(
            *notes,
            *_long_ago(by_day),
            *_beyond_limits(source, indexes),
            *_warnings(source, rejected.total(), records.records + records.unreadable),
        ),
        kinds=kinds,
        day_bytes=sample.size_bytes // max(1, len(days)),
    )
