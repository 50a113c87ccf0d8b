"""What `benchmarks.month` found: the worlds beside each other, by day."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

TUNED, *_OTHERS = WORLDS = ("tuned", "untuned", "by_hand")
_HEIGHT = 8


def report(result: dict[str, Any]) -> None:
    """Put the worlds together; fails where answers differ or a night exceeded the budget."""
    worlds = {name: part["days"] for name, part in result.items() if name in WORLDS}
    for days in worlds.values():
        over = [day["day"] for day in days if day["tuned_bytes"] > result["budget"]]
        assert not over, f"tuning rewrote more than the budget in the nights of {over}"
    first, *others = worlds.values()
    for other in others:
        for one, two in zip(first, other, strict=True):
            assert one["answers_sha256"] == two["answers_sha256"], f"answers of day {one['day']}"
    if TUNED in worlds:
        for step in result[TUNED]["steps"]:
            print(step["at"][:10], step["action"], step["layout"], "|", step["why"])
        result["last_day_tuned_to"] = {
            name: _ratios(worlds[TUNED][-1], days[-1])
            for name, days in worlds.items()
            if name in _OTHERS
        }
    console = Console(width=150)
    console.print(_table(worlds))
    for title, values in _series(worlds).items():
        console.print(plot(title, values), highlight=False)
    console.print(result.get("last_day_tuned_to"))


def plot(title: str, values: Mapping[str, Sequence[float]]) -> str:
    """Lines of characters, the first letter of each series at its values, on a logarithmic scale.

    The first series is drawn over the others.
    """
    logs = {
        name: [math.log10(max(value, 1e-9)) for value in series] for name, series in values.items()
    }
    low = min(min(series) for series in logs.values())
    step = (max(max(series) for series in logs.values()) - low) / (_HEIGHT - 1) or 1.0
    length = max(len(series) for series in logs.values())
    cells = [[" "] * length for _ in range(_HEIGHT)]
    for name, series in reversed(logs.items()):
        for at, value in enumerate(series):
            cells[round((value - low) / step)][at] = name[0]
    lines = [
        f"{10 ** (low + row * step):>10,.4g} |{' '.join(cells[row])}"
        for row in reversed(range(_HEIGHT))
    ]
    legend = ", ".join(f"{name[0]} {name}" for name in values)
    return "\n".join([f"{title} by day ({legend})", *lines])


def _series(worlds: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    return {
        title: {name: [value(day) for day in days] for name, days in worlds.items()}
        for title, value in (
            ("KiB", lambda day: day["bytes"] / 1024),
            ("files", lambda day: day["files"]),
            ("ms of processor for three queries", lambda day: 1000 * sum(day["query_s"])),
        )
    }


def _ratios(tuned: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, float]:
    return {
        "bytes": round(tuned["bytes"] / other["bytes"], 3),
        "files": round(tuned["files"] / other["files"], 3),
        "query_s": round(sum(tuned["query_s"]) / sum(other["query_s"]), 3),
    }


def _table(worlds: Mapping[str, Any]) -> Table:
    shown = Table(title=f"evening of each day: {' / '.join(worlds)}")
    headers = ("day", "rows", "KiB", "files", "queries, ms", "append, ms", "at night, ms", "tuning")
    for header in (*headers, "KiB rewritten"):
        shown.add_column(header, justify="right")
    for days in zip(*worlds.values(), strict=True):
        shown.add_row(
            str(days[0]["day"]), f"{days[0]['rows']:,}",
            " / ".join(f"{day['bytes'] / 1024:,.0f}" for day in days),
            " / ".join(str(day["files"]) for day in days),
            " / ".join(f"{1000 * sum(day['query_s']):.1f}" for day in days),
            " / ".join(f"{1000 * day['append_s'][0]:.0f}" for day in days),
            " / ".join(f"{1000 * day['night_append_s'][0]:.0f}" for day in days),
            next((day["tuning"] for day in days if day["tuning"]), ""),
            f"{sum(day['tuned_bytes'] for day in days) / 1024:,.0f}",
        )  # fmt: skip
    return shown
