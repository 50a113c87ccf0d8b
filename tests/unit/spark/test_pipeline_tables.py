"""What waits for the rows of a pipeline's query, without a JVM. Who asks is what Java would tell.

The queries of these tests give no rows, so their commits are of the operation `delete`.
"""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import UnsupportedFeatureError, ValidationConflictError
from lakehouse.spark.catalog.lake_answers import LakeAnswers
from lakehouse.spark.catalog.pipeline_tables import PipelineTables
from lakehouse.spark.writing.writable_table import WritableTableAnswers

ROWS = pa.table({"id": [1, 2]})
MANAGER, QUERY, STREAM = "DatasetManager", "BatchTableWrite", "StreamingTableWrite"
SPARK = SimpleNamespace(
    version="4",
    sparkContext=SimpleNamespace(applicationId="app"),
    conf=SimpleNamespace(get=lambda _key, default=None: default),
)


def asked(pipeline, **more):
    return {"namespace": ["raw"], "name": "view", "pipeline": pipeline, **more}


@pytest.fixture
def lake(tmp_path):
    return lh.load_catalog(f"file://{tmp_path}")


@pytest.fixture
def pipelines():
    return PipelineTables(lambda: SPARK)


def load(lake, pipelines, caller):
    """A table as somebody gets it: answers."""
    table = lake.load_table("raw.view")
    found = pipelines.answers(asked(caller, inserts=True), table, "main", by_workers=False)
    return found or WritableTableAnswers(lambda: SPARK, table.name, table, "main", by_workers=False)


def refresh(answers, inputs):
    """A query that gives no rows."""
    write = answers.write({"options": {}}, None)
    write.commit({"files": [], "inputs": inputs}, None)


def truncate(lake, pipelines, caller):
    load(lake, pipelines, caller).delete_where({"filters": "[]"}, None)


def state(lake):
    table = lake.load_table("raw.view")
    return table.scan().count(), [snapshot.operation for snapshot in table.metadata.snapshots]


def view(lake, *, is_view=True):
    properties = {"lakehouse.pipelines.view": "true"} if is_view else {}
    lake.create_table("raw.view", ROWS.schema, properties=properties).append(ROWS)


ADDED = {
    "change": "AddColumn",
    "column": ["n"],
    "type": '"long"',
    "nullable": True,
    "comment": None,
    "default": None,
}


def test_only_a_pipeline_has_a_view_truncated_later(lake, pipelines):
    view(lake)
    truncate(lake, pipelines, MANAGER)
    assert state(lake) == (2, ["append"])
    truncate(lake, pipelines, None)
    assert state(lake) == (0, ["append", "delete"])


def test_a_streaming_table_is_truncated_at_once(lake, pipelines):
    view(lake, is_view=False)
    truncate(lake, pipelines, MANAGER)
    assert state(lake) == (0, ["append", "delete"])


def test_what_a_pipeline_asked_for_comes_with_the_rows_and_once(lake, pipelines):
    view(lake)
    truncate(lake, pipelines, MANAGER)
    assert pipelines.alter(asked(MANAGER, changes=[ADDED]), lake.load_table("raw.view"))
    load(lake, pipelines, QUERY)  # of an attempt that failed
    assert lake.load_table("raw.view").schema().column_names == ["id"]
    refresh(load(lake, pipelines, QUERY), {"raw.a": "7", "raw.b": None})
    table = lake.load_table("raw.view")
    assert state(lake) == (0, ["append", "delete"])
    assert table.schema().column_names == ["id", "n"]
    said = table.current_snapshot().summary["lakehouse.refresh-state"]
    assert said == '{"inputs": {"raw.a": "7", "raw.b": null}, "behind": []}'
    refresh(load(lake, pipelines, QUERY), {})
    assert lake.load_table("raw.view").schema().column_names == ["id", "n"]


def test_the_next_run_forgets_what_one_that_failed_had_asked(lake, pipelines):
    view(lake)
    truncate(lake, pipelines, MANAGER)
    pipelines.alter(asked(MANAGER, changes=[ADDED]), lake.load_table("raw.view"))
    truncate(lake, pipelines, MANAGER)
    refresh(load(lake, pipelines, QUERY), {})
    assert lake.load_table("raw.view").schema().column_names == ["id"]


def test_what_a_user_alters_is_altered_at_once(lake, pipelines):
    view(lake)
    truncate(lake, pipelines, MANAGER)
    assert not pipelines.alter(asked(None, changes=[ADDED]), lake.load_table("raw.view"))


def test_of_two_refreshes_one_wins(lake, pipelines):
    view(lake)
    first, second = (load(lake, pipelines, QUERY) for _ in range(2))
    refresh(first, {})
    with pytest.raises(ValidationConflictError):
        refresh(second, {})
    assert state(lake) == (0, ["append", "delete"])


def test_compaction_between_is_no_conflict(lake, pipelines):
    view(lake)
    lake.load_table("raw.view").append(ROWS)
    query = load(lake, pipelines, QUERY)
    lake.load_table("raw.view").compact(lh.CompactionOptions(rewrite_all=True))
    refresh(query, {})
    assert state(lake) == (0, ["append", "append", "replace", "delete"])


def test_a_view_that_becomes_a_streaming_table_is_emptied_for_it(lake, pipelines):
    view(lake)
    truncate(lake, pipelines, MANAGER)
    load(lake, pipelines, STREAM)
    assert state(lake) == (0, ["append", "delete"])
    assert "lakehouse.pipelines.view" not in lake.load_table("raw.view").properties


def test_a_new_table_is_seen_by_its_pipeline_alone(lake, pipelines):
    told = asked(MANAGER)
    assert pipelines.makes(told)
    pipelines.made(lake.create_table("raw.view", ROWS.schema, staged=True))
    assert pipelines.new_table(told) is not None
    assert pipelines.new_table(asked(None)) is None
    assert not pipelines.has_new_table(asked(None))
    assert pipelines.has_new_table(asked(STREAM))
    assert not lake.table_exists("raw.view")
    pipelines.new_table(asked(STREAM)).append(ROWS)
    assert state(lake) == (2, ["append"])


def test_a_new_table_of_a_run_that_failed_is_made_again(lake, pipelines):
    pipelines.made(lake.create_table("raw.view", ROWS.schema, staged=True))
    assert pipelines.new_table(asked(MANAGER)) is not None
    assert pipelines.new_table(asked(MANAGER)) is None  # the next run looks
    assert pipelines.new_table(asked(STREAM)) is None


def test_clustering_columns_are_refused(lake):
    told = asked(MANAGER, schema='{"type": "struct", "fields": []}', defaults={}, properties={})
    answers = LakeAnswers(lambda: SPARK, lake, "lake")
    with pytest.raises(UnsupportedFeatureError, match=r"lakehouse\.partition-by"):
        answers.create_table({**told, "partition_by": ["cluster_by(id)"]}, None)
    assert lake.list_tables() == []
