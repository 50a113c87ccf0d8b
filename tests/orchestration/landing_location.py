"""The events pipeline's landing sensor and alerts as a code location for Dagster's daemon.

Its folder is `LANDING_ROOT`; what is told is appended to `told.jsonl` there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import dagster as dg

from lakehouse.orchestration.automation.failure_alerts import failure_alerts
from lakehouse.orchestration.automation.ingestion_jobs import source_jobs
from lakehouse.orchestration.automation.landing_sensors import landing_checks, landing_sensor
from lakehouse.orchestration.project import Pipeline
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark
from tests.orchestration.conftest import EVENTS

_ROOT = Path(os.environ["LANDING_ROOT"])
_LAKEHOUSE = LakehouseResource(
    catalog=(_ROOT / "warehouse").as_uri(), landing=str(_ROOT / "landing")
)
_PIPELINE = Pipeline((EVENTS,), (), _LAKEHOUSE.landing)
_JOBS = source_jobs(_PIPELINE, EVENTS)


def _tell(text: str) -> None:
    with (_ROOT / "told.jsonl").open("a") as file:
        file.write(json.dumps(text) + "\n")


defs = dg.Definitions(
    assets=_PIPELINE.assets(),
    asset_checks=landing_checks(_PIPELINE),
    jobs=_JOBS,
    sensors=[landing_sensor(_PIPELINE, EVENTS, _JOBS), failure_alerts(_tell)],
    resources={"lakehouse": _LAKEHOUSE, "spark": LakehouseSpark()},
)
