"""Making key filters: which data files surely lack a key (`lakehouse.data.statistics`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from lakehouse.catalog.catalog_protocol import Catalog
from lakehouse.catalog.confinement import check_table
from lakehouse.data.reading.scan_reader import ReadRequest, read_tasks
from lakehouse.data.statistics.key_filters import (
    BLOB_TYPE,
    CHECKSUM,
    KEYS_AS,
    SplitBlockFilter,
    checksum,
    encode_filters,
    key_hashes,
    keys_as,
    load_key_filters,
)
from lakehouse.environment import Environment
from lakehouse.errors import InvalidInputError, InvalidSchemaError
from lakehouse.expressions.bound_filter import TRUE
from lakehouse.maintenance.shown_plan import Report, human_bytes
from lakehouse.maintenance.statistics_file import NewBlob, attach_statistics, statistics_snapshot
from lakehouse.scan.planner import ScanRequest, plan_scan
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.storage.storage_protocol import Storage
from lakehouse.transaction.transaction import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFilterPlan(Report):
    """What making filters would read.

    Attributes:
        identifier: the table.
        snapshot_id: whose files.
        columns: their names.
        files: how many data files there are.
        files_read: for how many of them a column lacks a filter.
        rows_read: of these.
    """

    identifier: Identifier
    snapshot_id: int
    columns: tuple[str, ...]
    files: int
    files_read: int
    rows_read: int
    action_name: ClassVar[str] = "analyze-keys"

    def title(self) -> str:
        return f"Key filters of {self.identifier}"

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "snapshot", str(self.snapshot_id)
        yield "columns", ", ".join(self.columns)
        yield "files", self.files
        yield "files to read", f"{self.files_read:,}, {self.rows_read:,} rows; others have filters"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFilterResult(KeyFilterPlan):
    """Filters that were made.

    Attributes:
        location: of the statistics file.
        bytes: its size.
    """

    location: str
    bytes: int

    def to_dict(self) -> dict[str, object]:
        document = KeyFilterPlan.to_dict(self)
        return {"statistics_file": document.pop("location"), **document}

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "snapshot", str(self.snapshot_id)
        yield "columns", ", ".join(self.columns)
        yield "files", self.files
        yield "files read", f"{self.files_read:,}, {self.rows_read:,} rows; others had filters"
        yield "statistics file", self.location
        yield "size", human_bytes(self.bytes)


@dataclass(frozen=True, slots=True)
class _Work:
    """What is there, and what has to be read, by field id."""

    snapshot: Snapshot
    fields: tuple[NestedField, ...]
    tasks: Sequence[FileScanTask]
    filters: Mapping[int, Mapping[str, SplitBlockFilter]]

    def lacking(self, field: NestedField) -> list[FileScanTask]:
        filters = self.filters[field.field_id]
        return [task for task in self.tasks if task.data_file.file_path not in filters]

    def plan(self, table: Identifier) -> KeyFilterPlan:
        read = {
            task.data_file.file_path: task.data_file.record_count
            for field in self.fields
            for task in self.lacking(field)
        }
        return KeyFilterPlan(
            identifier=table,
            snapshot_id=self.snapshot.snapshot_id,
            columns=tuple(field.name for field in self.fields),
            files=len(self.tasks),
            files_read=len(read),
            rows_read=sum(read.values()),
        )


def plan_key_filters(
    catalog: Catalog,
    identifier: Identifier | str,
    columns: Sequence[str],
    *,
    snapshot_id: int | None = None,
) -> KeyFilterPlan:
    """What `compute_key_filters` would read; changes nothing. Arguments and errors as there."""
    table = Identifier.parse(identifier)
    metadata = catalog.load(table).metadata
    storage = catalog.storage(metadata.location)
    return _work(metadata, table, columns, snapshot_id, storage).plan(table)


def compute_key_filters(
    catalog: Catalog,
    identifier: Identifier | str,
    columns: Sequence[str],
    *,
    snapshot_id: int | None = None,
    environment: Environment | None = None,
) -> KeyFilterResult:
    """Make a filter of the values of columns for each data file, in the snapshot's statistics file.

    Merges and upserts of few keys leave out the files that surely have none of them. Files that
    have a filter since an earlier snapshot are not read again. Two bytes a key and file are kept;
    the column of one file is read at a time.

    Args:
        catalog: where the table is.
        identifier: the table.
        columns: top-level columns of whole numbers, text, binary, uuid or dates.
        snapshot_id: whose files; the current one when None.
        environment: clock and ids.

    Raises:
        InvalidInputError: the table has no snapshot, or no column is named.
        InvalidSchemaError: a name is no such column.
        NoSuchSnapshotError: no such snapshot.
        InvalidLocationError: the table's metadata says to write outside the warehouse.
    """
    table = Identifier.parse(identifier)
    env = environment if environment is not None else Environment.system()
    version = catalog.load(table)
    check_table(catalog, version.metadata)
    storage = catalog.storage(version.metadata.location)
    work = _work(version.metadata, table, columns, snapshot_id, storage)
    blobs = [_blob(work, field, version.metadata, storage) for field in work.fields]
    transaction = Transaction(catalog, table, decided_on=version, environment=env)
    written = attach_statistics(transaction, work.snapshot, blobs, storage, env)
    plan = work.plan(table)
    return KeyFilterResult(
        identifier=table,
        snapshot_id=plan.snapshot_id,
        columns=plan.columns,
        files=plan.files,
        files_read=plan.files_read,
        rows_read=plan.rows_read,
        location=written.location,
        bytes=written.bytes,
    )


def _work(
    metadata: TableMetadata,
    table: Identifier,
    columns: Sequence[str],
    snapshot_id: int | None,
    storage: Storage,
) -> _Work:
    snapshot = statistics_snapshot(metadata, snapshot_id, table)
    fields = _fields(metadata.schema(), columns, str(table))
    request = ScanRequest(metadata=metadata, snapshot_id=snapshot.snapshot_id, current_schema=True)
    filters = {
        field.field_id: load_key_filters(
            metadata, snapshot.snapshot_id, field.field_id, field.field_type, storage
        ).by_file
        for field in fields
    }
    return _Work(snapshot, fields, plan_scan(request, storage).tasks, filters)


def _fields(schema: Schema, columns: Sequence[str], table: str) -> tuple[NestedField, ...]:
    if isinstance(columns, str) or not columns:
        raise InvalidInputError(f"{table}: columns is a list of columns, not {columns!r}")
    possible = {
        field.name: field for field in schema.fields if keys_as(field.field_type) is not None
    }
    if unknown := [column for column in columns if column not in possible]:
        raise InvalidSchemaError(
            f"{table}: there are no filters of {', '.join(unknown)}: of columns of whole numbers, "
            f"text, binary, uuid or dates alone, which are {', '.join(possible) or 'none'}"
        )
    return tuple(possible[column] for column in dict.fromkeys(columns))


def _blob(work: _Work, field: NestedField, metadata: TableMetadata, storage: Storage) -> NewBlob:
    made = dict(work.filters[field.field_id])
    read = replace(ReadRequest.of(metadata, Schema(field)), batch_rows=131_072)
    for task in work.lacking(field):
        # of all rows: a rollback brings deleted ones back
        every = replace(task, deletes=(), residual=TRUE)
        hashes = [
            key_hashes(batch.column(0), field.field_type)
            for batch in read_tasks([every], read, storage)
        ]
        made[task.data_file.file_path] = SplitBlockFilter.of(
            np.concatenate([np.empty(0, np.uint64), *hashes])
        )
    live = [task.data_file.file_path for task in work.tasks]
    payload = encode_filters({path: made[path] for path in live})
    properties = {KEYS_AS: str(keys_as(field.field_type)), CHECKSUM: checksum(payload)}
    return NewBlob(BLOB_TYPE, field.field_id, payload, properties)
