"""Procedures, and tables that are made or made anew with their first rows."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, PySparkException

from lakehouse.storage.location import local_path
from tests.integration.spark_support import lake, session, sql

__all__ = ["lake", "session", "sql"]

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def namespace(sql):
    sql("CREATE NAMESPACE lake.raw")


@pytest.fixture
def table(sql, lake):
    sql("CREATE TABLE lake.raw.rows (id BIGINT, k STRING)")
    for number in (1, 2, 3):
        sql(f"INSERT INTO lake.raw.rows VALUES ({number}, 'k{number}')")
    return lake.load_table("raw.rows")


def test_tables_come_with_their_first_rows_or_not_at_all(sql, lake, tmp_path):
    sql("CREATE TABLE lake.raw.made PARTITIONED BY (bucket(2, id)) AS SELECT 1L AS id, 'a' AS k")
    assert sql("SELECT * FROM lake.raw.made") == [(1, "a")]
    files = set(tmp_path.rglob("*.parquet"))
    for text in (
        "CREATE TABLE lake.raw.failed AS SELECT CAST(raise_error('no') AS INT) AS x",
        "CREATE OR REPLACE TABLE lake.raw.made AS SELECT CAST(raise_error('no') AS INT) AS x",
    ):
        with pytest.raises(PySparkException, match="no"):
            sql(text)
    assert sql("SHOW TABLES IN lake.raw") == [("raw", "made", False)]
    assert sql("SELECT * FROM lake.raw.made") == [(1, "a")]
    assert set(tmp_path.rglob("*.parquet")) == files
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        sql("CREATE TABLE lake.raw.made AS SELECT 1 AS x")


def test_a_replaced_table_keeps_its_history(sql, lake, spark):
    sql("CREATE TABLE lake.raw.made PARTITIONED BY (bucket(2, id)) AS SELECT 1L AS id, 'a' AS k")
    before = lake.load_table("raw.made")
    sql(
        "CREATE OR REPLACE TABLE lake.raw.made PARTITIONED BY (z) TBLPROPERTIES ('a' = 'b') "
        "AS SELECT id + 10 AS k, 'z' AS z FROM lake.raw.made"
    )
    assert sql("SELECT * FROM lake.raw.made") == [(11, "z")]
    after = lake.load_table("raw.made")
    assert after.metadata.table_uuid == before.metadata.table_uuid
    assert after.properties["a"] == "b"
    assert [field.name for field in after.spec().fields] == ["z"]
    first = after.snapshots()[0].snapshot_id
    assert sql(f"SELECT * FROM lake.raw.made VERSION AS OF {first}") == [(1, "a")]
    sql("REPLACE TABLE lake.raw.made (q INT)")
    assert sql("SELECT * FROM lake.raw.made") == []
    spark.range(2).writeTo("lake.raw.made").createOrReplace()
    assert sql("SELECT * FROM lake.raw.made ORDER BY id") == [(0,), (1,)]


def test_history_is_moved(sql, table):
    first, second, third = (one.snapshot_id for one in table.snapshots())
    call = "CALL lake.system."
    assert sql(f"{call}rollback_to_snapshot('raw.rows', {second})") == [(third, second)]
    assert sql("SELECT count(*) FROM lake.raw.rows") == [(2,)]
    assert sql(f"{call}set_current_snapshot(table => 'lake.raw.rows', snapshot_id => {third})") == [
        (second, third)
    ]
    assert sql(f"{call}set_current_snapshot(table => 'raw.rows', ref => 'main')") == [
        (third, third)
    ]
    assert [row[0] for row in sql(f"{call}ancestors_of('raw.rows')")] == [third, second, first]
    assert sql(f"{call}rollback_to_timestamp('raw.rows', TIMESTAMP '2100-01-01 00:00:00')") == [
        (third, third)
    ]
    assert sql(f"{call}create_changelog_view(table => 'raw.rows', changelog_view => 'came')") == [
        ("came",)
    ]
    assert sql("SELECT id, _change_type FROM came ORDER BY id") == [
        (1, "INSERT"),
        (2, "INSERT"),
        (3, "INSERT"),
    ]
    sql(f"{call}rollback_to_snapshot('raw.rows', {first})")
    table.refresh().create_branch("audit")
    sql("INSERT INTO lake.raw.rows.branch_audit VALUES (9, 'audited')")
    head = table.refresh().refs()["audit"].snapshot_id
    assert sql(f"{call}cherrypick_snapshot('raw.rows', {head})") == [(head, head)]
    sql("INSERT INTO lake.raw.rows.branch_audit VALUES (10, 'audited')")
    head, before = table.refresh().refs()["audit"].snapshot_id, head
    assert sql(f"{call}fast_forward('raw.rows', 'main', 'audit')") == [("main", before, head)]
    place = table.refresh().metadata_location
    sql("DROP TABLE lake.raw.rows")
    again = f"{call}register_table(table => 'raw.again', metadata_file => '{place}')"
    assert sql(again) == [(head, 3, 3)]
    assert sql("SELECT count(*) FROM lake.raw.again") == [(3,)]


def test_branches_and_tags_come_and_go(sql, table):
    first, second, third = (one.snapshot_id for one in table.snapshots())
    call = "CALL lake.system."
    assert sql(f"{call}create_branch('raw.rows', 'audit')") == [("audit", third)]
    assert sql(f"{call}create_tag('raw.rows', 'v1', snapshot_id => {first})") == [("v1", first)]
    assert sql("SELECT count(*) FROM lake.raw.rows.tag_v1") == [(1,)]
    kept = "snapshot_id => {}, if_not_exists => true"
    assert sql(f"{call}create_tag('raw.rows', 'v1', {kept.format(second)})") == [("v1", first)]
    replaced = (
        f"{call}create_branch('raw.rows', 'audit', snapshot_id => {second}, replace => true, "
        "max_ref_age_ms => 86400000, min_snapshots_to_keep => 3, max_snapshot_age_ms => 1000)"
    )
    assert sql(replaced) == [("audit", second)]
    branch = table.refresh().refs()["audit"]
    assert (branch.snapshot_id, branch.max_ref_age_ms, branch.min_snapshots_to_keep) == (
        second,
        86_400_000,
        3,
    )
    for text, told in {
        "create_tag('raw.rows', 'v1')": "already",
        "create_tag('raw.rows', 'audit', replace => true)": "is a branch",
        "create_tag('raw.rows', 'v9', snapshot_id => 7)": "7",
        "drop_branch('raw.rows', 'v1')": "is a tag",
        "drop_tag('raw.rows', 'v9')": "v9",
    }.items():
        with pytest.raises(PySparkException, match=told):
            sql(call + text)
    assert sql(f"{call}drop_tag('raw.rows', 'v9', if_exists => true)") == []
    assert sql(f"{call}drop_tag('raw.rows', 'v1')") == [("v1", first)]
    assert sql(f"{call}drop_branch('raw.rows', 'audit')") == [("audit", second)]
    assert list(table.refresh().refs()) == ["main"]


def test_partition_fields_order_and_identifier_fields_change(sql, lake):
    sql(
        "CREATE TABLE lake.raw.laid (id BIGINT NOT NULL, ts TIMESTAMP, kind STRING) "
        "PARTITIONED BY (truncate(kind, 2))"
    )
    call = "CALL lake.system."
    days = ("ts_day", "day", "ts")
    first = ("kind_trunc", "truncate[2]", "kind")
    assert sql(f"{call}add_partition_field('raw.laid', 'days(ts)')") == [first, days]
    named = ("by_id", "bucket[8]", "id")
    added = sql(f"{call}add_partition_field('raw.laid', field => 'bucket(8, id)', name => 'by_id')")
    assert added == [first, days, named]
    assert sql(f"{call}drop_partition_field('raw.laid', 'truncate(kind, 2)')") == [days, named]
    assert sql(f"{call}replace_partition_field('raw.laid', 'ts_day', by => 'hours(ts)')") == [
        named,
        ("ts_hour", "hour", "ts"),
    ]
    assert sql(f"{call}write_ordered_by('raw.laid', 'kind DESC NULLS LAST, bucket(4, id)')") == [
        ("identity", "kind", "desc", "nulls-last"),
        ("bucket[4]", "id", "asc", "nulls-first"),
    ]
    mode = "write.distribution-mode"
    assert lake.load_table("raw.laid").properties[mode] == "range"
    assert len(sql(f"{call}write_locally_ordered_by('raw.laid', 'id')")) == 1
    assert lake.load_table("raw.laid").properties[mode] == "none"
    assert sql(f"{call}write_distributed_by_partition('raw.laid')") == []
    assert lake.load_table("raw.laid").properties[mode] == "hash"
    assert sql(f"{call}write_unordered('raw.laid')") == []
    assert lake.load_table("raw.laid").properties[mode] == "none"
    assert sql(f"{call}set_identifier_fields('raw.laid', array('id'))") == [("id",)]
    assert lake.load_table("raw.laid").schema().identifier_field_names() == {"id"}
    for text, told in {
        "drop_identifier_fields('raw.laid', array('kind'))": "no identifier field",
        "set_identifier_fields('raw.laid', array('kind'))": "kind",
        "add_partition_field('raw.laid', 'fib(id)')": "fib",
        "drop_partition_field('raw.laid', 'nope')": "nope",
        "write_ordered_by('raw.laid', 'nope')": "nope",
    }.items():
        with pytest.raises(PySparkException, match=told):
            sql(call + text)
    assert sql(f"{call}drop_identifier_fields('raw.laid', array('id'))") == []
    sql("INSERT INTO lake.raw.laid VALUES (1, TIMESTAMP '2026-06-01 12:00:00', 'k')")
    assert sql("SELECT _partition.by_id IS NULL, id FROM lake.raw.laid") == [(False, 1)]


def test_tables_are_tidied_up(sql, table, lake):
    call = "CALL lake.system."
    rewritten = sql(
        f"{call}rewrite_data_files(table => 'raw.rows', strategy => 'sort', sort_order => 'id "
        "desc', options => map('rewrite-all', 'true'))"
    )
    assert (rewritten[0][0], rewritten[0][1], rewritten[0][3]) == (3, 1, 0)
    assert sql("SELECT id FROM lake.raw.rows") == [(3,), (2,), (1,)]
    assert len(sql(f"{call}rewrite_manifests('raw.rows')")) == 1
    deleted = sql(
        f"{call}expire_snapshots(table => 'raw.rows', older_than => TIMESTAMP '2100-01-01 "
        "00:00:00', retain_last => 1)"
    )
    assert deleted[0][0] == 3
    assert sql("SELECT count(*) FROM lake.raw.rows.snapshots") == [(1,)]
    assert sql(f"{call}remove_orphan_files(table => 'raw.rows', dry_run => true)") == []
    (statistics,) = sql(f"{call}compute_table_stats(table => 'raw.rows', columns => array('id'))")
    assert statistics[0].endswith(".stats")
    assert dict(sql(f"{call}health('raw.rows')"))
    assert dict(sql(f"{call}advise('raw.rows')"))
    sql(
        "CREATE TABLE spark_catalog.default.old (id BIGINT, k STRING) USING parquet "
        f"LOCATION '{lake.warehouse}/old'"
    )
    try:
        sql("INSERT INTO spark_catalog.default.old VALUES (7, 'old')")
        sql(f"{call}add_files(table => 'raw.rows', source_table => 'spark_catalog.default.old')")
    finally:
        sql("DROP TABLE spark_catalog.default.old")
    assert sql("SELECT count(*) FROM lake.raw.rows") == [(4,)]


def test_partitions_are_counted(sql, lake):
    sql("CREATE TABLE lake.raw.parts (id BIGINT, p STRING) PARTITIONED BY (p)")
    call = "CALL lake.system.compute_partition_stats"
    assert sql(f"{call}('raw.parts')") == []
    sql("INSERT INTO lake.raw.parts VALUES (1, 'a'), (2, 'a'), (3, NULL)")
    snapshot_id = lake.load_table("raw.parts").current_snapshot().snapshot_id
    sql("INSERT INTO lake.raw.parts VALUES (4, 'b')")
    ((location,),) = sql(f"{call}(table => 'raw.parts', snapshot_id => {snapshot_id})")
    found = pq.read_table(local_path(location)).to_pylist()
    assert [(one["partition"]["p"], one["total_record_count"]) for one in found] == [
        (None, 1),
        ("a", 2),
    ]


def test_deletes_are_applied_under_options_of_iceberg(sql):
    sql(
        "CREATE TABLE lake.raw.marked (id BIGINT) "
        "TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')"
    )
    sql("INSERT INTO lake.raw.marked SELECT * FROM range(0, 9, 1, 1)")
    sql("DELETE FROM lake.raw.marked WHERE id = 4")
    listed = "SELECT pos FROM lake.raw.marked.position_deletes"
    assert sql(listed) == [(4,)]
    options = (
        "map('rewrite-all', 'true', 'min-input-files', '2', 'partial-progress.enabled', 'true')"
    )
    ((removed, *_),) = sql(
        f"CALL lake.system.rewrite_position_delete_files('raw.marked', {options}, 'id < 100')"
    )
    assert removed == 1
    assert sql(listed) == []
    assert sql("SELECT count(*) FROM lake.raw.marked") == [(8,)]


def test_changes_are_bounded_by_times(sql, table):
    first, second, third = (one.timestamp_ms for one in table.refresh().snapshots())
    for start, end, ids in (
        (None, None, [1, 2, 3]),
        (first, None, [2, 3]),
        (first - 1, second, [1, 2]),
        (first + 0, third - 1, [2]),
        (third, third, []),
    ):
        told = {"start": start, "end": end}
        options = ", ".join(f"'{k}-timestamp', '{v}'" for k, v in told.items() if v is not None)
        sql(
            "CALL lake.system.create_changelog_view(table => 'raw.rows', changelog_view => 'seen'"
            + (f", options => map({options}))" if options else ")")
        )
        assert sql("SELECT id FROM seen ORDER BY id") == [(one,) for one in ids]


def test_orphans_are_looked_for_in_one_folder(sql, table):
    folder = local_path(table.metadata.location)
    for where in ("data", "metadata"):
        path = Path(folder, where, "lost.parquet")
        path.write_bytes(b"x")
        os.utime(path, (1, 1))
    call = "CALL lake.system.remove_orphan_files"
    found = sql(f"{call}('raw.rows', NULL, '{table.metadata.location}/data', true)")
    assert [one.rpartition("/data/")[2] for (one,) in found] == ["lost.parquet"]
    assert len(sql(f"{call}('raw.rows', NULL, '{table.metadata.location}/data')")) == 1
    left = sql(f"{call}(table => 'raw.rows', dry_run => true)")
    assert [one.rpartition("/metadata/")[2] for (one,) in left] == ["lost.parquet"]


def test_calls_that_cannot_be_done_say_why(sql, table):
    for text, told in {
        "nope('x')": "FAILED_TO_LOAD_ROUTINE",
        "rollback_to_snapshot('raw.rows', 1)": "1",
        "rollback_to_snapshot('raw.nope', 1)": "raw.nope",
        "rewrite_data_files(table => 'raw.rows', options => map('nope', '1'))": "no option 'nope'",
        "rewrite_data_files(table => 'raw.rows', strategy => 'magic')": "binpack or sort",
        "rewrite_position_delete_files('raw.rows', map('nope', '1'))": "no option 'nope'",
        "remove_orphan_files(table => 'raw.rows', location => '/tmp')": "not in the folder",
        "create_changelog_view('raw.rows', 'seen', map('end-timestamp', '1'))": "at or before",
        "create_changelog_view(table => 'raw.rows', options => map('end-timestamp', '1', "
        "'end-snapshot-id', '1'))": "one a bound",
        "set_current_snapshot('raw.rows')": "snapshot_id or ref",
        "set_current_snapshot(table => 'raw.rows', ref => 'no')": "no branch or tag 'no'",
        "rollback_to_timestamp('raw.rows', TIMESTAMP '2000-01-01 00:00:00')": "no snapshot",
    }.items():
        with pytest.raises(PySparkException, match=told):
            sql(f"CALL lake.system.{text}")


@pytest.mark.parametrize(
    ("call", "told"),
    {
        "rollback_to_timestamp('raw.rows', timestamp_micros(9223372036854775807))": "years 1 to",
        "expire_snapshots('raw.rows', TIMESTAMP '290000-01-01 00:00:00')": "older_than.*9999",
        "remove_orphan_files('raw.rows', timestamp_micros(-9223372036854775807))": "years 1 to",
        "expire_snapshots(table => 'raw.rows', snapshot_ids => array(NULL))": "must not hold null",
        "set_identifier_fields('raw.rows', array('id', NULL))": "fields must not hold null",
        "compute_table_stats(table => 'raw.rows', columns => array(NULL))": "must not hold null",
        "rewrite_data_files(table => 'raw.rows', options => map('rewrite-all', NULL))": "hold null",
        "rewrite_data_files(table => 'raw.rows', options => map('min-input-files', 'x'))": (
            "option min-input-files is a number, not 'x'"
        ),
        "rewrite_position_delete_files('raw.rows', map('max-file-group-size-bytes', '1e3'))": (
            "is a number, not '1e3'"
        ),
        "create_changelog_view(table => 'raw.rows', options => map('start-snapshot-id', 'x'))": (
            "start-snapshot-id is a number"
        ),
        "create_changelog_view(table => 'raw.rows', options => map('end-timestamp', 'x'))": (
            "end-timestamp is a number"
        ),
        "create_changelog_view(table => 'raw.rows', identifier_columns => array(NULL))": "null",
    }.items(),
)
def test_arguments_that_cannot_be_are_told(sql, table, call, told):
    with pytest.raises(PySparkException, match=f"InvalidInputError: .*{told}"):
        sql(f"CALL lake.system.{call}")
    assert len(table.refresh().snapshots()) == 3


def test_a_table_is_staged_for_another_place(sql, table):
    """The columns are Iceberg's; the list says of each file where it goes."""
    call = "CALL lake.system.rewrite_table_path(table => 'raw.rows', "
    call += f"source_prefix => '{table.location}', target_prefix => 's3://new/rows'"
    ((latest, listed, manifests, deletes),) = sql(f"{call})")
    assert latest == Path(table.metadata_location).name
    lines = Path(local_path(listed)).read_text().splitlines()
    assert all(",s3://new/rows/" in line for line in lines)
    assert (manifests, deletes) == (3, 0)
    assert sql(f"{call}, create_file_list => false)")[0][1] == "N/A"


@pytest.mark.parametrize(
    ("procedure", "argument"),
    [
        ("rewrite_manifests", "sort_by => array('id')"),
        ("expire_snapshots", "clean_expired_metadata => true"),
        ("remove_orphan_files", "file_list_view => 'files'"),
    ],
)
def test_arguments_that_are_not_honoured_are_refused_by_name(sql, table, procedure, argument):
    with pytest.raises(PySparkException, match=f"no {argument.partition(' ')[0]} here"):
        sql(f"CALL lake.system.{procedure}(table => 'raw.rows', {argument})")
