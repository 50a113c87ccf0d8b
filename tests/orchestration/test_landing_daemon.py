"""The landing sensor in Dagster's own daemon: what it does with requests is what the model says."""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.events import DagsterEvent
from dagster._core.test_utils import (
    InProcessTestWorkspaceLoadTarget,
    create_test_daemon_workspace_context,
    freeze_time,
    instance_for_test,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.load_target import InProcessCodeLocationOrigin
from dagster._daemon.sensor import execute_sensor_iteration

from lakehouse.environment import Environment
from lakehouse.ingestion.landing_listing import landing_files, list_landing
from lakehouse.lake import Lakehouse, load_catalog
from lakehouse.orchestration.automation.attempts import GIVE_UP_AFTER, Request
from lakehouse.orchestration.automation.landing_state import LEFT_UNREAD
from lakehouse.orchestration.automation.run_requests import NOTHING_GIVEN_UP, REQUEST_TAG
from lakehouse.orchestration.resources import LakehouseResource
from tests.orchestration.conftest import EVENTS, remember

# Dagster's own modules use what it has deprecated itself
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
CHECK = dg.AssetCheckKey(dg.AssetKey(["raw", "events"]), NOTHING_GIVEN_UP)
LAUNCHER = {"module": "dagster._core.test_utils", "class": "MockedRunLauncher"}


class Daemon:
    """Dagster's sensor daemon over the events pipeline; runs are launched and do nothing."""

    def __init__(self, root: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LANDING_ROOT", str(root))
        # it reads the variable when it is imported, and each test has a folder of its own
        monkeypatch.delitem(sys.modules, "tests.orchestration.landing_location", raising=False)
        self.root, self.now = root, dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)
        self.instance = stack.enter_context(instance_for_test(overrides={"run_launcher": LAUNCHER}))
        self.stack = stack
        self.restart()
        lake = load_catalog((root / "warehouse").as_uri())
        clock = Environment.system()
        frozen = Environment(
            lambda: int(self.now.timestamp() * 1000), clock.new_uuid, clock.random, clock.sleep
        )
        self.lake = Lakehouse(lake.catalog, frozen)
        monkeypatch.setattr(LakehouseResource, "lake", lambda _self: self.lake)

    def restart(self) -> None:
        """A new process knows what its instance holds, and nothing else."""
        sys.modules.pop("tests.orchestration.landing_location", None)
        origin = InProcessCodeLocationOrigin(
            LoadableTargetOrigin(
                executable_path=sys.executable,
                module_name="tests.orchestration.landing_location",
                attribute="defs",
            )
        )
        self.workspace = self.stack.enter_context(
            create_test_daemon_workspace_context(
                InProcessTestWorkspaceLoadTarget(origin), self.instance
            )
        )

    def told(self) -> list[str]:
        """What the alerts told, oldest first."""
        path = self.root / "told.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def tick(self, minutes: float = 1) -> list[dg.DagsterRun]:
        """Runs after a tick, newest first."""
        self.now += dt.timedelta(minutes=minutes)
        with freeze_time(self.now):
            list(execute_sensor_iteration(self.workspace, logging.getLogger("daemon"), None, None))
        return [run for run in self.instance.get_runs() if "events" in run.job_name]

    def end(self, run: dg.DagsterRun, *, good: bool) -> None:
        self.now += dt.timedelta(seconds=5)
        event = dg.DagsterEventType.RUN_SUCCESS if good else dg.DagsterEventType.RUN_FAILURE
        with freeze_time(self.now):
            self.instance.report_dagster_event(
                DagsterEvent(event.value, run.job_name), run_id=run.run_id
            )

    def land(self, name: str) -> None:
        (self.root / "landing" / "events").mkdir(parents=True, exist_ok=True)
        (self.root / "landing" / "events" / name).write_bytes(b"x")

    def remember(self, *, pending: bool, days: list[int]) -> None:
        files = landing_files(list_landing(str(self.root / "landing"), EVENTS))
        remember(self.lake, files, pending, days)


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    with ExitStack() as stack:
        yield Daemon(tmp_path, stack, monkeypatch)


def test_a_failed_run_is_asked_for_again_and_a_running_one_is_not(daemon: Daemon) -> None:
    daemon.land("1.jsonl.gz")
    (first,) = daemon.tick()
    assert first.job_name == "index_events"
    assert daemon.tick() == daemon.tick() == [daemon.instance.get_run_by_id(first.run_id)]
    daemon.end(first, good=False)
    assert len(daemon.tick(0.5)) == 1, "a pause of a minute"
    second, _ = daemon.tick()
    daemon.end(second, good=True)
    daemon.remember(pending=True, days=[1, 5, 9])
    third, *_ = daemon.tick()
    assert third.job_name == "ingest_events"
    daemon.instance.report_run_canceled(third)
    assert len(daemon.tick(2)) == 4
    daemon.remember(pending=False, days=[1, 5, 9])
    assert len(daemon.tick(60)) == 4, "the fourth is in flight"
    daemon.end(daemon.tick()[0], good=True)
    assert len(daemon.tick()) == 4


def test_a_key_that_a_failed_run_has_is_skipped_by_dagster(daemon: Daemon) -> None:
    """What the model assumes of Dagster: a request under an ended run's key starts nothing."""
    daemon.land("1.jsonl.gz")
    (first,) = daemon.tick()
    daemon.end(first, good=False)
    daemon.instance.add_run_tags(first.run_id, {"lakehouse/source": "somebody else's"})
    assert len(daemon.tick(30)) == 1, "the same request as ever: the same key"


def test_the_check_in_the_event_log_names_what_was_given_up_and_clears(daemon: Daemon) -> None:
    daemon.land("1.jsonl.gz")
    daemon.end(daemon.tick()[0], good=True)
    for number in range(GIVE_UP_AFTER + 1):
        newest, *runs = daemon.tick(60 * 3)
        assert len(runs) == number + 1
        daemon.end(newest, good=number % 2 == 0)
    daemon.tick(0.5)
    (found,) = daemon.instance.event_log_storage.get_asset_check_execution_history(CHECK, limit=1)
    evaluation = found.event.dagster_event.asset_check_evaluation_data
    assert not evaluation.passed
    assert LEFT_UNREAD in evaluation.description
    daemon.remember(pending=False, days=[1])
    daemon.tick(24 * 60)
    (found,) = daemon.instance.event_log_storage.get_asset_check_execution_history(CHECK, limit=1)
    assert found.event.dagster_event.asset_check_evaluation_data.passed


def test_of_a_days_outage_each_subject_is_told_twice(daemon: Daemon) -> None:
    """Runs fail for 24 hours, over two days that wait; the daemon starts again in between."""
    daemon.land("1.jsonl.gz")
    daemon.end(daemon.tick()[0], good=True)
    daemon.remember(pending=True, days=[1, 5])
    runs = 0
    for hour in range(24):
        newest, *_ = daemon.tick(60)
        if not newest.is_finished:
            daemon.end(newest, good=False)
            runs += 1
        if hour in (0, 17):
            daemon.restart()
    daemon.tick()
    assert runs > 12
    given_up, failed = sorted(daemon.told())
    assert failed.startswith("ingest_events failed.")
    assert given_up.startswith(f"Check {NOTHING_GIVEN_UP} of raw/events failed.")
    daemon.restart()
    waiting = {1, 5}
    while waiting:
        assert len(daemon.told()) == 2, "not over while some of it waits"
        newest, *_ = daemon.tick(24 * 60)
        daemon.end(newest, good=True)
        asked = Request.from_json(newest.tags[REQUEST_TAG]).works
        waiting -= {int(work.part[-2:]) for work in asked}
        daemon.remember(pending=bool(waiting), days=sorted(waiting) or [1, 5])
    daemon.tick()
    daemon.restart()
    daemon.tick()
    assert sorted(text.partition("\n")[0] for text in daemon.told()[2:]) == [
        f"Check {NOTHING_GIVEN_UP} of raw/events does not fail any more.",
        "source events: works again.",
    ]
