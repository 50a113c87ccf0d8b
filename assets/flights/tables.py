"""Tables derived from flights by the `.sql` files beside this module.

`clean/flights` -> `marts/carrier_day` (by day) and `marts/aircraft` (one row an aircraft).
"""

from __future__ import annotations

import os
from pathlib import Path

from assets.flights.checks import (
    AIRCRAFT_CONTRACT,
    CARRIER_DAY_CONTRACT,
    CLEAN_CONTRACT,
    CLEAN_PLAUSIBLE,
)
from lakehouse.orchestration import SqlModel
from lakehouse.orchestration.assets.frames import engine_name

HERE = Path(__file__).parent
ENGINE = engine_name(os.environ.get("LAKEHOUSE_ENGINE") or "spark", "LAKEHOUSE_ENGINE")

CLEAN_FLIGHTS = SqlModel(
    name="clean.flights",
    sql=(HERE / "clean.sql").read_text(encoding="utf-8"),
    engine=ENGINE,
    owners=("team:flights",),
    tags={"domain": "aviation"},
    day_column="event_ts",
    partition_by=("day(event_ts)",),
    sort_by=("event_ts",),
    table_properties={"lakehouse.maintenance.layout-by-age": "30d: month(event_ts)"},
    description="One row a flight: status, delays in minutes, true departure time.",
    suites=(CLEAN_CONTRACT, CLEAN_PLAUSIBLE),
)

CARRIER_DAYS = SqlModel(
    name="marts.carrier_day",
    sql=(HERE / "carrier_day.sql").read_text(encoding="utf-8"),
    engine=ENGINE,
    owners=("team:flights",),
    tags={"domain": "aviation"},
    day_column="day",
    day_is_date=True,
    partition_by=("month(day)",),
    description="Flights, cancellations and delays by day, carrier and airport.",
    suites=(CARRIER_DAY_CONTRACT,),
)

AIRCRAFTS = SqlModel(
    name="marts.aircraft",
    sql=(HERE / "aircraft.sql").read_text(encoding="utf-8"),
    engine=ENGINE,
    owners=("team:flights",),
    tags={"domain": "aviation"},
    partition_by=("bucket(2, tailnum)",),
    description="One row an aircraft, by tail number.",
    suites=(AIRCRAFT_CONTRACT,),
)
