"""Work on Spark's workers: one task an item, what each returns collected in the driver."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from lakehouse.spark.jvm.failures import marking, unmarking
from lakehouse.spark.worker_tasks import Batches, map_batches, task_name

Item = TypeVar("Item")
Result = TypeVar("Result")

_GROUP = "spark.jobGroup.id"
_SECONDS = 1.0
_SCHEMA = pa.schema([pa.field("number", pa.int64()), pa.field("result", pa.binary())])


def on_workers(
    spark: SparkSession,
    items: Sequence[Item],
    work: Callable[[Item, str], Result],
    progress: Callable[[int, int], None] | None = None,
) -> list[Result]:
    """What `work` returns for each item.

    Args:
        spark: the session.
        items: picklable.
        work: called with an item and the name of the task attempt; it and what it returns are
            picklable.
        progress: called about once a second with the items that are done and all of them, and once
            when all are done.

    Raises:
        LakehouseError: what the work raised.
        PySparkException: any other failure of the job.
    """
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

    frame = spark.range(0, len(pieces), 1, len(pieces))
    with unmarking(), _watched(spark, len(pieces), progress):
        rows = map_batches(frame, run, "number long, result binary").toArrow()
    results = dict(zip(rows["number"].to_pylist(), rows["result"].to_pylist(), strict=True))
    # what Spark's workers send is as trusted as the code that they are sent
    return [pickle.loads(results[number]) for number in range(len(pieces))]  # noqa: S301


@contextmanager
def _watched(
    spark: SparkSession, total: int, progress: Callable[[int, int], None] | None
) -> Iterator[None]:
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
