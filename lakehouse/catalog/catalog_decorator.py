"""The catalog protocol passed on as it is: what shows a catalog differently begins here."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from lakehouse.catalog.catalog_protocol import (
    Catalog,
    Namespace,
    Request,
    RequestLog,
    ServerAppender,
    ServerPlanner,
    TableCommit,
    TableVersion,
)
from lakehouse.catalog.view_protocol import Views
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import Requirement, Update
from lakehouse.storage.storage_protocol import Storage


class CatalogDecorator:
    """A catalog that does what the one inside does, but for what a subclass overrides.

    Args:
        inside: the catalog.
    """

    def __init__(self, inside: Catalog) -> None:
        self.inside = inside

    @property
    def name(self) -> str:
        return self.inside.name

    @property
    def warehouse(self) -> str:
        return self.inside.warehouse

    @property
    def uri(self) -> str:
        return self.inside.uri

    @property
    def properties(self) -> Mapping[str, str]:
        return self.inside.properties

    @property
    def commits_to_newest(self) -> bool:
        return self.inside.commits_to_newest

    @property
    def views(self) -> Views:
        return self.inside.views

    def storage(self, location: str) -> Storage:
        return self.inside.storage(location)

    def create_namespace(
        self, namespace: Namespace, properties: Mapping[str, str] | None = None
    ) -> None:
        self.inside.create_namespace(namespace, properties)

    def drop_namespace(self, namespace: Namespace) -> None:
        self.inside.drop_namespace(namespace)

    def namespace_exists(self, namespace: Namespace) -> bool:
        return self.inside.namespace_exists(namespace)

    def list_namespaces(self, parent: Namespace = ()) -> list[Namespace]:
        return self.inside.list_namespaces(parent)

    def namespace_properties(self, namespace: Namespace) -> Mapping[str, str]:
        return self.inside.namespace_properties(namespace)

    def update_namespace_properties(
        self, namespace: Namespace, updates: Mapping[str, str], removals: Sequence[str] = ()
    ) -> Mapping[str, str]:
        return self.inside.update_namespace_properties(namespace, updates, removals)

    def list_tables(self, namespace: Namespace) -> list[Identifier]:
        return self.inside.list_tables(namespace)

    def table_exists(self, identifier: Identifier) -> bool:
        return self.inside.table_exists(identifier)

    def load(self, identifier: Identifier) -> TableVersion:
        return self.inside.load(identifier)

    def refresh(self, version: TableVersion) -> TableVersion:
        return self.inside.refresh(version)

    def change_mark(self) -> Hashable | None:
        return self.inside.change_mark()

    def namespace_location(self, namespace: Namespace) -> str:
        return self.inside.namespace_location(namespace)

    def default_location(self, identifier: Identifier, *, staged: bool = False) -> str:
        return self.inside.default_location(identifier, staged=staged)

    def create(
        self, identifier: Identifier, metadata: TableMetadata, *, staged: bool = False
    ) -> TableVersion:
        return self.inside.create(identifier, metadata, staged=staged)

    def commit(
        self,
        identifier: Identifier,
        base: TableVersion,
        requirements: Sequence[Requirement],
        updates: Sequence[Update],
    ) -> TableVersion:
        return self.inside.commit(identifier, base, requirements, updates)

    @property
    def commits_together(self) -> bool:
        return self.inside.commits_together

    @property
    def records_transactions(self) -> bool:
        return self.inside.records_transactions

    def commit_all(self, commits: Sequence[TableCommit]) -> list[TableVersion]:
        return self.inside.commit_all(commits)

    @property
    def requests(self) -> RequestLog | None:
        return self.inside.requests

    def during(self, *requests: Request) -> Catalog:
        same = copy.copy(self)
        same.inside = self.inside.during(*requests)
        return same

    def appender(self, identifier: Identifier) -> ServerAppender | None:
        return self.inside.appender(identifier)

    def planner(self, identifier: Identifier) -> ServerPlanner | None:
        return self.inside.planner(identifier)

    @property
    def takes_reports(self) -> bool:
        return self.inside.takes_reports

    def report(self, identifier: Identifier, document: Mapping[str, Any]) -> None:
        self.inside.report(identifier, document)

    def turn(self, identifier: Identifier) -> AbstractContextManager[None]:
        return self.inside.turn(identifier)

    def close(self) -> None:
        self.inside.close()

    def drop(self, identifier: Identifier, *, purge: bool = False) -> None:
        self.inside.drop(identifier, purge=purge)

    def unregister(self, identifier: Identifier) -> TableVersion:
        return self.inside.unregister(identifier)

    def rename(self, source: Identifier, target: Identifier) -> None:
        self.inside.rename(source, target)

    def register(self, identifier: Identifier, metadata_location: str) -> TableVersion:
        return self.inside.register(identifier, metadata_location)


def innermost(catalog: Catalog) -> Catalog:
    """The catalog without what decorates it."""
    while isinstance(catalog, CatalogDecorator):
        catalog = catalog.inside
    return catalog
