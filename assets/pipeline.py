"""The sources and derived tables as one value, of which jobs and sensors are made."""

from __future__ import annotations

import os
from pathlib import Path

from assets.flights.busiest_airports import busiest_airports
from assets.flights.source import FLIGHTS
from assets.flights.tables import AIRCRAFTS, CARRIER_DAYS, CLEAN_FLIGHTS
from assets.wiki.source import WIKI_EDITS
from lakehouse.orchestration import Pipeline, plain_tables

CHECKOUT = Path(__file__).resolve().parents[1]

PIPELINE = Pipeline(
    sources=(FLIGHTS, WIKI_EDITS),
    derived=(CLEAN_FLIGHTS.table(), CARRIER_DAYS.table(), AIRCRAFTS.table()),
    landing_root=os.environ.get("LAKEHOUSE_LANDING") or str(CHECKOUT / ".lakehouse" / "landing"),
    others=plain_tables([busiest_airports]),
)
WRITTEN = list(PIPELINE.table_names())
"""Every table that the pipeline writes."""
MAINTAINED = PIPELINE.maintained()
"""Every table that the jobs and sensors of maintenance look after."""
