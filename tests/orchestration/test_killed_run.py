"""kill -9 during an ingestion, then a new run: nothing lost, doubled or half visible.

The pool slot is free, too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from examples.demo.runs import end_dead_runs
from lakehouse.ingestion.stamp import RunStamp
from lakehouse.spec.identifier import Identifier
from tests.orchestration.conftest import Pipe, event
from tests.orchestration.killed_run import ingest
from tests.table_census import take_census
from tests.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow]
CHECKOUT = Path(__file__).parents[2]
CONFIG = "telemetry: {enabled: false}\nconcurrency:\n  pools: {default_limit: 1, granularity: op}\n"


def wait_for_data_files(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Until this run's first raw data file is there: rows are written, nothing is committed."""
    before = set(folder.rglob("*.parquet"))

    def has_written() -> bool:
        assert process.poll() is None, "the run ended before it could be killed"
        return bool(set(folder.rglob("*.parquet")) - before)

    eventually(has_written, pause=0.01)


def test_a_killed_run_and_then_a_new_one(pipe: Pipe) -> None:
    home = pipe.root / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text(CONFIG)
    pipe.land("1.jsonl.gz", [event(n, 1 + n % 20) for n in range(400)], modified=1_000_000_000)
    pipe.index()
    pipe.ingest([row.event_day for row in pipe.ledger() if row.event_day], "replace")
    pipe.land(
        "2.jsonl.gz",
        [event(n, 1 + n % 20) for n in range(200, 800)] + [b"broken"],
        modified=1_000_000_001,
    )
    before = pipe.rows()

    data = Path(pipe.root / "warehouse" / "raw" / "events" / "data")
    command = [sys.executable, "-m", "tests.orchestration.killed_run", str(pipe.root)]
    process = subprocess.Popen(
        command,
        cwd=CHECKOUT,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for_data_files(process, data)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    pipe.lake = type(pipe.lake)(pipe.lake.catalog)
    assert pipe.rows() == before, "what the killed run wrote is not visible"
    with dg.DagsterInstance.from_config(str(home)) as instance:
        slots = instance.event_log_storage.get_concurrency_info("table_raw_events")
        (killed,) = end_dead_runs(instance)
        freed = instance.event_log_storage.get_concurrency_info("table_raw_events")
        assert (slots.active_slot_count, freed.active_slot_count) == (1, 0)
        assert instance.get_run_by_id(killed).status == dg.DagsterRunStatus.FAILURE
        # killed a moment later, it would have left what it staged
        raw, stamp = pipe.lake.load_table("raw.events"), RunStamp(killed, "raw/events")
        raw.append(raw.scan("id = 1").to_arrow(), branch=stamp.branch(), summary=stamp.summary())
        assert stamp.branch() in raw.refresh().refs()
        assert ingest(pipe.root, instance).success
    assert pipe.rows() == [(n,) for n in range(800)]
    pipe.assert_conserved(400 + 601)
    census = take_census(pipe.lake.catalog, Identifier.parse("raw.events"))
    assert census.missing == frozenset()
    assert list(pipe.lake.load_table("raw.events").refs()) == ["main"]
