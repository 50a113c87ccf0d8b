"""What the rows of a table look like, column by column: what proposals are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import PrimitiveType

from lakehouse.table import Table

_MOST_KEPT = 40


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """One column of a snapshot.

    Attributes:
        name: of the column.
        kind: Arrow type.
        rows, nulls, distinct: counts; `distinct` leaves nulls out.
        lower, upper: smallest and largest value, None where the type has no order or there is no
            value.
        total: sum, for numbers.
        values: how often each value occurs, when there are at most 40 of them.
        different: the different values, sorted by nothing.
    """

    name: str
    kind: pa.DataType
    rows: int
    nulls: int
    distinct: int
    lower: Any
    upper: Any
    total: float | None
    values: Mapping[Any, int]
    different: pa.Array = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class TableProfile:
    """A table at a snapshot, its primitive columns by name in their order."""

    table: Table
    snapshot_id: int
    rows: int
    columns: Mapping[str, ColumnProfile]

    @property
    def name(self) -> str:
        """Dotted."""
        return self.table.name


def profile(table: Table) -> TableProfile | None:
    """Read a table column by column; None for a table without data."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return None
    names = [
        field.name for field in table.schema().fields if isinstance(field.field_type, PrimitiveType)
    ]
    columns = {}
    rows = 0
    for name in names:
        column = table.scan(select=name, snapshot_id=snapshot.snapshot_id).to_arrow().column(0)
        rows = len(column)
        columns[name] = _column(name, column)
    return TableProfile(table, snapshot.snapshot_id, rows, columns)


def _column(name: str, column: pa.ChunkedArray) -> ColumnProfile:
    present = column.drop_null()
    different = present.unique()
    ordered = not (pa.types.is_binary(column.type) or pa.types.is_fixed_size_binary(column.type))
    ends = pc.min_max(present).as_py() if ordered and len(present) else {"min": None, "max": None}
    numeric = pa.types.is_integer(column.type) or pa.types.is_decimal(column.type)
    numeric = numeric or pa.types.is_floating(column.type)
    values = {}
    if len(different) <= _MOST_KEPT:
        counted = present.value_counts().to_pylist()
        values = {pair["values"]: pair["counts"] for pair in counted}
    return ColumnProfile(
        name=name,
        kind=column.type,
        rows=len(column),
        nulls=column.null_count,
        distinct=len(different),
        lower=ends["min"],
        upper=ends["max"],
        total=float(pc.sum(present.cast(pa.float64())).as_py() or 0.0) if numeric else None,
        values=values,
        different=different,
    )
