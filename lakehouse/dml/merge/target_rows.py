"""The rows of a table that a MERGE or UPDATE looks at, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakehouse.data.reading.scan_reader import METADATA_COLUMNS, ReadRequest, RowReader
from lakehouse.data.statistics.key_filters import KeyFilters, load_key_filters
from lakehouse.data.writing.input_columns import coerce
from lakehouse.dml.merge.term_columns import PairedRows
from lakehouse.dml.merge_on_read import POSITION, positions_of
from lakehouse.expressions.bound_filter import TRUE, Bound
from lakehouse.expressions.filter_terms import Column, Term
from lakehouse.scan.planner import plan_scan
from lakehouse.scan.scan_request import ScanRequest
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.schema.iceberg_types import fields_by_id
from lakehouse.spec.schema.metadata_columns import ROW_ID, with_lineage
from lakehouse.spec.types.arrow_types import no_rows, schema_to_arrow
from lakehouse.storage.storage_protocol import Storage
from lakehouse.transaction.decided_rows import KeyTest, Positions

_ROW_ID = NestedField(METADATA_COLUMNS[ROW_ID].field_id, "_row_id of the row", LongType())
_BATCH_ROWS = 131_072


@dataclass(slots=True)
class RowChanges:
    """What a MERGE or UPDATE does to the rows of one version of a table.

    `rows` come as they are computed, and can be read once; the numbers and positions are complete
    when the last of them is read.

    Attributes:
        rows: new rows, and new versions of rows, in the table's schema (with row lineage from v3).
        conflict_filter: passes every row that, had it been there, might have changed the outcome.
        keys: which of these rows would have; None is all of them.
        gone: files as they were planned, with the positions of rows that are deleted or replaced.
        seen: files as they were planned, with the positions of rows that stay as they are, and for
            which a source row was not inserted.
        updated: how many rows have a new version.
        deleted: how many rows go without one.
        inserted: how many rows are new.
        opened: data files that may hold rows it is about, and were read.
        passed_over: how many source rows matched, without any clause acting on the match.
        source_rows: how many source rows were decided on.
        carries_row_ids: whether `rows` may hold new versions of rows; with the first of them, at
            the latest, it is known.
    """

    rows: Iterator[pa.RecordBatch] = field(default_factory=lambda: iter(()))
    conflict_filter: Bound = TRUE
    keys: KeyTest | None = None
    gone: list[tuple[FileScanTask, Positions]] = field(default_factory=list)
    seen: list[tuple[FileScanTask, Positions]] = field(default_factory=list)
    updated: int = 0
    deleted: int = 0
    inserted: int = 0
    opened: list[DataFile] = field(default_factory=list)
    passed_over: int = 0
    source_rows: int = 0
    carries_row_ids: bool = False

    def __bool__(self) -> bool:
        return bool(self.gone or self.inserted)


class TargetRows:
    """The rows of one version of a table, file by file.

    Args:
        metadata: the version.
        snapshot_id: the snapshot whose rows are looked at; None is an empty table.
        storage: where the files are.
        table: its name, for messages.
    """

    def __init__(
        self, metadata: TableMetadata, snapshot_id: int | None, storage: Storage, table: str
    ) -> None:
        self.metadata = metadata
        self.schema = metadata.schema()
        self.table = table
        self._snapshot_id = snapshot_id
        self._storage = storage
        self._readers: dict[tuple[int, int, int | None], tuple[Schema, Bound, RowReader]] = {}
        self._stored = with_lineage(self.schema, metadata.format_version)
        self._lineage = [one.name for one in self._stored.fields[len(self.schema.fields) :]]

    def tasks(
        self, where: Bound, choose: Callable[..., Sequence[FileScanTask]] | None = None
    ) -> Iterator[FileScanTask]:
        """The files that may hold rows that pass; `choose` takes some of a plan's."""
        if self._snapshot_id is None:
            return
        request = ScanRequest(
            metadata=self.metadata,
            snapshot_id=self._snapshot_id,
            current_schema=True,
            where=where,
            include_metrics=True,
        )
        plan = plan_scan(request, self._storage)
        yield from plan.tasks if choose is None else choose(plan)

    def key_filters(self, field: Column, most_bytes: int) -> KeyFilters:
        """The key filters of a column, see `load_key_filters`."""
        return load_key_filters(
            self.metadata,
            self._snapshot_id,
            field.field_id,
            field.type,
            self._storage,
            most_bytes=most_bytes,
        )

    def columns(self, field_ids: Iterable[int]) -> Schema:
        """What `batches` gives: whole top-level columns, the row id from v3 on, the position."""
        lineage = [_ROW_ID] if self._lineage else []
        return Schema(*top_level(self.schema, field_ids).fields, *lineage, POSITION)

    def batches(
        self,
        task: FileScanTask,
        columns: Schema,
        where: Bound = TRUE,
        *,
        threads: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The live rows of a file, in their order.

        Args:
            task: the file.
            columns: from `columns`.
            where: leaves others out.
            threads: see ReadRequest.
        """
        key = (id(columns), id(where), threads)
        if key not in self._readers:
            read = ReadRequest.of(self.metadata, columns, where=where, threads=threads)
            reader = RowReader(replace(read, batch_rows=_BATCH_ROWS), self._storage)
            self._readers[key] = (columns, where, reader)
        yield from self._readers[key][-1].read([replace(task, residual=TRUE)])

    def beside_nothing(self, rows: pa.Table, columns: Schema, source: Schema) -> PairedRows:
        """Rows of the target without rows of the source."""
        return PairedRows(rows.num_rows, rows, columns, None, source)

    def changed(self, rows: PairedRows, values: Mapping[str, Term]) -> Iterator[pa.RecordBatch]:
        """New versions of rows: assigned columns from `values`, others as they are."""
        old = target_of(rows)
        columns = {
            one.name: rows.values(values[one.name]) if one.name in values else old[one.name]
            for one in self.schema.fields
        }
        if self._lineage:  # the row keeps its id; null is the number of the commit
            columns[self._lineage[0]] = old[_ROW_ID.name]
        yield from self._fitting(columns)

    def new(self, rows: PairedRows, values: Mapping[str, Term]) -> Iterator[pa.RecordBatch]:
        """New rows; columns without a value have their default."""
        yield from self._fitting({name: rows.values(one) for name, one in values.items()})

    def _fitting(self, columns: Mapping[str, pa.Array]) -> Iterator[pa.RecordBatch]:
        yield from coerce(pa.table(dict(columns)), self._stored, table=self.table)

    @property
    def every_column(self) -> Schema:
        """All columns, as `batches` gives them."""
        return self.columns(one.field_id for one in self.schema.fields)


def update_rows(target: TargetRows, where: Bound, values: Mapping[str, Term]) -> RowChanges:
    """New versions of the rows that pass `where`.

    Its `rows` raise InvalidExpressionError, InvalidSchemaError.
    """
    changes = RowChanges(conflict_filter=where, carries_row_ids=True)
    changes.rows = _updated(target, where, values, changes)
    return changes


def _updated(
    target: TargetRows, where: Bound, values: Mapping[str, Term], changes: RowChanges
) -> Iterator[pa.RecordBatch]:
    columns, no_source = target.every_column, Schema()
    for task in target.tasks(where):
        changes.opened.append(task.data_file)
        gone = []
        for batch in target.batches(task, columns, where):
            rows = pa.Table.from_batches([batch])
            yield from target.changed(target.beside_nothing(rows, columns, no_source), values)
            gone.append(positions_of(rows))
            changes.updated += rows.num_rows
        if gone:
            changes.gone.append((task, np.concatenate(gone)))


def top_level(schema: Schema, field_ids: Iterable[int]) -> Schema:
    """The whole top-level columns that some fields are in."""
    wanted = set(field_ids)
    return Schema(*(one for one in schema.fields if not wanted.isdisjoint(fields_by_id([one]))))


def target_of(rows: PairedRows) -> pa.Table:
    """The target's side of rows that have one."""
    if rows.target is None:
        raise AssertionError("rows of the target are asked for where there are none")
    return rows.target


def empty_rows(columns: Schema) -> pa.Table:
    """No rows of a schema."""
    return no_rows(schema_to_arrow(columns))
