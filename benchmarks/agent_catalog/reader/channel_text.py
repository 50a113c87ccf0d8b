"""The text of an answer, taken apart again: tables, columns and facts, with their states.

The reader knows nothing but this text. A line of an unknown form is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_QUOTED = re.compile(r"“([^”]*)”")
_BRACKETS = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]")
_STATE = re.compile(r" (✓|\? unverified.*|✗ .*)$")
_COLUMN = re.compile(
    r"(?P<name>\w+) "
    r"(?P<type>(?:struct|list|map)<.*?>(?=,|$| “| e\.g\.)|decimal\(\d+, \d+\)|\w+(?:\[\d+\])?)"
    r"(?: “(?P<doc>[^”]*)”)?(?: e\.g\. (?P<samples>“[^”]*”(?:, “[^”]*”)*))?(?:, |$)"
)


@dataclass(frozen=True, slots=True)
class Fact:
    """A line about a table.

    Attributes:
        kind: `codes`, `join`, `metric` and so on, see `lakehouse.agents.lines`.
        table: dotted name.
        column: what the line is about; empty for the table.
        claim: what it says.
        bad: whether the line says of itself that it is contradicted, expired or replaced.
    """

    kind: str
    table: str
    column: str
    claim: dict[str, Any]
    bad: bool


@dataclass
class ReadColumn:
    """A column as the text shows it."""

    name: str
    kind: str
    doc: str = ""
    samples: tuple[str, ...] = ()


@dataclass
class ReadTable:
    """A table as the text shows it."""

    name: str
    comment: str = ""
    columns: dict[str, ReadColumn] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)

    def of(self, *kinds: str, column: str | None = None) -> list[Fact]:
        """Facts of kinds that nothing contradicts."""
        return [
            one
            for one in self.facts
            if one.kind in kinds and not one.bad and column in (None, one.column)
        ]


def read_text(text: str) -> dict[str, ReadTable]:
    """Tables by name, in the order of the text."""
    tables: dict[str, ReadTable] = {}
    table: ReadTable | None = None
    for line in text.splitlines():
        if line.startswith("# "):
            name, _, rest = line[2:].partition(" ")
            said = _QUOTED.search(rest)
            table = tables.setdefault(name, ReadTable(name, said.group(1) if said else ""))
        elif table is not None and line.startswith("cols: "):
            for match in _COLUMN.finditer(line[6:]):
                samples = tuple(_QUOTED.findall(match["samples"] or ""))
                column = ReadColumn(match["name"], match["type"], match["doc"] or "", samples)
                table.columns[column.name] = column
        elif table is not None and (fact := _fact(table.name, line)) is not None:
            table.facts.append(fact)
    return tables


def _fact(table: str, line: str) -> Fact | None:
    state = _STATE.search(line)
    bad = state is not None and state.group(1).startswith("✗")
    body = line[: state.start()] if state else line
    for head, read in _HEADS.items():
        match = re.match(head, body)
        if match is not None:
            column = match.groupdict().get("column") or ""
            kind, claim = read(match, body[match.end() :])
            return Fact(kind, table, column, claim, bad)
    return None


def _texts(rest: str) -> list[str]:
    return _QUOTED.findall(rest)


def _split(text: str) -> list[str]:
    return [one for one in text.split("|") if one]


def _options(rest: str) -> dict[str, str]:
    outside = _QUOTED.sub("", _BRACKETS.sub("", rest))
    return dict(re.findall(r"(\w+)=(\S+)", outside))


def _first(rest: str) -> list[str]:
    found = _texts(rest)
    return _split(found[0]) if found else []


def _described(_: re.Match[str], rest: str) -> tuple[str, dict[str, Any]]:
    found = _texts(rest)
    return "description", {"label": found[0] if len(found) > 1 else "", "text": found[-1:]}


def _grain(_: re.Match[str], rest: str) -> tuple[str, dict[str, Any]]:
    options, entity = _options(rest), re.search(r"entity=“([^”]*)”", rest)
    return "grain", {
        "key": options.get("key", "").split(","),
        "repeats": bool(re.search(r"\brepeats\b", _QUOTED.sub("", rest))),
        "counts": options.get("counts"),
        "snapshot": options.get("snapshot"),
        "entity": entity.group(1) if entity else "",
    }


def _unit(_: re.Match[str], rest: str) -> tuple[str, dict[str, Any]]:
    options, outside = _options(rest), _QUOTED.sub("", rest)
    factor = re.search(r" x([\d.e+-]+)", outside)
    sign = re.search(r"sign=(\w+):-(\S+)", outside)
    tax = re.search(r"\b(net|gross)\b", outside)
    return "unit", {
        "unit": (_texts(rest) or [""])[0],
        "factor": float(factor.group(1)) if factor else None,
        "tax": tax.group(1) if tax else "",
        "per": options.get("per", ""),
        "currency": options.get("currency", ""),
        "rate": options.get("rate", ""),
        "sign": (sign.group(1), sign.group(2).split(",")) if sign else None,
    }


def _codes(head: re.Match[str], rest: str) -> tuple[str, dict[str, Any]]:
    listed = rest.removeprefix(": ")
    pairs = re.findall(r"(?:^|; )([^=;“”]+?)=“([^”]*)”", listed)
    values = {code.strip(): _split(labels) for code, labels in pairs}
    return "codes", {"values": values, "complete": " complete" in head.group(0)}


def _join(match: re.Match[str], rest: str) -> tuple[str, dict[str, Any]]:
    pairs = re.findall(r"(\w+) = ([\w.]+)", match["pairs"])
    where, role = _BRACKETS.search(rest), re.search(r" as “([^”]*)”", rest)
    return "join", {
        "pairs": [(one, other.rpartition(".")[2]) for one, other in pairs],
        "to": pairs[0][1].rpartition(".")[0],
        "cardinality": match["cardinality"],
        "where": where.group(1) if where else "",
        "role": role.group(1) if role else "",
    }


def _metric(_: re.Match[str], rest: str) -> tuple[str, dict[str, Any]]:
    pieces = _BRACKETS.findall(rest)
    joins = re.search(r"\] joins ((?:[\w.]+(?:, )?)+)", rest)
    unit, outside = re.search(r" unit=“([^”]*)”", rest), _options(rest)
    return "metric", {
        "names": _first(rest),
        "expression": pieces[0] if pieces else "",
        "where": pieces[1] if len(pieces) > 1 and " where [" in rest else "",
        "joins": [one.strip() for one in joins.group(1).split(",") if one.strip()] if joins else [],
        "time": outside.get("time", ""),
        "unit": unit.group(1) if unit else "",
    }


def _filter(_: re.Match[str], rest: str) -> tuple[str, dict[str, Any]]:
    piece = _BRACKETS.search(rest)
    head = rest[: piece.start()] if piece else rest
    after = rest[piece.end() :] if piece else ""
    return "filter", {
        "names": _first(head),
        "mandatory": " always" in _QUOTED.sub("", head),
        "predicate": piece.group(1) if piece else "",
        "text": " ".join(_texts(after)),
    }


def _fresh(_: re.Match[str], rest: str) -> tuple[str, dict[str, Any]]:
    options = _options(rest)
    span = re.search(r"provisional=(\d+)\s*(day|week|month)", rest)
    return "freshness", {
        "column": options.get("column", ""),
        "through": options.get("through", ""),
        "instead": options.get("instead", ""),
        "provisional": (int(span.group(1)), span.group(2)) if span else None,
        "text": " ".join(_texts(rest)),
    }


def _deprecated(_: re.Match[str], rest: str) -> tuple[str, dict[str, Any]]:
    return "deprecation", _options(rest)


def _validity(_: re.Match[str], rest: str) -> tuple[str, dict[str, Any]]:
    by = re.match(r" by (\w+)", rest)
    outside = rest.partition(": ")[2]
    periods = []
    for piece in outside.split("; "):
        period: dict[str, Any] = dict(re.findall(r"(from|until) (\d{4}-\d\d-\d\d)", piece))
        factor = re.search(r" x([\d.e+-]+)", piece)
        if period or factor:
            periods.append({**period, "factor": float(factor.group(1)) if factor else None})
    return "validity", {"by": by.group(1) if by else "", "periods": periods}


def _names(kind: str) -> Callable[[re.Match[str], str], tuple[str, dict[str, Any]]]:
    return lambda _, rest: (kind, {"names": _first(rest), "text": " ".join(_texts(rest))})


_HEADS: dict[str, Callable[[re.Match[str], str], tuple[str, dict[str, Any]]]] = {
    r"is: ": _described,
    r"col (?P<column>[\w.]+): ": _described,
    r"grain: ": _grain,
    r"unit (?P<column>[\w.]+): ": _unit,
    r"codes (?P<column>[\w.]+)(?: complete)?": _codes,
    r"aka(?: (?P<column>[\w.]+))?: ": _names("synonyms"),
    r"join: (?P<pairs>\w+ = [\w.]+(?: and \w+ = [\w.]+)*) (?P<cardinality>\w+_to_\w+)": _join,
    r"metric ": _metric,
    r"filter ": _filter,
    r"fresh: ": _fresh,
    r"DEPRECATED": _deprecated,
    r"valid (?P<column>[\w.]+)": _validity,
    r"absent: ": _names("absence"),
    r"note(?: (?P<column>[\w.]+))?: ": _names("note"),
}
