"""The rows of one version of a table that a change looks at, alone or beside rows of a source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.data.conversion.row_codes import row_codes, surplus
from lakehouse.data.reading.scan_reader import METADATA_COLUMNS, ReadRequest, RowReader
from lakehouse.data.statistics.key_filters import KeyFilters, load_key_filters
from lakehouse.data.writing.input_columns import coerce
from lakehouse.errors import InvalidExpressionError, RowsNotFoundError
from lakehouse.expressions.bound_filter import TRUE, Bound, Column, Mask, Term, Value
from lakehouse.expressions.filter_text import describe_term
from lakehouse.expressions.row_evaluation import evaluate, passing
from lakehouse.expressions.sql.typed_calls import type_of
from lakehouse.row_changes.row_change import POSITION, RowChange, RowWriter, positions_of
from lakehouse.scan.planner import ScanRequest, plan_scan
from lakehouse.scan.scan_tasks import FileScanTask, total_rows
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.schema.iceberg_types import ROW_ID, fields_by_id, paths_of, with_lineage
from lakehouse.spec.types.arrow_types import column_at, no_rows, schema_to_arrow
from lakehouse.spec.types.internal_values import internal_values
from lakehouse.storage.storage_protocol import Storage
from lakehouse.transaction.decided_rows import Positions
from lakehouse.transaction.table_change import head_of

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

    def tasks(
        self, where: Bound, choose: Callable[..., Sequence[FileScanTask]] | None = None
    ) -> Iterator[FileScanTask]:
        """The files that may hold rows that pass; `choose` takes some of a plan's."""
        if self.snapshot_id is None:
            return
        request = ScanRequest(
            metadata=self.metadata,
            snapshot_id=self.snapshot_id,
            current_schema=True,
            where=where,
            include_metrics=True,
        )
        plan = plan_scan(request, self.storage)
        yield from plan.tasks if choose is None else choose(plan)

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
            found = evaluate(term, self.column)
        except (pa.ArrowException, ArithmeticError) as error:
            raise InvalidExpressionError(
                f"cannot compute {describe_term(term)}: {error}"
            ) from error
        return found if isinstance(found, pa.Array) else pa.repeat(found, self.count)

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


def update_rows(
    target: TargetRows, where: Bound, values: Mapping[str, Term], writer: RowWriter
) -> RowChange:
    """Give the rows that pass `where` new values.

    Raises:
        InvalidExpressionError | InvalidSchemaError: a value cannot be computed, or does not fit.
    """
    columns, no_source = target.every_column, Schema()
    opened: list[DataFile] = []
    gone: list[tuple[FileScanTask, Positions]] = []
    for task in target.tasks(where):
        opened.append(task.data_file)
        positions = []
        for batch in target.batches(task, columns, where):
            rows = pa.Table.from_batches([batch])
            versions = target.changed(target.beside_nothing(rows, columns, no_source), values)
            writer.write(versions, versions=True)
            positions.append(positions_of(rows))
        if positions:
            gone.append((task, np.concatenate(positions)))
    for number, (task, of_file) in enumerate(gone):
        writer.remove(task, of_file, number)
    updated = sum(len(of_file) for _, of_file in gone)
    return writer.change(where, opened=tuple(opened), updated=updated)


def delete_rows(target: TargetRows, where: Bound, writer: RowWriter) -> RowChange:
    """Remove the rows for which `where` is true; rows for which it is unknown (null) stay.

    Of files where partition values and metrics do not tell, the columns of the filter are read.

    Raises:
        InvalidExpressionError: a function of the filter cannot be computed for a row.
    """
    rows: list[int | None] = []
    for number, task in enumerate(target.tasks(where)):
        if task.residual == TRUE:
            writer.drop(task)
            rows.append(task.live_rows)
            continue
        gone = target.positions(task, where)
        if len(gone):
            writer.remove(task, gone, number)
            rows.append(len(gone))
    return writer.change(where, deleted=total_rows(rows))


def replace_rows(
    target: TargetRows,
    where: Bound,
    keys: pa.Table,
    come: Callable[[pa.Table], pa.Table],
    writer: RowWriter,
    gone: pa.Table | None = None,
) -> RowChange:
    """Put rows in the place of others; a row that goes and comes stays where it is.

    Args:
        target: the rows that there are.
        where: passes every row that goes.
        keys: distinct values of columns of the table: the rows that have them go, nulls are equal.
            Without columns these are all rows.
        come: the new rows in the table's schema, of the rows of these keys.
        writer: writes them.
        gone: of the rows of these keys these alone go, each as often as it is here.

    Raises:
        RowsNotFoundError: not all of `gone` are there.
    """
    names = [field.name for field in target.schema.fields]
    tasks = list(target.tasks(where)) if keys.num_rows else []
    found = [no_rows(pa.schema([(one.name, one.type) for one in schema_to_arrow(target.schema)]))]
    numbers, positions = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for number, task in enumerate(tasks):
        for batch in target.batches(task, target.every_column, where):
            chosen = pa.array(_having(batch, keys))
            rows = pa.Table.from_batches([batch]).take(chosen)
            found.append(pa.table(dict(zip(names, map(rows.column, names), strict=True))))
            positions.append(positions_of(rows))
            numbers.append(np.full(rows.num_rows, number))
    there = pa.concat_tables([table.cast(found[0].schema) for table in found])
    fresh = come(there).select(names)
    of_file, at = np.concatenate(numbers), np.concatenate(positions)
    codes = row_codes(
        pa.concat_tables([there, fresh, *([] if gone is None else [gone.select(names)])])
    )
    old, new = codes[: len(at)], codes[len(at) : len(at) + fresh.num_rows]
    leaves = np.ones(len(at), bool)
    if gone is not None:
        asked = codes[len(at) + fresh.num_rows :]
        missing = surplus(asked, old)
        if missing.any():
            raise RowsNotFoundError(
                f"Table {target.table}: {missing.sum():,} rows that were to go are not there, such "
                f"as {gone.filter(pa.array(missing)).slice(0, 1).to_pylist()[0]}",
                table=target.table,
            )
        leaves = ~surplus(old, asked)
    # of equal rows that go and come none is written
    going = np.flatnonzero(leaves)
    going = going[surplus(old[going], new)]
    coming = fresh.filter(pa.array(surplus(new, old[leaves])))
    writer.write(coming.to_batches(), versions=False)
    for number, task in enumerate(tasks):
        of_task = at[going[of_file[going] == number]]
        if len(of_task):
            writer.remove(task, np.sort(of_task), number)
    return writer.change(
        where,
        opened=tuple(task.data_file for task in tasks),
        inserted=coming.num_rows,
        deleted=len(going),
    )


def _having(batch: pa.RecordBatch, keys: pa.Table) -> npt.NDArray[np.int64]:
    """Numbers of the rows whose columns have values of `keys`; nulls are equal."""
    if not keys.column_names:
        return np.arange(batch.num_rows)
    import polars as pl  # noqa: PLC0415 - takes long to load

    rows = pl.DataFrame(pa.Table.from_batches([batch.select(keys.column_names)]))
    wanted = pl.DataFrame(keys)
    numbered = rows.with_row_index("number of the row")
    joined = numbered.join(wanted, on=keys.column_names, how="semi", nulls_equal=True)
    return joined["number of the row"].to_numpy().astype(np.int64)


def top_level(schema: Schema, field_ids: Iterable[int]) -> Schema:
    """The whole top-level columns that some fields are in."""
    wanted = set(field_ids)
    return Schema(
        *(field for field in schema.fields if not wanted.isdisjoint(fields_by_id([field])))
    )


def target_of(rows: PairedRows) -> pa.Table:
    """The target's side of rows that have one."""
    if rows.target is None:
        raise AssertionError("rows of the target are asked for where there are none")
    return rows.target


def empty_rows(columns: Schema) -> pa.Table:
    """No rows of a schema."""
    return no_rows(schema_to_arrow(columns))
