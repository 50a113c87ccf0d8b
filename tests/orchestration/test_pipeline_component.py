"""A pipeline of Spark as assets: the step around `spark-pipelines`, which is a stand-in here."""

from __future__ import annotations

import json

import dagster as dg
import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.orchestration.components import SparkPipelineComponent
from lakehouse.orchestration.resources import LakehouseResource
from lakehouse.orchestration.run_publication import PUBLISH_TAG

ROWS = pa.table({"x": [1]})
DATASETS = [
    {"name": "lake.raw.a", "kind": "materialized_view", "inputs": ["lake.raw.b"]},
    {"name": "lake.raw.b", "kind": "streaming_table", "inputs": ["lake.raw.landed"]},
    {"name": "lake.raw.v", "kind": "temporary_view", "inputs": []},
]
A, B = dg.AssetKey(["raw", "a"]), dg.AssetKey(["raw", "b"])


class StandIn(SparkPipelineComponent):
    """Appends to `writes`, then fails if it `fails`."""

    lake: lh.Lakehouse
    writes: tuple[str, ...] = ()
    fails = False
    asked: list[tuple[str, ...]]

    def _python(self, module, *arguments):
        self.asked.append(arguments)
        for name in self.writes:
            self.lake.load_table(name).append(ROWS)
        if self.fails:
            raise dg.Failure("planted")
        return ""


@pytest.fixture
def component(tmp_path):
    found = StandIn("spec.yml")
    found.lake = lh.load_catalog(f"file://{tmp_path}/warehouse")
    found.asked = []
    for name in ("raw.a", "raw.b"):
        found.lake.create_table(name, ROWS.schema).append(ROWS)
    state = [{"comment": "", "source": "x.py", **one} for one in DATASETS]
    (tmp_path / "state").write_text(json.dumps(state))
    return found


@pytest.fixture
def run(component, tmp_path):
    def materialize(**given):
        definitions = component.build_defs_from_state(None, tmp_path / "state")
        done = dg.materialize(
            list(definitions.assets),
            resources={"lakehouse": LakehouseResource(catalog=f"file://{tmp_path}/warehouse")},
            raise_on_error=False,
            **given,
        )
        return done.success, [one.asset_key for one in done.get_asset_materialization_events()]

    return materialize


def test_all_tables_in_the_order_of_their_inputs(component, run):
    assert run() == (True, [B, A])
    assert component.asked == [("run", "--spec", "spec.yml")]


def test_some_tables(component, run):
    assert run(selection=[A]) == (True, [A])
    component.execution_mode = "full_refresh"
    run(selection=[A])
    run()
    assert [asked[3:] for asked in component.asked] == [
        ("--refresh", "lake.raw.a"),
        ("--full-refresh", "lake.raw.a"),
        ("--full-refresh-all",),
    ]


def test_a_failure_tells_which_tables_changed(component, run):
    component.writes, component.fails = ("raw.b",), True
    assert run() == (False, [B])


def test_the_server_knows_no_branch_of_a_run(component, run):
    component.writes = ("raw.b",)
    assert run(tags={PUBLISH_TAG: "run"}) == (False, [])
    assert component.asked == []
    assert run(tags={PUBLISH_TAG: "step"}) == (True, [B, A])
