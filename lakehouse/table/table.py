"""One table: its current version, and verbs that make the next one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from lakehouse.arrow.writer import WriteRequest, write_data_files
from lakehouse.catalog.own_folders import check_table
from lakehouse.catalog.protocol import Catalog, TableVersion
from lakehouse.dml.add_files import AddedFiles, describe_hive, describe_paths
from lakehouse.dml.added_rows import refuse_other_rows
from lakehouse.dml.copy_on_write import remove_matching_rows
from lakehouse.dml.merge_on_read import delete_matching_rows
from lakehouse.engines import engine_for, executor_for
from lakehouse.environment import Environment
from lakehouse.evolution.changes import Changes
from lakehouse.evolution.update_partition_spec import UpdatePartitionSpec
from lakehouse.evolution.update_schema import UpdateSchema
from lakehouse.evolution.update_sort_order import UpdateSortOrder
from lakehouse.expressions.bind import Where, bind
from lakehouse.inspect.tables import MetadataTables
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
from lakehouse.scan.listeners import Listeners
from lakehouse.scan.planner import schema_of, snapshot_of
from lakehouse.scan.request import ScanRequest
from lakehouse.spec.data_file import DataFile
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.properties import TableProperties
from lakehouse.spec.refs import SnapshotRef
from lakehouse.spec.snapshot import Snapshot
from lakehouse.spec.table_metadata import TableMetadata, refuse_encrypted, refuse_v1
from lakehouse.storage.protocol import Storage
from lakehouse.table.changelog import Changelog
from lakehouse.table.changes import PendingChange
from lakehouse.table.row_write import Decision, RowWrite
from lakehouse.table.rows import WrittenFiles, arrow_rows
from lakehouse.table.scan import TableScan, columns
from lakehouse.table.times import Moment, to_ms
from lakehouse.table.travel import Point, point_of
from lakehouse.transaction.committed import Committed
from lakehouse.transaction.transaction import Transaction


class Table:
    """A table at the version it had when it was loaded or last changed through this object.

    Reads see that version until `refresh()`; every verb that commits moves the object to the version it made.

    Attributes:
        catalog: the catalog underneath.
        environment: clock, ids and randomness.
        listeners: told of every scan planned.
    """

    def __init__(
        self,
        catalog: Catalog,
        version: TableVersion,
        environment: Environment | None = None,
        listeners: Listeners | None = None,
    ) -> None:
        self.catalog = catalog
        self.environment = environment or Environment.system()
        self.listeners = Listeners(self.environment.now_ms) if listeners is None else listeners
        self._version = version

    def __repr__(self) -> str:
        current = self.metadata.current_snapshot_id
        return f"Table({self.name!r}, v{self.metadata.format_version}, snapshot {current}, {self.location})"

    # What it is

    @property
    def identifier(self) -> Identifier:
        """Namespace and name."""
        return self._version.identifier

    @property
    def name(self) -> str:
        """Dotted name."""
        return str(self.identifier)

    @property
    def version(self) -> TableVersion:
        """Metadata and where it lies."""
        return self._version

    @property
    def metadata(self) -> TableMetadata:
        """The metadata of this version."""
        return self._version.metadata

    @property
    def metadata_location(self) -> str:
        """The metadata file of this version; any Iceberg engine opens the table by it."""
        return self._version.metadata_location

    @property
    def location(self) -> str:
        """The table's folder."""
        return self.metadata.location

    @property
    def storage(self) -> Storage:
        """Where its files are."""
        return self.catalog.storage(self.location)

    @property
    def properties(self) -> Mapping[str, str]:
        """Table properties."""
        return self.metadata.properties

    def schema(self) -> Schema:
        """The current schema."""
        return self.metadata.schema()

    def spec(self) -> PartitionSpec:
        """The current partition spec."""
        return self.metadata.spec()

    def refresh(self) -> Table:
        """Move to the newest version; returns the table itself."""
        self._version = self.catalog.refresh(self._version)
        return self

    def move_to(self, version: TableVersion) -> Table:
        """Move to a version of this table; returns the table itself."""
        self._version = version
        return self

    # Reading

    def scan(
        self,
        where: Where = None,
        select: Sequence[str] | str | None = None,
        *,
        snapshot_id: int | None = None,
        as_of: Moment | None = None,
        ref: str = "main",
        run: str | None = None,
        case_sensitive: bool = True,
    ) -> TableScan:
        """Rows of one snapshot.

        Args:
            where: filter in SQL (docs/filters.md), or an expression of pyiceberg.
            select: columns; `a.b` reaches into structs.
            snapshot_id: this snapshot.
            as_of: what was current at this time: datetime (naive means UTC), ISO text or milliseconds.
            ref: head of this branch, or this tag.
            run: what this Dagster run wrote last, by its run id.
            case_sensitive: whether column names must match exactly.

        Raises:
            InvalidInputError: more than one of `snapshot_id`, `as_of` and `run`.
            NoSuchSnapshotError | NoSuchRefError: nothing there.
        """
        point = point_of(
            self.metadata, self.name, snapshot_id=snapshot_id, as_of=as_of, ref=ref, run=run
        )
        request = self._scan_request(point, where, select, case_sensitive=case_sensitive)
        return TableScan(self.name, request, self.storage, listeners=self.listeners)

    def scan_appends(
        self,
        from_snapshot_id: int,
        to_snapshot_id: int | None = None,
        *,
        where: Where = None,
        select: Sequence[str] | str | None = None,
    ) -> TableScan:
        """Rows that append snapshots added after one snapshot up to another (the current one by default).

        Raises:
            NoSuchSnapshotError: `from_snapshot_id` is no ancestor of `to_snapshot_id`; raised when planned.
        """
        request = self._scan_request(Point(to_snapshot_id), where, select)
        return TableScan(self.name, request, self.storage, from_snapshot_id, self.listeners)

    def changelog(
        self,
        from_snapshot_id: int | None = None,
        to_snapshot_id: int | None = None,
        *,
        where: Where = None,
        select: Sequence[str] | str | None = None,
        net: bool = False,
    ) -> Changelog:
        """Rows inserted and deleted after one snapshot (None: ever) up to another (the current one by default).

        Rewrites change nothing, and rows that an overwrite only carried over are left out; with `net` also rows that came and
        went within the range.
        """
        return Changelog(
            self._scan_request(Point(to_snapshot_id), where, select),
            self.storage,
            from_snapshot_id,
            net,
        )

    def _scan_request(
        self,
        point: Point,
        where: Where,
        select: Sequence[str] | str | None,
        *,
        case_sensitive: bool = True,
    ) -> ScanRequest:
        request = ScanRequest(
            metadata=self.metadata,
            snapshot_id=point.snapshot_id,
            current_schema=point.current_schema,
            select=columns(select),
            case_sensitive=case_sensitive,
        )
        if where is None:
            return request
        schema = schema_of(request, snapshot_of(request))
        return replace(request, where=bind(where, schema, case_sensitive=case_sensitive))

    def snapshots(self) -> list[Snapshot]:
        """Every snapshot kept, oldest first."""
        return sorted(self.metadata.snapshots, key=lambda s: (s.sequence_number, s.timestamp_ms))

    def current_snapshot(self) -> Snapshot | None:
        """The head of main; None when nothing was written yet."""
        return self.metadata.current_snapshot()

    def history(self) -> list[Snapshot]:
        """The current snapshot and its ancestors, oldest first: history by parent, not by clock."""
        current = self.metadata.current_snapshot_id
        return [] if current is None else list(self.metadata.ancestors(current))[::-1]

    def refs(self) -> Mapping[str, SnapshotRef]:
        """Branches and tags by name."""
        return self.metadata.refs

    @property
    def inspect(self) -> MetadataTables:
        """Metadata tables as Arrow: `inspect.files()`, `inspect.snapshots()`, ..."""
        return MetadataTables(self._version, self.storage)

    # Writing rows

    def append(
        self,
        data: object,
        *,
        branch: str = "main",
        summary: Mapping[str, str] | None = None,
        commit_id: str | None = None,
    ) -> Snapshot:
        """Add rows.

        Args:
            data: pyarrow Table, RecordBatch or RecordBatchReader, an iterable of batches, a Spark DataFrame, or WrittenFiles.
            branch: where to.
            summary: entries for the snapshot's summary.
            commit_id: a name for this write: done once in the history of the branch, however often
                it is tried.

        Raises:
            InvalidSchemaError: the data does not fit the schema.
            CommitError: see `lakehouse.errors`.
        """
        with RowWrite(self, branch, summary, commit_id) as write:
            if (done := write.replayed()) is not None:
                return done
            write.files += self.write_files(data)
            return write.commit(self.transaction(branch).append(write.files))

    def add_files(
        self,
        paths: Iterable[str],
        *,
        branch: str = "main",
        summary: Mapping[str, str] | None = None,
        commit_id: str | None = None,
    ) -> Snapshot:
        """Take in Parquet files without field ids as they lie there, read by column name.

        Files in the table's own folders are the table's from then on: once no snapshot reaches one
        any more, expiry deletes it. Files elsewhere stay where they are.

        Raises:
            InvalidInputError | InvalidSchemaError: see `dml.add_files`.
            ValidationConflictError: somebody else has added one of the files since this version.
        """
        added = partial(
            describe_paths, paths, self.metadata, self._head(branch), self.storage, self.name
        )
        return self._take_in(added, branch, summary, commit_id)

    def import_hive(
        self,
        path: str,
        *,
        branch: str = "main",
        summary: Mapping[str, str] | None = None,
        commit_id: str | None = None,
    ) -> Snapshot:
        """Take in a Hive-style folder (`dt=2026-06-09/region=eu/`) without rewriting it; partition values come from the paths."""
        added = partial(
            describe_hive, path, self.metadata, self._head(branch), self.storage, self.name
        )
        return self._take_in(added, branch, summary, commit_id)

    def overwrite(
        self,
        data: object,
        where: Where = None,
        *,
        must_match: bool = False,
        branch: str = "main",
        summary: Mapping[str, str] | None = None,
        commit_id: str | None = None,
    ) -> Snapshot:
        """Replace the rows that match `where` (all rows by default) by `data`, atomically.

        Arguments as for `append`. As with Spark's `overwrite(condition)`, rows of `data` need not
        match `where`: what does not match is added, and added again when it is run again. With
        `must_match` such rows are refused (Iceberg's `validateAddedFilesMatchOverwriteFilter`).

        Raises:
            InvalidInputError: with `must_match`, rows do not match `where`.
            ValidationConflictError: a concurrent commit changed rows that this overwrite decided on. Compaction changes none.
        """
        condition = bind(where, self.schema())
        with RowWrite(self, branch, summary, commit_id) as write:
            if (done := write.replayed()) is not None:
                return done
            new = self.write_files(data)
            write.files += new
            if must_match:
                refuse_other_rows(new, condition, self.metadata, self.storage, self.name)

            def decide() -> Decision:
                gone = remove_matching_rows(
                    self.metadata, self._head(branch), condition, self.write_request(), self.storage
                )
                transaction = self.transaction(branch).overwrite(
                    [*new, *gone.added], gone.removed, conflict_filter=condition
                )
                return Decision(transaction, gone.added)

            return write.commit_decision(decide)

    def delete(
        self,
        where: Where,
        *,
        branch: str = "main",
        summary: Mapping[str, str] | None = None,
        commit_id: str | None = None,
    ) -> Snapshot | None:
        """Remove the rows for which `where` is true; rows for which it is unknown (null) stay.

        `write.delete.mode` decides between rewriting files (copy-on-write, the default) and delete files (merge-on-read).

        Returns:
            The snapshot, or None when no row matched and nothing was committed.
        """
        condition = bind(where, self.schema())
        merge_on_read = TableProperties(self.properties).delete_mode == "merge-on-read"
        remove = delete_matching_rows if merge_on_read else remove_matching_rows

        def decide() -> Decision | None:
            gone = remove(
                self.metadata, self._head(branch), condition, self.write_request(), self.storage
            )
            if not gone:
                return None
            transaction = self.transaction(branch)
            gone.stage(transaction, condition)
            return Decision(transaction, gone.written)

        with RowWrite(self, branch, summary, commit_id) as write:
            return write.replayed() or write.commit_decision(decide)

    def write_request(self) -> WriteRequest:
        """What a writer has to know to write data files for this version.

        Raises:
            UnsupportedFeatureError: a v1 table, or one whose files are encrypted.
            InvalidLocationError: its metadata says to write outside the warehouse.
        """
        metadata = self.metadata
        refuse_v1(metadata)
        refuse_encrypted(metadata.location, metadata.properties, metadata.current_snapshot())
        check_table(self.catalog, metadata)
        return WriteRequest(
            schema=metadata.schema(),
            spec=metadata.spec(),
            sort_order=metadata.write_sort_order(),
            location=TableProperties(metadata.properties).data_location(metadata.location),
            properties=metadata.properties,
            format_version=metadata.format_version,
            write_id=str(self.environment.new_uuid()),
            table=self.name,
        )

    def write_files(self, data: object) -> list[DataFile]:
        """Write data files without committing them; give them to a transaction.

        Args:
            data: as for `append`.
        """
        if isinstance(data, WrittenFiles):
            return list(data.files)
        engine = engine_for(data)
        if engine is not None:
            return engine.write_data_files(data, self.write_request(), self.storage)
        return list(
            write_data_files(arrow_rows(data, self.name), self.write_request(), self.storage)
        )

    def transaction(self, branch: str = "main") -> Transaction:
        """Several operations in one commit, based on this version. Call `refresh()` afterwards to see it here."""
        return Transaction(
            self.catalog,
            self.identifier,
            base=self._version,
            branch=branch,
            environment=self.environment,
        )

    # Changing the table

    def update_schema(self) -> PendingChange[UpdateSchema]:
        """Change columns: `with table.update_schema() as s: s.add_column("device", "string")`."""
        return PendingChange(UpdateSchema(self.metadata), self._commit_changes)

    def update_partition_spec(self) -> PendingChange[UpdatePartitionSpec]:
        """Partition future files otherwise: `with table.update_partition_spec() as p: p.replace("month(ts)", "day(ts)")`."""
        return PendingChange(UpdatePartitionSpec(self.metadata), self._commit_changes)

    def update_sort_order(self) -> PendingChange[UpdateSortOrder]:
        """Change the sort order of future files: `with table.update_sort_order() as o: o.asc("event_ts")`."""
        return PendingChange(UpdateSortOrder(self.metadata), self._commit_changes)

    def set_properties(self, properties: Mapping[str, str]) -> Table:
        """Set table properties; `format-version` raises the format version (2 or 3, never back)."""
        return self._moved(self.transaction().set_properties(properties).commit())

    def remove_properties(self, *names: str) -> Table:
        """Remove table properties."""
        return self._moved(self.transaction().remove_properties(names).commit())

    def create_tag(
        self, name: str, snapshot_id: int | None = None, *, max_ref_age_ms: int | None = None
    ) -> Table:
        """Name a snapshot for good (the current one by default). Raises RefAlreadyExistsError, NoSuchSnapshotError."""
        return self._moved(
            self.transaction().create_tag(name, snapshot_id, max_ref_age_ms=max_ref_age_ms).commit()
        )

    def create_branch(
        self, name: str, snapshot_id: int | None = None, **retention: int | None
    ) -> Table:
        """Start a branch (at the current snapshot by default). Raises RefAlreadyExistsError, NoSuchSnapshotError."""
        return self._moved(
            self.transaction().create_branch(name, snapshot_id, **retention).commit()
        )

    def remove_ref(self, name: str) -> Table:
        """Remove a branch or tag. Raises NoSuchRefError."""
        return self._moved(self.transaction().remove_ref(name).commit())

    def fast_forward(self, branch: str, source: str) -> Table:
        """Point `branch` at the head of `source`, its descendant. Raises ValidationConflictError when it is none."""
        return self._moved(self.transaction(branch).fast_forward(source).commit())

    def cherry_pick(self, snapshot_id: int, *, branch: str = "main") -> Table:
        """Apply what a snapshot appended onto a branch."""
        return self._moved(self.transaction(branch).cherry_pick(snapshot_id).commit())

    def rollback_to(self, snapshot_id: int, *, branch: str = "main") -> Table:
        """Point a branch back at one of its ancestors. Raises NoSuchSnapshotError, ValidationConflictError."""
        return self._moved(self.transaction(branch).rollback_to(snapshot_id).commit())

    # Maintenance

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

    # Shared

    def _head(self, branch: str) -> int | None:
        """The head of a branch; of main for a branch that the commit will create."""
        ref = self.metadata.refs.get(branch)
        return self.metadata.current_snapshot_id if ref is None else ref.snapshot_id

    def _take_in(
        self,
        describe: Callable[[], AddedFiles],
        branch: str,
        summary: Mapping[str, str] | None,
        commit_id: str | None,
    ) -> Snapshot:
        write = RowWrite(self, branch, summary, commit_id)
        return write.replayed() or write.commit(describe().stage(self.transaction(branch)))

    def _commit_changes(self, changes: Changes) -> None:
        if changes.updates:
            self._moved(self.transaction().update(changes.updates, changes.requirements).commit())

    def _moved(self, committed: Committed) -> Table:
        return self.move_to(committed.version)
