"""The Dagster glue: resources, materialization metadata, checks before publication, lineage.

Names are imported when they are first used: Spark workers import this package, and need none of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakehouse.ingestion.feeds.change_feed import ChangeFeed
    from lakehouse.ingestion.read_options import ReadOptions
    from lakehouse.ingestion.source import Column, EventTime, Source
    from lakehouse.orchestration.assets.asset_table import plain_tables, with_code_versions
    from lakehouse.orchestration.assets.blocking_checks import suite_checks
    from lakehouse.orchestration.assets.derived_table import DerivedTable
    from lakehouse.orchestration.assets.lakehouse_io_manager import LakehouseIOManager
    from lakehouse.orchestration.assets.sql_model import SqlModel
    from lakehouse.orchestration.assets.stream_run import run_stream
    from lakehouse.orchestration.automation.failure_alerts import by_command, failure_alerts
    from lakehouse.orchestration.automation.ingestion_jobs import nightly_schedule, source_jobs
    from lakehouse.orchestration.automation.landing_sensors import landing_checks, landing_sensor
    from lakehouse.orchestration.automation.maintenance_jobs import (
        maintenance_jobs,
        state_job,
        undo_job,
    )
    from lakehouse.orchestration.automation.maintenance_sensors import (
        maintenance_schedules,
        maintenance_sensors,
    )
    from lakehouse.orchestration.automation.quarantine_retry import fill_job, retry_job
    from lakehouse.orchestration.automation.table_maintenance import TableMaintenance
    from lakehouse.orchestration.checks.expectations import Suite, expect
    from lakehouse.orchestration.checks.statement_checks import (
        statement_checks,
        statement_job,
        statement_sensor,
    )
    from lakehouse.orchestration.code_location import build_definitions
    from lakehouse.orchestration.discovery import discover
    from lakehouse.orchestration.materialized_view import MaterializedView
    from lakehouse.orchestration.project import Pipeline
    from lakehouse.orchestration.publishing_executor import publishing
    from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark
    from lakehouse.orchestration.state.state_asset import state_asset

__all__ = [
    "ChangeFeed",
    "Column",
    "DerivedTable",
    "EventTime",
    "LakehouseIOManager",
    "LakehouseResource",
    "LakehouseSpark",
    "MaterializedView",
    "Pipeline",
    "ReadOptions",
    "Source",
    "SqlModel",
    "Suite",
    "TableMaintenance",
    "build_definitions",
    "by_command",
    "discover",
    "expect",
    "failure_alerts",
    "fill_job",
    "landing_checks",
    "landing_sensor",
    "maintenance_jobs",
    "maintenance_schedules",
    "maintenance_sensors",
    "nightly_schedule",
    "plain_tables",
    "publishing",
    "retry_job",
    "run_stream",
    "source_jobs",
    "state_asset",
    "state_job",
    "statement_checks",
    "statement_job",
    "statement_sensor",
    "suite_checks",
    "undo_job",
    "with_code_versions",
]

_HOMES = {
    "ChangeFeed": "ingestion.feeds.change_feed",
    "Column": "ingestion.source",
    "DerivedTable": "orchestration.assets.derived_table",
    "EventTime": "ingestion.source",
    "LakehouseIOManager": "orchestration.assets.lakehouse_io_manager",
    "LakehouseResource": "orchestration.resources",
    "LakehouseSpark": "orchestration.resources",
    "MaterializedView": "orchestration.materialized_view",
    "Pipeline": "orchestration.project",
    "ReadOptions": "ingestion.read_options",
    "Source": "ingestion.source",
    "SqlModel": "orchestration.assets.sql_model",
    "Suite": "orchestration.checks.expectations",
    "TableMaintenance": "orchestration.automation.table_maintenance",
    "build_definitions": "orchestration.code_location",
    "by_command": "orchestration.automation.failure_alerts",
    "discover": "orchestration.discovery",
    "expect": "orchestration.checks.expectations",
    "failure_alerts": "orchestration.automation.failure_alerts",
    "fill_job": "orchestration.automation.quarantine_retry",
    "landing_checks": "orchestration.automation.landing_sensors",
    "landing_sensor": "orchestration.automation.landing_sensors",
    "maintenance_jobs": "orchestration.automation.maintenance_jobs",
    "maintenance_schedules": "orchestration.automation.maintenance_sensors",
    "maintenance_sensors": "orchestration.automation.maintenance_sensors",
    "nightly_schedule": "orchestration.automation.ingestion_jobs",
    "plain_tables": "orchestration.assets.asset_table",
    "publishing": "orchestration.publishing_executor",
    "retry_job": "orchestration.automation.quarantine_retry",
    "run_stream": "orchestration.assets.stream_run",
    "source_jobs": "orchestration.automation.ingestion_jobs",
    "state_asset": "orchestration.state.state_asset",
    "state_job": "orchestration.automation.maintenance_jobs",
    "statement_checks": "orchestration.checks.statement_checks",
    "statement_job": "orchestration.checks.statement_checks",
    "statement_sensor": "orchestration.checks.statement_checks",
    "suite_checks": "orchestration.assets.blocking_checks",
    "undo_job": "orchestration.automation.maintenance_jobs",
    "with_code_versions": "orchestration.assets.asset_table",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"lakehouse.{_HOMES[name]}"), name)
