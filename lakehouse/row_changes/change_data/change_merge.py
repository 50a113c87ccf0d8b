"""A batch of changes as a MERGE: later changes win over what the table holds, never older ones.

Columns that the table lacks, or that are too narrow, are changed first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, IcebergType, NestedField

from lakehouse.data.writing.input_columns import coerce
from lakehouse.errors import InvalidSchemaError
from lakehouse.evolution.update_schema import UpdateSchema
from lakehouse.row_changes.change_data.change_batch import ChangeBatch
from lakehouse.row_changes.merge.key_matching import KeyColumns, SourcePart
from lakehouse.row_changes.merge.key_pruning import KeyRange, KeysInOrder
from lakehouse.row_changes.merge.merge_binding import bind_merge
from lakehouse.row_changes.merge.merge_rows import merge_rows
from lakehouse.row_changes.merge.merge_statement import MergeClause, MergeStatement
from lakehouse.row_changes.merge.source_rows import SourceRows
from lakehouse.row_changes.row_change import RowChange, RowWriter
from lakehouse.row_changes.target_rows import PairedRows, TargetRows
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import Changes
from lakehouse.spec.types.arrow_types import schema_to_arrow

# beside columns of the changes, which may have any name
_DELETES = "whether the change deletes"
_DELETED_AT = "of the delete before it: "


def merge_changes(target: TargetRows, batch: ChangeBatch, writer: RowWriter) -> RowChange:
    """Apply changes to the rows of one version of the table, which has all their columns.

    A change acts when it is not older than the row of its key. Its row is inserted where there is
    none.

    Raises:
        InvalidSchemaError: a value does not fit its column.
    """
    stored = batch.stored(target.metadata)
    fields = [field for field in batch.schema.fields if field.name in stored]
    rows = batch.rows.select(stored).append_column(_DELETES, pa.array(batch.deletes))
    extra: list[tuple[str, IcebergType]] = [(_DELETES, BooleanType())]
    for name in batch.deleted_before.column_names:
        rows = rows.append_column(_DELETED_AT + name, batch.deleted_before[name])
        extra.append((_DELETED_AT + name, batch.schema.find_field(name).field_type))
    lacking = [field for field in target.schema.fields if field.name not in stored]
    for field, values in zip(lacking, _defaults(rows, lacking), strict=True):
        rows = rows.append_column(field.name, values)
        extra.append((field.name, field.field_type))
    top = max(batch.schema.highest_field_id, target.schema.highest_field_id)
    more = (NestedField(top + at, *column) for at, column in enumerate(extra, start=1))
    schema = Schema(*fields, *more)
    statement = _statement(batch, stored, [field.name for field in lacking])
    merge = bind_merge(statement, target.schema, schema)
    return merge_rows(target, merge, SourceRows.in_memory(schema, rows), writer)


def _defaults(rows: pa.Table, lacking: Sequence[NestedField]) -> list[pa.ChunkedArray]:
    """What a new row has in columns that the changes lack."""
    optional = [field.model_copy(update={"required": False}) for field in lacking]
    free = Schema(*optional).highest_field_id + 1
    schema = Schema(*optional, NestedField(free, _DELETES, BooleanType()))
    filled = pa.Table.from_batches(
        coerce(rows.select([_DELETES]), schema), schema=schema_to_arrow(schema)
    )
    return [filled[field.name] for field in lacking]


def older_than(remembered: TargetRows, batch: ChangeBatch) -> npt.NDArray[np.bool_]:
    """Which changes are older than a remembered delete of their key.

    Args:
        remembered: deletes, each with the columns of the key and of the sequence.
        batch: the changes.
    """
    older = MergeClause("matched", "delete", _compared(batch.sequence_by, "<", "<", "FALSE"))
    merge = bind_merge(MergeStatement(batch.keys, (older,)), remembered.schema, batch.schema)
    is_older = np.zeros(batch.rows.num_rows, bool)
    if not batch.rows.num_rows:
        return is_older
    columns = remembered.columns(merge.key_columns | merge.needed_columns)
    part = SourcePart(KeyColumns(merge, columns), batch.rows)
    limits = KeyRange(merge)
    limits.add(part.values)
    in_order = KeysInOrder(merge, part.values)
    plan = remembered.plan(limits.filter())
    for task in () if plan is None else in_order.tasks(plan):
        for target_batch in remembered.batches(task, columns):
            rows = pa.Table.from_batches([target_batch])
            pairs = part.pairs(remembered.beside_nothing(rows, columns, merge.source))
            paired = PairedRows(
                len(pairs.target),
                rows.take(pa.array(pairs.target)),
                columns,
                batch.rows.take(pa.array(pairs.source)),
                merge.source,
            )
            is_older[pairs.source[paired.where(merge.clauses[0].condition)]] = True
    return is_older


def _statement(batch: ChangeBatch, stored: Sequence[str], lacking: Sequence[str]) -> MergeStatement:
    deletes = f"s.{_quoted(_DELETES)}"
    current = _compared(batch.sequence_by, ">", ">=", "TRUE")
    returns = _compared(batch.sequence_by, ">", ">=", "TRUE", _DELETED_AT)
    deleted = f"s.{_quoted(_DELETED_AT + batch.sequence_by[0])} IS NOT NULL"
    values = {name: f"s.{_quoted(name)}" for name in stored}
    every = values | {name: f"s.{_quoted(name)}" for name in lacking}
    clauses = (
        MergeClause("matched", "delete", f"{deletes} AND ({current})"),
        MergeClause("matched", "update", f"{deleted} AND ({returns})", every),
        MergeClause("matched", "update", current, values),
        MergeClause("not matched", "insert", f"NOT {deletes}", values),
    )
    return MergeStatement(batch.keys, clauses)


def _compared(
    sequence_by: Sequence[str], sign: str, last_sign: str, unknown: str, prefix: str = ""
) -> str:
    """SQL that compares the sequence of a change with that of the target, column by column.

    Args:
        sequence_by: its columns.
        sign: between all columns but the last.
        last_sign: between the last ones.
        unknown: the outcome where the target has none.
        prefix: of the columns of the change.
    """
    name, own = _quoted(sequence_by[0]), _quoted(prefix + sequence_by[0])
    either = f"t.{name} IS NULL AND {unknown} OR "
    if len(sequence_by) == 1:
        return f"{either}s.{own} {last_sign} t.{name}"
    rest = _compared(sequence_by[1:], sign, last_sign, unknown, prefix)
    return f"{either}s.{own} {sign} t.{name} OR s.{own} = t.{name} AND ({rest})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def room_for(batch: ChangeBatch, metadata: TableMetadata) -> Changes:
    """The change of the table's schema that makes room for the changes; empty when there is room.

    A column that the table lacks is added. One whose values do not fit is promoted as
    the specification allows ("Schema Evolution"); values that fit leave the column as it is,
    whatever their type.

    Raises:
        InvalidSchemaError: values do not fit, and the column cannot be promoted to theirs.
    """
    update = UpdateSchema(metadata)
    kept = batch.rows.filter(pa.array(~batch.deletes))
    known = {field.name: field for field in metadata.schema().fields}
    for name in batch.stored(metadata):
        given = batch.schema.find_field(name)
        if name not in known:
            update.union_by_name(Schema(given))
            continue
        misfit = _misfit(kept.select([name]), known[name], batch.table)
        if misfit is not None:
            try:
                update.union_by_name(Schema(_optional(given)))
            except InvalidSchemaError as error:
                raise InvalidSchemaError(
                    f"{misfit.message}; nor can the column be promoted: {error.message}",
                    table=batch.table,
                    column=name,
                ) from error
    return update.changes()


def _misfit(rows: pa.Table, field: NestedField, table: str) -> InvalidSchemaError | None:
    """Why the values of a column do not fit; that a value is missing is not asked here."""
    try:
        for _ in coerce(rows, Schema(_optional(field)), table=table):
            pass
    except InvalidSchemaError as error:
        return error
    return None


def _optional(field: NestedField) -> NestedField:
    return field.model_copy(update={"required": False})
