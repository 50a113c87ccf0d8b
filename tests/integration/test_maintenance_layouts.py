"""Compaction that arranges rows: sorted across files, along a Z-curve, in some partitions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehouse.errors import InvalidInputError, InvalidPartitionSpecError
from lakehouse.maintenance.advice.due_actions import decide_compaction
from lakehouse.maintenance.compaction.compaction_plan import plan_compaction
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.maintenance.maintenance_policy import policy_of
from tests.integration.maintenance_support import contents, events, lake_in_memory, rows

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.float64()), ("name", pa.string())])
FILES, ROWS = 12, 400


def scattered(lake, **arguments):
    """Files of which each spans all values."""
    properties = {
        "write.target-file-size-bytes": "20000",
        "write.parquet.compression-codec": "uncompressed",
    }
    table = lake.create_table("raw.scattered", SCHEMA, properties=properties, **arguments)
    chance = np.random.default_rng(7)
    for _ in range(FILES):
        x, y = chance.integers(0, 1000, ROWS), chance.random(ROWS)
        names = [None if value % 50 == 0 else f"n{value:04}" for value in x]
        table.append(pa.table([x, y, names], schema=SCHEMA))
    return table


def planned(table, where):
    return len(list(table.refresh().scan(where).plan().files))


def test_sorted_over_all_files_of_a_group():
    table = scattered(lake_in_memory())
    expected = contents(table)
    assert planned(table, "name = 'n0123'") == FILES
    result = table.compact(
        CompactionOptions(sort_by=("name desc nulls last", "x"), rewrite_all=True)
    )
    assert result.added_files >= 3
    assert contents(table) == expected
    assert planned(table, "name = 'n0123'") <= 2
    assert {file.sort_order_id for file in table.scan().plan().files} == {None}
    for file in table.scan().plan().files:
        found = pq.read_table(pa.BufferReader(table.storage.read(file.file_path)), columns=["name"])
        names = [one or "" for one in found["name"].to_pylist()]
        assert names == sorted(names, reverse=True)


def test_an_order_that_the_table_declares_is_recorded():
    table = scattered(lake_in_memory(), sort_by=["x"])
    assert {file.sort_order_id for file in table.scan().plan().files} == {1}
    table.compact(CompactionOptions(sort_by=("y",), rewrite_all=True))
    assert {file.sort_order_id for file in table.scan().plan().files} == {None}
    table.compact(CompactionOptions(sort_by=("x asc nulls first",), rewrite_all=True))
    assert {file.sort_order_id for file in table.scan().plan().files} == {1}
    # neighbours share the value at which one ends and the next begins
    assert table.health().sort_overlap < 2.5


def test_a_curve_prunes_by_each_of_its_columns():
    table = scattered(lake_in_memory())
    expected = contents(table)
    table.compact(
        CompactionOptions(zorder_by=("x", "y"), rewrite_all=True, target_file_size_bytes=4000)
    )
    files = len(list(table.scan().plan().files))
    assert files > 15
    assert contents(table) == expected
    # whichever column the files were sorted by, a stripe of the other would be in all of them
    for stripe in ("x < 50", "y < 0.05"):
        assert planned(table, stripe) <= 0.6 * files
    assert planned(table, "x < 50 and y < 0.05") <= 3


def test_only_the_partitions_named():
    table = events(lake_in_memory())
    for number in range(12):
        table.append(rows([number], region=f"r{number % 3}"))
    before = contents(table)
    (partition,) = [
        one.partition for one in table.health().partitions if one.partition == "region=r1"
    ]
    result = table.compact(CompactionOptions(min_input_files=2, partitions=frozenset({partition})))
    assert (result.rewritten_files, result.added_files) == (4, 1)
    assert contents(table) == before
    assert sorted((one.partition, one.data_files) for one in table.health().partitions) == [
        ("region=r0", 4),
        ("region=r1", 1),
        ("region=r2", 4),
    ]


def test_row_ids_stay_with_their_rows_when_these_move():
    table = scattered(lake_in_memory(), format_version=3)

    def identified():
        return sorted(
            tuple(row.values())
            for row in table.scan(select=["x", "y", "_row_id"]).to_arrow().to_pylist()
        )

    before = identified()
    table.compact(CompactionOptions(zorder_by=("y", "x"), rewrite_all=True))
    assert identified() == before


def test_what_cannot_be_arranged_is_refused_when_planned():
    table = scattered(lake_in_memory())
    with pytest.raises(InvalidInputError, match="not both"):
        CompactionOptions(sort_by=("x",), zorder_by=("x", "y"))
    for options, error in (
        (CompactionOptions(zorder_by=("x", "nope")), InvalidInputError),
        (CompactionOptions(sort_by=("nope",)), InvalidPartitionSpecError),
    ):
        with pytest.raises(error, match="nope"):
            plan_compaction(table.catalog, table.identifier, options)


def test_deletes_without_data_leave_with_their_partition():
    """The policy asks for them by partition; if they stayed it would ask for ever."""
    # a delete file of several data files does not go with one of them
    properties = {"write.delete.mode": "merge-on-read", "write.delete.granularity": "partition"}
    table = events(lake_in_memory(), properties=properties)
    for region in ("r0", "r1"):
        for number in range(3):
            table.append(rows([10 * number, 10 * number + 1], region=region))
    table.delete("id = 1 or id = 10")
    assert table.health().delete_files == 2
    # the data files go, their delete files stay behind, applying to nothing
    for region in ("r0", "r1"):
        first = [
            task.data_file
            for task in table.refresh().scan(f"region = '{region}'").plan().tasks
            if task.deletes
        ]
        table.transaction().delete_files(first).commit()
    left = table.refresh().health()
    assert left.delete_files == 2
    table.compact(CompactionOptions(partitions=frozenset({"region=r0"})))
    assert [
        (one.partition, one.delete_files) for one in table.health().partitions if one.delete_files
    ] == [("region=r1", 1)]
    table.compact()
    assert table.health().delete_files == 0


def test_delete_files_that_pile_up_are_applied_however_few_rows_they_delete():
    """Found by the simulated week: hourly deletes of a few rows burden every plan.

    They never reach the share of rows at which deletes are applied.
    """
    table = events(lake_in_memory(), properties={"write.delete.mode": "merge-on-read"})
    table.append(rows(range(2000), region="r0"))
    table.append(rows(range(5000, 7000), region="r1"))
    files = table.health().data_files
    for number in range(3):
        table.delete(f"id = {number}")
    before, now_ms = contents(table), table.environment.now_ms() + 3_600_000
    policy = policy_of({})
    (action,) = decide_compaction(
        table.health().partitions, policy, target_bytes=512 << 20, now_ms=now_ms
    )
    assert action.partitions == ("region=r0",)
    table.compact(CompactionOptions.under(policy, 512 << 20))
    assert (table.health().delete_files, table.health().data_files) == (0, files)
    assert contents(table) == before
    assert (
        decide_compaction(table.health().partitions, policy, target_bytes=512 << 20, now_ms=now_ms)
        == []
    )
    table.delete("id = 7")
    assert (
        decide_compaction(table.health().partitions, policy, target_bytes=512 << 20, now_ms=now_ms)
        == []
    ), "one a file may stay"
