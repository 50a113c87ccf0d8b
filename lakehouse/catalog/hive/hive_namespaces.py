"""Namespaces of a Hive Metastore: its databases, which have one level."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from typing import Any

from hive_metastore.ttypes import Database, PrincipalType

from lakehouse.catalog.catalog_protocol import Namespace
from lakehouse.catalog.folders import namespace_folder
from lakehouse.catalog.hive.metastore import Metastore, Missing, NotAllowed, Taken, Unnameable
from lakehouse.errors import (
    InvalidIdentifierError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    UnsupportedFeatureError,
)
from lakehouse.spec.identifier import dotted, full_uri, parse_namespace
from lakehouse.storage.location import join

_LOCATION, _COMMENT = "location", "comment"


class HiveNamespaces:
    """Databases of a metastore.

    Args:
        metastore: keeps them.
        warehouse: below which new ones lie; empty: the metastore chooses.
    """

    def __init__(self, metastore: Metastore, warehouse: str) -> None:
        self._metastore, self._warehouse = metastore, warehouse

    def create(self, namespace: Namespace, properties: Mapping[str, str]) -> None:
        """Create one."""
        name = kept_name(namespace)
        place = namespace_folder(self._warehouse, namespace) if self._warehouse else None
        database = Database(
            name=name, locationUri=place, ownerName=getpass.getuser(), ownerType=PrincipalType.USER
        )
        _set(database, properties)
        try:
            self._metastore.call(lambda client: client.create_database(database))
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
            self._metastore.call(lambda client: client.drop_database(name, False, False))
        except NotAllowed as error:
            raise NamespaceNotEmptyError(
                f"Namespace {name}: {error.message}", namespace=name
            ) from error
        except Missing as error:
            raise self._missing(name) from error

    def exists(self, namespace: Namespace) -> bool:
        """Whether it is there."""
        return self._find(namespace) is not None

    def children(self, parent: Namespace) -> list[Namespace]:
        """Sorted, directly below: all below the root, none below another."""
        if parent:
            self.require(parent)
            return []
        names = self._metastore.ask(lambda client: client.get_all_databases())
        return sorted((name,) for name in names)

    def properties(self, namespace: Namespace) -> Mapping[str, str]:
        """All of them; `location` and `comment` are what Hive knows by these names."""
        database = self._require(namespace)
        fields = {_LOCATION: database.locationUri, _COMMENT: database.description}
        given = {name: value for name, value in fields.items() if value}
        return {**(database.parameters or {}), **given}

    def update_properties(
        self, namespace: Namespace, updates: Mapping[str, str], removals: Sequence[str]
    ) -> Mapping[str, str]:
        """Set and remove; of several who do at once, the last wins."""
        database = self._require(namespace)
        for name in removals:
            if name in (_COMMENT, _LOCATION) and name not in updates:
                raise UnsupportedFeatureError(
                    f"Namespace {database.name}: a Hive Metastore cannot forget a {name}. Set "
                    "another."
                )
            (database.parameters or {}).pop(name, None)
        _set(database, updates)
        self._metastore.ask(lambda client: client.alter_database(database.name, database))
        return self.properties(namespace)

    def require(self, namespace: Namespace) -> str:
        """Its name as the metastore keeps it."""
        name: str = self._require(namespace).name
        return name

    def location(self, namespace: Namespace) -> str:
        """Where its tables lie by default; of one that is not there, where it would lie."""
        database = self._find(namespace)
        if database is not None:
            return full_uri(database.locationUri)
        if self._warehouse:
            return namespace_folder(self._warehouse, namespace)
        return join(self.location(("default",)), f"{kept_name(namespace)}.db")

    def _require(self, namespace: Namespace) -> Any:
        database = self._find(namespace)
        if database is None:
            raise self._missing(dotted(namespace))
        return database

    def _find(self, namespace: Namespace) -> Any | None:
        if len(parse_namespace(namespace)) > 1:
            return None
        try:
            return self._metastore.ask(lambda client: client.get_database(namespace[0]))
        except Missing:
            return None

    def _missing(self, name: str) -> NoSuchNamespaceError:
        return NoSuchNamespaceError(
            f"No namespace {name} in {self._metastore.uri}.", namespace=name
        )


def kept_name(parts: Sequence[str]) -> str:
    """The name of a new database, or the last part of a table's, if it can be kept as it is.

    Raises InvalidIdentifierError: several levels, upper case, or no name.
    """
    if len(parts) > 1:
        raise InvalidIdentifierError(
            f"Namespace {dotted(parts)} has {len(parts)} levels; a Hive Metastore knows one."
        )
    [name] = parse_namespace(parts)
    if name != name.lower():
        raise InvalidIdentifierError(
            f"Name {name!r}: a Hive Metastore keeps names in lower case. Call it {name.lower()!r}."
        )
    return name


def _set(database: Any, properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        if name == _LOCATION:
            database.locationUri = value
        elif name == _COMMENT:
            database.description = value
        else:
            database.parameters = {**(database.parameters or {}), name: value}
