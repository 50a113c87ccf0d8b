"""Writers that change rows by key, with the table's own verbs: deciding is simulated, too.

Where `Plan.merging` is set a row is a key, a partition and a value. What a verb does to them is a
function of what it finds, so the serial model applies it to the state before its snapshot, and a
reader must find the outcome: a history equals the serial one in the order of its commits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.data.reading.scan_reader import ReadRequest, read_table
from lakehouse.data.writing.data_file_writer import write_data_files
from lakehouse.manifests.manifest_reader import ManifestReader, load_manifests
from lakehouse.scan.planner import ScanRequest, plan_scan
from lakehouse.spec.manifests.data_file import CONTENT_DATA, STATUS_DELETED
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.schema.iceberg_types import METADATA_COLUMNS, ROW_ID, with_lineage
from lakehouse.storage.storage_protocol import Storage
from lakehouse.table.table import Table
from lakehouse.table.write_result import MergeResult, WriteResult
from tests.simulation.model import OP, Intent, InvariantBrokenError, Model
from tests.simulation.processes import PARTITIONS, Actor

if TYPE_CHECKING:
    from tests.simulation.world import World

ROWS = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "p", StringType(), required=False),
    NestedField(3, "v", LongType(), required=False),
)
KEYS = range(12)
Found = Mapping[int, tuple[str, int]]
"""Key -> partition and value."""
Change = Callable[[Found], Found]
Counts = tuple[int, int, int]
"""Rows inserted, updated, deleted."""
MODES = [f"write.{verb}.mode" for verb in ("delete", "update", "merge")]


@dataclass
class RowIntent(Intent):
    """What an operation does to the rows that it finds, and what it says to have done.

    Attributes:
        change: the rows after it.
        count: what it has to say of the rows before it; None where nobody asks.
    """

    change: Change = dict
    count: Callable[[Found], Counts] | None = None


@dataclass
class RowState:
    """A table in the serial model.

    Attributes:
        rows: by key.
        ids: `_row_id` of each key, as it was found.
    """

    rows: Found = field(default_factory=dict)
    ids: dict[int, int] = field(default_factory=dict)

    def apply(self, intent: RowIntent) -> RowState:
        return RowState(dict(intent.change(self.rows)), self.ids)


class RowModel(Model):
    """Watches a table whose rows are told apart by keys."""

    def __init__(self, storage: Storage, elsewhere: str) -> None:
        super().__init__(storage, elsewhere)
        self._states = {None: RowState()}  # type: ignore[dict-item]
        self._ids_seen: set[int] = set()
        self._counts: dict[int, Counts] = {}

    def check_counts(self, op: str, snapshot: Snapshot, said: Counts) -> None:
        """I4: what a writer says is what its operation did, when its turn came."""
        counted = self._counts.get(snapshot.snapshot_id, said)
        if counted != said:
            raise InvariantBrokenError(
                f"I4: {op} says that rows were inserted, updated, deleted: {said}, serially "
                f"{counted}"
            )

    def _check_content(self, version: TableVersion, snapshot: Snapshot, state: RowState) -> None:
        """I1, I4, I10, I17: rows of a reader are those of the serial model, with stable ids."""
        intent = self.intents[snapshot.summary[OP]]
        if intent.count is not None:
            before = self._states[snapshot.parent_snapshot_id]
            self._counts[snapshot.snapshot_id] = intent.count(before.rows)
        self._check_vectors(version, snapshot)
        found = _read(version.metadata, snapshot.snapshot_id, self._storage)
        rows = {one["id"]: (one["p"], one["v"]) for one in found}
        if len(rows) != len(found) or rows != state.rows:
            raise InvariantBrokenError(
                f"I4: {snapshot.summary[OP]} ({snapshot.snapshot_id}) reads {found}, serially "
                f"{state.rows}"
            )
        if version.metadata.format_version >= 3:
            self._check_ids(snapshot, state, {one["id"]: one[ROW_ID] for one in found})

    def _check_ids(self, snapshot: Snapshot, state: RowState, ids: dict[int, int]) -> None:
        """A row keeps its id while it is there; a new row has one that no row ever had."""
        fresh = [row_id for key, row_id in ids.items() if key not in state.ids]
        moved = {key for key, row_id in ids.items() if state.ids.get(key, row_id) != row_id}
        if moved or None in ids.values() or len(set(fresh) - self._ids_seen) != len(fresh):
            raise InvariantBrokenError(
                f"I1: {snapshot.snapshot_id}: row ids are {ids}, before they were {state.ids}, of "
                f"keys {moved}"
            )
        self._ids_seen.update(fresh)
        state.ids = ids

    def _check_vectors(self, version: TableVersion, snapshot: Snapshot) -> None:
        files: list[str] = []
        vectors: list[str | None] = []
        for manifest in load_manifests(self._storage, snapshot):
            entries = ManifestReader.of(self._storage, version.metadata).entries(manifest)
            for entry in entries.to_manifest_entries():
                file = entry.data_file
                if entry.status != STATUS_DELETED and file.content == CONTENT_DATA:
                    files.append(file.file_path)
                elif entry.status != STATUS_DELETED and file.is_deletion_vector:
                    vectors.append(file.named_file)
        if len(files) != len(set(files)) or len(vectors) != len(set(vectors) & set(files)):
            raise InvariantBrokenError(
                f"I10: {snapshot.snapshot_id}: vectors of {vectors}, data files {files}"
            )


class RowWriter(Actor):
    """A process that uses the verbs of a table."""

    def load(self, op: str, base: TableVersion) -> None:
        """Rows that others do not know of: keys that nobody has."""
        first = self.rng.getrandbits(40) + 100
        rows = {first + n: (self._partition(), n) for n in range(self.rng.randint(1, 4))}
        data = _source([(key, p, v) for key, (p, v) in rows.items()])
        self._write(op, base, lambda t: t.append(data, summary={OP: op}), lambda s: {**s, **rows})

    def upsert(self, op: str, base: TableVersion) -> None:
        source = {key: (self._partition(), self._value()) for key in self._keys()}
        data = _source([(key, p, v) for key, (p, v) in source.items()])
        self._write(
            op,
            base,
            lambda t: t.upsert(data, ["id"], summary={OP: op}),
            lambda rows: {**rows, **source},
            lambda rows: (len(source.keys() - rows), len(source.keys() & rows), 0),
        )

    def change(self, op: str, base: TableVersion) -> None:
        """An update by a filter; at times the rows move to another partition."""
        keys, by = self._keys(), self._value()
        partition = self.rng.choice((None, None, "a", "b"))
        values = {"v": f"v + {by}"} | ({"p": f"'{partition}'"} if partition else {})

        def change(rows: Found) -> Found:
            return {
                key: (partition or p, v + by) if key in keys else (p, v)
                for key, (p, v) in rows.items()
            }

        self._write(
            op,
            base,
            lambda t: t.update(values, _among(keys), summary={OP: op}),
            change,
            lambda rows: (0, len(keys & rows.keys()), 0),
        )

    def above(self, op: str, base: TableVersion) -> None:
        """An update by what others change: rows may pass the filter, or no longer, by them."""
        limit = self.rng.randint(0, 20)

        def change(rows: Found) -> Found:
            return {key: (p, v - limit if v > limit else v) for key, (p, v) in rows.items()}

        values = {"v": f"v - {limit}"}
        self._write(op, base, lambda t: t.update(values, f"v > {limit}", summary={OP: op}), change)

    def remove(self, op: str, base: TableVersion) -> None:
        keys = self._keys()

        def change(rows: Found) -> Found:
            return {key: row for key, row in rows.items() if key not in keys}

        self._write(op, base, lambda t: t.delete(_among(keys), summary={OP: op}), change)

    def merge(self, op: str, base: TableVersion) -> None:
        """All clauses. Rows that match and stay as they are keep others from being inserted."""
        source = {key: self._value() for key in self._keys()}
        where = self._partition()

        def change(rows: Found) -> Found:
            found = dict(rows)
            for key, by in source.items():
                if key not in rows:
                    found[key] = (where, by)
                elif by % 3 == 0:
                    del found[key]
                elif rows[key][1] > by:
                    found[key] = (rows[key][0], rows[key][1] + by)
            return found

        def count(rows: Found) -> Counts:
            deleted = {key for key, by in source.items() if key in rows and by % 3 == 0}
            updated = {key for key, by in source.items() if key in rows and rows[key][1] > by}
            return len(source.keys() - rows), len(updated - deleted), len(deleted)

        def write(table: Table) -> MergeResult:
            data = _source([(key, where, v) for key, v in source.items()])
            merge = table.merge(data, "t.id = s.id", summary={OP: op})
            merge = merge.when_matched_delete("s.v in (0, 3, 6, 9, 12, 15, 18)")
            merge = merge.when_matched_update({"v": "t.v + s.v"}, "t.v > s.v")
            return merge.when_not_matched_insert_all().execute()

        self._write(op, base, write, change, count)

    def compact(self, op: str, base: TableVersion) -> None:
        """All rows into one file a partition, as compaction commits it."""
        metadata, storage = base.metadata, self.world.storage
        head = metadata.current_snapshot_id
        tasks = [] if head is None else plan_scan(_scan(metadata, head), storage).tasks
        if len(tasks) < 2:
            return
        request = self._table(base).write_request()
        schema = with_lineage(metadata.schema(), metadata.format_version)
        rows = read_table(tasks, ReadRequest.of(metadata, schema), storage)
        added = write_data_files(rows, replace(request, schema=schema), storage)
        transaction = self._transaction(base)
        transaction.rewrite_files([task.data_file for task in tasks], added)
        self._commit(op, transaction, RowIntent(op, "compact"))

    def _write(
        self,
        op: str,
        base: TableVersion,
        write: Callable[[Table], MergeResult | WriteResult | None],
        change: Change,
        count: Callable[[Found], Counts] | None = None,
    ) -> None:
        self.model.intents[op] = RowIntent(op, "rows", change=change, count=count)
        table = self._table(base)
        for _ in range(self.rng.randint(0, 20)):
            self.process.pause()
        done = write(table)
        if done is not None and done.snapshot is not None:
            self.model.acknowledged[op] = done.snapshot.snapshot_id
            self.world.decided_again += done.decided_again
            self.world.retries += done.retries
        self.note(f"{op} done {done and done.snapshot_id}")
        self.world.look()
        if isinstance(done, MergeResult) and done.snapshot is not None:
            said = done.rows_inserted, done.rows_updated, done.rows_deleted
            self.model.check_counts(op, done.snapshot, said)
            self.world.rows_decided_again += done.rows_decided_again

    def _table(self, base: TableVersion) -> Table:
        return _TableOf(self.world, self.catalog, base, self.environment)

    def _keys(self) -> set[int]:
        return set(self.rng.sample(KEYS, self.rng.randint(1, 4)))

    def _partition(self) -> str:
        return self.rng.choice(PARTITIONS)

    def _value(self) -> int:
        return self.rng.randint(1, 19)


class _TableOf(Table):
    """Decides on files without faults, by threads of its own; commits as its process does."""

    def __init__(self, world: World, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self._world = world

    @property
    def storage(self) -> Storage:
        return self._world.storage


def _among(keys: set[int]) -> str:
    return f"id in ({', '.join(map(str, sorted(keys)))})"


def _source(rows: Sequence[tuple[int, str, int]]) -> pa.Table:
    found = [{"id": key, "p": p, "v": v} for key, p, v in rows]
    schema = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64())])
    return pa.Table.from_pylist(found, schema=schema)


def _scan(metadata: TableMetadata, snapshot_id: int) -> ScanRequest:
    return ScanRequest(
        metadata=metadata, snapshot_id=snapshot_id, current_schema=True, include_metrics=True
    )


def _read(metadata: TableMetadata, snapshot_id: int, storage: Storage) -> list[dict[str, int]]:
    lineage = [METADATA_COLUMNS[ROW_ID]] if metadata.format_version >= 3 else []
    read = ReadRequest.of(metadata, Schema(*ROWS.fields, *lineage))
    tasks = plan_scan(_scan(metadata, snapshot_id), storage).tasks
    return read_table(tasks, read, storage).to_pylist()
