"""Table metadata with updates folded into it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import UnknownTransform, VoidTransform

from lakehouse.errors import (
    CommitConflictError,
    InvalidInputError,
    InvalidPartitionSpecError,
    InvalidPropertyError,
    InvalidSchemaError,
    NoSuchSnapshotError,
)
from lakehouse.spec.identifier import full_uri
from lakehouse.spec.metadata.snapshot import (
    MAIN_BRANCH,
    MetadataLogEntry,
    Snapshot,
    SnapshotLogEntry,
    SnapshotRef,
    check_ref_name,
)
from lakehouse.spec.metadata.table_metadata import (
    TableMetadata,
    check_format_version,
    empty_metadata,
    refuse_encrypted,
    snapshot_list,
    snapshot_log,
    upgrade_v1,
)
from lakehouse.spec.metadata.table_updates import (
    LAST_ADDED,
    AddPartitionSpec,
    AddSchema,
    AddSnapshot,
    AddSortOrder,
    AssignUUID,
    RemovePartitionSpecs,
    RemovePartitionStatistics,
    RemoveProperties,
    RemoveSchemas,
    RemoveSnapshotRef,
    RemoveSnapshots,
    RemoveStatistics,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetDefaultSpec,
    SetLocation,
    SetPartitionStatistics,
    SetProperties,
    SetSnapshotRef,
    SetStatistics,
    Update,
    UpgradeFormatVersion,
)
from lakehouse.spec.partitioning.compatibility import (
    check_names_apart,
    check_schema_for_version,
    check_sort_order,
    check_sources,
    check_spec,
    name_clashes,
)
from lakehouse.spec.partitioning.sort_order import SortOrder
from lakehouse.spec.schema.schema_json import (
    ID_MAX,
    check_column_ids,
    check_names,
    schema_to_json,
    with_unknown_keys,
)
from lakehouse.spec.table_properties import TableProperties, check_property_texts


def apply_updates(
    base: TableMetadata | None,
    updates: Iterable[Update],
    *,
    now_ms: int,
    base_location: str | None = None,
) -> TableMetadata:
    """The metadata after a commit.

    A v1 base stays v1 until `UpgradeFormatVersion` is among the updates.
    `last_updated_ms`, snapshot timestamps and snapshot-log entries never precede what the base (or
    the parent snapshot) carries, even if `now_ms` does. The cost does not depend on the number of
    snapshots, except when snapshots are removed.

    Args:
        base: current metadata; None creates a table, which the updates must define completely.
        updates: in order.
        now_ms: milliseconds since the epoch.
        base_location: the file that holds `base`; it is then added to the metadata log, which keeps
            the newest `write.metadata.previous-versions-max` entries.

    Returns:
        `base` itself when nothing changes.

    Raises:
        CommitConflictError: the updates were made for another base (sequence number, row id or
            snapshot taken, a ref names a removed snapshot): rebase and try again.
        InvalidInputError: updates that cannot be applied to any base.
    """
    draft = _MetadataDraft(base, now_ms)
    for update in updates:
        draft.apply(update)
    return draft.build(base_location)


def expired_metadata_files(base: TableMetadata, new: TableMetadata) -> list[str]:
    """Metadata files that the log of `base` lists and the log of `new` does not.

    With `write.metadata.delete-after-commit.enabled` they are to be deleted after `new` is
    committed.
    """
    kept = {entry.metadata_file for entry in new.metadata_log}
    return [entry.metadata_file for entry in base.metadata_log if entry.metadata_file not in kept]


# The numbers that a snapshot brings: those of versions and of rows, as the format version says.


def check_snapshot_numbers(m: TableMetadata, snapshot: Snapshot) -> None:
    """Raise an error unless the next snapshot of a table may have its sequence number and schema.

    One without a parent holds no file of others: its number may be taken. v1 has no such numbers.

    Raises:
        CommitConflictError: the sequence number is taken.
        InvalidInputError: it is below 0, v1 has none, nor row ids; or no schema has the id.
    """
    schema_ids = [schema.schema_id for schema in m.schemas]
    if snapshot.schema_id is not None and snapshot.schema_id not in schema_ids:
        raise InvalidInputError(
            f"Snapshot {snapshot.snapshot_id} has the schema {snapshot.schema_id}, which table "
            f"{m.location} lacks: it has {', '.join(map(str, schema_ids))}."
        )
    if snapshot.sequence_number < 0:
        raise InvalidInputError(
            f"Snapshot {snapshot.snapshot_id} of table {m.location} cannot have the sequence "
            f"number {snapshot.sequence_number}."
        )
    if m.format_version == 1:
        if snapshot.sequence_number != 0 or snapshot.first_row_id is not None:
            raise InvalidInputError(
                f"Snapshot {snapshot.snapshot_id} has a sequence number or row ids, which table "
                f"{m.location} of format version 1 has not: upgrade the table first."
            )
        return
    has_parent = snapshot.parent_snapshot_id is not None
    if has_parent and snapshot.sequence_number <= m.last_sequence_number:
        raise CommitConflictError(
            f"Not committed: sequence number {snapshot.sequence_number} is taken, table "
            f"{m.location} is at {m.last_sequence_number}. Refresh the table and apply the "
            "change again."
        )


def next_row_id(m: TableMetadata, snapshot: Snapshot) -> int | None:
    """The table's `next-row-id` with the snapshot; None before v3.

    Raises CommitConflictError: its row ids are taken; InvalidInputError: it says none.
    """
    if m.format_version < 3:
        return None
    if snapshot.first_row_id is None or snapshot.added_rows is None or snapshot.added_rows < 0:
        raise InvalidInputError(
            f"Snapshot {snapshot.snapshot_id} of a v3 table needs first-row-id and added-rows."
        )
    free = m.next_row_id or 0
    if snapshot.first_row_id < free:
        raise CommitConflictError(
            f"Not committed: first-row-id {snapshot.first_row_id} is taken, table "
            f"{m.location} is at {free}. Refresh the table and apply the change again."
        )
    return snapshot.first_row_id + snapshot.added_rows


def check_field_numbers(m: TableMetadata, spec: PartitionSpec) -> None:
    """Raise InvalidPartitionSpecError unless every reader has the fields' ids as they are.

    They are ints. Readers of v1 count from 1000, whatever is written (spec: Partition Evolution).
    """
    for field in spec.fields:
        if not 0 <= field.field_id <= ID_MAX:
            raise InvalidPartitionSpecError(
                f"Partition field {field.name!r} cannot have the id {field.field_id}."
            )
    counted = [PARTITION_FIELD_ID_START + position for position in range(len(spec.fields))]
    if m.format_version == 1 and [field.field_id for field in spec.fields] != counted:
        raise InvalidPartitionSpecError(
            f"Table {m.location} has format version 1, in which the fields of a partition spec "
            f"have ids that count from {PARTITION_FIELD_ID_START}: keep removed ones as void."
        )


_RESERVED_PROPERTIES = frozenset(
    {
        "format-version",
        "uuid",
        "snapshot-count",
        "current-snapshot-summary",
        "current-snapshot-id",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)


class _MetadataDraft:
    """The state between updates; `build` checks all."""

    def __init__(self, base: TableMetadata | None, now_ms: int) -> None:
        self._base = base
        self._now_ms = now_ms if base is None else max(now_ms, base.last_updated_ms)
        self._m = base if base is not None else empty_metadata(now_ms)
        self._changed = False
        self._added_snapshots: set[int] = set()
        self._removed_snapshots: set[int] = set()
        self._last_schema: int | None = None
        self._last_spec: int | None = None
        self._last_order: int | None = None
        self._new_log: list[SnapshotLogEntry] = []

    def _set(self, **changes: Any) -> None:
        self._m = replace(self._m, **changes)
        self._changed = True

    def apply(self, update: Update) -> None:  # noqa: C901 - a line for each kind
        match update:
            case AssignUUID(uuid):
                self.assign_uuid(uuid)
            case UpgradeFormatVersion(version):
                self.upgrade_format_version(version)
            case AddSchema(schema):
                self.add_schema(schema)
            case SetCurrentSchema(schema_id):
                self.set_current_schema(schema_id)
            case RemoveSchemas(ids):
                self.remove_schemas(ids)
            case AddPartitionSpec(spec):
                self.add_spec(spec)
            case SetDefaultSpec(spec_id):
                self.set_default_spec(spec_id)
            case RemovePartitionSpecs(spec_ids=ids):
                self.remove_specs(ids)
            case AddSortOrder(order):
                self.add_sort_order(order)
            case SetDefaultSortOrder(order_id):
                self.set_default_sort_order(order_id)
            case AddSnapshot(snapshot):
                self.add_snapshot(snapshot)
            case SetSnapshotRef(name):
                self.set_ref(name, update.ref())
            case RemoveSnapshots(ids):
                self.remove_snapshots(ids)
            case RemoveSnapshotRef(name):
                self.remove_ref(name)
            case SetLocation(location):
                self.set_location(location)
            case SetProperties(properties, foreign):
                self.set_properties(properties, foreign=foreign)
            case RemoveProperties(names):
                self.remove_properties(names)
            case SetStatistics(document):
                self.set_statistics("statistics", document)
            case RemoveStatistics(snapshot_id):
                self.remove_statistics("statistics", snapshot_id)
            case SetPartitionStatistics(document):
                self.set_statistics("partition_statistics", document)
            case RemovePartitionStatistics(snapshot_id):
                self.remove_statistics("partition_statistics", snapshot_id)

    # Identity and version

    def assign_uuid(self, uuid: str) -> None:
        if self._m.table_uuid == uuid.lower():
            return
        if self._base is not None:
            raise InvalidInputError(
                f"Table {self._m.location} keeps its uuid {self._m.table_uuid}."
            )
        self._set(table_uuid=uuid.lower())

    def upgrade_format_version(self, version: int) -> None:
        check_format_version(version)
        if version < self._m.format_version and not self._is_blank():
            raise InvalidInputError(
                f"Table {self._m.location} is v{self._m.format_version}: it cannot go back to "
                f"v{version}."
            )
        if version != self._m.format_version:
            if self._m.format_version == 1:
                self._m = upgrade_v1(self._m)
            self._set(format_version=version, next_row_id=0 if version >= 3 else None)
        if self._is_blank():
            self._set(snapshots=snapshot_list((), version))

    def _is_blank(self) -> bool:
        """Whether the table is new, and nothing was said that a format version decides about."""
        return self._base is None and not (self._m.schemas or self._m.partition_specs)

    def set_location(self, location: str) -> None:
        if not location:
            raise InvalidInputError("A table needs a location.")
        if location != self._m.location:
            self._set(location=full_uri(location.rstrip("/") if len(location) > 1 else location))

    # Schemas

    def add_schema(self, schema: Schema) -> None:
        check_column_ids(schema)
        for known in self._m.schemas:
            if known == schema:
                self._last_schema = known.schema_id
                return
        check_names(schema.as_struct())
        taken = {known.schema_id for known in self._m.schemas}
        wanted = schema.schema_id if 0 <= schema.schema_id <= ID_MAX else 0
        schema_id = max(taken) + 1 if taken else wanted
        fresh = Schema(
            *schema.fields, schema_id=schema_id, identifier_field_ids=schema.identifier_field_ids
        )
        self._set(
            schemas=(*self._m.schemas, fresh),
            last_column_id=max(self._m.last_column_id, fresh.highest_field_id),
            originals=self._with_unknown_keys(fresh),
        )
        self._last_schema = schema_id

    def _schema(self) -> Schema:
        """The current schema; of a table that is being made, the one that was added last."""
        if any(schema.schema_id == self._m.current_schema_id for schema in self._m.schemas):
            return self._m.schema()
        if self._last_schema is None:
            raise InvalidInputError("There is no schema yet: add one before what refers to it.")
        return self._m.schema(self._last_schema)

    def _with_unknown_keys(self, fresh: Schema) -> Mapping[str, Mapping[int, Any]]:
        """Keys that other writers gave to fields stay with them."""
        known = self._m.originals.get("schemas", {})
        original = known.get(self._m.current_schema_id)
        if original is None:
            return self._m.originals
        kept = with_unknown_keys(schema_to_json(fresh), original)
        return {**self._m.originals, "schemas": {**known, fresh.schema_id: kept}}

    def set_current_schema(self, schema_id: int) -> None:
        wanted = _resolve(schema_id, self._last_schema, "schema")
        if wanted not in {schema.schema_id for schema in self._m.schemas}:
            raise InvalidSchemaError(
                f"Table {self._m.location} has no schema {wanted} to make current."
            )
        if wanted != self._m.current_schema_id:
            self._set(current_schema_id=wanted)

    def remove_schemas(self, ids: Iterable[int]) -> None:
        gone = set(ids)
        if self._m.current_schema_id in gone:
            raise InvalidSchemaError(
                f"Schema {self._m.current_schema_id} is the current one: it cannot be removed."
            )
        kept = tuple(schema for schema in self._m.schemas if schema.schema_id not in gone)
        if len(kept) != len(self._m.schemas):
            self._set(schemas=kept, originals=_without(self._m.originals, "schemas", gone))

    # Partition specs and sort orders

    def add_spec(self, spec: PartitionSpec) -> None:
        for known in self._m.partition_specs:
            if known.compatible_with(PartitionSpec(*spec.fields, spec_id=known.spec_id)):
                self._last_spec = known.spec_id
                return
        _refuse_unknown(spec)
        check_spec(spec, self._schema())
        self._check_field_ids(spec)
        check_field_numbers(self._m, spec)
        taken = {known.spec_id for known in self._m.partition_specs}
        spec_id = max(taken) + 1 if taken else 0
        fresh = PartitionSpec(*spec.fields, spec_id=spec_id)
        highest = max(
            (field.field_id for field in fresh.fields), default=PARTITION_FIELD_ID_START - 1
        )
        self._set(
            partition_specs=(*self._m.partition_specs, fresh),
            last_partition_id=max(self._m.last_partition_id, highest),
        )
        self._last_spec = spec_id

    def _check_field_ids(self, spec: PartitionSpec) -> None:
        for known in self._m.partition_specs:
            by_id = {field.field_id: field for field in known.fields}
            for field in spec.fields:
                other = by_id.get(field.field_id)
                if (
                    other is None
                    or isinstance(field.transform, VoidTransform)
                    or isinstance(other.transform, VoidTransform)
                ):
                    continue
                if (other.source_id, other.transform) != (field.source_id, field.transform):
                    raise InvalidPartitionSpecError(
                        f"Partition field id {field.field_id} belongs to {other.name!r} of spec "
                        f"{known.spec_id}: {field.name!r} needs an id of its own."
                    )

    def set_default_spec(self, spec_id: int) -> None:
        wanted = _resolve(spec_id, self._last_spec, "partition spec")
        spec = self._m.specs().get(wanted)
        if spec is None:
            raise InvalidPartitionSpecError(
                f"Table {self._m.location} has no partition spec {wanted}."
            )
        if wanted != self._m.default_spec_id:
            _refuse_unknown(spec)
            self._set(default_spec_id=wanted)

    def remove_specs(self, ids: Iterable[int]) -> None:
        gone = set(ids)
        if self._m.default_spec_id in gone:
            raise InvalidPartitionSpecError(
                f"Partition spec {self._m.default_spec_id} is the default: it cannot be removed."
            )
        kept = tuple(spec for spec in self._m.partition_specs if spec.spec_id not in gone)
        if len(kept) != len(self._m.partition_specs):
            self._set(
                partition_specs=kept, originals=_without(self._m.originals, "partition-specs", gone)
            )

    def add_sort_order(self, order: SortOrder) -> None:
        for known in self._m.sort_orders:
            if known.fields == order.fields:
                self._last_order = known.order_id
                return
        check_sort_order(order, self._schema())
        check_sources(order, self._schema())
        taken = {known.order_id for known in self._m.sort_orders} | {0}
        order_id = max(taken) + 1 if order.fields else 0
        self._set(sort_orders=(*self._m.sort_orders, replace(order, order_id=order_id)))
        self._last_order = order_id

    def set_default_sort_order(self, order_id: int) -> None:
        wanted = _resolve(order_id, self._last_order, "sort order")
        if wanted not in {order.order_id for order in self._m.sort_orders}:
            raise InvalidPartitionSpecError(f"Table {self._m.location} has no sort order {wanted}.")
        if wanted != self._m.default_sort_order_id:
            self._set(default_sort_order_id=wanted)

    # Snapshots and refs

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Add a snapshot; its timestamp is raised to those of its parent and of the table."""
        m = self._m
        if not m.schemas or not m.partition_specs:
            raise InvalidInputError("A snapshot needs a table with a schema and a partition spec.")
        if m.snapshots.has(snapshot.snapshot_id):
            raise CommitConflictError(
                f"Not committed: table {m.location} has a snapshot {snapshot.snapshot_id} already.",
                snapshot_id=snapshot.snapshot_id,
            )
        check_snapshot_numbers(m, snapshot)
        parent = (
            None
            if snapshot.parent_snapshot_id is None
            else m.snapshots.find(snapshot.parent_snapshot_id)
        )
        refuse_encrypted(m.location, m.properties, parent)
        earliest = max(
            m.last_updated_ms if self._base is not None else 0, parent.timestamp_ms if parent else 0
        )
        if snapshot.timestamp_ms < earliest:
            snapshot = replace(snapshot, timestamp_ms=earliest)
        self._set(
            snapshots=m.snapshots.append(
                snapshot.snapshot_id, snapshot, snapshot.to_json(m.format_version)
            ),
            last_sequence_number=max(snapshot.sequence_number, m.last_sequence_number),
            last_updated_ms=snapshot.timestamp_ms,
            next_row_id=next_row_id(m, snapshot),
        )
        self._added_snapshots.add(snapshot.snapshot_id)

    def set_ref(self, name: str, ref: SnapshotRef) -> None:
        check_ref_name(name)
        known = self._m.refs.get(name)
        if known is not None:
            ref = replace(ref, extra=known.extra)
        if known == ref:
            return
        snapshot = self._m.snapshots.find(ref.snapshot_id)
        if snapshot is None:
            raise NoSuchSnapshotError(
                f"{name} cannot name snapshot {ref.snapshot_id}: table {self._m.location} has "
                "none such.",
                snapshot_id=ref.snapshot_id,
                ref=name,
            )
        refs = {**self._m.refs, name: ref}
        if name != MAIN_BRANCH:
            self._set(refs=refs)
            return
        if ref.type != "branch":
            raise InvalidInputError("main is a branch and cannot become a tag.")
        if self._m.current_snapshot_id != ref.snapshot_id or known is None:
            added = ref.snapshot_id in self._added_snapshots
            when = max(self._m.last_updated_ms, snapshot.timestamp_ms if added else self._now_ms)
            self._new_log.append(SnapshotLogEntry(when, ref.snapshot_id))
            self._set(last_updated_ms=when)
        self._set(refs=refs, current_snapshot_id=ref.snapshot_id)

    def remove_ref(self, name: str) -> None:
        if name not in self._m.refs:
            return
        refs = {key: ref for key, ref in self._m.refs.items() if key != name}
        self._set(
            refs=refs,
            current_snapshot_id=None if name == MAIN_BRANCH else self._m.current_snapshot_id,
        )

    def remove_snapshots(self, ids: Iterable[int]) -> None:
        gone = {snapshot_id for snapshot_id in ids if self._m.snapshots.has(snapshot_id)}
        if not gone:
            return
        self._removed_snapshots |= gone
        self._set(
            snapshots=self._m.snapshots.without(gone),
            statistics=tuple(
                item for item in self._m.statistics if item.get("snapshot-id") not in gone
            ),
            partition_statistics=tuple(
                item for item in self._m.partition_statistics if item.get("snapshot-id") not in gone
            ),
        )

    # Properties and statistics

    def set_properties(self, properties: Mapping[str, str], *, foreign: bool = False) -> None:
        """Set properties; the values of `foreign` ones may be such as we cannot read."""
        check_property_texts(properties)
        for key in properties:
            if key in _RESERVED_PROPERTIES:
                raise InvalidPropertyError(
                    f"Property {key!r} is reserved; the table's metadata says it."
                )
        if not foreign:
            TableProperties(properties).validate()
        if any(self._m.properties.get(key) != value for key, value in properties.items()):
            self._set(properties={**self._m.properties, **properties})

    def remove_properties(self, names: Iterable[str]) -> None:
        gone = set(names) & set(self._m.properties)
        if gone:
            self._set(
                properties={
                    key: value for key, value in self._m.properties.items() if key not in gone
                }
            )

    def set_statistics(self, field: str, document: Mapping[str, Any]) -> None:
        snapshot_id = document.get("snapshot-id")
        if not isinstance(snapshot_id, int) or not self._m.snapshots.has(snapshot_id):
            raise NoSuchSnapshotError(
                f"Statistics name snapshot {snapshot_id!r}, which table {self._m.location} does "
                "not have."
            )
        others = tuple(
            item for item in getattr(self._m, field) if item.get("snapshot-id") != snapshot_id
        )
        self._set(**{field: (*others, dict(document))})

    def remove_statistics(self, field: str, snapshot_id: int) -> None:
        kept = tuple(
            item for item in getattr(self._m, field) if item.get("snapshot-id") != snapshot_id
        )
        if len(kept) != len(getattr(self._m, field)):
            self._set(**{field: kept})

    # Closing

    def build(self, base_location: str | None) -> TableMetadata:
        """The resulting metadata, checked as a whole; the base itself if nothing changed."""
        if not self._changed and self._base is not None:
            return self._base
        self._check()
        m = self._m
        when = m.last_updated_ms if self._added_snapshots else max(self._now_ms, m.last_updated_ms)
        log = m.metadata_log
        if self._base is not None and base_location is not None:
            properties = TableProperties(m.properties)
            if m.properties != self._base.properties:
                properties = properties.usable()
            keep = max(1, properties.metadata_previous_versions_max)
            log = (*log, MetadataLogEntry(self._base.last_updated_ms, base_location))[-keep:]
        return replace(m, last_updated_ms=when, metadata_log=log, snapshot_log=self._log())

    def _log(self) -> Any:
        """The snapshot log after this commit (spec: snapshot-log).

        Snapshots that were current only inside this commit leave no entry. Removing a snapshot that
        once was current removes everything before it, because questions about the gap would be
        answered wrongly.
        """
        current = self._m.current_snapshot_id
        new = [
            e
            for e in self._new_log
            if e.snapshot_id == current or e.snapshot_id not in self._added_snapshots
        ]
        log = self._m.snapshot_log
        if self._removed_snapshots:
            kept: list[SnapshotLogEntry] = []
            for entry in (*log, *new):
                if entry.snapshot_id in self._removed_snapshots:
                    kept.clear()
                else:
                    kept.append(entry)
            return snapshot_log(kept)
        for entry in new:
            log = log.append(entry.snapshot_id, entry, entry.to_json())
        return log

    def _check(self) -> None:
        m = self._m
        if not m.table_uuid or not m.location:
            raise InvalidInputError("A new table needs a uuid and a location.")
        if self._base is None or not m.is_shaped_as(self._base):
            schema = m.schema()
            before = () if self._base is None else self._base.schemas
            for checked in (schema, *(new for new in m.schemas if new not in before)):
                check_schema_for_version(checked, m.format_version)
            check_spec(m.spec(), schema)
            base = self._base
            known = () if base is None else name_clashes(base.partition_specs, base.schema())
            check_names_apart(m.partition_specs, schema, known)
            check_sort_order(m.sort_order(), schema)
        for name, ref in m.refs.items():
            if ref.snapshot_id in self._removed_snapshots:
                raise CommitConflictError(
                    f"Not committed: snapshot {ref.snapshot_id} cannot be removed, {ref.type} "
                    f"{name} names it. Refresh the table and decide again.",
                    ref=name,
                    snapshot_id=ref.snapshot_id,
                )


def _resolve(given: int, last: int | None, what: str) -> int:
    if given != LAST_ADDED:
        return given
    if last is None:
        raise InvalidInputError(f"There is no last added {what}: none was added in this commit.")
    return last


def _refuse_unknown(spec: PartitionSpec) -> None:
    for field in spec.fields:
        if isinstance(field.transform, UnknownTransform):
            raise InvalidPartitionSpecError(
                f"Partition field {field.name!r} has a transform that this version cannot compute."
            )


def _without(
    originals: Mapping[str, Mapping[int, Any]], kind: str, gone: set[int]
) -> Mapping[str, Mapping[int, Any]]:
    return {
        **originals,
        kind: {key: value for key, value in originals.get(kind, {}).items() if key not in gone},
    }
