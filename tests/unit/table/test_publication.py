"""Branches of the lake: what they hold becomes main in all tables, or in none."""

from __future__ import annotations

import contextlib
import datetime as dt
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.catalog.open_branches import PUBLICATIONS, OpenBranches
from lakehouse.errors import (
    InvalidInputError,
    NoSuchRefError,
    NoSuchSnapshotError,
    UnsupportedFeatureError,
    ValidationConflictError,
)
from lakehouse.lake import Lakehouse
from lakehouse.server.http_server import HttpServer
from lakehouse.server.rest_app import rest_app
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.snapshot import RUN_ID
from lakehouse.storage.local import LocalStorage
from lakehouse.table.publication import BranchOfLake, Publication
from lakehouse.table.table import Table
from tests.seeds import seeds

SCHEMA = pa.schema({"p": pa.int64(), "id": pa.int64(), "n": pa.int64()})
NAMES = ("t.a", "t.b", "t.c")
State = dict[str, dict[int, Counter[tuple[int, int]]]]


@pytest.fixture(params=["files", "sqlite", pytest.param("rest", marks=pytest.mark.slow)])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lakehouse]:
    where = str(tmp_path) if request.param == "files" else f"sqlite:///{tmp_path}/c.db"
    lake = lh.load_catalog(where, warehouse=str(tmp_path))
    if request.param != "rest":
        yield lake
        return
    with HttpServer(rest_app(lake), "127.0.0.1", 0) as server:
        yield lh.load_catalog(server.url, warehouse=str(tmp_path))


def rows(*found: tuple[int, int, int]) -> pa.Table:
    columns = [list(column) for column in zip(*found, strict=True)]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)


def state(lake: Lakehouse) -> State:
    found: State = {}
    for name in NAMES:
        by_partition: dict[int, Counter[tuple[int, int]]] = {}
        for row in lake.load_table(name).scan().to_arrow().to_pylist():
            by_partition.setdefault(row["p"], Counter())[row["id"], row["n"]] += 1
        found[name] = by_partition
    return found


def change(chance: random.Random, table: Table, n: int) -> set[tuple[int, bool]]:
    """Something at random; the partitions that it touched, and whether it only added rows."""
    p = chance.randrange(4)
    new = rows(*[(p, chance.randrange(5), n) for _ in range(2)])
    match chance.choice(["append", "append", "overwrite", "delete", "upsert", "compact"]):
        case "append":
            table.append(new)
            return {(p, True)}
        case "overwrite":
            table.overwrite(new, f"p = {p}")
        case "delete":
            table.delete(f"p = {p} and id < 3")
        case "upsert":
            table.upsert(rows((p, 1, n)), ["p", "id"])
        case "compact":
            table.compact(lh.CompactionOptions(min_input_files=2))
            return {(every, False) for every in range(4)}
    return {(p, False)}


@pytest.mark.parametrize("seed", seeds(3, 40))
def test_as_if_one_had_come_after_the_other(lake: Lakehouse, seed: int) -> None:
    """Brute force, by partition: what one side alone changed is its, appended rows are added."""
    chance = random.Random(seed)
    for name in NAMES:
        table = lake.create_table(
            name, SCHEMA, partition_by=["p"], format_version=chance.choice([2, 3])
        )
        table.append(rows(*[(p, id_, 0) for p in range(4) for id_ in range(3)]))
    base, dev = state(lake), lake.on_branch("dev")
    touched: dict[tuple[str, int], list[bool]] = {}
    for n in range(1, 5):
        name = chance.choice(NAMES)
        for p, only_adds in change(chance, dev.load_table(name), n):
            touched.setdefault((name, p), []).append(only_adds)
    mine = state(dev)
    assert state(lake) == base
    others: set[tuple[str, int]] = set()
    for n in range(5, 5 + chance.randrange(3)):
        name = chance.choice(NAMES)
        others |= {(name, p) for p, _ in change(chance, lake.load_table(name), n)}
    theirs = state(lake)
    both = [place for place in touched if place in others and not all(touched[place])]
    try:
        lake.branch("dev").publish()
    except ValidationConflictError as error:
        assert both, error  # noqa: PT017
        assert state(lake) == theirs
        assert state(dev) == mine
        assert lake.branch("dev").drop()
        return
    expected: State = {}
    for name in NAMES:
        expected[name] = {}
        for p in range(4):
            before, own, other = (one[name].get(p, Counter()) for one in (base, mine, theirs))
            if own != before and other != before:
                assert all(touched[name, p]), "both changed what is no append"
                other = other + (own - before)
            elif own != before:
                other = own
            if other:
                expected[name][p] = other
    assert state(lake) == expected == state(dev)
    assert all("dev" not in lake.load_table(name).refs() for name in NAMES)


def test_new_tables_versions_and_who_published(lake: Lakehouse) -> None:
    lake.create_table("t.a", SCHEMA).append(rows((1, 1, 1)))
    for version in (1, 2):
        dev = lake.on_branch("run-1")
        dev.load_table("t.a").append(rows((1, version, 1)), summary={RUN_ID: "run-1"})
        dev.create_table(f"t.new{version}", SCHEMA).append(rows((2, 2, 2)))
        dev.create_table(f"t.staged{version}", SCHEMA, staged=True).append(rows((2, 2, 2)))
        for name in (f"t.new{version}", f"t.staged{version}"):
            assert lake.load_table(name).scan().count() == 0
            assert dev.load_table(name).scan().count() == 1
        done = lake.branch("run-1").publish({RUN_ID: "run-1"})
        assert done is not None
        assert done.version == version
        names = ["t.a", f"t.new{version}", f"t.staged{version}"]
        assert [table.name for table in done.tables] == names
        assert all(lake.load_table(name).scan().count() for name in names)
    told = lake.load_table(PUBLICATIONS).scan(where="version = 2").to_arrow().to_pylist()
    assert [(row["run_id"], row["table"]) for row in told] == [("run-1", name) for name in names]
    assert [row["snapshot_id"] for row in told] == [table.snapshot_id for table in done.tables]
    with pytest.raises(NoSuchRefError, match="no branch 'run-1'; it has: none"):
        lake.branch("run-1").publish()


@pytest.mark.parametrize("readable", [True, False])
def test_who_was_first_is_named(lake: Lakehouse, readable: bool) -> None:
    for name in NAMES:
        lake.create_table(name, SCHEMA, partition_by=["p"]).append(rows((1, 1, 1)))
    dev = lake.on_branch("dev")
    for name in NAMES:
        dev.load_table(name).overwrite(rows((1, 2, 2)), "p = 1")
    other = lake.load_table("t.b")
    other.append(rows((1, 3, 3)), summary={RUN_ID: "run-7"})
    (file,) = other.scan(where="n = 3").plan().files
    if not readable:
        other.storage.delete([file.file_path])
    with pytest.raises(ValidationConflictError, match=r"no table of it.*t\.b.*p=1.*run-7") as told:
        lake.branch("dev").publish()
    assert ("INSERT p=1, id=3, n=3" in str(told.value)) == readable
    heads = [lake.load_table(name).current_snapshot().summary for name in NAMES]
    assert [head["total-records"] for head in heads] == ["1", "2", "1"]


def test_what_a_branch_does_not_have(lake: Lakehouse) -> None:
    table = lake.create_table("t.a", SCHEMA)
    for n in range(2):
        table.append(rows((1, 1, n)))
    with pytest.raises(InvalidInputError, match="cannot be a branch"):
        lake.on_branch("main")
    lake.branch("dev").create()
    assert lake.branch("dev").tables() == []
    dev = lake.on_branch("dev")
    for forbidden in (
        lambda: dev.drop_table("t.a"),
        lambda: dev.load_table("t.a").expire_snapshots(retain_last=1, older_than=2**41),
    ):
        dev.load_table("t.a").append(rows((1, 1, 1)))
        with pytest.raises(UnsupportedFeatureError, match="branch dev"):
            forbidden()
    with dev.load_table("t.a").update_schema() as schema:
        schema.add_column("more", "int")
    with dev.load_table("t.a").update_schema() as schema:
        schema.update_column("more", "long")
    dev.load_table("t.a").set_properties({"comment": "of all"})
    table.refresh()
    assert table.schema().column_names == ["p", "id", "n", "more"]
    assert table.properties["comment"] == "of all"
    lake.load_table("t.a").create_tag("reviewed")
    with pytest.raises(InvalidInputError, match="is a tag"):
        lake.on_branch("reviewed").load_table("t.a")


def test_what_main_has_is_not_changed_on_a_branch(lake: Lakehouse) -> None:
    """Whoever reads main reads, and whoever writes there writes, as if the branch were not."""
    lake.create_namespace("empty")
    lake.create_table("t.a", SCHEMA, partition_by=["p"]).append(rows((1, 1, 1)))
    view = lake.create_view("t.v", "SELECT 1 AS n", pa.schema({"n": pa.int32()}))
    before = lake.load_table("t.a").metadata
    dev = lake.on_branch("dev")

    def dropped(table: Table) -> None:
        with table.update_schema() as schema:
            schema.drop_column("n")

    def renamed(table: Table) -> None:
        with table.update_schema() as schema:
            schema.rename_column("n", "m")

    def partitioned(table: Table) -> None:
        with table.update_partition_spec() as spec:
            spec.add("id")

    def ordered(table: Table) -> None:
        with table.update_sort_order() as order:
            order.asc("n")

    def upgraded(table: Table) -> None:
        table.set_properties({"format-version": "3"})

    for change, told in (
        (dropped, "n cannot be dropped or renamed"),
        (renamed, "n cannot be dropped or renamed"),
        (partitioned, "the partition spec cannot be changed"),
        (ordered, "the sort order cannot be changed"),
        (upgraded, "the format version cannot be changed"),
    ):
        with pytest.raises(UnsupportedFeatureError, match=f"on branch dev {told}"):
            change(dev.load_table("t.a"))
    for refused in (
        lambda: dev.load_view("t.v").replace("SELECT 2 AS n", pa.schema({"n": pa.int32()})),
        lambda: dev.drop_view("t.v"),
        lambda: dev.rename_view("t.v", "t.w"),
        lambda: dev.drop_namespace("empty"),
    ):
        with pytest.raises(UnsupportedFeatureError, match="on branch dev, which has rows and no"):
            refused()
    assert lake.load_table("t.a").metadata == before
    assert lake.load_view("t.v").metadata == view.metadata
    assert "empty" in lake.list_namespaces()
    dev.create_view("t.new", "SELECT 1 AS n", pa.schema({"n": pa.int32()}))
    assert lake.view_exists("t.new")


def test_ten_thousand_tables_are_not_looked_at(lake: Lakehouse, monkeypatch) -> None:
    """Neither to create nor to publish a branch is any table opened that has nothing on it."""
    for name in NAMES:
        lake.create_table(name, SCHEMA)
    opened, catalog = [], type(lake.catalog)
    load = catalog.load
    monkeypatch.setattr(
        catalog, "load", lambda self, name: opened.append(str(name)) or load(self, name)
    )
    lake.branch("dev").create()
    lake.on_branch("dev").load_table("t.b").append(rows((1, 1, 1)))
    lake.branch("dev").publish()
    assert set(opened) == {"t.b", str(PUBLICATIONS)}


class Killed(BaseException):
    """Nothing in the process is done any more."""


FIVE = tuple(f"t.{letter}" for letter in "abcde")


def joined(lake: Lakehouse) -> list[set[int]]:
    """What the newest version of the lake has in each of five tables."""
    at = lake.at()
    return [set(at.load_table(name).scan().to_arrow()["n"].to_pylist()) for name in FIVE]


@pytest.mark.parametrize("kill", seeds(3, 60))
def test_readers_beside_publications_that_are_killed(
    lake: Lakehouse, kill: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each file that a publication creates five tables are joined, then it is killed."""
    chance = random.Random(kill)
    for name in FIVE:
        lake.create_table(name, SCHEMA)
    create, reading, files = LocalStorage.create, [False], [0]
    for n in range(1, 5):
        dev = lh.load_catalog(lake.catalog.uri, warehouse=lake.warehouse).on_branch(f"run-{n}")
        for name in FIVE:
            dev.load_table(name).overwrite(rows((1, 1, n)))
        if chance.random() < 0.5:
            lake.load_table(chance.choice(FIVE)).compact()
        before = joined(lake) if n > 1 else []
        last = chance.randrange(1, 16)
        files[0] = 0

        def watched(
            self: LocalStorage,
            location: str,
            data: bytes,
            n: int = n,
            last: int = last,
            before: list[set[int]] = before,
        ) -> None:
            create(self, location, data)
            files[0] += 1
            if reading[0]:
                return
            if n > 1:
                reading[0] = True
                found = joined(lake)
                reading[0] = False
                assert found == before or all(one == {n} for one in found), found
            if files[0] == last:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(LocalStorage, "create", watched)
            with contextlib.suppress(Killed):
                lake.branch(f"run-{n}").publish()
        whole = [{n}] * 5
        if n == 1 and not lake.table_exists(str(PUBLICATIONS)):
            continue
        with contextlib.suppress(NoSuchRefError):
            lake.branch(f"run-{n}").publish()  # whoever comes next
        assert joined(lake) == whole
        plain = [lake.load_table(name).scan().to_arrow()["n"].to_pylist() for name in FIVE]
        assert plain == [[n]] * 5
    versions = lake.load_table(PUBLICATIONS).scan().to_arrow()["version"].to_pylist()
    assert Counter(versions) == dict.fromkeys(range(1, 5), 5)
    for version in range(1, 5):
        shown = lake.at(version=version)
        for name in FIVE:
            assert shown.load_table(name).scan().to_arrow()["n"].to_pylist() == [version]


def test_versions_and_times(lake: Lakehouse) -> None:
    with pytest.raises(NoSuchSnapshotError, match="no version; it has none yet"):
        lake.at()
    for name in NAMES:
        lake.create_table(name, SCHEMA)
    for n in (1, 2):
        lake.load_table("t.c").append(rows((1, 1, n)))
        lake.on_branch("dev").load_table("t.a").append(rows((1, 1, n)))
        lake.branch("dev").publish()
    lake.load_table("t.a").append(rows((1, 1, 3)))
    lake.create_table("t.new", SCHEMA).append(rows((1, 1, 3)))
    found = {
        version: [
            lake.at(version=version).load_table(name).scan().count() for name in (*NAMES, "t.new")
        ]
        for version in (1, 2)
    }
    assert found == {1: [1, 0, 1, 0], 2: [2, 0, 2, 0]}
    first = lake.load_table(PUBLICATIONS).scan(where="version = 1").to_arrow()["at"][0].as_py()
    assert lake.at(time=first).load_table("t.a").scan().count() == 1
    with pytest.raises(NoSuchSnapshotError, match="no version 3; it has those from 1 to 2"):
        lake.at(version=3)
    with pytest.raises(UnsupportedFeatureError, match="read only"):
        lake.at().load_table("t.a").append(rows((1, 1, 1)))


def test_versions_go_on_after_maintenance(lake: Lakehouse) -> None:
    lake.create_table("t.a", SCHEMA)
    for n in range(1, 7):
        lake.on_branch("dev").load_table("t.a").append(rows((1, 1, n)))
        published = lake.branch("dev").publish()
        assert published is not None
        assert published.version == n
        kept = lake.load_table(PUBLICATIONS)
        kept.compact(lh.CompactionOptions(min_input_files=2))
        kept.expire_snapshots(retain_last=1, older_than=dt.datetime.now(dt.UTC))
    assert len(kept.refresh().scan().plan().files) == 1
    for version in range(1, 7):
        assert lake.at(version=version).load_table("t.a").scan().count() == version


@pytest.mark.parametrize("others", [1, 2])
def test_no_row_is_lost_with_snapshots_that_expire(lake: Lakehouse, others: int) -> None:
    """Those of the branch are kept for it; where main's are not known, nothing is published."""
    lake.create_table("t.a", SCHEMA).append(rows((1, 1, 0)))
    dev = lake.on_branch("dev").load_table("t.a")
    for n in (1, 2):
        dev.append(rows((1, 1, n)))
    for n in range(others):
        lake.load_table("t.a").append(rows((1, 1, n + 3)))
    lake.load_table("t.a").expire_snapshots(retain_last=1, older_than=dt.datetime.now(dt.UTC))
    if others == 1:
        assert lake.branch("dev").publish()
        assert sorted(lake.load_table("t.a").scan().to_arrow()["n"].to_pylist()) == [0, 1, 2, 3]
        return
    with pytest.raises(ValidationConflictError, match=r"no table of it.*t\.a.*expired"):
        lake.branch("dev").publish()
    assert lake.load_table("t.a").scan().count() == 3
    assert lake.on_branch("dev").load_table("t.a").scan().count() == 3


def test_what_was_rolled_back_does_not_come_back(lake: Lakehouse) -> None:
    table = lake.create_table("t.a", SCHEMA)
    first = table.append(rows((1, 1, 1)))
    table.append(rows((1, 1, 2)), summary={RUN_ID: "run-7"})
    lake.on_branch("dev").load_table("t.a").append(rows((1, 1, 3)))
    lake.load_table("t.a").rollback_to(first.snapshot_id)
    with pytest.raises(ValidationConflictError, match=r"no table of it.*rolled back.*run run-7"):
        lake.branch("dev").publish()
    assert lake.load_table("t.a").scan().to_arrow()["n"].to_pylist() == [1]


def test_who_writes_to_a_branch_that_is_being_published_is_noted(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        lake.create_table(name, SCHEMA)
    dev = lake.on_branch("dev")
    dev.load_table("t.a").append(rows((1, 1, 1)))
    forget, late = OpenBranches.forget, iter(NAMES)

    def overtaken(self: OpenBranches, branch: str) -> list[Identifier]:
        name = next(late, None)
        if name is not None:
            dev.load_table(name).append(rows((1, 1, 2)))
        return forget(self, branch)

    monkeypatch.setattr(OpenBranches, "forget", overtaken)
    for _ in range(5):
        with contextlib.suppress(NoSuchRefError):
            lake.branch("dev").publish()
    assert [lake.load_table(name).scan().count() for name in NAMES] == [2, 1, 1]
    assert lake.branches() == {}


def test_branch_of_a_branch(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """It becomes part of the other at the first attempt, and no version of the lake."""
    lake.create_table("t.a", SCHEMA)
    dev = lake.on_branch("dev")
    dev.on_branch("run-1").load_table("t.a").append(rows((1, 1, 1)))
    attempts, attempt = [], BranchOfLake._attempt

    def counted(self: BranchOfLake, *more: Any) -> Publication:
        attempts.append(self.name)
        return attempt(self, *more)

    monkeypatch.setattr(BranchOfLake, "_attempt", counted)
    done = dev.branch("run-1").publish()
    assert done is not None
    assert (done.version, attempts) == (0, ["run-1"])
    assert dev.load_table("t.a").scan().count() == 1
    assert lake.load_table("t.a").scan().count() == 0
    assert lake.branches() == {"dev": ["t.a"]}


def test_versions_go_on_after_rows_of_old_ones_were_deleted(lake: Lakehouse) -> None:
    lake.create_table("t.a", SCHEMA)
    for n in range(1, 5):
        lake.on_branch("dev").load_table("t.a").append(rows((1, 1, n)))
        published = lake.branch("dev").publish()
        assert published is not None
        assert published.version == n
        kept = lake.load_table(PUBLICATIONS)
        kept.delete(f"version < {n}")
        kept.expire_snapshots(retain_last=1, older_than=dt.datetime.now(dt.UTC))
