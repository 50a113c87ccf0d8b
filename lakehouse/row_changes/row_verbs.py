"""Updates, deletes and replacements of rows, decided on the rows of one version of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema

from lakehouse.data.conversion.row_codes import row_codes, surplus
from lakehouse.errors import RowsNotFoundError
from lakehouse.expressions.bound_filter import TRUE, Bound, Term
from lakehouse.row_changes.row_change import RowChange, RowWriter, positions_of
from lakehouse.row_changes.target_rows import TargetRows
from lakehouse.scan.scan_tasks import FileScanTask, total_rows
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.types.arrow_types import no_rows, schema_to_arrow
from lakehouse.transaction.decided_rows import Positions


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
    tables = [
        no_rows(pa.schema([(field.name, field.type) for field in schema_to_arrow(target.schema)]))
    ]
    numbers, positions = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for number, task in enumerate(tasks):
        for batch in target.batches(task, target.every_column, where):
            chosen = pa.array(_having(batch, keys))
            rows = pa.Table.from_batches([batch]).take(chosen)
            tables.append(pa.table(dict(zip(names, map(rows.column, names), strict=True))))
            positions.append(positions_of(rows))
            numbers.append(np.full(rows.num_rows, number))
    there = pa.concat_tables([table.cast(tables[0].schema) for table in tables])
    fresh = come(there).select(names)
    of_file, at = np.concatenate(numbers), np.concatenate(positions)
    codes = row_codes(
        pa.concat_tables([there, fresh, *([] if gone is None else [gone.select(names)])])
    )
    old, new = codes[: len(at)], codes[len(at) : len(at) + fresh.num_rows]
    leaves = np.ones(len(at), bool)
    if gone is not None:
        of_gone = codes[len(at) + fresh.num_rows :]
        missing = surplus(of_gone, old)
        if missing.any():
            raise RowsNotFoundError(
                f"Table {target.table}: {missing.sum():,} rows that were to go are not there, such "
                f"as {gone.filter(pa.array(missing)).slice(0, 1).to_pylist()[0]}",
                table=target.table,
            )
        leaves = ~surplus(old, of_gone)
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

    numbers = [str(at) for at in range(keys.num_columns)]  # names may be patterns to Polars
    rows, wanted = (
        pl.DataFrame(side.select(keys.column_names).rename_columns(numbers))
        for side in (pa.Table.from_batches([batch]), keys)
    )
    joined = rows.with_row_index("row").join(wanted, on=numbers, how="semi", nulls_equal=True)
    return joined["row"].to_numpy().astype(np.int64)
