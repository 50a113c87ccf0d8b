"""Files that are skipped by bounds of what is inside values: Python's values are the oracle."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import random
import shutil
import struct
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import GeographyType, GeometryType, LongType, NestedField

import lakehouse as lh
from lakehouse.expressions.filter_binding import bind
from lakehouse.scan.pruning.entry_pruning import may_match
from lakehouse.spec.manifests.data_file import STATUS_ADDED, DataFile, ManifestEntry
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.schema.iceberg_types import VariantType, field_types
from lakehouse.spec.types.variant_values import encode_variant
from lakehouse.storage.location import local_path

SCHEMA = Schema(
    NestedField(1, "i", LongType(), required=False),
    NestedField(2, "v", VariantType(), required=False),
    NestedField(3, "g", GeometryType(), required=False),
    NestedField(4, "h", GeographyType(), required=False),
)
DAY, MOMENT = dt.date(1969, 12, 30), dt.datetime(1969, 12, 31, 23, tzinfo=dt.UTC)
KINDS = {
    "int": lambda chance: chance.randrange(-2, 3),
    "bigint": lambda chance: chance.choice((-(2**63), 0, 2**40, 2**63 - 1)),
    "double": lambda chance: chance.choice((-1.5, -0.0, 0.0, 1.5e308)),
    "string": lambda chance: chance.choice(("", "ab", "\U0001f600", "\uffff")),
    "boolean": lambda chance: chance.random() < 0.5,
    "date": lambda chance: DAY + dt.timedelta(days=chance.randrange(5)),
    "timestamp": lambda chance: MOMENT + dt.timedelta(microseconds=chance.randrange(5)),
}
SQL = {
    "date": lambda value: f"date '{value}'",
    "timestamp": lambda value: f"timestamptz '{value.isoformat()}'",
    "string": lambda value: f"'{value}'",
}
OPS = {
    "=": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


def serialized(value):
    return b"".join(encode_variant(value))


def file_of(lower, upper, field_id=2):
    return DataFile(
        file_path="f", partition=(), spec_id=0, record_count=1, file_size_in_bytes=1,
        lower_bounds={} if lower is None else {field_id: lower},
        upper_bounds={} if upper is None else {field_id: upper},
    )  # fmt: skip


def kept(files, where):
    entries = Entries.from_manifest_entries(
        [ManifestEntry(status=STATUS_ADDED, data_file=file) for file in files],
        UNPARTITIONED_PARTITION_SPEC,
        field_types(SCHEMA),
    )
    return may_match(entries, bind(where, SCHEMA), field_types(SCHEMA)).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_kept_where_a_row_matches_and_skipped_where_no_value_between_could(kind):
    chance = random.Random(kind)
    path = "$['a']['b c']"
    skipped = Counter()
    for op, negated in itertools.product(OPS, (False, True)):
        for _ in range(3):
            literal, groups = KINDS[kind](chance), [[KINDS[kind](chance)] for _ in range(12)]
            groups += [[*one, KINDS[kind](chance)] for one in groups]
            files = [
                file_of(serialized({path: min(some)}), serialized({path: max(some), "$['z']": 1}))
                for some in groups
            ]
            where = f"variant_get(v, '$.a[''b c'']', '{kind}') {op} {SQL.get(kind, str)(literal)}"
            where = f"NOT ({where})" if negated else where
            for some, keeps in zip(groups, kept(files, where), strict=True):
                matching = any(OPS[op](one, literal) is not negated for one in some)
                assert keeps or not matching, where
                skipped[op, negated] += not keeps
    unskipped = {key for key, count in skipped.items() if not count}
    # NaN is above every number, and in no bounds
    nan = {(">", False), (">=", False), ("<", True), ("<=", True), ("!=", False), ("=", True)}
    assert unskipped == (nan if kind == "double" else set())


@pytest.mark.parametrize(
    ("where", "keeps"),
    [
        ("variant_get(v, '$.n', 'int') = 5", [False]),
        ("variant_get(v, '$.n', 'double') < 1", [False]),
        ("variant_get(v, '$.d', 'double') > 1.5", [True]),  # may be NaN
        ("variant_get(v, '$.d', 'double') < 1.25", [False]),
        ("variant_get(v, '$.n', 'int') IN (0, 4)", [False]),
        ("variant_get(v, '$.n', 'int') IN (0, 2)", [True]),
        ("variant_get(v, '$.n', 'int') NOT IN (1, 2)", [True]),
        ("variant_get(v, '$.s', 'string') IN (" + ", ".join(f"'{n}'" for n in range(200)) + ")",
         [False]),
        ("starts_with(variant_get(v, '$.s', 'string'), 'b')", [False]),
        ("starts_with(variant_get(v, '$.s', 'string'), 'x')", [True]),
        ("date(variant_get(v, '$.t', 'timestamp')) = '2026-01-02'", [False]),
        ("date(variant_get(v, '$.t', 'timestamp')) = '2026-01-01'", [True]),
        ("variant_get(v, '$.n', 'int') = 5 OR i = 1", [True]),
        ("variant_get(v, '$.n', 'int') = 5 AND i = 1", [False]),
        ("variant_get(v, '$.n', 'int') IS NULL", [True]),
        ("variant_get(v, '$.n', 'int') + 1 = 9", [False]),
        # no bounds of it, or of another kind: only rows tell
        ("variant_get(v, '$.other', 'int') = 5", [True]),
        ("variant_get(v, '$.n[0]', 'int') = 5", [True]),
        ("variant_get(v, '$.n', 'string') = 'a'", [True]),
        ("variant_get(v, '$.big', 'int') = 0", [True]),
    ],
)  # fmt: skip
def test_what_skips_and_what_does_not(where, keeps):
    moment = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    lower = {"$['n']": 1, "$['d']": Decimal("1.25"), "$['s']": "x", "$['t']": moment}
    upper = {"$['n']": 3, "$['d']": Decimal("1.50"), "$['s']": "z", "$['t']": moment}
    files = [file_of(serialized(lower | {"$['big']": 1}), serialized(upper | {"$['big']": 2**40}))]
    assert kept(files, where) == keeps


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        (None, serialized({"$['a']": 9})),
        (serialized({"$['a']": 9}), None),
        (serialized({"$['a']": 9}), serialized({})),
        (serialized({"$['a']": 9}), serialized({"$['a']": 10.0})),
        (serialized({"$['a']": 9}), serialized({"$['a']": 8})),
        (serialized({"$['a']": 9}), serialized({"$['a']": None})),
        (serialized({"$['a']": [9]}), serialized({"$['a']": [10]})),
        (serialized({"a": 9}), serialized({"a": 10})),
        (serialized(9), serialized(9)),
        (b"", b""),
        (b"\x01", b"\xff" * 40),
        (serialized({"$['a']": 9})[:-1], serialized({"$['a']": 10})),
        (serialized({"$['a']": True}), serialized({"$['a']": True})),
    ],
)
def test_bounds_that_say_nothing_skip_nothing(lower, upper):
    for kind in ("int", "double"):
        assert kept([file_of(lower, upper)], f"variant_get(v, '$.a', '{kind}') = 5") == [True]


def test_a_file_of_nulls_is_skipped():
    nulls = replace(file_of(None, None), value_counts={2: 1, 3: 1}, null_value_counts={2: 1, 3: 1})
    for where in ("variant_get(v, '$.a', 'int') = 5", "bbox_intersects(g, 1, 2, 3, 4)"):
        assert kept([nulls], where) == [False]


@pytest.mark.parametrize(
    ("lower", "upper", "corners", "geometry", "geography"),
    [
        ((1, 2), (3, 4), "3, 4, 5, 6", True, True),
        ((1, 2), (3, 4), "-5, -6, 1, 2", True, True),
        ((1, 2), (3, 4), "3.5, 2, 5, 6", False, False),
        ((1, 2), (3, 4), "-5, 2, 0.5, 6", False, False),
        ((1, 2), (3, 4), "1, 4.5, 5, 6", False, False),
        ((1, 2), (3, 4), "1, 0, 5, 1.5", False, False),
        ((1, 2, 7), (3, 4, 8), "4, 4, 5, 6", False, False),
        ((1, 2, math.nan, 7), (3, 4, math.nan, 8), "4, 4, 5, 6", False, False),
        # across the antimeridian
        ((1, 2), (3, 4), "3, 2, -170, 4", True, True),
        ((1, 2), (3, 4), "3.5, 2, -170, 4", False, False),
        ((170, 2), (-170, 4), "0, 2, 1, 4", True, True),
        ((170, 2), (-170, 4), "0, 5, 1, 6", True, False),
        # a geography of 185 may be one of -175 in the bounds
        ((-175, 2), (-175, 4), "183, 2, 186, 4", False, True),
        ((-175, 2), (-175, 4), "183, 5, 186, 6", False, False),
        # what tells nothing
        ((1, 2), None, "5, 5, 6, 6", True, True),
        ((math.nan, 2), (math.nan, 4), "5, 2, 6, 4", True, True),
        ((math.nan, 2), (math.nan, 4), "5, 5, 6, 6", False, False),
        ((1, 4), (3, 2), "5, 5, 6, 6", True, True),
        ((1,), (3,), "5, 5, 6, 6", True, True),
    ],
)
def test_corners_of_geometries(lower, upper, corners, geometry, geography):
    for name, field_id, keeps in (("g", 3, geometry), ("h", 4, geography)):
        low, high = (one and struct.pack(f"<{len(one)}d", *one) for one in (lower, upper))
        file = file_of(low, high, field_id)
        assert kept([file, file_of(None, None)], f"bbox_intersects({name}, {corners})") == [
            keeps, True,
        ]  # fmt: skip


@pytest.mark.parametrize("columnar", [False, True])
def test_a_scan_skips_files_and_a_delete_leaves_them(tmp_path: Path, columnar: bool):
    lake = lh.load_catalog(tmp_path / "lake")
    lake.create_namespace("d")
    table = lake.create_table("d.t", SCHEMA, properties={"format-version": "3"})
    for first in range(0, 50, 10):
        rows = [{"a": {"b": number}} for number in range(first, first + 10)]
        table.append(pa.table({"i": range(first, first + 10), "v": rows}))
        table = table.refresh()
    removed = table.scan().plan().files
    added = [with_bounds(file, pq.read_table(local_path(file.file_path))["i"]) for file in removed]
    table.transaction().overwrite(added, removed).commit()
    if columnar:
        table.refresh().transaction().add_columnar_manifests().commit()
    where = "variant_get(v, '$.a.b', 'int') BETWEEN 18 AND 21"
    scan = table.refresh().scan(where=where)
    assert sorted(scan.to_arrow()["i"].to_pylist()) == [18, 19, 20, 21]
    files = scan.plan().report.data_files
    assert (files.planned, files.skipped_by_metrics) == (2, 3)
    table.refresh().delete(where=where)
    assert table.refresh().scan().count() == 46


def with_bounds(file, numbers):
    """A copy of a file under another name, with the bounds of what is in its variants."""
    path = file.file_path.replace("/data/", "/data/copy-")
    shutil.copy(local_path(file.file_path), local_path(path))
    low, high = (
        serialized({"$['a']['b']": edge}) for edge in (numbers[0].as_py(), numbers[-1].as_py())
    )
    return replace(
        file,
        file_path=path,
        lower_bounds=file.lower_bounds | {2: low},
        upper_bounds=file.upper_bounds | {2: high},
    )
