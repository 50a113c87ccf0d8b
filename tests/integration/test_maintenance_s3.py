"""Maintenance with a SQL catalog and an S3-compatible store, on loopback."""

from __future__ import annotations

import uuid

import lakehouse.lake
from lakehouse.maintenance.compaction.compaction import compact
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.maintenance.health.table_health import health
from lakehouse.maintenance.manifest_rewrite import rewrite_manifests
from lakehouse.maintenance.orphan_removal import OrphanOptions, remove_orphan_files
from lakehouse.maintenance.retention.snapshot_expiry import ExpiryOptions, expire_snapshots
from tests.integration.maintenance_support import at, contents, events, rows
from tests.table_census import take_census


def test_every_action_on_an_object_store(s3_properties, tmp_path):
    lake = lakehouse.lake.load_catalog(
        f"sqlite:///{tmp_path}/catalog.db",
        warehouse=f"s3://lake/{uuid.uuid4().hex}",
        **s3_properties,
    )
    table = events(lake)
    for number in range(6):
        table.append(rows([number, number + 10], region=f"r{number % 2}"))
    table.delete("id = 3")
    expected = contents(table)
    assert health(table.catalog, table.identifier).data_files == 6

    assert (
        compact(table.catalog, table.identifier, CompactionOptions(min_input_files=2)).added_files
        == 2
    )
    rewrite_manifests(table.catalog, table.identifier)
    expired = expire_snapshots(
        table.catalog, table.identifier, ExpiryOptions(older_than_ms=1 << 62)
    )
    assert expired.deleted_files["data"] == 7
    assert contents(table) == expected
    found = take_census(table.catalog, table.identifier)
    assert (found.missing, found.unreachable) == (frozenset(), frozenset())

    lost = f"{table.location}/data/lost.parquet"
    table.storage.write(lost, b"litter")
    removed = remove_orphan_files(table.catalog, table.identifier, environment=at(days=10))
    assert removed.moved_files >= 1
    assert not table.storage.exists(lost)
    assert table.storage.read(f"{removed.trash_location}/data/lost.parquet") == b"litter"
    purge = OrphanOptions(purge_trash_older_than_ms=1 << 62)
    assert (
        remove_orphan_files(
            table.catalog, table.identifier, purge, environment=at(days=20)
        ).purged_files
        == removed.moved_files
    )
    assert contents(table) == expected
    assert take_census(table.catalog, table.identifier).missing == frozenset()
