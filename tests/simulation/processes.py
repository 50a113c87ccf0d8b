"""What a simulated process does: load the table, decide, commit; and tell the model what it meant and what it was told."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from lakehouse.catalog.protocol import TableVersion
from lakehouse.errors import CommitStateUnknownError, LakehouseError, StorageError
from lakehouse.maintenance.expiry import ExpiryOptions, expire_snapshots
from lakehouse.scan.load import load_entries, load_manifests
from lakehouse.spec.data_file import CONTENT_POSITION_DELETES, DataFile
from lakehouse.spec.identifier import Identifier
from lakehouse.transaction.transaction import Transaction
from tests.simulation.model import OP, Intent
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

TABLE = Identifier.parse("raw.events")
PARTITIONS = ("a", "a", "b")


def run_process(
    world: World, process: Process, rng: random.Random, operations: int, redo: Any
) -> None:
    """Do the operation that a dead predecessor began, if it chose a commit id, then the rest."""
    catalog = world.catalog(process)
    environment = world.environment(process)
    actor = Actor(world, process, catalog, environment, rng)
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

    def do(self, kind: str) -> None:
        op = f"{kind}-{self.environment.new_uuid().hex[:8]}"
        try:
            base = self.catalog.load(TABLE)
            self.world.model.known.update(base.metadata.snapshots.ids())
            getattr(self, kind)(op, base)
        except CommitStateUnknownError as error:
            self.world.note(self.process, f"{op} unknown: {error.message[:80]}")
        except LakehouseError as error:
            self.world.note(
                self.process, f"{op} refused: {type(error).__name__} {error.message[:200]}"
            )
            if op not in self.world.model.acknowledged:
                self.world.model.refused.add(op)

    def again(self, op: str, intent: Intent, files: list[DataFile]) -> None:
        """A retried task: the same commit id, the same files."""
        try:
            self._commit(
                op,
                Transaction(self.catalog, TABLE, environment=self.environment).append(files),
                intent,
                commit_id=op,
            )
        except CommitStateUnknownError:
            pass
        except LakehouseError as error:
            self.world.note(
                self.process, f"{op} again refused: {type(error).__name__} {error.message[:200]}"
            )

    def append(self, op: str, base: TableVersion) -> None:
        files, intent = self._new_files(op, "append", base, self.rng.randint(1, 2))
        if self.rng.random() < 0.5:
            self.process.progress = (self.process.progress[0], (op, intent, files))  # type: ignore[attr-defined]
            self._commit(op, self._transaction(base).append(files), intent, commit_id=op)
            self.process.progress = (self.process.progress[0], None)  # type: ignore[attr-defined]
        else:
            self._commit(op, self._transaction(base).append(files), intent)

    def overwrite(self, op: str, base: TableVersion) -> None:
        partition, old, rows, _ = self._read(base)
        new, intent = self._new_files(op, "overwrite", base, 1, partition)
        intent.removes, intent.read = tuple(file.file_path for file in old), (partition, rows)
        self._commit(op, self._transaction(base).overwrite(new, old), intent)

    def delete(self, op: str, base: TableVersion) -> None:
        partition, old, rows, _ = self._read(base)
        if not old:
            self.append(op, base)
            return
        intent = Intent(
            op, "delete", removes=tuple(file.file_path for file in old), read=(partition, rows)
        )
        self._commit(op, self._transaction(base).delete_files(old), intent)

    def row_delta(self, op: str, base: TableVersion) -> None:
        partition, old, _, _ = self._read(base)
        if not old:
            self.append(op, base)
            return
        target = self.rng.choice(old)
        positions = frozenset({self.rng.randrange(target.record_count)})
        path = f"{base.metadata.location}/data/{op}-deletes.parquet"
        self.storage.write_new({path: b"deletes"})
        deletes = DataFile(
            content=CONTENT_POSITION_DELETES, file_path=path, partition=(partition,), record_count=1, file_size_in_bytes=7,
            referenced_data_file=target.file_path,
        )  # fmt: skip
        intent = Intent(op, "row_delta", deletes={path: (target.file_path, positions)})
        transaction = self._transaction(base).row_delta(
            delete_files=[deletes], isolation="snapshot"
        )
        self._commit(op, transaction, intent)

    def compact(self, op: str, base: TableVersion) -> None:
        partition, old, _, live = self._read(base)
        if len(old) < 2:
            self.append(op, base)
            return
        rows = tuple(row for file in old for row in live[file.file_path])
        path = f"{base.metadata.location}/data/{op}.parquet"
        self.storage.write_new({path: b"compact"})
        new = DataFile(
            file_path=path, partition=(partition,), record_count=len(rows), file_size_in_bytes=7
        )
        intent = Intent(
            op,
            "compact",
            adds={path: (partition, rows)},
            removes=tuple(file.file_path for file in old),
        )
        self._commit(op, self._transaction(base).rewrite_files(old, [new]), intent)

    def manifests(self, op: str, base: TableVersion) -> None:
        self._commit(op, self._transaction(base).rewrite_manifests(), Intent(op, "manifests"))

    def expire(self, op: str, base: TableVersion) -> None:
        options = ExpiryOptions(
            older_than_ms=base.metadata.last_updated_ms + 10_000_000,
            retain_last=self.rng.randint(1, 3),
            attempts=2,
        )
        self.world.note(self.process, f"{op} begins")
        expire_snapshots(self.catalog, TABLE, options, environment=self.environment)
        self.world.note(self.process, f"{op} done")

    def rollback(self, op: str, base: TableVersion) -> None:
        head = base.metadata.current_snapshot_id
        line = [one.snapshot_id for one in base.metadata.ancestors(head)]
        if len(line) < 2 or self.rng.random() < 0.5:
            return
        intent = Intent(op, "rollback", target=self.rng.choice(line[1:]))
        self.world.model.intents[op] = intent
        assert intent.target is not None
        self._transaction(base).rollback_to(intent.target).commit()
        self.world.note(self.process, f"{op} rolled back to {intent.target}")

    def tag(self, op: str, base: TableVersion) -> None:
        ids = base.metadata.snapshots.ids()
        if ids:
            target = self.rng.choice(ids)
            self._transaction(base).create_tag(op, target).commit()
            self.world.model.tags[op] = target
            self.world.note(self.process, f"{op} on {target}")
            self.world.look()

    def branch(self, op: str, base: TableVersion) -> None:
        files, intent = self._new_files(op, "branch", base, 1)
        transaction = Transaction(
            self.catalog, TABLE, base=base, branch="audit", environment=self.environment
        ).append(files)
        self._commit(op, transaction, intent)

    def property(self, op: str, base: TableVersion) -> None:
        self._transaction(base).set_properties({op: "yes"}).commit()
        self.world.model.properties.add(op)

    def _transaction(self, base: TableVersion) -> Transaction:
        return Transaction(self.catalog, TABLE, base=base, environment=self.environment)

    def _commit(
        self, op: str, transaction: Transaction, intent: Intent, commit_id: str | None = None
    ) -> None:
        self.world.model.intents[op] = intent
        committed = transaction.commit({OP: op}, commit_id=commit_id)
        if committed.snapshot is not None:
            self.world.model.acknowledged[op] = committed.snapshot.snapshot_id
        self.world.note(
            self.process,
            f"{op} committed {committed.snapshot and committed.snapshot.snapshot_id} retries {committed.retries}",
        )
        self.world.look()

    def _new_files(
        self, op: str, kind: str, base: TableVersion, count: int, partition: str | None = None
    ) -> tuple[list[DataFile], Intent]:
        files, adds = [], {}
        for number in range(count):
            where = partition or self.rng.choice(PARTITIONS)
            path = f"{base.metadata.location}/data/{op}-{number}.parquet"
            rows = tuple(self.rng.getrandbits(60) for _ in range(self.rng.randint(1, 3)))
            adds[path] = (where, rows)
            files.append(
                DataFile(
                    file_path=path, partition=(where,), record_count=len(rows), file_size_in_bytes=4
                )
            )
        self.storage.write_new(dict.fromkeys(adds, b"rows"))
        return files, Intent(op, kind, adds=adds)

    def _read(
        self, base: TableVersion
    ) -> tuple[str, list[DataFile], frozenset[int], dict[str, list[int]]]:
        """A partition of the base: its data files, its rows, and the live rows of each file."""
        partition = self.rng.choice(PARTITIONS)
        snapshot = base.metadata.current_snapshot()
        files: list[DataFile] = []
        sequence: dict[str, int] = {}
        vectors: list[tuple[str, int]] = []
        for manifest in load_manifests(self.storage, snapshot) if snapshot else []:
            for entry in load_entries(self.storage, manifest, base.metadata).to_manifest_entries():
                if entry.status == 2 or entry.data_file.partition != (partition,):
                    continue
                if entry.data_file.content:
                    vectors.append((entry.data_file.file_path, entry.sequence_number or 0))
                else:
                    files.append(entry.data_file)
                    sequence[entry.data_file.file_path] = entry.sequence_number or 0
        adds = {
            path: rows
            for intent in self.world.model.intents.values()
            for path, (_, rows) in intent.adds.items()
        }
        known = {
            path: pair
            for intent in self.world.model.intents.values()
            for path, pair in intent.deletes.items()
        }
        gone: dict[str, set[int]] = {}
        for path, number in vectors:
            target, positions = known[path]
            if target in sequence and number >= sequence[target]:
                gone.setdefault(target, set()).update(positions)
        live = {
            file.file_path: [
                row
                for position, row in enumerate(adds[file.file_path])
                if position not in gone.get(file.file_path, ())
            ]
            for file in files
        }
        return partition, files, frozenset(row for rows in live.values() for row in rows), live


__all__ = ["StorageError", "run_process"]
