"""Data files with rows and deletes by filter: reading and deciding are simulated, too.

Most runs do with files of a few bytes that stand for rows. Where `Plan.real_rows` is set, a row is
its id, its partition, and a struct that is null for every third.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import zip_longest

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

from lakehouse.data.reading.scan_reader import ReadRequest, read_table
from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.row_changes.row_change import RowChange
from lakehouse.scan.planner import ScanRequest, plan_scan
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.table_properties import TableProperties
from lakehouse.spec.types.arrow_types import schema_to_arrow
from lakehouse.storage.storage_protocol import Storage
from tests.simulation.model import Intent

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "p", StringType(), required=False),
    NestedField(3, "s", StructType(NestedField(4, "a", LongType(), required=False))),
)


def has_no_struct(row: int) -> bool:
    return row % 3 == 0


def nulls_of(partition: str) -> str:
    """The filter that finds the rows of a partition whose struct is null."""
    return f"p = '{partition}' and s is null"


def parquet_of(partition: str, rows: Sequence[int]) -> bytes:
    """A data file."""
    found = [
        {"id": row, "p": partition, "s": None if has_no_struct(row) else {"a": row}} for row in rows
    ]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(found, schema=schema_to_arrow(SCHEMA)), out)
    return out.getvalue()


def rows_read(metadata: TableMetadata, snapshot_id: int, storage: Storage) -> list[int]:
    """What a reader finds."""
    schema = Schema(SCHEMA.find_field("id"))
    scan = ScanRequest(metadata=metadata, snapshot_id=snapshot_id, current_schema=True)
    read = ReadRequest(
        schema=schema,
        table_schema=metadata.schema(),
        older_schemas=metadata.schemas,
        specs=metadata.specs(),
    )
    return read_table(plan_scan(scan, storage).tasks, read, storage)["id"].to_pylist()


def write_request(metadata: TableMetadata, op: str) -> WriteRequest:
    """What a process tells its writer."""
    return WriteRequest(
        schema=metadata.schema(),
        spec=metadata.spec(),
        sort_order=metadata.write_sort_order(),
        location=TableProperties(metadata.properties).data_location(metadata.location),
        properties=metadata.properties,
        format_version=metadata.format_version,
        write_id=op,
        table="raw.events",
    )


def note_rewrite(
    intent: Intent, partition: str, live: dict[str, dict[int, int]], done: RowChange
) -> None:
    """What a delete by copy on write has to do: whatever it did, the others stay."""
    touched = [path for path, rows in live.items() if any(map(has_no_struct, rows.values()))]
    order = {one.file_path: number for number, one in enumerate(done.removed)}
    touched.sort(key=lambda path: order.get(path, len(order)))
    kept = [
        [row for _, row in sorted(live[path].items()) if not has_no_struct(row)] for path in touched
    ]
    intent.removes = tuple(touched)
    for number, (added, rows) in enumerate(zip_longest(done.added, [one for one in kept if one])):
        path = f"missing-{number}" if added is None else added.file_path
        intent.adds[path] = (partition, tuple(rows or ()))


def note_deletes(intent: Intent, live: dict[str, dict[int, int]], done: RowChange) -> None:
    """What a delete by merge on read has to do."""
    wanted = {
        path: frozenset(position for position, row in rows.items() if has_no_struct(row))
        for path, rows in live.items()
    }
    told = {path: positions for path, positions in wanted.items() if positions}
    if not done.deletes:  # vectors, which the commit writes; files of which every row goes
        intent.removes = tuple(one.file_path for one in done.removed)
        kept = {path: one for path, one in told.items() if path not in intent.removes}
        intent.deletes[intent.op, None] = kept
        return
    paths = {row.path for row in done.rows}
    for one in done.deletes:
        intent.deletes[one.file_path, one.content_offset] = {
            path: positions
            for path, positions in told.items()
            if one.named_file == path or (one.named_file is None and path in paths)
        }
