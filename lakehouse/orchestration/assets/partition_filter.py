"""Dagster's partitions as columns: filters on them, and the partitions of their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import cached_property, reduce
from math import prod
from typing import cast
from zoneinfo import ZoneInfo

import dagster as dg
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
    NestedField,
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
TIMES = (*_INSTANTS, *_WALL_TIMES, DateType)
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_MOST_KNOWN = 10_000


@dataclass(frozen=True)
class Partitioning:
    """Dagster's partitions, and the columns of a table that tell them.

    Attributes:
        definition: the partitions.
        expr: the column; of several dimensions, column by dimension.
        asset: its key, for messages.
    """

    definition: dg.PartitionsDefinition
    expr: PartitionExpr
    asset: str

    def check(self) -> None:
        """Raises InvalidInputError: `expr` does not name a column for each dimension."""
        _columns(self.definition, self.expr, self.asset)

    def where(self, keys: Sequence[str], schema: Schema) -> BooleanExpression:
        """The rows of some partitions; see `partition_filter`."""
        return partition_filter(self.definition, keys, self.expr, schema, self.asset)

    @cached_property
    def dimensions(self) -> list[tuple[str, Windows | None]]:
        """Column of each dimension in the order of a key's parts, with its windows of time."""
        columns = _columns(self.definition, self.expr, self.asset)
        if not isinstance(self.definition, dg.MultiPartitionsDefinition):
            return [(columns[""], Windows.of(self.definition))]
        by_name = {part.name: part.partitions_def for part in self.definition.partitions_defs}
        return [(columns[name], Windows.of(by_name[name])) for name in sorted(columns)]

    def keys_of(self, rows: pa.Table) -> pa.Array:
        """The partition of each row; null: a value of it is null, or between windows."""
        parts = [
            values.cast(pa.string())
            if windows is None or not pa.types.is_temporal(values.type)
            else windows.keys_of(values)
            for name, windows in self.dimensions
            for values in (rows[name].combine_chunks(),)
        ]
        return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "|")


class Windows:
    """Windows of time, by numbers of microseconds: of an instant, or of the wall clock.

    Args:
        definition: of the partitions.
    """

    def __init__(self, definition: dg.TimeWindowPartitionsDefinition) -> None:
        self._definition, self._zone = definition, ZoneInfo(definition.timezone)
        self._known: dict[tuple[int, bool], tuple[int, int, str]] = {}

    @classmethod
    def of(cls, definition: dg.PartitionsDefinition) -> Windows | None:
        """Those of partitions; None: they are no windows of time."""
        return (
            cls(definition) if isinstance(definition, dg.TimeWindowPartitionsDefinition) else None
        )

    def between(self, low: int, high: int, *, instants: bool) -> Iterator[str]:
        """The keys of those that have a moment from `low` to `high`, both included.

        With those before the first and after the last partition that there is now.
        """
        at = low
        while at <= high:
            start, end, key = self._at(at, instants=instants)
            if start <= high and end > low:
                yield key
            at = end

    def keys_of(self, values: pa.Array) -> pa.Array:
        """The key of each time or date; null of none, and of one between windows."""
        instants = getattr(values.type, "tz", None) is not None
        numbers = values.cast(pa.timestamp("us", getattr(values.type, "tz", None)), safe=False)
        numbers = np.asarray(numbers.cast(pa.int64()).fill_null(0))
        distinct, starts, keys, position = np.unique(numbers), [], [], 0
        while position < len(distinct):
            at = int(distinct[position])
            start, end, key = self._at(at, instants=instants)
            starts.append(start)
            keys.append(key if start <= at else None)
            position = int(np.searchsorted(distinct, end if start <= at else start))
            if start > at:
                starts[-1] = at
        places = np.searchsorted(np.array(starts, np.int64), numbers, side="right") - 1
        return pa.array(keys, pa.string()).take(pa.array(places, mask=np.asarray(values.is_null())))

    def _at(self, number: int, *, instants: bool) -> tuple[int, int, str]:
        """The window that a moment lies in, or the next one: its start, its end and its key."""
        moment = _EPOCH + number * _MICROSECOND
        if not instants:
            moment = moment.replace(tzinfo=self._zone)
        place = int(moment.timestamp() // 1), instants
        if place not in self._known:
            key = self._definition.get_partition_key_for_timestamp(place[0])
            window = self._definition.time_window_for_partition_key(key)
            if window.end <= moment:
                window = cast(
                    "dg.TimeWindow",
                    self._definition.get_next_partition_window(moment, respect_bounds=False),
                )
                seconds = int(window.start.timestamp())
                key = self._definition.get_partition_key_for_timestamp(seconds)
            start, end = (
                ((edge if instants else edge.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
                for edge in (window.start, window.end)
            )
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[place] = start, end, key
        return self._known[place]


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
        InvalidInputError: `expr` does not name the columns, or windows of less than a day
            are looked for in a column of dates.
        InvalidSchemaError: the table has no such column.
    """
    columns = _columns(definition, expr, asset)
    if not keys:
        return AlwaysFalse()
    if not isinstance(definition, dg.MultiPartitionsDefinition):
        return _dimension(definition, keys, columns[""], schema, asset)
    parts = [definition.get_partition_key_from_str(key).keys_by_dimension for key in keys]
    by_name = {part.name: part.partitions_def for part in definition.partitions_defs}

    def rows(chosen: Sequence[Mapping[str, str]]) -> BooleanExpression:
        """Every combination of the values that each dimension has among the chosen ones."""
        return _all(
            [
                _dimension(
                    by_name[name], sorted({row[name] for row in chosen}), column, schema, asset
                )
                for name, column in columns.items()
            ]
        )

    whole = prod(len({part[name] for part in parts}) for name in by_name) == len(parts)
    return rows(parts) if whole else _any([rows([part]) for part in parts])


def default_partition_terms(
    definition: dg.PartitionsDefinition, expr: PartitionExpr, schema: Schema, asset: str
) -> list[str]:
    """How a new table is partitioned: `hour`, `day` or `month` of a time, a value as it is.

    Raises:
        InvalidInputError | InvalidSchemaError: as `partition_filter`.
    """
    columns = _columns(definition, expr, asset)
    if isinstance(definition, dg.MultiPartitionsDefinition):
        by_name = {part.name: part.partitions_def for part in definition.partitions_defs}
        return [_term(by_name[name], column, schema, asset) for name, column in columns.items()]
    return [_term(definition, columns[""], schema, asset)]


def _columns(
    definition: dg.PartitionsDefinition, expr: PartitionExpr, asset: str
) -> dict[str, str]:
    """Column by dimension; asset partitions of one dimension have no name for it."""
    if isinstance(definition, dg.MultiPartitionsDefinition):
        names = [partitions_def.name for partitions_def in definition.partitions_defs]
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


def partition_column(schema: Schema, column: str, asset: str) -> NestedField:
    """The column that tells partitions. Raises InvalidSchemaError: there is none."""
    try:
        return schema.find_field(column)
    except ValueError as error:
        raise InvalidSchemaError(
            f"asset {asset}: its partitions are those of {column!r}, which is no column; there are "
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
    kind = partition_column(schema, column, asset).field_type
    if isinstance(definition, dg.TimeWindowPartitionsDefinition) and isinstance(kind, TIMES):
        windows = [definition.time_window_for_partition_key(key) for key in keys]
        if isinstance(kind, _WALL_TIMES):
            _refuse_repeated_hours(windows, column, asset)
        return _any(
            [
                And(
                    GreaterThanOrEqual(term=column, value=_text(start, kind, column, asset)),
                    LessThan(term=column, value=_text(end, kind, column, asset)),
                )
                for start, end in _joined([(window.start, window.end) for window in windows])
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
    joined: list[tuple[datetime, datetime]] = []
    for start, end in sorted(windows, key=lambda window: window[0].timestamp()):
        if joined and start.timestamp() <= joined[-1][1].timestamp():
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


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
    kind = partition_column(schema, column, asset).field_type
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition) or not isinstance(kind, TIMES):
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
