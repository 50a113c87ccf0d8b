"""What agents are told: within budgets, with states, and text of others marked as such."""

from __future__ import annotations

import re
import threading
from dataclasses import replace

import anyio
import pyarrow as pa
import pytest
from mcp.client import Client

import lakehouse as lh
from lakehouse.agents.catalog_map import CatalogMap
from lakehouse.agents.lines import LEGEND
from lakehouse.agents.live_catalog import LiveCatalog, MapOptions
from lakehouse.agents.mcp_server import mcp_server
from lakehouse.agents.ranking import LatentEmbedding
from lakehouse.agents.serving import (
    describe_answer,
    freshness_answer,
    join_path,
    map_answer,
    metric_answer,
    search_answer,
)
from lakehouse.errors import StorageError
from tests.unit.agents.conftest import CANARY, LINES, build, order

QUESTION = "How many open orders are there, and what is the revenue?"


@pytest.mark.parametrize("budget", [100, 200, 500, 1500])
def test_answers_keep_to_their_budget(live, budget):
    answer = search_answer(live.map, QUESTION, budget)
    assert answer.tokens <= budget
    assert answer.text.startswith(LEGEND)
    assert describe_answer(live.map, live.table("shop.orders"), budget).tokens <= budget


def test_a_contradicted_statement_is_marked_wherever_it_is_served(live):
    found = live.map
    for text in (
        search_answer(found, QUESTION, 1500).text,
        describe_answer(found, live.table("shop.orders"), 1500).text,
    ):
        (line,) = [line for line in text.splitlines() if line.startswith("codes state")]
        assert "✗ CONTRADICTED" in line
        assert "“" in line.partition("✗")[2], "the reason quotes data"


@pytest.mark.parametrize("budget", [130, 200, 400, 1500])
def test_a_replaced_table_is_never_named_without_that(live, budget):
    """Also where it fills what is left of the budget, and at every budget that it fits."""
    text = search_answer(live.map, "price of lines", budget).text
    assert ("# shop.old_orders" in text) == ("DEPRECATED use=shop.orders" in text)


def test_an_embedding_finds_what_is_spelled_otherwise(shop):
    """Beside the words: what they find is found as before."""
    misspelled = "pryce, trnover"
    words_alone = LiveCatalog(shop).view().map
    hybrid = LiveCatalog(shop, MapOptions(learn=LatentEmbedding.of)).view().map
    assert words_alone.table_ranking.scores(misspelled) == {}
    for question, table in (("trnover", "shop.orders"), ("pryce", "shop.lines")):
        scores = hybrid.table_ranking.scores(question)
        assert max(scores, key=scores.get) == table
    assert set(hybrid.table_ranking.scores("").values()) == {0.0}
    for question in (QUESTION, "price of lines"):
        ranked = hybrid.table_ranking.scores(question)
        assert ranked.keys() >= words_alone.table_ranking.scores(question).keys()
    assert (
        CatalogMap(name="empty", tables={}, learn=LatentEmbedding.of).table_ranking.scores("orders")
        == {}
    )


def test_every_statement_has_its_state(live):
    text = describe_answer(live.map, live.table("shop.orders"), 4000).text
    said = [line for line in text.splitlines()[2:] if not line.startswith("cols: ")]
    assert len(said) == 7
    assert all(re.search(r" (✓|\? unverified.*|✗ .*)$", one) for one in said)


def test_snapshots_are_named(live, shop):
    current = shop.load_table("shop.orders").current_snapshot().snapshot_id
    assert f"# shop.orders snapshot={current} rows=3" in search_answer(live.map, "order", 500).text
    assert f"shop.orders snapshot={current}" in map_answer(live.map)


def test_text_of_others_stays_inside_its_quotes(live):
    """A description with newlines, closing quotes, a tick and a table's head is one quoted line."""
    for text in (
        search_answer(live.map, "orders", 1500).text,
        describe_answer(live.map, live.table("shop.orders"), 1500).text,
        map_answer(live.map),
        metric_answer(live.map, "revenue"),
    ):
        assert "\n# shop.fake" not in text
        outside = re.sub(r"“[^”]*”", "", text.removeprefix(LEGEND))
        assert CANARY not in outside
        assert "“" not in outside
        assert "”" not in outside
    assert CANARY in describe_answer(live.map, live.table("shop.orders"), 1500).text


def test_joins_by_statements_alone(live):
    text = join_path(live.map, "shop.orders", "shop.lines")
    # its evidence held, and rows came since
    assert "join: order_id = shop.orders.id many_to_one ? unverified since" in text
    assert "grain: key=id" in text
    assert "grain: key=order_id,line" in text
    assert "No statement says how" in join_path(live.map, "shop.lines", "shop.old_orders")
    with pytest.raises(lh.NoSuchTableError, match=r"no table shop\.none; there are shop\.lines"):
        join_path(live.map, "shop.none", "shop.lines")


def test_metrics_by_name_and_synonym(live):
    for name in ("revenue", "turnover", "Sales"):
        text = metric_answer(live.map, name)
        assert "[sum(total) / 100]" in text
        assert "always: [not deleted]" in text
    assert "There is no metric “margin”" in metric_answer(live.map, "margin")


def test_freshness_is_of_the_table_and_of_what_is_said(live):
    text = freshness_answer(live.map, live.tables["shop.orders"])
    assert "by append" in text
    assert "through=2025-01-02" in text
    assert "use=shop.orders" in freshness_answer(live.map, live.tables["shop.old_orders"])


def test_a_table_as_it_was(live, shop):
    table = shop.load_table("shop.orders")
    first = min(table.metadata.snapshots, key=lambda one: one.timestamp_ms).snapshot_id
    assert live.table("shop.orders", first).rows == 2
    with pytest.raises(lh.NoSuchSnapshotError):
        live.table("shop.orders", 1)


def test_a_change_is_seen_when_the_map_is_old(tmp_path):
    lake = build(tmp_path / "warehouse")
    always = LiveCatalog(lake, fresh_ms=-1)
    assert always.view().table("shop.orders").rows == 3
    more = pa.Table.from_pylist([order(4)], lake.load_table("shop.orders").schema().as_arrow())
    lake.load_table("shop.orders").append(more)
    assert always.view().table("shop.orders").rows == 4


class _SlowCatalog:
    """A catalog whose lists of tables wait until they may come."""

    def __init__(self, catalog):
        self._catalog = catalog
        self.may_come = threading.Event()
        self.asked = threading.Event()

    def __getattr__(self, name):
        return getattr(self._catalog, name)

    def list_tables(self, namespace):
        self.asked.set()
        assert self.may_come.wait(600)
        return self._catalog.list_tables(namespace)


def test_answers_do_not_wait_for_the_catalog_while_the_map_is_fresh_enough(tmp_path):
    now = [1_800_000_000_000]
    lake = build(tmp_path / "warehouse")
    lake.environment = replace(lake.environment, now_ms=lambda: now[0])
    lake.catalog = slow = _SlowCatalog(lake.catalog)
    slow.may_come.set()
    served = LiveCatalog(lake, fresh_ms=2_000)
    assert served.waits
    assert served.view().table("shop.orders").rows == 3
    more = pa.Table.from_pylist([order(4)], lake.load_table("shop.orders").schema().as_arrow())
    lake.load_table("shop.orders").append(more)
    slow.may_come.clear()
    slow.asked.clear()
    now[0] += 1_500  # half as old as it may be: it is made again beside the answers
    assert not served.waits
    assert served.view().table("shop.orders").rows == 3
    assert slow.asked.wait(600)
    assert served.view().table("shop.orders").rows == 3
    now[0] += 1_000  # too old: this one waits for what is under way
    assert served.waits
    threading.Timer(0.2, slow.may_come.set).start()
    assert served.view().table("shop.orders").rows == 4


class _Away:
    """A catalog that answers nothing."""

    def __init__(self, catalog):
        self._catalog = catalog

    def __getattr__(self, name):
        raise StorageError(f"no answer to {name}")


def test_a_catalog_that_does_not_answer_is_told_to_whoever_waits_for_it(tmp_path):
    now = [1_800_000_000_000]
    lake = build(tmp_path / "warehouse")
    lake.environment = replace(lake.environment, now_ms=lambda: now[0])
    served = LiveCatalog(lake, fresh_ms=2_000)
    assert served.view().table("shop.orders").rows == 3
    lake.catalog = _Away(lake.catalog)
    now[0] += 1_500
    assert served.view().table("shop.orders").rows == 3
    now[0] += 1_000
    with pytest.raises(StorageError, match="no answer"):
        served.view()


class _Answers:
    """A catalog that lists its tables a few times, and then answers no more."""

    def __init__(self, catalog, times):
        self._catalog, self._left = catalog, times
        self.gone = threading.Event()

    def __getattr__(self, name):
        return getattr(self._catalog, name)

    def list_tables(self, namespace):
        self._left -= 1
        if self._left < 0:
            self.gone.set()
            raise StorageError("no answer to list_tables")
        return self._catalog.list_tables(namespace)


def test_the_catalog_is_read_again_for_a_while_after_the_last_answer(tmp_path):
    lake = build(tmp_path / "warehouse")
    namespaces = len(lake.list_namespaces())
    lake.catalog = answers = _Answers(lake.catalog, times=4 * namespaces)
    served = LiveCatalog(lake, fresh_ms=10, keep_s=3_600)
    served.view()
    served.look_beside()
    assert answers.gone.wait(600)  # nobody has asked since


def test_without_that_it_is_read_once(tmp_path):
    lake = build(tmp_path / "warehouse")
    namespaces = len(lake.list_namespaces())
    lake.catalog = answers = _Answers(lake.catalog, times=2 * namespaces)
    served = LiveCatalog(lake, fresh_ms=10)
    served.view()
    served.look_beside()
    for thread in [one for one in threading.enumerate() if one.name == "catalog-look"]:
        thread.join(600)
        assert not thread.is_alive()
    assert not answers.gone.is_set()


def test_a_clock_that_is_set_back_makes_nothing_fresh(tmp_path):
    now = [1_800_000_000_000]
    lake = build(tmp_path / "warehouse")
    lake.environment = replace(lake.environment, now_ms=lambda: now[0])
    served = LiveCatalog(lake, fresh_ms=2_000)
    assert served.view().table("shop.orders").rows == 3
    more = pa.Table.from_pylist([order(4)], lake.load_table("shop.orders").schema().as_arrow())
    lake.load_table("shop.orders").append(more)
    now[0] -= 3_600_000
    assert served.waits
    assert served.view().table("shop.orders").rows == 4


class _Flickering:
    """A catalog in which somebody drops a table and creates it again, by turns, at each listing."""

    def __init__(self, lake):
        self._catalog, self._lake = lake.catalog, lake

    def __getattr__(self, name):
        return getattr(self._catalog, name)

    def list_tables(self, namespace):
        if namespace == ("shop",):
            lake = lh.Lakehouse(self._catalog, self._lake.environment)
            if lake.table_exists("shop.lines"):
                lake.drop_table("shop.lines")
            else:
                lake.create_table("shop.lines", LINES)
        return self._catalog.list_tables(namespace)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("describe", {"table": "shop.lines"}),
        ("freshness", {"table": "shop.lines"}),
        ("check_sql", {"sql": "select count(*) from shop.lines"}),
        ("run_sql", {"sql": "select count(*) from shop.lines"}),
        ("join_path", {"a": "shop.lines", "b": "shop.orders"}),
        ("metric", {"name": "revenue"}),
        ("search", {"question": "price of lines"}),
    ],
)
def test_an_answer_is_of_one_moment(tmp_path, tool, arguments):
    """With a table that comes and goes it is there or not; never half of each."""
    lake = build(tmp_path / "warehouse")
    lake.catalog = _Flickering(lake)
    served = mcp_server(LiveCatalog(lake, fresh_ms=-1))

    async def ask():
        async with Client(served) as client:
            return [await client.call_tool(tool, arguments) for _ in range(4)]

    for number, answer in enumerate(anyio.run(ask)):
        text = answer.content[0].text
        there = number % 2 == 1
        if tool in ("metric", "search"):
            assert not answer.is_error, text
            continue
        assert answer.is_error == (not there), text
        assert ("There is no table shop.lines" in text or "no table shop.lines" in text) != there


@pytest.mark.parametrize("about", ["search", "describe"])
def test_what_is_said_of_a_column_never_comes_without_the_column(live, about):
    """At every budget, however long its mark is: the column comes first."""
    table = live.table("shop.orders")
    alone = set()
    for budget in range(60, 700, 10):
        if about == "search":
            text = search_answer(live.map, "state of orders, total", budget).text
        else:
            text = describe_answer(live.map, table, budget).text
        for block in text.split("\n# ")[1:]:
            lines = block.splitlines()
            cells = [line.removeprefix("cols: ") for line in lines if line.startswith("cols: ")]
            columns = {cell.split()[0] for line in cells for cell in line.split(", ")}
            said = {line.split()[1].rstrip(":") for line in lines if re.match("unit|codes", line)}
            assert said <= columns, (budget, block)
            if block.startswith("shop.orders") and "state" in columns - said:
                alone.add(budget)
    assert alone, "there are budgets at which the contradicted codes of `state` do not fit"
