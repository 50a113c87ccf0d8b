"""Bounds of geometries, which no Parquet footer knows: gathered while their rows are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import GeometryType, NestedField, StructType

from lakehouse.data.statistics.column_metrics import NONE, FileMetrics, MetricsMode
from lakehouse.errors import InvalidInputError
from lakehouse.spec.types.wkb_boxes import NOWHERE, Box, box_around, boxes, corner


class GeometryBounds:
    """The box around all geometries of each column that has bounds.

    A column with a value that is no WKB has none, and neither has one without coordinates. What a
    geography spans does not follow from its corners alone: its edges bend.

    Args:
        schema: of the rows.
        modes: metrics per field id.
    """

    def __init__(self, schema: Schema, modes: Mapping[int, MetricsMode]) -> None:
        self._paths = {
            field_id: path
            for field_id, path in _geometries(schema.fields, ())
            if modes.get(field_id, NONE).bounds
        }
        self._boxes: dict[int, Box] = dict.fromkeys(self._paths, NOWHERE)

    def add(self, rows: pa.Table) -> None:
        """Take in rows that have the Arrow schema of `schema`."""
        for field_id in list(self._boxes):
            name, *inner = self._paths[field_id]
            column = pc.struct_field(rows[name], inner) if inner else rows[name]
            try:
                added = boxes(column.drop_null().to_pylist())
            except InvalidInputError:  # the column has no bounds then; its values are kept
                del self._boxes[field_id]
                continue
            around = np.vstack([np.array([self._boxes[field_id]]), added])
            self._boxes[field_id] = box_around(around)

    def put_into(self, metrics: FileMetrics) -> None:
        """Set the bounds of the file whose rows were taken in."""
        for field_id, (xmin, ymin, xmax, ymax) in self._boxes.items():
            if xmin <= xmax and ymin <= ymax:  # otherwise no coordinate was a number
                metrics.lower_bounds[field_id] = corner(xmin, ymin)
                metrics.upper_bounds[field_id] = corner(xmax, ymax)


def _geometries(
    fields: Sequence[NestedField], above: tuple[str, ...]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Ids and paths of geometries that are in no list or map."""
    for field in fields:
        path = (*above, field.name)
        if isinstance(field.field_type, GeometryType):
            yield field.field_id, path
        elif isinstance(field.field_type, StructType):
            yield from _geometries(field.field_type.fields, path)
