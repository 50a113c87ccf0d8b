"""`delta`: the log of Delta beside a table, and tables of Delta taken over."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import typer
from rich.text import Text

from lakehouse.cli.catalog_commands import TableArgument
from lakehouse.cli.command_session import Session, command, load_module
from lakehouse.cli.health_commands import TablesArgument
from lakehouse.delta_log.delta_log import DeltaLog, follow
from lakehouse.delta_log.following import keeps_delta_log
from lakehouse.maintenance.shown_plan import listing


@command
def sync(session: Session, tables: TablesArgument = None) -> None:
    """Bring the Delta log of tables up to date; without names, of all that keep one.

    Tables with `write.delta-log=true` are followed after each commit of ours; this is for those
    that others write to. A table that is named gets a log also without the property.

    Example: lakehouse delta sync raw.flights
    """
    rows = []
    for name in tables or session.lake.list_tables():
        table = session.table(name)
        if not tables and not keeps_delta_log(table.metadata):
            continue
        before = DeltaLog(table.storage, table.location).head()
        head = follow(table.catalog, table.version)
        written = 0 if head is None else head.version - (-1 if before is None else before.version)
        rows.append(
            {
                "table": table.name,
                "version": None if head is None else head.version,
                "written": written,
                "snapshot_id": None if head is None else head.snapshot_id,
            }
        )
    lines = [(row["table"], row["version"], row["written"], row["snapshot_id"]) for row in rows]
    pretty = listing(("table", "#version", "#versions written", "#snapshot"), lines)
    nothing = Text("No table keeps a Delta log: name one, or set its property write.delta-log.")
    session.show(rows, pretty if rows else nothing)


@command
def log(session: Session, table: TableArgument) -> None:
    """Show the versions of a table's Delta log, newest first, with the snapshot that each shows.

    Example: lakehouse delta log raw.flights
    """
    handle = session.table(table)
    versions = DeltaLog(handle.storage, handle.location).versions()[::-1]
    rows = [
        {
            "version": version.version,
            "at": dt.datetime.fromtimestamp(version.timestamp_ms / 1000, dt.UTC).isoformat(
                timespec="milliseconds"
            ),
            "operation": version.operation,
            "snapshot_id": version.snapshot_id,
        }
        for version in versions
    ]
    lines = [
        (row["version"], row["at"], row["operation"], row["snapshot_id"] or "") for row in rows
    ]
    pretty = listing(("#version", "at (UTC)", "operation", "#snapshot"), lines)
    nothing = Text(
        f"{handle.name} has no Delta log: lakehouse delta sync {handle.name} writes one."
    )
    session.show(rows, pretty if rows else nothing)


@command
def import_(
    session: Session,
    location: Annotated[str, typer.Argument(help="Folder of the Delta table.")],
    table: Annotated[str, typer.Argument(help="The table to make, such as raw.orders.")],
    version: Annotated[
        int | None, typer.Option("--version", help="A version; the newest by default.")
    ] = None,
) -> None:
    """Make a table of the files of a Delta table, where they are; no data is read or copied.

    Example: lakehouse delta import /data/orders raw.orders
    """
    load_module("deltalake", "delta")
    imported = session.lake.import_delta(location, table, version=version)
    rows = imported.scan().count()
    files = len(imported.scan().plan().files)
    session.show(
        {"table": imported.name, "files": files, "rows": rows},
        Text(f"{imported.name}: {rows:,} rows in {files:,} files of {location}, which stay there."),
    )


VERBS = {"sync": sync, "log": log, "import": import_}
