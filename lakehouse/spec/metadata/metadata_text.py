"""Table metadata written as a JSON file.

What a table repeats in each version is encoded once, and what was written last is kept: whoever
asked for a commit is answered with the metadata that it made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Generic, TypeVar

import orjson
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from lakehouse.spec.gzip_text import compressed
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.partitioning.spec_json import sort_order_to_json, spec_to_json
from lakehouse.spec.schema.schema_json import schema_to_json

T = TypeVar("T")
_RECENT_BYTES_MAX = 256 * 1024
_ENCODERS: Mapping[str, Callable[[Any], Any]] = {
    "schemas": schema_to_json,
    "partition-specs": spec_to_json,
    "sort-orders": sort_order_to_json,
}


def serialize(metadata: TableMetadata, *, codec: str = "none") -> bytes:
    """The metadata file of a version.

    Args:
        metadata: what to write, in its own format version.
        codec: "none" or "gzip" (`TableProperties.metadata_compression`); a gzip file should be
            named `*.gz.metadata.json`.
    """
    is_small = sum(map(len, metadata.snapshots.raw_parts())) < _RECENT_BYTES_MAX
    same = _Same(metadata)
    return compressed(_recent_text(same) if is_small else _text(same), codec)


class _Same(Generic[T]):
    """An object that is never changed, told from others by identity: a key of caches."""

    __slots__ = ("item",)

    def __init__(self, item: T) -> None:
        self.item = item

    def __hash__(self) -> int:
        return id(self.item)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.item is other.item


def _text(metadata: _Same[TableMetadata]) -> bytes:
    m = metadata.item
    head: dict[str, Any] = {"format-version": m.format_version, "location": m.location}
    if m.table_uuid:
        head["table-uuid"] = m.table_uuid
    if m.format_version > 1:
        head["last-sequence-number"] = m.last_sequence_number
    head |= {"last-updated-ms": m.last_updated_ms, "last-column-id": m.last_column_id}
    schemas, specs, orders = _definitions(
        *(_Same(one) for one in (m.schemas, m.partition_specs, m.sort_orders, m.originals))
    )
    if m.format_version == 1:
        head["schema"] = _encoded(m.originals, "schemas", m.schema(), m.current_schema_id)
        spec = _encoded(m.originals, "partition-specs", m.spec(), m.default_spec_id)
        head["partition-spec"] = spec["fields"]
    head |= {
        "current-schema-id": m.current_schema_id,
        "schemas": schemas,
        "default-spec-id": m.default_spec_id,
        "partition-specs": specs,
        "last-partition-id": m.last_partition_id,
        "default-sort-order-id": m.default_sort_order_id,
        "sort-orders": orders,
        "properties": dict(m.properties),
    }
    if m.current_snapshot_id is not None:
        head["current-snapshot-id"] = m.current_snapshot_id
    head["refs"] = {name: ref.to_json() for name, ref in m.refs.items()}
    if m.format_version >= 3:
        head["next-row-id"] = m.next_row_id or 0
    head |= {
        "statistics": [dict(item) for item in m.statistics],
        "partition-statistics": [dict(item) for item in m.partition_statistics],
        "metadata-log": [entry.to_json() for entry in m.metadata_log],
        **m.extra,
    }
    return b"".join(
        (
            orjson.dumps(head)[:-1],
            b',"snapshot-log":[',
            b",".join(m.snapshot_log.raw_parts()),
            b'],"snapshots":[',
            b",".join(m.snapshots.raw_parts()),
            b"]}",
        )
    )


# what a commit writes is what its caller is answered
_recent_text = lru_cache(maxsize=16)(_text)


@lru_cache(maxsize=256)
def _definitions(
    schemas: _Same[tuple[Schema, ...]],
    specs: _Same[tuple[PartitionSpec, ...]],
    orders: _Same[tuple[SortOrder, ...]],
    originals: _Same[Mapping[str, Mapping[int, Any]]],
) -> tuple[orjson.Fragment, orjson.Fragment, orjson.Fragment]:
    """Schemas, partition specs and sort orders as JSON: versions share them until they change."""
    kept = originals.item
    lists = (
        [_encoded(kept, "schemas", one, one.schema_id) for one in schemas.item],
        [_encoded(kept, "partition-specs", one, one.spec_id) for one in specs.item],
        [_encoded(kept, "sort-orders", one, one.order_id) for one in orders.item],
    )
    first, second, third = (orjson.Fragment(orjson.dumps(one)) for one in lists)
    return first, second, third


def _encoded(originals: Mapping[str, Mapping[int, Any]], kind: str, item: Any, item_id: int) -> Any:
    """As it was read, where it would be written differently."""
    kept = originals.get(kind, {}).get(item_id)
    return _ENCODERS[kind](item) if kept is None else kept
