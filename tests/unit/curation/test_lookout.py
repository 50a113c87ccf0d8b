"""Looks at a lakehouse again: only what changed is gathered, and time passes."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.curation.checkup import check_statements, survey
from lakehouse.curation.lookout import Lookout
from lakehouse.curation.statement_store import StatementStore
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
    names = {one.name: one for one in survey(lake).names.values()}
    drafts = parse_statements(DOCUMENT)
    StatementStore(lake).put([bind(one, names, clock()) for one in drafts])
    check_statements(lake)
    return lake


def rows():
    return pa.table({"at": [NOW], "code": ["x"]}, schema=SCHEMA)


def uuid_of(seen, name):
    return next(uuid for uuid, table in seen.tables.items() if table.name == name)


def test_only_what_changed_is_gathered_again(lake):
    lookout = Lookout(lake)
    first = lookout.look()
    first.standings()
    again = lookout.look()
    assert again.found.gatherers == first.found.gatherers
    assert all(one is two for one, two in zip(again.statements, first.statements, strict=True))
    lake.load_table("raw.a").append(rows())
    after = lookout.look()
    for name, same in (("raw.a", False), ("raw.b", True)):
        uuid = uuid_of(after, name)
        assert (after.found.gatherers[uuid] is first.found.gatherers[uuid]) == same
        assert (after.tables[uuid] is first.tables[uuid]) == same
    assert after.found.standings.keys() == {"fixed"}, "what raw.a is said to be is judged again"


def test_time_alone_changes_states(lake, clock):
    lookout = Lookout(lake)
    assert lookout.look().standings()["fresh"].state is State.VERIFIED
    clock.forward(days=1)
    states = {key: one.state for key, one in lookout.look().standings().items()}
    assert states == {
        "fresh": State.CONTRADICTED,
        "until": State.UNVERIFIED,
        "fixed": State.VERIFIED,
    }
    clock.forward(days=1)
    assert lookout.look().standings()["until"].state is State.EXPIRED


def test_tables_come_and_go(lake):
    lookout = Lookout(lake)
    lookout.look()
    lake.create_table("raw.c", SCHEMA)
    lake.drop_table("raw.b")
    seen = lookout.look()
    assert {one.name for one in seen.tables.values()} == {"raw.a", "raw.c"}
    assert seen.standings()["fixed"].state is State.CONTRADICTED
    lake.create_table("raw.b", SCHEMA)  # another one of the same name
    assert lookout.look().standings()["fixed"].state is State.CONTRADICTED


def test_what_is_said_and_seen_is_read_again(lake):
    lookout = Lookout(lake)
    lookout.look()
    StatementStore(lake).remove(["fixed"])
    assert {one.statement_id for one in lookout.look().statements} == {"fresh", "until"}
    lake.drop_table("semantics.verifications")
    lake.drop_table("semantics.statements")
    seen = lookout.look()
    assert (list(seen.statements), seen.verifications) == ([], {})
