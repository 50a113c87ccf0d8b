"""`files`, `plan` and `sql`."""

from __future__ import annotations

import csv
import io
import sys
import time
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.text import Text

from lakehouse.cli.catalog_commands import TableArgument
from lakehouse.cli.command_session import DryRunOption, Session, command, load_module
from lakehouse.cli.snapshot_commands import find_snapshot
from lakehouse.data.conversion.variant_arrays import with_json
from lakehouse.maintenance.shown_plan import human_bytes, listing
from lakehouse.spec.identifier import full_uri
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


class Shape(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    VERTICAL = "vertical"
    CSV = "csv"


class EngineName(StrEnum):
    """Who answers `sql`."""

    ARROW = "arrow"
    SPARK = "spark"


@command
def files(
    session: Session,
    table: TableArgument,
    where: WhereOption = None,
    snapshot: SnapshotOption = None,
    as_of: AsOfOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most files to show.")] = 50,
) -> None:
    """List the data files that a scan would read, with partition, rows, bytes and delete files.

    Example: lakehouse files raw.flights --where "carrier = 'UA'"
    """
    handle = session.table(table)
    metadata = handle.metadata
    planned = _scan(session, handle, where, snapshot, as_of).plan()
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
            _relative(row["file_path"], handle.location),
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


@command
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
    """Show which manifests and files a scan would read, which it skips, and why.

    Example: lakehouse plan raw.flights --where "date(event_ts) = '2013-03-01'"
    """
    handle = session.table(table)
    planned = _scan(session, handle, where, snapshot, as_of, select).plan()
    len(planned.files)
    session.show({"table": handle.name, **planned.report.to_dict()}, planned.report)


@command
def sql(
    session: Session,
    query: Annotated[
        str,
        typer.Argument(
            help=(
                "A SELECT, with tables as namespace.name and FOR VERSION AS OF id or FOR TIMESTAMP "
                "AS OF time; or INSERT, UPDATE, DELETE, MERGE, CREATE, ALTER, DROP TABLE."
            )
        ),
    ],
    engine: Annotated[
        EngineName,
        typer.Option("--engine", help="arrow needs no JVM; spark starts a local session."),
    ] = EngineName.ARROW,
    limit: Annotated[
        int,
        typer.Option("--limit", min=1, help="Most rows to show; --json and csv print all."),
    ] = 100,
    shape: Annotated[
        Shape, typer.Option("--format", help="table; vertical, a line a value; or csv.")
    ] = Shape.TABLE,
    branch: Annotated[str, typer.Option("--branch", help="That rows are changed on.")] = "main",
    at: Annotated[
        str, typer.Option("--at", help="A version of the lake, or a time: all tables as of it.")
    ] = "",
    dry_run: DryRunOption = False,
    timing: Annotated[
        bool,
        typer.Option("--timing", help="Say on standard error what took how much processor time."),
    ] = False,
) -> None:
    """Query and change tables with SQL.

    Example: lakehouse sql "SELECT count(*) FROM raw.flights" --format csv
    """
    spent = _Spent()
    spent.on("start and imports")
    if at:
        session.lake = session.lake.as_of(at)
    if engine is EngineName.SPARK:
        if dry_run or branch != "main":
            raise typer.BadParameter("--dry-run and --branch are for --engine arrow.")
        result = _spark(session, query)
    else:
        statements: Any = load_module("lakehouse.sql_statements", "sql")
        if statements.is_change(query):
            runner = statements.StatementEngine(session.lake, branch=branch, dry_run=dry_run)
            _show_change(session, runner.run(query))
            spent.on("the statement")
            if timing:
                spent.show(session)
            return
        if dry_run or branch != "main":
            raise typer.BadParameter("--dry-run and --branch are for statements that change rows.")
        queries: Any = load_module("lakehouse.queries", "sql")
        load_module("datafusion", "sql")
        spent.on("the engine's imports")
        result = queries.QueryEngine(session.lake, session.environment).run(query)
    spent.on("the query")
    result = _printable(with_json(result))
    if session.json:
        session.show(result.to_pylist(), "")
    elif shape is Shape.CSV:
        sys.stdout.write(_csv(result))
    elif shape is Shape.VERTICAL:
        session.console.print(_vertical(result.slice(0, limit)))
        _print_count(session, result, limit)
    else:
        names = [
            f"#{field.name}" if _is_number(field.type) else field.name for field in result.schema
        ]
        rows = zip(*(column.to_pylist() for column in result.slice(0, limit).columns), strict=True)
        session.print_rows(listing(names, rows, limit=limit, total=result.num_rows))
        _print_count(session, result)
    spent.on("output")
    if timing:
        spent.show(session)


@dataclass
class _Spent:
    """Seconds of processor time of this process, all threads, by what they were spent on."""

    marks: list[tuple[str, float]] = field(default_factory=list)

    def on(self, what: str) -> None:
        """What was done since the mark before; the first since the process began."""
        self.marks.append((what, time.process_time()))

    def show(self, session: Session) -> None:
        """One line on standard error."""
        parts, before = [], 0.0
        for what, at in self.marks:
            parts.append(f"{what} {at - before:.2f}")
            before = at
        session.errors.print(f"{before:.2f} s of processor: {', '.join(parts)}", style="dim")


def _show_change(session: Session, done: Any) -> None:
    text = done.done if done.snapshot_id is None else f"{done.done}: snapshot {done.snapshot_id}"
    session.show(asdict(done), Text(f"{text} of {done.table}." if done.snapshot_id else f"{text}."))
    if done.dry_run:
        session.confirm_dry_run()


def _print_count(session: Session, result: pa.Table, limit: int | None = None) -> None:
    count = f"{result.num_rows:,} row{'' if result.num_rows == 1 else 's'}"
    if limit is not None and result.num_rows > limit:
        count += f", {limit:,} shown"
    session.console.print(count, style="dim")


def _csv(result: pa.Table) -> str:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(result.column_names)
    for row in zip(*(column.to_pylist() for column in result.columns), strict=True):
        writer.writerow(row)
    return written.getvalue()


def _vertical(result: pa.Table) -> Text:
    width = max((len(name) for name in result.column_names), default=0)
    lines = []
    for number, row in enumerate(result.to_pylist(), start=1):
        lines.append(f"-- row {number}")
        lines += [
            f"{name:>{width}}: {'' if value is None else value}" for name, value in row.items()
        ]
    return Text("\n".join(lines))


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


def _printable(result: pa.Table) -> pa.Table:
    """Times with their nanoseconds as text, durations to microseconds: Python has no smaller."""
    columns = [pa.field(column.name, _printable_type(column.type)) for column in result.schema]
    return result.cast(pa.schema(columns), safe=False)


def _printable_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.string()
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if pa.types.is_struct(kind):
        return pa.struct([column.with_type(_printable_type(column.type)) for column in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_printable_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_printable_type(kind.key_type), _printable_type(kind.item_type))
    return kind


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _relative(location: str, base: str) -> str:
    return full_uri(location).removeprefix(full_uri(base).rstrip("/") + "/")
