"""Catalog in the Glue Data Catalog, as Iceberg's Java and pyiceberg keep it there."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakehouse.catalog.glue.glue_client import GlueClient
from lakehouse.catalog.glue.glue_databases import GlueDatabases
from lakehouse.catalog.glue.glue_pointers import GluePointers
from lakehouse.catalog.metastore_catalog import MetastoreCatalog
from lakehouse.catalog.pointers import VIEW
from lakehouse.environment import Environment
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.storage.storage_protocol import Storage


class GlueCatalog(MetastoreCatalog):
    """Catalog in Glue, through its own interface.

    Args:
        uri: `glue://REGION`; `glue://`: the region of AWS's tools.
        warehouse: location below which new namespaces and tables lie, and outside which no table is
            written; None: each database has to have a location.
        name: for display.
        properties: catalog and storage properties: `glue.id`, `glue.endpoint`, `glue.skip-archive`,
            keys and region as `GlueClient` says, `catalog.retry-timeout-ms`.
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
        client = GlueClient(uri, self._properties, self._environment)
        databases = GlueDatabases(client)
        parts = (client, self._properties, databases, self.storage)
        self._keep_in(databases, GluePointers(*parts), GluePointers(*parts, VIEW))
