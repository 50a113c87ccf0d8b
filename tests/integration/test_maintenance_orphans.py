from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest

from lakehouse.errors import MaintenanceRefusedError, StorageError
from lakehouse.maintenance.orphan_removal import (
    OrphanOptions,
    execute_orphan_removal,
    plan_orphan_removal,
    remove_orphan_files,
)
from lakehouse.maintenance.reachability.neighbours import KnownTables
from lakehouse.maintenance.retention.snapshot_expiry import ExpiryOptions, expire_snapshots
from lakehouse.spec.metadata.table_updates import SetStatistics
from tests.integration.maintenance_support import (
    DAY,
    FailingCatalog,
    at,
    contents,
    events,
    lake_in_memory,
    rows,
)
from tests.table_census import take_census

LATER = at(days=10)
PURGE = at(days=30)


def table_with_rows(lake, name="raw.events"):
    table = events(lake, name)
    for number in range(3):
        table.append(rows([number]))
    return table


def litter(table, *names):
    locations = [f"{table.location}/{name}" for name in names]
    for location in locations:
        table.storage.write(location, b"litter")
    return locations


def plan(table, **options):
    return plan_orphan_removal(
        table.catalog, table.identifier, OrphanOptions(**options), environment=LATER
    )


def append_as_others_do(table, file, monkeypatch):
    """A commit by an engine that does not ask where files lie."""
    monkeypatch.setattr("lakehouse.transaction.transaction.check_files", lambda *_arguments: None)
    table.transaction().append([file]).commit()
    monkeypatch.undo()


def orphans(table, **options):
    return [info.location for info in plan(table, **options).orphans]


def test_a_clean_table_has_no_orphans():
    table = table_with_rows(lake_in_memory())
    assert orphans(table) == []


def test_what_nothing_reaches_goes_to_the_trash_and_later_for_good():
    table = table_with_rows(lake_in_memory())
    expected = contents(table)
    (lost,) = litter(table, "data/region=eu/lost.parquet")
    result = remove_orphan_files(table.catalog, table.identifier, environment=LATER)
    assert (result.moved_files, result.moved_bytes, result.deleted_files) == (1, 6, 0)
    assert not table.storage.exists(lost)
    assert table.storage.read(f"{result.trash_location}/data/region=eu/lost.parquet") == b"litter"
    assert contents(table) == expected
    again = remove_orphan_files(table.catalog, table.identifier, environment=LATER)
    assert (again.moved_files, again.purged_files) == (0, 0)
    purged = remove_orphan_files(table.catalog, table.identifier, environment=PURGE)
    assert (purged.purged_files, purged.purged_bytes) == (1, 6)
    assert not any("_trash" in key for key in take_census(table.catalog, table.identifier).present)


def test_without_trash_it_is_deleted_at_once():
    table = table_with_rows(lake_in_memory())
    (lost,) = litter(table, "data/lost.parquet")
    result = remove_orphan_files(
        table.catalog, table.identifier, OrphanOptions(trash=False), environment=LATER
    )
    assert (result.deleted_files, result.trash_location) == (1, None)
    assert not table.storage.exists(lost)


def test_young_files_stay():
    """I8: a file that a paused writer may be about to commit."""
    table = table_with_rows(lake_in_memory())
    litter(table, "data/in-flight.parquet")
    found = plan_orphan_removal(table.catalog, table.identifier, environment=at(days=2))
    assert found.orphans == ()
    assert found.protected["too young"] == 1


@pytest.mark.parametrize("hours", [0, 1, 23])
def test_less_than_a_day_is_refused_without_force(hours):
    table = table_with_rows(lake_in_memory())
    cut = LATER.now_ms() - hours * 3600 * 1000
    with pytest.raises(MaintenanceRefusedError, match="24 hours"):
        plan(table, older_than_ms=cut)
    (lost,) = litter(table, "data/lost.parquet")
    assert orphans(table, older_than_ms=cut, force=True) == [lost]


def test_every_kind_of_reachable_file_is_safe_also_of_snapshots_without_a_ref():
    table = table_with_rows(lake_in_memory())
    table.create_branch("audit")
    table.append(rows([50]), branch="audit")
    table.rollback_to(table.snapshots()[0].snapshot_id)
    path = f"{table.location}/metadata/x.stats"
    table.storage.write(path, b"puffin")
    record = {
        "snapshot-id": table.metadata.current_snapshot_id,
        "statistics-path": path,
        "file-size-in-bytes": 6,
        "file-footer-size-in-bytes": 3,
        "blob-metadata": [],
    }
    table.transaction().update([SetStatistics(record)]).commit()
    before = take_census(table.catalog, table.identifier)
    result = remove_orphan_files(
        table.catalog, table.identifier, OrphanOptions(trash=False), environment=LATER
    )
    assert result.deleted_files == 0
    assert take_census(table.catalog, table.identifier) == before


def test_twins_of_live_manifests_are_safe_and_lost_ones_are_not():
    table = events(lake_in_memory())
    regions = [f"r{number}" for number in range(40)]
    table.append(pa.table({"id": range(40), "region": regions, "amount": [0.0] * 40}))
    (columnar,) = [
        key
        for key in take_census(table.catalog, table.identifier).present
        if key.endswith(".columnar.parquet")
    ]
    (lost,) = litter(table, "metadata/gone-m0.columnar.parquet")
    assert orphans(table) == [lost]
    table.delete("id < 30")
    expire_snapshots(table.catalog, table.identifier, ExpiryOptions(older_than_ms=1 << 62))
    assert not table.storage.exists(columnar)


def test_a_table_inside_the_folder_is_protected():
    lake = lake_in_memory()
    table = table_with_rows(lake)
    inner = lake.create_table("raw.inner", table.schema(), location=None)
    foreign = f"{table.location}/nested"
    for info in list(inner.storage.list(inner.location)):
        target = foreign + info.location.removeprefix(inner.location)
        inner.storage.write(target, inner.storage.read(info.location))
    table.storage.write(f"{foreign}/data/theirs.parquet", b"theirs")
    found = plan(table)
    assert found.orphans == ()
    assert found.protected["belongs to another table"] >= 2


def test_files_that_another_table_reaches_in_our_folder_are_protected(monkeypatch):
    lake = lake_in_memory()
    table = table_with_rows(lake)
    (theirs, lost) = litter(table, "data/theirs.parquet", "data/lost.parquet")
    other = lake.create_table("raw.other", table.schema(), partition_by=["region"])
    file = next(iter(table.scan().plan().files))
    append_as_others_do(other, dataclasses.replace(file, file_path=theirs), monkeypatch)
    found = plan(table)
    assert [info.location for info in found.orphans] == [lost]
    assert found.protected["reached by another table"] == 1


def test_what_other_tables_name_since_they_were_loaded_is_safe_and_the_rest_is_not_read_again(
    monkeypatch,
):
    lake = lake_in_memory()
    table, quiet = table_with_rows(lake), table_with_rows(lake, "raw.quiet")
    old, new, late, lost = litter(table, *(f"data/{name}.parquet" for name in "abcd"))
    other = lake.create_table("raw.other", table.schema(), partition_by=["region"])
    file = next(iter(table.scan().plan().files))
    known = KnownTables.of(table.catalog)

    def name(at, path):
        append_as_others_do(at, dataclasses.replace(file, file_path=path), monkeypatch)

    name(other, old)
    name(lake.create_table("raw.new", table.schema(), partition_by=["region"]), new)
    found = plan_orphan_removal(
        table.catalog, table.identifier, OrphanOptions(), environment=LATER, tables=known
    )
    assert [info.location for info in found.orphans] == [late, lost]
    name(lake.create_table("raw.late", table.schema(), partition_by=["region"]), late)
    result = execute_orphan_removal(table.catalog, found, environment=LATER)
    assert (result.moved_files, result.spared) == (1, 1)
    assert [table.storage.exists(path) for path in (old, new, late, lost)] == [True] * 3 + [False]
    same = {one.identifier: one for one in known.versions}
    again = {one.identifier: one for one in found.tables.versions}
    assert again[quiet.identifier] is same[quiet.identifier]
    assert again[other.identifier] is not same[other.identifier]


def test_a_file_reached_by_another_spelling_of_its_location_is_safe(monkeypatch):
    table = table_with_rows(lake_in_memory())
    same, lost = litter(table, "data/same.parquet", "data/lost.parquet")
    file = next(iter(table.scan().plan().files))
    spelling = same.replace("memory://", "viewfs://elsewhere/").replace(
        "viewfs://elsewhere/" + same.split("/")[2], "viewfs://elsewhere"
    )
    append_as_others_do(table, dataclasses.replace(file, file_path=spelling), monkeypatch)
    found = plan(table)
    assert [info.location for info in found.orphans] == [lost]
    assert found.protected["reached under another scheme or authority"] == 1


def test_a_neighbour_whose_name_begins_like_ours_is_not_touched():
    lake = lake_in_memory()
    table = table_with_rows(lake)
    neighbour = table_with_rows(lake, "raw.events2")
    litter(neighbour, "data/lost.parquet")
    remove_orphan_files(
        table.catalog, table.identifier, OrphanOptions(trash=False), environment=LATER
    )
    assert neighbour.storage.exists(f"{neighbour.location}/data/lost.parquet")


@pytest.mark.parametrize("broken", ["manifest list", "manifest"])
def test_any_read_error_aborts(broken):
    table = table_with_rows(lake_in_memory())
    (lost,) = litter(table, "data/lost.parquet")
    paths = (
        table.inspect.manifests()["path"].to_pylist()
        if broken == "manifest"
        else [table.current_snapshot().manifest_list]
    )
    failing = FailingCatalog(
        table.catalog, [path.rsplit("/", 1)[-1] for path in paths], StorageError("EIO")
    )
    with pytest.raises(StorageError, match="EIO"):
        remove_orphan_files(failing, table.identifier, environment=LATER)
    assert table.storage.exists(lost)


def test_what_was_committed_after_the_plan_is_spared():
    table = table_with_rows(lake_in_memory())
    slow = table.write_files(rows([70, 71]))
    found = plan(table)
    assert [info.location for info in found.orphans] == [file.file_path for file in slow]
    table.transaction().append(slow).commit()
    expected = contents(table)
    result = execute_orphan_removal(table.catalog, found, environment=LATER)
    assert (result.moved_files, result.spared) == (0, 1)
    assert contents(table) == expected


def test_what_was_committed_out_of_the_trash_comes_back():
    """A writer that slept for days commits files that were moved: the next run restores them."""
    table = table_with_rows(lake_in_memory())
    slow = table.write_files(rows([70, 71]))
    result = remove_orphan_files(table.catalog, table.identifier, environment=LATER)
    assert result.moved_files == 1
    table.transaction().append(slow).commit()
    assert take_census(table.catalog, table.identifier).missing
    repaired = remove_orphan_files(table.catalog, table.identifier, environment=PURGE)
    assert (repaired.restored_files, repaired.purged_files) == (1, 0)
    assert (70, "eu", 70.0) in contents(table)


def test_expired_without_removal_becomes_orphans():
    table = table_with_rows(lake_in_memory())
    expire_snapshots(
        table.catalog, table.identifier, ExpiryOptions(older_than_ms=1 << 62, remove_files=False)
    )
    unreachable = take_census(table.catalog, table.identifier).unreachable
    assert unreachable
    result = remove_orphan_files(
        table.catalog, table.identifier, OrphanOptions(trash=False), environment=LATER
    )
    assert result.deleted_files >= len(unreachable)
    assert take_census(table.catalog, table.identifier).unreachable == frozenset()
    assert contents(table)


def test_gc_disabled_refuses():
    table = table_with_rows(lake_in_memory())
    table.set_properties({"gc.enabled": "false"})
    with pytest.raises(MaintenanceRefusedError, match=r"gc\.enabled"):
        plan(table)


def test_the_plan_prints_what_and_why():
    table = table_with_rows(lake_in_memory())
    (lost,) = litter(table, "data/lost.parquet")
    (shown,) = plan(table).to_dict()["orphans"]
    assert shown["location"] == lost
    assert shown["bytes"] == 6
    assert shown["age_ms"] > 9 * DAY
    assert shown["why"]
