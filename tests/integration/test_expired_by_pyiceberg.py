"""What pyiceberg's expiry leaves, which takes the parent from a snapshot whose parent is gone.

No reader of ours takes such a snapshot for the first of its table. Held fixed: a SQL catalog that
both open. Varied: who reads, what the oldest snapshot that is left did.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import lakehouse as lh
from lakehouse.errors import NoSuchSnapshotError, ValidationConflictError
from lakehouse.orchestration.lineage.undo import plan
from lakehouse.scan.stream_plan import Position, StreamPlan
from lakehouse.spec.metadata.snapshot import RUN_ID
from lakehouse.table import Table

SCHEMA = pa.schema({"id": pa.int64()})


@dataclass
class World:
    folder: Path

    def __post_init__(self) -> None:
        warehouse = (self.folder / "warehouse").as_uri()
        self.lake = lh.load_catalog(self.uri, warehouse=warehouse)
        self.lake.create_table("raw.t", SCHEMA)

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.folder}/catalog.db"

    @property
    def table(self) -> Table:
        return self.lake.load_table("raw.t")

    def append(self, *ids: int, **how: object) -> None:
        self.table.append(pa.table({"id": ids}, schema=SCHEMA), **how)  # type: ignore[arg-type]

    def expire(self, keep: int = 1) -> None:
        """By pyiceberg: all but the newest snapshots of main, and what refs name."""
        metadata = self.table.metadata
        line = [one.snapshot_id for one in metadata.ancestors(metadata.current_snapshot_id)]
        kept = {*line[:keep], *(ref.snapshot_id for ref in metadata.refs.values())}
        gone = [one.snapshot_id for one in metadata.snapshots if one.snapshot_id not in kept]
        theirs = SqlCatalog("lakehouse", uri=self.uri).load_table("raw.t")
        theirs.maintenance.expire_snapshots().by_ids(gone).commit()
        oldest = list(self.table.metadata.ancestors(line[0]))[-1]
        assert oldest.snapshot_id == line[keep - 1]
        assert oldest.parent_snapshot_id is None


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


LAST: dict[str, Callable[[World], object]] = {
    "append": lambda world: world.append(3),
    "delete": lambda world: world.table.delete("id = 1"),
    "compaction": lambda world: world.table.compact(lh.CompactionOptions(rewrite_all=True)),
    "overwrite of all": lambda world: world.table.overwrite(pa.table({"id": [7]}, schema=SCHEMA)),
    "merge on read": lambda world: world.table.delete("id = 2"),
}


def with_history(world: World, last: str) -> None:
    if last == "merge on read":
        world.table.set_properties({"write.delete.mode": "merge-on-read"})
    world.append(1, 2)
    world.append(2, 4)
    LAST[last](world)


@pytest.mark.parametrize("last", LAST)
def test_a_snapshot_whose_parent_was_taken_is_not_the_first(world: World, last: str) -> None:
    world.append(1)
    assert world.table.current_snapshot().is_first
    with_history(world, last)
    made = world.table.current_snapshot()
    world.expire()
    left = world.table.current_snapshot()
    assert left.snapshot_id == made.snapshot_id
    assert not left.is_first


@pytest.mark.parametrize("last", LAST)
def test_a_stream_begins_with_all_rows_of_what_is_left(world: World, last: str) -> None:
    with_history(world, last)
    world.expire()
    table = world.table
    stream = StreamPlan("t", table.metadata, "main", table.storage, changes=True)
    units = list(stream.between(Position(), stream.head()))
    rows = sum(task.data_file.record_count for unit in units for task in unit.after)
    whole = list(table.scan().plan().tasks)
    assert rows == sum(task.data_file.record_count for task in whole)
    assert {task.data_file.file_path for unit in units for task in unit.after} == {
        task.data_file.file_path for task in whole
    }
    assert not any(unit.before for unit in units)


@pytest.mark.parametrize("last", ["append", "delete", "overwrite of all", "merge on read"])
def test_what_the_oldest_changed_is_not_known(world: World, last: str) -> None:
    with_history(world, last)
    world.expire()
    with pytest.raises(NoSuchSnapshotError, match=r"what snapshot .* changed is not known"):
        world.table.changelog().to_arrow()
    newest = world.table.metadata.current_snapshot_id
    world.append(9)
    changes = world.table.changelog(newest).to_arrow()
    assert changes["id"].to_pylist() == [9]


def test_a_run_is_not_undone_to_an_empty_table(world: World) -> None:
    world.append(1)
    world.append(2, summary={RUN_ID: "run-1"})
    world.expire()
    with pytest.raises(NoSuchSnapshotError, match=r"raw\.t: snapshot unknown, .* has expired"):
        plan(world.lake, "run-1", ["raw.t"])
    assert world.table.scan().count() == 2


def test_a_run_that_made_the_first_rows_is_undone_to_an_empty_table(world: World) -> None:
    world.append(2, summary={RUN_ID: "run-1"})
    assert [one.target for one in plan(world.lake, "run-1", ["raw.t"]).tables] == [None]


def test_a_staged_snapshot_without_parent_is_not_picked_again(world: World) -> None:
    world.append(1)
    world.table.create_branch("b")
    world.append(2, branch="b")
    picked = world.table.metadata.refs["b"].snapshot_id
    world.append(3)
    world.table.cherry_pick(picked)
    world.append(4)
    world.expire()
    with pytest.raises(ValidationConflictError, match="has expired"):
        world.table.cherry_pick(picked)
    assert sorted(world.table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]


def test_a_batch_of_a_stream_comes_once(world: World) -> None:
    batch = lh.StreamBatch("q", 0)
    world.append(1)
    world.append(2, commit_id=batch)
    world.append(3)
    world.expire()
    assert world.table.append(pa.table({"id": [2]}, schema=SCHEMA), commit_id=batch).replayed
    assert world.table.scan().count() == 3
