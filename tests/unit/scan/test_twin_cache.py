"""Twins in memory: the same plans, without the storage, within the bound."""

from __future__ import annotations

from collections import Counter, OrderedDict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.scan.manifests.manifest_cache import ManifestCache
from lakehouse.scan.manifests.twin_cache import KeptTwin, TwinCache, table_bytes
from lakehouse.scan.planner import plan_scan
from lakehouse.scan.scan_request import ScanRequest
from lakehouse.spec.manifests.columnar_manifest import TWIN_SUFFIX
from tests.unit.scan.test_planner import BY_ID, BY_NAME, Table, by_id

FILTERS = [None, "id = 1", "id = 1 and n < 5", "n >= 15", "id = 1 or id is null", "name = 'x'"]


class _Counted:
    """A storage that counts what is read of twins."""

    def __init__(self, inner):
        self._inner, self.read_files = inner, Counter()

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def read(self, location):
        self.read_files[location] += location.endswith(TWIN_SUFFIX)
        return self._inner.read(location)


@pytest.fixture
def table():
    made = Table()
    made.manifest([by_id(1, 0, 9), by_id(1, 10, 19), by_id(2, 0, 9)], BY_ID)
    made.manifest([by_id(5, 0, 9), by_id(None, 0, 9)], BY_ID)
    made.manifest([by_id(1, 20, 29, file_path="memory://wh/t/data/last.parquet")], BY_ID)
    made.twins(made.metadata())
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
    twins = [one.location for one in table.storage.list("memory://wh/t/metadata")]
    table.storage.delete([one for one in twins if one.endswith(TWIN_SUFFIX)])
    assert planned(table, "id = 1 and n < 5", table.storage, cache) == wanted
    files, report = planned(table, None, table.storage, cache)
    everything, _ = planned(table, None, table.storage, None)
    assert files == everything
    cache.clear()
    files, report = planned(table, "id = 1 and n < 5", table.storage, cache)
    assert files == wanted[0]
    assert report["data_manifests"]["read_columnar"] == 0


def test_a_twin_of_another_spec_is_not_taken(table):
    cache = ManifestCache()
    planned(table, "id = 1", table.storage, cache)
    other = Table()
    other.manifest([by_id(1, 0, 9)], BY_ID)
    assert BY_NAME in other.base.partition_specs
    other.twins(other.metadata())
    assert len(planned(other, None, other.storage, cache)[0]) == 1


SIZES = st.integers(0, 12)


@given(
    bound=st.integers(1, 30),
    steps=st.lists(st.tuples(st.sampled_from("abcdef"), st.one_of(st.none(), SIZES)), max_size=40),
)
def test_the_bound_holds_and_what_was_used_last_stays(bound, steps):
    """Against a list of what was used, longest ago first."""
    cache, model = TwinCache(bound), OrderedDict()
    for path, size in steps:
        if size is None:
            found = cache.get(path)
            assert (None if found is None else found.size) == model.get(path)
            if path in model:
                model.move_to_end(path)
        else:
            cache.put(path, KeptTwin((), 0, {}, size))
            model.pop(path, None)
            if size <= bound:
                model[path] = size
            while sum(model.values()) > bound:
                model.popitem(last=False)
    for path in "abcdef":
        found = cache.get(path)
        assert (None if found is None else found.size) == model.get(path)


def test_what_is_kept_is_counted(table):
    cache = ManifestCache()
    planned(table, None, table.storage, cache)
    paths = [one.manifest_path for one in table.rows]
    for path in paths:
        kept = cache.twins.get(path)
        assert kept.size >= sum(one.nbytes for one in kept.columns.values())
    numbers = pa.table({"n": np.arange(1_000)})
    assert table_bytes(numbers) >= 8_000
    cache.clear()
    assert [cache.twins.get(path) for path in paths] == [None] * 3
