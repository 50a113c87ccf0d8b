"""A MERGE as it was written: which rows belong together, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lakehouse.errors import InvalidExpressionError
from lakehouse.expressions.sql.sql_grammar import error_at, words

Matched = Literal["matched", "not matched", "not matched by source"]
Action = Literal["update", "delete", "insert"]


@dataclass(frozen=True, slots=True)
class MergeClause:
    """`WHEN ... THEN ...`: of the clauses about a row the first whose condition is true acts.

    Attributes:
        when: about target rows that a source row matches, about source rows that match none, or
            about target rows that no source row matches.
        action: what becomes of the row.
        condition: SQL; None is always.
        assignments: SQL for each column; None takes every column of the source by its name.
    """

    when: Matched
    action: Action
    condition: str | None = None
    assignments: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class MergeStatement:
    """`MERGE INTO target USING source ON ...`.

    Attributes:
        on: which rows belong together: names of columns that are equal on both sides, or SQL, of
            which at least one part, joined by AND, is `=` (or `IS NOT DISTINCT FROM`) between
            something of the target and something of the source.
        clauses: in the order in which they are tried.
        source_alias: name of the source in SQL.
        target_alias: name of the target in SQL.
        unique_source: whether two source rows of one key are an error, wherever they would go.
    """

    on: str | tuple[str, ...]
    clauses: tuple[MergeClause, ...]
    source_alias: str = "s"
    target_alias: str = "t"
    unique_source: bool = False


_FORMS = (
    "MATCHED [AND condition] THEN UPDATE * | UPDATE SET column = value, ... | DELETE; "
    "NOT MATCHED [AND condition] THEN INSERT * | INSERT (column, ...) VALUES (value, ...); "
    "NOT MATCHED BY SOURCE [AND condition] THEN UPDATE SET column = value, ... | DELETE"
)


def read_clause(text: str) -> MergeClause:
    """A clause of SQL's MERGE; the word WHEN before it may be left out.

    Conditions and values are kept as they are written: binding reads them.

    >>> read_clause("NOT MATCHED THEN INSERT *")
    MergeClause(when='not matched', action='insert', condition=None, assignments=None)

    Raises:
        InvalidExpressionError: it is no clause; shows where.
    """
    return _Clause(text).read()


class _Clause:
    def __init__(self, text: str) -> None:
        self._text = text
        self._words = words(text)
        self._at = 0

    def read(self) -> MergeClause:
        self._take("WHEN")
        when = self._when()
        condition = self._until("THEN") if self._take("AND") else None
        self._expect("THEN")
        if self._take("DELETE"):
            action: Action = "delete"
            assignments = None
        elif self._take("UPDATE"):
            action, assignments = "update", self._update()
        elif self._take("INSERT"):
            action, assignments = "insert", self._insert()
        else:
            raise self._error("expected UPDATE, DELETE or INSERT")
        if self._at < len(self._words):
            raise self._error("the clause has ended before this; one clause at a time")
        return MergeClause(when, action, condition, assignments)

    def _when(self) -> Matched:
        negated = self._take("NOT")
        self._expect("MATCHED")
        if not negated:
            return "matched"
        if not self._take("BY"):
            return "not matched"
        if self._take("TARGET"):
            return "not matched"
        self._expect("SOURCE")
        return "not matched by source"

    def _update(self) -> Mapping[str, str] | None:
        assigned = self._take("SET")
        if self._take("*"):
            return None
        if not assigned:
            raise self._error("expected SET or *")
        assignments: dict[str, str] = {}
        while True:
            column = self._name("=")
            self._expect("=")
            self._assign(assignments, column, self._until(","))
            if not self._take(","):
                return assignments

    def _insert(self) -> Mapping[str, str] | None:
        if self._take("*"):
            return None
        self._expect("(")
        columns = [self._name(",", ")")]
        while self._take(","):
            columns.append(self._name(",", ")"))
        self._expect(")")
        self._expect("VALUES")
        self._expect("(")
        assignments: dict[str, str] = {}
        for number, column in enumerate(columns):
            if number:
                self._expect(",")
            self._assign(assignments, column, self._until(",", ")"))
        self._expect(")")
        return assignments

    def _assign(self, assignments: dict[str, str], column: str, value: str) -> None:
        if column in assignments:
            raise self._error(f"column {column} has a value already")
        assignments[column] = value

    def _name(self, *ends: str) -> str:
        first = self._at
        self._until(*ends)
        return "".join(word.text for word in self._words[first : self._at])

    def _until(self, *ends: str) -> str:
        """The text up to one of some words, which is not inside of brackets or CASE."""
        first, depth = self._at, 0
        while self._at < len(self._words):
            word = self._word()
            if depth == 0 and word in ends:
                break
            depth += (word in ("(", "[", "{", "CASE")) - (word in (")", "]", "}", "END"))
            self._at += 1
        if first == self._at:
            raise self._error("something is missing")
        return self._text[self._words[first].start : self._words[self._at - 1].end]

    def _take(self, word: str) -> bool:
        there = self._word() == word
        self._at += there
        return there

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._error(f"expected {word}")

    def _word(self) -> str:
        """The next word as a keyword; nothing at the end, and for what is in quotes."""
        if self._at >= len(self._words) or self._words[self._at].quoted:
            return ""
        return self._words[self._at].text.upper()

    def _error(self, reason: str) -> InvalidExpressionError:
        at = self._words[self._at] if self._at < len(self._words) else None
        start, width = (len(self._text), 1) if at is None else (at.start, at.end - at.start)
        reason = f"{reason}. A clause is {_FORMS}"
        return error_at(self._text, reason, start, width, what="clause")
