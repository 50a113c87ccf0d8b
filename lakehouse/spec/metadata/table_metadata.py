"""Table metadata (spec: Table Metadata) as a value, read from and written to a file."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import UnknownTransform

from lakehouse.errors import (
    CorruptMetadataError,
    InvalidInputError,
    NoSuchRefError,
    NoSuchSnapshotError,
    UnsupportedFeatureError,
)
from lakehouse.kept_by_bytes import MadeOnce, bytes_of
from lakehouse.spec.identifier import full_uri
from lakehouse.spec.metadata.lazy_json_list import JsonList, json_list
from lakehouse.spec.metadata.snapshot import (
    MAIN_BRANCH,
    MetadataLogEntry,
    Snapshot,
    SnapshotLogEntry,
    SnapshotRef,
)
from lakehouse.spec.partitioning.compatibility import (
    check_schema_for_version,
    check_sort_order,
    check_spec,
)
from lakehouse.spec.partitioning.sort_order import UNSORTED_SORT_ORDER, SortField, SortOrder
from lakehouse.spec.schema.iceberg_types import FieldTypes, field_types, schema_bytes
from lakehouse.spec.schema.schema_json import assign_fresh_ids
from lakehouse.spec.table_properties import ENCRYPTION_KEY, TableProperties, check_property_texts

DEFAULT_FORMAT_VERSION = 2
FORMAT_VERSIONS = (1, 2, 3)
"""That table metadata are written in."""
WRITABLE_FORMAT_VERSIONS = (2, 3)
"""That data files and manifests are written for."""
_TABLE_BYTES, _SPEC_BYTES, _REF_BYTES = 8192, 2048, 768
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def snapshot_list(
    snapshots: Sequence[Snapshot] = (), format_version: int = DEFAULT_FORMAT_VERSION
) -> JsonList[Snapshot]:
    """Snapshots as table metadata holds them."""
    return json_list(
        snapshots,
        id_key="snapshot-id",
        decode=Snapshot.from_json,
        where="snapshots",
        encode=lambda snapshot: snapshot.to_json(format_version),
    )


def snapshot_log(entries: Sequence[SnapshotLogEntry] = ()) -> JsonList[SnapshotLogEntry]:
    """A snapshot log as table metadata holds it."""
    return json_list(
        entries,
        id_key="snapshot-id",
        decode=SnapshotLogEntry.from_json,
        where="snapshot-log",
        encode=SnapshotLogEntry.to_json,
    )


def metadata_log(entries: Sequence[MetadataLogEntry] = ()) -> JsonList[MetadataLogEntry]:
    """A metadata log whose entries are decoded on access."""
    return json_list(
        entries,
        id_key="timestamp-ms",
        decode=MetadataLogEntry.from_json,
        where="metadata-log",
        encode=MetadataLogEntry.to_json,
    )


def definitions_bytes(items: Iterable[Schema | PartitionSpec | SortOrder]) -> int:
    """What schemas, partition specs or sort orders take in memory, at most."""
    return sum(
        schema_bytes(item) if isinstance(item, Schema) else _SPEC_BYTES * (1 + len(item.fields))
        for item in items
    )


@dataclass(frozen=True, kw_only=True)
class TableMetadata:
    """One version of a table, with the names of the spec. v1 is read into the same fields.

    Attributes:
        format_version: 1, 2 or 3.
        table_uuid: lower-case text form.
        location: base location of the table, spelled as its creator spelled it.
        last_sequence_number: highest assigned sequence number; 0 for v1.
        last_updated_ms: milliseconds since the epoch; never goes back.
        last_column_id: highest column id ever assigned.
        schemas: every schema kept, `current_schema_id` among them.
        partition_specs: every spec kept, `default_spec_id` among them.
        last_partition_id: highest partition field id ever assigned; 999 if none.
        sort_orders: every sort order kept; order 0 is unsorted.
        snapshots: valid snapshots in the order of commits; decoded on access.
        current_snapshot_id: what `main` names, None for a table without data.
        snapshot_log: changes of the current snapshot, oldest first; decoded on access.
        metadata_log: previous metadata files, oldest first.
        refs: branches and tags; `main` is there whenever `current_snapshot_id` is.
        statistics, partition_statistics: JSON objects of the spec, as they are.
        next_row_id: v3 only, else None.
        extra: top-level keys that this version does not model (`encryption-keys` among them), kept
            as they are.
        originals: for "schemas", "partition-specs" and "sort-orders": by id, the JSON object as it
            was read, where writing the parsed value would lose something.
    """

    format_version: int
    table_uuid: str
    location: str
    last_sequence_number: int = 0
    last_updated_ms: int
    last_column_id: int
    schemas: tuple[Schema, ...]
    current_schema_id: int
    partition_specs: tuple[PartitionSpec, ...]
    default_spec_id: int
    last_partition_id: int
    sort_orders: tuple[SortOrder, ...] = (UNSORTED_SORT_ORDER,)
    default_sort_order_id: int = 0
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    snapshots: JsonList[Snapshot] = field(default_factory=snapshot_list)
    current_snapshot_id: int | None = None
    snapshot_log: JsonList[SnapshotLogEntry] = field(default_factory=snapshot_log)
    metadata_log: Sequence[MetadataLogEntry] = ()
    refs: Mapping[str, SnapshotRef] = field(default_factory=dict)
    statistics: tuple[Mapping[str, Any], ...] = ()
    partition_statistics: tuple[Mapping[str, Any], ...] = ()
    next_row_id: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)
    originals: Mapping[str, Mapping[int, Any]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def is_shaped_as(self, other: TableMetadata) -> bool:
        """Whether schemas, partition specs, sort orders and format version are the very same."""
        mine, theirs = (
            (
                *map(id, (metadata.schemas, metadata.partition_specs, metadata.sort_orders)),
                *(
                    metadata.current_schema_id,
                    metadata.default_spec_id,
                    metadata.default_sort_order_id,
                ),
                metadata.format_version,
            )
            for metadata in (self, other)
        )
        return mine == theirs

    def held_bytes(self) -> int:
        """What it takes in memory, at most: it grows as somebody looks at its history."""
        return (
            _TABLE_BYTES
            + definitions_bytes((*self.schemas, *self.partition_specs, *self.sort_orders))
            + bytes_of(self.location, self.properties, self.originals, self.extra)
            + bytes_of(self.statistics, self.partition_statistics)
            + _REF_BYTES * (len(self.refs) + len(self.metadata_log))
            + self.snapshots.held_bytes()
            + self.snapshot_log.held_bytes()
        )

    def schema(self, schema_id: int | None = None) -> Schema:
        """The current schema, or the one with this id; raises CorruptMetadataError if missing."""
        wanted = self.current_schema_id if schema_id is None else schema_id
        for schema in self.schemas:
            if schema.schema_id == wanted:
                return schema
        raise CorruptMetadataError(
            f"Table {self.location} has no schema {wanted}.", table_uuid=self.table_uuid
        )

    def spec(self, spec_id: int | None = None) -> PartitionSpec:
        """The default partition spec, or the one with this id; else raises CorruptMetadataError."""
        wanted = self.default_spec_id if spec_id is None else spec_id
        for spec in self.partition_specs:
            if spec.spec_id == wanted:
                return spec
        raise CorruptMetadataError(
            f"Table {self.location} has no partition spec {wanted}.", table_uuid=self.table_uuid
        )

    def specs(self) -> dict[int, PartitionSpec]:
        """Every partition spec by its id."""
        return {spec.spec_id: spec for spec in self.partition_specs}

    def sort_order(self, order_id: int | None = None) -> SortOrder:
        """The default sort order, or the one with this id; else raises CorruptMetadataError."""
        wanted = self.default_sort_order_id if order_id is None else order_id
        for order in self.sort_orders:
            if order.order_id == wanted:
                return order
        if wanted == 0:
            return UNSORTED_SORT_ORDER
        raise CorruptMetadataError(
            f"Table {self.location} has no sort order {wanted}.", table_uuid=self.table_uuid
        )

    def write_sort_order(self) -> SortOrder:
        """The default sort order; unsorted where it has a transform that we do not know."""
        order = self.sort_order()
        known = not any(isinstance(field.transform, UnknownTransform) for field in order.fields)
        return order if known else UNSORTED_SORT_ORDER

    def snapshot_or_none(self, snapshot_id: int) -> Snapshot | None:
        """The snapshot with this id, None if there is none (any more)."""
        return self.snapshots.find(snapshot_id)

    def snapshot(self, snapshot_id: int) -> Snapshot:
        """The snapshot with this id; raises NoSuchSnapshotError."""
        snapshot = self.snapshots.find(snapshot_id)
        if snapshot is None:
            raise NoSuchSnapshotError(
                f"Table {self.location} has no snapshot {snapshot_id}: it never existed or has "
                "been expired.",
                snapshot_id=snapshot_id,
                table_uuid=self.table_uuid,
            )
        return snapshot

    def current_snapshot(self) -> Snapshot | None:
        """The snapshot that `main` names, None for a table without data."""
        return None if self.current_snapshot_id is None else self.snapshot(self.current_snapshot_id)

    def ref(self, name: str) -> SnapshotRef:
        """The branch or tag of this name; raises NoSuchRefError."""
        ref = self.refs.get(name)
        if ref is None:
            known = ", ".join(sorted(self.refs)[:20]) or "none"
            raise NoSuchRefError(
                f"Table {self.location} has no branch or tag {name!r}; it has: {known}.", ref=name
            )
        return ref

    def snapshot_for_ref(self, name: str = MAIN_BRANCH) -> Snapshot | None:
        """The snapshot that a branch or tag names.

        None only for `main` of a table without data. Raises NoSuchRefError.
        """
        if name == MAIN_BRANCH and MAIN_BRANCH not in self.refs:
            return None
        return self.snapshot(self.ref(name).snapshot_id)

    def snapshot_as_of(self, timestamp_ms: int, ref: str = MAIN_BRANCH) -> Snapshot:
        """What `ref` named at a time.

        `main` is answered from the snapshot log (spec: Point in Time Reads), so that rollbacks
        count; other branches, whose changes no log records, from the line of parents. A tag never
        moves.

        Args:
            timestamp_ms: milliseconds since the epoch; a snapshot of exactly this time counts.
            ref: branch or tag.

        Raises:
            NoSuchRefError: for an unknown ref.
            NoSuchSnapshotError: when nothing that old is recorded, or it has been expired.
        """
        if ref == MAIN_BRANCH:
            snapshot_id: int | None = None
            for entry in self.snapshot_log:
                if entry.timestamp_ms <= timestamp_ms:
                    snapshot_id = entry.snapshot_id
            if snapshot_id is not None:
                return self.snapshot(snapshot_id)
        else:
            for snapshot in self.ancestors(self.ref(ref).snapshot_id):
                if snapshot.timestamp_ms <= timestamp_ms:
                    return snapshot
        raise NoSuchSnapshotError(
            f"Table {self.location}: {ref} has no recorded state at or before "
            f"{iso_text(timestamp_ms)}.{self._earliest(ref)}",
            ref=ref,
        )

    def _earliest(self, ref: str) -> str:
        """For messages: when what is recorded of a ref begins."""
        if ref == MAIN_BRANCH:
            times = [entry.timestamp_ms for entry in self.snapshot_log]
        else:
            times = [
                ancestor.timestamp_ms for ancestor in self.ancestors(self.ref(ref).snapshot_id)
            ]
        return f" What is recorded begins at {iso_text(min(times))}." if times else ""

    def ancestors(self, snapshot_id: int | None) -> Iterator[Snapshot]:
        """The snapshot and its parents, newest first, as far as the history was not expired.

        Raises:
            NoSuchSnapshotError: when the snapshot itself does not exist.
            CorruptMetadataError: when the parents form a circle.
        """
        if snapshot_id is None:
            return
        seen: set[int] = set()
        snapshot: Snapshot | None = self.snapshot(snapshot_id)
        while snapshot is not None:
            if snapshot.snapshot_id in seen:
                raise CorruptMetadataError(
                    f"Table {self.location}: snapshot {snapshot.snapshot_id} is its own ancestor."
                )
            seen.add(snapshot.snapshot_id)
            yield snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self.snapshots.find(parent)

    def schema_for(self, snapshot: Snapshot | None) -> Schema:
        """The schema to read a snapshot with: the one it records, else the current one."""
        return self.schema(None if snapshot is None else snapshot.schema_id)

    def schema_at(self, snapshot_id: int | None) -> Schema:
        """The schema to read a snapshot with, by its id; None: the current schema.

        Raises NoSuchSnapshotError.
        """
        return self.schema_for(None if snapshot_id is None else self.snapshot(snapshot_id))

    def next_sequence_number(self) -> int:
        """The sequence number for the next snapshot."""
        return self.last_sequence_number + 1

    def next_timestamp_ms(self, now_ms: int, parent_snapshot_id: int | None = None) -> int:
        """`now_ms`, or later if the clock behind the table or parent snapshot was ahead."""
        parent = None if parent_snapshot_id is None else self.snapshots.find(parent_snapshot_id)
        return max(now_ms, self.last_updated_ms, parent.timestamp_ms if parent else 0)


def check_format_version(format_version: int) -> None:
    """Raise InvalidInputError unless table metadata are written in this format version."""
    if format_version not in FORMAT_VERSIONS:
        raise InvalidInputError(f"format-version {format_version} cannot be written: use 2 or 3.")


def check_writable_version(format_version: int) -> None:
    """Raise InvalidInputError unless we write rows into tables of this format version."""
    if format_version not in WRITABLE_FORMAT_VERSIONS:
        raise InvalidInputError(f"format-version {format_version} cannot be written: use 2 or 3.")


def iso_text(timestamp_ms: int) -> str:
    """A point in time as people write it; milliseconds where the calendar does not reach."""
    try:
        moment = _EPOCH + dt.timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms since 1970"
    return moment.isoformat(timespec="milliseconds")


def refuse_v1(metadata: TableMetadata) -> None:
    """Raise UnsupportedFeatureError for a v1 table, where rows or manifests are to be written.

    This version reads v1, takes what other writers made for it, and upgrades only on request.
    """
    if metadata.format_version == 1:
        raise UnsupportedFeatureError(
            f"Table {metadata.location} has format version 1, which this version reads and does "
            "not write. Once every engine that reads it knows v2, upgrade it with "
            "set_properties({'format-version': '2'}).",
            format_version=1,
        )


def refuse_unwritable(metadata: TableMetadata, head: Snapshot | None) -> None:
    """Raise UnsupportedFeatureError where no files can be written: v1, or encrypted by its head."""
    refuse_v1(metadata)
    refuse_encrypted(metadata.location, metadata.properties, head)


def why_unwritable(metadata: TableMetadata) -> str:
    """Why no files can be written to the table; empty: they can."""
    try:
        refuse_unwritable(metadata, metadata.current_snapshot())
    except UnsupportedFeatureError as error:
        return error.message
    return ""


def refuse_encrypted(
    location: str, properties: Mapping[str, str], head: Snapshot | None = None
) -> None:
    """Raise UnsupportedFeatureError where files have to be encrypted.

    The table's property says so, or the head of the branch is encrypted.
    """
    if ENCRYPTION_KEY in properties or (head is not None and "key-id" in head.extra):
        raise UnsupportedFeatureError(
            f"Table {location} is encrypted (property {ENCRYPTION_KEY}, or key-id of its "
            "snapshot): this version would write its files in plain text. Write with an engine "
            "that encrypts.",
            property=ENCRYPTION_KEY,
        )


def upgrade_v1(m: TableMetadata) -> TableMetadata:
    """The same table as v2: sequence numbers are 0 (spec: Version 2)."""
    return replace(m, format_version=2, snapshots=snapshot_list(list(m.snapshots), 2), originals={})


def empty_metadata(now_ms: int) -> TableMetadata:
    """What the updates that create a table are folded into."""
    return TableMetadata(
        format_version=2,
        table_uuid="",
        location="",
        last_updated_ms=now_ms,
        last_column_id=0,
        schemas=(),
        current_schema_id=-1,
        partition_specs=(),
        default_spec_id=-1,
        last_partition_id=PARTITION_FIELD_ID_START - 1,
    )


def new_table_metadata(
    schema: Schema,
    spec: PartitionSpec,
    sort_order: SortOrder,
    location: str,
    properties: Mapping[str, str],
    format_version: int,
    table_uuid: str,
    now_ms: int,
    *,
    foreign: bool = False,
) -> TableMetadata:
    """The first version of a table, without snapshots.

    Column ids are assigned afresh from 1 in the order of the schema, breadth first; `spec` and
    `sort_order` follow their columns; partition field ids count from 1000. The values of `foreign`
    properties may be such as we cannot read.

    Raises:
        InvalidInputError: no format version.
        InvalidSchemaError | InvalidPartitionSpecError | InvalidPropertyError: what cannot be stored
        in that version. UnsupportedFeatureError: a table that is to be encrypted.
    """
    properties = dict(properties)
    check_property_texts(properties)
    refuse_encrypted(location, properties)
    stated = properties.pop("format-version", str(format_version))
    if stated != str(format_version):
        raise InvalidInputError(
            f"Property format-version = {stated} contradicts format version {format_version}."
        )
    check_format_version(format_version)
    if not foreign:
        TableProperties(properties).validate()
    fresh, new_ids = assign_fresh_ids(schema)
    check_schema_for_version(fresh, format_version)
    fresh_spec = _fresh_spec(spec, new_ids)
    fresh_order = _fresh_order(sort_order, new_ids)
    check_spec(fresh_spec, fresh)
    check_sort_order(fresh_order, fresh)
    return TableMetadata(
        format_version=format_version,
        table_uuid=table_uuid.lower(),
        location=full_uri(location.rstrip("/") if len(location) > 1 else location),
        last_updated_ms=now_ms,
        last_column_id=fresh.highest_field_id,
        schemas=(fresh,),
        current_schema_id=0,
        partition_specs=(fresh_spec,),
        default_spec_id=0,
        last_partition_id=PARTITION_FIELD_ID_START - 1 + len(fresh_spec.fields),
        sort_orders=(fresh_order,),
        default_sort_order_id=fresh_order.order_id,
        properties=properties,
        snapshots=snapshot_list((), format_version),
        next_row_id=0 if format_version >= 3 else None,
    )


def _fresh_spec(spec: PartitionSpec, new_ids: Mapping[int, int]) -> PartitionSpec:
    return PartitionSpec(
        *(
            PartitionField(
                _followed(field.source_id, new_ids),
                PARTITION_FIELD_ID_START + position,
                field.transform,
                field.name,
            )
            for position, field in enumerate(spec.fields)
        ),
        spec_id=0,
    )


def _fresh_order(sort_order: SortOrder, new_ids: Mapping[int, int]) -> SortOrder:
    return SortOrder(
        tuple(
            SortField(
                _followed(field.source_id, new_ids),
                field.transform,
                field.direction,
                field.null_order,
            )
            for field in sort_order.fields
        ),
        order_id=1 if sort_order.fields else 0,
    )


def _followed(source_id: int, new_ids: Mapping[int, int]) -> int:
    if source_id not in new_ids:
        raise InvalidInputError(
            f"A partition or sort field names column id {source_id}, which the schema does not "
            "have."
        )
    return new_ids[source_id]


_FIELD_BYTES = 256
_TYPES: MadeOnce[FieldTypes] = MadeOnce()


def types_of(metadata: TableMetadata) -> FieldTypes:
    """`field_types` over all schemas of a table, the current one last, whose types win.

    The same object as long as it is kept: not to be changed.
    """
    return _TYPES.of(
        (metadata.schemas,),
        metadata.current_schema_id,
        lambda: _all_types(metadata),
        lambda types: _FIELD_BYTES * len(types) + definitions_bytes(metadata.schemas),
    )


def _all_types(metadata: TableMetadata) -> FieldTypes:
    older = sorted(
        (schema for schema in metadata.schemas if schema.schema_id != metadata.current_schema_id),
        key=lambda schema: schema.schema_id,
    )
    return field_types(metadata.schema(), *older)


THETA_SKETCH = "apache-datasketches-theta-v1"
"""Type of the blobs whose property `ndv` is the count."""
SKETCH_ENTRIES = 4096
"""Nominal entries of a sketch: of fewer different values the count is exact."""


def recorded_distinct(metadata: TableMetadata, snapshot_id: int | None) -> dict[int, int]:
    """Field id -> different values of one column as counted at a snapshot, whoever counted."""
    counts: dict[int, int] = {}
    for record in metadata.statistics:
        if record.get("snapshot-id") != snapshot_id:
            continue
        for blob in record.get("blob-metadata", ()):
            fields, ndv = blob.get("fields", ()), str(blob.get("properties", {}).get("ndv", ""))
            if blob.get("type") == THETA_SKETCH and len(fields) == 1 and ndv.isdecimal():
                counts[fields[0]] = int(ndv)
    return counts
