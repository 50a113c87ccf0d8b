"""Comments that others wrote into tables become statements, with states like any other."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

import lakehouse as lh
from lakehouse.curation.proposals import written_comments
from lakehouse.curation.standard_fields import keep_statements
from lakehouse.curation.survey import survey
from lakehouse.semantics.binding import bind
from lakehouse.semantics.statement_yaml import parse_statements, write_statements
from lakehouse.semantics.states import State

PLACE = StructType(NestedField(4, "zip", StringType(), required=False, doc="Five digits."))
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "amount", LongType(), required=False, doc="In cents."),
    NestedField(3, "place", PLACE, required=False),
)


@pytest.fixture
def others(tmp_path):
    """A catalog in which another library made a table with comments."""
    uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse"
    catalog = SqlCatalog("lakehouse", uri=uri, warehouse=warehouse)
    catalog.create_namespace("raw")
    properties = {"comment": "One row a sale.", "owner": "Sales"}
    catalog.create_table("raw.sales", SCHEMA, properties=properties)
    return catalog


@pytest.fixture
def lake(others, tmp_path):
    lake = lh.load_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse")
    lake.load_table("raw.sales").append(pa.table({"id": [1], "amount": [100]}))
    return lake


def written(lake):
    found = written_comments(survey(lake), lake.list_tables())
    return {(str(one.kind), one.column): one.text or one.claim["owner"] for one in found}


def accepted(lake):
    """As `suggest` prints it and `import` reads it."""
    seen = survey(lake)
    names = {name.name: name for name in seen.names.values()}
    text = write_statements(written_comments(seen, lake.list_tables()))
    statements = [bind(statement, names, seen.now_ms) for statement in parse_statements(text)]
    return keep_statements(lake, statements, "Ann", replace=False)


def test_comments_are_proposed_until_they_are_statements(lake):
    assert written(lake) == {
        ("description", None): "One row a sale.",
        ("description", "amount"): "In cents.",
        ("description", "place.zip"): "Five digits.",
        ("owner", None): "Sales",
    }
    found = accepted(lake)
    assert {one.standing.state for one in found.checked} == {State.VERIFIED}
    assert written(lake) == {}
    assert written_comments(survey(lake), []) == []


def test_what_somebody_else_writes_later_is_proposed_again(lake, others):
    accepted(lake)
    with others.load_table("raw.sales").update_schema() as update:
        update.update_column("amount", doc="In euros.")
    assert written(lake) == {("description", "amount"): "In euros."}


def test_a_comment_that_became_a_statement_is_contradicted_with_its_column(lake, others):
    accepted(lake)
    with others.load_table("raw.sales").update_schema() as update:
        update.rename_column("amount", "total")
        update.delete_column("place")
    seen = survey(lake)
    states = {
        seen.draft(statement).column: statement
        for statement in seen.statements
        if statement.subject.field_id
    }
    assert seen.standing(states["total"]).state is not State.CONTRADICTED
    assert seen.standing(states["place.zip"]).state is State.CONTRADICTED
