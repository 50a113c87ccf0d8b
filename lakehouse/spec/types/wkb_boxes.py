"""What geometries span: their smallest and largest X and Y, out of well-known binary (ISO WKB)."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lakehouse.errors import InvalidInputError

Box: TypeAlias = tuple[float, float, float, float]
"""xmin, ymin, xmax, ymax; of nothing, and of coordinates that are NaN: inf, inf, -inf, -inf."""

NOWHERE: Box = (math.inf, math.inf, -math.inf, -math.inf)
_POINT, _LINE, _POLYGON, _COLLECTION = 1, 2, 3, 7
_DIMENSIONS = {0: 2, 1: 3, 2: 3, 3: 4}  # XY, XYZ, XYM, XYZM
_DEEPEST = 100
_PLAIN_POINT = b"\x01\x01\x00\x00\x00"
_PLAIN_SIZE = 21


def boxes(values: Sequence[bytes]) -> npt.NDArray[np.float64]:
    """The boxes of geometries, one a row.

    Args:
        values: in well-known binary.

    Raises:
        InvalidInputError: bytes that are no geometry in ISO's form; EWKB is another form.
    """
    joined = b"".join(values)
    if len(joined) == _PLAIN_SIZE * len(values) and all(
        len(value) == _PLAIN_SIZE and value.startswith(_PLAIN_POINT) for value in values
    ):
        cells = np.frombuffer(joined, np.dtype([("head", "V5"), ("at", "<f8", 2)]))["at"]
        return np.hstack([_or(cells, math.inf), _or(cells, -math.inf)])
    return np.array([_box_of(value) for value in values], np.float64).reshape(-1, 4)


def box_around(boxes: npt.NDArray[np.float64]) -> Box:
    """The box around boxes; `NOWHERE` around none."""
    if not len(boxes):
        return NOWHERE
    low, high = boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)
    return (float(low[0]), float(low[1]), float(high[0]), float(high[1]))


def corner(x: float, y: float) -> bytes:
    """A corner of a box as a bound of a manifest (spec, Bounds for Geometry and Geography)."""
    return struct.pack("<dd", x, y)


def _or(cells: npt.NDArray[np.float64], other: float) -> npt.NDArray[np.float64]:
    return np.where(np.isnan(cells), other, cells)


def _box_of(value: bytes) -> Box:
    reader = _Reader(value)
    try:
        reader.geometry(0)
    except (struct.error, ValueError, KeyError) as error:
        raise InvalidInputError(f"a geometry is no WKB: {error}") from error
    if reader.at != len(value):
        raise InvalidInputError("a geometry is no WKB: bytes follow its end")
    return reader.box


class _Reader:
    """Walks through one value."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self.at = 0
        self.box = NOWHERE

    def geometry(self, depth: int) -> None:
        """Take in the geometry that begins here, and what it consists of."""
        if depth > _DEEPEST:
            raise ValueError(f"collections lie in each other deeper than {_DEEPEST}")
        order = {0: ">", 1: "<"}[self._take("B")]
        dimension, kind = divmod(self._take(order + "I"), 1000)
        numbers = _DIMENSIONS[dimension]
        if kind == _POINT:
            self._points(order, numbers, 1)
        elif kind == _LINE:
            self._points(order, numbers, self._take(order + "I"))
        elif kind == _POLYGON:
            for _ in range(self._take(order + "I")):
                self._points(order, numbers, self._take(order + "I"))
        elif _POLYGON < kind <= _COLLECTION:
            for _ in range(self._take(order + "I")):
                self.geometry(depth + 1)
        else:
            raise ValueError(f"there is no geometry of type {kind}")

    def _take(self, form: str) -> int:
        (number,) = struct.unpack_from(form, self._value, self.at)
        self.at += struct.calcsize(form)
        return int(number)

    def _points(self, order: str, numbers: int, count: int) -> None:
        coordinates = np.frombuffer(self._value, order + "f8", count * numbers, self.at)
        self.at += coordinates.nbytes
        if not count:
            return
        cells = coordinates.reshape(-1, numbers)[:, :2]
        around = np.hstack([_or(cells, math.inf), _or(cells, -math.inf)])
        self.box = box_around(np.vstack([np.array([self.box]), around]))
