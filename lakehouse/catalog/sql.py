"""Catalog in a SQL database: the tables of Iceberg's JDBC catalog, so that pyiceberg and Iceberg's Java open the same database.

A commit writes a metadata file, then swaps the pointer to it by one conditional UPDATE.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from lakehouse.catalog.confinement import allowed_roots, check_locations, check_no_overlap
from lakehouse.catalog.metadata_files import (
    compression_of,
    delete_expired,
    metadata_bytes,
    metadata_folder,
    next_metadata,
    numbered_name,
    read_metadata,
)
from lakehouse.catalog.protocol import Namespace, TableVersion
from lakehouse.catalog.sql_database import Database
from lakehouse.environment import Environment
from lakehouse.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    LakehouseError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    StorageError,
    TableAlreadyExistsError,
)
from lakehouse.spec.identifier import Identifier, parse_namespace
from lakehouse.spec.requirements import Requirement
from lakehouse.spec.table_metadata import TableMetadata
from lakehouse.spec.updates import Update
from lakehouse.storage.load import storage_for
from lakehouse.storage.location import join, overlap
from lakehouse.storage.protocol import Storage

log = logging.getLogger(__name__)

_EXISTS = {"exists": "true"}
_IS_TABLE = "(iceberg_type = 'TABLE' OR iceberg_type IS NULL)"
_KEY = "catalog_name = :catalog AND table_namespace = :namespace AND table_name = :table"


class SqlCatalog:
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
        self._warehouse = warehouse.rstrip("/")
        self._name = name
        self._properties = dict(properties or {})
        self._environment = environment if environment is not None else Environment.system()
        self._storage_factory = storage_factory
        self._database = database if database is not None else Database(uri)
        self._database.create_tables()

    @property
    def name(self) -> str:
        """See Catalog."""
        return self._name

    @property
    def warehouse(self) -> str:
        """See Catalog."""
        return self._warehouse

    @property
    def uri(self) -> str:
        """See Catalog."""
        return self._database.display_uri

    @property
    def properties(self) -> Mapping[str, str]:
        """See Catalog."""
        return self._properties

    def storage(self, location: str) -> Storage:
        """See Catalog."""
        return self._storage_factory(location, self._properties)

    def create_namespace(self, namespace: Namespace, properties: Mapping[str, str] | None = None) -> None:
        """See Catalog."""
        name = ".".join(parse_namespace(namespace))
        with self._database.write() as connection:
            if self._namespace_exists(connection, name):
                raise NamespaceAlreadyExistsError(f"Namespace {name} exists.", namespace=name)
            if self._table_location(connection, name) is not None:
                raise NamespaceAlreadyExistsError(f"{name} is a table.", namespace=name)
            try:
                self._insert_properties(connection, name, {**_EXISTS, **(properties or {})})
            except IntegrityError as error:
                raise NamespaceAlreadyExistsError(f"Namespace {name} exists.", namespace=name) from error

    def drop_namespace(self, namespace: Namespace) -> None:
        """See Catalog."""
        name = self._require(namespace)
        with self._database.write() as connection:
            tables = self._database.rows(
                connection,
                "SELECT table_name FROM iceberg_tables WHERE catalog_name = :catalog AND table_namespace = :namespace",
                catalog=self._name,
                namespace=name,
            )
            children = [found for found in self._all_namespaces(connection) if found.startswith(name + ".")]
            held = [row[0] for row in tables] + children
            if held:
                raise NamespaceNotEmptyError(f"Namespace {name} still holds {held[0]}: drop it first.", namespace=name)
            self._database.run(
                connection,
                "DELETE FROM iceberg_namespace_properties WHERE catalog_name = :catalog AND namespace = :namespace",
                catalog=self._name,
                namespace=name,
            )

    def namespace_exists(self, namespace: Namespace) -> bool:
        """See Catalog."""
        with self._database.read() as connection:
            return self._namespace_exists(connection, ".".join(parse_namespace(namespace)))

    def list_namespaces(self, parent: Namespace = ()) -> list[Namespace]:
        """See Catalog."""
        if parent:
            self._require(parent)
        with self._database.read() as connection:
            names = self._all_namespaces(connection)
        depth = len(parent)
        split = (tuple(name.split(".")) for name in names)
        return sorted({parts[: depth + 1] for parts in split if len(parts) > depth and parts[:depth] == tuple(parent)})

    def namespace_properties(self, namespace: Namespace) -> Mapping[str, str]:
        """See Catalog."""
        name = self._require(namespace)
        with self._database.read() as connection:
            return self._load_properties(connection, name)

    def update_namespace_properties(
        self, namespace: Namespace, updates: Mapping[str, str], removals: Sequence[str] = ()
    ) -> Mapping[str, str]:
        """See Catalog."""
        name = self._require(namespace)
        with self._database.write() as connection:
            for key in {*updates, *removals} - set(_EXISTS):
                self._database.run(
                    connection,
                    "DELETE FROM iceberg_namespace_properties "
                    "WHERE catalog_name = :catalog AND namespace = :namespace AND property_key = :key",
                    catalog=self._name,
                    namespace=name,
                    key=key,
                )
            present = self._database.rows(
                connection,
                "SELECT 1 FROM iceberg_namespace_properties "
                "WHERE catalog_name = :catalog AND namespace = :namespace AND property_key = 'exists'",
                catalog=self._name,
                namespace=name,
            )
            additions = {key: value for key, value in updates.items() if key not in _EXISTS}
            self._insert_properties(connection, name, additions if present else {**_EXISTS, **additions})
            return self._load_properties(connection, name)

    def list_tables(self, namespace: Namespace) -> list[Identifier]:
        """See Catalog."""
        name = self._require(namespace)
        with self._database.read() as connection:
            rows = self._database.rows(
                connection,
                "SELECT table_name FROM iceberg_tables WHERE catalog_name = :catalog AND table_namespace = :namespace"
                + self._only_tables(connection),
                catalog=self._name,
                namespace=name,
            )
        return sorted(Identifier(tuple(namespace), row[0]) for row in rows)

    def table_exists(self, identifier: Identifier) -> bool:
        """See Catalog."""
        with self._database.read() as connection:
            return self._pointer(connection, identifier) is not None

    def load(self, identifier: Identifier) -> TableVersion:
        """See Catalog."""
        location = self._require_pointer(identifier)
        return TableVersion(identifier, read_metadata(self.storage(location), location), location)

    def refresh(self, version: TableVersion) -> TableVersion:
        """See Catalog."""
        location = self._require_pointer(version.identifier)
        if location == version.metadata_location:
            return version
        return TableVersion(version.identifier, read_metadata(self.storage(location), location), location)

    def default_location(self, identifier: Identifier) -> str:
        """See Catalog. Another table's folder is never offered: a renamed table keeps the folder of its old name."""
        plain = join(self._warehouse, *identifier.namespace, identifier.name)
        with self._database.read() as connection:
            taken = any(overlap(plain, other) for _, other in self._table_folders(connection))
        return f"{plain}-{self._environment.new_uuid().hex[:12]}" if taken else plain

    def create(self, identifier: Identifier, metadata: TableMetadata) -> TableVersion:
        """See Catalog."""
        check_locations(metadata, allowed_roots(self._warehouse, self._properties))
        with self._database.read() as connection:
            if self._pointer(connection, identifier) is not None:
                raise TableAlreadyExistsError(f"Table {identifier} exists.", table=str(identifier))
            check_no_overlap(metadata.location, self._table_folders(connection))
        self._require(identifier.namespace)
        location = self._new_metadata_location(metadata, None)
        storage = self.storage(location)
        storage.create(location, metadata_bytes(metadata, compression_of(metadata)))
        try:
            self._insert(identifier, location, metadata.location)
        except TableAlreadyExistsError:
            _discard(storage, location)
            raise
        return TableVersion(identifier, metadata, location)

    def commit(
        self, identifier: Identifier, base: TableVersion, requirements: Sequence[Requirement], updates: Sequence[Update]
    ) -> TableVersion:
        """See Catalog."""
        new = next_metadata(base, requirements, updates, self._environment.now_ms())
        if new is base.metadata:
            return base
        check_locations(new, allowed_roots(self._warehouse, self._properties))
        current = self._require_pointer(identifier)
        if current != base.metadata_location:
            raise _lost(identifier, current)
        location = self._new_metadata_location(new, base.metadata_location)
        storage = self.storage(location)
        storage.write_new({location: metadata_bytes(new, compression_of(new))})
        try:
            self._swap(identifier, base.metadata_location, location)
        except (CommitConflictError, NoSuchTableError, StorageError):
            _discard(storage, location)
            raise
        delete_expired(storage, base.metadata, new)
        return TableVersion(identifier, new, location)

    def turn(self, identifier: Identifier) -> AbstractContextManager[None]:
        """See Catalog."""
        return self._database.turn(f"{self._name}.{identifier}")

    def drop(self, identifier: Identifier, *, purge: bool = False) -> None:
        """See Catalog."""
        version = self.load(identifier) if purge else None
        with self._database.write() as connection:
            gone = self._database.run(connection, f"DELETE FROM iceberg_tables WHERE {_KEY}", **self._key(identifier))
        if gone == 0:
            raise _missing(identifier, self.uri)
        if version is None:
            return
        storage = self.storage(version.metadata.location)
        report = storage.delete([info.location for info in storage.list(version.metadata.location)])
        if report.failed:
            raise StorageError(
                f"Table {identifier} is dropped, but {len(report.failed)} of its files could not be deleted: "
                f"{dict(list(report.failed.items())[:3])}. Delete {version.metadata.location} by hand.",
                table=str(identifier),
            )

    def rename(self, source: Identifier, target: Identifier) -> None:
        """See Catalog."""
        self._require(target.namespace)
        with self._database.write() as connection:
            if self._pointer(connection, source) is None:
                raise _missing(source, self.uri)
            if self._pointer(connection, target) is not None:
                raise TableAlreadyExistsError(f"Table {target} exists.", table=str(target))
            try:
                self._database.run(
                    connection,
                    f"UPDATE iceberg_tables SET table_namespace = :new_namespace, table_name = :new_table WHERE {_KEY}",
                    new_namespace=".".join(target.namespace),
                    new_table=target.name,
                    **self._key(source),
                )
            except IntegrityError as error:
                raise TableAlreadyExistsError(f"Table {target} exists.", table=str(target)) from error

    def register(self, identifier: Identifier, metadata_location: str) -> TableVersion:
        """See Catalog."""
        metadata = read_metadata(self.storage(metadata_location), metadata_location)
        check_locations(metadata, allowed_roots(self._warehouse, self._properties))
        self._require(identifier.namespace)
        with self._database.read() as connection:
            if self._pointer(connection, identifier) is not None:
                raise TableAlreadyExistsError(f"Table {identifier} exists.", table=str(identifier))
            check_no_overlap(metadata.location, self._table_folders(connection))
        self._insert(identifier, metadata_location, metadata.location)
        return TableVersion(identifier, metadata, metadata_location)

    def close(self) -> None:
        """Close the database connections; the catalog opens new ones when used again."""
        self._database.close()

    def _swap(self, identifier: Identifier, expected: str, location: str) -> None:
        """Move the pointer from `expected` to `location`; settles lost replies where the database can tell."""

        def update(connection: Connection) -> int:
            return self._database.run(
                connection,
                "UPDATE iceberg_tables SET metadata_location = :new, previous_metadata_location = :expected "
                f"WHERE {_KEY} AND metadata_location = :expected",
                new=location,
                expected=expected,
                **self._key(identifier),
            )

        outcome = self._database.attempt(update)
        if outcome == 0:
            raise _lost(identifier, self._require_pointer(identifier))
        if outcome is None:
            self._settle(identifier, expected, location)

    def _settle(self, identifier: Identifier, expected: str, location: str) -> None:
        """After a lost reply to COMMIT: return if it was committed, raise CommitConflictError if certainly not."""
        try:
            with self._database.write() as connection:
                found = self._pointer(connection, identifier, locked=True)  # waits for whoever still holds the row
            if found == location:
                return
            landed = found is not None and found != expected and location in self._history(found)
        except LakehouseError as error:
            raise _unclear(identifier, location, error.message) from error
        if found is None:
            raise _unclear(identifier, location, "the table was dropped meanwhile")
        if not landed:
            raise _lost(identifier, found)

    def _history(self, location: str) -> set[str]:
        metadata = read_metadata(self.storage(location), location)
        return {entry.metadata_file for entry in metadata.metadata_log}

    def _insert(self, identifier: Identifier, location: str, table_location: str) -> None:
        with self._database.write() as connection:
            check_no_overlap(table_location, self._table_folders(connection))
            if self._database.rows(connection, f"SELECT 1 FROM iceberg_tables WHERE {_KEY}", **self._key(identifier)):
                raise TableAlreadyExistsError(f"Table {identifier} exists.", table=str(identifier))
            typed = self._database.has_type_column(connection)
            try:
                self._database.run(
                    connection,
                    "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, "
                    f"previous_metadata_location{', iceberg_type' if typed else ''}) "
                    f"VALUES (:catalog, :namespace, :table, :location, NULL{', ' + repr('TABLE') if typed else ''})",
                    location=location,
                    **self._key(identifier),
                )
            except IntegrityError as error:
                raise TableAlreadyExistsError(
                    f"Table {identifier} was created by someone else.", table=str(identifier)
                ) from error

    def _new_metadata_location(self, metadata: TableMetadata, previous: str | None) -> str:
        name = numbered_name(previous, str(self._environment.new_uuid()), compression_of(metadata))
        return join(metadata_folder(metadata), name)

    def _key(self, identifier: Identifier) -> dict[str, str]:
        return {"catalog": self._name, "namespace": ".".join(identifier.namespace), "table": identifier.name}

    def _only_tables(self, connection: Connection) -> str:
        return f" AND {_IS_TABLE}" if self._database.has_type_column(connection) else ""

    def _pointer(self, connection: Connection, identifier: Identifier, *, locked: bool = False) -> str | None:
        lock = self._database.row_lock if locked else ""
        rows = self._database.rows(
            connection,
            f"SELECT metadata_location FROM iceberg_tables WHERE {_KEY}{self._only_tables(connection)}{lock}",
            **self._key(identifier),
        )
        return rows[0][0] if rows else None

    def _require_pointer(self, identifier: Identifier) -> str:
        with self._database.read() as connection:
            location = self._pointer(connection, identifier)
        if location is None:
            raise _missing(identifier, self.uri)
        return location

    def _table_location(self, connection: Connection, dotted: str) -> str | None:
        namespace, _, table = dotted.rpartition(".")
        rows = self._database.rows(
            connection,
            f"SELECT metadata_location FROM iceberg_tables WHERE {_KEY}",
            catalog=self._name,
            namespace=namespace,
            table=table,
        )
        return rows[0][0] if rows else None

    def _table_folders(self, connection: Connection) -> Iterator[tuple[str, str]]:
        """(name, folder) of every table in the database, whatever its catalog name; folders as the pointers tell them."""
        rows = self._database.rows(
            connection,
            "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables WHERE metadata_location IS NOT NULL",
        )
        for namespace, table, location in rows:
            folder = location.rpartition("/")[0]
            yield f"{namespace}.{table}", folder.removesuffix("/metadata")

    def _require(self, namespace: Namespace) -> str:
        name = ".".join(parse_namespace(namespace))
        with self._database.read() as connection:
            if not self._namespace_exists(connection, name):
                raise NoSuchNamespaceError(f"No namespace {name} in {self.uri}.", namespace=name)
        return name

    def _namespace_exists(self, connection: Connection, name: str) -> bool:
        return any(found == name or found.startswith(name + ".") for found in self._all_namespaces(connection))

    def _all_namespaces(self, connection: Connection) -> list[str]:
        rows = self._database.rows(
            connection,
            "SELECT DISTINCT namespace FROM iceberg_namespace_properties WHERE catalog_name = :catalog "
            "UNION SELECT DISTINCT table_namespace FROM iceberg_tables WHERE catalog_name = :catalog",
            catalog=self._name,
        )
        return [row[0] for row in rows]

    def _load_properties(self, connection: Connection, name: str) -> dict[str, str]:
        rows = self._database.rows(
            connection,
            "SELECT property_key, property_value FROM iceberg_namespace_properties "
            "WHERE catalog_name = :catalog AND namespace = :namespace",
            catalog=self._name,
            namespace=name,
        )
        return {key: value for key, value in rows if key not in _EXISTS}

    def _insert_properties(self, connection: Connection, name: str, properties: Mapping[str, str]) -> None:
        for key, value in properties.items():
            self._database.run(
                connection,
                "INSERT INTO iceberg_namespace_properties (catalog_name, namespace, property_key, property_value) "
                "VALUES (:catalog, :namespace, :key, :value)",
                catalog=self._name,
                namespace=name,
                key=key,
                value=value,
            )


def _missing(identifier: Identifier, uri: str) -> NoSuchTableError:
    return NoSuchTableError(f"No table {identifier} in {uri}.", table=str(identifier))


def _lost(identifier: Identifier, current: str) -> CommitConflictError:
    return CommitConflictError(
        f"Table {identifier}: {current.rpartition('/')[2]} was committed by someone else. Refresh and try again.",
        table=str(identifier),
        metadata_location=current,
    )


def _unclear(identifier: Identifier, location: str, reason: str) -> CommitStateUnknownError:
    return CommitStateUnknownError(
        f"Table {identifier}: the database did not tell whether {location} was committed ({reason}). Nothing was deleted. "
        "Refresh the table and look for the snapshot id.",
        table=str(identifier),
        metadata_location=location,
    )


def _discard(storage: Storage, location: str) -> None:
    """Delete a metadata file that certainly is not part of the table."""
    try:
        storage.delete([location])
    except LakehouseError as error:
        log.warning("Left %s for orphan removal: %s", location, error)
