"""What an ingestion will do, decided from the ledger alone. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

from lakehouse.errors import StorageError
from lakehouse.ingestion.landing_ledger import LandingFile, LedgerRow, LineCount
from lakehouse.ingestion.workers.row_pass import FileTask

Mode = Literal["replace", "increment"]


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """Files to read for some days.

    Attributes:
        days: days of the raw table that are written, sorted.
        rows: what to take, by file and day.
        replace: whether the days are replaced; else rows are added to them.
        missing: files that the days need and that are not in the landing folder any more, with the
            days left alone for it.
    """

    days: tuple[date, ...]
    rows: tuple[LedgerRow, ...]
    replace: bool
    missing: Mapping[str, tuple[date, ...]]

    @property
    def files(self) -> set[str]:
        """Paths of the files of `rows`."""
        return {row.landing_file for row in self.rows}

    @property
    def tasks(self) -> list[FileTask]:
        """One for each file that has lines."""
        days: dict[LandingFile, set[date]] = {}
        for row in self.rows:
            if row.lines and row.event_day is not None:
                days.setdefault(row.file, set()).add(row.event_day)
        return [FileTask(file, frozenset(of_file)) for file, of_file in sorted(days.items())]


def plan_ingest(
    ledger: Sequence[LedgerRow], landed: Set[LandingFile], days: Sequence[date], mode: Mode
) -> IngestPlan:
    """Plan which days are written, and from which landing files.

    Args:
        ledger: its rows of the days, at least.
        landed: versions of files that are in the landing folder now; of the ledger's at least.
        days: requested.
        mode: `replace` writes each requested day again from every file that carries it. `increment`
            adds what is pending and leaves days with nothing pending alone; a file that replaces an
            earlier version of itself makes it a replacement.

    A day that needs a file which is gone, or which is not the version that was indexed, is left as
    it is.
    """
    wanted = set(days)
    rows = [row for row in ledger if row.event_day in wanted]
    replacing = mode == "replace"
    if mode == "increment":
        wanted = {row.event_day for row in rows if row.pending and row.event_day is not None}
        replacing = any(row.pending and row.replaces for row in rows)
        rows = [row for row in rows if row.event_day in wanted and (replacing or row.pending)]
    missing: dict[str, set[date]] = {}
    for row in rows:
        if row.lines and row.file not in landed and row.event_day is not None:
            missing.setdefault(row.landing_file, set()).add(row.event_day)
    left_alone = {day for of_file in missing.values() for day in of_file}
    return IngestPlan(
        days=tuple(sorted(wanted - left_alone)),
        rows=tuple(row for row in rows if row.event_day not in left_alone),
        replace=replacing,
        missing={file: tuple(sorted(of_file)) for file, of_file in sorted(missing.items())},
    )


def settled(
    rows: Sequence[LedgerRow], counts: Mapping[tuple[str, date], LineCount]
) -> list[LedgerRow]:
    """The ledger's rows after their lines were written.

    Raises:
        StorageError: a file did not give the lines that the first pass counted: it changed in
            between. Nothing was written.
    """
    done: list[LedgerRow] = []
    for row in rows:
        if row.event_day is None:
            raise AssertionError(f"lines of {row.landing_file} without a day were planned")
        count = counts.get((row.landing_file, row.event_day), LineCount())
        if count.lines != row.lines:
            raise StorageError(
                f"landing file {row.landing_file} gave {count.lines} lines of {row.event_day} "
                f"where {row.lines} were counted: it changed while it was read; run the ingestion "
                "again",
                retryable=True,
                file=row.landing_file,
            )
        done.append(
            replace(
                row,
                pending=False,
                replaces=False,
                rows=count.rows,
                quarantined=count.quarantined,
                duplicates=count.duplicates,
            )
        )
    return done


def combined(outcomes: Sequence[LedgerRow]) -> LineCount:
    """What became of all lines of these rows."""
    return LineCount(
        lines=sum(row.lines for row in outcomes),
        rows=sum(row.rows for row in outcomes),
        quarantined=sum(row.quarantined for row in outcomes),
        duplicates=sum(row.duplicates for row in outcomes),
    )


def combined_by_day(outcomes: Iterable[LedgerRow], days: Iterable[date]) -> dict[date, LineCount]:
    """What became of the lines of each of the days."""
    by_day: dict[date | None, list[LedgerRow]] = {}
    for row in outcomes:
        by_day.setdefault(row.event_day, []).append(row)
    return {day: combined(by_day.get(day, [])) for day in days}
