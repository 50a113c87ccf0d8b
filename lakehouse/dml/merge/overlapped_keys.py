"""Deciding again on the keys alone that other writers touched, and carrying the rest over.

What a MERGE does to the rows of a key depends on the rows of that key alone, unless it has clauses
about rows that no source row matches. So where nobody has touched a key, its decision holds for the
newer version, too. Files of new rows stay, or are written again without those of touched keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from lakehouse.data.reading.scan_reader import METADATA_COLUMNS, RowReader
from lakehouse.dml.copy_on_write import positioned_reader, staying_rows
from lakehouse.dml.merge.changed_files import ChangedFiles
from lakehouse.dml.merge.decided_merge import DecidedMerge
from lakehouse.dml.merge.merge_rows import merge_rows
from lakehouse.dml.merge.source_match import SourcePart
from lakehouse.dml.merge.source_rows import SourceRows
from lakehouse.dml.merge.target_rows import Origins, TargetRows
from lakehouse.expressions.physical_comparison import Mask
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.schema.metadata_columns import LAST_UPDATED, with_lineage
from lakehouse.storage.storage_protocol import Storage
from lakehouse.transaction.conflicts.decided_rows import Positions
from lakehouse.transaction.operations.row_decisions.overlap import Overlap

Decided = tuple[Sequence[tuple[FileScanTask, Positions]], Sequence[Origins]]


def touched_rows(first: DecidedMerge, part: SourcePart, since: Overlap, now: TargetRows) -> Mask:
    """The source rows whose keys others have touched; there may be more than these.

    Args:
        first: what was decided.
        part: its source rows.
        since: what others did.
        now: the table after that.

    Raises:
        NoSuchFileError | UnsupportedFeatureError: a file that others added cannot be read: it has
            expired, or is of another engine.
    """
    touched = np.zeros(part.rows.num_rows, bool)
    for tasks, origins in ((first.gone, first.gone_origins), (first.seen, first.seen_origins)):
        for (task, positions), source in zip(tasks, origins, strict=True):
            path = task.data_file.file_path
            if path in since.removed:
                touched[source] = True
            else:
                touched[source[np.isin(positions, since.deleted[path])]] = True
    columns = now.columns(first.merge.key_columns)
    for file in since.added:
        task = FileScanTask(data_file=file, length=file.file_size_in_bytes)
        for batch in now.batches(task, columns, first.conflict_filter):
            rows = pa.Table.from_batches([batch])
            pairs = part.pairs(now.beside_nothing(rows, columns, first.merge.source))
            touched[pairs.source] = True
    return part.alike(touched)


def decide_again(
    first: DecidedMerge,
    part: SourcePart,
    files: ChangedFiles,
    touched: Mask,
    target: TargetRows,
    storage: Storage,
) -> DecidedMerge:
    """What a MERGE does to a newer version of a table, where some keys alone were touched since.

    Args:
        first: what it did to the older version, by merge on read.
        part: its source rows.
        files: with which it did.
        touched: the source rows to decide on; all of their keys.
        target: the newer version, with the schema, spec and sort order of the older one.
        storage: where the files are.
    """
    changes = DecidedMerge(
        merge=first.merge,
        part=part,
        conflict_filter=first.conflict_filter,
        keys=first.keys,
        source_rows=int(touched.sum()),
        origins=[],
        # whether rows are updated is known with the last one alone
        carries_row_ids=any(one.action == "update" for one in first.merge.clauses),
    )
    changes.rows = _rows(changes, first, part, files, touched, target, storage)
    return changes


def _rows(
    changes: DecidedMerge,
    first: DecidedMerge,
    part: SourcePart,
    files: ChangedFiles,
    touched: Mask,
    target: TargetRows,
    storage: Storage,
) -> Iterator[pa.RecordBatch]:
    """Rows of the first decision that are written again, then those of the second."""
    origins = changes.origins = []
    own = _own_rows(target, storage)
    for file in files.added:
        follow = files.origins[file.file_path]
        undone = touched[follow]
        stay = follow[~undone]
        changes.inserted += int((~part.matched[stay]).sum())
        changes.updated += int(part.matched[stay].sum())
        if not undone.any():
            changes.kept.append((file, follow))
        elif len(stay):
            origins.append(stay)
            task = FileScanTask(data_file=file, length=file.file_size_in_bytes)
            yield from staying_rows(task, np.flatnonzero(undone), own)
    gone = _untouched((first.gone, first.gone_origins), touched)
    seen = _untouched((first.seen, first.seen_origins), touched)
    changes.deleted = sum(len(positions) for _, positions in gone[0]) - changes.updated

    numbers = np.flatnonzero(touched).astype(np.int32)
    source = SourceRows.in_memory(first.merge.source, part.rows.take(pa.array(numbers)))
    second = merge_rows(target, first.merge, source)
    yield from second.rows
    if second.part is None or second.origins is None:
        raise AssertionError("a source in memory is not decided on by source rows")
    origins += [numbers[one] for one in second.origins]
    part.matched[numbers], part.acted[numbers] = second.part.matched, second.part.acted
    changes.opened = second.opened
    changes.inserted += second.inserted
    changes.updated += second.updated
    changes.deleted += second.deleted
    changes.passed_over = int((part.matched & ~part.acted).sum())
    again = second.gone, [numbers[one] for one in second.gone_origins]
    changes.gone, changes.gone_origins = _united(gone, again)
    again = second.seen, [numbers[one] for one in second.seen_origins]
    changes.seen, changes.seen_origins = _united(seen, again)


def _own_rows(target: TargetRows, storage: Storage) -> RowReader:
    """Reads uncommitted files, with the row ids that rows have; the commit gives the rest."""
    stored = with_lineage(target.schema, target.metadata.format_version)
    given = METADATA_COLUMNS[LAST_UPDATED].field_id
    schema = Schema(*(one for one in stored.fields if one.field_id != given))
    return positioned_reader(schema, target.metadata, storage)


def _untouched(
    decided: Decided, touched: Mask
) -> tuple[list[tuple[FileScanTask, Positions]], list[Origins]]:
    """Positions, and the source rows that they follow from, where these are not touched."""
    tasks: list[tuple[FileScanTask, Positions]] = []
    origins: list[Origins] = []
    for (task, positions), source in zip(*decided, strict=True):
        stay = ~touched[source]
        if stay.any():
            tasks.append((task, positions[stay]))
            origins.append(source[stay])
    return tasks, origins


def _united(
    kept: Decided, again: Decided
) -> tuple[list[tuple[FileScanTask, Positions]], list[Origins]]:
    """One item for each file; a row is in one of both, because its key is."""
    found: dict[str, tuple[FileScanTask, list[Positions], list[Origins]]] = {}
    for decided in (again, kept):  # the newer task of a file, where there is one
        for (task, positions), source in zip(*decided, strict=True):
            _, at, origins = found.setdefault(task.data_file.file_path, (task, [], []))
            at.append(positions)
            origins.append(source)
    tasks: list[tuple[FileScanTask, Positions]] = []
    united: list[Origins] = []
    for task, at, origins in found.values():
        positions = np.concatenate(at)
        order = np.argsort(positions)
        tasks.append((task, positions[order]))
        united.append(np.concatenate(origins)[order])
    return tasks, united
