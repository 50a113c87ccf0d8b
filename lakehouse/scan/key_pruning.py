"""Which files may hold one of many keys: sorted keys against the bounds of all files at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    DateType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from lakehouse.expressions.physical_comparison import Column, Mask
from lakehouse.scan.planner import ScanPlan
from lakehouse.scan.pruning.entry_pruning import statistics_of_files
from lakehouse.scan.scan_tasks import FileScanTask, LazyItems
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.types.sorted_numbers import distinct

_COUNTED = (
    IntegerType,
    LongType,
    DateType,
    TimeType,
    TimestampType,
    TimestamptzType,
    TimestampNanoType,
    TimestamptzNanoType,
)
_SPELLED = (StringType, BinaryType)


def sorted_keys(keys: pa.Array, kind: IcebergType) -> npt.NDArray[Any] | None:
    """Distinct keys without nulls, in the order of bounds; None for types that are not looked up.

    Args:
        keys: Arrow values of the type.
        kind: of the column that is looked into.
    """
    if not isinstance(kind, (*_COUNTED, *_SPELLED)):
        return None
    return distinct(_comparable(keys.drop_null(), kind))


def tasks_with_keys(
    plan: ScanPlan, field_id: int, kind: IcebergType, keys: npt.NDArray[Any]
) -> Sequence[FileScanTask]:
    """The tasks of a plan whose files may hold a key; those with unknown bounds may.

    Args:
        plan: with the metrics of the column at hand (`include_metrics`, or a filter that names it).
        field_id: of the column.
        kind: of the column, `int` for the bounds of an `int`.
        keys: from `sorted_keys`.
    """
    parts: Sequence[Entries] = plan.files.parts if isinstance(plan.files, LazyItems) else ()
    masks = [may_hold_key(part, field_id, kind, keys) for part in parts]
    found = np.flatnonzero(np.concatenate(masks)) if masks else np.empty(0, np.int64)
    return [plan.tasks[int(one)] for one in found]


def may_hold_key(part: Entries, field_id: int, kind: IcebergType, keys: npt.NDArray[Any]) -> Mask:
    """Which entries may hold a key, by their bounds; see `tasks_with_keys`."""
    known = statistics_of_files(part.table, field_id, kind)
    first = _places(keys, known.lower, kind, "left", len(part), unknown=0)
    last = _places(keys, known.upper, kind, "right", len(part), unknown=len(keys))
    return (last > first) & ~known.no_values


def _places(
    keys: npt.NDArray[Any],
    bounds: Column | None,
    kind: IcebergType,
    side: Any,
    files: int,
    *,
    unknown: int,
) -> npt.NDArray[np.int64]:
    found = np.full(files, unknown, np.int64)
    if bounds is not None:
        array = bounds.combine_chunks() if isinstance(bounds, pa.ChunkedArray) else bounds
        valid = np.asarray(array.is_valid())
        found[valid] = np.searchsorted(keys, _comparable(array.drop_null(), kind), side)
    return found


def _comparable(array: pa.Array, kind: IcebergType) -> npt.NDArray[Any]:
    """Numbers, or the bytes of texts: both are ordered as bounds are."""
    if isinstance(kind, _SPELLED):
        return np.array(array.cast(pa.binary()).to_pylist(), dtype=object)
    width = array.type.bit_width
    whole = (
        array
        if pa.types.is_integer(array.type)
        else array.view(pa.int32() if width == 32 else pa.int64())
    )
    return np.asarray(whole).astype(np.int64)
