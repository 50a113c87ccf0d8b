"""Rows of a Parquet file, as columns of their own types; the line is the row's number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakehouse.ingestion.reading.content import UnreadableContentError
from lakehouse.ingestion.reading.formats.json_text import shown_json
from lakehouse.ingestion.reading.formats.record_chunks import (
    CHUNK_ROWS,
    Chunk,
    ColumnRecords,
    Rejects,
)

# bytes that are not UTF-8, days out of Python's calendar, an unknown zone
_UNUSABLE = (ValueError, OverflowError, KeyError)


def parquet_chunks(stream: pa.NativeFile) -> Iterator[Chunk]:
    """The rows of a Parquet file.

    Raises:
        UnreadableContentError: damaged, or not Parquet at all; what could be read was yielded
            before.
    """
    number = 0
    try:
        file = pq.ParquetFile(
            stream, page_checksum_verification=True, coerce_int96_timestamp_unit="us"
        )
        instants = _int96_columns(file.schema)
        names = file.schema_arrow.names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UnreadableContentError(
                "unreadable Parquet", f"two columns are named {twice[0]!r}"
            )
        for field in file.schema_arrow:
            _refuse_twins(field)
        for batch in file.iter_batches(batch_size=CHUNK_ROWS, use_threads=False):
            lines = range(number + 1, number + 1 + batch.num_rows)
            yield _chunk(lines, _plain(batch, instants))
            number += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        detail = f"after row {number}: {str(error)[:500]}"
        raise UnreadableContentError("unreadable Parquet", detail) from error


def _chunk(lines: Sequence[int], columns: Mapping[str, pa.Array]) -> Chunk:
    """The records, but for those that have a value that no column can have."""
    records, rejects = ColumnRecords(lines, columns), Rejects()
    unusable = _unusable(columns)
    if not unusable:
        return Chunk(records, rejects)
    for position, why in sorted(unusable.items()):
        text = _readable_text(columns, position)
        rejects.add(lines[position], "malformed Parquet", why, text)
    usable = [position for position in range(len(lines)) if position not in unusable]
    return Chunk(records.only(usable) if usable else None, rejects)


def _unusable(columns: Mapping[str, pa.Array]) -> dict[int, str]:
    """Records with a value that no column can have: position -> which, and why.

    That is text that is not UTF-8, and days before the year 1 or after 9999.
    """
    reasons: dict[int, str] = {}
    for name, values in columns.items():
        if _is_usable(values):
            continue
        for position in range(len(values)):
            try:
                values.slice(position, 1).to_pylist()
            except _UNUSABLE as error:
                reasons.setdefault(position, f"{name}: {error}")
    return reasons


def _readable_text(columns: Mapping[str, pa.Array], position: int) -> bytes:
    """A record as JSON, without the values that are unusable."""
    row: dict[str, object] = {}
    for name, values in columns.items():
        with suppress(*_UNUSABLE):
            (row[name],) = values.slice(position, 1).to_pylist()
    return shown_json(row).encode()


def _is_usable(values: pa.Array) -> bool:
    """Whether it is certain that each value is one of Python's."""
    kind = values.type
    try:
        values.validate(full=True)
        if pa.types.is_nested(kind):
            values.to_pylist()
        elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            span = pc.min_max(values)
            span["min"].as_py(), span["max"].as_py()
    except _UNUSABLE:
        return False
    return True


def _refuse_twins(field: pa.Field) -> None:
    """Raise where a struct names two fields alike, of which only one can be kept.

    Raises:
        UnreadableContentError: it does.
    """
    kind = field.type
    within = [kind.field(at) for at in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    names = [inner.name for inner in within]
    if pa.types.is_struct(kind) and len(set(names)) < len(names):
        (name, _), *_ = Counter(names).most_common(1)
        detail = f"two fields of {field.name!r} are named {name!r}"
        raise UnreadableContentError("unreadable Parquet", detail)
    for inner in within:
        _refuse_twins(inner)


def _int96_columns(schema: pq.ParquetSchema) -> frozenset[str]:
    """Columns of Parquet's INT96: instants, as Spark, Hive and Impala write them."""
    leaves = (schema.column(leaf) for leaf in range(len(schema)))
    return frozenset(leaf.path for leaf in leaves if leaf.physical_type == "INT96")


def _plain(batch: pa.RecordBatch, instants: frozenset[str]) -> dict[str, pa.Array]:
    """Dictionary columns as their values, and instants in UTC: their zone may be unknown."""
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        values = _plain_values(column)
        columns[name] = values.cast(pa.timestamp("us", "UTC")) if name in instants else values
    return columns


def _plain_values(values: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_timestamp(values.type) and values.type.tz is not None:
        return values.cast(pa.timestamp(values.type.unit, "UTC"))
    return values
