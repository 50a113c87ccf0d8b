"""Verbs that keep a table fast and small; rows stay as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from lakehouse.engines import executor_for
from lakehouse.errors import InvalidInputError
from lakehouse.maintenance.column_sketches import StatisticsResult, compute_statistics
from lakehouse.maintenance.compaction.compaction import CompactionResult, compact
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.maintenance.health.table_health import TableHealth, health
from lakehouse.maintenance.key_filter_build import KeyFilterResult, compute_key_filters
from lakehouse.maintenance.maintenance_policy import policy_of
from lakehouse.maintenance.manifest_rewrite import (
    ManifestRewriteOptions,
    ManifestRewriteResult,
    rewrite_manifests,
)
from lakehouse.maintenance.orphan_removal import OrphanOptions, OrphanResult, remove_orphan_files
from lakehouse.maintenance.partition_statistics import (
    PartitionStatisticsResult,
    compute_partition_statistics,
)
from lakehouse.maintenance.retention.snapshot_expiry import (
    ExpiryOptions,
    ExpiryResult,
    expire_snapshots,
)
from lakehouse.spec.metadata.snapshot import MAIN_BRANCH
from lakehouse.spec.table_properties import TableProperties
from lakehouse.table.loaded_table import LoadedTable
from lakehouse.table.scan import chosen_point
from lakehouse.table.times import Moment, to_ms

Options = TypeVar("Options", ExpiryOptions, OrphanOptions)


class UpkeepVerbs(LoadedTable):
    """Each verb moves the table to the newest version."""

    def compact(
        self,
        options: CompactionOptions | None = None,
        *,
        branch: str = "main",
        spark: object | None = None,
    ) -> CompactionResult:
        """Rewrite small files into few of target size; the rows stay the same.

        Args:
            options: which files to rewrite, and how; by default the table's policy.
            branch: the branch to compact; by default that of the options.
            spark: a Spark session that does the work; by default threads of this process do.

        Raises:
            InvalidInputError: the options name another branch.

        >>> for _ in range(5):
        ...     _ = events.append(more)
        >>> events.compact(lh.CompactionOptions(min_input_files=2)).rewritten_files
        5
        """
        result = compact(
            self.catalog,
            self.identifier,
            options if branch == MAIN_BRANCH else self._on_branch(options, branch),
            environment=self.environment,
            executor=executor_for(spark),
        )
        self.refresh()
        return result

    def expire_snapshots(
        self,
        options: ExpiryOptions | None = None,
        *,
        older_than: Moment | None = None,
        retain_last: int | None = None,
        snapshot_ids: Iterable[int] = (),
    ) -> ExpiryResult:
        """Expire old snapshots and delete the files that only they need.

        >>> _ = events.append(more)
        >>> result = events.expire_snapshots(older_than=dt.datetime.now(dt.UTC), retain_last=1)
        >>> len(events.snapshots())
        1

        Args:
            options: all settings of an expiry; instead of these you can give the other arguments.
            older_than: snapshots before this time; `history.expire.max-snapshot-age-ms` ago by
                default.
            retain_last: keep at least this many snapshots of each branch;
                `history.expire.min-snapshots-to-keep` by default.
            snapshot_ids: expire these too, at any age.

        Raises:
            InvalidInputError: options beside other arguments.
            MaintenanceRefusedError: a ref names one of `snapshot_ids`, or `gc.enabled` is false.
        """
        beside = ExpiryOptions(
            older_than_ms=None if older_than is None else to_ms(older_than),
            retain_last=retain_last,
            snapshot_ids=tuple(snapshot_ids),
        )
        chosen = self._chosen(options, beside, ExpiryOptions())
        result = expire_snapshots(
            self.catalog, self.identifier, chosen, environment=self.environment
        )
        self.refresh()
        return result

    def rewrite_manifests(
        self, options: ManifestRewriteOptions | None = None
    ) -> ManifestRewriteResult:
        """Cluster manifests by partition, and write columnar manifests.

        >>> _ = events.append(more)
        >>> events.rewrite_manifests(lh.ManifestRewriteOptions(force=True)).replaced_manifests
        2
        """
        result = rewrite_manifests(
            self.catalog, self.identifier, options, environment=self.environment
        )
        self.refresh()
        return result

    def remove_orphan_files(
        self,
        options: OrphanOptions | None = None,
        *,
        older_than: Moment | None = None,
        force: bool = False,
    ) -> OrphanResult:
        """Move files that no snapshot reaches to the trash.

        >>> events.remove_orphan_files().moved_files
        0

        Args:
            options: all settings; instead of these you can give the other arguments.
            older_than: files last modified before this time; three days ago by default.
            force: allow a time within the last 24 hours. Running writers may lose files.

        Raises:
            InvalidInputError: options beside other arguments.
            MaintenanceRefusedError: a time within the last 24 hours without `force`.
        """
        beside = OrphanOptions(
            older_than_ms=None if older_than is None else to_ms(older_than), force=force
        )
        chosen = self._chosen(options, beside, OrphanOptions())
        return remove_orphan_files(
            self.catalog, self.identifier, chosen, environment=self.environment
        )

    def compute_statistics(
        self,
        columns: Sequence[str] | None = None,
        *,
        snapshot_id: int | None = None,
        ref: str = "main",
    ) -> StatisticsResult:
        """Write distinct counts of columns to the snapshot's statistics file.

        >>> events.compute_statistics(["user_id"]).distinct["user_id"]
        2

        Args:
            columns: their names; all of a primitive type by default.
            snapshot_id: the snapshot counted; that of `ref` by default.
            ref: a branch or tag.
        """
        counted = chosen_point(self.metadata, self.name, snapshot_id, ref).snapshot_id
        result = compute_statistics(
            self.catalog,
            self.identifier,
            columns=columns,
            snapshot_id=counted,
            environment=self.environment,
        )
        self.refresh()
        return result

    def compute_partition_statistics(
        self, *, snapshot_id: int | None = None, ref: str = "main"
    ) -> PartitionStatisticsResult:
        """Write a partition statistics file: rows, files and deletes of each partition.

        Spec: Partition Statistics File. No data file is read.

        >>> result = events.compute_partition_statistics()
        >>> result.partitions, len(events.metadata.partition_statistics)
        (2, 1)

        Args:
            snapshot_id: the snapshot counted; that of `ref` by default.
            ref: a branch or tag.

        Raises:
            InvalidInputError: the table was never partitioned.
        """
        counted = chosen_point(self.metadata, self.name, snapshot_id, ref).snapshot_id
        result = compute_partition_statistics(
            self.catalog, self.identifier, snapshot_id=counted, environment=self.environment
        )
        self.refresh()
        return result

    def compute_key_filters(
        self, columns: Sequence[str], *, snapshot_id: int | None = None, ref: str = "main"
    ) -> KeyFilterResult:
        """Write key filters, by which upserts and merges skip files that lack their keys.

        They are part of the snapshot's statistics file and also serve later snapshots. Files that
        are added later have no filter and are read; running this again reads only those.

        >>> events.compute_key_filters(["user_id"]).files
        2

        Args:
            columns: names of columns of whole numbers, text, binary, uuid or dates.
            snapshot_id: whose files; those of `ref` by default.
            ref: a branch or tag.

        Raises:
            InvalidSchemaError: a name is no such column.
        """
        chosen = chosen_point(self.metadata, self.name, snapshot_id, ref).snapshot_id
        result = compute_key_filters(
            self.catalog,
            self.identifier,
            columns,
            snapshot_id=chosen,
            environment=self.environment,
        )
        self.refresh()
        return result

    def health(self) -> TableHealth:
        """Small files, manifests, snapshots and skew, from metadata alone.

        >>> events.health().small_files
        2
        """
        return health(self.catalog, self.identifier, environment=self.environment)

    def _on_branch(self, options: CompactionOptions | None, branch: str) -> CompactionOptions:
        """The options, by default those of the table's policy, for a branch."""
        target = TableProperties(self.properties).target_file_size_bytes
        chosen = options or CompactionOptions.under(policy_of(self.properties), target)
        if chosen.branch not in (MAIN_BRANCH, branch):
            raise InvalidInputError(
                f"{self.name}: compact branch {branch!r}, or {chosen.branch!r} as the options say, "
                "not both",
                table=self.name,
            )
        return replace(chosen, branch=branch)

    def _chosen(self, options: Options | None, beside: Options, default: Options) -> Options:
        """The options given, or what the other arguments said."""
        if options is None:
            return beside
        if beside != default:
            raise InvalidInputError(
                f"{self.name}: say it in the options or beside them, not both: {options}, {beside}",
                table=self.name,
            )
        return options
