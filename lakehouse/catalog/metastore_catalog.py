"""A catalog in a metastore, which swaps one table at a time: Hive's, or Glue."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from lakehouse.catalog.base_catalog import BaseCatalog
from lakehouse.catalog.catalog_protocol import Namespace, TableCommit, TableVersion
from lakehouse.catalog.confinement import allowed_roots
from lakehouse.catalog.folders import own_folder_in
from lakehouse.catalog.machine_turns import machine_turn
from lakehouse.catalog.metastore_namespaces import Databases, MetastoreNamespaces
from lakehouse.catalog.pointer_catalog import PointerCatalog
from lakehouse.catalog.pointer_views import PointerViews
from lakehouse.catalog.pointers import Pointers
from lakehouse.spec.identifier import Identifier


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
        """Where the catalog lives."""
        return self._databases.uri

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
