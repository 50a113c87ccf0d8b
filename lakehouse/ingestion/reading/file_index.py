"""What a landing file carries, without typing it: days, kinds of values, lines that have no day."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import date, timedelta

import numpy as np
import numpy.typing as npt

from lakehouse.ingestion.drift import usable_name
from lakehouse.ingestion.reading.formats.record_chunks import Chunk, Rejects
from lakehouse.ingestion.reading.typing.event_time import EventClock
from lakehouse.ingestion.reading.typing.observed_kinds import column_kinds
from lakehouse.ingestion.reading.typing.spelled_text import SpelledText
from lakehouse.ingestion.source import Source

_DAY_US = 86_400_000_000
_EPOCH = date(1970, 1, 1)
TOO_MANY_REJECTS, TOO_MANY_FIELDS = "too many rejected lines", "too many fields"


class BeyondLimitsError(Exception):
    """A file is not taken record by record; `reason` is one of few, to group by."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


@dataclass(slots=True)
class FileIndex:
    """The sum of the chunks of one file.

    Attributes:
        lines: with an event time, by day of it.
        undated: lines without a usable one.
        kinds: field that can be a column -> how many values of each kind, of records that have an
            event time.
    """

    lines: Counter[date] = field(default_factory=Counter)
    undated: int = 0
    kinds: dict[str, Counter[str]] = field(default_factory=dict)

    def join(self, other: FileIndex, source: Source) -> None:
        """Take the index of the lines that follow in the same file.

        Raises:
            BeyondLimitsError: see `add`.
        """
        self.lines.update(other.lines)
        self.undated += other.undated
        for name, kinds in other.kinds.items():
            self.kinds.setdefault(name, Counter()).update(kinds)
        self._within_limits(source)

    def add(self, chunk: Chunk, source: Source, clock: EventClock) -> Rejects:
        """Take a chunk.

        Args:
            chunk: the next one of the file.
            source: how records are read, and the limits.
            clock: tells their instants.

        Returns:
            Its lines without a usable event time.

        Raises:
            BeyondLimitsError: the file has more of them, or more fields, than the source allows.
        """
        rejects, records = chunk.rejects, chunk.records
        if records is not None:
            instants, untimed = clock.instants(records.column(source.event_time.column))
            for position, bad in sorted(untimed.items()):
                text = records.text(position)
                rejects.add(records.lines[position], bad.reason, bad.detail, text)
            timed = np.ones(len(instants), np.bool_)
            timed[list(untimed)] = False
            count_days(self.lines, days_of(instants[timed]))
            if untimed:
                records = records.only(np.flatnonzero(timed).tolist())
            spelled = SpelledText(source.read)
            for name, values in records.fields().items():
                if usable_name(name):
                    kinds = column_kinds(values, untyped=records.untyped, spelled=spelled)
                    self.kinds.setdefault(name, Counter()).update(kinds)
        self.undated += len(rejects)
        self._within_limits(source)
        return rejects

    def _within_limits(self, source: Source) -> None:
        if self.undated > source.max_rejects:
            raise BeyondLimitsError(TOO_MANY_REJECTS, f"more than {source.max_rejects}")
        if len(self.kinds) > source.max_fields:
            raise BeyondLimitsError(TOO_MANY_FIELDS, f"more than {source.max_fields}")


def days_of(instants: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Days since the epoch of microseconds since the epoch."""
    return instants // _DAY_US


def day(number: int) -> date:
    """The day with this number of days since the epoch."""
    return _EPOCH + timedelta(days=number)


def day_number(day: date) -> int:
    """Days since the epoch."""
    return (day - _EPOCH).days


def count_days(into: Counter[date], numbers: npt.NDArray[np.int64]) -> None:
    """Add how often each day occurs."""
    days, counts = np.unique(numbers, return_counts=True)
    by_number = zip(days.tolist(), counts.tolist(), strict=True)
    into.update({day(number): count for number, count in by_number})
