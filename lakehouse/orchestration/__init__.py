"""The Dagster glue: resources, materialization metadata, checks before publication, lineage.

Names are imported when they are first used: Spark workers import this package, and need none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehouse.names_when_used import names_when_used

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
    from lakehouse.orchestration.checks.expectations import Suite, expect
    from lakehouse.orchestration.checks.statement_checks import (
        statement_checks,
        statement_job,
        statement_sensor,
    )
    from lakehouse.orchestration.code_location import TableMaintenance, build_definitions
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
    "ingestion.feeds.change_feed": "ChangeFeed",
    "ingestion.read_options": "ReadOptions",
    "ingestion.source": "Column EventTime Source",
    "orchestration.assets.asset_table": "plain_tables with_code_versions",
    "orchestration.assets.blocking_checks": "suite_checks",
    "orchestration.assets.derived_table": "DerivedTable",
    "orchestration.assets.lakehouse_io_manager": "LakehouseIOManager",
    "orchestration.assets.sql_model": "SqlModel",
    "orchestration.assets.stream_run": "run_stream",
    "orchestration.automation.failure_alerts": "by_command failure_alerts",
    "orchestration.automation.ingestion_jobs": "nightly_schedule source_jobs",
    "orchestration.automation.landing_sensors": "landing_checks landing_sensor",
    "orchestration.automation.maintenance_jobs": "maintenance_jobs state_job undo_job",
    "orchestration.automation.maintenance_sensors": "maintenance_schedules maintenance_sensors",
    "orchestration.automation.quarantine_retry": "fill_job retry_job",
    "orchestration.checks.expectations": "Suite expect",
    "orchestration.checks.statement_checks": "statement_checks statement_job statement_sensor",
    "orchestration.code_location": "TableMaintenance build_definitions",
    "orchestration.discovery": "discover",
    "orchestration.materialized_view": "MaterializedView",
    "orchestration.project": "Pipeline",
    "orchestration.publishing_executor": "publishing",
    "orchestration.resources": "LakehouseResource LakehouseSpark",
    "orchestration.state.state_asset": "state_asset",
}
__getattr__ = names_when_used(__name__, _HOMES)
