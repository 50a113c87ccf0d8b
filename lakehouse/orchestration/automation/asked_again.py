"""What failed is asked for again: run keys with the number of the attempt, for every sensor."""

from __future__ import annotations

import hashlib
import time

import dagster as dg

from lakehouse.orchestration.automation.attempts import clock, doubled

CAUSE_TAG = "lakehouse/cause"
"""Run tag: why the run was asked for, the same in each attempt."""

_DAY_MS = 24 * 3600 * 1000


def next_attempt(
    instance: dg.DagsterInstance, cause: str, now_ms: int | None = None
) -> dg.RunRequest | dg.SkipReason:
    """The next run for a cause, with its run key and tag; none while one is in flight.

    A cause is asked for once, and again when its run failed, after a wait that doubles from a
    minute to a day.

    Args:
        instance: where runs are recorded.
        cause: of the run; it changes when there is something else to do.
        now_ms: milliseconds since the epoch; None: now.
    """
    name = hashlib.blake2b(cause.encode(), digest_size=12).hexdigest()
    runs = instance.get_run_records(dg.RunsFilter(tags={CAUSE_TAG: name}))
    if runs:
        newest = runs[0].dagster_run
        if not newest.is_finished:
            return dg.SkipReason(f"run {newest.run_id} is in flight")
        if newest.status == dg.DagsterRunStatus.SUCCESS:
            return dg.SkipReason(f"run {newest.run_id} did what could be done")
        ended_ms = int((runs[0].end_time or runs[0].create_timestamp.timestamp()) * 1000)
        next_ms = ended_ms + doubled(len(runs), _DAY_MS)
        if (int(time.time() * 1000) if now_ms is None else now_ms) < next_ms:
            return dg.SkipReason(
                f"run {newest.run_id} failed, the {len(runs)}. of its kind: asked for again at "
                f"{clock(next_ms)}"
            )
    return dg.RunRequest(run_key=f"{name}:{len(runs)}", tags={CAUSE_TAG: name})
