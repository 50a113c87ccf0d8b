"""A commit to table metadata as data, from and to its REST form: what it assumes, what it changes.

Each class carries the fields of the REST requirement or action that it is named after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeAlias

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from lakehouse.errors import CommitConflictError, CorruptMetadataError
from lakehouse.spec.json_fields import (
    as_int,
    optional_int,
    require_int,
    require_list,
    require_object,
    require_str,
    string_map,
)
from lakehouse.spec.metadata.snapshot import RefType, Snapshot, SnapshotRef
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.partitioning.partition_terms import (
    new_sort_order_from_json,
    sort_order_to_json,
    spec_from_json,
    spec_to_json,
)
from lakehouse.spec.partitioning.sort_order import SortOrder
from lakehouse.spec.schema.schema_json import schema_from_json, schema_to_json

LAST_ADDED = -1
"""In place of an id: the schema, spec or sort order that was added last in the same commit."""


@dataclass(frozen=True, slots=True)
class _AsJson:
    """Each field is written under its name, with hyphens (REST catalog)."""

    def _members(self) -> dict[str, Any]:
        return {
            member.name.replace("_", "-"): _to_json(getattr(self, member.name))
            for member in fields(self)
            if member.compare
        }


def _to_json(value: Any) -> Any:
    match value:
        case Schema():
            return schema_to_json(value)
        case PartitionSpec():
            return spec_to_json(value)
        case SortOrder():
            return sort_order_to_json(value)
        case Snapshot():
            return value.to_json()
        case tuple():
            return list(value)
        case Mapping():
            return dict(value)
    return value


# What a commit assumes


@dataclass(frozen=True, slots=True)
class TableRequirement(_AsJson):
    """What a commit assumes about the table that it changes."""

    type: ClassVar[str]

    def check(self, base: TableMetadata | None) -> None:
        """Raise CommitConflictError unless it holds; `base` is None where there is no table."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """The JSON object (REST catalog: TableRequirement)."""
        return {"type": self.type, **self._members()}


@dataclass(frozen=True, slots=True)
class AssertCreate(TableRequirement):
    """The table must not exist yet."""

    type: ClassVar[str] = "assert-create"

    def check(self, base: TableMetadata | None) -> None:
        if base is not None:
            raise _conflict(
                f"the table was created concurrently (uuid {base.table_uuid})", self.type
            )


@dataclass(frozen=True, slots=True)
class AssertTableUUID(TableRequirement):
    """It must still be the same table, not another one under its name."""

    uuid: str
    type: ClassVar[str] = "assert-table-uuid"

    def check(self, base: TableMetadata | None) -> None:
        uuid = _existing(base, self.type).table_uuid
        if uuid.lower() != self.uuid.lower():
            raise _conflict(
                f"the table was replaced: its uuid is {uuid}, expected {self.uuid}", self.type
            )


@dataclass(frozen=True, slots=True)
class AssertRefSnapshotId(TableRequirement):
    """The branch or tag must still name this snapshot; None: must not exist."""

    ref: str
    snapshot_id: int | None
    type: ClassVar[str] = "assert-ref-snapshot-id"

    def check(self, base: TableMetadata | None) -> None:
        ref = _existing(base, self.type).refs.get(self.ref)
        snapshot_id = None if ref is None else ref.snapshot_id
        if snapshot_id != self.snapshot_id:
            raise _conflict(
                f"ref {self.ref} moved: it names snapshot {snapshot_id}, "
                f"expected {self.snapshot_id}",
                self.type,
                ref=self.ref,
            )


@dataclass(frozen=True, slots=True)
class _SameNumber(TableRequirement):
    """The table still has the number that the requirement is named after."""

    def _numbers(self, table: TableMetadata) -> tuple[int, int]:
        """The table's and the expected one."""
        raise NotImplementedError

    def check(self, base: TableMetadata | None) -> None:
        numbers, expected = self._numbers(_existing(base, self.type))
        if numbers != expected:
            what = self.type.removeprefix("assert-").replace("-", " ")
            raise _conflict(f"the {what} changed: it is {numbers}, expected {expected}", self.type)


@dataclass(frozen=True, slots=True)
class AssertLastAssignedFieldId(_SameNumber):
    """No column was added since."""

    last_assigned_field_id: int
    type: ClassVar[str] = "assert-last-assigned-field-id"

    def _numbers(self, table: TableMetadata) -> tuple[int, int]:
        return table.last_column_id, self.last_assigned_field_id


@dataclass(frozen=True, slots=True)
class AssertCurrentSchemaId(_SameNumber):
    """The current schema is still the same."""

    current_schema_id: int
    type: ClassVar[str] = "assert-current-schema-id"

    def _numbers(self, table: TableMetadata) -> tuple[int, int]:
        return table.current_schema_id, self.current_schema_id


@dataclass(frozen=True, slots=True)
class AssertLastAssignedPartitionId(_SameNumber):
    """No partition field was added since."""

    last_assigned_partition_id: int
    type: ClassVar[str] = "assert-last-assigned-partition-id"

    def _numbers(self, table: TableMetadata) -> tuple[int, int]:
        return table.last_partition_id, self.last_assigned_partition_id


@dataclass(frozen=True, slots=True)
class AssertDefaultSpecId(_SameNumber):
    """The default partition spec is still the same."""

    default_spec_id: int
    type: ClassVar[str] = "assert-default-spec-id"

    def _numbers(self, table: TableMetadata) -> tuple[int, int]:
        return table.default_spec_id, self.default_spec_id


@dataclass(frozen=True, slots=True)
class AssertDefaultSortOrderId(_SameNumber):
    """The default sort order is still the same."""

    default_sort_order_id: int
    type: ClassVar[str] = "assert-default-sort-order-id"

    def _numbers(self, table: TableMetadata) -> tuple[int, int]:
        return table.default_sort_order_id, self.default_sort_order_id


Requirement: TypeAlias = (
    AssertCreate
    | AssertTableUUID
    | AssertRefSnapshotId
    | AssertLastAssignedFieldId
    | AssertCurrentSchemaId
    | AssertLastAssignedPartitionId
    | AssertDefaultSpecId
    | AssertDefaultSortOrderId
)


def check_requirements(base: TableMetadata | None, requirements: Iterable[Requirement]) -> None:
    """Check every assumption against the current metadata, None if there is no table.

    Raises:
        CommitConflictError: naming the first assumption that does not hold.
    """
    for requirement in requirements:
        requirement.check(base)


def _existing(base: TableMetadata | None, kind: str) -> TableMetadata:
    if base is None:
        raise _conflict("the table does not exist", kind)
    return base


def _conflict(reason: str, kind: str, **context: object) -> CommitConflictError:
    return CommitConflictError(
        f"Not committed, {reason}. Refresh the table and apply the change again.",
        requirement=kind,
        **context,
    )


# What it changes


@dataclass(frozen=True, slots=True)
class TableUpdate(_AsJson):
    """What a commit changes; see `metadata_draft.apply_updates`."""

    action: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """The JSON object (REST catalog: TableUpdate)."""
        return {"action": self.action, **self._members()}


@dataclass(frozen=True, slots=True)
class AssignUUID(TableUpdate):
    """Set the table's uuid; only while it is created."""

    uuid: str
    action: ClassVar[str] = "assign-uuid"


@dataclass(frozen=True, slots=True)
class UpgradeFormatVersion(TableUpdate):
    """Raise the format version, to 2 or 3."""

    format_version: int
    action: ClassVar[str] = "upgrade-format-version"


@dataclass(frozen=True, slots=True)
class AddSchema(TableUpdate):
    """Add a schema. It gets the id of an equal one if there is one, else a new one."""

    schema: Schema
    action: ClassVar[str] = "add-schema"


@dataclass(frozen=True, slots=True)
class SetCurrentSchema(TableUpdate):
    """Make a schema current."""

    schema_id: int = LAST_ADDED
    action: ClassVar[str] = "set-current-schema"


@dataclass(frozen=True, slots=True)
class RemoveSchemas(TableUpdate):
    """Forget schemas that nothing uses; the current one stays."""

    schema_ids: tuple[int, ...]
    action: ClassVar[str] = "remove-schemas"


@dataclass(frozen=True, slots=True)
class AddPartitionSpec(TableUpdate):
    """Add a partition spec. It gets the id of an equivalent one if there is one, else a new one."""

    spec: PartitionSpec
    action: ClassVar[str] = "add-spec"


@dataclass(frozen=True, slots=True)
class SetDefaultSpec(TableUpdate):
    """Make a partition spec the default for writers."""

    spec_id: int = LAST_ADDED
    action: ClassVar[str] = "set-default-spec"


@dataclass(frozen=True, slots=True)
class RemovePartitionSpecs(TableUpdate):
    """Forget partition specs that no manifest uses; the default one stays."""

    spec_ids: tuple[int, ...]
    action: ClassVar[str] = "remove-partition-specs"


@dataclass(frozen=True, slots=True)
class AddSortOrder(TableUpdate):
    """Add a sort order; it gets the id of an equal one, a new one, or 0 if unsorted."""

    sort_order: SortOrder
    action: ClassVar[str] = "add-sort-order"


@dataclass(frozen=True, slots=True)
class SetDefaultSortOrder(TableUpdate):
    """Make a sort order the default for writers."""

    sort_order_id: int = LAST_ADDED
    action: ClassVar[str] = "set-default-sort-order"


@dataclass(frozen=True, slots=True)
class AddSnapshot(TableUpdate):
    """Add a snapshot; no ref names it yet."""

    snapshot: Snapshot
    action: ClassVar[str] = "add-snapshot"


@dataclass(frozen=True, slots=True)
class SetSnapshotRef(TableUpdate):
    """Create or move a branch or tag."""

    ref_name: str
    snapshot_id: int
    type: RefType = "branch"
    min_snapshots_to_keep: int | None = None
    max_snapshot_age_ms: int | None = None
    max_ref_age_ms: int | None = None
    action: ClassVar[str] = "set-snapshot-ref"

    def ref(self) -> SnapshotRef:
        """The reference it sets."""
        return SnapshotRef(
            self.snapshot_id,
            self.type,
            self.min_snapshots_to_keep,
            self.max_snapshot_age_ms,
            self.max_ref_age_ms,
        )

    def to_json(self) -> dict[str, Any]:
        return {"action": self.action, "ref-name": self.ref_name, **self.ref().to_json()}


@dataclass(frozen=True, slots=True)
class RemoveSnapshots(TableUpdate):
    """Expire snapshots, with their statistics.

    Refused as a conflict while a ref names one of them.
    """

    snapshot_ids: tuple[int, ...]
    action: ClassVar[str] = "remove-snapshots"


@dataclass(frozen=True, slots=True)
class RemoveSnapshotRef(TableUpdate):
    """Remove a branch or tag; its snapshots stay until expiry."""

    ref_name: str
    action: ClassVar[str] = "remove-snapshot-ref"


@dataclass(frozen=True, slots=True)
class SetLocation(TableUpdate):
    """Change the base location for new files."""

    location: str
    action: ClassVar[str] = "set-location"


@dataclass(frozen=True, slots=True)
class SetProperties(TableUpdate):
    """Set table properties; they are not shown, since users put secrets there.

    `foreign` ones are what another engine sets, with values that need not be any that we read.
    """

    updates: Mapping[str, str] = field(repr=False)
    foreign: bool = field(default=False, compare=False)
    action: ClassVar[str] = "set-properties"


@dataclass(frozen=True, slots=True)
class RemoveProperties(TableUpdate):
    """Remove table properties; one that is not set is passed over."""

    removals: tuple[str, ...]
    action: ClassVar[str] = "remove-properties"


@dataclass(frozen=True, slots=True)
class SetStatistics(TableUpdate):
    """Attach a statistics file, replacing the one of the same snapshot.

    `statistics` is the JSON object of the spec.
    """

    statistics: Mapping[str, Any]
    action: ClassVar[str] = "set-statistics"

    def to_json(self) -> dict[str, Any]:
        return {
            "action": self.action,
            "snapshot-id": self.statistics["snapshot-id"],
            "statistics": dict(self.statistics),
        }


@dataclass(frozen=True, slots=True)
class RemoveStatistics(TableUpdate):
    """Detach the statistics file of a snapshot."""

    snapshot_id: int
    action: ClassVar[str] = "remove-statistics"


@dataclass(frozen=True, slots=True)
class SetPartitionStatistics(TableUpdate):
    """Attach a partition statistics file, replacing the one of the same snapshot."""

    partition_statistics: Mapping[str, Any]
    action: ClassVar[str] = "set-partition-statistics"


@dataclass(frozen=True, slots=True)
class RemovePartitionStatistics(TableUpdate):
    """Detach the partition statistics file of a snapshot."""

    snapshot_id: int
    action: ClassVar[str] = "remove-partition-statistics"


Update: TypeAlias = (
    AssignUUID
    | UpgradeFormatVersion
    | AddSchema
    | SetCurrentSchema
    | RemoveSchemas
    | AddPartitionSpec
    | SetDefaultSpec
    | RemovePartitionSpecs
    | AddSortOrder
    | SetDefaultSortOrder
    | AddSnapshot
    | SetSnapshotRef
    | RemoveSnapshots
    | RemoveSnapshotRef
    | SetLocation
    | SetProperties
    | RemoveProperties
    | SetStatistics
    | RemoveStatistics
    | SetPartitionStatistics
    | RemovePartitionStatistics
)


@dataclass(frozen=True, slots=True)
class Changes:
    """What a commit assumes and what it changes. False when there is nothing to change."""

    requirements: tuple[Requirement, ...] = ()
    updates: tuple[Update, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.updates)


def requirement_from_json(document: Any, where: str = "requirement") -> Requirement:
    """Read one table requirement (REST catalog: TableRequirement).

    >>> requirement_from_json({"type": "assert-current-schema-id", "current-schema-id": 3})
    AssertCurrentSchemaId(current_schema_id=3)

    Raises CorruptMetadataError naming `where`, also for a type that is not known.
    """
    kind = require_str(document, "type", where)
    if kind not in _REQUIREMENTS:
        raise CorruptMetadataError(f"{where}: unknown requirement {kind!r}.")
    return _REQUIREMENTS[kind](document, where)


def update_from_json(document: Any, where: str = "update") -> Update:
    """Read one table update (REST catalog: TableUpdate).

    >>> update_from_json({"action": "remove-properties", "removals": ["a"]})
    RemoveProperties(removals=('a',))

    Raises CorruptMetadataError naming `where`, also for an action that is not known.
    """
    action = require_str(document, "action", where)
    if action not in _UPDATES:
        raise CorruptMetadataError(f"{where}: unknown action {action!r}.")
    return _UPDATES[action](document, f"{where} {action}")


def _ints(document: Any, key: str, where: str) -> tuple[int, ...]:
    numbers = require_list(document.get(key), f"{where}.{key}")
    return tuple(as_int(number, f"{where}.{key}") for number in numbers)


def _strings(document: Any, key: str, where: str) -> tuple[str, ...]:
    texts = require_list(document.get(key), f"{where}.{key}")
    if not all(isinstance(text, str) for text in texts):
        raise CorruptMetadataError(f"{where}.{key}: expected a list of strings.")
    return tuple(texts)


def _int(make: Callable[[int], Any], key: str) -> Callable[[Any, str], Any]:
    return lambda document, where: make(require_int(document, key, where))


def _add_schema(document: Any, where: str) -> AddSchema:
    return AddSchema(schema_from_json(document.get("schema"), f"{where}.schema"))


def _add_snapshot(document: Any, where: str) -> AddSnapshot:
    return AddSnapshot(Snapshot.from_json(document.get("snapshot"), f"{where}.snapshot"))


def _set_ref(document: Any, where: str) -> SetSnapshotRef:
    name = require_str(document, "ref-name", where)
    ref = SnapshotRef.from_json(document, where)
    return SetSnapshotRef(
        name,
        ref.snapshot_id,
        ref.type,
        ref.min_snapshots_to_keep,
        ref.max_snapshot_age_ms,
        ref.max_ref_age_ms,
    )


def _set_properties(document: Any, where: str) -> SetProperties:
    # `updated` is how the first clients wrote it
    given = document.get("updates", document.get("updated"))
    updates = string_map(require_object(given, f"{where}.updates"), f"{where}.updates")
    return SetProperties(updates, foreign=True)


def _remove_properties(document: Any, where: str) -> RemoveProperties:
    key = "removals" if "removals" in document else "removed"
    return RemoveProperties(_strings(document, key, where))


def _set_statistics(document: Any, where: str) -> SetStatistics:
    return SetStatistics(require_object(document.get("statistics"), f"{where}.statistics"))


def _set_partition_statistics(document: Any, where: str) -> SetPartitionStatistics:
    given = document.get("partition-statistics")
    return SetPartitionStatistics(require_object(given, f"{where}.partition-statistics"))


_REQUIREMENTS: dict[str, Callable[[Any, str], Requirement]] = {
    "assert-create": lambda _document, _where: AssertCreate(),
    "assert-table-uuid": lambda d, w: AssertTableUUID(require_str(d, "uuid", w)),
    "assert-ref-snapshot-id": lambda d, w: AssertRefSnapshotId(
        require_str(d, "ref", w), optional_int(d, "snapshot-id", w)
    ),
    "assert-last-assigned-field-id": _int(AssertLastAssignedFieldId, "last-assigned-field-id"),
    "assert-current-schema-id": _int(AssertCurrentSchemaId, "current-schema-id"),
    "assert-last-assigned-partition-id": _int(
        AssertLastAssignedPartitionId, "last-assigned-partition-id"
    ),
    "assert-default-spec-id": _int(AssertDefaultSpecId, "default-spec-id"),
    "assert-default-sort-order-id": _int(AssertDefaultSortOrderId, "default-sort-order-id"),
}
_UPDATES: dict[str, Callable[[Any, str], Update]] = {
    "assign-uuid": lambda d, w: AssignUUID(require_str(d, "uuid", w)),
    "upgrade-format-version": _int(UpgradeFormatVersion, "format-version"),
    "add-schema": _add_schema,
    "set-current-schema": _int(SetCurrentSchema, "schema-id"),
    "remove-schemas": lambda d, w: RemoveSchemas(_ints(d, "schema-ids", w)),
    "add-spec": lambda d, w: AddPartitionSpec(spec_from_json(d.get("spec"), f"{w}.spec")),
    "set-default-spec": _int(SetDefaultSpec, "spec-id"),
    "remove-partition-specs": lambda d, w: RemovePartitionSpecs(_ints(d, "spec-ids", w)),
    "add-sort-order": lambda d, w: AddSortOrder(
        new_sort_order_from_json(d.get("sort-order"), f"{w}.sort-order")
    ),
    "set-default-sort-order": _int(SetDefaultSortOrder, "sort-order-id"),
    "add-snapshot": _add_snapshot,
    "set-snapshot-ref": _set_ref,
    "remove-snapshots": lambda d, w: RemoveSnapshots(_ints(d, "snapshot-ids", w)),
    "remove-snapshot-ref": lambda d, w: RemoveSnapshotRef(require_str(d, "ref-name", w)),
    "set-location": lambda d, w: SetLocation(require_str(d, "location", w)),
    "set-properties": _set_properties,
    "remove-properties": _remove_properties,
    "set-statistics": _set_statistics,
    "remove-statistics": _int(RemoveStatistics, "snapshot-id"),
    "set-partition-statistics": _set_partition_statistics,
    "remove-partition-statistics": _int(RemovePartitionStatistics, "snapshot-id"),
}
