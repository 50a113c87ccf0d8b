"""What an ingestion says while it works: what it takes, what became of each day's lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from rich.table import Table

from lakehouse.ingestion.ingest_plan import IngestPlan
from lakehouse.ingestion.landing_ledger import LandingFile, LineCount
from lakehouse.ingestion.run_log import as_text
from lakehouse.maintenance.shown_plan import human_bytes

_DAYS_SHOWN = 40
_REASONS_SHOWN = 10
_NAMED = 3


def files_to_index(fresh: Sequence[LandingFile], landed: int) -> str:
    """Before files are read for the first time."""
    if not fresh:
        return f"{landed:,} landing files, none of them new or changed"
    size = human_bytes(sum(file.size_bytes for file in fresh))
    return f"{landed:,} landing files, {len(fresh):,} of them new or changed ({size})"


def files_indexed(
    files: int,
    lines: int,
    undated: int,
    reasons: Mapping[str, int],
    problems: Mapping[str, str],
) -> str:
    """After it; `reasons` are those of lines without a usable event time."""
    text = f"{files:,} files indexed: {lines:,} lines, {undated:,} without a usable event time"
    text += f"; damaged: {', '.join(sorted(problems)[:5])}" if problems else ""
    return "\n".join([text, *_quarantined(reasons)])


def said_once(texts: Mapping[str, str]) -> str:
    """Texts by what they are about: equal ones are said once, with all that they are about.

    >>> said_once({"a.gz": "is empty", "b.gz": "is cut off", "c.gz": "is empty"})
    'a.gz, c.gz: is empty; b.gz: is cut off'
    """
    return "; ".join(f"{names}: {text}" for names, text in alike(texts))


def alike(texts: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names, the first of many, with the text that they have in common; the commonest first."""
    about: dict[str, list[str]] = {}
    for name, text in sorted(texts.items()):
        about.setdefault(text, []).append(name)
    return [
        (
            f"{', '.join(names[:_NAMED])}"
            f"{f' and {len(names) - _NAMED:,} more' if len(names) > _NAMED else ''}",
            text,
        )
        for text, names in sorted(about.items(), key=lambda item: (-len(item[1]), item[1]))
    ]


def days_to_write(plan: IngestPlan) -> str:
    """Before lines become rows."""
    if not plan.days:
        return "no day to write: nothing is pending"
    days = f"{plan.days[0]}" if len(plan.days) == 1 else f"{plan.days[0]} to {plan.days[-1]}"
    lines = sum(row.lines for row in plan.rows)
    verb = "replace" if plan.replace else "add to"
    return (
        f"{verb} {len(plan.days):,} days, {days}: {lines:,} lines of {len(plan.files):,} files"
        + (f"; {len(plan.missing):,} files are missing" if plan.missing else "")
    )


def days_written(
    by_day: Mapping[date, LineCount], total: LineCount, reasons: Mapping[str, int]
) -> str:
    """After it: a table of days, the newest of many, and why lines were rejected."""
    table = Table(
        "day", title=f"{total.rows:,} rows of {total.lines:,} lines", title_justify="left"
    )
    for name in ("lines", "rows", "quarantined", "duplicates"):
        table.add_column(name, justify="right")
    shown = sorted(by_day)[-_DAYS_SHOWN:]
    for day in shown:
        counts = by_day[day]
        numbers = (counts.lines, counts.rows, counts.quarantined, counts.duplicates)
        table.add_row(str(day), *(f"{number:,}" for number in numbers))
    left_out = len(by_day) - len(shown)
    return "\n".join(
        [
            as_text(table),
            *([f"and {left_out:,} earlier days"] if left_out else []),
            *_quarantined(reasons),
        ]
    )


def _quarantined(reasons: Mapping[str, int]) -> list[str]:
    """The commonest first."""
    ordered = sorted(reasons.items(), key=lambda reason: (-reason[1], reason[0]))
    return [f"quarantined {number:,} x {reason}" for reason, number in ordered[:_REASONS_SHOWN]]
