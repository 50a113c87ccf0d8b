"""Requirements and updates from their REST form, the reverse of their `to_json()`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakehouse.errors import CorruptMetadataError
from lakehouse.spec.json_fields import (
    as_int,
    optional_int,
    require_int,
    require_list,
    require_object,
    require_str,
    string_map,
)
from lakehouse.spec.metadata import table_requirements as req
from lakehouse.spec.metadata import table_updates as up
from lakehouse.spec.metadata.snapshot import Snapshot, SnapshotRef
from lakehouse.spec.metadata.table_requirements import Requirement
from lakehouse.spec.metadata.table_updates import Update
from lakehouse.spec.partitioning.partition_terms import new_sort_order_from_json, spec_from_json
from lakehouse.spec.schema.schema_json import schema_from_json


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
    found = require_list(document.get(key), f"{where}.{key}")
    return tuple(as_int(one, f"{where}.{key}") for one in found)


def _strings(document: Any, key: str, where: str) -> tuple[str, ...]:
    found = require_list(document.get(key), f"{where}.{key}")
    if not all(isinstance(one, str) for one in found):
        raise CorruptMetadataError(f"{where}.{key}: expected a list of strings.")
    return tuple(found)


def _int(make: Callable[[int], Any], key: str) -> Callable[[Any, str], Any]:
    return lambda document, where: make(require_int(document, key, where))


def _add_schema(document: Any, where: str) -> up.AddSchema:
    return up.AddSchema(schema_from_json(document.get("schema"), f"{where}.schema"))


def _add_snapshot(document: Any, where: str) -> up.AddSnapshot:
    return up.AddSnapshot(Snapshot.from_json(document.get("snapshot"), f"{where}.snapshot"))


def _set_ref(document: Any, where: str) -> up.SetSnapshotRef:
    name = require_str(document, "ref-name", where)
    ref = SnapshotRef.from_json(document, where)
    return up.SetSnapshotRef(
        name,
        ref.snapshot_id,
        ref.type,
        ref.min_snapshots_to_keep,
        ref.max_snapshot_age_ms,
        ref.max_ref_age_ms,
    )


def _set_properties(document: Any, where: str) -> up.SetProperties:
    # `updated` is how the first clients wrote it
    given = document.get("updates", document.get("updated"))
    updates = string_map(require_object(given, f"{where}.updates"), f"{where}.updates")
    return up.SetProperties(updates, foreign=True)


def _remove_properties(document: Any, where: str) -> up.RemoveProperties:
    key = "removals" if "removals" in document else "removed"
    return up.RemoveProperties(_strings(document, key, where))


def _set_statistics(document: Any, where: str) -> up.SetStatistics:
    return up.SetStatistics(require_object(document.get("statistics"), f"{where}.statistics"))


def _set_partition_statistics(document: Any, where: str) -> up.SetPartitionStatistics:
    given = document.get("partition-statistics")
    return up.SetPartitionStatistics(require_object(given, f"{where}.partition-statistics"))


_REQUIREMENTS: dict[str, Callable[[Any, str], Requirement]] = {
    "assert-create": lambda _document, _where: req.AssertCreate(),
    "assert-table-uuid": lambda d, w: req.AssertTableUUID(require_str(d, "uuid", w)),
    "assert-ref-snapshot-id": lambda d, w: req.AssertRefSnapshotId(
        require_str(d, "ref", w), optional_int(d, "snapshot-id", w)
    ),
    "assert-last-assigned-field-id": _int(req.AssertLastAssignedFieldId, "last-assigned-field-id"),
    "assert-current-schema-id": _int(req.AssertCurrentSchemaId, "current-schema-id"),
    "assert-last-assigned-partition-id": _int(
        req.AssertLastAssignedPartitionId, "last-assigned-partition-id"
    ),
    "assert-default-spec-id": _int(req.AssertDefaultSpecId, "default-spec-id"),
    "assert-default-sort-order-id": _int(req.AssertDefaultSortOrderId, "default-sort-order-id"),
}
_UPDATES: dict[str, Callable[[Any, str], Update]] = {
    "assign-uuid": lambda d, w: up.AssignUUID(require_str(d, "uuid", w)),
    "upgrade-format-version": _int(up.UpgradeFormatVersion, "format-version"),
    "add-schema": _add_schema,
    "set-current-schema": _int(up.SetCurrentSchema, "schema-id"),
    "remove-schemas": lambda d, w: up.RemoveSchemas(_ints(d, "schema-ids", w)),
    "add-spec": lambda d, w: up.AddPartitionSpec(spec_from_json(d.get("spec"), f"{w}.spec")),
    "set-default-spec": _int(up.SetDefaultSpec, "spec-id"),
    "remove-partition-specs": lambda d, w: up.RemovePartitionSpecs(_ints(d, "spec-ids", w)),
    "add-sort-order": lambda d, w: up.AddSortOrder(
        new_sort_order_from_json(d.get("sort-order"), f"{w}.sort-order")
    ),
    "set-default-sort-order": _int(up.SetDefaultSortOrder, "sort-order-id"),
    "add-snapshot": _add_snapshot,
    "set-snapshot-ref": _set_ref,
    "remove-snapshots": lambda d, w: up.RemoveSnapshots(_ints(d, "snapshot-ids", w)),
    "remove-snapshot-ref": lambda d, w: up.RemoveSnapshotRef(require_str(d, "ref-name", w)),
    "set-location": lambda d, w: up.SetLocation(require_str(d, "location", w)),
    "set-properties": _set_properties,
    "remove-properties": _remove_properties,
    "set-statistics": _set_statistics,
    "remove-statistics": _int(up.RemoveStatistics, "snapshot-id"),
    "set-partition-statistics": _set_partition_statistics,
    "remove-partition-statistics": _int(up.RemovePartitionStatistics, "snapshot-id"),
}
