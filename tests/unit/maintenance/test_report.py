from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from rich.console import Console

from lakehouse.maintenance.key_filter_build import KeyFilterPlan, KeyFilterResult
from lakehouse.maintenance.relocation import Relocation
from lakehouse.maintenance.shown_plan import Report, gauge, human_bytes, human_ms, listing
from lakehouse.spec.identifier import Identifier


def shown(renderable):
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    with console.file:
        console.print(renderable)
        return console.export_text()


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 60, "3072.0 PiB"),
        (-2048, "-2.0 KiB"),
    ],
)
def test_bytes_for_people(size, text):
    assert human_bytes(size) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0ms"), (900, "900ms"), (61_000, "1m 1s"), (90_061_000, "1d 1h"), (86_400_000, "1d")],
)
def test_durations_for_people(ms, text):
    assert human_ms(ms) == text


def test_bars_are_as_long_as_the_share():
    assert gauge(0, 0) == " " * 20
    assert gauge(5, 10).count("█") == 10
    assert gauge(10, 10).count("█") == 20


def test_a_listing_says_what_it_left_out():
    text = shown(
        listing(("name", "#count"), [(f"n{number}", number) for number in range(30)], limit=3)
    )
    assert "n2" in text
    assert "n3" not in text
    assert "27 more" in text
    assert "more" not in shown(listing(("name",), [("a",)], limit=3))


def test_square_brackets_in_values_are_not_markup():
    assert "[red]x" in shown(listing(("name",), [("[red]x",)]))


@dataclass(frozen=True)
class Example(Report):
    def title(self):
        return "Example of [t]"

    def to_dict(self):
        return {"snapshot_id": 9007199254740993, "by_id": {1: "a"}}

    def facts(self):
        yield "count", 12345
        yield "flag", True
        yield "text", "[bold]"


def test_a_report_prints_itself_and_is_json():
    text = shown(Example())
    assert "Example of [t]" in text
    assert "12,345" in text
    assert "True" in text
    assert "[bold]" in text
    assert json.loads(Example().to_json()) == {"snapshot_id": 9007199254740993, "by_id": {"1": "a"}}


TABLE = Identifier(("raw",), "events")
OF_ONE_SNAPSHOT = {"identifier": TABLE, "snapshot_id": 7, "columns": ("id", "day"), "files": 2}


@pytest.mark.parametrize(
    ("report", "document"),
    [
        (
            KeyFilterPlan(**OF_ONE_SNAPSHOT, files_read=1, rows_read=3),
            '{"table":"raw.events","action":"analyze-keys","snapshot_id":7,"columns":["id","day"],'
            '"files":2,"files_read":1,"rows_read":3}',
        ),
        (
            KeyFilterResult(**OF_ONE_SNAPSHOT, files_read=1, rows_read=3, location="a", bytes=4),
            '{"table":"raw.events","action":"analyze-keys","snapshot_id":7,"columns":["id","day"],'
            '"files":2,"files_read":1,"rows_read":3,"statistics_file":"a","bytes":4}',
        ),
        (
            Relocation("/lake", {"raw.events": "v2"}, ("raw.old",), files=3, dry_run=True),
            '{"warehouse":"/lake","moved":{"raw.events":"v2"},"kept":["raw.old"],"files":3,'
            '"dry_run":true}',
        ),
    ],
)
def test_json_has_the_fields_that_programs_read(report, document):
    assert json.loads(report.to_json()) == report.to_dict() == json.loads(document)
