"""SQL of somebody who is not trusted: rows are right, nothing else is reached."""

from __future__ import annotations

import duckdb
import pytest

import lakehouse as lh
from lakehouse.agents import sandboxed_sql
from lakehouse.agents.sandboxed_sql import Bounds, run_select
from tests.unit.agents.conftest import CANARY


def rows(live, sql, **options):
    return run_select(live.tables, sql, **options).rows


def test_rows_are_those_of_the_query(live):
    joined = (
        "select o.id, count(*) n from shop.orders o join shop.lines l on l.order_id = o.id "
        "where o.id < 3 group by 1 order by 1"
    )
    assert rows(live, joined) == [[1, 2], [2, 2]]
    twice = "with x as (select * from shop.orders) select count(*) from x a join x b on a.id = b.id"
    assert rows(live, twice) == [[3]]
    assert rows(live, "select shop.orders.day from shop.orders limit 1") == [["2025-01-01"]]


def test_a_snapshot_pins_its_table_and_the_time_of_the_others(live, shop):
    first = min(
        shop.load_table("shop.orders").metadata.snapshots, key=lambda one: one.timestamp_ms
    ).snapshot_id
    found = run_select(live.tables, "select count(*) from shop.orders", snapshot_id=first)
    assert found.rows == [[2]]
    assert found.snapshots == {"shop.orders": first}
    with pytest.raises(lh.NoSuchSnapshotError, match="No table of the query has a snapshot 5"):
        rows(live, "select 1 from shop.orders", snapshot_id=5)


def test_limits_are_kept(live):
    found = run_select(live.tables, "select id from shop.orders order by 1", limit=2)
    assert (found.rows, found.more) == ([[1], [2]], True)
    with pytest.raises(lh.InvalidInputError, match="limit must be from 1 to 1000, not 0"):
        rows(live, "select 1", limit=0)


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_csv('/etc/passwd')",
        "select * from '/etc/passwd'",
        'select * from "/etc/passwd"',
        "select (select content from read_text('/etc/passwd'))",
        "select * from shop.orders, read_blob('/etc/passwd')",
        "with r as (select * from read_parquet('x')) select * from r",
        "select * from glob('/*')",
        "select * from query('select 1')",
        "select * from duckdb_settings()",
        "select * from sqlite_scan('a', 'b')",
        "copy shop.orders to '/tmp/x'",
        "copy (select 1) to '/tmp/x'",
        "export database '/tmp/x'",
        "attach '/tmp/x'",
        "install httpfs",
        "load httpfs",
        "set memory_limit = '9GB'",
        "set enable_external_access = true",
        "pragma database_list",
        "select 1; drop table shop.orders",
        "insert into shop.orders values (1)",
        "create table x as select 1",
        "with d as (delete from shop.orders returning *) select * from d",
        "select * from shop.orders for update",
        "explain analyze select 1",
        "call pragma_version()",
        "",
    ],
)
def test_only_a_select_over_tables_of_the_catalog(live, sql):
    with pytest.raises(lh.InvalidInputError):
        rows(live, sql)


def test_other_tables_are_none(live):
    for name in ("information_schema.tables", "pg_catalog.pg_class", "semantics.statements"):
        with pytest.raises(lh.NoSuchTableError):
            rows(live, f"select * from {name}")


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_csv('/etc/passwd')",
        "copy (select 1) to '/tmp/lakehouse_canary'",
        "set memory_limit = '9GB'",
        "set enable_external_access = true",
        "attach '/tmp/lakehouse_canary.db'",
    ],
)
def test_the_engine_refuses_what_the_parser_would_let_pass(sql):
    with duckdb.connect(config=sandboxed_sql._settings(Bounds())) as connection:
        for setting in sandboxed_sql._LOCKED:
            connection.execute(f"set {setting}")
        with pytest.raises(duckdb.Error):
            connection.execute(sql)


def test_variables_of_python_are_no_tables(live):
    secret = live.tables["shop.orders"].scan().to_arrow()  # noqa: F841
    with pytest.raises(lh.LakehouseError):
        rows(live, "select * from secret")


def test_time_and_memory_are_bounded(live):
    crossed = " cross join ".join(f"shop.orders o{number}" for number in range(24))
    with pytest.raises(lh.InvalidInputError, match=r"took more than 0\.3 s and was stopped"):
        rows(live, f"select sum(o1.id * o2.id) from {crossed}", bounds=Bounds(seconds=0.3))
    with pytest.raises(lh.InvalidInputError, match="Out of Memory"):
        rows(live, f"select list(o1.note) from {crossed}", bounds=Bounds(memory_mb=40))


def test_values_are_plain_and_cut(live):
    (row,) = rows(
        live, "select note, repeat(note, 50), [1, 2], {'a': 1} from shop.orders where id = 2"
    )
    assert row[0] == CANARY
    assert len(row[1]) == sandboxed_sql.CELL_MOST
    assert row[2:] == [[1, 2], {"a": 1}]
    assert rows(live, "select chr(27) || 'x'") == [["x"]]
