"""Two clouds in one process, each with a catalog of its own, and with keys that the other lacks.

Two stores of S3; each two of the stores that run beside the tests, if any do (`make test-clouds`).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import combinations

import pyarrow as pa
import pytest

import lakehouse as lh
from tests.guarded_s3 import guarded_s3
from tests.servers import clouds

ROWS = pa.table({"id": range(30), "name": ["a", "b", "c"] * 10})
PAIRS = combinations(sorted(clouds()), 2)


@pytest.mark.slow
@pytest.mark.parametrize("names", [("s3", "s3"), *PAIRS], ids="+".join)
def test_rows_go_both_ways_at_once(tmp_path, names):
    with ExitStack() as running:
        stores = [clouds()[name] for name in names if name != "s3"] or [
            ("s3://lake/wh", running.enter_context(guarded_s3()).keys) for _ in names
        ]
        lakes = [
            lh.load_catalog(f"sqlite:///{tmp_path}/{at}.db", warehouse=f"{root}/two", **properties)
            for at, (root, properties) in enumerate(stores)
        ]
        for lake in lakes:
            lake.create_table("a.t", ROWS.schema, partition_by=["name"]).append(ROWS)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda pair: copy_rows(*pair), [tuple(lakes), tuple(lakes[::-1])] * 3))
        for lake in lakes:
            table = lake.load_table("a.t")
            table.compact()
            table.refresh().delete("id = 3")
            left = sorted(table.refresh().scan().to_arrow()["id"].to_pylist())
            assert left == [one for one in range(30) if one != 3 for _ in range(4)]


def copy_rows(source: lh.Lakehouse, target: lh.Lakehouse) -> None:
    """The first thirty rows of one table to the end of the other."""
    table = source.load_table("a.t")
    first = table.metadata.snapshots[0].snapshot_id
    target.load_table("a.t").append(table.scan(snapshot_id=first).to_batches())
