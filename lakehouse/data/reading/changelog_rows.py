"""Inserted and deleted rows of a range of snapshots."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from lakehouse.data.conversion.row_codes import occurrence, row_codes, surplus
from lakehouse.data.reading.column_projection import Projection, file_columns
from lakehouse.data.reading.scan_reader import ReadRequest, read_table
from lakehouse.scan.changelog_plan import ChangelogStep
from lakehouse.spec.types.arrow_types import no_rows, schema_to_arrow
from lakehouse.storage.storage_protocol import Storage

INSERT, DELETE = "INSERT", "DELETE"
CHANGE_COLUMNS = (
    pa.field("_change_type", pa.string(), nullable=False),
    pa.field("_change_ordinal", pa.int32(), nullable=False),
    pa.field("_commit_snapshot_id", pa.int64(), nullable=False),
)


def read_changelog(
    steps: Sequence[ChangelogStep], request: ReadRequest, storage: Storage, *, net: bool = False
) -> pa.Table:
    """The rows that came and went, in the order of the snapshots, deleted before inserted ones.

    A row that a snapshot only carried from one file into another (copy on write) has not changed
    and is left out. One snapshot is held in memory at a time, and the result.

    Args:
        steps: from `plan_changelog`.
        request: columns and filter, as for `read_tasks`; rows are compared over the whole table
            schema, before the projection.
        storage: where the files are.
        net: also leave out rows that came and went, or went and came back, within the range.

    Returns:
        The selected columns, then `_change_type` (`INSERT` or `DELETE`), `_change_ordinal` and
        `_commit_snapshot_id`.

    Raises:
        what `read_tasks` raises.
    """
    whole = request.table_schema or request.schema
    reading = dataclasses.replace(request, schema=whole)
    tables = [_changed(step, reading, storage) for step in steps]
    arrow = schema_to_arrow(whole)
    for column in CHANGE_COLUMNS:
        arrow = arrow.append(column)
    changes = pa.concat_tables([no_rows(arrow), *tables])
    if net and len(tables) > 1:  # what a snapshot changed is net
        changes = changes.filter(pa.array(_lasting(changes, len(whole.fields))))
    return changes if whole == request.schema else _projected(changes, request.schema)


def _changed(step: ChangelogStep, request: ReadRequest, storage: Storage) -> pa.Table:
    gone, come = read_table(step.before, request, storage), read_table(step.after, request, storage)
    if gone.num_rows and come.num_rows:
        codes = row_codes(pa.concat_tables([gone, come]))
        old, new = codes[: gone.num_rows], codes[gone.num_rows :]
        gone, come = (
            gone.filter(pa.array(surplus(old, new))),
            come.filter(pa.array(surplus(new, old))),
        )
    return pa.concat_tables([_marked(gone, DELETE, step), _marked(come, INSERT, step)])


def _marked(rows: pa.Table, kind: str, step: ChangelogStep) -> pa.Table:
    values = (kind, step.ordinal, step.snapshot.snapshot_id)
    for field, value in zip(CHANGE_COLUMNS, values, strict=True):
        rows = rows.append_column(field, pa.repeat(pa.scalar(value, field.type), rows.num_rows))
    return rows


def _lasting(changes: pa.Table, columns: int) -> npt.NDArray[np.bool_]:
    """The last insertions of rows that became more, first deletions of rows that became fewer."""
    inserted = np.asarray(pc.equal(changes["_change_type"], INSERT)).astype(bool)
    if inserted.all() or not inserted.any():
        return np.ones(len(inserted), bool)
    codes = row_codes(changes.select(range(columns)))
    size = int(codes.max(initial=-1)) + 1
    more = np.bincount(codes[inserted], minlength=size) - np.bincount(
        codes[~inserted], minlength=size
    )
    keep = np.zeros(len(codes), bool)
    keep[~inserted] = occurrence(codes[~inserted]) < -more[codes[~inserted]]
    from_last = occurrence(codes[inserted][::-1])[::-1]
    keep[inserted] = from_last < more[codes[inserted]]
    return keep


def _projected(changes: pa.Table, schema: Schema) -> pa.Table:
    targets = list(schema_to_arrow(schema))
    source = "the changelog"
    rows = changes.drop_columns([column.name for column in CHANGE_COLUMNS])
    projection = Projection(
        file_columns(rows.schema, "[]", source), schema.fields, targets, {}, source, pruned=False
    )
    marks = pa.schema([*targets, *CHANGE_COLUMNS])
    batches = []
    for batch in changes.to_batches():
        columns = projection.columns(batch.select(rows.column_names), batch.num_rows)
        batches.append(
            pa.RecordBatch.from_arrays(
                [*columns, *(batch[column.name] for column in CHANGE_COLUMNS)], schema=marks
            )
        )
    return pa.Table.from_batches(batches, schema=marks)
