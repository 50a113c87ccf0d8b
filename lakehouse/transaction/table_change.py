"""A change of a table as data, the operations that it is made of, and one attempt at it.

An operation says what is to be done to a version (`Step`), and changes nothing itself. An attempt
knows what other writers committed since the transaction began.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.errors import SnapshotExpiredError, ValidationConflictError
from lakehouse.spec.manifests.data_file import CONTENT_DATA, DataFile
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.metadata.commit_names import head_of
from lakehouse.spec.metadata.metadata_draft import apply_updates
from lakehouse.spec.metadata.snapshot import Snapshot, SnapshotRef
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import (
    AddSnapshot,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRef,
    Requirement,
    SetSnapshotRef,
    Update,
)
from lakehouse.transaction.concurrent_change import ConcurrentChange, load_changes
from lakehouse.transaction.conflict_rules import Subject, missing_files
from lakehouse.transaction.decided_rows import DecidedRows
from lakehouse.transaction.deletion_vectors import Vectors, write_vectors
from lakehouse.transaction.snapshot_producer import (
    RETRIES,
    NewSnapshot,
    SnapshotManifests,
    SnapshotPlan,
    SnapshotProducer,
    SummaryBuilder,
)

Isolation = Literal["serializable", "snapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """What a transaction asks for.

    Attributes:
        decided_on: the version that the caller read.
        branch: branch written to.
        operations: in order.
        summary: further entries for the summary of each snapshot.
        commit_id: the caller's name for this commit, None if it has none.
    """

    decided_on: TableVersion
    branch: str
    operations: Sequence[Operation]
    summary: Mapping[str, str] = field(default_factory=dict)
    commit_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What an operation does to a version of the table; the commit carries it out in this order.

    Attributes:
        requirements: on the version that the swap replaces.
        updates: of the metadata.
        needs: a snapshot that must not expire before the commit.
        head: the snapshot that the branch is to point at.
        snapshot: what is to become the branch's head.
        subject: who complains where a file that the snapshot removes is not live.
        changes: what others did, one of which may have removed it.
    """

    requirements: Sequence[Requirement] = ()
    updates: Sequence[Update] = ()
    needs: int | None = None
    head: int | None = None
    snapshot: SnapshotPlan | None = None
    subject: Subject | None = None
    changes: Sequence[ConcurrentChange] = ()


class Operation(ABC):
    """One verb of a transaction: what it assumes and what it changes, for any base.

    Attributes:
        holds_on_every_base: it conflicts with nothing that others commit.
    """

    holds_on_every_base: ClassVar[bool] = False

    @property
    def plan(self) -> SnapshotPlan | None:
        """The snapshot as far as it is known before the turn; None: nothing is written ahead."""
        return None

    @abstractmethod
    def step(self, attempt: Attempt) -> Step:
        """Validate against commits made since, and decide; changes nothing.

        Raises:
            ValidationConflictError: an assumption no longer holds.
        """


@dataclass(frozen=True, kw_only=True)
class FilesPlan(SnapshotPlan):
    """Files that go and files that come.

    Attributes:
        added: data and delete files.
        removed: data and delete files that must be live; deletes that are about removed data
            files alone go with them.
        rows: rows that go from data files that stay; they get deletion vectors.
        data_sequence_number: for added data files; None: the commit's.
        extra: further entries of the snapshot's summary.
    """

    operation: str
    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    rows: tuple[DecidedRows, ...] = ()
    data_sequence_number: int | None = None
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_about_files(self) -> bool:
        """Whether files of the table go, or lose rows."""
        return bool(self.removed or self.rows)

    def write_ahead(self, producer: SnapshotProducer, new: NewSnapshot) -> None:
        """Of an append the manifests of its files: which others there are does not matter yet."""
        if self.is_about_files:
            self.write(producer, new)
        else:
            self._manifests_of(self.added, producer, new)

    def write(self, producer: SnapshotProducer, new: NewSnapshot) -> SnapshotManifests:
        """Vectors, manifests of added files, and the parent's without the removed ones."""
        vectors = Vectors()
        if self.rows:
            vectors = write_vectors(producer, new, self.rows)
        files = (*self.added, *vectors.files)
        added = self._manifests_of(files, producer, new)
        removed = (*self.removed, *vectors.superseded, *vectors.emptied)
        kept = producer.without_files(new, removed)
        return SnapshotManifests(
            manifests=[*added, *kept.manifests],
            summary=SummaryBuilder.of(added=files, removed=kept.removed),
            extra=self.extra,
            removed=[file for file in kept.removed if file.content == CONTENT_DATA],
            missing={path for path, _ in kept.missing},
            vectors=vectors.location,
        )

    def _manifests_of(
        self, files: Sequence[DataFile], producer: SnapshotProducer, new: NewSnapshot
    ) -> list[ManifestFile]:
        number = self.data_sequence_number
        return producer.manifests_of_added(new, files, data_sequence_number=number)


@dataclass(slots=True, kw_only=True)
class Attempt:
    """A change on the newest version, ready for the swap. Operations read it; `add` changes it.

    Attributes:
        change: its assumptions are validated against every snapshot since `decided_on`.
        base: what the swap replaces.
        producer: writes the files of the commit, and reads those of others.
        summary: further entries for each snapshot's summary.
        retries: attempts lost before.
        now_ms: when it began.
        number: of the operation that is next.
        manifest_lists: of its snapshots, by their locations; written by `CommitFiles.send`.
        removed: data files that operations of the change have removed so far.
        vectors: files with deletion vectors that its snapshots name.
    """

    change: TableChange
    base: TableVersion
    producer: SnapshotProducer
    summary: Mapping[str, str]
    retries: int
    now_ms: int
    number: int = 0
    requirements: list[Requirement] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    manifest_lists: dict[str, bytes] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    vectors: set[str] = field(default_factory=set)
    _folded: tuple[TableMetadata, int] | None = None

    @property
    def metadata(self) -> TableMetadata:
        """The base with the updates so far; these are folded when they are needed."""
        metadata, count = self._folded or (self.base.metadata, 0)
        if count < len(self.updates):
            metadata = apply_updates(metadata, self.updates[count:], now_ms=self.now_ms)
            self._folded = metadata, len(self.updates)
        return metadata

    def add(self, step: Step) -> None:
        """Carry out a step.

        Raises:
            ValidationConflictError: a file that its snapshot was to remove is not live.
            UnsupportedFeatureError: a v1 table, for which no manifest lists are written.
        """
        self._require(*step.requirements)
        self.updates += step.updates
        if step.updates:
            _ = self.metadata  # what cannot be done is refused before anything is sent
        if step.needs is not None:
            self._need(step.needs)
        if step.head is not None:
            self._point_branch(step.head)
        number, self.number = self.number, self.number + 1
        missing = () if step.snapshot is None else self._add_snapshot(number, step.snapshot)
        if missing and step.subject is not None:
            raise missing_files(step.subject, missing, step.changes)

    @property
    def table(self) -> str:
        """The table's name, for messages."""
        return str(self.base.identifier)

    @property
    def branch(self) -> str:
        """Branch written to."""
        return self.change.branch

    @property
    def decided_on(self) -> TableVersion:
        """The version that the caller read."""
        return self.change.decided_on

    def _require(self, *requirements: Requirement) -> None:
        for requirement in requirements:
            if requirement not in self.requirements:
                self.requirements.append(requirement)

    def _need(self, snapshot_id: int) -> None:
        """Make the commit fail when the snapshot has expired by then.

        No requirement of the protocol says so, and a REST server applies a commit to whatever is
        newest. But no server lets a ref name a snapshot that is not there: so one does, for the
        length of the commit.
        """
        name = f"needed-{snapshot_id}"
        self._require(AssertRefSnapshotId(name, None))
        self.updates += (SetSnapshotRef(name, snapshot_id, "tag"), RemoveSnapshotRef(name))

    def _add_snapshot(self, number: int, plan: SnapshotPlan) -> Collection[str]:
        """Make a snapshot the head of the branch, if that has not moved.

        Returns files that it was to remove, and that are not live: then it is not made.
        """
        new = self.producer.new_snapshot(number, plan, self.metadata, self.head())
        written = plan.write(self.producer, new)
        if written is None:
            return ()
        if written.missing:
            return written.missing
        retried = {RETRIES: str(self.retries)} if self.retries else {}
        further = {**self.summary, **retried}
        snapshot, data = self.producer.make_snapshot(
            plan.operation, written, new, further=further, now_ms=self.now_ms
        )
        self.manifest_lists[snapshot.manifest_list] = data
        self.removed.update(file.file_path for file in written.removed)
        if written.vectors is not None:
            self.vectors.add(written.vectors)
        if new.parent is not None and self.branch not in new.metadata.refs:
            self._need(new.parent.snapshot_id)
        self._point_branch(snapshot.snapshot_id, AddSnapshot(snapshot))
        self.snapshots.append(snapshot)
        return ()

    def _point_branch(self, snapshot_id: int, *before: Update) -> None:
        """Point the branch at a snapshot, if it has not moved; `before` are updates of the same."""
        known = self.base.metadata.refs.get(self.branch)
        self._require(
            AssertTableUUID(self.base.metadata.table_uuid),
            AssertRefSnapshotId(self.branch, None if known is None else known.snapshot_id),
        )
        retention = self.metadata.refs.get(self.branch) or SnapshotRef(snapshot_id)
        self.updates += (
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

    def subject(self, action: str) -> Subject:
        """How errors name the operation; `action` is its verb."""
        head = head_of(self.decided_on.metadata, self.branch)
        return Subject(self.table, action, None if head is None else head.snapshot_id)

    def concurrent_changes(self) -> list[ConcurrentChange]:
        """What others committed to the branch since the version that the caller decided on."""
        return load_changes(self.producer, self.base.metadata, self.snapshots_since_start())

    def head(self) -> Snapshot | None:
        """The parent of the next snapshot: the branch's head, or `main`'s for a new branch."""
        return head_of(self.metadata, self.branch)

    def snapshots_since_start(self) -> list[Snapshot]:
        """Other writers' snapshots on the branch after `decided_on`, oldest first.

        Raises:
            SnapshotExpiredError: what the caller saw has expired.
            ValidationConflictError: the branch was rolled back or replaced, what the caller saw is
                no part of its history.
        """
        before = head_of(self.decided_on.metadata, self.branch)
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
