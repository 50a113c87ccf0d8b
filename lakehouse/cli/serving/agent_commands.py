"""`mcp`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakehouse.cli.command_session import Session, command
from lakehouse.cli.optional_parts import load_module

KEEP_S = 60
"""For how long after an answer the catalog is still read again, so that the next need not wait."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "mcp")(mcp)


def mcp(
    session: Session,
    http: Annotated[
        bool, typer.Option("--http", help="Streamable HTTP; standard input and output otherwise.")
    ] = False,
    host: Annotated[str, typer.Option(help="Interface to listen on, with --http.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on, with --http.")] = 8765,
    seconds: Annotated[float, typer.Option(help="A query of run_sql may take, at most.")] = 20.0,
    memory_mb: Annotated[int, typer.Option(help="Memory of a query of run_sql.")] = 512,
    hybrid: Annotated[
        bool,
        typer.Option(
            "--hybrid", help="Search by an embedding of the catalog's own text beside its words."
        ),
    ] = False,
) -> None:
    """Serve the catalog to agents, by the Model Context Protocol.

    Read only. Any caller that can reach the port can read all tables: on other interfaces, put a
    proxy that authenticates in front.

    Example: lakehouse mcp --http --port 8765
    """
    server: Any = load_module("lakehouse.agents.mcp_server", "agents")
    live: Any = load_module("lakehouse.agents.live_catalog", "agents")
    sandbox: Any = load_module("lakehouse.agents.sandboxed_sql", "agents")
    bounds = sandbox.Bounds(seconds=seconds, memory_mb=memory_mb)
    ranking: Any = load_module("lakehouse.agents.ranking", "agents")
    options = live.MapOptions(learn=ranking.LatentEmbedding.of if hybrid else None)
    catalog = live.LiveCatalog(session.lake, options, keep_s=KEEP_S)
    running = server.mcp_server(catalog, bounds)
    if http:
        catalog.view()  # before the first client connects
        catalog.look_beside()
        session.console.print(f"MCP: http://{host}:{port}/mcp. Ctrl-C stops it.")
        # answers are whole at once: as JSON they cost less than as a stream of one event
        running.run("streamable-http", host=host, port=port, json_response=True)
    else:
        catalog.look_beside()  # beside the handshake
        running.run("stdio")
