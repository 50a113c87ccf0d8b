from __future__ import annotations

import pytest

from lakehouse.environment import Environment
from lakehouse.errors import (
    InvalidInputError,
    NoSuchRefError,
    NoSuchSnapshotError,
    NoSuchTableError,
    StorageError,
)
from lakehouse.lake import Lakehouse
from lakehouse.queries import QueryEngine
from lakehouse.table import Table
from tests.integration.maintenance_support import FailingCatalog


@pytest.fixture
def ask(table):
    engine = QueryEngine(Lakehouse(table.catalog), Environment.system())
    return lambda query: engine.run(query).to_pylist()


def test_a_query_counts(ask):
    assert ask("select count(*) as n from raw.events") == [{"n": 60}]


def test_filters_group_and_order(ask):
    query = (
        "SELECT region, count(*) AS n, max(id) AS top FROM raw.events "
        "WHERE id >= 10 AND id < 40 GROUP BY region ORDER BY region"
    )
    assert ask(query) == [
        {"region": "r0", "n": 10, "top": 29},
        {"region": "r1", "n": 20, "top": 39},
    ]


def test_the_table_keeps_its_name_in_the_query(ask):
    assert ask("select events.id from raw.events where events.id = 7") == [{"id": 7}]
    assert ask("select e.id from raw.events e where e.id = 7") == [{"id": 7}]
    assert ask('select "id" from "raw"."events" where "id" = 7') == [{"id": 7}]


def test_time_travel_by_id_tag_and_time(ask, table):
    first = table.snapshots()[0]
    table.create_tag("start", first.snapshot_id)
    assert ask(f"select count(*) as n from raw.events for version as of {first.snapshot_id}") == [
        {"n": 10}
    ]
    assert ask(
        "select count(*) as n from raw.events FOR VERSION AS OF 'start' e where e.id < 5"
    ) == [{"n": 5}]
    assert ask(f"select count(*) as n from raw.events VERSION AS OF {first.snapshot_id}") == [
        {"n": 10}
    ]
    assert ask("select count(*) as n from raw.events for timestamp as of '2999-01-01'") == [
        {"n": 60}
    ]
    both = (
        "select count(*) as n from raw.events a join raw.events for version as of "
        f"{first.snapshot_id} b on a.id = b.id"
    )
    assert ask(both) == [{"n": 10}]


def test_versions_that_do_not_exist(ask):
    with pytest.raises(NoSuchSnapshotError):
        ask("select * from raw.events for version as of 1")
    with pytest.raises(NoSuchRefError):
        ask("select * from raw.events for version as of 'nope'")
    with pytest.raises(NoSuchSnapshotError):
        ask("select * from raw.events for timestamp as of '1999-01-01'")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("raw.event", r"Did you mean raw\.events\?"),
        ("raws.EVENTS", r"Did you mean raw\.events\?"),
        ("zz.zz", r"Tables are raw\.events\."),
    ],
)
def test_a_table_that_does_not_exist_names_those_that_do(ask, name, hint):
    with pytest.raises(NoSuchTableError, match=hint):
        ask(f"select * from {name}")


def test_metadata_tables(ask):
    assert ask("select count(*) as n from raw.events.snapshots") == [{"n": 6}]
    assert ask("select sum(record_count) as n from raw.events.files") == [{"n": 60}]


def test_ctes_subqueries_and_unions(ask):
    assert ask(
        "with recent as (select * from raw.events where id > 55) select count(*) as n from recent"
    ) == [{"n": 4}]
    assert ask(
        "select count(*) as n from raw.events where id in (select id from raw.events where id < 3)"
    ) == [{"n": 3}]
    assert ask(
        "select max(n) as n from (select 1 as n union all select count(*) from raw.events)"
    ) == [{"n": 60}]


def test_columns_only_filtered_on_are_read_too(ask):
    assert ask(
        "select id from raw.events where region = 'r1' and at > '1970-01-09' order by id limit 1"
    ) == [{"id": 19}]


def test_nulls_follow_three_valued_logic(ask, table):
    import pyarrow as pa

    table.append(
        pa.table(
            {"id": [None, 100], "region": ["r0", None]},
            schema=pa.schema([("id", pa.int64()), ("region", pa.string())]),
        )
    )
    assert ask("select count(*) as n from raw.events where id <> 5") == [{"n": 60}]
    assert ask("select count(*) as n from raw.events where not (region = 'r0')") == [{"n": 30}]
    assert ask("select count(*) as n from raw.events where id is null") == [{"n": 1}]


def test_a_timestamp_comes_back_in_utc(ask):
    assert ask("select cast(min(at) as varchar) as first from raw.events") == [
        {"first": "1970-01-01T00:00:00Z"}
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "create table x as select 1",
        "insert into raw.events values (1)",
        "copy (select 1) to '/tmp/x.csv'",
        "set datafusion.execution.batch_size = 1",
        "select 1; select 2",
        "",
    ],
)
def test_only_one_select_is_run(ask, statement):
    with pytest.raises(InvalidInputError):
        ask(statement)


def test_a_name_without_namespace_is_explained(ask):
    with pytest.raises(InvalidInputError, match=r"namespace\.name\. Did you mean raw\.events\?"):
        ask("select * from events")


def test_a_filter_on_one_table_prunes_no_other(ask):
    joined = (
        "select count(*) as n from raw.events a left join raw.events b on a.id = b.id + 30 where {}"
    )
    assert ask(joined.format("b.id < 5")) == [{"n": 5}]
    assert ask(
        "select count(*) as n from raw.events a, raw.events b where a.id = b.id + 30 and b.id < 5"
    ) == [{"n": 5}]
    outer = (
        "select count(*) as n from raw.events a full join raw.events b on a.id = b.id + 30 where {}"
    )
    assert ask(outer.format("b.id < 5")) == [{"n": 5}]
    assert ask(outer.format("a.id < 5")) == [{"n": 5}]
    assert ask(outer.format("a.id is null and b.id > 10")) == [{"n": 30}]
    inner = "select 1 from raw.events b where a.id = 33 and b.id = 1"
    assert ask(f"select count(*) as n from raw.events a where a.id > 30 and exists ({inner})") == [
        {"n": 1}
    ]


class Watched:
    """Records the filter of every scan that reads a table."""

    def __init__(self, monkeypatch):
        self.filters = []
        original = Table.scan

        def scan(table, where=None, *arguments, **named):
            if "snapshot_id" in named:
                self.filters.append(str(where))
            return original(table, where, *arguments, **named)

        monkeypatch.setattr(Table, "scan", scan)


@pytest.mark.parametrize(
    ("query", "pruned"),
    [
        ("select id from raw.events where id > 50", True),
        ("select id from raw.events where id between 3 and 4 and upper(region) = 'R0'", True),
        ("select id from raw.events where id in (1, 2)", True),
        ("select id from raw.events where id = -1", True),
        ("select count(*) from raw.events where at < timestamp '1970-01-02 00:00:00'", True),
        ("select count(*) from raw.events where at >= cast('1970-01-01' as date)", True),
        ("select count(*) from raw.events where at > now()", False),
        ("select id from raw.events where id > 50 or region = 'r0'", False),
        ("select id from raw.events where not (id > 50)", False),
        ("select id from raw.events where id + 1 > 50", False),
        (
            "select a.id from raw.events a right join raw.events b on a.id = b.id where a.id > 50",
            True,
        ),
        (
            (
                "select a.id from raw.events a left join raw.events b on a.id = b.id where a.id + "
                "b.id > 50"
            ),
            False,
        ),
    ],
)
def test_what_prunes_and_what_does_not(ask, monkeypatch, query, pruned):
    watched = Watched(monkeypatch)
    ask(query)
    assert any("id" in text for text in watched.filters) is pruned


def test_a_file_that_cannot_be_read_is_the_error_that_is_raised(table):
    path = next(iter(table.scan().plan().files)).file_path
    broken = FailingCatalog(
        table.catalog, [path.rsplit("/", 1)[-1]], StorageError("EIO while reading")
    )
    with pytest.raises(StorageError, match="EIO while reading"):
        QueryEngine(Lakehouse(broken), Environment.system()).run("select sum(id) from raw.events")
