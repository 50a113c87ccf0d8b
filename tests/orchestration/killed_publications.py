"""`python -m tests.orchestration.killed_publications --runs N`: runs over five tables, killed.

Workers in processes of their own execute runs of Dagster that write five tables each, by partition,
so that some of them touch the same rows. SIGKILL ends workers, the REST server and PostgreSQL
before a random one of the changes that a publication makes (a call of the disk, a statement of SQL,
a request), that a commit to a branch makes, or that the server makes for a transaction; and at
random moments all of them, and who compacts and expires meanwhile. Readers in other processes join
the five, over Python and over REST. A run that was killed goes on from where it failed, as
Dagster's daemon has it, or is left alone.

Publications in their order, applied to sets of numbers, are what every table has to hold in the
end and at each version that has not expired. `--planted` plants faults, which have to be found.
"""

import argparse
import functools
import gc
import importlib
import json
import multiprocessing as mp
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import dagster as dg
import pyarrow as pa
import requests
import sqlalchemy

import lakehouse as lh
from lakehouse.catalog.branch_catalog import BranchCatalog
from lakehouse.catalog.joint_catalog import JointCatalog
from lakehouse.catalog.open_branches import PUBLICATIONS, OpenBranches
from lakehouse.catalog.sql.sql_catalog import SqlCatalog
from lakehouse.cli import app
from lakehouse.errors import LakehouseError, NoSuchSnapshotError
from lakehouse.lake import Lakehouse
from lakehouse.orchestration import LakehouseResource, resources, run_publication
from lakehouse.orchestration.run_publication import PUBLISH_TAG, run_branch
from lakehouse.rest.rest_session import RestSession
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.snapshot import RUN_ID
from lakehouse.storage.local import PosixDisk
from lakehouse.table.publication import BranchOfLake
from tests.cluster.loopback import LoopbackPostgres
from tests.cluster.ports import free_port
from tests.orchestration.light_dagster import forget_connections, light_instance
from tests.waiting import PATIENCE_SECONDS, eventually

FIVE = tuple(f"t.{letter}" for letter in "abcde")
SCHEMA = pa.schema({"p": pa.int64(), "n": pa.int64()})
WORKERS = 3
PARTITIONS = WORKERS
TASK, ROOT = "task", "LAKEHOUSE_TEST_ROOT"
CATALOGS = ("files", "sqlite", "postgres", "rest")
_PATIENT = {"rest.retry-timeout-ms": "120000"}  # a server takes its time to start again
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
Held = dict[str, dict[int, set[int]]]
ENDING = threading.Event()


def opened() -> Lakehouse:
    """The catalog that workers write to."""
    root = Path(os.environ[ROOT])
    return lh.load_catalog((root / "uri").read_text(), warehouse=str(root / "wh"), **_PATIENT)


def create(root: Path) -> None:
    """In a process of its own."""
    begin(root, "")
    create_five()


def create_five() -> None:
    for name in FIVE:
        opened().create_table(name, SCHEMA, partition_by=["p"])


def definitions() -> dg.JobDefinition:
    """Five assets, each after the one before, and a check of the third."""
    return _job()


@functools.cache
def _job() -> dg.JobDefinition:
    lake = opened()

    def asset(name: str, before: str | None) -> dg.AssetsDefinition:
        @dg.asset(name=name, key_prefix="t", deps=[["t", before]] if before else [])
        def written(context: dg.AssetExecutionContext, lakehouse: LakehouseResource) -> None:
            task = json.loads(context.run.tags[TASK])
            table = lakehouse.lake().load_table(f"t.{name}")
            rows = pa.table({"p": [task["p"]], "n": [task["n"]]}, schema=SCHEMA)
            summary = {RUN_ID: context.run.run_id}
            if task["verb"] == "append":
                table.append(rows, summary=summary)
            else:
                table.overwrite(rows, f"p = {task['p']}", summary=summary)

        return written

    @dg.asset_check(asset=dg.AssetKey(["t", "c"]), blocking=True)
    def positive(lakehouse: LakehouseResource) -> dg.AssetCheckResult:
        found = lakehouse.lake().load_table("t.c").scan("n < 0").count()
        return dg.AssetCheckResult(passed=found == 0)

    lakehouse = LakehouseResource(
        catalog=lake.catalog.uri,
        warehouse=lake.warehouse,
        properties=json.dumps(_PATIENT),
        publish="run",
    )
    return dg.Definitions(
        assets=[asset(b, a) for a, b in zip([None, *"abcd"], "abcde", strict=True)],
        asset_checks=[positive],
        resources={"lakehouse": lakehouse},
        executor=dg.in_process_executor,
        jobs=[dg.define_asset_job("job", "*")],
    ).resolve_job_def("job")


def unchecked() -> None:
    """A run is published although a check or a step of it has failed."""
    resources.has_succeeded = lambda *_: True  # type: ignore[assignment]


def forgotten() -> None:
    """A table that is not noted stays on the branch."""
    note = OpenBranches.note

    def noted(self: OpenBranches, branch: str, tables: Any = ()) -> None:
        note(self, branch, [one for one in tables if one != Identifier.parse("t.c")])

    OpenBranches.note = noted  # type: ignore[method-assign]


def unreconciled() -> None:
    """What others committed meanwhile is lost: main becomes the branch."""
    own = BranchOfLake._own

    def overtaken(self: BranchOfLake, table: Any) -> Any:
        _, snapshots = own(self, table)
        head = table.metadata.refs[self.name].snapshot_id
        table.transaction().set_current_snapshot(head).commit()
        return head, snapshots

    BranchOfLake._own = overtaken  # type: ignore[method-assign]


def one_by_one() -> None:
    """Tables are committed one after another."""

    def separately(self: JointCatalog) -> list[Any]:
        made = []
        for name, updates in sorted(self._updates.items(), reverse=True):
            made.append(self.inside.commit(name, self._bases[name], (), updates))
        return made

    JointCatalog.commit_together = separately  # type: ignore[method-assign]


PLANTED = {one.__name__: one for one in (unchecked, forgotten, unreconciled, one_by_one)}


class Killing:
    """SIGKILL for somebody before a random one of the changes that a call makes, or at its end.

    Args:
        chance: what chooses the call and the change.
        name: of the call.
        victim: gives a process to kill; None: nobody now.
        spared: how many calls it may be until one is chosen.
    """

    def __init__(
        self,
        root: Path,
        chance: random.Random,
        name: str,
        victim: Callable[[], int | None],
        spared: Sequence[int],
    ) -> None:
        self._known, self._deaths = root / f"changes of {name}", root / "deaths"
        self._chance, self._name, self._victim = chance, name, victim
        self._left, self._at, self._seen = chance.choice(spared), 0, 0
        self._is_within = False
        for verb in ("create", "write", "fsync", "link", "replace", "unlink"):
            setattr(PosixDisk, verb, self._before(getattr(PosixDisk, verb), verb))
        RestSession.send = self._before(RestSession.send, "request")  # type: ignore[method-assign]
        sqlalchemy.event.listen(sqlalchemy.Engine, "commit", lambda *_: self._change("COMMIT"))
        sqlalchemy.event.listen(
            sqlalchemy.Engine, "before_cursor_execute", lambda *given: self._change(given[2])
        )

    def within(
        self, owner: Any, method: str, which: Callable[..., bool] = lambda *_, **__: True
    ) -> None:
        """Somebody is killed within calls of this method, those of certain arguments."""
        call = getattr(owner, method)

        def called(*given: Any, **more: Any) -> Any:
            if self._is_within or not which(*given, **more):
                return call(*given, **more)
            self._left, self._seen, self._at = self._left - 1, 0, 0
            if self._left <= 0:
                counts = self._known.read_text().split() if self._known.exists() else ["40"]
                self._at = self._chance.randint(1, int(self._chance.choice(counts)))
            self._is_within = True
            try:
                result = call(*given, **more)
                self._change("the end")
            finally:
                self._is_within = False
            with self._known.open("a") as known:
                known.write(f"{self._seen}\n")
            return result

        setattr(owner, method, called)

    def _before(self, call: Callable[..., Any], what: str) -> Callable[..., Any]:
        def changing(*given: Any, **more: Any) -> Any:
            self._change(what)
            return call(*given, **more)

        return changing

    def _change(self, what: str) -> None:
        if not self._is_within:
            return
        self._seen += 1
        if self._seen == self._at and (victim := self._victim()) is not None:
            with self._deaths.open("a") as deaths:
                deaths.write(f"{self._name}\t{self._seen}\t{' '.join(what.split()[:3])}\n")
            os.kill(victim, signal.SIGKILL)


def dies(root: Path, chance: random.Random) -> None:
    """Have this worker, or what it asks, killed where it matters."""
    where = chance.random()
    killing = partial(Killing, root, chance)
    if where < 0.6:
        own = killing("a publication", os.getpid, (1, 2, 3, 4))
        for module in (resources, run_publication):
            own.within(module, "publish_run")
    elif where < 0.75:
        database = partial(database_of, root)
        killing("a publication (PostgreSQL)", database, (1, 2, 4)).within(BranchOfLake, "publish")
    elif where < 0.85:
        killing("a commit to the branch", os.getpid, (1, 8, 16)).within(BranchCatalog, "commit")
    elif where < 0.9:
        killing("dropping a branch", os.getpid, (1,)).within(BranchOfLake, "drop")


def database_of(root: Path) -> int | None:
    """The process of PostgreSQL."""
    with suppress(OSError, IndexError, ValueError):
        return int((root / "pg" / "postmaster.pid").read_text().split()[0])
    return None


def serve(root: Path, command: list[str], seed: int | None) -> None:
    """`lakehouse serve`; with a seed it dies while it commits to tables together."""
    begin(root, "")
    if seed is not None:
        chance = random.Random(seed)
        killing = partial(Killing, root, chance)
        several = killing("a transaction of the server", os.getpid, (1, 2, 4))
        several.within(SqlCatalog, "commit_all", lambda _, commits: len(commits) > 1)
        one = killing("a commit of the server", os.getpid, (20, 40, 60))
        one.within(SqlCatalog, "commit_all", lambda _, commits: len(commits) == 1)
    app(command)


class ForkedServer:
    """`lakehouse serve` in a process of its own, which no end of the block leaves behind.

    Args:
        context: forks processes that have imported it.
        seeds: of its deaths, another each time it is started; empty: it stays alive.
    """

    def __init__(self, root: Path, uri: str, context: Any, seeds: Iterator[int]) -> None:
        port = free_port()
        self.url, self.seeds = f"http://127.0.0.1:{port}", seeds
        self._root, self._context = root, context
        self._command = ["serve", "--catalog", uri, "--warehouse", str(root / "wh")]
        self._command += ["--port", str(port)]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Returns once it answers. Raises AssertionError: it ended."""
        asked = (self._root, self._command, next(self.seeds, None))
        self._process = self._context.Process(target=serve, args=asked)
        self._process.start()
        eventually(self._answers)

    def _answers(self) -> bool:
        try:
            requests.get(f"{self.url}/v1/config", timeout=PATIENCE_SECONDS).close()
        except requests.ConnectionError:
            assert self.is_alive(), "the server ended"
            return False
        return True

    def is_alive(self) -> bool:
        return bool(self._process.is_alive())

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


def begin(root: Path, planted: str) -> None:
    """In each process first."""
    os.environ[ROOT] = str(root)
    forget_connections()
    sys.stdout = sys.stderr = (root / "log").open("a", buffering=1)
    if planted:
        PLANTED[planted]()


def work(root: Path, worker: int, seed: int, planted: str) -> None:
    """Execute runs until it is killed; first what its forerunner has left."""
    begin(root, planted)
    chance = random.Random(seed)
    dies(root, chance)
    job = dg.reconstructable(definitions)
    with light_instance(root / "dagster") as instance:
        left = dg.RunsFilter(tags={"worker": str(worker)}, statuses=[dg.DagsterRunStatus.STARTED])
        for run in instance.get_runs(left):
            instance.report_run_failed(run)  # as the daemon does with a worker that is gone
            if chance.random() < 0.6:
                options = dg.ReexecutionOptions.from_failure(run.run_id, instance)
                if run_publication.has_succeeded(run, instance):
                    options = dg.ReexecutionOptions(run.run_id)  # no step is left to go on with
                tags = {name: run.tags[name] for name in (TASK, "worker", PUBLISH_TAG)}
                dg.execute_job(job, instance, _QUIET, tags=tags, reexecution_options=options)
        for n in range(1, 1_000):
            bad = chance.random() < 0.1
            task = {
                "n": (seed * 1000 + n) * (-1 if bad else 1),
                "p": worker if chance.random() < 0.8 else chance.randrange(PARTITIONS),
                "verb": chance.choice(["append", "overwrite"]),
            }
            tags = {TASK: json.dumps(task), "worker": str(worker), PUBLISH_TAG: "run"}
            done = dg.execute_job(job, instance, _QUIET, tags=tags)
            if not done.success and chance.random() < 0.7:
                with suppress(LakehouseError):
                    opened().branch(f"run-{done.run_id}").drop()


def held(lake: Lakehouse) -> Held:
    found: Held = {}
    for name in FIVE:
        rows = lake.load_table(name).scan().to_arrow().to_pylist()
        by_partition = found.setdefault(name, {})
        for row in rows:
            by_partition.setdefault(row["p"], set()).add(row["n"])
    return found


def is_whole(found: Held) -> bool:
    first = found[FIVE[0]]
    return all(table == first for table in found.values()) and all(
        n > 0 for numbers in first.values() for n in numbers
    )


def read(root: Path, uri: str, joins: Any) -> None:
    """Join the five at the newest version of the lake, until it is killed."""
    begin(root, "")
    os.nice(10)  # it never waits, and workers are to get on
    lake = lh.load_catalog(uri, warehouse=str(root / "wh"))
    while True:
        try:
            found = held(lake.at())
        except (NoSuchSnapshotError, LakehouseError):
            with joins.get_lock():
                joins[1] += 1
            time.sleep(0.1)
            continue
        if not is_whole(found):
            (root / f"torn-{os.getpid()}").write_text(f"{uri}: {found}")
            return
        with joins.get_lock():
            joins[0] += 1


def keep_up(root: Path, seed: int) -> None:
    """Compact and expire, until it is killed."""
    begin(root, "")
    chance = random.Random(seed)
    while True:
        name = chance.choice([*FIVE, str(PUBLICATIONS)])
        with suppress(LakehouseError):
            table = opened().load_table(name)
            if chance.random() < 0.5:
                table.compact(lh.CompactionOptions(min_input_files=2))
            else:
                table.expire_snapshots(retain_last=30, older_than=time.strftime("%Y-%m-%dT%XZ"))
        time.sleep(chance.random())


class FoundError(AssertionError):
    """What must not be."""


def check(root: Path) -> Counter[str]:
    """What is there in the end, beside the publications applied one after another."""
    lake = opened()
    rows = lake.load_table(str(PUBLICATIONS)).scan().to_arrow().to_pylist()
    published: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        published.setdefault(row["version"], []).append(row)
    if sorted(published) != list(range(1, len(published) + 1)):
        raise FoundError(f"versions {sorted(published)}")
    by_branch = Counter(tables[0]["branch"] for tables in published.values())
    if set(by_branch.values()) - {1}:
        raise FoundError(f"published twice: {by_branch.most_common(2)}")
    with light_instance(root / "dagster") as instance:
        runs = {run.run_id: run for run in instance.get_runs()}
        told = Counter(f"runs {run.status.value.lower()}" for run in runs.values())
        for run in runs.values():
            branch = run_branch(run, instance, "run")
            if run.is_success and branch not in by_branch:
                raise FoundError(f"run {run.run_id} succeeded, {branch} was not published")
    told["published"] = len(published)
    told["went on, published"] = sum(
        run.is_success and run.parent_run_id is not None for run in runs.values()
    )
    expected = _replayed(lake, published, runs, told)
    for branch in list(lake.branches()):
        lake.branch(branch).drop()
        told["branches left, dropped"] += 1
    refs = {name: sorted(lake.load_table(name).refs()) for name in FIVE}
    if set(map(tuple, refs.values())) != {("main",)}:
        raise FoundError(f"branches are left: {refs}")
    if held(lake) != expected:
        raise FoundError(f"in the end {held(lake)}, expected {expected}")
    return told


def _replayed(
    lake: Lakehouse,
    published: dict[int, list[dict[str, Any]]],
    runs: dict[str, dg.DagsterRun],
    told: Counter[str],
) -> Held:
    """What the publications make, one after another, and each version that can be seen holds."""
    expected: Held = {name: {} for name in FIVE}
    for version, tables in sorted(published.items()):
        if sorted(row["table"] for row in tables) != list(FIVE):
            raise FoundError(f"version {version} has {tables}")
        task = json.loads(runs[tables[0]["branch"].removeprefix("run-")].tags[TASK])
        for name in FIVE:
            numbers = expected[name].setdefault(task["p"], set())
            if task["verb"] == "overwrite":
                numbers.clear()
            numbers.add(task["n"])
        try:
            shown = held(lake.at(version=version))
        except NoSuchSnapshotError:
            told["versions expired"] += 1
            continue
        told["versions shown"] += 1
        if shown != expected:
            raise FoundError(f"version {version} is {shown}, expected {expected}")
    if not is_whole(expected):
        raise FoundError(f"published without a check: {expected}")
    return expected


@functools.cache
def forking() -> Any:
    """Starts processes that have imported what runs, readers and servers do."""
    context = mp.get_context("fork")
    receives, sends = context.Pipe(duplex=False)
    process = context.Process(target=send_imported, args=(sends,))
    process.start()
    for name in receives.recv():
        with suppress(ImportError):
            importlib.import_module(name)
    process.join()
    gc.freeze()  # it is shared, and stays
    return context


def send_imported(sends: Any) -> None:
    """Do once what the processes do, and tell the modules that are there then."""
    for module in ("server.http_server", "server.rest_app", "catalog.rest.rest_catalog"):
        importlib.import_module(f"lakehouse.{module}")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "dagster").mkdir()
        (root / "uri").write_text(f"sqlite:///{root}/c.db")
        create(root)
        with light_instance(root / "dagster") as instance:
            publish_one(instance)
        held(opened().at())
        opened().load_table(FIVE[0]).compact(lh.CompactionOptions(min_input_files=2))
    sends.send([name for name, one in sys.modules.items() if getattr(one, "__spec__", None)])


def history(kind: str, runs: int, seed: int, planted: str = "") -> Counter[str]:
    """Runs on one catalog. Raises FoundError."""
    chance, context = random.Random(seed), forking()
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        root.chmod(0o755)  # PostgreSQL has a user of its own
        for folder in ("wh", "dagster"):
            (root / folder).mkdir()
        database, uri = None, str(root / "wh")
        if kind == "sqlite":
            uri = f"sqlite:///{root}/c.db"
        elif kind != "files":
            database = stack.enter_context(LoopbackPostgres(root / "pg", free_port()))
            uri = database.uri("postgres")
        seeds = iter(range(seed * 10_000 + 1, 2**60))
        deaths = seeds if kind == "rest" else iter(())
        server = stack.enter_context(ForkedServer(root, uri, context, deaths))
        (root / "uri").write_text(server.url if kind == "rest" else uri)
        os.environ[ROOT] = str(root)
        _done(context, create, root)
        joins = {where: context.Array("q", [0, 0]) for where in {"python": 0, "rest": 0}}
        makes: dict[str, Callable[[], Any]] = {
            "upkeep": lambda: partial(keep_up, root, next(seeds)),
            "python": lambda: partial(read, root, uri, joins["python"]),
            "rest": lambda: partial(read, root, server.url, joins["rest"]),
        }
        for worker in range(WORKERS):
            makes[f"worker {worker}"] = lambda worker=worker: partial(
                work, root, worker, next(seeds), planted
            )
        told: Counter[str] = Counter()
        running: dict[str, Any] = {}
        try:
            with light_instance(root / "dagster") as instance:
                for is_new in _moments(instance, runs, chance):
                    _check_torn(root)
                    whom = ["worker 0", "server", "upkeep", "database", *[""] * 8]
                    what = chance.choice(whom) if is_new else ""
                    if what in running:
                        running[what].kill()
                    told += _restarted(what, database, server)
                    _start(root, context, makes, running, told)
        finally:
            for process in running.values():
                process.kill()
                process.join()
        told += _restarted("", database, server)  # nobody is left who kills them
        server.seeds = iter(())
        server.kill()
        server.start()
        _check_torn(root)
        _done(context, finish, root, planted)
        told += check(root)
        lines = (root / "deaths").read_text().splitlines() if (root / "deaths").exists() else []
        told += Counter(f"kills within {line.partition(chr(9))[0]}" for line in lines)
        told["different changes that somebody was killed before"] = len(set(lines))
        for where, counts in joins.items():
            told[f"joins by {where}"] += counts[0]
            told[f"joins by {where} refused"] += counts[1]
        return told


def _moments(instance: dg.DagsterInstance, runs: int, chance: random.Random) -> Iterator[bool]:
    """Every now and then; true once for each run that has begun, at some moment within it."""
    began, seen, at = time.monotonic(), 0, 0.0
    while seen < runs and not ENDING.is_set():
        print(f"{seen} runs", end="\r", flush=True)  # noqa: T201
        count, now = instance.get_runs_count(), time.monotonic()
        if count > seen:
            at = now + chance.random() * (now - began) / count * WORKERS
        seen = count
        is_now = 0 < at <= now
        at = 0 if is_now else at
        time.sleep(0.1)
        yield is_now


def _restarted(
    killed: str, database: LoopbackPostgres | None, server: ForkedServer
) -> Counter[str]:
    """Start the database and the server again, if they are to be killed now, or were."""
    told: Counter[str] = Counter()
    if database is not None and (killed == "database" or not database.is_ready()):
        database.kill()
        database.start()
        told["kills of PostgreSQL"] += 1
    if killed == "server" or not server.is_alive():
        server.kill()
        try:
            server.start()
        except AssertionError:
            if database is None or database.is_ready():
                raise
            return told  # the database was killed meanwhile: next time
        told["kills of the server"] += 1
    return told


def _start(
    root: Path,
    context: Any,
    makes: dict[str, Callable[[], Any]],
    running: dict[str, Any],
    told: Counter[str],
) -> None:
    """Start who is not there. Raises FoundError: one ended by itself."""
    for name, make in makes.items():
        if name in running and running[name].is_alive():
            continue
        if name in running:
            if running[name].exitcode != -signal.SIGKILL:
                raise FoundError(f"{name} ended: {_last_words(root)}")
            told[f"kills of {name.partition(' ')[0]}s"] += 1
        running[name] = context.Process(target=make())
        running[name].start()


def _done(context: Any, what: Callable[..., None], root: Path, *given: Any) -> None:
    """Have a process do something. Raises FoundError: it failed."""
    process = context.Process(target=what, args=(root, *given))
    process.start()
    process.join()
    if process.exitcode:
        raise FoundError(f"{what.__name__}: {_last_words(root)}")


def finish(root: Path, planted: str) -> None:
    """One more run: it publishes what was killed between its success and its publication."""
    begin(root, planted)
    with light_instance(root / "dagster") as instance:
        publish_one(instance)


def publish_one(instance: dg.DagsterInstance) -> None:
    task = {"n": 1, "p": 0, "verb": "overwrite"}
    tags = {TASK: json.dumps(task), PUBLISH_TAG: "run"}
    assert dg.execute_job(dg.reconstructable(definitions), instance, _QUIET, tags=tags).success


def _last_words(root: Path) -> str:
    return (root / "log").read_text()[-3000:]


def _check_torn(root: Path) -> None:
    for torn in root.glob("torn-*"):
        raise FoundError(f"a torn join: {torn.read_text()}")


def main() -> None:
    """Print what was done; what must not be raises. With `--planted` it has to."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--runs", type=int, default=100)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--catalog", choices=CATALOGS, action="append")
    asked.add_argument("--planted", action="store_true")
    given = asked.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: ENDING.set())  # what was done is checked
    for kind in given.catalog or CATALOGS:
        for fault in PLANTED if given.planted else [""]:
            if ENDING.is_set():
                return
            try:
                told = history(kind, given.runs, given.seed, fault)
            except FoundError as error:
                if not fault:
                    raise
                print(f"{kind}, {fault}: found: {str(error)[:200]}", flush=True)  # noqa: T201
                continue
            if fault:
                raise SystemExit(f"{kind}, {fault}: NOT found in {given.runs} runs")
            counted = ", ".join(f"{count:,} {what}" for what, count in sorted(told.items()))
            print(f"{kind}: 0 torn joins, 0 half published; {counted}", flush=True)  # noqa: T201


if __name__ == "__main__":
    from tests.orchestration import killed_publications  # noqa: PLW0406

    killed_publications.main()  # Dagster finds definitions by the name of their module
