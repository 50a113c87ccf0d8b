"""Two jobs for each source: index what landed, then write its days and what derives from them.

And two for all: have quarantined lines taken again, and fill columns that were declared late.
"""

from __future__ import annotations

from assets.flights.source import FLIGHTS
from assets.pipeline import PIPELINE
from assets.wiki.source import WIKI_EDITS
from lakehouse.orchestration import fill_job, retry_job, source_jobs

index_flights, ingest_flights = source_jobs(PIPELINE, FLIGHTS)
index_wiki_edits, ingest_wiki_edits = source_jobs(PIPELINE, WIKI_EDITS)

# quarantined lines are pending again, to be judged by today's definitions
retry_quarantine = retry_job(PIPELINE)

# columns that were declared late take what sources with `rescue` kept
fill_columns = fill_job(PIPELINE)
