"""Operations that take files out of a table: overwrite, delete, row delta, rewrite.

Each says which files go, which ones come in their place, and what others must not have done
meanwhile; `Replacement` turns that into one snapshot.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from lakehouse.errors import InvalidInputError
from lakehouse.expressions.bound_filter import Bound
from lakehouse.expressions.filter_binding import widen
from lakehouse.spec.manifests.data_file import CONTENT_DATA, CONTENT_POSITION_DELETES, DataFile
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.metadata.snapshot import (
    OPERATION_APPEND,
    OPERATION_DELETE,
    OPERATION_OVERWRITE,
    OPERATION_REPLACE,
    Snapshot,
)
from lakehouse.spec.metadata.table_metadata import TableMetadata, types_of
from lakehouse.spec.table_properties import TableProperties
from lakehouse.transaction.conflicts.conflict_rules import (
    Scope,
    Subject,
    Targets,
    missing_files,
    no_equality_deletes,
    no_new_deletes,
    no_new_vectors,
    none_removed_below,
    reaches_moved_rows_alike,
    still_live,
    subject_of,
)
from lakehouse.transaction.conflicts.row_conflicts import no_phantoms, rows_still_there
from lakehouse.transaction.decided_rows import DecidedRows, KeyTest
from lakehouse.transaction.deletes_of_files import (
    Vectors,
    check_added_deletes,
    deletes_naming,
    write_vectors,
)
from lakehouse.transaction.manifest_changes import checked, file_key
from lakehouse.transaction.snapshot_producer import (
    Filtered,
    SnapshotPlan,
    SnapshotProducer,
    SummaryBuilder,
)
from lakehouse.transaction.table_change import (
    ConcurrentChange,
    Isolation,
    Operation,
    Staged,
    concurrent_changes,
    head_of,
)


@dataclass(frozen=True, slots=True)
class Replacement:
    """Files to remove and files to add in their place.

    Attributes:
        operation: whose files they are.
        removed: data and delete files that must be live; deletes that are about removed data
            files alone go with them.
        added: data and delete files.
        data_sequence_number: for added data files; None: the commit's.
        edition: tells apart what is added, where that depends on the attempt.
    """

    operation: Operation
    removed: tuple[DataFile, ...]
    added: tuple[DataFile, ...]
    data_sequence_number: int | None = None
    edition: Hashable = None

    def prepare(
        self, producer: SnapshotProducer, metadata: TableMetadata, head: Snapshot | None
    ) -> None:
        """Write the added files' manifests; rewrite those of the base that list removed files."""
        self._manifests_of_added(producer, metadata)
        self._without_removed(producer, metadata, head)

    def apply(
        self,
        staged: Staged,
        name: str,
        subject: Subject,
        changes: list[ConcurrentChange],
        extra: Mapping[str, str] | None = None,
    ) -> None:
        """Make the snapshot, of the operation `name`, with `extra` in its summary.

        Raises:
            ValidationConflictError: a removed file is not live.
            InvalidInputError: see `check_added_deletes`.
        """
        producer = staged.producer
        kept = self._without_removed(producer, staged.metadata, staged.head())
        if kept.missing:
            raise missing_files(subject, {path for path, _ in kept.missing}, changes)
        check_added_deletes(staged, self.added, self.removed)
        staged.removed.update(
            file.file_path for file in kept.removed if file.content == CONTENT_DATA
        )
        added = self._manifests_of_added(producer, staged.metadata)
        staged.add_snapshot(
            self.operation,
            SnapshotPlan(
                operation=name,
                manifests=[*added, *kept.manifests],
                summary=SummaryBuilder.of(added=self.added, removed=kept.removed),
                extra=extra or {},
            ),
        )

    def _manifests_of_added(
        self, producer: SnapshotProducer, metadata: TableMetadata
    ) -> list[ManifestFile]:
        return producer.manifests_of_added(
            self.operation,
            metadata,
            self.added,
            data_sequence_number=self.data_sequence_number,
            edition=self.edition,
        )

    def _without_removed(
        self, producer: SnapshotProducer, metadata: TableMetadata, head: Snapshot | None
    ) -> Filtered:
        """The manifests without the removed files, and without deletes about these alone.

        A deletion vector must not outlive its data file (spec: Deletion Vectors).
        """
        manifests = producer.manifests(head)
        data = _data_files(self.removed)
        listed = {file_key(file) for file in self.removed}
        about = deletes_naming(producer, metadata, manifests, data) if data else []
        removed = (*self.removed, *(file for file in about if file_key(file) not in listed))
        snapshot_id = producer.snapshot_id(self.operation, metadata)
        return producer.without_files(metadata, manifests, removed, snapshot_id=snapshot_id)


class FileChange(Operation):
    """An operation that removes files.

    Attributes:
        branch: whose files they are.
    """

    branch: str

    def prepare(self, producer: SnapshotProducer, metadata: TableMetadata) -> None:
        """Write manifests against the newest version that is known."""
        self._replacement().prepare(producer, metadata, head_of(metadata, self.branch))

    @abstractmethod
    def _replacement(self) -> Replacement:
        """The files, where they do not depend on the base."""


@dataclass(frozen=True, eq=False)
class Overwrite(FileChange):
    """Replace `removed` by `added` in one snapshot; see Transaction.overwrite."""

    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    branch: str
    conflict_filter: Bound | None = None
    isolation: Isolation | None = None
    keys: KeyTest | None = None
    rows: tuple[DecidedRows, ...] = ()

    def __post_init__(self) -> None:
        checked(self.added, "The files to add")
        checked(self.removed, "The files to remove")

    def apply(self, staged: Staged) -> None:
        """Validate, then one snapshot."""
        subject, changes = subject_of(staged, "overwrite"), concurrent_changes(staged)
        if _is_serializable(staged, self.isolation, lambda table: table.update_isolation):
            scope = scope_of(staged, self.conflict_filter, (*self.removed, *self.added))
            no_phantoms(staged, subject, scope, changes, self, self.keys)
            rows_still_there(staged, subject, self.rows, changes, serializable=True)
        no_new_deletes(subject, Targets.of(self.removed), changes)
        only_removes = self.removed and not self.added
        name = OPERATION_DELETE if only_removes else OPERATION_OVERWRITE
        self._replacement().apply(staged, name, subject, changes)

    def _replacement(self) -> Replacement:
        return Replacement(self, self.removed, self.added)


@dataclass(frozen=True, eq=False)
class DeleteFiles(FileChange):
    """Remove data files; see Transaction.delete_files.

    Deletes added meanwhile only remove rows that go anyway.
    """

    removed: tuple[DataFile, ...]
    branch: str
    conflict_filter: Bound | None = None
    isolation: Isolation | None = None

    def __post_init__(self) -> None:
        checked(self.removed, "The files to delete")

    def apply(self, staged: Staged) -> None:
        """Validate, then one snapshot."""
        subject, changes = subject_of(staged, "delete"), concurrent_changes(staged)
        if _is_serializable(staged, self.isolation, lambda table: table.delete_isolation):
            scope = scope_of(staged, self.conflict_filter, self.removed)
            no_phantoms(staged, subject, scope, changes, self)
        self._replacement().apply(staged, OPERATION_DELETE, subject, changes)

    def _replacement(self) -> Replacement:
        return Replacement(self, self.removed, ())


@dataclass(frozen=True, eq=False)
class RewriteFiles(FileChange):
    """Replace files by others with the same rows (compaction); see Transaction.rewrite_files."""

    removed: tuple[DataFile, ...]
    added: tuple[DataFile, ...]
    branch: str
    data_sequence_number: int

    def __post_init__(self) -> None:
        checked(self.removed, "The files to rewrite")
        checked(self.added, "The rewritten files")
        if not self.removed:
            raise InvalidInputError("A rewrite needs files to replace; use append to add rows.")
        data_in = sum(file.record_count for file in _data_files(self.removed))
        data_out = sum(file.record_count for file in _data_files(self.added))
        if data_out > data_in:
            raise InvalidInputError(
                f"A rewrite cannot add rows: {data_in} went in, {data_out} came out."
            )

    def apply(self, staged: Staged) -> None:
        """Validate, then one snapshot."""
        latest = staged.metadata.next_sequence_number()
        if self.data_sequence_number > latest:
            raise InvalidInputError(
                f"Table {staged.table}: rewritten files cannot have sequence number "
                f"{self.data_sequence_number}, above {latest}, the commit's: later deletes would "
                "not reach them.",
                table=staged.table,
            )
        subject, changes = subject_of(staged, "rewrite"), concurrent_changes(staged)
        data, added = _data_files(self.removed), _data_files(self.added)
        alike = reaches_moved_rows_alike(data, added, self.data_sequence_number)
        no_new_deletes(subject, Targets.of(data), changes, still_reached=alike)
        self._replacement().apply(staged, OPERATION_REPLACE, subject, changes)

    def _replacement(self) -> Replacement:
        return Replacement(self, self.removed, self.added, self.data_sequence_number)


@dataclass(frozen=True, eq=False)
class RowDelta(FileChange):
    """Add data files and delete files (merge on read); see Transaction.row_delta."""

    data_files: tuple[DataFile, ...]
    delete_files: tuple[DataFile, ...]
    removed_delete_files: tuple[DataFile, ...]
    branch: str
    conflict_filter: Bound | None = None
    isolation: Isolation | None = None
    referenced_files: frozenset[str] = frozenset()
    rows: tuple[DecidedRows, ...] = ()
    keys: KeyTest | None = None

    def __post_init__(self) -> None:
        checked((*self.data_files, *self.delete_files), "The files to add")
        checked(self.removed_delete_files, "The delete files to remove")
        for file in (*self.delete_files, *self.removed_delete_files):
            if file.content == CONTENT_DATA:
                raise InvalidInputError(
                    f"{file.file_path} holds data, not deletes.", file=file.file_path
                )
        checked((decided.data_file for decided in self.rows), "The rows to delete")

    def prepare(self, producer: SnapshotProducer, metadata: TableMetadata) -> None:
        """Write vectors and manifests against the newest version that is known."""
        head = head_of(metadata, self.branch)
        vectors = self._vectors(producer, metadata, head, self.rows)
        self._replacement(vectors).prepare(producer, metadata, head)

    def apply(self, staged: Staged) -> None:
        """Validate, then one snapshot."""
        subject, changes = subject_of(staged, "row delta"), concurrent_changes(staged)
        serializable = _is_serializable(
            staged, self.isolation, lambda table: table.delete_isolation
        )
        rows = rows_still_there(staged, subject, self.rows, changes, serializable=serializable)
        if self.rows:
            self._check_replaced(staged, subject, changes, rows)
        else:
            self._check_data_files(staged, subject, changes)
        decided = self.conflict_filter is not None or bool(self.delete_files or self.rows)
        if decided and serializable:
            targets = (decided.data_file for decided in self.rows)
            files = (*self.delete_files, *self.data_files, *targets)
            scope = scope_of(staged, self.conflict_filter, files)
            no_phantoms(staged, subject, scope, changes, self, self.keys)
        vectors = self._vectors(staged.producer, staged.metadata, staged.head(), rows)
        if vectors.location is not None:
            staged.vectors.add(vectors.location)
        replacement = self._replacement(vectors)
        changed = (*replacement.added, *replacement.removed)
        if not vectors.emptied and all(file.content == CONTENT_DATA for file in changed):
            name = OPERATION_APPEND
        else:
            name = OPERATION_OVERWRITE if self.data_files else OPERATION_DELETE
        replacement.apply(staged, name, subject, changes)

    def _check_replaced(
        self,
        staged: Staged,
        subject: Subject,
        changes: list[ConcurrentChange],
        moved: tuple[DecidedRows, ...],
    ) -> None:
        """What must not happen to the files of rows that go, beside what happens to the rows."""
        going = [decided for decided in self.rows if len(decided.gone)]
        self._check_not_removed(staged, frozenset(decided.path for decided in going))
        if self.data_files:
            # compaction may have moved them to another partition spec, where deletes reach them
            partitions = frozenset(
                decided.data_file.partition_key for decided in (*going, *moved) if len(decided.gone)
            )
            no_equality_deletes(subject, partitions, changes)

    def _check_data_files(
        self, staged: Staged, subject: Subject, changes: list[ConcurrentChange]
    ) -> None:
        """The data files that the deletes are about must be there, with the deletes they had."""
        by_position = [
            file for file in self.delete_files if file.content == CONTENT_POSITION_DELETES
        ]
        named = {file.named_file for file in by_position if file.named_file is not None}
        referenced = frozenset((*named, *self.referenced_files))
        unnamed = [
            file for file in by_position if file.named_file is None and not self.referenced_files
        ]
        self._check_not_removed(staged, referenced)
        still_live(subject, referenced, changes)
        none_removed_below(subject, unnamed, changes)
        # may hold rows deleted here: were they deleted meanwhile, they would come back
        if self.data_files:
            partitions = frozenset(file.partition_key for file in by_position)
            no_new_deletes(subject, Targets(referenced, partitions, bool(unnamed)), changes)
        else:
            no_new_vectors(subject, referenced, changes)

    @staticmethod
    def _check_not_removed(staged: Staged, paths: frozenset[str]) -> None:
        removed = sorted(paths & staged.removed)
        if removed:
            raise InvalidInputError(
                f"Table {staged.table}: this transaction removes {removed[0]}, of which it deletes "
                "rows as well.",
                table=staged.table,
                file=removed[0],
            )

    def _vectors(
        self,
        producer: SnapshotProducer,
        metadata: TableMetadata,
        head: Snapshot | None,
        rows: tuple[DecidedRows, ...],
    ) -> Vectors:
        """The vectors for a base; none where files delete the rows."""
        if self.delete_files:
            return Vectors()
        return write_vectors(producer, metadata, head, rows, self)

    def _replacement(self, vectors: Vectors = Vectors()) -> Replacement:  # noqa: B008 - frozen
        return Replacement(
            self,
            (*self.removed_delete_files, *vectors.superseded, *vectors.emptied),
            (*self.data_files, *self.delete_files, *vectors.files),
            edition=vectors.location,
        )


def _data_files(files: tuple[DataFile, ...]) -> tuple[DataFile, ...]:
    return tuple(file for file in files if file.content == CONTENT_DATA)


def scope_of(staged: Staged, where: Bound | None, files: tuple[DataFile, ...]) -> Scope:
    """The rows an operation decided on: a filter, or else the partitions of its files."""
    types = types_of(staged.metadata)
    return Scope(
        None if where is None else widen(where, types),
        types,
        frozenset(file.partition_key for file in files),
    )


def _is_serializable(
    staged: Staged, given: Isolation | None, read: Callable[[TableProperties], str]
) -> bool:
    """Whether the isolation level asked for, else the table's, is `serializable`."""
    level = given if given is not None else read(TableProperties(staged.metadata.properties))
    return level != "snapshot"
