"""A Spark Declarative Pipeline as assets, with the snapshot of every run and what it read."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, Literal, Self

import dagster as dg
from dagster.components.component.state_backed_component import StateBackedComponent
from dagster.components.utils.defs_state import (
    DefsStateConfig,
    DefsStateConfigArgs,
    ResolvedDefsStateConfig,
)

from lakehouse.orchestration.assets.staleness import refresh_state
from lakehouse.orchestration.lineage.materialization import data_version, materialization_metadata
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.orchestration.run_publication import PUBLISH_TAG


@dataclass
class SparkPipelineComponent(StateBackedComponent, dg.Resolvable):
    """The tables of a pipeline that runs over `lakehouse spark-connect`.

    Dagster's own component (`dagster_spark`) finds datasets by regular expressions, because Spark's
    dry run names none, and knows neither what they read nor which snapshot a run made.

    Attributes:
        pipeline_spec_path: `spark-pipeline.yml`, relative to the folder of `defs.yaml`.
        remote: the server, such as `sc://127.0.0.1:15002`.
        execution_mode: what a run of the assets does.
        name: of the step.
        defs_state: where Dagster keeps what it knows of the datasets.
    """

    pipeline_spec_path: str
    remote: str = "sc://127.0.0.1:15002"
    execution_mode: Literal["incremental", "full_refresh"] = "incremental"
    name: str = "spark_pipeline"
    defs_state: ResolvedDefsStateConfig = field(
        default_factory=DefsStateConfigArgs.local_filesystem
    )

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Where Dagster keeps what it knows of the datasets."""
        return DefsStateConfig.from_args(
            self.defs_state, default_key=f"{type(self).__name__}[{self.name}]"
        )

    @classmethod
    def load(cls, attributes: Any, context: dg.ComponentLoadContext) -> Self:
        """The component of a `defs.yaml`; `pipeline_spec_path` is relative to its folder."""
        component = super().load(attributes, context)
        component.pipeline_spec_path = str((context.path / component.pipeline_spec_path).resolve())
        return component

    def write_state_to_path(self, state_path: Path) -> None:
        """Ask the project which datasets it has. Raises dg.Failure."""
        output = self._python("lakehouse.spark.connect.pipeline_datasets", self.pipeline_spec_path)
        state_path.parent.mkdir(parents=True, exist_ok=True)
        state_path.write_text(output.splitlines()[-1], encoding="utf-8")

    def get_asset_spec(self, dataset: Mapping[str, Any]) -> dg.AssetSpec:
        """The asset of a table (`pipeline_datasets.Dataset`): its key is the table's name."""
        return dg.AssetSpec(
            key=_key(dataset["name"]),
            deps=[_key(table) for table in dataset["inputs"]],
            description=dataset["comment"] or None,
            metadata={"source_file": dataset["source"]},
            kinds={"spark", "iceberg", dataset["kind"]},
        )

    def build_defs_from_state(
        self,
        context: dg.ComponentLoadContext,  # noqa: ARG002
        state_path: Path | None,
    ) -> dg.Definitions:
        """One step that runs the pipeline, or the chosen tables of it. It needs `lakehouse`."""
        if state_path is None or not state_path.exists():
            return dg.Definitions()
        tables = [
            entry
            for entry in json.loads(state_path.read_text(encoding="utf-8"))
            if entry["kind"] in ("materialized_view", "streaming_table")
        ]
        names = {_key(table["name"]): table["name"] for table in tables}
        inputs = {_key(table["name"]): map(_key, table["inputs"]) for table in tables}
        in_order = list(TopologicalSorter(inputs).static_order())

        @dg.multi_asset(
            specs=[self.get_asset_spec(table) for table in tables],
            can_subset=True,
            name=self.name,
        )
        def pipeline(
            context: dg.AssetExecutionContext, lakehouse: LakehouseResource
        ) -> Iterator[Any]:
            if lakehouse.run_branch is not None:
                raise dg.Failure(
                    f"{self.pipeline_spec_path}: the tables of this run are published together, "
                    f"and {self.remote} would write to main at once. Give the run the tag "
                    f"{PUBLISH_TAG} = step.",
                    allow_retries=False,
                )
            chosen = [key for key in in_order if key in context.selected_asset_keys]
            before = {key: _snapshot_id(lakehouse, key) for key in chosen}
            every = len(chosen) == len(tables)
            whole = self.execution_mode == "full_refresh"
            flag = "--full-refresh" if whole else "--refresh"
            arguments = ["--full-refresh-all"] if every and whole else []
            arguments = arguments if every else [flag, ",".join(names[key] for key in chosen)]
            failure = None
            try:
                context.log.info(self._run(*arguments))
            except dg.Failure as error:
                failure = error
            for key in chosen:
                if failure is None or _snapshot_id(lakehouse, key) != before[key]:
                    yield _materialized(lakehouse, key)
            if failure is not None:
                raise failure

        return dg.Definitions(assets=[pipeline])

    def _run(self, *arguments: str) -> str:
        spec = ("run", "--spec", self.pipeline_spec_path)
        return self._python("pyspark.pipelines.cli", *spec, *arguments)

    def _python(self, module: str, *arguments: str) -> str:
        """What a module prints. Raises dg.Failure."""
        done = subprocess.run(  # noqa: S603 - this interpreter, modules of ours and Spark's
            [sys.executable, "-m", module, *arguments],
            env={**os.environ, "SPARK_REMOTE": self.remote},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise dg.Failure(
                f"{self.pipeline_spec_path} over {self.remote}: {done.stderr.strip()[-4000:]}"
            )
        return f"{done.stderr}\n{done.stdout}"


def _key(name: str) -> dg.AssetKey:
    """Of a name with its catalog."""
    return dg.AssetKey(name.split(".")[1:])


def _snapshot_id(lakehouse: LakehouseResource, key: dg.AssetKey) -> int | None:
    lake, name = lakehouse.lake(), ".".join(key.path)
    return lake.load_table(name).metadata.current_snapshot_id if lake.table_exists(name) else None


def _materialized(lakehouse: LakehouseResource, key: dg.AssetKey) -> dg.MaterializeResult[Any]:
    table = lakehouse.lake().load_table(".".join(key.path))
    snapshot = table.current_snapshot()
    if snapshot is None:
        return dg.MaterializeResult(asset_key=key)
    state = refresh_state(table)
    return dg.MaterializeResult(
        asset_key=key,
        data_version=data_version(snapshot),
        metadata=materialization_metadata(table, snapshot, {} if state is None else state.inputs),
    )
