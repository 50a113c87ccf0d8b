"""A batch of changes as a MERGE: later changes win over what the table holds, never older ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, NestedField

from lakehouse.dml.changes.change_batch import ChangeBatch
from lakehouse.dml.merge.merge_binding import bind_merge
from lakehouse.dml.merge.merge_rows import merge_rows
from lakehouse.dml.merge.merge_statement import MergeClause, MergeStatement
from lakehouse.dml.merge.source_match import KeyColumns, KeyRange, KeysInOrder, SourcePart
from lakehouse.dml.merge.source_rows import SourceRows
from lakehouse.dml.merge.target_rows import RowChanges, TargetRows
from lakehouse.dml.merge.term_columns import PairedRows

_DELETES = "whether the change deletes"  # beside columns of the changes, which may have any name


def merge_changes(target: TargetRows, batch: ChangeBatch) -> RowChanges:
    """What the changes do to the rows of one version of the table, which has all their columns.

    A change acts when it is not older than the row of its key. Its row is inserted where there is
    none. It is decided when the rows of what comes back are read.

    Raises:
        InvalidSchemaError: a value does not fit its column.
    """
    stored = batch.stored(target.metadata)
    fields = [one for one in batch.schema.fields if one.name in stored]
    top = max(batch.schema.highest_field_id, 0) + 1
    schema = Schema(*fields, NestedField(top, _DELETES, BooleanType()))
    rows = batch.rows.select(stored).append_column(_DELETES, pa.array(batch.deletes))
    merge = bind_merge(_statement(batch, stored), target.schema, schema)
    return merge_rows(target, merge, SourceRows.in_memory(schema, rows))


def older_than(remembered: TargetRows, batch: ChangeBatch) -> npt.NDArray[np.bool_]:
    """Which changes are older than a remembered delete of their key.

    Args:
        remembered: deletes, each with the columns of the key and of the sequence.
        batch: the changes.
    """
    older = MergeClause("matched", "delete", _compared(batch.sequence_by, "<", "<", "FALSE"))
    merge = bind_merge(MergeStatement(batch.keys, (older,)), remembered.schema, batch.schema)
    found = np.zeros(batch.rows.num_rows, bool)
    if not batch.rows.num_rows:
        return found
    columns = remembered.columns(merge.key_columns | merge.needed_columns)
    part = SourcePart(KeyColumns(merge, columns), batch.rows)
    limits = KeyRange(merge)
    limits.add(part.values)
    in_order = KeysInOrder(merge, part.values)
    for task in remembered.tasks(limits.filter(), in_order.tasks):
        for one in remembered.batches(task, columns):
            rows = pa.Table.from_batches([one])
            pairs = part.pairs(remembered.beside_nothing(rows, columns, merge.source))
            paired = PairedRows(
                len(pairs.target),
                rows.take(pa.array(pairs.target)),
                columns,
                batch.rows.take(pa.array(pairs.source)),
                merge.source,
            )
            found[pairs.source[paired.where(merge.clauses[0].condition)]] = True
    return found


def _statement(batch: ChangeBatch, stored: Sequence[str]) -> MergeStatement:
    deletes = f"s.{_quoted(_DELETES)}"
    current = _compared(batch.sequence_by, ">", ">=", "TRUE")
    values = {name: f"s.{_quoted(name)}" for name in stored}
    clauses = (
        MergeClause("matched", "delete", f"{deletes} AND ({current})"),
        MergeClause("matched", "update", current, values),
        MergeClause("not matched", "insert", f"NOT {deletes}", values),
    )
    return MergeStatement(batch.keys, clauses)


def _compared(sequence_by: Sequence[str], sign: str, last_sign: str, unknown: str) -> str:
    """SQL that compares the sequence of a change with that of the target, column by column.

    Args:
        sequence_by: its columns.
        sign: between all columns but the last.
        last_sign: between the last ones.
        unknown: the outcome where the target has none.
    """
    name = _quoted(sequence_by[0])
    either = f"t.{name} IS NULL AND {unknown} OR "
    if len(sequence_by) == 1:
        return f"{either}s.{name} {last_sign} t.{name}"
    rest = _compared(sequence_by[1:], sign, last_sign, unknown)
    return f"{either}s.{name} {sign} t.{name} OR s.{name} = t.{name} AND ({rest})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
