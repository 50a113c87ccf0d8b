"""Rewrites beside deletes of every kind, before, during and after them, while the spec changes.

What varies: how rows are rewritten, how others delete, the specs before and after, when the others
commit, the format version, the sequence number of rewritten files. The judge is a model of rows:
equality deletes reach those whose keys they have in files that are older, in their partition
alone unless their spec has none; of the files only paths, partitions and numbers are asked for.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse as lh
from lakehouse.maintenance.compaction.compaction import execute_compaction, plan_compaction
from lakehouse.spec.manifests.data_file import (
    CONTENT_EQUALITY_DELETES,
    CONTENT_POSITION_DELETES,
    DataFile,
)
from lakehouse.spec.partitioning.partition_terms import is_unpartitioned
from lakehouse.transaction.table_change import FilesPlan
from lakehouse.transaction.transaction import Transaction

pytestmark = pytest.mark.filterwarnings("ignore:Merge on read")
SCHEMA = pa.schema({"id": pa.int64(), "p": pa.int64(), "v": pa.int64()})
SPECS = (
    (), ("p",), ("bucket(2, id)",), ("bucket(3, id)",), ("p", "bucket(2, id)"), ("void(p)",)
)  # fmt: skip
MOVES = [(old, new) for old in SPECS for new in SPECS]
ORDERS = ("before", "between", "between", "between", "between twice", "after")
CONFLICTS = (lh.ValidationConflictError, lh.CommitConflictError)
Rows = dict[int, tuple[int, int]]
Commit = Callable[[], object]


class World:
    """A table and what it should hold.

    Attributes:
        rows: what is right, (p, v) by id.
        count: of ids that were given to rows.
    """

    def __init__(self, lake: lh.Lake, random: Random, old: tuple[str, ...]) -> None:
        self.lake, self.random = lake, random
        self.version = random.choice((2, 3))
        mode = random.choice(("copy-on-write", "merge-on-read"))
        self.table = lake.create_table(
            f"t.w{uuid.uuid4().hex}",
            SCHEMA,
            partition_by=list(old),
            format_version=self.version,
            properties={
                "write.update.mode": mode,
                "write.merge.mode": mode,
                "write.delete.granularity": random.choice(("file", "partition")),
            },
        )
        self.rows: Rows = {}
        self.count = 0

    def append(self) -> None:
        rows = {self.count + n: (self.random.randrange(2), 0) for n in range(6)}
        self.count += 6
        self.table.refresh().append(arrow(rows))
        self.rows |= rows

    def respec(self, new: tuple[str, ...]) -> None:
        table = self.table.refresh()
        there = {term_of(field, table): field.name for field in table.spec().fields}
        with table.update_partition_spec() as update:
            for term, name in there.items():
                if term not in new and "void" not in term:  # such a field stays
                    update.remove(name)
            for term in new:
                if term not in there:
                    update.add(term)

    def places(self) -> dict[int, tuple[int, tuple[Any, ...], str, int]]:
        """Row -> spec, partition, file and position of its newest file."""
        found: dict[int, tuple[int, tuple[int, tuple[Any, ...], str, int]]] = {}
        for task in self.table.refresh().scan().plan().tasks:
            file = task.data_file
            ids = pq.read_table(file.file_path.removeprefix("file://"), partitioning=None)["id"]
            for position, one in enumerate(ids.to_pylist()):
                place = (file.spec_id, tuple(file.partition), file.file_path, position)
                if one not in found or task.sequence_number >= found[one][0]:
                    found[one] = (task.sequence_number, place)
        return {one: place for one, (_, place) in found.items()}

    def partition_of(self, spec_id: int, row_id: int) -> tuple[Any, ...]:
        """By pyiceberg's transforms."""
        schema, row = self.table.schema(), {1: row_id, 2: self.rows[row_id][0]}
        return tuple(
            field.transform.transform(schema.find_field(field.source_id).field_type)(
                row[field.source_id]
            )
            for field in self.table.metadata.spec(spec_id).fields
        )

    def some(self, most: int = 4) -> list[int]:
        ids = sorted(self.rows)
        return sorted(self.random.sample(ids, min(len(ids), self.random.randint(1, most))))

    def write(
        self, content: int, columns: dict[str, tuple[int, pa.Array]], **more: Any
    ) -> DataFile:
        path = f"{self.table.location.rstrip('/')}/data/theirs-{uuid.uuid4()}.parquet"
        fields = [
            pa.field(name, array.type, metadata={b"PARQUET:field_id": str(field_id).encode()})
            for name, (field_id, array) in columns.items()
        ]
        arrays = [array for _, array in columns.values()]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(arrays, schema=pa.schema(fields)), sink)
        data = sink.getvalue().to_pybytes()
        self.table.storage.write(path, data)
        return DataFile(
            content=content,
            file_path=path,
            record_count=len(arrays[0]),
            file_size_in_bytes=len(data),
            **more,
        )

    def transaction(self) -> Transaction:
        return Transaction(self.table.catalog, self.table.identifier)


def arrow(rows: Rows) -> pa.Table:
    columns = [list(rows), [p for p, _ in rows.values()], [v for _, v in rows.values()]]
    return pa.table(columns, schema=SCHEMA)


def term_of(field: Any, table: lh.Table) -> str:
    column = table.schema().find_column_name(field.source_id)
    name, _, width = str(field.transform).rstrip("]").partition("[")
    return column if name == "identity" else f"{name}({width + ', ' if width else ''}{column})"


# What others do


def equality(world: World) -> None:
    """As Flink commits it: ids in a partition of any spec, their rows there or not."""
    places, specs = world.places(), world.table.metadata.specs()
    spec_id = world.random.choice(sorted(specs))
    partition = world.partition_of(spec_id, world.random.choice(sorted(world.rows)))
    ids = world.random.sample(range(world.count), 4)
    file = world.write(
        CONTENT_EQUALITY_DELETES, {"id": (1, pa.array(ids))},
        partition=partition, spec_id=spec_id, equality_ids=(1,),
    )  # fmt: skip
    world.transaction().row_delta(delete_files=[file]).commit()
    everywhere = is_unpartitioned(specs[spec_id])
    for one in set(ids) & world.rows.keys():
        if everywhere or places[one][:2] == (spec_id, partition):
            del world.rows[one]


def positions(world: World) -> None:
    """A file of positions for a partition that names no data file, as Spark writes it; v2 alone."""
    if world.version == 3:
        merge_on_read(world)
        return
    places = world.places()
    spec_id, partition, *_ = places[world.random.choice(sorted(world.rows))]
    there = [row for row in world.rows if places[row][:2] == (spec_id, partition)]
    ids = world.random.sample(there, min(len(there), 2))
    named = sorted(places[one][2:] for one in ids)
    columns = {
        "file_path": (2147483546, pa.array([path for path, _ in named])),
        "pos": (2147483545, pa.array([position for _, position in named])),
    }
    file = world.write(CONTENT_POSITION_DELETES, columns, partition=partition, spec_id=spec_id)
    world.transaction().row_delta(
        delete_files=[file], referenced_files=[path for path, _ in named]
    ).commit()
    for one in ids:
        del world.rows[one]


def deletes(mode: str) -> Callable[[World], None]:
    def delete(world: World) -> None:
        ids, table = world.some(), world.table.refresh()
        table.set_properties({"write.delete.mode": mode})
        table.delete(f"id in ({', '.join(map(str, ids))})")
        for one in ids:
            del world.rows[one]

    return delete


merge_on_read, copy_on_write = deletes("merge-on-read"), deletes("copy-on-write")


def upsert(world: World) -> None:
    """Rows may change their partition."""
    rows = {one: (world.random.randrange(2), world.rows[one][1] + 1) for one in world.some()}
    world.table.refresh().upsert(arrow(rows), keys=["id"])
    world.rows |= rows


def respec(world: World) -> None:
    """The spec changes, then rows go by equality."""
    world.respec(world.random.choice(SPECS))
    equality(world)


OTHERS = {
    "equality": equality,
    "positions": positions,
    "merge on read": merge_on_read,
    "copy on write": copy_on_write,
    "upsert": upsert,
    "spec and equality": respec,
}

# Rewrites: what is decided now, and committed later


def compacts(**options: Any) -> Callable[[World], Commit]:
    def prepare(world: World) -> Commit:
        table = world.table.refresh()
        chosen = lh.CompactionOptions(**{"min_input_files": 1, "rewrite_all": True, **options})
        plan = plan_compaction(table.catalog, table.identifier, chosen)
        return lambda: execute_compaction(table.catalog, plan)

    return prepare


def by_hand(newer: int | None) -> Callable[[World], Commit]:
    """Some files as others; `newer`: their sequence number is so much above the base's."""

    def prepare(world: World) -> Commit:
        table = world.table.refresh()
        version = table.version
        tasks = list(table.scan().plan().tasks)
        if not tasks:
            return list
        chosen = tasks if world.random.random() < 0.5 else tasks[: max(1, len(tasks) // 2)]
        paths = {task.data_file.file_path for task in chosen}
        rows = table.scan(select=["id", "p", "v", "_file"]).to_arrow()
        kept = [name in paths for name in rows["_file"].to_pylist()]
        added = table.write_files(rows.filter(pa.array(kept, pa.bool_())).drop_columns(["_file"]))
        head = table.current_snapshot().sequence_number
        number = None if newer is None else head + newer
        rewrite = Transaction(table.catalog, table.identifier, decided_on=version)
        removed = [task.data_file for task in chosen]
        rewrite.rewrite_files(removed, added, data_sequence_number=number)
        return rewrite.commit

    return prepare


def verb(change: Callable[[lh.Table, list[int], Rows], Rows]) -> Callable[[World], Commit]:
    """A verb by a handle from before; `change` says what it makes of rows."""

    def prepare(world: World) -> Commit:
        handle, known = world.lake.load_table(world.table.name), world.some() or [0]

        def commit() -> None:
            world.rows = change(handle, known, world.rows)

        return commit

    return prepare


def overwrites(table: lh.Table, known: list[int], rows: Rows) -> Rows:
    new = {1000: (1, 7)}
    table.overwrite(arrow(new), where="p = 0")
    return {one: row for one, row in rows.items() if row[0] != 0} | new


def updates(table: lh.Table, known: list[int], rows: Rows) -> Rows:
    table.update({"p": "1 - p"}, where=f"id <= {known[-1]}")
    return {one: (1 - p, v) if one <= known[-1] else (p, v) for one, (p, v) in rows.items()}


def upserts(table: lh.Table, known: list[int], rows: Rows) -> Rows:
    new = {one: (one % 2, 8) for one in known}
    table.upsert(arrow(new), keys=["id"])
    return rows | new


def merges(table: lh.Table, known: list[int], rows: Rows) -> Rows:
    source = arrow(dict.fromkeys([*known, 1001], (0, 9)))
    merge = table.merge(source, on="t.id = s.id").when_matched_delete(condition="t.p = 1")
    merge.when_matched_update({"v": "s.v"}).when_not_matched_insert_all().execute()
    there = {one: (0, 9) for one in known if one in rows and rows[one][0] == 0}
    lacking = {one: (0, 9) for one in [*known, 1001] if one not in rows}
    return {one: row for one, row in rows.items() if one not in known} | there | lacking


REWRITES = {
    "compact": compacts(),
    "compact, a group a commit": compacts(groups_per_commit=1),
    "compact one partition": compacts(where="p = 0"),
    "compact old specs alone": compacts(rewrite_all=False, min_input_files=100),
    "compact sorted": compacts(sort_by=("p", "id")),
    "compact along a curve": compacts(zorder_by=("p", "id")),
    "apply deletes": compacts(
        rewrite_all=False, rewrite_old_specs=False, delete_ratio_threshold=1e-9, min_input_files=100
    ),
    "by hand": by_hand(None),
    "by hand, newer by one": by_hand(1),
    "by hand, newer by two": by_hand(2),
    "manifests": verb(lambda table, known, rows: (table.rewrite_manifests(), rows)[1]),
    "overwrite": verb(overwrites),
    "update": verb(updates),
    "upsert": verb(upserts),
    "merge": verb(merges),
}
PAIRS = [(rewrite, other) for rewrite in REWRITES for other in OTHERS]


def history(lake: lh.Lake, seed: int, rewrite: str, other: str) -> str | None:
    """One table; what is wrong, or None."""
    random = Random(f"{seed} {rewrite} {other}")
    old, new = random.choice(MOVES)
    order = random.choice(ORDERS)
    world = World(lake, random, old)
    said = [f"{rewrite} beside {other}, seed {seed}, v{world.version}, {old} to {new}, {order}"]

    def wrong(after: str) -> str | None:
        table = world.table.refresh()
        rows = table.scan().to_arrow().to_pylist()
        got = sorted((row["id"], row["p"], row["v"]) for row in rows)
        right = sorted((one, *row) for one, row in world.rows.items())
        count = table.scan().count()
        said.append(after)
        if got == right and count == len(right):
            return None
        return f"{'; '.join(said)}: {got} ({count}) instead of {right}"

    def others(name: str) -> None:
        if world.rows:
            OTHERS[name](world)

    world.append()
    if order == "before" or random.random() < 0.3:
        others(random.choice(["equality", "positions", "merge on read", other]))
    world.respec(new)
    if random.random() < 0.5 or not world.rows:
        world.append()
    if order == "before":
        others(other)
    commit = REWRITES[rewrite](world)
    for _ in range({"between": 1, "between twice": 2}.get(order, 0)):
        others(other)
    if found := wrong("others"):
        return found
    refusals = (lh.InvalidInputError,) if rewrite.endswith("newer by two") else CONFLICTS
    try:
        commit()
    except (*CONFLICTS, *refusals):
        said.append("refused")
    if found := wrong("rewrite"):
        return found
    if order == "after":
        others(other)
        if found := wrong("others"):
            return found
    world.table.compact(lh.CompactionOptions(rewrite_all=True, min_input_files=1))
    return wrong("compaction of all")


@pytest.mark.parametrize("rewrite", REWRITES)
def test_no_row_comes_or_goes(tmp_path, rewrite):
    lake = lh.load_catalog(str(tmp_path))
    assert [wrong for other in OTHERS if (wrong := history(lake, 0, rewrite, other))] == []


def world_by_p(tmp_path: Path) -> World:
    world = World(lh.load_catalog(str(tmp_path)), Random(1), ("p",))
    world.append()
    return world


def test_equality_deletes_within_one_spec_stop_no_compaction(tmp_path):
    world = world_by_p(tmp_path)
    commit = REWRITES["compact"](world)
    equality(world)
    assert getattr(commit(), "stopped", "") is None


def test_a_replacement_newer_than_a_delete_beside_it_is_a_conflict(tmp_path):
    world = world_by_p(tmp_path)
    commit = REWRITES["by hand, newer by one"](world)
    equality(world)
    with pytest.raises(lh.ValidationConflictError, match="added deletes"):
        commit()


def test_a_replacement_newer_than_its_commit_is_refused(tmp_path):
    """Deletes that come later would not reach it."""
    commit = REWRITES["by hand, newer by two"](world_by_p(tmp_path))
    with pytest.raises(lh.InvalidInputError, match="later deletes would not reach them"):
        commit()


MUTANTS: dict[str, tuple[str, Any, tuple[str, ...]]] = {
    "equality deletes beside it are overlooked": (
        "lakehouse.transaction.operations.file_changes.reaches_moved_rows_alike",
        lambda removed, added, number: lambda entries: np.ones(len(entries), bool),
        ("compact", "compact sorted", "by hand"),
    ),
    "positions beside it are overlooked": (
        "lakehouse.transaction.operations.file_changes.no_new_deletes",
        lambda *arguments, **more: None,
        ("compact", "compact one partition"),
    ),
    "its files are newer than equality deletes beside it": (
        "lakehouse.transaction.operations.file_changes.FilesPlan",
        lambda **more: FilesPlan(**{**more, "data_sequence_number": None}),
        ("compact", "apply deletes"),
    ),
    "rows of the files that verbs rewrite": (
        "lakehouse.transaction.conflict_rules._applies",
        lambda entries, targets: np.zeros(len(entries), bool),
        ("update", "merge", "upsert", "overwrite"),
    ),
}


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planted_fault_is_found(tmp_path, mutant):
    place, planted, rewrites = MUTANTS[mutant]
    lake = lh.load_catalog(str(tmp_path))
    cases = [(seed, one, other) for seed in range(9) for one in rewrites for other in OTHERS]
    with mock.patch(place, planted):
        assert any(history(lake, seed, one, other) for seed, one, other in cases)
