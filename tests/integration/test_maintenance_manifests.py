from __future__ import annotations

import pyarrow as pa

from lakehouse.maintenance.compaction.compaction import compact
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.maintenance.health.table_health import health
from lakehouse.maintenance.manifest_rewrite import (
    ManifestRewriteOptions,
    execute_manifest_rewrite,
    manifest_overlap,
    plan_manifest_rewrite,
    rewrite_manifests,
)
from lakehouse.spec.manifests.manifest_list import FieldSummary, ManifestFile
from tests.integration.maintenance_support import at, contents, events, lake_in_memory, rows
from tests.table_census import take_census


def many_manifests(count=6):
    table = events(lake_in_memory(), properties={"commit.manifest-merge.enabled": "false"})
    for number in range(count):
        table.append(rows([number], region=f"r{number % 3}"))
    return table


def manifest(low, high, content=0, spec_id=0):
    summary = (
        None
        if low is None
        else (FieldSummary(False, None, low.to_bytes(4, "little"), high.to_bytes(4, "little")),)
    )
    return ManifestFile(
        manifest_path="m",
        manifest_length=1,
        partition_spec_id=spec_id,
        content=content,
        partitions=summary,
    )


def test_small_manifests_become_one_and_rows_stay():
    table = many_manifests()
    expected = contents(table)
    result = rewrite_manifests(table.catalog, table.identifier)
    assert (result.replaced_manifests, result.added_manifests, result.kept_manifests) == (6, 1, 0)
    assert table.refresh().inspect.manifests().num_rows == 1
    assert contents(table) == expected
    assert take_census(table.catalog, table.identifier).missing == frozenset()


def test_a_plan_changes_nothing_and_a_second_run_finds_nothing():
    table = many_manifests()
    before = take_census(table.catalog, table.identifier)
    plan = plan_manifest_rewrite(table.catalog, table.identifier)
    assert plan.reasons
    assert plan.expected_manifests == 1
    assert take_census(table.catalog, table.identifier) == before
    rewrite_manifests(table.catalog, table.identifier)
    again = rewrite_manifests(table.catalog, table.identifier)
    assert (again.snapshot_id, again.replaced_manifests, again.kept_manifests) == (None, 0, 1)
    forced = rewrite_manifests(table.catalog, table.identifier, ManifestRewriteOptions(force=True))
    assert forced.kept_manifests + forced.added_manifests == 1


def test_an_empty_table_has_no_manifests_to_rewrite():
    table = events(lake_in_memory())
    assert (
        rewrite_manifests(
            table.catalog, table.identifier, ManifestRewriteOptions(force=True)
        ).snapshot_id
        is None
    )


def test_an_append_beside_it_is_kept():
    table = many_manifests()
    plan = plan_manifest_rewrite(table.catalog, table.identifier)
    table.append(rows([99]))
    expected = contents(table)
    execute_manifest_rewrite(table.catalog, plan)
    assert contents(table) == expected


def test_overlap_counts_manifests_around_a_value():
    assert manifest_overlap([]) == 0
    assert manifest_overlap([manifest(1, 2), manifest(3, 4), manifest(5, 6)]) == 1
    assert manifest_overlap([manifest(1, 9), manifest(1, 9), manifest(1, 9)]) == 3
    assert manifest_overlap([manifest(1, 2), manifest(256, 257)]) == 1
    assert (
        manifest_overlap([manifest(1, 2), manifest(1, 2, content=1), manifest(1, 2, spec_id=1)])
        == 1
    )
    assert manifest_overlap([manifest(None, None), manifest(1, 2)]) == 2


def test_health_counts_what_is_there():
    table = events(lake_in_memory(), properties={"write.target-file-size-bytes": "1000000"})
    for number in range(6):
        table.append(rows([number, number + 10], region="a" if number < 4 else "b"))
    found = health(table.catalog, table.identifier, environment=at(days=2))
    files = table.inspect.files()
    assert (found.data_files, found.small_files, found.expected_files, found.records) == (
        6,
        6,
        2,
        12,
    )
    assert found.bytes == found.small_bytes == sum(files["file_size_in_bytes"].to_pylist())
    assert (found.snapshots, found.refs, found.delete_files, found.delete_ratio) == (6, 1, 0, 0.0)
    assert found.manifests == table.inspect.manifests().num_rows
    assert found.metadata_bytes == table.storage.size(table.metadata_location)
    assert [
        (one.partition, one.data_files, one.expected_files, one.removable_files)
        for one in found.partitions
    ] == [
        ("region=a", 4, 1, 3),
        ("region=b", 2, 1, 1),
    ]
    assert found.partitions[1].last_updated_ms == table.current_snapshot().timestamp_ms
    assert found.partitions[1].waiting_since_ms == table.snapshots()[4].timestamp_ms
    assert found.newest_snapshot_age_ms > 24 * 3600 * 1000
    assert found.skew > 1


def test_compaction_is_no_news_of_a_partition():
    table = events(lake_in_memory())
    for number in range(3):
        table.append(rows([number], region="a"))
    written = table.current_snapshot().timestamp_ms
    compact(
        table.catalog,
        table.identifier,
        CompactionOptions(min_input_files=2),
        environment=at(days=1),
    )
    (only,) = health(table.catalog, table.identifier).partitions
    assert (only.data_files, only.last_updated_ms, only.waiting_since_ms) == (1, written, None)
    table.refresh().append(rows([9], region="a"))
    (only,) = health(table.catalog, table.identifier).partitions
    assert only.last_updated_ms == only.waiting_since_ms == table.current_snapshot().timestamp_ms


def test_health_of_an_empty_and_of_an_unpartitioned_table():
    lake = lake_in_memory()
    empty = health(lake.catalog, events(lake, "raw.empty").identifier)
    assert (
        empty.snapshot_id,
        empty.data_files,
        empty.partitions,
        empty.oldest_snapshot_age_ms,
    ) == (None, 0, (), None)
    flat = events(lake, "raw.flat", partition_by=())
    flat.append(rows(range(5)))
    (only,) = health(lake.catalog, flat.identifier).partitions
    assert (only.partition, only.data_files, only.records) == ("", 1, 5)


def test_health_groups_null_partitions_and_several_specs():
    table = events(lake_in_memory())
    table.append(
        pa.table(
            {"id": [1, 2], "region": pa.array([None, None], pa.string()), "amount": [1.0, 2.0]}
        )
    )
    table.append(pa.table({"id": [3], "region": pa.array([None], pa.string()), "amount": [1.0]}))
    found = health(table.catalog, table.identifier)
    assert [(one.partition, one.data_files) for one in found.partitions] == [("region=null", 2)]
