"""Remove files under a table's location that nothing reaches: first to a trash prefix, later for good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakehouse.catalog.protocol import Catalog
from lakehouse.environment import Environment
from lakehouse.maintenance.report import Progress, Report
from lakehouse.spec.identifier import Identifier


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanOptions:
    """What counts as an orphan.

    Attributes:
        older_than_ms: only files last modified before this time; None is now minus 3 days. Younger than 24 hours is refused without `force`.
        trash: move to `<location>/_trash/<time>/...` first (True); False deletes at once.
        purge_trash_older_than_ms: trash moved there before this time is deleted for good; None is now minus 7 days.
        force: allow a cut below 24 hours. Files of writers that still run may be lost.
        aliases: schemes or authorities to take for the same, e.g. {"s3a": "s3", "hdfs://nn1": "hdfs://cluster"}; s3a and s3n are always s3.
    """

    older_than_ms: int | None = None
    trash: bool = True
    purge_trash_older_than_ms: int | None = None
    force: bool = False
    aliases: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanPlan(Report):
    """Orphans with size and age, what was protected and why, and the trash that would be purged."""

    identifier: Identifier


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanResult(Report):
    """What an orphan removal did."""

    identifier: Identifier
    moved_files: int
    moved_bytes: int
    deleted_files: int
    deleted_bytes: int
    purged_files: int
    purged_bytes: int
    trash_location: str | None


def plan_orphan_removal(
    catalog: Catalog, identifier: Identifier, options: OrphanOptions | None = None, *, environment: Environment | None = None
) -> OrphanPlan: ...


def execute_orphan_removal(
    catalog: Catalog, plan: OrphanPlan, *, environment: Environment | None = None, progress: Progress | None = None
) -> OrphanResult: ...


def remove_orphan_files(
    catalog: Catalog,
    identifier: Identifier,
    options: OrphanOptions | None = None,
    *,
    environment: Environment | None = None,
    progress: Progress | None = None,
) -> OrphanResult: ...
