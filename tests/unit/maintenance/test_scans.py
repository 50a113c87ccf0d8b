from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pytest
from rich.console import Console
from typer.testing import CliRunner

import lakehouse as lh
from lakehouse.cli import app
from lakehouse.maintenance.health.scan_use import predicate_shape, scan_use
from lakehouse.table.scan_reports import SCAN_REPORT_SCHEMA, TableListener

SCHEMA = pa.schema([("id", pa.int64()), ("kind", pa.string()), ("at2", pa.float64())])


@pytest.mark.parametrize(
    ("predicate", "shape"),
    [
        ("id = 3", "id = ?"),
        ("id in (1, 2, 3) and kind like 'a%'", "id in (?) and kind like ?"),
        ("at >= '2026-01-01T00:00:00+00:00' or st.x > -5.5e3", "at >= ? or st.x > ?"),
        ("name = 'it''s (1, 2)' and at2 < 7", "name = ? and at2 < ?"),
        ("at2 is nan and col_1 is not null", "at2 is nan and col_1 is not null"),
        ("true", "true"),
    ],
)
def test_literals_go_and_names_stay(predicate, shape):
    assert predicate_shape(predicate) == shape


def report(predicate, planned, total=10, table="raw.events", **more):
    return {
        "table": table,
        "predicate": predicate,
        "data_files_total": total,
        "data_files_planned": planned,
        "planning_ms": 2.0,
        "timestamp_ms": 5,
        **more,
    }


def test_which_predicates_came_and_what_they_skipped():
    reports = [
        report("id = 1", 1),
        report("id = 2", 3),
        report("kind = 'id'", 10),
        report("true", 10),
        report("id = 9", 0, table="raw.other"),
        report(
            None,
            4,
            total=None,
            timestamp_ms=None,
            planned_at=dt.datetime(1970, 1, 1, 0, 0, 0, 3000, dt.UTC),
        ),
    ]
    found = scan_use(reports, "raw.events", ["id", "kind"])
    assert (found.scans, found.first_ms, found.columns) == (5, 3, (("id", 2), ("kind", 1)))
    assert [(one.predicate, one.scans, one.files, one.planned) for one in found.predicates] == [
        ("id = ?", 2, 20, 4),
        ("true", 2, 10, 10),
        ("kind = ?", 1, 10, 10),
    ]
    assert found.predicates[0].pruned == pytest.approx(0.8)
    assert found.pruned == pytest.approx(1 - 14 / 30)
    assert scan_use([], "raw.events", []).pruned == 0


class Lines:
    """A listener that writes what KafkaListener sends to a file, one report a line."""

    def __init__(self, path):
        self._path = path

    def scan_planned(self, report):
        with self._path.open("a") as file:
            file.write(json.dumps(report.to_dict()) + "\n")


@pytest.fixture
def scanned(tmp_path):
    """A table whose scans were reported to a file and to a table."""
    lake = lh.load_catalog(str(tmp_path / "warehouse"))
    table = lake.create_table("raw.events", SCHEMA)
    for number in range(10):
        table.append(pa.table([[number], [f"k{number % 2}"], [0.5]], schema=SCHEMA))
    reports = lake.create_table("ops.scans", SCAN_REPORT_SCHEMA)
    path = tmp_path / "scans.jsonl"
    with TableListener(reports) as listener:
        lake.add_listener(listener)
        lake.add_listener(Lines(path))
        for number in range(4):
            lake.load_table("raw.events").scan(f"id = {number}").to_arrow()
        lake.load_table("raw.events").scan("kind = 'k1'", ["id"]).to_arrow()
    return str(tmp_path / "warehouse"), str(path)


@pytest.mark.parametrize("source", ["file", "table"])
def test_health_and_advice_know_what_queries_filter_by(scanned, source):
    warehouse, path = scanned
    arguments = [
        "raw.events",
        "--catalog",
        warehouse,
        "--scans",
        path if source == "file" else "ops.scans",
        "--json",
    ]
    answer = CliRunner().invoke(app, ["health", *arguments])
    assert answer.exit_code == 0, answer.output
    (found,) = json.loads(answer.output)
    scans = found["scans"]
    assert (scans["scans"], scans["columns"]) == (5, [["id", 4], ["kind", 1]])
    first = scans["predicates"][0]
    assert (first["predicate"], first["scans"], first["files"], first["planned"]) == (
        "id = ?",
        4,
        40,
        4,
    )
    assert CliRunner().invoke(app, ["advise", *arguments]).exit_code == 0


def test_the_report_shows_them(scanned):
    warehouse, path = scanned
    table = lh.load_catalog(warehouse).load_table("raw.events")
    with open(path) as lines:  # noqa: PTH123 - short
        reports = [json.loads(line) for line in lines]
    from lakehouse.maintenance.health.table_health import health

    console = Console(width=120, record=True, file=None)
    with console.capture() as capture:
        console.print(health(table.catalog, table.identifier, scan_reports=reports))
    text = capture.get()
    assert "5, filtered by id 4, kind 1" in text
    assert "id = ?" in text
    assert "90.0%" in text


def test_a_source_that_is_none_is_told(scanned, tmp_path):
    warehouse, _ = scanned
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("hello\n")
    for source, says in ((str(wrong), "one JSON object a line"), ("ops.nope", "No table ops.nope")):
        answer = CliRunner().invoke(
            app, ["health", "raw.events", "--catalog", warehouse, "--scans", source]
        )
        assert answer.exit_code != 0
        assert says in answer.output.replace("\n", " ")
