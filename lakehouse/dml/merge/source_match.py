"""Which rows of a MERGE's target belong to which rows of its source."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, IntegerType, LongType, StructType

from lakehouse.data.conversion.single_values import internal_values
from lakehouse.dml.merge.merge_binding import BoundMerge, KeyPair
from lakehouse.dml.merge.term_columns import PairedRows
from lakehouse.errors import InvalidExpressionError
from lakehouse.expressions.bound_filter import TRUE, Bound, conjunction
from lakehouse.expressions.filter_binding import to_bound
from lakehouse.expressions.filter_terms import Call, Column, Term, Value
from lakehouse.expressions.physical_comparison import Mask
from lakehouse.expressions.sql import typed_calls as sql
from lakehouse.scan.key_pruning import may_hold_key, sorted_keys, tasks_with_keys
from lakehouse.scan.planner import ScanPlan
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.schema.iceberg_types import fields_by_id
from lakehouse.transaction.conflicts.key_test import KeyTest

if TYPE_CHECKING:
    import polars as pl

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Rows that belong together: row `target[i]` of a file and row `source[i]` of the source."""

    target: Rows
    source: Rows


class SourceMatcher:
    """The keys of the source, ready to be met by files one after the other.

    Args:
        merge: what makes rows belong together.
        source: its source rows.
    """

    def __init__(self, merge: BoundMerge, source: pa.Table) -> None:
        self._merge = merge
        self._rows = PairedRows(source.num_rows, None, merge.target, source, merge.source)
        self._keys = [self._rows.values(pair.source) for pair in merge.keys]
        self._frames: dict[tuple[pa.DataType, ...], pl.DataFrame] = {}

    def repeated(self) -> tuple[int, str] | None:
        """How many source rows share a key that can match with another, and one of these keys."""
        frame = self._frame(self._keys, [one.type for one in self._keys])
        keys = frame.drop("row")
        again = keys.is_duplicated()
        if not again.any():
            return None
        first = self._rows.take(frame.filter(again)["row"].head(1).to_numpy())
        return int(again.sum()), ", ".join(first.shown(pair.source) for pair in self._merge.keys)

    def conflict_filter(self) -> Bound:
        """A filter that every target row passes that may match: the range of each key."""
        return conjunction(
            _range(pair, keys) for pair, keys in zip(self._merge.keys, self._keys, strict=True)
        )

    def tasks(self, plan: ScanPlan) -> Sequence[FileScanTask]:
        """The tasks of a plan whose files may hold a key, by the column that rules out most."""
        found: Sequence[FileScanTask] = plan.tasks
        for field_id, kind, ordered in self._ordered():
            fewer = tasks_with_keys(plan, field_id, kind, ordered)
            found = fewer if len(fewer) < len(found) else found
        return found

    def key_test(self) -> KeyTest:
        """Holds rows of others against the keys."""
        wanted = self._merge.key_columns
        fields = self._merge.target.fields
        columns = Schema(*(one for one in fields if wanted & fields_by_id(StructType(one)).keys()))

        def may_hold(entries: Entries) -> Mask:
            found = np.ones(len(entries), bool)
            for field_id, kind, ordered in self._ordered():
                found &= may_hold_key(entries, field_id, kind, ordered)
            return found

        def count(rows: pa.Table) -> int:
            given = PairedRows(rows.num_rows, rows, columns, None, self._merge.source)
            return len(np.unique(self.pairs(given).target))

        return KeyTest(columns, may_hold, count)

    def _ordered(self) -> Iterator[tuple[int, IcebergType, npt.NDArray[Any]]]:
        """The keys of each column of the target that bounds can be held against, sorted."""
        for pair, keys in zip(self._merge.keys, self._keys, strict=True):
            column = _column_of(pair.target)
            if column is None or pair.nulls_match or not _alike(column.type, pair.source):
                continue
            ordered = sorted_keys(keys, column.type)
            if ordered is not None:
                yield column.field_id, column.type, ordered

    def pairs(self, rows: PairedRows) -> Pairs:
        """The rows of a file, given its key columns, with what they match in the source."""
        given = [rows.values(pair.target) for pair in self._merge.keys]
        common = [_common(one.type, keys.type) for one, keys in zip(given, self._keys, strict=True)]
        target = self._frame(given, common)
        kinds = tuple(common)
        if kinds not in self._frames:
            self._frames[kinds] = self._frame(self._keys, common)
        names = [f"k{number}" for number in range(len(common))]
        joined = target.join(
            self._frames[kinds], on=names, how="inner", nulls_equal=True, suffix="_source"
        ).sort("row", "row_source")
        return Pairs(joined["row"].to_numpy(), joined["row_source"].to_numpy())

    def _frame(self, keys: Sequence[pa.Array], kinds: Sequence[pa.DataType]) -> pl.DataFrame:
        """Keys with their row numbers, without those that match nothing."""
        import polars as pl  # noqa: PLC0415 - takes long to load: only merges need it

        columns = {
            f"k{number}": _plain(one, kind)
            for number, (one, kind) in enumerate(zip(keys, kinds, strict=True))
        }
        rows = np.arange(len(keys[0]), dtype=np.int64)
        frame = pl.DataFrame(pl.from_arrow(pa.table({**columns, "row": rows})))
        needed = [
            name
            for name, pair in zip(columns, self._merge.keys, strict=True)
            if not pair.nulls_match
        ]
        return frame.drop_nulls(needed) if needed else frame


def _plain(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Keys that are equal where theirs are: bits of floats (0.0 is -0.0, NaN is NaN), bytes."""
    found = array.cast(kind)
    if pa.types.is_floating(kind):
        one_zero = pc.add(found, pa.scalar(0.0, kind))
        one_nan = pc.if_else(pc.is_nan(one_zero), pa.scalar(math.nan, kind), one_zero)
        return one_nan.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return found.cast(pa.binary()) if pa.types.is_fixed_size_binary(kind) else found


def _common(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The type in which keys of both types are compared."""
    if left == right:
        return left
    both = [pa.schema([("key", one)]) for one in (left, right)]
    return pa.unify_schemas(both, promote_options="permissive").field("key").type


def _column_of(term: Term) -> Column | None:
    if isinstance(term, Call) and term.name == "widen":
        return _column_of(term.args[0])
    return term if isinstance(term, Column) else None


def _alike(kind: IcebergType, source: Term) -> bool:
    whole = (IntegerType, LongType)
    other = sql.type_of(source)
    return other == kind or (isinstance(kind, whole) and isinstance(other, whole))


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
