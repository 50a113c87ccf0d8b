"""A statement's state: computed from its last verification and metadata, never stored.

- verified: its evidence held and nothing that it depends on changed since, or metadata shows that
  it holds now. Without evidence: a person said so, and nothing around it changed.
- unverified: rows changed since its evidence ran, or it never ran; or its evidence, which it shares
  with others, fails by what one of them claims and it does not. Without evidence: what is around it
  changed too much.
- contradicted: its evidence fails, metadata refutes it, or what it is about does not exist any
  more.
- expired: its date has passed.
- deprecated: another statement replaced it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any

from lakehouse.semantics.facts import Change, ColumnFacts, TableFacts
from lakehouse.semantics.judgement import Changes, Extent, Outcome, Verdict, judge
from lakehouse.semantics.measures import concerns
from lakehouse.semantics.statements import Statement


class State(StrEnum):
    """The state of a statement, which agents see beside it."""

    VERIFIED = "verified"
    UNVERIFIED = "unverified"
    CONTRADICTED = "contradicted"
    EXPIRED = "expired"
    DEPRECATED = "deprecated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A table as it was when a statement was verified: what later metadata is compared with.

    Attributes:
        snapshot_id: None for a table without data.
        schema_id: of the schema then.
        rows: live rows; None when unknown.
        owner: the table's property `owner`; None when it had none.
        columns: by field id: values, nulls, bytes, lower and upper bound as plain values.
    """

    snapshot_id: int | None
    schema_id: int
    rows: int | None = None
    owner: str | None = None
    columns: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, facts: TableFacts, field_ids: frozenset[int]) -> Mark:
        """What is kept of a table's facts: those of the fields that a statement depends on."""
        return cls(
            snapshot_id=facts.snapshot_id,
            schema_id=facts.schema_id,
            rows=facts.rows,
            owner=facts.owner,
            columns={
                field_id: _column_mark(facts.columns[field_id])
                for field_id in sorted(field_ids)
                if field_id in facts.columns
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """That a statement was looked at, and what was seen.

    Attributes:
        statement_id: of the statement.
        digest: of the statement as it was; another wording was not verified.
        at_ms: when.
        by: "metadata", "evidence", or the person who accepted it.
        holds: whether it did.
        reason: for people.
        observed: numbers that were seen, the measure of incremental checks among them.
        marks: by table uuid.
    """

    statement_id: str
    digest: str
    at_ms: int
    by: str
    holds: bool
    reason: str = ""
    observed: Mapping[str, Any] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A statement's state and its ground.

    Attributes:
        state: see the table of this module.
        reason: for people; empty when there is nothing to say.
        since: snapshot since which it is unverified or contradicted, where that is known.
        trust: 1 for a verified statement, 0 for a contradicted one; between for what nothing can
            check.
        verdict: what metadata said.
    """

    state: State
    reason: str = ""
    since: int | None = None
    trust: float = 1.0
    verdict: Verdict | None = None


TRUSTED = 0.7
"""A statement without evidence is unverified below this trust."""


def standing(
    statement: Statement,
    last: Verification | None,
    changes: Changes,
    now_ms: int,
    names: Collection[str] = frozenset(),
    beside: Sequence[Statement] = (),
) -> Standing:
    """The state of a statement.

    Args:
        statement: bound.
        last: its last verification; one of another digest counts for nothing.
        changes: of the tables that it depends on, since the snapshots of `last`.
        now_ms: the clock.
        names: of the tables that there are now.
        beside: other statements that have its evidence.
    """
    if statement.draft.superseded_by:
        return Standing(
            state=State.DEPRECATED, reason=f"replaced by {statement.draft.superseded_by}"
        )
    expires = statement.draft.expires
    today = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC).date().isoformat()
    if expires is not None and today >= expires:
        return Standing(state=State.EXPIRED, reason=f"valid until {expires}", trust=0.0)
    if last is not None and last.digest != statement.digest():
        last = None
    verdict = judge(statement, changes, known=last is not None, now_ms=now_ms, names=names)
    since = _since(statement, changes)
    if verdict.outcome is Outcome.FAILS:
        if verdict.observed and not _concerned(statement, beside, verdict.observed):
            return _by_others(verdict.reason, since, verdict)
        return Standing(
            state=State.CONTRADICTED, reason=verdict.reason, since=since, trust=0.0, verdict=verdict
        )
    if verdict.outcome is Outcome.HOLDS:
        return Standing(state=State.VERIFIED, reason=verdict.reason, verdict=verdict)
    if last is not None and not last.holds:
        if not _concerned(statement, beside, last.observed):
            return _by_others(last.reason, _marked(statement, last), verdict)
        return Standing(
            state=State.CONTRADICTED,
            reason=last.reason,
            since=_marked(statement, last),
            trust=0.0,
            verdict=verdict,
        )
    if statement.evidence is None:
        return _without_evidence(statement, last, changes, verdict)
    if verdict.outcome is Outcome.CARRIES and last is not None:
        return Standing(state=State.VERIFIED, reason=last.reason, verdict=verdict)
    reason = "its evidence has not run" if last is None else f"rows changed since {_day(last)}"
    if verdict.outcome is Outcome.UNKNOWN and verdict.extent is Extent.NOTHING:
        reason = verdict.reason
    return Standing(state=State.UNVERIFIED, reason=reason, since=since, trust=0.5, verdict=verdict)


def _concerned(
    statement: Statement, beside: Sequence[Statement], observed: Mapping[str, Any]
) -> bool:
    """Whether a check's failure is about this statement: always, unless it is about another."""
    return not any(concerns(other, observed) for other in beside) or concerns(statement, observed)


def _by_others(reason: str, since: int | None, verdict: Verdict) -> Standing:
    return Standing(
        state=State.UNVERIFIED,
        reason=f"its check fails by what another statement claims: {reason}",
        since=since,
        trust=0.5,
        verdict=verdict,
    )


def depends_on_the_clock(statement: Statement) -> bool:
    """Whether its state can change though nothing else does."""
    check = statement.evidence
    return statement.draft.expires is not None or (
        check is not None and "within" in check.arguments
    )


def _without_evidence(
    statement: Statement, last: Verification | None, changes: Changes, verdict: Verdict
) -> Standing:
    if last is None:
        return Standing(
            state=State.UNVERIFIED, reason="nobody has accepted it", trust=0.5, verdict=verdict
        )
    trust, losses = trust_left(statement, last, changes)
    if trust >= TRUSTED:
        reason = f"stated by {last.by}, nothing around it changed" if not losses else losses[0]
        return Standing(state=State.VERIFIED, reason=reason, trust=trust, verdict=verdict)
    return Standing(
        state=State.UNVERIFIED,
        reason="; ".join(losses),
        since=_since(statement, changes),
        trust=trust,
        verdict=verdict,
    )


_NULLS_MOVED = 0.1
_WIDTH_MOVED = 1.5
_RANGE_MOVED = 0.5
_ENOUGH = 1000  # below, what a file costs by itself hides the width of its values
_FACTOR = {
    "rewritten": 0.8,
    "nulls": 0.6,
    "width": 0.6,
    "range": 0.6,
    "rows": 0.6,
    "owner": 0.6,
}


def trust_left(
    statement: Statement, last: Verification, changes: Changes
) -> tuple[float, list[str]]:
    """What is left of the trust in a statement that nothing can check, and what it lost it by.

    Each of these takes a part: its columns were rewritten, the share of nulls moved by a tenth,
    values became half as wide again or a third narrower (unless compaction came since), numbers
    left their range by half of it, half of the rows went, and the table's owner is another one, or
    nobody any more.
    """
    trust, losses = 1.0, []
    for uuid, mark in sorted(last.marks.items()):
        change = changes.get(uuid)
        if change is None:
            continue
        losses_by_kind = _owner_losses(mark, change.after)
        losses_by_kind += [] if change.same_rows else _losses(statement, mark, change)
        for what, loss in losses_by_kind:
            trust *= _FACTOR[what]
            losses.append(loss)
    return round(trust, 3), losses


def _owner_losses(mark: Mark, after: TableFacts) -> list[tuple[str, str]]:
    if mark.owner is None or after.owner == mark.owner:
        return []
    who = "nobody is" if after.owner is None else f"{after.owner!r} is"
    return [("owner", f"{who} the owner of {after.name}, which was {mark.owner!r}'s")]


def _losses(statement: Statement, mark: Mark, change: Change) -> list[tuple[str, str]]:
    after, losses = change.after, []
    if mark.rows and after.rows is not None and after.rows < mark.rows / 2:
        losses.append(("rows", f"{after.name} went from {mark.rows:,} to {after.rows:,} rows"))
    for field_id in sorted(statement.fields_of(after.table_uuid)):
        old, new = mark.columns.get(field_id), after.columns.get(field_id)
        name = f"{after.name}.{after.names.get(field_id, field_id)}"
        if old is None or new is None:
            continue
        if not change.append_only and _values_of(old) != _values_of(_column_mark(new)):
            losses.append(("rewritten", f"{name} was rewritten"))
        losses += _shifts(name, old, _column_mark(new), repacked=change.repacked)
    return losses


def _shifts(
    name: str, old: Mapping[str, Any], new: Mapping[str, Any], *, repacked: bool
) -> list[tuple[str, str]]:
    shifts = []
    before, now = _ratio(old, "nulls"), _ratio(new, "nulls")
    if before is not None and now is not None and abs(now - before) > _NULLS_MOVED:
        shifts.append(("nulls", f"nulls of {name} went from {before:.0%} to {now:.0%}"))
    wide, wider = _ratio(old, "bytes"), _ratio(new, "bytes")
    enough = not repacked and min(old.get("values") or 0, new.get("values") or 0) >= _ENOUGH
    if enough and wide and wider and not 1 / _WIDTH_MOVED <= wider / wide <= _WIDTH_MOVED:
        shifts.append(("width", f"values of {name} take {wider / wide:.1f} times the bytes"))
    low, high = _number(old.get("lower")), _number(old.get("upper"))
    lower, upper = _number(new.get("lower")), _number(new.get("upper"))
    if low is not None and high is not None and lower is not None and upper is not None:
        margin = _RANGE_MOVED * max(high - low, 1e-12)
        if lower < low - margin or upper > high + margin:
            shifts.append(("range", f"{name} went from [{low}, {high}] to [{lower}, {upper}]"))
    return shifts


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _ratio(column: Mapping[str, Any], what: str) -> float | None:
    values, part = column.get("values"), column.get(what)
    return None if not values or part is None else part / values


def _column_mark(column: ColumnFacts) -> dict[str, Any]:
    return {
        "values": column.values,
        "nulls": column.nulls,
        "bytes": column.bytes,
        "lower": _plain(column.lower),
        "upper": _plain(column.upper),
    }


def _values_of(column: Mapping[str, Any]) -> dict[str, Any]:
    """All but the bytes, which another order of rows changes."""
    return {name: value for name, value in column.items() if name != "bytes"}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Decimal):
        return float(value)
    return value.hex() if isinstance(value, bytes) else str(value)


def _since(statement: Statement, changes: Changes) -> int | None:
    """The earliest change of rows of the tables that the statement depends on, its own first."""
    own_change = changes.get(statement.subject.table_uuid)
    if own_change is not None and own_change.since is not None:
        return own_change.since
    later = [changes[table].since for table in sorted(statement.tables) if table in changes]
    return next((moment for moment in later if moment is not None), None)


def _marked(statement: Statement, last: Verification) -> int | None:
    mark = last.marks.get(statement.subject.table_uuid)
    return None if mark is None else mark.snapshot_id


def _day(last: Verification) -> str:
    return dt.datetime.fromtimestamp(last.at_ms / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
