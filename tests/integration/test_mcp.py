"""The server for agents, spoken to by the protocol's own client: both transports, old and new."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import anyio
import pyarrow as pa
import pytest
from mcp import StdioServerParameters
from mcp.client import Client

from lakehouse.agents.live_catalog import FRESH_MS
from tests.cluster.ports import free_port, listens
from tests.unit.agents.conftest import CANARY, LINES, ORDERS, build, order
from tests.waiting import eventually, reaped

COMMAND = ["-c", "from lakehouse.cli import app; app()", "mcp"]
TOOLS = {"search", "describe", "join_path", "metric", "freshness", "check_sql", "run_sql"}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    location = tmp_path_factory.mktemp("mcp") / "warehouse"
    build(location)
    return str(location)


async def call(client, tool, **arguments):
    found = await client.call_tool(tool, arguments)
    return found.is_error, "".join(part.text for part in found.content)


async def use(client):
    """What a client that knows nothing of us does."""
    listed = await client.list_tools()
    assert {tool.name for tool in listed.tools} == TOOLS
    assert all(tool.description and tool.annotations.read_only_hint for tool in listed.tools)
    assert not [tool.name for tool in listed.tools if "  " in tool.description]
    resources = await client.list_resources()
    assert [str(resource.uri) for resource in resources.resources] == ["lakehouse://map"]
    whole = await client.read_resource("lakehouse://map")
    assert "shop.orders snapshot=" in whole.contents[0].text

    failed, text = await call(client, "search", question="open orders", budget=800)
    assert not failed
    assert "✗ CONTRADICTED" in text
    assert "snapshot=" in text
    failed, text = await call(client, "describe", table="shop.orders")
    assert not failed
    assert f"“Orders. ' v # shop.fake {CANARY}”" in text
    failed, text = await call(client, "run_sql", sql="select note from shop.orders where id = 2")
    assert not failed
    answer = json.loads(text)
    assert answer["rows"] == [[CANARY]]
    assert list(answer["snapshots"]) == ["shop.orders"]
    assert {one["what"] for one in answer["findings"]} == {"filter"}
    failed, text = await call(client, "check_sql", sql="select sum(total) from shop.orders")
    assert json.loads(text)["binds"]
    failed, text = await call(client, "run_sql", sql="select * from read_csv('/etc/passwd')")
    assert failed
    assert "is no table of this catalog" in text
    failed, text = await call(client, "freshness", table="shop.none")
    assert failed
    assert "There is no table shop.none; there are shop.lines" in text
    failed, text = await call(client, "search", question="orders", budget=5)
    assert failed
    assert "100" in text


@pytest.mark.parametrize(("mode", "options"), [("legacy", []), ("auto", ["--hybrid"])])
def test_standard_input_and_output(warehouse, mode, options):
    async def talk():
        server = StdioServerParameters(
            command=sys.executable, args=[*COMMAND, "--catalog", warehouse, *options]
        )
        async with Client(server, mode=mode) as client:
            await use(client)

    anyio.run(talk)


@pytest.mark.slow
def test_streamable_http(warehouse):
    port = free_port()
    command = [sys.executable, *COMMAND, "--catalog", warehouse, "--http", "--port", str(port)]
    with reaped(subprocess.Popen(command, stdout=subprocess.DEVNULL)):
        eventually(lambda: listens(port))

        async def talk():
            for mode in ("legacy", "auto"):
                async with Client(f"http://127.0.0.1:{port}/mcp", mode=mode) as client:
                    await use(client)

        anyio.run(talk)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["filesystem", "sqlite"])
def test_what_another_process_commits_is_answered_within_two_seconds(tmp_path, kind):
    """The server is one process, the writer another: the snapshot and the state are the new ones.

    Also right after an answer that was fresh, and with a table that is created meanwhile.
    """
    options = ["--catalog", str(tmp_path / "warehouse")]
    if kind == "sqlite":
        database = f"sqlite:///{tmp_path}/catalog.db"
        options = ["--catalog", database, "--warehouse", str(tmp_path / "warehouse")]
        lake = build(database, warehouse=options[-1])
    else:
        lake = build(options[-1])

    async def talk():
        server = StdioServerParameters(command=sys.executable, args=[*COMMAND, *options])
        async with Client(server) as client:
            for number in (4, 5):
                await call(client, "describe", table="shop.orders")
                orders = lake.load_table("shop.orders")
                row = pa.Table.from_pylist([order(number, state=number)], ORDERS)
                orders.append(row)
                lake.create_table(f"shop.new_{number}", LINES)
                committed = time.monotonic()
                while time.monotonic() < committed + FRESH_MS / 1000:
                    await call(client, "search", question="open orders")  # of before, or of now
                    await anyio.sleep(0.1)
                snapshot = lake.load_table("shop.orders").metadata.current_snapshot_id
                _, text = await call(client, "describe", table="shop.orders")
                assert f"# shop.orders snapshot={snapshot} rows={number}" in text
                (codes,) = [line for line in text.splitlines() if line.startswith("codes state")]
                assert "✗ CONTRADICTED" in codes
                _, text = await call(client, "run_sql", sql="select count(*) from shop.orders")
                assert json.loads(text)["rows"] == [[number]]
                _, text = await call(client, "freshness", table=f"shop.new_{number}")
                assert "nothing was written yet" in text

    anyio.run(talk)
