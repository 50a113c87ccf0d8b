"""Tables derived from flights: cleaned, by carrier and day, and one row an aircraft."""

from __future__ import annotations

import os

from lakehouse.orchestration.checks.expectations import Suite, expect
from lakehouse.orchestration.derived.model_engines import engine_name
from lakehouse.orchestration.derived.sql_model import SqlModel

ENGINE = engine_name(os.environ.get("LAKEHOUSE_ENGINE") or "spark", "LAKEHOUSE_ENGINE")
RAW, CLEAN, CARRIER_DAY, AIRCRAFT = (
    "raw.flights",
    "clean.flights",
    "marts.carrier_day",
    "marts.aircraft",
)


CLEAN_SQL = """
SELECT
  event_ts,
  timestampadd(MINUTE, dep_delay, event_ts) AS departed_at,
  CASE
    WHEN dep_time IS NULL THEN 'cancelled' WHEN air_time IS NULL THEN 'diverted' ELSE 'flown'
  END AS status,
  carrier,
  flight,
  nullif(trim(tailnum), '') AS tailnum,
  origin,
  dest,
  dep_delay AS departure_delay_minutes,
  arr_delay AS arrival_delay_minutes,
  air_time AS air_minutes,
  distance AS distance_miles
FROM raw.flights
"""
CARRIER_DAY_SQL = """
SELECT
  to_date(event_ts) AS day,
  carrier,
  origin,
  count(*) AS flights,
  count_if(status = 'cancelled') AS cancelled,
  count_if(departure_delay_minutes > 15) AS late,
  avg(departure_delay_minutes) AS departure_delay_avg_minutes,
  sum(distance_miles) AS distance_miles
FROM clean.flights
GROUP BY to_date(event_ts), carrier, origin
"""
AIRCRAFT_SQL = """
SELECT
  tailnum,
  count(*) AS flights,
  count_if(status = 'flown') AS flown,
  min(event_ts) AS first_seen,
  max(event_ts) AS last_seen,
  listagg(DISTINCT carrier, ',') WITHIN GROUP (ORDER BY carrier) AS carriers,
  sum(CASE WHEN status = 'flown' THEN distance_miles END) AS flown_miles,
  sum(air_minutes) AS air_minutes
FROM clean.flights
WHERE tailnum IS NOT NULL
GROUP BY tailnum
"""


def _from(table: str, **columns: str | tuple[str, ...]) -> dict[str, list[tuple[str, str]]]:
    return {
        out: [(table, one) for one in ((sources,) if isinstance(sources, str) else sources)]
        for out, sources in columns.items()
    }


CLEAN_FLIGHTS = SqlModel(
    name=CLEAN,
    sql=CLEAN_SQL,
    engine=ENGINE,
    owners=("team:flights",),
    tags={"domain": "aviation"},
    day_column="event_ts",
    partition_by=("day(event_ts)",),
    sort_by=("event_ts",),
    description="One row a flight: status, delays in minutes, true departure time.",
    columns=_from(
        RAW,
        event_ts="event_ts",
        departed_at=("event_ts", "dep_delay"),
        status=("dep_time", "air_time"),
        carrier="carrier",
        flight="flight",
        tailnum="tailnum",
        origin="origin",
        dest="dest",
        departure_delay_minutes="dep_delay",
        arrival_delay_minutes="arr_delay",
        air_minutes="air_time",
        distance_miles="distance",
    ),
    suites=(
        Suite(
            "contract",
            (
                expect("column_values_to_not_be_null", column="event_ts"),
                expect(
                    "column_values_to_be_in_set", column="origin", value_set=["EWR", "JFK", "LGA"]
                ),
                expect(
                    "column_values_to_be_in_set",
                    column="status",
                    value_set=["flown", "cancelled", "diverted"],
                ),
                expect(
                    "column_values_to_be_between",
                    column="distance_miles",
                    min_value=1,
                    max_value=6000,
                ),
            ),
            description="what the tables below build on",
        ),
        Suite(
            "plausible",
            (
                expect(
                    "column_values_to_be_between",
                    column="departure_delay_minutes",
                    min_value=-60,
                    max_value=720,
                ),
                expect("column_values_to_not_be_null", column="tailnum", mostly=0.95),
            ),
            blocking=False,
            description=(
                "no flight leaves more than an hour early or twelve hours late (some did, in 2013)"
            ),
        ),
    ),
)

CARRIER_DAYS = SqlModel(
    name=CARRIER_DAY,
    sql=CARRIER_DAY_SQL,
    engine=ENGINE,
    owners=("team:flights",),
    tags={"domain": "aviation"},
    day_column="day",
    day_is_date=True,
    partition_by=("month(day)",),
    description="Flights, cancellations and delays by day, carrier and airport.",
    columns=_from(
        CLEAN,
        day="event_ts",
        carrier="carrier",
        origin="origin",
        flights="event_ts",
        cancelled="status",
        late="departure_delay_minutes",
        departure_delay_avg_minutes="departure_delay_minutes",
        distance_miles="distance_miles",
    ),
    suites=(
        Suite(
            "contract",
            (
                expect("compound_columns_to_be_unique", column_list=["day", "carrier", "origin"]),
                expect("column_values_to_be_between", column="flights", min_value=1),
            ),
        ),
    ),
)

AIRCRAFTS = SqlModel(
    name=AIRCRAFT,
    sql=AIRCRAFT_SQL,
    engine=ENGINE,
    owners=("team:flights",),
    tags={"domain": "aviation"},
    partition_by=("bucket(2, tailnum)",),
    description="One row an aircraft, by tail number.",
    columns=_from(
        CLEAN,
        tailnum="tailnum",
        flights="event_ts",
        flown="status",
        first_seen="event_ts",
        last_seen="event_ts",
        carriers="carrier",
        flown_miles=("status", "distance_miles"),
        air_minutes="air_minutes",
    ),
    suites=(
        Suite(
            "contract",
            (
                expect("column_values_to_be_unique", column="tailnum"),
                expect("column_values_to_not_be_null", column="tailnum"),
            ),
            description="one row a key",
        ),
    ),
)

FLIGHT_TABLES = (CLEAN_FLIGHTS, CARRIER_DAYS, AIRCRAFTS)
