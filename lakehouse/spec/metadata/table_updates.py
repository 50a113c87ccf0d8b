"""Changes of table metadata as data (REST catalog: table updates), and applying them: a pure fold.

Each class carries the fields of the REST action it is named after; `to_json()` gives that form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from lakehouse.spec.metadata.metadata_draft import MetadataDraft
from lakehouse.spec.metadata.snapshot import RefType, Snapshot, SnapshotRef
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_requirements import Requirement
from lakehouse.spec.partitioning.partition_terms import sort_order_to_json, spec_to_json
from lakehouse.spec.schema.schema_json import schema_to_json

LAST_ADDED = -1
"""In place of an id: the schema, spec or sort order that was added last in the same commit."""


@dataclass(frozen=True, slots=True)
class AssignUUID:
    """Set the table's uuid; only while it is created."""

    uuid: str
    action: ClassVar[str] = "assign-uuid"

    def apply(self, draft: MetadataDraft) -> None:
        """Change the draft."""
        draft.assign_uuid(self.uuid)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"action": self.action, "uuid": self.uuid}


@dataclass(frozen=True, slots=True)
class UpgradeFormatVersion:
    """Raise the format version, to 2 or 3."""

    format_version: int
    action: ClassVar[str] = "upgrade-format-version"

    def apply(self, draft: MetadataDraft) -> None:
        """Change the draft."""
        draft.upgrade_format_version(self.format_version)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"action": self.action, "format-version": self.format_version}


@dataclass(frozen=True, slots=True)
class AddSchema:
    """Add a schema. It gets the id of an equal one if there is one, else a new one."""

    schema: Schema
    action: ClassVar[str] = "add-schema"

    def apply(self, draft: MetadataDraft) -> None:
        """Change the draft."""
        draft.add_schema(self.schema)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"action": self.action, "schema": schema_to_json(self.schema)}


@dataclass(frozen=True, slots=True)
class SetCurrentSchema:
    """Make a schema current."""

    schema_id: int = LAST_ADDED
    action: ClassVar[str] = "set-current-schema"

    def apply(self, draft: MetadataDraft) -> None:
        """Change the draft."""
        draft.set_current_schema(self.schema_id)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"action": self.action, "schema-id": self.schema_id}


@dataclass(frozen=True, slots=True)
class RemoveSchemas:
    """Forget schemas that nothing uses; the current one stays."""

    schema_ids: tuple[int, ...]
    action: ClassVar[str] = "remove-schemas"

    def apply(self, draft: MetadataDraft) -> None:
        """Change the draft."""
        draft.remove_schemas(self.schema_ids)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"action": self.action, "schema-ids": list(self.schema_ids)}


@dataclass(frozen=True, slots=True)
class AddPartitionSpec:
    """Add a partition spec. It gets the id of an equivalent one if there is one, else a new one."""

    spec: PartitionSpec
    action: ClassVar[str] = "add-spec"

    def apply(self, draft: MetadataDraft) -> None:
        """Change the draft."""
        draft.add_spec(self.spec)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"action": self.action, "spec": spec_to_json(self.spec)}


@dataclass(frozen=True, slots=True)
class SetDefaultSpec:
    """Make a partition spec the default for writers."""

    spec_id: int = LAST_ADDED
    action: ClassVar[str] = "set-default-spec"

    def apply(self, draft: MetadataDraft) -> None:
        """Change the draft."""
        draft.set_default_spec(self.spec_id)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"action": self.action, "spec-id": self.spec_id}


@dataclass(frozen=True, slots=True)
class RemovePartitionSpecs:
    """Forget partition specs that no manifest uses; the default one stays."""

    spec_ids: tuple[int, ...]
    action: ClassVar[str] = "remove-partition-specs"

    def apply(self, draft: MetadataDraft) -> None:
        """Change the draft."""
        draft.remove_specs(self.spec_ids)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"action": self.action, "spec-ids": list(self.spec_ids)}


@dataclass(frozen=True, slots=True)
class AddSortOrder:
    """Add a sort order; it gets the id of an equal one, a new one, or 0 if unsorted."""

    sort_order: SortOrder
    action: ClassVar[str] = "add-sort-order"

    def apply(self, draft: MetadataDraft) -> None:
        """Change the draft."""
        draft.add_sort_order(self.sort_order)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"action": self.action, "sort-order": sort_order_to_json(self.sort_order)}


@dataclass(frozen=True, slots=True)
class SetDefaultSortOrder:
    """Make a sort order the default for writers."""

    sort_order_id: int = LAST_ADDED
    action: ClassVar[str] = "set-default-sort-order"

    def apply(self, draft: MetadataDraft) -> None:
        """Change the draft."""
        draft.set_default_sort_order(self.sort_order_id)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"action": self.action, "sort-order-id": self.sort_order_id}


@dataclass(frozen=True, slots=True)
class AddSnapshot:
    """Add a snapshot; no ref names it yet."""

    snapshot: Snapshot
    action: ClassVar[str] = "add-snapshot"

    def apply(self, draft: MetadataDraft) -> None:
        """Change the draft."""
        draft.add_snapshot(self.snapshot)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"action": self.action, "snapshot": self.snapshot.to_json()}


@dataclass(frozen=True, slots=True)
class SetSnapshotRef:
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

    def apply(self, draft: MetadataDraft) -> None:
        """Change the draft."""
        draft.set_ref(self.ref_name, self.ref())

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"action": self.action, "ref-name": self.ref_name, **self.ref().to_json()}


@dataclass(frozen=True, slots=True)
class RemoveSnapshots:
    """Expire snapshots, with their statistics.

    Refused as a conflict while a ref names one of them.
    """

    snapshot_ids: tuple[int, ...]
    action: ClassVar[str] = "remove-snapshots"

    def apply(self, draft: MetadataDraft) -> None:
        """Change the draft."""
        draft.remove_snapshots(self.snapshot_ids)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"action": self.action, "snapshot-ids": list(self.snapshot_ids)}


@dataclass(frozen=True, slots=True)
class RemoveSnapshotRef:
    """Remove a branch or tag; its snapshots stay until expiry."""

    ref_name: str
    action: ClassVar[str] = "remove-snapshot-ref"

    def apply(self, draft: MetadataDraft) -> None:
        """Change the draft."""
        draft.remove_ref(self.ref_name)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"action": self.action, "ref-name": self.ref_name}


@dataclass(frozen=True, slots=True)
class SetLocation:
    """Change the base location for new files."""

    location: str
    action: ClassVar[str] = "set-location"

    def apply(self, draft: MetadataDraft) -> None:
        """Change the draft."""
        draft.set_location(self.location)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"action": self.action, "location": self.location}


@dataclass(frozen=True, slots=True)
class SetProperties:
    """Set table properties; they are not shown, since users put secrets there.

    `foreign` ones are what another engine sets, with values that need not be any that we read.
    """

    updates: Mapping[str, str] = field(repr=False)
    foreign: bool = field(default=False, compare=False)
    action: ClassVar[str] = "set-properties"

    def apply(self, draft: MetadataDraft) -> None:
        """Change the draft."""
        draft.set_properties(self.updates, foreign=self.foreign)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"action": self.action, "updates": dict(self.updates)}


@dataclass(frozen=True, slots=True)
class RemoveProperties:
    """Remove table properties; one that is not set is passed over."""

    removals: tuple[str, ...]
    action: ClassVar[str] = "remove-properties"

    def apply(self, draft: MetadataDraft) -> None:
        """Change the draft."""
        draft.remove_properties(self.removals)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"action": self.action, "removals": list(self.removals)}


@dataclass(frozen=True, slots=True)
class SetStatistics:
    """Attach a statistics file, replacing the one of the same snapshot.

    `statistics` is the JSON object of the spec.
    """

    statistics: Mapping[str, Any]
    action: ClassVar[str] = "set-statistics"

    def apply(self, draft: MetadataDraft) -> None:
        """Change the draft."""
        draft.set_statistics("statistics", self.statistics)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {
            "action": self.action,
            "snapshot-id": self.statistics["snapshot-id"],
            "statistics": dict(self.statistics),
        }


@dataclass(frozen=True, slots=True)
class RemoveStatistics:
    """Detach the statistics file of a snapshot."""

    snapshot_id: int
    action: ClassVar[str] = "remove-statistics"

    def apply(self, draft: MetadataDraft) -> None:
        """Change the draft."""
        draft.remove_statistics("statistics", self.snapshot_id)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"action": self.action, "snapshot-id": self.snapshot_id}


@dataclass(frozen=True, slots=True)
class SetPartitionStatistics:
    """Attach a partition statistics file, replacing the one of the same snapshot."""

    partition_statistics: Mapping[str, Any]
    action: ClassVar[str] = "set-partition-statistics"

    def apply(self, draft: MetadataDraft) -> None:
        """Change the draft."""
        draft.set_statistics("partition-statistics", self.partition_statistics)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"action": self.action, "partition-statistics": dict(self.partition_statistics)}


@dataclass(frozen=True, slots=True)
class RemovePartitionStatistics:
    """Detach the partition statistics file of a snapshot."""

    snapshot_id: int
    action: ClassVar[str] = "remove-partition-statistics"

    def apply(self, draft: MetadataDraft) -> None:
        """Change the draft."""
        draft.remove_statistics("partition-statistics", self.snapshot_id)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"action": self.action, "snapshot-id": self.snapshot_id}


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
    draft = MetadataDraft(base, now_ms)
    for update in updates:
        update.apply(draft)
    return draft.build(base_location)


def expired_metadata_files(base: TableMetadata, new: TableMetadata) -> list[str]:
    """Metadata files that the log of `base` lists and the log of `new` does not.

    With `write.metadata.delete-after-commit.enabled` they are to be deleted after `new` is
    committed.
    """
    kept = {entry.metadata_file for entry in new.metadata_log}
    return [entry.metadata_file for entry in base.metadata_log if entry.metadata_file not in kept]


@dataclass(frozen=True, slots=True)
class Changes:
    """What a commit assumes and what it changes. False when there is nothing to change."""

    requirements: tuple[Requirement, ...] = ()
    updates: tuple[Update, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.updates)
