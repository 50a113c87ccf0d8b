"""Expire snapshots and remove exactly the files that became unreachable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakehouse.catalog.protocol import Catalog
from lakehouse.environment import Environment
from lakehouse.maintenance.report import Progress, Report
from lakehouse.spec.identifier import Identifier


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryOptions:
    """What may go.

    Attributes:
        older_than_ms: snapshots committed before this time may go; None takes `history.expire.max-snapshot-age-ms` (or the ref's own).
        retain_last: at least this many ancestors of every branch stay; None takes `history.expire.min-snapshots-to-keep`.
        snapshot_ids: expire exactly these as well, whatever their age; refused when a ref names one.
        remove_files: False leaves unreachable files to orphan removal.
        remove_old_metadata: also delete `metadata.json` files that are no longer in the metadata log and older than the cut.
    """

    older_than_ms: int | None = None
    retain_last: int | None = None
    snapshot_ids: tuple[int, ...] = ()
    remove_files: bool = True
    remove_old_metadata: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryPlan(Report):
    """Snapshots and refs that retention lets go, and the files that would become unreachable.

    Attributes:
        reasons: why each expired snapshot goes, by id.
        files: locations that only expired snapshots reach (bytes where the metadata records them).
    """

    identifier: Identifier
    metadata_location: str
    now_ms: int
    options: ExpiryOptions
    expired_snapshot_ids: tuple[int, ...]
    expired_refs: tuple[str, ...]
    kept_snapshots: int
    reasons: Mapping[int, str] = field(default_factory=dict)
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryResult(Report):
    """What an expiry did: `deleted_files` by kind (data, deletes, manifests, manifest_lists, statistics, metadata)."""

    identifier: Identifier
    expired_snapshot_ids: tuple[int, ...]
    expired_refs: tuple[str, ...]
    deleted_files: Mapping[str, int]
    deleted_bytes: int
    metadata_location: str
    resumed: int = 0


def plan_expiry(
    catalog: Catalog, identifier: Identifier, options: ExpiryOptions | None = None, *, environment: Environment | None = None
) -> ExpiryPlan: ...


def execute_expiry(
    catalog: Catalog, plan: ExpiryPlan, *, environment: Environment | None = None, progress: Progress | None = None
) -> ExpiryResult: ...


def expire_snapshots(
    catalog: Catalog,
    identifier: Identifier,
    options: ExpiryOptions | None = None,
    *,
    environment: Environment | None = None,
    progress: Progress | None = None,
) -> ExpiryResult: ...
