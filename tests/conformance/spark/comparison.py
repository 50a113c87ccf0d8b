"""What both engines said to each statement, compared, and the pages' tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from tests.conformance.spark.by_procedure import as_procedure
from tests.conformance.spark.case import Case
from tests.conformance.spark.expected import reason

BEGIN = "<!-- written by make conformance-spark -->"
END = "<!-- end of what it wrote -->"
SAME, BOTH, MORE, REFUSED, DIFFERENT = "the same", "both refuse", "more", "refused", "different"
WIDTH = 110


@dataclass(frozen=True)
class Outcome:
    """One statement in both engines.

    Attributes:
        case: the statement.
        kind: `SAME`...
        theirs: what Iceberg did, in a few words.
        ours: what this project did.
        details: where they differ.
        reason: why that is so, where it is known.
    """

    case: Case
    kind: str
    theirs: str
    ours: str
    details: str = ""
    reason: str = ""

    @property
    def is_expected(self) -> bool:
        """Whether nothing differs that has no reason."""
        return self.kind in (SAME, BOTH, MORE) or bool(self.reason)


def outcome(number: int, case: Case, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Outcome:
    """Compare what both said."""
    texts = (shown(case), str(ours.get("before", "")), *case.before)
    why = next(filter(None, map(reason, texts)), "")
    they_refuse, we_refuse = _error(theirs), _error(ours)
    if they_refuse and we_refuse:
        return Outcome(case, BOTH, f"refuses: {_short(they_refuse)}", "refuses, too")
    if we_refuse:
        told = f"{ours['before']}: {we_refuse}" if "before" in ours else we_refuse
        return Outcome(case, REFUSED, "works", f"refuses: {why or _short(told)}", told, why)
    if they_refuse:
        return Outcome(case, MORE, f"refuses: {_short(they_refuse)}", "works")
    details = "\n".join(_differences(case, theirs, ours))
    if details:
        return Outcome(case, DIFFERENT, "works", f"works, but {why or '?'}", details, why)
    call = as_procedure(shown(case))
    return Outcome(case, SAME, "works", f"`{call}`: the same" if call else "the same")


def shown(case: Case) -> str:
    """A statement as the pages show it."""
    text = re.sub(r"\{n\}\.(\w+)", r"\1", case.statement)
    for word, name in {"t": "t", "s": "s", "name": "ns.t", "n": "ns", "namespace": "ns"}.items():
        text = text.replace(f"{{{word}}}", name)
    return re.sub(r"\{(\w+)\}", r"<\1>", text)


def tables(outcomes: list[Outcome], unread: list[str]) -> str:
    """The tables of all sections, in Markdown; `unread` are tables that the other reads unlike."""
    return "\n".join(_lines(outcomes, unread))


def _lines(outcomes: list[Outcome], unread: list[str]) -> Iterator[str]:
    counts = Counter(one.kind for one in outcomes)
    told = (
        f"{len(outcomes)} statements: {counts[SAME]} with the same rows, {counts[BOTH]} that both "
        f"refuse, {counts[MORE]} that Iceberg's runtime refuses and this catalog does not, "
        f"{counts[REFUSED]} the other way round, {counts[DIFFERENT]} that both do and that differ."
    )
    others = "; ".join(_short(one) for one in unread) or "none"
    yield from (*wrap(told, 100), "")
    yield from wrap(f"Tables that the other engine reads otherwise: {others}.", 100)
    section = ""
    for one in outcomes:
        if one.case.section != section:
            section = one.case.section
            yield from ("", f"### {section}", "", "| statement | Iceberg | ours |", "|---|---|---|")
        yield f"| `{_cell(shown(one.case))}` | {_cell(one.theirs)} | {_cell(one.ours)} |"


def _differences(case: Case, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    texts = (case.statement, *case.then)
    them, us = ([one["statement"], *one["then"]] for one in (theirs, ours))
    for text, one, other in zip(texts, them, us, strict=True):
        if "error" in one and "error" in other:
            continue
        if one != other:
            yield f"{text}\n    theirs {str(one)[:600]}\n    ours   {str(other)[:600]}"


def _error(told: Mapping[str, Any]) -> str:
    return str(told.get("error") or told.get("statement", {}).get("error") or "")


def _short(text: str) -> str:
    text = re.sub(r"file:\S+|/\S+/\S+", "...", text)
    return text if len(text) <= WIDTH else text[: text.rfind(" ", 0, WIDTH)] + "..."


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
