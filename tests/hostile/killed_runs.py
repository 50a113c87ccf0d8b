"""Runs that die at a change of the storage, one after the other: what the next ones leave.

A run is killed before its n-th change, for every n until one outlives it; a dead process makes no
call after that. Then either the asset is run again or its tables are looked after, days later:
no branch that stages rows is left, no file that nothing reaches, and the rows are right.
"""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
from pyspark.sql import SparkSession

from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog
from lakehouse.environment import Environment
from lakehouse.ingestion.stamp import AUDIT_BRANCH
from lakehouse.lake import Lakehouse, load_catalog
from lakehouse.orchestration import LakehouseIOManager, LakehouseResource
from lakehouse.orchestration.automation.run_requests import (
    EXPIRE_JOB,
    ORPHANS_JOB,
    RETAIN_LAST_TAG,
    ingest_config,
    ingest_job_name,
    ingest_tags,
)
from lakehouse.orchestration.code_location import build_definitions, maintenance_definitions
from lakehouse.orchestration.project import Pipeline
from lakehouse.orchestration.resources import LakehouseSpark
from lakehouse.orchestration.source_assets import IngestMode
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.storage.storage_protocol import Storage
from tests.faulty_storage import Fault, FaultyStorage
from tests.hostile.foreign_rounds import Found
from tests.orchestration.conftest import EVENTS, Pipe, event, june
from tests.table_census import take_census

CHANGES = ("write", "write_new", "create", "delete")
DAY_MS = 24 * 3600 * 1000
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class Killed(BaseException):
    """The process is gone."""


class Mortal:
    """A process that dies before a change of its storage, and makes no call after."""

    def __init__(self, at: int) -> None:
        self._left = at
        self.died_in = ""

    def storage(self, location: str, properties: Any) -> Storage:
        return FaultyStorage(storage_for(location, properties), self._call)

    def _call(self, method: str, location: str) -> Fault | None:
        if method in CHANGES:
            self._left -= 1
            if self._left < 0:
                self.died_in = self.died_in or f"{method} {location}"
        if self.died_in:
            raise Killed(self.died_in)
        return None


@dataclass
class World:
    """A warehouse in which an asset is materialized.

    Attributes:
        folder: holds everything; `begin` puts it back to where it was.
        definitions: the asset, and the upkeep of its tables.
        tables: names of these.
        job: that materializes the asset, with `tags` and `config`.
        resource: where the tables are.
        judge: raises AssertionError where rows are not right.
    """

    folder: Path
    definitions: dg.Definitions
    tables: Sequence[str]
    job: str
    resource: LakehouseResource
    judge: Callable[[Lakehouse], None]
    tags: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, object] = field(default_factory=dict)

    def lake(self, mortal: Mortal | None = None, days_later: int = 0) -> Lakehouse:
        """The catalog as a process sees it, so many days later."""
        system = Environment.system()
        clock = replace(system, now_ms=lambda: system.now_ms() + days_later * DAY_MS)
        factory = storage_for if mortal is None else mortal.storage
        catalog = FilesystemCatalog(
            self.resource.catalog, environment=clock, storage_factory=factory
        )
        return Lakehouse(catalog, clock)

    @contextmanager
    def begun(self) -> Iterator[dg.DagsterInstance]:
        """As it was made, with an instance that knows of no run."""
        kept = self.folder.with_suffix(".kept")
        if not kept.exists():
            shutil.copytree(self.folder, kept)
        shutil.rmtree(self.folder)
        shutil.copytree(kept, self.folder)
        with dg.DagsterInstance.ephemeral() as instance:
            yield instance

    def materialize(self, instance: dg.DagsterInstance, lake: Lakehouse) -> None:
        """A run of the asset. Raises Killed."""
        job = self.definitions.resolve_job_def(self.job)
        config = {**self.config, **QUIET}
        with self.resource.seen_as(lake):
            job.execute_in_process(instance=instance, tags=dict(self.tags), run_config=config)

    def look_after(self, instance: dg.DagsterInstance) -> None:
        """The upkeep of the tables, days later and again when the trash has its age."""
        for days, name in ((20, EXPIRE_JOB), (21, ORPHANS_JOB), (90, ORPHANS_JOB)):
            with self.resource.seen_as(self.lake(days_later=days)):
                self.definitions.resolve_job_def(name).execute_in_process(
                    instance=instance, tags={RETAIN_LAST_TAG: "1"}, run_config=QUIET
                )


def kill(world: World, mortal: Mortal, *, run_again: bool) -> None:
    """A run by a process that may die in it, and what comes after.

    Args:
        world: where.
        mortal: runs.
        run_again: whether the asset is run again before anybody looks after its tables.

    Raises:
        AssertionError: something is left, or is not right.
    """
    with world.begun() as instance:
        try:
            world.materialize(instance, world.lake(mortal))
        except BaseException as error:
            if not mortal.died_in:
                raise
            if isinstance(error, KeyboardInterrupt):
                raise
        for run in instance.get_runs():
            if not run.is_finished:
                instance.report_run_failed(run)
        if not run_again:
            world.look_after(instance)
            _nothing_is_left(world, f"after upkeep of what died in {mortal.died_in}")
        world.materialize(instance, world.lake())
        lake = world.lake()
        _no_branch(world, lake, f"after the run after the one that died in {mortal.died_in}")
        if run_again:
            world.look_after(instance)
            _nothing_is_left(world, f"after a run and upkeep of what died in {mortal.died_in}")
        world.judge(lake)


def _no_branch(world: World, lake: Lakehouse, when: str) -> None:
    for name in world.tables:
        if lake.table_exists(name):
            refs = [one for one in lake.load_table(name).refs() if one.startswith(AUDIT_BRANCH)]
            if refs:
                raise AssertionError(f"{name} has {refs} {when}")


def _nothing_is_left(world: World, when: str) -> None:
    lake = world.lake()
    _no_branch(world, lake, when)
    for name in world.tables:
        if lake.table_exists(name):
            table = lake.load_table(name)
            census = take_census(lake.catalog, table.identifier)
            if census.unreachable or census.missing:
                raise AssertionError(
                    f"{name}: left {sorted(census.unreachable)}, missing {sorted(census.missing)} "
                    f"{when}"
                )


def ingestion(rng: random.Random, folder: Path, spark: SparkSession) -> World:
    """A source, its first run or a later one; files repeat lines, some are broken."""
    pipe = Pipe(folder, spark)
    first, again = range(rng.randint(1, 30)), rng.randint(0, 5)
    pipe.land("1.jsonl.gz", [event(n, 1 + n % 3) for n in first], modified=1_000_000_000)
    if rng.random() < 0.7:
        pipe.index()
        pipe.ingest(june(1, 3))
    late = [event(n, 1 + n % 3) for n in range(len(first) - again, len(first) + 10) if n >= 0]
    broken = [b"broken", event(99, 2, id=None)][: rng.randint(0, 2)]
    pipe.land("2.jsonl.gz", [*late, *broken], modified=1_000_000_001)
    resource = LakehouseResource(catalog=pipe.warehouse, landing=pipe.landing)
    pipeline = Pipeline((EVENTS,), (), pipe.landing)
    session = LakehouseSpark()
    session._spark_session = spark

    def judge(lake: Lakehouse) -> None:
        pipe.lake = lake
        found, right = pipe.rows(), [(n,) for n in range(len(first) + 10)]
        if found != right:
            raise AssertionError(f"{found} instead of {right}")
        pipe.assert_conserved(len(first) + len(late) + len(broken))

    mode = rng.choice([IngestMode.INCREMENT, IngestMode.REPLACE])
    return World(
        folder,
        build_definitions(pipeline, resource, session),
        list(pipeline.maintained()),
        ingest_job_name("events"),
        resource,
        judge,
        ingest_tags(june(1)[0], june(20)[0]),
        ingest_config("events", mode),
    )


def plain_asset(rng: random.Random, folder: Path, _: SparkSession | None = None) -> World:
    """An asset whose rows are published when a blocking check has seen them."""
    name, resource = "marts.paid", LakehouseResource(catalog=(folder / "warehouse").as_uri())
    rows = pa.table({"id": [rng.randint(1, 9) for _ in range(3)]})

    @dg.asset(key=name.split("."))
    def paid() -> pa.Table:
        return rows

    @dg.asset_check(asset=paid, blocking=True)
    def positive(lakehouse: LakehouseResource) -> dg.AssetCheckResult:
        found = lakehouse.lake().load_table(name).scan(where="id <= 0").count()
        return dg.AssetCheckResult(passed=found == 0)

    manager = LakehouseIOManager(lakehouse=resource)
    asset = dg.Definitions(
        assets=[paid],
        asset_checks=[positive],
        jobs=[dg.define_asset_job("pay", [paid])],
        resources={"lakehouse": resource, "io_manager": manager},
    )
    lake = load_catalog(resource.catalog)
    if rng.random() < 0.7:
        lake.create_table(name, rows.schema).append(rows.slice(1))

    def judge(lake: Lakehouse) -> None:
        found = lake.load_table(name).scan().to_arrow()["id"].to_pylist()
        if found != rows["id"].to_pylist():
            raise AssertionError(f"{found} instead of {rows['id'].to_pylist()}")

    definitions = dg.Definitions.merge(asset, maintenance_definitions([name]))
    return World(folder, definitions, [name], "pay", resource, judge)


WORLDS = {"plain asset": plain_asset, "ingestion": ingestion}


def story(seed: int, spark: Callable[[], SparkSession], kinds: Sequence[str], found: Found) -> None:
    """A world in which a run is killed before each of its changes, and what came of that."""
    rng = random.Random(seed)
    kind = kinds[seed % len(kinds)]
    with tempfile.TemporaryDirectory() as folder:
        session = spark() if kind == "ingestion" else None
        world = WORLDS[kind](rng, Path(folder, "world"), session)
        for at in itertools.count():
            mortal, outcome = Mortal(at), "right"
            try:
                kill(world, mortal, run_again=rng.random() < 0.5)
            except Exception as error:  # noqa: BLE001 - that is what is looked for
                outcome = "fault"
                found.faults.append(f"seed {seed}, {kind}, change {at}: {error!r:.1500}")
            found.outcomes[kind, outcome] += 1
            if not mortal.died_in:
                break
