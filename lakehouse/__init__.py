"""A lakehouse: Iceberg tables written, planned and committed from Python.

>>> import lakehouse as lh
>>> lake = lh.load_catalog(f"{folder}/warehouse")
>>> events = lake.create_table("raw.events", more.schema, partition_by=["day(event_ts)"])
>>> _ = events.append(more)
>>> events.scan(where="event_ts >= '2026-06-01'").to_arrow().num_rows
1

Importing the package imports none of its parts: each name is loaded when it is first used, so that
a program pays for what it needs alone.

Every public name has an example, which the tests run. In these `lake` is a catalog, `events` its
table `raw.events` with the columns event_ts, user_id and amount and three rows, `more` a row to
append, `folder` an empty folder.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from lakehouse.errors import (
    CommitConflictError,
    CommitError,
    CommitStateUnknownError,
    CorruptMetadataError,
    InvalidExpressionError,
    InvalidIdentifierError,
    InvalidInputError,
    InvalidLocationError,
    InvalidSchemaError,
    LakehouseError,
    MaintenanceRefusedError,
    NoSuchNamespaceError,
    NoSuchRefError,
    NoSuchSnapshotError,
    NoSuchTableError,
    NoSuchViewError,
    SnapshotExpiredError,
    TableAlreadyExistsError,
    ValidationConflictError,
    ViewAlreadyExistsError,
)
from lakehouse.names_when_used import names_when_used

if TYPE_CHECKING:
    from lakehouse.lake import Lakehouse, load_catalog
    from lakehouse.maintenance.compaction.file_groups import CompactionOptions
    from lakehouse.maintenance.manifest_rewrite import ManifestRewriteOptions
    from lakehouse.maintenance.orphan_removal import OrphanOptions
    from lakehouse.maintenance.retention.snapshot_expiry import ExpiryOptions
    from lakehouse.row_changes.change_data.debezium_events import debezium_changes
    from lakehouse.spec.metadata.commit_names import StreamBatch
    from lakehouse.spec.metadata.snapshot import Snapshot
    from lakehouse.spec.types.variant_values import decode_variant, encode_variant
    from lakehouse.table import Changelog, Table, TableScan, WriteResult, WrittenFiles
    from lakehouse.view import View

__all__ = [
    "Changelog",
    "CommitConflictError",
    "CommitError",
    "CommitStateUnknownError",
    "CompactionOptions",
    "CorruptMetadataError",
    "ExpiryOptions",
    "InvalidExpressionError",
    "InvalidIdentifierError",
    "InvalidInputError",
    "InvalidLocationError",
    "InvalidSchemaError",
    "Lakehouse",
    "LakehouseError",
    "MaintenanceRefusedError",
    "ManifestRewriteOptions",
    "NoSuchNamespaceError",
    "NoSuchRefError",
    "NoSuchSnapshotError",
    "NoSuchTableError",
    "NoSuchViewError",
    "OrphanOptions",
    "Snapshot",
    "SnapshotExpiredError",
    "StreamBatch",
    "Table",
    "TableAlreadyExistsError",
    "TableScan",
    "ValidationConflictError",
    "View",
    "ViewAlreadyExistsError",
    "WriteResult",
    "WrittenFiles",
    "debezium_changes",
    "decode_variant",
    "encode_variant",
    "load_catalog",
]

_HOMES = {
    "lake": "Lakehouse load_catalog",
    "maintenance.compaction.file_groups": "CompactionOptions",
    "maintenance.manifest_rewrite": "ManifestRewriteOptions",
    "maintenance.orphan_removal": "OrphanOptions",
    "maintenance.retention.snapshot_expiry": "ExpiryOptions",
    "row_changes.change_data.debezium_events": "debezium_changes",
    "spec.metadata.commit_names": "StreamBatch",
    "spec.metadata.snapshot": "Snapshot",
    "spec.types.variant_values": "decode_variant encode_variant",
    "table": "Changelog Table TableScan WriteResult WrittenFiles",
    "view": "View",
}
_named = names_when_used(__name__, _HOMES)


def __getattr__(name: str) -> object:
    return importlib.import_module("lakehouse.spark") if name == "spark" else _named(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "spark"})
