"""Compaction: rewrites a partition's small files as few large ones, deletes applied.

The large ones have `write.target-file-size-bytes`; rows stay as they are.

One commit for each batch of groups, by `Transaction.rewrite_files` against the version that was
planned: a delete or a removal committed meanwhile makes the batch abort, never the other way round.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from pyiceberg.partitioning import PartitionSpec

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.catalog.confinement import check_table
from lakehouse.data.group_rewriting import GroupExecutor, GroupRewrite, ThreadExecutor
from lakehouse.data.reading.scan_reader import ReadRequest
from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.environment import Environment
from lakehouse.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    LakehouseError,
    ValidationConflictError,
)
from lakehouse.maintenance.compaction.compaction_plan import (
    CompactionPlan,
    new_sort_order,
    plan_compaction,
    plan_tail,
)
from lakehouse.maintenance.compaction.file_groups import (
    CompactionOptions,
    DeleteKey,
    FileGroup,
    delete_key,
)
from lakehouse.maintenance.shown_plan import Progress, Report, human_bytes, no_progress
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import AddPartitionSpec, AssertCurrentSchemaId
from lakehouse.spec.schema.iceberg_types import with_lineage
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.storage_protocol import Storage
from lakehouse.transaction.transaction import Transaction

logger = logging.getLogger(__name__)

_SIZE_SLACK = 1.1
"""Output files may grow a tenth beyond their share: sizes after encoding are estimates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult(Report):
    """What a compaction did: files and bytes before and after, and its snapshots.

    Attributes:
        snapshot_ids: one a commit, in order.
        stopped: None, or the one line that says why it ended before the plan did; what was
            committed until then stays.
    """

    identifier: Identifier
    snapshot_ids: tuple[int, ...]
    rewritten_files: int
    added_files: int
    rewritten_bytes: int
    added_bytes: int
    removed_delete_files: int
    stopped: str | None = None

    def title(self) -> str:
        return f"Compacted {self.identifier}"

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "files rewritten", self.rewritten_files
        yield "files added", self.added_files
        yield "bytes", f"{human_bytes(self.rewritten_bytes)} -> {human_bytes(self.added_bytes)}"
        if self.removed_delete_files:
            yield "delete files removed", self.removed_delete_files
        yield "commits", len(self.snapshot_ids)
        if self.stopped:
            yield "stopped", self.stopped


def execute_compaction(
    catalog: Catalog,
    plan: CompactionPlan,
    *,
    environment: Environment | None = None,
    progress: Progress | None = None,
    executor: GroupExecutor | None = None,
    summary: Mapping[str, str] = MappingProxyType({}),
) -> CompactionResult:
    """Rewrite the plan's groups and commit batch by batch; in threads of this process by default.

    A conflict ends it: what was committed before stays, the files of the batch that lost are
    removed, and `stopped` says why.

    Raises:
        CommitStateUnknownError: the reply of a commit was lost; nothing was removed.
        StorageError, NoSuchFileError, CorruptMetadataError: reading or writing failed; new files of
            the batch were removed.
        InvalidLocationError: the table's metadata says to write outside the warehouse.
    """
    environment = environment or Environment.system()
    progress = progress or no_progress
    metadata = plan.version.metadata
    check_table(catalog, metadata)
    rewriter = _Rewriter(
        catalog, plan, environment, executor or ThreadExecutor(plan.options.max_workers), summary
    )
    done = 0
    total = len(plan.groups)
    step = plan.options.groups_per_commit
    stopped: str | None = None
    for start in range(0, max(total, 1 if plan.dangling else 0), step):
        batch = plan.groups[start : start + step]
        for _ in rewriter.write(batch):
            done += 1
            progress("rewrite groups", done, total)
        try:
            rewriter.commit(batch, plan.dangling if start == 0 else ())
        except (ValidationConflictError, CommitConflictError) as error:
            stopped = f"{total - start} of {total} groups left as they are: {error.message}"
            break
    return rewriter.result(stopped)


def compact(
    catalog: Catalog,
    identifier: Identifier,
    options: CompactionOptions | None = None,
    *,
    environment: Environment | None = None,
    progress: Progress | None = None,
    executor: GroupExecutor | None = None,
) -> CompactionResult:
    """Plan and execute; see `plan_compaction` and `execute_compaction`."""
    plan = plan_compaction(catalog, identifier, options, environment=environment)
    return execute_compaction(
        catalog, plan, environment=environment, progress=progress, executor=executor
    )


class _Rewriter:
    """Writes and commits batches, and keeps the sums."""

    def __init__(
        self,
        catalog: Catalog,
        plan: CompactionPlan,
        environment: Environment,
        executor: GroupExecutor,
        summary: Mapping[str, str],
    ) -> None:
        self._catalog = catalog
        self._executor = executor
        self._plan = plan
        self._environment = environment
        self._summary = {"lakehouse.maintenance": "compaction", **summary}
        self._storage: Storage = catalog.storage(plan.version.metadata.location)
        self._specs = _with_specs(catalog, plan, environment)
        self._uses = plan.delete_uses.copy()
        self._written: list[DataFile] = []
        self._snapshot_ids: list[int] = []
        self._totals: Counter[str] = Counter()

    def write(self, groups: Sequence[FileGroup]) -> Iterator[FileGroup]:
        """Write the replacement files of the groups; yields each group when it is done."""
        self._written = []
        try:
            for position, files in self._executor.run(
                [self._work(group) for group in groups], self._storage
            ):
                self._written += files
                yield groups[position]
        except BaseException:
            self._discard()
            raise

    def commit(self, groups: Sequence[FileGroup], unused: Sequence[DataFile] = ()) -> None:
        """Swap the groups' files for the written ones; `unused` delete files leave as well."""
        plan = self._plan
        removed = [file for group in groups for file in group.files]
        uses = self._uses.copy()
        dangling = [*_dangling(groups, uses), *unused]
        transaction = Transaction(
            self._catalog,
            plan.identifier,
            decided_on=plan.version,
            branch=plan.options.branch,
            environment=self._environment,
        )
        transaction.rewrite_files(removed, self._written, removed_deletes=dangling)
        try:
            committed = transaction.commit(self._summary)
        except CommitStateUnknownError:
            raise
        except LakehouseError:
            # Anything else, such as an interrupt, leaves open what became of the commit.
            self._discard()
            raise
        self._uses = uses
        if committed.snapshot is not None:
            self._snapshot_ids.append(committed.snapshot.snapshot_id)
        self._totals["rewritten_files"] += len(removed)
        self._totals["rewritten_bytes"] += sum(file.file_size_in_bytes for file in removed)
        self._totals["added_files"] += len(self._written)
        self._totals["added_bytes"] += sum(file.file_size_in_bytes for file in self._written)
        self._totals["removed_delete_files"] += len(dangling)

    def result(self, stopped: str | None) -> CompactionResult:
        """The sums so far."""
        return CompactionResult(
            identifier=self._plan.identifier,
            snapshot_ids=tuple(self._snapshot_ids),
            rewritten_files=self._totals["rewritten_files"],
            added_files=self._totals["added_files"],
            rewritten_bytes=self._totals["rewritten_bytes"],
            added_bytes=self._totals["added_bytes"],
            removed_delete_files=self._totals["removed_delete_files"],
            stopped=stopped,
        )

    def _work(self, group: FileGroup) -> GroupRewrite:
        plan, metadata = self._plan, self._plan.version.metadata
        schema = with_lineage(metadata.schema(), metadata.format_version)
        read = ReadRequest.of(metadata, schema)
        size = math.ceil(group.bytes / group.expected_files * _SIZE_SLACK)
        if group.expected_files == 1:
            size = max(size, plan.target_bytes)
        write = WriteRequest(
            schema=schema,
            spec=self._specs[group.output_spec_id],
            sort_order=new_sort_order(metadata, plan.options),
            location=TableProperties(metadata.properties).data_location(metadata.location),
            properties={
                **metadata.properties,
                TableProperties.target_file_size_bytes.name: str(size),
            },
            format_version=metadata.format_version,
            write_id=str(self._environment.new_uuid()),
            table=str(plan.identifier),
        )
        return GroupRewrite(
            tasks=tuple(
                replace(task, start=0, length=task.data_file.file_size_in_bytes)
                for task in group.tasks
            ),
            read=read,
            write=write,
            expected_files=group.expected_files,
            sort_whole=bool(plan.options.sort_by),
            zorder=plan.options.zorder_by,
            mixes_partitions=group.spec_id != group.output_spec_id,
        )

    def _discard(self) -> None:
        """Remove files that certainly no snapshot names; failures are left to orphan removal."""
        self._storage.delete([file.file_path for file in self._written])
        self._written = []


def _with_specs(
    catalog: Catalog, plan: CompactionPlan, environment: Environment
) -> dict[int, PartitionSpec]:
    """The specs of the plan as the table has them; those of its layout by age are added first.

    The default spec stays.
    """
    new = {group.output_spec_id for group in plan.groups}
    adding = [spec for spec in plan.layout.new_specs if spec.spec_id in new]
    specs = plan.layout.metadata.specs()
    if not adding:
        return specs
    base = plan.version
    transaction = Transaction(catalog, plan.identifier, decided_on=base, environment=environment)
    transaction.update(
        tuple(AddPartitionSpec(spec) for spec in adding),
        (AssertCurrentSchemaId(base.metadata.current_schema_id),),
    )
    specs_now = transaction.commit().version.metadata.partition_specs
    # another writer may have added some meanwhile, so ids may be others than planned
    spec_ids = {
        spec.spec_id: next(other for other in specs_now if other.compatible_with(spec))
        for spec in adding
    }
    return specs | spec_ids


def _dangling(groups: Sequence[FileGroup], uses: Counter[DeleteKey]) -> list[DataFile]:
    """Delete files that apply to no data file once the groups are rewritten; lowers `uses`."""
    dangling: dict[DeleteKey, DataFile] = {}
    for task in (task for group in groups for task in group.tasks):
        for delete in task.deletes:
            key = delete_key(delete)
            uses[key] -= 1
            if uses[key] == 0:
                dangling[key] = delete
    return list(dangling.values())


class Tail:
    """The small files that a writer has left in each partition.

    Every `width` files of a partition they are joined, in a `replace` snapshot behind that of the
    writer, by one thread at a time. What stops that is logged, and tried again with the next files.

    Args:
        branch: that is written to.
        width: see `tail_groups`; 0: never.
        confined: whether who writes may read less than this process, see `plan_tail`.
    """

    def __init__(self, branch: str, width: int = 0, *, confined: bool = False) -> None:
        self.branch = branch
        self.width = width
        self._confined = confined
        self._files: Counter[tuple[Any, ...]] = Counter()
        self._joining = threading.Lock()

    def grew(
        self,
        catalog: Catalog,
        version: TableVersion,
        files: Sequence[DataFile],
        environment: Environment,
    ) -> bool:
        """Files were added; how many a newly met partition has is unknown.

        Returns:
            whether files were joined, so that the table has a newer version.
        """
        new = Counter(file.partition_key for file in files)
        for key, count in new.items():
            self._files[key] = self._files[key] + count if key in self._files else self.width
        full = {key for key in new if self._files[key] >= self.width}
        if not self.width or not full or not self._joining.acquire(blocking=False):
            return False
        try:
            for key in full:
                self._files[key] = 0
            added = [file for file in files if file.partition_key in full]
            return self._join(catalog, version, added, environment)
        except LakehouseError as error:
            logger.warning("%s: small files stay for now: %s", version.identifier, error)
            return False
        finally:
            self._joining.release()

    def _join(
        self,
        catalog: Catalog,
        version: TableVersion,
        added: Sequence[DataFile],
        environment: Environment,
    ) -> bool:
        plan = plan_tail(
            catalog,
            version,
            self.branch,
            added,
            self.width,
            confined=self._confined,
            environment=environment,
        )
        if not plan.groups:
            return False
        summary = self.summary(version.metadata, plan.input_bytes)
        done = execute_compaction(catalog, plan, environment=environment, summary=summary)
        return bool(done.snapshot_ids)

    def summary(self, metadata: TableMetadata, joined: int) -> Mapping[str, str]:  # noqa: ARG002
        """Further entries of the summary of a snapshot that joins so many bytes."""
        return {}
