"""The two orders of UUIDs: what is written means the same in both, what is read must do so too."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.spec.types.internal_values import MARK, is_ordered_alike, order_free, rounded_bounds

EDGES = [0, 1, 2, 2**63 - 2, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1]
HALVES = st.sampled_from(EDGES) | st.integers(0, 2**64 - 1)
UUIDS = st.builds(lambda first, second: struct.pack(">QQ", first, second), HALVES, HALVES)


def signed(value: bytes) -> tuple[int, int]:
    """Java's `UUID.compareTo`."""
    return struct.unpack(">qq", value)


def column(values: list[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary(16))


@given(st.lists(UUIDS, min_size=1, max_size=8))
def test_bounds_that_are_written_hold_in_both_orders(values):
    lower, upper = rounded_bounds(min(values), max(values))
    for bound in (lower, upper):
        assert bound is None or bound[8:] == MARK
    for value in values:
        assert lower is None or (lower <= value and signed(lower) <= signed(value))
        assert upper is None or (upper >= value and signed(upper) >= signed(value))


@given(st.lists(st.none() | UUIDS, max_size=8), st.booleans())
def test_values_are_ordered_alike_when_both_sorts_agree(values, variant):
    if variant:  # as in all UUIDs of the RFC: the first bit of the second half is set
        values = [value and value[:8] + bytes([value[8] | 0x80]) + value[9:] for value in values]
    present = [value for value in values if value is not None]
    alike = is_ordered_alike(column(values))
    if alike:
        assert sorted(present) == sorted(present, key=signed)
    elif variant:
        assert sorted(present) != sorted(present, key=signed)


@given(st.lists(UUIDS, min_size=1, max_size=6), st.booleans(), st.booleans())
def test_bounds_that_are_read_hold_in_the_order_of_bytes(values, by_java, one_order):
    key = signed if by_java else bytes
    lower, upper = min(values, key=key), max(values, key=key)
    read = order_free(column([lower]), column([upper]), np.array([one_order]))
    low, high = (bound[0].as_py() for bound in read)
    for value in values:
        assert low is None or low <= value
        assert high is None or value <= high
    if one_order and len({value[0] >> 7 for value in values}) == 1:
        assert low[:8] == lower[:8]
        assert high[:8] == upper[:8]


def test_marked_bounds_count_also_alone_and_over_row_groups():
    low, high = rounded_bounds(b"\x10" * 16, b"\x20" * 16)
    lower, upper = order_free(
        column([low, None, low]), column([None, high, high]), np.zeros(3, bool)
    )
    assert [one is not None for one in lower.to_pylist()] == [True, False, True]
    assert [one is not None for one in upper.to_pylist()] == [False, True, True]
    unmarked = column([b"\x10" * 16] * 3)
    for read in order_free(unmarked, unmarked, np.zeros(3, bool)):
        assert read.null_count == 3
