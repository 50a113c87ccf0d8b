"""What every catalog has: a name, a warehouse, properties, storages; namespaces of its own."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

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
from lakehouse.catalog.folders import namespace_folder
from lakehouse.environment import Environment
from lakehouse.errors import UnsupportedFeatureError
from lakehouse.spec.identifier import Identifier, full_uri
from lakehouse.storage.storage_protocol import Storage


class BaseCatalog(Catalog):
    """What a catalog gets when it is opened.

    Args:
        warehouse: location below which tables are created.
        name: for display.
        properties: catalog and storage properties.
        environment: clock; the system's when None.
        storage_factory: makes storages.
    """

    def __init__(
        self,
        warehouse: str,
        name: str,
        properties: Mapping[str, str] | None,
        environment: Environment | None,
        storage_factory: Callable[[str, Mapping[str, str]], Storage],
    ) -> None:
        self._warehouse = full_uri(warehouse.rstrip("/"))
        self._name = name
        self._properties = dict(properties or {})
        self._environment = environment if environment is not None else Environment.system()
        self._storage_factory = storage_factory

    @property
    def name(self) -> str:
        return self._name

    @property
    def warehouse(self) -> str:
        return self._warehouse

    @property
    def commits_to_newest(self) -> bool:
        """Whether commits are applied to the newest version, which may be newer than `base`."""
        return False

    def namespace_location(self, namespace: Namespace) -> str:
        return namespace_folder(self._warehouse, namespace)

    def change_mark(self) -> Hashable | None:
        """What changes with every change; None: ask about each table."""
        return None

    @property
    def commits_together(self) -> bool:
        return False

    @property
    def records_transactions(self) -> bool:
        """Whether several tables can be, as far as readers of this catalog can tell."""
        return False

    def commit_all(self, commits: Sequence[TableCommit]) -> list[TableVersion]:
        """Refused: the catalog swaps one table at a time."""
        names = ", ".join(str(commit.identifier) for commit in commits)
        raise UnsupportedFeatureError(
            f"{names} cannot be committed to together: this catalog swaps one table at a time. Use "
            "a SQL catalog, or commit to each by itself."
        )

    def planner(self, identifier: Identifier) -> ServerPlanner | None:  # noqa: ARG002
        """Nobody else: manifests are read."""
        return None

    @property
    def takes_reports(self) -> bool:
        return False

    def report(self, identifier: Identifier, document: Mapping[str, Any]) -> None:
        """Nobody wants to know."""

    @property
    def requests(self) -> RequestLog | None:
        return None

    def during(self, *requests: Request) -> Catalog:
        """Refused: the catalog cannot note a request with what it does."""
        keys = ", ".join(request.key for request in requests)
        raise UnsupportedFeatureError(f"This catalog notes no requests, {keys} neither.")

    def appender(self, identifier: Identifier) -> ServerAppender | None:  # noqa: ARG002
        """Nobody else: each append is a commit."""
        return None

    def close(self) -> None:
        """Nothing is open."""

    @property
    def properties(self) -> Mapping[str, str]:
        return self._properties

    def storage(self, location: str) -> Storage:
        return self._storage_factory(location, self._properties)


class Namespaces(Protocol):
    """Where a catalog keeps its namespaces; the methods do what the catalog's do."""

    def create(self, namespace: Namespace, properties: Mapping[str, str]) -> None:
        """Create one."""

    def drop(self, namespace: Namespace) -> None:
        """Drop an empty one."""

    def exists(self, namespace: Namespace) -> bool:
        """Whether it is there."""

    def children(self, parent: Namespace) -> list[Namespace]:
        """Sorted, directly below."""

    def properties(self, namespace: Namespace) -> Mapping[str, str]:
        """All of them."""

    def update_properties(
        self, namespace: Namespace, updates: Mapping[str, str], removals: Sequence[str]
    ) -> Mapping[str, str]:
        """Set and remove; returns all of them."""


N = TypeVar("N", bound=Namespaces)


class NamespaceCatalog(BaseCatalog, Generic[N]):
    """A catalog that keeps namespaces of its own, in `_namespaces`."""

    _namespaces: N

    def create_namespace(
        self, namespace: Namespace, properties: Mapping[str, str] | None = None
    ) -> None:
        self._namespaces.create(namespace, properties or {})

    def drop_namespace(self, namespace: Namespace) -> None:
        self._namespaces.drop(namespace)

    def namespace_exists(self, namespace: Namespace) -> bool:
        return self._namespaces.exists(namespace)

    def list_namespaces(self, parent: Namespace = ()) -> list[Namespace]:
        return self._namespaces.children(parent)

    def namespace_properties(self, namespace: Namespace) -> Mapping[str, str]:
        return self._namespaces.properties(namespace)

    def update_namespace_properties(
        self, namespace: Namespace, updates: Mapping[str, str], removals: Sequence[str] = ()
    ) -> Mapping[str, str]:
        return self._namespaces.update_properties(namespace, updates, removals)
