"""Faults of ours in a request that asks for a change: whether it may have happened is told right.

A client keeps the files of what may have happened, and looks after it.
"""

from __future__ import annotations

import pytest

from lakehouse.server.operations import namespace_operations, table_operations
from lakehouse.server.wire.large_bodies import RequestBodies
from lakehouse.spec.metadata import metadata_draft
from tests.server.conftest import SCHEMA
from tests.server.test_impossible_updates import field, schema, there
from tests.server.test_rest_protocol import changing, error


def broken(*_args, **_more):
    raise ZeroDivisionError("a fault of ours")


FAULTS = {
    "the body of a creation": (table_operations, "_first_metadata"),
    "what a creation may": (table_operations, "check_updates"),
    "an update": (table_operations, "update_from_json"),
    "what a commit may": (table_operations, "signed"),
    "a name": (table_operations, "identifier_from_json"),
    "names": (namespace_operations, "names_from_json"),
    "what is applied": (metadata_draft, "check_column_ids"),
    "a body": (RequestBodies, "body"),
}


@pytest.mark.parametrize(("where", "what"), FAULTS.values(), ids=FAULTS)
def test_a_fault_while_a_request_is_read_leaves_nothing_open(rest, monkeypatch, where, what):
    here = there(rest, "faults", "t")
    named = {"identifier": {"namespace": ["faults"], "name": "t"}}
    change = changing({"action": "add-schema", "schema": schema(field(3, "more"))})
    asked = {
        "/namespaces/faults/tables": {"name": what, "schema": SCHEMA},
        here: change,
        "/transactions/commit": {"table-changes": [{**named, **change}]},
        "/namespaces": {"namespace": [f"of {what}"]},
    }
    monkeypatch.setattr(where, what, broken)
    answers = [rest.post(path, body) for path, body in asked.items()]
    monkeypatch.undo()
    failed = [error(answer) for answer in answers if answer.status_code == 500]
    assert set(failed) == {(500, "InternalServerError")}, [answer.text for answer in answers]


def test_a_fault_while_it_is_done_leaves_open_whether_it_was(rest, monkeypatch):
    rest.table("faults", "u")
    monkeypatch.setattr(type(rest.lake.catalog), "commit", broken)
    change = changing({"action": "set-properties", "updates": {"a": "b"}})
    answer = rest.post("/namespaces/faults/tables/u", change)
    assert error(answer) == (500, "CommitStateUnknownException")
