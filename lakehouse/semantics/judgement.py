"""What metadata says of a statement after a change: holds, fails, untouched, or nothing.

A pure function of the statement, what was known before, and the facts of metadata before and after.
What it cannot decide names the evidence to run: on added and removed files where the check is a sum
over files, else on the whole table.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from lakehouse.semantics.binding import claim_mentions
from lakehouse.semantics.claims import Kind
from lakehouse.semantics.evidence import INCREMENTAL, Check, as_type_of, span_ms
from lakehouse.semantics.facts import Change, ColumnFacts, Distinct, TableFacts
from lakehouse.semantics.statements import Reference, Statement


class Outcome(StrEnum):
    """What is known of a statement."""

    HOLDS = "holds"
    FAILS = "fails"
    CARRIES = "carries"
    UNKNOWN = "unknown"


class Extent(StrEnum):
    """What has to be read to know."""

    NOTHING = "nothing"
    CHANGED_FILES = "changed files"
    TABLE = "whole table"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome and its ground.

    Attributes:
        outcome: CARRIES: nothing that it depends on changed, what was known before still is.
        reason: for people, with the numbers.
        extent: what has to be read when the outcome is UNKNOWN.
        observed: numbers that were seen.
    """

    outcome: Outcome
    reason: str = ""
    extent: Extent = Extent.NOTHING
    observed: Mapping[str, Any] = field(default_factory=dict)


Changes = Mapping[str, Change]
"""By table uuid; a table without an entry exists no more."""


def judge(
    statement: Statement,
    changes: Changes,
    *,
    known: bool,
    now_ms: int,
    names: Collection[str] = frozenset(),
) -> Verdict:
    """What metadata says.

    Args:
        statement: bound.
        changes: of every table that it depends on, since it was verified last.
        known: whether it was verified at the snapshots that the changes begin with.
        now_ms: the clock, for spans that end now.
        names: of the tables that there are now.

    Returns:
        HOLDS or FAILS are certain as far as bounds and counts are (see `facts`).
    """
    gone = lost_references(statement, changes)
    if gone:
        claimed = claim_mentions(statement)
        about = [reference for reference in gone if (reference.table, reference.column) in claimed]
        if not about:  # what is claimed may be true as before
            return Verdict(
                Outcome.UNKNOWN, f"its check cannot run: {_loss(gone[0], changes, names)}"
            )
        return Verdict(Outcome.FAILS, _loss(about[0], changes, names))
    if (verdict := _by_properties(statement, changes)) is not None:
        return verdict
    check = statement.evidence
    if check is None:
        return Verdict(Outcome.CARRIES, "nothing can be checked")
    verdict = _BY_METADATA.get(check.name, _nothing)(_Case(statement, check, changes, now_ms))
    if verdict is not None:
        return verdict
    touched = [changes[uuid] for uuid in sorted(statement.tables) if not changes[uuid].same_rows]
    if known and not touched and "within" not in check.arguments:
        return Verdict(Outcome.CARRIES, "no row changed")
    return Verdict(Outcome.UNKNOWN, "rows changed", _extent(check, touched, known=known))


def lost_references(statement: Statement, changes: Changes) -> list[Reference]:
    """Tables that were dropped and columns that the schema has no more."""
    return [
        reference
        for reference in statement.references
        if reference.table_uuid not in changes
        or (
            reference.field_id is not None
            and reference.field_id not in changes[reference.table_uuid].after.names
        )
    ]


def _loss(reference: Reference, changes: Changes, names: Collection[str]) -> str:
    """What became of it; another one that has its name now is not what the statement is about."""
    change = changes.get(reference.table_uuid)
    if change is None:
        if reference.table not in names:
            return f"{describe(reference)} does not exist any more"
        table = describe(replace(reference, column=None))
        return f"{table} of which it was said was dropped; the one of that name is another"
    other = [i for i, name in change.after.names.items() if name == reference.column]
    if not other:
        return f"{describe(reference)} does not exist any more"
    return (
        f"{describe(reference)} of which it was said (field id {reference.field_id}) was dropped; "
        f"the one of that name (id {other[0]}) was added later"
    )


def describe(reference: Reference) -> str:
    """`column zip of sales.addr`, by the names of the binding."""
    if reference.column is None:
        return f"table {reference.table}"
    return f"column {reference.column} of {reference.table}"


def _extent(check: Check, touched: list[Change], *, known: bool) -> Extent:
    partial = known and check.name in INCREMENTAL and all(c.added is not None for c in touched)
    return Extent.CHANGED_FILES if partial else Extent.TABLE


def _by_properties(statement: Statement, changes: Changes) -> Verdict | None:
    """An owner that the table's own property contradicts."""
    if statement.kind is not Kind.OWNER:
        return None
    stated = statement.claim["owner"]
    actual = changes[statement.subject.table_uuid].after.owner
    if actual is None:
        return None
    if actual != stated:
        return Verdict(Outcome.FAILS, f"the table's property owner is {actual!r}")
    return Verdict(Outcome.HOLDS, "the table's property owner says so")


@dataclass(frozen=True, slots=True)
class _Case:
    """A statement with a check, and what metadata says of its table."""

    statement: Statement
    check: Check
    changes: Changes
    now_ms: int

    @property
    def change(self) -> Change:
        return self.changes[self.statement.subject.table_uuid]

    def of(self, slot: str) -> tuple[TableFacts, ColumnFacts] | None:
        """Facts of the column that a slot names; None when metadata has none."""
        return self._named(self.check.arguments[slot])

    def of_only(self, slot: str) -> ColumnFacts | None:
        """Facts of the one column that a list names; None where there are more, or no facts."""
        written = self.check.arguments[slot]
        named = self._named(written[0]) if len(written) == 1 else None
        return None if named is None else named[1]

    def _named(self, written: str) -> tuple[TableFacts, ColumnFacts] | None:
        for reference in self.statement.references:
            if reference.column is None or reference.field_id is None:
                continue
            is_own = (
                reference.table_uuid == self.statement.subject.table_uuid
                and written == reference.column
            )
            if is_own or written == f"{reference.table}.{reference.column}":
                facts = self.changes[reference.table_uuid].after
                column = facts.columns.get(reference.field_id)
                return None if column is None else (facts, column)
        return None

    @property
    def filtered(self) -> bool:
        return "where" in self.check.arguments or "to_where" in self.check.arguments


def _bounds(case: _Case) -> Verdict | None:
    named = case.of("column")
    if named is None:
        return None
    column = named[1]
    if column.values is not None and column.values == column.nulls:
        return Verdict(Outcome.HOLDS, "every value is null")
    if column.lower is None or column.upper is None or column.nans is None:
        return None
    low, high = (_limit(case.check.arguments.get(end), column) for end in ("min", "max"))
    if low is _INCOMPARABLE or high is _INCOMPARABLE:
        return None
    seen = {"min": column.lower, "max": column.upper}
    below = low is not None and column.lower < low
    above = high is not None and column.upper > high
    if not below and not above:
        if column.nans:
            return None
        return Verdict(Outcome.HOLDS, f"values lie in {_range(column)}", observed=seen)
    if case.filtered or not column.tight:
        return None
    return Verdict(Outcome.FAILS, f"values lie in {_range(column)}", observed=seen)


def _null_share(case: _Case) -> Verdict | None:
    named = case.of("column")
    if named is None:
        return None
    facts, column = named
    if column.nulls is None or column.values is None:
        return None
    low, high = case.check.share(0.0, 0.0)
    if column.nulls == 0 and low <= 0:
        return Verdict(Outcome.HOLDS, "no value is null", observed={"nulls": 0})
    if case.filtered or facts.rows is None or not facts.rows or column.values != facts.rows:
        return None
    share = column.nulls / facts.rows
    seen = {"nulls": column.nulls, "rows": facts.rows}
    outcome = Outcome.HOLDS if low <= share <= high else Outcome.FAILS
    return Verdict(outcome, f"{column.nulls:,} of {facts.rows:,} rows are null", observed=seen)


def _values(case: _Case) -> Verdict | None:
    """Bounds outside an allowed list refute it, and too many values; metadata proves none."""
    named = case.of("column")
    if named is None or case.filtered:
        return None
    column = named[1]
    if (refuted := _too_many_or_few(case.check, column.distinct)) is not None:
        return refuted
    if column.lower is None or column.upper is None or not column.tight:
        return None
    allowed = [as_type_of(value, column.lower) for value in case.check.arguments["allowed"]]
    if any(value is None for value in allowed):
        return None
    for bound in (column.lower, column.upper):
        if bound not in allowed:
            return Verdict(Outcome.FAILS, f"the value {bound} occurs", observed={"value": bound})
    return None


def _too_many_or_few(check: Check, distinct: Distinct | None) -> Verdict | None:
    if distinct is None:
        return None
    allowed = len({str(value) for value in check.arguments["allowed"]})
    if distinct.least > allowed:
        reason = f"{distinct} different values occur, {allowed:,} are allowed"
    elif check.arguments.get("all_used") and distinct.most < allowed:
        reason = f"{distinct} different values occur, not all of {allowed:,}"
    else:
        return None
    return Verdict(Outcome.FAILS, reason, observed={"distinct": distinct.least})


def _row_ratio(case: _Case) -> Verdict | None:
    if case.filtered:
        return None
    to = case.check.arguments["to"]
    other = next(
        reference.table_uuid
        for reference in case.statement.references
        if reference.table == to and not reference.column
    )
    rows, others = case.change.after.rows, case.changes[other].after.rows
    if rows is None or others is None:
        return None
    low, high = case.check.share()
    seen = {"rows": rows, "to_rows": others}
    ratio = rows / others if others else (float("inf") if rows else 0.0)
    outcome = Outcome.HOLDS if low <= ratio <= high else Outcome.FAILS
    return Verdict(outcome, f"{rows:,} rows for {others:,} of {to}", observed=seen)


def _newest(case: _Case) -> Verdict | None:
    named = case.of("column")
    if named is None:
        return None
    column = named[1]
    if column.values is not None and column.values == column.nulls:
        return Verdict(Outcome.FAILS, "there is no value")
    if column.upper is None:
        return None
    if not column.tight and too_old(case.check, column.upper, case.now_ms) is None:
        return None
    return newest_verdict(case.check, column.upper, case.now_ms)


def newest_verdict(check: Check, newest: Any, now_ms: int) -> Verdict:
    """Whether the newest value is where a `newest` check wants it."""
    seen = {"newest": newest}
    late = too_old(check, newest, now_ms)
    if late is not None:
        return Verdict(Outcome.FAILS, f"the newest is {newest}, {late}", observed=seen)
    most = check.arguments.get("at_most")
    limit = None if most is None else as_type_of(most, newest)
    if limit is not None and newest > limit:
        return Verdict(Outcome.FAILS, f"the newest is {newest}, after {most}", observed=seen)
    return Verdict(Outcome.HOLDS, f"the newest is {newest}", observed=seen)


def too_old(check: Check, newest: Any, now_ms: int) -> str | None:
    """Why a newest value is older than the check allows; None when it is not."""
    least, within = check.arguments.get("at_least"), check.arguments.get("within")
    limit = None if least is None else as_type_of(least, newest)
    if limit is not None and newest < limit:
        return f"before {least}"
    if within is not None and _age_ms(newest, now_ms) > span_ms(within, "newest"):
        return f"more than {within} ago"
    return None


def _age_ms(newest: Any, now_ms: int) -> int:
    """How old a time is; a day is as old as its end."""
    if not isinstance(newest, dt.date):
        return 0
    moment = newest if isinstance(newest, dt.datetime) else dt.datetime.combine(newest, dt.time.max)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return now_ms - int(moment.timestamp() * 1000)


def _unique(case: _Case) -> Verdict | None:
    """One row, or none, is unique; of one column a sketch counts the different values."""
    rows = case.change.after.rows
    low, high = case.check.share()
    if rows is None or case.filtered:
        return None
    if rows <= 1 and low <= 1 <= high:
        return Verdict(Outcome.HOLDS, f"the table has {rows} rows")
    facts = case.of_only("columns")
    if facts is None or facts.distinct is None or facts.nulls != 0 or not rows:
        return None
    distinct = facts.distinct
    least, most = distinct.least / rows, min(distinct.most, rows) / rows
    if low <= least and most <= high:
        outcome = Outcome.HOLDS
    elif most < low or high < least:
        outcome = Outcome.FAILS
    else:
        return None
    seen = {"distinct": distinct.least, "rows": rows}
    return Verdict(outcome, f"{distinct} different values in {rows:,} rows", observed=seen)


def _nothing(case: _Case) -> Verdict | None:  # noqa: ARG001 - metadata says nothing of these checks
    return None


_INCOMPARABLE = object()


def _limit(written: Any, column: ColumnFacts) -> Any:
    if written is None:
        return None
    limit = as_type_of(written, column.upper)
    return _INCOMPARABLE if limit is None else limit


def _range(column: ColumnFacts) -> str:
    return f"[{column.lower}, {column.upper}]"


_BY_METADATA: Mapping[str, Callable[[_Case], Verdict | None]] = {
    "bounds": _bounds,
    "null_share": _null_share,
    "values": _values,
    "row_ratio": _row_ratio,
    "newest": _newest,
    "unique": _unique,
}
