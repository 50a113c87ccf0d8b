"""Checks every statement against the lakehouse: by metadata first, else by its evidence.

`survey` reads what is said, what was verified and what metadata says; `standing` gives the states,
from metadata alone. `check_statements` runs the evidence that is missing and records what it saw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import InitVar, dataclass, field
from typing import Any

from lakehouse.curation.evidence_run import EvidenceRunner
from lakehouse.curation.gathering import Gatherer, table_names
from lakehouse.curation.statement_store import DIGEST, NAMESPACE, StatementStore
from lakehouse.lake import Lakehouse
from lakehouse.semantics.binding import TableNames, under_present_names
from lakehouse.semantics.facts import Change
from lakehouse.semantics.judgement import Extent, Outcome, Verdict
from lakehouse.semantics.statements import Draft, Statement
from lakehouse.semantics.states import (
    Mark,
    Standing,
    State,
    Verification,
    depends_on_the_clock,
    standing,
)
from lakehouse.table import Table


@dataclass
class Findings:
    """What a survey found out so far, for itself and for later looks.

    Attributes:
        gatherers: of metadata, by table uuid.
        drafts: statements under present names, by id.
        standings: states, by id.
    """

    gatherers: dict[str, Gatherer] = field(default_factory=dict)
    drafts: dict[str, Draft] = field(default_factory=dict)
    standings: dict[str, Standing] = field(default_factory=dict)


@dataclass
class Survey:
    """One look at a lakehouse: its tables, statements and their last verifications.

    Attributes:
        lake: the lakehouse.
        tables: the versions looked at, by uuid.
        statements: what is said.
        verifications: the last one of each statement, by id.
        now_ms: when it was looked at.
        earlier: an earlier look at the same lakehouse; what it found out about tables and
            statements that are the same objects here is not found out again.
        names: of the tables and their columns, by uuid.
        found: what was found out so far.
    """

    lake: Lakehouse
    tables: Mapping[str, Table]
    statements: Sequence[Statement]
    verifications: dict[str, Verification]
    now_ms: int
    earlier: InitVar[Survey | None] = None
    names: dict[str, TableNames] = field(default_factory=dict)
    found: Findings = field(default_factory=Findings, repr=False)

    def __post_init__(self, earlier: Survey | None) -> None:
        wanted: dict[str, set[int]] = {}
        for statement in self.statements:
            for uuid in statement.tables:
                wanted.setdefault(uuid, set()).update(statement.fields_of(uuid))
        for uuid, table in self.tables.items():
            fields = wanted.get(uuid, set())
            known = None if earlier is None else earlier.found.gatherers.get(uuid)
            if earlier and known and known.table is table and known.wanted == fields:
                self.found.gatherers[uuid], self.names[uuid] = known, earlier.names[uuid]
            else:
                self.found.gatherers[uuid] = Gatherer(table, fields)
                self.names[uuid] = table_names(table)
        if earlier is not None:
            self._carry(earlier)

    def _carry(self, earlier: Survey) -> None:
        """Take over what neither tables, nor words, nor verifications, nor time have changed."""
        before, now = earlier.found, self.found
        same_words = {id(one) for one in earlier.statements}
        for one in self.statements:
            key = one.statement_id
            if id(one) not in same_words or any(
                before.gatherers.get(uuid) is not now.gatherers.get(uuid) for uuid in one.tables
            ):
                continue
            if key in before.drafts:
                now.drafts[key] = before.drafts[key]
            seen_alike = self.verifications.get(key) == earlier.verifications.get(key)
            if key in before.standings and seen_alike and not depends_on_the_clock(one):
                now.standings[key] = before.standings[key]

    def changes(self, statement: Statement) -> dict[str, Change]:
        """Changes to the tables since the verification, by uuid; dropped tables are left out."""
        marks = self._marks(statement)
        return {
            uuid: self.found.gatherers[uuid].change(marks.get(uuid))
            for uuid in statement.tables
            if uuid in self.found.gatherers
        }

    def standing(self, statement: Statement) -> Standing:
        """The statement's state now."""
        last = self.verifications.get(statement.statement_id)
        return standing(statement, last, self.changes(statement), self.now_ms)

    def standings(self) -> dict[str, Standing]:
        """The states of all statements now, by id."""
        known = self.found.standings
        for one in self.statements:
            if one.statement_id not in known:
                known[one.statement_id] = self.standing(one)
        return dict(known)

    def draft(self, statement: Statement) -> Draft:
        """The statement, one of these, under present names."""
        known = self.found.drafts
        if statement.statement_id not in known:
            known[statement.statement_id] = under_present_names(statement, self.names)
        return known[statement.statement_id]

    def keep(self, verification: Verification) -> None:
        """Take a verification for the last one of its statement."""
        self.verifications[verification.statement_id] = verification
        self.found.standings.pop(verification.statement_id, None)

    def run_evidence(self, statement: Statement, extent: Extent) -> Verdict:
        """The verdict of the data on a statement."""
        tables = {table.name: table for table in self.tables.values()}
        changes = {change.after.name: change for change in self.changes(statement).values()}
        marks = self._marks(statement)
        last = self.verifications.get(statement.statement_id)
        return EvidenceRunner(self.lake, tables).run(
            self.draft(statement),
            extent,
            changes,
            {} if last is None else last.observed,
            {table.name: marks.get(uuid) for uuid, table in self.tables.items()},
        )

    def verification(self, statement: Statement, found: Verdict, by: str) -> Verification:
        """What to keep of a verdict."""
        changes = self.changes(statement)
        return Verification(
            statement_id=statement.statement_id,
            digest=statement.digest(),
            at_ms=self.now_ms,
            by=by,
            holds=found.outcome is Outcome.HOLDS,
            reason=found.reason,
            observed=found.observed,
            marks={
                uuid: Mark.of(change.after, statement.fields_of(uuid))
                for uuid, change in changes.items()
            },
        )

    def is_current(self, statement: Statement) -> bool:
        """Whether its last verification is of the present snapshots and of the present wording."""
        last = self.verifications.get(statement.statement_id)
        return (
            last is not None
            and last.digest == statement.digest()
            and all(
                uuid in self.tables
                and mark.snapshot_id == self.tables[uuid].metadata.current_snapshot_id
                for uuid, mark in last.marks.items()
            )
        )

    def _marks(self, statement: Statement) -> dict[str, int | None]:
        last = self.verifications.get(statement.statement_id)
        if last is None or last.digest != statement.digest():
            return {}
        return {uuid: mark.snapshot_id for uuid, mark in last.marks.items()}


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


def survey(
    lake: Lakehouse, tables: Iterable[str] | None = None, *, as_of_ms: int | None = None
) -> Survey:
    """Look at a lakehouse, every table of it.

    Args:
        lake: the lakehouse.
        tables: dotted names; only statements about these. None: all.
        as_of_ms: what was said and verified then; the tables are always those of now.
    """
    found = _all_tables(lake)
    names = None if tables is None else set(tables)
    uuids = {uuid for uuid, table in found.items() if names and table.name in names}
    return _survey(lake, lambda _: found, names, uuids, as_of_ms)


def survey_of(lake: Lakehouse, tables: Iterable[str], *, as_of_ms: int | None = None) -> Survey:
    """Look at tables, at what is said of them, and at the tables that this mentions; no others.

    `as_of_ms` as in `survey`.
    """
    names = set(tables)
    found = {
        table.metadata.table_uuid: table
        for name in names
        if lake.table_exists(name)
        for table in (lake.load_table(name),)
    }

    def with_mentioned(statements: Sequence[Statement]) -> dict[str, Table]:
        references = [one for statement in statements for one in statement.references]
        mentioned = {one.table_uuid: one.table for one in references}
        for uuid, name in mentioned.items():
            if uuid not in found and lake.table_exists(name):
                table = lake.load_table(name)
                found[table.metadata.table_uuid] = table
        # one that has another name now, or is gone
        return found if mentioned.keys() <= found.keys() else _all_tables(lake)

    return _survey(lake, with_mentioned, names, set(found), as_of_ms)


def _survey(
    lake: Lakehouse,
    tables_for: Callable[[Sequence[Statement]], Mapping[str, Table]],
    names: AbstractSet[str] | None,
    uuids: AbstractSet[str],
    as_of_ms: int | None,
) -> Survey:
    """Statements about tables of these names, also those that were given another name since."""
    store = StatementStore(lake)
    statements = [
        one
        for one in store.statements(as_of_ms)
        if names is None or one.subject.table in names or one.subject.table_uuid in uuids
    ]
    now_ms = lake.environment.now_ms()
    return Survey(lake, tables_for(statements), statements, store.verifications(as_of_ms), now_ms)


def _all_tables(lake: Lakehouse) -> dict[str, Table]:
    """By uuid."""
    return {
        table.metadata.table_uuid: table
        for name in lake.list_tables()
        if not name.startswith(f"{NAMESPACE}.")
        for table in (lake.load_table(name),)
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
    seen = survey(lake) if tables is None else survey_of(lake, tables)
    results, kept = check(seen, run_evidence=run_evidence)
    if record:
        StatementStore(lake).record(kept)
    return results


def statements_about(lake: Lakehouse, table: Table) -> list[Checked]:
    """The statements about a table with their states now, from metadata alone.

    None when the table's properties name no digest of any.
    """
    if DIGEST not in table.properties:
        return []
    results, _ = check(survey_of(lake, [table.name]), run_evidence=False)
    return results


def check(seen: Survey, *, run_evidence: bool = True) -> tuple[list[Checked], list[Verification]]:
    """The results of a check, and the verdicts worth keeping. Nothing is written."""
    results, kept = [], []
    for statement in seen.statements:
        now = seen.standing(statement)
        by, verdict = _decided(seen, statement, now)
        if verdict is None and run_evidence and _wants_evidence(statement, now):
            extent = Extent.TABLE if now.verdict is None else now.verdict.extent
            by, verdict = "evidence", seen.run_evidence(statement, extent)
        if verdict is not None and (by == "evidence" or not seen.is_current(statement)):
            made = seen.verification(statement, verdict, by)
            kept.append(made)
            seen.keep(made)
            now = seen.standing(statement)
        results.append(Checked(statement, seen.draft(statement), now, by))
    return results, kept


def accept(lake: Lakehouse, statements: Sequence[Statement], by: str) -> None:
    """Keep that a person read statements that have no evidence, at the tables as they are now."""
    seen = survey_of(lake, {one.draft.table for one in statements})
    known = {one.statement_id: one.digest() for one in seen.statements}
    read = Verdict(Outcome.HOLDS, f"stated by {by}")
    StatementStore(lake).record(
        [
            seen.verification(one, read, one.draft.author or by)
            for one in statements
            if one.evidence is None
            and known.get(one.statement_id) == one.digest()
            and not seen.is_current(one)
        ]
    )


def _decided(seen: Survey, statement: Statement, now: Standing) -> tuple[str, Verdict | None]:
    """Who decided, and the verdict to keep.

    None when the data has to be asked, or there is nothing to keep.
    """
    found = now.verdict
    last = seen.verifications.get(statement.statement_id)
    if found is None:
        return "", None
    if found.outcome in (Outcome.HOLDS, Outcome.FAILS):
        return "metadata", found
    if found.outcome is Outcome.CARRIES and last is not None and statement.evidence is not None:
        outcome = Outcome.HOLDS if last.holds else Outcome.FAILS
        return last.by, Verdict(outcome, last.reason, observed=last.observed)
    return ("" if last is None else last.by), None


def _wants_evidence(statement: Statement, now: Standing) -> bool:
    return statement.evidence is not None and now.state in (State.UNVERIFIED, State.CONTRADICTED)
