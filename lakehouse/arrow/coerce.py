"""Input data to the table's schema, by column name, with errors that name the column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyiceberg.schema import Schema

ArrowData = pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch]


def coerce(data: ArrowData, schema: Schema, *, table: str = "") -> Iterator[pa.RecordBatch]:
    """Bring data to a table schema.

    Columns are matched by name, at every nesting level. Casts are safe ones only: nothing overflows, is rounded or cut.
    A missing optional column becomes its write default or null. Naive timestamps fit `timestamp`, aware ones
    `timestamptz` (converted to UTC); never the other way. Dictionary, large, view and fixed-size-list types are accepted.

    Yields:
        Batches with the Arrow schema `schema_to_arrow(schema)`, field ids included.

    Raises:
        InvalidSchemaError: an unknown column, a missing required column, a null in a required column, or a value that
            does not fit; the message names table, column and value.
    """
    raise AssertionError(data, schema, table)


def coerce_batch(batch: pa.RecordBatch, schema: Schema, *, table: str = "") -> pa.RecordBatch:
    """One batch; see `coerce`."""
    raise AssertionError(batch, schema, table)
