"""A lakehouse: Iceberg tables written, planned and committed from Python.

>>> import lakehouse as lh
>>> catalog = lh.load_catalog("file:///data/warehouse")
>>> events = catalog.load_table("raw.events")
>>> events.scan(where="event_ts >= '2026-06-01'").to_arrow()

`lakehouse.spark` is imported when it is first used, because Spark is optional.
"""

from __future__ import annotations

import importlib
from types import ModuleType

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
    TableAlreadyExistsError,
    ValidationConflictError,
)
from lakehouse.lake import Lakehouse, load_catalog
from lakehouse.maintenance.compaction import CompactionOptions
from lakehouse.spec.snapshot import Snapshot
from lakehouse.table import Table, TableScan

__all__ = [
    "CommitConflictError",
    "CommitError",
    "CommitStateUnknownError",
    "CompactionOptions",
    "CorruptMetadataError",
    "InvalidExpressionError",
    "InvalidIdentifierError",
    "InvalidInputError",
    "InvalidLocationError",
    "InvalidSchemaError",
    "Lakehouse",
    "LakehouseError",
    "MaintenanceRefusedError",
    "NoSuchNamespaceError",
    "NoSuchRefError",
    "NoSuchSnapshotError",
    "NoSuchTableError",
    "Snapshot",
    "Table",
    "TableAlreadyExistsError",
    "TableScan",
    "ValidationConflictError",
    "load_catalog",
]


def __getattr__(name: str) -> ModuleType:
    if name == "spark":
        return importlib.import_module("lakehouse.spark")
    raise AttributeError(f"module 'lakehouse' has no attribute {name!r}")
