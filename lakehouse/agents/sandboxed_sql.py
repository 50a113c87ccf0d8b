"""Runs one SELECT for somebody who is not trusted: read only, bounded in time, memory and rows.

The query is parsed first: it must be one SELECT over tables of the catalog. DuckDB executes it
without access to files, the network or Python's variables, with its settings locked, and only over
what our scans hand it: our planner prunes files, DuckDB filters rows.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
from sqlglot import exp

from lakehouse.agents.sql_findings import DIALECT, dotted, parsed_select, table_nodes
from lakehouse.agents.words import clean
from lakehouse.errors import InvalidInputError, NoSuchSnapshotError, NoSuchTableError
from lakehouse.queries import scanned_for
from lakehouse.table import Table

CELL_MOST = 400
_LOCKED = (
    "TimeZone = 'UTC'",
    "enable_external_access = false",
    "lock_configuration = true",
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a query may take.

    Attributes:
        seconds: until it is interrupted.
        memory_mb: of DuckDB; nothing is spilled to disk.
        rows: of the answer.
        threads: of DuckDB.
    """

    seconds: float = 20.0
    memory_mb: int = 512
    rows: int = 1_000
    threads: int = 2


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """The rows of a query.

    Attributes:
        columns: names.
        rows: plain values; texts of at most CELL_MOST letters, without control characters.
        more: whether there are rows beyond the limit.
        snapshots: what was read, by table; None for a table without data.
    """

    columns: list[str]
    rows: list[list[Any]]
    more: bool
    snapshots: Mapping[str, int | None]


def run_select(
    tables: Mapping[str, Table],
    sql: str,
    *,
    snapshot_id: int | None = None,
    limit: int = 100,
    bounds: Bounds | None = None,
) -> SqlAnswer:
    """Run a query.

    Args:
        tables: versions to read, by dotted name.
        sql: one SELECT over these.
        snapshot_id: of one of the tables of the query; the others are read as of its time.
        limit: rows of the answer; at most `bounds.rows`.
        bounds: what it may take.

    Raises:
        InvalidInputError: it is no single SELECT over tables, DuckDB refuses it, or it takes more
            than it may.
        NoSuchTableError, NoSuchSnapshotError: it names something that does not exist.
    """
    wanted = bounds or Bounds()
    if not 0 < limit <= wanted.rows:
        raise InvalidInputError(f"limit must be from 1 to {wanted.rows}, not {limit}")
    tree = parsed_select(sql)
    names = dict.fromkeys(dotted(node) for node in table_nodes(tree))
    if gone := [name for name in names if name not in tables]:
        listed = ", ".join(list(tables)[:10])
        raise NoSuchTableError(f"There is no table {gone[0]}; there are {listed}", table=gone[0])
    snapshots = _snapshots({name: tables[name] for name in names}, snapshot_id)
    failures: list[Exception] = []
    with duckdb.connect(config=_settings(wanted)) as connection:
        sources = table_nodes(tree)
        for number, node in enumerate(sources):
            name = dotted(node)
            source = f"source_{number}"
            scanned = scanned_for(node, tables[name], snapshots[name], failures)
            connection.register(source, scanned)
            alias = node.alias or node.name
            table = exp.to_table(source)
            table.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
            for key in ("joins", "pivots", "sample"):
                if node.args.get(key):
                    table.set(key, node.args[key])
            node.replace(table)
        for setting in _LOCKED:
            connection.execute(f"set {setting}")
        answer = _run(
            connection, _without_databases(tree).sql(DIALECT), limit + 1, wanted.seconds, failures
        )
    columns, rows = answer
    plain = [[_plain(value) for value in row] for row in rows[:limit]]
    return SqlAnswer(columns, plain, len(rows) > limit, snapshots)


def _settings(bounds: Bounds) -> dict[str, Any]:
    return {
        "memory_limit": f"{bounds.memory_mb}MB",
        "threads": bounds.threads,
        "temp_directory": "",
        "python_enable_replacements": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }


def _snapshots(tables: Mapping[str, Table], snapshot_id: int | None) -> dict[str, int | None]:
    """What to read of each table: now, or at the time of a snapshot of one of them."""
    if snapshot_id is None:
        return {
            name: None if (now := table.current_snapshot()) is None else now.snapshot_id
            for name, table in tables.items()
        }
    for owner, table in tables.items():
        try:
            moment = table.metadata.snapshot(snapshot_id).timestamp_ms
        except NoSuchSnapshotError:
            continue
        return {
            name: snapshot_id
            if name == owner
            else other.metadata.snapshot_as_of(moment).snapshot_id
            for name, other in tables.items()
        }
    raise NoSuchSnapshotError(f"No table of the query has a snapshot {snapshot_id}")


def _without_databases(tree: exp.Query) -> exp.Query:
    """Columns under the alias of their table alone: `namespace.name.column` has none here."""
    for column in tree.find_all(exp.Column):
        column.set("db", None)
    return tree


def _run(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    most: int,
    seconds: float,
    failures: list[Exception],
) -> tuple[list[str], list[tuple[Any, ...]]]:
    late = threading.Event()

    def stop() -> None:
        late.set()
        connection.interrupt()

    timer = threading.Timer(seconds, stop)
    timer.start()
    try:
        result = connection.execute(sql)
        columns = [described[0] for described in result.description or ()]
        return columns, result.fetchmany(most)
    except duckdb.Error as error:
        if late.is_set():
            raise InvalidInputError(
                f"The query took more than {seconds:g} s and was stopped: read fewer rows"
            ) from error
        if failures:
            raise failures[0] from error
        raise InvalidInputError(f"Query failed: {clean(error, 400)}") from error
    finally:
        timer.cancel()


def _plain(value: Any) -> Any:
    """As JSON keeps it."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {clean(key, 80): _plain(item) for key, item in value.items()}
    if isinstance(value, (dt.date, dt.datetime, dt.time)):
        return value.isoformat()
    return clean(value, CELL_MOST)
