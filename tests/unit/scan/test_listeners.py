"""Scan reports reach their listeners, and no listener can hurt a scan."""

from __future__ import annotations

import json
import threading

import pyarrow as pa
import pytest

import lakehouse as lh


class Kept:
    def __init__(self):
        self.reports = []

    def scan_planned(self, report):
        self.reports.append(report)


class Failing:
    def scan_planned(self, report):
        raise RuntimeError("no sink today")


@pytest.fixture
def lake(tmp_path):
    return lh.load_catalog(f"file://{tmp_path}/warehouse")


@pytest.fixture
def table(lake):
    table = lake.create_table(
        "raw.events", pa.schema([("day", pa.int32()), ("amount", pa.int64())]), partition_by=["day"]
    )
    for day in range(4):
        table.append(pa.table({"day": pa.array([day] * 10, pa.int32()), "amount": range(10)}))
    return table


def test_a_report_says_what_was_planned(lake, table):
    kept = Kept()
    lake.add_listener(kept)
    assert table.scan(where="day = 2 and amount > 3", select="amount").to_arrow().num_rows == 6
    (report,) = kept.reports
    said = report.to_dict()
    assert said["table"] == "raw.events"
    assert said["engine"] == "arrow"
    assert said["snapshot_id"] == table.current_snapshot().snapshot_id
    assert said["predicate"] == "day = 2 and amount > 3"
    assert said["projection"] == ["amount"]
    assert (said["data_files_total"], said["data_files_planned"], said["rows_planned"]) == (
        4,
        1,
        10,
    )
    assert said["bytes_planned"] == table.scan(where="day = 2").plan().files[0].file_size_in_bytes
    assert said["planning_ms"] > 0
    assert json.loads(json.dumps(said)) == said


def test_one_report_a_scan_for_tables_loaded_before_and_after(lake, table):
    kept = Kept()
    lake.add_listener(kept)
    lake.add_listener(kept)
    scan = table.scan()
    scan.to_arrow()
    scan.count()
    lake.load_table("raw.events").scan().plan()
    first, last = table.snapshots()[0], table.snapshots()[-1]
    table.scan_appends(first.snapshot_id, last.snapshot_id).to_arrow()
    assert [report.plan.data_files.planned for report in kept.reports] == [4, 4, 3]
    lake.remove_listener(kept)
    table.scan().plan()
    assert len(kept.reports) == 3


def test_every_thread_that_plans_is_heard(lake, table):
    kept = Kept()
    lake.add_listener(kept)
    threads = [
        threading.Thread(target=lambda: [table.scan(where=f"day = {n}").plan() for n in range(4)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    predicates = [report.to_dict()["predicate"] for report in kept.reports]
    assert sorted(predicates) == sorted(f"day = {n}" for n in range(4) for _ in range(8))


def test_a_failing_listener_is_logged_and_the_others_still_hear(lake, table, caplog):
    kept = Kept()
    lake.add_listener(Failing())
    lake.add_listener(kept)
    assert table.scan().to_arrow().num_rows == 40
    assert len(kept.reports) == 1
    assert "no sink today" in caplog.text
    assert "raw.events" in caplog.text


def test_scans_of_a_listener_are_not_reported(lake, table):
    class Curious(Kept):
        def scan_planned(self, report):
            super().scan_planned(report)
            table.scan().to_arrow()

    curious = Curious()
    lake.add_listener(curious)
    table.scan().plan()
    assert len(curious.reports) == 1
