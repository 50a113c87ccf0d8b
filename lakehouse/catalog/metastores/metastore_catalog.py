"""A catalog in a metastore, Hive's or Glue, whose databases are its namespaces, of one level."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from lakehouse.catalog.base_catalog import BaseCatalog
from lakehouse.catalog.catalog_protocol import Namespace, TableCommit, TableVersion
from lakehouse.catalog.confinement import allowed_roots
from lakehouse.catalog.folders import namespace_folder, own_folder_in
from lakehouse.catalog.machine_turns import machine_turn
from lakehouse.catalog.pointer_catalog import PointerCatalog
from lakehouse.catalog.pointer_views import PointerViews
from lakehouse.catalog.pointers import NamedNamespaces, Pointers
from lakehouse.errors import (
    InvalidIdentifierError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
)
from lakehouse.spec.identifier import Identifier, dotted, full_uri, parse_namespace

_FIELDS = ("location", "comment")


class Refusal(Exception):  # noqa: N818 - each is turned into an error of ours
    """A metastore did nothing of what was asked, and says why."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Missing(Refusal):
    """There is no such table or database."""


class Taken(Refusal):
    """The name is that of another one."""


class Unnameable(Refusal):
    """A name, a type or a value that it does not keep."""


class NotAllowed(Refusal):
    """An operation that makes no sense there, such as dropping a database that is not empty."""


class Overtaken(Refusal):
    """Another version is current than the one to be replaced."""


@dataclass(frozen=True, slots=True)
class Database:
    """A database of a metastore.

    Attributes:
        name: in lower case.
        location: where its tables lie by default.
        comment: for people.
        parameters: texts by name.
    """

    name: str
    location: str | None = None
    comment: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)

    def properties(self) -> dict[str, str]:
        """All of them; `location` and `comment` are what a metastore knows by these names."""
        fields = {name: getattr(self, name) for name in _FIELDS}
        return {**self.parameters, **{name: value for name, value in fields.items() if value}}

    def changed(self, updates: Mapping[str, str], removals: Sequence[str] = ()) -> Database:
        """The database with properties that are set and removed."""
        kept = {key: value for key, value in self.properties().items() if key not in removals}
        kept |= updates
        location, comment = (kept.pop(name, None) for name in _FIELDS)
        return Database(self.name, location, comment, kept)


class Databases(Protocol):
    """The databases of a metastore.

    Attributes:
        uri: of the metastore.
        keeper: what it is called.
        name_pattern: of the names that it keeps as they are.
    """

    uri: str
    keeper: str
    name_pattern: re.Pattern[str]

    def names(self) -> list[str]:
        """All of them."""

    def find(self, name: str) -> Database | None:
        """One; None where there is none."""

    def create(self, database: Database) -> None:
        """Make one. Raises Taken, Unnameable."""

    def replace(self, old: Database, new: Database) -> None:
        """Put it in place of the one of its name; of several who do, the last wins."""

    def drop(self, name: str) -> None:
        """Forget an empty one. Raises Missing, NotAllowed."""

    def default_location(self, name: str) -> str:
        """Where one would lie of which nobody says where."""


class MetastoreNamespaces(NamedNamespaces):
    """Namespaces of a catalog in a metastore.

    Args:
        databases: of the metastore.
        warehouse: below which new ones lie; empty: the metastore chooses.
    """

    def __init__(self, databases: Databases, warehouse: str) -> None:
        self._databases, self._warehouse = databases, warehouse

    def create(self, namespace: Namespace, properties: Mapping[str, str]) -> None:
        name = kept_name(namespace, self._databases)
        place = namespace_folder(self._warehouse, namespace) if self._warehouse else None
        try:
            self._databases.create(Database(name, place).changed(properties))
        except Taken as error:
            raise NamespaceAlreadyExistsError(
                f"Namespace {name} exists.", namespace=name
            ) from error
        except Unnameable as error:
            raise InvalidIdentifierError(f"{name}: {error.message}", namespace=name) from error

    def drop(self, namespace: Namespace) -> None:
        """Drop an empty one; its folder stays."""
        name = self.require(namespace)
        try:
            self._databases.drop(name)
        except NotAllowed as error:
            raise NamespaceNotEmptyError(
                f"Namespace {name}: {error.message}", namespace=name
            ) from error
        except Missing as error:
            raise self._missing(name) from error

    def exists(self, namespace: Namespace) -> bool:
        return self._find(namespace) is not None

    def children(self, parent: Namespace) -> list[Namespace]:
        """Sorted, directly below: all below the root, none below another."""
        if parent:
            self.require(parent)
            return []
        return sorted((name,) for name in self._databases.names())

    def properties(self, namespace: Namespace) -> Mapping[str, str]:
        """All of them; `location` and `comment` are what a metastore knows by these names."""
        return self._require(namespace).properties()

    def update_properties(
        self, namespace: Namespace, updates: Mapping[str, str], removals: Sequence[str]
    ) -> Mapping[str, str]:
        """Set and remove; of several who do at once, the last wins."""
        present = self._require(namespace)
        self._databases.replace(present, present.changed(updates, removals))
        return self.properties(namespace)

    def require(self, namespace: Namespace) -> str:
        """Its name as the metastore keeps it."""
        return self._require(namespace).name

    def location(self, namespace: Namespace) -> str:
        """Where its tables lie by default; of one that is not there, where it would lie."""
        database = self._find(namespace)
        if database is not None and database.location:
            return full_uri(database.location)
        if self._warehouse:
            return namespace_folder(self._warehouse, namespace)
        return self._databases.default_location(kept_name(namespace, self._databases))

    def _require(self, namespace: Namespace) -> Database:
        database = self._find(namespace)
        if database is None:
            raise self._missing(dotted(namespace))
        return database

    def _find(self, namespace: Namespace) -> Database | None:
        parts = parse_namespace(namespace)
        return None if len(parts) > 1 else self._databases.find(parts[0])

    def _missing(self, name: str) -> NoSuchNamespaceError:
        return NoSuchNamespaceError(
            f"No namespace {name} in {self._databases.uri}.", namespace=name
        )


def kept_name(parts: Sequence[str], databases: Databases) -> str:
    """The name of a new database, or the last part of a table's, if it can be kept as it is.

    Raises InvalidIdentifierError: several levels, upper case, or no name.
    """
    keeper = databases.keeper
    if len(parts) > 1:
        raise InvalidIdentifierError(
            f"Namespace {dotted(parts)} has {len(parts)} levels; {keeper} knows one."
        )
    [name] = parse_namespace(parts)
    if name != name.lower():
        raise InvalidIdentifierError(
            f"Name {name!r}: {keeper} keeps names in lower case. Call it {name.lower()!r}."
        )
    if databases.name_pattern.fullmatch(name) is None:
        raise InvalidIdentifierError(
            f"Name {name!r}: {keeper} keeps names of {databases.name_pattern.pattern}."
        )
    return name


class MetastoreCatalog(PointerCatalog[MetastoreNamespaces]):
    """What catalogs in metastores have in common: they call `_keep_in` when they are made."""

    _databases: Databases

    def _keep_in(self, databases: Databases, tables: Pointers, views: Pointers) -> None:
        self._databases, self._pointers = databases, tables
        self._namespaces = MetastoreNamespaces(databases, self._warehouse)
        roots = allowed_roots(self._warehouse, self._properties)
        parts = (self._namespaces, self.storage, roots, self._environment)
        self._views = PointerViews(views, *parts)

    @property
    def uri(self) -> str:
        return self._databases.uri

    def namespace_location(self, namespace: Namespace) -> str:
        """The folder that the metastore has for the database."""
        return self._namespaces.location(namespace)

    # nobody else is ever given it, staged or not
    def default_location(self, identifier: Identifier, *, staged: bool = False) -> str:  # noqa: ARG002
        folder = self.namespace_location(identifier.namespace)
        return own_folder_in(folder, identifier.name, self._environment)

    def commit_all(self, commits: Sequence[TableCommit]) -> list[TableVersion]:
        """One commit; several are refused, since a metastore swaps one table at a time."""
        if len(commits) != 1:
            return BaseCatalog.commit_all(self, commits)
        return super().commit_all(commits)

    def turn(self, identifier: Identifier) -> AbstractContextManager[None]:
        """Wait for this machine's turn on the table, for a bounded time."""
        return machine_turn(f"{self.uri} {identifier}")
