"""Any number of events in the shape of flights, streamed: memory does not grow with the number."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta

import orjson

from examples.demo.flights_data import DAYS, FIRST_DAY, SEED, LandedDay

EVENTS_PER_FILE = 50_000
_CARRIERS, _ORIGINS = ("9E", "AA", "B6", "DL", "EV", "MQ", "UA", "US", "WN"), ("EWR", "JFK", "LGA")
_DESTINATIONS = ("ATL", "BOS", "CLT", "DEN", "FLL", "IAH", "LAX", "MCO", "MIA", "ORD", "SFO", "TPA")


def synthetic_days(events: int) -> Iterator[LandedDay]:
    """`events` good events with distinct keys, spread over the year.

    Files have at most `EVENTS_PER_FILE`.
    """
    rng = random.Random(SEED)  # noqa: S311 - a replay, not a secret
    files = -(-events // EVENTS_PER_FILE)
    for number in range(files):
        day = FIRST_DAY + timedelta(
            days=number * DAYS // max(files, 1) if files < DAYS else number % DAYS
        )
        count = min(EVENTS_PER_FILE, events - number * EVENTS_PER_FILE)
        yield LandedDay(day, [_line(day, number * EVENTS_PER_FILE + i, rng) for i in range(count)])


def _line(day: object, sequence: int, rng: random.Random) -> bytes:
    minute = rng.randrange(5 * 60, 23 * 60)
    delay = round(rng.expovariate(1 / 12)) - 6
    air = rng.randrange(40, 360)
    return orjson.dumps(
        {
            "scheduled_departure": f"{day}T{minute // 60:02}:{minute % 60:02}:00",
            "dep_delay": delay,
            "dep_time": minute + delay,
            "arr_delay": delay + rng.randrange(-20, 20),
            "carrier": rng.choice(_CARRIERS),
            "flight": sequence,
            "tailnum": f"N{min(99999, int(rng.paretovariate(0.6))):05}",
            "origin": rng.choice(_ORIGINS),
            "dest": rng.choice(_DESTINATIONS),
            "air_time": air,
            "distance": air * 7,
        }
    )
