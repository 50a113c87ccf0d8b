"""Rows in the order of a Z-curve: near in several columns means near in the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType

from lakehouse.errors import InvalidInputError
from lakehouse.spec.schema.iceberg_types import find_path
from lakehouse.spec.types.arrow_types import column_at

MOST_COLUMNS = 8
_MOST_BITS = 16
_CURVE_BITS = 62
_SAMPLE_ROWS = 1 << 17
_Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class ZOrder:
    """A curve through several columns; picklable, so that all workers of a rewrite share it.

    A value counts by its rank among the quantiles of a sample, so that each column has the same say
    whatever its distribution; nulls come first, NaN last.

    Attributes:
        paths: where each column lies in the rows.
        boundaries: quantiles of each column, ascending and distinct.
        bits: of each column on the curve.
    """

    paths: tuple[tuple[int, ...], ...]
    boundaries: tuple[_Array, ...]
    bits: int

    @classmethod
    def learn(cls, names: Sequence[str], schema: Schema, sample: pa.Table) -> ZOrder:
        """The curve for columns, from a sample of the rows.

        Raises:
            InvalidInputError: see `zorder_ids`.
        """
        paths = tuple(find_path(schema, field_id)[0] for field_id in zorder_ids(names, schema))
        bits = min(_MOST_BITS, _CURVE_BITS // len(paths))
        step = max(1, sample.num_rows // _SAMPLE_ROWS)
        rows = sample.take(np.arange(0, sample.num_rows, step)) if step > 1 else sample
        return cls(
            paths, tuple(_quantiles(column_at(rows, path), (1 << bits) - 2) for path in paths), bits
        )

    def positions(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        """Where on the curve each row lies; the columns of `rows` are those of the schema."""
        curve = np.zeros(rows.num_rows, np.int64)
        count = len(self.paths)
        for number, (path, boundaries) in enumerate(zip(self.paths, self.boundaries, strict=True)):
            rank = _ranks(column_at(rows, path), boundaries)
            for bit in range(self.bits):
                curve |= ((rank >> bit) & 1) << (bit * count + count - 1 - number)
        return curve


def zorder_ids(names: Sequence[str], schema: Schema) -> tuple[int, ...]:
    """Field ids of the columns of a curve.

    Raises:
        InvalidInputError: fewer than two or more than eight columns, an unknown one, one that is no
            single value, one twice.
    """
    if not 2 <= len(names) <= MOST_COLUMNS or len(set(names)) != len(names):
        raise InvalidInputError(
            f"A z-order takes 2 to {MOST_COLUMNS} different columns, not "
            f"{', '.join(names) or 'none'}"
        )
    for name in names:
        if name not in schema.column_names:
            raise InvalidInputError(
                f"Cannot z-order by {name}: the table has {', '.join(schema.column_names)}"
            )
        field = schema.find_field(name)
        inside = [field for field in schema.fields if field.name == name.partition(".")[0]]
        if not isinstance(field.field_type, PrimitiveType) or not _reachable(
            inside[0].field_type, name.split(".")[1:]
        ):
            raise InvalidInputError(
                f"Cannot z-order by {name}: {field.field_type} inside {inside[0].field_type} is no "
                "single value"
            )
    return tuple(schema.find_field(name).field_id for name in names)


def _reachable(kind: Any, names: Sequence[str]) -> bool:
    """Whether a path leads through structs alone."""
    for name in names:
        fields = [field for field in getattr(kind, "fields", ()) if field.name == name]
        if not fields:
            return False
        kind = fields[0].field_type
    return isinstance(kind, PrimitiveType)


def _quantiles(column: pa.ChunkedArray, most: int) -> _Array:
    values = np.unique(_comparable(_storage(column).drop_null()))
    if len(values) <= most:
        return values
    return np.unique(values[np.linspace(0, len(values) - 1, most).astype(np.int64)])


def _ranks(column: pa.ChunkedArray, boundaries: _Array) -> npt.NDArray[np.int64]:
    """0 for null, else 1 + boundaries at or below the value."""
    values = _storage(column)
    ranks = np.zeros(len(values), np.int64)
    valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
    if not len(boundaries) or not valid.any():
        return ranks
    present = values.drop_null()
    if _numeric(present.type):
        ranks[valid] = 1 + np.searchsorted(boundaries, _comparable(present), "right")
        return ranks
    encoded = present.dictionary_encode()
    distinct_ranks = 1 + np.searchsorted(boundaries, _comparable(encoded.dictionary), "right")
    ranks[valid] = distinct_ranks[encoded.indices.to_numpy()]
    return ranks


def _storage(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], whole.type)
    return whole.storage if isinstance(whole, pa.ExtensionArray) else whole


def _numeric(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_temporal(kind)
        or pa.types.is_boolean(kind)
    )


def _comparable(values: pa.Array) -> _Array:
    """Values without nulls as an array that NumPy orders."""
    kind = values.type
    if pa.types.is_boolean(kind):
        return np.asarray(values.to_numpy(zero_copy_only=False)).astype(np.int64)
    if pa.types.is_temporal(kind):
        return np.asarray(
            values.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).to_numpy()
        )
    if _numeric(kind):
        return np.asarray(values.to_numpy(zero_copy_only=False))
    objects = np.empty(len(values), object)
    objects[:] = values.to_pylist()
    return objects
