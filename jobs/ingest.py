"""Two jobs for each source: index what landed, then write its days and what derives from them."""

from __future__ import annotations

from assets.flights.source import FLIGHTS
from assets.pipeline import PIPELINE
from assets.wiki.source import WIKI_EDITS
from lakehouse.orchestration import source_jobs

index_flights, ingest_flights = source_jobs(PIPELINE, FLIGHTS)
index_wiki_edits, ingest_wiki_edits = source_jobs(PIPELINE, WIKI_EDITS)
