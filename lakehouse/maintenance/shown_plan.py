"""How a plan or a result shows itself: as a rich table for people and as JSON for programs."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, cast

import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lakehouse.spec.identifier import Identifier

Progress = Callable[[str, int, int], None]
"""Called as `progress(stage, done, total)` during an execution; each stage counts in its unit."""

_BAR = 20
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def no_progress(stage: str, done: int, total: int) -> None:
    """A progress callback that does nothing."""


def human_bytes(size: int) -> str:
    """`1536` -> `1.5 KiB`; bytes below 1024 stay whole."""
    value = float(size)
    for unit in _UNITS[:-1]:
        if abs(value) < 1024:
            return f"{int(value)} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_UNITS[-1]}"


def human_ms(milliseconds: int) -> str:
    """A duration in its two largest units: `90061000` -> `1d 1h`."""
    seconds = milliseconds // 1000
    parts = [
        (seconds // 86400, "d"),
        (seconds % 86400 // 3600, "h"),
        (seconds % 3600 // 60, "m"),
        (seconds % 60, "s"),
    ]
    shown = [f"{count}{unit}" for count, unit in parts if count]
    return " ".join(shown[:2]) or f"{milliseconds}ms"


def gauge(part: float, whole: float) -> str:
    """A bar of the share, 20 characters wide: `█████               `."""
    filled = min(_BAR, max(0, round(_BAR * part / whole))) if whole else 0
    return "█" * filled + " " * (_BAR - filled)


class Report(ABC):
    """A value to show: `rich.print(report)` for people, `report.to_json()` for programs."""

    action_name: ClassVar[str] = ""
    """What the JSON of a plan says that it is of."""

    @abstractmethod
    def title(self) -> str:
        """One line: what this is, of which table."""

    def to_dict(self) -> dict[str, object]:
        """Plain JSON-able data: all facts, no formatting. 64-bit ids stay integers.

        By default the fields of a dataclass by their names, its identifier as `table`.
        """
        document: dict[str, object] = {"action": self.action_name} if self.action_name else {}
        for field in dataclasses.fields(cast("Any", self)):
            value = getattr(self, field.name)
            if isinstance(value, Identifier):
                document["table"] = str(value)
            elif isinstance(value, tuple):
                document[field.name] = list(value)
            else:
                document[field.name] = dict(value) if isinstance(value, Mapping) else value
        return document

    @abstractmethod
    def facts(self) -> Iterable[tuple[str, object]]:
        """The summary as (label, value) pairs, in the order of interest."""

    def detail(self) -> RenderableType | None:
        """A table of the parts, when there is more than the facts."""
        return None

    def to_json(self) -> str:
        """`to_dict()` as indented JSON."""
        return orjson.dumps(
            self.to_dict(), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str
        ).decode()

    def __rich__(self) -> RenderableType:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim")
        grid.add_column(overflow="fold")
        for label, value in self.facts():
            grid.add_row(
                label,
                Text(
                    f"{value:,}"
                    if isinstance(value, int) and not isinstance(value, bool)
                    else str(value)
                ),
            )
        parts: list[RenderableType] = [Text(self.title(), style="bold"), grid]
        detail = self.detail()
        if detail is not None:
            parts.append(detail)
        return Group(*parts)


def listing(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    limit: int = 20,
    total: int | None = None,
) -> RenderableType:
    """A plain table of at most `limit` rows, then a line that counts those left out.

    `#` before a name: a number column.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            column.removeprefix("#"),
            justify="right" if column.startswith("#") else "left",
            overflow="fold",
        )
    shown = 0
    left = 0
    for row in rows:
        if shown < limit:
            table.add_row(
                *(
                    cell if isinstance(cell, Text) else Text("" if cell is None else str(cell))
                    for cell in row
                )
            )
            shown += 1
        else:
            left += 1
    left = left if total is None else total - shown
    return Group(table, Text(f"... and {left:,} more", style="dim")) if left else table
