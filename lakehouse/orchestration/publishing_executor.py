"""An executor that publishes what a run wrote when its last step has succeeded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import dagster as dg
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode
from dagster._core.execution.step_dependency_config import StepDependencyConfig

from lakehouse.orchestration.assets.lakehouse_io_manager import LakehouseIOManager
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.orchestration.run_publication import BY_EXECUTOR_TAG

_WITH_CATALOG = (LakehouseResource, LakehouseIOManager)


class PublishingExecutor(dg.Executor):
    """Runs steps as another executor does, and publishes what they wrote at the end.

    Args:
        inside: runs the steps.
    """

    def __init__(self, inside: dg.Executor) -> None:
        self._inside = inside

    @property
    def retries(self) -> RetryMode:
        """Those of the executor inside."""
        return self._inside.retries

    @property
    def step_dependency_config(self) -> StepDependencyConfig:
        """That of the executor inside."""
        return self._inside.step_dependency_config

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[dg.DagsterEvent]:
        """Run the steps, and publish if none of them has failed.

        Raises:
            DagsterInvariantViolationError: nothing was published; it says why. The run fails.
        """
        instance, run = plan_context.instance, plan_context.dagster_run
        instance.add_run_tags(run.run_id, {BY_EXECUTOR_TAG: "true"})
        has_failed = False
        for event in self._inside.execute(plan_context, execution_plan):
            has_failed = has_failed or event.is_step_failure
            yield event
        if has_failed:
            return
        definition = plan_context.job.get_definition()
        used = {
            key: resource
            for key, resource in definition.resource_defs.items()
            if issubclass(getattr(resource, "configurable_resource_cls", object), _WITH_CATALOG)
        }
        config: Any = plan_context.run_config.get("resources") or {}
        given = {key: config[key] for key in used if key in config}
        with dg.build_resources(used, instance, given) as resources:
            for key in used:
                holder = getattr(resources, key)
                lakehouse = holder if isinstance(holder, LakehouseResource) else holder.lakehouse
                lakehouse.publish_run(run, instance)


def publishing(executor: dg.ExecutorDefinition) -> dg.ExecutorDefinition:
    """The executor, which publishes what a run wrote when its last step has succeeded.

    For `dg.Definitions(executor=publishing(dg.multiprocess_executor))`, and all others that run
    steps in processes of their own. Runs whose steps publish by themselves go on to do so.

    >>> publishing(dg.multiprocess_executor).name
    'multiprocess'
    """

    def create(context: Any) -> dg.Executor:
        made = executor.executor_creation_fn
        if made is None:
            raise dg.DagsterInvariantViolationError(f"{executor.name} makes no executor.")
        return PublishingExecutor(made(context))

    return dg.ExecutorDefinition(
        executor.name,
        cast("Any", executor.config_schema),
        executor._requirements_fn,  # noqa: SLF001
        create,
        executor.description,
    )
