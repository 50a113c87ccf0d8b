"""transform_array against pyiceberg's transforms, the spec's values, and integer calendars."""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from decimal import Decimal

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    UnknownTransform,
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
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakehouse.errors import InvalidInputError, InvalidPartitionSpecError, UnsupportedFeatureError
from lakehouse.expressions.transforms.partition_transforms import transform_array, transform_value

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
# 0001-01-01 to 9999-12-31, what pyiceberg's own calendar can do
DAYS = st.integers(-719162, 2932896)
MICROS = st.integers(-719162 * 86_400_000_000, 2932897 * 86_400_000_000 - 1)
NANOS = LONG
TEXT = st.text(max_size=40) | st.text(alphabet="aé日🎉", min_size=250, max_size=300)
BYTES = st.binary(max_size=40) | st.binary(min_size=250, max_size=270)

INTEGRAL = [
    (IntegerType(), pa.int32(), INT),
    (LongType(), pa.int64(), LONG),
    (DateType(), pa.date32(), DAYS),
    (TimeType(), pa.time64("us"), st.integers(0, 86_400_000_000 - 1)),
    (TimestampType(), pa.timestamp("us"), MICROS),
    (TimestamptzType(), pa.timestamp("us", "UTC"), MICROS),
    (TimestampNanoType(), pa.timestamp("ns"), NANOS),
    (TimestamptzNanoType(), pa.timestamp("ns", "UTC"), NANOS),
]


def integers_array(values, arrow_type):
    """Integers seen as a temporal type, sliced so that offsets matter."""
    physical = pa.int32() if arrow_type.bit_width == 32 else pa.int64()
    return pa.array([1, *values], physical).view(arrow_type).slice(1)


def as_integers(array):
    physical = pa.int32() if array.type.bit_width == 32 else pa.int64()
    return array.view(physical).to_pylist()


@pytest.mark.parametrize(("kind", "arrow_type", "values"), INTEGRAL, ids=str)
@given(data=st.data())
def test_bucket_of_integral_types(kind, arrow_type, values, data):
    sample = data.draw(st.lists(st.none() | values, max_size=60))
    buckets = data.draw(st.integers(1, 2**31 - 1))
    expected = [BucketTransform(buckets).transform(kind)(v) for v in sample]
    assert (
        transform_array(
            BucketTransform(buckets), integers_array(sample, arrow_type), kind
        ).to_pylist()
        == expected
    )
    known = [one for one in zip(sample, expected, strict=True) if one[0] is not None]
    for value, bucket in known:
        assert transform_value(BucketTransform(buckets), value, kind) == bucket


@given(sample=st.lists(st.none() | TEXT, max_size=60), buckets=st.integers(1, 1000))
def test_bucket_of_strings(sample, buckets):
    expected = [BucketTransform(buckets).transform(StringType())(v) for v in sample]
    for arrow_type in (
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()),
    ):
        array = pa.array(["x", *sample], arrow_type).slice(1)
        assert (
            transform_array(BucketTransform(buckets), array, StringType()).to_pylist() == expected
        )


@given(sample=st.lists(st.none() | BYTES, max_size=60), buckets=st.integers(1, 1000))
def test_bucket_of_binary(sample, buckets):
    expected = [BucketTransform(buckets).transform(BinaryType())(v) for v in sample]
    for arrow_type in (pa.binary(), pa.large_binary(), pa.binary_view()):
        array = pa.array([b"x", *sample], arrow_type).slice(1)
        assert (
            transform_array(BucketTransform(buckets), array, BinaryType()).to_pylist() == expected
        )


@given(width=st.integers(1, 21), data=st.data())
def test_bucket_of_fixed_and_uuid(width, data):
    sample = data.draw(st.lists(st.none() | st.binary(min_size=width, max_size=width), max_size=40))
    array = pa.array([b"x" * width, *sample], pa.binary(width)).slice(1)
    expected = [None if v is None else (mmh3.hash(v) & 0x7FFFFFFF) % 7 for v in sample]
    assert transform_array(BucketTransform(7), array, FixedType(width)).to_pylist() == expected
    ids = data.draw(st.lists(st.none() | st.uuids(), max_size=20))
    extension = pa.array([None if v is None else v.bytes for v in ids], pa.uuid())
    expected = [BucketTransform(7).transform(UUIDType())(v) for v in ids]
    assert transform_array(BucketTransform(7), extension, UUIDType()).to_pylist() == expected


def minimal_bytes(unscaled: int) -> bytes:
    """Shortest two's complement, found by trying."""
    for length in range(1, 17):
        try:
            return unscaled.to_bytes(length, "big", signed=True)
        except OverflowError:
            continue
    raise AssertionError(unscaled)


EDGES = [
    sign * (2 ** (8 * k - 1)) + d for k in range(1, 16) for sign in (1, -1) for d in (-1, 0, 1)
]


@given(
    sample=st.lists(
        st.none() | st.integers(-(10**38) + 1, 10**38 - 1) | st.sampled_from(EDGES), max_size=60
    ),
    scale=st.integers(0, 38),
)
def test_bucket_of_decimals_hashes_the_fewest_bytes(sample, scale):
    with_edges = [*sample, *EDGES]
    array = decimals(with_edges, 38, scale)
    expected = [
        None if v is None else (mmh3.hash(minimal_bytes(v)) & 0x7FFFFFFF) % 1009 for v in with_edges
    ]
    assert (
        transform_array(BucketTransform(1009), array, DecimalType(38, scale)).to_pylist()
        == expected
    )


def decimals(unscaled, precision, scale):
    values = [
        None if v is None else Decimal((int(v < 0), tuple(map(int, str(abs(v)))), -scale))
        for v in unscaled
    ]
    return pa.array([Decimal(0), *values], pa.decimal128(precision, scale)).slice(1)


@pytest.mark.parametrize(
    ("kind", "array", "expected"),
    [
        (IntegerType(), pa.array([34], pa.int32()), 2017239379),
        (LongType(), pa.array([34], pa.int64()), 2017239379),
        (DecimalType(4, 2), pa.array([Decimal("14.20")], pa.decimal128(4, 2)), -500754589),
        (DateType(), pa.array([dt.date(2017, 11, 16)]), -653330422),
        (TimeType(), pa.array([dt.time(22, 31, 8)], pa.time64("us")), -662762989),
        (TimestampType(), pa.array(["2017-11-16T22:31:08"]).cast(pa.timestamp("us")), -2047944441),
        (
            TimestampType(),
            pa.array(["2017-11-16T22:31:08.000001"]).cast(pa.timestamp("us")),
            -1207196810,
        ),
        (StringType(), pa.array(["iceberg"]), 1210000089),
        (
            UUIDType(),
            pa.array([uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes], pa.binary(16)),
            1488055340,
        ),
        (FixedType(4), pa.array([b"\x00\x01\x02\x03"], pa.binary(4)), -188683207),
        (BinaryType(), pa.array([b"\x00\x01\x02\x03"]), -188683207),
    ],
    ids=lambda v: "" if isinstance(v, pa.Array) else str(v),
)
def test_hashes_of_the_spec(kind, array, expected):
    assert transform_array(BucketTransform(2**31 - 1), array, kind).to_pylist() == [
        (expected & 0x7FFFFFFF) % (2**31 - 1)
    ]


@pytest.mark.parametrize("kind", [IntegerType(), LongType()], ids=str)
@given(data=st.data())
def test_truncate_integers(kind, data):
    bits = 32 if isinstance(kind, IntegerType) else 64
    width = data.draw(st.integers(1, 2**31 - 1))
    low = -(2 ** (bits - 1))
    sample = data.draw(
        st.lists(
            st.none() | st.integers(-((-low) // width) * width, 2 ** (bits - 1) - 1), max_size=60
        )
    )
    array = integers_array(sample, pa.int32() if bits == 32 else pa.int64())
    assert transform_array(TruncateTransform(width), array, kind).to_pylist() == [
        TruncateTransform(width).transform(kind)(v) for v in sample
    ]


@pytest.mark.parametrize(
    ("arrow_type", "kind"), [(pa.int32(), IntegerType()), (pa.int64(), LongType())]
)
def test_truncate_below_the_smallest_integer_is_refused_not_wrapped(arrow_type, kind):
    smallest = -(2 ** (arrow_type.bit_width - 1))
    with pytest.raises(InvalidInputError, match=str(smallest)):
        transform_array(TruncateTransform(10), pa.array([0, smallest], arrow_type), kind)


@given(sample=st.lists(st.none() | TEXT, max_size=60), width=st.integers(1, 300))
def test_truncate_strings(sample, width):
    array = pa.array(["x", *sample], pa.string()).slice(1)
    expected = [TruncateTransform(width).transform(StringType())(v) for v in sample]
    assert transform_array(TruncateTransform(width), array, StringType()).to_pylist() == expected


@given(sample=st.lists(st.none() | BYTES, max_size=60), width=st.integers(1, 300))
def test_truncate_binary(sample, width):
    array = pa.array([b"x", *sample], pa.binary()).slice(1)
    expected = [TruncateTransform(width).transform(BinaryType())(v) for v in sample]
    assert transform_array(TruncateTransform(width), array, BinaryType()).to_pylist() == expected


@given(precision=st.integers(1, 38), width=st.integers(1, 2**31 - 1), data=st.data())
def test_truncate_decimals(precision, width, data):
    scale = data.draw(st.integers(0, precision))
    limit = 10**precision - 1
    sample = data.draw(st.lists(st.none() | st.integers(-limit, limit), max_size=40))
    array = decimals(sample, precision, scale)
    expected = [None if v is None else v - v % width for v in sample]
    kind = DecimalType(precision, scale)
    if any(v is not None and v < -limit for v in expected):
        with pytest.raises(InvalidInputError, match="truncate"):
            transform_array(TruncateTransform(width), array, kind)
    else:
        got = transform_array(TruncateTransform(width), array, kind)
        assert got.type == array.type
        assert got.equals(decimals(expected, precision, scale))


@pytest.mark.parametrize("transform", [YearTransform(), MonthTransform(), DayTransform()], ids=str)
@pytest.mark.parametrize(
    ("kind", "arrow_type", "values"),
    [
        (k, a, v)
        for k, a, v in INTEGRAL
        if isinstance(k, (DateType, TimestampType, TimestamptzType, TimestampNanoType))
    ],
    ids=str,
)
@given(data=st.data())
def test_calendar_transforms(transform, kind, arrow_type, values, data):
    sample = data.draw(st.lists(st.none() | values, max_size=60))
    expected = [transform.transform(kind)(v) for v in sample]
    got = transform_array(transform, integers_array(sample, arrow_type), kind)
    assert got.type == (pa.date32() if isinstance(transform, DayTransform) else pa.int32())
    assert as_integers(got) == expected


@given(sample=st.lists(st.none() | MICROS, max_size=60))
def test_hour(sample):
    expected = [HourTransform().transform(TimestampType())(v) for v in sample]
    assert (
        transform_array(
            HourTransform(), integers_array(sample, pa.timestamp("us")), TimestampType()
        ).to_pylist()
        == expected
    )


def proleptic(days: int) -> tuple[int, int]:
    """(year, month) outside datetime's range: the calendar repeats in 400 years = 146,097 days."""
    cycles, rest = divmod(days, 146_097)
    date = dt.date(1970, 1, 1) + dt.timedelta(days=rest)
    return date.year + 400 * cycles, date.month


@given(sample=st.lists(LONG | st.sampled_from([-(2**63), 2**63 - 1]), min_size=1, max_size=40))
def test_calendar_of_extreme_timestamps(sample):
    array = integers_array(sample, pa.timestamp("us"))
    parts = [proleptic(v // 86_400_000_000) for v in sample]
    kind = TimestampType()
    assert transform_array(YearTransform(), array, kind).to_pylist() == [y - 1970 for y, _ in parts]
    assert transform_array(MonthTransform(), array, kind).to_pylist() == [
        (y - 1970) * 12 + m - 1 for y, m in parts
    ]
    assert as_integers(transform_array(DayTransform(), array, kind)) == [
        v // 86_400_000_000 for v in sample
    ]
    hours = [v // 3_600_000_000 for v in sample]
    if all(-(2**31) <= h < 2**31 for h in hours):
        assert transform_array(HourTransform(), array, kind).to_pylist() == hours
    else:
        with pytest.raises(InvalidInputError, match="hour"):
            transform_array(HourTransform(), array, kind)


@given(sample=st.lists(INT, min_size=1, max_size=40))
def test_calendar_of_extreme_dates(sample):
    array = integers_array(sample, pa.date32())
    parts = [proleptic(v) for v in sample]
    assert transform_array(YearTransform(), array, DateType()).to_pylist() == [
        y - 1970 for y, _ in parts
    ]
    assert transform_array(MonthTransform(), array, DateType()).to_pylist() == [
        (y - 1970) * 12 + m - 1 for y, m in parts
    ]


def test_before_1970_floors():
    last_micro = integers_array([-1], pa.timestamp("us"))
    for transform in (YearTransform(), MonthTransform(), DayTransform(), HourTransform()):
        assert as_integers(transform_array(transform, last_micro, TimestampType())) == [-1]


def test_identity_void_and_unknown():
    array = pa.chunked_array([pa.array(["a", None]), pa.array(["b"])])
    assert transform_array(IdentityTransform(), array, StringType()).to_pylist() == ["a", None, "b"]
    void = transform_array(VoidTransform(), array, StringType())
    assert void.to_pylist() == [None] * 3
    assert void.type == pa.string()
    with pytest.raises(UnsupportedFeatureError, match="zorder"):
        transform_array(UnknownTransform("zorder"), array, StringType())


@pytest.mark.parametrize(
    ("transform", "kind", "arrow_type"),
    [
        (BucketTransform(4), DoubleType(), pa.float64()),
        (BucketTransform(4), BooleanType(), pa.bool_()),
        (TruncateTransform(4), DateType(), pa.date32()),
        (HourTransform(), DateType(), pa.date32()),
        (DayTransform(), LongType(), pa.int64()),
    ],
    ids=str,
)
def test_inapplicable_transforms_are_named(transform, kind, arrow_type):
    with pytest.raises(InvalidPartitionSpecError, match=str(kind)):
        transform_array(transform, pa.nulls(1, arrow_type), kind)


def test_a_million_longs_hash_as_mmh3_does():
    values = np.random.default_rng(7).integers(-(2**63), 2**63 - 1, 1_000_000, dtype=np.int64)
    got = transform_array(BucketTransform(2**31 - 1), pa.array(values), LongType()).to_numpy()
    for row in range(0, 1_000_000, 997):
        assert got[row] == (mmh3.hash(struct.pack("<q", int(values[row]))) & 0x7FFFFFFF) % (
            2**31 - 1
        )


@pytest.mark.parametrize(
    ("transform", "kind", "arrow_type"),
    [
        (IdentityTransform(), StringType(), pa.string()),
        (VoidTransform(), StringType(), pa.string()),
        (BucketTransform(4), LongType(), pa.int64()),
        (BucketTransform(4), BinaryType(), pa.binary()),
        (TruncateTransform(4), IntegerType(), pa.int32()),
        (TruncateTransform(4), StringType(), pa.string()),
        (YearTransform(), DateType(), pa.date32()),
        (MonthTransform(), TimestampType(), pa.timestamp("us")),
        (DayTransform(), TimestamptzType(), pa.timestamp("us", "UTC")),
        (HourTransform(), TimestampNanoType(), pa.timestamp("ns")),
    ],
    ids=str,
)
def test_null_stays_null(transform, kind, arrow_type):
    assert transform_array(transform, pa.nulls(2, arrow_type), kind).to_pylist() == [None, None]


def test_what_lies_under_nulls_is_not_looked_at():
    hidden = pa.Array.from_buffers(
        pa.int32(), 2, [pa.py_buffer(b"\x01"), pa.array([5, -(2**31)], pa.int32()).buffers()[1]]
    )
    assert transform_array(TruncateTransform(10), hidden, IntegerType()).to_pylist() == [0, None]
