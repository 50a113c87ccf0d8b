"""Maintenance: each action is first a plan, which can be printed, then its execution.

`plan_x(catalog, identifier, options) -> XPlan`, `execute_x(catalog, plan) -> XResult`, and
`x(...)`, which does both. What a table needs is `health.table_health.health`.

Names are imported when they are first used: a command needs few of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakehouse.maintenance.advice.advice import Advice, Choice, CostModel, advise
    from lakehouse.maintenance.advice.due_actions import Action, ActionKind, decide
    from lakehouse.maintenance.advice.table_survey import advise_table
    from lakehouse.maintenance.compaction.compaction import (
        CompactionResult,
        compact,
        execute_compaction,
    )
    from lakehouse.maintenance.compaction.compaction_plan import CompactionPlan, plan_compaction
    from lakehouse.maintenance.compaction.file_groups import CompactionOptions
    from lakehouse.maintenance.health.table_health import PartitionHealth, TableHealth
    from lakehouse.maintenance.maintenance_policy import MaintenancePolicy, policy_of
    from lakehouse.maintenance.manifests.manifest_rewrite import (
        ManifestRewriteOptions,
        ManifestRewritePlan,
        ManifestRewriteResult,
        execute_manifest_rewrite,
        plan_manifest_rewrite,
        rewrite_manifests,
    )
    from lakehouse.maintenance.orphans.orphan_removal import (
        OrphanOptions,
        OrphanPlan,
        OrphanResult,
        execute_orphan_removal,
        plan_orphan_removal,
        remove_orphan_files,
    )
    from lakehouse.maintenance.retention.snapshot_expiry import (
        ExpiryOptions,
        ExpiryPlan,
        ExpiryResult,
        execute_expiry,
        expire_snapshots,
        plan_expiry,
    )

__all__ = [
    "Action",
    "ActionKind",
    "Advice",
    "Choice",
    "CompactionOptions",
    "CompactionPlan",
    "CompactionResult",
    "CostModel",
    "ExpiryOptions",
    "ExpiryPlan",
    "ExpiryResult",
    "MaintenancePolicy",
    "ManifestRewriteOptions",
    "ManifestRewritePlan",
    "ManifestRewriteResult",
    "OrphanOptions",
    "OrphanPlan",
    "OrphanResult",
    "PartitionHealth",
    "TableHealth",
    "advise",
    "advise_table",
    "compact",
    "decide",
    "execute_compaction",
    "execute_expiry",
    "execute_manifest_rewrite",
    "execute_orphan_removal",
    "expire_snapshots",
    "plan_compaction",
    "plan_expiry",
    "plan_manifest_rewrite",
    "plan_orphan_removal",
    "policy_of",
    "remove_orphan_files",
    "rewrite_manifests",
]

_HOMES = {
    "Action": "advice.due_actions",
    "ActionKind": "advice.due_actions",
    "Advice": "advice.advice",
    "advise": "advice.advice",
    "advise_table": "advice.table_survey",
    "Choice": "advice.advice",
    "compact": "compaction.compaction",
    "CompactionOptions": "compaction.file_groups",
    "CompactionPlan": "compaction.compaction_plan",
    "CompactionResult": "compaction.compaction",
    "CostModel": "advice.advice",
    "decide": "advice.due_actions",
    "execute_compaction": "compaction.compaction",
    "execute_expiry": "retention.snapshot_expiry",
    "execute_manifest_rewrite": "manifests.manifest_rewrite",
    "execute_orphan_removal": "orphans.orphan_removal",
    "expire_snapshots": "retention.snapshot_expiry",
    "ExpiryOptions": "retention.snapshot_expiry",
    "ExpiryPlan": "retention.snapshot_expiry",
    "ExpiryResult": "retention.snapshot_expiry",
    "MaintenancePolicy": "maintenance_policy",
    "ManifestRewriteOptions": "manifests.manifest_rewrite",
    "ManifestRewritePlan": "manifests.manifest_rewrite",
    "ManifestRewriteResult": "manifests.manifest_rewrite",
    "OrphanOptions": "orphans.orphan_removal",
    "OrphanPlan": "orphans.orphan_removal",
    "OrphanResult": "orphans.orphan_removal",
    "PartitionHealth": "health.table_health",
    "plan_compaction": "compaction.compaction_plan",
    "plan_expiry": "retention.snapshot_expiry",
    "plan_manifest_rewrite": "manifests.manifest_rewrite",
    "plan_orphan_removal": "orphans.orphan_removal",
    "policy_of": "maintenance_policy",
    "remove_orphan_files": "orphans.orphan_removal",
    "rewrite_manifests": "manifests.manifest_rewrite",
    "TableHealth": "health.table_health",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
