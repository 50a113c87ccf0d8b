"""Table metadata written as a JSON file.

What a table repeats in each version is encoded once, and what was written last is kept: whoever
asked for a commit is answered with the metadata that it made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from lakehouse.kept_by_bytes import KeptByBytes, Made, MadeOnce, bytes_of
from lakehouse.spec.gzip_text import compressed
from lakehouse.spec.metadata.table_metadata import TableMetadata, definitions_bytes
from lakehouse.spec.partitioning.spec_json import sort_order_to_json, spec_to_json
from lakehouse.spec.schema.schema_json import schema_to_json

_RECENT_BYTES_MAX = 256 * 1024
_Definitions = tuple[orjson.Fragment, int]
RECENT_BYTES_MAX = 16 * 1024 * 1024
RECENT: Made = KeptByBytes(RECENT_BYTES_MAX)
"""What a commit writes is what its caller is answered."""
_RECENT: MadeOnce[bytes] = MadeOnce(RECENT)
_DEFINITIONS: MadeOnce[_Definitions] = MadeOnce()
_ENCODERS: Mapping[str, Callable[[Any], Any]] = {
    "schemas": schema_to_json,
    "partition-specs": spec_to_json,
    "sort-orders": sort_order_to_json,
}
_IDS: Mapping[str, Callable[[Any], int]] = {
    "schemas": lambda one: one.schema_id,
    "partition-specs": lambda one: one.spec_id,
    "sort-orders": lambda one: one.order_id,
}


def serialize(metadata: TableMetadata, *, codec: str = "none") -> bytes:
    """The metadata file of a version.

    Args:
        metadata: what to write, in its own format version.
        codec: "none" or "gzip" (`TableProperties.metadata_compression`); a gzip file should be
            named `*.gz.metadata.json`.
    """
    is_small = sum(map(len, metadata.snapshots.raw_parts())) < _RECENT_BYTES_MAX
    text = (
        _RECENT.of(
            (metadata,),
            None,
            lambda: _text(metadata),
            lambda text: len(text) + metadata.held_bytes(),
        )
        if is_small
        else _text(metadata)
    )
    return compressed(text, codec)


def _text(m: TableMetadata) -> bytes:
    head: dict[str, Any] = {"format-version": m.format_version, "location": m.location}
    if m.table_uuid:
        head["table-uuid"] = m.table_uuid
    if m.format_version > 1:
        head["last-sequence-number"] = m.last_sequence_number
    head |= {"last-updated-ms": m.last_updated_ms, "last-column-id": m.last_column_id}
    schemas, specs, orders = (
        _definitions(kind, items, m.originals)
        for kind, items in (
            ("schemas", m.schemas),
            ("partition-specs", m.partition_specs),
            ("sort-orders", m.sort_orders),
        )
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


def _definitions(
    kind: str, items: tuple[Any, ...], originals: Mapping[str, Mapping[int, Any]]
) -> orjson.Fragment:
    """Schemas, partition specs or sort orders as JSON: versions share them until they change."""

    def make() -> _Definitions:
        found = [_encoded(originals, kind, one, _IDS[kind](one)) for one in items]
        text = orjson.dumps(found)
        return orjson.Fragment(text), len(text)

    def size(made: _Definitions) -> int:
        return made[1] + definitions_bytes(items) + bytes_of(originals)

    return _DEFINITIONS.of((items, originals), kind, make, size)[0]


def _encoded(originals: Mapping[str, Mapping[int, Any]], kind: str, item: Any, item_id: int) -> Any:
    """As it was read, where it would be written differently."""
    kept = originals.get(kind, {}).get(item_id)
    return _ENCODERS[kind](item) if kept is None else kept
