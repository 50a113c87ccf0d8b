"""The demo on three of its days, twice."""

from __future__ import annotations

import io
from collections import Counter
from datetime import date
from itertools import takewhile
from pathlib import Path

import dagster as dg
import pytest
from pyiceberg.table import StaticTable
from rich.console import Console

from assets.demo import flights_data, tour
from assets.pipeline import build_pipeline
from definitions import build_definitions
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark

pytestmark = [pytest.mark.spark, pytest.mark.slow]
DAYS = 3


def test_the_demo_conserves_every_line_and_a_second_run_changes_no_row(
    tmp_path: Path, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights = flights_data.read_flights()
    assert flights.num_rows == 336_776
    real = flights_data.landed_days
    for module in (flights_data, tour):
        monkeypatch.setattr(module, "LATE_DAYS", frozenset({date(2013, 1, 2)}))
    monkeypatch.setattr(tour, "CUT_OFF_DAY", date(2013, 1, 3))
    monkeypatch.setattr(
        tour, "landed_days", lambda table: takewhile(lambda d: d.day <= date(2013, 1, DAYS), real(table.slice(0, 4000)))
    )
    pipeline = build_pipeline(str(tmp_path / "landing"))
    resource = LakehouseResource(catalog=(tmp_path / "warehouse").as_uri(), landing=pipeline.landing_root)
    definitions = build_definitions(pipeline, resource, LakehouseSpark())
    counts = []
    with dg.DagsterInstance.ephemeral() as instance:
        for _ in range(2):
            out = io.StringIO()
            console = Console(file=out, width=120)
            tour.run(pipeline, resource.lake(), definitions, instance, console, tour.DemoOptions())
            shown = out.getvalue()
            assert ": conserved" in shown
            lake = resource.lake()
            counts.append({name: lake.load_table(name).scan().count() for name in pipeline.tables() if lake.table_exists(name)})
    assert "nothing new" in shown
    assert counts[0] == counts[1]

    expected = [row for row in flights.slice(0, 4000).to_pylist() if (row["month"], row["day"]) <= (1, DAYS)]
    raw = lake.load_table("raw.flights").scan().to_arrow().to_pylist()
    assert len(raw) == len(expected) == counts[0]["clean.flights"]
    key = ("carrier", "flight", "origin", "time_hour", "distance", "dep_delay", "tailnum")
    assert Counter(tuple(r[k] for k in key) for r in raw) == Counter(tuple(r[k] for k in key) for r in expected)
    # the package's own UTC hour is an independent witness of the time zone
    assert all(r["event_ts"].strftime("%Y-%m-%dT%H:00:00Z") == r["time_hour"] for r in raw)
    aircraft = {r["tailnum"]: r["flights"] for r in lake.load_table("marts.aircraft").scan().to_arrow().to_pylist()}
    assert aircraft == Counter(r["tailnum"] for r in expected if r["tailnum"])
    for name in counts[0]:
        table = lake.load_table(name)
        assert StaticTable.from_metadata(table.metadata_location).scan().count() == counts[0][name]


def test_generated_events_are_streamed_and_all_good() -> None:
    from assets.demo.synthetic import EVENTS_PER_FILE, synthetic_days

    days = list(synthetic_days(EVENTS_PER_FILE + 10))
    assert [len(d.lines) for d in days] == [EVENTS_PER_FILE, 10]
    assert len({line for d in days for line in d.lines}) == EVENTS_PER_FILE + 10
    assert days == list(synthetic_days(EVENTS_PER_FILE + 10))
