"""When a table needs maintenance: its `lakehouse.maintenance.*` properties, or the project's.

Pure.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from lakehouse.spec.table_properties import TableProperties

PREFIX = "lakehouse.maintenance."
SMALL_FILE_RATIO = 0.75
"""Without a size of its own, a file is small below this part of the target."""

_HOUR_MS = 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePolicy:
    """When maintenance of a table is worth it, and what it may take.

    Defaults as in `TableProperties.maintenance_*`.

    Retention of snapshots is not here: it is `history.expire.*`, which other engines know as well.

    Attributes:
        enabled: False: nothing is launched, alerts are still raised.
        small_file_bytes: below it a data file is small; 0: three quarters of the table's target
            size.
        min_input_files: small files in a partition that make compaction worth it.
        min_removable_files: files that a compaction must save to be launched.
        delete_ratio: share of deleted rows that makes compaction worth it.
        delete_files_per_file: delete files per data file of a partition above which compaction is
            worth it; 0: no limit.
        skip_recent_ms: automatic compaction skips partitions that were written within this time,
        wait_at_most_ms: unless one of their small files or delete files has waited for so long.
        max_manifests: above so many, manifests are rewritten.
        min_expirable_snapshots: snapshots and refs beyond retention that launch an expiry.
        orphan_age_ms: from this age on an unreferenced file is an orphan.
        max_unreferenced_bytes: above so many, orphan removal is launched.
        hours: hours of the day in UTC in which actions may be launched.
        budget_bytes: a compaction reads at most so many; 0: no limit.
        tune: `off`, `advise` (layouts are tried) or `auto` (what pays is adopted as well).
        quota_files, quota_bytes, quota_snapshots: above it an alert is raised; 0: no quota.
        alert_after_ms: how long a table may be beyond this policy before its check fails.
    """

    enabled: bool = TableProperties.maintenance_enabled.default
    small_file_bytes: int = TableProperties.maintenance_small_file_bytes.default
    min_input_files: int = TableProperties.maintenance_min_input_files.default
    min_removable_files: int = TableProperties.maintenance_min_removable_files.default
    delete_ratio: float = TableProperties.maintenance_delete_ratio.default
    delete_files_per_file: int = TableProperties.maintenance_delete_files_per_file.default
    skip_recent_ms: int = TableProperties.maintenance_skip_recent_ms.default
    wait_at_most_ms: int = TableProperties.maintenance_wait_at_most_ms.default
    max_manifests: int = TableProperties.maintenance_max_manifests.default
    min_expirable_snapshots: int = TableProperties.maintenance_min_expirable_snapshots.default
    orphan_age_ms: int = TableProperties.maintenance_orphan_age_ms.default
    max_unreferenced_bytes: int = TableProperties.maintenance_max_unreferenced_bytes.default
    hours: frozenset[int] = TableProperties.maintenance_window.default
    budget_bytes: int = TableProperties.maintenance_budget_bytes.default
    tune: str = TableProperties.maintenance_tune.default
    quota_files: int = TableProperties.maintenance_quota_files.default
    quota_bytes: int = TableProperties.maintenance_quota_bytes.default
    quota_snapshots: int = TableProperties.maintenance_quota_snapshots.default
    alert_after_ms: int = TableProperties.maintenance_alert_after_ms.default

    def small_below(self, target_bytes: int) -> int:
        """Size below which a file is small, for a target size; at most the target."""
        return (
            min(self.small_file_bytes, target_bytes)
            if self.small_file_bytes
            else int(SMALL_FILE_RATIO * target_bytes)
        )

    def next_opening_ms(self, now_ms: int) -> int:
        """The first moment from `now_ms` on inside the hours; `now_ms` itself if it is."""
        moment = now_ms
        while datetime.fromtimestamp(moment / 1000, UTC).hour not in self.hours:
            moment = (moment // _HOUR_MS + 1) * _HOUR_MS
        return moment


def policy_of(
    properties: Mapping[str, str], project: Mapping[str, str] | None = None
) -> MaintenancePolicy:
    """The policy of a table.

    Args:
        properties: of the table; they win.
        project: defaults of the project, by the same names; properties without the prefix are
            ignored.

    Raises:
        InvalidPropertyError: an unusable value, of the table or of the project.
    """
    defaults = {name: value for name, value in (project or {}).items() if name.startswith(PREFIX)}
    read = TableProperties(ChainMap(dict(properties), defaults))
    return MaintenancePolicy(
        enabled=read.maintenance_enabled,
        small_file_bytes=read.maintenance_small_file_bytes,
        min_input_files=read.maintenance_min_input_files,
        min_removable_files=read.maintenance_min_removable_files,
        delete_ratio=read.maintenance_delete_ratio,
        delete_files_per_file=read.maintenance_delete_files_per_file,
        skip_recent_ms=read.maintenance_skip_recent_ms,
        wait_at_most_ms=read.maintenance_wait_at_most_ms,
        max_manifests=read.maintenance_max_manifests,
        min_expirable_snapshots=read.maintenance_min_expirable_snapshots,
        orphan_age_ms=read.maintenance_orphan_age_ms,
        max_unreferenced_bytes=read.maintenance_max_unreferenced_bytes,
        hours=read.maintenance_window,
        budget_bytes=read.maintenance_budget_bytes,
        tune=read.maintenance_tune,
        quota_files=read.maintenance_quota_files,
        quota_bytes=read.maintenance_quota_bytes,
        quota_snapshots=read.maintenance_quota_snapshots,
        alert_after_ms=read.maintenance_alert_after_ms,
    )
