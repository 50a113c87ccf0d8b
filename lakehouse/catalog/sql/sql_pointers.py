"""Which metadata file each table of a database is at, and moving that: the swap of a commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.catalog.confinement import check_no_overlap
from lakehouse.catalog.metadata_files import read_metadata
from lakehouse.catalog.sql.commit_errors import lost, missing, unclear
from lakehouse.catalog.sql.sql_database import VALUE_MAX, Database
from lakehouse.catalog.sql.sql_locations import TableLocations
from lakehouse.errors import (
    InvalidLocationError,
    LakehouseError,
    StorageError,
    TableAlreadyExistsError,
)
from lakehouse.spec.identifier import Identifier
from lakehouse.storage.storage_protocol import Storage

IS_TABLE = "(iceberg_type = 'TABLE' OR iceberg_type IS NULL)"
KEY = "catalog_name = :catalog AND table_namespace = :namespace AND table_name = :table"


@dataclass(frozen=True, slots=True)
class PointerMove:
    """One table's part of a commit.

    Attributes:
        identifier: the table.
        expected: the metadata file that it is at; None creates the table.
        location: the metadata file that it moves to.
        folder: where the table lies.
    """

    identifier: Identifier
    expected: str | None
    location: str
    folder: str


class SqlPointers:
    """Metadata locations of the tables of one catalog in a database.

    Args:
        database: holds them.
        catalog: the `catalog_name`.
        storage: the storage of a location.
        tables: where every table lies.
        note: called in each transaction that moves something, before it is committed.
    """

    def __init__(
        self,
        database: Database,
        catalog: str,
        storage: Callable[[str], Storage],
        tables: TableLocations,
        note: Callable[[Connection], None],
    ) -> None:
        self._database, self._catalog, self._storage = database, catalog, storage
        self._tables, self._note = tables, note

    def key(self, identifier: Identifier) -> dict[str, str]:
        """The values of KEY."""
        return {
            "catalog": self._catalog,
            "namespace": ".".join(identifier.namespace),
            "table": identifier.name,
        }

    def only_tables(self, connection: Connection) -> str:
        """The condition that leaves out views."""
        return f" AND {IS_TABLE}" if self._database.has_type_column(connection) else ""

    def find(
        self, connection: Connection, identifier: Identifier, *, locked: bool = False
    ) -> str | None:
        """The table's metadata file; None where there is no table."""
        lock = self._database.row_lock if locked else ""
        rows = self._database.rows(
            connection,
            "SELECT metadata_location FROM iceberg_tables "
            f"WHERE {KEY}{self.only_tables(connection)}{lock}",
            **self.key(identifier),
        )
        return rows[0][0] if rows else None

    def require(self, identifier: Identifier) -> str:
        """The table's metadata file. Raises NoSuchTableError."""
        with self._database.read() as connection:
            location = self.find(connection, identifier)
        if location is None:
            raise missing(identifier, self._database.display_uri)
        return location

    def swap(self, moves: Sequence[PointerMove]) -> None:
        """Move all pointers or none.

        Where a reply is lost and the database can tell what happened, it is asked.

        Raises:
            CommitConflictError, NoSuchTableError, TableAlreadyExistsError, InvalidLocationError,
                StorageError, RequestRepeatedError: certainly not moved.
            CommitStateUnknownError: perhaps moved.
        """
        ordered = sorted(moves, key=lambda part: part.identifier)  # rows are locked in one order

        def change(connection: Connection) -> int:
            if any(part.expected is None for part in ordered):
                self._database.alone(connection)
            for part in ordered:
                if part.expected is None:
                    self._insert(connection, part)
                else:
                    self._update(connection, part)
            self._note(connection)
            return len(ordered)

        first = ordered[0]
        # what `attempt` raises was rolled back, and so was what it gave up
        with before_the_swap():
            for part in ordered:
                _check_length(part)
            outcome = self._database.attempt(change)
            if outcome == 0 and first.expected is not None:
                raise lost(first.identifier, self.require(first.identifier))
            if outcome == 0:
                raise StorageError(
                    f"Table {first.identifier}: the database gave way to others. Try again.",
                    retryable=True,
                )
        if outcome is None:
            self._settle(first)  # one tells of all

    def _update(self, connection: Connection, part: PointerMove) -> None:
        moved = self._database.run(
            connection,
            "UPDATE iceberg_tables SET metadata_location = :new, "
            f"previous_metadata_location = :expected WHERE {KEY} "
            "AND metadata_location = :expected",
            new=part.location,
            expected=part.expected,
            **self.key(part.identifier),
        )
        if moved:
            return
        current = self.find(connection, part.identifier)
        if current is None:
            raise missing(part.identifier, self._database.display_uri)
        raise lost(part.identifier, current)

    def _insert(self, connection: Connection, part: PointerMove) -> None:
        identifier = part.identifier
        if self._database.rows(
            connection, f"SELECT 1 FROM iceberg_tables WHERE {KEY}", **self.key(identifier)
        ):
            raise TableAlreadyExistsError(f"Table {identifier} exists.", table=str(identifier))
        check_no_overlap(part.folder, self._tables.locations(connection))
        typed = self._database.has_type_column(connection)
        try:
            self._database.run(
                connection,
                "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, "
                "metadata_location, "
                f"previous_metadata_location{', iceberg_type' if typed else ''}) "
                "VALUES (:catalog, :namespace, :table, :location, "
                f"NULL{', ' + repr('TABLE') if typed else ''})",
                location=part.location,
                **self.key(identifier),
            )
        except IntegrityError as error:
            raise TableAlreadyExistsError(
                f"Table {identifier} was created by someone else.", table=str(identifier)
            ) from error

    def _settle(self, part: PointerMove) -> None:
        """After a lost reply to COMMIT: return if committed; CommitConflictError if not."""
        identifier, expected, location = part.identifier, part.expected, part.location
        try:
            with self._database.write() as connection:
                # waits for the transaction that still holds the row
                found = self.find(connection, identifier, locked=True)
            # storage is read with the lock given back
            if found == location:
                return
            if expected is None:
                raise unclear(identifier, location, "the table is not there, or not there yet")
            history = {expected} if found is None or found == expected else self._history(found)
        except LakehouseError as error:
            raise unclear(identifier, location, error.message) from error
        if found is None:
            raise unclear(identifier, location, "the table was dropped meanwhile")
        if location in history:
            return
        if expected not in history:  # the log is too short to tell
            raise unclear(identifier, location, f"{found} is current, many versions later")
        raise lost(identifier, found)

    def _history(self, location: str) -> set[str]:
        metadata = read_metadata(self._storage(location), location)
        return {entry.metadata_file for entry in metadata.metadata_log}


def _check_length(part: PointerMove) -> None:
    if len(part.location) > VALUE_MAX:
        raise InvalidLocationError(
            f"Table {part.identifier}: {part.location[:80]}... has {len(part.location)} "
            f"characters; a SQL catalog keeps {VALUE_MAX}. Use shorter names, or a shorter "
            "location.",
            table=str(part.identifier),
        )
