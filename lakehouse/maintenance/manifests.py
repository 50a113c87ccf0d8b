"""Rewrite manifests clustered by partition, with their columnar twins."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.catalog.protocol import Catalog
from lakehouse.environment import Environment
from lakehouse.maintenance.report import Progress, Report
from lakehouse.spec.identifier import Identifier


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRewriteOptions:
    """Attributes: target_size_bytes (None: `commit.manifest.target-size-bytes`); force rewrites also what is well clustered."""

    target_size_bytes: int | None = None
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRewritePlan(Report):
    """Manifests that would be replaced, how many would remain, and why."""

    identifier: Identifier
    snapshot_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRewriteResult(Report):
    """What a manifest rewrite did."""

    identifier: Identifier
    snapshot_id: int | None
    replaced_manifests: int
    added_manifests: int
    kept_manifests: int


def plan_manifest_rewrite(
    catalog: Catalog, identifier: Identifier, options: ManifestRewriteOptions | None = None, *, environment: Environment | None = None
) -> ManifestRewritePlan: ...


def execute_manifest_rewrite(
    catalog: Catalog, plan: ManifestRewritePlan, *, environment: Environment | None = None, progress: Progress | None = None
) -> ManifestRewriteResult: ...


def rewrite_manifests(
    catalog: Catalog,
    identifier: Identifier,
    options: ManifestRewriteOptions | None = None,
    *,
    environment: Environment | None = None,
    progress: Progress | None = None,
) -> ManifestRewriteResult: ...
