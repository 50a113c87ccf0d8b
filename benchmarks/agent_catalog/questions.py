"""Questions about the domain, with their gold queries, read from a file and checked."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakehouse.agents.sql_findings import dotted, parsed_select, table_nodes
from lakehouse.agents.words import words
from lakehouse.errors import InvalidInputError

BEHAVIOURS = ("answer", "warn", "use_other", "refuse")
_REQUIRED = ("id", "kind", "question", "behaviour", "requires", "tables", "gold", "tolerance")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is right in one state of the tables.

    Attributes:
        behaviour: one of BEHAVIOURS.
        gold: SQL of the right figure; None where the right answer is to refuse.
        stored: the figure by seed, as the file has it.
        tables: those of the right query, without such as only help to leave rows out.
        reason: what a warning must say.
    """

    behaviour: str
    gold: str | None
    stored: Mapping[str, Any]
    tables: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Attributes:
        key: its id.
        kind: control, unit, table_choice and so on.
        text: as it is asked.
        requires: ids of the statements that a reader needs beyond names.
        tolerance: relative.
        before, after: what is right before and after the evolution.
    """

    key: str
    kind: str
    text: str
    requires: tuple[str, ...]
    tolerance: float
    before: Wanted
    after: Wanted


def load_questions(
    path: Path, tables: Collection[str], statements: Collection[str]
) -> list[Question]:
    """The questions of a JSON file.

    Args:
        path: a list of objects, as `domain/dev_questions.json` has them.
        tables: names that there are.
        statements: ids that there are.

    Raises:
        InvalidInputError: it is no such list; the message names the question and the field.
    """
    try:
        entries = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InvalidInputError(f"{path} is no JSON: {error}") from error
    if not isinstance(entries, list) or not entries:
        raise InvalidInputError(f"{path} must hold a list of questions, and at least one")
    questions = [
        _question(question, f"{path.name}: question {number}", tables, statements)
        for number, question in enumerate(entries, 1)
    ]
    keys = [question.key for question in questions]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise InvalidInputError(f"{path.name}: the id {twice[0]} is given twice")
    return questions


def _question(
    question: Any, where: str, tables: Collection[str], statements: Collection[str]
) -> Question:
    if not isinstance(question, dict):
        raise InvalidInputError(f"{where} must be an object, not {question!r}")
    if missing := [name for name in _REQUIRED if name not in question]:
        raise InvalidInputError(f"{where} has no {', '.join(missing)}")
    where = f"{where} ({question['id']})"
    for name in ("id", "kind", "question"):
        if not isinstance(question[name], str) or not question[name].strip():
            raise InvalidInputError(f"{where}: {name} must be text, not {question[name]!r}")
    for name in ("requires", "tables"):
        if not isinstance(question[name], list):
            raise InvalidInputError(f"{where}: {name} must be a list, not {question[name]!r}")
    if unknown := sorted(set(question["tables"]) - set(tables)):
        raise InvalidInputError(f"{where}: there is no table {', '.join(unknown)}")
    if unknown := sorted(set(question["requires"]) - set(statements)):
        raise InvalidInputError(f"{where}: there is no statement {', '.join(unknown)}")
    tolerance = question["tolerance"]
    if not isinstance(tolerance, (int, float)) or not 0 <= tolerance < 1:
        raise InvalidInputError(f"{where}: tolerance must be in [0, 1), not {tolerance!r}")
    before = _wanted(question, where, "")
    after = _wanted(question, where, "_after", before)
    return Question(
        question["id"], question["kind"], question["question"], tuple(question["requires"]),
        float(tolerance), before, after,
    )  # fmt: skip


def _wanted(
    question: dict[str, Any], where: str, suffix: str, earlier: Wanted | None = None
) -> Wanted:
    behaviour = question.get(f"behaviour{suffix}", earlier and earlier.behaviour)
    gold = question.get(f"gold{suffix}", earlier and earlier.gold)
    stored = question.get(f"answer{suffix}") or {}
    if behaviour not in BEHAVIOURS:
        choices = ", ".join(BEHAVIOURS)
        raise InvalidInputError(
            f"{where}: behaviour{suffix} is {behaviour!r}, not one of {choices}"
        )
    if gold is not None and not re.match(r"\s*(select|with)\b", str(gold), re.IGNORECASE):
        raise InvalidInputError(f"{where}: gold{suffix} must be a SELECT or null, not {gold!r}")
    if not isinstance(stored, dict):
        raise InvalidInputError(f"{where}: answer{suffix} must map seeds to figures")
    if (gold is None) != (behaviour == "refuse"):
        raise InvalidInputError(f"{where}: gold{suffix} is null exactly where it is refused")
    reason = question.get(f"reason{suffix}", earlier.reason if earlier else "") or question.get(
        "reason", ""
    )
    if behaviour == "warn" and not words(str(reason)):
        raise InvalidInputError(f"{where}: a warning needs a reason{suffix}, what it must say")
    tables = question.get(f"tables{suffix}")
    if tables is None:
        tables = _tables_later(question["tables"], question["gold"], gold)
    return Wanted(str(behaviour), gold, stored, tuple(tables), str(reason))


def _tables_later(tables: list[str], gold: str | None, later: str | None) -> list[str]:
    """The tables of another gold, without those that the first one had and that were not named."""
    if later is None or later == gold:
        return tables
    unnamed = set() if gold is None else set(_tables_of(gold)) - set(tables)
    return [table for table in _tables_of(later) if table not in unnamed]


def _tables_of(sql: str) -> list[str]:
    return list(dict.fromkeys(dotted(node) for node in table_nodes(parsed_select(sql))))
