from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, TimestampType
from rich.console import Console

from lakehouse.maintenance.advice.advice import CostModel, advise, rank
from lakehouse.maintenance.advice.design_recommendations import recommendations
from lakehouse.maintenance.advice.due_actions import ActionKind
from lakehouse.maintenance.health.disk_use import DiskUse
from lakehouse.maintenance.health.file_layout import ColumnOverlap, Layout
from lakehouse.maintenance.maintenance_policy import MaintenancePolicy
from lakehouse.spec.metadata.table_metadata import new_table_metadata
from lakehouse.spec.partitioning.partition_terms import parse_partition_spec, parse_sort_order
from tests.unit.maintenance.healths import MB, TARGET, partition, table

SCHEMA = Schema(
    NestedField(1, "user_id", LongType(), required=False),
    NestedField(2, "event_ts", TimestampType(), required=False),
    NestedField(3, "price", LongType(), required=False),
)


def metadata(partition_by=(), sort_by=(), **properties):
    return new_table_metadata(
        schema=SCHEMA,
        spec=parse_partition_spec(partition_by, SCHEMA),
        sort_order=parse_sort_order(sort_by, SCHEMA),
        location="/t",
        properties=properties,
        format_version=2,
        table_uuid="00000000-0000-0000-0000-000000000001",
        now_ms=1,
    )


def overlap(column, share, depth=None, files=20):
    return ColumnOverlap(
        field_id=1, column=column, files=files, depth=depth or 1 + share * (files - 1), share=share
    )


def layout(*columns, groups=0, files=1, size=0):
    return Layout(
        columns=tuple(columns),
        mean_files_per_partition=1.0,
        row_groups=groups,
        row_group_files=files,
        row_group_bytes=size,
    )


def days(size, count=20, buckets=None):
    if buckets is None:
        return table(
            [partition(f"event_ts_day=2026-06-{day + 1:02}", [size]) for day in range(count)]
        )
    names = [(day, bucket) for day in range(count) for bucket in range(buckets)]
    return table(
        [
            partition(f"event_ts_day=2026-06-{day + 1:02}/user_id_bucket={bucket}", [size])
            for day, bucket in names
        ]
    )


def proposals(*arguments):
    return [(one.subject, one.current, one.proposed) for one in recommendations(*arguments)]


def test_everything_is_ranked_by_files_per_byte():
    partitions = [partition("few large", [90 * MB] * 6), partition("many small", [MB] * 50)]
    disk = DiskUse(unreferenced_files=3, unreferenced_bytes=9000 * MB, orphan_bytes=9000 * MB)
    health = table(partitions, manifests=150, manifest_bytes=MB, expirable_snapshots=100, disk=disk)
    found = rank(health, MaintenancePolicy(), now_ms=0)
    assert [(one.kind, one.partition) for one in found] == [
        (ActionKind.EXPIRE, ""),
        (ActionKind.REWRITE_MANIFESTS, ""),
        (ActionKind.COMPACT, "many small"),
        (ActionKind.COMPACT, "few large"),
        (ActionKind.REMOVE_ORPHANS, ""),
    ]
    assert found[2].files_per_gb == pytest.approx(49 / (50 * MB) * 1e9)
    assert found[2].why == "50 small files become 1"


def test_the_cost_is_memory_times_time():
    assert CostModel(bytes_per_second=1e8, memory_bytes=2 * 10**9).gb_hours(
        36 * 10**10
    ) == pytest.approx(2.0)


def test_advice_prints_a_table_with_bars_and_json():
    health = table([partition("a", [MB] * 50 + [TARGET] * 60)], snapshots=9)
    advice = advise(
        health,
        layout(overlap("user_id", 0.9)),
        metadata(),
        MaintenancePolicy(quota_snapshots=5),
        now_ms=0,
        filters=["user_id"],
    )
    console = Console(width=250)
    with console.capture() as captured:
        console.print(advice)
    text = captured.get()
    assert "█" * 20 in text
    assert "50 small files become 1" in text
    assert "9 snapshots, the quota is 5" in text
    assert "For a person to decide" in text
    data = advice.to_dict()
    assert data["choices"][0]["files_per_gb"] == pytest.approx(advice.first.files_per_gb, abs=0.001)
    assert data["recommendations"][0]["subject"] == "sort order"
    assert advice.to_json()


def test_nothing_to_do_says_so():
    advice = advise(table(), layout(), metadata(), MaintenancePolicy(), now_ms=0)
    assert (advice.first, advice.recommendations, dict(advice.facts())["first"]) == (
        None,
        (),
        "nothing to do",
    )


def test_a_sort_order_is_proposed_only_for_what_queries_filter_by_and_files_do_not_skip():
    found = layout(overlap("price", 0.1), overlap("user_id", 0.9))
    assert proposals(table(), found, metadata()) == []
    assert proposals(table(), found, metadata(), ["price"]) == []
    assert proposals(table(), found, metadata(), ["price", "user_id"]) == [
        ("sort order", "none", "user_id")
    ]
    assert proposals(table(), found, metadata(sort_by=["price"]), ["user_id"]) == [
        ("sort order", "price", "user_id, price")
    ]
    assert proposals(table(), found, metadata(partition_by=["user_id"]), ["user_id"]) == []
    assert (
        proposals(table(), layout(overlap("user_id", 0.9, files=3)), metadata(), ["user_id"]) == []
    )


def test_compaction_comes_before_sorting():
    found = layout(overlap("user_id", 0.9))
    assert (
        proposals(
            table([partition("a", [MB] * 50)]), found, metadata(sort_by=["user_id"]), ["user_id"]
        )
        == []
    )
    assert (
        len(
            proposals(
                table([partition("a", [TARGET] * 50)]),
                found,
                metadata(sort_by=["user_id"]),
                ["user_id"],
            )
        )
        == 1
    )


def test_a_declared_sort_order_that_files_do_not_keep():
    (found,) = recommendations(
        table(), layout(overlap("user_id", 0.4)), metadata(sort_by=["user_id"]), ["user_id"]
    )
    assert found.proposed == "user_id, and a sorted rewrite of the table"
    assert found.evidence["files around a value"] == pytest.approx(8.6)
    assert proposals(table(), layout(overlap("user_id", 0.05)), metadata(sort_by=["user_id"])) == []


@pytest.mark.parametrize(
    ("size", "count", "expected"),
    [
        (MB, 40, [("partition grain", "day(event_ts)", "month(event_ts)")]),
        (MB, 20, []),
        (TARGET, 20, []),
        (200 * TARGET, 20, [("partition grain", "day(event_ts)", "hour(event_ts)")]),
    ],
)
def test_partition_grain(size, count, expected):
    assert proposals(days(size, count), layout(), metadata(["day(event_ts)"])) == expected


def test_buckets_are_reduced_before_days_are_merged():
    spec = metadata(["day(event_ts)", "bucket(16, user_id)"])
    assert proposals(days(TARGET // 8, 3, 16), layout(), spec) == [
        ("bucket count", "bucket(16, user_id)", "bucket(2, user_id)")
    ]
    assert proposals(days(TARGET // 64, 3, 16), layout(), spec) == [
        ("bucket count", "bucket(16, user_id)", "no buckets")
    ]
    assert proposals(days(TARGET, 3, 16), layout(), spec) == []
    more = proposals(days(400 * TARGET, 3, 16), layout(), spec)
    assert ("bucket count", "bucket(16, user_id)", "bucket(64, user_id)") in more


def test_a_hot_bucket_is_found_though_days_differ():
    spec = metadata(["bucket(4, user_id)"])
    even = [partition(f"user_id_bucket={bucket}", [TARGET] * 5) for bucket in range(4)]
    assert proposals(table(even), layout(), spec) == []
    hot = [
        partition(f"user_id_bucket={bucket}", [TARGET] * (60 if bucket == 0 else 1))
        for bucket in range(4)
    ]
    (found,) = recommendations(table(hot), layout(), spec)
    assert found.proposed == "buckets of another column than user_id, or none"
    assert found.evidence["largest bucket / mean"] == pytest.approx(60 / 63 * 4)


def test_small_identity_partitions_become_buckets():
    health = table([partition(f"user_id={number}", [MB]) for number in range(1000)])
    assert proposals(health, layout(), metadata(["user_id"])) == [
        ("partition grain", "user_id", "bucket(8, user_id)")
    ]


@pytest.mark.parametrize(
    ("groups", "files", "size", "proposed"),
    [
        (100, 10, 100 * 4 * MB, 1 << 30),
        (100, 10, 100 * 100 * MB, None),
        (10, 10, 10 * MB, None),
        (10, 10, 10 * 600 * MB, 32 * MB),
    ],
)
def test_row_groups(groups, files, size, proposed):
    found = proposals(table(), layout(groups=groups, files=files, size=size), metadata())
    name = "write.parquet.row-group-size-bytes"
    assert found == (
        []
        if proposed is None
        else [("row-group size", f"{name} = {128 * MB}", f"{name} = {proposed}")]
    )
