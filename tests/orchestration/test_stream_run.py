"""Streams as assets: what the asset's page is told of them.

Held fixed: a stand-in for Spark's query, which writes between two reports what the test says; the
true one runs in `tests/integration/test_spark_streams.py`.
"""

import json
from datetime import UTC, datetime
from types import SimpleNamespace

import dagster as dg
import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import InvalidInputError
from lakehouse.orchestration import LakehouseIOManager, LakehouseResource, run_stream
from lakehouse.orchestration.assets import stream_run
from lakehouse.orchestration.lineage.replay import replayed
from lakehouse.orchestration.lineage.trace import Lineage
from lakehouse.orchestration.run_publication import PUBLISH_TAG

ROWS = pa.table({"id": [1, 2]})
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


class StandIn:
    """A streaming frame, its writer and its query, whose batches each write a table, or nothing."""

    def __init__(self, lake, *batches):
        self.lake, self.batches, self.schema = lake, list(batches), ROWS.schema
        self.sparkSession, self.stopped, self.progress = None, False, None
        self.given, self.count = {}, 0
        self.writeStream = self

    def outputMode(self, mode):  # noqa: N802 - Spark's name
        self.given["mode"] = mode
        return self

    def options(self, **options):
        self.given |= options
        return self

    def toTable(self, name):  # noqa: N802 - Spark's name
        self.given["table"] = name
        return self

    def awaitTermination(self, _seconds):  # noqa: N802 - Spark's name
        if not self.batches:
            return True
        rows, behind = self.batches.pop(0)
        if rows:
            self.lake.load_table("raw.landed").append(ROWS)
        self.count += bool(rows)
        source = {"metrics": {"snapshotsBehind": str(behind), "secondsBehind": f"{behind}.5"}}
        told = {
            "batchId": self.count - 1,
            "numInputRows": rows,
            "durationMs": {"triggerExecution": 250},
            "sources": [source],
        }
        self.progress = SimpleNamespace(json=json.dumps(told))
        return False

    @property
    def lastProgress(self):  # noqa: N802 - Spark's name
        return self.progress

    def stop(self):
        self.stopped = True


@pytest.fixture
def streams(tmp_path, monkeypatch):
    monkeypatch.setattr(stream_run, "attach", lambda *_: None)
    catalog = f"file://{tmp_path}/warehouse"

    def run(*batches, metadata=None, **given):
        rows = StandIn(lh.load_catalog(catalog), *batches)

        @dg.asset(key_prefix="raw", metadata=metadata or {"write_mode": "append"})
        def landed(context: dg.AssetExecutionContext, lakehouse: LakehouseResource):
            yield from run_stream(context, lakehouse, rows, "/checkpoints/landed")

        resources = {"lakehouse": LakehouseResource(catalog=catalog)}
        done = dg.materialize([landed], resources=resources, raise_on_error=False, **given)
        return rows, done

    return run


def told(done):
    """Materializations and observations, in their order."""
    found = []
    for event in done.all_events:
        if event.is_step_materialization:
            found.append(("rows", event.step_materialization_data.materialization))
        elif event.event_type_value == "ASSET_OBSERVATION":
            found.append(("seen", event.asset_observation_data.asset_observation))
    return found


def test_rows_are_materializations_and_a_lag_is_an_observation(streams):
    metadata = {"write_mode": "append", "partition_by": "bucket(4, id)"}
    rows, done = streams((2, 3), (0, 0), (0, 2), (2, 0), metadata=metadata)
    found = told(done)
    assert [kind for kind, _ in found] == ["rows", "seen", "rows", "rows"]
    behind = [one.metadata["lakehouse/stream_snapshots_behind"].value for _, one in found]
    assert behind == [3, 2, 0, 0]
    assert [one.metadata["lakehouse/stream_batches"].value for _, one in found] == [1, 1, 2, 2]
    assert found[0][1].metadata["lakehouse/stream_checkpoint"].value == "/checkpoints/landed"
    table = rows.lake.load_table("raw.landed")
    assert [one.transform.__class__.__name__ for one in table.spec().fields] == ["BucketTransform"]
    ids = [one.snapshot_id for one in table.metadata.snapshots]
    versions = [one.tags["dagster/data_version"] for kind, one in found if kind == "rows"]
    assert versions == [str(ids[0]), str(ids[1]), str(ids[1])]
    assert rows.stopped
    assert rows.given["table"].endswith(".raw.landed")
    assert rows.given["snapshot-property.dagster.run-id"] == done.run_id


def test_an_upsert_is_update_mode_by_its_keys(streams):
    rows, done = streams(metadata={"write_mode": "upsert", "upsert_keys": ["id"]})
    assert done.success
    assert (rows.given["mode"], rows.given["merge-keys"]) == ("update", "id")


def test_what_cannot_be_a_stream_is_refused_and_nothing_is_made(streams):
    rows, done = streams(metadata={"x": "y"})
    assert "append, upsert or overwrite" in failure(done)
    assert not rows.lake.table_exists("raw.landed")
    rows, done = streams(tags={PUBLISH_TAG: "run"})
    assert f"{PUBLISH_TAG} = step" in failure(done)
    assert not rows.lake.table_exists("raw.landed")


def test_a_replay_does_not_begin_the_stream_again(tmp_path, monkeypatch):
    monkeypatch.setattr(stream_run, "attach", lambda *_: None)
    lake = lh.load_catalog(f"file://{tmp_path}/warehouse")
    rows = StandIn(lake)

    @dg.asset(key_prefix="raw", metadata={"write_mode": "append"})
    def landed(context: dg.AssetExecutionContext, lakehouse: LakehouseResource):
        yield from run_stream(context, lakehouse, rows, "/checkpoints/landed")

    lakehouse = LakehouseResource(catalog=f"file://{tmp_path}/warehouse")
    resources = {"lakehouse": lakehouse, "io_manager": LakehouseIOManager(lakehouse=lakehouse)}
    definitions = dg.Definitions(assets=[landed], resources=resources)
    recorded = Lineage("raw/landed", None, "raw.landed", "r", MOMENT, 1, "append", False, ())
    checkout = SimpleNamespace(defs=definitions, pipeline=SimpleNamespace(table_names=list))
    with pytest.raises(InvalidInputError, match="failed when it was replayed"):
        replayed(checkout, recorded, lake, None)
    assert not rows.given


def failure(done):
    return done.get_step_failure_events()[0].step_failure_data.user_failure_data.description
