"""How much of our own code a journey walks through: calls of functions, and their modules.

`python -m benchmarks.call_counts [--before FILE] [--list]`. One append of one file, one plan of a
filter, one delete of a row, one upsert, one day of landing files indexed and ingested, one
`spark.sql` that reads a table, each the second of its kind, so that imports and caches are not
counted; `--list` prints the modules of each journey. What is counted are frames of the package
`lakehouse`, a resumed generator among them, in every thread of this process; comprehensions and
Spark's workers are not. The numbers are the same in every run. `--before` keeps the result of an
earlier checkout to compare with.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import pyarrow as pa

import lakehouse as lh
from lakehouse.environment import Environment
from lakehouse.ingestion.ingest import index_landing, ingest_days
from lakehouse.ingestion.source import Column, EventTime, Source
from lakehouse.ingestion.stamp import RunStamp
from lakehouse.ingestion.workplace import Workplace
from lakehouse.spark import build_session

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = str(Path(str(lh.__file__)).parent)
SCHEMA = pa.schema([("day", pa.int32()), ("user", pa.string()), ("amount", pa.float64())])
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>")


@contextmanager
def counted(calls: Counter[str]) -> Iterator[None]:
    """Count calls into the package by the name of the function, in this and in new threads."""

    def count(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_filename.startswith(PACKAGE)
            and code.co_name not in COMPREHENSIONS
        ):
            calls[f"{code.co_filename.removeprefix(PACKAGE)[1:]}:{code.co_qualname}"] += 1

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def count_calls(journey: Callable[[], object]) -> dict[str, object]:
    """Calls and modules of one journey, and the functions that are called most."""
    calls: Counter[str] = Counter()
    with counted(calls):
        journey()
    return {
        "calls": calls.total(),
        "functions": len(calls),
        "modules": len(modules := sorted({name.partition(":")[0] for name in calls})),
        "entered": modules,
        "most": dict(sorted(calls.items(), key=lambda function: (-function[1], function[0]))[:10]),
    }


def rows(day: int) -> pa.Table:
    return pa.table([[day] * 3, ["a", "b", "c"], [1.0, 2.0, 3.0]], schema=SCHEMA)


def journeys(folder: str) -> dict[str, dict[str, object]]:
    lake = lh.load_catalog(f"{folder}/warehouse", environment=Environment.seeded(7))
    table = lake.create_table("raw.events", SCHEMA, partition_by=["day"])
    for day in range(4):
        table.append(rows(day))
    data = rows(4)
    append = count_calls(lambda: table.append(data))
    where = "day >= 3 and user = 'a'"
    table.scan(where=where).plan()
    plan = count_calls(lambda: table.scan(where=where).plan())
    table.delete("user = 'b' and day = 2")
    delete = count_calls(lambda: table.delete("user = 'a' and day = 2"))
    table.upsert(rows(3).slice(0, 1), keys=["day", "user"])
    upsert = count_calls(lambda: table.upsert(rows(1).slice(0, 1), keys=["day", "user"]))
    return {
        "append of one file": append,
        "plan of a filter": plan,
        "delete of one row": delete,
        "upsert of one row": upsert,
    }


def spark_journeys(folder: str) -> dict[str, dict[str, object]]:
    landing = Path(folder, "landing", "events")
    landing.mkdir(parents=True)
    lake = lh.load_catalog(f"file://{folder}/ingested")
    source = Source(
        name="events",
        event_time=EventTime("at"),
        first_day=dt.date(2026, 1, 1),
        natural_key=("id",),
        columns=(Column("id", "long"), Column("amount", "double")),
    )
    spark = build_session("call_counts", catalogs={"lake": f"file://{folder}/ingested"})
    work = Workplace(
        lake,
        lambda: spark,
        str(landing.parent),
        dt.date(2026, 1, 31),
        RunStamp("run", "raw/events"),
    )

    def ingest() -> None:
        days = index_landing(work, source).days
        ingest_days(work, source, days, "increment", lambda _snapshot, _days: ())

    def land(day: int) -> None:
        lines = (
            json.dumps({"id": day * 10 + number, "at": f"2026-01-0{day}T10:00:00Z", "amount": 1.5})
            for number in range(3)
        )
        Path(landing, f"day{day}.jsonl").write_text("".join(f"{line}\n" for line in lines))

    def read() -> None:
        spark.sql("SELECT count(amount) FROM lake.raw.events WHERE id > 10").collect()

    try:
        land(1)
        ingest()
        land(2)
        ingested = count_calls(ingest)
        read()
        selected = count_calls(read)
    finally:
        spark.stop()
    return {"one ingested day": ingested, "spark.sql that reads": selected}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="the result of an earlier checkout")
    parser.add_argument("--list", action="store_true", help="the modules of each journey")
    parser.add_argument(
        "--results", type=Path, default=ROOT / "benchmarks" / "results" / "call_counts.json"
    )
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        counts = journeys(folder) | spark_journeys(folder)
    result = {
        "benchmark": "call_counts",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "journeys": counts,
    }
    earlier = json.loads(arguments.results.read_text()) if arguments.results.is_file() else {}
    before = earlier.get("before", {})
    if arguments.before is not None:
        before = json.loads(arguments.before.read_text())["journeys"]
    if before:
        result["before"] = before
    for name, journey in counts.items():
        print(f"{name:<20} {journey['calls']:>6,} calls {journey['modules']:>4} modules", end="")
        if name in before:
            print(f"   before {before[name]['calls']:>6,} {before[name]['modules']:>4}", end="")
        print()
        if arguments.list:
            print(*journey["entered"], sep="\n  ")
    arguments.results.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
