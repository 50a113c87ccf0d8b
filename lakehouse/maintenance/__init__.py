"""Maintenance: each action is first a plan (data that prints itself), then an execution of that plan.

`plan_x(catalog, identifier, options) -> XPlan`, `execute_x(catalog, plan) -> XResult`, and `x(...)`, which does both.
"""

from lakehouse.maintenance.advisor import Advice, Choice, CostModel, advise
from lakehouse.maintenance.compaction import (
    CompactionPlan,
    CompactionResult,
    compact,
    execute_compaction,
    plan_compaction,
)
from lakehouse.maintenance.decision import Action, ActionKind, decide
from lakehouse.maintenance.expiry import (
    ExpiryOptions,
    ExpiryPlan,
    ExpiryResult,
    execute_expiry,
    expire_snapshots,
    plan_expiry,
)
from lakehouse.maintenance.file_groups import CompactionOptions
from lakehouse.maintenance.health import PartitionHealth, TableHealth, health
from lakehouse.maintenance.manifests import (
    ManifestRewriteOptions,
    ManifestRewritePlan,
    ManifestRewriteResult,
    execute_manifest_rewrite,
    plan_manifest_rewrite,
    rewrite_manifests,
)
from lakehouse.maintenance.orphans import (
    OrphanOptions,
    OrphanPlan,
    OrphanResult,
    execute_orphan_removal,
    plan_orphan_removal,
    remove_orphan_files,
)
from lakehouse.maintenance.policy import MaintenancePolicy, policy_of
from lakehouse.maintenance.survey import advise_table

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
