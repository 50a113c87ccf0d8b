"""Table names and time travel clauses are found and replaced in place."""

from __future__ import annotations

import pytest

from lakehouse.errors import InvalidInputError
from lakehouse.spark.statement import parse_statement


def rewritten(text, ours=None):
    statement = parse_statement(text)
    wanted = [ref for ref in statement.references if ours is None or ".".join(ref.name) in ours]
    return statement.with_views({ref: f"v{i}" for i, ref in enumerate(wanted)})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM raw.events", "SELECT * FROM `v0` AS `events`"),
        ("SELECT * FROM `raw`.`events` e", "SELECT * FROM `v0` e"),
        (
            "SELECT * FROM raw.events FOR VERSION AS OF 8124 WHERE a=1",
            "SELECT * FROM `v0` AS `events` WHERE a=1",
        ),
        ("SELECT * FROM raw.events VERSION AS OF 'q3' AS e", "SELECT * FROM `v0` AS e"),
        ("SELECT * FROM raw.events FOR TIMESTAMP AS OF '2026-06-01' e", "SELECT * FROM `v0` e"),
        ("SELECT raw.events.x FROM raw.events", "SELECT `events`.x FROM `v0` AS `events`"),
        ("SELECT raw.events.s.y FROM raw.events", "SELECT `events`.s.y FROM `v0` AS `events`"),
        (
            "SELECT raw.events.files.x FROM raw.events.files",
            "SELECT `files`.x FROM `v0` AS `files`",
        ),
        (
            "SELECT 'raw.events' /* raw.events */ FROM raw.events",
            "SELECT 'raw.events' /* raw.events */ FROM `v0` AS `events`",
        ),
        (
            "SELECT 'é\U0001f600', a FROM raw.events",
            "SELECT 'é\U0001f600', a FROM `v0` AS `events`",
        ),
    ],
)
def test_rewriting(text, expected):
    assert rewritten(text) == expected


def test_tables_of_others_and_common_table_expressions_are_left_alone():
    text = "WITH c AS (SELECT 1 AS a) SELECT * FROM c JOIN other.t ON true JOIN raw.events ON true"
    assert rewritten(text, {"raw.events"}) == text.replace("raw.events", "`v0` AS `events`")


def test_what_a_clause_says():
    text = "SELECT * FROM a.b VERSION AS OF 8124, a.c VERSION AS OF 'q3', a.d TIMESTAMP AS OF '2026-06-01 12:00:00', a.e"
    found = {
        ref.name[1]: (ref.snapshot_id, ref.ref, ref.as_of)
        for ref in parse_statement(text).references
    }
    assert found == {
        "b": (8124, None, None),
        "c": (None, "q3", None),
        "d": (None, None, "2026-06-01 12:00:00"),
        "e": (None, None, None),
    }


def test_a_subquery_and_a_union_are_queries_and_an_insert_is_not():
    assert parse_statement("SELECT 1 UNION ALL SELECT * FROM a.b").is_query
    assert parse_statement("WITH c AS (SELECT * FROM a.b) SELECT * FROM c").is_query
    assert not parse_statement("INSERT INTO a.b SELECT 1").is_query


@pytest.mark.parametrize(
    "text",
    [
        "SELECT FROM WHERE",
        "SELECT 1; SELECT 2",
        "SELECT * FROM a.b TIMESTAMP AS OF current_date()",
        "",
    ],
)
def test_what_cannot_be_used_is_refused(text):
    with pytest.raises(InvalidInputError):
        parse_statement(text)
