"""Commits that clients ask for: their updates, on the newest version that their requirements allow.

A client that got no answer asks again, and so do proxies on their own. What it asks for is known by
the ids that it chose itself: a snapshot that the table has, a table of that uuid.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.environment import Environment
from lakehouse.errors import CommitConflictError, NoSuchTableError
from lakehouse.server.served_tables import ServedTables
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_requirements import (
    AssertCreate,
    Requirement,
    check_requirements,
)
from lakehouse.spec.metadata.table_updates import (
    AddSnapshot,
    AssignUUID,
    SetLocation,
    Update,
    apply_updates,
)

_ATTEMPTS = 20


class TableCommits:
    """Commits to the tables of a catalog.

    Args:
        catalog: holds them.
        tables: the versions known to be newest.
        environment: clock and ids.
    """

    def __init__(self, catalog: Catalog, tables: ServedTables, environment: Environment) -> None:
        self._catalog, self._tables, self._environment = catalog, tables, environment

    def commit(
        self,
        identifier: Identifier,
        requirements: Sequence[Requirement],
        updates: Sequence[Update],
    ) -> TableVersion:
        """Apply the updates to the newest version, if the requirements hold there.

        A commit that was done already is not done again: its version, or a newer one, is returned.

        Raises:
            CommitConflictError: certainly not committed.
            CommitStateUnknownError: perhaps committed.
            NoSuchTableError: there is no table, and it is not to be created.
            TableAlreadyExistsError: certainly not created: others were first.
        """
        with self._catalog.turn(identifier):
            if any(isinstance(one, AssertCreate) for one in requirements):
                done = self._create(identifier, requirements, updates)
            else:
                done = self._change(identifier, requirements, updates)
        self._tables.keep(done)
        return done

    def _create(
        self, identifier: Identifier, requirements: Sequence[Requirement], updates: Sequence[Update]
    ) -> TableVersion:
        with before_the_swap():
            found = self._newest_or_none(identifier)
            if found is not None and was_created_by(found.metadata, updates):
                return found
            check_requirements(None if found is None else found.metadata, requirements)
            if not any(isinstance(one, SetLocation) for one in updates):
                updates = [
                    SetLocation(self._catalog.default_location(identifier, staged=True)),
                    *updates,
                ]
            metadata = apply_updates(None, updates, now_ms=self._environment.now_ms())
        return self._catalog.create(identifier, metadata, staged=True)

    def _newest_or_none(self, identifier: Identifier) -> TableVersion | None:
        try:
            return self._tables.newest(identifier)
        except NoSuchTableError:
            return None

    def _change(
        self, identifier: Identifier, requirements: Sequence[Requirement], updates: Sequence[Update]
    ) -> TableVersion:
        with before_the_swap():
            base = self._tables.newest(identifier)
        for _ in range(_ATTEMPTS):
            if holds_snapshots_of(base.metadata, updates):
                return base
            try:
                return self._catalog.commit(identifier, base, requirements, updates)
            except CommitConflictError:
                # a race that was lost is run again; what does not fit the newest version is refused
                with before_the_swap():
                    newer = self._tables.newest(identifier)
                if newer.metadata_location == base.metadata_location:
                    raise
                base = newer
        raise CommitConflictError(
            f"Table {identifier}: others committed first, {_ATTEMPTS} times. Try again.",
            table=str(identifier),
        )


def holds_snapshots_of(metadata: TableMetadata, updates: Sequence[Update]) -> bool:
    """Whether these updates were committed: the table has every snapshot that they add.

    Ids are random: one that is there with the same manifest list was added by the same request.
    """
    added = [one.snapshot for one in updates if isinstance(one, AddSnapshot)]
    if not added:
        return False
    for snapshot in added:
        found = metadata.snapshots.find(snapshot.snapshot_id)
        if found is None or found.manifest_list != snapshot.manifest_list:
            return False
    return True


def was_created_by(metadata: TableMetadata, updates: Sequence[Update]) -> bool:
    """Whether the table is what these updates created: it has their uuid and their snapshots."""
    uuids = [one.uuid.lower() for one in updates if isinstance(one, AssignUUID)]
    if uuids != [metadata.table_uuid]:
        return False
    adds = any(isinstance(one, AddSnapshot) for one in updates)
    return holds_snapshots_of(metadata, updates) or not adds
