"""Definitions that change while their tables are there: said, carried out or refused, never
ignored."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from lakehouse.lake import Lakehouse
from lakehouse.orchestration.definition_changes import DEFINITION
from lakehouse.orchestration.derived.derived_table import DerivedTable
from lakehouse.orchestration.derived.sql_model import SqlModel
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark
from lakehouse.table import Table

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
    assert mart.table.metadata.sort_order().fields == []
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
    assert "update_schema().rename_column('name', 'title')" in said[0]
    assert "column title is string, it was not there: it is added" in said[1]
    assert mart.table.scan().to_arrow().to_pylist() == [
        {"id": 1, "name": None, "title": "a"},
        {"id": 2, "name": None, "title": "b"},
    ]


def test_a_record_that_cannot_be_read_is_told_with_what_to_do(mart: Mart) -> None:
    mart.run(mart.model())
    mart.table.set_properties({DEFINITION: "[]"})
    _, why = mart.run(mart.model(partition_by=("name",)), fails=True)
    assert f"remove_properties('{DEFINITION}')" in why
