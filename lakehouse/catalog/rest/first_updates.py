"""What a request says of a table: how it came to be, what it must not have changed."""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse.spec.metadata.snapshot import MAIN_BRANCH
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_requirements import (
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
    Requirement,
)
from lakehouse.spec.metadata.table_updates import (
    AddPartitionSpec,
    AddSchema,
    AddSnapshot,
    AddSortOrder,
    AssignUUID,
    RemoveSnapshotRef,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetDefaultSpec,
    SetLocation,
    SetProperties,
    SetSnapshotRef,
    Update,
    UpgradeFormatVersion,
)


def first_updates(metadata: TableMetadata) -> list[Update]:
    """Updates that make this table from nothing."""
    schemas = [AddSchema(one) for one in metadata.schemas]
    specs = [AddPartitionSpec(one) for one in metadata.partition_specs]
    orders = [AddSortOrder(one) for one in metadata.sort_orders]
    refs = [
        SetSnapshotRef(
            name,
            ref.snapshot_id,
            ref.type,
            ref.min_snapshots_to_keep,
            ref.max_snapshot_age_ms,
            ref.max_ref_age_ms,
        )
        for name, ref in metadata.refs.items()
    ]
    return [
        AssignUUID(metadata.table_uuid),
        UpgradeFormatVersion(metadata.format_version),
        SetLocation(metadata.location),
        *schemas,
        SetCurrentSchema(metadata.current_schema_id),
        *specs,
        SetDefaultSpec(metadata.default_spec_id),
        *orders,
        SetDefaultSortOrder(metadata.default_sort_order_id),
        *([SetProperties(dict(metadata.properties))] if metadata.properties else []),
        *(AddSnapshot(one) for one in metadata.snapshots),
        *refs,
    ]


def requirements_on(base: TableMetadata, updates: Sequence[Update]) -> list[Requirement]:
    """That nothing which decides about the updates changed since `base`.

    Properties apart, for which the protocol has no requirement. A table without snapshots has no
    ref that says so: `main` is asked for by its name.
    """
    named = {one.ref_name for one in updates if isinstance(one, SetSnapshotRef | RemoveSnapshotRef)}
    refs = sorted({MAIN_BRANCH, *base.refs, *named})
    return [
        AssertTableUUID(base.table_uuid),
        *(
            AssertRefSnapshotId(name, None if found is None else found.snapshot_id)
            for name, found in ((name, base.refs.get(name)) for name in refs)
        ),
        AssertLastAssignedFieldId(base.last_column_id),
        AssertCurrentSchemaId(base.current_schema_id),
        AssertLastAssignedPartitionId(base.last_partition_id),
        AssertDefaultSpecId(base.default_spec_id),
        AssertDefaultSortOrderId(base.default_sort_order_id),
    ]
