"""Sensors that ask for maintenance, by metadata alone, and for what else is due."""

from __future__ import annotations

import dagster as dg

from assets.pipeline import MAINTAINED, WRITTEN
from lakehouse.orchestration import maintenance_sensors, statement_sensor

# of the jobs compact, rewrite_manifests, expire and tuning, by each table's policy
small_files, many_manifests, old_snapshots, tuning = maintenance_sensors(MAINTAINED)

statements_to_check = statement_sensor(WRITTEN)

automation_conditions = dg.AutomationConditionSensorDefinition(
    "automation_conditions",
    target=dg.AssetSelection.all(),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Computes assets by their automation conditions, such as marts/busiest_airports. "
    "The switch beside its name stops it.",
)
