"""Definitions that change while their tables are there: said, carried out or refused, never
ignored."""

from __future__ import annotations

import dataclasses
import shlex
from copy import copy
from datetime import date
from io import StringIO
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from rich.console import Console
from typer.testing import CliRunner

from lakehouse.cli import app
from lakehouse.errors import InvalidInputError, InvalidSchemaError, NotFoundError
from lakehouse.ingestion.definition_changes import DEFINITION, DefinitionChange, rename_command
from lakehouse.ingestion.ingest import index_landing, ingest_days
from lakehouse.ingestion.ingest_plan import Mode
from lakehouse.ingestion.landing_listing import landing_files
from lakehouse.ingestion.source import Column, EventTime
from lakehouse.ingestion.source_tables import event_ts_in
from lakehouse.ingestion.workplace import Workplace
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.assets.lakehouse_io_manager import LakehouseIOManager
from lakehouse.orchestration.assets.sql_model import SqlModel
from lakehouse.orchestration.automation.landing_state import look
from lakehouse.orchestration.lineage.trace import read_lineage
from lakehouse.orchestration.planned_changes import PlannedChanges, plan_changes
from lakehouse.orchestration.project import Pipeline
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark
from lakehouse.spec.table_properties import without_effect
from lakehouse.table import Table
from tests.orchestration.conftest import EVENTS, Pipe, event, june

NUMBERS = pa.schema([("id", pa.int32()), ("name", pa.string()), ("nested", pa.list_(pa.int64()))])


@dataclasses.dataclass
class Mart:
    """A table computed from another one by DuckDB, and its runs."""

    root: Path

    def __post_init__(self) -> None:
        self.resource = LakehouseResource(catalog=str(self.root / "lake"))
        self.lake: Lakehouse = self.resource.lake()
        raw = self.lake.create_table("raw.numbers", NUMBERS)
        raw.append(pa.table({"id": [1, 2], "name": ["a", "b"], "nested": [[1], []]}, NUMBERS))

    def model(self, sql: str = "select id, name from raw.numbers", **layout) -> DerivedTable:
        return SqlModel(name="marts.numbers", sql=sql, engine="duckdb", **layout).table()

    @property
    def table(self) -> Table:
        return self.lake.load_table("marts.numbers")

    def run(self, model: DerivedTable, *, fails: bool = False) -> tuple[list[str], str]:
        """What a run says of the definition, and why it failed."""
        with dg.DagsterInstance.ephemeral() as instance:
            done = dg.materialize(
                [model.build(None)],
                resources={"lakehouse": self.resource, "spark": LakehouseSpark()},
                instance=instance,
                raise_on_error=False,
            )
            assert done.success is not fails
            logs = [log.user_message for log in instance.all_logs(done.run_id)]
            said = [text for text in logs if text.startswith("definition changed")]
            failures = [log for log in instance.all_logs(done.run_id) if log.is_dagster_event]
            reasons = [
                str(log.dagster_event.step_failure_data.user_failure_data.description)
                for log in failures
                if log.dagster_event.is_step_failure
                and log.dagster_event.step_failure_data.user_failure_data
            ]
            return said, " ".join(reasons)

    def terms(self) -> list[str]:
        return [f"{one.name} {one.transform}" for one in self.table.spec().fields]


@pytest.fixture
def mart(tmp_path: Path) -> Mart:
    return Mart(tmp_path)


def test_partitions_and_order_of_a_derived_table_follow_its_definition(mart: Mart) -> None:
    first = mart.model(partition_by=("bucket(2, id)",), sort_by=("name",))
    assert mart.run(first)[0] == []
    assert without_effect(mart.table.properties) == []
    versions = len(mart.table.metadata.metadata_log)
    assert mart.run(first)[0] == []
    assert len(mart.table.metadata.metadata_log) == versions + 3, "a branch, publication, no more"
    old_files = mart.table.inspect.files().num_rows
    said, _ = mart.run(mart.model(partition_by=("bucket(4, id)", "name"), sort_by=("id desc",)))
    assert len(said) == 2
    assert "partition_by is bucket(4, id), name, it was bucket[2](id)" in said[0]
    assert "sort_by is id desc, it was name" in said[1]
    assert mart.terms() == ["id_bucket_4 bucket[4]", "name identity"]
    assert str(mart.table.metadata.sort_order().fields[0].direction) == "DESC"
    assert old_files
    assert sorted(mart.table.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    said, _ = mart.run(mart.model())
    assert mart.terms() == []
    assert mart.table.metadata.sort_order().fields == ()
    assert len(said) == 2
    # and back again under the ids of before
    mart.run(first)
    assert mart.terms() == ["id_bucket bucket[2]"]
    assert mart.table.spec().spec_id == 0


def test_a_layout_changed_by_hand_stays_until_the_definition_changes(mart: Mart) -> None:
    model = mart.model(partition_by=("bucket(2, id)",))
    mart.run(model)
    with mart.table.update_partition_spec() as spec:
        spec.replace("bucket(2, id)", "name")
    assert mart.run(model)[0] == []
    assert mart.terms() == ["name identity"]
    said, _ = mart.run(mart.model(partition_by=("bucket(3, id)",)))
    assert len(said) == 1
    assert mart.terms() == ["id_bucket_3 bucket[3]"]


def test_a_table_made_by_hand_keeps_its_layout_where_the_definition_names_none(mart: Mart) -> None:
    schema = pa.schema([("id", pa.int32()), ("name", pa.string())])
    mart.lake.create_table("marts.numbers", schema, partition_by=["name"])
    assert mart.run(mart.model())[0] == []
    assert mart.terms() == ["name identity"]


@pytest.mark.parametrize("terms", [("bucket(2, gone)",), ("bucket(2, id)", "bucket(2, id)")])
def test_a_layout_that_cannot_be_is_refused_and_nothing_written(
    mart: Mart, terms: tuple[str, ...]
) -> None:
    mart.run(mart.model())
    head = mart.table.metadata.current_snapshot_id
    _, why = mart.run(mart.model(partition_by=terms), fails=True)
    assert "gone" in why or "bucket" in why
    assert mart.table.metadata.current_snapshot_id == head


@pytest.mark.parametrize(
    ("before", "after", "stored", "said"),
    [
        ("id::int", "id::bigint", "long", "it is promoted"),
        ("id::bigint", "id::int", "long", None),
        ("id::real", "id::double", "double", "it is promoted"),
        ("id::decimal(9,2)", "id::decimal(12,2)", "decimal(12, 2)", "it is promoted"),
        ("id::bigint", "id::double", "long", "it stays long"),
        ("id::bigint", "name", None, "Compute x as long"),
        ("name", "id::bigint", None, "Compute x as string"),
        ("id = 1", "id", None, "Compute x as boolean"),
        ("date '2026-01-01'", "timestamp '2026-01-01'", None, "Compute x as date"),
        ("timestamp '2026-01-01'", "timestamptz '2026-01-01'", None, "Compute x as timestamp"),
        ("nested", "id", None, "Compute x as list"),
        ("nested", "[name]", None, "Compute x as list"),
        ("{'a': id}", "{'a': id, 'b': name}", "struct", "added and promoted"),
        ("{'a': id::int}", "{'a': id::bigint}", "struct", "added and promoted"),
        ("{'a': id}", "{'a': name}", None, "Compute x as struct"),
    ],
)
def test_a_changed_type_of_an_output_is_promoted_kept_or_refused(
    mart: Mart, before: str, after: str, stored: str | None, said: str | None
) -> None:
    def model(expression: str) -> DerivedTable:
        sql = f"select id as k, {expression} as x from raw.numbers"
        return mart.model(sql, dialect="duckdb")

    mart.run(model(before))
    head = mart.table.metadata.current_snapshot_id
    lines, why = mart.run(model(after), fails=stored is None)
    if stored is None:
        assert said in why
        assert "column x is" in why
        assert mart.table.metadata.current_snapshot_id == head
        return
    assert str(mart.table.schema().find_field("x").field_type).startswith(stored)
    assert mart.table.metadata.current_snapshot_id != head
    assert [said in line for line in lines] == ([] if said is None else [True])


def test_columns_that_come_and_go_are_told(mart: Mart) -> None:
    mart.run(mart.model("select id, name from raw.numbers"))
    said, _ = mart.run(mart.model("select id, name as title from raw.numbers"))
    assert len(said) == 2
    assert "column name is gone, it was string: it is kept, and null" in said[0]
    assert 'RENAME COLUMN "name" TO "title"' in said[0]
    assert "column title is string, it was not there: it is added" in said[1]
    assert mart.table.scan().to_arrow().to_pylist() == [
        {"id": 1, "name": None, "title": "a"},
        {"id": 2, "name": None, "title": "b"},
    ]


@pytest.mark.parametrize("new", ["title", 'the "title" (€)', "it's"])
def test_the_command_that_renames_a_column_does_it(mart: Mart, new: str) -> None:
    told = shlex.split(rename_command("raw.numbers", "name", new))
    assert told[0] == "lakehouse"
    done = CliRunner().invoke(app, [*told[1:], "--catalog", str(mart.root / "lake")])
    assert done.exit_code == 0, done.output
    fields = mart.lake.load_table("raw.numbers").schema().fields
    assert [field.name for field in fields] == ["id", new, "nested"]


def test_commands_in_a_plan_are_not_cut(mart: Mart) -> None:
    told = f"it is kept; {rename_command('raw.numbers', 'name', 'title_of_the_book')}"
    change = DefinitionChange("raw.numbers", "column name", "string", None, "keep", told)
    console = Console(width=80, file=StringIO())
    console.print(PlannedChanges((change,)))
    assert " ".join(told.split()) in " ".join(console.file.getvalue().split())


def test_names_that_differ_by_case_alone_are_named() -> None:
    columns = tuple(Column(name, "string") for name in ("note", "id", "Note"))
    with pytest.raises(InvalidInputError, match="the names 'note', 'Note' are the same"):
        dataclasses.replace(EVENTS, bucket="", columns=columns)


def test_what_was_only_observed_is_not_called_materialized(mart: Mart) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        instance.report_runless_asset_event(dg.AssetObservation("seen"))
        instance.report_runless_asset_event(dg.AssetMaterialization("made"))
        with pytest.raises(NotFoundError, match=r"materialized assets: made$"):
            read_lineage(instance, mart.lake, "seen")


def test_a_record_that_cannot_be_read_is_told_with_what_to_do(mart: Mart) -> None:
    mart.run(mart.model())
    mart.table.set_properties({DEFINITION: "[]"})
    _, why = mart.run(mart.model(partition_by=("name",)), fails=True)
    assert f"remove_properties('{DEFINITION}')" in why


COLUMNS = ("id", "event_ts", "user", "landing_file")


def changed(pipe: Pipe, **changes: object) -> Pipe:
    """The same source with another definition."""
    again = copy(pipe)
    again.source = dataclasses.replace(pipe.source, **changes)
    return again


def all_rows(pipe: Pipe) -> list[str]:
    found = pipe.lake.load_table("raw.events").scan(select=list(COLUMNS)).to_arrow()
    return sorted(map(repr, found.to_pylist()))


def land(pipe: Pipe) -> None:
    late = [event(n, 1 + n % 2, hour=n % 24) for n in range(20)]
    pipe.land("1.jsonl.gz", [*late, event(90, 1, amount="x")], modified=1_000_000_000)
    twice = [event(n, 2, user="other", hour=n % 24) for n in range(1, 20, 2)]
    pipe.land("2.jsonl.gz", [*twice, event(50, 30)], modified=1_000_000_100)


def talking(pipe: Pipe) -> tuple[Workplace, list[str]]:
    said: list[str] = []
    return dataclasses.replace(pipe.work(), say=said.append), said


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["replace", "increment"])
@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"event_time": EventTime("ts", zone="Pacific/Auckland")}, "event_time.zone"),
        ({"event_time": EventTime("other", zone="Europe/Berlin")}, "event_time.column"),
        ({"natural_key": ("id", "user")}, "natural_key"),
        ({"natural_key": ()}, "natural_key"),
        ({"last_day": date(2026, 6, 30)}, "last_day"),
        ({"last_day": None}, "last_day"),
    ],
)
def test_what_decides_days_and_events_is_applied_to_what_is_there(
    pipe: Pipe, changes: dict[str, object], what: str, mode: Mode
) -> None:
    """Afterwards it is as if the source had been defined so from the beginning."""
    old = pipe.with_source(columns=())
    new = changed(old, **changes)
    fresh = new.with_source()
    for one in (old, fresh):
        land(one)
        path = one.folder / "3.jsonl.gz"
        one.land(path.name, [event(60 + n, 3, other="2026-06-05T01:00:00") for n in range(3)])
    old.index()
    old.ingest(june(1, 20))
    assert look(old.lake, old.landing, old.source)[0].num_rows == 0
    waiting = {one.path for one in landing_files(look(new.lake, new.landing, new.source)[0])}
    if what == "last_day":
        assert waiting == {"1.jsonl.gz", "2.jsonl.gz"}, "those with lines that had no day"
    else:
        assert waiting == {"1.jsonl.gz", "2.jsonl.gz", "3.jsonl.gz"}
        with pytest.raises(InvalidInputError, match="raw/events_landing first"):
            new.ingest(june(1, 20), mode)
    work, said = talking(new)
    index_landing(work, new.source)
    assert [line for line in said if f"raw.events: {what} is" in line]
    new.ingest(june(1, 30), mode)
    fresh.index()
    fresh.ingest(june(1, 30))
    assert all_rows(new) == all_rows(fresh)
    assert new.quarantine() == fresh.quarantine()
    landed = 20 + 1 + 10 + 1 + 3
    new.assert_conserved(landed)
    # and that is all: nothing is read or said again
    assert look(new.lake, new.landing, new.source)[0].num_rows == 0
    work, said = talking(new)
    assert index_landing(work, new.source).files == 0
    assert not [line for line in said if "definition changed" in line]


@pytest.mark.spark
@pytest.mark.parametrize(
    "changes",
    [{"event_time": EventTime("ts", zone="Asia/Tokyo")}, {"natural_key": ("user",)}],
)
def test_what_cannot_be_applied_to_files_that_are_gone_is_refused(
    pipe: Pipe, changes: dict[str, object]
) -> None:
    land(pipe)
    pipe.index()
    pipe.ingest(june(1, 20))
    before, ledger = all_rows(pipe), pipe.ledger()
    (pipe.folder / "1.jsonl.gz").rename(pipe.root / "kept.jsonl.gz")
    new = changed(pipe, **changes)
    for _ in range(2):
        with pytest.raises(InvalidInputError, match=r"the first is 1\.jsonl\.gz.* Nothing was"):
            new.index()
    assert (all_rows(pipe), pipe.ledger()) == (before, ledger)
    # as it was before, the source goes on
    pipe.land("4.jsonl.gz", [event(70, 4)])
    pipe.index()
    pipe.ingest(june(4), "increment")
    # with the file put back, the change is carried out
    (pipe.root / "kept.jsonl.gz").rename(pipe.folder / "1.jsonl.gz")
    new.index()
    new.ingest(june(1, 20), "increment")
    new.assert_conserved(33)


@pytest.mark.spark
def test_another_bucket_or_number_of_buckets_is_for_new_files(pipe: Pipe) -> None:
    land(pipe)
    pipe.index()
    pipe.ingest(june(1, 20))
    ids = pipe.rows("id")
    for changes, name, number in (
        ({"buckets": 5}, "user_bucket_5", 200),
        ({"bucket": "id", "buckets": 3}, "id_bucket_3", 201),
        ({"buckets": 2}, "user_bucket", 202),
    ):
        new = changed(pipe, **changes)
        new.land(f"{number}.jsonl.gz", [event(number, 2)])
        new.index()
        work, said = talking(new)
        ingest_days(work, new.source, june(2), "increment", lambda snapshot, days: ())
        assert [line for line in said if "partition_by is" in line and "read as before" in line]
        table = new.lake.load_table("raw.events")
        assert [field.name for field in table.spec().fields] == ["event_ts_day", name]
        ids.append((number,))
        assert new.rows("id") == ids
    # a day that is written anew has one spec, whatever its files had before
    new.ingest(june(2))
    assert new.rows("id") == ids
    table = new.lake.load_table("raw.events")
    tasks = table.scan(event_ts_in(june(2))).plan().tasks
    assert {task.data_file.spec_id for task in tasks} == {table.metadata.default_spec_id}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("bucket", "reason"), [("nowhere", "there is no such column"), ("share", "it is double")]
)
def test_a_bucket_that_cannot_be_is_refused(pipe: Pipe, bucket: str, reason: str) -> None:
    old = pipe.with_source(columns=())
    old.land("1.jsonl.gz", [event(n, 1, share=0.5) for n in range(3)])
    old.index()
    old.ingest(june(1))
    head = old.lake.load_table("raw.events").metadata_location
    new = changed(old, bucket=bucket)
    new.land("2.jsonl.gz", [event(9, 1, share=0.5)])
    new.index()
    with pytest.raises(InvalidSchemaError, match=f"{bucket!r}: {reason}.*name another column"):
        new.ingest(june(1), "increment")
    assert old.lake.load_table("raw.events").metadata_location == head
    old.ingest(june(1), "increment")
    assert len(old.rows()) == 4


@pytest.mark.spark
def test_what_changes_no_rows_is_told_once(pipe: Pipe) -> None:
    land(pipe)
    pipe.index()
    new = changed(
        pipe, max_rejected=50.0, nanoseconds="cut", first_day=date(2026, 6, 2), drift="quarantine"
    )
    work, said = talking(new)
    assert index_landing(work, new.source).files == 0
    told = [line for line in said if "definition changed" in line]
    assert [line.split(" is ")[0] for line in told] == [
        f"definition changed: raw.events: {part}"
        for part in ("first_day", "drift", "nanoseconds", "max_rejected")
    ]
    assert "materialized again are judged anew" in told[2]
    work, said = talking(new)
    index_landing(work, new.source)
    assert not [line for line in said if "definition changed" in line]


def planned(pipe: Pipe, *tables: DerivedTable, assets: tuple[object, ...] = ()) -> PlannedChanges:
    """What the definitions would do; no table has another version afterwards."""
    lake = pipe.lake
    versions = {name: lake.load_table(name).metadata_location for name in lake.list_tables()}
    defs = dg.Definitions(
        assets=assets,
        resources={
            "io_manager": LakehouseIOManager(lakehouse=LakehouseResource(catalog=pipe.warehouse))
        },
    )
    pipeline = Pipeline((pipe.source,), tables, pipe.landing)
    found = plan_changes(lake, pipeline, defs, lambda: pipe.spark)
    assert versions == {
        name: lake.load_table(name).metadata_location for name in lake.list_tables()
    }
    assert found.to_dict()["changes"] == [change.to_dict() for change in found.changes]
    return found


def brief(found: PlannedChanges) -> list[tuple[str, str, str]]:
    return [(change.table, change.what, change.effect) for change in found.changes]


def days_of(pipe: Pipe, sql: str, **more: object) -> DerivedTable:
    return SqlModel(
        name="clean.events", sql=sql, engine="duckdb", day_column="event_ts", **more
    ).table()


@pytest.mark.spark
def test_a_plan_says_what_the_next_runs_do(pipe: Pipe) -> None:
    sql = "select event_ts, id, amount from raw.events"
    clean = days_of(pipe, sql)
    assert brief(planned(pipe, clean)) == [
        ("raw.events", "table", "create"),
        ("clean.events", "table", "create"),
    ]
    land(pipe)
    pipe.index()
    pipe.ingest(june(1, 20))
    resource = LakehouseResource(catalog=pipe.warehouse)
    resources = {"lakehouse": resource, "spark": LakehouseSpark()}
    days = dg.DailyPartitionsDefinition("2026-06-01", end_date="2026-06-21")
    tags = {
        "dagster/asset_partition_range_start": "2026-06-01",
        "dagster/asset_partition_range_end": "2026-06-20",
    }
    dg.materialize([clean.build(days)], resources=resources, tags=tags)
    assert brief(planned(pipe, clean)) == []
    assert planned(pipe, clean).title().startswith("The tables are as they are defined")

    columns = (
        *(column for column in pipe.source.columns if column.name != "amount"),
        Column("amount", "long"),
        Column("extra", "string"),
    )
    new = changed(
        pipe,
        columns=columns,
        buckets=3,
        natural_key=("id", "user"),
        event_time=EventTime("ts", zone="UTC"),
        max_rejected=50.0,
    )
    found = planned(new, clean)
    assert brief(found) == [
        ("raw.events", "event_time.zone", "recompute"),
        ("raw.events", "natural_key", "recompute"),
        ("raw.events", "max_rejected", "harmless"),
        ("raw.events", "column extra", "evolve"),
        ("raw.events", "column amount", "evolve"),
        ("raw.events", "partition_by", "evolve"),
        ("clean.events", "inputs", "recompute"),
    ]
    assert "events without an offset move to other days" in found.changes[0].said
    # files that are gone make it a refusal, as the run does
    (pipe.folder / "1.jsonl.gz").rename(pipe.root / "kept.jsonl.gz")
    refused = [change for change in planned(new, clean).changes if change.effect == "refuse"]
    with pytest.raises(InvalidInputError) as error:
        new.index()
    assert [change.said for change in refused] == [error.value.message]
    (pipe.root / "kept.jsonl.gz").rename(pipe.folder / "1.jsonl.gz")
    # a type that no promotion leads to, and a bucket that is not there
    odd = changed(pipe, columns=(*pipe.source.columns[:3], Column("amount", "string")))
    assert brief(planned(odd, clean)) == [("raw.events", "columns", "refuse")]
    bare = changed(pipe, bucket="nowhere", columns=())
    assert ("raw.events", "bucket", "refuse") in brief(planned(bare, clean))

    other = days_of(
        pipe,
        "select event_ts, id, cast(amount as string) amount, user from raw.events",
        partition_by=("day(event_ts)", "bucket(2, user)"),
        sort_by=("id",),
    )
    found = planned(pipe, other)
    assert brief(found) == [
        ("clean.events", "query", "recompute"),
        ("clean.events", "column amount", "refuse"),
        ("clean.events", "column user", "evolve"),
        ("clean.events", "layout", "evolve"),
    ]
    assert "2 partitions are computed again: 2026-06-01 to 2026-06-02" in found.changes[0].said
    wrong = days_of(pipe, "select event_ts, nothing from raw.events")
    assert brief(planned(pipe, wrong))[-1] == ("clean.events", "query", "refuse")
    assert "nothing" in planned(pipe, wrong).changes[-1].said
