"""Tables written by hand, as a stranger's writer may: every part of them can be another.

Nothing here comes from the engine under test: Avro by fastavro, Parquet by pyarrow, bitmaps by
pyroaring, the rest by the specification.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

Avro = Any
_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
PATH_ID, POSITION_ID = 2147483546, 2147483545


def _mapping(key_id: int, value_id: int, value: Avro) -> Avro:
    pair = {
        "type": "record",
        "name": f"k{key_id}_v{value_id}",
        "fields": [
            {"name": "key", "type": "int", "field-id": key_id},
            {"name": "value", "type": value, "field-id": value_id},
        ],
    }
    return {"type": "array", "logicalType": "map", "items": pair}


def _items(element_id: int, element: Avro) -> Avro:
    return {"type": "array", "items": element, "element-id": element_id}


# name, field id, type, required, the versions that have it
_FILE_FIELDS: list[tuple[str, int, Avro, bool, tuple[int, ...]]] = [
    ("content", 134, "int", True, (2, 3)),
    ("file_path", 100, "string", True, (1, 2, 3)),
    ("file_format", 101, "string", True, (1, 2, 3)),
    ("record_count", 103, "long", True, (1, 2, 3)),
    ("file_size_in_bytes", 104, "long", True, (1, 2, 3)),
    ("block_size_in_bytes", 105, "long", True, (1,)),
    ("column_sizes", 108, _mapping(117, 118, "long"), False, (1, 2, 3)),
    ("value_counts", 109, _mapping(119, 120, "long"), False, (1, 2, 3)),
    ("null_value_counts", 110, _mapping(121, 122, "long"), False, (1, 2, 3)),
    ("nan_value_counts", 137, _mapping(138, 139, "long"), False, (1, 2, 3)),
    ("lower_bounds", 125, _mapping(126, 127, "bytes"), False, (1, 2, 3)),
    ("upper_bounds", 128, _mapping(129, 130, "bytes"), False, (1, 2, 3)),
    ("key_metadata", 131, "bytes", False, (1, 2, 3)),
    ("split_offsets", 132, _items(133, "long"), False, (1, 2, 3)),
    ("equality_ids", 135, _items(136, "int"), False, (2, 3)),
    ("sort_order_id", 140, "int", False, (1, 2, 3)),
    ("referenced_data_file", 143, "string", False, (2, 3)),
    ("first_row_id", 142, "long", False, (3,)),
    ("content_offset", 144, "long", False, (3,)),
    ("content_size_in_bytes", 145, "long", False, (3,)),
]
MAPS = [
    name for name, _, kind, *_ in _FILE_FIELDS if isinstance(kind, dict) and "logicalType" in kind
]
_LIST_FIELDS: list[tuple[str, int, Avro, bool, tuple[int, ...]]] = [
    ("manifest_path", 500, "string", True, (1, 2, 3)),
    ("manifest_length", 501, "long", True, (1, 2, 3)),
    ("partition_spec_id", 502, "int", True, (1, 2, 3)),
    ("content", 517, "int", True, (2, 3)),
    ("sequence_number", 515, "long", True, (2, 3)),
    ("min_sequence_number", 516, "long", True, (2, 3)),
    ("added_snapshot_id", 503, "long", True, (1, 2, 3)),
    ("added_files_count", 504, "int", False, (1, 2, 3)),
    ("existing_files_count", 505, "int", False, (1, 2, 3)),
    ("deleted_files_count", 506, "int", False, (1, 2, 3)),
    ("added_rows_count", 512, "long", False, (1, 2, 3)),
    ("existing_rows_count", 513, "long", False, (1, 2, 3)),
    ("deleted_rows_count", 514, "long", False, (1, 2, 3)),
    ("first_row_id", 520, "long", False, (3,)),
]
_SUMMARY: Avro = {
    "type": "record",
    "name": "r508",
    "fields": [
        {"name": "contains_null", "field-id": 509, "type": "boolean"},
        {"name": "contains_nan", "field-id": 518, "type": ["null", "boolean"], "default": None},
        {"name": "lower_bound", "field-id": 510, "type": ["null", "bytes"], "default": None},
        {"name": "upper_bound", "field-id": 511, "type": ["null", "bytes"], "default": None},
    ],
}
_LIST_FIELDS.append(("partitions", 507, _items(508, _SUMMARY), False, (1, 2, 3)))
_PACKED = {"int": "<i", "long": "<q", "boolean": "<?"}


def _fields(
    known: Sequence[tuple[str, int, Avro, bool, tuple[int, ...]]],
    version: int,
    without: Collection[str] = (),
) -> list[Avro]:
    result = []
    for name, field_id, kind, required, versions in known:
        if version in versions and name not in without:
            optional: Avro = {"type": ["null", kind], "default": None}
            result.append(
                {"name": name, "field-id": field_id, **({"type": kind} if required else optional)}
            )
    return result


@dataclass
class Style:
    """How a writer lays out its Avro files, all of it legal.

    Attributes:
        codec: of blocks.
        backwards: whether records list their fields in the other order: ids say which is which.
        without: optional fields that this writer does not know.
        extra: whether records have a field that nobody else knows.
        null_last: whether unions of what is optional end with null.
        summaries: whether lists say which partitions a manifest has.
    """

    codec: str = "deflate"
    backwards: bool = False
    without: tuple[str, ...] = ()
    extra: bool = False
    null_last: bool = False
    summaries: bool = True

    def laid_out(self, fields: list[Avro]) -> list[Avro]:
        if self.extra:
            unknown: Avro = {"name": "of_ours", "type": ["null", "string"], "default": None}
            fields = [*fields, {**unknown, "field-id": 9_001}]
        if self.null_last:
            fields = [
                {"name": one["name"], "field-id": one["field-id"], "type": one["type"][::-1]}
                if isinstance(one["type"], list)
                else one
                for one in fields
            ]
        return fields[::-1] if self.backwards else fields


@dataclass
class Stored:
    """A file of a table that is not metadata, encoded when the table is written.

    Attributes:
        name: below `data/`.
        table: of a Parquet or Avro file.
        options: of the writer of Parquet.
        blob: of a Puffin file; None for others.
        avro: whether the file is Avro.
    """

    name: str
    table: pa.Table | None = None
    options: dict[str, Any] = field(default_factory=dict)
    blob: bytes | None = None
    avro: bool = False

    def encoded(self) -> bytes:
        if self.blob is not None:
            return self.blob
        if self.avro:
            return avro_file(self.table)
        sink = io.BytesIO()
        pq.write_table(self.table, sink, **self.options)
        return sink.getvalue()


@dataclass
class Entry:
    """An entry of a manifest: `record` is its `data_file`, of the file that is `stored`."""

    record: dict[str, Any]
    stored: Stored
    sequence: int | None
    status: int = 1
    snapshot: int | None = None

    def as_record(self, spec_id: int, partition: Sequence[Any], size: int) -> dict[str, Any]:
        parts = {f"p{number}": value for number, value in enumerate(partition)}
        file = {"file_size_in_bytes": size, "block_size_in_bytes": 0, **self.record}
        file |= {
            name: [{"key": key, "value": value} for key, value in file[name].items()]
            for name in MAPS
            if isinstance(file.get(name), dict)
        }
        return {
            "status": self.status,
            "snapshot_id": self.snapshot,
            "sequence_number": self.sequence,
            "file_sequence_number": self.sequence,
            "data_file": {**file, "partition": parts},
        }


@dataclass
class Manifest:
    """A manifest with what its manifest list says about it (`listed` overrides).

    Attributes:
        entries: with the partition of each in its record, under `partition`.
        spec: JSON of its partition spec; `partition_types` are the Avro types of its fields.
        deletes: whether it is a delete manifest.
        version: of the format.
        added: snapshot that added it, and its sequence number.
    """

    entries: list[Entry]
    spec: dict[str, Any]
    partition_types: Sequence[Avro]
    deletes: bool
    version: int
    added: tuple[int, int]
    style: Style = field(default_factory=Style)
    schema: dict[str, Any] = field(default_factory=dict)
    listed: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, str | None] = field(default_factory=dict)

    def encoded(self, sizes: Mapping[str, int]) -> bytes:
        numbers = [
            {"name": "snapshot_id", "field-id": 1, "type": ["null", "long"], "default": None}
        ]
        if self.version > 1:
            for name, field_id in (("sequence_number", 3), ("file_sequence_number", 4)):
                number: Avro = {"name": name, "field-id": field_id, "type": ["null", "long"]}
                numbers.append({**number, "default": None})
        parts = [
            {"name": f"p{n}", "field-id": one["field-id"], "type": ["null", kind], "default": None}
            for n, (one, kind) in enumerate(
                zip(self.spec["fields"], self.partition_types, strict=True)
            )
        ]
        file = _fields(_FILE_FIELDS, self.version, self.style.without)
        partition = {"type": "record", "name": "r102", "fields": parts}
        file.append({"name": "partition", "field-id": 102, "type": partition})
        data_file = {"type": "record", "name": "r2", "fields": self.style.laid_out(file)}
        fields = [
            {"name": "status", "field-id": 0, "type": "int"},
            *numbers,
            {"name": "data_file", "field-id": 2, "type": data_file},
        ]
        schema = {"type": "record", "name": "manifest_entry", "fields": fields}
        records = [
            one.as_record(
                self.spec["spec-id"], one.record.get("partition", ()), sizes[one.stored.name]
            )
            for one in self.entries
        ]
        metadata = {
            "schema": json.dumps(self.schema),
            "partition-spec": json.dumps(self.spec["fields"]),
            "partition-spec-id": str(self.spec["spec-id"]),
            "format-version": str(self.version),
            "content": "deletes" if self.deletes else "data",
            **self.metadata,
        }
        return encoded_avro(schema, records, self.style.codec, metadata)

    def as_listed(self, location: str, length: int) -> dict[str, Any]:
        snapshot, sequence = self.added
        known = [sequence if one.sequence is None else one.sequence for one in self.entries]
        counts = {}
        for status, name in ((1, "added"), (0, "existing"), (2, "deleted")):
            these = [one for one in self.entries if one.status == status]
            counts[f"{name}_files_count"] = len(these)
            counts[f"{name}_rows_count"] = sum(one.record["record_count"] for one in these)
        return {
            "manifest_path": location,
            "manifest_length": length,
            "partition_spec_id": self.spec["spec-id"],
            "content": int(self.deletes),
            "sequence_number": sequence,
            "min_sequence_number": min(known, default=sequence),
            "added_snapshot_id": snapshot,
            **counts,
            **({"partitions": self.summaries()} if self.style.summaries else {}),
            **self.listed,
        }

    def summaries(self) -> list[dict[str, Any]]:
        """What a list says about each partition field of the manifest."""
        result = []
        for number, kind in enumerate(self.partition_types):
            values = [one.record["partition"][number] for one in self.entries]
            there = [value for value in values if value is not None]
            ends = [_packed(end(there), kind) if there else None for end in (min, max)]
            about = {"contains_null": len(there) < len(values), "contains_nan": False}
            result.append({**about, "lower_bound": ends[0], "upper_bound": ends[1]})
        return result


def _packed(value: Any, kind: Avro) -> bytes:
    return value.encode() if kind == "string" else struct.pack(_PACKED[kind], value)


def encoded_avro(
    schema: Avro, records: Sequence[Avro], codec: str, metadata: Mapping[str, str | None]
) -> bytes:
    """An Avro file; metadata that is None is left out."""
    sink = io.BytesIO()
    kept = {key: value for key, value in metadata.items() if value is not None}
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    fastavro.writer(sink, parsed, records, codec=codec, metadata=kept)
    return sink.getvalue()


def avro_file(table: pa.Table) -> bytes:
    """A data or delete file in Avro (specification: Appendix A), with the ids of its columns."""
    fields = [
        _avro_field(one, one.name, array.null_count > 0)
        for one, array in zip(table.schema, table.columns, strict=True)
    ]
    records = [
        {one.name: _avro_value(row[one.name], one.type) for one in table.schema}
        for row in table.to_pylist()
    ]
    schema = {"type": "record", "name": "table", "fields": fields}
    return encoded_avro(schema, records, "deflate", {})


def _avro_field(one: pa.Field, way: str, nulls: bool = True) -> Avro:
    kind = _avro_type(one.type, way)
    if not nulls and _ids(one, "field-id").get("field-id") in (PATH_ID, POSITION_ID):
        return {"name": one.name, "type": kind, **_ids(one, "field-id")}
    optional = {"name": one.name, "type": ["null", kind], "default": None}
    return {**optional, **_ids(one, "field-id")}


def _ids(one: pa.Field, name: str) -> dict[str, int]:
    found = (one.metadata or {}).get(b"PARQUET:field_id")
    return {} if found is None else {name: int(found)}


def _avro_type(kind: pa.DataType, way: str) -> Avro:
    """`way`: the names down to it, which tell types that have names apart."""
    types = pa.types
    if types.is_struct(kind):
        fields = [_avro_field(one, f"{way}_{one.name}") for one in kind]
        return {"type": "record", "name": f"r_{way}", "fields": fields}
    if types.is_map(kind):
        ids = {**_ids(kind.key_field, "key-id"), **_ids(kind.item_field, "value-id")}
        return {"type": "map", "values": ["null", _avro_type(kind.item_type, f"{way}_v")], **ids}
    if types.is_list(kind):
        items = ["null", _avro_type(kind.value_type, f"{way}_e")]
        return {"type": "array", "items": items, **_ids(kind.value_field, "element-id")}
    if types.is_dictionary(kind):
        return _avro_type(kind.value_type, way)
    if types.is_decimal(kind):
        size = (10**kind.precision).bit_length() // 8 + 1
        about = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return {"type": "fixed", "name": f"d_{way}", "size": size, **about}
    if types.is_fixed_size_binary(kind):
        about = {"logicalType": "uuid"} if kind.byte_width == 16 else {}
        return {"type": "fixed", "name": f"f_{way}", "size": kind.byte_width, **about}
    if types.is_timestamp(kind):
        about = {"logicalType": "timestamp-micros", "adjust-to-utc": kind.tz is not None}
        return {"type": "long", **about}
    return _AVRO_TYPES[kind]


_AVRO_TYPES: dict[pa.DataType, Avro] = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.time64("us"): {"type": "long", "logicalType": "time-micros"},
}


def _avro_value(value: Any, kind: pa.DataType) -> Any:
    """As fastavro takes it: times without a zone are local ones to it."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {one.name: _avro_value(value[one.name], one.type) for one in kind}
    if pa.types.is_map(kind):
        return {key: _avro_value(one, kind.item_type) for key, one in value}
    if pa.types.is_list(kind):
        return [_avro_value(one, kind.value_type) for one in value]
    if pa.types.is_timestamp(kind):
        return (value.replace(tzinfo=dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1)
    return value


@dataclass
class Snapshot:
    """A snapshot and what its manifest list names."""

    snapshot_id: int
    sequence: int
    version: int
    schema_id: int
    manifests: list[Manifest]
    style: Style = field(default_factory=Style)


@dataclass
class ForeignTable:
    """All parts of a table, in memory; `write` puts them into a folder.

    Attributes:
        metadata: parts of the metadata file that override what follows from the rest.
        last: changes of the metadata file as it would be written.
        encode: from its text to its bytes.
    """

    version: int
    schemas: list[dict[str, Any]]
    specs: list[dict[str, Any]]
    snapshots: list[Snapshot] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    last_column_id: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)
    last: list[Callable[[dict[str, Any]], None]] = field(default_factory=list)
    encode: Callable[[str], bytes] = str.encode

    @property
    def entries(self) -> list[Entry]:
        """Live entries of the current snapshot."""
        return [
            entry for manifest in self.manifests for entry in manifest.entries if entry.status < 2
        ]

    @property
    def manifests(self) -> list[Manifest]:
        """Of the current snapshot."""
        return self.snapshots[-1].manifests

    def write(self, folder: Path) -> str:
        """Write everything; the location of the table's metadata."""
        for name in ("data", "metadata"):
            (folder / name).mkdir(parents=True)
        location = folder.as_uri()
        manifests = {id(one): one for each in self.snapshots for one in each.manifests}
        sizes: dict[str, int] = {}
        for manifest in manifests.values():
            for entry in manifest.entries:
                if entry.stored.name not in sizes:
                    data = entry.stored.encoded()
                    sizes[entry.stored.name] = len(data)
                    (folder / "data" / entry.stored.name).write_bytes(data)
        listed: dict[int, dict[str, Any]] = {}
        for number, (key, manifest) in enumerate(manifests.items()):
            data = manifest.encoded(sizes)
            (folder / f"metadata/m{number}.avro").write_bytes(data)
            listed[key] = manifest.as_listed(f"{location}/metadata/m{number}.avro", len(data))
        next_row, snapshots = 0, []
        for each in self.snapshots:
            first_row = next_row
            for manifest in each.manifests:
                record = listed[id(manifest)]
                if each.version > 2 and not manifest.deletes and "first_row_id" not in record:
                    record["first_row_id"] = next_row
                    next_row += record["added_rows_count"] + record["existing_rows_count"]
            snapshots.append(
                self._snapshot(
                    folder,
                    each,
                    listed,
                    {"first-row-id": first_row, "added-rows": next_row - first_row},
                )
            )
        return self._metadata(folder, snapshots, next_row)

    def _snapshot(
        self, folder: Path, each: Snapshot, listed: Mapping[int, Any], lineage: dict[str, int]
    ) -> dict[str, Any]:
        schema = {
            "type": "record",
            "name": "manifest_file",
            "fields": each.style.laid_out(_fields(_LIST_FIELDS, each.version)),
        }
        about = {
            "snapshot-id": str(each.snapshot_id),
            "sequence-number": str(each.sequence),
            "format-version": str(each.version),
        }
        records = [dict(listed[id(one)]) for one in each.manifests]
        name = f"metadata/snap-{each.snapshot_id}.avro"
        (folder / name).write_bytes(encoded_avro(schema, records, each.style.codec, about))
        earlier = [one for one in self.snapshots if one.snapshot_id < each.snapshot_id]
        return {
            "snapshot-id": each.snapshot_id,
            "timestamp-ms": 1_767_225_600_000 + each.snapshot_id,
            "manifest-list": f"{folder.as_uri()}/{name}",
            "summary": {"operation": "overwrite"},
            "schema-id": each.schema_id,
            **({"sequence-number": each.sequence} if each.version > 1 else {}),
            **(lineage if each.version > 2 else {}),
            **({"parent-snapshot-id": earlier[-1].snapshot_id} if earlier else {}),
        }

    def _metadata(self, folder: Path, snapshots: list[dict[str, Any]], next_row: int) -> str:
        last = snapshots[-1]
        document = {
            "format-version": self.version,
            "table-uuid": f"00000000-0000-4000-8000-{abs(hash(str(folder))) % 10**12:012}",
            "location": folder.as_uri(),
            "last-updated-ms": last["timestamp-ms"],
            "last-column-id": self.last_column_id,
            "schemas": self.schemas,
            "current-schema-id": self.schemas[-1]["schema-id"],
            "partition-specs": self.specs,
            "default-spec-id": self.specs[-1]["spec-id"],
            "last-partition-id": max(
                [999, *(f["field-id"] for s in self.specs for f in s["fields"])]
            ),
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": self.properties,
            "snapshots": snapshots,
            "current-snapshot-id": last["snapshot-id"],
            "refs": {"main": {"snapshot-id": last["snapshot-id"], "type": "branch"}},
            "snapshot-log": [],
            "metadata-log": [],
        }
        if self.version == 1:
            document["schema"] = self.schemas[-1]
            document["partition-spec"] = self.specs[-1]["fields"]
        else:
            document["last-sequence-number"] = self.snapshots[-1].sequence
        if self.version > 2:
            document["next-row-id"] = next_row
        document |= self.metadata
        for change in self.last:
            change(document)
        path = folder / "metadata/v1.metadata.json"
        path.write_bytes(self.encode(json.dumps(document)))
        return path.as_uri()


def vector(positions: Collection[int], *, checksum_off_by: int = 0) -> bytes:
    """A `deletion-vector-v1` blob."""
    body = b"\xd1\xd3\x39\x64" + BitMap64(positions).serialize()
    checksum = (zlib.crc32(body) + checksum_off_by) % 2**32
    return struct.pack(">I", len(body)) + body + struct.pack(">I", checksum)


def puffin(blobs: Sequence[tuple[bytes, str, int]]) -> tuple[bytes, list[int]]:
    """A Puffin file of vectors (blob, data file, cardinality), and where each begins."""
    out, starts, about = bytearray(b"PFA1"), [], []
    for blob, path, cardinality in blobs:
        starts.append(len(out))
        about.append(
            {
                "type": "deletion-vector-v1",
                "fields": [POSITION_ID],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": len(out),
                "length": len(blob),
                "properties": {"referenced-data-file": path, "cardinality": str(cardinality)},
            }
        )
        out += blob
    footer = json.dumps({"blobs": about}).encode()
    out += b"PFA1" + footer + struct.pack("<i", len(footer)) + bytes(4) + b"PFA1"
    return bytes(out), starts
