"""Which data files of a MERGE's target may hold a key of its source."""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse.data.statistics.key_filters import key_hashes, keys_as
from lakehouse.dml.merge.merge_binding import BoundMerge
from lakehouse.dml.merge.source_match import KeysInOrder, SourcePart, compared_columns
from lakehouse.dml.merge.target_rows import TargetRows
from lakehouse.scan.planner import ScanPlan
from lakehouse.scan.scan_tasks import FileScanTask

_MOST_KEYS = 1_000
"""Of more keys a filter takes one for another in most files, and rules out none."""
_OPENING_BYTES = 1 << 14
"""Opening a file, to read its footer, takes as long as reading so much."""


def files_with_keys(
    target: TargetRows, merge: BoundMerge, source: SourcePart, plan: ScanPlan
) -> Sequence[FileScanTask]:
    """The tasks of a plan whose files may hold a key: by their bounds, then by key filters.

    Filters are read where that is less than what they may save to read.
    """
    tasks = KeysInOrder(merge, source.values).tasks(plan)
    if len(source.keys) > _MOST_KEYS:
        return tasks
    for column, keys in compared_columns(merge, source.values):
        if keys_as(column.type) is None or len(tasks) <= 1:
            continue
        filters = target.key_filters(column, _bytes_of(column.field_id, tasks))
        if filters.by_file:
            hashes = key_hashes(keys, column.type)
            tasks = [one for one in tasks if filters.may_hold(one.data_file.file_path, hashes)]
    return tasks


def _bytes_of(field_id: int, tasks: Sequence[FileScanTask]) -> int:
    """What reading a column of files takes; whole files where the column's size is not known."""
    files = [one.data_file for one in tasks]
    sizes = (one.column_sizes.get(field_id, one.file_size_in_bytes) for one in files)
    return sum(sizes) + len(files) * _OPENING_BYTES
