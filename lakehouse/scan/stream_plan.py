"""What a stream of a table's rows reads next: positions in the history of a branch.

A snapshot is read in units of a file, or of the files of a partition where rows moved between
files. A position says which snapshot was read last and how many units of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from lakehouse.errors import InvalidInputError, NoSuchSnapshotError, UnsupportedFeatureError
from lakehouse.scan.changelog_plan import ChangelogStep, changelog_step
from lakehouse.scan.planner import ScanRequest, plan_scan
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.metadata.snapshot import OPERATION_APPEND, OPERATION_REPLACE, Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.storage.storage_protocol import Storage


class Position(NamedTuple):
    """How far a stream has read the history of a branch.

    Attributes:
        snapshot_id: the snapshot that was read last, or is being read; None: none.
        units: how many units of it were read; None: all.
        whole: whether all rows of the snapshot are read, rather than those that it changed,
            because what was before it has expired.
    """

    snapshot_id: int | None = None
    units: int | None = None
    whole: bool = False

    def to_json(self) -> str:
        """The same text for the same position."""
        return json.dumps(self._asdict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises InvalidInputError for what `to_json` does not make."""
        try:
            position = cls(**json.loads(text))
        except (ValueError, TypeError):
            position = cls(units=-1)
        numbers = (position.snapshot_id, position.units)
        if (
            all(number is None or isinstance(number, int) for number in numbers)
            and position.units != -1
        ):
            return position
        raise InvalidInputError(
            f"{text!r} is no position in a table: the checkpoint is of another source"
        )


class Limits(NamedTuple):
    """How much a batch reads at most, though at least one unit; None: no limit."""

    files: int | None = None
    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """Rows that came and went in one snapshot, of files that belong together.

    Attributes:
        snapshot: the snapshot.
        before: files whose rows went, with the deletes that applied before.
        after: files whose rows came, with the deletes that apply since.
    """

    snapshot: Snapshot
    before: tuple[FileScanTask, ...]
    after: tuple[FileScanTask, ...]

    def size(self) -> tuple[int, int, int]:
        """Files, rows and bytes that are read for it."""
        files = [task.data_file for task in (*self.before, *self.after)]
        rows = sum(file.record_count for file in files)
        return len(files), rows, sum(file.file_size_in_bytes for file in files)


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """The history of a branch as a stream reads it, in one version of the table.

    Attributes:
        name: of the table, for messages.
        metadata: the version.
        branch: the branch.
        storage: where manifests are.
        changes: whether deleted rows are read, too; else only appends have a meaning.
        skipped: without `changes`, operations whose snapshots are passed over.
        tolerates_loss: whether reading goes on where what was to be read next is gone.
    """

    name: str
    metadata: TableMetadata
    branch: str
    storage: Storage
    changes: bool
    skipped: frozenset[str] = frozenset()
    tolerates_loss: bool = False

    def head(self) -> Position:
        """Everything read. A branch that is not there has no rows yet."""
        ref = self.metadata.refs.get(self.branch)
        return Position() if ref is None else Position(ref.snapshot_id)

    def admitted(self, start: Position, limits: Limits, until: Position) -> Position:
        """Where a batch ends that begins at `start`.

        Raises:
            NoSuchSnapshotError: what was to be read next is gone.
            UnsupportedFeatureError: see `between`.
        """
        if limits == Limits() or start == until:
            return until
        reached = start
        total: tuple[int, ...] = (0, 0, 0)
        for snapshot, first, whole in self._after(start, until):
            units = self._units(snapshot, whole=whole)
            for number, unit in enumerate(units[first:], first + 1):
                sizes = zip(total, unit.size(), strict=True)
                grown = tuple(size + more for size, more in sizes)
                full = any(
                    most is not None and size > most
                    for size, most in zip(grown, limits, strict=True)
                )
                if full and total[0]:
                    return reached
                total = grown
                left = number < len(units)
                reached = Position(snapshot.snapshot_id, number if left else None, whole and left)
            if not units:
                reached = Position(snapshot.snapshot_id)
        return reached

    def between(self, start: Position, end: Position) -> Iterator[Unit]:
        """The units after one position up to another, oldest first.

        Raises:
            NoSuchSnapshotError: a snapshot between is gone.
            UnsupportedFeatureError: one that is no append, without `changes`.
        """
        for snapshot, first, whole in self._after(start, end):
            units = self._units(snapshot, whole=whole)
            last = end.units if snapshot.snapshot_id == end.snapshot_id else None
            yield from units[first:last]

    def _after(self, start: Position, end: Position) -> list[tuple[Snapshot, int, bool]]:
        """Snapshots to read, oldest first, each with the first unit, and whether it is `whole`."""
        if end.snapshot_id is None:
            return []
        if self.metadata.snapshot_or_none(end.snapshot_id) is None:
            if self.tolerates_loss:
                return []
            raise self._lost(end)
        newer: list[tuple[Snapshot, int, bool]] = []
        for snapshot in self.metadata.ancestors(end.snapshot_id):
            if snapshot.snapshot_id == start.snapshot_id:
                if start.units is not None:
                    newer.append((snapshot, start.units, start.whole))
                return newer[::-1]
            newer.append((snapshot, 0, False))
        oldest = newer[-1][0]
        if start.snapshot_id is None:
            newer[-1] = (oldest, 0, not oldest.is_first)
            return newer[::-1]
        if not self.tolerates_loss:
            raise self._lost(start)
        return self._after_loss(start, newer)

    def _after_loss(
        self, start: Position, newer: Sequence[tuple[Snapshot, int, bool]]
    ) -> list[tuple[Snapshot, int, bool]]:
        """What follows the newest snapshot that both have, else the oldest that is left."""
        there = self.metadata.snapshot_or_none(start.snapshot_id or 0)
        common = (
            set()
            if there is None
            else {ancestor.snapshot_id for ancestor in self.metadata.ancestors(there.snapshot_id)}
        )
        kept: list[tuple[Snapshot, int, bool]] = []
        for snapshot in newer:
            if snapshot[0].snapshot_id in common:
                break
            kept.append(snapshot)
        else:
            if not newer[-1][0].is_first:
                kept.pop()
        return kept[::-1]

    def _lost(self, position: Position) -> NoSuchSnapshotError:
        snapshot_id = position.snapshot_id
        gone = self.metadata.snapshot_or_none(snapshot_id or 0) is None
        what = "has expired" if gone else f"is no longer part of branch {self.branch}"
        return NoSuchSnapshotError(
            f"{self.name}: snapshot {snapshot_id}, up to which the stream has read, {what}, so "
            "what came next cannot be known. Start again with another checkpoint and a table to "
            "match, or set failOnDataLoss to false to go on with what is left. Snapshots expire "
            "later with history.expire.max-snapshot-age-ms, or while a tag names them.",
            snapshot_id=snapshot_id,
        )

    def _units(self, snapshot: Snapshot, *, whole: bool) -> list[Unit]:
        if whole:
            request = ScanRequest(metadata=self.metadata, snapshot_id=snapshot.snapshot_id)
            return _each(snapshot, (), tuple(plan_scan(request, self.storage).tasks))
        if snapshot.operation == OPERATION_REPLACE:
            return []
        if not self.changes and snapshot.operation != OPERATION_APPEND:
            if snapshot.operation in self.skipped:
                return []
            raise UnsupportedFeatureError(
                f"{self.name}: snapshot {snapshot.snapshot_id} is no append but "
                f"{snapshot.operation}: rows of it went. Read {self.name}.changes, which has them, "
                f"or set streaming-skip-{snapshot.operation}-snapshots to true to pass over it.",
                table=self.name,
            )
        step = changelog_step(0, snapshot, self.metadata, self.storage)
        if not self.changes:
            return _each(snapshot, (), step.after)
        if step.before and step.after:
            return _by_partition(step)
        return _each(snapshot, step.before, step.after)


def _each(
    snapshot: Snapshot, before: Sequence[FileScanTask], after: Sequence[FileScanTask]
) -> list[Unit]:
    """A unit for each file, in an order that is the same each time."""
    gone = [Unit(snapshot, (file,), ()) for file in sorted(before, key=_path)]
    return gone + [Unit(snapshot, (), (file,)) for file in sorted(after, key=_path)]


def _by_partition(step: ChangelogStep) -> list[Unit]:
    """A unit for each partition: a row that another file has now stays within it.

    One for all where files are of several specs.
    """
    tasks = (*step.before, *step.after)
    if len({task.data_file.spec_id for task in tasks}) > 1:
        return [Unit(step.snapshot, step.before, step.after)]
    parts: dict[object, tuple[list[FileScanTask], list[FileScanTask]]] = {}
    for side, files in enumerate((step.before, step.after)):
        for file in files:
            parts.setdefault(file.data_file.partition_key, ([], []))[side].append(file)
    sides = sorted(
        parts.values(), key=lambda part: min(_path(file) for file in (*part[0], *part[1]))
    )
    return [Unit(step.snapshot, tuple(before), tuple(after)) for before, after in sides]


def _path(task: FileScanTask) -> str:
    return task.data_file.file_path
