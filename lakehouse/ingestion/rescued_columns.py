"""Columns that were declared late are filled from what `Source.rescue` kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import And, NotNull

from lakehouse.errors import InvalidInputError, NoSuchTableError
from lakehouse.ingestion.drift import redeclared
from lakehouse.ingestion.reading.formats.json_text import exact_json, rest_json
from lakehouse.ingestion.reading.landing_file import format_of
from lakehouse.ingestion.reading.typing.spelled_text import SpelledText
from lakehouse.ingestion.reading.typing.typed_columns import (
    arrow_type,
    typed_column,
    without_nanoseconds,
)
from lakehouse.ingestion.source import EVENT_TS, LANDING_FILE, LANDING_LINE, Column, Source
from lakehouse.ingestion.source_tables import event_ts_in, raw_table, source_columns
from lakehouse.lake import Lakehouse
from lakehouse.maintenance.shown_plan import Report

_KEYS = (EVENT_TS, LANDING_FILE, LANDING_LINE)
_TYPED = (".parquet", ".avro")


@dataclass(frozen=True, slots=True)
class FilledColumns(Report):
    """What was taken from the rest.

    Attributes:
        source: whose table it is.
        column: the one of `Source.rescue`.
        filled: values by the column that took them.
        left: values by the column whose type they still do not fit.
        days: that were written.
        dry_run: nothing was.
    """

    source: Source
    column: str
    filled: Mapping[str, int]
    left: Mapping[str, int]
    days: tuple[date, ...]
    dry_run: bool

    def title(self) -> str:
        """How many values."""
        if not self.filled:
            return f"{self.source.table}: no value of {self.column} fits a column."
        verb = "would be" if self.dry_run else "are"
        count = sum(self.filled.values())
        return f"{self.source.table}: {count:,} values {verb} taken from {self.column}"

    def facts(self) -> Iterator[tuple[str, object]]:
        """Columns, and what stays."""
        for name, count in self.filled.items():
            yield name, f"{count:,} values"
        for name, count in self.left.items():
            yield f"not {name}", f"{count:,} values do not fit its type"
        if self.days:
            yield "days", len(self.days)

    def to_dict(self) -> dict[str, object]:
        return {
            "table": self.source.table,
            "column": self.column,
            "filled": dict(self.filled),
            "left": dict(self.left),
            "days": [str(day) for day in self.days],
            "dry_run": self.dry_run,
        }


def fill_columns(
    lake: Lakehouse,
    source: Source,
    *,
    dry_run: bool = False,
    summary: Mapping[str, str] | None = None,
) -> FilledColumns:
    """Take values that the raw table's columns take today out of the rest; a commit for each day.

    Columns that the source declares and the table has not are added. A value is judged as ingestion
    judges it; what does not fit stays where it is. Done twice it is as if done once.

    Args:
        lake: the tables.
        source: as it is defined now.
        dry_run: count only.
        summary: entries for the summaries of the snapshots.

    Raises:
        InvalidInputError: the source rescues nothing.
        NoSuchTableError: nothing was ingested yet.
        InvalidSchemaError: a declared type is another one than the table's.
    """
    column_of_rest = source.rescue
    if column_of_rest is None:
        raise InvalidInputError(
            f"source {source.name!r} keeps no rest: say rescue='rest', and let days be "
            "materialized again",
            table=source.table,
        )
    if not lake.table_exists(source.table):
        raise NoSuchTableError(f"{source.table} does not exist yet", table=source.table)
    current = source_columns(lake, source)
    redeclaration = redeclared(source, current)
    wider = {column.name: column for column in redeclaration.promoted}
    columns = [*(wider.get(column.name, column) for column in current), *redeclaration.added]
    if not dry_run:
        raw_table(lake, source, redeclaration, lambda _: None)
    table = lake.load_table(source.table)
    filled, left, written = Counter[str](), Counter[str](), list[date]()
    if column_of_rest not in table.schema().column_names:
        return FilledColumns(source, column_of_rest, filled, left, (), dry_run)
    for day in _days(table.scan(NotNull(term=column_of_rest), [EVENT_TS]).to_batches()):
        rows = table.scan(And(event_ts_in([day]), NotNull(term=column_of_rest))).to_arrow()
        changed = _filled(rows, source, columns, filled, left)
        if changed.num_rows:
            written.append(day)
            if not dry_run:
                table.upsert(changed, keys=list(_KEYS), summary=summary)
    shown = dict(filled.most_common()), dict(left.most_common())
    return FilledColumns(source, column_of_rest, *shown, tuple(written), dry_run)


def _days(batches: Iterator[pa.RecordBatch]) -> list[date]:
    days: set[date] = set()
    for batch in batches:
        days.update(pc.unique(pc.cast(batch[EVENT_TS], pa.date32(), safe=False)).to_pylist())
    return sorted(days)


def _filled(
    rows: pa.Table,
    source: Source,
    columns: Sequence[Column],
    filled: Counter[str],
    left: Counter[str],
) -> pa.Table:
    """The rows whose columns take something of their rest, with it."""
    name = str(source.rescue)
    rests: list[dict[str, object]] = []
    for text in rows[name].to_pylist():
        value = exact_json(text.encode())
        rests.append(value if isinstance(value, dict) else {})
    declared = {column.name for column in source.columns}
    changed: set[int] = set()
    for column in columns:
        is_column = column.name in rows.column_names
        before = rows[column.name].to_pylist() if is_column else [None] * rows.num_rows
        is_rescued = False
        for field in source.field_names.get(column.name, (column.name,)):
            at = [n for n, fields in enumerate(rests) if field in fields and before[n] is None]
            is_rescued = is_rescued or any(field in fields for fields in rests)
            texts_at = {
                number
                for number in at
                if type(rests[number][field]) is str
                and _is_text(source, rows[LANDING_FILE][number].as_py())
            }
            for positions, from_text in (
                ([n for n in at if n not in texts_at], False),
                (sorted(texts_at), True),
            ):
                rescued = [rests[number][field] for number in positions]
                usual, bad = SpelledText(source.read).usual(rescued, column.type)
                if source.nanoseconds == "cut":
                    usual = without_nanoseconds(usual)
                typed, misfits = typed_column(
                    usual, column.type, from_text=from_text, guessed=column.name not in declared
                )
                values = typed.to_pylist()
                for number, value in zip(positions, values, strict=True):
                    if value is not None:
                        before[number] = value
                        del rests[number][field]
                        changed.add(number)
                        filled[column.name] += 1
                left[column.name] += len(bad.keys() | misfits.keys())
        if not is_rescued:
            continue
        array = pa.array(before, arrow_type(column.type))
        rows = (
            rows.set_column(rows.column_names.index(column.name), column.name, array)
            if is_column
            else rows.append_column(column.name, array)
        )
    texts = [rest_json(fields) if fields else None for fields in rests]
    rows = rows.set_column(rows.column_names.index(name), name, pa.array(texts, pa.string()))
    for field in [column for column, count in left.items() if not count]:
        del left[field]
    return rows.take(pa.array(sorted(changed), pa.int64()))


def _is_text(source: Source, path: str) -> bool:
    """Whether the fields of a file are text whose type only a column tells."""
    if path.lower().endswith(_TYPED):
        return False
    return format_of(source, path, b"") == "csv"
