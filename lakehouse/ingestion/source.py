"""A source: all that distinguishes one feed of raw events from another, as a value."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING, Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lakehouse.errors import InvalidInputError
from lakehouse.ingestion.read_options import ReadOptions
from lakehouse.ingestion.reading.typing.time_patterns import TimePattern
from lakehouse.spec.table_properties import layout_by_age as age_steps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVENT_TS = "event_ts"
LANDING_FILE = "landing_file"
LANDING_LINE = "landing_line"
QUARANTINE_REASON = "quarantine_reason"
"""Column by which `Source.transform` rejects rows."""
RESERVED_COLUMNS = (EVENT_TS, LANDING_FILE, LANDING_LINE)

Format = Literal["auto", "jsonl", "csv"]
TimeUnit = Literal["iso", "s", "ms", "us", "epoch"]
Engine = Literal["auto", "spark", "python"]
DriftPolicy = Literal["evolve", "quarantine"]

COLUMN_TYPES = (
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "string",
    "json",
    "date",
    "timestamp",
    "timestamptz",
    "timestamp_ns",
    "timestamptz_ns",
    "time",
    "binary",
)
UNBUCKETED_TYPES = ("boolean", "float", "double")
"""Types that the bucket transform does not apply to (specification: Partition Transforms)."""
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TERM = re.compile(
    r"(?:(\w+)\s*\(\s*)?(?:(\d+)\s*,\s*)?`?([^`(),]+?)`?(?:\s*,\s*(\d+))?\s*\)?"
    r"(?:\s+as\s+`?([^`\s()]+)`?)?",
    re.IGNORECASE,
)
_SUFFIXES = {"truncate": "trunc", "date": "day"} | {
    name + plural: name for name in ("hour", "day", "month", "year") for plural in ("", "s")
}
_CLOSED_MONTHS = f"30d: month({EVENT_TS})"
_RESCUE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a source.

    Attributes:
        name: as it is spelled in the landing files.
        type: an Iceberg primitive, or `json` for any value kept as its JSON text in a string
            column.
        aliases: other fields that it takes its value from: the first of name and aliases that has
            one. A field that has another value than the one taken stays a field without a column.
    """

    name: str
    type: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EventTime:
    """Where a record says when it happened.

    Attributes:
        column: top-level field of the record.
        zone: IANA zone of values that carry no offset.
        unit: ISO 8601 text, or a number of seconds, milliseconds or microseconds since the epoch,
            beside which text that is no number is ISO 8601, too. `epoch`: each number is of the
            unit that its size tells, of times since 1973.
        format: how text spells it otherwise, such as `dd.MM.yyyy HH:mm`, in Spark's letters as
            `ReadOptions.timestamp_format`; without a time of day it is midnight. None: ISO 8601.
    """

    column: str
    zone: str = "UTC"
    unit: TimeUnit = "iso"
    format: str | None = None

    def __post_init__(self) -> None:
        if self.format is not None:
            TimePattern.parsed("event_time.format", self.format)
            if self.unit != "iso":
                raise InvalidInputError(
                    f"event_time.format={self.format!r}: it is of text, and unit is {self.unit!r}",
                    option="event_time.format",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A feed of raw events that lands as files.

    The raw table `raw.<name>` is partitioned by `day(event_ts)`, and by `bucket(<buckets>,
    <bucket>)` where a bucket is named; `event_ts` is the event time as `timestamptz`, so a day is
    a day of UTC.

    Attributes:
        name: lower-case identifier; names the tables `raw.<name>`, `raw.<name>_quarantine` and
            `raw.<name>_landing`.
        pattern: which files below the landing folder `<landing root>/<name>` belong to it
            (`fnmatch`, `*` crosses folders).
        format: of files that are text. `auto` tells JSON lines, JSON arrays and CSV with a header
            line apart by the file's name and first character. Parquet, Avro and compression (gzip,
            zstd, bzip2, snappy) are recognised by each file's bytes.
        read: how text is read: encoding, dialect of CSV, spelling of numbers and times.
        event_time: where a record says when it happened.
        first_day: events before it are quarantined.
        last_day: events after it are quarantined; None: the day after that of reading (UTC): clocks
            that are ahead lose no events, which wait until their day has come.
        bucket: the column whose hash splits a day; empty: a day is not split.
        buckets: into how many parts.
        partition_by: partition terms of the raw table in place of day and bucket, such as
            `("month(event_ts)", "region")`; of the pipeline's columns and the source's.
        layout_by_age: how closed periods are laid out, as the table property
            `lakehouse.maintenance.layout-by-age` says it; None: by month after 30 days, if the
            table is partitioned by days or hours of `event_ts`; empty: as they were written.
        natural_key: columns that identify an event within its day; empty: two records with equal
            columns are the same event. Of several records for one event the one that landed first
            stays.
        columns: declared columns; empty: all are inferred from the data.
        drift: `evolve` adds columns that were not declared and promotes types; `quarantine` rejects
            such records.
        max_line_bytes: longer lines are quarantined without being parsed.
        max_rejects: a file with more lines that are no record, or have no usable event time, is
            quarantined as a whole, with the number of its lines.
        max_fields: so many columns the raw table has at most; a file with more different fields is
            quarantined as a whole.
        nanoseconds: what becomes of times finer than a microsecond, which columns do not hold:
            `reject` the record, or `cut` the time.
        rescue: a column that keeps, as the text of a JSON object, what the record's columns do not
            take: fields without a column, and values that do not fit theirs, which is null then;
            None: such records are quarantined. Keys (`natural_key`) have to fit.
        transform: a PySpark program: rows as typed (with `event_ts`, `landing_file`,
            `landing_line`, which stay as they are) to rows of the raw table, which gets the columns
            that are added. Lines that it leaves out, or returns with a text in the column
            `quarantine_reason`, are quarantined. None: rows stay as typed.
        engine: who reads, writes and checks: `spark`; `python`, the process of the run; `auto`: the
            process up to 64 MiB of text (packed files count eight times), Spark above that. A
            transform runs on Spark.
        quarantined_percent_max: a warning is raised above this share of quarantined lines of a day.
        max_rejected: a run that would quarantine more percent of its lines fails before it
            publishes anything, and says why; of fewer than 100 lines, more than half.
        fresh_within: the expected rhythm: the raw table is late when nothing was ingested for so
            long; None: no rhythm is expected.
        owners: e-mail addresses, or teams as `team:name`.
        tags: of the assets.
    """

    name: str
    event_time: EventTime
    first_day: date
    bucket: str = ""
    pattern: str = "*"
    format: Format = "auto"
    read: ReadOptions = field(default_factory=ReadOptions)
    last_day: date | None = None
    buckets: int = 4
    partition_by: tuple[str, ...] | None = None
    layout_by_age: str | None = None
    natural_key: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    drift: DriftPolicy = "evolve"
    max_line_bytes: int = 8 << 20
    max_rejects: int = 100_000
    max_fields: int = 1_000
    nanoseconds: Literal["reject", "cut"] = "reject"
    rescue: str | None = None
    transform: Callable[[DataFrame], DataFrame] | None = None
    engine: Engine = "auto"
    quarantined_percent_max: float = 1.0
    max_rejected: float = 5.0
    fresh_within: timedelta | None = None
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        where = f"source {self.name!r}"
        if not _NAME.fullmatch(self.name):
            raise InvalidInputError(f"{where}: the name must match {_NAME.pattern}")
        try:
            ZoneInfo(self.event_time.zone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise InvalidInputError(
                f"{where}: {self.event_time.zone!r} is no IANA time zone; name one such as "
                "'Europe/Berlin' or 'UTC'"
            ) from error
        if self.last_day is not None and self.last_day < self.first_day:
            raise InvalidInputError(
                f"{where}: last_day {self.last_day} is before first_day {self.first_day}"
            )
        if self.engine not in (engines := get_args(Engine)):
            raise InvalidInputError(
                f"{where}: engine={self.engine!r} is none of {', '.join(engines)}", option="engine"
            )
        if self.engine == "python" and self.transform is not None:
            raise InvalidInputError(
                f"{where}: engine='python' cannot run the transform, which is a program of Spark: "
                "say engine='auto' or 'spark'",
                option="engine",
            )
        if self.buckets < 1:
            raise InvalidInputError(f"{where}: buckets must be at least 1, not {self.buckets}")
        if self.partition_by is not None and self.bucket:
            raise InvalidInputError(
                f"{where}: partition_by={self.partition_by!r} and bucket={self.bucket!r}: say "
                f"bucket({self.buckets}, {self.bucket}) in partition_by",
                option="partition_by",
            )
        try:
            age_steps(self.layout_by_age or "")
        except ValueError as error:
            raise InvalidInputError(
                f"{where}: layout_by_age={self.layout_by_age!r} {error}", option="layout_by_age"
            ) from error
        self.read.check(self.format, {column.name: column.type for column in self.columns})
        self._check_columns(where)

    def _check_columns(self, where: str) -> None:
        names = [column.name for column in self.columns]
        times = Counter(map(str.casefold, names))
        if twice := [name for name in names if times[name.casefold()] > 1]:
            raise InvalidInputError(
                f"{where}: the names {', '.join(map(repr, twice))} are the same but for case, and "
                "each column needs one of its own"
            )
        for column in self.columns:
            if column.type not in COLUMN_TYPES and not _DECIMAL.fullmatch(column.type):
                raise InvalidInputError(
                    f"{where}: column {column.name!r} has unknown type {column.type!r}; known: "
                    f"{', '.join(COLUMN_TYPES)}"
                )
            if self.transform is not None and column.type.endswith("_ns"):
                raise InvalidInputError(
                    f"{where}: Spark has no nanoseconds, so the transform would lose those of "
                    f"{column.name!r}: declare it as {column.type.removesuffix('_ns')}"
                )
            if column.name in self.bucketed and column.type in UNBUCKETED_TYPES:
                raise InvalidInputError(
                    f"{where}: the bucket column {column.name!r} is {column.type}, whose values "
                    "have no buckets: declare it as json, or name another column"
                )
            self._check_aliases(where, column, names)
            if column.name in RESERVED_COLUMNS and column.name != self.event_time.column:
                raise InvalidInputError(
                    f"{where}: the pipeline adds the column {column.name!r} itself; it cannot be "
                    "declared"
                )
        if self.rescue is not None:
            self._check_rescue(where, self.rescue)
        if names:
            partitioning = self.partition_columns - {*RESERVED_COLUMNS}
            for name in (*self.natural_key, *sorted(partitioning)):
                if name not in names:
                    raise InvalidInputError(
                        f"{where}: the key or partition column {name!r} is not among the declared "
                        "columns"
                    )

    def _check_aliases(self, where: str, column: Column, names: Sequence[str]) -> None:
        if not isinstance(column.aliases, tuple):
            raise InvalidInputError(
                f"{where}: aliases={column.aliases!r} of {column.name!r}: they are a tuple of names"
            )
        every = [*names, *(alias for column in self.columns for alias in column.aliases)]
        for alias in column.aliases:
            if every.count(alias) > 1:
                wrong = "is another column or alias, too"
            elif alias and alias in {
                self.event_time.column,
                *self.natural_key,
                *self.partition_columns,
            }:
                wrong = f"is named as event time, key or partition column: name {column.name!r}"
            else:
                continue
            raise InvalidInputError(f"{where}: the alias {alias!r} of {column.name!r} {wrong}")

    @property
    def field_names(self) -> dict[str, tuple[str, ...]]:
        """Columns with aliases -> the fields that they take their value from, the first first."""
        return {
            column.name: (column.name, *column.aliases) for column in self.columns if column.aliases
        }

    def _check_rescue(self, where: str, name: str) -> None:
        if not _RESCUE_NAME.fullmatch(name):
            raise InvalidInputError(f"{where}: rescue={name!r} must match {_RESCUE_NAME.pattern}")
        taken = [
            *RESERVED_COLUMNS,
            self.event_time.column,
            *(column.name for column in self.columns),
        ]
        if name.casefold() in {
            column.casefold() for column in (*taken, *self.partition_columns, *self.natural_key)
        }:
            raise InvalidInputError(f"{where}: rescue={name!r} is the name of another column")

    @property
    def partition_terms(self) -> tuple[str, ...]:
        """How the raw table is partitioned."""
        if self.partition_by is not None:
            return self.partition_by
        day = f"day({EVENT_TS})"
        return (day, f"bucket({self.buckets}, {self.bucket})") if self.bucket else (day,)

    @property
    def closed_periods(self) -> str:
        """How closed periods of the raw table are laid out; empty: as they were written."""
        if self.layout_by_age is not None:
            return self.layout_by_age
        times = {
            _SUFFIXES.get(term.function)
            for term in map(_parsed, self.partition_terms)
            if term.column == EVENT_TS
        }
        return _CLOSED_MONTHS if times & {"hour", "day"} else ""

    @property
    def partition_columns(self) -> frozenset[str]:
        """Columns that the raw table is partitioned by."""
        return frozenset(_parsed(term).column for term in self.partition_terms)

    @property
    def bucketed(self) -> frozenset[str]:
        """Those of them whose hash counts."""
        parsed = map(_parsed, self.partition_terms)
        return frozenset(term.column for term in parsed if term.function == "bucket")

    @property
    def partition_names(self) -> frozenset[str]:
        """Names that partition fields of these terms may get; no column may have one."""
        return frozenset(name for term in self.partition_terms for name in _parsed(term).names)

    @property
    def table(self) -> str:
        """Identifier of the raw table."""
        return f"raw.{self.name}"

    @property
    def quarantine_table(self) -> str:
        """Identifier of the table of rejected records."""
        return f"raw.{self.name}_quarantine"

    @property
    def ledger_table(self) -> str:
        """Identifier of the table that knows every landing file and the days it carries."""
        return f"raw.{self.name}_landing"


@dataclass(frozen=True, slots=True)
class _Term:
    """A partition term, before there is a schema to bind it to."""

    function: str
    column: str
    names: tuple[str, ...]


def _parsed(term: str) -> _Term:
    match = _TERM.fullmatch(term.strip())
    if match is None or term.count("(") != term.count(")"):
        raise InvalidInputError(
            f"partition_by: {term!r} is no term such as 'day(event_ts)' or 'bucket(8, user_id)'",
            option="partition_by",
        )
    function, column, alias = (match[1] or "identity").lower(), match[3], match[5]
    if alias:
        return _Term(function, column, (alias,))
    if function == "identity":
        return _Term(function, column, ())
    name = f"{column}_{_SUFFIXES.get(function, function)}"
    number = match[2] or match[4]
    return _Term(function, column, (name, f"{name}_{number}") if number else (name,))
