"""Streams of a table's changes replayed into a second table, over random histories.

The oracle: a scan of the first table at every snapshot where a batch ends. A table without keys is
replayed row by row; one whose rows have keys as `docs/streams.md` says, by key and ordinal. A batch
comes again now and then, as after a kill, and changes nothing then. The histories of a round share
their beginning and some of what follows it.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import lakehouse as lh
from lakehouse.data.reading.changelog_rows import DELETE, read_changelog
from lakehouse.expressions.bound_filter import TRUE
from lakehouse.row_changes.row_change import RowChange, RowWriter
from lakehouse.row_changes.row_verbs import replace_rows
from lakehouse.row_changes.target_rows import TargetRows
from lakehouse.scan.changelog_plan import ChangelogStep
from lakehouse.scan.planner import ScanRequest
from lakehouse.scan.stream_plan import Limits, Position, StreamPlan
from lakehouse.table import Table
from lakehouse.table.row_write import RowWrite
from lakehouse.table.scan import read_request
from tests.hostile.foreign_mutants import Mutant
from tests.hostile.forked_lakes import ForkedLake

SCHEMA = pa.schema({"id": pa.int64(), "k": pa.int32(), "s": pa.string(), "x": pa.float64()})
_NAMES = SCHEMA.names
_ORDER = ["ordinal", "came"]
Rows = Counter[tuple[str, ...]]
STEPS = [(8,), (1, 8), (2, 4), (2, 2, 2), (1, 1, 2, 2, 2)]
"""Eight histories: in how many ways one goes on after each step."""


class Replayed:
    """A table, a stream of its changes, and the table that it makes."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self.rng, self.serial, self.batches = rng, 0, 0
        self.files = ForkedLake(folder)
        self.keyed, self.ids = rng.random() < 0.5, rng.choice([3, 12])
        modes = rng.choice(["copy-on-write", "merge-on-read"])
        properties = {f"write.{one}.mode": modes for one in ("delete", "update", "merge")}
        properties["format-version"] = rng.choice(["2", "3"])
        by = rng.choice([[], ["k"], ["bucket(2, id)"], ["truncate(1, s)"]])
        self.table = self.files.lake.create_table(
            "raw.t", SCHEMA, partition_by=by, properties=properties
        )
        self.schema = self.table.schema()
        more = [("ordinal", pa.int64()), ("came", pa.int32())] if self.keyed else []
        self.copy = self.files.lake.create_table(
            "raw.copy", pa.schema([*SCHEMA, *more]), partition_by=by, properties=properties
        )
        some: list[int | None] = [None, None, 1, 3]
        self.limits = Limits(rng.choice(some), rng.choice(some), rng.choice([None, None, 1500]))
        self.position = Position()
        self.done: list[str] = []

    def forked(self, chance: random.Random) -> Replayed:
        """One whose history goes on in another way."""
        other = copy.copy(self)
        other.rng, other.files, other.done = chance, self.files.forked(), list(self.done)
        other.table, other.copy = map(other.files.lake.load_table, ("raw.t", "raw.copy"))
        return other

    def rows(self, most: int) -> pa.Table:
        rng = self.rng
        ids = [rng.randrange(self.ids) for _ in range(rng.randint(1, most))]
        if self.keyed:
            ids = list(dict.fromkeys(ids))
        # of few values many rows are equal
        most_k, texts, floats = (2, "ab", [0.5]) if self.ids > 3 else (1, "a", [])
        made = [
            {
                "id": one, "k": rng.choice([None, *range(most_k)]), "s": rng.choice([*texts, None]),
                "x": rng.choice([float("nan"), *floats]),
            }
            for one in ids
        ]  # fmt: skip
        names = [field.name for field in self.table.schema().fields]
        return pa.Table.from_pylist(made, SCHEMA).rename_columns(
            [name if name in names else f"{name}2" for name in _NAMES]
        )

    def condition(self) -> str:
        return self.rng.choice([f"id = {self.rng.randrange(12)}", "id > 8", "k = 1", "k IS NULL"])

    def append(self) -> None:
        """Rows, of keys that are not there."""
        rows = self.rows(6)
        if self.keyed:
            there = self.table.scan(select=["id"]).to_arrow()["id"]
            rows = rows.filter(pc.invert(pc.is_in(rows["id"], there.combine_chunks())))
        self.table.append(rows)

    def delete(self) -> None:
        """Of a condition."""
        self.table.delete(self.condition())

    def update(self) -> None:
        """Also the column that partitions it."""
        to = self.rng.choice(["0", "1", "NULL"])
        self.table.update({"k": f"cast({to} AS int)"}, where=self.condition())

    def overwrite(self) -> None:
        """Keys, by others of theirs."""
        rows = self.rows(3)
        ids = ", ".join(map(str, rows["id"].to_pylist()))
        self.table.overwrite(rows, f"id IN ({ids})")

    def upsert(self) -> None:
        """By key."""
        rows = self.rows(4)
        ids = rows["id"].to_pylist()
        self.table.upsert(rows.take([ids.index(one) for one in dict.fromkeys(ids)]), ["id"])

    def compact(self) -> None:
        """Files move, rows do not."""
        own = self.rng.random() < 0.3
        table = self.copy if own else self.table
        table.refresh().compact(lh.CompactionOptions(rewrite_all=True))
        table.rewrite_manifests()

    def evolve(self) -> None:
        """Columns come, and are renamed; those of the stream are known by their ids."""
        self.serial += 1
        with self.table.update_schema() as change:
            if self.rng.random() < 0.5 or self.serial > 1:
                change.add_column(f"new{self.serial}", "int")
            else:
                change.rename_column("x", "x2")

    def expire(self) -> None:
        """What was read, or before anything was."""
        if self.position in (Position(), self.plan().head()):
            self.table.expire_snapshots(
                lh.ExpiryOptions(older_than_ms=2**50, retain_last=1, remove_files=False)
            )

    def plan(self) -> StreamPlan:
        table = self.table.refresh()
        return StreamPlan("raw.t", table.metadata, "main", table.storage, changes=True)

    def changes(self, end: Position) -> pa.Table:
        """Of the batch that ends there, under the columns of the beginning."""
        plan = self.plan()
        steps = [
            ChangelogStep(one.snapshot.sequence_number, one.snapshot, one.before, one.after)
            for one in plan.between(self.position, end)
        ]
        request = read_request(
            ScanRequest(metadata=plan.metadata, snapshot_id=end.snapshot_id), self.schema
        )
        return read_changelog(steps, request, plan.storage, net=not self.keyed)

    def apply(self, changes: pa.Table) -> None:
        """One commit, which has the name of its batch."""
        came = pc.invert(pc.equal(changes["_change_type"], DELETE))
        rows, name = changes.select(_NAMES), lh.StreamBatch("copy", self.batches)
        if self.keyed:
            rows = rows.append_column("ordinal", changes["_change_ordinal"].cast(pa.int64()))
            rows = rows.append_column("came", came.cast(pa.int32()))
            self.copy.refresh().apply_changes(rows, ["id"], _ORDER, "came = 0", commit_id=name)
            return
        new, old = rows.filter(came), rows.filter(pc.invert(came))

        def decide(target: TargetRows, writer: RowWriter) -> RowChange:
            keys = old.select(["id"]).group_by("id").aggregate([])
            return replace_rows(target, TRUE, keys, lambda _: new, writer, old)

        with RowWrite(self.copy.refresh(), "main", {}, name) as write:
            if write.replayed() is None:
                write.change_rows(decide, "overwrite", always=True)

    def read(self) -> None:
        """Batches up to the head. Raises AssertionError."""
        until = self.plan().head()
        while self.position != until:
            end = self.plan().admitted(self.position, self.limits, until)
            assert end != self.position, "a batch without an end"
            changes = self.changes(Position.from_json(end.to_json()))
            for _ in range(self.rng.choice([1, 1, 2])):
                self.apply(changes)
            self.position, self.batches = end, self.batches + 1
            if end.units is None:
                there, found = self.held(self.table, end.snapshot_id), self.held(self.copy)
                assert there == found, f"{found - there} too many, {there - found} lost"

    def held(self, table: Table, snapshot_id: int | None = None) -> Rows:
        """The rows of a version, as a multiset."""
        scan = table.refresh().scan(snapshot_id=snapshot_id)
        rows = scan.to_arrow()
        names = [name if name in rows.column_names else f"{name}2" for name in _NAMES]
        return Counter(tuple(map(repr, row.values())) for row in rows.select(names).to_pylist())

    def step(self, verbs: int, *, ends: bool) -> None:
        """So much happens. What has not been read is read at the end."""
        known = [
            self.append, self.delete, self.update, self.overwrite, self.upsert, self.compact,
            self.evolve, self.expire, self.read,
        ]  # fmt: skip
        chosen = self.rng.choices(known, [4, 2, 2, 2, 3, 2, 0.7, 0.7, 3], k=verbs)
        try:
            for verb in [*chosen, *([self.read] if ends else [])]:
                self.done.append(verb.__name__)
                verb()
        except Exception as error:
            how = f"{'by key' if self.keyed else 'by row'}, {self.limits}, {self.done}"
            raise AssertionError(f"{how}: {error!r}") from error


def round_of(seed: int, folder: Path, *_: Any) -> None:
    """Histories, and what replays them. Raises AssertionError."""
    rng = random.Random(seed)
    world = Replayed(rng, folder)
    world.append()
    _grow(world, rng.choice(STEPS))


def _grow(world: Replayed, widths: Sequence[int]) -> None:
    for _ in range(widths[0] if widths else 0):
        other, leaf = world.forked(random.Random(world.rng.random())), len(widths) == 1
        other.step(other.rng.randint(1, 3), ends=leaf or other.rng.random() < 0.5)
        _grow(other, widths[1:])


_PLAN, _ROWS = "scan.stream_plan:StreamPlan", "data.reading.changelog_rows"
MUTANTS = [
    Mutant(
        "34: a batch begins again with the first file of its snapshot",
        f"{_PLAN}._after",
        "newer.append((snapshot, start.units, start.whole))",
        "newer.append((snapshot, 0, start.whole))",
    ),
    Mutant(
        "34: a batch reads the files of its last snapshot to the end",
        f"{_PLAN}.between",
        "last = end.units if snapshot.snapshot_id == end.snapshot_id else None",
        "last = None",
    ),
    Mutant(
        "34: a row that was there twice has not changed when it goes once",
        "data.conversion.row_codes:without_common",
        "surplus(of_left, of_right)",
        "~np.isin(of_left, of_right)",
        seed=24,
    ),
    Mutant(
        "34: of rows that came and went within a batch one is left",
        f"{_ROWS}:_lasting",
        "< more[codes[inserted]]",
        "<= more[codes[inserted]]",
    ),
    Mutant(
        "34: a stream that begins late has the rows of its first snapshot alone",
        f"{_PLAN}._after",
        "not oldest.is_first)",
        "False)",
    ),
]
