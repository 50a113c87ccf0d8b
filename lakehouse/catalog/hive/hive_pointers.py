"""Which metadata file each table or view of a Hive Metastore is at, and the swap of a commit.

As Iceberg's Java does it, a swap holds the table's lock; or, where `engine.hive.lock-enabled` is
false, it names the version that it replaces, which metastores of version 4 compare, and older ones
ignore (`expected_parameter_value`, HIVE-26882; in Derby and Oracle 4.0.1 cannot compare texts).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hive_metastore.ttypes import EnvironmentContext

from lakehouse.catalog.hive.hive_databases import HiveDatabases
from lakehouse.catalog.hive.hive_locks import HeldLock, HiveLocks
from lakehouse.catalog.hive.hive_tables import hive_table
from lakehouse.catalog.hive.metastore import Metastore
from lakehouse.catalog.metadata_files import Described
from lakehouse.catalog.metastore_pointers import LOCATION, KeptTable, MetastorePointers
from lakehouse.catalog.pointers import TABLE, Kind, PointerMove
from lakehouse.errors import UnsupportedFeatureError
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.table_properties import boolean
from lakehouse.storage.storage_protocol import Storage

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
