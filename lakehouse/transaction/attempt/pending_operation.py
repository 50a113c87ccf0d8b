"""An operation: assumptions and pending changes, as data that can be applied to any base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.errors import (
    CommitError,
    InvalidInputError,
    SnapshotExpiredError,
    ValidationConflictError,
)
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.snapshot_refs import MAIN_BRANCH
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_requirements import AssertRefSnapshotId, Requirement
from lakehouse.spec.metadata.table_updates import (
    RemoveSnapshotRef,
    SetSnapshotRef,
    Update,
    apply_updates,
)
from lakehouse.transaction.attempt.uncommitted_files import Workspace

Isolation = Literal["serializable", "snapshot"]


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One try of a transaction on one base. Operations add to it in order.

    Attributes:
        started: what the caller saw and decided on; assumptions are validated against every
            snapshot since.
        base: what this attempt will swap out.
        branch: branch written to.
        workspace: files of the transaction.
        summary: extra entries for each snapshot's summary.
        retries: attempts lost before.
        metadata: the base with the updates so far.
        removed: data files that operations of the transaction have removed so far.
        vectors: files with deletion vectors that its snapshots name.
    """

    started: TableVersion
    base: TableVersion
    branch: str
    workspace: Workspace
    summary: Mapping[str, str]
    retries: int
    metadata: TableMetadata
    requirements: list[Requirement] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    pending: list[tuple[str, bytes]] = field(default_factory=list)
    removed: set[str] = field(default_factory=set)
    vectors: set[str] = field(default_factory=set)
    now_ms: int = 0

    @property
    def table(self) -> str:
        """The table's name, for messages."""
        return str(self.base.identifier)

    def require(self, *requirements: Requirement) -> None:
        """Add requirements on the base, each once."""
        self.requirements.extend(one for one in requirements if one not in self.requirements)

    def change(self, *updates: Update) -> None:
        """Add updates and apply them to the draft."""
        self.metadata = apply_updates(self.metadata, updates, now_ms=self.now_ms)
        self.updates.extend(updates)

    def require_snapshot(self, snapshot_id: int) -> None:
        """Make the commit fail when the snapshot has expired by then.

        No requirement of the protocol says so, and a REST server applies a commit to whatever is
        newest. But no server lets a ref name a snapshot that is not there: so one does, for the
        length of the commit.
        """
        name = f"needed-{snapshot_id}"
        self.require(AssertRefSnapshotId(name, None))
        self.change(SetSnapshotRef(name, snapshot_id, "tag"), RemoveSnapshotRef(name))

    def head(self) -> Snapshot | None:
        """The parent of the next snapshot: the branch's head, or `main`'s for a new branch."""
        return head_of(self.metadata, self.branch)

    def since(self) -> list[Snapshot]:
        """Other writers' snapshots on the branch after `started`, oldest first.

        Raises:
            SnapshotExpiredError: what the caller saw has expired.
            ValidationConflictError: the branch was rolled back or replaced, what the caller saw is
                no part of its history.
        """
        before = head_of(self.started.metadata, self.branch)
        now = head_of(self.base.metadata, self.branch)
        found: list[Snapshot] = []
        if now is None:
            if before is None:
                return found
            raise self._history_gone(before)
        for snapshot in self.base.metadata.ancestors(now.snapshot_id):
            if before is not None and snapshot.snapshot_id == before.snapshot_id:
                return found[::-1]
            found.append(snapshot)
        if before is not None:
            raise self._history_gone(before)
        return found[::-1]

    def _history_gone(self, before: Snapshot) -> CommitError:
        if self.base.metadata.snapshot_or_none(before.snapshot_id) is None:
            return SnapshotExpiredError(
                f"Table {self.table}: snapshot {before.snapshot_id}, which this change was based "
                "on, has expired. Load the table again and repeat the change.",
                table=self.table,
                snapshot_id=before.snapshot_id,
            )
        return ValidationConflictError(
            f"Table {self.table}: snapshot {before.snapshot_id}, which this change was based on, "
            f"is no longer part of branch {self.branch}: it was rolled back or replaced. Load the "
            "table again and repeat the change.",
            table=self.table,
            snapshot_id=before.snapshot_id,
            branch=self.branch,
        )


class Operation(Protocol):
    """One verb of a transaction."""

    def prepare(self, workspace: Workspace, metadata: TableMetadata) -> None:
        """Write what depends on no base, before taking a turn."""

    def apply(self, attempt: Attempt) -> None:
        """Validate against commits made since; add requirements, updates and snapshots.

        Raises:
            ValidationConflictError: an assumption no longer holds.
        """


def head_of(metadata: TableMetadata, branch: str) -> Snapshot | None:
    """The snapshot a commit to `branch` is built on. Raises InvalidInputError when it is a tag."""
    ref = metadata.refs.get(branch)
    if ref is None:
        return metadata.snapshot_for_ref(MAIN_BRANCH)
    if ref.type != "branch":
        raise InvalidInputError(
            f"{branch!r} is a tag of {metadata.location}: commits go to branches.", ref=branch
        )
    return metadata.snapshot(ref.snapshot_id)


def describe(snapshots: Sequence[Snapshot]) -> str:
    """Snapshots for messages: id and operation."""
    shown = ", ".join(
        f"{one.snapshot_id} ({one.operation or 'unknown operation'})" for one in snapshots[:3]
    )
    return shown + (f" and {len(snapshots) - 3} more" if len(snapshots) > 3 else "")
