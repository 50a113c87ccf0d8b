"""`merge` and `upsert`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer
from rich.text import Text

from lakehouse.cli.catalog_commands import TableArgument
from lakehouse.cli.command_session import DryRunOption, Session, command
from lakehouse.cli.merging.source_files import FileFormat, file_rows, is_named_like_a_file
from lakehouse.cli.snapshot_commands import find_snapshot
from lakehouse.errors import InvalidInputError
from lakehouse.table import Table, TableScan
from lakehouse.table.write_result import MergePlan, MergeResult

SourceArgument = Annotated[
    str,
    typer.Argument(
        help="A file (Parquet, JSON lines, CSV, Arrow IPC), a folder of one kind of these, or a "
        "table of the catalog."
    ),
]
FormatOption = Annotated[
    FileFormat | None,
    typer.Option("--format", help="Of the source's files; as their names end by default."),
]
SnapshotOption = Annotated[
    str | None,
    typer.Option("--snapshot", "-s", help="Of a source table: snapshot id, branch or tag."),
]
BranchOption = Annotated[str, typer.Option("--branch", help="The branch to write to.")]
CommitIdOption = Annotated[
    str | None,
    typer.Option(
        "--commit-id", help="A name for this write: done once on the branch, however often tried."
    ),
]
SummaryOption = Annotated[
    list[str] | None,
    typer.Option("--summary", help="KEY=VALUE for the snapshot's summary, repeatable."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "merge")(merge)
    command(app, "upsert")(upsert)


def merge(
    session: Session,
    table: TableArgument,
    source: SourceArgument,
    on: Annotated[
        str,
        typer.Option(
            "--on",
            help="Which rows belong together: 't.id = s.id', t the table, s the source.",
        ),
    ],
    when: Annotated[
        list[str],
        typer.Option(
            "--when",
            help=(
                "A clause of SQL's MERGE, such as \"MATCHED AND s.op = 'D' THEN DELETE\" or "
                "'NOT MATCHED THEN INSERT *', repeatable; the first that holds acts."
            ),
        ),
    ],
    source_format: FormatOption = None,
    snapshot: SnapshotOption = None,
    branch: BranchOption = "main",
    commit_id: CommitIdOption = None,
    summary: SummaryOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Update, delete and insert rows by a condition on the rows of a file or table.

    Example: lakehouse merge raw.orders fixes.csv --on "t.id = s.id" --when "MATCHED THEN DELETE"
    """
    handle = session.table(table)
    rows = _source(session, handle, source, source_format, snapshot)
    builder = handle.merge(rows, on, branch=branch, summary=_entries(summary), commit_id=commit_id)
    for clause in when:
        builder = builder.when(clause)
    if dry_run:
        _show_plan(session, builder.plan())
        return
    _show_result(session, handle, builder.execute())


def upsert(
    session: Session,
    table: TableArgument,
    source: SourceArgument,
    key: Annotated[
        list[str],
        typer.Option("--key", help="A column that tells rows apart, repeatable."),
    ],
    source_format: FormatOption = None,
    snapshot: SnapshotOption = None,
    branch: BranchOption = "main",
    commit_id: CommitIdOption = None,
    summary: SummaryOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Update rows by key with the rows of a file or table, and insert those with new keys.

    Example: lakehouse upsert marts.aircraft fixes.csv --key tailnum
    """
    handle = session.table(table)
    rows = _source(session, handle, source, source_format, snapshot)
    if dry_run:
        _show_plan(session, handle.plan_upsert(rows, key, branch=branch))
        return
    entries = _entries(summary)
    done = handle.upsert(rows, key, branch=branch, summary=entries, commit_id=commit_id)
    _show_result(session, handle, done)


def _source(
    session: Session,
    target: Table,
    source: str,
    source_format: FileFormat | None,
    snapshot: str | None,
) -> TableScan | pa.RecordBatchReader:
    """Rows of a file if there is one of the name, else of a table."""
    path = Path(source)
    if path.exists() or source_format is not None or is_named_like_a_file(path):
        if snapshot is not None:
            raise typer.BadParameter("--snapshot goes with a table as the source, not with files.")
        return file_rows(path, source_format, target.schema())
    other = session.table(source)
    return other.scan(snapshot_id=None if snapshot is None else find_snapshot(other, snapshot))


def _entries(texts: list[str] | None) -> Mapping[str, str]:
    entries: dict[str, str] = {}
    for entry in texts or ():
        key, equals, value = entry.partition("=")
        if not (key and equals):
            raise InvalidInputError(f"--summary {entry!r} is not KEY=VALUE, such as source=crm")
        entries[key] = value
    return entries


def _show_plan(session: Session, plan: MergePlan) -> None:
    session.report(plan)
    session.confirm_dry_run()


def _show_result(session: Session, table: Table, done: MergeResult) -> None:
    data = {
        "table": table.name,
        "snapshot_id": done.snapshot_id,
        "rows_inserted": done.rows_inserted,
        "rows_updated": done.rows_updated,
        "rows_deleted": done.rows_deleted,
        "retries": done.retries,
        "decided_again": done.decided_again,
        "rows_decided_again": done.rows_decided_again,
        "replayed": done.replayed,
    }
    if done.replayed:
        text = f"Snapshot {done.snapshot_id} did this already; nothing was written."
    elif done.snapshot is None:
        text = f"Nothing to change in {table.name}; nothing was written."
    else:
        text = (
            f"{done.rows_inserted:,} rows inserted, {done.rows_updated:,} updated, "
            f"{done.rows_deleted:,} deleted: snapshot {done.snapshot_id} of {table.name}."
        )
    session.show(data, Text(text))
