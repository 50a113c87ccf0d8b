"""Rows of a file are changed a batch at a time, however large the file is: one bound for all verbs.

Judged by the bytes that Arrow's memory pool had allocated at most. Held fixed: one file, of which
every twentieth row changes; for compaction twenty files of one partition, which are not sorted.
Positions, which numpy holds, are not counted.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import lakehouse as lh

NAMES = [f"c{number}" for number in range(15)]
SCHEMA = pa.schema([("id", pa.int64()), *((name, pa.float64()) for name in NAMES)])
ROWS, GROUP = 400_000, 20_000
DECODED = ROWS * 8 * len(SCHEMA)
VERBS = {
    "delete": lambda table: table.delete("id % 20 = 0"),
    "overwrite": lambda table: table.overwrite(rows([-1]), "id % 20 = 0"),
    "update": lambda table: table.update({"c0": "0.5"}, where="id % 20 = 0"),
    "upsert": lambda table: table.upsert(rows([2, 4]), ["id"]),
}


def rows(ids):
    ids = np.asarray(ids)
    return pa.table({"id": ids, **dict.fromkeys(NAMES, ids % 977 / 7)}, SCHEMA)


POOLS = []
"""Never freed: what the process keeps of a test, in caches of manifests, is freed by its pool."""


@pytest.fixture
def pool():
    """A pool whose peak is that of the test alone."""
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    POOLS.append(counted)
    pa.set_memory_pool(counted)
    yield counted
    pa.set_memory_pool(before)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("verb", VERBS)
def test_no_file_is_held_whole(tmp_path, pool, verb, mode):
    modes = {f"write.{command}.mode": mode for command in ("delete", "update", "merge")}
    table = lh.load_catalog(tmp_path.as_uri()).create_table(
        "raw.e",
        SCHEMA,
        properties={
            **modes,
            "lakehouse.write.buffer-bytes": str(4 << 20),
            "write.parquet.row-group-limit": str(GROUP),
        },
    )
    parts = (range(start, start + GROUP) for start in range(0, ROWS, GROUP))
    table.append(rows(part).to_batches()[0] for part in parts)
    assert len(table.scan().plan().files) == 1
    VERBS[verb](table)
    assert pool.max_memory() < DECODED / 2
    assert table.scan(where="id = 3").count() == 1


def test_compaction_holds_no_group_of_files_whole(tmp_path, pool):
    table = lh.load_catalog(tmp_path.as_uri()).create_table(
        "raw.e", SCHEMA, properties={"lakehouse.write.buffer-bytes": str(4 << 20)}
    )
    for start in range(0, ROWS, GROUP):
        table.append(rows(range(start, start + GROUP)))
    done = table.compact()
    assert (done.rewritten_files, done.added_files) == (ROWS // GROUP, 1)
    assert pool.max_memory() < DECODED / 2
    assert table.scan(where="id = 3").count() == 1
