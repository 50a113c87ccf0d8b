"""`files`, `plan` and `sql`."""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.text import Text

from lakehouse.cli.catalog_commands import TableArgument
from lakehouse.cli.command_session import Session, command
from lakehouse.cli.optional_parts import load_module
from lakehouse.cli.snapshot_commands import find_snapshot
from lakehouse.maintenance.shown_plan import human_bytes, listing
from lakehouse.spec.partitioning.partition_terms import partition_path
from lakehouse.table import Table, TableScan
from lakehouse.table.times import moment_ms

WhereOption = Annotated[
    str | None,
    typer.Option("--where", help="Filter, such as \"event_ts >= '2026-06-01' and user_id = 42\"."),
]
SnapshotOption = Annotated[
    str | None, typer.Option("--snapshot", "-s", help="Snapshot id, branch or tag.")
]
AsOfOption = Annotated[
    str | None,
    typer.Option("--as-of", help="What was current then: an age such as 2h, or ISO 8601."),
]


class EngineName(StrEnum):
    """Who answers `sql`."""

    ARROW = "arrow"
    SPARK = "spark"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "files")(files)
    command(app, "plan")(plan)
    command(app, "sql")(sql)


def files(
    session: Session,
    table: TableArgument,
    where: WhereOption = None,
    snapshot: SnapshotOption = None,
    as_of: AsOfOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 50,
) -> None:
    """List the data files that a scan would read, with partition, rows, bytes and delete files."""
    found = session.table(table)
    metadata = found.metadata
    planned = _scan(session, found, where, snapshot, as_of).plan()
    specs = metadata.specs()
    rows: list[dict[str, Any]] = [
        {
            "file_path": task.data_file.file_path,
            "partition": partition_path(
                specs[task.data_file.spec_id], metadata.schema(), task.data_file.partition
            ),
            "spec_id": task.data_file.spec_id,
            "record_count": task.data_file.record_count,
            "file_size_in_bytes": task.data_file.file_size_in_bytes,
            "sequence_number": task.sequence_number,
            "delete_files": [delete.file_path for delete in task.deletes],
        }
        for task in islice(planned.tasks, limit)
    ]
    lines = [
        (
            _relative(row["file_path"], found.location),
            row["partition"],
            f"{row['record_count']:,}",
            human_bytes(row["file_size_in_bytes"]),
            len(row["delete_files"]) or "",
        )
        for row in rows
    ]
    pretty = listing(
        ("file", "partition", "#rows", "#size", "#deletes"),
        lines,
        limit=limit,
        total=len(planned.tasks),
    )
    session.show(rows, pretty if rows else Text("No files."))


def plan(
    session: Session,
    table: TableArgument,
    where: WhereOption = None,
    select: Annotated[
        list[str] | None, typer.Option("--select", help="Columns, repeatable.")
    ] = None,
    snapshot: SnapshotOption = None,
    as_of: AsOfOption = None,
) -> None:
    """Show which manifests and files a scan would read, which it skips, and why."""
    found = session.table(table)
    planned = _scan(session, found, where, snapshot, as_of, select).plan()
    len(planned.files)
    session.show({"table": found.name, **planned.report.to_dict()}, planned.report)


def sql(
    session: Session,
    query: Annotated[
        str,
        typer.Argument(
            help=(
                "A SELECT; tables as namespace.name, with FOR VERSION AS OF id or FOR TIMESTAMP "
                "AS OF time."
            )
        ),
    ],
    engine: Annotated[
        EngineName,
        typer.Option("--engine", help="arrow needs no JVM; spark starts a local session."),
    ] = EngineName.ARROW,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Show at most so many rows; --json prints all.")
    ] = 100,
) -> None:
    """Query tables with SQL."""
    result = _spark(session, query) if engine is EngineName.SPARK else _arrow(session, query)
    if session.json:
        session.show(result.to_pylist(), "")
        return
    shown = result.slice(0, limit)
    names = [f"#{field.name}" if _is_number(field.type) else field.name for field in result.schema]
    session.console.print(
        listing(
            names,
            zip(*(column.to_pylist() for column in shown.columns), strict=True),
            limit=limit,
            total=result.num_rows,
        )
    )
    session.console.print(
        f"{result.num_rows:,} row{'' if result.num_rows == 1 else 's'}", style="dim"
    )


def _scan(
    session: Session,
    table: Table,
    where: str | None,
    snapshot: str | None,
    as_of: str | None,
    select: list[str] | None = None,
) -> TableScan:
    if snapshot is not None and as_of is not None:
        raise typer.BadParameter("Give --snapshot or --as-of, not both.")
    return table.scan(
        where,
        select or None,
        snapshot_id=None if snapshot is None else find_snapshot(table, snapshot),
        as_of=None if as_of is None else moment_ms(as_of, session.environment.now_ms()),
    )


def _arrow(session: Session, query: str) -> pa.Table:
    # DataFusion takes two seconds to import (it imports pandas): only this command pays for it
    queries: Any = load_module("lakehouse.queries", "sql")
    return queries.QueryEngine(session.lake, session.environment).run(query)


def _spark(session: Session, query: str) -> pa.Table:
    sessions = load_module("lakehouse.spark.spark_session", "spark")
    attach: Any = load_module("lakehouse.spark", "spark").attach
    spark: Any = sessions.build_session("lakehouse-sql")
    try:
        attach(spark, session.lake)
        spark.sql("USE lake")
        return spark.sql(query).toArrow()
    finally:
        spark.stop()


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _relative(location: str, base: str) -> str:
    return location.removeprefix(base.rstrip("/") + "/")
