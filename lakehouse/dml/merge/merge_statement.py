"""A MERGE as it was asked for: which rows belong together, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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
