"""Plans of our server: the rows that pyiceberg reads by them are those that it finds itself."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg import expressions as ice
from pyiceberg.catalog.rest import RestCatalog

from lakehouse.server.operations import scan_operations
from tests.server.test_rest_protocol import error

DAYS = [dt.datetime(2026, 6, 1 + n % 3, n % 24, tzinfo=dt.UTC) for n in range(60)]
ROWS = pa.table(
    {
        "id": pa.array(range(60), pa.int64()),
        "at": pa.array(DAYS, pa.timestamp("us", tz="UTC")),
        "name": [f"n{n % 7}" for n in range(60)],
        "x": pa.array([None if n % 5 == 0 else n / 2 for n in range(60)], pa.float64()),
        "raw": pa.array([bytes([n]) for n in range(60)], pa.binary()),
        "cost": pa.array([Decimal(n) for n in range(60)], pa.decimal128(20, 2)),
    }
)
# no kind of catalog has a part in it
pytestmark = pytest.mark.parametrize("rest", ["sqlite"], indirect=True, scope="module")
FILTERS = [
    ice.AlwaysTrue(),
    ice.EqualTo("id", 7),
    ice.And(ice.GreaterThanOrEqual("id", 10), ice.LessThan("id", 30)),
    ice.Or(ice.IsNull("x"), ice.In("name", ["n1", "n2"])),
    ice.Not(ice.StartsWith("name", "n1")),
    ice.GreaterThan("at", "2026-06-02T00:00:00+00:00"),
    ice.NotIn("id", [1, 2, 3]),
    ice.And(ice.EqualTo("raw", b"\x05"), ice.LessThan("id", 30)),
    ice.LessThan("cost", "12.50"),
    ice.EqualTo("id", 1000),
]


@pytest.fixture(scope="module", params=[2, 3])
def planned(rest, request):
    name = f"planned.v{request.param}"
    lake = rest.lake
    table = lake.create_table(
        name,
        ROWS.schema,
        partition_by=["day(at)", "bucket(2, id)"],
        format_version=request.param,
        properties={"write.delete.mode": "merge-on-read"},
    )
    for n in range(3):
        table.append(ROWS.slice(n * 20, 20))
    table.delete(where="id % 11 = 3")
    return name


def client(rest, mode):
    return RestCatalog("c", uri=rest.url, **{"scan-planning-mode": mode})


def test_the_same_rows_are_read(rest, planned, monkeypatch):
    theirs = client(rest, "client").load_table(planned)
    monkeypatch.setattr(scan_operations, "TASKS_MAX", 4)
    ours = client(rest, "server").load_table(planned)
    assert ours.catalog.supports_server_side_planning()
    everything = {task.file.file_path for task in theirs.scan().plan_files()}
    for where in FILTERS:
        wanted = theirs.scan(row_filter=where)
        found = ours.scan(row_filter=where)
        assert {task.file.file_path for task in found.plan_files()} <= everything, where
        same = sorted(wanted.to_arrow()["id"].to_pylist())
        assert sorted(found.to_arrow()["id"].to_pylist()) == same, where
        assert found.count() == wanted.count() == len(same), where


def test_files_that_cannot_match_are_not_sent(rest, planned):
    path = f"/namespaces/planned/tables/{planned.partition('.')[2]}/plan"
    whole = rest.post(path, {}).json()
    one = rest.post(path, {"filter": {"type": "eq", "term": "id", "value": 7}}).json()
    assert whole["status"] == one["status"] == "completed"
    assert 0 < len(one["file-scan-tasks"]) < len(whole["file-scan-tasks"])
    transformed = {
        "type": "and",
        "left": {
            "type": "eq",
            "term": {"type": "transform", "transform": "day", "term": "at"},
            "value": "2026-06-01",
        },
        "right": {"type": "eq", "term": "id", "value": 7},
    }
    same = rest.post(path, {"filter": transformed}).json()
    assert len(same["file-scan-tasks"]) == len(one["file-scan-tasks"])
    not_it = {"filter": {"type": "not", "child": transformed}}
    assert len(rest.post(path, not_it).json()["file-scan-tasks"]) == len(whole["file-scan-tasks"])


REFERENCE = {"type": "reference", "name": "id"}
LITERAL = {"type": "literal", "value": 7, "data-type": "long"}
BELOW_10 = {"type": "lt", "left": REFERENCE, "right": 10}


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ({"type": "eq", "left": REFERENCE, "right": LITERAL}, 1),
        (BELOW_10, 10),
        ({"type": "in", "child": REFERENCE, "values": [1, LITERAL]}, 2),
        ({"type": "in", "child": REFERENCE, "values": {"type": "literals", "values": [1, 7]}}, 2),
        ({"type": "is-null", "child": REFERENCE}, 0),
        ({"type": "not", "child": {"type": "is-null", "child": REFERENCE}}, 60),
        # what a plan cannot use keeps every file
        ({"type": "eq", "left": {"type": "reference", "id": 1}, "right": 1000}, 60),
        ({"type": "eq", "left": LITERAL, "right": REFERENCE}, 60),
        ({"type": "lt", "left": REFERENCE, "right": REFERENCE}, 60),
        (
            {"type": "eq", "left": {"type": "apply", "function": "f", "arguments": []}, "right": 1},
            60,
        ),
        (
            {
                "type": "and",
                "left": BELOW_10,
                "right": {"type": "is-null", "child": {"type": "apply", "function": "f"}},
            },
            10,
        ),
    ],
)
def test_filters_of_value_expressions(rest, planned, where, rows):
    """The form that the specification prefers since 2026: child, left and right."""
    path = f"/namespaces/planned/tables/{planned.partition('.')[2]}/plan"
    answer = rest.post(path, {"filter": where})
    assert answer.status_code == 200, answer.text
    found = sum(one["data-file"]["record-count"] for one in answer.json()["file-scan-tasks"])
    assert found >= rows
    assert (found == 60) == (rows == 60)


def test_history(rest, planned):
    path = f"/namespaces/planned/tables/{planned.partition('.')[2]}/plan"
    first, second, third, _ = rest.lake.load_table(planned).metadata.snapshots.ids()

    def rows(**body):
        tasks = rest.post(path, body).json()["file-scan-tasks"]
        return sum(task["data-file"]["record-count"] for task in tasks)

    assert rows(**{"snapshot-id": first}) == 20
    assert rows(**{"snapshot-id": third}) == 60
    assert rows(**{"start-snapshot-id": first, "end-snapshot-id": third}) == 40
    assert rows(**{"start-snapshot-id": second, "end-snapshot-id": third}) == 20
    assert error(rest.post(path, {"snapshot-id": 5})) == (404, "NoSuchSnapshotException")


@pytest.mark.parametrize(
    "body",
    [
        {"filter": {"type": "sounds-like", "term": "name", "value": "x"}},
        {"filter": {"type": "eq", "term": "nothing", "value": 1}},
        {"filter": {"type": "eq", "term": "id", "value": []}},
        {"filter": {"type": "eq", "term": "at", "value": "yesterday"}},
        {"filter": 5},
        {"filter": {"type": "eq", "left": {"type": "reference", "name": "nothing"}, "right": 1}},
        {"filter": {"type": "eq", "left": {"type": "reference", "name": "id"}}},
        {"filter": {"type": "in", "child": "id", "values": {"type": "literals"}}},
        {"filter": {"type": "is-null"}},
        {"filter": {"type": "eq", "term": "id", "value": {"type": {}, "value": []}}},
        {"start-snapshot-id": 5},
        {"select": ["nothing"]},
        {"select": [None]},
        {"select": [True]},
        {"stats-fields": ["id", 5]},
        {"stats-fields": "id"},
        {"min-rows-requested": "all"},
    ],
)
def test_plans_that_make_no_sense(rest, planned, body):
    path = f"/namespaces/planned/tables/{planned.partition('.')[2]}/plan"
    assert error(rest.post(path, body)) == (400, "BadRequestException")


def test_a_plan_of_everything_needs_no_body(rest, planned):
    path = f"/namespaces/planned/tables/{planned.partition('.')[2]}/plan"
    told = [rest.ask("POST", path, body).json()["file-scan-tasks"] for body in (None, {})]
    assert told[0] == told[1]
    assert told[0]


def test_tokens_that_nobody_gave(rest, planned):
    path = f"/namespaces/planned/tables/{planned.partition('.')[2]}/tasks"
    for token in ("", "x", "W10=", "!!!"):
        assert error(rest.post(path, {"plan-task": token})) == (400, "BadRequestException")
