"""The different values of a column as the specification serializes a single value."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType

from lakehouse.spec.manifests.bounds_columns import encode_bounds
from lakehouse.spec.types.arrow_types import physical_type


def serialized_values(column: pa.Array, kind: IcebergType) -> pa.BinaryArray:
    r"""Each different value once, in single-value serialization (spec: Appendix D); no nulls.

    Args:
        column: values of the type, or of one that it may have been promoted from.
        kind: the type.

    >>> from pyiceberg.types import LongType
    >>> serialized_values(pa.array([7, 7, None], pa.int32()), LongType()).to_pylist()
    [b'\x07\x00\x00\x00\x00\x00\x00\x00']
    """
    values = pc.unique(column.storage if isinstance(column, pa.ExtensionArray) else column)
    target = physical_type(kind)
    if values.type != target:
        temporal = pa.types.is_temporal(values.type)
        values = values.view(target) if temporal else values.cast(target)
    return encode_bounds(values.drop_null())
