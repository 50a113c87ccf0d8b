"""Records of one event that landed several times: the one that landed first stays.

Rows of different days are different events, so workers compare the rows of a day without a shuffle:
new data files hold one day each. Only the columns that tell events apart are read; data files that
hold duplicates are written again without them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from itertools import chain
from typing import TypeVar

import numpy as np
import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, MonthTransform, YearTransform

from lakehouse.data.reading.scan_reader import ReadRequest, RowReader, read_table
from lakehouse.data.writing.data_file_writer import WriteRequest, write_all
from lakehouse.ingestion.source import EVENT_TS, LANDING_FILE, LANDING_LINE
from lakehouse.ingestion.workers.workers import Workers
from lakehouse.maintenance.shown_plan import Progress, no_progress
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.schema.iceberg_types import METADATA_COLUMNS
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.storage.storage_protocol import Storage

Item = TypeVar("Item")

_FILE, _POS = "_file", "_pos"
_DAY = "__day"
_NEW = "__new"
_MODIFIED = "__modified"
# rows that a worker compares at a time; more are split by the hash of what tells them apart
_MOST_ROWS = 8_000_000


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What a worker has to know; picklable.

    Attributes:
        read: how the raw table's files are read, with all of its columns.
        identity: columns that tell events of a day apart.
        modified_ms: when each landing file of the new rows was modified.
        write: how files are written again.
        location: of the table.
        properties: how to reach it.
    """

    read: ReadRequest
    identity: tuple[str, ...]
    modified_ms: Mapping[str, int]
    write: WriteRequest
    location: str
    properties: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Part:
    """Files to compare, new and known; of their rows the `number`-th of `count` parts, by hash."""

    new: tuple[DataFile, ...]
    present: tuple[FileScanTask, ...]
    number: int = 0
    count: int = 1

    @property
    def rows(self) -> int:
        """How many rows the files hold, those of the other parts as well."""
        new = sum(file.record_count for file in self.new)
        return new + sum(task.data_file.record_count for task in self.present)


@dataclass(slots=True)
class Duplicates:
    """New rows that repeat an event.

    Attributes:
        positions: data file -> positions of such rows in it.
        counts: how many, by landing file and day.
    """

    positions: dict[str, list[int]] = field(default_factory=dict)
    counts: Counter[tuple[str, date]] = field(default_factory=Counter)


def find_duplicates(
    workers: Workers,
    new: Sequence[DataFile],
    present: Sequence[FileScanTask],
    comparison: Comparison,
    progress: Progress = no_progress,
) -> Duplicates:
    """Rows of new files that repeat an event: of the table, or of a file that landed earlier.

    Args:
        workers: who compares.
        new: data files that are not committed.
        present: the rows of their days that are in the table and stay.
        comparison: how.
        progress: called while workers compare.
    """
    duplicates = Duplicates()
    if not new:
        return duplicates

    def compare(parts: Sequence[_Part], _task: str) -> list[Duplicates]:
        return [_compared(part, comparison) for part in parts]

    days = in_tasks(2 * workers.tasks(), list(_parts(new, present, comparison.read)))
    groups = [list(_joined(parts)) for parts in days]
    reported = partial(progress, "tasks of comparing rows")
    for compared in chain.from_iterable(workers.results(groups, compare, reported)):
        for path, positions in compared.positions.items():
            duplicates.positions.setdefault(path, []).extend(positions)
        duplicates.counts.update(compared.counts)
    return duplicates


def without_duplicates(
    workers: Workers,
    files: Sequence[DataFile],
    duplicates: Duplicates,
    comparison: Comparison,
    progress: Progress = no_progress,
) -> list[DataFile]:
    """The files without those rows; affected files are written again, their old ones deleted."""
    affected = [file for file in files if file.file_path in duplicates.positions]

    def rewrite(group: Sequence[DataFile], task: str) -> list[DataFile]:
        storage = storage_for(comparison.location, comparison.properties)
        rows = _distinct(group, duplicates.positions, comparison, storage)
        return write_all(rows, comparison.write, storage, task=f"distinct-{task}")

    reported = partial(progress, "tasks of writing files without duplicates")
    made = workers.results(in_tasks(2 * workers.tasks(), affected), rewrite, reported)
    storage_for(comparison.location, comparison.properties).delete(
        [file.file_path for file in affected]
    )
    untouched = [file for file in files if file.file_path not in duplicates.positions]
    return untouched + list(chain.from_iterable(made))


def in_tasks(most: int, items: Sequence[Item]) -> list[Sequence[Item]]:
    """Items in so many groups at most: a task of its own costs each a tenth of a second in Spark.

    Each task is sent all items.
    """
    count = min(len(items), most)
    return [items[len(items) * at // count : len(items) * (at + 1) // count] for at in range(count)]


def _parts(
    new: Sequence[DataFile], present: Sequence[FileScanTask], read: ReadRequest
) -> Iterator[_Part]:
    """The day, where the partition tells it: rows of one day share a part."""
    specs = {file.spec_id for file in new} | {task.data_file.spec_id for task in present}
    (spec_id, *others) = specs
    at = None if others else _day_field(read.specs[spec_id], read.schema)
    by_day: dict[object, tuple[list[DataFile], list[FileScanTask]]] = {}
    for file in new:
        day = None if at is None else file.partition[at]
        by_day.setdefault(day, ([], []))[0].append(file)
    for task in present:
        day = None if at is None else task.data_file.partition[at]
        if day in by_day:
            by_day[day][1].append(task)
    for files, tasks in by_day.values():
        whole = _Part(tuple(files), tuple(tasks))
        count = -(-whole.rows // _MOST_ROWS)
        for number in range(count):
            yield replace(whole, number=number, count=count)


def _joined(parts: Iterable[_Part]) -> Iterator[_Part]:
    """Days that a worker may compare at a time as one part: rows of two days are never equal."""
    days: list[_Part] = []
    rows = 0
    for part in parts:
        rows += part.rows
        if days and rows > _MOST_ROWS:  # of a part of a day, whose day has more, at once
            yield _as_one(days)
            days, rows = [], part.rows
        days.append(part)
    yield _as_one(days)


def _as_one(days: Sequence[_Part]) -> _Part:
    if len(days) == 1:
        return days[0]
    return _Part(
        tuple(file for day in days for file in day.new),
        tuple(task for day in days for task in day.present),
    )


def _day_field(spec: PartitionSpec, schema: Schema) -> int | None:
    """The partition field whose value is equal for all rows of a day."""
    event_ts = schema.find_field(EVENT_TS).field_id
    for at, term in enumerate(spec.fields):
        if term.source_id == event_ts and isinstance(
            term.transform, DayTransform | MonthTransform | YearTransform
        ):
            return at
    return None


def _compared(part: _Part, comparison: Comparison) -> Duplicates:
    import polars as pl  # noqa: PLC0415 - on workers, not where definitions are loaded
    from polars import selectors  # noqa: PLC0415 - the same

    duplicates = Duplicates()
    identity = [_DAY, *(name for name in comparison.identity if name != EVENT_TS)]
    if EVENT_TS in comparison.identity:
        identity.append(EVENT_TS)
    whole = selectors.by_name(*identity)  # names may be patterns to Polars
    columns = (EVENT_TS, *comparison.identity)
    storage = storage_for(comparison.location, comparison.properties)

    def frame(tasks: Sequence[FileScanTask], names: Sequence[str]) -> pl.DataFrame:
        read = reading(comparison.read, names)
        table = read_table(tasks, read, storage)
        day = pl.col(EVENT_TS).dt.date().alias(_DAY)
        shown = pl.DataFrame(table).with_columns(day)
        if part.count > 1:
            chosen = pl.struct(whole).hash() % part.count == part.number
            shown = shown.filter(chosen)
        return shown

    new = [FileScanTask.whole(file) for file in part.new]
    stored = frame(part.present, columns)
    repeats = pl.concat([frame(new, columns), stored]).select(whole).is_duplicated().to_numpy()
    if not repeats.any():
        return duplicates
    if part.count == 1:  # the rows are those of the files, one after the other
        ends = np.cumsum([file.record_count for file in part.new])
        has_some = np.logical_or.reduceat(repeats, np.r_[0, ends[:-1]])
        new = [task for task, some in zip(new, has_some, strict=True) if some]
    added = frame(new, (*columns, LANDING_FILE, LANDING_LINE, _FILE, _POS)).with_columns(
        pl.lit(1).alias(_NEW),
        pl.col(LANDING_FILE)
        .replace_strict(dict(comparison.modified_ms), default=0, return_dtype=pl.Int64)
        .alias(_MODIFIED),
    )
    rows = pl.concat([added, stored.with_columns(pl.lit(0).alias(_NEW))], how="diagonal")
    order = [_NEW, _MODIFIED, LANDING_FILE, LANDING_LINE]
    repeated = rows.filter(pl.struct(whole).is_duplicated()).sort(order)
    losers = repeated.filter(~pl.struct(whole).is_first_distinct() & (pl.col(_NEW) == 1))
    for (path,), group in losers.group_by(_FILE):
        duplicates.positions[str(path)] = group[_POS].to_list()
    for row in losers.group_by(LANDING_FILE, _DAY).len().iter_rows():
        duplicates.counts[row[0], row[1]] += row[2]
    return duplicates


def _distinct(
    files: Sequence[DataFile],
    positions: Mapping[str, Sequence[int]],
    comparison: Comparison,
    storage: Storage,
) -> Iterator[pa.RecordBatch]:
    """The rows of files but those at the positions."""
    names = [column.name for column in comparison.write.schema.fields]
    reader = RowReader(reading(comparison.read, [*names, _POS]), storage)
    for file in files:
        gone = np.array(positions[file.file_path], np.int64)
        for batch in reader.read([FileScanTask.whole(file)]):
            stays = ~np.isin(batch[_POS].to_numpy(), gone)
            yield batch.select(names).filter(pa.array(stays))


def reading(read: ReadRequest, names: Sequence[str]) -> ReadRequest:
    """The same rows as some of their columns, which may be `_file` and `_pos`."""
    schema = read.schema
    unique = list(dict.fromkeys(names))
    fields = [
        METADATA_COLUMNS[name] if name in (_FILE, _POS) else schema.find_field(name)
        for name in unique
    ]
    return replace(
        read, schema=Schema(*fields, schema_id=schema.schema_id), table_schema=schema, threads=1
    )
