"""Refs: tags and branches, rollback, fast-forward, cherry-pick."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import pyarrow.compute as pc

from lakehouse.errors import (
    InvalidInputError,
    NoSuchRefError,
    NoSuchSnapshotError,
    RefAlreadyExistsError,
    ValidationConflictError,
)
from lakehouse.spec.manifests.data_file import STATUS_ADDED, STATUS_DELETED, DataFile
from lakehouse.spec.manifests.manifest_list import CONTENT_DATA_MANIFEST
from lakehouse.spec.metadata.commit_names import COMMIT_ID
from lakehouse.spec.metadata.snapshot import (
    MAIN_BRANCH,
    OPERATION_APPEND,
    OPERATION_OVERWRITE,
    RefType,
    Snapshot,
    SnapshotRef,
)
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRef,
    SetSnapshotRef,
    Update,
)
from lakehouse.transaction.concurrent_change import ConcurrentChange, load_changes
from lakehouse.transaction.conflict_rules import (
    Subject,
    Targets,
    no_added_data,
    no_new_deletes,
    none_added_twice,
    none_changed,
)
from lakehouse.transaction.operations.file_changes import scope_of
from lakehouse.transaction.snapshot_producer import SnapshotProducer
from lakehouse.transaction.table_change import Attempt, FilesPlan, Operation, Step

SOURCE_SNAPSHOT_ID = "source-snapshot-id"
REPLACE_PARTITIONS = "replace-partitions"
WAP_ID = "wap.id"
PUBLISHED_WAP_ID = "published-wap-id"
"""What was staged under an id (write-audit-publish), and what is published of it."""
_OWN_ENTRIES = ("dagster.", "lakehouse.", REPLACE_PARTITIONS)


@dataclass(frozen=True, eq=False)
class SetRef(Operation):
    """Create a tag or branch on a snapshot.

    None: the branch written to, where it is at that point of the transaction.
    """

    name: str
    type: RefType
    snapshot_id: int | None = None
    min_snapshots_to_keep: int | None = None
    max_snapshot_age_ms: int | None = None
    max_ref_age_ms: int | None = None

    def step(self, attempt: Attempt) -> Step:
        """Raises RefAlreadyExistsError, NoSuchSnapshotError."""
        if self.name in attempt.metadata.refs:
            known = attempt.metadata.refs[self.name]
            raise RefAlreadyExistsError(
                f"Table {attempt.table} has a {known.type} {self.name!r} already, on snapshot "
                f"{known.snapshot_id}.",
                table=attempt.table,
                ref=self.name,
            )
        snapshot_id = self.snapshot_id
        if snapshot_id is None:
            head = attempt.head()
            if head is None:
                raise NoSuchSnapshotError(
                    f"Table {attempt.table} has no snapshot to name {self.name!r}.",
                    table=attempt.table,
                )
            snapshot_id = head.snapshot_id
        before = attempt.base.metadata.refs.get(self.name)  # what this transaction removed
        update = SetSnapshotRef(
            self.name,
            snapshot_id,
            self.type,
            self.min_snapshots_to_keep,
            self.max_snapshot_age_ms,
            self.max_ref_age_ms,
        )
        return _of_ref(attempt, self.name, before, update)


@dataclass(frozen=True, eq=False)
class RemoveRef(Operation):
    """Remove a tag or branch."""

    name: str

    def __post_init__(self) -> None:
        if self.name == MAIN_BRANCH:
            raise InvalidInputError("main cannot be removed.")

    def step(self, attempt: Attempt) -> Step:
        """Raises NoSuchRefError; ValidationConflictError when it was moved meanwhile."""
        ref = attempt.metadata.refs.get(self.name)
        if ref is None:
            raise NoSuchRefError(
                f"Table {attempt.table} has no branch or tag {self.name!r}.", ref=self.name
            )
        before = attempt.decided_on.metadata.refs.get(self.name)
        if (
            before is not None
            and before.snapshot_id != ref.snapshot_id
            and attempt.base is not attempt.decided_on
        ):
            raise _moved(attempt, self.name, before, ref)
        known = attempt.base.metadata.refs.get(self.name)
        return _of_ref(attempt, self.name, known, RemoveSnapshotRef(self.name))


def _of_ref(attempt: Attempt, name: str, known: SnapshotRef | None, update: Update) -> Step:
    """Change a ref, if it is still where the base has it."""
    return Step(
        requirements=(
            AssertTableUUID(attempt.base.metadata.table_uuid),
            AssertRefSnapshotId(name, None if known is None else known.snapshot_id),
        ),
        updates=(update,),
    )


@dataclass(frozen=True, eq=False)
class Rollback(Operation):
    """Point the branch at another snapshot; aborts if it moved meanwhile."""

    snapshot_id: int
    ancestors_only: bool = True

    def step(self, attempt: Attempt) -> Step:
        """Return a branch to an earlier snapshot.

        Raises NoSuchSnapshotError, InvalidInputError (no ancestor), ValidationConflictError (the
        branch moved).
        """
        metadata = attempt.metadata
        metadata.snapshot(self.snapshot_id)
        before, now = (
            attempt.decided_on.metadata.refs.get(attempt.branch),
            attempt.base.metadata.refs.get(attempt.branch),
        )
        if before is not None and now is not None and before.snapshot_id != now.snapshot_id:
            raise _moved(attempt, attempt.branch, before, now)
        head = attempt.head()
        if (
            self.ancestors_only
            and head is not None
            and not _is_ancestor(metadata, self.snapshot_id, head.snapshot_id)
        ):
            raise InvalidInputError(
                f"Table {attempt.table}: snapshot {self.snapshot_id} is not an ancestor of branch "
                f"{attempt.branch}. Use set_current_snapshot to point the branch at any snapshot.",
                table=attempt.table,
                snapshot_id=self.snapshot_id,
            )
        return Step(head=self.snapshot_id)


@dataclass(frozen=True, eq=False)
class FastForward(Operation):
    """Point the branch at the head of another one that contains it."""

    source: str

    def step(self, attempt: Attempt) -> Step:
        """Move a branch forward to the head of `source`.

        Raises NoSuchRefError; ValidationConflictError when the branch has snapshots that `source`
        lacks.
        """
        metadata = attempt.metadata
        source = metadata.ref(self.source)
        target = metadata.refs.get(attempt.branch)
        if target is not None and not _is_ancestor(
            metadata, target.snapshot_id, source.snapshot_id
        ):
            raise ValidationConflictError(
                f"Table {attempt.table}: branch {attempt.branch} is at snapshot "
                f"{target.snapshot_id}, which {self.source!r} (at {source.snapshot_id}) does not "
                f"contain: others committed to {attempt.branch}. Cherry-pick the snapshots of "
                f"{self.source!r}, or write it again on top of {attempt.branch}.",
                table=attempt.table,
                snapshot_id=target.snapshot_id,
                ref=self.source,
            )
        known = attempt.base.metadata.refs.get(self.source)
        is_there = () if known is None else (AssertRefSnapshotId(self.source, known.snapshot_id),)
        return Step(requirements=is_there, head=source.snapshot_id)


@dataclass(frozen=True, eq=False)
class CherryPick(Operation):
    """Apply another snapshot's append or replacement of partitions to the branch, once."""

    snapshot_id: int

    def step(self, attempt: Attempt) -> Step:
        """Fast-forward where the snapshot is built on the branch's head; else repeat its change.

        Raises:
            NoSuchSnapshotError: no such snapshot.
            ValidationConflictError: picked already; the snapshot did something else; a partition
                that it replaced changed since.
        """
        metadata, head = attempt.metadata, attempt.head()
        picked = metadata.snapshot(self.snapshot_id)
        self._refuse_twice(attempt, picked)
        if picked.parent_snapshot_id == (None if head is None else head.snapshot_id):
            return Step(head=picked.snapshot_id)
        extra = {SOURCE_SNAPSHOT_ID: str(self.snapshot_id)}
        if WAP_ID in picked.summary:
            extra[PUBLISHED_WAP_ID] = picked.summary[WAP_ID]
        if COMMIT_ID in picked.summary:  # its writer can find it on this branch, too
            extra[COMMIT_ID] = picked.summary[COMMIT_ID]
        if (
            picked.operation == OPERATION_OVERWRITE
            and picked.summary.get(REPLACE_PARTITIONS) == "true"
        ):
            return self._replace(attempt, picked, head, {**extra, REPLACE_PARTITIONS: "true"})
        if picked.operation != OPERATION_APPEND:
            raise ValidationConflictError(
                f"Table {attempt.table}: snapshot {self.snapshot_id} is of operation "
                f"{picked.operation}; only appends and replacements of whole partitions can be "
                "cherry-picked onto another parent. Repeat the operation on branch "
                f"{attempt.branch}.",
                table=attempt.table,
                snapshot_id=self.snapshot_id,
            )
        files = _changed_by(attempt.producer, metadata, picked, STATUS_ADDED)
        subject = Subject(attempt.table, "cherry-pick", picked.parent_snapshot_id)
        since, _ = self._since(metadata, head, picked)
        none_added_twice(subject, files, load_changes(attempt.producer, metadata, since))
        plan = FilesPlan(operation=OPERATION_APPEND, added=files, extra=extra)
        return Step(needs=picked.snapshot_id, snapshot=plan)

    def _replace(
        self, attempt: Attempt, picked: Snapshot, head: Snapshot | None, extra: dict[str, str]
    ) -> Step:
        """Replace the same partitions again, if untouched since the picked snapshot's parent."""
        producer, metadata = attempt.producer, attempt.metadata
        since, from_parent = self._since(metadata, head, picked)
        if not from_parent:
            raise ValidationConflictError(
                f"Table {attempt.table}: snapshot {self.snapshot_id} replaced partitions of "
                f"snapshot {picked.parent_snapshot_id}, which is no part of branch "
                f"{attempt.branch}. Repeat the operation there.",
                table=attempt.table,
                snapshot_id=self.snapshot_id,
            )
        added = _changed_by(producer, metadata, picked, STATUS_ADDED)
        removed = _changed_by(producer, metadata, picked, STATUS_DELETED)
        subject = Subject(attempt.table, "cherry-pick", picked.parent_snapshot_id)
        changes = load_changes(producer, metadata, since)
        no_added_data(subject, scope_of(attempt, None, (*removed, *added)), changes)
        no_new_deletes(subject, Targets.of(removed), changes)
        plan = FilesPlan(operation=OPERATION_OVERWRITE, added=added, removed=removed, extra=extra)
        return Step(needs=picked.snapshot_id, snapshot=plan, subject=subject, changes=changes)

    def _refuse_twice(self, attempt: Attempt, picked: Snapshot) -> None:
        """What was picked, or committed under the same commit id, is part of the branch.

        So may be what is older than the history that expiry has left of the branch.
        """
        head, name = attempt.head(), picked.summary.get(COMMIT_ID)
        wap_id = picked.summary.get(WAP_ID)
        line = list(attempt.metadata.ancestors(None if head is None else head.snapshot_id))
        for ancestor in line:
            same = ancestor.snapshot_id == picked.snapshot_id
            source = ancestor.summary.get(SOURCE_SNAPSHOT_ID) == str(picked.snapshot_id)
            published = wap_id is not None and wap_id in (
                ancestor.summary.get(WAP_ID),
                ancestor.summary.get(PUBLISHED_WAP_ID),
            )
            committed = name is not None and ancestor.summary.get(COMMIT_ID) == name
            if same or source or published or committed:
                raise ValidationConflictError(
                    f"Table {attempt.table}: snapshot {self.snapshot_id} is part of branch "
                    f"{attempt.branch} already, as {ancestor.snapshot_id}.",
                    table=attempt.table,
                    snapshot_id=self.snapshot_id,
                )
        on_it = picked.parent_snapshot_id in {ancestor.snapshot_id for ancestor in line}
        if on_it or _is_whole(line) or picked.sequence_number > line[-1].sequence_number:
            return
        raise ValidationConflictError(
            f"Table {attempt.table}: snapshot {self.snapshot_id} may be part of branch "
            f"{attempt.branch} already, whose history before {line[-1].snapshot_id} has expired. "
            "Where it is not, read the rows that it added and append them.",
            table=attempt.table,
            snapshot_id=self.snapshot_id,
        )

    def _since(
        self, metadata: TableMetadata, head: Snapshot | None, picked: Snapshot
    ) -> tuple[list[Snapshot], bool]:
        """(snapshots of the branch after the picked one's parent, oldest first; if that is there).

        If it is not, all of them.
        """
        since: list[Snapshot] = []
        for ancestor in metadata.ancestors(None if head is None else head.snapshot_id):
            if ancestor.snapshot_id == picked.parent_snapshot_id:
                return since[::-1], True
            since.append(ancestor)
        return since[::-1], picked.is_first and _is_whole(since)


@dataclass(frozen=True, eq=False)
class Reapply(Operation):
    """Do to the branch what a snapshot of another branch did, where nobody touched the same.

    Appends hold on every base. What else a snapshot did holds if nobody else added, removed or
    deleted rows in the partitions of its files (in the whole table, if that has none).

    Attributes:
        snapshot_id: of the other branch, after snapshots that were applied before it.
        fork: the last snapshot that both branches have; None: they have none.
    """

    snapshot_id: int
    fork: int | None

    def step(self, attempt: Attempt) -> Step:
        """Raises ValidationConflictError, which names the snapshot of whoever came first."""
        producer, metadata = attempt.producer, attempt.metadata
        picked = metadata.snapshot(self.snapshot_id)
        since = list(_since_fork(attempt.base.metadata, "main", self.fork))[::-1]
        changes = load_changes(producer, metadata, since)
        added, removed = files_of(ConcurrentChange(picked, producer, metadata))
        subject = Subject(attempt.table, "publication", self.fork)
        if picked.operation != OPERATION_APPEND:
            scope = scope_of(attempt, None, (*removed, *added))
            no_added_data(subject, scope, changes)
            none_changed(subject, scope, changes)
        plan = FilesPlan(
            operation=picked.operation or OPERATION_OVERWRITE,
            added=added,
            removed=removed,
            extra=_told_of(picked),
        )
        return Step(needs=picked.snapshot_id, snapshot=plan, subject=subject, changes=changes)


def fork_of(metadata: TableMetadata, one: str, other: str) -> int | None:
    """The newest snapshot that is in the history of both branches; None: there is none."""
    line = {ancestor.snapshot_id for ancestor in _line(metadata, one)}
    return next((at.snapshot_id for at in _line(metadata, other) if at.snapshot_id in line), None)


def since_fork(metadata: TableMetadata, branch: str, fork: int | None) -> list[Snapshot]:
    """The snapshots of a branch after a fork, oldest first."""
    return list(_since_fork(metadata, branch, fork))[::-1]


def _line(metadata: TableMetadata, branch: str) -> Iterator[Snapshot]:
    ref = metadata.refs.get(branch)
    return metadata.ancestors(None if ref is None else ref.snapshot_id)


def _since_fork(metadata: TableMetadata, branch: str, fork: int | None) -> Iterator[Snapshot]:
    return takewhile(lambda snapshot: snapshot.snapshot_id != fork, _line(metadata, branch))


def files_of(change: ConcurrentChange) -> tuple[tuple[DataFile, ...], tuple[DataFile, ...]]:
    """The files that a snapshot added, and those that it removed, data and deletes."""
    added = (*change.added_data, *change.added_deletes)
    removed = (*change.removed_data, *change.removed_deletes)
    return (
        tuple(file for entries in added for file in entries.to_data_files()),
        tuple(file for entries in removed for file in entries.to_data_files()),
    )


def _told_of(picked: Snapshot) -> dict[str, str]:
    """Of a summary what its writer said, without what was counted."""
    own = {key: text for key, text in picked.summary.items() if key.startswith(_OWN_ENTRIES)}
    return {**own, SOURCE_SNAPSHOT_ID: str(picked.snapshot_id)}


def _changed_by(
    producer: SnapshotProducer, metadata: TableMetadata, snapshot: Snapshot, status: int
) -> tuple[DataFile, ...]:
    """The data files that a snapshot added or removed."""
    files: list[DataFile] = []
    for manifest in producer.manifests(snapshot):
        if (
            manifest.content != CONTENT_DATA_MANIFEST
            or manifest.added_snapshot_id != snapshot.snapshot_id
        ):
            continue
        entries = producer.entries(manifest, metadata)
        own = pc.and_(
            pc.equal(entries.table["status"], status),
            pc.equal(entries.table["snapshot_id"], snapshot.snapshot_id),
        )
        files.extend(entries.filter(own).to_data_files())
    return tuple(files)


def _is_whole(line: Sequence[Snapshot]) -> bool:
    """Whether a history, newest first, goes back to the table's beginning."""
    return not line or line[-1].is_first


def _is_ancestor(metadata: TableMetadata, snapshot_id: int, of: int) -> bool:
    return any(ancestor.snapshot_id == snapshot_id for ancestor in metadata.ancestors(of))


def _moved(
    attempt: Attempt, name: str, before: SnapshotRef, now: SnapshotRef
) -> ValidationConflictError:
    return ValidationConflictError(
        f"Table {attempt.table}: {name!r} moved from snapshot {before.snapshot_id} to "
        f"{now.snapshot_id} since this change was decided. Load the table and decide again.",
        table=attempt.table,
        ref=name,
        snapshot_id=now.snapshot_id,
    )
