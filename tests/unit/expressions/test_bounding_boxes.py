"""`bbox_intersects` in filters: the coordinates that were put into the bytes are the oracle."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, GeographyType, GeometryType, LongType, NestedField

import lakehouse as lh
from lakehouse.errors import InvalidExpressionError
from lakehouse.expressions.functions.bounding_boxes import bbox_intersects
from tests.wkb import geometry, point

SCHEMA = Schema(
    NestedField(1, "i", LongType(), required=False),
    NestedField(2, "g", GeometryType(), required=False),
    NestedField(3, "h", GeographyType(), required=False),
    NestedField(4, "b", BinaryType(), required=False),
)


def meets(points, xmin, ymin, xmax, ymax):
    xs = [x for x, _ in points if not math.isnan(x)]
    ys = [y for _, y in points if not math.isnan(y)]
    if not xs or not ys or max(ys) < ymin or min(ys) > ymax:
        return False
    if xmin > xmax:
        return max(xs) >= xmin or min(xs) <= xmax
    return max(xs) >= xmin and min(xs) <= xmax


def test_random_geometries_are_found_by_their_coordinates():
    chance = random.Random(41)
    made = [geometry(chance) for _ in range(400)]
    column = pa.array([None, *(raw for raw, _ in made)], pa.binary())
    answers = set()
    for _ in range(30):
        xmin, xmax = chance.choice((-180, 0, 1.5, 90)), chance.choice((-90, 0.0, 180))
        ymin, ymax = sorted(chance.choice((-90, -2.25, 0, 1.5, 85)) for _ in range(2))
        box = (xmin, ymin, xmax, ymax)
        found = bbox_intersects(column, *map(pa.scalar, box)).to_pylist()
        assert found == [None, *(meets(points, *box) for _, points in made)], box
        answers |= {(xmin > xmax, one) for one in found}
    assert answers == {(wraps, one) for wraps in (False, True) for one in (None, False, True)}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    lake = lh.load_catalog(tmp_path_factory.mktemp("lake"))
    lake.create_namespace("d")
    table = lake.create_table("d.t", SCHEMA, properties={"format-version": "3"})
    for first in range(-20, 30, 10):
        ids = list(range(first, first + 10))
        points = [None if at % 7 == 0 else point(at, -at) for at in ids]
        table.append(pa.table({"i": ids, "g": points, "h": points, "b": points}))
        table = table.refresh()
    return table


@pytest.mark.parametrize(
    ("corners", "test", "skipped"),
    [
        ("-2.5, -90, 3, 90", lambda x: -2.5 <= x <= 3, 3),
        ("-180, 5, 180, 5e0", lambda x: x == -5, 4),
        ("18, -90, -18, 90", lambda x: not -18 < x < 18, 2),
        ("100, -90, 110, 90", lambda _: False, 5),
    ],
)
def test_rows_are_found_and_files_of_geometries_skipped(table, corners, test, skipped):
    wanted = [x for x in range(-20, 30) if x % 7 and test(x)]
    for column in ("g", "h", "b"):
        scan = table.scan(where=f"bbox_intersects({column}, {corners})")
        assert sorted(scan.to_arrow()["i"].to_pylist()) == wanted
        files = scan.plan().report.data_files
        assert files.skipped_by_metrics == (skipped if column == "g" else 0)
    rest = table.scan(where=f"NOT bbox_intersects(g, {corners})").to_arrow()["i"].to_pylist()
    assert sorted(rest) == [x for x in range(-20, 30) if x % 7 and not test(x)]


@pytest.mark.parametrize(
    "where",
    [
        "bbox_intersects(i, 1, 2, 3, 4)",
        "bbox_intersects(g, 1, 2, 3)",
        "bbox_intersects(g, 1, 2, 3, i)",
        "bbox_intersects(g, 1, 2, 3, 'north')",
        "bbox_intersects(g, 1, 2, 3, 1)",
        "bbox_intersects(g, 1, 2, 'nan', 4)",
        "bbox_intersects(g, 1, '-inf', 3, 4)",
    ],
)
def test_what_cannot_be_asked_is_said(table, where):
    with pytest.raises(InvalidExpressionError, match="bbox_intersects"):
        table.scan(where=where).to_arrow()


def test_a_value_that_is_no_wkb_is_an_error(tmp_path: Path):
    lake = lh.load_catalog(tmp_path / "lake")
    lake.create_namespace("d")
    table = lake.create_table("d.t", SCHEMA, properties={"format-version": "3"})
    table.append(pa.table({"i": [1], "g": [b"?"]}))
    with pytest.raises(InvalidExpressionError, match="no WKB"):
        table.refresh().scan(where="bbox_intersects(g, 1, 2, 3, 4)").to_arrow()
