"""`python -m benchmarks.agent_catalog.searching_agents`: how long many agents wait for `search`.

The domain lies in a SQL catalog on disk, served by a process of `lakehouse mcp --http`. The agents
are sessions of the SDK's own client in another process: each asks one of the domain's questions
once a second, at a moment of its own in the second. Before that all of them ask at once of a server
that has answered nothing yet: the cold start. The same is done to a server of the same SDK whose
tool does nothing: what is left is ours. While the agents ask somebody commits, so that the catalog
is read again beside the answers.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import anyio
from mcp.client import Client
from mcp.server.mcpserver import MCPServer
from mcp.types import TextContent

import lakehouse as lh
from benchmarks.agent_catalog.lakes import fill
from tests.cluster.ports import free_port, listens

FOLDER = Path(__file__).parent
RESULT = FOLDER.parent / "results" / "agent_search.json"
QUESTIONS = [
    question["question"]
    for question in json.loads((FOLDER / "domain" / "dev_questions.json").read_text("utf-8"))
]
NOTHING = "A tool that does nothing."


def build(folder: Path) -> list[str]:
    """The domain in a SQL catalog on disk; the options that open it."""
    database, warehouse = f"sqlite:///{folder}/catalog.db", str(folder / "warehouse")
    fill(lh.load_catalog(database, warehouse=warehouse), seed=1)
    return ["--catalog", database, "--warehouse", warehouse]


def idle_server(port: int) -> None:
    """A server of the same SDK, set up like ours, that answers at once."""
    server: MCPServer[Any] = MCPServer("idle", log_level="WARNING")

    async def search(question: str, budget: int = 1_500) -> str:  # noqa: ARG001 - as ours
        return NOTHING

    server.add_tool(search, structured_output=False)
    server.run("streamable-http", host="127.0.0.1", port=port, json_response=True)


@contextmanager
def serving(arguments: list[str]) -> Iterator[tuple[str, int, float]]:
    """A server in a process of its own: where it listens, its id, the seconds until it did."""
    port = free_port()
    began = time.perf_counter()
    command = [sys.executable, *arguments, "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            while not listens(port):
                if server.poll() is not None or time.perf_counter() > began + 120:
                    raise RuntimeError(f"the server does not listen: {command}")
                time.sleep(0.01)
            yield f"http://127.0.0.1:{port}/mcp", server.pid, time.perf_counter() - began
        finally:
            server.terminate()
            server.wait(30)


async def first_answers(url: str, agents: int, mode: Any) -> list[float]:
    """All agents connect, and then ask at once questions that are new; milliseconds each."""
    return await answers(url, agents, mode, turns=1, spread_out=False)


async def steady_answers(url: str, agents: int, mode: Any, seconds: float) -> list[float]:
    """Each agent asks once a second; milliseconds from when it wanted to ask to the answer."""
    return await answers(url, agents, mode, turns=int(seconds), spread_out=True)


async def answers(url: str, agents: int, mode: Any, *, turns: int, spread_out: bool) -> list[float]:
    """Milliseconds that agents wait, who ask in turns of a second."""
    waited: list[float] = []
    rng = random.Random(1)

    async def ask(client: Client, number: int, begin: float) -> None:
        for turn in range(turns):
            wanted = begin + turn
            await anyio.sleep(max(0.0, wanted - time.perf_counter()))
            await search_once(client, number + turn)
            waited.append((time.perf_counter() - wanted) * 1000)

    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Client(url, mode=mode)) for _ in range(agents)]
        begin = time.perf_counter() + 0.5
        async with anyio.create_task_group() as group:
            for number, client in enumerate(clients):
                group.start_soon(ask, client, number, begin + rng.random() * spread_out)
    return waited


async def search_once(client: Client, number: int) -> None:
    """One question."""
    result = await client.call_tool("search", {"question": QUESTIONS[number % len(QUESTIONS)]})
    (part,) = result.content
    assert isinstance(part, TextContent)
    assert not result.is_error, part.text
    assert part.text == NOTHING or "# " in part.text


@contextmanager
def committing(options: list[str]) -> Iterator[None]:
    """A process commits a row to a table every three seconds."""
    code = (
        "import time, lakehouse as lh\n"
        f"lake = lh.load_catalog({options[1]!r}, warehouse={options[3]!r})\n"
        "while True:\n"
        "    table = lake.load_table('sales.ord')\n"
        "    table.append(table.scan(limit=1).to_arrow())\n"
        "    print('committed', flush=True)\n"
        "    time.sleep(3)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline()  # it is past its imports
        try:
            yield
        finally:
            writer.terminate()


def measured(
    arguments: argparse.Namespace, server: list[str], writer: AbstractContextManager[None]
) -> dict[str, Any]:
    """Both ways of asking, of a new server each time."""
    cold: list[dict[str, float]] = []
    for _ in range(arguments.starts):
        with serving(server) as (url, _, listens):
            waited = anyio.run(first_answers, url, arguments.agents, arguments.mode)
        cold.append({"listens_after_s": round(listens, 2), **spread(waited)})
    with serving(server) as (url, process, _), writer:
        before = cpu_ms(process), time.process_time() * 1000
        waited = anyio.run(steady_answers, url, arguments.agents, arguments.mode, arguments.seconds)
        after = cpu_ms(process), time.process_time() * 1000
    spent = [round((now - then) / len(waited), 2) for then, now in zip(before, after, strict=True)]
    return {
        "steady_ms": spread(waited),
        "processor_ms_an_answer": {"server": spent[0], "clients": spent[1]},
        "all_at_once_after_the_start_ms": cold,
    }


def cpu_ms(process: int) -> float:
    """Processor time that a process has taken."""
    fields = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def spread(waited: list[float]) -> dict[str, float]:
    """Of milliseconds."""
    ordered = sorted(waited)
    return {
        "answers": len(ordered),
        "p50": round(ordered[len(ordered) // 2], 1),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 1),
        "most": round(ordered[-1], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--starts", type=int, default=3, help="How often a server is started cold.")
    parser.add_argument(
        "--mode",
        choices=["auto", "legacy"],
        default="auto",
        help="Today's revision of the protocol, or the handshake before it.",
    )
    parser.add_argument("--json", type=Path, default=RESULT)
    parser.add_argument("--idle-server", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.idle_server:
        idle_server(arguments.port)
        return
    with tempfile.TemporaryDirectory() as folder:
        options = build(Path(folder))
        load = os.getloadavg()[0]
        ours = ["-c", "from lakehouse.cli import app; app()", "mcp", "--http", *options]
        idle = ["-m", "benchmarks.agent_catalog.searching_agents", "--idle-server"]

        result = {
            "benchmark": "agent_search",
            "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, "
            f"Python {platform.python_version()}",
            "load_before": round(load, 2),
            "agents": arguments.agents,
            "seconds": arguments.seconds,
            "mode": arguments.mode,
            "a_tool_that_does_nothing": measured(arguments, idle, nullcontext()),
            "search": measured(arguments, ours, committing(options)),
            "load_after": round(os.getloadavg()[0], 2),
        }
    arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
