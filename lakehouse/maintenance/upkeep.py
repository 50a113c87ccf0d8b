"""What the policy requires of a table, whatever engine writes it: planned, or carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from rich.console import RenderableType

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.environment import Environment
from lakehouse.errors import LakehouseError
from lakehouse.maintenance.advice.advice import Advice
from lakehouse.maintenance.advice.due_actions import Action, ActionKind, decide, due
from lakehouse.maintenance.advice.table_survey import advise_table
from lakehouse.maintenance.compaction.compaction import execute_compaction
from lakehouse.maintenance.compaction.compaction_plan import plan_compaction
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.maintenance.health.table_health import TableHealth
from lakehouse.maintenance.health.table_health import health as measure
from lakehouse.maintenance.maintenance_policy import MaintenancePolicy, policy_of
from lakehouse.maintenance.manifest_rewrite import execute_manifest_rewrite, plan_manifest_rewrite
from lakehouse.maintenance.orphan_removal import (
    OrphanOptions,
    execute_orphan_removal,
    plan_orphan_removal,
)
from lakehouse.maintenance.reachability.neighbours import KnownTables
from lakehouse.maintenance.retention.snapshot_expiry import (
    ExpiryOptions,
    expire_snapshots,
    plan_expiry,
)
from lakehouse.maintenance.shown_plan import (
    Progress,
    Report,
    human_bytes,
    human_ms,
    listing,
    no_progress,
)
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.table_properties import TableProperties


class Prepared(NamedTuple):
    """One action.

    Attributes:
        plan: what it would do.
        execute: does it, as far as it still has to be done.
    """

    plan: Callable[[], Report]
    execute: Callable[[], Report]


def prepare(
    kind: ActionKind,
    catalog: Catalog,
    table: TableVersion,
    *,
    environment: Environment,
    project: Mapping[str, str] | None = None,
    progress: Progress = no_progress,
    partitions: frozenset[str] | None = None,
    retain_last: int | None = None,
    orphans_before_ms: int | None = None,
    tables: KnownTables | None = None,
) -> Prepared:
    """An action as the table's policy has it, where nothing else is asked.

    Args:
        kind: compact, rewrite-manifests, expire or remove-orphans.
        catalog: where the table is.
        table: its policy is that of this version; what is done, of the newest.
        environment: clock and ids.
        project: defaults of the project for `lakehouse.maintenance.*`.
        progress: of the execution.
        partitions: compact these alone.
        retain_last: expire all but so many snapshots of each branch now.
        orphans_before_ms: what was written before then may be an orphan.
        tables: of the catalog, loaded earlier, for the search for orphans.
    """
    properties = table.metadata.properties
    policy = policy_of(properties, project)
    place = (catalog, table.identifier)
    now: dict[str, Any] = {"environment": environment}
    going: dict[str, Any] = {"environment": environment, "progress": progress}
    if kind is ActionKind.EXPIRE:
        expiry = ExpiryOptions()
        if retain_last is not None:
            expiry = ExpiryOptions(older_than_ms=environment.now_ms(), retain_last=retain_last)
        return Prepared(
            partial(plan_expiry, *place, expiry, **now),
            partial(expire_snapshots, *place, expiry, **going),
        )
    if kind is ActionKind.REMOVE_ORPHANS:
        if orphans_before_ms is None:
            orphans_before_ms = environment.now_ms() - policy.orphan_age_ms
        options = OrphanOptions(older_than_ms=orphans_before_ms)
        plan_orphans = partial(plan_orphan_removal, *place, options, tables=tables, **now)
        return Prepared(
            plan_orphans, lambda: execute_orphan_removal(catalog, plan_orphans(), **going)
        )
    if kind is ActionKind.REWRITE_MANIFESTS:
        plan_manifests = partial(plan_manifest_rewrite, *place, **now)
        return Prepared(
            plan_manifests, lambda: execute_manifest_rewrite(catalog, plan_manifests(), **going)
        )
    if kind is ActionKind.COMPACT:
        target = TableProperties(properties).target_file_size_bytes
        compaction = replace(CompactionOptions.under(policy, target), partitions=partitions)
        plan_files = partial(plan_compaction, *place, compaction, **now)
        return Prepared(plan_files, lambda: execute_compaction(catalog, plan_files(), **going))
    raise AssertionError(f"{kind} is no action of maintenance")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep(Report):
    """A table's health, what the policy asks for, and what came of it.

    Attributes:
        identifier: the table.
        health: None: the table could not be measured.
        advice: what only a person changes; None as well.
        actions: that the policy asks for now, in the order of doing; alerts are for a person.
        plans: of the action, what it would do; where it was carried out, what it did.
        applied: whether actions were carried out.
        errors: by action, `health`, or `disk` where orphans are unknown, why.
        policy: of the table; None as `health`.
    """

    identifier: Identifier
    health: TableHealth | None = None
    advice: Advice | None = None
    actions: tuple[Action, ...] = ()
    plans: Mapping[str, Report] = field(default_factory=dict)
    applied: bool = False
    errors: Mapping[str, str] = field(default_factory=dict)
    policy: MaintenancePolicy | None = None

    def title(self) -> str:
        return f"Upkeep of {self.identifier}"

    def to_dict(self) -> dict[str, object]:
        return {
            "table": str(self.identifier),
            "applied": self.applied,
            "health": None if self.health is None else self.health.to_dict(),
            "advice": None if self.advice is None else self.advice.to_dict(),
            "plans": {kind: plan.to_dict() for kind, plan in self.plans.items()},
            "errors": dict(self.errors),
        }

    def facts(self) -> Iterable[tuple[str, object]]:
        if self.health is not None:
            values = dict(self.health.facts())
            yield from ((label, values[label]) for label in _SHOWN)
            if self.health.unwritable:
                yield "not compacted", self.health.unwritable
            if self.health.disk is not None:
                yield "orphans", human_bytes(self.health.disk.orphan_bytes)
        for action in self.actions:
            yield f"policy asks: {action.kind}", action.reason
        for kind, plan in self.plans.items():
            facts = ", ".join(f"{label} {value}" for label, value in plan.facts())
            yield f"{'done' if self.applied else 'would do'}: {kind}", facts
        for kind, error in self.errors.items():
            yield f"cannot: {kind}", error
        if not (self.actions or self.errors):
            yield "policy asks", "nothing now"
        if self.policy is not None and not self.policy.enabled:
            yield "policy", "lakehouse.maintenance.enabled is false: nothing is carried out"
        elif self.policy is not None and ActionKind.COMPACT not in self.plans:
            yield (
                "compaction waits",
                f"for {self.policy.min_input_files} small files in a partition that nobody wrote "
                f"to for {human_ms(self.policy.skip_recent_ms)}",
            )

    def detail(self) -> RenderableType | None:
        """Changes of layout, which only a person makes."""
        if self.advice is None or not self.advice.recommendations:
            return None
        recommendations = self.advice.recommendations
        return listing(
            ("advice", "today", "better", "why"),
            (
                (
                    recommendation.subject,
                    recommendation.current,
                    recommendation.proposed,
                    recommendation.why,
                )
                for recommendation in recommendations
            ),
        )


_SHOWN = ("data files", "small files", "delete files", "manifests", "snapshots")
ORDER = (
    ActionKind.EXPIRE,
    ActionKind.COMPACT,
    ActionKind.REWRITE_MANIFESTS,
    ActionKind.REMOVE_ORPHANS,
)


def upkeep(
    catalog: Catalog,
    identifier: Identifier,
    *,
    apply: bool = False,
    environment: Environment,
    project: Mapping[str, str] | None = None,
    progress: Progress = no_progress,
    tables: KnownTables | None = None,
) -> Upkeep:
    """Measure a table and plan what its policy asks for now, or carry it out.

    An error ends one action, not the others; nothing is raised for what is wrong with a table.

    Args:
        catalog: where the table is.
        identifier: the table.
        apply: carry out what is due.
        environment: clock and ids.
        project: defaults of the project for `lakehouse.maintenance.*`.
        progress: of executions.
        tables: for whoever looks after many; None: they are loaded.
    """
    measured: dict[str, Any] = {"environment": environment, "project": project}
    errors: dict[str, str] = {}
    try:
        try:
            health = measure(catalog, identifier, **measured, list_files=True, tables=tables)
        except LakehouseError as error:
            # orphans are unknown where another table of the catalog cannot be read
            health = measure(catalog, identifier, **measured)
            errors["disk"] = error.message
        table = catalog.load(identifier)
        policy = policy_of(table.metadata.properties, project)
        actions = tuple(decide(health, policy, environment.now_ms()))
        advice = advise_table(catalog, identifier, **measured)
    except LakehouseError as error:
        return Upkeep(identifier=identifier, errors={"health": error.message})
    plans: dict[str, Report] = {}
    for kind in _kinds(actions, environment.now_ms()):
        try:
            prepared = prepare(
                kind,
                catalog,
                table,
                environment=environment,
                project=project,
                progress=progress,
                tables=tables,
            )
            plans[kind] = prepared.execute() if apply else prepared.plan()
        except LakehouseError as error:
            errors[kind] = error.message
    return Upkeep(
        identifier=identifier,
        health=health,
        advice=advice,
        actions=actions,
        plans=plans,
        applied=apply,
        errors=errors,
        policy=policy,
    )


def _kinds(actions: Iterable[Action], now_ms: int) -> Iterator[ActionKind]:
    due_kinds = {action.kind for action in due(actions, now_ms)}
    yield from (kind for kind in ORDER if kind in due_kinds)
