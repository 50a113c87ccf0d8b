"""A process that ingests through Dagster, to be killed.

`python -m tests.orchestration.killed_run ROOT`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import dagster as dg

from lakehouse.orchestration.automation.run_requests import (
    ingest_config,
    ingest_job_name,
    ingest_tags,
)
from lakehouse.orchestration.code_location import build_definitions
from lakehouse.orchestration.project import Pipeline
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark
from lakehouse.orchestration.source_assets import IngestMode
from lakehouse.orchestration.warm_runs import PROCESS_TAG, process_tag
from tests.orchestration.conftest import EVENTS, june


def definitions_of(root: Path) -> dg.Definitions:
    """The events pipeline on a folder."""
    resource = LakehouseResource(
        catalog=(root / "warehouse").as_uri(), landing=str(root / "landing")
    )
    return build_definitions(
        Pipeline((EVENTS,), (), resource.landing), resource, LakehouseSpark(master="local[2]")
    )


def ingest(root: Path, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    """Ingest every day, replacing what is there."""
    return (
        definitions_of(root)
        .resolve_job_def(ingest_job_name("events"))
        .execute_in_process(
            instance=instance,
            tags={**ingest_tags(june(1)[0], june(20)[0]), PROCESS_TAG: process_tag()},
            run_config={
                **ingest_config("events", IngestMode.INCREMENT),
                "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
            },
        )
    )


if __name__ == "__main__":
    with dg.DagsterInstance.from_config(str(Path(sys.argv[1]) / "dagster")) as opened:
        ingest(Path(sys.argv[1]), opened)
