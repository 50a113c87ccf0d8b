"""A batch of changes: in which order they happened, and which of them is the last of its key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from lakehouse.data.conversion.row_codes import row_codes
from lakehouse.errors import InvalidInputError
from lakehouse.expressions.bound_filter import columns
from lakehouse.expressions.filter_binding import bind
from lakehouse.row_changes.change_data.unchanged_values import left_out
from lakehouse.row_changes.target_rows import PairedRows
from lakehouse.spec.metadata.table_metadata import TableMetadata

_ORDERED = (
    IntegerType,
    LongType,
    DecimalType,
    DateType,
    TimeType,
    TimestampType,
    TimestamptzType,
    TimestampNanoType,
    TimestamptzNanoType,
    StringType,
)


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """The last change of each key, of those that came together.

    Attributes:
        table: name of the table that they change, for messages.
        keys: columns that tell rows apart.
        sequence_by: columns by which changes are ordered, the first one first.
        schema: of `rows`.
        rows: one change a key.
        deletes: which of them delete the row of their key.
        superseded: how many changes a later one of the same key made pointless.
        marks: columns that only say what kind of change it is.
        deleted_before: the sequences of the last delete that the batch has of the key before its
            last change; null where it has none.
    """

    table: str
    keys: tuple[str, ...]
    sequence_by: tuple[str, ...]
    schema: Schema
    rows: pa.Table
    deletes: npt.NDArray[np.bool_]
    superseded: int
    marks: frozenset[str]
    deleted_before: pa.Table

    def stored(self, table: TableMetadata) -> tuple[str, ...]:
        """The columns that are kept in the table: all but marks that it has no column for."""
        known = {field.name for field in table.schema().fields}
        names = (field.name for field in self.schema.fields)
        return tuple(name for name in names if name in known or name not in self.marks)

    def only(self, chosen: npt.NDArray[np.bool_]) -> ChangeBatch:
        """Some of the changes."""
        mask = pa.array(chosen)
        return replace(
            self,
            rows=self.rows.filter(mask),
            deletes=self.deletes[chosen],
            deleted_before=self.deleted_before.filter(mask),
        )


def last_changes(
    rows: pa.Table,
    schema: Schema,
    keys: Sequence[str],
    sequence_by: Sequence[str],
    delete_when: str | None,
    table: str,
) -> ChangeBatch:
    """Order changes, and keep the last one of each key.

    Of changes with equal sequences the one that comes later in `rows` happened later.

    Args:
        rows: the changes.
        schema: of `rows`.
        keys: columns that tell rows apart.
        sequence_by: columns by which changes are ordered, the first one first.
        delete_when: SQL that is true for a change that deletes its row; None: no change does.
        table: name of the table that they change, for messages.

    Raises:
        InvalidInputError: a column that is not there or of a type that cannot be used, a change
            without a key or a sequence, or one that leaves out a value (see `unchanged_values`).
        InvalidExpressionError: `delete_when` does not parse, or names no column.
    """
    for what, names in (("keys", keys), ("sequence_by", sequence_by)):
        _check_names(what, names, schema, table)
    for name in keys:
        _check_key(schema.find_field(name), table)
    for name in sequence_by:
        _check_sequence(schema.find_field(name), table)
    for name in (*keys, *sequence_by):
        _check_not_null(rows, name, table)
    condition = bind(delete_when, schema)
    deletes = np.zeros(rows.num_rows, bool)
    marks: frozenset[str] = frozenset()
    if delete_when is not None:
        sides = PairedRows(rows.num_rows, rows, schema, None, Schema())
        deletes = np.asarray(sides.where(condition), bool)
        marks = _marks([column.field_id for column in columns(condition)], schema)
        marks -= {*keys, *sequence_by}
    codes, order = row_codes(rows.select(list(dict.fromkeys(keys)))), _in_order(rows, sequence_by)
    last = np.sort(_last_of_each_key(codes, order))
    gone = _last_of_each_key(codes, order[deletes[order]])
    before = np.full(rows.num_rows, -1)  # by the code of the key
    before[codes[gone]] = gone
    before = before[codes[last]]
    _check_left_out(rows.take(pa.array(last[~deletes[last]])), table)
    known = pa.array(before, mask=(before < 0) | (before == last))
    return ChangeBatch(
        table,
        tuple(keys),
        tuple(sequence_by),
        schema,
        rows.take(pa.array(last)),
        deletes[last],
        rows.num_rows - len(last),
        marks,
        rows.select(list(dict.fromkeys(sequence_by))).take(known),
    )


def _in_order(rows: pa.Table, sequence_by: Sequence[str]) -> npt.NDArray[np.int64]:
    """Positions of the changes in the order in which they happened."""
    position = "position of the row"
    columns = rows.select(list(dict.fromkeys(sequence_by)))
    positions = pc.sort_indices(
        columns.append_column(position, pa.array(np.arange(rows.num_rows))),
        sort_keys=[(column, "ascending") for column in (*sequence_by, position)],
    )
    return np.asarray(positions).astype(np.int64)


def _last_of_each_key(
    codes: npt.NDArray[np.int64], order: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Of some positions in order, the last one of each key."""
    newest_first = order[::-1]
    return newest_first[np.unique(codes[newest_first], return_index=True)[1]]


def _marks(field_ids: Sequence[int], schema: Schema) -> frozenset[str]:
    """Top-level columns that hold the fields."""
    paths = (schema.find_column_name(id_) or "" for id_ in field_ids)
    names = [field.name for path in paths for field in schema.fields if _within(path, field.name)]
    return frozenset(names)


def _within(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}.")


def _check_names(what: str, names: Sequence[str], schema: Schema, table: str) -> None:
    if isinstance(names, str) or not names:
        raise InvalidInputError(f"{what} is a list of columns, not {names!r}", table=table)
    known = [field.name for field in schema.fields]
    missing = [name for name in names if name not in known]
    if missing:
        raise InvalidInputError(
            f"{table}: the changes have no column {missing[0]!r}, which {what} names; they have "
            f"{', '.join(known)}",
            table=table,
            column=missing[0],
        )


def _check_key(field: NestedField, table: str) -> None:
    if not field.field_type.is_primitive or isinstance(field.field_type, FloatType | DoubleType):
        _refuse(table, field, "tells no rows apart: a key is no float, list, map or struct")


def _check_sequence(field: NestedField, table: str) -> None:
    if not isinstance(field.field_type, _ORDERED):
        _refuse(table, field, "orders no changes: take numbers, decimals, dates, times or text")


def _refuse(table: str, field: NestedField, why: str) -> NoReturn:
    raise InvalidInputError(
        f"{table}: column {field.name!r} of the changes is {field.field_type}, which {why}",
        table=table,
        column=field.name,
    )


def _check_not_null(rows: pa.Table, name: str, table: str) -> None:
    missing = rows[name].null_count
    if missing:
        at = pc.index(rows[name].is_null(), True).as_py()
        raise InvalidInputError(
            f"{table}: {missing} changes have no value of {name!r}, such as change {at}: each "
            "needs its key and its place in the order",
            table=table,
            column=name,
        )


def _check_left_out(rows: pa.Table, table: str) -> None:
    for name, values in zip(rows.column_names, rows.columns, strict=True):
        if left_out(values) is not None:
            raise InvalidInputError(
                f"{table}: a change leaves out the value of {name!r}, which did not change "
                "(Debezium's placeholder): have the source send whole rows (in PostgreSQL REPLICA "
                "IDENTITY FULL)",
                table=table,
                column=name,
            )
