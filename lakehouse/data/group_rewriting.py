"""Rewriting groups of files, as data: threads of this process or a cluster's tasks can do it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from lakehouse.data.reading.scan_reader import ReadRequest, read_table, read_tasks
from lakehouse.data.writing.data_file_writer import RowSorter, WriteRequest, write_all
from lakehouse.data.writing.zorder import ZOrder
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.storage.storage_protocol import Storage

_BATCH_ROWS = 131_072


@dataclass(frozen=True, kw_only=True)
class GroupRewrite:
    """One group of files to replace by others with the same rows; picklable.

    Attributes:
        tasks: whole files, with the deletes to apply.
        read: how to read them.
        write: how to write the others; rows of each file are sorted by its sort order.
        expected_files: how many others there should be.
        sort_whole: sort the rows of the group over all its files, not only within each.
        zorder: columns of a Z-curve to arrange the rows of the group by; empty: none.
        mixes_partitions: rows may go to several partitions.
    """

    tasks: tuple[FileScanTask, ...]
    read: ReadRequest
    write: WriteRequest
    expected_files: int
    sort_whole: bool = False
    zorder: tuple[str, ...] = ()
    mixes_partitions: bool = False

    @property
    def arranged(self) -> bool:
        """Whether all rows have to be seen before the first can be written."""
        return self.sort_whole or bool(self.zorder)

    def run(
        self, storage: Storage, *, task: str = "0", threads: int | None = None
    ) -> list[DataFile]:
        """Rewrite here. An arranged group is held in memory; another one is streamed.

        Raises:
            what `read_tasks` and `write_all` raise; nothing that was written stays then.
        """
        read = replace(self.read, threads=threads)
        rows = (
            self._arranged(read, storage)
            if self.arranged
            else read_tasks(self.tasks, read, storage)
        )
        return write_all(rows, self.write, storage, task=task)

    def _arranged(self, read: ReadRequest, storage: Storage) -> Iterator[pa.RecordBatch]:
        # in one piece: taking rows out of many chunks joins them each time
        table = read_table(self.tasks, read, storage).combine_chunks()
        if self.zorder:
            curve = ZOrder.learn(self.zorder, self.write.schema, table)
            indices = pa.array(np.argsort(curve.positions(table), kind="stable"))
        else:
            indices = RowSorter(self.write.sort_order, self.write.schema).indices(table)
        for start in range(0, len(indices), _BATCH_ROWS):
            yield from table.take(indices.slice(start, _BATCH_ROWS)).combine_chunks().to_batches()


class GroupExecutor(Protocol):
    """Where groups are rewritten."""

    def run(
        self, work: Sequence[GroupRewrite], storage: Storage
    ) -> Iterator[tuple[int, list[DataFile]]]:
        """(position of a group, its new files), as groups become done.

        If it raises, files that it has not returned are deleted, or left to orphan removal.
        """


class ThreadExecutor:
    """Rewrites groups in threads of this process.

    Args:
        max_workers: groups rewritten at a time; those that have to be arranged in memory one at a
            time.
    """

    def __init__(self, max_workers: int) -> None:
        self._max_workers = max_workers

    def run(
        self, work: Sequence[GroupRewrite], storage: Storage
    ) -> Iterator[tuple[int, list[DataFile]]]:
        """Rewrite the groups; yields (position of a group, its new files). In the order given."""
        workers = 1 if any(group.arranged for group in work) else min(self._max_workers, len(work))
        if not workers:
            return
        threads = max(1, (os.cpu_count() or 1) // workers)
        with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="compact") as pool:
            futures = [pool.submit(group.run, storage, threads=threads) for group in work]
            yielded = 0
            try:
                for position, future in enumerate(futures):
                    files = future.result()
                    yielded = position + 1
                    yield position, files
            except BaseException:
                for future in futures:
                    future.cancel()
                pool.shutdown(wait=True)
                storage.delete(
                    [file.file_path for future in futures[yielded:] for file in _written(future)]
                )
                raise


def _written(future: Future[list[DataFile]]) -> list[DataFile]:
    return [] if future.cancelled() or future.exception() is not None else future.result()
