"""What speaks against a query."""

from __future__ import annotations

import pytest

import lakehouse as lh
from lakehouse.agents.sql_findings import sql_findings


def kinds(live, sql):
    return {(finding.what, finding.about) for finding in sql_findings(live.map, sql)}


SOUND = "select count(*) from shop.orders where not deleted"


def test_a_sound_query_has_no_findings_but_of_its_table(live):
    assert kinds(live, SOUND) == set()


def test_filters_that_are_missing(live):
    assert ("filter", "shop.orders") in kinds(live, "select count(*) from shop.orders")
    inside = "select count(*) from (select * from shop.orders o where not o.deleted) x"
    assert kinds(live, inside) == set()


def test_deprecated_tables_name_their_successor(live):
    (found,) = sql_findings(live.map, "select 1 from shop.old_orders")
    assert (found.what, found.text) == (
        "deprecated",
        "shop.old_orders is deprecated; use shop.orders",
    )


def test_contradicted_facts_of_used_columns_alone(live):
    used = f"{SOUND} and state = 1"
    assert ("contradicted", "shop.orders.state") in kinds(live, used)
    assert ("contradicted", "shop.orders.state") not in kinds(live, SOUND)


def test_joins_that_repeat_rows(live):
    joined = "from shop.orders o join shop.lines l on l.order_id = o.id where not o.deleted"
    assert ("fan_out", "shop.orders") in kinds(live, f"select sum(o.total) {joined}")
    assert kinds(live, f"select sum(l.price) {joined}") == set()
    assert kinds(live, f"select count(distinct o.id) {joined}") == set()


def test_units_that_do_not_mix(live):
    mixed = (
        "select o.total - l.price from shop.orders o join shop.lines l on l.order_id = o.id "
        "where not o.deleted"
    )
    (found,) = sql_findings(live.map, mixed)
    assert found.what == "unit"
    assert "mixes EUR x 0.01 and EUR" in found.text


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("select nope from shop.orders", lh.InvalidInputError, "does not bind"),
        ("select 1 from shop.none", lh.NoSuchTableError, "no table shop.none"),
        ("delete from shop.orders", lh.InvalidInputError, "Only one SELECT"),
        ("select (", lh.InvalidInputError, "Not a query"),
    ],
)
def test_queries_that_do_not_bind(live, sql, error, message):
    with pytest.raises(error, match=message):
        sql_findings(live.map, sql)
