"""Transactional runs: what a run wrote becomes main when all of its steps have succeeded.

Every table that the run writes is written to a branch of the run, and read from there by its later
steps. Where one process runs all steps, the branch is published when the run's resources are
closed, which is before Dagster says that the run has succeeded. Where each step has a process of
its own, the executor is there from the first step to the last (`publishing_executor`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import dagster as dg
from dagster._core.events import AssetObservationData
from dagster._core.execution.stats import StepEventStatus
from dagster._core.storage.tags import ASSET_RESUME_RETRY_TAG, PARENT_RUN_ID_TAG, RESUME_RETRY_TAG

from lakehouse.catalog.open_branches import OpenBranches
from lakehouse.errors import InvalidInputError, LakehouseError, NoSuchRefError
from lakehouse.ingestion.run_log import Say
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.dagster_instance import open_instance
from lakehouse.orchestration.lineage.materialization import (
    PUBLICATION,
    SNAPSHOT_ID,
    materialized_tables,
    undo_instructions,
)
from lakehouse.spec.identifier import split_name
from lakehouse.spec.metadata.snapshot import RUN_ID
from lakehouse.table.publication import Publication

PUBLISH_TAG = "lakehouse/publish"
"""Run tag: `run`: its tables are published together when all steps have succeeded; `step`: each
by its own step, whatever the resource says."""
VERSION_TAG = "lakehouse/version"
"""Tag of a run that was published: the version of the lake that it made."""
BY_EXECUTOR_TAG = ".lakehouse/published-by-executor"
PUBLISHED_BY = ("step", "run")
KEEP_MS = 7 * 24 * 60 * 60 * 1000
"""Expiry removes the branch of a run that was never published so long after its last write."""
RUN_BRANCH = "run-"
"""So begin names of the branches of runs."""


def run_branch(
    run: dg.DagsterRun | None, instance: dg.DagsterInstance | None, publish: str
) -> str | None:
    """The branch that a run writes to; None: each step publishes what it wrote.

    A run that goes on where another failed (`--from-failure`) goes on with its branch.

    Args:
        run: None outside of runs.
        instance: knows the runs that it goes on with.
        publish: of the resource; the run's tag comes first.

    Raises:
        InvalidInputError: it is neither `run` nor `step`.
    """
    if run is None:
        return None
    publish = run.tags.get(PUBLISH_TAG, publish) or "step"
    if publish not in PUBLISHED_BY:
        raise InvalidInputError(
            f"publish is {publish!r}: it must be one of {', '.join(PUBLISHED_BY)}, in the resource "
            f"as in the run tag {PUBLISH_TAG}"
        )
    if publish != "run":
        return None
    while _goes_on(run, instance):
        parent = run.parent_run_id or run.tags.get(PARENT_RUN_ID_TAG)
        before = instance.get_run_by_id(parent) if instance and parent else None
        if before is None:
            break
        run = before
    return f"{RUN_BRANCH}{run.run_id}"


def _goes_on(run: dg.DagsterRun, instance: dg.DagsterInstance | None) -> bool:
    """Whether a run does the rest of another one: its tags say so, or only some steps are run."""
    if any(run.tags.get(tag) == "true" for tag in (RESUME_RETRY_TAG, ASSET_RESUME_RETRY_TAG)):
        return True
    if run.step_keys_to_execute is None:
        return False
    plan_id = run.execution_plan_snapshot_id  # Dagster's Python API names all steps, too
    steps = instance.get_execution_plan_snapshot(plan_id).steps if instance and plan_id else ()
    return set(run.step_keys_to_execute) != {step.key for step in steps}


def has_succeeded(run: dg.DagsterRun, instance: dg.DagsterInstance) -> bool:
    """Whether each step of a run that is about to end has succeeded, or was skipped."""
    done = {stat.step_key: stat.status for stat in instance.get_run_step_stats(run.run_id)}
    good = (StepEventStatus.SUCCESS, StepEventStatus.SKIPPED)
    plan_id = run.execution_plan_snapshot_id
    planned = instance.get_execution_plan_snapshot(plan_id).step_keys_to_execute if plan_id else []
    known = [key for key in planned if "?" not in key]  # of dynamic steps keys are not known
    return all(status in good for status in done.values()) and set(known) <= done.keys()


def publish_run(
    lake: Lakehouse, branch: str, run: dg.DagsterRun, instance: dg.DagsterInstance
) -> Publication | None:
    """Make what a run wrote main, in all of its tables; None: it wrote nothing, or was published.

    Raises:
        DagsterInvariantViolationError: nothing was published: it says which table, files and rows,
            and which writer, stand against it. The run fails by it.
    """
    try:
        done = lake.branch(branch).publish({RUN_ID: run.run_id})
    except NoSuchRefError:
        return None
    except LakehouseError as error:
        raise dg.DagsterInvariantViolationError(
            f"The tables of the run were not published. {error.message} Materialize the run's "
            "assets again."
        ) from error
    if done is not None:
        names = ", ".join(table.name for table in done.tables)
        again = [f"{table.name} on top of others" for table in done.tables if table.reapplied]
        reapplied = f" ({'; '.join(again)})" if again else ""
        instance.report_engine_event(
            f"Published together as version {done.version} of the lake: {names}{reapplied}", run
        )
        instance.add_run_tags(run.run_id, {VERSION_TAG: str(done.version)})
        _observe(done, run, instance)
    return done


def _observe(done: Publication, run: dg.DagsterRun, instance: dg.DagsterInstance) -> None:
    """On the page of each asset of the run, and on the run's: with which others, and when."""
    assets = {name: key for key, name in materialized_tables(instance, run.run_id).items()}
    names = [table.name for table in done.tables]
    at = datetime.now(UTC)
    how = f"as version {done.version} of the lake" if done.version else "to the lake's branch"
    for table in done.tables:
        # of a run that this one went on with
        key = assets.get(table.name, dg.AssetKey(split_name(table.name)))
        if not instance.has_asset_key(key):
            continue
        seen = dg.AssetObservation(
            key,
            description=f"Published together {how}: {', '.join(names)}",
            metadata={
                PUBLICATION: f"together {how}, {at:%Y-%m-%d %H:%M:%S} UTC",
                "lakehouse/published_together": dg.MetadataValue.json(names),
                SNAPSHOT_ID: str(table.snapshot_id),
                **undo_instructions(run.run_id),
            },
        )
        event = dg.DagsterEvent(
            dg.DagsterEventType.ASSET_OBSERVATION.value,
            run.job_name,
            event_specific_data=AssetObservationData(seen),
        )
        instance.report_dagster_event(event, run.run_id)


def checks_of(
    writers: Mapping[str, Sequence[tuple[str, str]]],
) -> dict[str, dict[str, bool]]:
    """The asset checks that runs have evaluated, and whether the last of each has passed.

    Args:
        writers: by table, the runs that wrote to it and the key of its asset, oldest first.

    Raises:
        NotFoundError: there is no instance of Dagster.
    """
    kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION
    run_ids = dict.fromkeys(run_id for written in writers.values() for run_id, _ in written)
    with open_instance() as instance:
        events = {
            run_id: [
                entry.dagster_event.asset_check_evaluation_data
                for entry in instance.all_logs(run_id, of_type=kind)
                if entry.dagster_event is not None
            ]
            for run_id in run_ids
        }
    return {
        table: {
            check.check_name: check.passed
            for run_id, key in written
            for check in events[run_id]
            if check.asset_key == dg.AssetKey.from_user_string(key)
        }
        for table, written in writers.items()
    }


def publish_left(lake: Lakehouse, instance: dg.DagsterInstance, say: Say) -> None:
    """Publish what runs have left that succeeded and were killed before they could."""
    for branch in OpenBranches(lake.catalog, lake.environment).all():
        run = _successful(branch, instance) if branch.startswith(RUN_BRANCH) else None
        if run is not None:
            try:
                publish_run(lake, branch, run, instance)
            except dg.DagsterInvariantViolationError as error:
                say(f"Run {run.run_id} has succeeded, and cannot be published any more: {error}")


def _successful(branch: str, instance: dg.DagsterInstance) -> dg.DagsterRun | None:
    """The run that succeeded on a branch: that of its name, or one that went on with it."""
    first = branch.removeprefix(RUN_BRANCH)
    group = instance.get_run_group(first) if instance.has_run(first) else None
    for run in () if group is None else group[1]:
        if run.is_success and run_branch(run, instance, "run") == branch:
            return run
    return None
