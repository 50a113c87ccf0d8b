"""Schemas, partition specs and sort orders that no table can have."""

from __future__ import annotations

import pytest

from tests.server.conftest import SCHEMA
from tests.server.test_rest_protocol import changing, error

NESTED = {"type": "list", "element-id": 8, "element-required": False}
TERM = {"source-id": 1, "transform": "identity", "name": "p"}
ORDERED = {"source-id": 9, "direction": "asc", "null-order": "nulls-first"}


def field(field_id, name, kind="long", *, required=False):
    return {"id": field_id, "name": name, "type": kind, "required": required}


def struct(*fields):
    return {"type": "struct", "fields": list(fields)}


def schema(*more, **beside):
    return {**SCHEMA, "fields": [*SCHEMA["fields"], *more], **beside}


def there(rest, namespace, name):
    """The path of a table."""
    path = f"/namespaces/{namespace}/tables/{name}"
    if not rest.ask("HEAD", path).ok:
        rest.table(namespace, name)
    return path


SCHEMAS = {
    "no name": (schema(field(3, "")), "empty name"),
    "no name inside": (schema(field(3, "s", struct(field(4, "")))), "empty name"),
    "no name in a list": (
        schema(field(3, "s", {**NESTED, "element": struct(field(9, ""))})),
        "empty name",
    ),
    "a name twice": (schema(field(3, "name")), "name"),
    "a name twice inside": (schema(field(3, "s", struct(field(4, "a"), field(5, "a")))), "s.a"),
    "an id twice": (schema(field(2, "other")), "id 2"),
    "another version's type": (schema(field(3, "v", "variant")), "format version 3"),
    "no such identifier": (schema(**{"identifier-field-ids": [9]}), "field with id: 9"),
    "an optional identifier": (schema(**{"identifier-field-ids": [1]}), "not a required"),
    "a fraction": (
        schema(field(3, "f", "double", required=True), **{"identifier-field-ids": [3]}),
        "must not be float",
    ),
}


@pytest.mark.parametrize(("wanted", "words"), SCHEMAS.values(), ids=SCHEMAS)
def test_no_table_has_such_a_schema(rest, wanted, words):
    """Neither a new one nor one that has another, whether or not it becomes the current one."""
    here = there(rest, "odd", "t")
    before = rest.get(here).content
    add, set_current = {"action": "add-schema", "schema": wanted}, {"action": "set-current-schema"}
    asked = {
        "/namespaces/odd/tables": {"name": "new", "schema": wanted},
        here: changing(add),
        f"{here}?": changing(add, {**set_current, "schema-id": -1}),
    }
    for path, body in asked.items():
        answer = rest.post(path, body)
        assert error(answer) == (400, "BadRequestException"), path
        assert words in answer.json()["error"]["message"], path
    assert rest.get(here).content == before


@pytest.mark.parametrize(
    "update",
    [
        {"action": "add-spec", "spec": {"fields": [{**TERM, "name": ""}]}},
        {"action": "add-spec", "spec": {"fields": [{**TERM, "field-id": -1}]}},
        {"action": "add-spec", "spec": {"fields": [{**TERM, "field-id": 2**31}]}},
        {"action": "add-spec", "spec": {"fields": [{**TERM, "source-id": 9}]}},
        {"action": "add-sort-order", "sort-order": {"fields": [{**ORDERED, "transform": "day"}]}},
        {"action": "add-sort-order", "sort-order": {"fields": [{**ORDERED, "transform": "later"}]}},
    ],
)
def test_no_table_has_such_a_spec_or_order(rest, update):
    here = there(rest, "odd", "t")
    before = rest.get(here).content
    assert error(rest.post(here, changing(update))) == (400, "BadRequestException")
    assert rest.get(here).content == before


@pytest.mark.parametrize("first", [-1, 2**31])
def test_the_first_schema_of_a_table_has_an_id_that_readers_know(rest, first):
    rest.post("/namespaces", {"namespace": ["odd"]})
    updates = [
        {"action": "add-schema", "schema": {**SCHEMA, "schema-id": first}},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "assign-uuid", "uuid": f"00000000-0000-4000-8000-{abs(first):012d}"},
    ]
    body = {"requirements": [{"type": "assert-create"}], "updates": updates}
    made = rest.post(f"/namespaces/odd/tables/first{abs(first)}", body)
    assert made.status_code == 200, made.text
    assert [one["schema-id"] for one in made.json()["metadata"]["schemas"]] == [0]
