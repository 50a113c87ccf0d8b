"""One sensor for each source: a run when files landed, days wait or derived tables are stale."""

from __future__ import annotations

from assets.flights.source import FLIGHTS
from assets.pipeline import PIPELINE
from assets.wiki.source import WIKI_EDITS
from jobs.ingest import index_flights, index_wiki_edits, ingest_flights, ingest_wiki_edits
from lakehouse.orchestration import landing_sensor

landed_flights = landing_sensor(PIPELINE, FLIGHTS, [index_flights, ingest_flights])
landed_wiki_edits = landing_sensor(PIPELINE, WIKI_EDITS, [index_wiki_edits, ingest_wiki_edits])
