"""Records to rows of the raw table, a chunk at a time, and why a record becomes no row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import date

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakehouse.ingestion.drift import usable_name
from lakehouse.ingestion.reading.file_index import count_days, day, day_number, days_of
from lakehouse.ingestion.reading.formats.json_text import rest_json
from lakehouse.ingestion.reading.formats.record_chunks import Records, Rejects, Values
from lakehouse.ingestion.reading.typing.event_time import EventClock
from lakehouse.ingestion.reading.typing.spelled_text import SpelledText
from lakehouse.ingestion.reading.typing.typed_columns import (
    arrow_type,
    picked,
    typed_column,
    without_nanoseconds,
)
from lakehouse.ingestion.source import EVENT_TS, LANDING_FILE, LANDING_LINE, Column, Source

_INSTANT = pa.timestamp("us", "UTC")
_SHOWN = 200
_TIMES = frozenset({"timestamp", "timestamptz", "time"})


class RowTyper:
    """Types the records of one source.

    Args:
        source: how records are read.
        columns: the raw table's source columns.
        clock: tells the instants of records.

    Attributes:
        schema: of the rows.
    """

    def __init__(self, source: Source, columns: Sequence[Column], clock: EventClock) -> None:
        self.schema = rows_schema(columns, source.rescue)
        self._spelled = SpelledText(source.read)
        self._source, self._columns, self._clock = source, tuple(columns), clock
        self._declared = frozenset(column.name for column in source.columns)
        self._known = frozenset(column.name for column in columns) | (
            {EVENT_TS} & {source.event_time.column}
        )

    def rows(
        self,
        records: Records,
        landing_file: str,
        days: Collection[date],
        lines: Counter[date],
        rejects: Rejects,
    ) -> pa.RecordBatch | None:
        """The rows among the records of some days; None when there are none.

        Args:
            records: of a chunk.
            landing_file: where they are from.
            days: of event time (UTC) to take.
            lines: the records of these days are added to it, by day.
            rejects: records of these days that become no row are added to it.
        """
        event_times = records.column(self._source.event_time.column)
        instants, untimed = self._clock.instants(event_times)
        numbers = days_of(instants)
        chosen = np.isin(numbers, np.array([day_number(day) for day in days], np.int64))
        chosen[list(untimed)] = False
        if not chosen.any():
            return None
        if not chosen.all():
            records = records.only(np.flatnonzero(chosen).tolist())
            instants, numbers = instants[chosen], numbers[chosen]
        count_days(lines, numbers)
        arrays, reasons, rescued = self._judged(records)
        for position, (reason, detail) in sorted(reasons.items()):
            text, of_day = records.text(position), day(int(numbers[position]))
            rejects.add(records.lines[position], reason, detail, text, day=of_day)
        good = np.ones(len(instants), np.bool_)
        good[list(reasons)] = False
        if self._source.rescue is not None:
            texts = [rescued.get(position) for position in range(len(instants))]
            arrays[self._source.rescue] = pa.array(texts, pa.string())
        return self._batch(records, landing_file, instants, arrays, good)

    def _judged(
        self, records: Records
    ) -> tuple[dict[str, pa.Array], dict[int, tuple[str, str]], dict[int, str]]:
        """The columns; by position why a record does not fit them, or what they do not take."""
        reasons: dict[int, tuple[str, str]] = {}
        rescued: dict[int, dict[str, object]] = {}
        rescue = self._source.rescue
        if rescue is not None:
            rescued = dict(records.unknown(self._known))
        else:
            for position, name in records.strangers(self._known).items():
                reason = "unexpected column" if usable_name(name) else "unusable column name"
                reasons[position] = (reason, name[:_SHOWN])
        for key in self._source.natural_key:
            for position in _nulls(records.column(key)):
                reasons.setdefault(position, ("null key", key))
        arrays: dict[str, pa.Array] = {}
        for column in self._columns:
            source_values = records.column(column.name)
            values, misspelled = self._spelled.usual(source_values, column.type)
            if self._source.nanoseconds == "cut" and column.type in _TIMES:
                values = without_nanoseconds(values)
            arrays[column.name], bad = typed_column(
                values,
                column.type,
                from_text=records.untyped,
                guessed=column.name not in self._declared,
            )
            if bad and (option := self._spelled.option_of(column.type)):
                bad = {at: f"{why} (by {option})" for at, why in bad.items()}
            bad |= misspelled
            if rescue is not None and bad and column.name not in self._source.natural_key:
                for position, value in zip(bad, picked(source_values, list(bad)), strict=True):
                    rescued.setdefault(position, {})[column.name] = value
                continue
            for position, why in bad.items():
                detail = f"{column.name}: {why}"[:_SHOWN]
                reasons.setdefault(position, ("type conflict", detail))
        rescued_texts: dict[int, str] = {}
        for position, fields in rescued.items():
            try:
                rescued_texts[position] = rest_json(fields)
            except ValueError as error:
                reasons.setdefault(position, ("type conflict", f"{rescue}: {error}"))
        return arrays, reasons, rescued_texts

    def _batch(
        self,
        records: Records,
        landing_file: str,
        instants: npt.NDArray[np.int64],
        arrays: Mapping[str, pa.Array],
        good: npt.NDArray[np.bool_],
    ) -> pa.RecordBatch | None:
        count = int(good.sum())
        if not count:
            return None
        lines = np.fromiter(records.lines, np.int64, len(good))
        made = {
            EVENT_TS: pa.array(instants, pa.int64()).cast(_INSTANT),
            **arrays,
            LANDING_LINE: pa.array(lines, pa.int64()),
        }
        if count < len(good):
            mask = pa.array(good)
            made = {name: array.filter(mask) for name, array in made.items()}
        made[LANDING_FILE] = pa.repeat(pa.scalar(landing_file, pa.string()), count)
        return pa.RecordBatch.from_arrays(
            [made[name] for name in self.schema.names], schema=self.schema
        )


def rows_schema(columns: Sequence[Column], rescue: str | None = None) -> pa.Schema:
    """The raw table's columns as Arrow; `rescue` is that of its source."""
    rescued = () if rescue is None else (pa.field(rescue, pa.string()),)
    return pa.schema(
        [
            pa.field(EVENT_TS, _INSTANT),
            *(pa.field(column.name, arrow_type(column.type)) for column in columns),
            *rescued,
            pa.field(LANDING_FILE, pa.string()),
            pa.field(LANDING_LINE, pa.int64()),
        ]
    )


def _nulls(values: Values) -> list[int]:
    if isinstance(values, pa.Array):
        nulls: list[int] = (
            np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)).tolist()
            if values.null_count
            else []
        )
        return nulls
    if None not in values:
        return []
    return [position for position, value in enumerate(values) if value is None]
