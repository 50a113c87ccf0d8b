"""I11: a pruned scan finds what an unpruned one finds, for every type, transform and predicate.

The oracle knows nothing of the library: rows are Python values, predicates are evaluated row by row
with three-valued logic, partition values come from pyiceberg's transforms and metrics from Python's
min and max. UUIDs have bounds in the order of either writer: sixteen unsigned bytes, or two signed
halves as in Java, also merged by Java out of the row groups of Parquet.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import os
import struct
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import expressions as ex
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from lakehouse.expressions.bound_filter import Bound
from lakehouse.expressions.filter_binding import bind
from lakehouse.expressions.row_evaluation import passing
from lakehouse.expressions.transforms.partition_projection import LeafProjections, Residuals
from lakehouse.expressions.transforms.partition_transforms import arrow_array
from lakehouse.manifests.manifest_cache import Listed
from lakehouse.manifests.manifest_writer import manifest_file
from lakehouse.scan.pruning.entry_pruning import may_match, must_match
from lakehouse.scan.pruning.surviving_files import ManifestColumns, ManifestIndex
from lakehouse.spec.manifests.data_file import STATUS_ADDED, DataFile, ManifestEntry
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import FieldSummary, ManifestFile
from lakehouse.spec.schema.iceberg_types import field_types, paths_of
from lakehouse.spec.types.arrow_types import column_at

DAY_US = 86_400_000_000
COLUMNS = {
    "i": (1, IntegerType()),
    "l": (2, LongType()),
    "f": (3, FloatType()),
    "d": (4, DoubleType()),
    "m": (5, DecimalType(9, 2)),
    "s": (6, StringType()),
    "day": (7, DateType()),
    "ts": (8, TimestampType()),
    "tz": (9, TimestamptzType()),
    "b": (10, BooleanType()),
    "n.x": (12, IntegerType()),
    "u": (13, UUIDType()),
    "fx": (14, FixedType(3)),
    "bin": (15, BinaryType()),
}
SCHEMA = Schema(
    *(
        NestedField(field_id, name, kind)
        for name, (field_id, kind) in COLUMNS.items()
        if "." not in name
    ),
    NestedField(11, "n", StructType(NestedField(12, "x", IntegerType()))),
)
TYPES = field_types(SCHEMA)
TRANSFORMS = {
    "i": [IdentityTransform(), BucketTransform(3), TruncateTransform(4), VoidTransform()],
    "l": [IdentityTransform(), BucketTransform(3), TruncateTransform(10)],
    "f": [IdentityTransform()],
    "d": [IdentityTransform()],
    "m": [IdentityTransform(), BucketTransform(3), TruncateTransform(50)],
    "s": [IdentityTransform(), BucketTransform(3), TruncateTransform(1), TruncateTransform(2)],
    "day": [
        IdentityTransform(),
        BucketTransform(3),
        YearTransform(),
        MonthTransform(),
        DayTransform(),
    ],
    "ts": [YearTransform(), MonthTransform(), DayTransform(), HourTransform(), BucketTransform(2)],
    "tz": [IdentityTransform(), DayTransform(), HourTransform(), MonthTransform()],
    "b": [IdentityTransform()],
    "n.x": [IdentityTransform(), TruncateTransform(3)],
    "u": [IdentityTransform(), BucketTransform(3)],
    "fx": [IdentityTransform(), BucketTransform(3)],
    "bin": [IdentityTransform(), BucketTransform(3), TruncateTransform(1)],
}


def single(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def floats(values: list[float]) -> st.SearchStrategy[float]:
    return st.sampled_from([*values, math.nan, math.inf, -math.inf, -0.0, 0.0])


HALVES = [
    "0000000000000000",
    "0000000000000001",
    "1000000000000000",
    "7fffffffffffffff",
    "8000000000000000",
    "8000000000000001",
    "f000000000000000",
    "ffffffffffffffff",
]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.one_of(st.integers(-6, 6), st.sampled_from([-(2**31), 2**31 - 1])),
    "l": st.one_of(st.integers(-25, 25), st.sampled_from([-(2**63) + 100, 2**63 - 1])),
    "f": floats([single(0.1), 1.5, -2.0, 3.0]),
    "d": floats([0.1, 1.5, -2.0, 3.0, 1e300]),
    "m": st.integers(-200, 200).map(lambda value: Decimal(value).scaleb(-2)),
    "s": st.text(alphabet="ab\ud7ff\ue000😀", max_size=4),
    "day": st.integers(-800, 800),
    "ts": st.integers(-70 * DAY_US, 70 * DAY_US)
    | st.integers(-3, 3).map(lambda hours: hours * 3_600_000_000),
    "tz": st.integers(-2 * DAY_US, 2 * DAY_US),
    "b": st.booleans(),
    "n.x": st.integers(-6, 6),
    "u": st.builds(
        lambda first, second: UUID(bytes=first + second),
        *[st.sampled_from([bytes.fromhex(half) for half in HALVES])] * 2,
    ),
    "fx": st.lists(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]), min_size=3, max_size=3).map(bytes),
    "bin": st.lists(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]), max_size=4).map(bytes),
}


def literal_of(name: str, value: Any) -> Any:
    """The value as a user writes it."""
    if name == "day":
        return (dt.date(1970, 1, 1) + dt.timedelta(days=value)).isoformat()
    if name in ("ts", "tz"):
        # Naive on purpose.
        epoch = dt.datetime(1970, 1, 1)  # noqa: DTZ001
        text = (epoch + dt.timedelta(microseconds=value)).isoformat()
        return text + "+00:00" if name == "tz" else text
    return str(value) if name == "u" else value


@st.composite
def predicates(draw: st.DrawFn, depth: int = 2) -> tuple[ex.BooleanExpression, Any]:
    """(pyiceberg expression, function row -> True, False or None)."""
    kind = draw(st.sampled_from(["leaf"] * 3 + (["and", "or", "not"] if depth else [])))
    if kind == "not":
        inner, test = draw(predicates(depth - 1))
        return ex.Not(inner), lambda row: None if test(row) is None else not test(row)
    if kind in ("and", "or"):
        (left, one), (right, two) = draw(predicates(depth - 1)), draw(predicates(depth - 1))
        if kind == "and":
            return ex.And(left, right), lambda row: kleene_and(one(row), two(row))
        return ex.Or(left, right), lambda row: kleene_or(one(row), two(row))
    return draw(leaves())


@st.composite
def leaves(
    draw: st.DrawFn, names: tuple[str, ...] = tuple(COLUMNS), near: tuple[Any, ...] = ()
) -> tuple[ex.BooleanExpression, Any]:
    """A predicate on one of the columns; its literals are often one of `near`."""
    name = draw(st.sampled_from(names))
    ops = ["null", "not null", "<", "<=", ">", ">=", "=", "!=", "in", "not in"]
    ops += ["starts", "not starts"] if name == "s" else []
    ops += ["nan", "not nan"] if name in ("f", "d") else []
    op = draw(st.sampled_from(ops))
    number = VALUES[name].filter(lambda value: not is_nan(value))
    if usable := [value for value in near if value is not None and not is_nan(value)]:
        number = st.sampled_from(usable) | number
    if op in UNARY:
        return UNARY[op](name)
    if op in ("in", "not in"):
        values = draw(st.lists(number, min_size=1, max_size=4, unique=True))
        expression = (ex.In if op == "in" else ex.NotIn)(
            name, [literal_of(name, value) for value in values]
        )
        return expression, lambda row: known(
            row[name], lambda value: (value in values) == (op == "in")
        )
    value = draw(number)
    if op in ("starts", "not starts"):
        expression = (ex.StartsWith if op == "starts" else ex.NotStartsWith)(name, value)
        return expression, lambda row: known(
            row[name], lambda text: text.startswith(value) == (op == "starts")
        )
    expression, compare = BINARY[op]
    return expression(name, literal_of(name, value)), lambda row: known(
        row[name], lambda mine: compare(rank(mine), rank(value))
    )


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def rank(value: Any) -> Any:
    """NaN above everything; text by code point."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    if isinstance(value, UUID):
        return value.bytes
    return value.encode() if isinstance(value, str) else value


def java_rank(value: UUID) -> tuple[int, int]:
    """Java's order of UUIDs: two signed halves."""
    return struct.unpack(">qq", value.bytes)


def known(value: Any, test: Any) -> bool | None:
    return None if value is None else test(value)


def kleene_and(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def kleene_or(left: bool | None, right: bool | None) -> bool | None:
    if left is True or right is True:
        return True
    return None if left is None or right is None else False


UNARY = {
    "null": lambda name: (ex.IsNull(name), lambda row: row[name] is None),
    "not null": lambda name: (ex.NotNull(name), lambda row: row[name] is not None),
    "nan": lambda name: (ex.IsNaN(name), lambda row: known(row[name], is_nan)),
    "not nan": lambda name: (
        ex.NotNaN(name),
        lambda row: known(row[name], lambda value: not is_nan(value)),
    ),
}
BINARY = {
    "<": (ex.LessThan, lambda mine, other: mine < other),
    "<=": (ex.LessThanOrEqual, lambda mine, other: mine <= other),
    ">": (ex.GreaterThan, lambda mine, other: mine > other),
    ">=": (ex.GreaterThanOrEqual, lambda mine, other: mine >= other),
    "=": (ex.EqualTo, lambda mine, other: mine == other),
    "!=": (ex.NotEqualTo, lambda mine, other: mine != other),
}
ROWS = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})


@st.composite
def specs(draw: st.DrawFn) -> PartitionSpec:
    fields = []
    for position, name in enumerate(
        draw(st.lists(st.sampled_from(list(COLUMNS)), max_size=3, unique=True))
    ):
        transform = draw(st.sampled_from(TRANSFORMS[name]))
        fields.append(PartitionField(COLUMNS[name][0], 1000 + position, transform, f"p{position}"))
    return PartitionSpec(*fields, spec_id=draw(st.integers(0, 3)))


def by_id(field_id: int) -> str:
    return next(name for name, (one, _) in COLUMNS.items() if one == field_id)


def partition_of(row: dict[str, Any], spec: PartitionSpec) -> tuple[Any, ...]:
    values = []
    for field in spec.fields:
        name = by_id(field.source_id)
        values.append(field.transform.transform(COLUMNS[name][1])(row[name]))
    return tuple("nan" if is_nan(value) else value for value in values)


def truncated(name: str, kind: Any, low: Any, high: Any) -> tuple[bytes | None, bytes | None]:
    if name != "s":
        return to_bytes(kind, low), to_bytes(kind, high)
    upper = high.encode() if len(high) <= 2 else (high[:1] + chr(0x10FFFF)).encode()
    return low[:2].encode(), upper


def uuid_bounds(values: list[UUID], order: str) -> tuple[bytes, bytes]:
    """Bounds by bytes, by Java's order, or merged by Java from row groups of two rows."""
    if order == "merged":
        groups = [sorted(values[start : start + 2], key=rank) for start in range(0, len(values), 2)]
        lows, highs = [group[0] for group in groups], [group[-1] for group in groups]
        return min(lows, key=java_rank).bytes, max(highs, key=java_rank).bytes
    key = rank if order == "unsigned" else java_rank
    return min(values, key=key).bytes, max(values, key=key).bytes


def data_file(
    number: int,
    rows: list[dict[str, Any]],
    spec: PartitionSpec,
    known_metrics: set[str],
    order: str = "unsigned",
) -> DataFile:
    lower, upper, values, nulls, nans = {}, {}, {}, {}, {}
    for name in known_metrics:
        field_id, kind = COLUMNS[name]
        present = [row[name] for row in rows if row[name] is not None]
        comparable = [value for value in present if not is_nan(value)]
        values[field_id] = len(rows)
        nulls[field_id] = len(rows) - len(present)
        if isinstance(kind, FloatType | DoubleType):
            nans[field_id] = len(present) - len(comparable)
        if comparable:
            low, high = (
                uuid_bounds(comparable, order)
                if name == "u"
                else truncated(name, kind, min(comparable, key=rank), max(comparable, key=rank))
            )
            lower[field_id], upper[field_id] = low, high
    return DataFile(
        file_path=f"f{number}",
        partition=tuple(
            math.nan if value == "nan" else value for value in partition_of(rows[0], spec)
        ),
        spec_id=spec.spec_id,
        record_count=len(rows),
        file_size_in_bytes=1,
        value_counts=values,
        null_value_counts=nulls,
        nan_value_counts=nans,
        lower_bounds=lower,
        upper_bounds=upper,
        split_offsets=(4, 400) if order == "merged" else (4,),
    )


def files_of(
    rows: list[dict[str, Any]], spec: PartitionSpec, most: int = 2
) -> list[list[dict[str, Any]]]:
    """Rows of one partition in files of at most two."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(partition_of(row, spec), []).append(row)
    return [
        group[start : start + most]
        for group in groups.values()
        for start in range(0, len(group), most)
    ]


def entries_of(
    files: list[list[dict[str, Any]]],
    spec: PartitionSpec,
    known_metrics: set[str],
    order: str = "unsigned",
) -> Entries:
    made = [data_file(n, rows, spec, known_metrics, order) for n, rows in enumerate(files)]
    return Entries.from_manifest_entries(
        [ManifestEntry(status=STATUS_ADDED, data_file=one) for one in made], spec, TYPES
    )


def arrow_table(rows: list[dict[str, Any]]) -> pa.Table:
    columns = {}
    for name, (_, kind) in COLUMNS.items():
        columns[name] = arrow_array([row[name] for row in rows], kind)
    nested = columns.pop("n.x")
    columns["n"] = pa.StructArray.from_arrays([nested], ["x"])
    return pa.table(columns)


PATHS = paths_of(SCHEMA)


def passes(where: Bound, rows: pa.Table) -> np.ndarray:
    return passing(where, lambda field_id: column_at(rows, PATHS[field_id]), rows.num_rows)


METRICS = st.sets(st.sampled_from(list(COLUMNS))) | st.just(set(COLUMNS))


@given(st.lists(ROWS, min_size=1, max_size=12), specs(), predicates(), METRICS)
def test_no_matching_row_is_pruned(rows, spec, predicate, known_metrics):
    expression, test = predicate
    where = bind(expression, SCHEMA)
    files = files_of(rows, spec)
    entries = entries_of(files, spec, known_metrics)
    may, must = may_match(entries, where, TYPES), must_match(entries, where, TYPES)
    for group, kept, certain in zip(files, may, must, strict=True):
        answers = [test(row) is True for row in group]
        assert kept or not any(answers), (expression, group)
        assert not certain or all(answers), (expression, group)
    manifest = manifest_file(entries, manifest_path="m", manifest_length=1, snapshot_id=1)
    assert manifest_may_match(manifest, where, spec) or not may.any()


def manifest_may_match(manifest: ManifestFile, where: Bound, spec: PartitionSpec) -> bool:
    """By its summaries, with what is kept of a list and without."""
    projections = LeafProjections(spec, TYPES)
    listed = Listed([manifest])
    found = {
        bool(columns.may_match(where, spec, TYPES, projections)[0])
        for columns in (ManifestColumns([manifest]), *(ManifestIndex.of(listed).data,) * 2)
    }
    assert len(found) == 1
    return found.pop()


def java_manifest(entries: Entries) -> ManifestFile:
    """The row of the manifest list, with summaries of UUIDs in Java's order."""
    ours = manifest_file(entries, manifest_path="m", manifest_length=1, snapshot_id=1)
    summaries = []
    for position, field in enumerate(entries.spec.fields):
        values = [row[position] for row in entries.partitions()]
        present = [value for value in values if value is not None and not is_nan(value)]
        key = java_rank if present and isinstance(present[0], UUID) else rank
        kind = field.transform.result_type(TYPES[field.source_id])
        bounds = [to_bytes(kind, one(present, key=key)) for one in (min, max) if present]
        summaries.append(
            FieldSummary(None in values, any(map(is_nan, values)), *(bounds or (None, None)))
        )
    return dataclasses.replace(ours, partitions=tuple(summaries))


@given(
    st.lists(st.fixed_dictionaries({"u": st.none() | VALUES["u"]}), min_size=1, max_size=9),
    st.booleans(),
    st.data(),
    st.sampled_from(["unsigned", "signed", "merged"]),
)
def test_uuids_in_either_order(rows, partitioned, data, order):
    rows = [dict.fromkeys(COLUMNS) | row for row in rows]
    fields = [PartitionField(13, 1000, IdentityTransform(), "u")] if partitioned else []
    spec = PartitionSpec(*fields)
    values = tuple(row["u"] for row in rows)
    files = files_of(rows, spec, most=4)
    entries = entries_of(files, spec, {"u"}, order)
    expression, test = data.draw(leaves(("u",), values))
    where = bind(expression, SCHEMA)
    may, must = may_match(entries, where, TYPES), must_match(entries, where, TYPES)
    for group, kept, certain in zip(files, may, must, strict=True):
        answers = [test(row) is True for row in group]
        assert kept or not any(answers), (expression, group)
        assert not certain or all(answers), (expression, group)
    wanted = any(test(row) is True for row in rows)
    assert manifest_may_match(java_manifest(entries), where, spec) or not wanted


EDGES = {
    "i": [-8, -5, -4, -3, -1, 0, 1, 3, 4, 5],
    "l": [-20, -11, -10, -9, -1, 0, 1, 9, 10, 11],
    "m": [Decimal(value).scaleb(-2) for value in (-101, -100, -51, -50, -49, -1, 0, 1, 49, 50, 51)],
    "s": ["", "a", "ab", "aba", "abb", "b", "ba", "bab", "\ud7ff", "\ue000", "😀"],
    "day": [-366, -365, -364, -32, -31, -30, -1, 0, 1, 30, 31, 32, 364, 365, 366],
    "ts": [
        day * DAY_US + off
        for day in (-31, -1, 0, 1, 31)
        for off in (-3_600_000_000, -1, 0, 1, 3_600_000_000)
    ],
    "tz": [
        day * DAY_US + off
        for day in (-1, 0, 1)
        for off in (-3_600_000_001, -3_600_000_000, -1, 0, 1, 3_599_999_999)
    ],
}


@pytest.mark.parametrize(
    ("name", "transform"),
    [(name, transform) for name in EDGES for transform in TRANSFORMS[name]],
    ids=str,
)
@settings(max_examples=int(os.environ.get("PRUNING_EXAMPLES", "20")))
@given(data=st.data())
def test_transforms_at_their_edges(name, transform, data):
    spec = PartitionSpec(PartitionField(COLUMNS[name][0], 1000, transform, "p"))
    blank = dict.fromkeys(COLUMNS)
    values = data.draw(st.lists(st.none() | st.sampled_from(EDGES[name]), min_size=1, max_size=6))
    groups = files_of([{**blank, name: value} for value in values], spec)
    entries = Entries.from_manifest_entries(
        [
            ManifestEntry(status=STATUS_ADDED, data_file=data_file(n, group, spec, set()))
            for n, group in enumerate(groups)
        ],
        spec,
        TYPES,
    )
    for _ in range(8):
        expression, test = data.draw(leaves((name,), tuple(EDGES[name])))
        where = bind(expression, SCHEMA)
        residuals = Residuals(where, spec, TYPES)
        may, must = may_match(entries, where, TYPES), must_match(entries, where, TYPES)
        for group, kept, certain in zip(groups, may, must, strict=True):
            answers = [test(row) is True for row in group]
            assert kept or not any(answers), (expression, group)
            assert not certain or all(answers), (expression, group)
            residual = residuals.of(partition_of(group[0], spec))
            assert passes(residual, arrow_table(group)).tolist() == answers


@given(st.lists(ROWS, min_size=1, max_size=8), specs(), predicates())
def test_residual_keeps_the_meaning(rows, spec, predicate):
    expression, test = predicate
    residuals = Residuals(bind(expression, SCHEMA), spec, TYPES)
    for group in files_of(rows, spec):
        partition = tuple(
            math.nan if value == "nan" else value for value in partition_of(group[0], spec)
        )
        kept = passes(residuals.of(partition), arrow_table(group))
        assert kept.tolist() == [test(row) is True for row in group]


@given(st.lists(ROWS, min_size=1, max_size=20), predicates(depth=3))
def test_rows_are_filtered_by_three_valued_logic(rows, predicate):
    expression, test = predicate
    found = passes(bind(expression, SCHEMA), arrow_table(rows))
    assert found.tolist() == [test(row) is True for row in rows]
