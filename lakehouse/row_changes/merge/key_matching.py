"""Which rows of a MERGE's target belong to which rows of its source: those of equal keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from lakehouse.errors import InvalidExpressionError
from lakehouse.expressions.bound_filter import Mask
from lakehouse.expressions.functions.sql_functions import type_of
from lakehouse.row_changes.merge.merge_binding import BoundMerge
from lakehouse.row_changes.target_rows import PairedRows, empty_rows

if TYPE_CHECKING:
    import polars as pl

Rows = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Rows that belong together: row `target[i]` of a file and row `source[i]` of the source."""

    target: Rows
    source: Rows


class KeyColumns:
    """The keys of both sides as plain columns of common types: equal where the keys are.

    Args:
        merge: what makes rows belong together.
        target: columns of the target that the keys are made of.
    """

    def __init__(self, merge: BoundMerge, target: Schema) -> None:
        self.merge = merge
        nothing = PairedRows(0, empty_rows(target), target, empty_rows(merge.source), merge.source)
        self._kinds = [
            type_of([nothing.values(pair.target), nothing.values(pair.source)])
            for pair in merge.keys
        ]
        self._never_null = [
            f"k{number}" for number, pair in enumerate(merge.keys) if not pair.nulls_match
        ]

    def of_target(self, rows: PairedRows) -> list[pa.Array]:
        """The target's side of each key."""
        return [rows.values(pair.target) for pair in self.merge.keys]

    def of_source(self, rows: pa.Table) -> list[pa.Array]:
        """The source's side of each key."""
        beside_nothing = PairedRows(rows.num_rows, None, self.merge.target, rows, self.merge.source)
        return [beside_nothing.values(pair.source) for pair in self.merge.keys]

    def frame(self, keys: Sequence[pa.Array]) -> pl.DataFrame:
        """Keys with the number of their row, without those that match nothing.

        Raises:
            InvalidExpressionError: a key has no value in the type that both sides have in common.
        """
        import polars as pl  # noqa: PLC0415 - takes long to load: only merges need it

        columns = {
            f"k{number}": _plain(key, kind)
            for number, (key, kind) in enumerate(zip(keys, self._kinds, strict=True))
        }
        rows = np.arange(len(keys[0]), dtype=np.int64)
        frame = pl.DataFrame(pl.from_arrow(pa.table({**columns, "row": rows})))
        return frame.drop_nulls(self._never_null) if self._never_null else frame

    def row_numbers(self, keys: Sequence[pa.Array]) -> tuple[Hashes, Hashes]:
        """A number for each row, equal for equal keys; those of the keys that can match alone."""
        frame = self.frame(keys)
        hashed = hashes(frame)
        numbers = np.arange(len(keys[0]), dtype=np.uint64)  # any part will do
        numbers[frame["row"].to_numpy()] = hashed
        return numbers, hashed


def hashes(keys: pl.DataFrame) -> Hashes:
    """A number for each row of a frame of keys: the same for equal keys, in this process."""
    return keys.drop("row").hash_rows().to_numpy()


class KeyMarks:
    """Which keys are surely none of those added: a table of marks, 16 for each key or fewer.

    Args:
        keys: how many will be added.
        most_bytes: what it may take.
    """

    def __init__(self, keys: int, most_bytes: int) -> None:
        bits = min(max(keys * 16, 1 << 10), most_bytes).bit_length() - 1
        self._marks = np.zeros(1 << bits, bool)
        self._shift = np.uint64(64 - bits)

    def add(self, keys: Hashes) -> None:
        """Remember keys."""
        self._marks[self._places(keys)] = True

    def may_hold(self, keys: Hashes) -> Mask:
        """Which of the keys may have been added."""
        return self._marks.take(self._places(keys))

    def _places(self, keys: Hashes) -> Rows:
        return (keys >> self._shift).view(np.int64)  # numpy is slow with other indices


class SourcePart:
    """Source rows in memory, ready to be met by rows of the target.

    Attributes:
        rows: theirs.
        keys: frame of their keys.
        matched: which rows have met one of the target so far.
        acted: on the meeting of which a clause acted.
    """

    def __init__(self, columns: KeyColumns, rows: pa.Table) -> None:
        self.rows = rows
        self.values = columns.of_source(rows)
        self.keys = columns.frame(self.values)
        self.matched = np.zeros(rows.num_rows, bool)
        self.acted = np.zeros(rows.num_rows, bool)
        self._columns = columns

    def repeated(self) -> tuple[int, str] | None:
        """How many rows share a key that can match with another, and one of these keys."""
        again = self.keys.drop("row").is_duplicated()
        if not again.any():
            return None
        first = self.rows.take(self.keys.filter(again)["row"].head(1).to_arrow())
        merge = self._columns.merge
        shown = PairedRows(1, None, merge.target, first, merge.source)
        return int(again.sum()), ", ".join(shown.shown(pair.source) for pair in merge.keys)

    def pairs(self, rows: PairedRows) -> Pairs:
        """Rows of the target, with what they match here."""
        target = self._columns.frame(self._columns.of_target(rows))
        names = target.columns[:-1]
        joined = target.join(
            self.keys, on=names, how="inner", nulls_equal=True, suffix="_source"
        ).sort("row", "row_source")
        return Pairs(joined["row"].to_numpy(), joined["row_source"].to_numpy())


def _plain(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Keys that are equal where theirs are: bits of floats (0.0 is -0.0, NaN is NaN), bytes."""
    try:
        # an integer becomes the nearest floating point number, as in filters
        keys = array.cast(kind, safe=not pa.types.is_floating(kind))
    except pa.ArrowInvalid as error:
        raise InvalidExpressionError(
            f"a key of type {array.type} cannot be compared as {kind}: {error}"
        ) from error
    if pa.types.is_floating(kind):
        one_zero = pc.add(keys, pa.scalar(0.0, kind))
        one_nan = pc.if_else(pc.is_nan(one_zero), pa.scalar(math.nan, kind), one_zero)
        return one_nan.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return keys.cast(pa.binary()) if pa.types.is_fixed_size_binary(kind) else keys
