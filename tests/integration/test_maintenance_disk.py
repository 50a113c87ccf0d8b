"""Bytes on disk by what needs them, against the census."""

from __future__ import annotations

import pytest

from lakehouse.errors import StorageError
from lakehouse.maintenance.compaction.compaction import compact
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.maintenance.health.disk_use import disk_use
from lakehouse.maintenance.health.table_health import health
from lakehouse.maintenance.retention.snapshot_expiry import ExpiryOptions, expire_snapshots
from tests.integration.maintenance_support import FailingCatalog, at, events, lake_in_memory, rows
from tests.integration.test_maintenance_compaction import files_of, small_files
from tests.table_census import take_census

NOW = at().now_ms()
LATER = NOW + 3_600_000


def used(table, before_ms=LATER):
    return disk_use(table.catalog, table.identifier, orphans_before_ms=before_ms)


def test_everything_present_is_counted_once():
    table = small_files(lake_in_memory())
    compact(table.catalog, table.identifier, CompactionOptions(min_input_files=2))
    table.storage.write(f"{table.location}/data/lost.parquet", b"x" * 1000)
    census = take_census(table.catalog, table.identifier)
    found = used(table)
    assert found.bytes == sum(census.present.values())
    assert found.live_files + found.historical_files + found.unreferenced_files == len(
        census.present
    )
    assert (found.unreferenced_files, found.unreferenced_bytes, found.orphan_bytes) == (
        1,
        1000,
        1000,
    )
    assert found.historical_bytes > 0
    assert used(table, before_ms=0).orphan_bytes == 0


def test_expiry_turns_history_into_nothing():
    table = small_files(lake_in_memory())
    data = sum(file.file_size_in_bytes for file in files_of(table))
    compact(table.catalog, table.identifier, CompactionOptions(min_input_files=2))
    before = used(table)
    assert before.historical_bytes >= data
    expire_snapshots(table.catalog, table.identifier, ExpiryOptions(older_than_ms=1 << 62))
    after = used(table)
    # expiry writes a metadata file of its own
    assert after.unreferenced_files == 0
    assert after.historical_bytes < before.historical_bytes - data
    assert after.live_files == before.live_files


def test_a_branch_is_history_to_main():
    table = small_files(lake_in_memory(), count=2)
    table.create_branch("audit")
    before = used(table)
    table.transaction(branch="audit").delete_files([files_of(table)[0]]).commit()
    assert used(table).unreferenced_files == 0
    assert used(table).historical_files > before.historical_files


def test_tables_inside_its_folder_are_not_its_own():
    table = small_files(lake_in_memory(), count=2)
    before = used(table)
    table.storage.write(f"{table.location}/inner/metadata/v1.metadata.json", b"{}")
    table.storage.write(f"{table.location}/inner/data/x.parquet", b"x" * 1000)
    assert used(table) == before
    table.storage.write(f"{table.location}/data/x.parquet", b"x" * 1000)
    assert used(table).unreferenced_bytes == 1000


def test_data_elsewhere_is_found():
    lake = lake_in_memory()
    probe = events(lake, "raw.probe")
    table = events(
        lake, properties={"write.data.path": probe.location.replace("probe", "elsewhere")}
    )
    table.append(rows(range(10)))
    found = used(table)
    assert found.live_bytes > sum(file.file_size_in_bytes for file in files_of(table))
    assert found.unreferenced_files == 0


def test_an_unreadable_manifest_is_an_error_not_an_orphan():
    table = small_files(lake_in_memory(), count=2)
    manifest = table.inspect.manifests()["path"][0].as_py().rsplit("/", 1)[-1]
    with pytest.raises(StorageError, match="EIO"):
        disk_use(
            FailingCatalog(table.catalog, [manifest], StorageError("EIO")),
            table.identifier,
            orphans_before_ms=LATER,
        )


def test_health_shows_it_and_measures_size_against_the_target():
    table = small_files(lake_in_memory(), properties={"write.target-file-size-bytes": "100000000"})
    found = health(table.catalog, table.identifier, list_files=True)
    assert found.disk == used(table, before_ms=0)
    assert found.entropy == pytest.approx(1.0, abs=1e-3)
    assert found.removable_files == 6
    labels = dict(found.facts())
    assert labels["unreferenced on disk"].strip().startswith("0 B")
    table.set_properties({"write.target-file-size-bytes": "100"})
    assert health(table.catalog, table.identifier).entropy == 0.0
    table.set_properties(
        {
            "write.target-file-size-bytes": "100000000",
            "lakehouse.maintenance.small-file-bytes": "10",
        }
    )
    assert health(table.catalog, table.identifier).small_files == 0


def test_health_knows_what_is_sorted_and_what_is_expirable():
    table = events(lake_in_memory(), partition_by=(), sort_by=["id"])
    for start in (0, 10, 20):
        table.append(rows(range(start, start + 10)))
    assert health(table.catalog, table.identifier).sort_overlap == 1.0
    table.append(rows([0, 29]))
    assert health(table.catalog, table.identifier).sort_overlap == pytest.approx(1 + 6 / 4)
    assert health(table.catalog, table.identifier).expirable_snapshots == 0
    assert health(table.catalog, table.identifier, environment=at(days=6)).expirable_snapshots == 3
