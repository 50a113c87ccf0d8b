"""Every transform on every type it takes, in bulk, beside pyiceberg's scalar transform.

`TRANSFORM_VALUES=1000000` for a million values a type.
"""

from __future__ import annotations

import os
from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg import transforms as t
from pyiceberg import types as ice

from lakehouse.expressions.transforms.partition_transforms import transform_array

COUNT = int(os.environ.get("TRANSFORM_VALUES", "1000"))
DAY_US = 86_400_000_000
FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # years 1 to 9999: pyiceberg's calendar ends there
CALENDAR = [t.YearTransform(), t.MonthTransform(), t.DayTransform()]
HASHED = [t.BucketTransform(16), t.BucketTransform(1_000_003)]
WIDTHS = [t.TruncateTransform(1), t.TruncateTransform(7), t.TruncateTransform(100_000)]


def integers(rng, low, high):
    """Uniform, and as many near zero and at the edges, where rounding and signs go wrong."""
    wide = rng.integers(low, high, COUNT // 2, dtype=np.int64, endpoint=True)
    near = rng.integers(
        max(low, -3 * DAY_US), min(high, 3 * DAY_US), COUNT - len(wide) - 4, dtype=np.int64
    )
    return np.concatenate([wide, near, [low, high, 0, max(low, -1)]])


def texts(rng):
    letters = np.array(list("ab\u00e9\u65e5\U0001f389\x00 ~\ud7ff\ue000"))
    return ["".join(rng.choice(letters, length)) for length in rng.integers(0, 24, COUNT)]


def blobs(rng):
    return [
        bytes(rng.integers(0, 256, length, dtype=np.uint8)) for length in rng.integers(0, 40, COUNT)
    ]


def decimals(rng, precision, scale):
    low = -(10 ** min(precision, 18)) + 10**5
    # every length of bytes; -2^(8k-1), where pyiceberg hashes a byte too many, has a test of its
    # own
    drawn = (
        int(n) >> int(bits)
        for n, bits in zip(rng.integers(low, -low, COUNT), rng.integers(0, 50, COUNT), strict=True)
    )
    longer = 10 ** (precision - 19) if precision > 18 else 1
    unscaled = (n * (longer if n % 3 else 1) for n in drawn if n >= 0 or (-n).bit_count() > 1)
    return [Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale)) for n in unscaled]


INTEGRAL = [
    (ice.IntegerType(), pa.int32(), (-(2**31), 2**31 - 1), [*HASHED, *WIDTHS[:2]]),
    (ice.LongType(), pa.int64(), (-(2**62), 2**63 - 1), [*HASHED, *WIDTHS]),
    (ice.DateType(), pa.date32(), (FIRST_DAY, LAST_DAY), [*HASHED, *CALENDAR]),
    (ice.TimeType(), pa.time64("us"), (0, DAY_US - 1), HASHED),
    (
        ice.TimestampType(),
        pa.timestamp("us"),
        (FIRST_DAY * DAY_US, LAST_DAY * DAY_US),
        [*HASHED, *CALENDAR, t.HourTransform()],
    ),
    (
        ice.TimestamptzType(),
        pa.timestamp("us", "UTC"),
        (FIRST_DAY * DAY_US, LAST_DAY * DAY_US),
        [*HASHED, *CALENDAR],
    ),
    (
        ice.TimestampNanoType(),
        pa.timestamp("ns"),
        (-(2**63), 2**63 - 1),
        [*HASHED, *CALENDAR, t.HourTransform()],
    ),
]
OTHERS = [
    (ice.StringType(), pa.string(), texts, [*HASHED, *WIDTHS[:2]]),
    (ice.BinaryType(), pa.binary(), blobs, [*HASHED, *WIDTHS[:2]]),
    (ice.DecimalType(9, 2), pa.decimal128(9, 2), None, [*HASHED, *WIDTHS[:2]]),
    (ice.DecimalType(38, 10), pa.decimal128(38, 10), None, [*HASHED, *WIDTHS]),
]


def same(transform, kind, array, values):
    scalar = transform.transform(kind)
    expected = [scalar(value) for value in values]
    got = transform_array(transform, array, kind)
    if pa.types.is_date(got.type):
        got = got.view(pa.int32())
    assert got.to_pylist() == expected


@pytest.mark.parametrize(
    ("kind", "arrow", "bounds", "transforms"), INTEGRAL, ids=lambda one: str(one)[:20]
)
def test_integral(kind, arrow, bounds, transforms):
    physical = np.int32 if arrow.bit_width == 32 else np.int64
    values = integers(np.random.default_rng(1), *bounds).astype(physical)
    if isinstance(kind, ice.IntegerType):
        # truncating the smallest one is refused: test_transforms.py
        values = np.maximum(values, -(2**31) + 10)
    array = pa.array(values).view(arrow)
    for transform in transforms:
        same(transform, kind, array, values.tolist())


@pytest.mark.parametrize(
    ("kind", "arrow", "make", "transforms"), OTHERS, ids=lambda one: str(one)[:20]
)
def test_others(kind, arrow, make, transforms):
    rng = np.random.default_rng(2)
    values = make(rng) if make is not None else decimals(rng, kind.precision, kind.scale)
    for transform in transforms:
        same(transform, kind, pa.array(values, arrow), values)


def test_uuids_and_fixed():
    rng = np.random.default_rng(3)
    raw = [bytes(rng.integers(0, 256, 16, dtype=np.uint8)) for _ in range(COUNT)]
    for transform in HASHED:
        scalar = transform.transform(ice.UUIDType())
        expected = [scalar(UUID(bytes=one)) for one in raw]
        assert (
            transform_array(transform, pa.array(raw, pa.uuid()), ice.UUIDType()).to_pylist()
            == expected
        )
        assert (
            transform_array(transform, pa.array(raw, pa.binary(16)), ice.FixedType(16)).to_pylist()
            == expected
        )
