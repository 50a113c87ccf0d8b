"""`tables`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from lakehouse.cli.command_session import Session, command
from lakehouse.maintenance.health.table_health import health
from lakehouse.maintenance.shown_plan import human_bytes, listing
from lakehouse.spec.identifier import holds_state
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.table import Table

TableArgument = Annotated[str, typer.Argument(help="Table, as namespace.name.")]


@command
def tables(
    session: Session,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Only tables of this namespace.")
    ] = None,
) -> None:
    """List tables with rows, files, bytes and current snapshot, and views.

    Example: lakehouse tables --namespace raw
    """
    lake = session.lake
    names = [name for name in lake.list_tables(namespace) if not holds_state(name)]
    rows = [table_line(lake.load_table(name)) for name in names]
    views = lake.list_views(namespace)
    pretty = listing(
        ("table", "#rows", "#files", "#size", "#snapshot"),
        [
            (
                row["name"],
                f"{row['rows']:,}",
                f"{row['files']:,}",
                human_bytes(int(str(row["bytes"]))),
                row["snapshot_id"] or "-",
            )
            for row in rows
        ]
        + [(name, "view", "-", "-", "-") for name in views],
        limit=len(rows) + len(views),
    )
    listed = [*rows, *({"name": name, "type": "view"} for name in views)]
    session.show(listed, pretty if listed else Text("No tables."))


def table_line(table: Table) -> dict[str, object]:
    """One row of `tables`: name, rows, files, bytes and snapshot_id of a table.

    Rows are counted after deletes; files and bytes are those of data files.
    """
    snapshot = table.current_snapshot()
    if snapshot is None:
        return {"name": table.name, "rows": 0, "files": 0, "bytes": 0, "snapshot_id": None}
    totals = summary_totals(snapshot)
    if totals is None:
        measured = health(table.catalog, table.identifier)
        totals = (measured.records, measured.data_files, measured.bytes, measured.delete_files)
    rows, files, size, delete_files = totals
    if delete_files:
        rows = table.scan().count()
    return {
        "name": table.name,
        "rows": rows,
        "files": files,
        "bytes": size,
        "snapshot_id": snapshot.snapshot_id,
    }


def summary_totals(snapshot: Snapshot) -> tuple[int, int, int, int] | None:
    """(records, data files, bytes, 0) as the snapshot's summary records them.

    None when it does not record them, or when there are delete files.
    """
    names = ("total-records", "total-data-files", "total-files-size", "total-delete-files")
    texts = [snapshot.summary.get(name, "") for name in names]
    if not all(text.isdigit() for text in texts) or int(texts[3]):
        return None
    return int(texts[0]), int(texts[1]), int(texts[2]), int(texts[3])
