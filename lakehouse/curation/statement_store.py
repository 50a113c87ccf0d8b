"""Statements and their verifications as two tables of the catalog they are about.

`semantics.statements` holds the current statements; its snapshots hold earlier ones.
`semantics.verifications` grows by a row each time that a statement is looked at. The digest of a
table's statements stands in the table's own properties.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from lakehouse.errors import CommitConflictError, InvalidStatementError, NoSuchSnapshotError
from lakehouse.lake import Lakehouse
from lakehouse.semantics.statement_rows import (
    STATEMENT_SCHEMA,
    VERIFICATION_SCHEMA,
    statement_rows,
    statements_of,
    verification_rows,
    verifications_of,
)
from lakehouse.semantics.statements import Statement, table_digest
from lakehouse.semantics.states import Verification
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.table import Table

NAMESPACE = "semantics"
STATEMENTS = f"{NAMESPACE}.statements"
VERIFICATIONS = f"{NAMESPACE}.verifications"

DIGEST = "lakehouse.semantics.digest"
"""Table property: digest of the statements about the table."""

STATEMENTS_TABLE = "lakehouse.semantics.statements-table"
"""Table property: the table that holds them."""


class StatementStore:
    """The statements of a lakehouse.

    Args:
        lake: the lakehouse, which also holds what the statements are about.
    """

    def __init__(self, lake: Lakehouse) -> None:
        self.lake = lake

    def statements(self, as_of_ms: int | None = None) -> list[Statement]:
        """The statements now, or at a time (milliseconds since the epoch), ordered by id."""
        return statements_in(self._open(STATEMENTS), as_of_ms)

    def verifications(self, as_of_ms: int | None = None) -> dict[str, Verification]:
        """The newest verification of each statement, by its id."""
        return verifications_in(self._open(VERIFICATIONS), as_of_ms)

    def put(
        self,
        statements: Sequence[Statement],
        *,
        replace: bool = False,
    ) -> Snapshot | None:
        """Add statements; one of the same id replaces the other.

        A concurrent change makes it fail, nothing is lost.

        Args:
            statements: bound to this catalog.
            replace: whether other statements about the same tables go.

        Returns:
            The snapshot of the table of statements; None when nothing changed.
        """
        table = self._table(STATEMENTS, STATEMENT_SCHEMA)
        before = {
            statement.statement_id: statement
            for statement in statements_of(table.scan().to_arrow())
        }
        new = {statement.statement_id: statement for statement in statements}
        tables = {statement.subject.table_uuid: statement.subject.table for statement in statements}
        after = {
            key: statement
            for key, statement in before.items()
            if key not in new and not (replace and statement.subject.table_uuid in tables)
        }
        for key, statement in new.items():
            old = before.get(key)
            after[key] = (
                old if old is not None and old.digest() == statement.digest() else statement
            )
        if after == before:
            return None
        ordered = [after[key] for key in sorted(after)]
        snapshot = table.overwrite(statement_rows(ordered)).snapshot
        self._stamp(ordered, tables)
        return snapshot

    def change(
        self,
        about: Table,
        statements: Sequence[Statement],
        removals: Iterable[str] = (),
        *,
        expected: str | None = None,
    ) -> Snapshot | None:
        """Add statements about one table, and take others about it back, in one commit.

        Args:
            about: the table.
            statements: bound to it; one of the same id replaces the other.
            removals: ids; those that there are not are passed over.
            expected: the digest of the table's statements when they were read.

        Returns:
            The snapshot of the table of statements; None when nothing changed.

        Raises:
            InvalidStatementError: an id is that of a statement about another table.
            CommitConflictError: the table's statements have changed since.
        """
        if not statements and not self.lake.table_exists(STATEMENTS):
            return None
        table, table_uuid = self._table(STATEMENTS, STATEMENT_SCHEMA), about.metadata.table_uuid
        before = {
            statement.statement_id: statement
            for statement in statements_of(table.scan().to_arrow())
        }
        if expected is not None and table_digest(before.values(), table_uuid) != expected:
            raise CommitConflictError(
                "What is said of the table is not what it was when its digest was read"
            )
        new = {statement.statement_id: statement for statement in statements}
        gone = set(removals) - new.keys()
        for key in sorted(new.keys() | gone):
            if key in before and before[key].subject.table_uuid != table_uuid:
                raise InvalidStatementError(f"{key} is the id of a statement about another table")
        after = {key: statement for key, statement in before.items() if key not in gone} | {
            key: statement
            for key, statement in new.items()
            if key not in before or before[key].digest() != statement.digest()
        }
        if after == before:
            return None
        ordered = [after[key] for key in sorted(after)]
        snapshot = table.overwrite(statement_rows(ordered)).snapshot
        self._stamp(ordered, {table_uuid: about.name})
        return snapshot

    def remove(self, statement_ids: Iterable[str]) -> Snapshot | None:
        """Take statements back. Returns the snapshot; None when none of them was there."""
        gone = set(statement_ids)
        table = self._table(STATEMENTS, STATEMENT_SCHEMA)
        before = statements_of(table.scan().to_arrow())
        after = [statement for statement in before if statement.statement_id not in gone]
        if len(after) == len(before):
            return None
        snapshot = table.overwrite(statement_rows(after)).snapshot
        removed = [statement.subject for statement in before if statement.statement_id in gone]
        self._stamp(after, {subject.table_uuid: subject.table for subject in removed})
        return snapshot

    def record(self, verifications: Sequence[Verification]) -> Snapshot | None:
        """Keep what was seen. Returns the snapshot; None when nothing was."""
        if not verifications:
            return None
        table = self._table(VERIFICATIONS, VERIFICATION_SCHEMA)
        return table.append(verification_rows(verifications)).snapshot

    def _open(self, name: str) -> Table | None:
        return self.lake.load_table(name) if self.lake.table_exists(name) else None

    def _table(self, name: str, schema: pa.Schema) -> Table:
        if self.lake.table_exists(name):
            return self.lake.load_table(name)
        return self.lake.create_table(name, schema)

    def _stamp(self, statements: Sequence[Statement], tables: Mapping[str, str]) -> None:
        """Write the digests of tables (uuid -> name) into their properties, where they changed."""
        for uuid, name in sorted(tables.items()):
            if not self.lake.table_exists(name):
                continue
            table = self.lake.load_table(name)
            digest = table_digest(statements, uuid)
            if table.metadata.table_uuid == uuid and table.properties.get(DIGEST) != digest:
                table.set_properties({DIGEST: digest, STATEMENTS_TABLE: STATEMENTS})


def statements_in(table: Table | None, as_of_ms: int | None = None) -> list[Statement]:
    """The statements in a version of their table, or in an earlier one; None where there is none.

    Ordered by id.
    """
    rows = _rows(table, as_of_ms)
    return [] if rows is None else sorted(statements_of(rows), key=lambda s: s.statement_id)


def verifications_in(table: Table | None, as_of_ms: int | None = None) -> dict[str, Verification]:
    """The newest of each statement in a version of their table, or in an earlier one, by id."""
    rows = _rows(table, as_of_ms)
    return {} if rows is None else verifications_of(rows)


def _rows(table: Table | None, as_of_ms: int | None) -> pa.Table | None:
    if table is None or as_of_ms is None:
        return None if table is None else table.scan().to_arrow()
    try:
        return table.scan(as_of=as_of_ms).to_arrow()
    except NoSuchSnapshotError:  # nothing had been said yet
        return None
