"""What must hold of each table of flights before it is published, in Great Expectations' words."""

from __future__ import annotations

from lakehouse.orchestration import Suite, expect

CLEAN_CONTRACT = Suite(
    "contract",
    (
        expect("column_values_to_not_be_null", column="event_ts"),
        expect("column_values_to_be_in_set", column="origin", value_set=["EWR", "JFK", "LGA"]),
        expect(
            "column_values_to_be_in_set",
            column="status",
            value_set=["flown", "cancelled", "diverted"],
        ),
        expect("column_values_to_be_between", column="distance_miles", min_value=1, max_value=6000),
    ),
    description="what the tables below build on",
)
CLEAN_PLAUSIBLE = Suite(
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
    description="no flight leaves more than an hour early or twelve hours late (some did, in 2013)",
)
CARRIER_DAY_CONTRACT = Suite(
    "contract",
    (
        expect("compound_columns_to_be_unique", column_list=["day", "carrier", "origin"]),
        expect("column_values_to_be_between", column="flights", min_value=1),
    ),
)
AIRCRAFT_CONTRACT = Suite(
    "contract",
    (
        expect("column_values_to_be_unique", column="tailnum"),
        expect("column_values_to_not_be_null", column="tailnum"),
    ),
    description="one row a key",
)
