"""`lakehouse adopt` over tables that pyiceberg wrote, behind a REST server of another, and ours."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.rest import RestCatalog
from typer.testing import CliRunner

import lakehouse as lh
from lakehouse.catalog.sql.sql_catalog import SqlCatalog
from lakehouse.cli import app
from lakehouse.maintenance.maintenance_policy import MaintenancePolicy
from lakehouse.orchestration.automation.maintenance_sensors import clustering_due, compaction_due
from lakehouse.server.http_server import HttpServer
from lakehouse.server.rest_app import rest_app
from tests.rest_server import rest

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string()})
FOUR_DAYS = 4 * 24 * 3600
AT_ONCE = {"lakehouse.maintenance.skip-recent-ms": "0"}


@pytest.fixture(params=["theirs", "ours"])
def server(request, tmp_path):
    if request.param == "theirs":
        running = rest(tmp_path)
    else:
        lake = lh.load_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=f"{tmp_path}/warehouse")
        running = HttpServer(rest_app(lake), "127.0.0.1", 0)
    with running as started:
        yield started


@pytest.fixture
def theirs(server):
    return RestCatalog("theirs", uri=server.url)


def written(theirs, name: str, commits: int, **properties: str):
    theirs.create_namespace_if_not_exists(name.partition(".")[0])
    table = theirs.create_table(name, SCHEMA, properties={**AT_ONCE, **properties})
    for number in range(commits):
        table.append(pa.table([[number], [f"n{number}"]], schema=SCHEMA))
    return table


def adopt(server, *options: str) -> tuple[int, dict]:
    result = CliRunner().invoke(app, ["adopt", server.url, "--json", *options])
    assert result.exit_code in (0, 1), result.output
    return result.exit_code, {told["table"]: told for told in json.loads(result.stdout)}


def old_file(table, name: str) -> Path:
    location = table.location() if callable(table.location) else table.location
    path = Path(location.removeprefix("file://")) / "data" / name
    path.write_bytes(b"left behind")
    os.utime(path, (path.stat().st_mtime - FOUR_DAYS,) * 2)
    return path


def test_what_would_be_done_is_done_and_no_row_or_younger_file_goes(server, theirs):
    table = written(
        theirs,
        "raw.events",
        12,
        **{
            "history.expire.max-snapshot-age-ms": "1",
            "history.expire.min-snapshots-to-keep": "2",
            "lakehouse.maintenance.max-unreferenced-bytes": "1",
        },
    )
    quiet = written(theirs, "raw.quiet", 1)
    orphan, young = old_file(table, "orphan.parquet"), old_file(table, "young.parquet")
    os.utime(young)
    before = table.metadata_location

    code, told = adopt(server, "--trial")
    assert (code, sorted(told)) == (0, ["raw.events", "raw.quiet"])
    asked = {"expire", "compact", "remove-orphans"}
    assert set(told["raw.events"]["plans"]) == asked | {"tune"}
    assert set(told["raw.quiet"]["plans"]) == {"tune"}
    assert told["raw.events"]["health"]["data_files"] == 12
    assert not told["raw.events"]["applied"]
    assert table.refresh().metadata_location == before
    assert orphan.exists()

    code, told = adopt(server, "--apply")
    assert (code, set(told["raw.events"]["plans"])) == (0, asked)
    assert told["raw.events"]["errors"] == {}
    table.refresh()
    assert len(table.inspect.files()) == 1
    rows = table.scan().to_arrow().sort_by("id")
    assert rows["id"].to_pylist() == list(range(12))
    assert rows["name"].to_pylist() == [f"n{number}" for number in range(12)]
    assert not orphan.exists()
    assert young.exists()
    for snapshot in table.snapshots():  # what was kept can be read
        assert table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows
    assert quiet.refresh().metadata_location == quiet.metadata_location

    code, told = adopt(server)
    assert "compact" not in told["raw.events"]["plans"]


def test_of_a_v1_table_nothing_is_asked_before_it_is_upgraded(server, theirs):
    few = {"format-version": "1", "lakehouse.maintenance.max-manifests": "1"}
    table = written(theirs, "raw.one", 12, **few)
    ours = lh.load_catalog(server.url).load_table("raw.one")
    for options in ((), ("--trial",), ("--apply",)):
        code, told = adopt(server, *options)
        assert (code, table.refresh().format_version) == (0, 1)
        found = told["raw.one"]
        assert found["errors"] == {}
        assert "has format version 1" in found["health"]["unwritable"]
        advice = found["advice"]["recommendations"]
        assert [(one["subject"], one["proposed"]) for one in advice] == [("format version", "2")]
        assert set(found["plans"]) == ({"tune"} if options == ("--trial",) else set())
        if options == ("--trial",):
            tune = found["plans"]["tune"]
            assert (tune["adopt"], "has format version 1" in tune["why"]) == (False, True)
        assert compaction_due(ours.refresh()) == clustering_due(ours) == []
    assert len(table.inspect.files()) == 12
    ours.set_properties({"format-version": "2"})
    assert set(adopt(server)[1]["raw.one"]["plans"]) == {"compact", "rewrite-manifests"}
    assert compaction_due(ours.refresh()) != []


def test_what_is_wrong_with_a_table_stops_no_other(server, theirs):
    damaged = written(theirs, "raw.damaged", 9)
    kept = written(theirs, "raw.kept", 9, **{"gc.enabled": "false"})
    written(theirs, "other.events", 9)
    manifest_list = damaged.current_snapshot().manifest_list
    Path(manifest_list.removeprefix("file://")).write_bytes(b"no manifest list")
    code, told = adopt(server, "--apply", "--only", "raw.*")
    assert (code, sorted(told)) == (1, ["raw.damaged", "raw.kept"])
    assert list(told["raw.damaged"]["errors"]) == ["health"]
    assert told["raw.damaged"]["plans"] == {}
    assert set(told["raw.kept"]["plans"]) == {"compact"}
    assert len(kept.refresh().inspect.files()) == 1
    assert len(theirs.load_table("other.events").inspect.files()) == 9


def test_a_table_without_metadata_keeps_no_other_from_compaction(tmp_path):
    """Files of a lost table are unknown, so that no orphan goes; rows by pyarrow's reader."""
    place, warehouse = f"sqlite:///{tmp_path}/c.db", f"{tmp_path}/warehouse"
    lake = lh.load_catalog(place, warehouse=warehouse)
    for name in ("raw.kept", "raw.lost"):
        table = lake.create_table(name, SCHEMA, properties=AT_ONCE)
        for number in range(9):
            table.append(pa.table([[number], [f"n{number}"]], schema=SCHEMA))
    kept = lake.load_table("raw.kept")
    orphan = old_file(kept, "orphan.parquet")
    Path(lake.load_table("raw.lost").metadata_location.removeprefix("file://")).unlink()
    options = ["--warehouse", warehouse, "--json", "--apply"]
    options += ["-P", "lakehouse.maintenance.max-unreferenced-bytes=1"]
    result = CliRunner().invoke(app, ["adopt", place, *options])
    told = {report["table"]: report for report in json.loads(result.stdout)}
    assert result.exit_code == 1
    assert list(told["raw.lost"]["errors"]) == ["health"]
    assert list(told["raw.kept"]["errors"]) == ["disk"]
    assert set(told["raw.kept"]["plans"]) == {"compact"}
    (file,) = kept.refresh().scan().plan().files
    rows = pq.read_table(file.file_path.removeprefix("file://"))
    assert sorted(rows["id"].to_pylist()) == list(range(9))
    assert orphan.exists()


def test_a_policy_of_the_table_wins_over_that_of_the_command(server, theirs):
    written(theirs, "raw.off", 9, **{"lakehouse.maintenance.enabled": "false"})
    written(theirs, "raw.on", 3)
    few = "lakehouse.maintenance.min-removable-files=2"
    code, told = adopt(server, "-P", few, "-P", "lakehouse.maintenance.min-input-files=2")
    assert code == 0
    assert {name: list(one["plans"]) for name, one in told.items()} == {
        "raw.off": [],
        "raw.on": ["compact"],
    }


def test_why_nothing_is_done_yet_is_said(server, theirs):
    written(theirs, "raw.busy", 12, **{"lakehouse.maintenance.skip-recent-ms": "3600000"})
    written(theirs, "raw.off", 1, **{"lakehouse.maintenance.enabled": "false"})
    printed = " ".join(CliRunner().invoke(app, ["adopt", server.url]).output.split())
    waits = re.search(r"policy asks nothing now compaction waits for (\d+) small files", printed)
    assert waits is not None, printed
    assert waits[1] == str(MaintenancePolicy().min_input_files)
    assert "nobody wrote to for 1h" in printed
    assert "lakehouse.maintenance.enabled is false" in printed


def test_each_table_of_many_costs_the_same(tmp_path, monkeypatch):
    """Loads of tables for 4, 8 and 12 of them; which tables there are is asked once."""
    loads = []
    load = SqlCatalog.load

    def counted(self, identifier):
        loads.append(identifier)
        return load(self, identifier)

    monkeypatch.setattr(SqlCatalog, "load", counted)
    place, warehouse = f"sqlite:///{tmp_path}/c.db", f"{tmp_path}/warehouse"
    lake = lh.load_catalog(place, warehouse=warehouse)
    costs = []
    for number in range(12):
        lake.create_table(f"raw.t{number}", SCHEMA).append(pa.table([[1], ["a"]], schema=SCHEMA))
        if number % 4 == 3:
            loads.clear()
            result = CliRunner().invoke(app, ["adopt", place, "--warehouse", warehouse, "--json"])
            assert len(json.loads(result.stdout)) == number + 1
            costs.append(len(loads))
    assert costs[2] - costs[1] == costs[1] - costs[0] > 0
