"""A catalog in which one table is not there yet: its first commit creates it."""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse.catalog.catalog_decorator import CatalogDecorator
from lakehouse.catalog.catalog_protocol import Catalog, ServerAppender, ServerPlanner, TableVersion
from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.catalog.confinement import check_table
from lakehouse.catalog.metadata_files import next_metadata
from lakehouse.environment import Environment
from lakehouse.errors import (
    AlreadyExistsError,
    CommitConflictError,
    InvalidInputError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    UnsupportedFeatureError,
    ViewAlreadyExistsError,
)
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import Requirement, Update

_REFUSALS = (AlreadyExistsError, InvalidInputError, NoSuchNamespaceError, UnsupportedFeatureError)


class CreatingCatalog(CatalogDecorator):
    """Shows a table that nobody else sees before the first commit to it.

    After that commit, and for all other tables, it is the catalog underneath.

    Args:
        catalog: where the table is to be.
        identifier: its name.
        metadata: its first metadata, at a location that `default_location(staged=True)` gave.
        environment: clock.

    Attributes:
        first: the table before its first commit; no file holds it.
    """

    def __init__(
        self,
        catalog: Catalog,
        identifier: Identifier,
        metadata: TableMetadata,
        environment: Environment,
    ) -> None:
        super().__init__(catalog)
        self._environment = environment
        self.first = TableVersion(identifier, metadata, "")
        self._is_created = False

    def check(self) -> None:
        """Raise what the first commit would raise, as far as that is known before it.

        Raises TableAlreadyExistsError, ViewAlreadyExistsError, InvalidLocationError.
        """
        identifier = self.first.identifier
        if self.inside.table_exists(identifier):
            raise TableAlreadyExistsError(f"Table {identifier} exists.", table=str(identifier))
        if self.inside.views.exists(identifier):
            raise ViewAlreadyExistsError(f"{identifier} is a view.", view=str(identifier))
        check_table(self.inside, self.first.metadata)

    def load(self, identifier: Identifier) -> TableVersion:
        """The newest version. Raises NoSuchTableError, and TableAlreadyExistsError: others came."""
        if self._is_created or identifier != self.first.identifier:
            return self.inside.load(identifier)
        try:
            version = self.inside.load(identifier)
        except NoSuchTableError:
            return self.first
        if version.metadata.table_uuid != self.first.metadata.table_uuid:
            with before_the_swap():
                raise TableAlreadyExistsError(
                    f"Table {identifier} was created by someone else.", table=str(identifier)
                )
        self._is_created = True
        return version

    def refresh(self, version: TableVersion) -> TableVersion:
        """The newest version; the same object when nothing was committed since."""
        if version is self.first:
            return self.load(version.identifier)
        return self.inside.refresh(version)

    def commit(
        self,
        identifier: Identifier,
        base: TableVersion,
        requirements: Sequence[Requirement],
        updates: Sequence[Update],
    ) -> TableVersion:
        """Create the table as it is after the updates; after that, what every catalog does.

        Raises TableAlreadyExistsError, ViewAlreadyExistsError, NoSuchNamespaceError: certainly not
        created. CommitConflictError: another first commit through this catalog has created it.
        """
        if base is not self.first:
            return self.inside.commit(identifier, base, requirements, updates)
        with before_the_swap():
            new = next_metadata(base, requirements, updates, self._environment.now_ms())
        try:
            version = self.inside.create(identifier, new, staged=True)
        except _REFUSALS as refused:
            with before_the_swap():
                if isinstance(refused, TableAlreadyExistsError) and self.load(identifier):
                    raise CommitConflictError(
                        f"Table {identifier} was created meanwhile.", table=str(identifier)
                    ) from refused
                raise
        self._is_created = True
        return version

    def planner(self, identifier: Identifier) -> ServerPlanner | None:
        """Nobody, as long as nobody else knows the table."""
        return self.inside.planner(identifier) if self._is_created else None

    def appender(self, identifier: Identifier) -> ServerAppender | None:
        """Nobody, as long as nobody else knows the table."""
        return self.inside.appender(identifier) if self._is_created else None
