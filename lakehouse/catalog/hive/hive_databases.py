"""Databases of a Hive Metastore."""

from __future__ import annotations

import getpass
import re

from hive_metastore.ttypes import Database as HiveDatabase
from hive_metastore.ttypes import PrincipalType

from lakehouse.catalog.hive.metastore import Metastore
from lakehouse.catalog.metastore_namespaces import Database, Missing
from lakehouse.errors import UnsupportedFeatureError
from lakehouse.spec.identifier import full_uri
from lakehouse.storage.location import join


class HiveDatabases:
    """Databases of a Hive Metastore."""

    keeper = "a Hive Metastore"
    name_pattern = re.compile(".+", re.DOTALL)
    """It refuses what it does not keep, and versions differ in that."""

    def __init__(self, metastore: Metastore) -> None:
        self._metastore, self.uri = metastore, metastore.uri

    def names(self) -> list[str]:
        """All of them."""
        names: list[str] = self._metastore.ask(lambda client: client.get_all_databases())
        return names

    def find(self, name: str) -> Database | None:
        """One; None where there is none."""
        try:
            held = self._held(name)
        except Missing:
            return None
        return Database(held.name, held.locationUri, held.description, held.parameters or {})

    def create(self, database: Database) -> None:
        """Make one. Raises Taken, Unnameable."""
        held = HiveDatabase(
            name=database.name, ownerName=getpass.getuser(), ownerType=PrincipalType.USER
        )
        _fill(held, database)
        self._metastore.call(lambda client: client.create_database(held))

    def replace(self, old: Database, new: Database) -> None:
        """Put it in place of the one of its name; of several who do, the last wins."""
        for field in ("location", "comment"):
            if getattr(old, field) and not getattr(new, field):
                raise UnsupportedFeatureError(
                    f"Namespace {new.name}: a Hive Metastore cannot forget a {field}. Set another."
                )
        held = self._held(new.name)
        _fill(held, new)
        self._metastore.ask(lambda client: client.alter_database(new.name, held))

    def drop(self, name: str) -> None:
        """Forget an empty one. Raises Missing, NotAllowed."""
        self._metastore.call(lambda client: client.drop_database(name, False, False))

    def default_location(self, name: str) -> str:
        """In the folder of the database `default`."""
        return join(full_uri(self._held("default").locationUri), f"{name}.db")

    def _held(self, name: str) -> HiveDatabase:
        return self._metastore.ask(lambda client: client.get_database(name))


def _fill(held: HiveDatabase, database: Database) -> None:
    held.locationUri, held.description = database.location, database.comment
    held.parameters = dict(database.parameters)
