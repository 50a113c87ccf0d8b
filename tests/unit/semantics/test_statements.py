"""Statements as they are written, bound, renamed and kept."""

from __future__ import annotations

import datetime as dt

import pytest

from lakehouse.errors import InvalidStatementError
from lakehouse.semantics.binding import TableNames, bind, under_present_names
from lakehouse.semantics.evidence import as_type_of
from lakehouse.semantics.sql_names import Renames, sql_mentions, sql_renamed
from lakehouse.semantics.statement_rows import statement_rows, statements_of
from lakehouse.semantics.statement_yaml import parse_statements, write_statements

ORDERS = TableNames("sales.orders", "u1", {"id": 1, "total": 2, "customer": 3, "deleted_at": 4})
CUSTOMERS = TableNames("sales.customers", "u2", {"id": 1, "internal": 2})
TABLES = {one.name: one for one in (ORDERS, CUSTOMERS)}
COLUMNS = {name: frozenset(one.fields) for name, one in TABLES.items()}.get

DOCUMENT = """
table: sales.orders
author: Sales
statements:
- kind: grain
  key: [id]
  entity: order
  evidence: {check: unique, columns: [id]}
- kind: unit
  column: total
  unit: EUR
  factor: 0.01
  expires: 2030-01-01
- kind: join
  from: [customer]
  to: [sales.customers.id]
  cardinality: many_to_one
- kind: filter
  name: genuine
  mandatory: true
  predicate: deleted_at is null and customer in (select id from sales.customers where not internal)
- kind: codes
  column: customer
  values: {-1: nobody, 7: [seven, lucky]}
"""


def test_yaml_comes_back_as_it_was():
    drafts = parse_statements(DOCUMENT)
    assert [draft.statement_id for draft in drafts] == [
        "sales.orders/grain",
        "sales.orders.total/unit",
        drafts[2].statement_id,
        "sales.orders/filter/genuine",
        "sales.orders.customer/codes",
    ]
    assert {draft.author for draft in drafts} == {"Sales"}
    assert drafts[4].claim["values"] == {"-1": "nobody", "7": ["seven", "lucky"]}
    assert parse_statements(write_statements(drafts)) == drafts


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("{table: t, statements: [{kind: mood}]}", "not one of description"),
        ("{table: t, statements: [{kind: grain}]}", "needs key"),
        ("{table: t, statements: [{kind: owner, owner: A, grain: x}]}", "has no grain"),
        ("{table: t, statements: [{kind: unit, unit: EUR, factor: many}]}", "must be a number"),
        ("{table: t, statements: [{kind: unit, unit: EUR, tax: half}]}", "net, gross"),
        ("{table: t, statements: [{kind: owner, owner: A, expires: soon}]}", "must be a date"),
        ("{table: t, statements: [{kind: warning, evidence: {check: magic}}]}", "name a check"),
        ("{table: t, statements: [{kind: warning, evidence: {check: bounds}}]}", "needs column"),
        (
            (
                "{table: t, statements: [{kind: warning, evidence: {check: newest, column: a, "
                "within: soon}}]}"
            ),
            "is no span",
        ),
        (
            (
                "{table: t, statements: [{kind: warning, evidence: {check: pattern, column: a, "
                "regex: '('}}]}"
            ),
            "no regular expression",
        ),
        ("{statements: [{kind: warning}]}", "needs a table"),
        (
            "{table: t, statements: [{id: a, kind: warning}, {id: a, kind: warning}]}",
            "two statements",
        ),
        ("[", "is no YAML"),
        ("{tables: 1}", "has the keys"),
    ],
)
def test_what_cannot_be_a_statement_is_refused_with_a_reason(written, says):
    with pytest.raises(InvalidStatementError, match=says):
        parse_statements(written, "file.yaml")


def test_binding_finds_every_field_that_a_statement_depends_on():
    grain, unit, join, filtered, _ = (
        bind(statement, TABLES, 0) for statement in parse_statements(DOCUMENT)
    )
    assert grain.fields_of("u1") == {1}
    assert unit.subject.field_id == 2
    assert (join.fields_of("u1"), join.fields_of("u2")) == ({3}, {1})
    assert (filtered.fields_of("u1"), filtered.fields_of("u2")) == ({3, 4}, {1, 2})


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("column: total", "column: totals", "no column totals"),
        ("sales.customers.id]", "sales.customers.key]", "no column key"),
        ("not internal", "not external", "no column"),
        ("table: sales.orders", "table: sales.order", "no table sales.order"),
        ("from sales.customers", "from sales.clients", "no table sales.clients"),
    ],
)
def test_binding_refuses_names_that_do_not_exist(old, new, says):
    drafts = parse_statements(DOCUMENT.replace(old, new))
    with pytest.raises(InvalidStatementError, match=says):
        _ = [bind(draft, TABLES, 0) for draft in drafts]


def test_renames_are_followed_everywhere():
    statements = [bind(statement, TABLES, 0) for statement in parse_statements(DOCUMENT)]
    now = {
        "u1": TableNames("sales.ord", "u1", {"key": 1, "sum": 2, "customer": 3, "gone": 4}),
        "u2": TableNames("crm.people", "u2", {"id": 1, "ours": 2}),
    }
    grain, unit, join, filtered, _ = (
        under_present_names(statement, now) for statement in statements
    )
    assert grain.table == "sales.ord"
    assert grain.claim["key"] == ["key"]
    assert grain.evidence.arguments["columns"] == ["key"]
    assert unit.column == "sum"
    assert join.claim["to"] == ["crm.people.id"]
    assert "gone IS NULL" in filtered.claim["predicate"]
    assert "FROM crm.people" in filtered.claim["predicate"]
    assert "NOT ours" in filtered.claim["predicate"]
    again = [bind(one, {t.name: t for t in now.values()}, 0) for one in (grain, join, filtered)]
    assert [one.fields_of("u1") for one in again] == [{1}, {3}, {3, 4}]


def test_rows_keep_statements_whole():
    statements = [
        bind(statement, TABLES, 1_700_000_000_000) for statement in parse_statements(DOCUMENT)
    ]
    kept = statements_of(statement_rows(statements))
    assert kept == statements
    assert [one.digest() for one in kept] == [statement.digest() for statement in statements]


def test_mentions_follow_scopes():
    sql = (
        "with big as (select o.id as order_id, total from sales.orders o where total > 5) select "
        "count(*) = 1 from big join sales.customers c on c.id = big.order_id where not internal"
    )
    assert sql_mentions(sql, None, COLUMNS) == {
        ("sales.orders", None),
        ("sales.orders", "id"),
        ("sales.orders", "total"),
        ("sales.customers", None),
        ("sales.customers", "id"),
        ("sales.customers", "internal"),
    }


def test_a_correlated_column_is_the_outer_tables():
    sql = "exists (select 1 from sales.customers c where c.id = customer)"
    assert ("sales.orders", "customer") in sql_mentions(sql, "sales.orders", COLUMNS)


def test_sql_that_names_nothing_renamed_stays_as_it_was_written():
    sql = "sum( total )  -- gross"
    assert sql_renamed(sql, "sales.orders", COLUMNS, Renames({}, {("x.y", "total"): "z"})) == sql


def test_limits_take_the_type_of_the_column():
    assert as_type_of("2025-06-30", dt.date(2025, 1, 1)).day == 30
    assert as_type_of("text", 5) is None
    assert as_type_of(5, "text") == "5"
