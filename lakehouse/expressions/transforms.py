"""Partition transforms over Arrow arrays (spec: Partition Transforms, Appendix B)."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.transforms import Transform
from pyiceberg.types import IcebergType


def transform_array(transform: Transform, array: pa.Array | pa.ChunkedArray, source_type: IcebergType) -> pa.Array | pa.ChunkedArray:
    """Apply a transform to a whole array.

    Args:
        transform: pyiceberg's transform object (identity, bucket, truncate, year, month, day, hour, void).
        array: source values in the Arrow type of `source_type` (large, view and dictionary encodings are accepted).
        source_type: Iceberg type of the source column.

    Returns:
        An array of the same length: int32 for bucket, year, month and hour, date32 for day, the source type otherwise.
        Null stays null.

    Raises:
        InvalidPartitionSpecError: the transform does not apply to the type.
        UnsupportedFeatureError: an unknown transform, which cannot be computed.
    """
    raise AssertionError(transform, array, source_type)
