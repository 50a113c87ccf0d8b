"""A file as the task in the JVM that wrote it describes it, as a data file of the table."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
from pyiceberg import types as ice

from lakehouse.data.reading.parquet_reader import as_metadata_file
from lakehouse.data.statistics.column_metrics import (
    FileMetrics,
    footer_metrics,
    lower_bound,
    metrics_modes,
)
from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.spark.writing.write_order import floating_fields, folder_of, write_order
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.types.arrow_types import leaf_field_ids


class DescribedFiles:
    """Data files of one write.

    Args:
        request: what the tasks wrote.
    """

    def __init__(self, request: WriteRequest) -> None:
        self._request = request
        flat, nested = floating_fields(request)
        self._floating = [field for _, field in (*flat, *nested)]
        self._keys = [
            "int"
            if field["transform"] in ("bucket", "year", "month", "day", "hour")
            else field["type"]
            for field in write_order(request)["fields"]
        ]
        self._modes = metrics_modes(request.schema, request.properties, request.sort_order)
        self._root = folder_of(request.location)
        self._location = request.location.rstrip("/")

    def data_file(self, text: str) -> DataFile:
        """The file that the JSON text of a task describes."""
        described = json.loads(text)
        footer = pq.read_metadata(BytesIO(as_metadata_file(base64.b64decode(described["footer"]))))
        measured = list(zip(self._floating, described["floating"], strict=True))
        nans = {field.field_id: counts[0] for field, counts in measured}
        metrics = footer_metrics(
            footer, leaf_field_ids(footer), self._request.schema, self._modes, nans
        )
        for field, counts in measured:
            self._bound(metrics, field, counts)
        return metrics.data_file(
            file_path=self.location(described),
            partition=tuple(
                None if value is None else _value(kind, base64.b64decode(value))
                for kind, value in zip(self._keys, described["keys"], strict=True)
            ),
            spec_id=self._request.spec.spec_id,
            file_size_in_bytes=described["size"],
            sort_order_id=self._request.sort_order.order_id,
        )

    def location(self, described: dict[str, Any]) -> str:
        """Where the file lies, as the table's metadata spells it."""
        path = base64.b64decode(described["path"]).decode()
        return self._location + path.removeprefix(self._root)

    def _bound(self, metrics: FileMetrics, field: ice.NestedField, ends: Sequence[Any]) -> None:
        """Bounds without NaN: Spark's Parquet has none for a row group with a NaN."""
        metrics.lower_bounds.pop(field.field_id, None)
        metrics.upper_bounds.pop(field.field_id, None)
        kind = field.field_type
        known = len(ends) == 3 and isinstance(kind, ice.FloatType | ice.DoubleType)
        if known and isinstance(kind, ice.PrimitiveType) and self._modes[field.field_id].bounds:
            # as in Parquet's statistics, so that a zero of either sign lies within
            metrics.lower_bounds[field.field_id] = lower_bound(float(ends[1]) or -0.0, kind, None)
            metrics.upper_bounds[field.field_id] = lower_bound(float(ends[2]) or 0.0, kind, None)


def _value(kind: str, stored: bytes) -> Any:
    if kind in ("binary", "fixed"):
        return stored
    if kind == "uuid":
        return UUID(bytes=stored)
    text = stored.decode()
    if kind == "string":
        return text
    if kind == "boolean":
        return text == "true"
    if kind == "decimal":
        return Decimal(text)
    return float(text) if kind in ("float", "double") else int(text)
