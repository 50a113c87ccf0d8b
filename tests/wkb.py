"""Geometries in well-known binary, with the points that are in them."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence

Point = tuple[float, float]
_NUMBERS = (0.0, -0.0, 1.5, -2.25, 180.0, -180.0, 1e300, math.nan)
_PARTS = {4: 1, 5: 2, 6: 3}  # of what kind the parts of several points, lines, polygons are


def point(x: float, y: float) -> bytes:
    """As most writers make it."""
    return struct.pack("<BIdd", 1, 1, x, y)


def geometry(chance: random.Random) -> tuple[bytes, list[Point]]:
    """A geometry of any kind in ISO's form, and all points in it."""
    return _geometry(chance, chance.randrange(1, 8), chance.choice((0, 1000, 2000, 3000)), 0)


def _geometry(
    chance: random.Random, kind: int, dimension: int, depth: int
) -> tuple[bytes, list[Point]]:
    order = chance.choice("<>")
    head = struct.pack(order + "BI", order == "<", kind + dimension)
    if kind == 1:
        raw, one = _point(chance, order, dimension)
        return head + raw, [one]
    count = struct.pack(order + "I", number := chance.choice((0, 1, 4)))
    if kind == 2:
        raw, points = _points(chance, order, dimension, number)
        return head + count + raw, points
    points, parts = [], b""
    for _ in range(number):
        if kind == 3:
            raw, inside = _points(chance, order, dimension, 3, _NUMBERS[:-1])
            raw = struct.pack(order + "I", 4) + raw + raw[: len(raw) // 3]  # a ring is closed
        else:
            part = _PARTS.get(kind) or chance.randrange(1, 8 if depth < 2 else 4)
            raw, inside = _geometry(chance, part, dimension, depth + 1)
        parts += raw
        points += inside
    return head + count + parts, points


def _points(
    chance: random.Random,
    order: str,
    dimension: int,
    count: int,
    some: Sequence[float] = _NUMBERS,
) -> tuple[bytes, list[Point]]:
    made = [_point(chance, order, dimension, some) for _ in range(count)]
    return b"".join(raw for raw, _ in made), [one for _, one in made]


def _point(
    chance: random.Random, order: str, dimension: int, some: Sequence[float] = _NUMBERS
) -> tuple[bytes, Point]:
    numbers = 2 + (dimension > 0) + (dimension == 3000)
    values = [chance.choice((*some, chance.uniform(-90, 90))) for _ in range(numbers)]
    return struct.pack(f"{order}{numbers}d", *values), (values[0], values[1])
