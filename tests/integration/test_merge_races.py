"""Real processes that merge into the same ten data files at once.

LAKEHOUSE_RACE_WRITERS and LAKEHOUSE_RACE_MERGES make it larger (make race).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

import lakehouse as lh
from tests.table_census import take_census
from tests.waiting import reaped

pytestmark = pytest.mark.slow
WRITERS = int(os.environ.get("LAKEHOUSE_RACE_WRITERS", "3"))
MERGES = int(os.environ.get("LAKEHOUSE_RACE_MERGES", "4"))
LARGE = "LAKEHOUSE_RACE_MERGES" in os.environ
ROOT = Path(__file__).parents[2]
FILES = 10
BATCH = 20
"""Keys of a merge: two of each file."""


def new_table(uri: str, version: int):
    modes = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
    retries = {"commit.retry.num-retries": "1000", "commit.retry.total-timeout-ms": "3600000"}
    table = lh.load_catalog(uri).create_table(
        "raw.t",
        pa.schema([("id", pa.int64()), ("v", pa.int64())]),
        format_version=version,
        properties={**modes, **retries},
    )
    size = rows_of_a_file()
    for first in range(0, FILES * size, size):
        table.append(pa.table({"id": range(first, first + size), "v": [0] * size}))
    return table


def rows_of_a_file() -> int:
    return WRITERS * MERGES * BATCH // FILES


def race(uri: str, batches: list[list[list[int]]]) -> list[dict]:
    """What each process says of its merges; all begin at once."""
    script = str(ROOT / "tests/integration/merge_worker.py")
    jobs = [json.dumps({"uri": uri, "batches": batch}) for batch in batches]
    with ExitStack() as running:
        processes = []
        for job in jobs:
            process = subprocess.Popen(
                [sys.executable, script, job],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            processes.append(running.enter_context(reaped(process)))
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        return [json.loads(process.communicate(timeout=3000)[0]) for process in processes]


def check(uri: str, version: int, batches: list[list[list[int]]]) -> list[dict]:
    """Every merge is there once, whatever it met, and was decided again where keys overlapped.

    Returns the merges in the order of their commits.
    """
    table = new_table(uri, version)
    there = range(FILES * rows_of_a_file())
    results = race(uri, batches)
    assert [one for result in results for one in result["failed"]] == []
    wanted = dict.fromkeys(there, 0) | Counter(
        k for batch in batches for keys in batch for k in keys
    )
    found = table.refresh().scan().to_arrow().to_pylist()
    assert len(found) == len(wanted)
    assert {one["id"]: one["v"] for one in found} == wanted
    if version >= 3:
        about = table.inspect.delete_files()["referenced_data_file"].to_pylist()
        assert len(about) == len(set(about))  # files of which every row was updated are gone
    line = [
        ancestor.snapshot_id
        for ancestor in table.metadata.ancestors(table.metadata.current_snapshot_id)
    ]
    place = {snapshot_id: number for number, snapshot_id in enumerate(reversed(line))}
    done = sorted(
        (one for each in results for one in each["done"]), key=lambda one: place[one["snapshot"]]
    )
    for number, one in enumerate(done):
        met = [
            other
            for other in done[:number]
            if place[other["snapshot"]] > place[one["base"]] and {*other["keys"]} & {*one["keys"]}
        ]
        assert (one["again"] > 0) == bool(met), (one, met)
        assert one["rows_again"] == one["again"] * len(one["keys"]), (one, met)
    census = take_census(table.catalog, table.identifier)
    assert census.missing == frozenset()
    assert [one for one in census.unreachable if not one.endswith(".metadata.json")] == []
    sys.stdout.write(
        f"\nversion {version}: {len(batches)} x {len(batches[0])} merges, 0 lost, 0 failed, "
        f"{sum(one['retries'] for one in done)} retries, {sum(one['again'] > 0 for one in done)} "
        f"decided again, on {sum(one['rows_again'] for one in done)} of their rows, "
        f"{max(result['seconds'] for result in results):.0f} s\n"
    )
    return done


def different_keys() -> list[list[list[int]]]:
    """Of each process the keys of its merges: two rows of each of the ten files, nobody else's."""
    size = rows_of_a_file()
    return [
        [
            [
                file * size + (writer * MERGES + merge) * 2 + one
                for file in range(FILES)
                for one in range(2)
            ]
            for merge in range(MERGES)
        ]
        for writer in range(WRITERS)
    ]


@pytest.mark.parametrize("version", [2, 3] if LARGE else [3])
def test_merges_of_different_keys_of_the_same_files(tmp_path, version):
    batches = different_keys()
    assert len({k for batch in batches for keys in batch for k in keys}) == FILES * rows_of_a_file()
    done = check(f"file://{tmp_path}/warehouse", version, batches)
    assert sum(one["again"] for one in done) == 0


@pytest.mark.parametrize("version", [2, 3] if LARGE else [2])
def test_merges_of_keys_that_overlap(tmp_path, version):
    """A third of them has keys that others have, too: in the table, or new to it."""
    rng = random.Random(version)
    shared = [0, 1, 10**6, 10**6 + 1]
    batches = [
        [
            sorted({*keys, *rng.sample(shared, rng.randint(1, 3))}) if rng.random() < 0.34 else keys
            for keys in batch
        ]
        for batch in different_keys()
    ]
    check(f"file://{tmp_path}/warehouse", version, batches)
