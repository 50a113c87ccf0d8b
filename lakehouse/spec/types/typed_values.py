"""Iceberg's internal values (days, microseconds, ...) as Arrow arrays of the user's types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.types import IcebergType, UUIDType

from lakehouse.spec.types.arrow_types import type_to_arrow


def typed_array(values: Sequence[Any], kind: IcebergType | None) -> pa.Array:
    """Internal values of one Iceberg type; values of unknown types become text.

    A partition field whose source is long gone has such a type.
    """
    if kind is None:
        return pa.array([None if value is None else str(value) for value in values], pa.string())
    arrow = type_to_arrow(kind)
    if pa.types.is_date32(arrow) or pa.types.is_time(arrow) or pa.types.is_timestamp(arrow):
        width = pa.int32() if arrow.bit_width == 32 else pa.int64()
        return pa.array(values, width).cast(arrow)
    if isinstance(kind, UUIDType):
        raw = pa.array(
            [
                value if value is None or isinstance(value, bytes) else value.bytes
                for value in values
            ],
            pa.binary(16),
        )
        return (
            raw.cast(arrow)
            if not isinstance(arrow, pa.ExtensionType)
            else pa.ExtensionArray.from_storage(arrow, raw)
        )
    return pa.array(values, arrow)
