"""Which files are worth rewriting, and together with which: tasks in, bins out. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from lakehouse.errors import InvalidInputError
from lakehouse.maintenance.layout_by_age import LayoutByAge
from lakehouse.maintenance.maintenance_policy import MaintenancePolicy
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import CONTENT_EQUALITY_DELETES, DataFile, partition_key

DeleteKey = tuple[str, int | None]

_LEAST_RATIO = 1e-9
_GROUP_BYTES, _ARRANGED_GROUP_BYTES = 2 << 30, 512 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """Which files are worth rewriting; those that are not Parquet always are.

    >>> _ = events.append(more)
    >>> events.compact(lh.CompactionOptions(rewrite_all=True, sort_by=("user_id",))).added_files
    3

    Attributes:
        where: only files that may hold matching rows (pyiceberg's expression grammar, or an
            expression).
        target_file_size_bytes: None takes `write.target-file-size-bytes`.
        min_input_files: a group of small files is rewritten from this many on.
        min_file_size_ratio, max_file_size_ratio: outside these multiples of the target a file is a
            candidate.
        delete_ratio_threshold: a file whose deleted rows reach this part of it is a candidate;
            equality deletes always do.
        delete_files_per_file: with more delete files per data file a partition's files with deletes
            are candidates; 0: no limit.
        max_group_bytes: one group (the unit of work) reads at most this many bytes; None: 2 GiB, or
            512 MiB where it is sorted as a whole, in memory.
        groups_per_commit: partial progress, one commit for so many groups.
        skip_newer_than_ms: leave partitions alone that got rows within this many milliseconds;
            None: none.
        rewrite_old_specs: rewrite files of earlier partition specs to the current one; those of the
            layout by age are where they belong.
        rewrite_all: every file is a candidate.
        max_workers: groups rewritten at a time.
        budget_bytes: read at most so many bytes, groups that remove the most files per byte first;
            None: no limit.
        branch: the branch to compact.
        partitions: only these, by the names that health gives them; None: all.
        files: only these, by their paths; None: all.
        sort_by: sort the rows of each group over all its files, by terms as in `create_table`;
            empty: the table's sort order within each file.
        zorder_by: arrange the rows of each group along a Z-curve through these columns; not
            together with `sort_by`.

    Raises:
        InvalidInputError: a number outside its range; both ways to arrange.
    """

    where: Any = None
    target_file_size_bytes: int | None = None
    min_input_files: int = 5
    min_file_size_ratio: float = 0.75
    max_file_size_ratio: float = 1.8
    delete_ratio_threshold: float = 0.3
    delete_files_per_file: int = 1
    max_group_bytes: int | None = None
    groups_per_commit: int = 64
    skip_newer_than_ms: int | None = None
    rewrite_old_specs: bool = True
    rewrite_all: bool = False
    max_workers: int = 2
    budget_bytes: int | None = None
    branch: str = "main"
    partitions: frozenset[str] | None = None
    files: frozenset[str] | None = None
    sort_by: tuple[str, ...] = ()
    zorder_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.sort_by and self.zorder_by:
            raise InvalidInputError(
                "Compaction sorts by columns or arranges them by a z-order, not both"
            )
        counts = (
            "target_file_size_bytes",
            "min_input_files",
            "max_group_bytes",
            "groups_per_commit",
            "max_workers",
        )
        for name in (*counts, "budget_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidInputError(f"Compaction option {name} must be at least 1, not {value}")
        if (
            not 0 < self.min_file_size_ratio <= 1 <= self.max_file_size_ratio
            or self.delete_ratio_threshold <= 0
        ):
            raise InvalidInputError(
                "Compaction ratios must hold 0 < min_file_size_ratio <= 1 <= max_file_size_ratio "
                "and 0 < delete_ratio_threshold"
            )

    @property
    def group_bytes(self) -> int:
        """Most bytes of a group."""
        arranged = bool(self.sort_by or self.zorder_by)
        return self.max_group_bytes or (_ARRANGED_GROUP_BYTES if arranged else _GROUP_BYTES)

    @classmethod
    def under(cls, policy: MaintenancePolicy, target_bytes: int) -> Self:
        """What a policy asks for, for a table of this target size.

        Who compacts has asked: recent partitions are not left out.
        """
        return cls(
            min_input_files=policy.min_input_files,
            min_file_size_ratio=max(1, policy.small_below(target_bytes)) / target_bytes,
            delete_ratio_threshold=max(policy.delete_ratio, _LEAST_RATIO),
            delete_files_per_file=policy.delete_files_per_file,
            budget_bytes=policy.budget_bytes or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """Files of one partition, or of one closed period, that become `expected_files` files.

    Attributes:
        spec_id: partition spec of the input files; of a closed period that of the layout by age.
        partition: their partition values in it.
        output_spec_id: partition spec of the output.
        reason: why they are worth it.
    """

    spec_id: int
    partition: tuple[Any, ...]
    tasks: tuple[FileScanTask, ...]
    expected_files: int
    reason: str
    output_spec_id: int

    @property
    def files(self) -> list[DataFile]:
        """The input files."""
        return [task.data_file for task in self.tasks]

    @property
    def bytes(self) -> int:
        """Size of the input files."""
        return sum(task.data_file.file_size_in_bytes for task in self.tasks)


def delete_key(delete: DataFile) -> DeleteKey:
    """What tells delete files apart: several deletion vectors share one Puffin file."""
    return delete.file_path, delete.content_offset


def delete_uses(tasks: Iterable[FileScanTask]) -> Counter[DeleteKey]:
    """How many of the tasks each delete file applies to."""
    return Counter(delete_key(delete) for task in tasks for delete in task.deletes)


def plan_groups(
    tasks: Sequence[FileScanTask],
    options: CompactionOptions,
    *,
    target_bytes: int,
    layout: LayoutByAge,
    wanted: Callable[[FileScanTask], bool] = lambda _task: True,
    recent_sequence_number: int | None = None,
) -> list[FileGroup]:
    """Groups worth rewriting, those that remove the most files first.

    Args:
        tasks: every live file of the snapshot, with the deletes that apply.
        options: thresholds.
        target_bytes: size that output files should have.
        layout: where files of closed periods belong.
        wanted: files that the caller's filter lets through.
        recent_sequence_number: partitions with a file of this sequence number or later are left
            alone; None: none are.
    """
    uses = delete_uses(tasks)
    partitions: dict[tuple[Any, ...], list[FileScanTask]] = {}
    for task in tasks:
        partitions.setdefault(_key(task.data_file, layout), []).append(task)
    groups: list[FileGroup] = []
    for members in partitions.values():
        first = members[0].data_file
        home = layout.home(first.spec_id, first.partition)
        spec, partition = layout.place(first.spec_id, first.partition)
        spec_id = spec.spec_id
        stays = home is not None or layout.holds(spec_id)
        if recent_sequence_number is not None and any(
            task.sequence_number >= recent_sequence_number for task in members
        ):
            continue
        why = {
            id(task): _reason(task, options, target_bytes, layout, uses)
            for task in members
            if wanted(task)
        }
        if options.delete_files_per_file and len(
            delete_uses(members)
        ) > options.delete_files_per_file * len(members):
            why |= {id(task): _DELETES for task in members if task.deletes and wanted(task)}
        candidates = [task for task in members if why.get(id(task))]
        # by day within a month, so that replacing a day finds its rows together
        candidates.sort(
            key=lambda task: (
                _ordered(task.data_file) if home is not None else (),
                task.sequence_number,
                task.data_file.file_path,
            )
        )
        capacity = max(
            min(options.group_bytes, options.budget_bytes or options.group_bytes), target_bytes
        )
        for packed in pack(candidates, lambda task: task.data_file.file_size_in_bytes, capacity):
            group = _group(
                spec_id,
                partition,
                packed,
                {why[id(task)] for task in packed},
                options,
                target_bytes,
                spec_id if stays else layout.metadata.default_spec_id,
            )
            if group is not None:
                groups.append(group)
    groups.sort(
        key=lambda group: (
            group.expected_files - len(group.tasks),
            group.tasks[0].data_file.file_path,
        )
    )
    return groups if options.budget_bytes is None else _within(groups, options.budget_bytes)


def tail_groups(tasks: Iterable[FileScanTask], width: int, *, target_bytes: int) -> list[FileGroup]:
    """Small files to join, a group a partition, such that few stay and each row seldom moves.

    A file of `width**tier` rows or more, and fewer than those of the next tier, is of that tier;
    `width` files of a tier become one of a higher tier, together with those that it completes
    there. So a partition that gets a file a batch has less than `width` files of each tier, and a
    row is written once more for each tier. Files that rows were deleted from stay as they are.

    Args:
        tasks: of one partition spec, with the deletes that apply.
        width: 2 or more.
        target_bytes: size that output files should have; three quarters of it are not small.
    """
    partitions: dict[tuple[Any, ...], list[FileScanTask]] = {}
    for task in tasks:
        if not task.deletes and task.data_file.file_size_in_bytes < 0.75 * target_bytes:
            partitions.setdefault(task.data_file.partition_key, []).append(task)
    groups: list[FileGroup] = []
    for members in partitions.values():
        chosen = _overflowing(members, width)
        if chosen:
            file = chosen[0].data_file
            total = sum(task.data_file.file_size_in_bytes for task in chosen)
            groups.append(
                FileGroup(
                    spec_id=file.spec_id,
                    partition=file.partition,
                    tasks=tuple(chosen),
                    expected_files=output_file_count(total, target_bytes),
                    reason=_SMALL,
                    output_spec_id=file.spec_id,
                )
            )
    return groups


def _overflowing(tasks: Iterable[FileScanTask], width: int) -> list[FileScanTask]:
    tiers: dict[int, list[FileScanTask]] = {}
    for task in tasks:
        tiers.setdefault(_tier(task.data_file.record_count, width), []).append(task)
    chosen: list[FileScanTask] = []
    for tier in range(max(tiers) + 1):
        of_tier = tiers.get(tier, [])
        joined = sum(task.data_file.record_count for task in chosen)
        if len(of_tier) + (bool(chosen) and _tier(joined, width) == tier) >= width:
            chosen += of_tier
    return sorted(chosen, key=lambda task: (task.sequence_number, task.data_file.file_path))


def _tier(rows: int, width: int) -> int:
    tier = 0
    while rows >= width:
        rows //= width
        tier += 1
    return tier


def _key(file: DataFile, layout: LayoutByAge) -> tuple[Any, ...]:
    home = layout.home(file.spec_id, file.partition)
    return file.partition_key if home is None else partition_key(home[0].spec_id, home[1])


def _ordered(file: DataFile) -> tuple[Any, ...]:
    """Files of a period in the order of their own partitions."""
    return (file.spec_id, *((value is not None, value) for value in file.partition))


def _within(groups: list[FileGroup], budget_bytes: int) -> list[FileGroup]:
    """Groups within the budget of bytes read; first those that remove most files per byte."""
    chosen: list[FileGroup] = []
    left = budget_bytes
    for group in sorted(
        groups, key=lambda group: (group.expected_files - len(group.tasks)) / max(1, group.bytes)
    ):
        if group.bytes <= left:
            chosen.append(group)
            left -= group.bytes
    return chosen


_SMALL, _LARGE, _DELETES, _CLOSED, _OLD_SPEC, _ROWS, _ALL = (
    "small files",
    "large files",
    "deletes to apply",
    "closed period",
    "earlier partition spec",
    "row-oriented",
    "requested",
)


def _reason(
    task: FileScanTask,
    options: CompactionOptions,
    target_bytes: int,
    layout: LayoutByAge,
    uses: Counter[DeleteKey],
) -> str | None:
    size = task.data_file.file_size_in_bytes
    if options.rewrite_all:
        return _ALL
    spec_id = task.data_file.spec_id
    current = spec_id == layout.metadata.default_spec_id or layout.holds(spec_id)
    if options.rewrite_old_specs and not current:
        return _OLD_SPEC
    if task.data_file.file_format.lower() != "parquet":
        return _ROWS
    if task.deletes and _delete_ratio(task, uses) >= options.delete_ratio_threshold:
        return _DELETES
    if size < options.min_file_size_ratio * target_bytes:
        return _SMALL
    if size > options.max_file_size_ratio * target_bytes:
        return _LARGE
    return None


def _delete_ratio(task: FileScanTask, uses: Counter[DeleteKey]) -> float:
    if any(delete.content == CONTENT_EQUALITY_DELETES for delete in task.deletes):
        return 1.0
    deleted = sum(delete.record_count / uses[delete_key(delete)] for delete in task.deletes)
    return deleted / max(1, task.data_file.record_count)


def _group(
    spec_id: int,
    partition: tuple[Any, ...],
    tasks: list[FileScanTask],
    reasons: set[str | None],
    options: CompactionOptions,
    target_bytes: int,
    output_spec_id: int,
) -> FileGroup | None:
    total = sum(task.data_file.file_size_in_bytes for task in tasks)
    expected = output_file_count(total, target_bytes, min_ratio=options.min_file_size_ratio)
    forced = reasons & {_DELETES, _OLD_SPEC, _ROWS, _ALL}
    worth = expected < len(tasks) and (
        len(tasks) >= options.min_input_files or total > target_bytes
    )
    splits = _LARGE in reasons and expected > len(tasks)
    if not (forced or worth or splits):
        return None
    if any(task.data_file.spec_id != output_spec_id for task in tasks) and not forced:
        reasons = reasons | {_CLOSED}
    reason = ", ".join(sorted(text for text in reasons if text))
    return FileGroup(
        spec_id=spec_id,
        partition=partition,
        tasks=tuple(tasks),
        expected_files=expected,
        reason=reason,
        output_spec_id=output_spec_id,
    )


T = TypeVar("T")

_LOOKBACK = 32


def pack(
    items: Iterable[T], weight: Callable[[T], int], capacity: int, *, lookback: int = _LOOKBACK
) -> list[list[T]]:
    """First-fit into bins of `capacity`; only the last `lookback` open bins are tried.

    Items keep their order inside a bin.

    An item heavier than `capacity` gets a bin of its own. Bins come out in the order in which they
    were opened.
    """
    bins: list[list[T]] = []
    rooms: list[int] = []
    for item in items:
        size = weight(item)
        start = max(0, len(bins) - lookback)
        for index in range(start, len(bins)):
            if size <= rooms[index]:
                bins[index].append(item)
                rooms[index] -= size
                break
        else:
            bins.append([item])
            rooms.append(capacity - size)
    return bins


def output_file_count(total_bytes: int, target_bytes: int, *, min_ratio: float = 0.75) -> int:
    """How many files `total_bytes` should become, so that none is a small remainder.

    The remainder gets its own file when it is at least `min_ratio` of the target; otherwise the
    others absorb it as long as none grows beyond 1.1 of the target.
    """
    if total_bytes <= target_bytes:
        return 1
    whole, remainder = divmod(total_bytes, target_bytes)
    if remainder == 0:
        return whole
    if remainder >= min_ratio * target_bytes or total_bytes / whole > 1.1 * target_bytes:
        return whole + 1
    return whole
