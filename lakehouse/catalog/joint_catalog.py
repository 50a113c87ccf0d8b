"""The catalog of a transaction over tables, which keeps its commits until all are made together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from lakehouse.catalog.catalog_decorator import CatalogDecorator
from lakehouse.catalog.catalog_protocol import Catalog, TableCommit, TableVersion
from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.catalog.metadata_files import next_metadata
from lakehouse.environment import Environment
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_updates import Requirement, Update


class JointCatalog(CatalogDecorator):
    """Shows each table as it was when it was first loaded, with the commits kept since.

    Everything that is no commit goes to the catalog underneath.

    Args:
        catalog: where all is committed in the end.
        environment: clock.
    """

    def __init__(self, catalog: Catalog, environment: Environment) -> None:
        super().__init__(catalog)
        self._environment = environment
        self._bases: dict[Identifier, TableVersion] = {}
        self._shown: dict[Identifier, TableVersion] = {}
        self._updates: dict[Identifier, list[Update]] = {}

    def load(self, identifier: Identifier) -> TableVersion:
        """The table as this transaction sees it. Raises NoSuchTableError."""
        if identifier not in self._shown:
            self._bases[identifier] = self._shown[identifier] = self.inside.load(identifier)
        return self._shown[identifier]

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
        self._shown[identifier] = TableVersion(identifier, new, current.metadata_location)
        self._updates.setdefault(identifier, []).extend(updates)
        return self._shown[identifier]

    def planner(self, identifier: Identifier) -> None:
        """Nobody else: what was kept nobody else knows."""

    def appender(self, identifier: Identifier) -> None:
        """Nobody else: what was kept is committed in the end."""

    def turn(self, identifier: Identifier) -> AbstractContextManager[None]:  # noqa: ARG002
        """Nobody else is here."""
        return nullcontext()

    def commit_together(self) -> list[TableVersion]:
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
