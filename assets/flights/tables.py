"""Tables derived from flights: cleaned, by carrier and day, and one row an aircraft."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from lakehouse.orchestration.checks.expectations import Suite, expect
from lakehouse.orchestration.derived.derived_table import DerivedTable

RAW, CLEAN, CARRIER_DAY, AIRCRAFT = (
    "raw.flights",
    "clean.flights",
    "marts.carrier_day",
    "marts.aircraft",
)


def clean(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """One row a flight with a status, delays in minutes and the true departure time."""
    raw = inputs[RAW]
    departed = F.expr("timestampadd(MINUTE, dep_delay, event_ts)")
    return raw.select(
        "event_ts",
        departed.alias("departed_at"),
        F.when(F.col("dep_time").isNull(), "cancelled")
        .when(F.col("air_time").isNull(), "diverted")
        .otherwise("flown")
        .alias("status"),
        "carrier",
        "flight",
        F.nullif(F.trim("tailnum"), F.lit("")).alias("tailnum"),
        "origin",
        "dest",
        F.col("dep_delay").alias("departure_delay_minutes"),
        F.col("arr_delay").alias("arrival_delay_minutes"),
        F.col("air_time").alias("air_minutes"),
        F.col("distance").alias("distance_miles"),
    )


def carrier_day(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Flights and delays by day (UTC), carrier and airport of departure."""
    late = F.col("departure_delay_minutes") > 15
    return (
        inputs[CLEAN]
        .groupBy(F.to_date("event_ts").alias("day"), "carrier", "origin")
        .agg(
            F.count("*").alias("flights"),
            F.count_if(F.col("status") == "cancelled").alias("cancelled"),
            F.count_if(late).alias("late"),
            F.round(F.avg("departure_delay_minutes"), 3).alias("departure_delay_avg_minutes"),
            F.sum("distance_miles").alias("distance_miles"),
        )
    )


def aircraft(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """One row an aircraft: what it flew, for whom, first and last."""
    flown = inputs[CLEAN].where("tailnum is not null")
    return flown.groupBy("tailnum").agg(
        F.count("*").alias("flights"),
        F.count_if(F.col("status") == "flown").alias("flown"),
        F.min("event_ts").alias("first_seen"),
        F.max("event_ts").alias("last_seen"),
        F.concat_ws(",", F.array_sort(F.collect_set("carrier"))).alias("carriers"),
        F.sum(F.when(F.col("status") == "flown", F.col("distance_miles"))).alias("flown_miles"),
        F.sum("air_minutes").alias("air_minutes"),
    )


def _from(table: str, **columns: str | tuple[str, ...]) -> dict[str, list[tuple[str, str]]]:
    return {
        out: [(table, one) for one in ((sources,) if isinstance(sources, str) else sources)]
        for out, sources in columns.items()
    }


CLEAN_FLIGHTS = DerivedTable(
    name=CLEAN,
    inputs=(RAW,),
    transform=clean,
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

CARRIER_DAYS = DerivedTable(
    name=CARRIER_DAY,
    inputs=(CLEAN,),
    transform=carrier_day,
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

AIRCRAFTS = DerivedTable(
    name=AIRCRAFT,
    inputs=(CLEAN,),
    transform=aircraft,
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
