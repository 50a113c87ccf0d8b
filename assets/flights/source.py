"""Flights as they land: gzipped JSON lines by day of departure in New York.

The source becomes these assets, with these checks:

| asset | what it is | checks |
|---|---|---|
| `landing/flights` | the files, by day of event time | |
| `raw/flights_landing` | the ledger: every file, its lines, what became of them | `files_whole` |
| `raw/flights` | the rows, by day and bucket, later by month | `raw_contract`, `nothing_given_up` |
| `raw/flights_quarantine` | lines that do not fit, with reason, file and line | `few_quarantined` |

Each table derived from it has `inputs_whole` beside the suites of `checks.py`; every table has
`statements_hold`, and `<table>_within_policy` on `lakehouse/state`.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, lit, when

from lakehouse.ingestion.source import Column, EventTime, Source


def plausible(flights: DataFrame) -> DataFrame:
    """Rows as typed, of which flights that arrived and never left go to quarantine."""
    never_left = col("dep_time").isNull() & col("arr_time").isNotNull()
    return flights.withColumn("quarantine_reason", when(never_left, lit("arrived, never left")))


FLIGHTS = Source(
    name="flights",
    owners=("team:flights",),
    tags={"domain": "aviation"},
    pattern="*.jsonl.gz",
    # local wall time, so an evening flight belongs to the next day of UTC: every file carries
    # events of two days
    event_time=EventTime("scheduled_departure", zone="America/New_York"),
    first_day=date(2013, 1, 1),
    last_day=date(2014, 1, 1),
    transform=plausible,
    bucket="tailnum",
    buckets=2,
    natural_key=("carrier", "flight", "origin", "scheduled_departure"),
    columns=(
        Column("scheduled_departure", "string"),
        Column("year", "int"),
        Column("month", "int"),
        Column("day", "int"),
        Column("dep_time", "int"),
        Column("sched_dep_time", "int"),
        Column("dep_delay", "int"),
        Column("arr_time", "int"),
        Column("sched_arr_time", "int"),
        Column("arr_delay", "int"),
        Column("carrier", "string"),
        Column("flight", "int"),
        Column("tailnum", "string"),
        Column("origin", "string"),
        Column("dest", "string"),
        Column("air_time", "int"),
        Column("distance", "int"),
        Column("hour", "int"),
        Column("minute", "int"),
        Column("time_hour", "string"),
    ),
)
