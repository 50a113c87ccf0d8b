"""Inserted and deleted rows of a range of snapshots."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from lakehouse.data.conversion.row_codes import occurrence, row_codes, without_common
from lakehouse.data.reading.column_projection import Projection, file_columns
from lakehouse.data.reading.scan_reader import ReadRequest, read_table
from lakehouse.errors import InvalidInputError
from lakehouse.scan.changelog_plan import ChangelogStep
from lakehouse.spec.schema.iceberg_types import PARTITION, find_path
from lakehouse.spec.types.arrow_types import column_at, no_rows, schema_to_arrow
from lakehouse.storage.storage_protocol import Storage

INSERT, DELETE = "INSERT", "DELETE"
UPDATE_BEFORE, UPDATE_AFTER = "UPDATE_BEFORE", "UPDATE_AFTER"
CHANGE_COLUMNS = (
    pa.field("_change_type", pa.string(), nullable=False),
    pa.field("_change_ordinal", pa.int32(), nullable=False),
    pa.field("_commit_snapshot_id", pa.int64(), nullable=False),
)


def read_changelog(
    steps: Sequence[ChangelogStep],
    request: ReadRequest,
    storage: Storage,
    *,
    net: bool = False,
    same: Sequence[int] = (),
) -> pa.Table:
    """The rows that came and went, in the order of the snapshots, deleted before inserted ones.

    A row that a snapshot only carried from one file into another (copy on write) has not changed
    and is left out. One snapshot is held in memory at a time, and the result.

    Args:
        steps: from `plan_changelog`.
        request: columns and filter, as for `read_tasks`; rows are compared over the whole table
            schema, before the projection. Of metadata columns it may have `_partition`: of the file
            that a row was in before it went, or is in since it came.
        storage: where the files are.
        net: also leave out rows that came and went, or went and came back, within the range.
        same: ids of the fields by which a row that went and one that came are an update.

    Returns:
        The selected columns, then `_change_type` (`INSERT` or `DELETE`, and with `same` the two
        halves of an update, `UPDATE_BEFORE` and `UPDATE_AFTER`), `_change_ordinal` and
        `_commit_snapshot_id`.

    Raises:
        InvalidInputError: several rows of the same fields came, or went, in one snapshot.
        Exception: what `read_tasks` raises.
    """
    whole = request.table_schema or request.schema
    own = len(whole.fields)
    partition = [field for field in request.schema.fields if field.field_id == PARTITION.field_id]
    read = Schema(*whole.fields, *partition) if partition else whole
    reading = dataclasses.replace(request, schema=read)
    tables = [_changed(step, reading, storage, own) for step in steps]
    arrow = schema_to_arrow(read)
    for column in CHANGE_COLUMNS:
        arrow = arrow.append(column)
    changes = pa.concat_tables([no_rows(arrow), *tables])
    if net and len(tables) > 1:  # what a snapshot changed is net
        changes = changes.filter(pa.array(_lasting(changes, own)))
    if same:
        changes = _with_updates(changes, whole, same)
    return changes if whole == request.schema else _projected(changes, request.schema)


def _changed(step: ChangelogStep, request: ReadRequest, storage: Storage, columns: int) -> pa.Table:
    gone, come = read_table(step.before, request, storage), read_table(step.after, request, storage)
    if gone.num_rows and come.num_rows:
        gone, come = without_common(gone, come, columns)
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


def _with_updates(changes: pa.Table, schema: Schema, same: Sequence[int]) -> pa.Table:
    """The changes, where a row that went and one that came in a snapshot are halves of an update.

    Each key may have come once and gone once in a snapshot; raises InvalidInputError.
    """
    fields = [find_path(schema, field_id) for field_id in same]
    keys = {field.name: column_at(changes, path) for path, field in fields}
    codes = row_codes(pa.table([*keys.values(), changes["_change_ordinal"]], [*keys, "_ordinal"]))
    inserted = np.asarray(pc.equal(changes["_change_type"], INSERT)).astype(bool)
    size = int(codes.max(initial=-1)) + 1
    came, went = (np.bincount(codes[kind], minlength=size) for kind in (inserted, ~inserted))
    several = np.flatnonzero(np.maximum(came, went)[codes] > 1)
    if len(several):
        at = int(several[0])
        values = ", ".join(f"{name} {column[at].as_py()!r}" for name, column in keys.items())
        raise InvalidInputError(
            f"rows are not unique by {', '.join(keys)}: several of {values} came or went in "
            f"snapshot {changes['_commit_snapshot_id'][at]}, so that nobody can say which became "
            "which"
        )
    half = pc.if_else(pa.array(inserted), UPDATE_AFTER, UPDATE_BEFORE)
    kinds = pc.if_else(pa.array((came * went)[codes] > 0), half, changes["_change_type"])
    (kind, *_) = CHANGE_COLUMNS
    return changes.set_column(changes.column_names.index(kind.name), kind, kinds)


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
