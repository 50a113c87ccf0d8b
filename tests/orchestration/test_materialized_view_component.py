"""Materialized views of a catalog as assets: the oracle of their rows is DuckDB."""

from __future__ import annotations

import json

import dagster as dg
import duckdb
import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import InvalidInputError, NotFoundError
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.orchestration import MaterializedView
from lakehouse.orchestration.assets.incremental import REFRESH_METADATA
from lakehouse.orchestration.components import MaterializedViewsComponent
from lakehouse.orchestration.lineage.materialization import INPUTS, SNAPSHOT_ID
from lakehouse.orchestration.lineage.replay import lineage
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark
from lakehouse.orchestration.run_publication import PUBLISH_TAG
from lakehouse.spec.metadata.snapshot import RUN_ID

SCHEMA = pa.schema({"user": pa.string(), "n": pa.int32()})
USERS = "SELECT user, count(*) AS events FROM raw.events GROUP BY user"
BEST = "SELECT max(events) AS most FROM marts.users_storage"
RAW, OF_USERS, OF_BEST = (
    dg.AssetKey(key) for key in (["raw", "events"], ["marts", "users"], ["marts", "best"])
)


@pytest.fixture
def place(tmp_path):
    return f"file://{tmp_path}/warehouse"


@pytest.fixture
def lake(place):
    made = lh.load_catalog(place)
    made.create_table("raw.events", SCHEMA).append(pa.table([["a", "a", "b"], [1, 2, 3]], SCHEMA))
    users = MaterializedView.create(made, "marts.users", USERS, refresh="incremental")
    users.refresh()
    MaterializedView.create(made, "marts.best", BEST, refresh="full")
    made.create_view("marts.plain", "SELECT 1 AS n", pa.schema({"n": pa.int32()}))
    return made


@pytest.fixture
def definitions(lake, place, tmp_path):
    def made(**given):
        component = MaterializedViewsComponent(place, **given)
        component.write_state_to_path(tmp_path / "state")
        return component.build_defs_from_state(None, tmp_path / "state")

    return made


def resources(place):
    return {
        "lakehouse": LakehouseResource(catalog=place),
        "spark": LakehouseSpark(spark_config={}),
    }


def run(definitions, place, **given):
    return dg.materialize(
        list(definitions.assets), resources=resources(place), raise_on_error=False, **given
    )


def graph_of(definitions, place):
    given = dg.Definitions(resources=resources(place))
    return dg.Definitions.merge(definitions, given).resolve_asset_graph()


def answer(lake):
    events = lake.load_table("raw.events").scan().to_arrow()  # noqa: F841 - DuckDB reads it
    return sorted(duckdb.sql(USERS.replace("raw.events", "events")).fetchall())


def rows(lake, name):
    return sorted(
        tuple(row.values()) for row in lake.load_table(name).scan().to_arrow().to_pylist()
    )


def test_views_are_assets_behind_what_they_read(definitions, place):
    graph = graph_of(definitions(), place)
    assert graph.materializable_asset_keys == {OF_USERS, OF_BEST}
    assert graph.get(OF_USERS).parent_keys == {RAW}
    assert graph.get(OF_BEST).parent_keys == {OF_USERS}  # not its storage table
    only = graph_of(definitions(only=["marts.u*"]), place)
    assert only.materializable_asset_keys == {OF_USERS}
    assert definitions(only=["raw.*"]).assets in (None, [])


def test_a_run_refreshes_and_records_what_was_read(lake, place, definitions):
    lake.load_table("raw.events").append(pa.table([["b", "c"], [4, 5]], SCHEMA))
    done = run(definitions(), place)
    assert done.success
    made = {event.asset_key: event for event in done.get_asset_materialization_events()}
    assert list(made) == [OF_USERS, OF_BEST]
    assert rows(lake, "marts.users_storage") == answer(lake)
    assert rows(lake, "marts.best_storage") == [(2,)]
    metadata = made[OF_USERS].materialization.metadata
    storage = lake.load_table("marts.users_storage").current_snapshot()
    assert metadata[SNAPSHOT_ID].value == str(storage.snapshot_id)
    assert storage.summary[RUN_ID] == done.run_id
    head = lake.load_table("raw.events").current_snapshot().snapshot_id
    assert metadata[INPUTS].value == {"raw.events": str(head)}
    assert metadata[REFRESH_METADATA].value["mode"] == "incremental"


def test_what_fails_stops_what_reads_it_and_nothing_else(lake, place, definitions):
    other = "SELECT count(*) AS n FROM raw.events"
    MaterializedView.create(lake, "marts.counted", other, refresh="full")
    found = definitions()
    lake.drop_table("marts.users_storage")
    lake.create_table("marts.users_storage", SCHEMA)  # of somebody else, with the name of its rows
    done = run(found, place)
    assert not done.success
    keys = [event.asset_key for event in done.get_asset_materialization_events()]
    assert keys == [dg.AssetKey(["marts", "counted"])]
    (failure,) = done.get_step_failure_events()
    assert "is another table" in failure.step_failure_data.error.message
    assert "marts.best: marts.users failed" in failure.step_failure_data.error.message


def test_runs_that_publish_tables_together_are_refused(lake, place, definitions):
    before = rows(lake, "marts.users_storage")
    lake.load_table("raw.events").append(pa.table([["z"], [4]], SCHEMA))
    assert not run(definitions(), place, tags={PUBLISH_TAG: "run"}).success
    assert rows(lake, "marts.users_storage") == before


@pytest.mark.parametrize("automation", ["none", "eager"])
def test_automation(definitions, automation):
    (asset,) = definitions(automation=automation).assets
    conditions = asset.automation_conditions_by_key
    assert set(conditions) == ({OF_USERS, OF_BEST} if automation == "eager" else set())


def test_lineage_of_a_view_is_replayed_whoever_refreshed_it(lake):
    found = lineage(lake, "marts/users")
    assert (found.run_id, found.table) == ("", "marts.users_storage")
    head = lake.load_table("raw.events").current_snapshot().snapshot_id
    assert [(source.table, source.snapshot_id) for source in found.inputs] == [("raw.events", head)]
    lake.load_table("raw.events").append(pa.table([["q"], [9]], SCHEMA))  # later: not read
    lake.load_table("marts.users_storage").compact(CompactionOptions(rewrite_all=True))
    replayed = lineage(lake, "marts.users", replay=True)
    assert (replayed.equal, replayed.rows) == (True, 2)


def test_a_replay_finds_rows_that_are_no_answer(lake):
    storage = lake.load_table("marts.users_storage")
    state = dict(storage.current_snapshot().summary)["lakehouse.refresh-state"]
    forged = storage.scan().to_arrow()
    more = [7 if user == "a" else 1 for user in forged["user"].to_pylist()]
    forged = forged.set_column(1, "events", pa.array(more, pa.int64()))
    storage.overwrite(forged, summary={"lakehouse.refresh-state": state})
    replayed = lineage(lake, "marts.users", replay=True)
    assert (replayed.equal, replayed.missing, replayed.unexpected) == (False, 1, 1)


def test_what_cannot_be_replayed_says_so(lake):
    with pytest.raises(NotFoundError, match="never refreshed"):
        lineage(lake, "marts.best")
    with pytest.raises(InvalidInputError, match="no partitions"):
        lineage(lake, "marts.users", partition="2026-01-01")
    view = lake.load_view("marts.users")
    view.replace(USERS.replace("count(*)", "count(n)"), view.schema())
    with pytest.raises(InvalidInputError, match="another one than that of its rows"):
        lineage(lake, "marts.users", replay=True)


def test_the_state_is_plain_json(definitions, tmp_path):
    definitions()
    assert [view["name"] for view in json.loads((tmp_path / "state").read_text())] == [
        "marts.users",
        "marts.best",
    ]
