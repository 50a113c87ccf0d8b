"""Looks at a lakehouse again: only what changed is gathered, and time passes."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.curation.checkup import check_statements
from lakehouse.curation.statement_store import StatementStore
from lakehouse.curation.survey import survey
from lakehouse.environment import Environment
from lakehouse.semantics.binding import bind
from lakehouse.semantics.statement_yaml import parse_statements
from lakehouse.semantics.states import State

NOW = dt.datetime(2025, 6, 1, 12, tzinfo=dt.UTC)
SCHEMA = pa.schema({"at": pa.timestamp("us", tz="UTC"), "code": pa.string()})
DOCUMENT = """
table: raw.a
statements:
- {id: fresh, kind: freshness, column: at, evidence: {check: newest, column: at, within: 1d}}
- {id: until, kind: description, column: code, text: A code., expires: 2025-06-03}
---
table: raw.b
statements:
- {id: fixed, kind: warning, evidence: {check: "null_share", column: code}}
"""


class Clock:
    def __init__(self):
        self.ms = int(NOW.timestamp() * 1000)

    def __call__(self):
        self.ms += 1
        return self.ms

    def forward(self, **span):
        self.ms += int(dt.timedelta(**span).total_seconds() * 1000)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["filesystem", "sqlite"])
def lake(request, tmp_path, clock):
    environment = replace(Environment.seeded(1), now_ms=clock)
    where = str(tmp_path / "warehouse")
    if request.param == "filesystem":
        lake = lh.load_catalog(where, environment=environment)
    else:
        uri = f"sqlite:///{tmp_path}/catalog.db"
        lake = lh.load_catalog(uri, warehouse=where, environment=environment)
    for name in ("raw.a", "raw.b"):
        lake.create_table(name, SCHEMA).append(rows())
    names = {name.name: name for name in survey(lake).names.values()}
    drafts = parse_statements(DOCUMENT)
    StatementStore(lake).put([bind(draft, names, clock()) for draft in drafts])
    check_statements(lake)
    return lake


def rows():
    return pa.table({"at": [NOW], "code": ["x"]}, schema=SCHEMA)


def uuid_of(seen, name):
    return next(uuid for uuid, table in seen.tables.items() if table.name == name)


def test_only_what_changed_is_gathered_again(lake):
    first = survey(lake)
    first.standings()
    again = survey(lake, earlier=first)
    assert again.findings.gatherers == first.findings.gatherers
    assert all(one is two for one, two in zip(again.statements, first.statements, strict=True))
    lake.load_table("raw.a").append(rows())
    after = survey(lake, earlier=again)
    for name, same in (("raw.a", False), ("raw.b", True)):
        uuid = uuid_of(after, name)
        assert (after.findings.gatherers[uuid] is first.findings.gatherers[uuid]) == same
        assert (after.tables[uuid] is first.tables[uuid]) == same
    assert after.findings.standings.keys() == {"fixed"}, "what raw.a is said to be is judged again"


def test_time_alone_changes_states(lake, clock):
    seen = survey(lake)
    assert seen.standings()["fresh"].state is State.VERIFIED
    clock.forward(days=1)
    seen = survey(lake, earlier=seen)
    states = {key: one.state for key, one in seen.standings().items()}
    assert states == {
        "fresh": State.CONTRADICTED,
        "until": State.UNVERIFIED,
        "fixed": State.VERIFIED,
    }
    clock.forward(days=1)
    assert survey(lake, earlier=seen).standings()["until"].state is State.EXPIRED


def test_tables_come_and_go(lake):
    before = survey(lake)
    lake.create_table("raw.c", SCHEMA)
    lake.drop_table("raw.b")
    seen = survey(lake, earlier=before)
    assert {table.name for table in seen.tables.values()} == {"raw.a", "raw.c"}
    assert seen.standings()["fixed"].state is State.CONTRADICTED
    lake.create_table("raw.b", SCHEMA)  # another one of the same name
    seen = survey(lake, earlier=seen)
    assert seen.standings()["fixed"].state is State.CONTRADICTED


def test_what_is_said_and_seen_is_read_again(lake):
    seen = survey(lake)
    StatementStore(lake).remove(["fixed"])
    seen = survey(lake, earlier=seen)
    assert {statement.statement_id for statement in seen.statements} == {"fresh", "until"}
    lake.drop_table("semantics.verifications")
    lake.drop_table("semantics.statements")
    seen = survey(lake, earlier=seen)
    assert (list(seen.statements), seen.verifications) == ([], {})


class Interrupted:
    """A catalog in which somebody else does something right after its tables were listed."""

    def __init__(self, catalog, meanwhile):
        self._catalog, self._meanwhile = catalog, meanwhile

    def __getattr__(self, name):
        return getattr(self._catalog, name)

    def list_tables(self, namespace):
        found = self._catalog.list_tables(namespace)
        if namespace == ("raw",):
            self._meanwhile()
        return found


@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
def test_what_is_said_meanwhile_of_a_new_table_is_not_contradicted(lake, tmp_path, again):
    """Statements that are newer than the tables would be about tables that are not there yet."""
    seen = survey(lake) if again else None
    lake.load_table("raw.b").append(rows())
    catalog = lake.catalog

    def meanwhile():
        lake.catalog = catalog
        lake.create_table("raw.new", SCHEMA).append(rows())
        told = survey(lake)
        names = {name.name: name for name in told.names.values()}
        (draft,) = parse_statements(
            "{table: raw.a, statements: [{id: pair, kind: warning, text: As many., "
            "evidence: {check: row_ratio, to: raw.new, min: 1, max: 1}}]}"
        )
        StatementStore(lake).put([bind(draft, names, told.now_ms)])

    lake.catalog = Interrupted(catalog, meanwhile)
    found = survey(lake, earlier=seen)
    assert State.CONTRADICTED not in {standing.state for standing in found.standings().values()}
    after = survey(lake, earlier=found)
    assert after.standings()["pair"].state is State.VERIFIED


def test_one_look_serves_the_next_whatever_it_was_asked_for(lake):
    """Earlier looks at some tables, or at what was said before, pass on what is still so."""
    whole = survey(lake)
    for earlier in (survey(lake, ["raw.a"]), survey(lake, as_of_ms=1, earlier=whole)):
        found = survey(lake, earlier=earlier)
        assert found.standings() == whole.standings()
        assert found.tables.keys() == whole.tables.keys()
