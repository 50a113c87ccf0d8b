"""Rows of a Parquet file, as columns of their own types; the line is the row's number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.orchestration.ingestion.reading.content import UnreadableContentError
from lakehouse.orchestration.ingestion.reading.formats.json_text import shown_json
from lakehouse.orchestration.ingestion.reading.formats.record_chunks import (
    CHUNK_ROWS,
    Chunk,
    Rejects,
    Values,
    strangers_of,
)


class ArrowRecords:
    """Columns of an Arrow batch; see `Records`."""

    untyped = False

    def __init__(self, lines: Sequence[int], batch: pa.RecordBatch) -> None:
        self.lines = lines
        self._batch = batch
        self._columns = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}

    def column(self, name: str) -> Values:
        """A field of every record; null where it is missing."""
        found = self._columns.get(name)
        return pa.nulls(len(self.lines)) if found is None else found

    def fields(self) -> Mapping[str, Values]:
        """Every field with its values."""
        return self._columns

    def strangers(self, known: frozenset[str]) -> Mapping[int, str]:
        """Records with an unknown field: position -> the first such field."""
        return strangers_of(self._columns, known)

    def only(self, positions: Sequence[int]) -> ArrowRecords:
        """The records at these positions."""
        batch = self._batch.take(pa.array(positions, pa.int64()))
        return ArrowRecords([self.lines[at] for at in positions], batch)

    def text(self, position: int) -> bytes:
        """A record as it came, or as JSON."""
        (row,) = self._batch.slice(position, 1).to_pylist()
        return shown_json(row).encode()


def parquet_chunks(stream: pa.NativeFile) -> Iterator[Chunk]:
    """The rows of a Parquet file.

    Raises:
        UnreadableContentError: damaged, or not Parquet at all; what could be read was yielded
            before.
    """
    number = 0
    try:
        file = pq.ParquetFile(stream, page_checksum_verification=True)
        names = file.schema_arrow.names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UnreadableContentError(
                "unreadable Parquet", f"two columns are named {twice[0]!r}"
            )
        for batch in file.iter_batches(batch_size=CHUNK_ROWS, use_threads=False):
            lines = range(number + 1, number + 1 + batch.num_rows)
            yield Chunk(ArrowRecords(lines, _plain(batch)), Rejects())
            number += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        detail = f"after row {number}: {str(error)[:500]}"
        raise UnreadableContentError("unreadable Parquet", detail) from error


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Dictionary columns as their values."""
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
