"""The rows of one version of a table that a change looks at, alone or beside rows of a source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.data.reading.scan_reader import ReadRequest, RowReader
from lakehouse.data.statistics.key_filters import KeyFilters, load_key_filters
from lakehouse.data.writing.input_columns import coerce
from lakehouse.errors import InvalidExpressionError
from lakehouse.expressions.bound_filter import TRUE, Bound, Column, Mask, Term, Value
from lakehouse.expressions.filter_text import describe_term
from lakehouse.expressions.row_evaluation import evaluate, passing
from lakehouse.expressions.sql.typed_calls import type_of
from lakehouse.row_changes.row_change import POSITION, positions_of
from lakehouse.scan.planner import ScanPlan, ScanRequest, plan_scan
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.metadata.commit_names import head_of
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.schema.iceberg_types import (
    METADATA_COLUMNS,
    ROW_ID,
    fields_by_id,
    paths_of,
    with_lineage,
)
from lakehouse.spec.types.arrow_types import column_at, no_rows, schema_to_arrow
from lakehouse.spec.types.internal_values import internal_values
from lakehouse.storage.storage_protocol import Storage
from lakehouse.transaction.decided_rows import Positions

_ROW_ID = NestedField(METADATA_COLUMNS[ROW_ID].field_id, "_row_id of the row", LongType())
_BATCH_ROWS = 131_072


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
        self.snapshot_id = snapshot_id
        self.storage = storage
        self._readers: dict[tuple[int, int, int | None], tuple[Schema, Bound, RowReader]] = {}
        self._matching: tuple[Bound, RowReader] | None = None
        self._stored = with_lineage(self.schema, metadata.format_version)
        self._lineage = [field.name for field in self._stored.fields[len(self.schema.fields) :]]

    @classmethod
    def of(cls, version: TableVersion, branch: str, storage: Storage) -> TargetRows:
        """The rows of a branch; of main for a branch that a commit will create."""
        head = head_of(version.metadata, branch)
        snapshot_id = None if head is None else head.snapshot_id
        return cls(version.metadata, snapshot_id, storage, str(version.identifier))

    def at(self, metadata: TableMetadata) -> TargetRows:
        """The same rows, of a table whose metadata has changed."""
        return TargetRows(metadata, self.snapshot_id, self.storage, self.table)

    def plan(self, where: Bound) -> ScanPlan | None:
        """The files that may hold rows that pass, with metrics; None for an empty table."""
        if self.snapshot_id is None:
            return None
        request = ScanRequest(
            metadata=self.metadata,
            snapshot_id=self.snapshot_id,
            current_schema=True,
            where=where,
            include_metrics=True,
        )
        return plan_scan(request, self.storage)

    def tasks(self, where: Bound) -> Iterator[FileScanTask]:
        """The files that may hold rows that pass; planned when the first is taken."""
        plan = self.plan(where)
        yield from () if plan is None else plan.tasks

    def key_filters(self, field: Column, most_bytes: int) -> KeyFilters:
        """The key filters of a column, see `load_key_filters`."""
        return load_key_filters(
            self.metadata,
            self.snapshot_id,
            field.field_id,
            field.type,
            self.storage,
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
            reader = RowReader(replace(read, batch_rows=_BATCH_ROWS), self.storage)
            self._readers[key] = (columns, where, reader)
        yield from self._readers[key][-1].read([replace(task, residual=TRUE)])

    def positions(self, task: FileScanTask, where: Bound) -> Positions:
        """Positions of the live rows of a file that pass."""
        if self._matching is None or self._matching[0] is not where:
            read = ReadRequest.of(self.metadata, Schema(POSITION), where=where)
            self._matching = (where, RowReader(read, self.storage))
        return positions_of(self._matching[1].table([replace(task, residual=TRUE)]))

    def beside_nothing(self, rows: pa.Table, columns: Schema, source: Schema) -> PairedRows:
        """Rows of the target without rows of the source."""
        return PairedRows(rows.num_rows, rows, columns, None, source)

    def changed(self, rows: PairedRows, values: Mapping[str, Term]) -> Iterator[pa.RecordBatch]:
        """New versions of rows: assigned columns from `values`, others as they are."""
        old = target_of(rows)
        columns = {
            field.name: rows.values(values[field.name]) if field.name in values else old[field.name]
            for field in self.schema.fields
        }
        if self._lineage:  # the row keeps its id; null is the number of the commit
            columns[self._lineage[0]] = old[_ROW_ID.name]
        yield from self._fitting(columns)

    def new(self, rows: PairedRows, values: Mapping[str, Term]) -> Iterator[pa.RecordBatch]:
        """New rows; columns without a value have their default."""
        yield from self._fitting({name: rows.values(term) for name, term in values.items()})

    def _fitting(self, columns: Mapping[str, pa.Array]) -> Iterator[pa.RecordBatch]:
        yield from coerce(pa.table(dict(columns)), self._stored, table=self.table)

    @property
    def every_column(self) -> Schema:
        """All columns, as `batches` gives them."""
        return self.columns(field.field_id for field in self.schema.fields)


class PairedRows:
    """Rows of the target and of the source, one beside the other; either side may be absent.

    Args:
        count: how many.
        target: columns of the target, or None.
        target_schema: of `target`.
        source: columns of the source, or None.
        source_schema: of `source`.
    """

    def __init__(
        self,
        count: int,
        target: pa.Table | None,
        target_schema: Schema,
        source: pa.Table | None,
        source_schema: Schema,
    ) -> None:
        self.count = count
        self.target = target
        self._target = (target, target_schema)
        self._source = (source, source_schema)

    def column(self, field_id: int) -> pa.Array:
        """The values of a field; those of the source have negative ids."""
        of_target = field_id > 0
        rows, schema = self._target if of_target else self._source
        if rows is None:
            raise AssertionError(f"field {field_id} is of a side that has no rows here")
        return column_at(rows, paths_of(schema)[abs(field_id)])

    def values(self, term: Term) -> pa.Array:
        """A term for each row. Raises InvalidExpressionError where it cannot be computed."""
        try:
            result = evaluate(term, self.column)
        except (pa.ArrowException, ArithmeticError) as error:
            raise InvalidExpressionError(
                f"cannot compute {describe_term(term)}: {error}"
            ) from error
        return result if isinstance(result, pa.Array) else pa.repeat(result, self.count)

    def where(self, condition: Bound) -> Mask:
        """The rows for which a condition is true. Raises InvalidExpressionError."""
        return passing(condition, self.column, self.count)

    def shown(self, term: Term) -> str:
        """The value of a term in the first row, as SQL."""
        kind = type_of(term)
        value = internal_values(self.values(term).slice(0, 1), kind)[0]
        return describe_term(Value(value, kind))

    def take(self, at: npt.NDArray[np.int64]) -> PairedRows:
        """The rows at some positions."""
        if len(at) == self.count and (at == np.arange(self.count)).all():
            return self
        indices = pa.array(at, pa.int64())
        (target, target_schema), (source, source_schema) = self._target, self._source
        return PairedRows(
            len(at),
            None if target is None else target.take(indices),
            target_schema,
            None if source is None else source.take(indices),
            source_schema,
        )


def top_level(schema: Schema, field_ids: Iterable[int]) -> Schema:
    """The whole top-level columns that some fields are in."""
    wanted = set(field_ids)
    return Schema(
        *(field for field in schema.fields if not wanted.isdisjoint(fields_by_id([field])))
    )


def target_of(rows: PairedRows) -> pa.Table:
    """The target's side of rows that have one."""
    if rows.target is None:
        raise AssertionError("a term reads the target where it has no rows")
    return rows.target


def empty_rows(columns: Schema) -> pa.Table:
    """No rows of a schema."""
    return no_rows(schema_to_arrow(columns))
