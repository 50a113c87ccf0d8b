"""Verbs that write rows: rows as users give them, decisions, the commit, its files."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import TracebackType

import pyarrow as pa

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.catalog.held_version import HeldVersion
from lakehouse.data.writing.data_file_writer import write_all
from lakehouse.data.writing.input_columns import ArrowData
from lakehouse.engines import engine_for
from lakehouse.errors import (
    CommitStateUnknownError,
    InvalidInputError,
    LakehouseError,
    SnapshotExpiredError,
    ValidationConflictError,
)
from lakehouse.expressions.filter_binding import Where, bind
from lakehouse.maintenance.compaction.compaction import Tail
from lakehouse.row_changes.add_files import AddedFiles, describe_hive, describe_paths
from lakehouse.row_changes.row_change import Command, RowChange, RowWriter, refuse_other_rows
from lakehouse.row_changes.row_verbs import delete_rows
from lakehouse.row_changes.target_rows import TargetRows
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.commit_names import head_of, snapshots_of_commit
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.storage_protocol import Storage
from lakehouse.table.loaded_table import LoadedTable, of_newest
from lakehouse.table.scan import TableScan
from lakehouse.table.write_result import WriteResult
from lakehouse.transaction.transaction import Transaction

_LOG = logging.getLogger(__name__)
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")

Decide = Callable[[TargetRows, RowWriter], RowChange]
"""Looks at the rows of one version, and writes the files of what it decides."""


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """Rows that are in data files of the table already.

    `Table.write_files` wrote them, or another process with the table's `write_request`.

    >>> files = events.write_files(more)
    >>> events.append(lh.WrittenFiles(tuple(files))).rows_inserted
    1

    Methods that take rows accept this, and commit the files unchanged. Where they fail the files
    stay, to be committed again or deleted by who wrote them; those that nobody commits are orphans.

    Attributes:
        files: of the table.
        disposable: a method that certainly commits nothing deletes them.
    """

    files: tuple[DataFile, ...]
    disposable: bool = False


def arrow_rows(data: object, table: str, columns: Collection[str] = ()) -> ArrowData:
    """Anything that speaks Arrow's C interfaces, or yields what does.

    The unnamed index that pandas gives a frame is no column, unless the table has it.

    Args:
        data: pyarrow's and Polars' tables and batches, a frame of pandas (NaN becomes null), a
            relation of DuckDB, a scan, or several of these.
        table: the name of the table that takes the rows, for messages.
        columns: names of the table's columns.

    Raises:
        InvalidInputError: these are no rows.
    """
    if isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return _without_index(data, columns)
    if isinstance(data, TableScan):
        return data.to_batches()  # through C its errors would lose their types
    if not (hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")):
        if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
            return _batches(data, table, columns)
        raise _wrong(type(data).__name__, table)
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return _without_index(pa.RecordBatchReader.from_stream(data), columns)
        return pa.record_batch(data)
    except (TypeError, ValueError) as error:  # pandas: two columns of one name
        raise _wrong(f"{type(data).__name__} ({error})", table) from error


class RowsAgain:
    """Rows that each planning and each execution of a merge reads.

    Args:
        data: see `arrow_rows`, which raises for what are no rows.
        table: the name of the table that takes them, for messages.
    """

    def __init__(self, data: object, table: str) -> None:
        self._data, self._table = data, table
        self._first: ArrowData | None = arrow_rows(data, table)

    def rows(self) -> ArrowData:
        """All of them. Raises InvalidInputError for a stream that has been read."""
        first, self._first = self._first, None
        if first is not None:
            return first
        parts = self._data if isinstance(self._data, list | tuple) else [self._data]
        if any(isinstance(part, Iterator) for part in parts):
            raise InvalidInputError(
                f"{self._table}: the source is a stream, and its rows have been read: give a table "
                "or a frame, which can be read again",
                table=self._table,
            )
        return arrow_rows(self._data, self._table)


@dataclass(frozen=True, slots=True)
class Changed:
    """What a write did.

    Attributes:
        change: the last decision.
        result: its commit; None when there was nothing to do.
    """

    change: RowChange
    result: WriteResult | None

    @property
    def committed(self) -> WriteResult:
        """The commit of a write that always makes one."""
        if self.result is None:
            raise AssertionError(f"a {self.change.command} of nothing was to be committed")
        return self.result


class RowWrite:
    """`with RowWrite(...) as write:` files go when the verb failed, and stay when nobody knows.

    The table moves once: to the version that the write made, or to the newest, where there was
    nothing to do in it.

    An `unpublished` write makes a snapshot on top of `main` that no ref names, to be published
    later (`cherry_pick`); `branch` is then a name that nobody has.

    Attributes:
        files: data files that the verb wrote and commits, whatever it decides.
    """

    def __init__(
        self,
        table: LoadedTable,
        branch: str,
        summary: Mapping[str, str] | None,
        commit_id: str | None,
        *,
        unpublished: bool = False,
    ) -> None:
        self.files: list[DataFile] = []
        self._of_decision: Sequence[DataFile] = ()
        self._unpublished = unpublished
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
            self._discard([*self.files, *self._of_decision])

    def replayed(self) -> WriteResult | None:
        """What an earlier run committed to the branch under the same commit id.

        Then nothing is written again, and `files` go. The table moves to the newest version then.
        """
        if self._commit_id is None:
            return None
        version = self._table.catalog.refresh(self._table.version)
        if version.metadata.table_uuid != self._table.metadata.table_uuid:
            return None
        snapshots = snapshots_of_commit(version.metadata, self._branch, self._commit_id)
        if not snapshots:
            return None
        self._table.move_to(version)
        self._discard(self.files)
        return WriteResult(snapshots[-1], replayed=True)

    def commit(
        self,
        transaction: Transaction,
        *,
        rows_inserted: int | None = None,
        rows_deleted: int | None = None,
    ) -> WriteResult:
        """Commit, and move the table to the version made. Raises CommitError."""
        if self._unpublished:
            transaction.remove_ref(self._branch)
        committed = transaction.commit(self._summary, commit_id=self._commit_id)
        self._table.move_to(committed.version)
        if committed.replayed:
            self._discard([*self.files, *self._of_decision])
        if committed.snapshot is None:
            raise AssertionError(f"a commit of rows to {self._table.name} made no snapshot")
        if committed.replayed:
            return WriteResult(committed.snapshot, replayed=True)
        return WriteResult(committed.snapshot, rows_inserted, rows_deleted, committed.retries)

    def change_rows(
        self, decide: Decide, command: Command, *, always: bool = False, decides_again: bool = False
    ) -> Changed:
        """Decide on the table's version, and commit that.

        A `replace` snapshot (compaction, Iceberg spec "Snapshots") moves rows to other files and
        changes none. So when nothing but such snapshots came between, the decision is made again on
        the new files, at most `commit.retry.num-retries` times; the commit of each decision has as
        many retries of its own, for swaps that it loses (docs/commits.md, "Three outcomes").

        Where nothing is to do in a version that others have left behind, the decision is made again
        on the newest: what they added may match. So it is where the snapshot decided on has
        expired: nobody can read it, or tell what came since.

        Args:
            decide: see Decide.
            command: the verb, whose properties say how rows are changed.
            always: commit also a change of nothing.
            decides_again: decide again whatever came between, as long as it is the same table:
                for writes that follow from the rows alone that they find.

        Raises:
            ValidationConflictError: something else came between.
            SnapshotExpiredError: the snapshot decided on, and there are no more retries.
        """
        version = self._table.version
        most = TableProperties(version.metadata.properties).retry_count
        again, source_rows, newest = 0, 0, False
        while True:
            try:
                change = self.decide(decide, command, version)
            except SnapshotExpiredError as error:
                version = self._next(version, error, again < most, decides_again=False)
                again, newest = again + 1, True
                continue
            if not (change or always):
                later = None if newest else self._later(version)
                if later is None:
                    self._table.move_to(version)
                    return Changed(change, None)
                version, newest = later, True
                continue
            source_rows += change.source_rows if again else 0
            try:
                done = self.commit_change(change, version)
                done = replace(done, decided_again=again, rows_decided_again=source_rows)
                return Changed(change, done)
            except (ValidationConflictError, SnapshotExpiredError) as error:
                version = self._next(version, error, again < most, decides_again=decides_again)
            self._discard(self._of_decision)
            self._of_decision = ()
            again, newest = again + 1, True

    def commit_change(self, change: RowChange, version: TableVersion | None = None) -> WriteResult:
        """Commit a change of the rows of a version, by default the table's."""
        self._of_decision = change.written
        transaction = Transaction(
            self._table.catalog,
            self._table.identifier,
            decided_on=version or self._table.version,
            branch=self._branch,
            environment=self._table.environment,
        )
        change.add_to(transaction)
        return self.commit(transaction, rows_inserted=change.inserted, rows_deleted=change.deleted)

    def writer(self, command: Command, version: TableVersion | None = None) -> RowWriter:
        """Writes the files of one decision on a version, by default the table's."""
        version = version or self._table.version
        request = self._table.write_request(version)
        return RowWriter(version.metadata, request, self._table.storage, command)

    def decide(self, decide: Decide, command: Command, version: TableVersion) -> RowChange:
        """A decision about the rows of a version. Raises SnapshotExpiredError."""
        head = head_of(version.metadata, self._branch)
        held = HeldVersion(self._table.catalog, version)
        with (
            held.reading(None if head is None else head.snapshot_id),
            self.writer(command, version) as writer,
        ):
            return decide(TargetRows.of(version, self._branch, self._table.storage), writer)

    def _next(
        self,
        version: TableVersion,
        error: ValidationConflictError | SnapshotExpiredError,
        may_retry: bool,
        *,
        decides_again: bool,
    ) -> TableVersion:
        """The newest version, where deciding on it may help; else raises the error."""
        newest = self._table.catalog.load(self._table.identifier)
        before, now = version.metadata, newest.metadata
        may_help = self._expired(before, now) or (
            isinstance(error, ValidationConflictError)
            and before.table_uuid == now.table_uuid
            and (decides_again or only_moved_rows(before, now, self._branch))
        )
        if not (may_retry and may_help):
            raise error
        return newest

    def _expired(self, before: TableMetadata, after: TableMetadata) -> bool:
        """Whether the snapshot that was decided on is no longer part of the same table."""
        head = head_of(before, self._branch)
        return (
            head is not None
            and before.table_uuid == after.table_uuid
            and all(snapshot.snapshot_id != head.snapshot_id for snapshot in after.snapshots)
        )

    def _later(self, version: TableVersion) -> TableVersion | None:
        """What others have made of the table since; None if nothing."""
        newest = self._table.catalog.refresh(version)
        if newest.metadata_location == version.metadata_location:
            return None
        if newest.metadata.table_uuid != version.metadata.table_uuid:
            raise ValidationConflictError(
                f"Table {self._table.name} was dropped, and another has its name: load it again",
                table=self._table.name,
            )
        return newest

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


def _without_index(
    data: pa.Table | pa.RecordBatch | pa.RecordBatchReader, columns: Collection[str]
) -> pa.Table | pa.RecordBatch | pa.RecordBatchReader:
    if b"pandas" not in (data.schema.metadata or {}):
        return data
    kept = [
        name for name in data.schema.names if name in columns or not _UNNAMED_INDEX.fullmatch(name)
    ]
    if len(kept) == len(data.schema):
        return data
    if not isinstance(data, pa.RecordBatchReader):
        return data.select(kept)
    schema = pa.schema([data.schema.field(name) for name in kept])
    return pa.RecordBatchReader.from_batches(schema, (batch.select(kept) for batch in data))


def _batches(
    items: Iterable[object], table: str, columns: Collection[str]
) -> Iterator[pa.RecordBatch]:
    for item in items:
        if not (hasattr(item, "__arrow_c_stream__") or hasattr(item, "__arrow_c_array__")):
            raise _wrong(f"{type(item).__name__} by {type(item).__name__}", table)
        rows = arrow_rows(item, table, columns)
        if isinstance(rows, pa.RecordBatch):
            yield rows
        else:
            yield from rows.to_batches() if isinstance(rows, pa.Table) else rows


def _wrong(given: str, table: str) -> InvalidInputError:
    return InvalidInputError(
        f"{table}: rows come as a table, batch or stream of Arrow (pyarrow, Polars, pandas, "
        f"DuckDB, a scan), several of these, or a Spark DataFrame, not {given}; a list of "
        "dictionaries becomes a table with pyarrow.Table.from_pylist(rows), a LazyFrame a frame "
        "with collect()",
        table=table,
    )


class WriteVerbs(LoadedTable):
    """Each verb is one commit, and moves the table to the version that it made."""

    @cached_property
    def _tails(self) -> dict[str, Tail]:
        """Of each branch that this object has appended to."""
        return {}

    def append(
        self,
        data: object,
        *,
        branch: str = "main",
        summary: Mapping[str, str] | None = None,
        commit_id: str | None = None,
    ) -> WriteResult:
        """Add rows.

        >>> result = events.append(more)
        >>> result.rows_inserted, events.scan().count()
        (1, 4)
        >>> _ = events.append(events.scan(where="user_id = 1"), branch="audit")
        >>> events.scan().count(), events.scan(ref="audit").count()
        (4, 6)

        Args:
            data: anything that exports Arrow's C interfaces (a pyarrow table, batch or stream, a
                Polars or pandas frame, a DuckDB relation, a scan, also of this table), several of
                these, a Spark DataFrame, or WrittenFiles.
            branch: the branch to write to.
            summary: entries for the snapshot's summary.
            commit_id: a name for this write. A branch commits a name once, however often the
                write is repeated.

        Raises:
            InvalidSchemaError: the data does not fit the schema.
            CommitError: see `lakehouse.errors`.
        """
        with RowWrite(self, branch, summary, commit_id) as write:
            if (done := write.replayed()) is not None:
                return done
            new = self._new_files(data, write)
            done = write.commit(
                self.transaction(branch=branch).append(new),
                rows_inserted=rows_of(new),
                rows_deleted=0,
            )
        self._join_tail(branch, new)
        return done

    def add_files(
        self,
        paths: Iterable[str],
        *,
        branch: str = "main",
        summary: Mapping[str, str] | None = None,
        commit_id: str | None = None,
    ) -> WriteResult:
        """Add Parquet files without field ids where they are; they are read by column name.

        >>> import pyarrow.parquet as pq
        >>> pq.write_table(more, f"{folder}/landed.parquet")
        >>> events.add_files([f"{folder}/landed.parquet"]).rows_inserted
        1

        Files in the table's own folders belong to the table from then on: when no snapshot reaches
        one any more, expiry deletes it. Files elsewhere are never deleted.

        Raises:
            InvalidInputError | InvalidSchemaError: see `row_changes.add_files`.
            ValidationConflictError: another writer has added one of the files since this version.
        """
        return self._take_in(partial(describe_paths, list(paths)), branch, summary, commit_id)

    def import_hive(
        self,
        path: str,
        *,
        partitions: Mapping[str, str] | None = None,
        branch: str = "main",
        summary: Mapping[str, str] | None = None,
        commit_id: str | None = None,
    ) -> WriteResult:
        """Add the Parquet files of a Hive-style folder (`dt=2026-06-09/region=eu/`) where they are.

        Partition values come from the paths; `partitions`: only files of which they say this.

        >>> visits = lake.create_table(
        ...     "raw.visits",
        ...     pa.schema({"n": pa.int64(), "city": pa.string()}),
        ...     partition_by=["city"],
        ... )
        >>> import pyarrow.parquet as pq
        >>> for city in ("Oslo", "Rome"):
        ...     Path(folder, "visits", f"city={city}").mkdir(parents=True)
        ...     pq.write_table(pa.table({"n": [1]}), f"{folder}/visits/city={city}/part-0.parquet")
        >>> visits.import_hive(f"{folder}/visits").rows_inserted
        2
        >>> sorted(visits.scan().to_arrow()["city"].to_pylist())
        ['Oslo', 'Rome']
        """
        described = partial(describe_hive, path, partitions or {})
        return self._take_in(described, branch, summary, commit_id)

    def overwrite(
        self,
        data: object,
        where: Where = None,
        *,
        must_match: bool = False,
        branch: str = "main",
        summary: Mapping[str, str] | None = None,
        commit_id: str | None = None,
    ) -> WriteResult:
        """Replace the rows that match `where` (all rows by default) by `data`, atomically.

        >>> result = events.overwrite(more, where="event_ts < '2026-06-02'")
        >>> result.rows_inserted, result.rows_deleted, events.scan().count()
        (1, 2, 2)

        Of files that hold other rows too, the matching ones are removed as `delete` removes them
        (`write.delete.mode`).

        Arguments as for `append`. As with Spark's `overwrite(condition)`, rows of `data` need not
        match `where`: what does not match is added, and added again when it is run again. With
        `must_match` such rows are refused (Iceberg's `validateAddedFilesMatchOverwriteFilter`).

        Raises:
            InvalidInputError: with `must_match`, rows do not match `where`.
            ValidationConflictError: a concurrent commit changed rows that this overwrite decided
                on. Compaction changes none.
        """
        bind(where, self.schema())
        with RowWrite(self, branch, summary, commit_id) as write:
            if (done := write.replayed()) is not None:
                return done
            new = self._new_files(data, write)
            if must_match:
                refuse_other_rows(
                    new, bind(where, self.schema()), self.metadata, self.storage, self.name
                )

            def decide(target: TargetRows, writer: RowWriter) -> RowChange:
                writer.take(new)
                change = delete_rows(target, bind(where, target.schema), writer)
                return replace(change, inserted=rows_of(new))

            return write.change_rows(decide, "overwrite", always=True).committed

    def delete(
        self,
        where: Where,
        *,
        branch: str = "main",
        summary: Mapping[str, str] | None = None,
        commit_id: str | None = None,
    ) -> WriteResult | None:
        """Remove the rows for which `where` is true; rows for which it is unknown (null) stay.

        >>> events.delete(where="user_id = 2").rows_deleted
        1
        >>> events.delete(where="user_id = 99") is None
        True

        `write.delete.mode` decides between rewriting files (copy-on-write, the default) and delete
        files (merge-on-read).

        Returns:
            None when no row matched and nothing was committed.
        """

        def decide(target: TargetRows, writer: RowWriter) -> RowChange:
            return delete_rows(target, bind(where, target.schema), writer)

        with RowWrite(self, branch, summary, commit_id) as write:
            if (done := write.replayed()) is not None:
                return done
            bind(where, self.schema())
            return write.change_rows(decide, "delete").result

    def write_files(self, data: object) -> list[DataFile]:
        """Write data files without committing them; commit them with a transaction.

        >>> files = events.write_files(more)
        >>> events.scan().count()
        3
        >>> events.append(lh.WrittenFiles(tuple(files))).rows_inserted
        1

        Args:
            data: as for `append`.
        """
        if isinstance(data, WrittenFiles):
            return list(data.files)
        engine = engine_for(data)
        if engine is not None:
            return engine.write_data_files(data, self.write_request(), self.storage)
        rows = arrow_rows(data, self.name, self.schema().column_names)
        return write_all(rows, self.write_request(), self.storage)

    def _new_files(self, data: object, write: RowWrite) -> list[DataFile]:
        """Data files of rows, which go with the write where they were written for it."""
        new = self.write_files(data)
        if not isinstance(data, WrittenFiles) or data.disposable:
            write.files += new
        return new

    def _join_tail(self, branch: str, files: list[DataFile]) -> None:
        """What `lakehouse.write.join-files` asks for, unless the catalog's server does it."""
        width = TableProperties(self.metadata.properties).write_join_files
        if not width or self.catalog.appender(self.identifier) is not None:
            return
        tail = self._tails.setdefault(branch, Tail(branch))
        tail.width = width
        if tail.grew(self.catalog, self.version, files, self.environment):
            self.refresh()

    def _take_in(
        self,
        describe: Callable[[TableMetadata, int | None, Storage, str], AddedFiles],
        branch: str,
        summary: Mapping[str, str] | None,
        commit_id: str | None,
    ) -> WriteResult:
        write = RowWrite(self, branch, summary, commit_id)
        if (done := write.replayed()) is not None:
            return done

        def read() -> AddedFiles:
            head = head_of(self.metadata, branch)
            snapshot_id = None if head is None else head.snapshot_id
            return describe(self.metadata, snapshot_id, self.storage, self.name)

        added = of_newest(self, read, branch)
        return write.commit(
            added.add_to(self.transaction(branch=branch)),
            rows_inserted=rows_of(added.files),
            rows_deleted=0,
        )


def rows_of(files: Iterable[DataFile]) -> int:
    """How many rows new data files hold."""
    return sum(file.record_count for file in files)
