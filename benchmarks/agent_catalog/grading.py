"""Grades what a reader makes of a condition: figures on the rows, tables, refusals, facts."""

from __future__ import annotations

import datetime as dt
import decimal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from benchmarks.agent_catalog.conditions import Shown
from benchmarks.agent_catalog.lakes import Tables
from benchmarks.agent_catalog.questions import Question, Wanted
from benchmarks.agent_catalog.reader.mechanical_reader import read_question
from benchmarks.agent_catalog.reader.reading import Reading
from lakehouse.agents.serving import Answer, search_answer
from lakehouse.agents.words import clean, words
from lakehouse.errors import InvalidInputError
from lakehouse.semantics.claims import Kind

CRASHED = "the reader crashed: "
SECONDS = 60.0
"""A query may take."""
SHORT_ID = 4
"""`S070b` belongs to the owners' statement `S070`."""


@dataclass(frozen=True)
class Graded:
    """One question in one condition at one seed and budget.

    Attributes:
        outcome: right, wrong, error, refused rightly, refused wrongly, not refused, no caveat,
            other caveat (that says nothing of what is wanted), other table (the figure is right by
            chance).
        value, expected: the figures.
        reading: what the reader did.
        behaved: whether it answered, warned, took another table or refused as is wanted, whatever
            the figure; a needless caveat is no right behaviour.
    """

    outcome: str
    value: Any
    expected: Any
    reading: Reading
    behaved: bool = False

    @property
    def correct(self) -> bool:
        """Whether it is what was wanted."""
        return self.outcome in ("right", "refused rightly")


class Rows:
    """The rows of one state of the tables, for DuckDB."""

    def __init__(self, tables: Tables) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("set timezone = 'UTC'; set threads = 2")
        for name, table in tables.items():
            self._connection.execute(f"create schema if not exists {name.partition('.')[0]}")
            self._connection.register("incoming", table)
            self._connection.execute(f"create table {name} as select * from incoming")
            self._connection.unregister("incoming")
        self._connection.execute("set enable_external_access = false")

    def figure(self, sql: str) -> Any:
        """The single value of a query. Raises duckdb.Error, also after SECONDS."""
        timer = threading.Timer(SECONDS, self._connection.interrupt)
        timer.start()
        try:
            rows = self._connection.execute(sql).fetchmany(2)
        finally:
            timer.cancel()
        value = rows[0][0] if len(rows) == 1 and len(rows[0]) == 1 else None
        if isinstance(value, decimal.Decimal):
            return float(value)
        return value.isoformat() if isinstance(value, (dt.date, dt.datetime)) else value

    def expected(self, question: Question, wanted: Wanted, seed: int, *, stored: bool) -> Any:
        """The gold figure. Raises InvalidInputError where the file says another one."""
        value = None if wanted.gold is None else self.figure(wanted.gold)
        recorded = wanted.stored.get(str(seed)) if stored else value
        if not same(value, recorded, 1e-6):
            raise InvalidInputError(
                f"{question.key}: the file says {recorded!r} at seed {seed}, its gold returns "
                f"{value!r}"
            )
        return value


def same(value: Any, other: Any, tolerance: float) -> bool:
    """Equality within a relative tolerance; None is only None."""
    if isinstance(value, bool) or isinstance(other, bool) or not _numbers(value, other):
        return bool(value == other)
    return abs(value - other) <= tolerance * max(abs(value), abs(other))


def _numbers(*values: Any) -> bool:
    return all(isinstance(value, (int, float)) for value in values)


def grade(
    question: Question, wanted: Wanted, expected: Any, rows: Rows, reading: Reading
) -> Graded:
    """One answer against what was wanted."""
    if reading.refusal.startswith(CRASHED):
        return Graded("error", reading.refusal, expected, reading)
    if reading.sql is None:
        right = wanted.behaviour == "refuse"
        outcome = "refused rightly" if right else "refused wrongly"
        return Graded(outcome, None, expected, reading, right)
    amiss = _amiss(question, wanted, reading)
    behaved = wanted.behaviour != "refuse" and not amiss
    behaved = behaved and not (wanted.behaviour == "answer" and reading.warnings)
    try:
        value = rows.figure(reading.sql)
    except duckdb.Error as error:
        return Graded("error", str(error).splitlines()[0], expected, reading, behaved)
    if wanted.behaviour == "refuse":
        return Graded("not refused", value, expected, reading)
    right = same(value, expected, question.tolerance)
    return Graded((amiss or "right") if right else "wrong", value, expected, reading, behaved)


def _amiss(question: Question, wanted: Wanted, reading: Reading) -> str:
    """What a query lacks beside a right figure; empty: nothing."""
    if wanted.behaviour == "use_other":
        return "" if set(wanted.tables) <= set(reading.tables) else "other table"
    if wanted.behaviour != "warn":
        return ""
    if not reading.warnings:
        return "no caveat"
    wanted_words = set(words(wanted.reason)) - set(words(question.text))
    caveats = set(words(" ".join(reading.warnings)))
    return "" if caveats & (wanted_words or set(words(wanted.reason))) else "other caveat"


def read(shown: Shown, question: Question, budget: int, today: dt.date) -> tuple[Answer, Reading]:
    """What is served, and what the reader makes of that text alone."""
    answer = search_answer(shown.catalog, question.text, budget)
    try:
        return answer, read_question(question.text, answer.text, today)
    except Exception as error:  # noqa: BLE001 - a crash of the reader is a failure that is listed
        return answer, Reading(None, refusal=f"{CRASHED}{type(error).__name__}: {error}")


Said = Mapping[str, Sequence[tuple[str, str]]]
"""Id of an owners' statement -> (table, sentence) pairs."""


def recalled(question: Question, text: str, says: Said) -> float | None:
    """The share of the required statements that a text says of the right table.

    None for a question that requires none.
    """
    if not question.requires:
        return None
    blocks: dict[str, str] = {}
    for block in text.split("\n# ")[1:]:
        blocks[block.split(maxsplit=1)[0]] = block
    seen = [
        requirement
        for requirement in question.requires
        if any(sentence in blocks.get(table, "") for table, sentence in says.get(requirement, ()))
    ]
    return len(seen) / len(question.requires)


def sentences(shown: Shown) -> dict[str, list[tuple[str, str]]]:
    """The sentences of each of the owners' statements, as they are quoted; by id."""
    by_id: dict[str, list[tuple[str, str]]] = {}
    for statement in shown.catalog.statements:
        if statement.draft.text:
            by_id.setdefault(statement.key[:SHORT_ID], []).append(
                (statement.draft.table, clean(statement.draft.text))
            )
    return by_id


def harmful(shown: Shown, answer: Answer, false: set[str]) -> tuple[int, int]:
    """(unmarked, marked) harmful facts of an answer.

    These are sentences that are false now, and tables that are replaced or stale, offered without
    the line that says so.
    """
    unmarked = marked = 0
    by_key = shown.catalog.by_key
    for key in answer.statements:
        if key[:SHORT_ID] in false:
            standing = by_key[key].standing
            bad = standing is not None and standing.state not in ("verified", "unverified")
            marked, unmarked = marked + bad, unmarked + (not bad)
    return unmarked, marked


def unmarked_tables(shown: Shown, answer: Answer, replaced: set[str]) -> int:
    """Tables of an answer that are replaced or stale, without a word of it."""
    mentioned = {
        by.draft.table
        for key in answer.statements
        for by in (shown.catalog.by_key[key],)
        if by.draft.kind in (Kind.DEPRECATION, Kind.FRESHNESS)
    }
    return len((replaced & set(answer.tables)) - mentioned)
