"""What a commit assumes about the table it changes (REST catalog: table requirements)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from lakehouse.errors import CommitConflictError
from lakehouse.spec.metadata.table_metadata import TableMetadata


@dataclass(frozen=True, slots=True)
class AssertCreate:
    """The table must not exist yet."""

    type: ClassVar[str] = "assert-create"

    def check(self, base: TableMetadata | None) -> None:
        """Raise CommitConflictError unless the assumption holds."""
        if base is not None:
            raise _conflict(
                f"the table was created concurrently (uuid {base.table_uuid})", self.type
            )

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"type": self.type}


@dataclass(frozen=True, slots=True)
class AssertTableUUID:
    """It must still be the same table, not another one under its name."""

    uuid: str
    type: ClassVar[str] = "assert-table-uuid"

    def check(self, base: TableMetadata | None) -> None:
        """Raise CommitConflictError unless the assumption holds."""
        found = _existing(base, self.type).table_uuid
        if found.lower() != self.uuid.lower():
            raise _conflict(
                f"the table was replaced: its uuid is {found}, expected {self.uuid}", self.type
            )

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"type": self.type, "uuid": self.uuid}


@dataclass(frozen=True, slots=True)
class AssertRefSnapshotId:
    """The branch or tag must still name this snapshot; None: must not exist."""

    ref: str
    snapshot_id: int | None
    type: ClassVar[str] = "assert-ref-snapshot-id"

    def check(self, base: TableMetadata | None) -> None:
        """Raise CommitConflictError unless the assumption holds."""
        ref = _existing(base, self.type).refs.get(self.ref)
        found = None if ref is None else ref.snapshot_id
        if found != self.snapshot_id:
            raise _conflict(
                f"ref {self.ref} moved: it names snapshot {found}, expected {self.snapshot_id}",
                self.type,
                ref=self.ref,
            )

    def to_json(self) -> dict[str, Any]:
        """REST form; `snapshot-id` is written also when null."""
        return {"type": self.type, "ref": self.ref, "snapshot-id": self.snapshot_id}


@dataclass(frozen=True, slots=True)
class AssertLastAssignedFieldId:
    """No column was added since."""

    last_assigned_field_id: int
    type: ClassVar[str] = "assert-last-assigned-field-id"

    def check(self, base: TableMetadata | None) -> None:
        """Raise CommitConflictError unless the assumption holds."""
        _equal(
            "last assigned field id",
            _existing(base, self.type).last_column_id,
            self.last_assigned_field_id,
            self.type,
        )

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"type": self.type, "last-assigned-field-id": self.last_assigned_field_id}


@dataclass(frozen=True, slots=True)
class AssertCurrentSchemaId:
    """The current schema is still the same."""

    current_schema_id: int
    type: ClassVar[str] = "assert-current-schema-id"

    def check(self, base: TableMetadata | None) -> None:
        """Raise CommitConflictError unless the assumption holds."""
        _equal(
            "current schema id",
            _existing(base, self.type).current_schema_id,
            self.current_schema_id,
            self.type,
        )

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"type": self.type, "current-schema-id": self.current_schema_id}


@dataclass(frozen=True, slots=True)
class AssertLastAssignedPartitionId:
    """No partition field was added since."""

    last_assigned_partition_id: int
    type: ClassVar[str] = "assert-last-assigned-partition-id"

    def check(self, base: TableMetadata | None) -> None:
        """Raise CommitConflictError unless the assumption holds."""
        found = _existing(base, self.type).last_partition_id
        _equal("last assigned partition id", found, self.last_assigned_partition_id, self.type)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"type": self.type, "last-assigned-partition-id": self.last_assigned_partition_id}


@dataclass(frozen=True, slots=True)
class AssertDefaultSpecId:
    """The default partition spec is still the same."""

    default_spec_id: int
    type: ClassVar[str] = "assert-default-spec-id"

    def check(self, base: TableMetadata | None) -> None:
        """Raise CommitConflictError unless the assumption holds."""
        _equal(
            "default spec id",
            _existing(base, self.type).default_spec_id,
            self.default_spec_id,
            self.type,
        )

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"type": self.type, "default-spec-id": self.default_spec_id}


@dataclass(frozen=True, slots=True)
class AssertDefaultSortOrderId:
    """The default sort order is still the same."""

    default_sort_order_id: int
    type: ClassVar[str] = "assert-default-sort-order-id"

    def check(self, base: TableMetadata | None) -> None:
        """Raise CommitConflictError unless the assumption holds."""
        found = _existing(base, self.type).default_sort_order_id
        _equal("default sort order id", found, self.default_sort_order_id, self.type)

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"type": self.type, "default-sort-order-id": self.default_sort_order_id}


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


def _equal(what: str, found: int, expected: int, kind: str) -> None:
    if found != expected:
        raise _conflict(f"the {what} changed: it is {found}, expected {expected}", kind)


def _conflict(reason: str, kind: str, **context: object) -> CommitConflictError:
    return CommitConflictError(
        f"Not committed, {reason}. Refresh the table and apply the change again.",
        requirement=kind,
        **context,
    )
