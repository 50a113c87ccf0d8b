"""What every asset of the pipeline shares: stamps, failures with a reason, check results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime

import dagster as dg

from lakehouse.errors import LakehouseError
from lakehouse.ingestion.audit import AuditFailedError, CheckOutcome
from lakehouse.ingestion.run_log import Say, silent
from lakehouse.ingestion.stamp import AUDIT_BRANCH, RunStamp
from lakehouse.orchestration.checks.bad_days import DayMemory, described
from lakehouse.orchestration.checks.bad_days import metadata as metadata_of
from lakehouse.orchestration.checks.expectations import Suite
from lakehouse.spark.warm_session import lost_spark
from lakehouse.spec.metadata.snapshot import ASSET_KEY, RUN_ID
from lakehouse.table import Table

FAILED_BY = "lakehouse/error"
"""Metadata of a failure: the type of the error that its description is from."""
REPLAYED_TAG = "lakehouse/replayed"
"""Tag of a run that computes again, and stores nothing."""
_INTERRUPTS = (KeyboardInterrupt, dg.DagsterExecutionInterruptedError)


class RetryUnlessInterrupted(dg.RetryPolicy):
    """A retry policy for failures: who terminates a run, or stops Dagster, wants no second attempt.

    Dagster asks a policy about interrupts as well, so that a terminated run would begin its step
    again.
    """

    def calculate_delay(self, attempt_num: int) -> float:
        """Seconds to wait. Raises the interrupt that ended the attempt."""
        error = sys.exc_info()[1]
        if isinstance(error, _INTERRUPTS):
            raise error
        return float(super().calculate_delay(attempt_num))


# what another writer or a slow network breaks can be tried again; what the data breaks cannot
RETRY = RetryUnlessInterrupted(
    max_retries=2, delay=2, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS
)


def pool(table: str) -> str:
    """The pool that serialises whatever writes to a table: ingestion and maintenance."""
    return f"table_{table.replace('.', '_')}"


def stamp(context: dg.AssetExecutionContext, key: dg.AssetKey) -> RunStamp:
    """The stamp of this step's writes to an asset."""
    has_keys = context.has_partition_key or context.has_partition_key_range
    keys = context.partition_keys if has_keys else ()
    return RunStamp.of(context.run.run_id, key.to_user_string(), keys)


def requested_days(context: dg.AssetExecutionContext) -> list[date]:
    """The days of this run, one or many."""
    return [date.fromisoformat(key) for key in context.partition_keys]


def today() -> date:
    """The current day in UTC."""
    return datetime.now(UTC).date()


@contextmanager
def explained(*passed_on: type[LakehouseError]) -> Iterator[None]:
    """Turn an error of the engine into a failure of the step that says what to do.

    It is retried only when that can help.

    Args:
        passed_on: errors that are left as they are.

    Raises:
        Failure: instead of a LakehouseError that a retry cannot heal.
        SparkLostError: the Spark that runs share has ended.
    """
    try:
        yield
    except LakehouseError as error:
        if error.retryable or isinstance(error, passed_on):
            raise
        raise failure_of(error) from None
    except Exception as error:  # py4j's, or that nobody listens where it connects
        lost = None if isinstance(error, dg.Failure) else lost_spark()
        if lost is None:
            raise
        raise lost from error


def failure_of(error: LakehouseError) -> dg.Failure:
    """The failure of a step; raised `from None`, else Dagster prints the error twice."""
    metadata = {FAILED_BY: type(error).__name__}
    metadata |= {k: str(v)[:1000] for k, v in error.context.items()}
    if isinstance(error, AuditFailedError):
        metadata["lakehouse/rejected_snapshot_id"] = str(error.snapshot.snapshot_id)
    return dg.Failure(error.message, metadata, allow_retries=error.retryable)


def remove_dead_branches(
    table: Table, instance: dg.DagsterInstance, say: Say = silent
) -> list[str]:
    """Remove the branches of runs that died before they published or rejected what they staged.

    Only a branch whose newest snapshot names a run that this instance knows to have ended goes: not
    that of a run in flight, of another instance, or of a person.

    Returns:
        Their names.
    """
    removed = []
    for branch, ref in list(table.refs().items()):
        if not branch.startswith(AUDIT_BRANCH) or ref.type != "branch":
            continue
        summary = table.metadata.snapshot(ref.snapshot_id).summary
        run = instance.get_run_by_id(summary[RUN_ID]) if RUN_ID in summary else None
        if run is None or not run.is_finished:
            continue
        if branch != RunStamp(run.run_id, summary.get(ASSET_KEY, "")).branch():
            continue
        table.remove_ref(branch)
        removed.append(branch)
        say(f"{table.name}: removed {branch}, which a run that ended left")
    return removed


def check_specs(key: dg.AssetKey, suites: Sequence[Suite]) -> list[dg.AssetCheckSpec]:
    """The suites as asset checks; a failed blocking check also stops downstream assets."""
    return [
        dg.AssetCheckSpec(
            suite.name, asset=key, blocking=suite.blocking, description=suite.description or None
        )
        for suite in suites
    ]


def check_results(
    key: dg.AssetKey,
    suites: Sequence[Suite],
    outcomes: Sequence[CheckOutcome],
    memory: DayMemory,
    explain: Callable[[CheckOutcome], Mapping[str, object]] = lambda _: {},
) -> Iterator[dg.AssetCheckResult]:
    """One result for each suite; `explain` gives more to show of one that failed.

    A suite that was not evaluated, because nothing was written, passes and says so. Days that
    failed in an earlier run and were not written since keep a check from passing; as a warning, so
    that what is downstream of good days is computed.
    """
    by_name = {outcome.name: outcome for outcome in outcomes}
    for suite in suites:
        outcome = by_name.get(suite.name) or CheckOutcome(
            suite.name, passed=True, blocking=suite.blocking
        )
        bad = memory.still_bad(key, suite.name, outcome.bad_days)
        lines = (
            [described(bad, [*memory.days, *outcome.bad_days])]
            if bad
            else list(dict.fromkeys(outcome.failures))
        )
        if suite.name not in by_name:
            lines.append("nothing was written, nothing to check")
        failed = outcome.blocking and not outcome.passed
        yield dg.AssetCheckResult(
            passed=outcome.passed and not bad,
            asset_key=key,
            check_name=suite.name,
            severity=dg.AssetCheckSeverity.ERROR if failed else dg.AssetCheckSeverity.WARN,
            description="; ".join(lines)[:2000] or None,
            metadata=_values(outcome.metadata)
            | metadata_of(bad)
            | _values({} if outcome.passed else explain(outcome)),
        )


def _values(metadata: Mapping[str, object]) -> dict[str, dg.MetadataValue]:
    return {
        name: dg.MetadataValue.int(value)
        if isinstance(value, int)
        else dg.MetadataValue.text(str(value))
        for name, value in metadata.items()
    }
