"""Dagster's partitions as filters on columns: hidden partitioning does the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from functools import reduce
from math import prod

import dagster as dg
from pyiceberg.expressions import (
    AlwaysFalse,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    In,
    LessThan,
    Or,
)
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    IcebergType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from lakehouse.errors import InvalidInputError, InvalidSchemaError

PARTITION_EXPR = "partition_expr"
PartitionExpr = str | Mapping[str, str] | None

_HOUR, _DAY, _MONTH = timedelta(hours=1), timedelta(days=1), timedelta(days=28)
_INSTANTS = (TimestamptzType, TimestamptzNanoType)
_WALL_TIMES = (TimestampType, TimestampNanoType)
_TIMES = (*_INSTANTS, *_WALL_TIMES, DateType)


def partition_filter(
    definition: dg.PartitionsDefinition,
    keys: Sequence[str],
    expr: PartitionExpr,
    schema: Schema,
    asset: str,
) -> BooleanExpression:
    """The rows of some partitions.

    Windows of time are ranges: of an instant for `timestamptz`, of the wall clock in the
    partitions' zone for `timestamp`, of days for `date`. In a column of another type, as for static
    and dynamic partitions, a row has the partition's key as its value.

    Args:
        definition: of the asset's partitions.
        keys: of the partitions wanted; none is no row.
        expr: the column that tells the partition; of several dimensions, column by dimension.
        schema: of the table.
        asset: its key, for messages.

    Raises:
        InvalidInputError: `expr` does not name the columns, or windows of less than a day are to be
            found in a column of dates.
        InvalidSchemaError: the table has no such column.
    """
    columns = _columns(definition, expr, asset)
    if not keys:
        return AlwaysFalse()
    if not isinstance(definition, dg.MultiPartitionsDefinition):
        return _dimension(definition, keys, columns[""], schema, asset)
    parts = [definition.get_partition_key_from_str(key).keys_by_dimension for key in keys]
    by_name = {one.name: one.partitions_def for one in definition.partitions_defs}

    def rows(chosen: Sequence[Mapping[str, str]]) -> BooleanExpression:
        """Every combination of the values that each dimension has among the chosen ones."""
        return _all(
            [
                _dimension(
                    by_name[name], sorted({one[name] for one in chosen}), column, schema, asset
                )
                for name, column in columns.items()
            ]
        )

    whole = prod(len({one[name] for one in parts}) for name in by_name) == len(parts)
    return rows(parts) if whole else _any([rows([one]) for one in parts])


def default_partition_terms(
    definition: dg.PartitionsDefinition, expr: PartitionExpr, schema: Schema, asset: str
) -> list[str]:
    """How a new table is partitioned: `hour`, `day` or `month` of a time, a value as it is.

    Raises:
        InvalidInputError | InvalidSchemaError: as `partition_filter`.
    """
    columns = _columns(definition, expr, asset)
    if isinstance(definition, dg.MultiPartitionsDefinition):
        by_name = {one.name: one.partitions_def for one in definition.partitions_defs}
        return [_term(by_name[name], column, schema, asset) for name, column in columns.items()]
    return [_term(definition, columns[""], schema, asset)]


def _columns(
    definition: dg.PartitionsDefinition, expr: PartitionExpr, asset: str
) -> dict[str, str]:
    """Column by dimension; asset partitions of one dimension have no name for it."""
    if isinstance(definition, dg.MultiPartitionsDefinition):
        names = [one.name for one in definition.partitions_defs]
        if isinstance(expr, Mapping) and set(expr) == set(names):
            return {name: expr[name] for name in names}
        example = ", ".join(f'"{name}": "<column>"' for name in names)
        raise InvalidInputError(
            f"asset {asset}: it has the partition dimensions {', '.join(names)}, and its metadata "
            f'{PARTITION_EXPR!r} is {expr!r}: say metadata={{"{PARTITION_EXPR}": {{{example}}}}}',
            asset=asset,
        )
    if isinstance(expr, str):
        return {"": expr}
    raise InvalidInputError(
        f"asset {asset}: it has partitions, and its metadata {PARTITION_EXPR!r} is {expr!r}: name "
        f'the column that tells them, metadata={{"{PARTITION_EXPR}": "<column>"}}',
        asset=asset,
    )


def _type(schema: Schema, column: str, asset: str) -> IcebergType:
    try:
        return schema.find_field(column).field_type
    except ValueError as error:
        raise InvalidSchemaError(
            f"asset {asset}: {PARTITION_EXPR} names {column!r}, which is no column; there are "
            f"{', '.join(schema.column_names)}. A column of nulls alone has no type, and one of no "
            "rows has none in pandas: give it one, such as astype('string')",
            asset=asset,
            column=column,
        ) from error


def _dimension(
    definition: dg.PartitionsDefinition,
    keys: Sequence[str],
    column: str,
    schema: Schema,
    asset: str,
) -> BooleanExpression:
    kind = _type(schema, column, asset)
    if isinstance(definition, dg.TimeWindowPartitionsDefinition) and isinstance(kind, _TIMES):
        windows = [definition.time_window_for_partition_key(key) for key in keys]
        if isinstance(kind, _WALL_TIMES):
            _refuse_repeated_hours(windows, column, asset)
        return _any(
            [
                And(
                    GreaterThanOrEqual(term=column, value=_text(start, kind, column, asset)),
                    LessThan(term=column, value=_text(end, kind, column, asset)),
                )
                for start, end in _joined([(one.start, one.end) for one in windows])
            ]
        )
    return In(term=column, literals=set(keys))


def _refuse_repeated_hours(windows: Sequence[dg.TimeWindow], column: str, asset: str) -> None:
    """Raise for windows of hours that a wall clock shows twice, when clocks are set back."""
    for window in windows:
        start, end = window.start, window.end
        first, second = (start.replace(fold=fold).utcoffset() for fold in (0, 1))
        if end.timestamp() - start.timestamp() < _DAY.total_seconds() and first != second:
            raise InvalidInputError(
                f"asset {asset}: its partition that begins at {start.isoformat()} is in an hour "
                f"that clocks of {start.tzinfo} show twice, and {column!r} is a timestamp without "
                f"a zone: {PARTITION_EXPR} must name a timestamptz column",
                asset=asset,
                column=column,
            )


def _joined(windows: Sequence[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """Windows that touch as one, in order."""
    found: list[tuple[datetime, datetime]] = []
    for start, end in sorted(windows, key=lambda one: one[0].timestamp()):
        if found and start.timestamp() <= found[-1][1].timestamp():
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def _text(at: datetime, kind: IcebergType, column: str, asset: str) -> str:
    """The limit of a window as a literal of the column's type."""
    if isinstance(kind, _INSTANTS):
        return at.astimezone(UTC).isoformat()
    if isinstance(kind, _WALL_TIMES):
        return at.replace(tzinfo=None).isoformat()
    if at.time() != time():
        raise InvalidInputError(
            f"asset {asset}: its partitions begin at {at.time()}, and {column!r} holds dates: "
            f"{PARTITION_EXPR} must name a timestamp column",
            asset=asset,
            column=column,
        )
    return str(at.date())


def _term(definition: dg.PartitionsDefinition, column: str, schema: Schema, asset: str) -> str:
    kind = _type(schema, column, asset)
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition) or not isinstance(
        kind, _TIMES
    ):
        return column
    window = definition.get_first_partition_window()
    length = timedelta(days=1) if window is None else window.end - window.start
    if length <= _HOUR and not isinstance(kind, DateType):
        return f"hour({column})"
    return f"month({column})" if length >= _MONTH else f"day({column})"


def _any(conditions: Sequence[BooleanExpression]) -> BooleanExpression:
    return reduce(Or, conditions)


def _all(conditions: Sequence[BooleanExpression]) -> BooleanExpression:
    return reduce(And, conditions)
