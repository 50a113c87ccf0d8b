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
from contextlib import ExitStack
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
}
"""Package of each, and the Python that has it where it is not ours."""
DELTA_ALONE = "delta-rs"
TABLES = (
    *("v1", "v2", "v3", "position deletes", "deletion vectors", "columns changed"),
    *("fields of structs changed", "spec changed", "nanoseconds", "variant", "geometry"),
    *("Delta log", "view", "view made there"),
)
WITHOUT_VIEWS = ("pyiceberg-core", "Polars", "delta-rs")
"""They have no call that would ask a catalog for a view."""
VIEW = {
    "spark": "SELECT id FROM m.columns WHERE id > 1",
    "duckdb": "FROM m.columns SELECT id WHERE id > 1",
}
_PATH = re.compile(r"(file://)?/[^\s'\",:)]+")
_SECONDS_MAX = 300


def built(folder: str) -> dict[str, tuple[str, list[dict[str, Any]]]]:
    """Our tables: location of the metadata, rows; a view has its rows alone."""
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
    found = {
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
    found["columns changed"] = (table.metadata_location, [*old, row])

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
    found["fields of structs changed"] = (table.metadata_location, [*rows, row])

    nanos = pa.table({"at": pa.array([1_700_000_000_000_000_123, None], pa.timestamp("ns"))})
    table = lake.create_table("m.nanos", nanos.schema, format_version=3)
    table.append(nanos)
    found["nanoseconds"] = (table.metadata_location, [{"at": 1_700_000_000_000_000_123}, {}])

    for name, value in (("variant", {"a": 1, "b": ["x"]}), ("geometry", POINT)):
        schema = Schema(
            NestedField(1, "id", LongType(), required=False),
            NestedField(2, "v", type_from_name(name), required=False),
        )
        table = lake.create_table(f"m.{name}", schema, format_version=3)
        table.append(pa.table({"id": [1, 2], "v": [value, None]}))
        found[name] = (table.metadata_location, [{"id": 1}, {"id": 2}])
    found["v1"] = _of_version_one(folder, first)

    properties = {"write.delta-log": "true", "write.delete.mode": "merge-on-read"}
    table = lake.create_table("m.delta", first.schema, format_version=3, properties=properties)
    table.append(first)
    table.delete("id = 1")
    found["Delta log"] = (table.location, first.to_pylist()[1:])

    lake.create_view("m.view", VIEW, pa.schema([("id", pa.int64())]))
    found["view"] = found["view made there"] = ("", [{"id": 2}, {"id": 2**40}])
    return found


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
        }[engine]
        return view(location, name == "view made there")
    is_delta = name == "Delta log"
    folder = location.removeprefix("file://").partition("/metadata/")[0]
    reader = {
        "pyiceberg": _pyiceberg,
        "pyiceberg-core": _datafusion,
        "DuckDB": _duckdb,
        "Polars": _polars,
        "Daft": _daft,
        "chDB": _chdb,
        "Sail": _sail,
        "delta-rs": _delta_rs,
    }[engine]
    return reader(location, folder, is_delta)


def _static(location: str) -> Any:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(location)


def _pyiceberg(location: str, _folder: str, _is_delta: bool) -> pa.Table:
    return _static(location).scan().to_arrow()


def _datafusion(location: str, _folder: str, _is_delta: bool) -> pa.Table:
    from datafusion import SessionContext

    context = SessionContext()
    context.register_table("t", _static(location))
    return context.sql("SELECT * FROM t").to_arrow_table()


def _duckdb(location: str, folder: str, is_delta: bool) -> pa.Table:
    import duckdb
    from duckdb_extensions import import_extension

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    for extension in ("avro", "httpfs", "iceberg", "delta"):
        import_extension(extension, con=connection)
        connection.load_extension(extension)
    connection.sql("SET TimeZone = 'UTC'")
    source = f"delta_scan('{folder}')" if is_delta else f"iceberg_scan('{location}')"
    rows = connection.sql(f"FROM {source}")
    if "VARIANT" in map(str, rows.types):  # which it reads, and gives no Arrow of
        rows = rows.project("id, v::VARCHAR AS v")
    return rows.to_arrow_table()


def _polars(location: str, folder: str, is_delta: bool) -> pa.Table:
    import polars as pl

    if is_delta:
        return pl.scan_delta(folder).collect().to_arrow()
    frame = pl.scan_iceberg(_static(location), reader_override="native")
    return frame.collect().to_arrow()


def _daft(location: str, folder: str, is_delta: bool) -> pa.Table:
    import daft

    frame = daft.read_deltalake(folder) if is_delta else daft.read_iceberg(_static(location))
    return frame.to_arrow()


def _chdb(_location: str, folder: str, is_delta: bool) -> pa.Table:
    os.chdir(folder)  # it opens what is below alone
    import chdb

    source = "deltaLakeLocal" if is_delta else "icebergLocal"
    settings = "output_format_arrow_string_as_string = 1, session_timezone = 'UTC'"
    return chdb.query(f"SELECT * FROM {source}('{folder}') SETTINGS {settings}", "ArrowTable")


def _sail(_location: str, folder: str, is_delta: bool) -> pa.Table:
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    _, port = server.listening_address
    session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    return session.read.format("delta" if is_delta else "iceberg").load(folder).toArrow()


def _delta_rs(_location: str, folder: str, is_delta: bool) -> pa.Table:
    from deltalake import DeltaTable, QueryBuilder

    assert is_delta
    found = QueryBuilder().register("t", DeltaTable(folder)).execute("SELECT * FROM t").read_all()
    return pa.table(found)


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
    if (engine == DELTA_ALONE and name != "Delta log") or (
        (engine in ("pyiceberg", "pyiceberg-core") and name == "Delta log")
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
        with pa.ipc.open_file(file) as found:
            return _compared(found.read_all(), rows, name)


def _compared(found: pa.Table, rows: list[dict[str, Any]], name: str) -> str:
    from tests.conformance.matrix import same_rows

    if name == "view made there":
        return "yes"  # whether we have it is seen at our server
    if name == "view" and found.column_names == ["sql"]:
        wanted = [f"{dialect}: {sql}" for dialect, sql in VIEW.items()]
        return "its SQL" if sorted(found["sql"].to_pylist()) == sorted(wanted) else "other SQL"

    if name == "nanoseconds":
        unit = found.schema.field("at").type
        if getattr(unit, "unit", "") != "ns":
            return f"as {unit}"
        got = sorted(found["at"].cast(pa.int64()).to_pylist(), key=str)
        return "yes" if got == sorted((one.get("at") for one in rows), key=str) else "other times"
    if name in ("variant", "geometry"):
        whole = sorted(found["id"].to_pylist()) == [1, 2] and found["v"].null_count == 1
        kind = found["v"].type
        named = "struct" if pa.types.is_struct(kind) else str(kind)
        return f"yes, as {named}" if whole else "other rows"
    got = found.to_pylist()
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
    """Of the engine's package."""
    package, python = ENGINES[engine]
    if python is None:
        return importlib.metadata.version(package)
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
    return done.stdout.strip() or "not installed"


def main() -> int:
    """Run the cells; exit code 1 where an engine is not installed."""
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
        lines = [f"| | {' | '.join(f'{one} {told}' for one, told in chosen.items())} |"]
        lines.append("|---" * (len(chosen) + 1) + "|")
        for name in options.tables.split(","):
            location, rows = tables[name]
            cells = []
            for engine in chosen:
                said = cell(engine, name, location or server.url, rows)
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
        told = f"{BEGIN}\n\n{text}\n\nRun on {today}.\n\n{END}"
        DOCS.write_text(before + told + rest.partition(END)[2])
    return int("not installed" in chosen.values())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        answer = read(*sys.argv[2:5])
        with pa.ipc.new_file(sys.argv[5], answer.schema) as writer:
            writer.write_table(answer)
        os._exit(0)  # some of them never end
    sys.exit(main())
