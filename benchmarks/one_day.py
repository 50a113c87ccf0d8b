"""One day from click to done, and a small file from landing to row, in a running `dagster dev`.

`python -m benchmarks.one_day [--repeat 3] [--landings 8]`. Three days of flights have landed and
are in the tables before one of them is launched again, as the button in the UI does. Where the time
goes is read from the run's events: `queued` until the daemon takes it, `starting` until the run's
process says that it runs, then the steps. Then files of fifty lines land, each at a time of its own
between two looks of the sensor; their rows are visible when the raw table has its next snapshot.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import sys
import tempfile
import time
from importlib.metadata import version
from itertools import islice
from pathlib import Path

import pyspark

from assets.flights.source import FLIGHTS
from examples.demo.flights_data import landed_days, read_flights
from examples.demo.landing_zone import lay_down
from lakehouse.lake import Lakehouse, load_catalog
from lakehouse.orchestration.automation.run_requests import ingest_tags
from lakehouse.spark.jvm.class_archive import archive_of
from lakehouse.spark.jvm.jre import java_runtime, newest_java
from tests.scaffold.dev_server import DevServer, wait

ROOT = Path(__file__).resolve().parent.parent
JOB = "ingest_flights"
LAUNCH = """mutation ($params: ExecutionParams!) { launchRun(executionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
    ... on RunConfigValidationInvalid { errors { message } } } }"""
CONFIG = {"loggers": {"console": {"config": {"log_level": "WARNING"}}}}
IN_FLIGHT = ("QUEUED", "NOT_STARTED", "STARTING", "STARTED", "CANCELING")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--landings", type=int, default=8)
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="one-day-"))
    home = root / "dagster"
    home.mkdir()
    shutil.copy(ROOT / "dagster.yaml", home)
    environment = os.environ | {
        "DAGSTER_HOME": str(home),
        "LAKEHOUSE_CATALOG": (root / "warehouse").as_uri(),
        "LAKEHOUSE_LANDING": str(root / "landing"),
    }
    # compiled modules stay, as they do for users
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    *days, later = islice(landed_days(read_flights()), 4)
    for landed in days:
        lay_down(root / "landing" / "flights", f"{landed.day}.jsonl.gz", landed.lines)
    command = [sys.executable, "-m", "dagster", "dev", "-m", "definitions"]
    try:
        with DevServer(command, ROOT, environment) as server:
            wait("runs of the sensors", 900, lambda: settled(server), 15)
            day = days[1].day
            runs = [measured(server, ingest_tags(day, day)) for _ in range(arguments.repeat)]
            lake = load_catalog((root / "warehouse").as_uri())
            pieces = [later.lines[at * 50 : at * 50 + 50] for at in range(arguments.landings)]
            landings = [
                visible(server, lake, root / "landing", f"late-{number}.jsonl.gz", lines)
                for number, lines in enumerate(pieces)
            ]
    finally:
        shutil.rmtree(root, ignore_errors=True)
    medians = {}
    for name in runs[0]:
        seconds = [round(times[name], 1) for times in runs]
        medians[name] = round(statistics.median(seconds), 1)
        say(f"{name:40} {medians[name]:6.1f} s   {seconds}")
    shown = sorted(round(seconds, 1) for seconds in landings)
    say(f"{'landing to visible row':40} {statistics.median(shown):6.1f} s   {shown}")
    keep(medians, arguments.repeat, shown)
    return 0


def visible(
    server: DevServer, lake: Lakehouse, landing: Path, name: str, lines: list[bytes]
) -> float:
    """Land lines in a file, and wait until the raw table has them and the run is over; seconds."""
    wait("the runs before", 600, lambda: settled(server), 0.5)
    time.sleep(random.uniform(0, 10))
    before = lake.load_table(FLIGHTS.table).metadata.current_snapshot_id
    lay_down(landing / FLIGHTS.name, name, lines)
    landed = time.monotonic()

    def seen() -> float | None:
        current = lake.load_table(FLIGHTS.table).metadata.current_snapshot_id
        return None if current == before else time.monotonic() - landed

    return wait("the rows", 600, seen, 0.1)


def keep(seconds: dict[str, float], repeat: int, landings: list[float]) -> None:
    """Write the medians to benchmarks/results."""
    archived = archive_of(java_runtime(newest=newest_java(pyspark.__version__))).file()
    results = {
        "what": "one day of flights in `dagster dev`, from the click to the end of its run",
        "versions": {name: version(name) for name in ("dagster", "pyspark")},
        "machine": f"{platform.machine()}, {platform.system()} {platform.release()}",
        "repeat": repeat,
        "archive_of_classes": archived is not None,
        "seconds": seconds,
        "landing_to_visible_row": landings,
    }
    (ROOT / "benchmarks" / "results" / "one_day.json").write_text(
        json.dumps(results, indent=1) + "\n"
    )


def settled(server: DevServer) -> bool | None:
    """Whether the sensors' runs have brought everything in, and none is in flight."""
    runs = server.runs()
    done = any(run["jobName"] == JOB and run["status"] == "SUCCESS" for run in runs)
    return (done and not any(run["status"] in IN_FLIGHT for run in runs)) or None


def measured(server: DevServer, tags: dict[str, str]) -> dict[str, float]:
    """Launch the job for a day, wait for its end, and say where the seconds went."""
    params = {
        "selector": {
            "repositoryLocationName": "definitions",
            "repositoryName": "__repository__",
            "jobName": JOB,
        },
        "runConfigData": CONFIG,
        "executionMetadata": {
            "tags": [{"key": name, "value": value} for name, value in tags.items()]
        },
    }
    answer = server.ask(LAUNCH, params=params)["launchRun"]
    if answer["__typename"] != "LaunchRunSuccess":
        raise RuntimeError(str(answer))
    run = answer["run"]["runId"]
    wait("the run", 600, lambda: ended(server, run), 0.5)
    at: dict[tuple[str, str], float] = {}
    for event in server.events(run):
        if event.get("eventType"):
            # Dagster's own names still call a run a pipeline
            kind = event["eventType"].replace("PIPELINE_", "RUN_")
            key = (kind, event.get("stepKey") or "")
            at.setdefault(key, int(event["timestamp"]) / 1000)
    steps = [step for kind, step in at if kind == "STEP_START"]
    seconds = {
        "queued": at["RUN_STARTING", ""] - at["RUN_ENQUEUED", ""],
        "starting": at["RUN_START", ""] - at["RUN_STARTING", ""],
    }
    for step in steps:
        seconds[step] = at["STEP_SUCCESS", step] - at["STEP_START", step]
    seconds["all"] = at["RUN_SUCCESS", ""] - at["RUN_ENQUEUED", ""]
    seconds["between steps"] = seconds["all"] - sum(
        value for name, value in seconds.items() if name != "all"
    )
    return seconds


def ended(server: DevServer, run: str) -> bool | None:
    """Whether a run has ended well. Raises RuntimeError when it has not."""
    (status,) = [run_["status"] for run_ in server.runs() if run_["runId"] == run]
    if status in ("FAILURE", "CANCELED"):
        raise RuntimeError(f"the run is {status}: {server.log.read_text()[-3000:]}")
    return True if status == "SUCCESS" else None


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
