"""Table metadata as a JSON file, gzip or not, read and written.

Every version is read and nothing is lost; long lists are decoded on demand. What a table repeats in
each version is encoded once, and what was written last is kept: a commit is answered with the
metadata that it made.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import orjson
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionSpec
from pyiceberg.schema import Schema

from lakehouse.errors import CorruptMetadataError, InvalidInputError, UnsupportedFeatureError
from lakehouse.kept_by_bytes import KeptByBytes, Made, MadeOnce, bytes_of
from lakehouse.spec.json_fields import (
    optional_int,
    optional_list,
    optional_str,
    require_int,
    require_object,
    require_str,
    string_map,
)
from lakehouse.spec.metadata.lazy_json_list import JsonList
from lakehouse.spec.metadata.snapshot import (
    MAIN_BRANCH,
    MetadataLogEntry,
    Snapshot,
    SnapshotLogEntry,
    SnapshotRef,
)
from lakehouse.spec.metadata.table_metadata import TableMetadata, definitions_bytes
from lakehouse.spec.partitioning.partition_terms import (
    partition_fields_from_json,
    sort_order_from_json,
    sort_order_to_json,
    spec_from_json,
    spec_to_json,
)
from lakehouse.spec.partitioning.sort_order import UNSORTED_SORT_ORDER, SortOrder
from lakehouse.spec.schema.iceberg_types import schema_bytes
from lakehouse.spec.schema.schema_json import schema_from_json, schema_to_json

SUPPORTED_FORMAT_VERSIONS = (1, 2, 3)
_WHOLE_BELOW = 128 * 1024
_CUT = "\x00cut"
_LIST_BEGIN = re.compile(rb"\s*:\s*\[")
_LIST_END = re.compile(rb'\]\s*(?:\}|,\s*")')
_LISTS = ("snapshots", "snapshot-log")
_KNOWN = frozenset(
    {
        "format-version",
        "table-uuid",
        "location",
        "last-sequence-number",
        "last-updated-ms",
        "last-column-id",
        "schema",
        "schemas",
        "current-schema-id",
        "partition-spec",
        "partition-specs",
        "default-spec-id",
        "last-partition-id",
        "sort-orders",
        "default-sort-order-id",
        "properties",
        "snapshots",
        "current-snapshot-id",
        "snapshot-log",
        "metadata-log",
        "refs",
        "statistics",
        "partition-statistics",
        "next-row-id",
    }
)
T = TypeVar("T")


def parse(data: bytes, location: str) -> TableMetadata:
    """Read a metadata file, gzip or not, v1 to v3.

    Snapshots and snapshot-log entries are decoded, and so checked, when they are looked at;
    everything else now.

    Args:
        data: content of the file.
        location: where it came from, for messages.

    Raises:
        CorruptMetadataError: it is not what the spec says; now, or when a damaged snapshot is
            looked at.
        UnsupportedFeatureError: a format version after 3.
    """
    document, lists = _decode(inflated(data, location), location)
    version = _format_version(document, location)
    schemas, schema_originals = _schemas(document, location)
    specs, spec_originals = _specs(document, location)
    orders, order_originals = _orders(document, location)
    current = optional_int(document, "current-snapshot-id", location)
    current = None if current == -1 else current
    snapshots = _lazy_list(lists, "snapshots", Snapshot.from_json, location)
    metadata = TableMetadata(
        format_version=version,
        table_uuid=(require_str if version > 1 else optional_str)(document, "table-uuid", location)
        or "",
        location=require_str(document, "location", location),
        last_sequence_number=_last_sequence_number(document, version, snapshots, location),
        last_updated_ms=require_int(document, "last-updated-ms", location),
        last_column_id=max(
            require_int(document, "last-column-id", location),
            *(schema.highest_field_id for schema in schemas),
        ),
        schemas=schemas,
        current_schema_id=_current(
            document, "current-schema-id", location, schemas[0].schema_id, version, "schemas"
        ),
        partition_specs=specs,
        default_spec_id=_current(
            document, "default-spec-id", location, specs[0].spec_id, version, "partition-specs"
        ),
        last_partition_id=max(
            optional_int(document, "last-partition-id", location) or 0, _highest_field_id(specs)
        ),
        sort_orders=orders,
        default_sort_order_id=_current(
            document, "default-sort-order-id", location, 0, version, "sort-orders"
        ),
        properties=string_map(document.get("properties"), f"{location}: properties"),
        snapshots=snapshots,
        current_snapshot_id=current,
        snapshot_log=_lazy_list(lists, "snapshot-log", SnapshotLogEntry.from_json, location),
        metadata_log=tuple(
            MetadataLogEntry.from_json(item, f"{location}: metadata-log")
            for item in optional_list(document, "metadata-log", location)
        ),
        refs=_refs(document, current, location),
        statistics=_objects(document, "statistics", location),
        partition_statistics=_objects(document, "partition-statistics", location),
        next_row_id=require_int(document, "next-row-id", location) if version >= 3 else None,
        extra={key: value for key, value in document.items() if key not in _KNOWN},
        originals={
            "schemas": schema_originals,
            "partition-specs": spec_originals,
            "sort-orders": order_originals,
        },
    )
    _check_whole(metadata, location)
    return metadata


def _decode(text: bytes, location: str) -> tuple[Mapping[str, Any], dict[str, bytes]]:
    """The document, and the text of its long lists without brackets."""
    if len(text) > _WHOLE_BELOW:
        fast = _cut_lists(text)
        if fast is not None:
            return fast
    try:
        document = dict(require_object(orjson.loads(text), location))
        items = {key: optional_list(document, key, location) for key in _LISTS}
        lists = {key: orjson.dumps(items[key])[1:-1] for key in _LISTS}
        orjson.dumps({key: value for key, value in document.items() if key not in _LISTS})
    except (orjson.JSONDecodeError, TypeError) as error:
        raise CorruptMetadataError(
            f"{location}: not JSON that can be written again: {error}"
        ) from error
    for key in _LISTS:
        for item in items[key]:
            require_object(item, f"{location}: {key}")
    return document, lists


def _cut_lists(text: bytes) -> tuple[Mapping[str, Any], dict[str, bytes]] | None:
    """Cut the long lists out of the text and decode the rest; None for text of unusual layout.

    A list ends at the first `]` that is followed by `}` or by `,"`. Were that inside a string or a
    deeper list, the rest would have an odd number of quotes or a bracket too many, and not decode.
    """
    lists: dict[str, bytes] = {}
    spans: list[tuple[int, int, bytes]] = []
    for key in _LISTS:
        quoted = orjson.dumps(key)
        start = text.find(quoted)
        if start < 0:
            lists[key] = b""
            continue
        begin = _LIST_BEGIN.match(text, start + len(quoted))
        if begin is None:
            return None
        end = text.find(b"]", begin.end())
        while end >= 0 and _LIST_END.match(text, end) is None:
            end = text.find(b"]", end + 1)
        if end < 0:
            return None
        lists[key] = text[begin.end() : end]
        spans.append((start, end + 1, quoted + b":" + orjson.dumps(_CUT)))
    rest: list[bytes] = []
    position = 0
    for start, stop, stand_in in sorted(spans):
        if start < position:
            return None
        rest += (text[position:start], stand_in)
        position = stop
    rest.append(text[position:])
    try:
        document = orjson.loads(b"".join(rest))
        orjson.dumps(document)
    except (orjson.JSONDecodeError, TypeError):
        return None
    if not isinstance(document, dict):
        return None
    keys = {key for key in _LISTS if key in document}
    if len(spans) != len(keys) or any(document[key] != _CUT for key in keys):
        return None
    return document, lists


def _schemas(
    document: Mapping[str, Any], location: str
) -> tuple[tuple[Schema, ...], dict[int, Any]]:
    items = optional_list(document, "schemas", location)
    if not items:
        if require_int(document, "format-version", location) > 1 or "schema" not in document:
            raise CorruptMetadataError(f"{location}: has no schemas.")
        items = [document["schema"]]
    return _by_id(
        items,
        _cached_schema,
        lambda schema: schema.schema_id,
        f"{location}: schemas",
    )


def _specs(
    document: Mapping[str, Any], location: str
) -> tuple[tuple[PartitionSpec, ...], dict[int, Any]]:
    items = optional_list(document, "partition-specs", location)
    if items:
        return _by_id(
            items,
            _checked_with(spec_from_json, spec_to_json),
            lambda spec: spec.spec_id,
            f"{location}: partition-specs",
        )
    if require_int(document, "format-version", location) > 1:
        raise CorruptMetadataError(f"{location}: has no partition-specs.")
    fields = optional_list(document, "partition-spec", location)
    return (partition_fields_from_json(fields, 0, f"{location}: partition-spec"),), {}


def _last_sequence_number(
    document: Mapping[str, Any], version: int, snapshots: Iterable[Snapshot], location: str
) -> int:
    """The last sequence number; 0 in v1.

    DuckDB leaves it out of the v2 tables that its COPY writes: then it is the highest of the
    snapshots.
    """
    if version == 2 and "last-sequence-number" not in document:
        return max((snapshot.sequence_number for snapshot in snapshots), default=0)
    return (optional_int if version == 1 else require_int)(
        document, "last-sequence-number", location
    ) or 0


def _orders(
    document: Mapping[str, Any], location: str
) -> tuple[tuple[SortOrder, ...], dict[int, Any]]:
    items = optional_list(document, "sort-orders", location)
    if not items:
        return (UNSORTED_SORT_ORDER,), {}
    return _by_id(
        items,
        _checked_with(sort_order_from_json, sort_order_to_json),
        lambda order: order.order_id,
        f"{location}: sort-orders",
    )


def _lazy_list(
    lists: Mapping[str, Any], key: str, decode: Callable[[Any, str], T], location: str
) -> JsonList[T]:
    return JsonList.from_raw(
        lists[key], id_key="snapshot-id", decode=decode, where=f"{location}: {key}"
    )


def _format_version(document: Mapping[str, Any], location: str) -> int:
    version = require_int(document, "format-version", location)
    if version > max(SUPPORTED_FORMAT_VERSIONS):
        raise UnsupportedFeatureError(
            f"{location}: format version {version} is not supported, only 1, 2 and 3."
        )
    if version not in SUPPORTED_FORMAT_VERSIONS:
        raise CorruptMetadataError(f"{location}: format-version {version} does not exist.")
    return version


def _highest_field_id(specs: Iterable[PartitionSpec]) -> int:
    return max(
        (field.field_id for spec in specs for field in spec.fields),
        default=PARTITION_FIELD_ID_START - 1,
    )


def _by_id(
    items: list[Any],
    decode: Callable[[Any, str], tuple[T, bool]],
    key: Callable[[T], int],
    where: str,
) -> tuple[tuple[T, ...], dict[int, Any]]:
    """The parsed items, and by id the JSON of those that would be written differently."""
    parsed: dict[int, T] = {}
    originals: dict[int, Any] = {}
    for position, item in enumerate(items):
        value, is_exact = decode(item, f"{where}[{position}]")
        if key(value) in parsed:
            raise CorruptMetadataError(f"{where}: id {key(value)} occurs twice.")
        parsed[key(value)] = value
        if not is_exact:
            originals[key(value)] = item
    return tuple(parsed.values()), originals


def _checked_with(
    decode: Callable[[Any, str], T], encode: Callable[[T], Any]
) -> Callable[[Any, str], tuple[T, bool]]:
    def decoded(item: Any, where: str) -> tuple[T, bool]:
        value = decode(item, where)
        return value, encode(value) == item

    return decoded


def _cached_schema(document: Any, where: str) -> tuple[Schema, bool]:
    """A schema, and whether it would be written as it was read."""
    text = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
    try:
        return _schema_from_text(text)
    except CorruptMetadataError:
        schema_from_json(document, where)  # says where
        raise


_PARSED: MadeOnce[tuple[Schema, bool]] = MadeOnce()


def _schema_from_text(text: bytes) -> tuple[Schema, bool]:
    """Parsed once for all versions of a table that repeat it.

    What pyiceberg derives from a schema is kept too.
    """

    def make() -> tuple[Schema, bool]:
        document = orjson.loads(text)
        schema = schema_from_json(document)
        return schema, schema_to_json(schema) == document

    return _PARSED.of((), text, make, lambda made: len(text) + schema_bytes(made[0]))


def _current(
    document: Mapping[str, Any], key: str, location: str, default: int, version: int, among: str
) -> int:
    """Which of a list is the current one; v1 may have neither list nor that."""
    named = version > 1 or document.get(among)
    return require_int(document, key, location) if named else default


def _refs(
    document: Mapping[str, Any], current: int | None, location: str
) -> dict[str, SnapshotRef]:
    stated = document.get("refs")
    items = {} if stated is None else require_object(stated, f"{location}: refs")
    refs = {
        name: SnapshotRef.from_json(item, f"{location}: refs.{name}")
        for name, item in items.items()
    }
    main = refs.get(MAIN_BRANCH)
    if main is None and current is not None:
        refs[MAIN_BRANCH] = SnapshotRef(current)
    elif main is not None and main.snapshot_id != current:
        raise CorruptMetadataError(
            f"{location}: main names snapshot {main.snapshot_id}, current-snapshot-id is {current}."
        )
    return refs


def _objects(document: Mapping[str, Any], key: str, location: str) -> tuple[Mapping[str, Any], ...]:
    items = optional_list(document, key, location)
    for item in items:
        require_int(item, "snapshot-id", f"{location}: {key}")
    return tuple(items)


def _check_whole(m: TableMetadata, location: str) -> None:
    """What must hold between the parts."""
    try:
        m.schema()
        m.spec()
        m.sort_order()
    except CorruptMetadataError as error:
        raise CorruptMetadataError(f"{location}: {error.message}") from error
    if m.last_sequence_number < 0 or (m.next_row_id or 0) < 0:
        raise CorruptMetadataError(f"{location}: last-sequence-number or next-row-id is negative.")
    if m.current_snapshot_id is not None and m.snapshots.find(m.current_snapshot_id) is None:
        raise CorruptMetadataError(
            f"{location}: the current snapshot {m.current_snapshot_id} is not among the snapshots."
        )


_SMALL_BYTES_MAX = 256 * 1024
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
    "schemas": lambda schema: schema.schema_id,
    "partition-specs": lambda spec: spec.spec_id,
    "sort-orders": lambda order: order.order_id,
}


def serialize(metadata: TableMetadata, *, codec: str = "none") -> bytes:
    """The metadata file of a version.

    Args:
        metadata: what to write, in its own format version.
        codec: "none" or "gzip" (`TableProperties.metadata_compression`); a gzip file should be
            named `*.gz.metadata.json`.
    """
    is_small = sum(map(len, metadata.snapshots.raw_parts())) < _SMALL_BYTES_MAX
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
        encoded = [_encoded(originals, kind, item, _IDS[kind](item)) for item in items]
        text = orjson.dumps(encoded)
        return orjson.Fragment(text), len(text)

    def size(made: _Definitions) -> int:
        return made[1] + definitions_bytes(items) + bytes_of(originals)

    return _DEFINITIONS.of((items, originals), kind, make, size)[0]


def _encoded(originals: Mapping[str, Mapping[int, Any]], kind: str, item: Any, item_id: int) -> Any:
    """As it was read, where it would be written differently."""
    kept = originals.get(kind, {}).get(item_id)
    return _ENCODERS[kind](item) if kept is None else kept


_GZIP = b"\x1f\x8b"
_INFLATED_AT_LEAST = 64 * 1024 * 1024
_INFLATED_RATIO = 200


def inflated(data: bytes, location: str) -> bytes:
    """The file's text; a gzip file may not inflate to far more than its size.

    Raises CorruptMetadataError naming `location`.
    """
    if data[:2] != _GZIP:
        return data
    limit = max(_INFLATED_AT_LEAST, _INFLATED_RATIO * len(data))
    parts: list[bytes] = []
    total = 0
    while data:
        stream = zlib.decompressobj(wbits=31)
        try:
            part = stream.decompress(data, limit - total + 1)
        except zlib.error as error:
            raise CorruptMetadataError(f"{location}: damaged gzip: {error}") from error
        total += len(part)
        if total > limit:
            raise CorruptMetadataError(f"{location}: inflates to more than {limit} bytes.")
        if not stream.eof:
            raise CorruptMetadataError(f"{location}: gzip stream is cut off.")
        parts.append(part)
        data = stream.unused_data
    return b"".join(parts)


def compressed(data: bytes, codec: str) -> bytes:
    """The text as a file: `codec` is "none" or "gzip". Raises InvalidInputError."""
    if codec == "gzip":
        compressor = zlib.compressobj(wbits=31)
        return compressor.compress(data) + compressor.flush()
    if codec != "none":
        raise InvalidInputError(
            f"Metadata files are not compressed with {codec!r}: use none or gzip."
        )
    return data
