"""Statements about tables in Dagster: a check for each table, and a sensor for evidence.

The sensor asks for evidence where metadata does not suffice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import dagster as dg

from lakehouse.curation.checkup import Checked, check_statements
from lakehouse.curation.survey import survey
from lakehouse.orchestration.asset_attributes import plain
from lakehouse.orchestration.automation.attempts import next_attempt
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.semantics.states import State
from lakehouse.spec.identifier import split_name

CHECK = "statements_hold"
JOB = "check_statements"
_SHOWN = 50


def statement_checks(tables: Sequence[str]) -> list[dg.AssetChecksDefinition]:
    """A check for each table: fails when a statement about it is contradicted, and says by what.

    Args:
        tables: dotted names; the asset of `raw.events` is `raw/events`.
    """
    return [_check(name) for name in tables]


def statement_job(tables: Sequence[str]) -> Any:
    """The job that runs these checks alone."""
    checks = [dg.AssetCheckKey(dg.AssetKey(split_name(name)), CHECK) for name in tables]
    return dg.define_asset_job(
        JOB,
        selection=dg.AssetSelection.checks(*checks),
        description="Runs the evidence of statements about tables that metadata cannot decide.",
    )


def statement_sensor(tables: Sequence[str]) -> dg.SensorDefinition:
    """Asks for the checks of tables with statements that rows changed under, by metadata alone."""

    @dg.sensor(
        name="statements_to_check",
        job_name=JOB,
        minimum_interval_seconds=300,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Asks for evidence where rows changed under a statement, by metadata alone. "
        "The switch beside its name stops it.",
    )
    def sensor(
        context: dg.SensorEvaluationContext, lakehouse: LakehouseResource
    ) -> dg.SensorResult | dg.SkipReason:
        waiting, mark = statements_waiting(lakehouse, tables)
        if not waiting:
            return dg.SkipReason("metadata decides every statement")
        keys = [dg.AssetCheckKey(dg.AssetKey(split_name(name)), CHECK) for name in waiting]
        context.log.info(f"rows changed under statements about {', '.join(waiting)}")
        request = next_attempt(context.instance, mark)
        if isinstance(request, dg.SkipReason):
            return request
        request = request.with_replaced_attrs(asset_selection=[], asset_check_keys=keys)
        return dg.SensorResult(run_requests=[request])

    return sensor


def statements_waiting(
    lakehouse: LakehouseResource, tables: Sequence[str]
) -> tuple[list[str], str]:
    """Tables with evidence to run, and a key of their snapshots, the cause of the run."""
    seen = survey(lakehouse.lake(), tables)
    waiting = sorted(
        {
            statement.subject.table_uuid
            for statement in seen.statements
            if statement.evidence is not None
            and statement.subject.table_uuid in seen.tables
            and seen.standing(statement).state is State.UNVERIFIED
        }
    )
    snapshots = [str(seen.tables[uuid].metadata.current_snapshot_id) for uuid in waiting]
    return [seen.tables[uuid].name for uuid in waiting], "statements:" + ",".join(snapshots)


def check_result(results: Sequence[Checked]) -> dg.AssetCheckResult:
    """What a check says of the statements about one table."""
    counts = Counter(str(result.standing.state) for result in results)
    contradicted = [result for result in results if result.standing.state is State.CONTRADICTED]
    description = "; ".join(
        f"{result.draft.statement_id}: {result.standing.reason}" for result in contradicted[:3]
    )
    return dg.AssetCheckResult(
        passed=not contradicted,
        severity=dg.AssetCheckSeverity.ERROR,
        check_name=CHECK,
        description=description or f"{len(results)} statements, none contradicted",
        metadata={
            "lakehouse/statements": dg.MetadataValue.md(statement_markdown(results)),
            **{
                f"lakehouse/{state}": dg.MetadataValue.int(counts.get(str(state), 0))
                for state in (State.VERIFIED, State.UNVERIFIED, State.CONTRADICTED)
            },
        },
    )


def statement_markdown(results: Sequence[Checked]) -> str:
    """Statements with their states as a table, the contradicted ones first."""
    order = [State.CONTRADICTED, State.UNVERIFIED, State.VERIFIED, State.EXPIRED, State.DEPRECATED]
    lines = ["| state | about | statement | why |", "|---|---|---|---|"]
    for result in sorted(results, key=lambda result: order.index(result.standing.state))[:_SHOWN]:
        text = result.draft.text or str(dict(result.draft.claim))
        cells = (
            str(result.standing.state),
            f"{result.draft.kind} {result.draft.column or ''}".strip(),
            text,
            result.standing.reason,
        )
        lines.append("| " + " | ".join(plain(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _check(name: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        pool=JOB,
        asset=dg.AssetKey(split_name(name)),
        name=CHECK,
        description=(
            "Statements about the table still hold: by metadata, and by evidence where rows "
            "changed."
        ),
    )
    def statements_hold(lakehouse: LakehouseResource) -> dg.AssetCheckResult:
        return check_result(check_statements(lakehouse.lake(), [name]))

    return statements_hold
