"""Namespaces of a SQL catalog: rows of `iceberg_namespace_properties`, and names of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from lakehouse.catalog.catalog_protocol import Namespace
from lakehouse.catalog.pointers import NamedNamespaces
from lakehouse.catalog.sql.sql_database import NAME_MAX, VALUE_MAX, Database
from lakehouse.catalog.sql.sql_requests import SqlRequests
from lakehouse.errors import (
    InvalidIdentifierError,
    InvalidPropertyError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    StorageError,
)
from lakehouse.spec.identifier import dotted, parse_namespace, split_name

_EXISTS = {"exists": "true"}


class SqlNamespaces(NamedNamespaces):
    """Namespaces of one catalog in a database.

    Args:
        database: holds them.
        catalog: the `catalog_name`.
        requests: what is being carried out.
    """

    def __init__(self, database: Database, catalog: str, requests: SqlRequests) -> None:
        self._database, self._catalog, self._requests = database, catalog, requests

    def create(self, namespace: Namespace, properties: Mapping[str, str]) -> None:
        """Create it; its parents exist by its name."""
        name = stored_name(namespace)
        _check_properties(name, properties)
        with self._database.write() as connection:
            self._database.alone(connection)
            if self._is_there(connection, name):
                raise NamespaceAlreadyExistsError(f"Namespace {name} exists.", namespace=name)
            if self._is_table(connection, namespace):
                raise NamespaceAlreadyExistsError(f"{name} is a table.", namespace=name)
            try:
                self._insert(connection, name, {**_EXISTS, **properties})
            except IntegrityError as error:
                raise NamespaceAlreadyExistsError(
                    f"Namespace {name} exists.", namespace=name
                ) from error
            self._requests.note_current(connection)

    def drop(self, namespace: Namespace) -> None:
        """Drop the namespace if it holds neither tables nor namespaces."""
        name = self.require(namespace)
        with self._database.write() as connection:
            self._database.alone(connection)
            tables = self._database.rows(
                connection,
                "SELECT table_name FROM iceberg_tables WHERE catalog_name = :catalog "
                "AND table_namespace = :namespace",
                catalog=self._catalog,
                namespace=name,
            )
            children = [child for child in self._all(connection) if child.startswith(name + ".")]
            held = [row[0] for row in tables] + children
            if held:
                raise NamespaceNotEmptyError(
                    f"Namespace {name} still holds {held[0]}: drop it first.", namespace=name
                )
            self._database.run(
                connection,
                "DELETE FROM iceberg_namespace_properties WHERE catalog_name = :catalog "
                "AND namespace = :namespace",
                catalog=self._catalog,
                namespace=name,
            )
            self._requests.note_current(connection)

    def exists(self, namespace: Namespace) -> bool:
        """Whether it, a table in it or a namespace below it was created."""
        with self._database.read() as connection:
            return self._is_there(connection, stored_name(namespace))

    def children(self, parent: Namespace) -> list[Namespace]:
        if parent:
            self.require(parent)
        with self._database.read() as connection:
            names = self._all(connection)
        depth = len(parent)
        split = map(split_name, names)
        return sorted(
            {
                parts[: depth + 1]
                for parts in split
                if len(parts) > depth and parts[:depth] == tuple(parent)
            }
        )

    def properties(self, namespace: Namespace) -> Mapping[str, str]:
        name = self.require(namespace)
        with self._database.read() as connection:
            return self._load(connection, name)

    def update_properties(
        self, namespace: Namespace, updates: Mapping[str, str], removals: Sequence[str]
    ) -> Mapping[str, str]:
        """Set and remove; of several who set one property at once, the last wins."""
        name = self.require(namespace)
        _check_properties(name, updates)
        try:
            return self._update(name, updates, removals)
        except IntegrityError as error:  # by a client that does not know our lock
            raise StorageError(
                f"Namespace {name}: somebody else set the same property. Try again.", retryable=True
            ) from error

    def require(self, namespace: Namespace) -> str:
        """Its name as the database keeps it. Raises NoSuchNamespaceError."""
        name = stored_name(namespace)
        with self._database.read() as connection:
            if not self._is_there(connection, name):
                raise NoSuchNamespaceError(
                    f"No namespace {name} in {self._database.display_uri}.", namespace=name
                )
        return name

    def _update(
        self, name: str, updates: Mapping[str, str], removals: Sequence[str]
    ) -> Mapping[str, str]:
        with self._database.write() as connection:
            self._database.alone(connection)
            for key in sorted({*updates, *removals} - set(_EXISTS)):
                self._database.run(
                    connection,
                    "DELETE FROM iceberg_namespace_properties WHERE catalog_name = :catalog "
                    "AND namespace = :namespace AND property_key = :key",
                    catalog=self._catalog,
                    namespace=name,
                    key=key,
                )
            present = self._database.rows(
                connection,
                "SELECT 1 FROM iceberg_namespace_properties WHERE catalog_name = :catalog "
                "AND namespace = :namespace AND property_key = 'exists'",
                catalog=self._catalog,
                namespace=name,
            )
            additions = {key: updates[key] for key in sorted(updates) if key not in _EXISTS}
            self._insert(connection, name, additions if present else {**_EXISTS, **additions})
            self._requests.note_current(connection)
            return self._load(connection, name)

    def _is_there(self, connection: Connection, name: str) -> bool:
        return any(other == name or other.startswith(name + ".") for other in self._all(connection))

    def _is_table(self, connection: Connection, namespace: Namespace) -> bool:
        rows = self._database.rows(
            connection,
            "SELECT 1 FROM iceberg_tables WHERE catalog_name = :catalog "
            "AND table_namespace = :namespace AND table_name = :table",
            catalog=self._catalog,
            namespace=dotted(namespace[:-1]),
            table=namespace[-1],
        )
        return bool(rows)

    def _all(self, connection: Connection) -> list[str]:
        rows = self._database.rows(
            connection,
            "SELECT DISTINCT namespace FROM iceberg_namespace_properties "
            "WHERE catalog_name = :catalog UNION SELECT DISTINCT table_namespace "
            "FROM iceberg_tables WHERE catalog_name = :catalog",
            catalog=self._catalog,
        )
        return [row[0] for row in rows]

    def _load(self, connection: Connection, name: str) -> dict[str, str]:
        rows = self._database.rows(
            connection,
            "SELECT property_key, property_value FROM iceberg_namespace_properties "
            "WHERE catalog_name = :catalog AND namespace = :namespace",
            catalog=self._catalog,
            namespace=name,
        )
        return {key: value for key, value in rows if key not in _EXISTS}

    def _insert(self, connection: Connection, name: str, properties: Mapping[str, str]) -> None:
        for key, value in properties.items():
            self._database.run(
                connection,
                "INSERT INTO iceberg_namespace_properties (catalog_name, namespace, "
                "property_key, property_value) VALUES (:catalog, :namespace, :key, :value)",
                catalog=self._catalog,
                namespace=name,
                key=key,
                value=value,
            )


def stored_name(namespace: Namespace) -> str:
    r"""The name as the database keeps it.

    Levels are joined by dots, as Iceberg's JDBC catalog does it, which takes dots in levels for
    more of these; here they are `\.`, so that no two namespaces have one name.

    Raises InvalidIdentifierError when it does not fit.
    """
    name = dotted(parse_namespace(namespace))
    if len(name) > NAME_MAX:
        raise InvalidIdentifierError(
            f"Namespace {name[:40]}... has {len(name)} characters with its levels; a SQL catalog "
            f"keeps {NAME_MAX}.",
            namespace=name,
        )
    return name


def _check_properties(name: str, properties: Mapping[str, str]) -> None:
    for key, value in properties.items():
        if len(key) > NAME_MAX or len(value) > VALUE_MAX:
            raise InvalidPropertyError(
                f"Property {key[:40]!r} of namespace {name} is too long: a SQL catalog keeps "
                f"names of {NAME_MAX} and values of {VALUE_MAX} characters.",
                namespace=name,
            )
