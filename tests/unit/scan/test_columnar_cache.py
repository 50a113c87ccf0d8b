"""Columnar manifests in memory: the same plans, without the storage, within the bound."""

from __future__ import annotations

import gc
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from lakehouse.manifests.manifest_cache import ColumnsOnce, ManifestCache, size_of
from lakehouse.manifests.manifest_reader import OpenManifest
from lakehouse.scan.planner import ScanRequest, plan_scan
from lakehouse.spec.manifests.columnar_manifest import COLUMNAR_SUFFIX
from tests.unit.scan.test_planner import BY_ID, BY_NAME, Table, by_id

FILTERS = [None, "id = 1", "id = 1 and n < 5", "n >= 15", "id = 1 or id is null", "name = 'x'"]


class _Counted:
    """A storage that counts what is read of columnar manifests."""

    def __init__(self, inner):
        self._inner, self.read_files = inner, Counter()

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def read(self, location):
        self.read_files[location] += location.endswith(COLUMNAR_SUFFIX)
        return self._inner.read(location)


@pytest.fixture
def table():
    made = Table()
    made.manifest([by_id(1, 0, 9), by_id(1, 10, 19), by_id(2, 0, 9)], BY_ID)
    made.manifest([by_id(5, 0, 9), by_id(None, 0, 9)], BY_ID)
    made.manifest([by_id(1, 20, 29, file_path="memory://wh/t/data/last.parquet")], BY_ID)
    made.columnar(made.metadata())
    return made


def planned(table, where, storage, cache):
    request = ScanRequest(metadata=table.metadata(), where=where)
    plan = plan_scan(request, storage, cache=cache)
    report = plan.report.to_dict()
    report.pop("stage_ms"), report.pop("total_ms")
    return [file.to_dict() if hasattr(file, "to_dict") else file for file in plan.files], report


def test_plans_are_the_same_and_each_twin_is_read_once(table):
    cache, storage = ManifestCache(), _Counted(table.storage)
    for _ in range(2):
        for where in FILTERS:
            assert planned(table, where, storage, cache) == planned(
                table, where, table.storage, None
            )
    times = {name: count for name, count in storage.read_files.items() if count}
    assert len(times) == 3
    assert max(times.values()) <= 2, "once, and once more for columns that no filter had wanted"
    before = dict(times)
    for where in FILTERS:
        planned(table, where, storage, cache)
    assert {name: count for name, count in storage.read_files.items() if count} == before


def test_a_twin_that_goes_away_is_still_known_and_the_avro_has_the_rest(table):
    cache = ManifestCache()
    wanted = planned(table, "id = 1 and n < 5", table.storage, None)
    assert planned(table, "id = 1 and n < 5", table.storage, cache) == wanted
    columnar = [one.location for one in table.storage.list("memory://wh/t/metadata")]
    table.storage.delete([one for one in columnar if one.endswith(COLUMNAR_SUFFIX)])
    assert planned(table, "id = 1 and n < 5", table.storage, cache) == wanted
    files, report = planned(table, None, table.storage, cache)
    everything, _ = planned(table, None, table.storage, None)
    assert files == everything
    cache.clear()
    files, report = planned(table, "id = 1 and n < 5", table.storage, cache)
    assert files == wanted[0]
    assert report["data_manifests"]["read_columnar"] == 0


@pytest.mark.parametrize("where", FILTERS)
def test_what_was_read_of_twins_goes_away_with_the_plan(table, where):
    """At once: cycles are looked for when there are many objects, however large they are."""
    gc.collect()
    gc.disable()
    try:
        planned(table, where, table.storage, None)
        left = [one for one in gc.get_objects() if isinstance(one, OpenManifest | ColumnsOnce)]
    finally:
        gc.enable()
    assert left == []


def test_a_twin_of_another_spec_is_not_taken(table):
    cache = ManifestCache()
    planned(table, "id = 1", table.storage, cache)
    other = Table()
    other.manifest([by_id(1, 0, 9)], BY_ID)
    assert BY_NAME in other.base.partition_specs
    other.columnar(other.metadata())
    assert len(planned(other, None, other.storage, cache)[0]) == 1


def test_what_is_kept_is_counted(table):
    cache = ManifestCache()
    planned(table, None, table.storage, cache)
    paths = [row.manifest_path for row in table.rows]
    for path in paths:
        kept = cache.kept.get(("columns", path))
        assert kept.size >= sum(column.nbytes for column in kept.columns.values())
    made = [(one, size) for key, (one, size) in cache.kept._kept.items() if key[0] == "made"]
    assert len(made) == len(paths)
    assert all(size == size_of(entries.table) for (entries, _), size in made)
    numbers = pa.table({"n": np.arange(1_000)})
    assert size_of(numbers) >= 8_000
    cache.clear()
    assert cache.kept.held == 0
