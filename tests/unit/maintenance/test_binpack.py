from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakehouse.maintenance.compaction.file_groups import output_file_count, pack


@given(st.lists(st.integers(0, 300), max_size=60), st.integers(1, 200), st.integers(1, 8))
def test_packing_keeps_every_item_and_never_overfills(weights, capacity, lookback):
    items = list(enumerate(weights))
    bins = pack(items, lambda item: item[1], capacity, lookback=lookback)
    assert sorted(item for one in bins for item in one) == items
    for one in bins:
        assert one == sorted(one)
        assert len(one) == 1 or sum(weight for _, weight in one) <= capacity


@given(st.lists(st.integers(1, 100), max_size=40), st.integers(100, 300))
def test_packing_needs_at_most_twice_the_bins_of_a_perfect_one(weights, capacity):
    bins = pack(weights, int, capacity, lookback=1000)
    assert len(bins) <= max(1, -(-2 * sum(weights) // capacity))


@given(st.integers(0, 10**13), st.integers(1, 10**10))
def test_output_files_hold_everything_near_the_target(total, target):
    count = output_file_count(total, target)
    assert count >= 1
    average = total / count
    assert average <= 1.1 * target
    assert count == 1 or average >= 0.5 * target


def test_a_small_remainder_is_absorbed_and_a_large_one_gets_its_own_file():
    assert output_file_count(1000, 100) == 10
    assert output_file_count(1010, 100) == 10
    assert output_file_count(1080, 100) == 11
    assert output_file_count(130, 100) == 2
    assert output_file_count(99, 100) == 1
