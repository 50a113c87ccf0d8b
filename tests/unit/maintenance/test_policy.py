from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.errors import InvalidPropertyError
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.maintenance.maintenance_policy import MaintenancePolicy, policy_of
from lakehouse.spec.table_properties import TableProperties

PREFIX = "lakehouse.maintenance."


def ms(*moment):
    return int(datetime(*moment, tzinfo=UTC).timestamp() * 1000)


def test_the_defaults_are_those_of_the_properties():
    assert policy_of({}) == MaintenancePolicy()


def test_the_table_wins_over_the_project():
    project = {
        PREFIX + "min-input-files": "2",
        PREFIX + "budget-bytes": "100",
        "write.format.default": "orc",
    }
    policy = policy_of({PREFIX + "min-input-files": "9"}, project)
    assert (policy.min_input_files, policy.budget_bytes, policy.max_manifests) == (9, 100, 100)


@pytest.mark.parametrize("name", ["min-input-files", "window"])
def test_a_bad_value_is_named_whoever_set_it(name):
    for given_ in (({PREFIX + name: "x"}, {}), ({}, {PREFIX + name: "x"})):
        with pytest.raises(InvalidPropertyError, match=name):
            policy_of(*given_)


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("22-6", {22, 23, 0, 1, 2, 3, 4, 5}),
        ("1-3,12-13", {1, 2, 12}),
        ("0-24", set(range(24))),
        (" ", set(range(24))),
        ("23-0", {23}),
    ],
)
def test_windows(text, hours):
    assert TableProperties({PREFIX + "window": text}).maintenance_window == hours


@pytest.mark.parametrize("text", ["5", "5-5", "05-5", "24-3", "1-25", "1-2;3-4", "-1-3", "a-b"])
def test_bad_windows(text):
    with pytest.raises(InvalidPropertyError, match="window"):
        policy_of({PREFIX + "window": text})


def test_the_window_opens_at_the_full_hour():
    night = MaintenancePolicy(hours=frozenset({22, 23, 0}))
    assert night.next_opening_ms(ms(2026, 6, 1, 23, 30)) == ms(2026, 6, 1, 23, 30)
    assert night.next_opening_ms(ms(2026, 6, 1, 1, 0, 1)) == ms(2026, 6, 1, 22)


@given(st.frozensets(st.integers(0, 23), min_size=1), st.integers(0, ms(2100, 1, 1)))
def test_the_next_opening_is_the_first_moment_in_the_hours(hours, now):
    found = MaintenancePolicy(hours=hours).next_opening_ms(now)
    assert now <= found <= now + 24 * 3600 * 1000
    assert datetime.fromtimestamp(found / 1000, UTC).hour in hours
    between = range(now, found, 600_000)
    assert all(datetime.fromtimestamp(moment / 1000, UTC).hour not in hours for moment in between)


def test_small_is_three_quarters_of_the_target_or_as_set_but_never_above_it():
    assert MaintenancePolicy().small_below(100) == 75
    assert MaintenancePolicy(small_file_bytes=20).small_below(100) == 20
    assert MaintenancePolicy(small_file_bytes=200).small_below(100) == 100


def test_compaction_follows_the_policy():
    policy = MaintenancePolicy(
        small_file_bytes=20, min_input_files=3, delete_ratio=0.0, budget_bytes=1000
    )
    options = CompactionOptions.under(policy, 100)
    assert (options.min_file_size_ratio, options.min_input_files, options.budget_bytes) == (
        0.2,
        3,
        1000,
    )
    assert options.skip_newer_than_ms is None, "who compacts has asked"
    assert options.delete_ratio_threshold > 0
    assert CompactionOptions.under(MaintenancePolicy(), 512 << 20) == CompactionOptions()
