from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema

from lakehouse.data.reading.scan_reader import ReadRequest, read_table
from lakehouse.data.writing.delete_writer import FileDeletes, write_deletes
from lakehouse.errors import InvalidExpressionError, StorageError
from lakehouse.maintenance.compaction.compaction import compact, execute_compaction
from lakehouse.maintenance.compaction.compaction_plan import plan_compaction
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.maintenance.retention.snapshot_expiry import ExpiryOptions, expire_snapshots
from lakehouse.spec.manifests.data_file import (
    CONTENT_EQUALITY_DELETES,
    CONTENT_POSITION_DELETES,
    DataFile,
)
from lakehouse.spec.schema.iceberg_types import METADATA_COLUMNS
from tests.integration.maintenance_support import (
    FailingCatalog,
    at,
    contents,
    events,
    lake_in_memory,
    rows,
)
from tests.table_census import take_census

EAGER = CompactionOptions(min_input_files=2)


def small_files(lake, count=8, **arguments):
    table = events(lake, **arguments)
    for number in range(count):
        table.append(rows(range(10 * number, 10 * number + 10), region=f"r{number % 2}"))
    return table


def files_of(table):
    return list(table.refresh().scan().plan().files)


def position_delete(table, data_file, positions, name="pd"):
    """A position delete file of one data file, written by hand."""
    schema = pa.schema(
        [
            pa.field(
                "file_path",
                pa.string(),
                nullable=False,
                metadata={b"PARQUET:field_id": b"2147483546"},
            ),
            pa.field(
                "pos", pa.int64(), nullable=False, metadata={b"PARQUET:field_id": b"2147483545"}
            ),
        ]
    )
    path = f"{table.location}/data/{name}.parquet"
    content = pa.table([[data_file.file_path] * len(positions), positions], schema=schema)
    return _delete_file(table, path, content, CONTENT_POSITION_DELETES, data_file)


def equality_delete(table, data_file, ids, name="eq"):
    schema = pa.schema([pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"})])
    return _delete_file(
        table,
        f"{table.location}/data/{name}.parquet",
        pa.table([ids], schema=schema),
        CONTENT_EQUALITY_DELETES,
        data_file,
        (1,),
    )


def _delete_file(table, path, content, kind, data_file, equality_ids=None):
    sink = pa.BufferOutputStream()
    pq.write_table(content, sink)
    data = sink.getvalue().to_pybytes()
    table.storage.write(path, data)
    return DataFile(
        content=kind,
        file_path=path,
        partition=data_file.partition,
        spec_id=data_file.spec_id,
        record_count=content.num_rows,
        file_size_in_bytes=len(data),
        equality_ids=equality_ids,
    )


def test_small_files_become_one_a_partition_and_rows_stay():
    table = small_files(lake_in_memory())
    expected = contents(table)
    result = compact(table.catalog, table.identifier, EAGER)
    assert (result.rewritten_files, result.added_files, result.stopped) == (8, 2, None)
    assert len(result.snapshot_ids) == 1
    assert len(files_of(table)) == 2
    assert contents(table) == expected
    assert table.current_snapshot().operation == "replace"
    assert take_census(table.catalog, table.identifier).missing == frozenset()


def test_a_plan_changes_nothing_and_says_what_would_happen():
    table = small_files(lake_in_memory())
    before = take_census(table.catalog, table.identifier)
    plan = plan_compaction(table.catalog, table.identifier, EAGER)
    assert (plan.input_files, plan.expected_files, plan.live_files) == (8, 2, 8)
    assert {group["partition"] for group in plan.to_dict()["groups"]} == {"region=r0", "region=r1"}
    assert take_census(table.catalog, table.identifier) == before


def test_nothing_to_do_commits_nothing():
    table = small_files(lake_in_memory(), count=2)
    before = table.metadata.current_snapshot_id
    result = compact(table.catalog, table.identifier)
    assert result.snapshot_ids == ()
    assert table.refresh().metadata.current_snapshot_id == before
    assert compact(table.catalog, table.identifier, EAGER).rewritten_files == 0


def test_an_empty_table_has_nothing_to_compact():
    table = events(lake_in_memory())
    assert compact(table.catalog, table.identifier, EAGER).rewritten_files == 0


def test_a_second_run_finds_nothing():
    table = small_files(lake_in_memory())
    compact(table.catalog, table.identifier, EAGER)
    assert plan_compaction(table.catalog, table.identifier, EAGER).groups == ()


def test_a_filter_chooses_partitions():
    table = small_files(lake_in_memory())
    compact(
        table.catalog, table.identifier, CompactionOptions(min_input_files=2, where="region = 'r1'")
    )
    per_region = [file.partition[0] for file in files_of(table)]
    assert sorted(per_region) == ["r0"] * 4 + ["r1"]
    with pytest.raises(InvalidExpressionError):
        plan_compaction(
            table.catalog, table.identifier, CompactionOptions(where="no_such_column = 1")
        )


def test_appends_beside_it_are_kept():
    table = small_files(lake_in_memory())
    plan = plan_compaction(table.catalog, table.identifier, EAGER)
    table.append(rows([999], region="r0"))
    expected = contents(table)
    result = execute_compaction(table.catalog, plan)
    assert result.stopped is None
    assert contents(table) == expected
    assert len(files_of(table)) == 3


def test_an_input_removed_beside_it_stops_it_and_the_removal_stands():
    """I9: a copy-on-write delete of a row in a file under compaction is not undone."""
    table = small_files(lake_in_memory())
    plan = plan_compaction(table.catalog, table.identifier, EAGER)
    table.delete("id = 13")
    expected = contents(table)
    result = execute_compaction(table.catalog, plan)
    assert result.stopped is not None
    assert result.added_files == 0
    assert contents(table) == expected
    assert take_census(table.catalog, table.identifier).unreachable == frozenset()


def test_a_position_delete_made_beside_it_survives():
    table = small_files(lake_in_memory())
    plan = plan_compaction(table.catalog, table.identifier, EAGER)
    victim = files_of(table)[0]
    table.transaction().row_delta((), [position_delete(table, victim, [0, 1])]).commit()
    expected = contents(table)
    assert sum(expected.values()) == 78
    result = execute_compaction(table.catalog, plan)
    assert result.stopped is not None
    assert contents(table) == expected


def test_an_equality_delete_made_beside_it_survives():
    table = small_files(lake_in_memory())
    plan = plan_compaction(table.catalog, table.identifier, EAGER)
    victim = next(file for file in files_of(table) if file.partition == ("r0",))
    table.transaction().row_delta((), [equality_delete(table, victim, [0, 1, 20])]).commit()
    expected = contents(table)
    assert sum(expected.values()) == 77
    execute_compaction(table.catalog, plan)
    assert contents(table) == expected


def test_deletes_are_applied_and_leave_with_their_files():
    table = small_files(lake_in_memory())
    by_region = {}
    for file in files_of(table):
        by_region.setdefault(file.partition[0], []).append(file)
    deletes = [
        position_delete(table, by_region["r0"][0], [3, 4]),
        equality_delete(table, by_region["r1"][0], [10, 30]),
    ]
    table.refresh().transaction().row_delta((), deletes).commit()
    expected = contents(table)
    assert sum(expected.values()) == 76
    result = compact(table.catalog, table.identifier, EAGER)
    assert result.removed_delete_files == 2
    assert contents(table) == expected
    assert all(not task.deletes for task in table.scan().plan().tasks)
    assert sum(file.record_count for file in files_of(table)) == 76


def test_a_delete_that_still_applies_elsewhere_stays():
    table = small_files(lake_in_memory())
    in_r0 = [file for file in files_of(table) if file.partition == ("r0",)]
    table.refresh().transaction().row_delta(
        (), [equality_delete(table, in_r0[0], [0, 20, 40, 60])]
    ).commit()
    expected = contents(table)
    options = CompactionOptions(min_input_files=1, where="id < 5", delete_ratio_threshold=0.1)
    result = compact(table.catalog, table.identifier, options)
    assert (result.rewritten_files, result.removed_delete_files) == (1, 0)
    assert contents(table) == expected


def test_rows_that_are_all_deleted_leave_no_file():
    table = events(lake_in_memory())
    table.append(rows(range(3), region="r0"))
    (only,) = files_of(table)
    table.transaction().row_delta((), [position_delete(table, only, [0, 1, 2])]).commit()
    result = compact(table.catalog, table.identifier)
    assert (result.rewritten_files, result.added_files) == (1, 0)
    assert contents(table) == {}


def test_old_specs_become_the_current_one():
    table = small_files(lake_in_memory())
    expected = contents(table)
    with table.update_partition_spec() as change:
        change.replace("region", "bucket(2, id)")
    compact(table.catalog, table.identifier, EAGER)
    assert {file.spec_id for file in files_of(table)} == {table.metadata.default_spec_id}
    assert contents(table) == expected


def test_old_schemas_become_the_current_one():
    table = small_files(lake_in_memory(), count=4)
    with table.update_schema() as change:
        change.add_column("device", "string")
        change.rename_column("amount", "price")
    compact(table.catalog, table.identifier, EAGER)
    assert len(files_of(table)) == 2
    found = table.refresh().scan().to_arrow()
    assert found.column_names == ["id", "region", "price", "device"]
    assert sorted(found["price"].to_pylist()) == [float(one) for one in range(40)]
    assert found["device"].null_count == 40


def test_partial_progress_commits_group_by_group_and_keeps_what_was_done():
    table = events(lake_in_memory())
    for number in range(9):
        table.append(rows([number, number + 100], region=f"r{number % 3}"))
    plan = plan_compaction(
        table.catalog, table.identifier, CompactionOptions(min_input_files=2, groups_per_commit=1)
    )
    assert len(plan.groups) == 3
    second = plan.groups[1].partition[0]
    table.delete(f"region = '{second}' and id < 100")
    expected = contents(table)
    result = execute_compaction(table.catalog, plan)
    assert (len(result.snapshot_ids), result.rewritten_files) == (1, 3)
    assert "2 of 3 groups" in result.stopped
    assert contents(table) == expected
    finished = compact(table.catalog, table.identifier, EAGER)
    assert finished.stopped is None
    assert contents(table) == expected


def test_every_batch_commits_on_a_quiet_table():
    table = events(lake_in_memory())
    for number in range(9):
        table.append(rows([number], region=f"r{number % 3}"))
    expected = contents(table)
    result = compact(
        table.catalog, table.identifier, CompactionOptions(min_input_files=2, groups_per_commit=1)
    )
    assert (len(result.snapshot_ids), result.stopped) == (3, None)
    assert contents(table) == expected


def test_recent_partitions_are_left_alone():
    table = small_files(lake_in_memory())
    options = CompactionOptions(min_input_files=2, skip_newer_than_ms=3_600_000)
    assert plan_compaction(table.catalog, table.identifier, options).groups == ()
    assert (
        len(
            plan_compaction(table.catalog, table.identifier, options, environment=at(days=1)).groups
        )
        == 2
    )


def test_a_read_error_leaves_no_new_file_and_no_commit():
    table = small_files(lake_in_memory())
    plan = plan_compaction(table.catalog, table.identifier, EAGER)
    before = take_census(table.catalog, table.identifier)
    victim = plan.groups[-1].files[-1].file_path.rsplit("/", 1)[-1]
    with pytest.raises(StorageError, match="EIO"):
        execute_compaction(FailingCatalog(table.catalog, [victim], StorageError("EIO")), plan)
    assert take_census(table.catalog, table.identifier) == before


def test_large_files_are_split():
    table = events(lake_in_memory(), partition_by=())
    table.append(rows(range(200_000)))
    expected = contents(table)
    (only,) = files_of(table)
    target = only.file_size_in_bytes // 4
    compact(table.catalog, table.identifier, CompactionOptions(target_file_size_bytes=target))
    assert 2 <= len(files_of(table)) <= 8
    assert contents(table) == expected


def test_sorted_tables_stay_sorted():
    table = events(lake_in_memory(), partition_by=(), sort_by=["id"])
    for start in (50, 10, 90, 30):
        table.append(rows(range(start, start + 10)))
    compact(table.catalog, table.identifier, EAGER)
    (only,) = files_of(table)
    assert only.sort_order_id == table.metadata.default_sort_order_id
    found = table.scan().to_arrow()["id"].to_pylist()
    assert found == sorted(found)


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["append", "delete", "overwrite", "compact", "beside"]),
            st.integers(0, 40),
        ),
        min_size=3,
        max_size=12,
    )
)
def test_rows_under_random_operations(steps):
    """I9 against a model that is a plain multiset of rows."""
    table = events(lake_in_memory())
    model = {}
    serial = 0
    for step, value in steps:
        if step == "append":
            table.append(rows([serial, serial + 1], region=f"r{value % 2}"))
            model |= dict.fromkeys((serial, serial + 1), f"r{value % 2}")
            serial += 2
        elif step == "delete":
            table.refresh().delete(f"id = {value}")
            model.pop(value, None)
        elif step == "overwrite":
            region = f"r{value % 2}"
            table.refresh().overwrite(rows([serial], region=region), where=f"region = '{region}'")
            model = {one: where for one, where in model.items() if where != region} | {
                serial: region
            }
            serial += 1
        elif step == "compact":
            assert compact(table.catalog, table.identifier, EAGER).stopped is None
        else:
            plan = plan_compaction(table.catalog, table.identifier, EAGER)
            table.refresh().delete(f"id < {value % 7}")
            model = {one: where for one, where in model.items() if one >= value % 7}
            execute_compaction(table.catalog, plan)
        assert contents(table) == {(one, where, float(one)): 1 for one, where in model.items()}
    assert take_census(table.catalog, table.identifier).missing == frozenset()


def with_lineage(table):
    """Rows with the row lineage columns of v3."""
    table.refresh()
    lineage = (METADATA_COLUMNS["_row_id"], METADATA_COLUMNS["_last_updated_sequence_number"])
    request = ReadRequest(schema=Schema(*table.schema().fields, *lineage))
    return sorted(
        tuple(row.values())
        for row in read_table(table.scan().plan().tasks, request, table.storage).to_pylist()
    )


def test_rows_keep_their_lineage_in_v3():
    table = small_files(lake_in_memory(), count=4, format_version=3)
    before = with_lineage(table)
    assert len({row[-2] for row in before}) == 40
    compact(table.catalog, table.identifier, EAGER)
    assert with_lineage(table) == before
    table.append(rows([999], region="r0"))
    before = with_lineage(table)
    compact(table.catalog, table.identifier, EAGER)
    assert with_lineage(table) == before


def test_deletion_vectors_that_share_a_file_leave_one_by_one():
    """I10: of two vectors in one Puffin file, only the one of the rewritten data file goes."""
    table = small_files(lake_in_memory(), count=2, format_version=3)
    deletes = [FileDeletes(data_file=file, positions=[0, 1, 2, 3, 4]) for file in files_of(table)]
    written = write_deletes(deletes, table.write_request(), table.storage)
    assert len({file.file_path for file in written}) == 1
    table.transaction().row_delta((), written).commit()
    expected = contents(table)
    assert sum(expected.values()) == 10
    result = compact(table.catalog, table.identifier, CompactionOptions(where="region = 'r0'"))
    assert (result.rewritten_files, result.removed_delete_files) == (1, 1)
    assert contents(table) == expected
    expire_snapshots(table.catalog, table.identifier, ExpiryOptions(older_than_ms=1 << 62))
    assert contents(table) == expected
    assert compact(table.catalog, table.identifier).removed_delete_files == 1
    expire_snapshots(table.catalog, table.identifier, ExpiryOptions(older_than_ms=1 << 62))
    assert contents(table) == expected
    assert not any(
        key.endswith(".puffin") for key in take_census(table.catalog, table.identifier).present
    )


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_during_the_swap_removes_nothing(monkeypatch, interrupt):
    """Ctrl-C, or Dagster ending the run, during the commit: it may have landed, as here."""
    lake = lake_in_memory()
    table = small_files(lake)
    before = contents(table)
    plan = plan_compaction(lake.catalog, table.identifier, EAGER)
    commit = type(lake.catalog).commit

    def interrupted(*arguments):
        commit(*arguments)
        raise interrupt

    monkeypatch.setattr(type(lake.catalog), "commit", interrupted)
    with pytest.raises(interrupt):
        execute_compaction(lake.catalog, plan)
    monkeypatch.undo()
    assert len(files_of(table)) == 2
    assert contents(table) == before
