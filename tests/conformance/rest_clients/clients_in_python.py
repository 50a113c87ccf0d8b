"""One client in one process: `client url`; prints what works as a line of JSON.

What a client cannot do at all says so in its place; what fails says how, by the first line of the
error.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", "c"]})
URL = sys.argv[2]
KNOWN = {
    "storage credentials need to be specified": "no: on object stores only, with credentials",
    "MergeTree storages require data path": "no",
}
"""What errors mean, by what is in them."""
Steps = dict[str, Callable[[], Any] | str]


def ids(table: Any) -> list[int]:
    """By pyiceberg, whoever wrote it."""
    return sorted(table.refresh().scan().to_arrow()["id"].to_pylist())


def theirs(name: str, *, rows: bool = False) -> Any:
    """pyiceberg's handle of a table, which it makes where it is missing."""
    from pyiceberg.catalog.rest import RestCatalog

    catalog = RestCatalog("c", uri=URL)
    catalog.create_namespace_if_not_exists(name.partition(".")[0])
    if catalog.table_exists(name):
        return catalog.load_table(name)
    table = catalog.create_table(name, ROWS.schema)
    if rows:
        table.append(ROWS)
    return table


def expect(found: Any, wanted: Any) -> None:
    if found != wanted:
        raise AssertionError(f"{found!r}, not {wanted!r}")


def together(write: Callable[[int], Any], read: Callable[[], list[int]]) -> None:
    """Four at a time: who lost a race tries again, as its users have to."""

    def patient(number: int) -> None:
        for left in range(40)[::-1]:
            try:
                write(number)
            except Exception as error:
                said = f"{type(error).__name__} {error}"
                if not left or not any(one in said for one in ("Conflict", "Commit", "409")):
                    raise
            else:
                return

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(patient, range(10, 18)))
    expect(sorted(read()), list(range(10, 18)))


def pyiceberg() -> Steps:
    from pyiceberg.types import LongType

    def evolve() -> None:
        table = theirs("py.t")
        with table.update_schema() as update:
            update.add_column("size", LongType())
        expect(table.scan().to_arrow().column_names, ["id", "name", "size"])

    def write(number: int) -> None:
        theirs("py.many").append(pa.table({"id": [number], "name": ["x"]}))

    theirs("py.many")
    return {
        "create": lambda: theirs("py.t"),
        "write": lambda: theirs("py.t").append(ROWS),
        "read": lambda: expect(ids(theirs("py.t")), [1, 2, 3]),
        "evolve": evolve,
        "delete": lambda: (theirs("py.t").delete("id = 1"), expect(ids(theirs("py.t")), [2, 3])),
        "concurrent commits": lambda: together(write, lambda: ids(theirs("py.many"))),
    }


def pyiceberg_core() -> Steps:
    none = "no: it reads what pyiceberg loads"

    def read() -> None:
        from datafusion import SessionContext
        from pyiceberg.table import StaticTable

        # of a table that a catalog loaded it cannot take the catalog's login
        table = StaticTable.from_metadata(theirs("core.t", rows=True).metadata_location)
        context = SessionContext()
        context.register_table("t", table)
        found = context.sql("SELECT id FROM t ORDER BY id").to_arrow_table()
        expect(found["id"].to_pylist(), [1, 2, 3])

    steps: Steps = dict.fromkeys(
        ("create", "write", "evolve", "delete", "concurrent commits"), none
    )
    return {**steps, "read": read}


def duckdb() -> Steps:
    import duckdb as duck

    def connect() -> Any:
        connection = duck.connect()
        try:
            connection.sql("LOAD iceberg")
        except duck.Error:
            import duckdb_extensions

            duckdb_extensions.import_extension("iceberg", con=connection)
            connection.sql("LOAD iceberg")
        connection.sql(
            f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{URL}', AUTHORIZATION_TYPE 'none', "
            "STAGE_CREATE_TABLES false)"
        )
        return connection

    ours = connect()

    def rows(sql: str) -> list[Any]:
        return ours.sql(sql).fetchall()

    def evolve() -> None:
        ours.sql("ALTER TABLE lake.duck.t ADD COLUMN size BIGINT")
        expect(rows("SELECT * FROM lake.duck.t WHERE id = 2"), [(2, "b", None)])

    def write(number: int) -> None:
        connect().sql(f"INSERT INTO lake.duck.many VALUES ({number})")

    def concurrent() -> None:
        ours.sql("CREATE TABLE lake.duck.many (id BIGINT)")
        together(write, lambda: [one for (one,) in connect().sql("FROM lake.duck.many").fetchall()])

    return {
        "create": lambda: (
            ours.sql("CREATE SCHEMA lake.duck"),
            ours.sql("CREATE TABLE lake.duck.t (id BIGINT, name VARCHAR)"),
        ),
        "write": lambda: ours.sql("INSERT INTO lake.duck.t VALUES (1, 'a'), (2, 'b'), (3, 'c')"),
        "read": lambda: expect(rows("SELECT id FROM lake.duck.t ORDER BY 1"), [(1,), (2,), (3,)]),
        "evolve": evolve,
        "delete": lambda: (
            ours.sql("DELETE FROM lake.duck.t WHERE id = 1"),
            expect(rows("SELECT id FROM lake.duck.t ORDER BY 1"), [(2,), (3,)]),
        ),
        "concurrent commits": concurrent,
    }


def daft() -> Steps:
    import daft as engine

    def frame(*values: int) -> Any:
        return engine.from_pydict({"id": list(values), "name": ["x"] * len(values)})

    def read() -> None:
        found = engine.read_iceberg(theirs("daft.t")).sort("id").to_pydict()
        expect(found["id"], [1, 2, 3])

    def write(number: int) -> None:
        frame(number).write_iceberg(theirs("daft.many"), mode="append")

    def create() -> None:
        from daft import Catalog
        from pyiceberg.catalog.rest import RestCatalog

        catalog = Catalog.from_iceberg(RestCatalog("c", uri=URL))
        catalog.create_namespace_if_not_exists("daft")
        catalog.create_table("daft.t", frame(1).schema())

    theirs("daft.many")
    return {
        "create": create,
        "write": lambda: frame(1, 2, 3).write_iceberg(theirs("daft.t"), mode="append"),
        "read": read,
        "evolve": "no: pyiceberg changes the schema",
        "delete": "no",
        "concurrent commits": lambda: together(write, lambda: ids(theirs("daft.many"))),
    }


def polars() -> Steps:
    import polars as pl

    def frame(*values: int) -> Any:
        return pl.DataFrame({"id": list(values), "name": ["x"] * len(values)})

    def read() -> None:
        found = pl.scan_iceberg(theirs("pl.t")).sort("id").collect()
        expect(found["id"].to_list(), [1, 2, 3])

    def write(number: int) -> None:
        frame(number).write_iceberg(theirs("pl.many"), mode="append")

    theirs("pl.many")
    theirs("pl.t")
    return {
        "create": "no: it takes pyiceberg's table",
        "write": lambda: frame(1, 2, 3).write_iceberg(theirs("pl.t"), mode="append"),
        "read": read,
        "evolve": "no",
        "delete": "no",
        "concurrent commits": lambda: together(write, lambda: ids(theirs("pl.many"))),
    }


def chdb() -> Steps:
    from chdb import session

    theirs("ch.t", rows=True)
    theirs("ch.many")
    ours = session.Session()

    def attach() -> None:
        ours.query("SET allow_experimental_database_iceberg = 1")
        ours.query(
            f"CREATE DATABASE lake ENGINE = DataLakeCatalog('{URL}/v1') "
            "SETTINGS catalog_type = 'rest', warehouse = 'lakehouse', storage_endpoint = ''"
        )

    def rows(sql: str) -> list[str]:
        return str(ours.query(sql, "CSV")).split()

    def read() -> None:
        attach()
        expect(rows("SELECT id FROM lake.`ch.t` ORDER BY id"), ["1", "2", "3"])

    def write(number: int) -> None:
        ours.query(f"INSERT INTO lake.`ch.many` VALUES ({number}, 'x')")

    return {
        "read": read,
        "create": lambda: ours.query("CREATE TABLE lake.`ch.n` (id Int64)"),
        "write": lambda: write(1),
        "evolve": lambda: ours.query("ALTER TABLE lake.`ch.t` ADD COLUMN size Nullable(Int64)"),
        "delete": lambda: ours.query("ALTER TABLE lake.`ch.t` DELETE WHERE id = 1"),
        "concurrent commits": lambda: together(write, lambda: ids(theirs("ch.many"))),
    }


CLIENTS = {
    "pyiceberg": pyiceberg,
    "pyiceberg-core": pyiceberg_core,
    "DuckDB": duckdb,
    "Daft": daft,
    "Polars": polars,
    "chDB": chdb,
}


def main() -> None:
    name = sys.argv[1]
    told = {"version": importlib.metadata.version(name.lower())}
    for operation, step in CLIENTS[name]().items():
        if isinstance(step, str):
            told[operation] = step
            continue
        try:
            step()
        except Exception as error:  # noqa: BLE001 - each is told
            lines = str(error).strip().splitlines() or [""]
            reason = next((why for said, why in KNOWN.items() if said in str(error)), None)
            sys.stderr.write(f"{name}: {operation}: {lines[0]}\n")
            told[operation] = reason or f"{type(error).__name__}: {lines[0][:160]}"
        else:
            told[operation] = "works"
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
