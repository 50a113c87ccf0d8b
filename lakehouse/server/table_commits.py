"""Commits that clients ask for: their updates, on the newest version that their requirements allow.

A client that got no answer asks again, and so do proxies on their own. What it asks for is known by
the ids that it chose itself: a snapshot that the table has, a table of that uuid.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from lakehouse.catalog.catalog_protocol import Catalog, TableCommit, TableVersion
from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.environment import Environment
from lakehouse.errors import CommitConflictError, NoSuchTableError, UnsupportedFeatureError
from lakehouse.server.meters import Meters
from lakehouse.server.served_tables import ServedTables
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.metadata_draft import apply_updates
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import (
    AddSnapshot,
    AssertCreate,
    AssignUUID,
    Requirement,
    SetLocation,
    Update,
    check_requirements,
)

_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class AskedCommit:
    """What a client asks of one table."""

    identifier: Identifier
    requirements: Sequence[Requirement]
    updates: Sequence[Update]


class TableCommits:
    """Commits to the tables of a catalog.

    Args:
        catalog: holds them.
        tables: the versions known to be newest.
        environment: clock and ids.
        meters: count commits and lost races.
    """

    def __init__(
        self, catalog: Catalog, tables: ServedTables, environment: Environment, meters: Meters
    ) -> None:
        self._catalog, self._tables, self._environment = catalog, tables, environment
        self._meters = meters

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
        with self._meters.commit(), self._catalog.turn(identifier):
            if any(isinstance(requirement, AssertCreate) for requirement in requirements):
                done = self._create(identifier, requirements, updates)
                self._tables.keep(done)
                return done
            return self._change([AskedCommit(identifier, requirements, updates)])[0]

    def commit_all(self, commits: Sequence[AskedCommit]) -> list[TableVersion]:
        """Apply the updates of several commits, all or none, as `commit` applies those of one.

        Raises what `commit` raises, and UnsupportedFeatureError where the catalog cannot, or where
        a table is to be created.
        """
        if any(
            isinstance(requirement, AssertCreate)
            for commit in commits
            for requirement in commit.requirements
        ):
            raise UnsupportedFeatureError("Create tables first, each by itself.")
        with self._meters.commit(), ExitStack() as turns:
            for name in sorted({commit.identifier for commit in commits}):
                turns.enter_context(self._catalog.turn(name))
            return self._change(commits)

    def _create(
        self, identifier: Identifier, requirements: Sequence[Requirement], updates: Sequence[Update]
    ) -> TableVersion:
        with before_the_swap():
            existing = self._newest_or_none(identifier)
            if existing is not None and was_created_by(existing.metadata, updates):
                return existing
            check_requirements(None if existing is None else existing.metadata, requirements)
            if not any(isinstance(update, SetLocation) for update in updates):
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

    def _change(self, requested: Sequence[AskedCommit]) -> list[TableVersion]:
        for _ in range(_ATTEMPTS):
            with before_the_swap():
                bases = [self._tables.newest(commit.identifier) for commit in requested]
            if _were_committed(bases, requested):
                return bases
            commits = [
                TableCommit(change.identifier, base, change.requirements, change.updates)
                for base, change in zip(bases, requested, strict=True)
            ]
            try:
                versions = self._swap(commits)
            except CommitConflictError:
                # a race that was lost is run again; what does not fit is refused
                with before_the_swap():
                    newest = [self._tables.newest(commit.identifier) for commit in requested]
                if all(
                    version.metadata_location == base.metadata_location
                    for version, base in zip(newest, bases, strict=True)
                ):
                    raise
                self._meters.lost_race()
            else:
                for version in versions:
                    self._tables.keep(version)
                return versions
        names = ", ".join(str(commit.identifier) for commit in requested)
        raise CommitConflictError(f"{names}: others committed first, {_ATTEMPTS} times. Try again.")

    def _swap(self, commits: Sequence[TableCommit]) -> list[TableVersion]:
        if len(commits) == 1:
            only = commits[0]
            return [
                self._catalog.commit(only.identifier, only.base, only.requirements, only.updates)
            ]
        if not self._catalog.commits_together:
            names = ", ".join(str(commit.identifier) for commit in commits)
            raise UnsupportedFeatureError(
                f"{names} cannot be committed to together: readers of this server's folder would "
                "see them change one after the other. Commit to each by itself."
            )
        return self._catalog.commit_all(commits)


def _were_committed(bases: Sequence[TableVersion], commits: Sequence[AskedCommit]) -> bool:
    """Whether all of it was: every snapshot that is to be added is there, and there is one."""
    adding = [
        holds_snapshots_of(base.metadata, change.updates)
        for base, change in zip(bases, commits, strict=True)
        if any(isinstance(update, AddSnapshot) for update in change.updates)
    ]
    return bool(adding) and all(adding)


def holds_snapshots_of(metadata: TableMetadata, updates: Sequence[Update]) -> bool:
    """Whether these updates were committed: the table has every snapshot that they add.

    Ids are random: one that is there with the same manifest list was added by the same request.
    """
    added = [update.snapshot for update in updates if isinstance(update, AddSnapshot)]
    if not added:
        return False
    for snapshot in added:
        existing = metadata.snapshots.find(snapshot.snapshot_id)
        if existing is None or existing.manifest_list != snapshot.manifest_list:
            return False
    return True


def was_created_by(metadata: TableMetadata, updates: Sequence[Update]) -> bool:
    """Whether the table is what these updates created: it has their uuid and their snapshots."""
    uuids = [update.uuid.lower() for update in updates if isinstance(update, AssignUUID)]
    if uuids != [metadata.table_uuid]:
        return False
    adds = any(isinstance(update, AddSnapshot) for update in updates)
    return holds_snapshots_of(metadata, updates) or not adds
