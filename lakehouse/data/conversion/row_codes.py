"""Rows as numbers: equal rows, equal numbers, whatever the types of the columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.data.conversion.nested_arrays import list_parts, map_parts

Codes = npt.NDArray[np.int64]
_MOST = 2**62


def row_codes(data: pa.Table) -> Codes:
    """A number for each row, from 0 without gaps; equal rows have equal numbers.

    Nulls are equal to nulls and NaN to NaN; -0.0 and 0.0 differ.
    """
    return _combined([_codes(_whole(column)) for column in data.columns], data.num_rows)


def without_common(
    left: pa.Table, right: pa.Table, columns: int | None = None
) -> tuple[pa.Table, pa.Table]:
    """Two tables without the rows that are in both, as often as in both.

    Rows are equal by their first `columns`; None: by all.
    """
    codes = row_codes(pa.concat_tables([left, right]).select(range(columns or left.num_columns)))
    of_left, of_right = codes[: left.num_rows], codes[left.num_rows :]
    return (
        left.filter(pa.array(surplus(of_left, of_right))),
        right.filter(pa.array(surplus(of_right, of_left))),
    )


def surplus(codes: Codes, others: Codes) -> npt.NDArray[np.bool_]:
    """Which rows of `codes` remain when each of `others` cancels one equal row, from the start."""
    size = int(max(codes.max(initial=-1), others.max(initial=-1))) + 1
    taken = np.bincount(others, minlength=size)[codes]
    mask, met = np.ones(len(codes), np.bool_), np.flatnonzero(taken)
    mask[met] = occurrence(codes[met]) >= taken[met]
    return mask


def occurrence(codes: Codes) -> Codes:
    """For each row, how many equal ones stand before it."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    positions = np.arange(len(codes))
    starts = np.maximum.accumulate(
        np.where(np.r_[True, ordered[1:] != ordered[:-1]][: len(codes)], positions, 0)
    )
    ranks = np.empty(len(codes), np.int64)
    ranks[order] = positions - starts
    return ranks


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _combined(parts: Sequence[Codes], rows: int) -> Codes:
    combined, size = np.zeros(rows, np.int64), 1
    for number, codes in enumerate(parts if rows else ()):
        width = int(codes.max()) + 1
        if size > _MOST // width:
            combined = _dense(combined)
            size = int(combined.max()) + 1
        combined, size = combined * width + codes, size * width
        if number and number == len(parts) - 1:
            combined = _dense(combined)
    return combined


def _dense(numbers: Codes) -> Codes:
    return pa.array(numbers).dictionary_encode().indices.to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def _codes(array: pa.Array) -> Codes:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.int64)
    if pa.types.is_struct(kind):
        return _combined(
            [_validity(array), *(_codes(child) for child in array.flatten())], len(array)
        )
    if pa.types.is_map(kind):
        keys, values, lengths = map_parts(array)
        return _nested(array, _combined([_codes(keys), _codes(values)], len(keys)), lengths)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        values, lengths = list_parts(array)
        return _nested(array, _codes(values), lengths)
    if pa.types.is_floating(kind):
        array = pc.if_else(pc.is_nan(array), pa.scalar(float("nan"), kind), array)
        array = array.view(pa.int32() if pa.types.is_float32(kind) else pa.int64())
    codes: Codes = (
        array.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
    )
    return codes


def _validity(array: pa.Array) -> Codes:
    return np.asarray(array.is_valid()).astype(np.int64)


def _nested(array: pa.Array, inner: Codes, lengths: Any) -> Codes:
    """Lists by the numbers of their elements."""
    counts = [length or 0 for length in lengths.to_pylist()]
    ends = np.cumsum([0, *counts])
    seen: dict[Any, int] = {}
    valid = array.is_valid().to_pylist()
    items = (
        tuple(inner[ends[at] : ends[at + 1]].tolist()) if present else None
        for at, present in enumerate(valid)
    )
    return np.array([seen.setdefault(item, len(seen)) for item in items], np.int64)
