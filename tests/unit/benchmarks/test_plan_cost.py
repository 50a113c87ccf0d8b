"""The counting storage pages like S3; the benchmark's counts follow from the table's shape."""

from __future__ import annotations

import pytest

from benchmarks.counting_storage import PAGE_KEYS, CountingStorage, Request
from benchmarks.plan_cost import WEEK, WHERE, Shape, build, derived_seconds, hive, ours


@pytest.mark.parametrize(
    ("keys", "pages"), [(0, 1), (1, 1), (PAGE_KEYS, 1), (PAGE_KEYS + 1, 2), (3 * PAGE_KEYS - 1, 3)]
)
def test_a_listing_costs_a_request_a_page(keys, pages):
    storage = CountingStorage()
    storage.add_keys(f"memory://b/t/data/d=1/{n:05d}" for n in range(keys))
    storage.add_keys(["memory://b/t/data/d=10/other", "memory://b/t/data/d=0/other"])
    assert len(list(storage.list("memory://b/t/data/d=1"))) == keys
    assert storage.counts() == {"LIST": pages}


def test_folders_are_found_without_listing_their_files():
    storage = CountingStorage()
    storage.add_keys(
        f"memory://b/t/data/d={day:04d}/{n}" for day in range(PAGE_KEYS + 1) for n in range(3)
    )
    storage.add_keys(["memory://b/t/data/stray"])
    assert len(storage.list_folders("memory://b/t/data")) == PAGE_KEYS + 1
    assert storage.counts() == {"LIST": 2}


def test_what_is_stored_is_read_and_counted():
    storage = CountingStorage()
    storage.write("memory://b/f", b"0123456789")
    storage.forget()
    assert storage.read_range("memory://b/f", 2, 3) == b"234"
    assert storage.read("memory://b/f") == b"0123456789"
    assert storage.exists("memory://b/f")
    assert not storage.exists("memory://b/g")
    filesystem, path = storage.filesystem("memory://b/f")
    assert filesystem.open_input_file(path).read() == b"0123456789"
    assert storage.counts() == {"GET": 3, "HEAD": 3}
    assert [request.size for request in storage.requests if request.verb == "GET"] == [3, 10, 10]


def test_counts_of_a_small_table():
    shape, storage = Shape(files_per_day=3, manifests=20), CountingStorage()
    lake = build(shape, storage)
    location = lake.load_table("raw.events").location
    everything = hive(storage, location, None)
    week = hive(storage, location, WEEK)
    assert (everything["requests"], everything["files_planned"]) == ({"LIST": 1 + 730}, 730 * 3)
    assert (week["requests"], week["files_planned"]) == ({"LIST": 7}, 7 * 3)
    mine = ours(storage, lake, f"{WHERE} and user_id = 42", twins=False)
    assert mine["files_planned"] == 7
    touched = {
        request.location
        for request in storage.requests
        if "-m" in request.location and "snap-" not in request.location
    }
    assert len(touched) == mine["manifests_read"] in (1, 2)
    assert mine["requests_total"] <= 12
    assert all(request.verb != "LIST" for request in storage.requests)


def test_derived_seconds():
    def manifest(number):
        return Request("GET", f"memory://b/t/metadata/x-m{number}.avro", 1)

    first = [
        Request("GET", "memory://b/t/metadata/v1.metadata.json", 1),
        Request("GET", "memory://b/t/metadata/snap-1-m.avro", 1),
    ]
    assert derived_seconds(first) == pytest.approx(0.12)
    assert derived_seconds([*first, *map(manifest, range(64))]) == pytest.approx(0.18)
    assert derived_seconds([*first, *map(manifest, range(65))]) == pytest.approx(0.24)
    assert derived_seconds([manifest(1), manifest(1), manifest(2)]) == pytest.approx(0.12)
    listing = [
        Request("LIST", "memory://b/t/data", 1),
        *(Request("LIST", f"memory://b/t/data/d={n}", 1) for n in (1, 1, 2)),
    ]
    assert derived_seconds(listing) == pytest.approx(0.09)
