"""A copied warehouse that is made one of its own, with the original gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import lakehouse as lh
from lakehouse.errors import InvalidLocationError, NoSuchFileError
from lakehouse.maintenance.reachability.reachable_files import StorageWalker
from lakehouse.maintenance.relocation import relocate

ROWS = pa.table({"id": range(60), "day": [n % 3 for n in range(60)], "name": ["a", "b"] * 30})
MERGE_ON_READ = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}


def history(lake: lh.Lakehouse, version: int) -> lh.Table:
    """Appends, deletes by position or vector, an update, a tag, a column, and a replaced day."""
    table = lake.create_table(
        f"raw.v{version}",
        ROWS.schema,
        partition_by=["day"],
        properties={
            **MERGE_ON_READ,
            "format-version": str(version),
            "comment": "America/New_York",  # a slash, and no location
        },
    )
    table.append(ROWS)
    table.delete(where="id < 5")
    table.create_tag("early")
    table.update({"name": "'c'"}, where="id > 50")
    with table.update_schema() as change:
        change.add_column("more", pa.string())
    table.delete(where="id = 30")
    table.append(pa.table({"id": [100], "day": [7], "name": ["z"], "more": ["x"]}))
    return table


def states(table: lh.Table) -> dict[int, list[dict[str, object]]]:
    """The rows of every snapshot."""
    return {
        one.snapshot_id: sorted(
            table.scan(snapshot_id=one.snapshot_id).to_arrow().to_pylist(), key=lambda r: r["id"]
        )
        for one in table.snapshots()
    }


@pytest.fixture
def moved(tmp_path: Path) -> tuple[Path, dict[str, dict[int, list[dict[str, object]]]]]:
    """A copy of a warehouse whose original is gone, and what that held."""
    lake = lh.load_catalog(str(tmp_path / "old"))
    held = {table.name: states(table) for table in (history(lake, 2), history(lake, 3))}
    lake.create_table("raw.empty", ROWS.schema)
    lake.create_view("raw.seen", "SELECT id FROM raw.v2", schema=ROWS.schema)
    shutil.copytree(tmp_path / "old", tmp_path / "new", symlinks=True)
    (tmp_path / "old").rename(tmp_path / "gone")
    return tmp_path / "new", held


def test_a_copy_says_that_it_is_one_and_then_is_a_warehouse_of_its_own(moved) -> None:
    """The judges: the rows of each snapshot before the copy, and pyiceberg."""
    folder, held = moved
    lake = lh.load_catalog(str(folder))
    with pytest.raises(InvalidLocationError, match=r"it is a copy\. `lakehouse relocate`"):
        lake.load_table("raw.v2")
    assert relocate(lake.catalog, dry_run=True).moved.keys() == {
        "raw.v2", "raw.v3", "raw.empty", "raw.seen",
    }  # fmt: skip
    with pytest.raises(InvalidLocationError):
        lake.load_table("raw.v2")
    done = relocate(lake.catalog)
    assert len(done.moved) == 4
    assert relocate(lake.catalog).kept == tuple(done.moved)
    assert lake.load_view("raw.seen").metadata.location.endswith("/new/raw/seen")
    for name, before in held.items():
        table = lake.load_table(name)
        assert states(table) == before
        walker = StorageWalker(lake.catalog.storage(table.location), table.metadata)
        for snapshot in table.snapshots():
            for manifest in walker.manifests(snapshot):
                assert "/new/raw/" in manifest.manifest_path
                assert all("/new/raw/" in one.location for one in walker.live_files(manifest))
        foreign = StaticTable.from_metadata(table.metadata_location)
        for snapshot_id, rows in before.items():
            theirs = foreign.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
            assert sorted(theirs, key=lambda row: row["id"]) == rows
        assert (
            str(folder.parent / "old").encode()
            not in Path(table.metadata_location.removeprefix("file://")).read_bytes()
        )
        # it is written like any other
        last = before[table.current_snapshot().snapshot_id]
        table.delete(where="id = 7")
        table.compact()
        left = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
        assert left == [row for row in last if row["id"] != 7]


def test_what_was_not_copied_is_named_and_nothing_changes(moved) -> None:
    folder, held = moved
    lake = lh.load_catalog(str(folder))
    lost = sorted((folder / "raw/v3").rglob("*.parquet"))[0]
    content = lost.read_bytes()
    for damage in (lost.unlink, lambda: lost.write_bytes(content[:-1])):
        damage()
        with pytest.raises(NoSuchFileError, match=lost.name):
            relocate(lake.catalog)
        with pytest.raises(InvalidLocationError):
            lake.load_table("raw.v3")
    lost.write_bytes(content)
    relocate(lake.catalog)
    assert states(lake.load_table("raw.v3")) == held["raw.v3"]


def test_a_warehouse_that_is_mounted_twice_is_no_copy(tmp_path: Path) -> None:
    lake = lh.load_catalog(str(tmp_path / "old"))
    table = history(lake, 2)
    (tmp_path / "link").symlink_to(tmp_path / "old")
    other = lh.load_catalog(str(tmp_path / "link")).load_table("raw.v2")
    assert states(other) == states(table)
