"""What queries of a table filtered by and what planning skipped for them, from scan reports.

Pure: reports in.

Reports are those of `lakehouse.scan.reports.listeners`, `ScanReport.to_dict()` each: lines of a
JSON file, or rows of a table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

_TEXT = re.compile(r"'(?:[^']|'')*'")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b")
_LIST = re.compile(r"\(\?(?:, \?)*\)")
_NAME = re.compile(r"[^\W\d][\w.]*")
_EVERYTHING = "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredicateUse:
    """Scans whose predicates differ in their literals alone.

    Attributes:
        predicate: with `?` for literals; `true` is no filter.
        scans: how many came.
        files: data files that the table had, summed over them; `planned` of those were to be read.
        planning_ms: median.
    """

    predicate: str
    scans: int
    files: int
    planned: int
    planning_ms: float

    @property
    def pruned(self) -> float:
        """Share of data files that planning skipped."""
        return 1 - self.planned / self.files if self.files else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanUse:
    """How the scans of one table used its columns.

    Attributes:
        scans: how many.
        first_ms: when the first came, milliseconds since the epoch; None: none did.
        predicates: the most frequent first.
        columns: filtered by, the most frequent first, with how many scans did.
    """

    scans: int = 0
    first_ms: int | None = None
    predicates: tuple[PredicateUse, ...] = ()
    columns: tuple[tuple[str, int], ...] = ()
    planning_ms: float = field(default=0.0)

    @property
    def pruned(self) -> float:
        """Share of data files that planning skipped, over scans with a predicate."""
        filtered = [
            predicate for predicate in self.predicates if predicate.predicate != _EVERYTHING
        ]
        files = sum(report.files for report in filtered)
        return 1 - sum(report.planned for report in filtered) / files if files else 0.0


def scan_use(reports: Iterable[Mapping[str, Any]], table: str, columns: Sequence[str]) -> ScanUse:
    """Sum up the reports of one table.

    Args:
        reports: of any tables.
        table: dotted name of the one that is asked about.
        columns: its full column names, to find them in predicates.
    """
    names = set(columns)
    by_shape: dict[str, list[Mapping[str, Any]]] = {}
    filtered: Counter[str] = Counter()
    times: list[int] = []
    for report in reports:
        if report.get("table") != table:
            continue
        shape = predicate_shape(report.get("predicate") or _EVERYTHING)
        by_shape.setdefault(shape, []).append(report)
        filtered.update({name for name in _NAME.findall(shape) if name in names})
        times.append(_planned_ms(report))
    uses = [
        PredicateUse(
            predicate=shape,
            scans=len(members),
            files=sum(member.get("data_files_total") or 0 for member in members),
            planned=sum(
                member.get("data_files_planned") or 0
                for member in members
                if member.get("data_files_total") is not None
            ),
            planning_ms=round(median(member.get("planning_ms") or 0.0 for member in members), 3),
        )
        for shape, members in by_shape.items()
    ]
    every = [
        member.get("planning_ms") or 0.0 for members in by_shape.values() for member in members
    ]
    return ScanUse(
        scans=len(every),
        first_ms=min(times, default=None),
        predicates=tuple(sorted(uses, key=lambda use: (-use.scans, use.predicate))),
        columns=tuple(sorted(filtered.items(), key=lambda item: (-item[1], item[0]))),
        planning_ms=round(median(every), 3) if every else 0.0,
    )


def predicate_shape(predicate: str) -> str:
    """A predicate without its literals: `id in (1, 2) and s = 'x'` -> `id in (?) and s = ?`."""
    return _LIST.sub("(?)", _NUMBER.sub("?", _TEXT.sub("?", predicate)))


def _planned_ms(report: Mapping[str, Any]) -> int:
    """When it was planned; a table has a time where a line has milliseconds."""
    at = report.get("planned_at")
    return int(report.get("timestamp_ms") or 0) if at is None else int(at.timestamp() * 1000)
