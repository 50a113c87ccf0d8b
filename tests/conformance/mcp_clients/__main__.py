"""`python -m tests.conformance.mcp_clients`: `lakehouse mcp` and clients that others wrote.

Older releases of the Python SDK, which speak the revisions before today's, and libraries above it,
each in an environment of its own; the inspector's command line on Node in both eras of the
protocol; and those server scenarios of the protocol's conformance suite that need no tools made for
it. Needs uv, npx, and the registries of both. Exit status 1 when one of them fails.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from tests.cluster.ports import free_port, listens
from tests.unit.agents.conftest import build

ROOT = Path(__file__).parents[3]
CLIENT = Path(__file__).with_name("foreign_client.py")
SERVER = (sys.executable, "-c", "from lakehouse.cli import app; app()", "mcp")
UV = shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")
# the two oldest import what newer releases of pydantic have no more
PYTHON = (
    ("mcp", "mcp==1.9.4", "pydantic<2.12"),
    ("mcp", "mcp==1.12.4", "pydantic<2.12"),
    ("mcp", "mcp==1.30.0"),
    ("fastmcp", "fastmcp==4.1.2"),
    ("langchain", "langchain-mcp-adapters==0.3.2", "mcp<2"),
)
NODE = ("npx", "-y", "-p", "node@22")
INSPECTOR = (*NODE, "-p", "@modelcontextprotocol/inspector@2.12.0", "--", "mcp-inspector", "--cli")
SUITE = (*NODE, "-p", "@modelcontextprotocol/conformance@0.1.16", "--", "conformance", "server")
SCENARIOS = ("server-initialize", "ping", "tools-list", "resources-list", "prompts-list",
             "dns-rebinding-protection")  # fmt: skip
REVISIONS = ("2025-06-18", "2025-11-25")


@contextmanager
def listening(warehouse: str) -> Iterator[str]:
    """The server over HTTP."""
    port = free_port()
    command = [*SERVER, "--catalog", warehouse, "--http", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            for _ in range(600):
                if listens(port):
                    break
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.terminate()
            server.wait(20)


def run(command: Sequence[str]) -> tuple[bool, str]:
    """Whether it succeeded, and what it printed."""
    environment = {**os.environ, "npm_config_loglevel": "error"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environment, check=False
    )
    return done.returncode == 0, (done.stdout + done.stderr).strip()


def python_clients(url: str, stdio: Sequence[str]) -> Iterator[tuple[str, bool, str]]:
    for library, *packages in PYTHON:
        with_them = [part for package in packages for part in ("--with", package)]
        start = [UV, "run", "-q", "--isolated", "--no-project", *with_them, "python", str(CLIENT)]
        for name, target in (("HTTP", [url]), ("stdio", list(stdio))):
            if library != "mcp" and name == "stdio":
                continue
            held, said = run([*start, library, *target])
            yield f"{packages[0]}, {name}", held, said.splitlines()[-1] if said else ""


def inspector(url: str, stdio: Sequence[str], folder: Path) -> Iterator[tuple[str, bool, str]]:
    config = folder / "clients.json"
    servers = {
        "stdio": {"command": stdio[0], "args": list(stdio[1:])},
        "HTTP": {"type": "streamable-http", "url": url},
    }
    config.write_text(json.dumps({"mcpServers": servers}))
    call = ("--method", "tools/call", "--tool-name", "search", "--tool-arg", "question=open orders")
    for era in ("legacy", "modern"):
        for name in servers:
            options = ("--config", str(config), "--server", name, "--protocol-era", era)
            held, said = run([*INSPECTOR, *options, *call])
            told = held and "CONTRADICTED" in said
            yield f"inspector 2.12.0, {name}", told, era if told else said[-200:]


def suite(url: str) -> Iterator[tuple[str, bool, str]]:
    for scenario in SCENARIOS:
        for revision in REVISIONS:
            if scenario == "dns-rebinding-protection" and revision == REVISIONS[0]:
                continue  # of the revision after it
            options = ("--url", url, "--scenario", scenario, "--spec-version", revision)
            held, said = run([*SUITE, *options])
            counted = re.search(r"Passed: (\d+)/(\d+), 0 failed", said)
            passed = held and counted is not None and counted[1] == counted[2] != "0"
            yield f"conformance suite 0.1.16, {scenario}", passed, revision


def main() -> int:
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        warehouse = str(Path(folder) / "warehouse")
        build(warehouse)
        stdio = [*SERVER, "--catalog", warehouse]
        with listening(warehouse) as url:
            for found in (
                python_clients(url, stdio),
                inspector(url, stdio, Path(folder)),
                suite(url),
            ):
                for who, held, said in found:
                    typer.echo(f"{'ok    ' if held else 'FAILED'} {who:58} {said}")
                    failed += not held
    typer.echo(f"{failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
