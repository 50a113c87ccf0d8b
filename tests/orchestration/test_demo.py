"""The demo on three of its days, twice."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from itertools import takewhile
from pathlib import Path

import dagster as dg
import duckdb
import pyarrow.compute as pc
import pytest
from pyiceberg.table import StaticTable
from pyiceberg.types import IntegerType, LongType
from pyspark.sql import SparkSession
from rich.console import Console

import assets
from assets.flights.busiest_airports import busiest_airports
from examples.demo import flights_data, tour
from jobs.marts import refresh_marts
from lakehouse.curation.checkup import check_statements
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.code_location import build_definitions
from lakehouse.orchestration.discovery import discover
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark
from lakehouse.orchestration.state.state_asset import STATE_KEY
from lakehouse.semantics.states import State
from lakehouse.spark import LakehouseSession, attach
from lakehouse.table import Table
from tests.integration.spark_support import run

pytestmark = [pytest.mark.spark, pytest.mark.slow]
DAYS, LINES = 3, 4000


@pytest.fixture
def few_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo of a few days, with a late one and one that is cut off among them."""
    real = flights_data.landed_days
    for module in (flights_data, tour):
        monkeypatch.setattr(module, "LATE_DAYS", frozenset({date(2013, 1, 2)}))
    monkeypatch.setattr(tour, "CUT_OFF_DAY", date(2013, 1, 3))
    # the day that comes late here is said to be without flights, as those of the storm are
    text = tour.STATEMENTS.read_text().replace("2013-02-08", "2013-01-02")
    (tmp_path / "statements.yaml").write_text(text.replace("2013-02-10T12", "2013-01-03T04"))
    monkeypatch.setattr(tour, "STATEMENTS", tmp_path / "statements.yaml")
    monkeypatch.setattr(
        tour,
        "landed_days",
        lambda table: takewhile(
            lambda d: d.day <= date(2013, 1, DAYS), real(table.slice(0, LINES))
        ),
    )


@pytest.mark.usefixtures("few_days")
def test_the_demo_conserves_every_line_and_a_second_run_changes_no_row(
    tmp_path: Path, spark: SparkSession, duck: duckdb.DuckDBPyConnection
) -> None:
    lake, counts, shown = shown_twice(tmp_path)
    assert all(": conserved" in one and "blizzard" in one for one in shown)
    assert all("s went" in one and "all else:" in one for one in shown)
    for said in ("raw__flights: staging ", "raw__flights: published: ", "clean__flights: comput"):
        assert f"    {said}" in shown[0]
    assert "nothing new" in shown[1]
    assert counts[0] == counts[1]
    every_column_is_described(lake, counts[0])
    what_was_said_became_untrue(
        lake, [[line for line in one.splitlines() if "statements about" in line] for one in shown]
    )
    the_rows_are_those_of_the_package(lake, counts[0])
    session = attach(spark, lake)
    for name, rows in counts[0].items():
        same_in_every_engine(lake.load_table(name), session, duck, rows)
    a_day_reads_its_own_files(lake.load_table("raw.flights"), session)
    a_column_came_with_the_late_file(lake.load_table("raw.flights"))


def shown_twice(tmp_path: Path) -> tuple[Lakehouse, list[dict[str, int]], list[str]]:
    """The lake after two runs; of each the rows of all tables and what it printed."""
    pipeline = discover(assets).pipeline(str(tmp_path / "landing"))
    resource = LakehouseResource(
        catalog=(tmp_path / "warehouse").as_uri(), landing=pipeline.landing_root
    )
    definitions = dg.Definitions.merge(
        build_definitions(pipeline, resource, LakehouseSpark()),
        dg.Definitions(assets=[busiest_airports], jobs=[refresh_marts]),
    )
    counts, shown = [], []
    with dg.DagsterInstance.ephemeral() as instance:
        for _ in range(2):
            out = io.StringIO()
            console = Console(file=out, width=120)
            tour.run(pipeline, resource.lake(), definitions, instance, console, tour.DemoOptions())
            shown.append(out.getvalue())
            lake = resource.lake()
            counts.append(
                {
                    name: lake.load_table(name).scan().count()
                    for name in pipeline.table_names()
                    if lake.table_exists(name)
                }
            )
        state = instance.get_latest_materialization_event(STATE_KEY)
        assert "raw.flights" in str(state.asset_materialization.metadata["state"].value)
    return lake, counts, shown


def the_rows_are_those_of_the_package(lake: Lakehouse, counts: Mapping[str, int]) -> None:
    """Every line of the flights is there once, in universal time, and counted by aircraft."""
    flights = flights_data.read_flights()
    assert flights.num_rows == 336_776
    expected = [
        row
        for row in flights.slice(0, LINES).to_pylist()
        if (row["month"], row["day"]) <= (1, DAYS)
    ]
    raw = lake.load_table("raw.flights").scan().to_arrow().to_pylist()
    assert len(raw) == len(expected) == counts["clean.flights"]
    key = ("carrier", "flight", "origin", "time_hour", "distance", "dep_delay", "tailnum")
    assert Counter(tuple(r[k] for k in key) for r in raw) == Counter(
        tuple(r[k] for k in key) for r in expected
    )
    # the package's own UTC hour is an independent witness of the time zone
    assert all(r["event_ts"].strftime("%Y-%m-%dT%H:00:00Z") == r["time_hour"] for r in raw)
    aircraft = {
        r["tailnum"]: r["flights"]
        for r in lake.load_table("marts.aircraft").scan().to_arrow().to_pylist()
    }
    assert aircraft == Counter(r["tailnum"] for r in expected if r["tailnum"])


def a_column_came_with_the_late_file(table: Table) -> None:
    """Nobody announced it: the snapshot before does not have it."""
    then = table.scan(snapshot_id=table.history()[0].snapshot_id).to_arrow()
    assert "feed" not in then.column_names
    now = set(table.scan(select=["feed"]).to_arrow()["feed"].to_pylist())
    assert None in now
    assert len(now) > 1


def every_column_is_described(lake: Lakehouse, names: Iterable[str]) -> None:
    """But one that nobody announced."""
    empty = {
        f"{name}.{one.name}"
        for name in names
        if name.split(".")[0] != "raw" or name == "raw.flights"
        for one in lake.load_table(name).schema().fields
        if not one.doc
    }
    assert empty == {"raw.flights.feed"}


def what_was_said_became_untrue(lake: Lakehouse, statements: list[list[str]]) -> None:
    """One statement, when the late day came; the rows say the same. `statements`: a list a run."""
    before, after = statements[0]
    assert "contradicted" not in before
    assert ": 1 contradicted, " in after
    assert statements[1] == [after, after], "and it stays so"
    (wrong,) = (one for one in check_statements(lake) if one.standing.state is State.CONTRADICTED)
    assert wrong.draft.statement_id == "no_flights_in_the_storm"
    first, last = (datetime(2013, 1, 2, 12, tzinfo=UTC), datetime(2013, 1, 3, 4, tzinfo=UTC))
    happened = lake.load_table("raw.flights").scan(select=["event_ts"]).to_arrow()
    late = sum(first <= one < last for one in happened["event_ts"].to_pylist())
    assert str(late) in wrong.standing.reason
    docs = {one.name: one.doc for one in lake.load_table("raw.flights").schema().fields}
    assert docs["distance"] == "Great-circle distance in miles."


def same_in_every_engine(
    table: Table, session: LakehouseSession, duck: duckdb.DuckDBPyConnection, rows: int
) -> None:
    """Spark, pyiceberg and DuckDB open the table by path and agree on count and sums.

    Sums are of every whole-number column.
    """
    numbers = [
        field.name
        for field in table.schema().fields
        if isinstance(field.field_type, (IntegerType, LongType))
    ]
    asked = ", ".join(["count(*)", *(f"sum({name})" for name in numbers)])
    by_spark = tuple(session.sql(f"SELECT {asked} FROM {table.name}").collect()[0])
    by_duck = duck.sql(f"SELECT {asked} FROM iceberg_scan('{table.metadata_location}')").fetchone()
    columns = StaticTable.from_metadata(table.metadata_location).scan().to_arrow()
    by_pyiceberg = (columns.num_rows, *(pc.sum(columns[name]).as_py() for name in numbers))
    assert by_spark == by_duck == by_pyiceberg
    assert by_spark[0] == rows


def a_day_reads_its_own_files(table: Table, session: LakehouseSession) -> None:
    """A filter on event time: the plan and Spark's own metric name that day's files alone.

    They are those of the day until compaction moves its month, which is over, into one file.
    """
    where = "event_ts >= '2013-01-02T00:00:00+00:00' AND event_ts < '2013-01-03T00:00:00+00:00'"
    line = table.metadata.ancestors(table.metadata.current_snapshot_id)
    ingested = next(one.snapshot_id for one in line if one.operation != "replace")
    for version, snapshot_id in (("", None), (f" VERSION AS OF {ingested}", ingested)):
        scan = table.scan(where, snapshot_id=snapshot_id)
        found = scan.plan().report.data_files
        sql = f"SELECT landing_line FROM {table.name}{version} WHERE {where}"
        rows, files = run(session.sql(sql))
        assert files == found.planned
        assert found.planned < found.total if version else found.planned == found.total == 1
        assert len(rows) == scan.count() > 0


def test_generated_events_are_streamed_and_all_good() -> None:
    from examples.demo.synthetic import EVENTS_PER_FILE, synthetic_days

    days = list(synthetic_days(EVENTS_PER_FILE + 10))
    assert [len(d.lines) for d in days] == [EVENTS_PER_FILE, 10]
    assert len({line for d in days for line in d.lines}) == EVENTS_PER_FILE + 10
    assert days == list(synthetic_days(EVENTS_PER_FILE + 10))
