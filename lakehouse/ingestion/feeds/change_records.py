"""The changes of one landing file as Arrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from lakehouse.errors import InvalidInputError
from lakehouse.ingestion.feeds.change_feed import ChangeFeed
from lakehouse.ingestion.reading.formats.record_chunks import Records
from lakehouse.ingestion.reading.landing_file import file_chunks
from lakehouse.ingestion.reading.typing.observed_kinds import column_kinds
from lakehouse.ingestion.reading.typing.spelled_text import SpelledText
from lakehouse.ingestion.reading.typing.typed_columns import typed_column
from lakehouse.ingestion.reading.typing.value_kinds import inferred
from lakehouse.row_changes.change_data.debezium_events import debezium_changes


def change_records(stream: pa.NativeFile, path: str, feed: ChangeFeed) -> pa.Table:
    """All changes of a file, in order, in memory.

    Columns of rows have the type of their values; Parquet's and Avro's are their own.

    Raises:
        InvalidInputError: a line that is no change; the message names file and line.
        InvalidSchemaError: values of one column that have no type in common.
        UnreadableContentError: what is wrong with the file as a whole.
        OSError: the file cannot be read.
    """
    chunks: list[Records] = []
    for chunk in file_chunks(stream, path, feed.reading()):
        if len(chunk.rejects):
            rejects = chunk.rejects
            why = f"{rejects.reasons[0]} {rejects.details[0]}".strip()
            raise InvalidInputError(f"{path}, line {rejects.lines[0]}: {why}")
        if chunk.records is not None:
            chunks.append(chunk.records)
    if feed.envelope == "rows":
        return _rows(chunks, path, SpelledText(feed.read))
    events = [
        records.text(position) for records in chunks for position in range(len(records.lines))
    ]
    try:
        return debezium_changes(events, list(feed.keys), add_fields=list(feed.sequence_by))
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error.message}") from error


def _rows(chunks: Sequence[Records], path: str, spelled: SpelledText) -> pa.Table:
    kinds: dict[str, Counter[str]] = {}
    for records in chunks:
        for name, values in records.fields().items():
            of = kinds.setdefault(name, Counter())
            of.update(column_kinds(values, untyped=records.untyped, spelled=spelled))
    types = {name: kind for name, of in kinds.items() if (kind := inferred(of)) is not None}
    tables = []
    for records in chunks:
        columns = {}
        for name, kind in types.items():
            values, misspelled = spelled.usual(records.column(name), kind)
            columns[name], bad = typed_column(values, kind, from_text=records.untyped)
            for position, why in sorted((bad | misspelled).items()):
                raise InvalidInputError(
                    f"{path}, line {records.lines[position]}: {name} is a {kind} in the other "
                    f"lines: {why}"
                )
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)
