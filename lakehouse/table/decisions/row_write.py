"""A verb that writes rows: its files, its commit, and what becomes of them when that fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import overload

from lakehouse.catalog.held_version import HeldVersion
from lakehouse.errors import (
    CommitStateUnknownError,
    LakehouseError,
    SnapshotExpiredError,
    ValidationConflictError,
)
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.table_properties import TableProperties
from lakehouse.table.loaded_table import LoadedTable
from lakehouse.table.write_result import WriteResult
from lakehouse.transaction.commit import snapshots_of_commit
from lakehouse.transaction.table_change import head_of
from lakehouse.transaction.transaction import Transaction

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a write does to the rows of the version that it looked at.

    Attributes:
        transaction: based on that version.
        written: files written for this decision; the next one may have a use for some of them.
        rows_deleted: how many rows go; None when nobody counted.
        source_rows: how many rows of a source it was made about.
    """

    transaction: Transaction
    written: Sequence[DataFile]
    rows_deleted: int | None = None
    source_rows: int = 0


class RowWrite:
    """`with RowWrite(...) as write:` files go when the verb failed, and stay when nobody knows.

    A `staged` write makes a snapshot on top of `main` that no ref names, to be published later
    (`cherry_pick`); `branch` is then a name that nobody has.

    Attributes:
        files: all data and delete files that the verb wrote.
    """

    def __init__(
        self,
        table: LoadedTable,
        branch: str,
        summary: Mapping[str, str] | None,
        commit_id: str | None,
        *,
        staged: bool = False,
    ) -> None:
        self.files: list[DataFile] = []
        self._staged = staged
        self._table = table
        self._branch = branch
        self._summary = summary
        self._commit_id = commit_id

    def __enter__(self) -> RowWrite:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, LakehouseError) and not isinstance(error, CommitStateUnknownError):
            self._discard(self.files)

    def replayed(self) -> WriteResult | None:
        """What an earlier run committed to the branch under the same commit id.

        Then nothing is written again. The table moves to the newest version then.
        """
        if self._commit_id is None:
            return None
        version = self._table.catalog.refresh(self._table.version)
        if version.metadata.table_uuid != self._table.metadata.table_uuid:
            return None
        found = snapshots_of_commit(version.metadata, self._branch, self._commit_id)
        if not found:
            return None
        self._table.move_to(version)
        return WriteResult(found[-1], replayed=True)

    def commit(
        self,
        transaction: Transaction,
        *,
        rows_inserted: int | None = None,
        rows_deleted: int | None = None,
    ) -> WriteResult:
        """Commit, and move the table to the version made. Raises CommitError."""
        if self._staged:
            transaction.remove_ref(self._branch)
        committed = transaction.commit(self._summary, commit_id=self._commit_id)
        self._table.move_to(committed.version)
        if committed.replayed:
            self._discard(self.files)
        if committed.snapshot is None:
            raise AssertionError(f"a commit of rows to {self._table.name} made no snapshot")
        if committed.replayed:
            return WriteResult(committed.snapshot, replayed=True)
        return WriteResult(committed.snapshot, rows_inserted, rows_deleted, committed.retries)

    @overload
    def commit_decision(
        self,
        decide: Callable[[], Decision],
        *,
        rows_inserted: int | None = None,
        whatever_came: bool = False,
    ) -> WriteResult: ...

    @overload
    def commit_decision(
        self,
        decide: Callable[[], Decision | None],
        *,
        rows_inserted: int | None = None,
        whatever_came: bool = False,
    ) -> WriteResult | None: ...

    def commit_decision(
        self,
        decide: Callable[[], Decision | None],
        *,
        rows_inserted: int | None = None,
        whatever_came: bool = False,
    ) -> WriteResult | None:
        """Commit what `decide` makes of the table's version; None when it finds nothing to do.

        A `replace` snapshot (compaction, Iceberg spec "Snapshots") moves rows to other files and
        changes none. So when nothing but such snapshots came between, the decision is made again on
        the new files, at most `commit.retry.num-retries` times.

        Where nothing is to do in a version that others have left behind, the decision is made again
        on the newest: what they added may match. So it is where the snapshot decided on has
        expired: nobody can read it, or tell what came since.

        Args:
            decide: looks at the table as it is then.
            rows_inserted: for the result.
            whatever_came: decide again whatever came between, as long as it is the same table:
                for writes that follow from the rows alone that they find.

        Raises:
            ValidationConflictError: something else came between.
            SnapshotExpiredError: the snapshot decided on, and there are no more retries.
        """
        most = TableProperties(self._table.properties).retry_count
        again, rows_again, newest = 0, 0, False
        first = len(self.files)
        while True:
            before = self._table.metadata
            try:
                head = head_of(before, self._branch)
                held = HeldVersion(self._table.catalog, self._table.version)
                with held.reading(None if head is None else head.snapshot_id):
                    decision = decide()
            except SnapshotExpiredError:
                found = self._table.catalog.load(self._table.identifier)
                if again >= most or not self._expired(before, found.metadata):
                    raise
                self._table.move_to(found)
                again += 1
                continue
            self._keep_of_decisions(first, () if decision is None else decision.written)
            if decision is None:
                if newest or not self._left_behind():
                    return None
                newest = True
                continue
            rows_again += decision.source_rows if again else 0
            try:
                done = self.commit(
                    decision.transaction,
                    rows_inserted=rows_inserted,
                    rows_deleted=decision.rows_deleted,
                )
                return replace(done, decided_again=again, rows_decided_again=rows_again)
            except (ValidationConflictError, SnapshotExpiredError) as error:
                found = self._table.catalog.load(self._table.identifier)
                same = before.table_uuid == found.metadata.table_uuid
                may = self._expired(before, found.metadata) or (
                    isinstance(error, ValidationConflictError)
                    and (whatever_came or only_moved_rows(before, found.metadata, self._branch))
                )
                if not (again < most and same and may):
                    raise
            self._table.move_to(found)
            again, newest = again + 1, True

    def _expired(self, before: TableMetadata, after: TableMetadata) -> bool:
        """Whether the snapshot that was decided on is no longer part of the same table."""
        head = head_of(before, self._branch)
        return (
            head is not None
            and before.table_uuid == after.table_uuid
            and all(one.snapshot_id != head.snapshot_id for one in after.snapshots)
        )

    def _keep_of_decisions(self, first: int, written: Sequence[DataFile]) -> None:
        """Delete the files of the decision before, from number `first` on, that are not `written`.

        That is done when the next decision is made: it may have kept some of them.
        """
        kept = {one.file_path for one in written}
        self._discard([one for one in self.files[first:] if one.file_path not in kept])
        self.files[first:] = written

    def _left_behind(self) -> bool:
        """Whether others have committed since the table was read; it moves to what they made."""
        version = self._table.version
        found = self._table.catalog.refresh(version)
        if found.metadata_location == version.metadata_location:
            return False
        if found.metadata.table_uuid != version.metadata.table_uuid:
            raise ValidationConflictError(
                f"Table {self._table.name} was dropped, and another has its name: load it again",
                table=self._table.name,
            )
        self._table.move_to(found)
        return True

    def _discard(self, files: Sequence[DataFile]) -> None:
        """Delete files that no snapshot names; what cannot be deleted is left to orphan removal."""
        left = self._table.storage.delete([file.file_path for file in files]).failed
        if left:
            message = "%s: %d unreferenced data files were not deleted; remove-orphans finds them"
            _LOG.warning(message, self._table.name, len(left))


def only_moved_rows(before: TableMetadata, after: TableMetadata, branch: str) -> bool:
    """Whether a branch went on by `replace` snapshots alone, with the same schema and specs."""
    old, new = before.refs.get(branch), after.refs.get(branch)
    if old is None or new is None or layout(before) != layout(after):
        return False
    for snapshot in after.ancestors(new.snapshot_id):
        if snapshot.snapshot_id == old.snapshot_id:
            return True
        if snapshot.operation != "replace":
            return False
    return False


def layout(metadata: TableMetadata) -> tuple[int, int, int, int]:
    """What data files are written for: ids of schema, spec and sort order, format version."""
    return (
        metadata.current_schema_id,
        metadata.default_spec_id,
        metadata.default_sort_order_id,
        metadata.format_version,
    )
