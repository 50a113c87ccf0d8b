"""Views in `lakehouse sql` and `lakehouse tables`."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.environment import Environment
from lakehouse.errors import InvalidInputError, InvalidViewError, NoSuchTableError
from lakehouse.queries import QueryEngine
from lakehouse.spec.views.view_metadata import SqlRepresentation, ViewVersion
from lakehouse.spec.views.view_updates import version_updates
from lakehouse.view import CATALOG_NAME
from tests.unit.cli.conftest import Command

IDS = pa.schema({"id": pa.int64()})
ROWS = pa.table({"id": [1, 2, 3], "k": ["a", "b", None]})


@pytest.fixture
def lake(tmp_path):
    lake = lh.load_catalog(str(tmp_path / "lake"))
    lake.create_table("raw.events", ROWS.schema).append(ROWS)
    return lake


@pytest.fixture
def ask(lake):
    engine = QueryEngine(lake, Environment.system())
    return lambda query: engine.run(query).to_pylist()


def test_a_view_is_read_by_its_own_names(lake, ask):
    columns = pa.schema({"a b": pa.int64(), "K": pa.string()})
    lake.create_view("raw.seen", "SELECT id, k FROM events WHERE id > 1 -- not the first", columns)
    assert ask("SELECT * FROM raw.seen ORDER BY 1") == [{"a b": 2, "K": "b"}, {"a b": 3, "K": None}]
    assert ask('SELECT seen."a b" FROM raw.seen WHERE "K" = \'b\'') == [{"a b": 2}]
    assert ask('SELECT count(*) AS n FROM raw.seen v JOIN raw.events e ON v."a b" = e.id') == [
        {"n": 2}
    ]
    assert ask("WITH events AS (SELECT 1 AS x) SELECT x, count(*) AS n FROM events, raw.seen "
               "GROUP BY x") == [{"x": 1, "n": 2}]  # fmt: skip


def test_views_in_views_keep_their_own_places(lake, ask):
    lake.create_view("raw.two", "SELECT id FROM events WHERE id < 3", IDS)
    lake.create_view("marts.three", "SELECT id + 1 AS id FROM two", IDS, default_namespace="raw")
    assert ask("SELECT sum(id) AS s FROM marts.three") == [{"s": 5}]
    lake.create_view("marts.none", "SELECT id FROM two", IDS)
    with pytest.raises(NoSuchTableError, match=r"marts\.two"):
        ask("SELECT * FROM marts.none")


def test_spark_is_translated_and_the_own_dialect_preferred(lake, ask):
    lake.create_view("raw.quoted", "SELECT `id` / 2 AS `half of it` FROM `raw`.`events`", IDS)
    assert ask("SELECT id FROM raw.quoted ORDER BY id") == [{"id": 0.5}, {"id": 1.0}, {"id": 1.5}]
    both = {"spark": "SELECT no_such(id) FROM events", "datafusion": "SELECT id FROM events"}
    lake.create_view("raw.both", both, IDS)
    assert ask("SELECT count(*) AS n FROM raw.both") == [{"n": 3}]


def test_names_of_catalogs(lake, ask):
    view = lake.create_view("raw.seen", "SELECT id FROM spark_lake.raw.events", IDS)

    def define(sql, catalog, summary):
        texts = (SqlRepresentation(sql, "spark"),)
        version = ViewVersion(1, 0, 5, texts, ("raw",), catalog, summary)
        view.change(version_updates(view.schema(), version))

    with pytest.raises(NoSuchTableError):
        ask("SELECT * FROM raw.seen")
    define("SELECT id FROM spark_lake.raw.events", "spark_catalog", {CATALOG_NAME: "spark_lake"})
    assert ask("SELECT count(*) AS n FROM raw.seen") == [{"n": 3}]
    define("SELECT id FROM events", "spark_lake", {CATALOG_NAME: "spark_lake"})
    assert ask("SELECT count(*) AS n FROM raw.seen") == [{"n": 3}]
    # the table of that name here is another one
    define("SELECT id FROM raw.events", "spark_catalog", {CATALOG_NAME: "spark_lake"})
    with pytest.raises(InvalidViewError, match="spark_catalog, which cannot be read here"):
        ask("SELECT * FROM raw.seen")


def test_what_cannot_be_read_is_said(lake, ask):
    lake.create_view("raw.odd", {"klingon": "SELECT 1"}, IDS)
    lake.create_view("raw.a", "SELECT id FROM raw.b", IDS)
    lake.create_view("raw.b", "SELECT id FROM raw.a", IDS)
    lake.create_view("raw.bad", "SELECT nothing FROM events", IDS)
    lake.create_view("raw.gone", "SELECT id FROM raw.dropped", IDS)
    write = lake.create_view("raw.write", "SELECT 1 AS id", IDS)
    (said,) = write.metadata.current_version().representations
    theirs = replace(  # another engine's
        write.metadata.current_version(),
        representations=(replace(said, sql="INSERT INTO events VALUES (1)"),),
    )
    write.change(version_updates(write.schema(), theirs))
    for name, kind, reason in (
        ("odd", InvalidViewError, "klingon"),
        ("a", InvalidViewError, r"raw\.a -> raw\.b -> raw\.a"),
        ("bad", InvalidInputError, "nothing"),
        ("gone", NoSuchTableError, r"raw\.dropped"),
        ("write", InvalidInputError, r"raw\.write"),
        ("seen", NoSuchTableError, r"raw\.seen"),
    ):
        with pytest.raises(kind, match=reason):
            ask(f"SELECT * FROM raw.{name}")
    with pytest.raises(InvalidInputError, match="no versions"):
        ask("SELECT * FROM raw.bad VERSION AS OF 1")


@pytest.mark.parametrize(
    "expression",
    [
        "date_format(at, 'yyyy-MM-dd')",
        "substr(k, 0, 1)",
        "substring('hello', -3, 2)",
        "substring(k, id, 1)",
        "cast(id AS string)",
        "initcap(k)",
    ],
)
def test_what_would_mean_something_else_is_refused(lake, ask, expression):
    lake.create_view("raw.other", f"SELECT {expression} AS id FROM events", IDS)
    with pytest.raises(InvalidViewError, match=r"raw\.other.*spark"):
        ask("SELECT * FROM raw.other")


def test_decimals_and_doubles_have_the_types_of_the_view(lake, ask):
    schema = pa.schema({"d": pa.decimal128(9, 6), "f": pa.float64()})
    lake.create_view("raw.typed", "SELECT 1 / 3 AS d, 2 AS f", schema)
    assert ask("SELECT * FROM raw.typed") == [{"d": Decimal("0.333333"), "f": 2.0}]


def test_the_list_has_them(lake, tmp_path):
    lake.create_view("raw.seen", "SELECT id FROM events", IDS)
    command = Command(str(tmp_path / "lake"))
    rows = command("tables", "--json").json
    assert [row["name"] for row in rows] == ["raw.events", "raw.seen"]
    assert rows[1] == {"name": "raw.seen", "type": "view"}
    assert "raw.seen" in command("tables").out
    told = command("describe", "raw.seen", "--json").json
    assert told["sql"] == {"spark": "SELECT id FROM events"}
    assert [one["name"] for one in told["columns"]] == ["id"]
    assert "SELECT id FROM events" in command("describe", "raw.seen").out
    refused = command("history", "raw.seen")
    assert refused.code != 0
    assert "raw.seen is a view" in refused.err
    answer = command("sql", "SELECT max(id) AS m FROM raw.seen", "--json")
    assert answer.json == [{"m": 3}]
