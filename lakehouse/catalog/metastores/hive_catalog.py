"""Catalog in a Hive Metastore, as Iceberg's Java and pyiceberg keep it there.

As Iceberg's Java does it, a swap holds the table's lock; or, where `engine.hive.lock-enabled` is
false, it names the version that it replaces, which metastores of version 4 compare, and older ones
ignore (`expected_parameter_value`, HIVE-26882; in Derby and Oracle 4.0.1 cannot compare texts).
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hive_metastore.ttypes import Database as HiveDatabase
from hive_metastore.ttypes import EnvironmentContext, PrincipalType

from lakehouse.catalog.metadata_files import Described
from lakehouse.catalog.metastores.hive_locks import HeldLock, HiveLocks
from lakehouse.catalog.metastores.hive_tables import hive_table
from lakehouse.catalog.metastores.metastore import Metastore
from lakehouse.catalog.metastores.metastore_catalog import (
    Database,
    Databases,
    MetastoreCatalog,
    Missing,
)
from lakehouse.catalog.metastores.metastore_pointers import LOCATION, KeptTable, MetastorePointers
from lakehouse.catalog.pointers import TABLE, VIEW, Kind, PointerMove
from lakehouse.environment import Environment
from lakehouse.errors import UnsupportedFeatureError
from lakehouse.spec.identifier import Identifier, full_uri
from lakehouse.spec.table_properties import boolean
from lakehouse.storage.location import join
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.storage.storage_protocol import Storage


class HiveDatabases(Databases):
    """Databases of a Hive Metastore."""

    keeper = "a Hive Metastore"
    name_pattern = re.compile(".+", re.DOTALL)
    """It refuses what it does not keep, and versions differ in that."""

    def __init__(self, metastore: Metastore) -> None:
        self._metastore, self.uri = metastore, metastore.uri

    def names(self) -> list[str]:
        names: list[str] = self._metastore.ask(lambda client: client.get_all_databases())
        return names

    def find(self, name: str) -> Database | None:
        try:
            held = self._held(name)
        except Missing:
            return None
        return Database(held.name, held.locationUri, held.description, held.parameters or {})

    def create(self, database: Database) -> None:
        held = HiveDatabase(
            name=database.name, ownerName=getpass.getuser(), ownerType=PrincipalType.USER
        )
        _fill(held, database)
        self._metastore.call(lambda client: client.create_database(held))

    def replace(self, old: Database, new: Database) -> None:
        for field in ("location", "comment"):
            if getattr(old, field) and not getattr(new, field):
                raise UnsupportedFeatureError(
                    f"Namespace {new.name}: a Hive Metastore cannot forget a {field}. Set another."
                )
        held = self._held(new.name)
        _fill(held, new)
        self._metastore.ask(lambda client: client.alter_database(new.name, held))

    def drop(self, name: str) -> None:
        self._metastore.call(lambda client: client.drop_database(name, False, False))

    def default_location(self, name: str) -> str:
        """In the folder of the database `default`."""
        return join(full_uri(self._held("default").locationUri), f"{name}.db")

    def _held(self, name: str) -> HiveDatabase:
        return self._metastore.ask(lambda client: client.get_database(name))


def _fill(held: HiveDatabase, database: Database) -> None:
    held.locationUri, held.description = database.location, database.comment
    held.parameters = dict(database.parameters)


LOCK_ENABLED = "engine.hive.lock-enabled"
_COLUMNS = "incompatible"
_COMPARING = 4
"""The version since which a metastore compares `expected_parameter_value`."""


class HivePointers(MetastorePointers):
    """Metadata locations of the tables, or of the views, of a Hive Metastore.

    Args:
        metastore: holds them.
        locks: of the metastore.
        properties: of the catalog: `iceberg.engine.hive.lock-enabled` (true).
        databases: of the metastore.
        storage: the storage of a location.
        kind: which of both.
    """

    def __init__(
        self,
        metastore: Metastore,
        locks: HiveLocks,
        properties: Mapping[str, str],
        databases: HiveDatabases,
        storage: Callable[[str], Storage],
        kind: Kind = TABLE,
    ) -> None:
        super().__init__(databases, storage, kind)
        self._metastore, self._locks = metastore, locks
        name = f"iceberg.{LOCK_ENABLED}"
        self._is_locking = boolean(properties.get(name, properties.get(LOCK_ENABLED, "true")))
        self._compares: bool | None = None

    def _kept(self, database: str, name: str) -> KeptTable | None:
        table = self._metastore.table(database, name)
        return None if table is None else _kept(table)

    def _all_kept(self, database: str) -> list[KeptTable]:
        return [_kept(table) for table in self._metastore.tables(database)]

    def _description(
        self, move: PointerMove, new: Described, present: KeptTable | None, guard: HeldLock | None
    ) -> Any:
        table = hive_table(move, new, None if present is None else present.held, self._kind)
        if guard is not None:
            guard.confirm()
        return table

    def _insert(self, identifier: Identifier, description: Any) -> None:  # noqa: ARG002
        self._metastore.call(lambda client: client.create_table(description))

    def _replace(
        self,
        identifier: Identifier,
        description: Any,
        present: KeptTable,
        guard: HeldLock | None,
    ) -> None:
        context = {"DO_NOT_UPDATE_STATS": "true"}
        if guard is None:
            context["expected_parameter_key"] = LOCATION
            context["expected_parameter_value"] = present.parameters[LOCATION]
        [database], name = identifier.namespace, identifier.name
        environment = EnvironmentContext(context)
        self._metastore.call(
            lambda client: client.alter_table_with_environment_context(
                database, name, description, environment
            )
        )

    def _delete(self, identifier: Identifier, guard: HeldLock | None) -> None:
        if guard is not None:
            guard.confirm()
        [database], name = identifier.namespace, identifier.name
        self._metastore.call(lambda client: client.drop_table(database, name, False))

    def _move(
        self, present: KeptTable, source: Identifier, target: Identifier, guard: HeldLock | None
    ) -> None:
        vars(present.held).update(dbName=target.namespace[0], tableName=target.name)
        if guard is not None:
            guard.confirm()
        self._replace(source, present.held, present, guard)

    def _advice(self, message: str) -> str:
        if _COLUMNS not in message:
            return ""
        return (
            " Iceberg tells columns apart by id: set metastore.disallow.incompatible.col."
            "type.changes to false in the metastore."
        )

    @contextmanager
    def _guarded(
        self, identifier: Identifier, properties: Mapping[str, str]
    ) -> Iterator[HeldLock | None]:
        """Hold the lock where the table or the catalog says so; None: the metastore compares."""
        given = properties.get(LOCK_ENABLED)
        if self._is_locking if given is None else boolean(given):
            with self._locks.lock(identifier) as held:
                yield held
            return
        if self._compares is None:
            version = self._metastore.ask(lambda client: client.getVersion())
            major = version.partition(".")[0]
            self._compares = major.isdecimal() and int(major) >= _COMPARING
        if not self._compares:
            raise UnsupportedFeatureError(
                f"{identifier}: without locks ({LOCK_ENABLED}=false) commits would be lost: "
                f"{self._metastore.uri} is older than version 4 and compares nothing (HIVE-26882). "
                "Leave locks on, in every engine."
            )
        yield None


def _kept(table: Any) -> KeptTable:
    folder = None if table.sd is None else table.sd.location
    return KeptTable(table.tableName, table.parameters or {}, folder, table)


class HiveCatalog(MetastoreCatalog):
    """Catalog in a Hive Metastore of version 3 or 4.

    Args:
        uri: `hms://host:9083` or `thrift://host:9083`; several of one metastore with commas.
        warehouse: location below which new namespaces and tables lie, and outside which no table is
            written; None: where the metastore puts its databases.
        name: for display.
        properties: catalog and storage properties: `ugi` (`user:group`),
            `iceberg.engine.hive.lock-enabled`, `iceberg.hive.lock-timeout-ms`,
            `iceberg.hive.lock-heartbeat-interval-ms`, `catalog.retry-timeout-ms`.
        environment: clock and unique names.
        storage_factory: makes storages.
    """

    def __init__(
        self,
        uri: str,
        warehouse: str | None,
        *,
        name: str = "lakehouse",
        properties: Mapping[str, str] | None = None,
        environment: Environment | None = None,
        storage_factory: Callable[[str, Mapping[str, str]], Storage] = storage_for,
    ) -> None:
        super().__init__(warehouse or "", name, properties, environment, storage_factory)
        self._metastore = Metastore(uri, self._properties, self._environment)
        databases = HiveDatabases(self._metastore)
        locks = HiveLocks(self._metastore, self._properties, self._environment)
        parts = (self._metastore, locks, self._properties, databases, self.storage)
        self._keep_in(databases, HivePointers(*parts), HivePointers(*parts, VIEW))

    def close(self) -> None:
        self._metastore.close()
