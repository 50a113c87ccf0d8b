"""Planning a compaction: which files of a branch are worth rewriting, from metadata alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow.compute as pc
from rich.console import RenderableType

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.catalog.confinement import ReadableFiles
from lakehouse.data.writing.zorder import zorder_ids
from lakehouse.environment import Environment
from lakehouse.errors import InvalidLocationError
from lakehouse.maintenance.compaction.file_groups import (
    CompactionOptions,
    DeleteKey,
    FileGroup,
    delete_key,
    delete_uses,
    plan_groups,
    tail_groups,
)
from lakehouse.maintenance.layout_by_age import LayoutByAge
from lakehouse.maintenance.maintenance_policy import policy_of
from lakehouse.maintenance.retention.retention_rules import MAIN
from lakehouse.maintenance.shown_plan import Report, human_bytes, listing
from lakehouse.manifests.manifest_reader import ManifestReader, load_manifests
from lakehouse.manifests.manifest_writer import may_hold
from lakehouse.scan.planner import ScanRequest, plan_scan
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.manifests.data_file import STATUS_DELETED, DataFile
from lakehouse.spec.manifests.manifest_list import CONTENT_DELETE_MANIFEST, ManifestFile
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata, refuse_unwritable
from lakehouse.spec.partitioning.partition_terms import parse_sort_order, partition_path
from lakehouse.spec.partitioning.sort_order import UNSORTED_SORT_ORDER, SortOrder
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.storage_protocol import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan(Report):
    """Groups of files to rewrite.

    Attributes:
        version: the table planned against; None of its snapshots may be expired before the
            execution.
        groups: the work, most files removed first.
        delete_uses: for every delete file, how many live data files it applies to.
        dangling: delete files that apply to no live data file; they leave with the first commit.
        unknown_partitions: given, but without a file.
        layout: where files of closed periods belong.
    """

    identifier: Identifier
    version: TableVersion
    options: CompactionOptions
    target_bytes: int
    groups: tuple[FileGroup, ...]
    live_files: int
    layout: LayoutByAge
    delete_uses: Counter[DeleteKey] = field(default_factory=Counter)
    dangling: tuple[DataFile, ...] = ()
    unknown_partitions: tuple[str, ...] = ()

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot planned against."""
        return _snapshot_id(self.version.metadata, self.options.branch)

    @property
    def input_files(self) -> int:
        """Data files that would be rewritten."""
        return sum(len(group.tasks) for group in self.groups)

    @property
    def input_bytes(self) -> int:
        """Bytes that would be read."""
        return sum(group.bytes for group in self.groups)

    @property
    def expected_files(self) -> int:
        """Data files that would take their place."""
        return sum(group.expected_files for group in self.groups)

    def title(self) -> str:
        return f"Compact {self.identifier}"

    def to_dict(self) -> dict[str, object]:
        return {
            "table": str(self.identifier),
            "action": "compact",
            "snapshot_id": self.snapshot_id,
            "target_file_size_bytes": self.target_bytes,
            "live_files": self.live_files,
            "input_files": self.input_files,
            "input_bytes": self.input_bytes,
            "expected_files": self.expected_files,
            "branch": self.options.branch,
            "sort_by": list(self.options.sort_by),
            "zorder_by": list(self.options.zorder_by),
            "dangling_delete_files": len(self.dangling),
            "unknown_partitions": list(self.unknown_partitions),
            "groups": [
                {
                    "partition": self._partition(group),
                    "spec_id": group.spec_id,
                    "output_spec_id": group.output_spec_id,
                    "input_files": len(group.tasks),
                    "input_bytes": group.bytes,
                    "expected_files": group.expected_files,
                    "reason": group.reason,
                    "files": [file.file_path for file in group.files],
                }
                for group in self.groups
            ],
        }

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "live data files", self.live_files
        yield "files to rewrite", self.input_files
        yield "bytes to rewrite", human_bytes(self.input_bytes)
        yield "files expected instead", self.expected_files
        yield "target file size", human_bytes(self.target_bytes)
        if self.layout.left_alone:
            yield "layout by age", f"no file is moved: {self.layout.left_alone}"
        if self.dangling:
            yield "delete files without data", len(self.dangling)
        if self.unknown_partitions:
            yield "no such partition", ", ".join(self.unknown_partitions)
        if self.options.sort_by or self.options.zorder_by:
            yield (
                "sorted by" if self.options.sort_by else "z-order of",
                ", ".join(self.options.sort_by or self.options.zorder_by),
            )
        if self.options.branch != MAIN:
            yield "branch", self.options.branch

    def detail(self) -> RenderableType | None:
        if not self.groups:
            return None
        rows = (
            (self._partition(g), len(g.tasks), g.expected_files, human_bytes(g.bytes), g.reason)
            for g in self.groups
        )
        return listing(("partition", "#files", "#expected", "#bytes", "why"), rows)

    def _partition(self, group: FileGroup) -> str:
        metadata = self.layout.metadata
        return (
            partition_path(metadata.spec(group.spec_id), metadata.schema(), group.partition)
            or "(whole table)"
        )


def plan_compaction(
    catalog: Catalog,
    identifier: Identifier,
    options: CompactionOptions | None = None,
    *,
    environment: Environment | None = None,
) -> CompactionPlan:
    """Choose the files worth rewriting on the head of a branch, from metadata alone.

    Without options the table's policy holds (`lakehouse.maintenance.*`), its hours excepted: who
    asks may start.

    Raises:
        InvalidExpressionError: the filter does not parse or bind.
        InvalidPropertyError: `write.target-file-size-bytes` is not a positive integer, or a
            property of the policy is unusable.
        InvalidPartitionSpecError, InvalidInputError: rows cannot be sorted or z-ordered like this.
        NoSuchRefError: no such branch.
        UnsupportedFeatureError: files of a v1 table, or encrypted ones, would be rewritten.
    """
    now_ms = (environment or Environment.system()).now_ms()
    version = catalog.load(identifier)
    metadata = version.metadata
    target = TableProperties(metadata.properties).target_file_size_bytes
    options = options or CompactionOptions.under(policy_of(metadata.properties), target)
    target = options.target_file_size_bytes or target
    new_sort_order(metadata, options)
    layout = LayoutByAge(metadata, now_ms)
    storage = catalog.storage(metadata.location)
    snapshot_id = _snapshot_id(metadata, options.branch)
    tasks: list[FileScanTask] = []
    chosen: set[str] | None = None
    if snapshot_id is not None:
        # main is read by the present schema, which its snapshots may not know yet
        request = ScanRequest(metadata=metadata, snapshot_id=snapshot_id, current_schema=True)
        tasks = list(plan_scan(request, storage).tasks)
        if options.where is not None:
            chosen = {
                file.file_path
                for file in plan_scan(replace(request, where=options.where), storage).files
            }
    groups = plan_groups(
        tasks,
        options,
        target_bytes=target,
        layout=layout,
        wanted=lambda task: (
            (chosen is None or task.data_file.file_path in chosen)
            and (options.files is None or task.data_file.file_path in options.files)
            and _in_partitions(task.data_file, layout, options)
        ),
        recent_sequence_number=_recent_sequence_number(
            metadata, now_ms, options.skip_newer_than_ms
        ),
    )
    if groups and snapshot_id is not None:
        refuse_unwritable(metadata, metadata.snapshot_or_none(snapshot_id))
    uses = delete_uses(tasks)
    dangling: tuple[DataFile, ...] = ()
    if snapshot_id is not None and options.where is None and options.files is None:
        unused = _unused_deletes(storage, metadata, metadata.snapshot(snapshot_id), uses)
        dangling = tuple(delete for delete in unused if _in_partitions(delete, layout, options))
    return CompactionPlan(
        identifier=identifier,
        version=version,
        options=options,
        target_bytes=target,
        groups=tuple(groups),
        live_files=len(tasks),
        layout=layout,
        delete_uses=uses,
        dangling=dangling,
        unknown_partitions=tuple(
            sorted((options.partitions or frozenset()) - _partitions_of(tasks, layout))
        ),
    )


def plan_tail(
    catalog: Catalog,
    version: TableVersion,
    branch: str,
    added: Sequence[DataFile],
    width: int,
    *,
    confined: bool,
    environment: Environment,
) -> CompactionPlan:
    """The small files to join in partitions that got files (`tail_groups`), from metadata alone.

    Args:
        catalog: of the table.
        version: the version to look at.
        branch: its branch, which exists.
        added: the new files; only manifests that may list files of their partitions are read.
        width: see `tail_groups`.
        confined: whether files outside the table's certain folders stay: a server may read what who
            appends may not.
        environment: what time it is.

    Raises:
        InvalidLocationError: it is confined, and a manifest is outside the table's folders.
    """
    metadata = version.metadata
    snapshot_id = _snapshot_id(metadata, branch)
    request = ScanRequest(metadata=metadata, snapshot_id=snapshot_id, current_schema=True)
    by_spec: dict[int, set[tuple[Any, ...]]] = {}
    for file in added:
        by_spec.setdefault(file.spec_id, set()).add(file.partition)

    readable = ReadableFiles(catalog, version)

    def is_readable(location: str) -> bool:
        return not confined or readable.hold(location)

    def may_matter(manifest: ManifestFile) -> bool:
        if not is_readable(manifest.manifest_path):
            raise InvalidLocationError(
                f"{manifest.manifest_path} is outside the folders of {version.identifier}."
            )
        if manifest.content == CONTENT_DELETE_MANIFEST:
            return True
        partitions = by_spec.get(manifest.partition_spec_id)
        return partitions is not None and may_hold(manifest, metadata, partitions)

    plan = plan_scan(request, catalog.storage(metadata.location), among=may_matter)
    target = TableProperties(metadata.properties).target_file_size_bytes
    keys = {file.partition_key for file in added}
    chosen = [
        task
        for task in plan.tasks
        if task.data_file.partition_key in keys and is_readable(task.data_file.file_path)
    ]
    groups = tail_groups(chosen, width, target_bytes=target)
    return CompactionPlan(
        identifier=version.identifier,
        version=version,
        options=CompactionOptions(branch=branch, groups_per_commit=max(1, len(groups))),
        target_bytes=target,
        groups=tuple(groups),
        live_files=len(plan.tasks),
        layout=LayoutByAge(metadata, environment.now_ms()),
    )


def new_sort_order(metadata: TableMetadata, options: CompactionOptions) -> SortOrder:
    """How rows of new files are sorted: as asked, else as the table says.

    What is asked gets the id of the table's equal order, if it has one.

    Raises:
        InvalidPartitionSpecError: a term that does not parse or apply to its column.
        InvalidInputError: see `zorder_ids`.
    """
    if options.zorder_by:
        zorder_ids(options.zorder_by, metadata.schema())
        return UNSORTED_SORT_ORDER
    if not options.sort_by:
        return metadata.write_sort_order()
    order_wanted = parse_sort_order(options.sort_by, metadata.schema())
    return next(
        (order for order in metadata.sort_orders if order.fields == order_wanted.fields),
        replace(order_wanted, order_id=0),
    )


def _snapshot_id(metadata: TableMetadata, branch: str) -> int | None:
    """Head of a branch; None: `main` of a table without snapshots."""
    return metadata.current_snapshot_id if branch == MAIN else metadata.ref(branch).snapshot_id


def _partitions_of(tasks: Iterable[FileScanTask], layout: LayoutByAge) -> set[str]:
    values = {(task.data_file.spec_id, task.data_file.partition) for task in tasks}
    schema = layout.metadata.schema()
    return {
        partition_path(spec, schema, partition)
        for spec, partition in (layout.place(*value) for value in values)
    }


def _in_partitions(file: DataFile, layout: LayoutByAge, options: CompactionOptions) -> bool:
    if options.partitions is None:
        return True
    spec, partition = layout.place(file.spec_id, file.partition)
    return partition_path(spec, layout.metadata.schema(), partition) in options.partitions


def _unused_deletes(
    storage: Storage, metadata: TableMetadata, snapshot: Snapshot, uses: Counter[DeleteKey]
) -> tuple[DataFile, ...]:
    """Live delete files that apply to no live data file.

    They never will again: rows that come later have higher sequence numbers, and a rewrite that
    runs beside this one keeps the number of the snapshot it began with, whose files such a delete
    would still have applied to.
    """
    unused: list[DataFile] = []
    listed = [
        manifest
        for manifest in load_manifests(storage, snapshot)
        if manifest.content == CONTENT_DELETE_MANIFEST
    ]
    for entries in ManifestReader.of(storage, metadata).entries_of_all(listed):
        live = entries.filter(pc.not_equal(entries.table["status"], STATUS_DELETED))
        unused += [file for file in live.to_data_files() if not uses[delete_key(file)]]
    return tuple(unused)


def _recent_sequence_number(
    metadata: TableMetadata, now_ms: int, skip_newer_than_ms: int | None
) -> int | None:
    """The lowest sequence number that is too recent to be rewritten.

    Files that compaction rewrites keep their old ones.
    """
    if skip_newer_than_ms is None:
        return None
    return min(
        (
            snapshot.sequence_number
            for snapshot in metadata.snapshots
            if snapshot.timestamp_ms >= now_ms - skip_newer_than_ms
        ),
        default=None,
    )
