"""Bounds of geometries: the coordinates that were put into the bytes are the oracle."""

from __future__ import annotations

import math
import random
import struct
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import GeographyType, GeometryType, ListType, LongType, NestedField, StructType

import lakehouse as lh
from lakehouse.errors import InvalidInputError
from lakehouse.spec.types.wkb_boxes import boxes
from tests.wkb import geometry, point

SCHEMA = Schema(
    NestedField(1, "i", LongType(), required=False),
    NestedField(2, "g", GeometryType(), required=False),
    NestedField(
        3, "s.t", StructType(NestedField(4, "g.h", GeometryType(), required=False)), required=False
    ),
    NestedField(5, "l", ListType(6, GeometryType(), element_required=False), required=False),
    NestedField(7, "e", GeographyType(), required=False),
)


def span(points):
    """xmin, ymin, xmax, ymax of the numbers among them."""
    xs = [x for x, _ in points if not math.isnan(x)]
    ys = [y for _, y in points if not math.isnan(y)]
    return (
        min(xs, default=math.inf), min(ys, default=math.inf),
        max(xs, default=-math.inf), max(ys, default=-math.inf),
    )  # fmt: skip


def test_boxes_of_random_geometries():
    chance = random.Random(37)
    made = [geometry(chance) for _ in range(1000)]
    for found, (_, points) in zip(boxes([raw for raw, _ in made]), made, strict=True):
        assert tuple(found) == span(points)
    assert [tuple(one) for one in boxes([point(1, -2), point(math.nan, 4)])] == [
        (1, -2, 1, -2), (math.inf, 4, -math.inf, 4),
    ]  # fmt: skip
    assert boxes([]).shape == (0, 4)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x02" + point(1, 2)[1:],
        point(1, 2)[:-1],
        point(1, 2) + b"\0",
        struct.pack("<BII", 1, 2, 2**32 - 1),
        struct.pack("<BIIdd", 1, 0x20000001, 4326, 1, 2),  # EWKB
        struct.pack("<BI", 1, 8),
        b"\x01\x07\x00\x00\x00\x01\x00\x00\x00" * 2000,
    ],
)
def test_what_is_no_wkb_is_refused(raw):
    with pytest.raises(InvalidInputError, match="no WKB"):
        boxes([point(0, 0), raw])


def test_manifests_have_the_corners_of_what_a_file_holds(tmp_path: Path):
    chance = random.Random(7)
    lake = lh.load_catalog(tmp_path / "lake")
    lake.create_namespace("d")
    table = lake.create_table("d.t", SCHEMA, properties={"format-version": "3"})
    made = [geometry(chance) for _ in range(100)]
    values = [None, *(raw for raw, _ in made)]
    table.append(
        pa.table(
            {
                "i": range(101),
                "g": values,
                "s.t": [{"g.h": value} for value in values[:11]] + [None] * 90,
                "l": [[value] for value in values],
                "e": [point(1, 2)] * 101,
            }
        )
    )
    (file,) = table.refresh().inspect.files().to_pylist()
    lower, upper = dict(file["lower_bounds"]), dict(file["upper_bounds"])
    inner = table.schema().find_field("s.t.g.h").field_id
    for field_id, some in ((2, made), (inner, made[:10])):
        corners = span([one for _, points in some for one in points])
        found = struct.unpack("<dd", lower[field_id]) + struct.unpack("<dd", upper[field_id])
        assert found == corners
    assert lower.keys() == upper.keys() == {1, 2, inner}  # none of lists, and of geographies


def test_a_value_that_is_no_wkb_leaves_the_column_without_bounds(tmp_path: Path):
    lake = lh.load_catalog(tmp_path / "lake")
    lake.create_namespace("d")
    table = lake.create_table("d.t", SCHEMA, properties={"format-version": "3"})
    table.append(pa.table({"i": [1, 2], "g": [point(1, 2), b"?"]}))
    table.refresh().append(pa.table({"i": [3, 4], "g": [point(math.nan, 2), None]}))
    files = table.refresh().inspect.files().to_pylist()
    assert [[key for key, _ in file["lower_bounds"]] for file in files] == [[1], [1]]
    assert table.refresh().scan(where="i = 2").to_arrow()["g"].to_pylist() == [b"?"]
