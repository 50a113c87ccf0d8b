"""Maintenance: each action is first a plan, which can be printed, then its execution.

`plan_x(catalog, identifier, options) -> XPlan`, `execute_x(catalog, plan) -> XResult`, and
`x(...)`, which does both.
"""

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
from lakehouse.maintenance.health.table_health import PartitionHealth, TableHealth, health
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
    "health",
    "plan_compaction",
    "plan_expiry",
    "plan_manifest_rewrite",
    "plan_orphan_removal",
    "policy_of",
    "remove_orphan_files",
    "rewrite_manifests",
]
