"""Somebody is told of runs that failed and that Dagster will not run again by itself."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Sequence

import dagster as dg

_WILL_RETRY_TAG = "dagster/will_retry"
_ERROR_LINES, _PATIENCE_S = 3, 60
_MODULE = re.compile(r"^(\w+\.)+(?=\w+: )")


def failure_alerts(
    tell: Callable[[str], None], *, name: str = "failed_runs", url: str = ""
) -> dg.SensorDefinition:
    """A sensor that gives `tell` a text of few lines for each run that failed.

    A run that Dagster runs again (`run_retries`) is told of when the last one fails. Where `tell`
    raises, Dagster shows the error on the sensor's page, and goes on with the next run.

    >>> texts = []
    >>> failure_alerts(texts.append).name
    'failed_runs'

    Args:
        tell: sends a text.
        name: of the sensor.
        url: of the UI, such as `http://dagster.example:3000`: the text links to the run.
    """

    @dg.run_failure_sensor(
        name=name,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells of failed runs. The switch beside its name stops it.",
    )
    def sensor(context: dg.RunFailureSensorContext) -> dg.SkipReason | None:
        run = context.dagster_run
        if run.tags.get(_WILL_RETRY_TAG) == "true":
            return dg.SkipReason(f"Run {run.run_id} is run again by itself.")
        tell(failure_text(run, context.get_step_failure_events(), context.failure_event, url))
        return None

    return sensor


def failure_text(
    run: dg.DagsterRun, steps: Sequence[dg.DagsterEvent], failure: dg.DagsterEvent, url: str = ""
) -> str:
    """What failed, why, and where to look: a line for the run, then some for each step.

    Args:
        run: the run.
        steps: failures of its steps.
        failure: of the run, which says why where no step failed.
        url: of the UI.
    """
    partition = f" for {run.tags['dagster/partition']}" if "dagster/partition" in run.tags else ""
    lines = [f"{run.job_name} failed{partition}."]
    for event in steps:
        lines += [f"{event.step_key}: {one}" for one in _reason(event)]
    if not steps:
        lines.append(failure.message or "Its process ended.")
    link = f"{url.rstrip('/')}/runs/{run.run_id}" if url else f"run {run.run_id} in the UI"
    lines.append(f"Tables show what was published, nothing half-written: {link}")
    return "\n".join(lines)


def by_command(command: str) -> Callable[[str], None]:
    """A way to tell: run a command with the text as its input.

    Args:
        command: as in a shell, but run by none, such as `mail -s "Lakehouse" you@example.com`.

    Raises (the function that comes back):
        subprocess.SubprocessError | OSError: the command fails, or takes more than a minute.
    """
    arguments = shlex.split(command)

    def tell(text: str) -> None:
        subprocess.run(arguments, input=text, text=True, check=True, timeout=_PATIENCE_S)  # noqa: S603 - the operator's

    return tell


def _reason(event: dg.DagsterEvent) -> list[str]:
    """The first lines of an error, without its module: of the cause, where Dagster wrapped one."""
    error = event.step_failure_data.error
    if error is None:
        return [event.message or "no reason is known"]
    innermost = error.cause if error.cause is not None else error
    lines = [line.strip() for line in innermost.message.splitlines() if line.strip()]
    return [_MODULE.sub("", line) for line in lines[:_ERROR_LINES]]
