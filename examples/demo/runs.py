"""Dagster runs in this process, with a progress bar: one JVM for the whole demo."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import dagster as dg
from dagster import DagsterEventType
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from lakehouse.errors import LakehouseError
from lakehouse.orchestration.warm_runs import PROCESS_TAG, is_alive, process_tag

# so that the job's page in `workspace.yaml` shows the run
REPOSITORY = {".dagster/repository": "__repository__@lakehouse"}
_STEPS = 4
_SKIPPED = "Skipping step "  # what Dagster says of each step that a run has no use for
_QUIET = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}


class RunFailedError(LakehouseError):
    """A Dagster run of the demo failed."""


@contextmanager
def bars(console: Console) -> Iterator[Progress]:
    """Progress bars that stay visible when done; without a terminal only their end is printed."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield progress


@dataclass(frozen=True)
class Runner:
    """Runs jobs of the code location against an instance.

    Attributes:
        definitions: the code location.
        instance: where runs and events are recorded.
        console: for the bars, and what runs say.
        times: where the time went so far: what, and seconds; steps of a run are indented.
    """

    definitions: dg.Definitions
    instance: dg.DagsterInstance
    console: Console
    times: list[tuple[str, float]] = field(default_factory=list)

    def run(
        self,
        title: str,
        job: str,
        *,
        tags: Mapping[str, str] | None = None,
        config: Mapping[str, object] | None = None,
    ) -> str:
        """Run a job to its end; returns the run's id.

        Raises RunFailedError with the first step's failure.
        """
        definition = self.definitions.resolve_job_def(job)
        run_id = str(uuid.uuid4())
        steps = len(list(definition.graph.node_dict))
        finished, started = threading.Event(), time.monotonic()
        with bars(self.console) as progress:
            task = progress.add_task(title, total=steps)
            watcher = threading.Thread(
                target=self._watch, args=(run_id, progress, task, finished), daemon=True
            )
            watcher.start()
            try:
                result = definition.execute_in_process(
                    run_config={**(config or {}), **_QUIET},
                    instance=self.instance,
                    tags={**(tags or {}), **REPOSITORY, PROCESS_TAG: process_tag()},
                    raise_on_error=False,
                    run_id=run_id,
                )
            finally:
                finished.set()
                watcher.join()
            if result.success:
                progress.update(task, completed=steps)
        self.times.append((title, time.monotonic() - started))
        self.times.extend(self._steps(run_id))
        if not result.success:
            raise RunFailedError(
                f"run {run_id} of job {job} failed: {_reason(result)}", run_id=run_id, job=job
            )
        return run_id

    def _watch(
        self, run_id: str, progress: Progress, task: object, finished: threading.Event
    ) -> None:
        cursor, over = None, False
        while not over:
            over = finished.wait(0.5)
            if not self.instance.has_run(run_id):
                continue
            page = self.instance.get_records_for_run(run_id, cursor)
            cursor, over = page.cursor, over and not page.has_more
            for entry in (record.event_log_entry for record in page.records):
                if entry.dagster_event_type == DagsterEventType.STEP_SUCCESS:
                    progress.advance(task)  # type: ignore[arg-type]
                elif entry.dagster_event is None:
                    said = (entry.user_message or "").partition("\n")[0].rstrip()
                    if not said.startswith(_SKIPPED):
                        progress.console.print(f"    {entry.step_key}: {said}", soft_wrap=True)

    def _steps(self, run_id: str) -> list[tuple[str, float]]:
        """The steps of a run that took longest, and what Dagster took beside them."""
        found = [
            (step.end_time - step.start_time, step.step_key)
            for step in self.instance.get_run_step_stats(run_id)
            if step.start_time and step.end_time
        ]
        return [(f"  {key}", seconds) for seconds, key in sorted(found, reverse=True)[:_STEPS]]


def end_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Mark killed runs of earlier demos as failed and free their pool slots; returns their ids."""
    ended = []
    for run in instance.get_runs(
        dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING])
    ):
        tag = run.tags.get(PROCESS_TAG)
        if tag is not None and not is_alive(tag):
            instance.report_run_failed(run, "the process of this run was killed")
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
            ended.append(run.run_id)
    return ended


def _reason(result: dg.ExecuteInProcessResult) -> str:
    for event in result.all_events:
        if event.is_step_failure:
            error = event.step_failure_data.error
            data = event.step_failure_data.user_failure_data
            text = (data.description if data else None) or (
                error.cause.message if error and error.cause else error.message if error else ""
            )
            return f"step {event.step_key}: {(text or '').strip()}"
    return "see its events in the UI"
