"""What each task of ours on Spark's Python workers has: a name, and an end that spares modules."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

Batches = Iterator[pa.RecordBatch]

_loaded_then = [0]
"""How many modules were loaded when they were spared last."""


def map_batches(
    frame: DataFrame, work: Callable[[Batches], Batches], schema: StructType | str
) -> DataFrame:
    """`DataFrame.mapInArrow`, whose tasks spare modules at their end.

    Args:
        frame: whose batches the work is given, those of one task.
        work: picklable.
        schema: of what it yields.
    """

    def run(batches: Batches) -> Batches:
        yield from work(batches)
        spare_modules()

    return frame.mapInArrow(run, schema)


def task_name() -> str:
    """The name of the task attempt that asks, for the files that it writes; outside tasks `0`.

    >>> task_name()
    '0'
    """
    context = TaskContext.get()
    return "0" if context is None else f"{context.partitionId()}-{context.taskAttemptId()}"


def spare_modules() -> None:
    """Leave what is in memory now out of later collections; to be called at the end of a task.

    PySpark's daemon collects after each task, and goes through everything that the imported modules
    hold, which took half the processor time of a short task. Done again only once a task has
    imported more: what it frees later is never searched for cycles.

    >>> spare_modules()
    >>> gc.get_freeze_count() > 10_000
    True
    >>> gc.unfreeze()
    """
    if len(sys.modules) > _loaded_then[0]:
        _loaded_then[0] = len(sys.modules)
        gc.collect()
        gc.freeze()
