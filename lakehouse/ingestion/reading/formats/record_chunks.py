"""Consecutive records of a landing file as columns; and lines that are none, with the reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Protocol, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.ingestion.reading.formats.json_text import shown_json

# so few that Python's objects of a chunk stay in the processor's cache
CHUNK_ROWS = 8_192
QUARANTINED_TEXT_MAX = 64 << 10

REJECTS_SCHEMA = pa.schema(
    [
        pa.field("event_day", pa.date32()),
        pa.field("landing_file", pa.string(), nullable=False),
        pa.field("landing_line", pa.int64()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string()),
        pa.field("record", pa.string()),
        pa.field("record_bytes", pa.int64()),
    ]
)
Values: TypeAlias = list[object] | pa.Array
# digits that Python drops where it reads a time
_FINER_THAN_US = re.compile(r"[.,]\d{6}\d*[1-9]")
_BY_DETAIL = frozenset(
    {"type conflict", "unexpected column", "unusable column name", "null key", "transform"}
)


class Records(Protocol):
    """Records of one file, in order.

    Attributes:
        lines: their line numbers.
        untyped: whether values are text whose type only a column tells.
    """

    lines: Sequence[int]
    untyped: bool

    def column(self, name: str) -> Values:
        """A field of every record; null where it is missing."""

    def fields(self) -> Mapping[str, Values]:
        """Every field with its values; nulls may be left out."""

    def strangers(self, known: frozenset[str]) -> Mapping[int, str]:
        """Records with a value in a field that is not `known`: position -> the first such field."""

    def unknown(self, known: frozenset[str]) -> Mapping[int, dict[str, object]]:
        """Fields that are not `known` and have a value, by the position of their record."""

    def only(self, positions: Sequence[int]) -> Records:
        """Some of the records."""

    def text(self, position: int) -> bytes:
        """A record as it came, or as JSON where its format is no text."""


class ColumnRecords(Records):
    """Columns of Arrow; see `Records`.

    Args:
        lines: the line numbers of the records.
        columns: by field, in order.
        texts: the records as they came; None where their format is no text.
        untyped: see `Records`.
    """

    def __init__(
        self,
        lines: Sequence[int],
        columns: Mapping[str, pa.Array],
        texts: Sequence[bytes] | pa.BinaryArray | None = None,
        *,
        untyped: bool = False,
    ) -> None:
        self.lines, self.untyped = lines, untyped
        self._columns, self._texts = columns, texts

    def column(self, name: str) -> Values:
        values = self._columns.get(name)
        if values is None:
            return pa.nulls(len(self.lines), pa.string() if self.untyped else pa.null())
        return values

    def fields(self) -> Mapping[str, Values]:
        return self._columns

    def strangers(self, known: frozenset[str]) -> Mapping[int, str]:
        by_position: dict[int, str] = {}
        for name, values in self._columns.items():
            if name not in known and values.null_count < len(values):
                for position in pc.indices_nonzero(values.is_valid()).to_pylist():
                    by_position.setdefault(position, name)
        return by_position

    def unknown(self, known: frozenset[str]) -> Mapping[int, dict[str, object]]:
        by_position: dict[int, dict[str, object]] = {}
        for name, values in self._columns.items():
            if name not in known and values.null_count < len(values):
                for position, value in enumerate(python_values(values)):
                    if value is not None:
                        by_position.setdefault(position, {})[name] = value
        return by_position

    def only(self, positions: Sequence[int]) -> Self:
        where = pa.array(positions, pa.int64())
        texts = self._texts
        if isinstance(texts, pa.BinaryArray):
            texts = texts.take(where)
        elif texts is not None:
            texts = [texts[at] for at in positions]
        columns = {name: values.take(where) for name, values in self._columns.items()}
        lines = [self.lines[at] for at in positions]
        return type(self)(lines, columns, texts, untyped=self.untyped)

    def text(self, position: int) -> bytes:
        if self._texts is None:
            row = {
                name: values.slice(position, 1).to_pylist()[0]
                for name, values in self._columns.items()
            }
            return shown_json(row).encode()
        text = self._texts[position]
        return text if isinstance(text, bytes) else text.as_py()


class AliasedRecords(Records):
    """Records whose columns take the first value of several fields; see `Records`.

    Args:
        records: as they came.
        names: column -> fields that it is taken from, the first first.
    """

    def __init__(self, records: Records, names: Mapping[str, Sequence[str]]) -> None:
        self.lines, self.untyped = records.lines, records.untyped
        self._records, self._names = records, names
        self._all = {name for fields in names.values() for name in fields} | names.keys()
        self._taken: dict[str, Values] = {}
        self._left: dict[int, dict[str, object]] = {}
        for column, fields in names.items():
            self._take(column, fields)

    def _take(self, column: str, fields: Sequence[str]) -> None:
        columns = {name: self._records.column(name) for name in fields}
        filled = {name: column for name, column in columns.items() if _has_values(column)}
        if len(filled) < 2:
            self._taken[column] = next(iter(filled.values()), columns[fields[0]])
            return
        listed = {
            name: column if isinstance(column, list) else python_values(column)
            for name, column in filled.items()
        }
        chosen: list[object] = []
        for position, values in enumerate(zip(*listed.values(), strict=True)):
            first = next((value for value in values if value is not None), None)
            chosen.append(first)
            for name, value in zip(listed, values, strict=True):
                if value is not None and repr(value) != repr(first):
                    self._left.setdefault(position, {})[name] = value
        self._taken[column] = pa.array(chosen, pa.string()) if self.untyped else chosen

    def column(self, name: str) -> Values:
        """A column, or another field, of every record; null where it is missing."""
        if name in self._taken:
            return self._taken[name]
        if name in self._all:
            return [self._left.get(position, {}).get(name) for position in range(len(self.lines))]
        return self._records.column(name)

    def fields(self) -> Mapping[str, Values]:
        """Every column and other field with its values, in the order of the records' fields."""
        of = {name: column for column, names in self._names.items() for name in names}
        taken: dict[str, Values] = {}
        for name, values in self._records.fields().items():
            column = of.get(name, name)
            taken[column] = self._taken.get(column, values)
        return taken

    def strangers(self, known: frozenset[str]) -> Mapping[int, str]:
        left = {position: next(iter(names)) for position, names in self._unknown(known).items()}
        return {**left, **self._records.strangers(known | self._all)}

    def unknown(self, known: frozenset[str]) -> Mapping[int, dict[str, object]]:
        by_position = {**self._unknown(known)}
        for position, fields in self._records.unknown(known | self._all).items():
            by_position[position] = {**by_position.get(position, {}), **fields}
        return by_position

    def _unknown(self, known: frozenset[str]) -> dict[int, dict[str, object]]:
        return {
            position: unknown
            for position, fields in self._left.items()
            if (unknown := {name: column for name, column in fields.items() if name not in known})
        }

    def only(self, positions: Sequence[int]) -> AliasedRecords:
        return AliasedRecords(self._records.only(positions), self._names)

    def text(self, position: int) -> bytes:
        return self._records.text(position)


def _has_values(values: Values) -> bool:
    if isinstance(values, pa.Array):
        return bool(values.null_count < len(values))
    return any(value is not None for value in values)


def python_values(values: pa.Array) -> list[object]:
    """Python values, but text of times in nanoseconds, which Python has not."""
    if pa.types.is_time64(values.type) and values.type.unit == "ns":
        texts = pc.cast(values, pa.string()).to_pylist()
        whole = values.to_pylist()
        return [text if is_finer(text) else value for text, value in zip(texts, whole, strict=True)]
    listed: list[object] = values.to_pylist()
    return listed


def is_finer(text: str | None) -> bool:
    """Whether the text of a time says more than microseconds do."""
    return text is not None and _FINER_THAN_US.search(text) is not None


def reject_kind(reason: str, detail: str | None) -> tuple[str, str]:
    """What rejects are grouped by: the reason, and what the detail begins with where it says more.

    That is a field, or what a transform says.
    """
    return reason, (detail or "").partition(": ")[0] if reason in _BY_DETAIL else ""


@dataclass(slots=True)
class Rejects:
    """Lines that become no row; `line` is None for what is wrong with the file as a whole."""

    days: list[date | None] = field(default_factory=list)
    lines: list[int | None] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    texts: list[bytes | None] = field(default_factory=list)
    sizes: list[int | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.lines)

    def add(
        self,
        line: int | None,
        reason: str,
        detail: str = "",
        text: bytes | None = None,
        *,
        size: int | None = None,
        day: date | None = None,
    ) -> None:
        """Add a line.

        Args:
            line: its number.
            reason: one of few, to group by.
            detail: what exactly.
            text: of the record; its beginning is kept.
            size: bytes of the record, where `text` is not the whole of it.
            day: of its event time, when it has one that can be used.
        """
        self.days.append(day)
        self.lines.append(line)
        self.reasons.append(reason)
        self.details.append(detail)
        self.texts.append(None if text is None else text[:QUARANTINED_TEXT_MAX])
        self.sizes.append(size if text is None or size is not None else len(text))

    def extend_blank(self, lines: Iterable[int]) -> None:
        """Add blank lines."""
        before = len(self.lines)
        self.lines.extend(lines)
        count = len(self.lines) - before
        self.days += [None] * count
        self.reasons += ["blank line"] * count
        self.details += [""] * count
        self.texts += [b""] * count
        self.sizes += [0] * count

    def batch(self, landing_file: str) -> pa.RecordBatch:
        """As the quarantine table keeps them."""
        shown = [
            None if text is None else text.decode("utf-8", errors="backslashreplace")
            for text in self.texts
        ]
        return pa.RecordBatch.from_arrays(
            [
                pa.array(self.days, pa.date32()),
                pa.array([landing_file] * len(self), pa.string()),
                pa.array(self.lines, pa.int64()),
                pa.array(self.reasons, pa.string()),
                pa.array(self.details, pa.string()),
                pa.array(shown, pa.string()),
                pa.array(self.sizes, pa.int64()),
            ],
            schema=REJECTS_SCHEMA,
        )


@dataclass(slots=True)
class Chunk:
    """What some lines of a file are.

    Attributes:
        records: those that could be read; None: none of them.
        rejects: the others.
    """

    records: Records | None
    rejects: Rejects
