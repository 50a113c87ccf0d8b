"""Checks of all tables, and the page on their state; those of one table stand beside it."""

from __future__ import annotations

from assets.pipeline import MAINTAINED, PIPELINE, WRITTEN
from lakehouse.orchestration import landing_checks, state_asset, statement_checks
from lakehouse.orchestration.automation.maintenance_jobs import PROJECT_POLICY

# lakehouse/state, with a check for each table: raw__flights_within_policy,
# raw__flights_landing_within_policy, raw__flights_quarantine_within_policy,
# raw__wiki_edits_within_policy, raw__wiki_edits_landing_within_policy,
# raw__wiki_edits_quarantine_within_policy, clean__flights_within_policy,
# marts__carrier_day_within_policy, marts__aircraft_within_policy,
# marts__busiest_airports_within_policy, semantics__statements_within_policy,
# semantics__verifications_within_policy, semantics__forgotten_within_policy,
# lakehouse__publications_within_policy, lakehouse__tuning_within_policy
lakehouse_state = state_asset(MAINTAINED, PROJECT_POLICY)

# raw/<source>: nothing was left waiting by run after run
nothing_given_up = landing_checks(PIPELINE)

# every table: what is stated about it still is so
statements_hold = statement_checks(WRITTEN)
