"""Compaction by the table's policy, of branches, and of delete files without data files."""

from __future__ import annotations

import pytest

from lakehouse.errors import NoSuchRefError
from lakehouse.maintenance.compaction.compaction import compact, execute_compaction
from lakehouse.maintenance.compaction.compaction_plan import plan_compaction
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.maintenance.retention.snapshot_expiry import ExpiryOptions, expire_snapshots
from tests.integration.maintenance_support import contents, events, lake_in_memory, rows
from tests.integration.test_maintenance_compaction import (
    equality_delete,
    files_of,
    position_delete,
    small_files,
)
from tests.table_census import take_census

EAGER = CompactionOptions(min_input_files=2)
PREFIX = "lakehouse.maintenance."


def on_branch(table, name):
    head = table.refresh().metadata.ref(name).snapshot_id
    return contents(table, head), len(list(table.scan(snapshot_id=head).plan().files))


def test_the_policy_holds_where_nothing_else_is_asked():
    table = small_files(lake_in_memory())
    assert plan_compaction(table.catalog, table.identifier).groups == ()
    table.set_properties({PREFIX + "min-input-files": "2"})
    assert len(plan_compaction(table.catalog, table.identifier).groups) == 2
    table.set_properties({PREFIX + "small-file-bytes": "1"})
    assert plan_compaction(table.catalog, table.identifier).groups == ()


def test_a_budget_bounds_what_is_read_and_successive_runs_finish():
    table = small_files(lake_in_memory())
    expected = contents(table)
    per_partition = sum(file.file_size_in_bytes for file in files_of(table)) // 2
    options = CompactionOptions(min_input_files=2, budget_bytes=per_partition + 100)
    first = compact(table.catalog, table.identifier, options)
    assert 0 < first.rewritten_bytes <= options.budget_bytes
    assert first.rewritten_files == 4
    assert compact(table.catalog, table.identifier, options).rewritten_files == 4
    assert (len(files_of(table)), contents(table)) == (2, expected)
    assert (
        plan_compaction(
            table.catalog, table.identifier, CompactionOptions(budget_bytes=1, rewrite_all=True)
        ).groups
        == ()
    )


def test_a_branch_is_compacted_and_main_stays():
    table = small_files(lake_in_memory())
    table.create_branch("audit")
    table.transaction(branch="audit").delete_files([files_of(table)[0]]).commit()
    before, main = on_branch(table, "audit"), contents(table)
    assert (before[1], len(files_of(table))) == (7, 8)
    result = compact(
        table.catalog, table.identifier, CompactionOptions(min_input_files=2, branch="audit")
    )
    assert (result.rewritten_files, result.stopped) == (7, None)
    assert on_branch(table, "audit") == (before[0], 2)
    assert (contents(table), len(files_of(table))) == (main, 8)
    with pytest.raises(NoSuchRefError, match="nope"):
        plan_compaction(table.catalog, table.identifier, CompactionOptions(branch="nope"))


def test_a_branch_under_an_append_keeps_it():
    table = small_files(lake_in_memory())
    table.create_branch("audit")
    options = CompactionOptions(min_input_files=2, branch="audit")
    plan = plan_compaction(table.catalog, table.identifier, options)
    removed = files_of(table)[0]
    table.transaction(branch="audit").delete_files([removed]).commit()
    before = on_branch(table, "audit")
    result = execute_compaction(table.catalog, plan)
    assert result.stopped is not None
    assert on_branch(table, "audit") == before


def dangling_table():
    """A table whose delete files have outlived the data they apply to."""
    table = small_files(lake_in_memory(), count=4)
    r0 = [file for file in files_of(table) if file.partition == ("r0",)]
    r1 = [file for file in files_of(table) if file.partition == ("r1",)]
    deletes = [
        position_delete(table, r0[0], [1, 2]),
        equality_delete(table, r0[0], [3, 23]),
        equality_delete(table, r1[0], [10], "e1"),
    ]
    table.refresh().transaction().row_delta((), deletes).commit()
    table.refresh().transaction().delete_files(r0).commit()
    table.append(rows([500], region="r0"))
    return table


def test_delete_files_without_data_are_collected():
    table = dangling_table()
    expected = contents(table)
    assert expected[(500, "r0", 500.0)] == 1
    plan = plan_compaction(
        table.catalog,
        table.identifier,
        CompactionOptions(min_input_files=99, delete_ratio_threshold=99),
    )
    assert len(plan.dangling) == plan.to_dict()["dangling_delete_files"] == 2
    result = execute_compaction(table.catalog, plan)
    assert (result.removed_delete_files, result.stopped) == (len(plan.dangling), None)
    assert contents(table) == expected
    assert plan_compaction(table.catalog, table.identifier).dangling == ()
    expire_snapshots(table.catalog, table.identifier, ExpiryOptions(older_than_ms=1 << 62))
    assert contents(table) == expected
    census = take_census(table.catalog, table.identifier)
    assert census.missing == frozenset()
    assert not any(key.endswith("/pd.parquet") for key in census.present)


def test_with_everything_compacted_no_delete_file_is_left():
    table = dangling_table()
    expected = contents(table)
    result = compact(table.catalog, table.identifier, CompactionOptions(min_input_files=1))
    assert result.removed_delete_files == 3
    assert len(result.snapshot_ids) == 1
    assert contents(table) == expected
    assert plan_compaction(table.catalog, table.identifier).delete_uses == {}


def test_a_delete_committed_beside_the_collection_is_never_collected():
    table = dangling_table()
    plan = plan_compaction(
        table.catalog,
        table.identifier,
        CompactionOptions(min_input_files=99, delete_ratio_threshold=99),
    )
    victim = next(file for file in files_of(table) if file.partition == ("r0",))
    table.transaction().row_delta((), [equality_delete(table, victim, [500], "late")]).commit()
    expected = contents(table)
    assert (500, "r0", 500.0) not in expected
    execute_compaction(table.catalog, plan)
    assert contents(table) == expected


def test_a_filter_leaves_them():
    table = dangling_table()
    plan = plan_compaction(
        table.catalog, table.identifier, CompactionOptions(where="region = 'r1'")
    )
    assert plan.dangling == ()


def test_a_table_of_deletes_alone_becomes_empty():
    table = events(lake_in_memory())
    table.append(rows(range(3), region="r0"))
    (only,) = files_of(table)
    table.transaction().row_delta((), [position_delete(table, only, [0])]).commit()
    table.refresh().transaction().delete_files([only]).commit()
    result = compact(table.catalog, table.identifier)
    assert (result.rewritten_files, result.removed_delete_files) == (0, 1)
    assert contents(table) == {}


def test_an_equality_delete_of_a_dropped_column_is_applied():
    table = small_files(lake_in_memory(), count=2)
    victim = next(file for file in files_of(table) if file.partition == ("r0",))
    table.refresh().transaction().row_delta((), [equality_delete(table, victim, [0, 1])]).commit()
    with table.refresh().update_schema() as change:
        change.drop_column("id")
    expected = contents(table)
    assert sum(expected.values()) == 18
    assert compact(table.catalog, table.identifier).removed_delete_files == 1
    assert contents(table) == expected
