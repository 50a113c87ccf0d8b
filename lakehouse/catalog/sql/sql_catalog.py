"""Catalog in a SQL database, with the tables of Iceberg's JDBC catalog.

pyiceberg and Iceberg's Java open the same database. A commit writes a metadata file, then swaps the
pointer to it by one conditional UPDATE.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager

from lakehouse.catalog.catalog_protocol import Request
from lakehouse.catalog.confinement import allowed_roots
from lakehouse.catalog.pointer_catalog import PointerCatalog
from lakehouse.catalog.pointer_views import PointerViews
from lakehouse.catalog.pointers import VIEW
from lakehouse.catalog.sql.sql_database import Database
from lakehouse.catalog.sql.sql_namespaces import SqlNamespaces
from lakehouse.catalog.sql.sql_pointers import SqlPointers, TableLocations
from lakehouse.catalog.sql.sql_requests import SqlRequests
from lakehouse.environment import Environment
from lakehouse.patience import patience
from lakehouse.spec.identifier import Identifier
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.storage.storage_protocol import Storage

RETRY_TIMEOUT = "catalog.retry-timeout-ms"
"""Catalog property: how long a database that is away is waited for."""


class SqlCatalog(PointerCatalog[SqlNamespaces]):
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
        super().__init__(warehouse, name, properties, environment, storage_factory)
        wait = patience(self._properties, RETRY_TIMEOUT, self._environment)
        self._database = database if database is not None else Database(uri, wait)
        self._database.create_tables()
        self._tables = TableLocations(self._database, self.storage)
        self._carry_out(SqlRequests(self._database, name))

    def _carry_out(self, requests: SqlRequests) -> None:
        """Note every change as one of the requests that are being carried out."""
        self._requests = requests
        self._namespaces = SqlNamespaces(self._database, self._name, requests)
        parts = (self._database, self._name, self.storage, self._tables, requests)
        self._pointers = SqlPointers(*parts)
        self._views = PointerViews(
            SqlPointers(*parts, VIEW),
            self._namespaces,
            self.storage,
            allowed_roots(self._warehouse, self._properties),
            self._environment,
        )

    @property
    def uri(self) -> str:
        return self._database.display_uri

    def change_mark(self) -> Hashable | None:
        """What changes whenever anybody commits anything to this database."""
        return self._database.change_mark()

    @property
    def commits_together(self) -> bool:
        return True

    @property
    def requests(self) -> SqlRequests:
        return self._requests

    def during(self, *requests: Request) -> SqlCatalog:
        """The same catalog, whose changes are noted as those of requests."""
        same = copy.copy(self)
        same._carry_out(self._requests.during(requests))  # noqa: SLF001
        return same

    def turn(self, identifier: Identifier) -> AbstractContextManager[None]:
        return self._database.turn(f"{self._name}.{identifier}")

    def close(self) -> None:
        self._database.close()
