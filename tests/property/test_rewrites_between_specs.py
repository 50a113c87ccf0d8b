"""Compaction into another partition spec, beside equality deletes that other writers commit.

The judge is brute force: whichever of the two comes first, rows are what they were before the
compaction was tried.
"""

from __future__ import annotations

import uuid
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse as lh
from lakehouse.maintenance.compaction.compaction import execute_compaction, plan_compaction
from lakehouse.spec.manifests.data_file import CONTENT_EQUALITY_DELETES, DataFile
from lakehouse.transaction.operations import file_changes
from lakehouse.transaction.transaction import Transaction

SCHEMA = pa.schema({"id": pa.int64(), "p": pa.int64()})
SPECS = ((), ("p",), ("bucket(2, id)",), ("p", "bucket(2, id)"))
MOVES = [(old, new) for old in SPECS for new in SPECS]
OPTIONS = lh.CompactionOptions(rewrite_all=True, min_input_files=1)


def rows(random: Random, first: int) -> pa.Table:
    ids = list(range(first, first + 6))
    return pa.table({"id": ids, "p": [random.randrange(2) for _ in ids]}, schema=SCHEMA)


def delete_equal(
    table: lh.Table, ids: list[int], spec_id: int, partition: tuple[object, ...]
) -> None:
    """As Flink commits it: a file of ids, in a partition of a spec."""
    path = f"{table.location.rstrip('/')}/data/equal-{uuid.uuid4()}.parquet"
    field = pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"})
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table([pa.array(ids)], schema=pa.schema([field])), sink)
    data = sink.getvalue().to_pybytes()
    table.storage.write(path, data)
    file = DataFile(
        content=CONTENT_EQUALITY_DELETES,
        file_path=path,
        partition=partition,
        spec_id=spec_id,
        record_count=len(ids),
        file_size_in_bytes=len(data),
        equality_ids=(1,),
    )
    Transaction(table.catalog, table.identifier).row_delta(delete_files=[file]).commit()


def found(table: lh.Table) -> list[tuple[int, int]]:
    read = table.refresh().scan().to_arrow().to_pylist()
    return sorted((row["id"], row["p"]) for row in read)


def history(lake: lh.Lake, seed: int, old: tuple[str, ...], new: tuple[str, ...]) -> str | None:
    """One table; what is wrong, or None."""
    random = Random(seed)
    version = random.choice((2, 3))
    table = lake.create_table(
        f"t.seed{uuid.uuid4().hex}", SCHEMA, partition_by=list(old), format_version=version
    )
    table.append(rows(random, 0))
    with table.update_partition_spec() as update:
        for term in old:
            if term not in new:
                update.remove(term)
        for term in new:
            if term not in old:
                update.add(term)
    if random.random() < 0.5:
        table.append(rows(random, 6))
    table.refresh()
    partitions = {(file.spec_id, file.partition) for file in table.scan().plan().files}
    current = table.metadata.default_spec_id
    width = len(table.metadata.spec().fields)
    partitions |= {(current, tuple(random.randrange(2) for _ in range(width)))}
    plan = plan_compaction(lake.catalog, table.identifier, OPTIONS)
    spec_id, partition = random.choice(sorted(partitions, key=str))
    delete_equal(table, random.sample(range(12), 4), spec_id, partition)
    right = found(table)
    execute_compaction(lake.catalog, plan)
    after = found(table)
    if after != right:
        return f"seed {seed}, {old} to {new}: {right} became {after}"
    return None


@pytest.mark.parametrize(("old", "new"), MOVES)
def test_no_row_comes_or_goes(tmp_path, old, new):
    lake = lh.load_catalog(str(tmp_path))
    assert [wrong for seed in range(6) if (wrong := history(lake, seed, old, new))] == []


def test_a_rewrite_that_overlooks_equality_deletes_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(
        file_changes,
        "reaches_moved_rows_alike",
        lambda removed, added, number: lambda entries: np.ones(len(entries), bool),
    )
    lake = lh.load_catalog(str(tmp_path))
    assert any(history(lake, seed, old, new) for old, new in MOVES for seed in range(6))


def test_equality_deletes_within_one_spec_stop_no_compaction(tmp_path):
    lake = lh.load_catalog(str(tmp_path))
    table = lake.create_table("t.rows", SCHEMA, partition_by=["p"])
    table.append(rows(Random(1), 0))
    plan = plan_compaction(lake.catalog, table.identifier, OPTIONS)
    delete_equal(table, [0, 1, 2], 0, (1,))
    right = found(table)
    assert execute_compaction(lake.catalog, plan).stopped is None
    assert found(table) == right


def test_a_replacement_newer_than_a_delete_beside_it_is_a_conflict(tmp_path):
    lake = lh.load_catalog(str(tmp_path))
    table = lake.create_table("t.rows", SCHEMA)
    table.append(rows(Random(1), 0))
    base, files = table.version, list(table.scan().plan().files)
    again = table.write_files(table.scan().to_arrow())
    delete_equal(table, [0, 1], 0, ())
    rewrite = Transaction(table.catalog, table.identifier, base=base)
    rewrite.rewrite_files(files, again, data_sequence_number=2)
    with pytest.raises(lh.ValidationConflictError, match="added deletes"):
        rewrite.commit()
    assert len(found(table)) == 4
