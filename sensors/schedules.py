"""What runs by the clock."""

from __future__ import annotations

from assets.flights.source import FLIGHTS
from assets.wiki.source import WIKI_EDITS
from jobs.ingest import index_flights, index_wiki_edits
from lakehouse.orchestration import maintenance_schedules, nightly_schedule

# files that could not be read are tried again
nightly_flights = nightly_schedule(FLIGHTS, index_flights)
nightly_wiki_edits = nightly_schedule(WIKI_EDITS, index_wiki_edits)

# of the jobs remove_orphans and lakehouse_state
nightly_orphans, hourly_state = maintenance_schedules()
