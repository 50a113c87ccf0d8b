"""`merge` and `upsert`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.json
import typer
from pyiceberg.schema import Schema
from rich.text import Text

from lakehouse.cli.catalog_commands import TableArgument
from lakehouse.cli.catalog_settings import key_value
from lakehouse.cli.command_session import DryRunOption, Session, command
from lakehouse.cli.snapshot_commands import find_snapshot
from lakehouse.errors import InvalidInputError
from lakehouse.spec.types.arrow_types import schema_to_arrow
from lakehouse.table import Table, TableScan
from lakehouse.table.write_result import MergeResult


class FileFormat(StrEnum):
    """What a file of rows may be."""

    PARQUET = "parquet"
    JSON = "json"
    CSV = "csv"
    IPC = "ipc"


_SUFFIXES = {
    ".parquet": FileFormat.PARQUET,
    ".jsonl": FileFormat.JSON,
    ".ndjson": FileFormat.JSON,
    ".json": FileFormat.JSON,
    ".csv": FileFormat.CSV,
    ".arrow": FileFormat.IPC,
    ".ipc": FileFormat.IPC,
    ".feather": FileFormat.IPC,
}

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


@command
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
        session.report(builder.plan(), dry_run=True)
        return
    _show_result(session, handle, builder.execute())


@command
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
        session.report(handle.plan_upsert(rows, key, branch=branch), dry_run=True)
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
    wrong = "--summary {!r} is not KEY=VALUE, such as source=crm"
    return dict(key_value(entry, wrong.format(entry)) for entry in texts or ())


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


def is_named_like_a_file(path: Path) -> bool:
    """Whether the name ends as those of files of rows do."""
    return path.suffix.lower() in _SUFFIXES


def file_rows(path: Path, kind: FileFormat | None, schema: Schema) -> pa.RecordBatchReader:
    """The rows of a file, or of the files in a folder, as a stream.

    CSV and JSON do not say types: columns of the table have its types, others those that their
    first rows suggest. In CSV nothing is null, and "" the empty text.

    Args:
        path: of a file, or of a folder with files of one kind.
        kind: of the files; None: as their names end.
        schema: of the table that takes the rows.

    Raises:
        InvalidInputError: there is no such file, it cannot be read, or its format is unknown.
    """
    files = _files(path)
    kind = kind or _kind(path, files)
    types = {field.name: field.type for field in schema_to_arrow(schema)}
    with _readable(path):
        if kind is FileFormat.JSON:
            return _json_rows(files, types)
        form: ds.FileFormat | str = kind.value
        if kind is FileFormat.CSV:
            options = pyarrow.csv.ConvertOptions(
                column_types=types,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            )
            form = ds.CsvFileFormat(convert_options=options)
        reader: pa.RecordBatchReader = ds.dataset(files, format=form).scanner().to_reader()
    return _named_errors(path, reader)


def _files(path: Path) -> list[str]:
    if not path.exists():
        raise InvalidInputError(f"There is no file {path}, and no table has such a name")
    if path.is_file():
        return [str(path)]
    files = sorted(
        str(file) for file in path.rglob("*") if file.is_file() and file.name[0] not in "._"
    )
    if not files:
        raise InvalidInputError(f"There are no files in the folder {path}")
    return files


def _kind(path: Path, files: list[str]) -> FileFormat:
    kinds = {_SUFFIXES.get(Path(file).suffix.lower()) for file in files}
    kind = kinds.pop()
    if kind is None or kinds:
        names = ", ".join(kind.value for kind in FileFormat)
        raise InvalidInputError(
            f"The name of {path} does not tell the kind of its rows: say --format, one of {names}"
        )
    return kind


def _json_rows(files: list[str], types: dict[str, pa.DataType]) -> pa.RecordBatchReader:
    """One object a line. A field that first comes late is an error: a data set would drop it."""
    first = pyarrow.json.open_json(files[0]).schema
    schema = pa.schema([(field.name, types.get(field.name, field.type)) for field in first])
    options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")

    def batches() -> Iterator[pa.RecordBatch]:
        for file in files:
            with _readable(Path(file)):
                yield from pyarrow.json.open_json(file, parse_options=options)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _named_errors(path: Path, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        with _readable(path):
            yield from rows

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"Cannot read {path}: {error}") from error
