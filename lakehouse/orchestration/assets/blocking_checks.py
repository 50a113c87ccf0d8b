"""Blocking checks of an asset, asked before its rows are published.

Dagster evaluates checks after an asset's step has stored its rows. Those that are steps of their
own run here first, on the rows as they would be published; those that a plain asset's own function
gives are waited for until its step ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster import DagsterEventType as EventType
from dagster._core.events import DagsterEvent
from dagster._core.execution.context.system import StepExecutionContext

from lakehouse.catalog.joint_catalog import JointCatalog
from lakehouse.ingestion.audit import CheckOutcome, StagedWrite
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.asset_results import explained
from lakehouse.orchestration.assets.asset_write import AssetWrite
from lakehouse.orchestration.assets.frames import InputRows, PolarsEngine
from lakehouse.orchestration.checks.expectations import Suite, validate
from lakehouse.orchestration.lineage.materialization import log_together
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.spec.metadata.snapshot import Snapshot

_AGAIN = 5
"""How often audited rows are written again when others wrote to the table meanwhile."""


@dataclass(frozen=True)
class BlockingChecks:
    """What stands between the rows of an asset and their publication.

    Attributes:
        step: Dagster's context of the asset's step.
        key: of the asset.
        separate: checks that are steps of their own in this run.
        in_step: whether the step of the asset gives results of some itself.
    """

    step: StepExecutionContext
    key: dg.AssetKey
    separate: frozenset[dg.AssetCheckKey]
    in_step: bool

    @classmethod
    def of(cls, step: StepExecutionContext, asset: dg.AssetKey) -> BlockingChecks | None:
        """Those of an asset that this run evaluates; None where there are none."""
        layer = step.job_def.asset_layer
        graph, own = layer.asset_graph, layer.get_assets_def_for_node(step.node_handle)
        separate: set[dg.AssetCheckKey] = set()
        in_step = False
        for key in graph.asset_check_keys:
            if key.asset_key != asset or not graph.get(key).blocking:
                continue
            late: set[dg.AssetKey] = set()
            if own is not None and key in own.check_keys:
                if layer.get_op_output_handle(key).node_handle == step.node_handle:
                    in_step = True
                    continue
                late = {asset}
            else:
                checks = next(
                    assets_def for assets_def in graph.assets_defs if key in assets_def.check_keys
                )
                read = {
                    *checks.keys_by_input_name.values(),
                    *(k.asset_key for k in checks.check_keys),
                }
                before = graph.get_ancestor_asset_keys(asset, include_self=True)
                late = {*checks.keys, *(read - before)} & set(layer.selected_asset_keys)
            if late:
                names = ", ".join(sorted(asset.to_user_string() for asset in late))
                step.log.warning(
                    f"The check {key.name} also waits for {names}: the rows of "
                    f"{asset.to_user_string()} are published before it."
                )
            else:
                separate |= set(checks.check_keys)
        return cls(step, asset, frozenset(separate), in_step) if separate or in_step else None

    def outcomes(
        self, resource: LakehouseResource, lake: Lakehouse, write: AssetWrite, branch: str
    ) -> list[CheckOutcome]:
        """What the checks that are steps of their own find, as if `branch` were published.

        Where one of them fails, its result is recorded as one of this run.

        Raises:
            Failure: a check gave no result.
        """
        if not self.separate:
            return []
        staging = JointCatalog(lake.catalog, lake.environment)
        seen = Lakehouse(staging, lake.environment)
        table = write.table.name
        seen.load_table(table).fast_forward(write.onto, branch)
        with resource.seen_as(seen):
            evaluations, errors = self._evaluated()
        outcomes = []
        for key in sorted(self.separate, key=lambda key: key.name):
            if key.asset_key != self.key:
                continue
            evaluation = evaluations.get(key)
            if evaluation is None:
                raise dg.Failure(
                    f"{table}: nothing was published, the check {key.name} gave no result: "
                    f"{'; '.join(errors) or 'it ended without one'}"
                )
            passed = evaluation.passed or evaluation.severity != dg.AssetCheckSeverity.ERROR
            why = (evaluation.description or "it failed",)
            outcomes.append(CheckOutcome(key.name, passed, evaluation.blocking is True, why))
        if not all(outcome.passed or not outcome.blocking for outcome in outcomes):
            for key, evaluation in evaluations.items():
                if key.asset_key == self.key:
                    DagsterEvent.asset_check_evaluation(self.step, evaluation)
        return outcomes

    def _evaluated(self) -> tuple[dict[dg.AssetCheckKey, dg.AssetCheckEvaluation], list[str]]:
        """Results, and errors, of a run of the checks alone, which no instance remembers."""
        step = self.step
        job = step.job_def.get_subset(asset_check_selection=self.separate)
        config: dict[str, Any] = dict(step.run_config)
        if job.config_mapping is None:
            ops = config.get("ops") or {}
            named = {name: ops[name] for name in job.graph.node_dict if name in ops}
            config = {"resources": config.get("resources") or {}, "ops": named}
        tags = {k: v for k, v in step.dagster_run.tags.items() if not k.startswith(".")}
        with _ephemeral(step) as instance:
            done = job.execute_in_process(
                run_config=config, instance=instance, tags=tags, raise_on_error=False
            )
            evaluations = {
                evaluation.asset_check_key: evaluation
                for evaluation in done.get_asset_check_evaluations()
            }
        errors = [
            f"{event.step_key}: {event.step_failure_data.error_display_string.strip()}"
            for event in done.all_events
            if event.event_type == EventType.STEP_FAILURE
        ]
        return evaluations, errors


def publish(
    write: AssetWrite,
    staged: StagedWrite,
    checks: BlockingChecks | None,
    resource: LakehouseResource,
    lake: Lakehouse,
    audit: Callable[[Snapshot], list[CheckOutcome]] = lambda _: [],
) -> tuple[Snapshot, list[CheckOutcome]]:
    """Audit what was staged, ask the checks, and make it the head of the branch where it belongs.

    Args:
        write: of the rows; they are written again where others have written meanwhile.
        staged: what it wrote.
        checks: that are asked after the audit, of what was not published by an earlier attempt.
        resource: where checks open the catalog.
        lake: the catalog.
        audit: of the asset itself.

    Raises:
        AuditFailedError: a blocking check failed; nothing was published.
        Failure: a check gave no result.
    """

    def audited(snapshot: Snapshot) -> list[CheckOutcome]:
        outcomes = audit(snapshot)
        if checks is not None and not staged.published:
            outcomes += checks.outcomes(resource, lake, write, staged.branch)
        return outcomes

    return staged.publish(audited, again=_AGAIN)


def suite_checks(
    asset: dg.AssetKey | dg.AssetsDefinition, suites: Sequence[Suite], table: str = ""
) -> list[dg.AssetChecksDefinition]:
    """Great Expectations as checks of a plain asset, on all rows of its table as a frame of pandas.

    Those that block stand before the publication of what a run of the asset has written.

    Args:
        asset: the asset, or its key.
        suites: what must hold; derived tables have suites of their own.
        table: dotted name of its table; empty: the parts of the key.
    """
    key = asset if isinstance(asset, dg.AssetKey) else asset.key
    return [_suite_check(key, suite, table or ".".join(key.path)) for suite in suites]


def _suite_check(key: dg.AssetKey, suite: Suite, table: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=key,
        name=suite.name,
        blocking=suite.blocking,
        description=suite.description or None,
    )
    def holds(lakehouse: LakehouseResource) -> dg.AssetCheckResult:
        with explained():
            rows = InputRows(lakehouse.lake().load_table(table))
            with PolarsEngine().staged(rows) as frame:
                (outcome,) = validate(frame, [suite], table)
        severity = dg.AssetCheckSeverity
        return dg.AssetCheckResult(
            passed=outcome.passed,
            severity=severity.ERROR if suite.blocking else severity.WARN,
            description="; ".join(outcome.failures)[:2000] or None,
            metadata={name: str(value) for name, value in outcome.metadata.items()},
        )

    return holds


class AtStepsEnd(logging.Filter):
    """Publishes when the step succeeds, and holds its materializations back until then.

    Dagster tells a step's logger of each event before it stores it, and has no other place that is
    reached after the results of checks and before the step has succeeded.

    Args:
        context: of the output.
        publish: gives metadata of what was published.
        drop: is called instead where the step fails.
    """

    def __init__(
        self,
        context: dg.OutputContext,
        publish: Callable[[], Mapping[str, Any]],
        drop: Callable[[], None],
    ) -> None:
        super().__init__()
        self._step, self._key = context.step_context, context.asset_key
        self._publish, self._drop = publish, drop
        self._held: list[dg.AssetMaterialization] = []
        self._ended = False
        self._step.log.addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the event is stored now."""
        event = getattr(record, "dagster_event", None)
        if event is None or self._ended:
            return True
        kind = event.event_type
        if kind == EventType.ASSET_MATERIALIZATION and event.asset_key == self._key:
            self._held.append(event.step_materialization_data.materialization)
            return False
        if kind == EventType.STEP_SUCCESS:
            self._ended = True
            published = self._publish()
            log_together(
                self._step,
                [held.with_metadata({**held.metadata, **published}) for held in self._held],
            )
        elif kind in (EventType.STEP_FAILURE, EventType.STEP_UP_FOR_RETRY):
            self._ended = True
            self._drop()
        return True


@contextmanager
def _ephemeral(step: Any) -> Iterator[dg.DagsterInstance]:
    """An instance that knows of dynamic partitions what the run's knows, and nothing else."""
    with dg.DagsterInstance.ephemeral() as instance:
        for node in step.job_def.asset_layer.asset_graph.asset_nodes:
            definition = node.partitions_def
            parts = (
                [partitions_def.partitions_def for partitions_def in definition.partitions_defs]
                if isinstance(definition, dg.MultiPartitionsDefinition)
                else [definition]
            )
            for part in parts:
                if isinstance(part, dg.DynamicPartitionsDefinition) and part.name:
                    keys = list(step.instance.get_dynamic_partitions(part.name))
                    instance.add_dynamic_partitions(part.name, keys)
        yield instance
