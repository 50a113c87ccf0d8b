"""What clients measured reaches the listeners of the catalog that is served."""

from __future__ import annotations

import pytest

# no kind of catalog has a part in it
pytestmark = pytest.mark.parametrize("rest", ["sqlite"], indirect=True, scope="module")
SCAN = {
    "report-type": "scan-report",
    "table-name": "reported.t",
    "snapshot-id": 17,
    "filter": {"type": "eq", "term": "id", "value": 7},
    "schema-id": 0,
    "projected-field-ids": [1],
    "projected-field-names": ["id"],
    "metrics": {
        "total-planning-duration": {
            "count": 1, "time-unit": "nanoseconds", "total-duration": 2_644_235_116
        },
        "result-data-files": {"unit": "count", "value": 3},
        "result-delete-files": {"unit": "count", "value": 1},
        "total-data-manifests": {"unit": "count", "value": 4},
        "scanned-data-manifests": {"unit": "count", "value": 2},
        "total-file-size-in-bytes": {"unit": "bytes", "value": 4096},
        "of-a-later-version": {"unit": "count", "value": 5},
    },
    "metadata": {"engine-name": "spark"},
}  # fmt: skip
COMMIT = {
    "report-type": "commit-report",
    "table-name": "reported.t",
    "snapshot-id": 17,
    "sequence-number": 1,
    "operation": "append",
    "metrics": {"attempts": {"unit": "count", "value": 1}},
}
PATH = "/namespaces/reported/tables/t/metrics"


class Kept:
    def __init__(self):
        self.reports = []

    def scan_planned(self, report):
        self.reports.append(report.to_dict())


@pytest.fixture(scope="module")
def table(rest):
    return rest.table("reported", "t")


@pytest.fixture
def kept(rest, table):
    listener = Kept()
    rest.lake.listeners.add(listener)
    yield listener.reports
    rest.lake.listeners.remove(listener)


def test_a_scan_report_reaches_the_listeners(rest, kept):
    assert rest.post(PATH, SCAN).status_code == 204
    told = kept.pop()
    assert not kept
    assert told.pop("timestamp_ms") > 0
    assert told == {
        "table": "reported.t", "engine": "rest", "snapshot_id": 17, "schema_id": 0,
        "predicate": '{"type":"eq","term":"id","value":7}', "projection": ["id"],
        "manifests_total": 4, "manifests_read": 2, "manifest_bytes_total": 0,
        "manifest_bytes_read": 0, "data_files_total": None, "data_files_planned": 3,
        "delete_files_total": None, "delete_files_planned": 1, "bytes_planned": 4096,
        "rows_planned": 0, "planning_ms": 2644.235,
    }  # fmt: skip


def test_a_commit_report_is_accepted(rest, kept):
    assert rest.post(PATH, COMMIT).status_code == 204
    assert not kept
    endpoints = rest.get("/config").json()["endpoints"]
    assert "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics" in endpoints


def without(report, key):
    return {one: value for one, value in report.items() if one != key}


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"report-type": "else"},
        {**SCAN, "metrics": None},
        {**SCAN, "snapshot-id": "x"},
        {**SCAN, "metrics": {"result-data-files": 3}},
        {**SCAN, "metrics": {"total-planning-duration": {"time-unit": "y", "total-duration": 1}}},
        {**COMMIT, "metrics": []},
        {**COMMIT, "metadata": {"engine-name": []}},
        *(without(SCAN, one) for one in SCAN if one != "metadata"),
        *(without(COMMIT, one) for one in COMMIT),
        {**SCAN, "projected-field-ids": ["id"]},
        {**SCAN, "projected-field-names": [1]},
    ],
)
def test_a_malformed_report_is_refused(rest, kept, wrong):
    refused = rest.post(PATH, wrong)
    assert (refused.status_code, kept) == (400, []), refused.text


def test_a_report_on_no_table(rest, kept):
    assert rest.post("/namespaces/reported/tables/none/metrics", SCAN).status_code == 404
    assert not kept
