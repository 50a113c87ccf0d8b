"""Backups and what is restored from them; the judges: rows before, the census, and pyiceberg."""

from __future__ import annotations

import datetime as dt
import os
import random
import shutil
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

import lakehouse as lh
from lakehouse.catalog.catalog_protocol import Catalog, walk_tables
from lakehouse.errors import (
    CorruptMetadataError,
    InvalidInputError,
    NoSuchFileError,
    NotFoundError,
    TableAlreadyExistsError,
)
from lakehouse.maintenance.backup import backup, restore
from lakehouse.maintenance.relocation import relocate
from lakehouse.storage.local import LocalOutput, LocalStorage
from lakehouse.table.scan_reports import SCAN_REPORT_SCHEMA, TableListener
from lakehouse.tuning.adoption import recorded_scans
from tests.seeds import seeds
from tests.table_census import take_census

ROWS = pa.table({"id": range(60), "day": [n % 3 for n in range(60)], "name": ["a", "b"] * 30})
MERGE_ON_READ = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
States = dict[str, dict[Any, list[dict[str, Any]]]]


def history(lake: lh.Lakehouse, name: str, version: int, **properties: str) -> lh.Table:
    """Appends, deletes by position or vector, an update, a tag, a branch and a column."""
    table = lake.create_table(
        name,
        ROWS.schema,
        partition_by=["day"],
        properties={**MERGE_ON_READ, "format-version": str(version), **properties},
    )
    table.append(ROWS)
    table.delete(where="id < 5")
    table.create_tag("early")
    table.update({"name": "'c'"}, where="id > 50")
    with table.update_schema() as change:
        change.add_column("more", pa.string())
    table.create_branch("side")
    table.append(pa.table({"id": [100], "day": [7], "name": ["z"], "more": ["x"]}), branch="side")
    table.delete(where="id = 30")
    return table


def states(lake: lh.Lakehouse) -> States:
    """The rows of every snapshot and ref of each table, and the SQL of each view."""
    found: States = {}
    for name in sorted(map(str, walk_tables(lake.catalog))):
        table = lake.load_table(name)
        scans = {one.snapshot_id: {"snapshot_id": one.snapshot_id} for one in table.snapshots()}
        scans |= {ref: {"ref": ref} for ref in table.refs()}
        found[name] = {
            key: sorted(table.scan(**how).to_arrow().to_pylist(), key=str)
            for key, how in scans.items()
        }
    for name in lake.list_views():
        dialects = lake.load_view(name).metadata.current_version().dialects()
        found[name] = {"sql": [{"sql": one.sql} for one in dialects.values()]}
    return found


def of_files(folder: Path) -> lh.Lakehouse:
    return lh.load_catalog(str(folder))


def of_sqlite(folder: Path) -> lh.Lakehouse:
    folder.mkdir(parents=True, exist_ok=True)
    return lh.load_catalog(f"sqlite:///{folder}/catalog.db", warehouse=str(folder / "warehouse"))


Opened = Callable[[Path], lh.Lakehouse]


def filled(lake: lh.Lakehouse, folder: Path) -> None:
    """Tables of both versions, a file that lies elsewhere in the warehouse, a view."""
    history(lake, "raw.v2", 2)
    history(lake, "raw.v3", 3)
    lake.create_table("mart.empty", ROWS.schema)
    pq.write_table(ROWS, folder / "landed.parquet")
    taken = lake.create_table("raw.taken", ROWS.schema, properties=MERGE_ON_READ)
    taken.append(ROWS.slice(0, 3))
    taken.add_files([str(folder / "landed.parquet")])
    taken.delete(where="id > 55")
    lake.create_view("mart.seen", "SELECT id FROM raw.v2", schema=ROWS.schema)
    lake.catalog.update_namespace_properties(("mart",), {"owner": "ana"})


def check_whole(catalog: Catalog, gone: str) -> None:
    """The census of every table, and what pyiceberg reads of it."""
    for name in walk_tables(catalog):
        census = take_census(catalog, name)
        assert not census.missing, name
        table = catalog.load(name)
        assert gone not in orjson.dumps(sorted(census.reachable)).decode(), name
        if table.metadata.current_snapshot_id is not None:
            ours = lh.Lakehouse(catalog).load_table(str(name)).scan().to_arrow().to_pylist()
            theirs = StaticTable.from_metadata(table.metadata_location).scan().to_arrow()
            assert sorted(theirs.to_pylist(), key=str) == sorted(ours, key=str), name


@pytest.mark.slow
@pytest.mark.parametrize("opened", [of_files, of_sqlite])
@pytest.mark.parametrize("restored_to", [of_files, of_sqlite])
def test_what_is_restored_anywhere_is_what_was_backed_up(
    tmp_path: Path, opened: Opened, restored_to: Opened
) -> None:
    lake = opened(tmp_path / "old")
    filled(lake, tmp_path / "old" / ("" if opened is of_files else "warehouse"))
    held = states(lake)
    made = backup(lake.catalog, str(tmp_path / "kept"))
    assert (made.number, made.copied_files, made.unsettled) == (1, made.files, ())
    again = backup(lake.catalog, str(tmp_path / "kept"))
    assert (again.number, again.copied_files) == (2, 0)
    lake.load_table("raw.v2").append(ROWS.slice(0, 1).append_column("more", pa.array(["m"])))
    third = backup(lake.catalog, str(tmp_path / "kept"))
    assert third.copied_files == 3  # a data file, its manifest, and the list
    lake.catalog.close()
    (tmp_path / "old").rename(tmp_path / "gone")
    other = restored_to(tmp_path / "new")
    done = restore(other.catalog, str(tmp_path / "kept"), number=2)
    assert (len(done.restored), done.kept) == (5, ())
    assert states(other) == held
    check_whole(other.catalog, f"{tmp_path}/old/")
    assert other.load_view("mart.seen").metadata.location.startswith(f"file://{tmp_path}/new")
    assert other.catalog.namespace_properties(("mart",))["owner"] == "ana"
    assert restore(other.catalog, str(tmp_path / "kept")).kept == tuple(sorted(done.restored))
    # they are written like any other
    for name in ("raw.v2", "raw.v3", "raw.taken"):
        table = other.load_table(name)
        table.delete(where="id = 7")
        table.compact()
        assert all(row["id"] != 7 for row in table.scan().to_arrow().to_pylist())
        assert table.scan(snapshot_id=table.history()[0].snapshot_id).count() > 0


def recorded_answers(lake: lh.Lakehouse) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each query that `ops.scans` of the lake tells of, asked again; in the order of asking."""
    answers = []
    for asked in sorted(recorded_scans(lake), key=lambda scan: scan["planned_at"]):
        scan = lake.load_table(asked["table"]).scan(
            where=asked["predicate"], select=asked["projection"], snapshot_id=asked["snapshot_id"]
        )
        rows = sorted(scan.to_arrow().to_pylist(), key=str)
        answers.append((asked, rows))
    return answers


@pytest.mark.slow
def test_every_recorded_query_is_answered_alike(tmp_path: Path) -> None:
    """Restored elsewhere, and in a copy that was relocated; the judge is Python over all rows."""
    lake = of_files(tmp_path / "old")
    history(lake, "raw.v2", 2)
    history(lake, "raw.v3", 3)
    scans = lake.create_table("ops.scans", SCAN_REPORT_SCHEMA, partition_by=["day(planned_at)"])
    filters: dict[str, Callable[[dict[str, Any]], bool]] = {
        "id > 20 and name = 'b'": lambda row: row["id"] > 20 and row["name"] == "b",
        "day in (0, 7) or id = 57": lambda row: row["day"] in (0, 7) or row["id"] == 57,
        "name like 'c%'": lambda row: row["name"][0] == "c",
        "id % 7 = 3": lambda row: row["id"] % 7 == 3,
        "true": lambda row: True,
    }
    expected = []
    with TableListener(scans) as listener:
        lake.add_listener(listener)
        for name in ("raw.v2", "raw.v3"):
            table = lake.load_table(name)
            for snapshot in table.snapshots():
                at = {"snapshot_id": snapshot.snapshot_id}
                for where, keeps in filters.items():
                    rows = table.scan(select=["id", "name"], where=where, **at).to_arrow()
                    whole = table.scan(**at).to_arrow().to_pylist()
                    wanted = [{"id": r["id"], "name": r["name"]} for r in whole if keeps(r)]
                    assert sorted(rows.to_pylist(), key=str) == sorted(wanted, key=str)
                    expected += [sorted(wanted, key=str), sorted(whole, key=str)]
    backup(lake.catalog, str(tmp_path / "kept"))
    shutil.copytree(tmp_path / "old", tmp_path / "copy", symlinks=True)
    (tmp_path / "old").rename(tmp_path / "gone")
    restored, copied = of_sqlite(tmp_path / "new"), of_files(tmp_path / "copy")
    restore(restored.catalog, str(tmp_path / "kept"))
    relocate(copied.catalog)
    for other in (restored, copied):
        answers = recorded_answers(other)
        assert [rows for _, rows in answers] == expected
        assert len({asked["predicate"] for asked, _ in answers}) == len(filters)


@pytest.mark.slow
def test_the_same_warehouse_gets_its_files_back_where_they_were(tmp_path: Path) -> None:
    """The database is lost, and some of the files: nothing is rewritten, only these are copied."""
    lake = of_sqlite(tmp_path / "lake")
    filled(lake, tmp_path / "lake/warehouse")
    held = states(lake)
    made = backup(lake.catalog, str(tmp_path / "kept"))
    lake.catalog.close()
    (tmp_path / "lake/catalog.db").unlink()
    lost = sorted((tmp_path / "lake/warehouse/raw").rglob("data/**/*.parquet"))
    for path in lost:
        path.unlink()
    other = of_sqlite(tmp_path / "lake")
    done = restore(other.catalog, str(tmp_path / "kept"))
    assert (done.copied_files, done.files) == (len(lost), made.files)
    assert states(other) == held
    check_whole(other.catalog, "nowhere")


def test_what_is_damaged_is_named_and_nothing_is_restored(tmp_path: Path) -> None:
    lake = of_files(tmp_path / "old")
    history(lake, "raw.v2", 2)
    backup(lake.catalog, str(tmp_path / "kept"))
    assert restore(of_files(tmp_path / "dry").catalog, str(tmp_path / "kept"), dry_run=True).files
    assert not (tmp_path / "dry").exists()
    for ending in ("*.parquet", "*.avro", "metadata/*.json"):
        damaged = sorted((tmp_path / "kept").rglob(ending))[-1]
        content = damaged.read_bytes()
        damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        for dry_run in (True, False):
            other = of_files(tmp_path / f"new{ending[-4:]}")
            with pytest.raises(CorruptMetadataError, match=r"not what was backed up"):
                restore(other.catalog, str(tmp_path / "kept"), dry_run=dry_run)
            assert list(walk_tables(other.catalog)) == []
        damaged.write_bytes(content)
    sorted((tmp_path / "kept/files").rglob("*.parquet"))[0].unlink()
    with pytest.raises(NoSuchFileError):
        restore(of_files(tmp_path / "new").catalog, str(tmp_path / "kept"))
    # the next backup copies it again
    assert backup(lake.catalog, str(tmp_path / "kept")).copied_files == 1
    restore(of_files(tmp_path / "new").catalog, str(tmp_path / "kept"))
    assert states(of_files(tmp_path / "new")) == states(lake)


def test_what_cannot_be_done_is_refused_by_name(tmp_path: Path) -> None:
    lake = of_files(tmp_path / "old")
    history(lake, "raw.v2", 2)
    for inside in ("old/kept", "old"):
        with pytest.raises(InvalidInputError, match="overlap"):
            backup(lake.catalog, str(tmp_path / inside))
    with pytest.raises(NotFoundError, match="no backup at all"):
        restore(lake.catalog, str(tmp_path / "kept"))
    with pytest.raises(NotFoundError, match=r"raw\.nothing"):
        backup(lake.catalog, str(tmp_path / "kept"), tables=["raw.nothing"])
    backup(lake.catalog, str(tmp_path / "kept"), tables=["raw.v2"])
    with pytest.raises(NotFoundError, match=r"raw\.nothing in backup 1"):
        restore(lake.catalog, str(tmp_path / "kept"), tables=["raw.nothing"])
    other = of_files(tmp_path / "new")
    other.create_table("raw.v2", ROWS.schema)
    with pytest.raises(TableAlreadyExistsError, match="another table"):
        restore(other.catalog, str(tmp_path / "kept"))
    # a file that is not as long as the manifest says
    file = next(iter((tmp_path / "old/raw/v2/data").rglob("*.parquet")))
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(CorruptMetadataError, match="it is damaged"):
        backup(lake.catalog, str(tmp_path / "kept2"))
    file.unlink()
    with pytest.raises(NoSuchFileError):
        backup(lake.catalog, str(tmp_path / "kept3"))


@pytest.mark.slow
@pytest.mark.parametrize("opened", [of_files, of_sqlite])
def test_tables_that_are_written_together_are_backed_up_together(
    tmp_path: Path, opened: Opened
) -> None:
    """Two tables change in transactions, and expire, while backups are made: equal in each."""
    lake = opened(tmp_path / "old")
    pair = [lake.create_table(f"raw.{name}", pa.schema({"n": pa.int64()})) for name in "ab"]

    def write() -> None:
        for number in range(60):
            with lake.transaction() as change:
                for table in pair:
                    change.table(table.name).append(pa.table({"n": [number]}))
            for table in pair if number % 5 == 0 else ():
                now = dt.datetime.now(dt.UTC)
                lake.load_table(table.name).expire_snapshots(retain_last=1, older_than=now)

    made = []
    with ThreadPoolExecutor() as pool:
        writer = pool.submit(write)
        while not writer.done():
            made.append(backup(lake.catalog, str(tmp_path / "kept")))
    writer.result()
    assert len(made) > 3
    for one in made:
        other = of_files(tmp_path / f"new{one.number}")
        restore(other.catalog, str(tmp_path / "kept"), number=one.number)
        a, b = (other.load_table(f"raw.{name}").scan().to_arrow()["n"].to_pylist() for name in "ab")
        assert one.unsettled or sorted(a) == sorted(b) == list(range(len(a)))


_CALLS = ("read", "read_range", "write", "write_new", "create", "list", "exists", "size")


def _run(act: Callable[[], object], kill_at: int | None) -> tuple[bool, int]:
    """Act in a process of its own: whether it came to an end, and how many calls were made."""
    pipe = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - ends in a signal, or at once
        calls = 0

        def counted(method: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **arguments: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return method(*args, **arguments)

            return call

        for name in _CALLS:
            setattr(LocalStorage, name, counted(getattr(LocalStorage, name)))
        LocalOutput.write = counted(LocalOutput.write)
        LocalOutput.close = counted(LocalOutput.close)
        try:
            act()
            os.write(pipe[1], str(calls).encode())
        finally:
            os._exit(0)
    os.close(pipe[1])
    with os.fdopen(pipe[0]) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return bool(said), int(said or 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(8, 8))
def test_killed_at_any_call_it_is_done_by_doing_it_again(tmp_path: Path, seed: int) -> None:
    """Ten kills of backups, ten of restorations; `LAKEHOUSE_SEEDS=10`: two hundred."""
    chance = random.Random(seed)
    opened, restored_to = (chance.choice([of_files, of_sqlite]) for _ in range(2))
    lake = opened(tmp_path / "old")
    history(lake, "raw.v2", 2)
    history(lake, "raw.v3", 3)
    lake.create_view("mart.seen", "SELECT id FROM raw.v2", schema=ROWS.schema)
    held, kept = states(lake), str(tmp_path / "kept")
    backup(lake.catalog, kept)
    lake.load_table("raw.v2").append(ROWS.slice(0, 9).append_column("more", pa.nulls(9, "string")))
    lake.load_table("raw.v3").delete(where="id = 40")
    later = states(lake)
    lake.catalog.close()
    ended, calls = _run(lambda: backup(opened(tmp_path / "old").catalog, f"{kept}-tried"), None)
    assert ended
    assert calls > 50
    for _ in range(10):
        ended, _ = _run(
            lambda: backup(opened(tmp_path / "old").catalog, kept), chance.randint(1, calls // 2)
        )
    number = backup(opened(tmp_path / "old").catalog, kept).number
    (tmp_path / "old").rename(tmp_path / "gone")
    _, calls = _run(lambda: restore(restored_to(tmp_path / "tried").catalog, kept, number=1), None)
    for wanted, which in ((held, 1), (later, number)):
        for _ in range(5):
            _run(
                lambda which=which: restore(
                    restored_to(tmp_path / f"new{which}").catalog, kept, number=which
                ),
                chance.randint(1, calls),
            )
        other = restored_to(tmp_path / f"new{which}")
        restore(other.catalog, kept, number=which)
        assert states(other) == wanted
        check_whole(other.catalog, f"{tmp_path}/old/")


def stored(folder: str) -> set[str]:
    """The files of a folder of backups but their JSON, and what killed copies leave."""
    here = Path(folder)
    return {
        str(one.relative_to(here))
        for one in here.rglob("*")
        if one.is_file() and one.parent != here / "backups" and one.suffix != ".tmp"
    }


def test_older_backups_go_with_the_files_that_only_they_need(tmp_path: Path) -> None:
    lake, kept = of_files(tmp_path / "lake"), str(tmp_path / "kept")
    table = lake.create_table("raw.t", ROWS.schema)
    dropped = lake.create_table("raw.dropped", ROWS.schema)
    dropped.append(ROWS)
    found = []
    for number in range(1, 5):
        table.append(ROWS.slice(0, number))
        found.append(backup(lake.catalog, kept, keep=None if number < 4 else 2))
        if number == 2:
            lake.drop_table("raw.dropped")
        table.compact(lh.CompactionOptions(rewrite_all=True))
        table.expire_snapshots(lh.ExpiryOptions(retain_last=1, older_than_ms=2**45))
    held = states(lake)
    assert [one.pruned for one in found] == [(), (), (), (1, 2)]
    assert found[-1].pruned_bytes > 0
    last = backup(lake.catalog, kept, keep=1)
    assert (last.number, last.pruned) == (5, (3, 4))
    with pytest.raises(NotFoundError, match="no backup 4"):
        restore(of_files(tmp_path / "none").catalog, kept, number=4)
    restored = of_files(tmp_path / "new")
    restore(restored.catalog, kept)
    assert states(restored) == held
    backup(lake.catalog, f"{kept}-afresh")
    same = {one for one in stored(kept) if not one.startswith("listed")}
    assert same == {one for one in stored(f"{kept}-afresh") if not one.startswith("listed")}
    assert len(list(Path(kept, "listed").iterdir())) == 1
    with pytest.raises(InvalidInputError, match="at least one backup"):
        backup(lake.catalog, kept, keep=0)


def test_a_backup_beside_which_files_of_older_ones_go_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, kept = of_files(tmp_path / "lake"), str(tmp_path / "kept")
    for name in ("raw.a", "raw.b"):
        lake.create_table(name, ROWS.schema).append(ROWS)
    held = states(lake)
    backup(lake.catalog, kept)
    backup(lake.catalog, kept, tables=["raw.a"])
    create, others = LocalStorage.create, []

    def delayed(storage: LocalStorage, location: str, data: bytes) -> None:
        if location.endswith("backups/00003.json") and not others:
            others.append(None)  # raw.b's files are in the first backup alone, and copied anew
            others.append(backup(lake.catalog, kept, tables=["raw.a"], keep=1))
        create(storage, location, data)

    monkeypatch.setattr(LocalStorage, "create", delayed)
    made = backup(lake.catalog, kept)
    assert (others[1].number, others[1].pruned, made.number) == (3, (1, 2), 4)
    restored = of_files(tmp_path / "new")
    restore(restored.catalog, kept, number=4)
    assert states(restored) == held


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(4, 4))
def test_killed_while_older_backups_go_the_next_one_goes_on(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    lake, kept = of_files(tmp_path / "lake"), str(tmp_path / "kept")
    table = history(lake, "raw.t", 2)
    for _ in range(3):
        table.append(ROWS.slice(0, 3).append_column("more", pa.nulls(3, "string")))
        backup(lake.catalog, kept)
        table.compact(lh.CompactionOptions(rewrite_all=True))
        table.expire_snapshots(lh.ExpiryOptions(retain_last=1, older_than_ms=2**45))
    shutil.copytree(kept, f"{kept}-tried")
    ended, calls = _run(lambda: backup(lake.catalog, f"{kept}-tried", keep=1), None)
    assert ended
    for _ in range(8):
        _run(lambda: backup(lake.catalog, kept, keep=1), chance.randint(calls // 2, calls))
        other = of_files(tmp_path / f"new{chance.getrandbits(40)}")
        restore(other.catalog, kept)
        check_whole(other.catalog, f"{tmp_path}/lake/")
    backup(lake.catalog, kept, keep=1)
    backup(lake.catalog, f"{kept}-afresh")
    same = {one for one in stored(kept) if one.startswith("files")}
    assert same == {one for one in stored(f"{kept}-afresh") if one.startswith("files")}
    assert not list(Path(kept, "pruned").glob("*.json"))
