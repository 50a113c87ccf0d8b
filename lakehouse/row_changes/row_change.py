"""What a write does to the rows of one version of a table, as a value, and the files it needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakehouse.data.reading.scan_reader import ReadRequest, RowReader, read_table
from lakehouse.data.writing.data_file_writer import DataFileWriter, WriteRequest, write_data_files
from lakehouse.data.writing.delete_writer import FileDeletes, write_deletes
from lakehouse.errors import InvalidInputError
from lakehouse.expressions.bound_filter import TRUE, Bound
from lakehouse.expressions.filter_text import describe
from lakehouse.scan.pruning.entry_pruning import must_match
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import (
    CONTENT_POSITION_DELETES,
    STATUS_ADDED,
    DataFile,
    ManifestEntry,
)
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.metadata.table_metadata import TableMetadata, types_of
from lakehouse.spec.schema.iceberg_types import METADATA_COLUMNS, fields_by_id, with_lineage
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.storage_protocol import Storage
from lakehouse.transaction.decided_rows import DecidedRows, KeyTest, Positions
from lakehouse.transaction.deletion_vectors import VECTORS_SINCE
from lakehouse.transaction.operations.metadata_changes import MetadataChange
from lakehouse.transaction.table_change import Isolation
from lakehouse.transaction.transaction import Transaction

Command = Literal["delete", "overwrite", "update", "merge"]
Mode = Literal["copy-on-write", "merge-on-read"]

POSITION = NestedField(
    METADATA_COLUMNS["_pos"].field_id, "_pos of the file", LongType(), required=True
)
"""Of rows in their file, beside columns of the table, which may have any name."""
_NOTHING: Positions = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """What a write does to the rows of one version of a table; its files are written.

    Attributes:
        command: the verb.
        decided_on: the version.
        mode: `copy-on-write` rewrites files without the rows that go, `merge-on-read` leaves files
            and writes deletes beside them.
        added: new data files: new rows, new versions of rows, and rows that stay of rewritten
            files.
        written: files that were written for this decision alone, and that only a commit reaches.
        removed: data files that go, because every row of them does or because they are rewritten.
        deletes: new position delete files (version 2; the commit writes deletion vectors).
        rows: rows that go from files that stay, and rows that were only read, by data file.
        where: passes every row that, had it been there, might have changed the outcome; None: the
            partitions of the files.
        keys: which of these rows would have; None is all of them.
        isolation: what concurrent commits may have done; see `Transaction.overwrite`.
        opened: data files that may hold rows it is about, and were read.
        inserted: how many rows are new.
        updated: how many rows have a new version.
        deleted: how many rows go without one; None where a file that goes whole has deletes, which
            were not read.
        source_rows: how many rows of a source were decided on.
        passed_over: how many of these take no effect, though there are rows of their keys.
        before: changes of columns and properties in the same commit.
        check: an assumption about something outside the table; see `Transaction.assume`.
    """

    command: Command
    decided_on: TableMetadata
    mode: Mode
    added: tuple[DataFile, ...] = ()
    written: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    deletes: tuple[DataFile, ...] = ()
    rows: tuple[DecidedRows, ...] = ()
    where: Bound | None = None
    keys: KeyTest | None = None
    isolation: Isolation | None = None
    opened: tuple[DataFile, ...] = ()
    inserted: int = 0
    updated: int = 0
    deleted: int | None = 0
    source_rows: int = 0
    passed_over: int = 0
    before: tuple[MetadataChange, ...] = ()
    check: Callable[[], None] | None = None

    def __bool__(self) -> bool:
        return bool(self.inserted or self.added or self.files_losing_rows)

    @property
    def files_losing_rows(self) -> int:
        """How many data files have rows that go or are replaced."""
        return len(self.removed) + sum(1 for rows in self.rows if len(rows.gone))

    def add_to(self, transaction: Transaction) -> None:
        """Add the change to a transaction: one snapshot, or two that become visible together.

        Two are made where merge on read removes files whole and deletes rows of others. A change
        of nothing is an empty snapshot.
        """
        for change in self.before:
            transaction.update(change.updates, change.requirements)
        by_position = any(len(rows.gone) for rows in self.rows)
        in_place = self.command in ("update", "merge")
        if by_position or (in_place and (self.mode == "merge-on-read" or not self)):
            if self.removed:
                self._delete_files(transaction)
            transaction.row_delta(
                self.added,
                self.deletes,
                rows=self.rows,
                conflict_filter=self.where,
                isolation=self.isolation,
                keys=self.keys,
            )
        elif self.command == "delete" and not self.added:
            self._delete_files(transaction)
        else:
            transaction.overwrite(
                self.added,
                self.removed,
                conflict_filter=self.where,
                isolation=self.isolation,
                keys=self.keys,
                rows=self.rows,
            )
        if self.check is not None:
            transaction.assume(self.check)

    def _delete_files(self, transaction: Transaction) -> None:
        transaction.delete_files(self.removed, conflict_filter=self.where, isolation=self.isolation)


def change_mode(metadata: TableMetadata, command: Command) -> Mode:
    """How a command changes rows of files that keep others: `write.<command>.mode`.

    For an overwrite it is that of deletes.
    """
    properties = TableProperties(metadata.properties)
    match command:
        case "delete" | "overwrite":
            return cast("Mode", properties.delete_mode)
        case "update":
            return cast("Mode", properties.update_mode)
        case "merge":
            return cast("Mode", properties.merge_mode)


def change_isolation(metadata: TableMetadata, command: Command) -> Isolation:
    """What may happen beside a command: `write.<command>.isolation-level`.

    For an overwrite it is that of updates.
    """
    properties = TableProperties(metadata.properties)
    match command:
        case "delete":
            return cast("Isolation", properties.delete_isolation)
        case "overwrite" | "update":
            return cast("Isolation", properties.update_isolation)
        case "merge":
            return cast("Isolation", properties.merge_isolation)


class RowWriter:
    """Writes the files of one decision: `with RowWriter(...)`, which leaves none where it fails.

    New rows come a batch at a time, and so do those that stay of a file that is rewritten: what is
    held is what the data file writer has waiting (`lakehouse.write.buffer-bytes`), the batches
    that the reader decodes ahead, and the positions of rows that go.

    Args:
        metadata: the version decided on.
        request: how new files are written; None writes nothing: the change is a plan.
        storage: where files are.
        command: the verb.
    """

    def __init__(
        self,
        metadata: TableMetadata,
        request: WriteRequest | None,
        storage: Storage,
        command: Command,
    ) -> None:
        self._decided_on = metadata
        self._storage = storage
        self._command = command
        self._mode = change_mode(metadata, command)
        self._fresh: DataFileWriter | None = None
        self._own_columns: range | None = None
        self._taken: list[DataFile] = []
        self._added: list[DataFile] = []
        self._deletes: list[DataFile] = []
        self._dropped: list[DataFile] = []
        self._rewritten: list[DataFile] = []
        self._gone: dict[str, tuple[FileScanTask, Positions]] = {}
        self._read: dict[str, tuple[FileScanTask, Positions]] = {}
        self._write_for(metadata, request)

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._fresh is not None:
            self._fresh.abort()
        if error is not None:
            files = (*self._added, *self._deletes)
            self._storage.delete([file.file_path for file in files])

    def with_columns(self, metadata: TableMetadata) -> None:
        """Write for the columns that the same commit gives the table."""
        request = self._request
        self._write_for(metadata, request and replace(request, schema=metadata.schema()))

    def take(self, files: Iterable[DataFile]) -> None:
        """Add data files that are written already; they stay where the decision fails."""
        self._taken += files

    def write(self, rows: Iterable[pa.RecordBatch], *, versions: bool) -> None:
        """Write new rows, and new versions of rows.

        Args:
            rows: in the table's schema, with row lineage from version 3 on.
            versions: whether there are, or will be, new versions of rows, which keep their row
                ids. What the first call says counts.
        """
        for batch in rows:
            if self._request is None:
                continue
            if self._fresh is None:
                request = self._lineage if versions else self._request
                self._own_columns = None if versions else range(len(request.schema.fields))
                self._fresh = DataFileWriter(request, self._storage, task="changed")
            own = self._own_columns
            self._added += self._fresh.write(batch if own is None else batch.select(own))

    def drop(self, task: FileScanTask) -> None:
        """Remove a file whole, by metadata alone."""
        self._dropped.append(task.data_file)

    def remove(self, task: FileScanTask, gone: Positions, number: int) -> None:
        """Remove rows of a file: it is rewritten without them, or stays with deletes beside it.

        New rows are written before.

        Args:
            task: the file, as it was planned.
            gone: positions of live rows.
            number: tells apart the files of one decision.
        """
        self._finish_fresh()
        if self._mode == "merge-on-read" or self._request is None:
            self._gone[task.data_file.file_path] = (task, gone)
            return
        self.rewrite(task, gone, number)

    def rewrite(self, task: FileScanTask, gone: Positions, number: int) -> None:
        """Write a file again without some rows, whatever the mode; see `remove`."""
        if self._request is None:
            raise AssertionError("a plan writes no files")
        self._rewritten.append(task.data_file)
        if len(gone) != task.live_rows:
            staying = self._staying_rows(task, gone)
            request = self._in_place(task.data_file)
            for file in write_data_files(staying, request, self._storage, task=f"keep{number}"):
                self._added.append(file)

    def note_read(self, task: FileScanTask, positions: Positions) -> None:
        """Note rows that stay, but must not go: another decision hangs on them."""
        self._read[task.data_file.file_path] = (task, positions)

    def change(
        self, where: Bound | None, *, keys: KeyTest | None = None, **counts: Any
    ) -> RowChange:
        """The change; nothing more is written then.

        Args:
            where: see RowChange.
            keys: see RowChange.
            counts: see RowChange.
        """
        self._finish_fresh()
        rows = tuple(self._decided())
        if self._request is not None and self._metadata.format_version < VECTORS_SINCE:
            self._write_deletes([row for row in rows if len(row.gone)], self._request)
        return RowChange(
            command=self._command,
            decided_on=self._decided_on,
            mode=self._mode,
            added=(*self._taken, *self._added),
            written=(*self._added, *self._deletes),
            removed=(*self._dropped, *self._rewritten),
            deletes=tuple(self._deletes),
            rows=rows,
            where=where,
            keys=keys,
            isolation=change_isolation(self._decided_on, self._command),
            **counts,
        )

    def _write_for(self, metadata: TableMetadata, request: WriteRequest | None) -> None:
        self._metadata, self._request = metadata, request
        if request is not None:
            # rows that were there before keep their row ids
            stored = with_lineage(request.schema, request.format_version)
            self._lineage = replace(request, schema=stored)
            positioned = ReadRequest.of(metadata, Schema(*stored.fields, POSITION))
            self._positioned = RowReader(positioned, self._storage)

    def _in_place(self, file: DataFile) -> WriteRequest:
        """How rows that stay are written: to the partition that they are in, of whatever spec.

        A spec of columns that are gone is given up for the table's.
        """
        spec = self._metadata.spec(file.spec_id)
        there = fields_by_id(self._lineage.schema.fields)
        if any(field.source_id not in there for field in spec.fields):
            return self._lineage
        return replace(self._lineage, spec=spec)

    def _finish_fresh(self) -> None:
        if self._fresh is not None:
            self._added += self._fresh.finish()

    def _staying_rows(self, task: FileScanTask, gone: Positions) -> Iterator[pa.RecordBatch]:
        """The live rows of a file without those at some positions."""
        ordered = np.sort(gone)
        for batch in self._positioned.read([replace(task, residual=TRUE)]):
            positions = positions_of(batch)
            if not len(positions):
                continue
            first, end = np.searchsorted(ordered, [positions.min(), positions.max() + 1])
            stay = ~np.isin(positions, ordered[first:end])
            if stay.any():
                yield batch.select(range(batch.num_columns - 1)).filter(pa.array(stay))

    def _decided(self) -> Iterator[DecidedRows]:
        """Rows that go from files that stay, and rows that were only read, by file."""
        rewritten = {file.file_path for file in self._rewritten}
        for path, (task, gone) in self._gone.items():
            yield _decided_rows(task, gone, self._read.get(path, (task, _NOTHING))[1])
        for path, (task, read) in self._read.items():
            if path not in self._gone and path not in rewritten:
                yield _decided_rows(task, _NOTHING, read)

    def _write_deletes(self, rows: Sequence[DecidedRows], request: WriteRequest) -> None:
        by_spec: dict[int, list[FileDeletes]] = defaultdict(list)
        for row in rows:
            by_spec[row.data_file.spec_id].append(FileDeletes(row.data_file, row.gone))
        for spec_id, files in by_spec.items():
            of_spec = replace(request, spec=self._metadata.spec(spec_id))
            self._deletes += write_deletes(files, of_spec, self._storage, task=f"deletes{spec_id}")


def _decided_rows(task: FileScanTask, gone: Positions, read: Positions) -> DecidedRows:
    by_position = (delete for delete in task.deletes if delete.content == CONTENT_POSITION_DELETES)
    return DecidedRows(task.data_file, gone, read, tuple(by_position))


def positions_of(rows: pa.Table | pa.RecordBatch) -> Positions:
    """Positions of rows in their file, from the column `POSITION`."""
    return np.asarray(rows[POSITION.name]).astype(np.int64)


def refuse_other_rows(
    files: Iterable[DataFile],
    where: Bound,
    metadata: TableMetadata,
    storage: Storage,
    table: str,
) -> None:
    """Refuse data files with rows for which `where` is not true.

    Partition values and metrics tell for most files. Of the others the columns of the filter are
    read: a bound that was cut short refuses nothing.

    Args:
        files: new data files of the table's present schema, no row of them deleted.
        where: the filter, bound to the table's schema.
        metadata: of the table.
        storage: where the files are.
        table: its name, for messages.

    Raises:
        InvalidExpressionError: a function of the filter cannot be computed for a row.
        InvalidInputError: rows for which it is false or unknown (null).
        StorageError | CorruptMetadataError: a file could not be read.
    """
    types = types_of(metadata)
    by_spec: defaultdict[int, list[DataFile]] = defaultdict(list)
    for written in files:
        by_spec[written.spec_id].append(written)
    for spec_id, group in by_spec.items():
        entries = Entries.from_manifest_entries(
            [ManifestEntry(status=STATUS_ADDED, data_file=file) for file in group],
            metadata.spec(spec_id),
            types,
        )
        proven = must_match(entries, where, types)
        for file in (file for file, known in zip(group, proven, strict=True) if not known):
            others = file.record_count - _matching(file, where, metadata, storage)
            if others:
                raise InvalidInputError(
                    f"Table {table}: {others} of {file.record_count} rows of a new file do not "
                    f"match the filter of the overwrite, {describe(where)}. They would be there "
                    "twice after a second run: leave them out, widen the filter, or append them.",
                    table=table,
                    file=file.file_path,
                )


def _matching(file: DataFile, where: Bound, metadata: TableMetadata, storage: Storage) -> int:
    read = ReadRequest.of(metadata, Schema(METADATA_COLUMNS["_pos"]), where=where)
    task = FileScanTask.whole(file)
    return int(read_table([task], read, storage).num_rows)
