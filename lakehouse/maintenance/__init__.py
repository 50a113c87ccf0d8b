"""Maintenance: each action is first a plan, which can be printed, then its execution.

`plan_x(catalog, identifier, options) -> XPlan`, `execute_x(catalog, plan) -> XResult`, and
`x(...)`, which does both. What a table needs is `health.table_health.health`.

Names are imported when they are first used: a command needs few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehouse.names_when_used import names_when_used

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
    from lakehouse.maintenance.manifest_rewrite import (
        ManifestRewriteOptions,
        ManifestRewritePlan,
        ManifestRewriteResult,
        execute_manifest_rewrite,
        plan_manifest_rewrite,
        rewrite_manifests,
    )
    from lakehouse.maintenance.orphan_removal import (
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
    "maintenance.advice.advice": "Advice Choice CostModel advise",
    "maintenance.advice.due_actions": "Action ActionKind decide",
    "maintenance.advice.table_survey": "advise_table",
    "maintenance.compaction.compaction": "CompactionResult compact execute_compaction",
    "maintenance.compaction.compaction_plan": "CompactionPlan plan_compaction",
    "maintenance.compaction.file_groups": "CompactionOptions",
    "maintenance.health.table_health": "PartitionHealth TableHealth",
    "maintenance.maintenance_policy": "MaintenancePolicy policy_of",
    "maintenance.manifest_rewrite": "ManifestRewriteOptions ManifestRewritePlan "
    "ManifestRewriteResult execute_manifest_rewrite plan_manifest_rewrite rewrite_manifests",
    "maintenance.orphan_removal": "OrphanOptions OrphanPlan OrphanResult "
    "execute_orphan_removal plan_orphan_removal remove_orphan_files",
    "maintenance.retention.snapshot_expiry": "ExpiryOptions ExpiryPlan ExpiryResult "
    "execute_expiry expire_snapshots plan_expiry",
}
__getattr__ = names_when_used(__name__, _HOMES)
