"""Run by the Python of another environment: uses the server as a client library there does.

Arguments: the library, and a command or a URL. Prints the revision that was agreed on.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

TOOLS = {"search", "describe", "join_path", "metric", "freshness", "check_sql", "run_sql"}
QUESTION = {"question": "open orders", "budget": 800}


def check_search(text: str) -> None:
    assert "# shop.orders snapshot=" in text, text
    assert "CONTRADICTED" in text, text


async def with_sdk(target: list[str]) -> str:
    """The SDK before 2.0, whose sessions begin with the handshake."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamablehttp_client

    opened: Any
    if target[0].startswith("http"):
        opened = streamablehttp_client(target[0])
    else:
        opened = stdio_client(StdioServerParameters(command=target[0], args=target[1:]))
    async with opened as (read, write, *_), ClientSession(read, write) as session:
        agreed = await session.initialize()
        assert {tool.name for tool in (await session.list_tools()).tools} == TOOLS
        found = await session.call_tool("search", QUESTION)
        assert not found.isError
        check_search(found.content[0].text)
        rows = await session.call_tool("run_sql", {"sql": "select count(*) from shop.orders"})
        assert json.loads(rows.content[0].text)["rows"] == [[3]]
        assert (await session.call_tool("freshness", {"table": "shop.none"})).isError
        (resource,) = (await session.list_resources()).resources
        whole = await session.read_resource(resource.uri)
        assert "shop.orders snapshot=" in whole.contents[0].text
        return str(agreed.protocolVersion)


async def with_fastmcp(target: list[str]) -> str:
    from fastmcp import Client

    async with Client(target[0]) as client:
        assert {one.name for one in await client.list_tools()} == TOOLS
        check_search((await client.call_tool("search", QUESTION)).content[0].text)
    return "as it chose"


async def with_langchain(target: list[str]) -> str:
    from langchain_mcp_adapters.client import MultiServerMCPClient

    where = {"url": target[0], "transport": "streamable_http"}
    tools = {one.name: one for one in await MultiServerMCPClient({"here": where}).get_tools()}
    assert set(tools) == TOOLS
    check_search(str(await tools["search"].ainvoke(QUESTION)))
    return "as it chose"


LIBRARIES = {"mcp": with_sdk, "fastmcp": with_fastmcp, "langchain": with_langchain}

if __name__ == "__main__":
    sys.stdout.write(asyncio.run(LIBRARIES[sys.argv[1]](sys.argv[2:])) + "\n")
