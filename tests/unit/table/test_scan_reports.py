"""Scan reports as rows of a lakehouse table."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import StorageError
from lakehouse.table.scan_reports import SCAN_REPORT_SCHEMA, TableListener
from tests.waiting import eventually

HOUR = 3600.0


@pytest.fixture
def lake(tmp_path):
    return lh.load_catalog(f"file://{tmp_path}/warehouse")


@pytest.fixture
def events(lake):
    table = lake.create_table("raw.events", pa.schema([("n", pa.int64())]))
    table.append(pa.table({"n": range(10)}))
    return table


@pytest.fixture
def reports(lake):
    return lake.create_table(
        "meta.scan_reports", SCAN_REPORT_SCHEMA, partition_by=["day(planned_at)"]
    )


def test_reports_become_rows_in_batches(lake, events, reports):
    with TableListener(
        lake.load_table("meta.scan_reports"), batch_size=5, interval_seconds=HOUR
    ) as listener:
        lake.add_listener(listener)
        for n in range(12):
            events.scan(where=f"n < {n}", select="n").plan()
    rows = reports.refresh().scan().to_arrow()
    assert sorted(rows["predicate"].to_pylist()) == sorted(f"n < {n}" for n in range(12))
    assert set(rows["projection"].to_pylist()[0]) == {"n"}
    assert set(rows["snapshot_id"].to_pylist()) == {events.current_snapshot().snapshot_id}
    assert len(reports.snapshots()) <= 4


def test_scans_of_the_report_table_are_not_recorded(lake, events, reports):
    with TableListener(lake.load_table("meta.scan_reports"), interval_seconds=HOUR) as listener:
        lake.add_listener(listener)
        for _ in range(3):
            reports.refresh().scan().to_arrow()
            listener.flush()
        events.scan().plan()
    assert reports.refresh().scan().to_arrow()["table"].to_pylist() == ["raw.events"]


def test_a_few_reports_are_written_when_time_is_up(lake, events, reports):
    with TableListener(
        lake.load_table("meta.scan_reports"), batch_size=1000, interval_seconds=0.02
    ) as listener:
        lake.add_listener(listener)
        events.scan().plan()
        eventually(lambda: reports.refresh().snapshots())
        assert reports.scan().count() == 1


def test_reports_that_cannot_be_written_are_logged_and_cost_no_query(
    lake, events, reports, monkeypatch, caplog
):
    table = lake.load_table("meta.scan_reports")

    def full(*_, **__):
        raise StorageError("the disk is full")

    monkeypatch.setattr(table, "append", full)
    listener = TableListener(table, interval_seconds=HOUR)
    lake.add_listener(listener)
    assert events.scan().to_arrow().num_rows == 10
    listener.close()
    assert "1 scan reports were not written to meta.scan_reports" in caplog.text
    assert "the disk is full" in caplog.text


def test_memory_is_bounded(lake, events, reports, caplog):
    listener = TableListener(
        lake.load_table("meta.scan_reports"), interval_seconds=HOUR, most_waiting=2
    )
    lake.add_listener(listener)
    for _ in range(5):
        events.scan().plan()
    listener.close()
    listener.close()
    assert reports.refresh().scan().count() == 2
    assert "3 scan reports were dropped" in caplog.text
