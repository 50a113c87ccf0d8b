"""Edits of Wikipedia of September 2015, known from Apache Druid's tutorial.

Put the file into `<landing root>/wiki_edits/`. The assets and checks are those of
`assets/flights/source.py`: `landing/wiki_edits`, `raw/wiki_edits_landing`, `raw/wiki_edits`,
`raw/wiki_edits_quarantine`.
"""

from __future__ import annotations

from datetime import date

from lakehouse.ingestion.source import EventTime, Source

WIKI_EDITS = Source(
    name="wiki_edits",
    pattern="*.json.gz",
    event_time=EventTime("time"),
    first_day=date(2015, 9, 1),
    last_day=date(2015, 11, 30),
    bucket="user",
    buckets=4,
)
