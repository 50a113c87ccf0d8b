"""A look at a lakehouse: its tables, their statements, and what the last checks of them saw.

What is said is read before the tables that it is about: a statement that is there is about tables
that are there, unless they were dropped. A look that is given an earlier one reads nothing again
that nobody changed since: of an unchanged lakehouse it loads the newest version of each table, or
for less where its catalog can tell at once that nothing changed; after a commit only that table's
metadata is gathered, and only the statements that mention it are judged.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import InitVar, dataclass, field

from lakehouse.curation.evidence_run import EvidenceRunner
from lakehouse.curation.gathering import Gatherer, table_names
from lakehouse.curation.statement_store import (
    NAMESPACE,
    STATEMENTS,
    VERIFICATIONS,
    statements_in,
    verifications_in,
)
from lakehouse.errors import ForbiddenError, NoSuchTableError
from lakehouse.lake import Lakehouse
from lakehouse.semantics.binding import TableNames, under_present_names
from lakehouse.semantics.facts import Change
from lakehouse.semantics.judgement import Extent, Outcome, Verdict
from lakehouse.semantics.statements import Draft, Statement, digest_of
from lakehouse.semantics.states import Mark, Standing, Verification, depends_on_the_clock, standing
from lakehouse.spec.identifier import holds_state
from lakehouse.table import Table


@dataclass
class Findings:
    """Results of a survey so far, for itself and for later looks.

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
        statements: all that were read.
        verifications: the last one of each statement, by id.
        now_ms: when it was looked at.
        earlier: an earlier look at the same lakehouse; its results for tables and statements that
            are the same objects here are taken from it.
        names: of the tables and their columns, by uuid.
        findings: of this look so far.
        backed: the statements with evidence, by its digest.
        reader: what read it.
    """

    lake: Lakehouse
    tables: Mapping[str, Table]
    statements: Sequence[Statement]
    verifications: dict[str, Verification]
    now_ms: int
    reader: Reader = field(repr=False)
    earlier: InitVar[Survey | None] = None
    names: dict[str, TableNames] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings, repr=False)
    backed: dict[str, list[Statement]] = field(default_factory=dict, repr=False)

    def __post_init__(self, earlier: Survey | None) -> None:
        wanted: dict[str, set[int]] = {}
        for statement in self.statements:
            if statement.evidence is not None and not statement.draft.superseded_by:
                self.backed.setdefault(_evidence_of(statement), []).append(statement)
            for uuid in statement.tables:
                wanted.setdefault(uuid, set()).update(statement.fields_of(uuid))
        for uuid, table in self.tables.items():
            fields = wanted.get(uuid, set())
            gatherer = None if earlier is None else earlier.findings.gatherers.get(uuid)
            if earlier and gatherer and gatherer.table is table and gatherer.wanted == fields:
                self.findings.gatherers[uuid], self.names[uuid] = gatherer, earlier.names[uuid]
            else:
                self.findings.gatherers[uuid] = Gatherer(table, fields)
                self.names[uuid] = table_names(table)
        if earlier is not None:
            self._carry(earlier)

    def _carry(self, earlier: Survey) -> None:
        """Take over what neither tables, nor words, nor verifications, nor time have changed."""
        before, now = earlier.findings, self.findings
        same_words = {id(statement) for statement in earlier.statements}
        for statement in self.statements:
            key = statement.statement_id
            if id(statement) not in same_words or any(
                uuid not in now.gatherers or before.gatherers.get(uuid) is not now.gatherers[uuid]
                for uuid in statement.tables
            ):
                continue
            if key in before.drafts:
                now.drafts[key] = before.drafts[key]
            seen_alike = self.verifications.get(key) == earlier.verifications.get(
                key
            ) and self.beside(statement) == earlier.beside(statement)
            if key in before.standings and seen_alike and not depends_on_the_clock(statement):
                now.standings[key] = before.standings[key]

    def restricted(self, may_read: Callable[[str], bool]) -> Survey:
        """The same look without the statements that mention a table which somebody may not read.

        What is seen of a statement tells of every table in it.

        Args:
            may_read: of a dotted name, also of a table that is no more.
        """
        seen = copy(self)
        seen.statements = [
            statement
            for statement in self.statements
            if all(may_read(name) for name in self._mentioned(statement))
        ]
        return seen

    def _mentioned(self, statement: Statement) -> set[str]:
        """The present names of its tables; of dropped ones the last name."""
        return {
            self.names[reference.table_uuid].name
            if reference.table_uuid in self.names
            else reference.table
            for reference in statement.references
        }

    def changes(self, statement: Statement) -> dict[str, Change]:
        """Changes to the tables since the verification, by uuid; dropped tables are left out."""
        marks = self._marks(statement)
        return {
            uuid: self.findings.gatherers[uuid].change(marks.get(uuid))
            for uuid in statement.tables
            if uuid in self.findings.gatherers
        }

    def beside(self, statement: Statement) -> list[Statement]:
        """Other statements that the same evidence backs."""
        if statement.evidence is None:
            return []
        backed = self.backed.get(_evidence_of(statement), ())
        return [other for other in backed if other.statement_id != statement.statement_id]

    def standing(self, statement: Statement) -> Standing:
        """The statement's state now."""
        last = self.verifications.get(statement.statement_id)
        gone = [
            reference.table
            for reference in statement.references
            if reference.table_uuid not in self.tables
        ]
        taken = {name for name in gone if self.reader.holds(name)}
        changes, beside = self.changes(statement), self.beside(statement)
        return standing(statement, last, changes, self.now_ms, taken, beside)

    def standings(self) -> dict[str, Standing]:
        """The states of all statements now, by id."""
        standings = self.findings.standings
        for statement in self.statements:
            if statement.statement_id not in standings:
                standings[statement.statement_id] = self.standing(statement)
        return dict(standings)

    def draft(self, statement: Statement) -> Draft:
        """The statement, one of these, under present names."""
        drafts = self.findings.drafts
        if statement.statement_id not in drafts:
            drafts[statement.statement_id] = under_present_names(statement, self.names)
        return drafts[statement.statement_id]

    def keep(self, verification: Verification) -> None:
        """Take a verification for the last one of its statement."""
        self.verifications[verification.statement_id] = verification
        self.findings.standings.pop(verification.statement_id, None)

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

    def verification(self, statement: Statement, verdict: Verdict, by: str) -> Verification:
        """What to keep of a verdict."""
        changes = self.changes(statement)
        return Verification(
            statement_id=statement.statement_id,
            digest=statement.digest(),
            at_ms=self.now_ms,
            by=by,
            holds=verdict.outcome is Outcome.HOLDS,
            reason=verdict.reason,
            observed=verdict.observed,
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


def _evidence_of(statement: Statement) -> str:
    """A digest of a statement's evidence, and of the table that it begins with."""
    check = statement.evidence
    return digest_of([statement.subject.table_uuid, check and check.to_json()])


def survey(
    lake: Lakehouse,
    tables: Iterable[str] | None = None,
    *,
    as_of_ms: int | None = None,
    earlier: Survey | None = None,
) -> Survey:
    """Look at a lakehouse, from metadata alone.

    >>> seen = survey(lake)
    >>> seen = survey(lake, earlier=seen)  # the same, or what it has become meanwhile

    Statements that mention a table which the catalog's server does not let its caller read are left
    out: nothing can be said of them.

    Args:
        lake: the lakehouse.
        tables: dotted names; only these, their statements, and the tables that those mention.
            None: all tables.
        as_of_ms: what was said and verified then; the tables are always those of now.
        earlier: an earlier look at the same lakehouse.

    Raises:
        ForbiddenError: the caller may not read statements.
    """
    now_ms = lake.environment.now_ms()
    reader = Reader(lake, None if earlier is None else earlier.reader)
    statements = reader.statements(as_of_ms)
    verifications = reader.verifications(as_of_ms)
    if tables is None:
        by_uuid = reader.every_table()
    else:
        names = set(tables)
        by_uuid = reader.tables(names)
        statements = [
            statement
            for statement in statements
            if statement.subject.table in names or statement.subject.table_uuid in by_uuid
        ]
        mentioned = {
            reference.table_uuid: reference.table
            for statement in statements
            for reference in statement.references
        }
        by_uuid |= reader.tables({name for uuid, name in mentioned.items() if uuid not in by_uuid})
        if not mentioned.keys() <= by_uuid.keys():  # one that has another name now, or is gone
            by_uuid = reader.every_table()
        # what had one of these names may have another one now, and be none of them
        statements = [
            statement
            for statement in statements
            if (subject := by_uuid.get(statement.subject.table_uuid)) is None
            or subject.name in names
        ]
    readable = [
        statement
        for statement in statements
        if not any(
            reference.table_uuid not in by_uuid and reader.hides(reference.table)
            for reference in statement.references
        )
    ]
    return Survey(lake, by_uuid, readable, verifications, now_ms, reader, earlier)


@dataclass
class _Read:
    """What a look has read so far.

    Attributes:
        mark: the catalog's, of before anything was read.
        listed: names of its tables.
        tables: newest versions by name; None for what is no table, or may not be read.
        hidden: names of what may not be read.
        statements: the newest.
        verifications: the last of each statement.
    """

    mark: Hashable | None = None
    listed: list[str] | None = None
    tables: dict[str, Table | None] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    statements: Sequence[Statement] | None = None
    verifications: Mapping[str, Verification] | None = None


class Reader:
    """The newest versions of tables and what they say, each read once.

    Args:
        lake: the lakehouse.
        earlier: of an earlier look; what is still the newest is the same object as there.

    Attributes:
        read: so far.
    """

    def __init__(self, lake: Lakehouse, earlier: Reader | None = None) -> None:
        self._lake = lake
        # what the earlier one has read, and not itself, which would keep those before it alive
        self._before: _Read = _Read() if earlier is None else earlier.read
        self.read: _Read = _Read(mark=lake.catalog.change_mark())
        if self.read.mark is not None and self.read.mark == self._before.mark:
            self.read.listed = self._before.listed
            self.read.tables = dict(self._before.tables)
            self.read.hidden = set(self._before.hidden)

    def tables(self, names: Iterable[str]) -> dict[str, Table]:
        """Those of them that are there, by uuid."""
        newest = (self._newest(name) for name in sorted(names))
        return {table.metadata.table_uuid: table for table in newest if table is not None}

    def every_table(self) -> dict[str, Table]:
        """All but those of statements and of engines' state, by uuid."""
        if self.read.listed is None:
            self.read.listed = self._lake.list_tables()
        return self.tables(
            name
            for name in self.read.listed
            if not name.startswith(f"{NAMESPACE}.") and not holds_state(name)
        )

    def holds(self, name: str) -> bool:
        """Whether there is a table of this name."""
        return self._newest(name) is not None

    def hides(self, name: str) -> bool:
        """Whether the catalog's server says that its caller may not read what has this name."""
        self._newest(name)
        return name in self.read.hidden

    def statements(self, as_of_ms: int | None = None) -> Sequence[Statement]:
        """The statements, now or at a time; unchanged ones are the objects of the earlier look."""
        table, before = self._newest(STATEMENTS), self._before
        if as_of_ms is not None:
            return statements_in(table, as_of_ms)
        if before.statements is not None and table is before.tables.get(STATEMENTS):
            self.read.statements = before.statements
        else:
            before_by_id = {
                statement.statement_id: statement for statement in before.statements or ()
            }
            self.read.statements = [
                old if (old := before_by_id.get(statement.statement_id)) == statement else statement
                for statement in statements_in(table)
            ]
        return self.read.statements

    def verifications(self, as_of_ms: int | None = None) -> dict[str, Verification]:
        """The last verifications, now or at a time, by id."""
        table, before = self._newest(VERIFICATIONS), self._before
        if as_of_ms is not None:
            return verifications_in(table, as_of_ms)
        if before.verifications is not None and table is before.tables.get(VERIFICATIONS):
            self.read.verifications = before.verifications
        else:
            self.read.verifications = verifications_in(table)
        return dict(self.read.verifications)

    def _newest(self, name: str) -> Table | None:
        if name not in self.read.tables:
            self.read.tables[name] = self._loaded(name)
        return self.read.tables[name]

    def _loaded(self, name: str) -> Table | None:
        loaded = self._before.tables.get(name)
        try:
            if loaded is not None and self._lake.catalog.refresh(loaded.version) is loaded.version:
                return loaded
            return self._lake.load_table(name)
        except NoSuchTableError:
            return None
        except ForbiddenError:
            if name in (STATEMENTS, VERIFICATIONS):
                raise
            self.read.hidden.add(name)
            return None
