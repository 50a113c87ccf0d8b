"""Rows of files that are named on the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.json
from pyiceberg.schema import Schema

from lakehouse.errors import InvalidInputError
from lakehouse.spec.types.arrow_types import schema_to_arrow


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
