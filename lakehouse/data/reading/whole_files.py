"""Several scan tasks opened together: plain columns are decoded in bulk if faster (ADR 7)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from lakehouse.data.reading.polars.polars_columns import BulkFile
from lakehouse.data.reading.task_reader import RowGroup, TaskReader
from lakehouse.errors import InvalidSchemaError
from lakehouse.scan.scan_tasks import FileScanTask

_log = logging.getLogger(__name__)
# Of files that are opened together.
_TOGETHER_ROWS_MIN = 250_000
_TOGETHER_ROWS_MAX = 4_000_000
_TOGETHER_BYTES = 134_217_728
_TOGETHER_FILES = 64
# Row groups of one file that are decoded at a time have about this many rows.
_SLICE_ROWS = 250_000


def together(tasks: Sequence[FileScanTask], threads: int) -> Iterator[list[FileScanTask]]:
    """Consecutive tasks to open together: of the same residual and without deletes.

    There is at least one group for each thread.

    Args:
        tasks: all of the scan.
        threads: that open and decode.
    """
    share = sum(task.data_file.record_count for task in tasks) // threads
    most = min(max(share, _TOGETHER_ROWS_MIN), _TOGETHER_ROWS_MAX)
    group: list[FileScanTask] = []
    rows = size = 0
    for task in tasks:
        rows += task.data_file.record_count
        size += task.data_file.file_size_in_bytes
        full = rows > most or size > _TOGETHER_BYTES or len(group) >= _TOGETHER_FILES
        if group and (full or not _alike(group[-1], task)):
            yield group
            group, rows, size = [], task.data_file.record_count, task.data_file.file_size_in_bytes
        group.append(task)
    if group:
        yield group


def _alike(left: FileScanTask, right: FileScanTask) -> bool:
    same = left.residual is right.residual or left.residual == right.residual
    return not left.deletes and not right.deletes and same


@dataclass(frozen=True, slots=True)
class Unit:
    """What is decoded at a time.

    Attributes:
        groups: row groups that follow each other: of one file, or all of several files with one
            schema.
        bulk: how Polars decodes the first file, and with it the others; None where Arrow's reader
            is to.
    """

    groups: tuple[tuple[TaskReader, RowGroup], ...]
    bulk: BulkFile | None

    @property
    def small(self) -> bool:
        """Whether the files are in memory already."""
        return self.bulk is not None and isinstance(self.bulk.source, bytes)

    @property
    def sources(self) -> list[Any]:
        """Each file once, as Polars takes it."""
        readers = dict.fromkeys(reader for reader, _ in self.groups)
        return [reader.bulk.source for reader in readers if reader.bulk is not None]


class WholeFiles:
    """Scan tasks that were opened together: `Opened` for the pipeline.

    Args:
        readers: of the tasks, in order.
        lone: whether Polars decodes even a small file that no other can be decoded with, which
            Arrow's reader does faster.
    """

    def __init__(self, readers: Sequence[TaskReader], *, lone: bool = False) -> None:
        self._readers = readers
        self.row_groups = [
            unit for _, run in groupby(readers, _shared) for unit in _units(tuple(run), lone=lone)
        ]

    def batches(self, unit: Unit) -> Iterator[pa.RecordBatch]:
        """Wanted rows and columns of a unit.

        Raises:
            see `TaskReader.batches`.
        """
        decoded = _in_bulk(unit)
        if decoded is not None:
            yield from decoded
            return
        for reader, group in unit.groups:
            yield from reader.batches(group)

    def ready(self) -> list[pa.RecordBatch] | None:
        """All wanted batches where the files are small; None where they are read by unit."""
        if len(self.row_groups) > 1 or not all(unit.small for unit in self.row_groups):
            return None
        return [batch for unit in self.row_groups for batch in self.batches(unit)]

    def close(self) -> None:
        """Release the files."""
        for reader in self._readers:
            reader.close()


def _shared(reader: TaskReader) -> tuple[int, type]:
    """Readers that follow each other with the same key can be decoded as one file."""
    bulk = reader.bulk
    return (
        (id(reader), TaskReader)
        if bulk is None or bulk.shape is None
        else (id(bulk.shape), type(bulk.source))
    )


def _units(run: tuple[TaskReader, ...], *, lone: bool) -> Iterator[Unit]:
    first, bulk = run[0], run[0].bulk
    if bulk is None or (len(run) == 1 and isinstance(bulk.source, bytes) and not lone):
        yield from (Unit(((first, group),), None) for group in first.row_groups)
    elif len(run) > 1 or bulk.where is not None:
        groups = tuple((reader, group) for reader in run for group in reader.row_groups)
        if groups:  # files of no rows have none
            yield Unit(groups, bulk)
    else:
        part = replace(bulk, is_whole=bulk.is_whole and len(first.row_groups) == 1)
        yield from (
            Unit(tuple((first, group) for group in some), part)
            for some in _slices(first.row_groups)
        )


def _slices(groups: Sequence[RowGroup]) -> Iterator[list[RowGroup]]:
    """Row groups that follow each other in the file, as many together as are worth a call."""
    chosen: list[RowGroup] = []
    for group in groups:
        gap = bool(chosen) and group.index != chosen[-1].index + 1
        if chosen and (gap or sum(one.rows for one in chosen) + group.rows > _SLICE_ROWS):
            yield chosen
            chosen = []
        chosen.append(group)
    if chosen:
        yield chosen


def _in_bulk(unit: Unit) -> list[pa.RecordBatch] | None:
    """The wanted rows of a unit, decoded by Polars; None where Arrow's reader is to decode them."""
    bulk = unit.bulk
    if bulk is None:
        return None
    # Loads Polars, see `worthwhile`.
    from lakehouse.data.reading.polars.polars_decoder import (  # noqa: PLC0415
        NotDecodedError,
        decode,
    )

    by_reader = groupby(unit.groups, itemgetter(0))
    doubtful = [
        reader.path
        for reader, found in by_reader
        if not reader.verify([group for _, group in found])
    ]
    if doubtful:
        _log.info("Arrow reads %s: its pages are not what its footer says", ", ".join(doubtful))
        return None
    first, start = unit.groups[0]
    position = start.first_row
    wanted = []
    try:
        for batch in decode(
            unit.sources,
            bulk.columns,
            [group.rows for _, group in unit.groups],
            first_row=None if bulk.is_whole else position,
            where=bulk.where,
            filterable=bulk.filterable,
        ):
            wanted.append(first.wanted(batch, batch.num_rows, position))
            position += batch.num_rows
    except (NotDecodedError, InvalidSchemaError, pa.ArrowInvalid) as error:
        _log.info(
            "Arrow reads %s and %d files with it: %s", first.path, len(unit.sources) - 1, error
        )
        return None
    return [batch for batch in wanted if batch is not None and batch.num_rows]
