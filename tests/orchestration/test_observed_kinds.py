"""Kinds of Arrow columns against those of their values, one by one; nanoseconds."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, time

import pyarrow as pa
import pytest

from lakehouse.ingestion.reading.typing.observed_kinds import column_kinds
from lakehouse.ingestion.reading.typing.typed_columns import typed_column
from lakehouse.ingestion.reading.typing.value_kinds import kinds_of

_EDGES = [-(2**63), -(2**31) - 1, -(2**31), -1, 0, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1]
_MANY_TYPES = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string()),
    *(pa.binary(), pa.large_binary(), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us")),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")),
    *(pa.list_(pa.int32()), pa.struct([("a", pa.int32())])),
]


@pytest.mark.parametrize("type_", _MANY_TYPES, ids=str)
def test_kinds_of_an_arrow_column_are_those_of_its_values_one_by_one(type_: pa.DataType) -> None:
    chance = random.Random(str(type_))
    for _ in range(40):
        values = pa.array([_value(chance, type_) for _ in range(4)], type_)
        expected = kinds_of([one.as_py() for one in values])
        assert column_kinds(values, untyped=False) == expected


def _value(chance: random.Random, type_: pa.DataType) -> object:
    number = chance.randint(0, 1)
    if chance.random() < 0.3:
        return None
    if pa.types.is_integer(type_):
        unsigned = pa.types.is_unsigned_integer(type_)
        low = 0 if unsigned else -(2 ** (type_.bit_width - 1))
        high = low + 2**type_.bit_width - 1
        edges = [one for one in _EDGES if low <= one <= high]
        return chance.choice([*edges, low, high, chance.randint(low, high)])
    if pa.types.is_timestamp(type_):
        return datetime(2026, 1, 1 + number, tzinfo=UTC if type_.tz else None)
    made = {
        pa.types.is_date: date(2026, 1, 1 + number),
        pa.types.is_time: time(1 + number),
        pa.types.is_boolean: bool(number),
        pa.types.is_list: [number],
        pa.types.is_struct: {"a": number},
        pa.types.is_floating: float(number),
        pa.types.is_binary: bytes([number]),
        pa.types.is_large_binary: bytes([number]),
    }
    return next((value for is_, value in made.items() if is_(type_)), str(number))


def test_times_in_nanoseconds_are_times_and_those_that_would_lose_some_are_refused() -> None:
    """pandas writes all of its times so."""
    exact, finer = 1_780_000_000_123_456_000, 1_780_000_000_123_456_789
    for zone, kind in ((None, "timestamp"), ("UTC", "timestamptz")):
        times = pa.array([exact, None, finer, exact + 1000], pa.timestamp("ns", zone))
        assert column_kinds(times, untyped=False) == {kind: 3}
        column, bad = typed_column(times, kind)
        micros = [exact // 1000, None, None, exact // 1000 + 1]
        assert column.cast(pa.int64()).to_pylist() == micros
        assert list(bad) == [2]
        assert f"has nanoseconds; a {kind} has microseconds" in bad[2]
