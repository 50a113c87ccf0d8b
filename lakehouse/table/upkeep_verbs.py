"""Verbs that keep a table fast and small; rows stay as they are."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence

from lakehouse.engines import executor_for
from lakehouse.maintenance.compaction import CompactionOptions, CompactionResult, compact
from lakehouse.maintenance.expiry import ExpiryOptions, ExpiryResult, expire_snapshots
from lakehouse.maintenance.health import TableHealth, health
from lakehouse.maintenance.manifests import (
    ManifestRewriteOptions,
    ManifestRewriteResult,
    rewrite_manifests,
)
from lakehouse.maintenance.orphans import OrphanOptions, OrphanResult, remove_orphan_files
from lakehouse.maintenance.statistics import StatisticsResult, compute_statistics
from lakehouse.table.loaded_table import LoadedTable
from lakehouse.table.times import to_ms


class UpkeepVerbs(LoadedTable):
    """Each verb moves the table to the newest version."""

    def compact(
        self, options: CompactionOptions | None = None, *, spark: object | None = None
    ) -> CompactionResult:
        """Turn small files into few of target size, rows unchanged; by tasks of a Spark session when one is given."""
        result = compact(
            self.catalog,
            self.identifier,
            options,
            environment=self.environment,
            executor=executor_for(spark),
        )
        self.refresh()
        return result

    def expire_snapshots(
        self,
        *,
        older_than: dt.datetime | None = None,
        retain_last: int | None = None,
        snapshot_ids: Iterable[int] = (),
    ) -> ExpiryResult:
        """Forget old snapshots and remove exactly the files that only they reached.

        Args:
            older_than: snapshots before this time; by `history.expire.max-snapshot-age-ms` by default.
            retain_last: keep at least so many of each branch; by `history.expire.min-snapshots-to-keep` by default.
            snapshot_ids: these as well, whatever their age.
        """
        options = ExpiryOptions(
            older_than_ms=None if older_than is None else to_ms(older_than),
            retain_last=retain_last,
            snapshot_ids=tuple(snapshot_ids),
        )
        result = expire_snapshots(
            self.catalog, self.identifier, options, environment=self.environment
        )
        self.refresh()
        return result

    def rewrite_manifests(
        self, options: ManifestRewriteOptions | None = None
    ) -> ManifestRewriteResult:
        """Cluster manifests by partition, with their columnar twins."""
        result = rewrite_manifests(
            self.catalog, self.identifier, options, environment=self.environment
        )
        self.refresh()
        return result

    def remove_orphan_files(
        self, *, older_than: dt.datetime | None = None, force: bool = False
    ) -> OrphanResult:
        """Move files that nothing reaches to the trash (three days old by default; below 24 hours only with `force`)."""
        options = OrphanOptions(
            older_than_ms=None if older_than is None else to_ms(older_than), force=force
        )
        return remove_orphan_files(
            self.catalog, self.identifier, options, environment=self.environment
        )

    def compute_statistics(
        self, columns: Sequence[str] | None = None, *, snapshot_id: int | None = None
    ) -> StatisticsResult:
        """Count the different values of columns (all of a primitive type by default) into the snapshot's statistics file."""
        result = compute_statistics(
            self.catalog,
            self.identifier,
            columns=columns,
            snapshot_id=snapshot_id,
            environment=self.environment,
        )
        self.refresh()
        return result

    def health(self) -> TableHealth:
        """Small files, manifests, snapshots and skew, from metadata alone."""
        return health(self.catalog, self.identifier, environment=self.environment)
