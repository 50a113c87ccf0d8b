"""A change feed: all that distinguishes one feed of changes from another, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Literal

from lakehouse.errors import InvalidInputError
from lakehouse.ingestion.read_options import ReadOptions
from lakehouse.ingestion.source import EventTime, Format, Source

Envelope = Literal["rows", "debezium"]
DEBEZIUM_DELETES = "__op = 'd'"
_OF_COLUMNS = ("header", "date_format", "timestamp_format")
"""Read options that say something of declared columns, which a feed has none of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFeed:
    """Changes of a table of another database, which land as files.

    The table `raw.<name>` is what that table is: each file is one batch of
    `lakehouse.Table.apply_changes`, one commit. A file that cannot be read to its end, or holds a
    line that is no change, is left alone as a whole, and the step fails and names it: a change that
    is passed over would leave a row that never was.

    >>> from lakehouse.orchestration import ChangeFeed
    >>> feed = ChangeFeed(name="users", keys=("id",), sequence_by=("ts_ms",), envelope="debezium")
    >>> feed.table
    'raw.users'

    Attributes:
        name: lower-case identifier; names the landing folder `<landing root>/<name>` and the tables
            `raw.<name>` and `raw.<name>_landing`.
        keys: columns that tell rows apart.
        sequence_by: columns that order the changes of a key; of Debezium's events also fields of
            the envelope, such as `source.lsn` or `ts_ms`, which become columns (`__source_lsn`).
        envelope: `debezium`: each record is an event of Debezium, as JSON; `rows`: each record is a
            row, of any format.
        delete_when: for rows: SQL that is true for a change that deletes its row; None: none does.
        pattern: which files below the folder belong to it (`fnmatch`).
        format: of files that are text, as of a source.
        read: how text is read: encoding, dialect of CSV, spelling of numbers; of Debezium's events
            the encoding alone.
        rescue: None: a change is applied as a whole or not at all.
        max_line_bytes: of a line.

    Raises:
        InvalidInputError: a value that no feed has; it says which and why.
    """

    name: str
    keys: tuple[str, ...]
    sequence_by: tuple[str, ...]
    envelope: Envelope = "rows"
    delete_when: str | None = None
    pattern: str = "*"
    format: Format = "auto"
    read: ReadOptions = field(default_factory=ReadOptions)
    rescue: str | None = None
    max_line_bytes: int = 8 << 20

    def __post_init__(self) -> None:
        where = f"change feed {self.name!r}"
        if not self.keys or not self.sequence_by:
            raise InvalidInputError(f"{where}: it needs keys and sequence_by")
        if self.envelope == "debezium" and self.delete_when is not None:
            raise InvalidInputError(f"{where}: events of Debezium say themselves what is deleted")
        if self.rescue is not None:
            raise InvalidInputError(
                f"{where}: rescue={self.rescue!r}: a change whose values were set aside would "
                "leave a row that never was, so a file with such a value is left alone as a whole"
            )
        self._check_read(where)
        self.reading()

    def _check_read(self, where: str) -> None:
        for name, value in self.read.used.items():
            why = None
            if self.envelope == "debezium" and name != "encoding":
                why = "events of Debezium are JSON and have types of their own"
            elif name in _OF_COLUMNS:
                why = "it is about declared columns, and a change feed declares none"
            if why is not None:
                raise InvalidInputError(f"{where}: read option {name}={value!r}: {why}")

    @property
    def table(self) -> str:
        """Identifier of the table."""
        return f"raw.{self.name}"

    @property
    def ledger_table(self) -> str:
        """Identifier of the table that knows every file that was applied."""
        return f"raw.{self.name}_landing"

    @property
    def deletes_table(self) -> str:
        """Identifier of the table of deletes that are remembered, unless a property renames it."""
        return f"{self.table}_deletes"

    @property
    def sequence_columns(self) -> tuple[str, ...]:
        """Columns of the table that order the changes."""
        if self.envelope == "rows":
            return self.sequence_by
        return tuple(f"__{path.replace('.', '_')}" for path in self.sequence_by)

    @property
    def deletes(self) -> str | None:
        """SQL that is true for a change that deletes its row."""
        return DEBEZIUM_DELETES if self.envelope == "debezium" else self.delete_when

    def reading(self) -> Source:
        """How its files are listed and read. Raises InvalidInputError for a name that is none."""
        return Source(
            name=self.name,
            event_time=EventTime(""),
            first_day=date.min,
            bucket="",
            pattern=self.pattern,
            format=self.format,
            read=self.read,
            max_line_bytes=self.max_line_bytes,
        )
