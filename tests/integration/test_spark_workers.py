"""What a worker of Spark's keeps from one task to the next."""

from __future__ import annotations

import gc
import importlib
import os

import pytest

from lakehouse.orchestration.ingestion.workers.on_workers import on_workers

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("module", ["json", "dagster"], ids=["few more", "many more"])
def test_a_worker_does_not_search_its_modules_for_cycles_after_each_task(spark, module):
    def load(_item: int, _task: str) -> str:
        return importlib.import_module(module).__name__

    def work(_item: int, _task: str) -> tuple[int, int, int]:
        return os.getpid(), gc.get_freeze_count(), len(gc.get_objects())

    on_workers(spark, range(4), work)
    on_workers(spark, range(4), load)
    seen: dict[int, list[tuple[int, int]]] = {}
    for pid, spared, searched in on_workers(spark, range(12), work):
        seen.setdefault(pid, []).append((spared, searched))
    again = [one for tasks in seen.values() for one in tasks[1:]]
    assert again
    assert all(spared > 10 * searched for spared, searched in again), seen
