"""Aggregates that the entries of data files tell without reading a file: counts and extremes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    DateType,
    IntegerType,
    LongType,
    NestedField,
    TimestampType,
    TimestamptzType,
)

from lakehouse.scan.pruning.entry_pruning import statistics_of_files
from lakehouse.spec.manifests.manifest_entries import Entries

EXACT = (IntegerType, LongType, DateType, TimestampType, TimestamptzType)
"""Types whose bounds writers do not cut: the least value of a file is its lower bound."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate over all rows of the files.

    Attributes:
        function: `rows`, or of a column `count` of the values that are not null, `min` or `max`.
        column: primitive, on the top level; None for `rows`.
    """

    function: Literal["rows", "count", "min", "max"]
    column: NestedField | None = None

    @property
    def in_entries(self) -> bool:
        """Whether entries can have what it takes."""
        if self.column is None:
            return self.function == "rows"
        kind = self.column.field_type
        return kind.is_primitive and (self.function == "count" or isinstance(kind, EXACT))


def from_entries(parts: Sequence[Entries], aggregates: Iterable[Aggregate]) -> list[int | None]:
    """Aggregates from entries, in their order: dates as days, timestamps as microseconds.

    The extreme of no values is None.

    Args:
        parts: entries of data files, with metrics if an aggregate has a column; no row is deleted.
        aggregates: of which `in_entries` is true.

    Raises:
        LookupError: the entries lack what one of them takes.
    """
    return [_value(parts, aggregate) for aggregate in aggregates]


def _value(parts: Sequence[Entries], aggregate: Aggregate) -> int | None:
    if aggregate.column is None:
        return sum(pc.sum(part.table["record_count"]).as_py() or 0 for part in parts)
    if aggregate.function == "count":
        return sum(_values_of(part.table, aggregate.column.field_id) for part in parts)
    extremes = [_extreme(part.table, aggregate.function, aggregate.column) for part in parts]
    known = [extreme for extreme in extremes if extreme is not None]
    if not known:
        return None
    return min(known) if aggregate.function == "min" else max(known)


def _values_of(table: pa.Table, field_id: int) -> int:
    counts = []
    for name in (f"value_count.{field_id}", f"null_count.{field_id}"):
        column = table[name] if name in table.column_names else None
        if column is None or column.null_count or pc.any(pc.less(column, 0)).as_py():
            raise LookupError(name)
        counts.append(np.asarray(column))
    values, nulls = counts
    if (values != np.asarray(table["record_count"])).any() or (nulls > values).any():
        raise LookupError("counts that contradict each other")
    return int(values.sum() - nulls.sum())


def _extreme(table: pa.Table, function: str, column: NestedField) -> int | None:
    statistics = statistics_of_files(table, column.field_id, column.field_type)
    bounds = statistics.lower if function == "min" else statistics.upper
    known = np.zeros(table.num_rows, bool) if bounds is None else np.asarray(pc.is_valid(bounds))
    if not (known | statistics.all_null | (np.asarray(table["record_count"]) == 0)).all():
        raise LookupError(column.name)
    if bounds is None:
        return None
    whole = bounds.cast(pa.int32()) if pa.types.is_date32(bounds.type) else bounds
    extreme = pc.min_max(whole.cast(pa.int64()))[function].as_py()
    return None if extreme is None else int(extreme)
