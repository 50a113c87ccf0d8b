"""Name mappings beside pyiceberg's: what it reads we read, what we write it reads."""

from __future__ import annotations

import json

import pytest
from pyiceberg.table.name_mapping import create_mapping_from_schema, parse_mapping_from_json

from lakehouse.errors import InvalidPropertyError
from lakehouse.spec.schema.name_mapping import covering, parse_name_mapping
from tests.unit.spec.samples import schema


def test_a_new_mapping_is_the_one_that_pyiceberg_makes():
    text = covering(None, schema())
    assert parse_mapping_from_json(text) == create_mapping_from_schema(schema())
    assert text == create_mapping_from_schema(schema()).model_dump_json()


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '[{"names": []}]',
        '[{"field-id": 1, "names": ["a", "ä"]}, {"names": ["gone"], "field-id": null}]',
        '[{"field-id": 2, "names": ["p"], "fields": [{"field-id": 3, "names": ["lat"]}]}]',
        '[{"field-id": 2, "names": ["p"], "fields": null, "unknown": {}}]',
    ],
)
def test_mappings_are_read_as_pyiceberg_reads_them(text):
    theirs = parse_mapping_from_json(text)
    assert [field.to_json() for field in parse_name_mapping(text)] == json.loads(
        theirs.model_dump_json()
    )


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", '[{"names": "a"}]', '[{"names": [1]}]', '[{"field-id": "x"}]', "[" * 9999],
)
def test_what_is_no_mapping_is_refused(text):
    with pytest.raises(InvalidPropertyError, match="is not a name mapping"):
        parse_name_mapping(text)
