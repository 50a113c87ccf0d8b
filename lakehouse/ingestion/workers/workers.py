"""Who does the work of ingestion: Spark's workers, or, where there is little, this process."""

from __future__ import annotations

import itertools
import pickle
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from lakehouse.spark.jvm.failures import marking, unmarking
from lakehouse.spark.worker_tasks import Batches, map_batches, task_name

TASK_BYTES = 32 << 20
"""What a task reads when there is much to read."""

Item = TypeVar("Item")
Result = TypeVar("Result")

_GROUP = "spark.jobGroup.id"
_SECONDS = 1.0
_CALLS = itertools.count()
_SCHEMA = pa.schema([pa.field("number", pa.int64()), pa.field("result", pa.binary())])


TasksDone = Callable[[int, int], None]
"""Called about once a second with the items that are done and all of them, at the end too."""


class Workers(Protocol):
    """Who does the work of a stage."""

    def tasks(self, size_bytes: int = 0) -> int:
        """Into how many tasks work is best divided, at least, that reads so many bytes."""

    def results(
        self,
        items: Sequence[Item],
        work: Callable[[Item, str], Result],
        progress: TasksDone | None = None,
    ) -> list[Result]:
        """What `work` returns for each item.

        Args:
            items: picklable, each a task.
            work: called with an item and a name that no other call of the program has; it and what
                it returns are picklable.
            progress: hears how far it is.

        Raises:
            LakehouseError: what the work raised.
        """


class ThisProcess(Workers):
    """The thread that asks, which does one task after the other.

    >>> ThisProcess().results([2, 3], lambda item, task: item * item)
    [4, 9]
    """

    def tasks(self, size_bytes: int = 0) -> int:
        """As few as there can be: each writes files of its own."""
        return 1 + size_bytes // TASK_BYTES

    def results(
        self,
        items: Sequence[Item],
        work: Callable[[Item, str], Result],
        progress: TasksDone | None = None,
    ) -> list[Result]:
        results: list[Result] = []
        for done, item in enumerate(items, 1):
            results.append(work(item, f"p{next(_CALLS)}"))
            if progress is not None:
                progress(done, len(items))
        return results


@dataclass(frozen=True)
class SparkWorkers(Workers):
    """Spark's workers: what each task returns is collected in the driver.

    A failure of the job that is no LakehouseError is raised as PySparkException.
    """

    spark: SparkSession

    def tasks(self, size_bytes: int = 0) -> int:
        """As many as keep every core busy, and more when there is much to read."""
        return max(2 * self.spark.sparkContext.defaultParallelism, size_bytes // TASK_BYTES)

    def results(
        self,
        items: Sequence[Item],
        work: Callable[[Item, str], Result],
        progress: TasksDone | None = None,
    ) -> list[Result]:
        if not items:
            return []
        pieces = tuple(items)

        def run(batches: Batches) -> Batches:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    with marking():
                        result = work(pieces[number], task_name())
                    yield pa.RecordBatch.from_arrays(
                        [
                            pa.array([number], pa.int64()),
                            pa.array([pickle.dumps(result)], pa.binary()),
                        ],
                        schema=_SCHEMA,
                    )

        frame = self.spark.range(0, len(pieces), 1, len(pieces))
        with unmarking(), _watched(self.spark, len(pieces), progress):
            rows = map_batches(frame, run, "number long, result binary").toArrow()
        results = dict(zip(rows["number"].to_pylist(), rows["result"].to_pylist(), strict=True))
        # what Spark's workers send is as trusted as the code that they are sent
        return [pickle.loads(results[number]) for number in range(len(pieces))]  # noqa: S301


@contextmanager
def _watched(spark: SparkSession, total: int, progress: TasksDone | None) -> Iterator[None]:
    """Report the finished tasks of the jobs that this thread starts, by a job group of its own."""
    if progress is None:
        yield
        return
    context, group, over = spark.sparkContext, f"lakehouse-{uuid.uuid4()}", Event()
    before = context.getLocalProperty(_GROUP)

    def watch() -> None:
        tracker = context.statusTracker()
        while not over.wait(_SECONDS):
            jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(group))
            stages = [stage for job in jobs if job for stage in job.stageIds]
            running = map(tracker.getStageInfo, stages)
            progress(min(total, sum(stage.numCompletedTasks for stage in running if stage)), total)

    watcher = Thread(target=watch, daemon=True)
    context.setLocalProperty(_GROUP, group)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        context.setLocalProperty(_GROUP, before)  # type: ignore[arg-type]  # None removes it
    progress(total, total)
