"""Appends that join small files behind them; the oracle is a list of what was appended."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import InvalidPropertyError

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.int64()})
JOIN = "lakehouse.write.join-files"


def ids_of(table, **scan) -> list[int]:
    return sorted(table.scan(select=["id"], **scan).to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("seed", range(6))
def test_joined_appends_keep_rows_history_and_increments(tmp_path, seed):
    chance = random.Random(seed)
    width, partitions = chance.choice([2, 3, 4]), chance.choice([1, 3])
    lake = lh.load_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=f"{tmp_path}/w")
    properties = {JOIN: str(width), "format-version": str(chance.choice([2, 3]))}
    properties["write.delete.mode"] = "merge-on-read"
    by = ["part"] if partitions > 1 else []
    table = lake.create_table("raw.t", SCHEMA, partition_by=by, properties=properties)
    there: list[int] = []
    history = {}
    increments = []
    for number in range(30):
        if chance.random() < 0.2:
            table = lake.load_table("raw.t")  # one that knows of no files
        if there and chance.random() < 0.1:
            doomed = chance.choice(there)
            snapshot = table.delete(f"id = {doomed}").snapshot
            there.remove(doomed)
        else:
            parts = [chance.randrange(partitions) for _ in range(chance.randint(1, 3))]
            new = [number * 10 + n for n in range(len(parts))]
            snapshot = table.append(pa.table([new, parts], schema=SCHEMA)).snapshot
            there += new
            increments.append((snapshot, new))
        history[snapshot.snapshot_id] = sorted(there)
    assert ids_of(table) == sorted(there)
    for snapshot_id, expected in history.items():
        assert ids_of(table, snapshot_id=snapshot_id) == expected
    joins = [one for one in table.snapshots() if one.operation == "replace"]
    assert joins
    assert all(ids_of(table, snapshot_id=one.snapshot_id) for one in joins)
    (first, _), *later = increments
    added = table.scan_appends(first.snapshot_id).to_arrow()["id"].to_pylist()
    assert sorted(added) == sorted(number for _, new in later for number in new)


def test_few_files_of_each_tier_stay(tmp_path):
    lake = lh.load_catalog(str(tmp_path))
    table = lake.create_table("raw.t", SCHEMA, properties={JOIN: "4"})
    for number in range(64):
        table.append(pa.table([[number], [0]], schema=SCHEMA))
        tiers = Counter(
            len(f"{task.data_file.record_count:b}") // 2 for task in table.scan().plan().tasks
        )
        assert max(tiers.values()) < 2 * 4
    assert len(table.scan().plan().tasks) < 12
    assert ids_of(table) == list(range(64))


def test_files_of_a_name_taken_again_are_joined(tmp_path):
    """Its files lie in a folder of their own, beside the one where the catalog has its versions."""
    lake = lh.load_catalog(str(tmp_path))
    first = lake.create_table("raw.t", SCHEMA)
    lake.drop_table("raw.t")
    table = lake.create_table("raw.t", SCHEMA, properties={JOIN: "2"})
    assert table.location != first.location
    for number in range(4):
        table.append(pa.table([[number], [0]], schema=SCHEMA))
    assert len(table.scan().plan().tasks) < 4
    assert ids_of(table) == list(range(4))


def test_one_file_cannot_be_joined(tmp_path):
    lake = lh.load_catalog(str(tmp_path))
    with pytest.raises(InvalidPropertyError, match="2 or more"):
        lake.create_table("raw.t", SCHEMA, properties={JOIN: "1"})


WRITER = """
import sys, pyarrow as pa, lakehouse as lh
catalog, first = sys.argv[1], int(sys.argv[2])
table = lh.load_catalog(catalog, warehouse=sys.argv[3]).load_table("raw.t")
for number in range(first, first + 1000):
    table.append(pa.table({"id": [number], "part": [0]}))
    print(number, flush=True)
"""


def test_a_killed_writer_loses_and_doubles_nothing(tmp_path):
    """Killed right behind an acknowledgment, while the next append or join is under way."""
    uri, warehouse = f"sqlite:///{tmp_path}/c.db", f"{tmp_path}/w"
    lake = lh.load_catalog(uri, warehouse=warehouse)
    lake.create_table("raw.t", SCHEMA, properties={JOIN: "2"})
    acknowledged, begun = [], []
    for round_, most in enumerate((3, 6)):
        first = round_ * 1000
        command = [sys.executable, "-c", WRITER, uri, str(first), warehouse]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            lines = [int(writer.stdout.readline()) for _ in range(most)]
            writer.kill()
            lines += [int(line) for line in writer.stdout.read().split("\n")[:-1]]
        acknowledged += lines
        begun.append(lines[-1] + 1)
    found = ids_of(lake.load_table("raw.t"))
    assert len(found) == len(set(found))
    assert set(acknowledged) <= set(found) <= {*acknowledged, *begun}
