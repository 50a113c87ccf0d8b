"""One sensor for each source: asks for a run when something waits and none is in flight."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import dagster as dg

from lakehouse.errors import NoSuchFileError
from lakehouse.ingestion.source import Source
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.automation.attempts import Decision, Ended, clock, decide
from lakehouse.orchestration.automation.ingestion_jobs import AssetJob
from lakehouse.orchestration.automation.landing_state import source_work
from lakehouse.orchestration.automation.run_requests import (
    NOTHING_GIVEN_UP,
    SOURCE_TAG,
    UNFINISHED,
    index_job_name,
    ingest_job_name,
    landing_request,
    request_of,
)
from lakehouse.orchestration.project import Pipeline
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.orchestration.source_assets import SourceAssets
from lakehouse.storage.location import LOCAL_SCHEMES

_SHOWN = 20
_LONG_SECONDS = 0.5
"""Of processor time: after a look that took longer, as at some 50,000 files, nine times as long is
waited, so that looks take a tenth of a core."""
_LOCAL_SECONDS, _REQUESTS_SECONDS = 3, 10
"""Between two looks at a folder of this machine, which is in each round of Dagster's daemon (they
are five apart); and at one whose every look is paid for in requests."""


@dataclass(frozen=True)
class LandingWatch:
    """Looks at one source, for its sensor and for its check.

    Attributes:
        source: the source.
        derived: tables that follow from it alone, each after those that it reads.
        instance: where its runs are recorded.
        lakehouse: where its tables and files are.
    """

    source: Source
    derived: Sequence[DerivedTable]
    instance: dg.DagsterInstance
    lakehouse: LakehouseResource

    def decision(self) -> Decision:
        """What to ask for now, if no run is in flight.

        Raises NoSuchFileError without a landing folder.
        """
        lake, last = self.lakehouse.lake(), self.last_request()
        seen_ms = 0 if last is None else last.seen_ms
        waiting = source_work(lake, self.lakehouse.landing, self.source, self.derived, seen_ms)
        return decide(waiting, last, lake.environment.now_ms())

    def in_flight(self) -> dg.DagsterRun | None:
        """A queued or running run that writes the source's tables, whoever launched it.

        Told by the run's assets: the UI's buttons and backfills launch jobs of other names.
        """
        family = SourceAssets(self.source)
        mine = {family.ledger_key, family.raw_key, family.quarantine_key}
        mine |= {table.key for table in self.derived}
        names = (index_job_name(self.source.name), ingest_job_name(self.source.name))
        for run in self.instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)):
            if run.asset_selection and not (mine & run.asset_selection):
                continue
            if run.asset_selection or run.job_name in names:
                return run
        return None

    def last_request(self) -> Ended | None:
        """The newest run that the sensor requested and how it ended; None if none can be read."""
        for record in self.instance.get_run_records(
            dg.RunsFilter(tags={SOURCE_TAG: self.source.name}), limit=1
        ):
            run = record.dagster_run
            request = request_of(run)
            if request is None:
                return None  # start counting again
            created_ms = int(record.create_timestamp.timestamp() * 1000)
            ended_ms = created_ms if record.end_time is None else int(record.end_time * 1000)
            succeeded = run.status == dg.DagsterRunStatus.SUCCESS
            return Ended(run.run_id, request, succeeded, created_ms, ended_ms)
        return None


def landing_checks(pipeline: Pipeline) -> list[dg.AssetChecksDefinition]:
    """One check for each source: fails while something keeps failing and needs a person."""
    return [_check(source, pipeline.derived_from(source)) for source in pipeline.sources]


def landing_sensor(
    pipeline: Pipeline, source: Source, jobs: Sequence[AssetJob]
) -> dg.SensorDefinition:
    """The sensor `landed_<source>`, which asks for runs of the source's two jobs among `jobs`."""
    derived = pipeline.derived_from(source)
    names = (index_job_name(source.name), ingest_job_name(source.name))
    is_here = urlsplit(pipeline.landing_root).scheme in LOCAL_SCHEMES
    next_look = 0.0

    @dg.sensor(
        name=f"landed_{source.name}",
        jobs=[job for job in jobs if job.name in names],
        minimum_interval_seconds=_LOCAL_SECONDS if is_here else _REQUESTS_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Asks for one run at a time, for new and changed landing files, for days "
        "that wait, and for derived tables that are stale. What fails is asked for again after a "
        f"growing wait; the check `{NOTHING_GIVEN_UP}` says what failed too often. Stop it with "
        "the switch beside its name.",
    )
    def landed(
        context: dg.SensorEvaluationContext, lakehouse: LakehouseResource
    ) -> dg.SensorResult | dg.SkipReason:
        watch = LandingWatch(source, derived, context.instance, lakehouse)
        run = watch.in_flight()
        if run is not None:
            return dg.SkipReason(f"run {run.run_id} of {run.job_name} is in flight")
        nonlocal next_look
        if time.monotonic() < next_look:
            return dg.SkipReason(
                "the last look took over half a second of processor time: the next one waits"
            )
        began = time.thread_time()
        try:
            decision = watch.decision()
        except NoSuchFileError as error:
            return dg.SkipReason(error.message)
        spent = time.thread_time() - began
        if spent > _LONG_SECONDS:
            next_look = time.monotonic() + 9 * spent
        given_up = ",".join(map(str, sorted(decision.given_up))) or "nothing"
        changed = context.cursor != given_up
        return dg.SensorResult(
            run_requests=[]
            if decision.request is None
            else [landing_request(source, derived, decision)],
            skip_reason=None
            if decision.request is not None
            else decision.reason or f"everything that landed for {source.name} is ingested",
            cursor=given_up,
            asset_events=[evaluation(source, decision)] if changed else [],
        )

    return landed


def evaluation(source: Source, decision: Decision) -> dg.AssetCheckEvaluation:
    """What the check says of a source, for the event log."""
    result = check_result(decision)
    return dg.AssetCheckEvaluation(
        asset_key=SourceAssets(source).raw_key,
        check_name=NOTHING_GIVEN_UP,
        passed=result.passed,
        metadata=result.metadata,
        severity=result.severity,
        description=result.description,
    )


def check_result(decision: Decision) -> dg.AssetCheckResult:
    """Fails when something was given up, and names it."""
    given_up = sorted(decision.given_up.items())
    problems = [
        (
            f"{work}: {attempt.alone} runs that were asked for it alone left it waiting, the last "
            f"at {clock(attempt.last_ms)}"
        )
        for work, attempt in given_up[:_SHOWN]
    ]
    return dg.AssetCheckResult(
        passed=not given_up,
        severity=dg.AssetCheckSeverity.ERROR,
        description="; ".join(problems) or None,
        metadata={"given_up": len(given_up)},
    )


def _check(source: Source, derived: Sequence[DerivedTable]) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=SourceAssets(source).raw_key,
        name=NOTHING_GIVEN_UP,
        pool=NOTHING_GIVEN_UP,
        description="No part of this source was left waiting by run after run. The landing sensor "
        "goes on asking for what is named here, less and less often.",
    )
    def nothing_given_up(
        context: dg.AssetCheckExecutionContext, lakehouse: LakehouseResource
    ) -> dg.AssetCheckResult:
        return check_result(LandingWatch(source, derived, context.instance, lakehouse).decision())

    return nothing_given_up
