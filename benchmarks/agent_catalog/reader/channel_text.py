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
            fact
            for fact in self.facts
            if fact.kind in kinds and not fact.bad and column in (None, fact.column)
        ]


def read_text(text: str) -> dict[str, ReadTable]:
    """Tables by name, in the order of the text."""
    tables: dict[str, ReadTable] = {}
    table: ReadTable | None = None
    for line in text.splitlines():
        if line.startswith("# "):
            name, _, tail = line[2:].partition(" ")
            comment = _QUOTED.search(tail)
            table = tables.setdefault(name, ReadTable(name, comment.group(1) if comment else ""))
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


def _texts(tail: str) -> list[str]:
    return _QUOTED.findall(tail)


def _split(text: str) -> list[str]:
    return [piece for piece in text.split("|") if piece]


def _options(tail: str) -> dict[str, str]:
    outside = _QUOTED.sub("", _BRACKETS.sub("", tail))
    return dict(re.findall(r"(\w+)=(\S+)", outside))


def _first(tail: str) -> list[str]:
    texts = _texts(tail)
    return _split(texts[0]) if texts else []


def _described(_: re.Match[str], tail: str) -> tuple[str, dict[str, Any]]:
    texts = _texts(tail)
    return "description", {"label": texts[0] if len(texts) > 1 else "", "text": texts[-1:]}


def _grain(_: re.Match[str], tail: str) -> tuple[str, dict[str, Any]]:
    options, entity = _options(tail), re.search(r"entity=“([^”]*)”", tail)
    return "grain", {
        "key": options.get("key", "").split(","),
        "repeats": bool(re.search(r"\brepeats\b", _QUOTED.sub("", tail))),
        "counts": options.get("counts"),
        "snapshot": options.get("snapshot"),
        "entity": entity.group(1) if entity else "",
    }


def _unit(_: re.Match[str], tail: str) -> tuple[str, dict[str, Any]]:
    options, outside = _options(tail), _QUOTED.sub("", tail)
    factor = re.search(r" x([\d.e+-]+)", outside)
    sign = re.search(r"sign=(\w+):-(\S+)", outside)
    tax = re.search(r"\b(net|gross)\b", outside)
    return "unit", {
        "unit": (_texts(tail) or [""])[0],
        "factor": float(factor.group(1)) if factor else None,
        "tax": tax.group(1) if tax else "",
        "per": options.get("per", ""),
        "currency": options.get("currency", ""),
        "rate": options.get("rate", ""),
        "sign": (sign.group(1), sign.group(2).split(",")) if sign else None,
    }


def _codes(head: re.Match[str], tail: str) -> tuple[str, dict[str, Any]]:
    listed = tail.removeprefix(": ")
    pairs = re.findall(r"(?:^|; )([^=;“”]+?)=“([^”]*)”", listed)
    values = {code.strip(): _split(labels) for code, labels in pairs}
    return "codes", {"values": values, "complete": " complete" in head.group(0)}


def _join(match: re.Match[str], tail: str) -> tuple[str, dict[str, Any]]:
    pairs = re.findall(r"(\w+) = ([\w.]+)", match["pairs"])
    where, role = _BRACKETS.search(tail), re.search(r" as “([^”]*)”", tail)
    return "join", {
        "pairs": [(column, other.rpartition(".")[2]) for column, other in pairs],
        "to": pairs[0][1].rpartition(".")[0],
        "cardinality": match["cardinality"],
        "where": where.group(1) if where else "",
        "role": role.group(1) if role else "",
    }


def _metric(_: re.Match[str], tail: str) -> tuple[str, dict[str, Any]]:
    pieces = _BRACKETS.findall(tail)
    joins = re.search(r"\] joins ((?:[\w.]+(?:, )?)+)", tail)
    unit, outside = re.search(r" unit=“([^”]*)”", tail), _options(tail)
    return "metric", {
        "names": _first(tail),
        "expression": pieces[0] if pieces else "",
        "where": pieces[1] if len(pieces) > 1 and " where [" in tail else "",
        "joins": [table.strip() for table in joins.group(1).split(",") if table.strip()]
        if joins
        else [],
        "time": outside.get("time", ""),
        "unit": unit.group(1) if unit else "",
    }


def _filter(_: re.Match[str], tail: str) -> tuple[str, dict[str, Any]]:
    piece = _BRACKETS.search(tail)
    head = tail[: piece.start()] if piece else tail
    after = tail[piece.end() :] if piece else ""
    return "filter", {
        "names": _first(head),
        "mandatory": " always" in _QUOTED.sub("", head),
        "predicate": piece.group(1) if piece else "",
        "text": " ".join(_texts(after)),
    }


def _fresh(_: re.Match[str], tail: str) -> tuple[str, dict[str, Any]]:
    options = _options(tail)
    span = re.search(r"provisional=(\d+)\s*(day|week|month)", tail)
    return "freshness", {
        "column": options.get("column", ""),
        "through": options.get("through", ""),
        "instead": options.get("instead", ""),
        "provisional": (int(span.group(1)), span.group(2)) if span else None,
        "text": " ".join(_texts(tail)),
    }


def _deprecated(_: re.Match[str], tail: str) -> tuple[str, dict[str, Any]]:
    return "deprecation", _options(tail)


def _validity(_: re.Match[str], tail: str) -> tuple[str, dict[str, Any]]:
    by = re.match(r" by (\w+)", tail)
    outside = tail.partition(": ")[2]
    periods = []
    for piece in outside.split("; "):
        period: dict[str, Any] = dict(re.findall(r"(from|until) (\d{4}-\d\d-\d\d)", piece))
        factor = re.search(r" x([\d.e+-]+)", piece)
        if period or factor:
            periods.append({**period, "factor": float(factor.group(1)) if factor else None})
    return "validity", {"by": by.group(1) if by else "", "periods": periods}


def _names(kind: str) -> Callable[[re.Match[str], str], tuple[str, dict[str, Any]]]:
    return lambda _, tail: (kind, {"names": _first(tail), "text": " ".join(_texts(tail))})


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
