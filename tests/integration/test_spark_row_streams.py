"""Streams out of tables: new rows, or all changes, from where the checkpoint says.

Held fixed: one query at a time, which ends with what was there when it began. Varied: what is read,
limits, where the stream begins, the branch, what happens to the table between two runs.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import lakehouse as lh
from lakehouse.spark.reading.row_streams import RowStreamAnswers
from tests.integration.spark_support import lake, session

__all__ = ["lake", "session"]

pytestmark = pytest.mark.spark
SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string()})


@pytest.fixture
def table(lake, session):
    made = lake.create_table("raw.source", SCHEMA, partition_by=["bucket(2, id)"])
    for first in (0, 4):
        append(made, *range(first, first + 4))
    return made


def append(table, *ids, branch="main"):
    rows = pa.table({"id": ids, "name": [f"n{one}" for one in ids]}, schema=SCHEMA)
    return table.refresh().append(rows, branch=branch).snapshot_id


@pytest.fixture
def follows(spark, tmp_path):
    """Runs a stream to its end; gives what it got."""

    def run(source="lake.raw.source", into="raw.copy", **options):
        reader = spark.readStream.options(**options).table(source)
        writer = reader.writeStream.trigger(availableNow=True)
        checkpoint = str(tmp_path / f"checkpoint-{into}")
        query = writer.option("checkpointLocation", checkpoint).toTable(f"lake.{into}")
        query.awaitTermination()
        return [one["numInputRows"] for one in query.recentProgress]

    return run


def ids(lake, name="raw.copy"):
    return sorted(lake.load_table(name).scan().to_arrow()["id"].to_pylist())


def test_new_rows_come_in_batches_within_a_snapshot(lake, table, follows):
    assert follows(maxFilesPerTrigger=1) == [
        one.record_count
        for snapshot in table.refresh().metadata.snapshots
        for one in sorted(added(table, snapshot), key=lambda one: one.file_path)
    ]
    assert ids(lake) == list(range(8))
    append(table, 8, 9)
    table.refresh().compact(lh.CompactionOptions(rewrite_all=True))
    assert sum(follows()) == 2
    assert ids(lake) == list(range(10))


def test_progress_tells_how_far_the_stream_is_behind(spark, lake, table, tmp_path):
    table.refresh().compact(lh.CompactionOptions(rewrite_all=True))
    reader = spark.readStream.option("maxFilesPerTrigger", 2).table("lake.raw.source")
    writer = reader.writeStream.trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "c")).toTable("lake.raw.copy")
    query.awaitTermination()
    told = [one["sources"][0]["metrics"] for one in query.recentProgress]
    assert [one["snapshotsBehind"] for one in told] == ["1", "0"]
    assert float(told[0]["secondsBehind"]) > 0
    assert told[1]["secondsBehind"] == "0.000"


def added(table, snapshot):
    before = (
        set() if snapshot.parent_snapshot_id is None else paths(table, snapshot.parent_snapshot_id)
    )
    files = table.scan(snapshot_id=snapshot.snapshot_id).plan().files
    return [one for one in files if one.file_path not in before]


def paths(table, snapshot_id):
    return {one.file_path for one in table.scan(snapshot_id=snapshot_id).plan().files}


def test_a_run_ends_although_rows_go_on_to_come(lake, table, follows, monkeypatch):
    latest = RowStreamAnswers.latest

    def meanwhile(self, told, thing):
        append(table, 100)
        return latest(self, told, thing)

    monkeypatch.setattr(RowStreamAnswers, "latest", meanwhile)
    follows(maxFilesPerTrigger=1)
    assert ids(lake) == list(range(8))


def test_rows_that_go_end_a_stream_of_new_ones(lake, table, follows):
    follows()
    table.refresh().delete("id = 0")
    append(table, 8)
    with pytest.raises(StreamingQueryException, match=r"Read raw\.source\.changes"):
        follows()
    skipped = {"streaming-skip-delete-snapshots": "true"}
    skipped |= {"streaming-skip-overwrite-snapshots": "true"}
    follows(**skipped)
    assert ids(lake) == list(range(9))


def test_changes_are_those_of_the_library(spark, lake, table, follows):
    table.refresh().update({"name": "'x'"}, "id in (1, 2)")
    table.refresh().delete("id = 3")
    table.refresh().compact(lh.CompactionOptions(rewrite_all=True))
    with table.update_schema() as schema:
        schema.add_column("more", "int")
    follows("lake.raw.source.changes", "raw.changes", maxRowsPerTrigger=3)
    columns = ["id", "name", "_change_type", "_commit_snapshot_id"]
    expected = table.refresh().changelog().to_arrow().select(columns).to_pylist()
    found = lake.load_table("raw.changes").scan(select=columns).to_arrow().to_pylist()
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    at_once = spark.table("lake.raw.source.changes").select("_change_ordinal", *columns)
    streamed = spark.table("lake.raw.changes").select("_change_ordinal", *columns)
    assert sorted(at_once.collect(), key=repr) == sorted(streamed.collect(), key=repr)


@pytest.mark.parametrize("start", ["snapshot-id", "timestamp", "tag"])
def test_a_stream_begins_where_it_is_told(lake, table, follows, start):
    first, second = table.refresh().metadata.snapshots
    table.create_tag("begin", first.snapshot_id)
    points = {"snapshot-id": first.snapshot_id, "timestamp": second.timestamp_ms, "tag": "begin"}
    follows(**{f"stream-from-{start}": str(points[start])})
    assert ids(lake) == (
        [*range(8)] if first.timestamp_ms == second.timestamp_ms else [*range(4, 8)]
    )


def test_a_branch_is_followed(lake, table, follows):
    append(table, 50, branch="audit")
    follows(branch="audit")
    follows("lake.raw.source.branch_audit", "raw.other")
    assert ids(lake) == ids(lake, "raw.other") == [*range(8), 50]


def test_an_expired_start_is_told_or_passed_over(lake, table, follows):
    follows()
    append(table, 8)
    append(table, 9)
    append(table, 10)
    table.refresh().expire_snapshots(lh.ExpiryOptions(older_than_ms=2**50, retain_last=1))
    append(table, 11)
    with pytest.raises(StreamingQueryException, match=r"has expired.*failOnDataLoss"):
        follows()
    follows(failOnDataLoss="false")
    assert ids(lake) == [*range(8), 11]


def test_columns_that_change_while_it_runs(lake, table, follows, monkeypatch):
    """A new column is not seen; a wider type ends the query with a sentence."""
    latest, changed = RowStreamAnswers.latest, []

    def meanwhile(self, told, thing):
        if not changed:
            with table.refresh().update_schema() as schema:
                schema.add_column("more", "int")
        changed.append(told)
        return latest(self, told, thing)

    monkeypatch.setattr(RowStreamAnswers, "latest", meanwhile)
    follows()
    assert lake.load_table("raw.copy").schema().column_names == ["id", "name"]
    wide = lake.create_table("raw.wide", pa.schema({"id": pa.int32()}))
    wide.append(pa.table({"id": pa.array([1], pa.int32())}))

    def widened(self, told, thing):
        with wide.refresh().update_schema() as schema:
            schema.update_column("id", "long")
        return latest(self, told, thing)

    monkeypatch.setattr(RowStreamAnswers, "latest", widened)
    with pytest.raises(StreamingQueryException, match="id from int to long"):
        follows("lake.raw.wide", "raw.narrow")


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"maxFilesPerTrigger": "0"}, "a whole number from 1"),
        ({"stream-from-tag": "x"}, "has no tag x"),
        ({"stream-from-snapshot-id": "7"}, "is no snapshot in what is left"),
        ({"stream-from-tag": "x", "stream-from-timestamp": "1"}, "begins at one point"),
        ({"failOnDataLoss": "no"}, "is true or false"),
    ],
)
def test_an_option_that_says_nothing_is_refused(table, follows, options, refusal):
    with pytest.raises(StreamingQueryException, match=refusal):
        follows(**options)
