"""Catalog in a SQL database, with the tables of Iceberg's JDBC catalog.

pyiceberg and Iceberg's Java open the same database. A commit writes a metadata file, then swaps the
pointer to it by one conditional UPDATE.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from lakehouse.catalog.base_catalog import NamespaceCatalog
from lakehouse.catalog.catalog_protocol import Namespace, TableVersion
from lakehouse.catalog.commit_outcome import after_the_swap, before_the_swap, is_certain
from lakehouse.catalog.confinement import (
    allowed_roots,
    check_gc_enabled,
    check_locations,
    check_no_overlap,
    check_purged_folder,
    check_unused,
    own_folder,
)
from lakehouse.catalog.metadata_files import (
    compression_of,
    delete_expired,
    metadata_bytes,
    metadata_folder,
    next_metadata,
    numbered_name,
    read_metadata,
)
from lakehouse.catalog.sql.commit_errors import lost, missing, unclear
from lakehouse.catalog.sql.sql_database import VALUE_MAX, Database
from lakehouse.catalog.sql.sql_locations import TableLocations
from lakehouse.catalog.sql.sql_namespaces import SqlNamespaces
from lakehouse.environment import Environment
from lakehouse.errors import (
    CommitStateUnknownError,
    InvalidLocationError,
    LakehouseError,
    NoSuchFileError,
    StorageError,
    TableAlreadyExistsError,
)
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_requirements import Requirement
from lakehouse.spec.metadata.table_updates import Update
from lakehouse.storage.location import join
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.storage.storage_protocol import Storage

log = logging.getLogger(__name__)

_IS_TABLE = "(iceberg_type = 'TABLE' OR iceberg_type IS NULL)"
_KEY = "catalog_name = :catalog AND table_namespace = :namespace AND table_name = :table"


class SqlCatalog(NamespaceCatalog[SqlNamespaces]):
    """Catalog on SQLite or PostgreSQL.

    Args:
        uri: SQLAlchemy URL; `postgresql://` means psycopg.
        warehouse: location below which tables are created.
        name: the `catalog_name` in the database.
        properties: catalog and storage properties.
        environment: clock and unique names.
        storage_factory: makes storages; tests inject faults here.
    """

    def __init__(
        self,
        uri: str,
        warehouse: str,
        *,
        name: str = "lakehouse",
        properties: Mapping[str, str] | None = None,
        environment: Environment | None = None,
        storage_factory: Callable[[str, Mapping[str, str]], Storage] = storage_for,
        database: Database | None = None,
    ) -> None:
        super().__init__(warehouse, name, properties, environment, storage_factory)
        self._database = database if database is not None else Database(uri)
        self._database.create_tables()
        self._namespaces = SqlNamespaces(self._database, name)
        self._tables = TableLocations(self._database, self.storage)

    @property
    def uri(self) -> str:
        """Where the catalog lives, without secrets."""
        return self._database.display_uri

    def list_tables(self, namespace: Namespace) -> list[Identifier]:
        """Sorted identifiers of the namespace's tables."""
        name = self._namespaces.require(namespace)
        with self._database.read() as connection:
            rows = self._database.rows(
                connection,
                "SELECT table_name FROM iceberg_tables WHERE catalog_name = :catalog AND "
                "table_namespace = :namespace" + self._only_tables(connection),
                catalog=self._name,
                namespace=name,
            )
        return sorted(Identifier(tuple(namespace), row[0]) for row in rows)

    def table_exists(self, identifier: Identifier) -> bool:
        """Whether `load` would find the table."""
        with self._database.read() as connection:
            return self._pointer(connection, identifier) is not None

    def load(self, identifier: Identifier) -> TableVersion:
        """The table's newest version."""
        return self._read(identifier, self._require_pointer(identifier))

    def refresh(self, version: TableVersion) -> TableVersion:
        """The table's newest version; the same object when nothing was committed since."""
        location = self._require_pointer(version.identifier)
        return (
            version
            if location == version.metadata_location
            else self._read(version.identifier, location)
        )

    # nobody else is ever given it, staged or not
    def default_location(self, identifier: Identifier, *, staged: bool = False) -> str:  # noqa: ARG002
        """A folder for a new table of this name, unused by any other."""
        return own_folder(self._warehouse, identifier, self._environment)

    def create(
        self, identifier: Identifier, metadata: TableMetadata, *, staged: bool = False
    ) -> TableVersion:
        """Register a new table with its first metadata."""
        check_locations(metadata, allowed_roots(self._warehouse, self._properties))
        self._check_free(identifier, metadata)
        check_unused(metadata.location, self.storage(metadata.location), staged=staged)
        location = self._new_metadata_location(metadata, None)
        storage = self.storage(location)
        storage.create(location, metadata_bytes(metadata, compression_of(metadata)))
        try:
            self._insert(identifier, location, metadata.location)
        except CommitStateUnknownError:
            raise
        except LakehouseError:
            _discard(storage, location)
            raise
        return TableVersion(identifier, metadata, location)

    def commit(
        self,
        identifier: Identifier,
        base: TableVersion,
        requirements: Sequence[Requirement],
        updates: Sequence[Update],
    ) -> TableVersion:
        """Swap `base` for `base` plus updates, if it is still the newest version."""
        with before_the_swap():
            new = next_metadata(base, requirements, updates, self._environment.now_ms())
            if new is base.metadata:
                return base
            check_locations(new, allowed_roots(self._warehouse, self._properties))
            current = self._require_pointer(identifier)
            if current != base.metadata_location:
                raise lost(identifier, current)
            location = self._new_metadata_location(new, base.metadata_location)
            storage = self.storage(location)
            storage.write_new({location: metadata_bytes(new, compression_of(new))})
        try:
            self._swap(identifier, base.metadata_location, location)
        except LakehouseError as error:
            if is_certain(error):
                _discard(storage, location)
            raise
        version = TableVersion(identifier, new, location)
        after_the_swap(
            f"Deleting old metadata files of {identifier}",
            lambda: delete_expired(storage, base.metadata, version),
        )
        return version

    def turn(self, identifier: Identifier) -> AbstractContextManager[None]:
        """Wait for this writer's turn on the table, for a bounded time."""
        return self._database.turn(f"{self._name}.{identifier}")

    def drop(self, identifier: Identifier, *, purge: bool = False) -> None:
        """Remove the table; `purge` deletes what is in its folder as well."""
        if not purge:
            with self._database.write() as connection:
                gone = self._database.run(
                    connection, f"DELETE FROM iceberg_tables WHERE {_KEY}", **self._key(identifier)
                )
            if gone == 0:
                raise missing(identifier, self.uri)
            return
        gone = 0
        while gone == 0:  # until nobody commits between looking and deleting
            version = self.load(identifier)
            check_gc_enabled(identifier, version.metadata, "remove the files")
            with self._database.read() as connection:
                others = list(self._tables.locations(connection, besides=version.metadata_location))
            check_purged_folder(version, allowed_roots(self._warehouse, self._properties), others)
            with self._database.write() as connection:
                gone = self._database.run(
                    connection,
                    f"DELETE FROM iceberg_tables WHERE {_KEY} AND metadata_location = :location",
                    location=version.metadata_location,
                    **self._key(identifier),
                )
        storage = self.storage(version.metadata.location)
        report = storage.delete([info.location for info in storage.list(version.metadata.location)])
        if report.failed:
            raise StorageError(
                f"Table {identifier} is dropped, but {len(report.failed)} of its files could not "
                f"be deleted: {dict(list(report.failed.items())[:3])}. Delete "
                f"{version.metadata.location} by hand.",
                table=str(identifier),
            )

    def rename(self, source: Identifier, target: Identifier) -> None:
        """Give a table another name."""
        self._namespaces.require(target.namespace)
        with self._database.write() as connection:
            if self._pointer(connection, source) is None:
                raise missing(source, self.uri)
            if self._pointer(connection, target) is not None:
                raise TableAlreadyExistsError(f"Table {target} exists.", table=str(target))
            try:
                renamed = self._database.run(
                    connection,
                    "UPDATE iceberg_tables SET table_namespace = :new_namespace, "
                    f"table_name = :new_table WHERE {_KEY}",
                    new_namespace=".".join(target.namespace),
                    new_table=target.name,
                    **self._key(source),
                )
            except IntegrityError as error:
                raise TableAlreadyExistsError(
                    f"Table {target} exists.", table=str(target)
                ) from error
            if renamed == 0:  # somebody else dropped or renamed it since we looked
                raise missing(source, self.uri)

    def register(self, identifier: Identifier, metadata_location: str) -> TableVersion:
        """Adopt an existing metadata file as a table."""
        metadata = read_metadata(self.storage(metadata_location), metadata_location)
        check_locations(metadata, allowed_roots(self._warehouse, self._properties))
        self._check_free(identifier, metadata)
        self._insert(identifier, metadata_location, metadata.location)
        return TableVersion(identifier, metadata, metadata_location)

    def close(self) -> None:
        """Close the database connections; the catalog opens new ones when used again."""
        self._database.close()

    def _swap(self, identifier: Identifier, expected: str, location: str) -> None:
        """Move the pointer from `expected` to `location`.

        Where a reply is lost and the database can tell what happened, it is asked.
        """

        def update(connection: Connection) -> int:
            return self._database.run(
                connection,
                "UPDATE iceberg_tables SET metadata_location = :new, "
                f"previous_metadata_location = :expected WHERE {_KEY} "
                "AND metadata_location = :expected",
                new=location,
                expected=expected,
                **self._key(identifier),
            )

        # what `attempt` raises was rolled back, and so was what changed no row
        with before_the_swap():
            outcome = self._database.attempt(update)
            if outcome == 0:
                raise lost(identifier, self._require_pointer(identifier))
        if outcome is None:
            self._settle(identifier, expected, location)

    def _settle(self, identifier: Identifier, expected: str, location: str) -> None:
        """After a lost reply to COMMIT: return if committed; CommitConflictError if not."""
        try:
            with self._database.write() as connection:
                # waits for the transaction that still holds the row
                found = self._pointer(connection, identifier, locked=True)
            # storage is read with the lock given back
            if found == location:
                return
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
        metadata = read_metadata(self.storage(location), location)
        return {entry.metadata_file for entry in metadata.metadata_log}

    def _check_free(self, identifier: Identifier, metadata: TableMetadata) -> None:
        with self._database.read() as connection:
            others = list(self._tables.locations(connection))
            # looked up last: its own location is no overlap
            if self._pointer(connection, identifier) is not None:
                raise TableAlreadyExistsError(f"Table {identifier} exists.", table=str(identifier))
        check_no_overlap(metadata.location, others)
        self._namespaces.require(identifier.namespace)

    def _insert(self, identifier: Identifier, location: str, table_location: str) -> None:
        """Add the table's row; settles a lost reply where the row is there.

        Raises:
            TableAlreadyExistsError, InvalidLocationError, StorageError: certainly not added.
            CommitStateUnknownError: it may have been added.
        """
        if len(location) > VALUE_MAX:
            raise InvalidLocationError(
                f"Table {identifier}: {location[:80]}... has {len(location)} characters; a SQL "
                f"catalog keeps {VALUE_MAX}. Use shorter names, or a shorter location.",
                table=str(identifier),
            )

        def insert(connection: Connection) -> int:
            self._database.alone(connection)
            if self._database.rows(
                connection, f"SELECT 1 FROM iceberg_tables WHERE {_KEY}", **self._key(identifier)
            ):
                raise TableAlreadyExistsError(f"Table {identifier} exists.", table=str(identifier))
            check_no_overlap(table_location, self._tables.locations(connection))
            typed = self._database.has_type_column(connection)
            try:
                return self._database.run(
                    connection,
                    "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, "
                    "metadata_location, "
                    f"previous_metadata_location{', iceberg_type' if typed else ''}) "
                    "VALUES (:catalog, :namespace, :table, :location, "
                    f"NULL{', ' + repr('TABLE') if typed else ''})",
                    location=location,
                    **self._key(identifier),
                )
            except IntegrityError as error:
                raise TableAlreadyExistsError(
                    f"Table {identifier} was created by someone else.", table=str(identifier)
                ) from error

        outcome = self._database.attempt(insert)
        if outcome == 0:
            raise StorageError(
                f"Table {identifier}: the database gave way to others. Try again.", retryable=True
            )
        if outcome is not None:
            return
        try:
            with self._database.read() as connection:
                found = self._pointer(connection, identifier)
        except LakehouseError as error:
            raise unclear(identifier, location, error.message) from error
        if found != location:
            raise unclear(identifier, location, "the reply was lost and the table is not there yet")

    def _read(self, identifier: Identifier, location: str) -> TableVersion:
        while True:
            try:
                return TableVersion(
                    identifier, read_metadata(self.storage(location), location), location
                )
            except NoSuchFileError:
                newer = self._require_pointer(identifier)
                if newer == location:
                    raise
                # An old metadata file, deleted between looking up the pointer and reading it.
                location = newer

    def _new_metadata_location(self, metadata: TableMetadata, previous: str | None) -> str:
        name = numbered_name(previous, str(self._environment.new_uuid()), compression_of(metadata))
        return join(metadata_folder(metadata), name)

    def _key(self, identifier: Identifier) -> dict[str, str]:
        return {
            "catalog": self._name,
            "namespace": ".".join(identifier.namespace),
            "table": identifier.name,
        }

    def _only_tables(self, connection: Connection) -> str:
        return f" AND {_IS_TABLE}" if self._database.has_type_column(connection) else ""

    def _pointer(
        self, connection: Connection, identifier: Identifier, *, locked: bool = False
    ) -> str | None:
        lock = self._database.row_lock if locked else ""
        rows = self._database.rows(
            connection,
            "SELECT metadata_location FROM iceberg_tables "
            f"WHERE {_KEY}{self._only_tables(connection)}{lock}",
            **self._key(identifier),
        )
        return rows[0][0] if rows else None

    def _require_pointer(self, identifier: Identifier) -> str:
        with self._database.read() as connection:
            location = self._pointer(connection, identifier)
        if location is None:
            raise missing(identifier, self.uri)
        return location


def _discard(storage: Storage, location: str) -> None:
    """Delete a metadata file that certainly is not part of the table."""
    try:
        storage.delete([location])
    except LakehouseError as error:
        log.warning("Left %s for orphan removal: %s", location, error)
