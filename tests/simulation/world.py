"""A machine with a disk, processes writing to one table, and all that can fail, by one seed."""

from __future__ import annotations

import logging
import random
import tempfile
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog
from lakehouse.catalog.sql.sql_catalog import SqlCatalog
from lakehouse.catalog.sql.sql_database import Database
from lakehouse.data.reading.scan_reader import read_table
from lakehouse.environment import Environment
from lakehouse.errors import LakehouseError, NoSuchTableError
from lakehouse.maintenance.reachability import reachable_files as reachability
from lakehouse.manifests.manifest_cache import DEFAULT_CACHE
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.snapshot import MetadataLogEntry
from lakehouse.spec.metadata.table_metadata import TableMetadata, new_table_metadata
from lakehouse.spec.partitioning.sort_order import UNSORTED_SORT_ORDER
from lakehouse.storage.local import LocalStorage
from lakehouse.transaction.operations import file_changes
from tests.faulty_storage import Fault, FaultyStorage
from tests.simulation.behind_server import Server, ServerProcess, client, without_sockets
from tests.simulation.database import FaultyDatabase
from tests.simulation.disk import DiskOfProcess, SimulatedDisk
from tests.simulation.model import InvariantBrokenError, Model
from tests.simulation.plans import Plan, plan_of
from tests.simulation.processes import OUTSIDE, run_process
from tests.simulation.real_rows import SCHEMA, parquet_of, rows_read
from tests.simulation.row_changes import MODES, ROWS, RowModel, RowWriter
from tests.simulation.scheduler import Killed, Process, Scheduler
from tests.simulation.served import LATE, REPEATED, ServedCatalog

TABLE = Identifier.parse("raw.events")
WAREHOUSE = "/warehouse"
_FAST = "/dev/shm"  # noqa: S108 - a folder without a disk behind it
_WEIGHTS = {
    "read": 0.2,
    "exists": 0.2,
    "size": 0.2,
    "list": 0.2,
    "load": 0.2,
    "create": 2.0,
    "commit": 2.0,
    "serve": 3.0,
}
_SERVED = {LATE, REPEATED}
_WEIGHTS_OF_CALLS = dict.fromkeys(
    ("write", "fsync", "fsync_folder", "link", "replace", "unlink", "mkdir"), 0.1
)
START_MS = 1_767_225_600_000
ELSEWHERE = "hdfs:///moved/from/00000.metadata.json"
"""In the metadata log of every second table: foreign engines moved it here."""
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"), spec_id=0)


class Observing(LocalStorage):
    """Looks on and changes nothing: what it sees is not more durable for that."""

    def make_name_durable(self, location: str) -> None:
        pass


class World:
    def __init__(self, seed: int, plan: Plan) -> None:
        self.seed, self.plan = seed, plan
        self.rng = random.Random(seed)
        self.clock = START_MS
        self.disk = SimulatedDisk(self.now_ms)
        self.scheduler = Scheduler(random.Random(self.rng.getrandbits(64)))
        self.delayed: list[Callable[[], None]] = []
        self.storage = Observing(disk=self.disk, new_name=self._name)
        self.models: dict[str, Model] = {}
        self.made_ms: dict[str, int] = {}
        """Table uuid -> when its metadata was made."""
        self.may_be_gone = False
        """Whether somebody has dropped the table, or tried to."""
        self.trace: list[str] = []
        self.outage = self.delivering = False
        self.decided_again = self.rows_decided_again = self.retries = 0
        self.databases: list[Database] = []
        self.servers: dict[int, Server] = {}
        self.clients: dict[str, Process] = {}
        """By the host of the URL that they ask."""
        self.folder = (
            tempfile.TemporaryDirectory(dir=_FAST if Path(_FAST).is_dir() else None)
            if plan.is_sql
            else None
        )
        self.observer = self.catalog(None)
        self._create()

    def now_ms(self) -> int:
        self.clock += 1
        return self.clock

    def catalog(self, process: Process | ServerProcess | None) -> Catalog:
        """The catalog as a process sees it; None: an observer without faults."""
        environment = self.environment(process)
        factory = lambda _location, _properties: self.storage_of(process)  # noqa: E731
        if self.plan.catalog == "served" and process is not None:
            return ServedCatalog(self.observer, self, process, self.storage_of(process))
        if self.plan.is_behind_server and isinstance(process, Process):
            return client(self, process)
        if not self.plan.is_sql:
            return FilesystemCatalog(WAREHOUSE, environment=environment, storage_factory=factory)
        assert self.folder is not None
        database = FaultyDatabase(f"sqlite:///{self.folder.name}/catalog.db", self, process)
        self.databases.append(database)
        return SqlCatalog(
            "", WAREHOUSE, environment=environment, storage_factory=factory, database=database
        )

    def storage_of(self, process: Process | None) -> LocalStorage | FaultyStorage:
        if process is None:
            return self.storage

        def check(call: str) -> bool:
            own = process.is_running()
            if process.dead or self.outage or not (own or self.delivering):
                if call in {"close", "unlink"}:
                    return False
                raise Killed
            if self.plan.between_calls and own:
                self._between_calls(process, call)
            return True

        inner = LocalStorage(disk=DiskOfProcess(self.disk, check), new_name=self._name)
        return FaultyStorage(
            inner, lambda method, location: self.decide(process, method, location), self.later
        )

    def environment(self, process: Process | None) -> Environment:
        rng = random.Random(self.rng.getrandbits(64))
        skew = (
            rng.choice([-300_000, 0, 300_000])
            if process is not None and "skew" in self.plan.faults
            else 0
        )

        def sleep(seconds: float) -> None:
            self.clock += int(seconds * 1000)
            if process is not None:
                process.pause()

        return Environment(
            now_ms=lambda: self.now_ms() + skew,
            new_uuid=lambda: uuid.UUID(int=rng.getrandbits(128), version=4),
            random=rng.random,
            sleep=sleep,
        )

    def decide(self, process: Process, method: str, location: str) -> Fault | None:
        """What goes wrong with a storage call of a process."""
        name = self.fault(process, method, location)
        return None if name is None else Fault(name)

    def fault(self, process: Process, method: str, location: str) -> str | None:
        """Before each call of a process: let others go on, then maybe break it."""
        process.pause()
        self.now_ms()
        rate = self.plan.fault_rate * _WEIGHTS.get(method, 1.0)
        if self.rng.random() >= rate:
            return None
        names = sorted(self.plan.faults - {"skew"} - (set() if method == "serve" else _SERVED))
        if not names:
            return None
        name = self.rng.choice(names)
        if name == "power":
            if self.rng.random() > 0.3:
                return None
            self.note(process, f"POWER at {method} {location}")
            self.outage = True
            raise Killed
        if name == "kill":
            self.note(process, f"KILL at {method} {location}")
            process.dead = True
            raise Killed
        self.note(process, f"{name} at {method} {location.rpartition('/')[2]}")
        return name

    def _between_calls(self, process: Process, call: str) -> None:
        if self.rng.random() < 0.1:
            process.pause()
        if self.rng.random() >= self.plan.fault_rate * _WEIGHTS_OF_CALLS.get(call, 0.0):
            return
        stops = sorted(self.plan.faults & {"kill", "power"})
        if not stops:
            return
        if self.rng.choice(stops) == "power":
            self.note(process, f"POWER before {call}")
            self.outage = True
        else:
            self.note(process, f"KILL before {call}")
            process.dead = True
        raise Killed

    def note(self, process: Process | None, text: str) -> None:
        self.trace.append(f"{self.scheduler.steps:5} {process.name if process else '-':4} {text}")

    def run(self) -> None:
        """Until all processes have done their operations. Raises InvariantBrokenError."""
        for number in range(self.plan.processes):
            self._spawn(f"p{number}", self.plan.operations, self.rng.getrandbits(64))
        known: object = None
        while True:
            processes = list(self.scheduler.processes)
            going = self.scheduler.step()
            if self.outage:
                self._power_loss()
            else:
                self._restart_dead(processes)
            if self.delayed and self.rng.random() < 0.05:
                self._deliver()
            seen = self._versions()
            if seen != known or not going:
                known = seen
                self.look()
            if not going and not self.scheduler.processes:
                break
            if self.scheduler.steps > 20_000:
                raise InvariantBrokenError("no progress in 20,000 steps")
        while self.delayed:
            self._deliver()
        self.look()
        now = self._loaded()
        for table_uuid, model in self.models.items():
            live = now is not None and now.metadata.table_uuid == table_uuid
            model.finish(now if live else None)

    def close(self) -> None:
        for process in list(self.scheduler.processes):
            self.scheduler.kill(process)
        for database in self.databases:
            database.close()
        if self.folder is not None:
            self.folder.cleanup()

    def look(self, judge: Callable[[Model, TableVersion], None] = Model.observe) -> None:
        """What a newcomer sees now must be right."""
        try:
            version = self._loaded()
            if version is not None:
                judge(self.model_of(version), version)
            gone = [path for path in OUTSIDE if not self.storage.exists(path)]
            if gone:
                raise InvariantBrokenError(f"I7: {gone} belong to nobody, and are deleted")
        except LakehouseError as error:
            raise InvariantBrokenError(
                f"I13: the table cannot be read: {type(error).__name__}: {error.message}"
            ) from error

    def model_of(self, version: TableVersion) -> Model:
        """What watches the table, which others of its name do not concern."""
        if self.plan.merging:
            rows = RowModel(self.storage, ELSEWHERE)
            return self.models.setdefault(version.metadata.table_uuid, rows)
        model = Model(self.storage, ELSEWHERE, read=rows_read if self.plan.real_rows else None)
        return self.models.setdefault(version.metadata.table_uuid, model)

    def content(self, partition: str, rows: Sequence[int]) -> bytes:
        """Of a data file."""
        return parquet_of(partition, rows) if self.plan.real_rows else b"rows"

    @property
    def snapshots_seen(self) -> int:
        """Of all tables."""
        return sum(model.snapshots_seen for model in self.models.values())

    def new_table(self) -> TableMetadata:
        """Metadata of a table that is not there yet."""
        properties = {
            "commit.manifest.min-count-to-merge": str(self.plan.merge_at),
            "commit.status-check.num-retries": "1",
            "write.metadata.previous-versions-max": "5",
            "write.metadata.delete-after-commit.enabled": "true"
            if self.rng.random() < 0.5
            else "false",
            "write.delete.granularity": self.plan.granularity,
            **(dict.fromkeys(MODES, self.plan.row_mode) if self.plan.merging else {}),
        }
        table_uuid = str(uuid.UUID(int=self.rng.getrandbits(128)))
        self.made_ms[table_uuid] = self.now_ms()
        made = new_table_metadata(
            ROWS if self.plan.merging else SCHEMA,
            SPEC,
            UNSORTED_SORT_ORDER,
            self.observer.default_location(TABLE),
            properties,
            self.plan.format_version,
            table_uuid,
            self.now_ms(),
        )
        if self.rng.random() < 0.5:
            return made
        return replace(made, metadata_log=(MetadataLogEntry(START_MS - 1, ELSEWHERE),))

    def _loaded(self) -> TableVersion | None:
        """The table; None where it may have been dropped and was."""
        try:
            return self.observer.load(TABLE)
        except NoSuchTableError:
            if self.may_be_gone:
                return None
            raise

    def _spawn(self, name: str, operations: int, seed: int, redo: object = None) -> None:
        def body(process: Process) -> None:
            acts = RowWriter if self.plan.merging else None
            run_process(self, process, random.Random(seed), operations, redo, acts)

        process = self.scheduler.spawn(name, body)
        process.progress = (operations, redo)  # type: ignore[attr-defined]

    def _restart_dead(self, processes: list[Process]) -> None:
        for process in processes:
            if process.dead and process.done:
                if process in self.scheduler.processes:
                    self.scheduler.processes.remove(process)
                left, redo = process.progress  # type: ignore[attr-defined]
                self._spawn(process.name, left, self.rng.getrandbits(64), redo)

    def _power_loss(self) -> None:
        self.outage = False
        dying = list(self.scheduler.processes)
        states = [(one.name, *one.progress) for one in dying]  # type: ignore[attr-defined]
        for process in dying:
            self.scheduler.kill(process)
        self.delayed.clear()
        self.servers.clear()
        self.disk.lose_power(self.rng)
        self.look(Model.after_power_loss)
        self.look()
        for name, left, redo in states:
            self._spawn(name, left, self.rng.getrandbits(64), redo)

    def later(self, act: Callable[[], None]) -> None:
        def deliver() -> None:
            self.delivering = True
            try:
                act()
            except (LakehouseError, Killed):
                pass  # it came too late
            finally:
                self.delivering = False

        self.delayed.append(deliver)

    def _deliver(self) -> None:
        self.delayed.pop(self.rng.randrange(len(self.delayed)))()

    def _name(self) -> str:
        return f"{self.now_ms():x}"

    def _versions(self) -> object:
        """Differs whenever a version was made: one that is made while another is deleted, too."""
        if self.plan.is_sql:
            return self.databases[0].swaps if self.databases else 0  # type: ignore[attr-defined]
        return {name for name in self.disk.names_ if name.endswith(".metadata.json")}

    def _create(self) -> None:
        self.observer.create_namespace(("raw",))
        self.storage.write_new({path: self.content(*OUTSIDE[path]) for path in OUTSIDE})
        self.observer.create(TABLE, self.new_table())
        self.look()


def simulate(seed: int, plan: Plan | None = None) -> World:
    """Run one seed. Raises InvariantBrokenError with the seed and the trace."""
    plan = plan or plan_of(seed)
    # what earlier runs decoded would spare this one reads, and so steps
    DEFAULT_CACHE.clear()
    world = World(seed, plan)
    # Threads of the maintenance walker would not be under the scheduler: one file after the other
    # here.
    one_by_one = mock.patch.object(
        reachability, "in_parallel", lambda function, items, threads=1: map(function, items)
    )
    # neither are those of readers
    unhindered = mock.patch.object(
        file_changes, "read_table", lambda tasks, read, _: read_table(tasks, read, world.storage)
    )
    try:
        with one_by_one, unhindered, without_sockets(world):
            world.run()
    except InvariantBrokenError as error:
        tail = "\n".join(world.trace[-60:])
        raise InvariantBrokenError(f"seed {seed}: {error}\n{plan}\n{tail}") from error
    finally:
        world.close()
    return world


def shrink(seed: int, plan: Plan) -> Plan:
    """A smaller plan that still breaks an invariant with the same seed."""

    def fails(candidate: Plan) -> bool:
        try:
            simulate(seed, candidate)
        except InvariantBrokenError:
            return True
        return False

    changed = True
    while changed:
        changed = False
        candidates = [replace(plan, operations=plan.operations - 1)] if plan.operations > 1 else []
        candidates += [replace(plan, processes=plan.processes - 1)] if plan.processes > 1 else []
        candidates += [replace(plan, faults=plan.faults - {fault}) for fault in sorted(plan.faults)]
        candidates += [
            replace(plan, kinds=tuple(one for one in plan.kinds if one != kind))
            for kind in sorted(set(plan.kinds))
            if len(set(plan.kinds)) > 1
        ]
        for candidate in candidates:
            if fails(candidate):
                plan, changed = candidate, True
                break
    return plan


def outcome(seed: int) -> tuple[int, int, str | None]:
    """(seed, snapshots made, the broken invariant if any)."""
    logging.disable(logging.ERROR)  # what is injected is in the log of the server that it befalls
    try:
        return seed, simulate(seed).snapshots_seen, None
    except Exception as error:  # noqa: BLE001 - whatever happens, the seed must be reported
        return seed, 0, f"seed {seed}: {type(error).__name__}: {error}"
