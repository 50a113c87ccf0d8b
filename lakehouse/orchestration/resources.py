"""Dagster resources: the catalog, the landing root, and the Spark session."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr, TypeAdapter, ValidationError
from pyspark.sql import SparkSession

from lakehouse.catalog.open_branches import BRANCH_VARIABLE
from lakehouse.errors import InvalidInputError
from lakehouse.lake import Lakehouse, load_catalog
from lakehouse.orchestration.run_publication import (
    BY_EXECUTOR_TAG,
    KEEP_MS,
    has_succeeded,
    publish_left,
    publish_run,
    run_branch,
)
from lakehouse.orchestration.warm_runs import code_location
from lakehouse.spark.spark_session import build_session, spark_config
from lakehouse.spark.warm_session import (
    CAN_SHARE,
    has_spark,
    is_running,
    leave_lost,
    shared_process,
    warm_session,
)

SPARK_VARIABLE = "LAKEHOUSE_SPARK"
"""`own`: each run starts a Spark of its own; `shared`, the default: it uses its location's."""
SPARK_USED = "lakehouse/spark"
_SEEN: ContextVar[tuple[tuple[str, ...], Lakehouse] | None] = ContextVar("seen", default=None)


class LakehouseResource(dg.ConfigurableResource[Any]):
    """The catalog that assets write to.

    Dagster shows configuration in its UI and keeps it with each run. What may hold a secret
    (`catalog`, `properties`) is given as `dg.EnvVar("NAME")`, which is looked up when the catalog
    is opened.

    Attributes:
        catalog: its URI or configured name, as `lakehouse.load_catalog` takes it.
        name: the catalog's name, part of a SQL catalog's key; empty: its own.
        properties: catalog and storage options as a JSON object of strings.
        warehouse: location of new tables, for catalogs that are not the warehouse themselves;
            empty: none.
        landing: root of the landing folders; empty: none, for projects without sources.
        publish: `step`: each step publishes what it wrote; `run`: all tables that a run wrote are
            published together when its last step has succeeded. The run tag `lakehouse/publish`
            comes first.
        branch: of the lake, where everything is written, and read where it has rows; empty: the
            variable `LAKEHOUSE_BRANCH`, and without that main.
    """

    catalog: str = Field(repr=False)
    warehouse: str = ""
    name: str = ""
    properties: str = Field("{}", repr=False)
    landing: str = ""
    publish: str = "step"
    branch: str = ""
    _run_branch: str | None = PrivateAttr(None)

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[LakehouseResource]:
        """Write to the branch of the run, and publish it when all steps have succeeded."""
        run, instance = context.run, context.instance
        is_real = run is not None and instance is not None and _SEEN.get() is None
        self._run_branch = run_branch(run, instance, self.publish) if is_real else None
        if run is None or instance is None or self._run_branch is None:
            yield self
            return
        publish_left(self.shared_lake(), instance, dg.get_dagster_logger().warning)
        yield self
        now = instance.get_run_by_id(run.run_id)
        if now is not None and BY_EXECUTOR_TAG not in now.tags and has_succeeded(now, instance):
            self.publish_run(now, instance)

    @property
    def run_branch(self) -> str | None:
        """The branch that this run writes to; None: each of its steps publishes."""
        return self._run_branch

    def publish_run(self, run: dg.DagsterRun, instance: dg.DagsterInstance) -> None:
        """Publish what a run wrote. Raises DagsterInvariantViolationError."""
        branch = run_branch(run, instance, self.publish)
        if branch is not None:
            publish_run(self.shared_lake(), branch, run, instance)

    def lake(self) -> Lakehouse:
        """Open the catalog, on the branch of the run where it has one. Raises InvalidInputError."""
        seen = _SEEN.get()
        if seen is not None and seen[0] == self._place():
            return seen[1]
        lake = self.shared_lake()
        return lake.on_branch(self._run_branch, keep_ms=KEEP_MS) if self._run_branch else lake

    def shared_lake(self) -> Lakehouse:
        """Open the catalog as those who are not of the run see it. Raises InvalidInputError."""
        options: dict[str, Any] = _options(_value(self.properties))
        lake = load_catalog(
            _value(self.catalog),
            warehouse=_value(self.warehouse) or None,
            name=_value(self.name) or None,
            **options,
        )
        branch = self.branch or os.environ.get(BRANCH_VARIABLE)
        return lake.on_branch(branch) if branch else lake

    @contextmanager
    def seen_as(self, lake: Lakehouse) -> Iterator[None]:
        """Within, every resource of this catalog opens `lake`."""
        before = _SEEN.set((self._place(), lake))
        try:
            yield
        finally:
            _SEEN.reset(before)

    def _place(self) -> tuple[str, ...]:
        return tuple(map(_value, (self.catalog, self.warehouse, self.name, self.properties)))


def _value(setting: str) -> str:
    """The text of a setting.

    In a run Dagster has replaced variables by their values; outside of one they are still names.
    """
    return setting.get_value() or "" if isinstance(setting, dg.EnvVar) else setting


def _options(properties: str) -> dict[str, str]:
    try:
        return TypeAdapter(dict[str, str]).validate_json(properties)
    except ValidationError:  # shows what it was given
        raise InvalidInputError(
            "The properties of the catalog must be a JSON object of strings."
        ) from None


class LakehouseSpark(LazyPySparkResource):
    """dagster-pyspark's lazy session: no JVM starts before the first step asks for it.

    Runs of a code location that start on this machine share a JVM, which stays for the next ones
    (`warm_session`), where Spark runs in it (a `local` master). All others have one of their own,
    and so has each where the variable `LAKEHOUSE_SPARK` is `own`.

    Attributes:
        spark_config: Spark configuration to add or to replace.
        master: where Spark runs.
    """

    spark_config: dict[str, Any] = {}  # noqa: RUF012 - a pydantic field, copied for each instance
    master: str = "local[*]"

    def _init_session(self) -> None:
        leave_lost()
        if is_running(self._spark_session):
            return
        location = _code_location() if self.master.startswith("local") else None
        self._spark_session = (
            build_session("lakehouse", master=self.master, config=self.spark_config)
            if location is None
            else warm_session(*location, spark_config(master=self.master, config=self.spark_config))
        )

    def used(self) -> dict[str, dg.MetadataValue]:
        """Metadata: which Spark this run has used; none of one that has used none."""
        spark = self._spark_session
        if spark is None:
            return {}
        process = shared_process(spark)
        said = "of this run alone" if process is None else f"shared, process {process}"
        return {SPARK_USED: dg.MetadataValue.text(said)}


def _code_location() -> tuple[int, str] | None:
    """Who started this process as a run, and of what; None where Spark is not shared."""
    chosen = os.environ.get(SPARK_VARIABLE) or "shared"
    if chosen not in ("shared", "own"):
        raise InvalidInputError(f"{SPARK_VARIABLE} is shared or own, not {chosen!r}")
    return None if chosen == "own" or not CAN_SHARE or has_spark() else code_location()


@contextmanager
def spark_when_asked(name: str) -> Iterator[Callable[[], SparkSession]]:
    """Gives a Spark session that starts when it is first used, and is stopped afterwards."""
    started: list[SparkSession] = []

    def session() -> SparkSession:
        if not started:
            started.append(build_session(name))
        return started[0]

    try:
        yield session
    finally:
        for value in started:
            value.stop()
