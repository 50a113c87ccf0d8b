"""`serve` and `spark-connect`."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from typing import Annotated, Any

import typer

from lakehouse.cli.command_session import Session, command
from lakehouse.cli.optional_parts import load_module
from lakehouse.errors import InvalidInputError


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "serve")(serve)
    command(app, "spark-connect")(spark_connect)


def serve(
    session: Session,
    host: Annotated[str, typer.Option(help="Interface to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8181,
    access_log: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Log each request there as a line of JSON; - is standard error."
        ),
    ] = None,
) -> None:
    """Serve the catalog over HTTP to everything that speaks Iceberg REST.

    It runs until it is interrupted or terminated. What it is asked until then it still answers.
    """
    app: Any = load_module("lakehouse.server.rest_app", "server")
    http: Any = load_module("lakehouse.server.http_server", "server")
    log: Any = load_module("lakehouse.server.watching.access_log", "server")
    ended = threading.Event()
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: ended.set())
    if access_log is not None:
        log.open_log(access_log)
    with http.HttpServer(app.rest_app(session.lake), host, port) as server:
        session.show(
            {"url": server.url, "catalog": session.lake.name},
            f"Iceberg REST: {server.url}. Ctrl-C stops it.\n"
            f'  lh.load_catalog("{server.url}", warehouse="{session.lake.warehouse}")\n'
            f"  ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{server.url}', "
            "AUTHORIZATION_TYPE 'none');  -- DuckDB",
        )
        sys.stdout.flush()
        ended.wait()
    # everything is answered, but threads of granian are still ending; if the interpreter ended
    # under them, they would abort the process
    logging.shutdown()
    sys.stderr.flush()
    os._exit(0)


def spark_connect(
    session: Session,
    catalog_name: Annotated[
        str, typer.Option("--as", metavar="NAME", help="Name of the catalog in SQL.")
    ] = "lake",
    host: Annotated[str, typer.Option(help="Interface to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 15002,
    master: Annotated[str, typer.Option(help="Where Spark runs.")] = "local[*]",
    spark_config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Spark configuration, repeatable."),
    ] = None,
) -> None:
    """Serve the catalog to Spark Connect clients, which need PySpark alone.

    It runs until it is interrupted or terminated.
    """
    module: Any = load_module("lakehouse.spark.connect.connect_server", "spark")
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    server = module.start_connect_server(
        session.lake,
        name=catalog_name,
        host=host,
        port=port,
        master=master,
        config=dict(_setting(one) for one in spark_config or ()),
    )
    with server:
        signal.signal(signal.SIGINT, lambda *_: ended.set())  # PySpark's own raises
        session.show(
            {"url": server.url, "catalog": catalog_name},
            f"Spark Connect: {server.url}, catalog {catalog_name}. Ctrl-C stops it.\n"
            f'  SparkSession.builder.remote("{server.url}").getOrCreate()'
            f'.sql("SHOW NAMESPACES IN {catalog_name}").show()',
        )
        sys.stdout.flush()
        ended.wait()


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise InvalidInputError(f"Spark's configuration is given as KEY=VALUE; not as {text!r}")
    return key, value
