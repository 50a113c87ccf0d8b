"""The serial model: what each snapshot must hold, and the invariants of hazards.md.

Operations are replayed one after the other.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from dataclasses import dataclass, field

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.data.deletes.deletion_vector import decode_vector
from lakehouse.manifests.manifest_reader import ManifestReader, load_manifests
from lakehouse.spec.manifests.data_file import CONTENT_DATA, STATUS_DELETED, DataFile
from lakehouse.spec.metadata.commit_names import COMMIT_ID
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.storage.storage_protocol import Storage

OP = "sim.op"
DeleteKey = tuple[str, int | None]
Positions = dict[str, frozenset[int]]
Read = Callable[[TableMetadata, int, Storage], list[int]]


class InvariantBrokenError(AssertionError):
    pass


@dataclass
class Intent:
    """What an operation meant to do, as its process knew when it decided.

    Attributes:
        adds: data file -> (partition, row ids).
        removes: data files replaced or removed.
        deletes: delete file -> data file -> positions; under the name of the operation what it
            deletes by vectors that its commit writes.
        moved: data file -> positions of rows whose new versions `adds` has: nobody else may have
            deleted them.
        read: (partition, rows) that a serializable operation decided on; the serial state must
            agree.
        target: snapshot a rollback points at.
    """

    op: str
    kind: str
    adds: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    removes: tuple[str, ...] = ()
    deletes: dict[DeleteKey, Positions] = field(default_factory=dict)
    moved: Positions = field(default_factory=dict)
    read: tuple[str, frozenset[int]] | None = None
    target: int | None = None


@dataclass
class State:
    """A table in the serial model: live data files, and the rows deleted from each."""

    files: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    gone: Positions = field(default_factory=dict)

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
        # Rows that somebody else deleted meanwhile do not matter to a delete of the whole
        # partition.
        if intent.read is not None and not (
            serially <= intent.read[1] if intent.kind == "delete" else serially == intent.read[1]
        ):
            raise InvariantBrokenError(
                f"I4: {intent.op} decided on rows {set(intent.read[1])}, serially they are "
                f"{set(self.rows(intent.read[0]))}"
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
        deleted = (
            (writer, target, positions)
            for (writer, _), each in intent.deletes.items()
            for target, positions in each.items()
        )
        for writer, target, positions in deleted:
            if target not in files:
                raise InvariantBrokenError(
                    f"I9: {intent.op} deleted rows of {target}, which is not live: they stay "
                    "visible elsewhere"
                )
            before = gone.get(target, frozenset())
            if intent.moved.get(target, frozenset()) & before:
                raise InvariantBrokenError(
                    f"I4: {intent.op} moved rows of {target} that somebody else had deleted"
                )
            gone[target] = before | positions
            if writer == intent.op and len(gone[target]) == len(files[target][1]):
                del files[target], gone[target]  # its commit saw that no row is left
        after = State(files, gone)
        if intent.kind == "compact" and sorted(after.rows()) != sorted(self.rows()):
            raise InvariantBrokenError(
                f"I9: {intent.op} changed the rows by {set(self.rows()) ^ set(after.rows())}"
            )
        return after


class Model:
    """Watches one table from outside.

    Args:
        storage: without faults.
        elsewhere: what the metadata log may name though it is not there.
        read: the rows of a snapshot as a reader finds them; None where files hold none.
    """

    def __init__(self, storage: Storage, elsewhere: str, read: Read | None = None) -> None:
        self._storage, self._elsewhere, self._read = storage, elsewhere, read
        self.intents: dict[str, Intent] = {}
        self.acknowledged: dict[str, int] = {}
        self.refused: set[str] = set()
        self.properties: set[str] = set()
        self.tags: dict[str, int] = {}
        self.named: list[str] = []
        """Commit ids that processes chose."""
        self.taken: set[str] = set()
        """Files from outside that were ever part of the table."""
        self._states: dict[int | None, State] = {None: State()}
        self._ops: dict[str, set[int]] = {}
        self._last: TableVersion | None = None
        self._entries: dict[object, list[tuple[DataFile, int, int]]] = {}
        self.known: set[int] = set()
        """Snapshots that a process has seen: they must not go away."""
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
        self._check_history()
        self._last = version
        self._census(version)

    def after_power_loss(self, version: TableVersion) -> None:
        """Only a version that nobody loaded, and no writer was told of, may be gone."""
        last = self._last
        if last is None or version.metadata_location == last.metadata_location:
            return
        if _is_later(version, last):  # committed in the step in which the power went
            return
        for snapshot_id in set(last.metadata.snapshots.ids()) - set(
            version.metadata.snapshots.ids()
        ):
            op = next(name for name, found in self._ops.items() if snapshot_id in found)
            if self.acknowledged.get(op) == snapshot_id or snapshot_id in self.known:
                raise InvariantBrokenError(
                    f"I1: {op} was seen or acknowledged as {snapshot_id}, and went with the power"
                )
            self._ops[op].remove(snapshot_id)
            del self._states[snapshot_id]
        self._last = version

    def finish(self, version: TableVersion | None) -> None:
        """Check what must hold when everybody has stopped.

        Without a version the table was dropped: what was last seen of it must still be there.
        """
        if version is None:
            if self._last is None:
                return
            version = self._last
            self._census(version)
        else:
            self.observe(version)
        self._check_history()
        missing = [name for name in self.properties if name not in version.metadata.properties]
        if missing:
            raise InvariantBrokenError(f"I1: acknowledged properties are gone: {missing}")
        for name, snapshot_id in self.tags.items():
            ref = version.metadata.refs.get(name)
            if ref is None or ref.snapshot_id != snapshot_id:
                raise InvariantBrokenError(f"I16: tag {name} on {snapshot_id} is {ref}")

    def check_replayed(self, version: TableVersion, branch: str, snapshot: Snapshot) -> None:
        """I15: what a commit id is answered with is part of the branch."""
        ref = version.metadata.refs.get(branch) or version.metadata.refs.get("main")
        line = version.metadata.ancestors(None if ref is None else ref.snapshot_id)
        if snapshot.snapshot_id not in {one.snapshot_id for one in line}:
            raise InvariantBrokenError(
                f"I15: a repeated commit to {branch} was answered with {snapshot.snapshot_id}, "
                "which is not in the branch"
            )

    def _replay(self, version: TableVersion, snapshot: Snapshot) -> None:
        op = snapshot.summary.get(OP, "")
        if op in self.refused:
            raise InvariantBrokenError(
                f"I2: {op} was refused for certain, and is visible as {snapshot.snapshot_id}"
            )
        if op not in self.intents:
            raise InvariantBrokenError(
                f"I1: snapshot {snapshot.snapshot_id} belongs to nobody: {dict(snapshot.summary)}"
            )
        self._check_once(version, snapshot, op)
        parent = snapshot.parent_snapshot_id
        if parent not in self._states:
            raise InvariantBrokenError(f"I5: parent {parent} of {op} was never seen")
        before = None if parent is None else version.metadata.snapshot_or_none(parent)
        if before is not None and (
            snapshot.timestamp_ms < before.timestamp_ms
            or snapshot.sequence_number <= before.sequence_number
        ):
            raise InvariantBrokenError(f"I5: {op} is not after its parent")
        intent = self.intents[op]
        state = self._states[parent].apply(intent)
        self._states[snapshot.snapshot_id] = state
        self._ops.setdefault(op, set()).add(snapshot.snapshot_id)
        self.taken.update(path for path in intent.adds if "/outside/" in path)
        self.snapshots_seen += 1
        self._check_content(version, snapshot, state)
        self._check_rows(version, snapshot, state)

    def _check_once(self, version: TableVersion, snapshot: Snapshot, op: str) -> None:
        """I15: an operation, and a commit id, is there once in a history."""
        name = snapshot.summary.get(COMMIT_ID)
        for ancestor in version.metadata.ancestors(snapshot.snapshot_id):
            if ancestor.snapshot_id == snapshot.snapshot_id:
                continue
            if ancestor.summary.get(OP) == op or (name and ancestor.summary.get(COMMIT_ID) == name):
                raise InvariantBrokenError(
                    f"I15: {op} ({name}) is visible twice: {ancestor.snapshot_id} and "
                    f"{snapshot.snapshot_id}"
                )

    def _check_content(self, version: TableVersion, snapshot: Snapshot, state: State) -> None:
        """I1, I4, I9, I10: the files and rows of a snapshot are those of the serial model."""
        files: collections.Counter[str] = collections.Counter()
        sequence: dict[str, int] = {}
        deletes: list[tuple[DataFile, int]] = []
        for manifest in load_manifests(self._storage, snapshot):
            for file, status, number in self._rows(version, manifest):
                if status == STATUS_DELETED:
                    continue
                if file.content == CONTENT_DATA:
                    files[file.file_path] += 1
                    sequence[file.file_path] = number
                else:
                    deletes.append((file, number))
        doubled = [path for path, count in files.items() if count > 1]
        if doubled or set(files) != set(state.files):
            raise InvariantBrokenError(
                f"I1: {snapshot.snapshot_id}: too many {set(files) - set(state.files)}, "
                f"too few {set(state.files) - set(files)}, twice {doubled}"
            )
        gone = self._deleted(snapshot, sequence, deletes)
        if gone != {path: rows for path, rows in state.gone.items() if rows}:
            raise InvariantBrokenError(
                f"I9: {snapshot.snapshot_id}: deleted rows are {gone}, serially {state.gone}"
            )
        expected = {
            "total-data-files": len(state.files),
            "total-records": sum(len(rows) for _, rows in state.files.values()),
            "total-delete-files": len(deletes),
        }
        found = {name: int(snapshot.summary.get(name, "-1")) for name in expected}
        if found != expected:
            raise InvariantBrokenError(
                f"summary of {snapshot.snapshot_id}: {found}, serially {expected}"
            )

    def _check_rows(self, version: TableVersion, snapshot: Snapshot, state: State) -> None:
        """I17: rows that a reader finds are those of the serial model."""
        if self._read is None:
            return
        found = sorted(self._read(version.metadata, snapshot.snapshot_id, self._storage))
        if found != sorted(state.rows()):
            raise InvariantBrokenError(
                f"I17: {snapshot.snapshot_id} reads {found}, serially {sorted(state.rows())}"
            )

    def _deleted(
        self, snapshot: Snapshot, sequence: dict[str, int], deletes: list[tuple[DataFile, int]]
    ) -> Positions:
        """What the live deletes delete, as a reader finds it."""
        gone: Positions = {}
        vectors: set[str] = set()
        for file, number in deletes:
            for target, positions in self.positions_of(file).items():
                if file.is_deletion_vector and (target not in sequence or target in vectors):
                    raise InvariantBrokenError(
                        f"I10: {snapshot.snapshot_id}: the vector {file.file_path} of {target} is "
                        f"{'the second' if target in vectors else 'without its data file'}"
                    )
                if file.is_deletion_vector:
                    vectors.add(target)
                if target in sequence and number >= sequence[target]:
                    gone[target] = gone.get(target, frozenset()) | positions
        return gone

    def positions_of(self, delete: DataFile) -> Positions:
        """What a delete file deletes: as its writer told, or as it says where commits write it."""
        for intent in self.intents.values():
            told = intent.deletes.get((delete.file_path, delete.content_offset))
            if told is not None:
                return told
        if not delete.is_deletion_vector or delete.referenced_data_file is None:
            raise InvariantBrokenError(f"I1: nobody wrote {delete.file_path}")
        offset, length = delete.content_offset or 0, delete.content_size_in_bytes or 0
        blob = self._storage.read_range(delete.file_path, offset, length)
        found = decode_vector(blob, delete.file_path, delete.record_count)
        return {delete.referenced_data_file: frozenset(found.tolist())}

    def _rows(self, version: TableVersion, manifest) -> list[tuple[DataFile, int, int]]:
        """(file, status, sequence number) of each entry."""
        key = (manifest.manifest_path, manifest.sequence_number)
        if key not in self._entries:
            entries = (
                ManifestReader.of(self._storage, version.metadata)
                .entries(manifest)
                .to_manifest_entries()
            )
            self._entries[key] = [
                (entry.data_file, entry.status, entry.sequence_number or 0) for entry in entries
            ]
        return self._entries[key]

    def _check_lineage(self, version: TableVersion) -> None:
        """I1, I4: `main` only moves on, unless a rollback says otherwise."""
        if self._last is None:
            return
        before, now = self._last.metadata.current_snapshot_id, version.metadata.current_snapshot_id
        if before == now or before is None:
            return
        if now is not None and any(
            ancestor.snapshot_id == before for ancestor in version.metadata.ancestors(now)
        ):
            return
        targets = {intent.target for intent in self.intents.values() if intent.kind == "rollback"}
        line = (
            {now}
            if now is None
            else {ancestor.snapshot_id for ancestor in version.metadata.ancestors(now)}
        )
        if not targets & line:
            raise InvariantBrokenError(f"I1: main went from {before} to {now}: commits were lost")

    def _check_history(self) -> None:
        for op, snapshot_id in self.acknowledged.items():
            if snapshot_id not in self._ops.get(op, ()):
                raise InvariantBrokenError(
                    f"I1: {op} was acknowledged as {snapshot_id}, seen as {self._ops.get(op)}"
                )

    def _census(self, version: TableVersion) -> None:
        """I6, I7: every reachable file exists with the size recorded."""
        for snapshot_id in version.metadata.snapshots.ids():
            snapshot = version.metadata.snapshot(snapshot_id)
            self._exists(snapshot.manifest_list, None)
            for manifest in load_manifests(self._storage, snapshot):
                self._exists(manifest.manifest_path, manifest.manifest_length)
                for file, status, _ in self._rows(version, manifest):
                    if status != STATUS_DELETED:
                        self._exists(file.file_path, None)
        for entry in version.metadata.metadata_log:
            if entry.metadata_file != self._elsewhere:
                self._exists(entry.metadata_file, None)

    def _exists(self, location: str, size: int | None) -> None:
        if not self._storage.exists(location):
            raise InvariantBrokenError(f"I6: {location} is reachable and missing")
        found = self._storage.size(location)
        if found == 0 or (size is not None and found != size):
            raise InvariantBrokenError(f"I6: {location} has {found} bytes, recorded {size}")


def _is_later(version: TableVersion, before: TableVersion) -> bool:
    """Whether a version was made from another, which is among those that it names."""
    log = version.metadata.metadata_log
    return before.metadata_location in {entry.metadata_file for entry in log}
