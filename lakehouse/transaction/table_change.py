"""A change of a table as data, the operations that it is made of, and one attempt at it.

An attempt knows what other writers committed since the transaction began.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Literal

import pyarrow.compute as pc

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.errors import InvalidInputError, SnapshotExpiredError, ValidationConflictError
from lakehouse.spec.manifests.data_file import STATUS_ADDED, STATUS_DELETED
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import (
    CONTENT_DATA_MANIFEST,
    CONTENT_DELETE_MANIFEST,
    ManifestFile,
)
from lakehouse.spec.metadata.snapshot import MAIN_BRANCH, OPERATION_APPEND, Snapshot, SnapshotRef
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_requirements import (
    AssertRefSnapshotId,
    AssertTableUUID,
    Requirement,
)
from lakehouse.spec.metadata.table_updates import (
    AddSnapshot,
    RemoveSnapshotRef,
    SetSnapshotRef,
    Update,
    apply_updates,
)
from lakehouse.transaction.snapshot_producer import RETRIES, SnapshotPlan, SnapshotProducer

Isolation = Literal["serializable", "snapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """What a transaction asks for.

    Attributes:
        base: the version that the caller decided on.
        branch: branch written to.
        operations: in order.
        summary: further entries for the summary of each snapshot.
        commit_id: the caller's name for this commit, None if it has none.
    """

    base: TableVersion
    branch: str
    operations: Sequence[Operation]
    summary: Mapping[str, str] = field(default_factory=dict)
    commit_id: str | None = None


class Operation(ABC):
    """One verb of a transaction: what it assumes and what it changes, for any base.

    The producer remembers by the operation what an earlier attempt has written for it.

    Attributes:
        holds_on_every_base: it conflicts with nothing that others commit.
    """

    holds_on_every_base: ClassVar[bool] = False

    def prepare(  # noqa: B027 - most write nothing ahead
        self, producer: SnapshotProducer, metadata: TableMetadata
    ) -> None:
        """Write what can be written before the commit takes its turn; nothing by default."""

    @abstractmethod
    def apply(self, staged: Staged) -> None:
        """Validate against commits made since; add requirements, updates and snapshots.

        Raises:
            ValidationConflictError: an assumption no longer holds.
        """


@dataclass(slots=True, kw_only=True)
class Staged:
    """A change on one base, ready to be swapped in. Operations add to it in order.

    Attributes:
        change: what is staged; its assumptions are validated against every snapshot since the
            version that the caller decided on.
        base: what the swap replaces.
        producer: writes the files of the commit.
        summary: further entries for each snapshot's summary.
        retries: attempts lost before.
        now_ms: when it was staged.
        metadata: the base with the updates so far.
        removed: data files that operations of the change have removed so far.
        vectors: files with deletion vectors that its snapshots name.
    """

    change: TableChange
    base: TableVersion
    producer: SnapshotProducer
    summary: Mapping[str, str]
    retries: int
    now_ms: int
    metadata: TableMetadata
    requirements: list[Requirement] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    manifest_lists: list[tuple[str, bytes]] = field(default_factory=list)
    removed: set[str] = field(default_factory=set)
    vectors: set[str] = field(default_factory=set)

    @property
    def table(self) -> str:
        """The table's name, for messages."""
        return str(self.base.identifier)

    @property
    def branch(self) -> str:
        """Branch written to."""
        return self.change.branch

    @property
    def started(self) -> TableVersion:
        """The version that the caller decided on."""
        return self.change.base

    def require(self, *requirements: Requirement) -> None:
        """Add requirements on the base, each once."""
        for requirement in requirements:
            if requirement not in self.requirements:
                self.requirements.append(requirement)

    def update(self, *updates: Update) -> None:
        """Add updates and apply them to the metadata."""
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
        self.update(SetSnapshotRef(name, snapshot_id, "tag"), RemoveSnapshotRef(name))

    def add_snapshot(self, operation: Operation, plan: SnapshotPlan) -> None:
        """Make the snapshot of an operation the head of the branch, if that has not moved.

        Raises:
            UnsupportedFeatureError: a v1 table, for which no manifest lists are written.
        """
        parent = self.head()
        further = dict(self.summary)
        if self.retries:
            further[RETRIES] = str(self.retries)
        plan = replace(plan, extra={**plan.extra, **further})
        snapshot, data = self.producer.write_snapshot(
            operation, plan, self.metadata, parent, now_ms=self.now_ms
        )
        self.manifest_lists.append((snapshot.manifest_list, data))
        if parent is not None and self.branch not in self.metadata.refs:
            self.require_snapshot(parent.snapshot_id)
        self.point_branch(snapshot.snapshot_id, AddSnapshot(snapshot))
        self.snapshots.append(snapshot)

    def point_branch(self, snapshot_id: int, *before: Update) -> None:
        """Point the branch at a snapshot, if it has not moved; `before` are updates of the same."""
        known = self.base.metadata.refs.get(self.branch)
        self.require(
            AssertTableUUID(self.base.metadata.table_uuid),
            AssertRefSnapshotId(self.branch, None if known is None else known.snapshot_id),
        )
        retention = self.metadata.refs.get(self.branch) or SnapshotRef(snapshot_id)
        self.update(
            *before,
            SetSnapshotRef(
                self.branch,
                snapshot_id,
                "branch",
                retention.min_snapshots_to_keep,
                retention.max_snapshot_age_ms,
                retention.max_ref_age_ms,
            ),
        )

    def head(self) -> Snapshot | None:
        """The parent of the next snapshot: the branch's head, or `main`'s for a new branch."""
        return head_of(self.metadata, self.branch)

    def snapshots_since_start(self) -> list[Snapshot]:
        """Other writers' snapshots on the branch after `started`, oldest first.

        Raises:
            SnapshotExpiredError: what the caller saw has expired.
            ValidationConflictError: the branch was rolled back or replaced, what the caller saw is
                no part of its history.
        """
        before = head_of(self.started.metadata, self.branch)
        now = head_of(self.base.metadata, self.branch)
        since: list[Snapshot] = []
        for snapshot in self.base.metadata.ancestors(None if now is None else now.snapshot_id):
            if before is not None and snapshot.snapshot_id == before.snapshot_id:
                return since[::-1]
            since.append(snapshot)
        if before is None:
            return since[::-1]
        if self.base.metadata.snapshot_or_none(before.snapshot_id) is None:
            raise SnapshotExpiredError(
                f"Table {self.table}: snapshot {before.snapshot_id}, which this change was based "
                "on, has expired. Load the table again and repeat the change.",
                table=self.table,
                snapshot_id=before.snapshot_id,
            )
        raise ValidationConflictError(
            f"Table {self.table}: snapshot {before.snapshot_id}, which this change was based on, "
            f"is no longer part of branch {self.branch}: it was rolled back or replaced. Load the "
            "table again and repeat the change.",
            table=self.table,
            snapshot_id=before.snapshot_id,
            branch=self.branch,
        )


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


@dataclass(frozen=True)
class ConcurrentChange:
    """A snapshot committed since, and the entries that it added and removed, read on demand.

    Attributes:
        snapshot: the other writer's.
        producer: reads its manifests.
        metadata: of the table, with its schemas and specs.
    """

    snapshot: Snapshot
    producer: SnapshotProducer = field(repr=False, compare=False)
    metadata: TableMetadata = field(repr=False, compare=False)

    @property
    def added_data(self) -> list[Entries]:
        """Data files it added."""
        return _with_status(self._own(CONTENT_DATA_MANIFEST), STATUS_ADDED)

    @property
    def removed_data(self) -> list[Entries]:
        """Data files it removed."""
        return _with_status(self._own(CONTENT_DATA_MANIFEST), STATUS_DELETED)

    @property
    def added_deletes(self) -> list[Entries]:
        """Delete files that it added.

        An append has none (spec: Snapshots, operation), so rewrites need not read its manifests.
        """
        if self.snapshot.operation == OPERATION_APPEND:
            return []
        return _with_status(self._own(CONTENT_DELETE_MANIFEST), STATUS_ADDED)

    def _own(self, content: int) -> list[Entries]:
        """Entries of its own in manifests of one content, read once a transaction."""
        return self.producer.once(
            ("change", self.snapshot.snapshot_id, content), partial(self._read, content)
        )

    def _read(self, content: int) -> list[Entries]:
        found: list[Entries] = []
        for manifest in self.producer.manifests(self.snapshot):
            own = (
                manifest.added_snapshot_id == self.snapshot.snapshot_id
                and manifest.content == content
            )
            if own and _changed(manifest):
                entries = self.producer.entries(manifest, self.metadata)
                found.append(
                    entries.filter(
                        pc.equal(entries.table["snapshot_id"], self.snapshot.snapshot_id)
                    )
                )
        return found


def load_changes(
    producer: SnapshotProducer, metadata: TableMetadata, snapshots: Sequence[Snapshot]
) -> list[ConcurrentChange]:
    """The changes of each snapshot; each manifest is read at most once for all attempts."""
    return [ConcurrentChange(snapshot, producer, metadata) for snapshot in snapshots]


def concurrent_changes(staged: Staged) -> list[ConcurrentChange]:
    """What others committed to the branch since the version that the caller decided on."""
    return load_changes(staged.producer, staged.base.metadata, staged.snapshots_since_start())


def _with_status(parts: Sequence[Entries], status: int) -> list[Entries]:
    chosen = [entries.filter(pc.equal(entries.table["status"], status)) for entries in parts]
    return [entries for entries in chosen if len(entries)]


def _changed(manifest: ManifestFile) -> bool:
    return manifest.added_files_count != 0 or manifest.deleted_files_count != 0
