"""The serial model: what each snapshot must hold, replayed one operation after the other, and the invariants of hazards.md."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field

import pyarrow.compute as pc

from lakehouse.catalog.protocol import TableVersion
from lakehouse.scan.load import load_entries, load_manifests
from lakehouse.spec.snapshot import Snapshot
from lakehouse.storage.protocol import Storage

OP = "sim.op"


class InvariantBrokenError(AssertionError):
    pass


@dataclass
class Intent:
    """What an operation meant to do, as its process knew when it decided.

    Attributes:
        adds: data file -> (partition, row ids).
        removes: data files replaced or removed.
        deletes: delete file -> (data file, positions).
        read: (partition, rows) that a serializable operation decided on; the serial state must agree.
        rewrite: rows must not change.
        target: snapshot a rollback points at.
    """

    op: str
    kind: str
    adds: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    removes: tuple[str, ...] = ()
    deletes: dict[str, tuple[str, frozenset[int]]] = field(default_factory=dict)
    read: tuple[str, frozenset[int]] | None = None
    target: int | None = None


@dataclass
class State:
    """A table in the serial model: live data files, and the rows deleted from each."""

    files: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    gone: dict[str, frozenset[int]] = field(default_factory=dict)

    def rows(self, partition: str | None = None) -> list[int]:
        return [
            row
            for path, (where, rows) in self.files.items()
            if partition in (None, where)
            for position, row in enumerate(rows)
            if position not in self.gone.get(path, frozenset())
        ]

    def apply(self, intent: Intent) -> State:
        files, gone = dict(self.files), dict(self.gone)
        serially = frozenset() if intent.read is None else frozenset(self.rows(intent.read[0]))
        # Rows that somebody else deleted meanwhile do not matter to a delete of the whole partition.
        if intent.read is not None and not (
            serially <= intent.read[1] if intent.kind == "delete" else serially == intent.read[1]
        ):
            raise InvariantBrokenError(
                f"I4: {intent.op} decided on rows {set(intent.read[1])}, serially they are {set(self.rows(intent.read[0]))}"
            )
        for path in intent.removes:
            if path not in files:
                raise InvariantBrokenError(f"I4: {intent.op} removed {path}, which is not live")
            files.pop(path)
            gone.pop(path, None)
        for path, (where, rows) in intent.adds.items():
            if path in files:
                raise InvariantBrokenError(f"I1: {intent.op} added {path} twice")
            files[path] = (where, rows)
        for target, positions in intent.deletes.values():
            if target not in files:
                raise InvariantBrokenError(
                    f"I9: {intent.op} deleted rows of {target}, which is not live: they stay visible elsewhere"
                )
            gone[target] = gone.get(target, frozenset()) | positions
        after = State(files, gone)
        if intent.kind == "compact" and sorted(after.rows()) != sorted(self.rows()):
            raise InvariantBrokenError(
                f"I9: {intent.op} changed the rows by {set(self.rows()) ^ set(after.rows())}"
            )
        return after


class Model:
    """Watches a table from outside, with a storage that has no faults."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.intents: dict[str, Intent] = {}
        self.acknowledged: dict[str, int] = {}
        self.refused: set[str] = set()
        self.properties: set[str] = set()
        self.tags: dict[str, int] = {}
        self._states: dict[int | None, State] = {None: State()}
        self._ops: dict[str, int] = {}
        self._last: TableVersion | None = None
        self._entries: dict[str, object] = {}
        self.known: set[int] = set()
        """Snapshots that a process has seen: they must not go away."""
        self._sizes: dict[str, int] = {}
        self.snapshots_seen = 0

    def observe(self, version: TableVersion) -> None:
        """Check a version against everything known before."""
        last, metadata = self._last, version.metadata
        if last is not None and version.metadata_location == last.metadata_location:
            return
        if last is not None and (
            metadata.last_sequence_number < last.metadata.last_sequence_number
            or metadata.last_updated_ms < last.metadata.last_updated_ms
        ):
            raise InvariantBrokenError(
                f"I5: {version.metadata_location} goes back behind {last.metadata_location}"
            )
        for snapshot_id in metadata.snapshots.ids():
            if snapshot_id not in self._states:
                self._replay(version, metadata.snapshot(snapshot_id))
        for name, ref in metadata.refs.items():
            if metadata.snapshot_or_none(ref.snapshot_id) is None:
                raise InvariantBrokenError(
                    f"I16: {name} names snapshot {ref.snapshot_id}, which is gone"
                )
        self._check_lineage(version)
        self._check_history(version)
        self._last = version
        self._census(version)

    def after_power_loss(self, version: TableVersion) -> None:
        """A version that nobody had loaded and whose writer was not told of it may be gone; anything else may not."""
        last = self._last
        if last is None or version.metadata_location == last.metadata_location:
            return
        for snapshot_id in set(last.metadata.snapshots.ids()) - set(
            version.metadata.snapshots.ids()
        ):
            op = next(name for name, found in self._ops.items() if found == snapshot_id)
            if op in self.acknowledged or snapshot_id in self.known:
                raise InvariantBrokenError(
                    f"I1: {op} was seen or acknowledged as {snapshot_id}, and went with the power"
                )
            del self._ops[op], self._states[snapshot_id]
        self._last = version

    def finish(self, version: TableVersion) -> None:
        """Check what must hold when everybody has stopped."""
        self.observe(version)
        for op, snapshot_id in self.acknowledged.items():
            if self._ops.get(op) != snapshot_id:
                raise InvariantBrokenError(
                    f"I1: {op} was acknowledged as {snapshot_id}, seen as {self._ops.get(op)}"
                )
        missing = [name for name in self.properties if name not in version.metadata.properties]
        if missing:
            raise InvariantBrokenError(f"I1: acknowledged properties are gone: {missing}")
        for name, snapshot_id in self.tags.items():
            ref = version.metadata.refs.get(name)
            if ref is None or ref.snapshot_id != snapshot_id:
                raise InvariantBrokenError(f"I16: tag {name} on {snapshot_id} is {ref}")

    def _replay(self, version: TableVersion, snapshot: Snapshot) -> None:
        op = snapshot.summary.get(OP, "")
        if op in self.refused:
            raise InvariantBrokenError(
                f"I2: {op} was refused for certain, and is visible as {snapshot.snapshot_id}"
            )
        if op in self._ops:
            raise InvariantBrokenError(
                f"I15: {op} is visible twice: {self._ops[op]} and {snapshot.snapshot_id}"
            )
        if op not in self.intents:
            raise InvariantBrokenError(
                f"I1: snapshot {snapshot.snapshot_id} belongs to nobody: {dict(snapshot.summary)}"
            )
        parent = snapshot.parent_snapshot_id
        if parent not in self._states:
            raise InvariantBrokenError(f"I5: parent {parent} of {op} was never seen")
        metadata = version.metadata
        before = None if parent is None else metadata.snapshot_or_none(parent)
        if before is not None and (
            snapshot.timestamp_ms < before.timestamp_ms
            or snapshot.sequence_number <= before.sequence_number
        ):
            raise InvariantBrokenError(f"I5: {op} is not after its parent")
        state = self._states[parent].apply(self.intents[op])
        self._states[snapshot.snapshot_id] = state
        self._ops[op] = snapshot.snapshot_id
        self.snapshots_seen += 1
        self._check_content(version, snapshot, state)

    def _check_content(self, version: TableVersion, snapshot: Snapshot, state: State) -> None:
        """I1, I4, I9: the files and rows of a snapshot are those of the serial model."""
        files: collections.Counter[str] = collections.Counter()
        sequence: dict[str, int] = {}
        vectors: list[tuple[str, int]] = []
        for manifest in load_manifests(self._storage, snapshot):
            for status, content, path, number in self._rows(version, manifest):
                if status == 2:
                    continue
                if content == 0:
                    files[path] += 1
                    sequence[path] = number
                else:
                    vectors.append((path, number))
        doubled = [path for path, count in files.items() if count > 1]
        if doubled or set(files) != set(state.files):
            raise InvariantBrokenError(
                f"I1: {snapshot.snapshot_id}: too many {set(files) - set(state.files)}, "
                f"too few {set(state.files) - set(files)}, twice {doubled}"
            )
        gone: dict[str, frozenset[int]] = {}
        known = {
            path: pair for intent in self.intents.values() for path, pair in intent.deletes.items()
        }
        for path, number in vectors:
            target, positions = known[path]
            if target in sequence and number >= sequence[target]:
                gone[target] = gone.get(target, frozenset()) | positions
        if {path: rows for path, rows in gone.items() if rows} != {
            path: rows for path, rows in state.gone.items() if rows
        }:
            raise InvariantBrokenError(
                f"I9: {snapshot.snapshot_id}: deleted rows are {gone}, serially {state.gone}"
            )
        expected = {
            "total-data-files": len(state.files),
            "total-records": sum(len(rows) for _, rows in state.files.values()),
        }
        found = {name: int(snapshot.summary.get(name, "-1")) for name in expected}
        if found != expected:
            raise InvariantBrokenError(
                f"summary of {snapshot.snapshot_id}: {found}, serially {expected}"
            )

    def _rows(self, version: TableVersion, manifest) -> list[tuple[int, int, str, int]]:
        key = (manifest.manifest_path, manifest.sequence_number)
        if key not in self._entries:
            table = load_entries(self._storage, manifest, version.metadata).table
            columns = [
                table[name].to_pylist()
                for name in ("status", "content", "file_path", "sequence_number")
            ]
            self._entries[key] = list(zip(*columns, strict=True))
            assert pc.count(table["status"]).as_py() == table.num_rows
        return self._entries[key]

    def _check_lineage(self, version: TableVersion) -> None:
        """I1, I4: `main` only moves on, unless a rollback says otherwise."""
        if self._last is None:
            return
        before, now = self._last.metadata.current_snapshot_id, version.metadata.current_snapshot_id
        if before == now or before is None:
            return
        if now is not None and any(
            one.snapshot_id == before for one in version.metadata.ancestors(now)
        ):
            return
        targets = {intent.target for intent in self.intents.values() if intent.kind == "rollback"}
        line = (
            {now} if now is None else {one.snapshot_id for one in version.metadata.ancestors(now)}
        )
        if not targets & line:
            raise InvariantBrokenError(f"I1: main went from {before} to {now}: commits were lost")

    def _check_history(self, version: TableVersion) -> None:
        for op, snapshot_id in self.acknowledged.items():
            if self._ops.get(op) != snapshot_id:
                raise InvariantBrokenError(
                    f"I1: {op} was acknowledged as {snapshot_id} but {version.metadata_location} does not have it"
                )

    def _census(self, version: TableVersion) -> None:
        """I6, I7: every reachable file exists with the size recorded."""
        for snapshot_id in version.metadata.snapshots.ids():
            snapshot = version.metadata.snapshot(snapshot_id)
            self._exists(snapshot.manifest_list, None)
            for manifest in load_manifests(self._storage, snapshot):
                self._exists(manifest.manifest_path, manifest.manifest_length)
                for status, _, path, _ in self._rows(version, manifest):
                    if status != 2:
                        self._exists(path, None)
        for entry in version.metadata.metadata_log:
            self._exists(entry.metadata_file, None)

    def _exists(self, location: str, size: int | None) -> None:
        if not self._storage.exists(location):
            raise InvariantBrokenError(f"I6: {location} is reachable and missing")
        found = self._storage.size(location)
        if found == 0 or (size is not None and found != size):
            raise InvariantBrokenError(f"I6: {location} has {found} bytes, recorded {size}")
