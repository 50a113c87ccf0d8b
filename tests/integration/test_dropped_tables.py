"""I21: a name taken again never shares files with what had it before.

A table dropped without purge comes back whole.
"""

from __future__ import annotations

import itertools
import os
import time
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.maintenance.orphan_removal import OrphanOptions
from lakehouse.maintenance.retention.snapshot_expiry import ExpiryOptions, expire_snapshots
from lakehouse.storage.location import local_path
from tests.integration.maintenance_support import at
from tests.table_census import take_census

SCHEMA = pa.schema({"id": pa.int64()})
SHORT_LOG = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "1",
}


@pytest.fixture(params=["folder", "memory", "sqlite"])
def lake(request, tmp_path):
    warehouse = f"{tmp_path}/warehouse"
    if request.param == "sqlite":
        opened = lh.load_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=warehouse)
        yield opened
        opened.catalog.close()
    else:
        memory = f"memory://{uuid.uuid4().hex}/warehouse"
        yield lh.load_catalog(memory if request.param == "memory" else warehouse)


def rows(*ids):
    return pa.table({"id": ids}, schema=SCHEMA)


def ids(table):
    return sorted(table.refresh().scan().to_arrow()["id"].to_pylist())


def table_of(lake, *numbers, name="db.t", **properties):
    """One append a number, so that there is a history to expire."""
    table = lake.create_table(name, SCHEMA, properties=properties)
    for number in numbers:
        table.append(rows(number))
    return table


def maintain(table):
    """Everything that deletes, with clocks far ahead so that no age protects a file."""
    environment = at(days=100)
    now = environment.now_ms()
    expire_snapshots(
        table.catalog,
        table.identifier,
        ExpiryOptions(older_than_ms=now, remove_old_metadata=True),
        environment=environment,
    )
    lh.maintenance.remove_orphan_files(
        table.catalog, table.identifier, OrphanOptions(trash=False), environment=environment
    )


@pytest.mark.parametrize("log", [{}, SHORT_LOG])
def test_a_dropped_table_survives_all_that_is_done_to_its_successor(lake, log):
    old = table_of(lake, 1, 2, 3, **log)
    last = old.metadata_location
    held = set(take_census(old.catalog, old.identifier).reachable)
    lake.drop_table("db.t")
    new = table_of(lake, 9, 8, 7, **log)
    assert new.location != old.location
    maintain(new)
    assert ids(new) == [7, 8, 9]
    back = lake.register_table("db.back", last)
    assert ids(back) == [1, 2, 3]
    assert take_census(back.catalog, back.identifier).missing == frozenset()
    storage = lake.catalog.storage(last)
    assert {
        one for one in held if one.endswith((".avro", ".parquet")) and not storage.exists(one)
    } <= {one for one in held if one.endswith(".columnar.parquet")}


@pytest.mark.parametrize("log", [{}, SHORT_LOG])
def test_both_live_on_side_by_side(lake, log):
    """The dropped table under another name, its successor under the old one.

    Neither's maintenance touches the other.
    """
    old = table_of(lake, 1, 2, 3, **log)
    lake.drop_table("db.t")
    new = table_of(lake, 9, **log)
    back = lake.register_table("db.back", old.metadata_location)
    for number in range(4):
        for table in (new, back):
            table.append(rows(100 + number))
            maintain(table)
    assert ids(back) == [1, 2, 3, 100, 101, 102, 103]
    assert ids(new) == [9, 100, 101, 102, 103]
    fresh = lh.load_catalog(lake.catalog.uri) if lake.catalog.uri == lake.warehouse else lake
    assert ids(fresh.load_table("db.t")) == ids(new)
    lake.drop_table("db.t", purge=True)
    assert ids(back) == [1, 2, 3, 100, 101, 102, 103]
    assert not lake.table_exists("db.t")
    lake.drop_table("db.back", purge=True)


@pytest.mark.parametrize("purged", list(itertools.product([False, True], repeat=3)))
def test_a_name_taken_four_times(lake, purged):
    locations, kept = [], {}
    for number, purge in enumerate((*purged, None)):
        table = table_of(lake, number, number + 10, **SHORT_LOG)
        maintain(table)
        locations.append((table.location, purge))
        assert ids(table) == [number, number + 10]
        if purge is False:
            kept[number] = table.refresh().metadata_location
        if purge is not None:
            lake.drop_table("db.t", purge=purge)
    left = [location for location, purge in locations if purge is not True]
    assert len(set(left)) == len(left)
    for number, location in kept.items():
        assert ids(lake.register_table(f"db.back{number}", location)) == [number, number + 10]


def test_a_reader_with_an_old_hint_finds_the_successor(tmp_path):
    """Versions between the drop and the successor's current one were cleaned up.

    Probing from the old hint ends at the drop.
    """
    lake = lh.load_catalog(str(tmp_path))
    table_of(lake, 1, 2)
    hint = tmp_path / "db" / "t" / "metadata" / "version-hint.text"
    old = hint.read_text()
    lake.drop_table("db.t")
    new = table_of(lake, *range(6), **SHORT_LOG)
    assert not (hint.parent / "v5.metadata.json").exists()
    for number in (old, "4", "1", "999", ""):
        hint.write_text(number)
        reader = lh.load_catalog(str(tmp_path))
        assert ids(reader.load_table("db.t")) == ids(new) == list(range(6))
        assert reader.list_tables() == ["db.t"]
        reader.load_table("db.t").append(rows(7))
        new.refresh().delete("id = 7")


def test_a_purge_leaves_nothing_and_the_folder_is_used_again(lake):
    table = table_of(lake, 1)
    lake.drop_table("db.t", purge=True)
    left = [info.location for info in table.storage.list(table.location)]
    assert [one for one in left if not one.endswith((".metadata.json", "version-hint.text"))] == []
    again = table_of(lake, 2)
    assert ids(again) == [2]
    if lake.catalog.uri == lake.warehouse:
        assert again.location == table.location


def test_a_location_that_is_not_empty_is_refused(lake):
    table = table_of(lake, 1)
    lake.drop_table("db.t")
    with pytest.raises(lh.InvalidLocationError):
        lake.create_table("db.t", SCHEMA, location=table.location)
    assert ids(lake.register_table("db.t", table.metadata_location)) == [1]


def test_files_that_are_no_tables_are_left_alone(tmp_path):
    """Somebody kept notes where the table's folder comes to be."""
    notes = tmp_path / "db" / "t" / "notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("precious")
    long_ago = time.time() - 400 * 86400
    os.utime(notes, (long_ago, long_ago))
    lake = lh.load_catalog(str(tmp_path))
    table = table_of(lake, 1, 2)
    maintain(table)
    lake.drop_table("db.t", purge=True)
    assert notes.read_text() == "precious"
    assert not list(Path(local_path(table.location)).rglob("*.parquet"))
