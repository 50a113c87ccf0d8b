"""A landing file, and the ledger: files seen, their states, and their lines for each day.

The ledger of a source is the table `raw.<name>_landing` with one row for each file and day (and one
without a day for the lines that have no usable event time). It answers the three questions of
ingestion: is this file new or changed (path, size, modification time), which files carry events of
day D, and which of those are not in the raw table yet (`pending`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import date

import orjson
import pyarrow as pa

from lakehouse.errors import InvalidInputError
from lakehouse.ingestion.drift import Observed
from lakehouse.ingestion.source import Source

LEDGER_SCHEMA = pa.schema(
    [
        pa.field("landing_file", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("modified_ms", pa.int64(), nullable=False),
        pa.field("event_day", pa.date32()),
        pa.field("lines", pa.int64(), nullable=False),
        pa.field("pending", pa.bool_(), nullable=False),
        pa.field("replaces", pa.bool_(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("quarantined", pa.int64(), nullable=False),
        pa.field("duplicates", pa.int64(), nullable=False),
        pa.field("problem", pa.string()),
        pa.field("kinds", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True, order=True)
class LandingFile:
    """A version of a landing file: another size or time makes another version.

    Attributes:
        path: below the source's landing folder, with forward slashes; bytes that are not UTF-8 are
            spelled with escapes.
        size_bytes: as stored.
        modified_ms: milliseconds since the epoch, by the storage's clock.
        refused: why the file is never opened; None for most.
    """

    path: str
    size_bytes: int
    modified_ms: int
    refused: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """What a file carries of a day.

    Attributes:
        landing_file: path below the landing folder.
        size_bytes: of the version that was read.
        modified_ms: of the version that was read.
        event_day: day of UTC; None: lines without a usable event time, which are in quarantine.
        lines: how many lines.
        pending: not in the raw table yet, or to be taken again; on the row without a day: the file
            is to be read again.
        replaces: lines of the file, of this version or an earlier one, were in the tables, so the
            day has to be replaced, not added to.
        rows: lines that became rows.
        quarantined: lines that were rejected.
        duplicates: lines that repeat an event.
        problem: what is wrong with the file as a whole (on the row without a day).
        kinds: JSON: for each field of the file how many values of each kind (on the row without a
            day).
    """

    landing_file: str
    size_bytes: int
    modified_ms: int
    event_day: date | None
    lines: int
    pending: bool
    replaces: bool = False
    rows: int = 0
    quarantined: int = 0
    duplicates: int = 0
    problem: str | None = None
    kinds: str = "{}"

    @property
    def file(self) -> LandingFile:
        """The version of the file that was read."""
        return LandingFile(self.landing_file, self.size_bytes, self.modified_ms)

    def observed(self) -> Observed:
        """Kinds of values by field."""
        kinds: Observed = orjson.loads(self.kinds)
        return kinds


@dataclass(frozen=True, slots=True)
class LineCount:
    """What became of a file's lines of one day."""

    lines: int = 0
    rows: int = 0
    quarantined: int = 0
    duplicates: int = 0


def landing_folder(landing_root: str, source: Source) -> str:
    """Where the source's files land. Raises InvalidInputError."""
    if not landing_root:
        raise InvalidInputError(
            f"source {source.name!r} has no landing folder: LakehouseResource(landing=...) names "
            "the root of these folders"
        )
    return f"{landing_root.rstrip('/')}/{source.name}"


def day_ranges(days: Sequence[date]) -> list[tuple[date, date]]:
    """Sorted days as runs of consecutive days, first and last inclusive."""
    ranges: list[tuple[date, date]] = []
    for day in days:
        if ranges and day.toordinal() == ranges[-1][1].toordinal() + 1:
            ranges[-1] = (ranges[-1][0], day)
        else:
            ranges.append((day, day))
    return ranges


def day_versions(rows: Sequence[LedgerRow]) -> dict[date, str]:
    """What landed of each day, as text that is equal for equal versions of the files."""
    files: dict[date, list[tuple[str, int, int, int]]] = {}
    for row in rows:
        if row.event_day is not None and row.lines:
            version = (row.landing_file, row.size_bytes, row.modified_ms, row.lines)
            files.setdefault(row.event_day, []).append(version)
    days = {row.event_day for row in rows if row.event_day is not None}
    return {
        day: hashlib.sha256(orjson.dumps(sorted(files.get(day, ())))).hexdigest()[:16]
        for day in sorted(days)
    }


def ledger_to_arrow(rows: Sequence[LedgerRow]) -> pa.Table:
    """Rows as the ledger table keeps them."""
    return pa.Table.from_pylist([asdict(row) for row in rows], schema=LEDGER_SCHEMA)


def ledger_from_arrow(table: pa.Table) -> list[LedgerRow]:
    """Rows of the ledger table, by file and day."""
    rows = [LedgerRow(**row) for row in table.select(LEDGER_SCHEMA.names).to_pylist()]
    return sorted(rows, key=lambda row: (row.landing_file, row.event_day or date.min))
