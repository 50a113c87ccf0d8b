"""Flights as they land: gzipped JSON lines by day of departure in New York."""

from __future__ import annotations

from datetime import date

from lakehouse.orchestration.ingestion.source import Column, EventTime, Source

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
