"""Catalog in a Hive Metastore, as Iceberg's Java and pyiceberg keep it there."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakehouse.catalog.hive.hive_databases import HiveDatabases
from lakehouse.catalog.hive.hive_locks import HiveLocks
from lakehouse.catalog.hive.hive_pointers import HivePointers
from lakehouse.catalog.hive.metastore import Metastore
from lakehouse.catalog.metastore_catalog import MetastoreCatalog
from lakehouse.catalog.pointers import VIEW
from lakehouse.environment import Environment
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.storage.storage_protocol import Storage


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
        """Close the connections; the catalog opens new ones when used again."""
        self._metastore.close()
