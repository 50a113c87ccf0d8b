"""Catalog in a Hive Metastore, as Iceberg's Java and pyiceberg keep it there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from lakehouse.catalog.base_catalog import BaseCatalog
from lakehouse.catalog.catalog_protocol import Namespace, TableCommit, TableVersion
from lakehouse.catalog.confinement import allowed_roots
from lakehouse.catalog.folders import own_folder_in
from lakehouse.catalog.hive.hive_locks import HiveLocks
from lakehouse.catalog.hive.hive_namespaces import HiveNamespaces
from lakehouse.catalog.hive.hive_pointers import HivePointers
from lakehouse.catalog.hive.metastore import Metastore
from lakehouse.catalog.machine_turns import machine_turn
from lakehouse.catalog.pointer_catalog import PointerCatalog
from lakehouse.catalog.pointer_views import PointerViews
from lakehouse.catalog.pointers import VIEW
from lakehouse.environment import Environment
from lakehouse.spec.identifier import Identifier
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.storage.storage_protocol import Storage


class HiveCatalog(PointerCatalog[HiveNamespaces]):
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
        if not warehouse:
            self._warehouse = ""
        self._metastore = Metastore(uri, self._properties, self._environment)
        self._namespaces = HiveNamespaces(self._metastore, self._warehouse)
        locks = HiveLocks(self._metastore, self._properties, self._environment)
        parts = (self._metastore, locks, self.storage, self._properties)
        self._pointers = HivePointers(*parts)
        self._views = PointerViews(
            HivePointers(*parts, VIEW),
            self._namespaces,
            self.storage,
            allowed_roots(self._warehouse, self._properties),
            self._environment,
        )

    @property
    def uri(self) -> str:
        """Where the catalog lives."""
        return self._metastore.uri

    def namespace_location(self, namespace: Namespace) -> str:
        """The folder that the metastore has for the database."""
        return self._namespaces.location(namespace)

    # nobody else is ever given it, staged or not
    def default_location(self, identifier: Identifier, *, staged: bool = False) -> str:  # noqa: ARG002
        """A folder for a new table of this name, unused by any other."""
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

    def close(self) -> None:
        """Close the connections; the catalog opens new ones when used again."""
        self._metastore.close()
