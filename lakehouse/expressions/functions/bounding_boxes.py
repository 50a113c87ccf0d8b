"""`bbox_intersects(g, xmin, ymin, xmax, ymax)`: geometries by what they span, edges included."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakehouse.errors import InvalidInputError
from lakehouse.expressions.transforms.partition_transforms import Datum, constant_of
from lakehouse.spec.types.wkb_boxes import Box, boxes

_CORNERS = ("xmin", "ymin", "xmax", "ymax")


def bbox_intersects(data: Datum, *corners: Datum) -> Datum:
    """Whether the box around the coordinates of a geometry and a given box have a point in common.

    False for a geometry without coordinates.

    Args:
        data: geometries as ISO WKB.
        corners: xmin, ymin, xmax, ymax, which are constants. An xmin above xmax is a box across the
            antimeridian: whatever is at least xmin, or at most xmax.

    Raises:
        TypeError: no geometries, a corner that is no finite number, or a ymin above ymax.
        ArrowInvalid: a value that is no ISO WKB.
    """
    box = box_of([constant_of(*pair) for pair in zip(corners, _CORNERS, strict=True)])
    if not pa.types.is_binary(data.type) or not isinstance(data, pa.Array):
        raise TypeError(f"it is for geometries in WKB, not for {data.type}")
    present = np.asarray(data.is_valid())
    try:
        spans = boxes(data.drop_null().to_pylist())
    except InvalidInputError as error:
        raise pa.ArrowInvalid(str(error)) from error
    meeting = np.zeros(len(data), bool)
    meeting[present] = ~apart(spans, box)
    return pa.array(meeting, mask=~present)


def box_of(corners: list[object]) -> Box:
    """The box of four numbers.

    Raises:
        TypeError: other than finite numbers, or a ymin above ymax.
    """
    try:
        xmin, ymin, xmax, ymax = (float(corner) for corner in corners)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise TypeError("the corners must be numbers") from error
    if ymin > ymax or not all(map(math.isfinite, (xmin, ymin, xmax, ymax))):
        raise TypeError("the corners must be finite, xmin, ymin, xmax, ymax, ymin not above ymax")
    return xmin, ymin, xmax, ymax


def apart(spans: npt.NDArray[np.float64], box: Box) -> npt.NDArray[np.bool_]:
    """Which spans (xmin, ymin, xmax, ymax a row) have surely no point in common with a box.

    A number that is NaN tells nothing.
    """
    xmin, ymin, xmax, ymax = box
    left, right = spans[:, 2] < xmin, spans[:, 0] > xmax
    beside = (left & right) if xmin > xmax else (left | right)
    return np.asarray(beside | (spans[:, 3] < ymin) | (spans[:, 1] > ymax), bool)
