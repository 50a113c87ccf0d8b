"""Building nested Arrow arrays out of parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def make_struct(
    children: Sequence[pa.Array],
    target: pa.StructType,
    present: pa.BooleanArray | None,
    length: int,
) -> pa.StructArray:
    """A struct array of the given type and length; null where `present` is false."""
    if not children:
        valid, offset = (None, 0) if present is None else (present.buffers()[1], present.offset)
        return pa.Array.from_buffers(target, length, [valid], offset=offset)
    mask = None if present is None else pc.invert(present)
    return pa.StructArray.from_arrays(list(children), fields=list(target), mask=mask)


def make_list(values: pa.Array, lengths: pa.Array, target: pa.DataType) -> pa.Array:
    """A list array from flattened values and list lengths; a null length is a null list."""
    offsets, mask = _offsets(lengths)
    if pa.types.is_large_list(target):
        return pa.LargeListArray.from_arrays(pa.array(offsets), values, type=target, mask=mask)
    return pa.ListArray.from_arrays(
        pa.array(offsets.astype(np.int32)), values, type=target, mask=mask
    )


def make_map(
    keys: pa.Array, values: pa.Array, lengths: pa.Array, target: pa.MapType
) -> pa.MapArray:
    """A map array from flattened keys and values and the length of each map."""
    offsets, mask = _offsets(lengths)
    validity, *buffers = keys.buffers()
    if validity is not None and keys.null_count == 0 and not keys.type.num_fields:
        # Arrow's cast of the map takes such keys for nulls, and ends the process
        keys = pa.Array.from_buffers(keys.type, len(keys), [None, *buffers], 0, keys.offset)
    return pa.MapArray.from_arrays(
        pa.array(offsets.astype(np.int32)), keys, values, type=target, mask=mask
    )


def list_parts(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Flattened values and the length of each list (null for a null list) of any list type.

    The inverse of `make_list`.
    """
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        return array.flatten(), pc.list_value_length(array)
    (values,), lengths = _parts(array, [array.values])
    return values, lengths


def map_parts(array: pa.MapArray) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Flattened keys, flattened values and the length of each map (null for a null map).

    The inverse of `make_map`.
    """
    (keys, values), lengths = _parts(array, [array.keys, array.items])
    return keys, values, lengths


def _parts(array: pa.Array, children: Sequence[pa.Array]) -> tuple[list[pa.Array], pa.Array]:
    offsets = array.offsets.to_numpy()
    lengths = np.diff(offsets)
    null = array.is_null().to_numpy(zero_copy_only=False)
    if lengths[null].any():
        # A null list may still cover entries in Arrow; these are dropped. `take` knows no views.
        starts, mask = pa.array(offsets, pa.int64()), pa.array(null)
        lists = [pa.LargeListArray.from_arrays(starts, child, mask=mask) for child in children]
        return [array.flatten() for array in lists], pa.array(lengths, mask=null)
    first, rows = int(offsets[0]), int(offsets[-1] - offsets[0])
    return [child.slice(first, rows) for child in children], pa.array(lengths, mask=null)


def without_nulls(array: pa.Array) -> pa.Array:
    """The same array with no slot null; what stands in the slots that were is undefined.

    For required children of null structs: nothing of them is stored, but Parquet writers refuse to
    see nulls there.
    """
    kind = array.type
    if array.null_count == 0:
        return array
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(kind, without_nulls(array.storage))
    if pa.types.is_struct(kind):
        children = [array.field(i) for i in range(kind.num_fields)]
        return make_struct(children, kind, None, len(array))
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(array.offsets, array.keys, array.items, type=kind)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets, array.values, type=kind)
    return pa.Array.from_buffers(kind, len(array), [None, *array.buffers()[1:]], 0, array.offset)


def _offsets(lengths: pa.Array) -> tuple[npt.NDArray[np.int64], pa.BooleanArray | None]:
    mask = lengths.is_null() if lengths.null_count else None
    filled = lengths.fill_null(0) if mask is not None else lengths
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(filled.to_numpy(zero_copy_only=False), out=offsets[1:])
    return offsets, mask
