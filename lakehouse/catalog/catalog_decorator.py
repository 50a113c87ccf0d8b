"""The catalog protocol passed on as it is: what shows a catalog differently begins here.

A transaction over tables keeps its commits for later; a version is held while others go on.
"""

# ruff: noqa: D102 - what the methods do stands in the protocol

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
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
from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.catalog.metadata_files import next_metadata
from lakehouse.catalog.view_protocol import Views
from lakehouse.environment import Environment
from lakehouse.errors import NoSuchFileError, SnapshotExpiredError
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


class StagingCatalog(CatalogDecorator):
    """Shows each table as it was when it was first asked for, with the commits kept since.

    Everything that is no commit goes to the catalog underneath.

    Args:
        catalog: where all is committed in the end.
        environment: clock.
    """

    def __init__(self, catalog: Catalog, environment: Environment) -> None:
        super().__init__(catalog)
        self._environment = environment
        self._bases: dict[Identifier, TableVersion] = {}
        self._staged: dict[Identifier, TableVersion] = {}
        self._updates: dict[Identifier, list[Update]] = {}

    def load(self, identifier: Identifier) -> TableVersion:
        """The table as this transaction sees it. Raises NoSuchTableError."""
        if identifier not in self._staged:
            self._bases[identifier] = self._staged[identifier] = self.inside.load(identifier)
        return self._staged[identifier]

    def refresh(self, version: TableVersion) -> TableVersion:
        """The table as this transaction sees it: what others commit is seen in the end."""
        return self.load(version.identifier)

    def commit(
        self,
        identifier: Identifier,
        base: TableVersion,  # noqa: ARG002 - the line of this transaction has one end
        requirements: Sequence[Requirement],
        updates: Sequence[Update],
    ) -> TableVersion:
        """Keep the updates for later. Raises CommitConflictError where a requirement fails."""
        current = self.load(identifier)
        with before_the_swap():
            new = next_metadata(current, requirements, updates, self._environment.now_ms())
        if new is current.metadata:
            return current
        self._staged[identifier] = TableVersion(identifier, new, current.metadata_location)
        self._updates.setdefault(identifier, []).extend(updates)
        return self._staged[identifier]

    def planner(self, identifier: Identifier) -> None:
        """Nobody else: what is staged nobody else knows."""

    def appender(self, identifier: Identifier) -> None:
        """Nobody else: what is staged is committed in the end."""

    def turn(self, identifier: Identifier) -> AbstractContextManager[None]:  # noqa: ARG002
        """Nobody else is here."""
        return nullcontext()

    def commit_staged(self) -> list[TableVersion]:
        """Commit everything that was kept, to the versions that it was decided on.

        Tables that were only read go along without updates: what was read must still be so.

        Raises what `Catalog.commit_all` raises; CommitConflictError where anybody committed to one
        of these tables meanwhile.
        """
        if not self._updates:
            return []
        return self.inside.commit_all(
            [
                TableCommit(identifier, base, (), self._updates.get(identifier, ()))
                for identifier, base in self._bases.items()
            ]
        )


@dataclass(frozen=True, slots=True)
class HeldVersion:
    """A version of a table, and who knows what became of it.

    Attributes:
        catalog: has the newest version.
        version: that is held.
    """

    catalog: Catalog
    version: TableVersion

    @contextmanager
    def reading(self, *snapshot_ids: int | None) -> Iterator[None]:
        """Within, files of these snapshots are read; of all that the version has, without ids.

        Raises:
            SnapshotExpiredError: a file is missing, and one of the snapshots has expired.
            NoSuchTableError: a file is missing, and so is the table.
            NoSuchFileError: a file is missing that should be there.
        """
        try:
            yield
        except NoSuchFileError as error:
            held = [snapshot.snapshot_id for snapshot in self.version.metadata.snapshots]
            expired = self.expired(snapshot_ids or held)
            if expired is None:
                raise
            raise expired from error

    def expired(self, snapshot_ids: Iterable[int | None]) -> SnapshotExpiredError | None:
        """That one of these snapshots, which the version has, has expired since; None: none has.

        Raises NoSuchTableError.
        """
        held = self.version.metadata
        # a transaction over tables shows each as it was
        catalog = self.catalog.inside if isinstance(self.catalog, StagingCatalog) else self.catalog
        newest = catalog.load(self.version.identifier).metadata
        if newest.table_uuid != held.table_uuid:
            return None
        for snapshot_id in snapshot_ids:
            if snapshot_id is None or held.snapshot_or_none(snapshot_id) is None:
                continue
            if newest.snapshot_or_none(snapshot_id) is None:
                return SnapshotExpiredError(
                    f"Table {self.version.identifier}: snapshot {snapshot_id} has expired since "
                    "the table was loaded. Refresh or load the table, and do it again.",
                    table=str(self.version.identifier),
                    snapshot_id=snapshot_id,
                )
        return None
