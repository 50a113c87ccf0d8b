"""From partitions of one spec to those of a coarser one that hold their rows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    MonthTransform,
    Transform,
    YearTransform,
)

_UNITS: dict[type[Transform[Any, Any]], str] = {
    HourTransform: "h",
    DayTransform: "D",
    MonthTransform: "M",
    YearTransform: "Y",
}
_GRAINS = list(_UNITS)

Coarser = Callable[[Sequence[Any]], tuple[Any, ...]]


def is_time(field: PartitionField) -> bool:
    """Whether a partition field is an hour, day, month or year."""
    return type(field.transform) in _UNITS


def period_end_ms(field: PartitionField, value: int) -> int:
    """Milliseconds since the epoch at which an hour, day, month or year is over (UTC)."""
    unit = _UNITS[type(field.transform)]
    return _converted(value + 1, unit, "ms")


def coarser(fine: PartitionSpec, coarse: PartitionSpec) -> Coarser | None:
    """What tells, for a partition of `fine`, the partition of `coarse` that all its rows are of.

    Each field of `coarse` is one of `fine`, or a longer period or fewer buckets (a divisor) of the
    same column.

    Returns:
        None: partitions of `fine` do not tell.
    """
    parts = [_part(fine, field) for field in coarse.fields]
    known = [part for part in parts if part is not None]
    if len(known) != len(parts):
        return None
    return lambda values: tuple(
        None if values[at] is None else turn(values[at]) for at, turn in known
    )


def _part(fine: PartitionSpec, field: PartitionField) -> tuple[int, Callable[[Any], Any]] | None:
    for at, kept in enumerate(fine.fields):
        if kept.source_id != field.source_id:
            continue
        turn = _turn(kept.transform, field.transform)
        if turn is not None:
            return at, turn
    return None


def _turn(fine: Transform[Any, Any], coarse: Transform[Any, Any]) -> Callable[[Any], Any] | None:
    if fine == coarse:
        return lambda value: value
    if type(fine) in _UNITS and type(coarse) in _UNITS:
        if _GRAINS.index(type(fine)) > _GRAINS.index(type(coarse)):
            return None
        before, after = _UNITS[type(fine)], _UNITS[type(coarse)]
        return lambda value: _converted(value, before, after)
    if isinstance(fine, BucketTransform) and isinstance(coarse, BucketTransform):
        fewer = coarse.num_buckets
        return None if fine.num_buckets % fewer else lambda value: value % fewer
    return None


def _converted(value: int, before: str, after: str) -> int:
    """A count of one unit since the epoch in another, rounded down."""
    times = np.array([value], f"datetime64[{before}]").astype(f"datetime64[{after}]")
    return int(times.astype(np.int64)[0])
