"""Checks every statement against the lakehouse: by metadata first, else by its evidence.

`check_statements` runs the evidence that is missing after a look, and records what it saw.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lakehouse.curation.statement_store import DIGEST, StatementStore
from lakehouse.curation.survey import Survey, survey
from lakehouse.lake import Lakehouse
from lakehouse.semantics.judgement import Extent, Outcome, Verdict
from lakehouse.semantics.statements import Draft, Statement
from lakehouse.semantics.states import Standing, State, Verification
from lakehouse.table import Table


@dataclass(frozen=True, slots=True)
class Checked:
    """One statement after a check.

    Attributes:
        statement: bound.
        draft: under present names.
        standing: its state now.
        by: what decided: "metadata", "evidence", a person's name, or "" for nothing.
    """

    statement: Statement
    draft: Draft
    standing: Standing
    by: str

    def to_json(self) -> dict[str, Any]:
        """Plain values: the draft, and its state."""
        return {
            **self.draft.to_json(),
            "state": str(self.standing.state),
            "reason": self.standing.reason,
            "since_snapshot_id": self.standing.since,
            "trust": self.standing.trust,
            "decided_by": self.by,
        }


def check_statements(
    lake: Lakehouse,
    tables: Iterable[str] | None = None,
    *,
    run_evidence: bool = True,
    record: bool = True,
) -> list[Checked]:
    """Survey a lakehouse, check its statements and keep what was seen.

    Args:
        lake: the lakehouse.
        tables: dotted names; only statements about these. None: all.
        run_evidence: whether to read data where metadata does not suffice.
        record: whether to write verifications.

    Returns:
        One result a statement, in the order of ids.
    """
    seen = survey(lake, tables)
    results, verifications = check(seen, run_evidence=run_evidence)
    if record:
        StatementStore(lake).record(verifications)
    return results


def statements_about(lake: Lakehouse, table: Table) -> list[Checked]:
    """The statements about a table with their states now, from metadata alone.

    None when the table's properties name no digest of any.
    """
    if DIGEST not in table.properties:
        return []
    results, _ = check(survey(lake, [table.name]), run_evidence=False)
    return results


def check(seen: Survey, *, run_evidence: bool = True) -> tuple[list[Checked], list[Verification]]:
    """The results of a check, and the verdicts worth keeping. Nothing is written."""
    results, verifications = [], []
    for statement in seen.statements:
        now = seen.standing(statement)
        by, verdict = _decided(seen, statement, now)
        if verdict is None and run_evidence and _wants_evidence(statement, now):
            extent = Extent.TABLE if now.verdict is None else now.verdict.extent
            by, verdict = "evidence", seen.run_evidence(statement, extent)
        if verdict is not None and (by == "evidence" or not seen.is_current(statement)):
            verification = seen.verification(statement, verdict, by)
            verifications.append(verification)
            seen.keep(verification)
            now = seen.standing(statement)
        results.append(Checked(statement, seen.draft(statement), now, by))
    return results, verifications


def accept(lake: Lakehouse, statements: Sequence[Statement], by: str) -> None:
    """Keep that a person read statements that have no evidence, at the tables as they are now."""
    seen = survey(lake, {statement.draft.table for statement in statements})
    digests = {statement.statement_id: statement.digest() for statement in seen.statements}
    read = Verdict(Outcome.HOLDS, f"stated by {by}")
    StatementStore(lake).record(
        [
            seen.verification(statement, read, statement.draft.author or by)
            for statement in statements
            if statement.evidence is None
            and digests.get(statement.statement_id) == statement.digest()
            and not seen.is_current(statement)
        ]
    )


def _decided(seen: Survey, statement: Statement, now: Standing) -> tuple[str, Verdict | None]:
    """Who decided, and the verdict to keep.

    None when the data has to be asked, or there is nothing to keep.
    """
    verdict = now.verdict
    last = seen.verifications.get(statement.statement_id)
    if verdict is None:
        return "", None
    if verdict.outcome in (Outcome.HOLDS, Outcome.FAILS):
        return "metadata", verdict
    if verdict.outcome is Outcome.CARRIES and last is not None and statement.evidence is not None:
        outcome = Outcome.HOLDS if last.holds else Outcome.FAILS
        return last.by, Verdict(outcome, last.reason, observed=last.observed)
    return ("" if last is None else last.by), None


def _wants_evidence(statement: Statement, now: Standing) -> bool:
    verdict = now.verdict
    cannot_run = verdict and (verdict.outcome, verdict.extent) == (Outcome.UNKNOWN, Extent.NOTHING)
    in_doubt = now.state in (State.UNVERIFIED, State.CONTRADICTED)
    return statement.evidence is not None and in_doubt and not cannot_run
