"""`serve`, `new-principal`, `spark-connect` and `mcp`."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated, Any

import typer
import yaml
from rich.text import Text

from lakehouse.catalog.redaction import is_secret
from lakehouse.cli.catalog_settings import key_value
from lakehouse.cli.command_session import Session, command, load_module
from lakehouse.errors import InvalidInputError

log = logging.getLogger(__name__)

# for how long after an answer `mcp` still reads the catalog again, so that the next need not wait
_KEEP_S = 60


@command
def serve(
    session: Session,
    host: Annotated[str, typer.Option(help="Interface to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8181,
    workers: Annotated[
        int, typer.Option(help="Processes that serve: one for each core.", min=1, max=64)
    ] = 1,
    principals: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="YAML that says who may do what; others are refused."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Do not authenticate callers, on any interface.")
    ] = False,
    vend_role: Annotated[
        str | None,
        typer.Option(
            metavar="ARN", help="Hand out credentials of this role, confined to the table (STS)."
        ),
    ] = None,
    sts_endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="STS elsewhere than at Amazon.")
    ] = None,
    vend_seconds: Annotated[
        int, typer.Option(help="How long those credentials are good for.", min=900, max=43200)
    ] = 3600,
    sign: Annotated[
        bool, typer.Option("--sign", help="Sign requests to S3 for clients without credentials.")
    ] = False,
    tell: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Tell clients, as the s3.endpoint by which they reach the store; repeatable.",
        ),
    ] = None,
    access_log: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Log each request there as JSON; - is standard error."),
    ] = None,
    memory: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=MIB", help="Size of a cache (docs/rest_reference.md)."),
    ] = None,
    plans: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="A bound of plans (docs/rest_reference.md)."),
    ] = None,
    dagster_url: Annotated[
        str,
        typer.Option(metavar="URL", help="Where Dagster's UI is, for links of the web pages."),
    ] = "",
) -> None:
    """Serve the catalog over HTTP, by the Iceberg REST protocol.

    It runs until it is interrupted or terminated, and answers the requests in progress first.
    With several workers, one that dies is started again.
    At SIGHUP it reads the file of principals again; one with an error in it changes nothing.

    Example: lakehouse serve --principals people.yaml --port 8181
    """
    http: Any = load_module("lakehouse.server.http_server", "server")
    log: Any = load_module("lakehouse.server.watching.access_log", "server")
    signals: SimpleQueue[int] = SimpleQueue()
    for stop in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(stop, lambda number, _: signals.put(number))
    rules: Any = None
    if principals is not None:
        file: Any = load_module("lakehouse.server.access.principals_file", "server")
        rules = file.read_rules(principals)
    if access_log is not None:
        log.open_log(access_log)
    access = (
        None if vend_role is None and not sign else (vend_role, sts_endpoint, vend_seconds, sign)
    )
    app: Any = load_module("lakehouse.server.rest_app", "server")
    options = {
        "config": dict(_default_setting(setting) for setting in tell or ()),
        "access": access and app.AccessRules(*access),
        "memory": app.MemoryBounds.parse(memory or ()),
        "dagster_url": dagster_url,
    }
    bounds = app.PlanBounds.parse(plans or ())
    served = app.rest_app(session.lake, rules=rules, plans=bounds, **options)
    guarded = insecure or rules is not None
    server = http.HttpServer(served, host, port, is_guarded=guarded)
    if workers > 1:
        processes: Any = load_module("lakehouse.server.worker_processes", "server")
        processes.check_shared(session.lake, workers)
        where = session.options
        catalog = {"uri": where.uri, "warehouse": where.warehouse, "name": where.name}
        each = processes.Served({**where.properties, **catalog}, options, bounds, access_log)
        server = served = processes.WorkerProcesses(each, host, port, workers, rules=rules)
    with server:
        _announce(session, server.url)
        while signals.get() == signal.SIGHUP:
            if principals is not None:
                _reread(principals, file.read_rules, served)


def _reread(principals: Path, read_rules: Callable[[Path], Any], served: Any) -> None:
    try:
        served.follow(read_rules(principals))
    except Exception as error:  # noqa: BLE001 - whatever it is, the server goes on
        log.error("What %s said before still holds: %s", principals, error)  # noqa: TRY400
    else:
        log.warning("%s was read again.", principals)


def _default_setting(text: str) -> tuple[str, str]:
    key, value = key_value(text, f"--tell takes KEY=VALUE; not {text!r}.")
    if is_secret(key):
        raise InvalidInputError(
            f"{key} is secret, and --tell gives it to everybody. Have access handed out with "
            "--vend-role or --sign."
        )
    return key, value


def _announce(session: Session, url: str) -> None:
    session.show(
        {"url": url, "catalog": session.lake.name},
        f"Iceberg REST: {url}. Ctrl-C stops it.\n"
        f'  lh.load_catalog("{url}", warehouse="{session.lake.warehouse}")\n'
        f"  ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{url}', "
        "AUTHORIZATION_TYPE 'none');  -- DuckDB",
    )
    sys.stdout.flush()


@command
def new_principal(
    session: Session,
    name: Annotated[str, typer.Argument(help="The name of the principal.")],
    role: Annotated[list[str] | None, typer.Option(help="A role, repeatable.")] = None,
) -> None:
    """Create a secret for a principal, and the lines for `serve --principals`.

    Example: lakehouse new-principal ann --role analyst
    """
    hashed: Any = load_module("lakehouse.server.access.hashed_secrets", "server")
    if not name or ":" in name:
        raise InvalidInputError(f"A principal's name has no colon and is not empty: {name!r}.")
    secret = hashed.new_secret()
    entry = {"secret": str(hashed.HashedSecret.of(secret)), "roles": role or []}
    lines = yaml.safe_dump({"principals": {name: entry}}, width=200, allow_unicode=True)
    session.show(
        {"credential": f"{name}:{secret}", "principals": {name: entry}},
        Text(f"# credential={name}:{secret}   (shown once, kept nowhere)\n{lines}".rstrip()),
    )


@command
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
    """Serve the catalog to Spark Connect clients, which only need PySpark.

    It runs until it is interrupted or terminated.

    Example: lakehouse spark-connect --port 15002
    """
    module: Any = load_module("lakehouse.spark.connect.connect_server", "spark")
    wrong = "Spark's configuration is given as KEY=VALUE; not as {!r}"
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    server = module.start_connect_server(
        session.lake,
        name=catalog_name,
        host=host,
        port=port,
        master=master,
        config=dict(key_value(text, wrong.format(text)) for text in spark_config or ()),
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


@command
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
    catalog = live.LiveCatalog(session.lake, options, keep_s=_KEEP_S)
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
