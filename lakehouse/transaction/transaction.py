"""A transaction: pending operations on one table, made visible by one compare-and-swap."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.catalog.confinement import OwnFolders, check_files
from lakehouse.environment import Environment
from lakehouse.errors import InvalidInputError
from lakehouse.expressions.bound_filter import Bound
from lakehouse.expressions.filter_binding import Where, bind
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.commit_names import head_of
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import (
    RemoveProperties,
    Requirement,
    SetProperties,
    Update,
    UpgradeFormatVersion,
)
from lakehouse.spec.table_properties import check_given_properties, parse_format_version
from lakehouse.transaction.commit import Committed, commit
from lakehouse.transaction.decided_rows import DecidedRows, KeyTest
from lakehouse.transaction.deletion_vectors import VECTORS_SINCE
from lakehouse.transaction.operations.branches_and_tags import (
    CherryPick,
    FastForward,
    Reapply,
    RemoveRef,
    Rollback,
    SetRef,
)
from lakehouse.transaction.operations.file_changes import (
    Append,
    DeleteFiles,
    Overwrite,
    RewriteFiles,
    RowDelta,
)
from lakehouse.transaction.operations.manifest_rewrites import (
    AddColumnarManifests,
    RewriteManifests,
)
from lakehouse.transaction.operations.metadata_changes import Assumption, Expire, MetadataChange
from lakehouse.transaction.posted_commit import commit_by_server
from lakehouse.transaction.table_change import Isolation, Operation, TableChange


class Transaction:
    """Collects operations, then commits all of them or none.

    Each verb returns the transaction, so that verbs chain. Verbs that change files make one
    snapshot each, on `branch`, in the order of the calls. Nothing is read or written before
    `commit`, and a transaction commits once.

    Args:
        catalog: where the table's current version is swapped.
        identifier: the table.
        decided_on: the version that the caller read; loaded now if None. Assumptions are
            validated against every snapshot since.
        branch: the branch written to; a branch that does not exist is created from the current
            snapshot.
        environment: clock, ids, jitter, sleep.
    """

    def __init__(
        self,
        catalog: Catalog,
        identifier: Identifier | str,
        *,
        decided_on: TableVersion | None = None,
        branch: str = "main",
        environment: Environment | None = None,
    ) -> None:
        self.catalog = catalog
        self.identifier = Identifier.parse(identifier)
        self.decided_on = decided_on if decided_on is not None else catalog.load(self.identifier)
        self.branch = branch
        self.environment = environment if environment is not None else Environment.system()
        self._operations: list[Operation] = []
        self._committed = False
        self._own: OwnFolders | None = None

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The pending operations, in order."""
        return tuple(self._operations)

    @property
    def metadata(self) -> TableMetadata:
        """The metadata that new data files are written for.

        That of `decided_on`, with the pending changes of schema, spec and properties applied.
        """
        metadata = self.decided_on.metadata
        for operation in self._operations:
            if isinstance(operation, MetadataChange):
                metadata = operation.applied_to(metadata)
        return metadata

    def append(self, files: Iterable[DataFile], *, must_be_new: bool = False) -> Self:
        """Add data files. Conflicts with nothing, unless `must_be_new`.

        Like every verb that adds files it raises InvalidLocationError for a file outside the
        warehouse (and outside the catalog property `allowed-locations`), and for one in the folder
        of another table.

        Args:
            files: written for this table.
            must_be_new: the files lie somewhere and others may add them too: the commit aborts when
                somebody has, since `decided_on` (which the caller has looked through).
        """
        return self._add(Append(self._allowed(files), must_be_new))

    def overwrite(
        self,
        added: Iterable[DataFile],
        removed: Iterable[DataFile],
        *,
        conflict_filter: Where = None,
        isolation: Isolation | None = None,
        keys: KeyTest | None = None,
        rows: Iterable[DecidedRows] = (),
    ) -> Self:
        """Replace `removed` by `added` in one snapshot.

        The operation is `overwrite`, or `delete` when nothing is added. Deletes that are about
        removed files alone, such as deletion vectors, go with them, here and in all verbs.

        Args:
            added: new data files.
            removed: data files that must still be live, or the commit raises
                ValidationConflictError.
            conflict_filter: rows this operation decided on, as text, expression or bound to the
                schema. Data files that others added are read where partition and bounds do not
                tell: without a row that matches they do not conflict. None: the partitions of the
                files involved (the whole table if unpartitioned), of which no file is read.
            isolation: `serializable` (default, property `write.update.isolation-level`) also
                refuses concurrently added data; `snapshot` only concurrent deletes and removals.
            keys: narrows `conflict_filter` to rows with certain keys.
            rows: rows of other files that were only seen; with `serializable` they must be there.
        """
        return self._add(
            Overwrite(
                self._allowed(added),
                tuple(removed),
                self._bound(conflict_filter),
                isolation,
                keys,
                tuple(rows),
            )
        )

    def delete_files(
        self,
        removed: Iterable[DataFile],
        *,
        conflict_filter: Where = None,
        isolation: Isolation | None = None,
    ) -> Self:
        """Remove whole data files (operation `delete`).

        Arguments as for `overwrite`; the property is `write.delete.isolation-level`.
        """
        return self._add(DeleteFiles(tuple(removed), self._bound(conflict_filter), isolation))

    def row_delta(
        self,
        data_files: Iterable[DataFile] = (),
        delete_files: Iterable[DataFile] = (),
        *,
        removed_delete_files: Iterable[DataFile] = (),
        referenced_files: Iterable[str] = (),
        rows: Iterable[DecidedRows] = (),
        conflict_filter: Where = None,
        isolation: Isolation | None = None,
        keys: KeyTest | None = None,
    ) -> Self:
        """Add data and delete files (merge on read).

        The data files that the deletes are about must still be live. A table of version 2 takes
        position deletes, from version 3 on it takes deletion vectors, one a data file.

        What is known of the rows decides what may come between. With `rows` it is these rows that
        others must not have deleted or replaced; with delete files alone, it is their data files
        that must not have got other deletes.

        Args:
            data_files: new rows.
            delete_files: deletes of rows that were there before.
            removed_delete_files: replaced by the new ones (a deletion vector by its superset).
            referenced_files: locations of all data files that the position deletes are about.
                Without it, a delete file that names no data file of its own is taken to be about
                every file of its partition that the bounds of its paths allow, and the commit
                aborts when one of these is removed meanwhile.
            rows: all rows that go, and those that were only seen, by data file. In a table of
                version 2 `delete_files` delete them; from version 3 on the commit writes their
                vectors itself, united with what is deleted by then.
            conflict_filter: as for `overwrite`.
            isolation: as for `overwrite`; the property is `write.delete.isolation-level`. With
                `serializable` rows that were only seen must be there, too.
            keys: as for `overwrite`.

        Raises:
            InvalidInputError: `rows` without `delete_files` in a table of version 2, or files that
                do not belong together.
        """
        decided = tuple(rows)
        files = self._allowed(delete_files)
        if not files and self.metadata.format_version < VECTORS_SINCE:
            lost = next((rows for rows in decided if len(rows.gone)), None)
            if lost is not None:
                raise InvalidInputError(
                    f"Table {self.identifier} has no deletion vectors before format version 3: "
                    f"give the position deletes for {lost.path} as delete_files.",
                    table=str(self.identifier),
                    file=lost.path,
                )
        return self._add(
            RowDelta(
                self._allowed(data_files),
                files,
                tuple(removed_delete_files),
                self._bound(conflict_filter),
                isolation,
                frozenset(referenced_files),
                decided,
                keys,
            )
        )

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

        Aborts with ValidationConflictError when an input file is gone or got new deletes since
        `decided_on`.

        Args:
            removed: data files replaced.
            added: data files replacing them.
            removed_deletes: delete files that no longer apply to anything.
            added_deletes: rewritten delete files.
            data_sequence_number: the sequence number given to `added`; None: that of `decided_on`,
                so that equality deletes committed meanwhile still apply.

        Raises:
            InvalidInputError: at the commit, `data_sequence_number` is above the commit's.
        """
        if data_sequence_number is None:
            head = head_of(self.decided_on.metadata, self.branch)
            data_sequence_number = 0 if head is None else head.sequence_number
        return self._add(
            RewriteFiles(
                (*removed, *removed_deletes),
                self._allowed((*added, *added_deletes)),
                data_sequence_number,
            )
        )

    def rewrite_manifests(self, *, target_size_bytes: int | None = None) -> Self:
        """Regroup live entries into manifests of about `target_size_bytes`, ordered by partition.

        The snapshot's operation is `replace`.
        """
        return self._add(RewriteManifests(target_size_bytes))

    def add_columnar_manifests(self) -> Self:
        """Write columnar manifests: copies of manifests under new names (operation `replace`)."""
        return self._add(AddColumnarManifests())

    def expire(self, snapshot_ids: Iterable[int], *, remove_refs: Iterable[str] = ()) -> Self:
        """Remove snapshots and refs from the metadata; deletes no files.

        Aborts with ValidationConflictError when a ref names one of the snapshots at the time of the
        commit.
        """
        return self._add(Expire(tuple(snapshot_ids), tuple(remove_refs)))

    def create_tag(
        self, name: str, snapshot_id: int | None = None, *, max_ref_age_ms: int | None = None
    ) -> Self:
        """Tag `snapshot_id` (None: the branch's head). Raises RefAlreadyExistsError at commit."""
        return self._add(
            SetRef(name, "tag", self._named(snapshot_id), max_ref_age_ms=max_ref_age_ms)
        )

    def create_branch(
        self, name: str, snapshot_id: int | None = None, **retention: int | None
    ) -> Self:
        """Branch from `snapshot_id` (None: the branch's head).

        `retention`: min_snapshots_to_keep, max_snapshot_age_ms, max_ref_age_ms.
        """
        return self._add(SetRef(name, "branch", self._named(snapshot_id), **retention))

    def remove_ref(self, name: str) -> Self:
        """Remove a branch or tag. Raises NoSuchRefError at commit; `main` is refused."""
        return self._add(RemoveRef(name))

    def rollback_to(self, snapshot_id: int) -> Self:
        """Point the branch at one of its ancestors."""
        return self._add(Rollback(snapshot_id))

    def set_current_snapshot(self, snapshot_id: int) -> Self:
        """Point the branch at any snapshot of the table."""
        return self._add(Rollback(snapshot_id, ancestors_only=False))

    def fast_forward(self, source: str) -> Self:
        """Move the branch forward to the head of branch `source`.

        The branch must be an ancestor of it, also after concurrent commits.
        """
        return self._add(FastForward(source))

    def cherry_pick(self, snapshot_id: int) -> Self:
        """Apply onto the branch, once, what `snapshot_id` appended; fast-forwards where possible.

        Whole partitions that it replaced (summary `replace-partitions`, as dynamic overwrites of
        Spark write it) are replaced again, if nobody changed them since.
        """
        return self._add(CherryPick(snapshot_id))

    def reapply(self, snapshot_id: int, fork: int | None) -> Self:
        """Do what a snapshot of another branch did, whatever it was, on top of this branch.

        Aborts with ValidationConflictError where a commit to main since `fork`, the last snapshot
        that both have, touched the same partitions; appends hold always.
        """
        return self._add(Reapply(snapshot_id, fork))

    def update(self, updates: Sequence[Update], requirements: Sequence[Requirement] = ()) -> Self:
        """Change metadata: schemas, specs, sort orders, statistics (see lakehouse.evolution)."""
        return self._add(MetadataChange(tuple(updates), tuple(requirements)))

    def assume(self, check: Callable[[], None]) -> Self:
        """Call `check` in each attempt that finds commits of others since `decided_on`.

        It raises ValidationConflictError when something outside the table, which the change was
        decided on, is not as it was.
        """
        return self._add(Assumption(check))

    def set_properties(self, properties: Mapping[str, str]) -> Self:
        """Set table properties.

        `format-version` raises the table's format version, as in other engines; it never goes back.
        A warning names those that nothing here honours.
        """
        check_given_properties(self.identifier, properties)
        given = dict(properties)
        version = given.pop("format-version", None)
        upgrade = () if version is None else (UpgradeFormatVersion(parse_format_version(version)),)
        return self.update(
            (*upgrade, *((SetProperties(given),) if given or version is None else ()))
        )

    def remove_properties(self, names: Iterable[str]) -> Self:
        """Remove table properties."""
        return self.update((RemoveProperties(tuple(names)),))

    def commit(
        self, summary: Mapping[str, str] | None = None, *, commit_id: str | None = None
    ) -> Committed:
        """Make everything visible at once.

        Args:
            summary: extra entries for the summary of each snapshot made.
            commit_id: chosen by the caller, recorded in the summary as `lakehouse.commit-id`: if a
                snapshot in the history of the branch carries it already, that one is returned
                (`replayed=True`) and nothing is written.

        Raises:
            CommitConflictError: other writers kept winning for all retries (`commit.retry.*`).
                Nothing is visible; own metadata files are removed, data files are the caller's.
            ValidationConflictError: a concurrent commit broke an assumption. As above.
            CommitStateUnknownError: the reply was lost and the table does not tell. Nothing was
                deleted.
        """
        if self._committed:
            raise InvalidInputError(
                f"This transaction on {self.identifier} was committed or tried already: begin a "
                "new one."
            )
        self._committed = True
        change = TableChange(
            decided_on=self.decided_on,
            branch=self.branch,
            operations=self.operations,
            summary=dict(summary or {}),
            commit_id=commit_id,
        )
        appender = self.catalog.appender(self.identifier)
        if appender is not None:
            done = commit_by_server(change, appender, self.catalog, self.environment)
            if done is not None:
                return done
        return commit(change, self.catalog, self.environment)

    def _bound(self, where: Where) -> Bound | None:
        return None if where is None else bind(where, self.metadata.schema())

    def _add(self, operation: Operation) -> Self:
        if self._committed:
            raise InvalidInputError(
                f"This transaction on {self.identifier} was committed or tried already: begin a "
                "new one."
            )
        self._operations.append(operation)
        return self

    def _allowed(self, files: Iterable[DataFile]) -> tuple[DataFile, ...]:
        """The files, if each may be one of the table's. Raises InvalidLocationError."""
        if self._own is None:
            self._own = OwnFolders(self.catalog, self.decided_on.metadata)
        listed = tuple(files)
        check_files(self.catalog, self.identifier, self._own, [file.file_path for file in listed])
        return listed

    def _named(self, snapshot_id: int | None) -> int | None:
        """What a new ref names: the head the caller saw, or where this transaction moves it."""
        if snapshot_id is not None or any(
            not isinstance(operation, MetadataChange | SetRef) for operation in self._operations
        ):
            return snapshot_id
        head = head_of(self.decided_on.metadata, self.branch)
        return None if head is None else head.snapshot_id
