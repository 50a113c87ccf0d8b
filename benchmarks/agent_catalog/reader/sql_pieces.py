"""Pieces of SQL, and the units that a figure can be given in."""

from __future__ import annotations

import datetime as dt

from benchmarks.agent_catalog.reader.channel_text import Fact

UNITS = {
    "ms": ("time", 0.001), "milliseconds": ("time", 0.001), "s": ("time", 1.0),
    "seconds": ("time", 1.0), "minutes": ("time", 60.0), "hours": ("time", 3600.0),
    "days": ("time", 86400.0), "bytes": ("size", 1.0), "mib": ("size", 2.0**20),
    "mebibytes": ("size", 2.0**20), "gib": ("size", 2.0**30), "gibibytes": ("size", 2.0**30),
    "mb": ("size", 1e6), "megabytes": ("size", 1e6), "gb": ("size", 1e9),
    "gigabytes": ("size", 1e9), "g": ("mass", 1.0), "grams": ("mass", 1.0),
    "kg": ("mass", 1000.0), "kilograms": ("mass", 1000.0), "eur": ("eur", 1.0),
    "euros": ("eur", 1.0), "cents": ("eur", 0.01),
}  # fmt: skip
"""Word -> (what it measures, how many of the first unit)."""


def alias(table: str) -> str:
    """How a table is called in a query."""
    return table.rpartition(".")[2]


def date(day: dt.date) -> str:
    """A day in SQL."""
    return f"date '{day.isoformat()}'"


def on_condition(here: str, there: str, fact: Fact) -> str:
    """The condition of a join, whichever side it is written on."""
    table, other = (here, there) if fact.table == here else (there, here)
    return " and ".join(
        f"{alias(table)}.{left} = {alias(other)}.{right}" for left, right in fact.claim["pairs"]
    )
