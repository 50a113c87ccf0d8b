import datetime as dt
import uuid
from decimal import Decimal

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    UUIDType,
)

from lakehouse.errors import InvalidPartitionSpecError
from lakehouse.spec.partitioning.partition_terms import (
    parse_partition_spec,
    parse_sort_order,
    parse_term,
    partition_path,
    partition_type,
)
from lakehouse.spec.partitioning.sort_order import NullOrder, SortDirection
from tests.unit.spec.samples import schema

COLUMNS = schema()


@pytest.mark.parametrize(
    ("text", "name", "source", "transform"),
    [
        ("id", "id", 1, "identity"),
        ("identity(id)", "id", 1, "identity"),
        ("day(ts)", "ts_day", 2, "day"),
        ("days( ts )", "ts_day", 2, "day"),
        ("DAY(ts)", "ts_day", 2, "day"),
        ("hour(ts)", "ts_hour", 2, "hour"),
        ("month(day)", "day_month", 5, "month"),
        ("year(day)", "day_year", 5, "year"),
        ("bucket(16, id)", "id_bucket", 1, "bucket[16]"),
        ("bucket(id, 16)", "id_bucket", 1, "bucket[16]"),
        ("truncate(4, name)", "name_trunc", 3, "truncate[4]"),
        ("void(points)", "points_null", 9, "void"),
        ("bucket(8,place.lat) as shard", "shard", 7, "bucket[8]"),
        ("place.lat", "place.lat", 7, "identity"),
        ("`name`", "name", 3, "identity"),
        ("day(ts) AS `the day`", "the day", 2, "day"),
    ],
)
def test_terms(text, name, source, transform):
    term = parse_term(text, COLUMNS)
    assert (term.default_name(), term.source_id, str(term.transform)) == (name, source, transform)
    if transform != "void":
        (field,) = parse_partition_spec([text], COLUMNS).fields
        assert (field.name, field.source_id, field.field_id) == (name, source, 1000)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nope",
        "day()",
        "day(nope)",
        "day(ts, id)",
        "week(ts)",
        "bucket(id)",
        "bucket(0, id)",
        "bucket(-4, id)",
        "bucket(99999999999, id)",
        "bucket(4, 4)",
        "truncate(id, name)",
        "day(name)",
        "hour(day)",
        "truncate(3, ts)",
        "place",
        "points.element.x",
        "marks.value.x",
        "day(ts) as name",
        "day(ts) desc",
        None,
        5,
    ],
)
def test_terms_that_cannot_be(text):
    with pytest.raises(InvalidPartitionSpecError):
        parse_partition_spec([text], COLUMNS)


@pytest.mark.parametrize(
    "terms",
    [
        ["day(ts)", "day(ts)"],
        ["day(ts)", "hour(ts)"],
        ["id", "identity(id)"],
        ["id", "name as id"],
        "day(ts)",
    ],
)
def test_specs_that_cannot_be(terms):
    with pytest.raises(InvalidPartitionSpecError):
        parse_partition_spec(terms, COLUMNS)


def test_several_buckets_of_one_column_need_names():
    spec = parse_partition_spec(["bucket(4, id)", "bucket(8, id) as finer"], COLUMNS)
    assert [(field.name, field.field_id) for field in spec.fields] == [
        ("id_bucket", 1000),
        ("finer", 1001),
    ]


def test_names_with_commas_and_brackets_are_quoted():
    odd = Schema(NestedField(1, "a, b (c)", LongType()))
    assert parse_term("bucket(4, `a, b (c)`)", odd).source_id == 1


@pytest.mark.parametrize(
    ("text", "direction", "nulls", "transform"),
    [
        ("ts", SortDirection.ASC, NullOrder.NULLS_FIRST, "identity"),
        ("ts asc", SortDirection.ASC, NullOrder.NULLS_FIRST, "identity"),
        ("ts desc", SortDirection.DESC, NullOrder.NULLS_LAST, "identity"),
        ("ts DESC NULLS FIRST", SortDirection.DESC, NullOrder.NULLS_FIRST, "identity"),
        ("ts nulls last", SortDirection.ASC, NullOrder.NULLS_LAST, "identity"),
        ("bucket(16, id) desc nulls-last", SortDirection.DESC, NullOrder.NULLS_LAST, "bucket[16]"),
    ],
)
def test_sort_terms(text, direction, nulls, transform):
    order = parse_sort_order([text], COLUMNS)
    (field,) = order.fields
    assert order.order_id == 1
    assert (field.direction, field.null_order, str(field.transform)) == (
        direction,
        nulls,
        transform,
    )


def test_no_terms_is_unsorted():
    assert parse_sort_order([], COLUMNS).order_id == 0


@pytest.mark.parametrize(
    "terms", [["nope"], ["ts sideways"], ["points"], ["marks.key"], ["ts as t"], "ts", [None]]
)
def test_orders_that_cannot_be(terms):
    with pytest.raises(InvalidPartitionSpecError):
        parse_sort_order(terms, COLUMNS)


PATH_SCHEMA = Schema(
    NestedField(1, "d", DateType()),
    NestedField(2, "t", TimestampType()),
    NestedField(3, "s", StringType()),
    NestedField(4, "b", BinaryType()),
    NestedField(5, "p", DecimalType(9, 2)),
    NestedField(6, "u", UUIDType()),
    NestedField(7, "n", TimestampNanoType()),
    NestedField(8, "st", StructType(NestedField(9, "i", IntegerType()))),
)


@pytest.mark.parametrize(
    ("term", "value", "folder"),
    [
        ("day(t)", 20606, "t_day=2026-06-02"),
        ("day(t)", -1, "t_day=1969-12-31"),
        ("month(t)", -1, "t_month=1969-12"),
        ("year(t)", -1, "t_year=1969"),
        ("hour(t)", -1, "t_hour=1969-12-31-23"),
        ("d", 20606, "d=2026-06-02"),
        ("s", "a b/c=ü&", "s=a+b%2Fc%3D%C3%BC%26"),
        ("s", "../..", "s=..%2F.."),
        ("s", "", "s="),
        ("s", None, "s=null"),
        ("bucket(16, s)", 3, "s_bucket=3"),
        ("p", Decimal("-1.50"), "p=-1.50"),
        ("b", b"\x00\xff", "b=AP8%3D"),
        ("u", uuid.UUID(int=1), "u=00000000-0000-0000-0000-000000000001"),
        ("day(t)", 10**7, "t_day=29349-01-26"),
        ("day(t)", -(10**7), "t_day=-25410-12-06"),
        ("year(d)", 20_000, "d_year=21970"),
        ("st.i", 5, "st.i=5"),
        ("n", 5, "n=5"),
    ],
)
def test_folders(term, value, folder):
    spec = parse_partition_spec([term], PATH_SCHEMA)
    assert partition_path(spec, PATH_SCHEMA, (value,)) == folder


def test_folders_agree_with_pyiceberg():
    from pyiceberg.typedef import Record

    spec = parse_partition_spec(
        ["day(t)", "bucket(4, s)", "truncate(2, b)", "p", "month(d)"], PATH_SCHEMA
    )
    values = (18_000, 3, b"xy", Decimal("3.25"), 600)
    assert partition_path(spec, PATH_SCHEMA, values) == spec.partition_to_path(
        Record(*values), PATH_SCHEMA
    )


def test_long_values_make_short_folders_that_still_differ():
    spec = parse_partition_spec(["s"], PATH_SCHEMA)
    paths = {partition_path(spec, PATH_SCHEMA, ("ü" * 5_000 + end,)) for end in "ab"}
    assert len(paths) == 2
    assert all(len(path) < 255 for path in paths)


def test_unpartitioned_has_no_folder():
    assert partition_path(PartitionSpec(spec_id=0), PATH_SCHEMA, ()) == ""


def test_partition_type_is_optional_by_field_id_even_where_the_column_is_gone():
    spec = PartitionSpec(
        PartitionField(1, 1000, DayTransform(), "x"),
        PartitionField(3, 1001, BucketTransform(4), "y"),
        PartitionField(3, 1002, TruncateTransform(4), "z"),
        PartitionField(99, 1003, IdentityTransform(), "gone"),
        PartitionField(5, 1004, VoidTransform(), "void"),
        spec_id=0,
    )
    struct = partition_type(spec, PATH_SCHEMA)
    assert [str(field.field_type) for field in struct.fields] == [
        "date",
        "int",
        "string",
        "unknown",
        "decimal(9, 2)",
    ]
    assert [field.field_id for field in struct.fields] == [1000, 1001, 1002, 1003, 1004]
    assert not any(field.required for field in struct.fields)
    assert dt.date(1970, 1, 1) + dt.timedelta(days=20606) == dt.date(2026, 6, 2)
