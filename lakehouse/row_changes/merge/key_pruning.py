"""What the keys of a MERGE's source rule out: files of the target, and rows of other commits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
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

from lakehouse.data.statistics.key_filters import key_hashes, keys_as
from lakehouse.errors import InvalidExpressionError
from lakehouse.expressions.bound_filter import (
    TRUE,
    Bound,
    Call,
    Column,
    Mask,
    Term,
    Value,
    conjunction,
)
from lakehouse.expressions.filter_binding import to_bound
from lakehouse.expressions.sql import typed_calls as sql
from lakehouse.row_changes.merge.key_matching import KeyColumns, KeyMarks, SourcePart, hashes
from lakehouse.row_changes.merge.merge_binding import BoundMerge, KeyPair
from lakehouse.row_changes.target_rows import PairedRows, TargetRows, top_level
from lakehouse.scan.planner import ScanPlan
from lakehouse.scan.pruning.entry_pruning import statistics_of_files
from lakehouse.scan.scan_tasks import FileScanTask, LazyItems
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.types.internal_values import internal_values
from lakehouse.spec.types.sorted_numbers import distinct
from lakehouse.transaction.decided_rows import KeyTest

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


_MOST_KEYS = 1_000
"""Of more keys a filter takes one for another in most files, and rules out none."""
_OPENING_BYTES = 1 << 14
"""Opening a file, to read its footer, takes as long as reading so much."""


class KeyRange:
    """The range that the keys of a source lie in, taken together from one batch after the other."""

    def __init__(self, merge: BoundMerge) -> None:
        self._merge = merge
        self._extremes: list[list[pa.Array]] = [[] for _ in merge.keys]

    def add(self, values: Sequence[pa.Array]) -> None:
        """Take in the source's side of each key of some rows."""
        for extremes, keys in zip(self._extremes, values, strict=True):
            extremes.append(_extremes(keys))

    def filter(self) -> Bound:
        """Passes every target row that may match."""
        return conjunction(
            _range(pair, pa.concat_arrays(extremes))
            for pair, extremes in zip(self._merge.keys, self._extremes, strict=True)
            if extremes
        )


class KeysInOrder:
    """Keys of a source that compare with bounds of files, sorted, by column of the target.

    Args:
        merge: what makes rows belong together.
        values: the source's side of each key.
    """

    def __init__(self, merge: BoundMerge, values: Sequence[pa.Array]) -> None:
        self._columns: list[tuple[int, IcebergType, npt.NDArray[Any]]] = []
        for column, keys in compared_columns(merge, values):
            ordered = sorted_keys(keys, column.type)
            if ordered is not None:
                self._columns.append((column.field_id, column.type, ordered))

    def tasks(self, plan: ScanPlan) -> Sequence[FileScanTask]:
        """The tasks of a plan whose files may hold a key, by the column that rules out most."""
        fewest: Sequence[FileScanTask] = plan.tasks
        for field_id, kind, ordered in self._columns:
            fewer = tasks_with_keys(plan, field_id, kind, ordered)
            fewest = fewer if len(fewer) < len(fewest) else fewest
        return fewest

    def may_hold(self, entries: Entries) -> Mask:
        """Which files may hold a key."""
        mask = np.ones(len(entries), bool)
        for field_id, kind, ordered in self._columns:
            mask &= may_hold_key(entries, field_id, kind, ordered)
        return mask


def compared_columns(
    merge: BoundMerge, values: Sequence[pa.Array]
) -> Iterator[tuple[Column, pa.Array]]:
    """Columns of the target whose value has to be a key, with the keys of the source.

    Args:
        merge: what makes rows belong together.
        values: the source's side of each key.
    """
    for pair, keys in zip(merge.keys, values, strict=True):
        column = _column_of(pair.target)
        if column is not None and not pair.nulls_match and _alike(column.type, pair.source):
            yield column, keys


def key_test(columns: KeyColumns, known: SourcePart | KeyMarks) -> KeyTest:
    """Holds rows of others against the keys; what their marks take for one of them is one.

    Args:
        columns: of the keys.
        known: all source rows, or marks of their keys where they are not in memory.
    """
    read = top_level(columns.merge.target, columns.merge.key_columns)

    def may_hold(entries: Entries) -> Mask:
        if isinstance(known, SourcePart):
            return KeysInOrder(columns.merge, known.values).may_hold(entries)
        return np.ones(len(entries), bool)

    def count(rows: pa.Table) -> int:
        given = PairedRows(rows.num_rows, rows, read, None, columns.merge.source)
        if isinstance(known, SourcePart):
            return len(distinct(known.pairs(given).target))
        return int(known.may_hold(hashes(columns.frame(columns.of_target(given)))).sum())

    return KeyTest(read, may_hold, count)


def _column_of(term: Term) -> Column | None:
    if isinstance(term, Call) and term.name == "widen":
        return _column_of(term.args[0])
    return term if isinstance(term, Column) else None


def _alike(kind: IcebergType, source: Term) -> bool:
    whole = (IntegerType, LongType)
    other = sql.type_of(source)
    return other == kind or (isinstance(kind, whole) and isinstance(other, whole))


def _extremes(keys: pa.Array) -> pa.Array:
    """Least and greatest key; NaN where there is one; one key of a type without an order."""
    if pa.types.is_floating(keys.type) and pc.any(pc.is_nan(keys)).as_py():
        return pa.array([math.nan], keys.type)
    try:
        limits = pc.min_max(keys)
    except pa.ArrowNotImplementedError:
        return keys.slice(0, 1)
    return pa.array([limits["min"], limits["max"]], keys.type)


def _range(pair: KeyPair, keys: pa.Array) -> Bound:
    """Where the target's side of a pair lies, of rows that match; TRUE where that is not known."""
    if pair.nulls_match or not len(keys) or keys.null_count == len(keys):
        return TRUE
    kind = sql.type_of(pair.source)
    if pa.types.is_floating(keys.type) and pc.any(pc.is_nan(keys)).as_py():
        return TRUE  # NaN, which is above every number, matches NaN
    try:
        limits = pc.min_max(keys)
        low, high = internal_values(pa.array([limits["min"], limits["max"]], keys.type), kind)
        return conjunction(_limits(pair.target, kind, low, high))
    except (InvalidExpressionError, pa.ArrowNotImplementedError):
        return TRUE  # a type without an order prunes nothing


def _limits(target: Term, kind: IcebergType, low: object, high: object) -> Iterator[Bound]:
    yield to_bound(sql.compare(">=", target, Value(low, kind)))
    yield to_bound(sql.compare("<=", target, Value(high, kind)))


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
    numbers = np.flatnonzero(np.concatenate(masks)) if masks else np.empty(0, np.int64)
    return [plan.tasks[int(number)] for number in numbers]


def may_hold_key(part: Entries, field_id: int, kind: IcebergType, keys: npt.NDArray[Any]) -> Mask:
    """Which entries may hold a key, by their bounds; see `tasks_with_keys`."""
    known = statistics_of_files(part.table, field_id, kind)
    first = _places(keys, known.lower, kind, "left", len(part), unknown=0)
    last = _places(keys, known.upper, kind, "right", len(part), unknown=len(keys))
    return (last > first) & ~known.no_values


def _places(
    keys: npt.NDArray[Any],
    bounds: pa.Array | pa.ChunkedArray | None,
    kind: IcebergType,
    side: Any,
    files: int,
    *,
    unknown: int,
) -> npt.NDArray[np.int64]:
    places = np.full(files, unknown, np.int64)
    if bounds is not None:
        array = bounds.combine_chunks() if isinstance(bounds, pa.ChunkedArray) else bounds
        valid = np.asarray(array.is_valid())
        places[valid] = np.searchsorted(keys, _comparable(array.drop_null(), kind), side)
    return places


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


def files_with_keys(
    target: TargetRows, merge: BoundMerge, source: SourcePart, plan: ScanPlan
) -> Sequence[FileScanTask]:
    """The tasks of a plan whose files may hold a key: by their bounds, then by key filters.

    Filters are read where that is less than what they may save to read.
    """
    tasks = KeysInOrder(merge, source.values).tasks(plan)
    if len(source.keys) > _MOST_KEYS:
        return tasks
    for column, keys in compared_columns(merge, source.values):
        if keys_as(column.type) is None or len(tasks) <= 1:
            continue
        filters = target.key_filters(column, _bytes_of(column.field_id, tasks))
        if filters.by_file:
            wanted = key_hashes(keys, column.type)
            tasks = [task for task in tasks if filters.may_hold(task.data_file.file_path, wanted)]
    return tasks


def _bytes_of(field_id: int, tasks: Sequence[FileScanTask]) -> int:
    """What reading a column of files takes; whole files where the column's size is not known."""
    files = [task.data_file for task in tasks]
    sizes = (file.column_sizes.get(field_id, file.file_size_in_bytes) for file in files)
    return sum(sizes) + len(files) * _OPENING_BYTES
