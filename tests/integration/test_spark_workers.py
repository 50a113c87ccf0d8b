"""What a worker of Spark's keeps from one task to the next."""

from __future__ import annotations

import gc
import importlib
import os

import pyarrow as pa
import pytest

from lakehouse.ingestion.workers.workers import SparkWorkers
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.spark import worker_tasks
from tests.integration.spark_support import lake

__all__ = ["lake"]

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("module", ["json", "dagster"], ids=["few more", "many more"])
def test_a_worker_does_not_search_its_modules_for_cycles_after_each_task(spark, module):
    def load(_item: int, _task: str) -> str:
        return importlib.import_module(module).__name__

    def work(_item: int, _task: str) -> tuple[int, int, int]:
        return os.getpid(), gc.get_freeze_count(), len(gc.get_objects())

    SparkWorkers(spark).results(range(4), work)
    SparkWorkers(spark).results(range(4), load)
    seen: dict[int, list[tuple[int, int]]] = {}
    for pid, spared, searched in SparkWorkers(spark).results(range(12), work):
        seen.setdefault(pid, []).append((spared, searched))
    again = [one for tasks in seen.values() for one in tasks[1:]]
    assert again
    # what a task itself leaves is searched: 14,000 objects on Spark 4.1, of modules 76,000 and more
    assert all(spared > 4 * searched for spared, searched in again), seen


def test_workers_that_compact_spare_their_modules_too(spark, lake):
    def forget(batches):
        yield from batches
        gc.unfreeze()
        worker_tasks._loaded_then[0] = 0

    def look(batches):
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"spared": [gc.get_freeze_count()] * batch.num_rows})

    def spared():
        return spark.range(0, 12, 1, 12).mapInArrow(look, "spared long").toArrow()["spared"]

    table = lake.create_table("ns.t", pa.schema({"id": pa.int64()}), partition_by=["id"])
    for _ in range(2):
        table.append(pa.table({"id": range(12)}))
    spark.range(0, 12, 1, 12).mapInArrow(forget, "id long").collect()
    assert min(spared().to_pylist()) == 0
    table.compact(CompactionOptions(min_input_files=2), spark=spark)
    assert max(spared().to_pylist()) > 10_000
