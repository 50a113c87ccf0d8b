"""A simulated process: it loads, decides, commits, and tells the model what it was told."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.errors import (
    CommitStateUnknownError,
    LakehouseError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from lakehouse.expressions.filter_binding import bind
from lakehouse.maintenance.orphan_removal import OrphanOptions, remove_orphan_files
from lakehouse.maintenance.retention.snapshot_expiry import ExpiryOptions, expire_snapshots
from lakehouse.manifests.manifest_reader import ManifestReader, load_manifests
from lakehouse.row_changes.row_change import RowWriter
from lakehouse.row_changes.row_verbs import delete_rows
from lakehouse.row_changes.target_rows import TargetRows
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.manifests.data_file import (
    CONTENT_DATA,
    CONTENT_POSITION_DELETES,
    PATH_FIELD_ID,
    STATUS_DELETED,
    DataFile,
)
from lakehouse.transaction.transaction import Transaction
from tests.simulation.model import OP, DeleteKey, Intent, Model
from tests.simulation.real_rows import (
    has_no_struct,
    note_deletes,
    note_rewrite,
    nulls_of,
    write_request,
)
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

TABLE = Identifier.parse("raw.events")
PARTITIONS = ("a", "a", "b")
OUTSIDE = {
    f"/warehouse/outside/{n}.parquet": (PARTITIONS[n], (-2 * n - 1, -2 * n - 2)) for n in range(3)
}
"""Files that lie somewhere, for `add_files`: partition and rows. They stay, whatever tables do."""


@dataclass(frozen=True)
class Partition:
    """A partition as a process found it in its base.

    Attributes:
        name: its value.
        files: live data files.
        live: rows of each file, by position, that are not deleted.
        deletes: live delete files that are about each file.
    """

    name: str
    files: list[DataFile]
    live: dict[str, dict[int, int]]
    deletes: dict[str, list[DataFile]]

    @property
    def rows(self) -> frozenset[int]:
        return frozenset(row for rows in self.live.values() for row in rows.values())


def run_process(
    world: World,
    process: Process,
    rng: random.Random,
    operations: int,
    redo: Any,
    acts: type[Actor] | None = None,
) -> None:
    """Do the operation that a dead predecessor began, if it chose a commit id, then the rest."""
    catalog = world.catalog(process)
    environment = world.environment(process)
    actor = (acts or Actor)(world, process, catalog, environment, rng)
    if redo is not None:
        actor.again(*redo)
    for left in range(operations, 0, -1):
        process.progress = (left - 1, None)  # type: ignore[attr-defined]
        actor.do(rng.choice(world.plan.kinds))


class Actor:
    def __init__(
        self, world: World, process: Process, catalog, environment, rng: random.Random
    ) -> None:
        self.world, self.process, self.catalog, self.environment, self.rng = (
            world,
            process,
            catalog,
            environment,
            rng,
        )
        self.storage = catalog.storage("/warehouse")
        self.model: Model = next(iter(world.models.values()))

    def do(self, kind: str) -> None:
        op = f"{kind}-{self.environment.new_uuid().hex[:8]}"
        try:
            base = self._base()
            getattr(self, kind)(op, base)
        except CommitStateUnknownError as error:
            self.note(f"{op} unknown: {error.message[:80]}")
        except LakehouseError as error:
            self.note(f"{op} refused: {type(error).__name__} {error.message[:200]}")
            if op not in self.model.acknowledged:
                self.model.refused.add(op)

    def note(self, text: str) -> None:
        self.world.note(self.process, text)

    def again(self, op: str, intent: Intent, files: list[DataFile], table_uuid: str) -> None:
        """A retried task: the same commit id, the same files."""
        try:
            base = self._base()
            if base.metadata.table_uuid == table_uuid:
                self._commit(op, self._transaction(base).append(files), intent, commit_id=op)
        except CommitStateUnknownError as error:
            self.note(f"{op} again unknown: {error.message[:80]}")
        except LakehouseError as error:
            self.note(f"{op} again refused: {type(error).__name__} {error.message[:200]}")

    def append(self, op: str, base: TableVersion) -> None:
        files, intent = self._new_files(op, "append", base, self.rng.randint(1, 2))
        if self.rng.random() < 0.5:
            redo = (op, intent, files, base.metadata.table_uuid)
            self.process.progress = (self.process.progress[0], redo)  # type: ignore[attr-defined]
            self.model.named.append(op)
            self._commit(op, self._transaction(base).append(files), intent, commit_id=op)
            self.process.progress = (self.process.progress[0], None)  # type: ignore[attr-defined]
        else:
            self._commit(op, self._transaction(base).append(files), intent)

    def repeat(self, op: str, base: TableVersion) -> None:
        """The task that chose a commit id runs once more, with files of its own."""
        if not self.model.named:
            self.append(op, base)
            return
        commit_id = self.rng.choice(self.model.named)
        branch = self.rng.choice(("main", "main", "audit"))
        files, intent = self._new_files(op, "repeat", base, 1)
        transaction = self._transaction(base, branch).append(files)
        self._commit(op, transaction, intent, commit_id=commit_id)

    def add_files(self, op: str, base: TableVersion) -> None:
        """Take in a file from outside that the table never had, as far as the base tells."""
        free = sorted(OUTSIDE.keys() - self.model.taken)
        if not free:
            self.append(op, base)
            return
        path = self.rng.choice(free)
        where, rows = OUTSIDE[path]
        file = _data_file(path, where, len(rows), self.world.content(where, rows))
        intent = Intent(op, "add_files", adds={path: (where, rows)})
        self._commit(op, self._transaction(base).append([file], must_be_new=True), intent)

    def pick(self, op: str, base: TableVersion) -> None:
        """Apply onto main what some snapshot appended."""
        appended = [
            snapshot for snapshot in base.metadata.snapshots if snapshot.operation == "append"
        ]
        if not appended:
            self.append(op, base)
            return
        picked = self.rng.choice(appended)
        intent = Intent(op, "pick", adds=self.model.intents[picked.summary[OP]].adds)
        self._commit(op, self._transaction(base).cherry_pick(picked.snapshot_id), intent)

    def overwrite(self, op: str, base: TableVersion) -> None:
        found = self._read(base)
        new, intent = self._new_files(op, "overwrite", base, 1, found.name)
        intent.removes, intent.read = _paths(found.files), (found.name, found.rows)
        self._commit(op, self._transaction(base).overwrite(new, found.files), intent)

    def delete(self, op: str, base: TableVersion) -> None:
        found = self._read(base)
        if not found.files:
            self.append(op, base)
            return
        intent = Intent(op, "delete", removes=_paths(found.files), read=(found.name, found.rows))
        self._commit(op, self._transaction(base).delete_files(found.files), intent)

    def row_delta(self, op: str, base: TableVersion) -> None:
        """Delete a row of one file, or of several."""
        found = self._read(base)
        files = [file for file in found.files if found.live[file.file_path]]
        if not files:
            self.append(op, base)
            return
        targets = self.rng.sample(files, self.rng.randint(1, min(2, len(files))))
        intent = Intent(op, "row_delta")
        self._delete_rows(op, base, found, targets, intent, ())

    def delete_where(self, op: str, base: TableVersion) -> None:
        """Delete by a filter, as `table.delete` decides it; the rows are read."""
        found = self._read(base)
        rows = [row for one in found.live.values() for row in one.values()]
        if not any(map(has_no_struct, rows)):
            self.append(op, base)
            return
        mode = self.rng.choice(("copy-on-write", "merge-on-read"))
        where = bind(nulls_of(found.name), base.metadata.schema())
        properties = {**base.metadata.properties, "write.delete.mode": mode}
        metadata = replace(base.metadata, properties=properties)
        request = write_request(base.metadata, op)
        with RowWriter(metadata, request, self.world.storage, "delete") as writer:
            done = delete_rows(TargetRows.of(base, "main", self.world.storage), where, writer)
        intent = Intent(op, "delete_where")
        if mode == "merge-on-read":
            note_deletes(intent, found.live, done)
        else:
            note_rewrite(intent, found.name, found.live, done)
        transaction = self._transaction(base)
        if done:
            done.add_to(transaction)
        self._commit(op, transaction, intent)

    def update(self, op: str, base: TableVersion) -> None:
        """Move a row to a new file."""
        found = self._read(base)
        files = [file for file in found.files if found.live[file.file_path]]
        if not files:
            self.append(op, base)
            return
        new, intent = self._new_files(op, "update", base, 1, found.name)
        self._delete_rows(op, base, found, [self.rng.choice(files)], intent, new)

    def compact(self, op: str, base: TableVersion) -> None:
        found = self._read(base)
        if len(found.files) < 2:
            self.append(op, base)
            return
        rows = tuple(row for file in found.files for row in found.live[file.file_path].values())
        path = f"{base.metadata.location}/data/{op}.parquet"
        content = self.world.content(found.name, rows)
        self.storage.write_new({path: content})
        new = _data_file(path, found.name, len(rows), content)
        intent = Intent(op, "compact", adds={path: (found.name, rows)}, removes=_paths(found.files))
        self._commit(op, self._transaction(base).rewrite_files(found.files, [new]), intent)

    def manifests(self, op: str, base: TableVersion) -> None:
        self._commit(op, self._transaction(base).rewrite_manifests(), Intent(op, "manifests"))

    def expire(self, op: str, base: TableVersion) -> None:
        options = ExpiryOptions(
            older_than_ms=base.metadata.last_updated_ms + 10_000_000,
            retain_last=self.rng.randint(1, 3),
            attempts=2,
        )
        self.note(f"{op} begins")
        expire_snapshots(self.catalog, TABLE, options, environment=self.environment)
        self.note(f"{op} done")

    def orphans(self, op: str, base: TableVersion) -> None:
        """Remove what lay at the table's place before the table."""
        made = self.world.made_ms[base.metadata.table_uuid]
        options = OrphanOptions(older_than_ms=made, trash=False, force=True)
        done = remove_orphan_files(self.catalog, TABLE, options, environment=self.environment)
        self.note(f"{op} deleted {done.deleted_files}")

    def rollback(self, op: str, base: TableVersion) -> None:
        head = base.metadata.current_snapshot_id
        line = [ancestor.snapshot_id for ancestor in base.metadata.ancestors(head)]
        if len(line) < 2 or self.rng.random() < 0.5:
            return
        intent = Intent(op, "rollback", target=self.rng.choice(line[1:]))
        self.model.intents[op] = intent
        assert intent.target is not None
        self._transaction(base).rollback_to(intent.target).commit()
        self.note(f"{op} rolled back to {intent.target}")

    def tag(self, op: str, base: TableVersion) -> None:
        ids = base.metadata.snapshots.ids()
        if ids:
            target = self.rng.choice(ids)
            self._transaction(base).create_tag(op, target).commit()
            self.model.tags[op] = target
            self.note(f"{op} on {target}")
            self.world.look()

    def branch(self, op: str, base: TableVersion) -> None:
        files, intent = self._new_files(op, "branch", base, 1)
        self._commit(op, self._transaction(base, "audit").append(files), intent)

    def property(self, op: str, base: TableVersion) -> None:
        self._transaction(base).set_properties({op: "yes"}).commit()
        self.model.properties.add(op)

    def recreate(self, op: str, base: TableVersion) -> None:
        """Drop the table; another one gets its name."""
        self.world.may_be_gone = True
        self.catalog.drop(TABLE)
        self.note(f"{op} dropped {base.metadata.table_uuid}")
        self._create()

    def _base(self) -> TableVersion:
        """The table as it is now; whoever finds it dropped creates it."""
        try:
            base = self.catalog.load(TABLE)
        except NoSuchTableError:
            base = self._create()
        self.model = self.world.model_of(base)
        self.model.known.update(base.metadata.snapshots.ids())
        return base

    def _create(self) -> TableVersion:
        made = self.world.new_table()
        try:
            return self.catalog.create(TABLE, made)
        except TableAlreadyExistsError:
            return self.catalog.load(TABLE)

    def _transaction(self, base: TableVersion, branch: str = "main") -> Transaction:
        return Transaction(
            self.catalog, TABLE, decided_on=base, branch=branch, environment=self.environment
        )

    def _commit(
        self, op: str, transaction: Transaction, intent: Intent, commit_id: str | None = None
    ) -> None:
        self.model.intents[op] = intent
        committed = transaction.commit({OP: op}, commit_id=commit_id)
        if committed.snapshot is not None and committed.replayed:
            self.model.check_replayed(committed.version, transaction.branch, committed.snapshot)
        elif committed.snapshot is not None:
            self.model.acknowledged[op] = committed.snapshot.snapshot_id
        self.note(
            f"{op} committed {committed.snapshot and committed.snapshot.snapshot_id} "
            f"retries {committed.retries} replayed {committed.replayed}"
        )
        self.world.look()

    def _new_files(
        self, op: str, kind: str, base: TableVersion, count: int, partition: str | None = None
    ) -> tuple[list[DataFile], Intent]:
        files, adds, contents = [], {}, {}
        for number in range(count):
            where = partition or self.rng.choice(PARTITIONS)
            path = f"{base.metadata.location}/data/{op}-{number}.parquet"
            rows = tuple(self.rng.getrandbits(60) for _ in range(self.rng.randint(1, 3)))
            adds[path] = (where, rows)
            contents[path] = self.world.content(where, rows)
            files.append(_data_file(path, where, len(rows), contents[path]))
        self.storage.write_new(contents)
        return files, Intent(op, kind, adds=adds)

    def _delete_rows(
        self,
        op: str,
        base: TableVersion,
        found: Partition,
        targets: Sequence[DataFile],
        intent: Intent,
        data_files: Sequence[DataFile],
    ) -> None:
        """Commit deletes of a row of each file, in the form of the table."""
        chosen = {
            target.file_path: frozenset({self.rng.choice(sorted(found.live[target.file_path]))})
            for target in targets
        }
        if data_files:
            intent.moved = chosen
        superseded: list[DataFile] = []
        if base.metadata.format_version >= 3:
            path = f"{base.metadata.location}/data/{op}-deletes.puffin"
            files = [_vector(path, number, one) for number, one in enumerate(targets)]
            superseded = [
                old for target in targets for old in found.deletes.get(target.file_path, ())
            ]
        elif self.world.plan.granularity == "file":
            path = f"{base.metadata.location}/data/{op}-deletes"
            files = [_deletes(f"{path}-{number}", one) for number, one in enumerate(targets)]
        else:
            files = [_deletes(f"{base.metadata.location}/data/{op}-deletes", *targets)]
        self.storage.write_new({file.file_path: b"deletes" for file in files})
        for number, one in enumerate(files):
            about = targets if len(files) < len(targets) else [targets[number]]
            intent.deletes[_key(one)] = {
                target.file_path: chosen[target.file_path]
                | self._deleted(found.deletes.get(target.file_path, ()), target, superseded)
                for target in about
            }
        # a writer that does not say which files its deletes are about
        foreign = self.rng.random() < 0.5
        transaction = self._transaction(base).row_delta(
            data_files,
            files,
            removed_delete_files=superseded,
            referenced_files=() if foreign else _paths(targets),
            isolation="snapshot",
        )
        self._commit(op, transaction, intent)

    def _deleted(
        self, deletes: Sequence[DataFile], target: DataFile, superseded: Sequence[DataFile]
    ) -> frozenset[int]:
        """Positions of the vectors that a new one replaces."""
        positions: frozenset[int] = frozenset()
        for delete in deletes:
            if delete in superseded:
                positions |= self.model.positions_of(delete)[target.file_path]
        return positions

    def _read(self, base: TableVersion) -> Partition:
        """A partition of the base."""
        partition = self.rng.choice(PARTITIONS)
        snapshot = base.metadata.current_snapshot()
        files: list[DataFile] = []
        sequence: dict[str, int] = {}
        deletes: list[tuple[DataFile, int]] = []
        for manifest in load_manifests(self.storage, snapshot) if snapshot else []:
            for entry in (
                ManifestReader.of(self.storage, base.metadata)
                .entries(manifest)
                .to_manifest_entries()
            ):
                if entry.status == STATUS_DELETED or entry.data_file.partition != (partition,):
                    continue
                if entry.data_file.content == CONTENT_DATA:
                    files.append(entry.data_file)
                    sequence[entry.data_file.file_path] = entry.sequence_number or 0
                else:
                    deletes.append((entry.data_file, entry.sequence_number or 0))
        adds = {
            path: rows
            for intent in self.model.intents.values()
            for path, (_, rows) in intent.adds.items()
        }
        live = {file.file_path: dict(enumerate(adds[file.file_path])) for file in files}
        about: dict[str, list[DataFile]] = {}
        for delete, number in deletes:
            for target, positions in self.model.positions_of(delete).items():
                if target in sequence and number >= sequence[target]:
                    about.setdefault(target, []).append(delete)
                    for position in positions:
                        live[target].pop(position, None)
        return Partition(partition, files, live, about)


def _paths(files: Sequence[DataFile]) -> tuple[str, ...]:
    return tuple(file.file_path for file in files)


def _key(file: DataFile) -> DeleteKey:
    return file.file_path, file.content_offset


def _data_file(path: str, partition: str, rows: int, content: bytes) -> DataFile:
    return DataFile(
        file_path=path,
        partition=(partition,),
        record_count=rows,
        file_size_in_bytes=len(content),
    )


def _deletes(path: str, *targets: DataFile) -> DataFile:
    """A position delete file about one data file, or several, of which bounds are known."""
    paths = sorted(target.file_path.encode() for target in targets)
    return DataFile(
        content=CONTENT_POSITION_DELETES,
        file_path=f"{path}.parquet",
        partition=targets[0].partition,
        record_count=len(targets),
        file_size_in_bytes=7,
        referenced_data_file=targets[0].file_path if len(targets) == 1 else None,
        lower_bounds={PATH_FIELD_ID: paths[0]},
        upper_bounds={PATH_FIELD_ID: paths[-1]},
    )


def _vector(path: str, number: int, target: DataFile) -> DataFile:
    return DataFile(
        content=CONTENT_POSITION_DELETES,
        file_path=path,
        file_format="puffin",
        partition=target.partition,
        record_count=1,
        file_size_in_bytes=7,
        referenced_data_file=target.file_path,
        content_offset=4 + 40 * number,
        content_size_in_bytes=40,
    )
