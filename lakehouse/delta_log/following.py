"""The catalog that every lakehouse has around its own: Delta logs follow the commits of tables."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from lakehouse.catalog.catalog_decorator import CatalogDecorator
from lakehouse.catalog.catalog_protocol import TableCommit, TableVersion
from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.delta_log.delta_actions import check_expressible
from lakehouse.delta_log.delta_log import follow, forget
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.metadata_draft import apply_updates
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import (
    AddSchema,
    Requirement,
    SetCurrentSchema,
    SetProperties,
    Update,
)
from lakehouse.spec.table_properties import TableProperties

log = logging.getLogger(__name__)


def keeps_delta_log(metadata: TableMetadata) -> bool:
    """Whether a table has a log of Delta's beside it (`write.delta-log`, if that can be read)."""
    return metadata.properties.get(TableProperties.delta_log.name, "").strip().lower() == "true"


class DeltaFollowedCatalog(CatalogDecorator):
    """A catalog after whose commits the Delta logs of the tables that have one are brought up.

    A log that cannot be written does not fail the commit, which is done: it is logged, and the next
    commit goes on from where the log stands.
    """

    def create(
        self, identifier: Identifier, metadata: TableMetadata, *, staged: bool = False
    ) -> TableVersion:
        """Create a table; raises UnsupportedFeatureError: Delta cannot show it."""
        if keeps_delta_log(metadata):
            with before_the_swap():
                check_expressible(metadata, str(identifier))
        return self._followed(None, self.inside.create(identifier, metadata, staged=staged))

    def commit(
        self,
        identifier: Identifier,
        base: TableVersion,
        requirements: Sequence[Requirement],
        updates: Sequence[Update],
    ) -> TableVersion:
        """Commit; raises UnsupportedFeatureError: Delta cannot show what would come of it."""
        _check(base, updates)
        done = self.inside.commit(identifier, base, requirements, updates)
        return self._followed(base, done)

    def commit_all(self, commits: Sequence[TableCommit]) -> list[TableVersion]:
        """Commit to several tables; raises as `commit` does."""
        for commit in commits:
            _check(commit.base, commit.updates)
        done = self.inside.commit_all(commits)
        for commit, version in zip(commits, done, strict=True):
            self._followed(commit.base, version)
        return done

    def _followed(self, base: TableVersion | None, version: TableVersion) -> TableVersion:
        kept = base is not None and keeps_delta_log(base.metadata)
        keeps = keeps_delta_log(version.metadata)
        if not keeps and not kept:
            return version
        try:
            if keeps:
                follow(self.inside, version)
            else:
                forget(self.inside, version)
        except Exception as error:  # noqa: BLE001 - the commit is done, whatever came after
            log.warning(
                "Table %s: committed, but its Delta log is behind (%s: %s). The next commit goes "
                "on from there, or `lakehouse delta sync %s`.",
                version.identifier,
                type(error).__name__,
                error,
                version.identifier,
            )
        return version


def _check(base: TableVersion, updates: Sequence[Update]) -> None:
    """Whether Delta can show what comes of updates, if any can make it so that it cannot."""
    if not any(
        TableProperties.delta_log.name in update.updates
        if isinstance(update, SetProperties)
        else isinstance(update, AddSchema | SetCurrentSchema)
        for update in updates
    ):
        return
    with before_the_swap():
        after = apply_updates(base.metadata, updates, now_ms=base.metadata.last_updated_ms)
        if keeps_delta_log(after):
            check_expressible(after, str(base.identifier))
