"""Building nested Arrow arrays out of parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def make_struct(
    children: Sequence[pa.Array], target: pa.StructType, present: pa.BooleanArray | None, length: int
) -> pa.StructArray:
    """A struct array of the given type and length; null where `present` is false."""
    if not children:
        return pa.nulls(length, target) if present is not None else pa.array([{}] * length, target)
    mask = None if present is None else pc.invert(present)
    return pa.StructArray.from_arrays(list(children), fields=list(target), mask=mask)


def make_list(values: pa.Array, lengths: pa.Array, target: pa.DataType) -> pa.Array:
    """A list array from flattened values and the length of each list (null: the list is null and holds no values)."""
    offsets, mask = _offsets(lengths)
    if pa.types.is_large_list(target):
        return pa.LargeListArray.from_arrays(pa.array(offsets), values, type=target, mask=mask)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values, type=target, mask=mask)


def make_map(keys: pa.Array, values: pa.Array, lengths: pa.Array, target: pa.MapType) -> pa.MapArray:
    """A map array from flattened keys and values and the length of each map."""
    offsets, mask = _offsets(lengths)
    return pa.MapArray.from_arrays(pa.array(offsets.astype(np.int32)), keys, values, type=target, mask=mask)


def map_parts(array: pa.MapArray) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Flattened keys, flattened values and the length of each map (null for a null map); the inverse of `make_map`."""
    kind = array.type
    entry = pa.struct([pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)])
    lists = array.cast(pa.list_(pa.field("entries", entry, nullable=False)))
    entries = lists.flatten()
    return entries.field(0), entries.field(1), pc.list_value_length(lists)


def _offsets(lengths: pa.Array) -> tuple[npt.NDArray[np.int64], pa.BooleanArray | None]:
    mask = lengths.is_null() if lengths.null_count else None
    filled = lengths.fill_null(0) if mask is not None else lengths
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(filled.to_numpy(zero_copy_only=False), out=offsets[1:])
    return offsets, mask
