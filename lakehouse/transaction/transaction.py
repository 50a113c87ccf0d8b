"""A transaction: pending operations on one table, made visible by one compare-and-swap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from pyiceberg.expressions import BooleanExpression

from lakehouse.catalog.protocol import Catalog, TableVersion
from lakehouse.environment import Environment
from lakehouse.spec.data_file import DataFile
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.requirements import Requirement
from lakehouse.spec.table_metadata import TableMetadata
from lakehouse.spec.updates import Update
from lakehouse.transaction.append import Append
from lakehouse.transaction.changes import MetadataChange
from lakehouse.transaction.committed import Committed
from lakehouse.transaction.delete_files import DeleteFiles
from lakehouse.transaction.engine import run
from lakehouse.transaction.expire import Expire
from lakehouse.transaction.operation import Isolation, Operation
from lakehouse.transaction.overwrite import Overwrite
from lakehouse.transaction.refs import CherryPick, FastForward, RemoveRef, Rollback, SetRef
from lakehouse.transaction.rewrite_files import RewriteFiles
from lakehouse.transaction.rewrite_manifests import RewriteManifests
from lakehouse.transaction.row_delta import RowDelta


class Transaction:
    """Collects operations, then commits all of them or none.

    Each verb returns the transaction, so that verbs chain. Verbs that change files make one snapshot each, on `branch`, in
    the order of the calls. Nothing is read or written before `commit`, and a transaction commits once.

    Args:
        catalog: where the table's current version is swapped.
        identifier: the table.
        base: the version the caller read and decided on; loaded now if None. Assumptions are validated against every snapshot since.
        branch: the branch written to; a branch that does not exist is created from the current snapshot.
        environment: clock, ids, jitter, sleep.
    """

    def __init__(
        self,
        catalog: Catalog,
        identifier: Identifier | str,
        *,
        base: TableVersion | None = None,
        branch: str = "main",
        environment: Environment | None = None,
    ) -> None:
        self.catalog = catalog
        self.identifier = Identifier.parse(identifier)
        self.base = base if base is not None else catalog.load(self.identifier)
        self.branch = branch
        self.environment = environment if environment is not None else Environment.system()
        self._operations: list[Operation] = []
        self._committed = False

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The pending operations, in order."""
        return tuple(self._operations)

    @property
    def metadata(self) -> TableMetadata:
        """The base's metadata with the pending schema, spec and property changes applied: what new data files are written for."""

    def append(self, files: Iterable[DataFile]) -> Self:
        """Add data files. Never conflicts."""

    def overwrite(
        self,
        added: Iterable[DataFile],
        removed: Iterable[DataFile],
        *,
        conflict_filter: BooleanExpression | None = None,
        isolation: Isolation | None = None,
    ) -> Self:
        """Replace `removed` by `added` in one snapshot (operation `overwrite`).

        Args:
            added: new data files.
            removed: data files that must still be live, or the commit raises ValidationConflictError.
            conflict_filter: rows this operation decided on; concurrent changes that cannot match it do not conflict. None: the
                partitions of the files involved (the whole table if unpartitioned).
            isolation: `serializable` (default, property `write.update.isolation-level`) also refuses concurrently added data;
                `snapshot` only concurrent deletes and removals.
        """

    def delete_files(
        self, removed: Iterable[DataFile], *, conflict_filter: BooleanExpression | None = None, isolation: Isolation | None = None
    ) -> Self:
        """Remove whole data files (operation `delete`); arguments as for `overwrite` (property `write.delete.isolation-level`)."""

    def row_delta(
        self,
        data_files: Iterable[DataFile] = (),
        delete_files: Iterable[DataFile] = (),
        *,
        removed_delete_files: Iterable[DataFile] = (),
        conflict_filter: BooleanExpression | None = None,
        isolation: Isolation | None = None,
    ) -> Self:
        """Add data and delete files (merge on read). The data files that the deletes reference must still be live.

        `removed_delete_files` are replaced by the new ones (a deletion vector by its superset).
        """

    def rewrite_files(
        self,
        removed: Iterable[DataFile],
        added: Iterable[DataFile],
        *,
        removed_deletes: Iterable[DataFile] = (),
        added_deletes: Iterable[DataFile] = (),
        data_sequence_number: int | None = None,
    ) -> Self:
        """Compaction (operation `replace`): the same rows in other files.

        Aborts with ValidationConflictError when an input file is gone or got new deletes since the base.

        Args:
            removed: data files replaced.
            added: data files replacing them.
            removed_deletes: delete files that no longer apply to anything.
            added_deletes: rewritten delete files.
            data_sequence_number: the sequence number given to `added`; None: the base snapshot's, so that equality deletes
                committed meanwhile still apply.
        """

    def rewrite_manifests(self, *, target_size_bytes: int | None = None) -> Self:
        """Regroup live entries into manifests of about `target_size_bytes` ordered by partition (operation `replace`). Never loses entries."""

    def expire(self, snapshot_ids: Iterable[int], *, remove_refs: Iterable[str] = ()) -> Self:
        """Remove snapshots and refs from the metadata. Refuses when a concurrent commit points a ref at one of them. Deletes no files."""

    def create_tag(self, name: str, snapshot_id: int | None = None, *, max_ref_age_ms: int | None = None) -> Self:
        """Tag `snapshot_id` (None: the branch's head). Raises RefAlreadyExistsError at commit."""

    def create_branch(self, name: str, snapshot_id: int | None = None, **retention: int | None) -> Self:
        """Branch from `snapshot_id` (None: the branch's head); retention: min_snapshots_to_keep, max_snapshot_age_ms, max_ref_age_ms."""

    def remove_ref(self, name: str) -> Self:
        """Remove a branch or tag. Raises NoSuchRefError at commit; `main` is refused."""

    def rollback_to(self, snapshot_id: int) -> Self:
        """Point the branch at one of its ancestors."""

    def set_current_snapshot(self, snapshot_id: int) -> Self:
        """Point the branch at any snapshot of the table."""

    def fast_forward(self, source: str) -> Self:
        """Point the branch at the head of branch `source`, of which it must be an ancestor, also after concurrent commits."""

    def cherry_pick(self, snapshot_id: int) -> Self:
        """Apply the files that `snapshot_id` appended (or dynamically replaced) onto the branch, once; fast-forwards where possible."""

    def update(self, updates: Sequence[Update], requirements: Sequence[Requirement] = ()) -> Self:
        """Any metadata change as data: schemas, specs, sort orders, statistics (made by lakehouse.evolution)."""

    def set_properties(self, properties: Mapping[str, str]) -> Self:
        """Set table properties."""

    def remove_properties(self, names: Iterable[str]) -> Self:
        """Remove table properties."""

    def commit(self, summary: Mapping[str, str] | None = None, *, commit_id: str | None = None) -> Committed:
        """Make everything visible at once.

        Args:
            summary: extra entries for the summary of each snapshot made.
            commit_id: chosen by the caller, recorded in the summary as `lakehouse.commit-id`: if any snapshot of the table
                carries it already, that one is returned (`replayed=True`) and nothing is written.

        Raises:
            CommitConflictError: other writers kept winning for all retries (`commit.retry.*`). Nothing is visible; own metadata files are removed,
                data files are the caller's.
            ValidationConflictError: a concurrent commit broke an assumption. As above.
            CommitStateUnknownError: the reply was lost and the table does not tell. Nothing was deleted.
        """
