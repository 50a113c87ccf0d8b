"""Metrics modes and the rounding of bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, ListType, LongType, NestedField, StringType, StructType

from lakehouse.data.statistics.column_metrics import (
    COUNTS,
    FULL,
    NONE,
    MetricsMode,
    metrics_modes,
    minimal_twos_complement,
    round_up_bytes,
    round_up_text,
)
from lakehouse.errors import InvalidPropertyError
from lakehouse.spec.partitioning.sort_order import NullOrder, SortDirection, SortField, SortOrder

DEFAULT = MetricsMode(counts=True, bounds=True, length=16)


@pytest.mark.parametrize(
    ("value", "length", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "abd"),
        ("ab\U0010ffffx", 3, "ac"),
        ("\U0010ffff\U0010ffffx", 2, None),
        ("a\ud7ffx", 2, "a\ue000"),
        ("é€🎉x", 3, "é€🎊"),
        ("aé" + "\U0010ffff" * 5, 4, "aê"),
    ],
)
def test_upper_bounds_of_text_grow_by_code_point(value, length, expected):
    assert round_up_text(value, length) == expected


@given(st.text(min_size=1, max_size=20), st.integers(1, 19))
def test_rounded_text_is_an_upper_bound_and_encodable(value, length):
    rounded = round_up_text(value, length)
    if rounded is None:
        assert value[:length] == "\U0010ffff" * length
    else:
        assert rounded.encode("utf-8") >= value.encode("utf-8")
        assert len(rounded) <= max(length, len(value) if len(value) <= length else 0)


@given(st.binary(min_size=1, max_size=20), st.integers(1, 19))
def test_rounded_bytes_are_an_upper_bound(value, length):
    rounded = round_up_bytes(value, length)
    if rounded is None:
        assert value[:length] == b"\xff" * length
    else:
        assert rounded >= value
        assert len(rounded) <= length or rounded == value


@pytest.mark.parametrize(
    "unscaled",
    [0, 1, -1, 127, 128, -128, -129, 255, 256, 32767, 32768, -32768, -32769, 2**126, -(2**127)],
)
def test_decimals_have_the_fewest_bytes(unscaled):
    data = minimal_twos_complement(unscaled)
    assert int.from_bytes(data, "big", signed=True) == unscaled
    if len(data) > 1:
        with pytest.raises(OverflowError):
            unscaled.to_bytes(len(data) - 1, "big", signed=True)


SCHEMA = Schema(
    NestedField(1, "a", LongType()),
    NestedField(2, "s", StructType(NestedField(3, "t", StringType()))),
    NestedField(4, "l", ListType(5, DoubleType(), element_required=False)),
)


def test_modes_by_default_and_by_column():
    assert metrics_modes(SCHEMA, {}) == {1: DEFAULT, 3: DEFAULT, 5: COUNTS}
    properties = {
        "write.metadata.metrics.default": "full",
        "write.metadata.metrics.column.s.t": "truncate(4)",
    }
    assert metrics_modes(SCHEMA, properties) == {
        1: FULL,
        3: MetricsMode(counts=True, bounds=True, length=4),
        5: COUNTS,
    }
    properties = {
        "write.metadata.metrics.default": "none",
        "write.metadata.metrics.column.l.element": "counts",
    }
    assert metrics_modes(SCHEMA, properties) == {1: NONE, 3: NONE, 5: COUNTS}


def test_only_the_first_hundred_columns_infer_a_default():
    schema = Schema(*(NestedField(i, f"c{i}", LongType()) for i in range(1, 106)))
    modes = metrics_modes(schema, {})
    assert [i for i, mode in modes.items() if mode == DEFAULT] == list(range(1, 101))
    assert all(
        metrics_modes(schema, {"write.metadata.metrics.default": "counts"})[i] == COUNTS
        for i in range(1, 106)
    )
    assert (
        len(
            [
                m
                for m in metrics_modes(
                    schema, {"write.metadata.metrics.max-inferred-column-defaults": "3"}
                ).values()
                if m == DEFAULT
            ]
        )
        == 3
    )


def test_sort_columns_always_have_bounds():
    by_id = SortField(1, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST)
    order = SortOrder((by_id,), order_id=1)
    assert metrics_modes(SCHEMA, {"write.metadata.metrics.default": "none"}, order)[1] == DEFAULT


@pytest.mark.parametrize("text", ["", "truncate", "truncate(0)", "truncate(-1)", "most"])
def test_unknown_modes_are_named(text):
    with pytest.raises(InvalidPropertyError, match=r"write\.metadata\.metrics\.default"):
        metrics_modes(SCHEMA, {"write.metadata.metrics.default": text})
