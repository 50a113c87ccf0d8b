"""Checks of all tables, and the page on their state; those of one table stand beside it."""

from __future__ import annotations

from assets.pipeline import MAINTAINED, PIPELINE, WRITTEN
from lakehouse.orchestration import landing_checks, state_asset, statement_checks
from lakehouse.orchestration.automation.maintenance_jobs import PROJECT_POLICY

# lakehouse/state, with a check `<table>_within_policy` for each table
lakehouse_state = state_asset(MAINTAINED, PROJECT_POLICY)

# raw/<source>: nothing was left waiting by run after run
nothing_given_up = landing_checks(PIPELINE)

# every table: what is stated about it still is so
statements_hold = statement_checks(WRITTEN)
