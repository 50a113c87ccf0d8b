"""What clients measured: scans that they planned, commits that they made."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson

from lakehouse.errors import CorruptMetadataError, InvalidInputError
from lakehouse.scan.reports.listeners import ENGINE_REST
from lakehouse.scan.reports.plan_report import FileCounts, ManifestCounts, PlanReport
from lakehouse.server.access.asked_privileges import on_table
from lakehouse.server.access.privileges import Privilege
from lakehouse.server.http_messages import Answer, Call
from lakehouse.server.rest_operation import Operation, Served
from lakehouse.spec.json_fields import (
    as_int,
    require_int,
    require_list,
    require_object,
    require_str,
    string_map,
)

log = logging.getLogger(__name__)

_BODY_MAX = 1024 * 1024
"""What is reported is logged, or kept by a listener."""
_SCAN, _COMMIT = "scan-report", "commit-report"
_MS = {"nanoseconds": 1e-6, "microseconds": 1e-3, "milliseconds": 1.0, "seconds": 1e3}


def report_metrics(served: Served, call: Call) -> Answer:
    """Scan reports go to the listeners of plans, commit reports to the log."""
    name = str(served.tables.newest(call.table()).identifier)
    document = call.document()
    kind = call.read(lambda: _kind(document))
    if kind == _SCAN:
        report = call.read(lambda: scan_report(document))
        served.lake.listeners.planned(name, report, engine=ENGINE_REST)
    elif kind == _COMMIT:
        measured = call.read(lambda: commit_metrics(document))
        log.info("%s: a client committed: %s", name, orjson.dumps(measured).decode())
    else:
        raise InvalidInputError(f"report-type must be {_SCAN} or {_COMMIT}, not {kind!r}.")
    return Answer()


def _kind(document: Mapping[str, Any]) -> str:
    """What all reports have is there. Raises CorruptMetadataError."""
    require_str(document, "table-name", "body")
    string_map(document.get("metadata"), "body.metadata")
    return require_str(document, "report-type", "body")


def commit_metrics(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a commit report measures (REST catalog: CommitReport). Raises CorruptMetadataError."""
    require_int(document, "snapshot-id", "body")
    require_int(document, "sequence-number", "body")
    require_str(document, "operation", "body")
    return require_object(document.get("metrics"), "metrics")


def scan_report(document: Mapping[str, Any]) -> PlanReport:
    """A scan report of a client (REST catalog: ScanReport). Raises CorruptMetadataError."""
    metrics = require_object(document.get("metrics"), "metrics")
    if "filter" not in document:
        raise CorruptMetadataError("body.filter: expected a filter, found nothing.")
    where = document["filter"]
    names = require_list(document.get("projected-field-names"), "projected-field-names")
    if not all(isinstance(name, str) for name in names):
        raise CorruptMetadataError("projected-field-names: expected a list of strings.")
    for field_id in require_list(document.get("projected-field-ids"), "projected-field-ids"):
        as_int(field_id, "projected-field-ids")
    return PlanReport(
        snapshot_id=require_int(document, "snapshot-id", "body"),
        schema_id=require_int(document, "schema-id", "body"),
        filter="true" if where is True else orjson.dumps(where).decode(),
        projected_columns=tuple(names),
        data_manifests=_manifests(metrics, "data"),
        delete_manifests=_manifests(metrics, "delete"),
        data_files=_files(metrics, "data", "total-file-size-in-bytes"),
        delete_files=_files(metrics, "delete", "total-delete-file-size-in-bytes"),
        stage_ms={"client": _milliseconds(metrics.get("total-planning-duration"))},
    )


def _manifests(metrics: Mapping[str, Any], kind: str) -> ManifestCounts:
    return ManifestCounts(
        total=_count(metrics, f"total-{kind}-manifests"),
        skipped_by_partition=_count(metrics, f"skipped-{kind}-manifests"),
        read=_count(metrics, f"scanned-{kind}-manifests"),
    )


def _files(metrics: Mapping[str, Any], kind: str, size: str) -> FileCounts:
    planned, skipped = (_count(metrics, f"{word}-{kind}-files") for word in ("result", "skipped"))
    return FileCounts(
        total=None,
        skipped_by_metrics=skipped,
        planned=planned,
        bytes_planned=_count(metrics, size),
    )


def _count(metrics: Mapping[str, Any], name: str) -> int:
    """A counter; 0 for one that the client does not keep. Raises CorruptMetadataError."""
    if name not in metrics:
        return 0
    return require_int(require_object(metrics[name], name), "value", name)


def _milliseconds(timer: Any) -> float:
    if timer is None:
        return 0.0
    duration = require_object(timer, "total-planning-duration")
    unit = require_str(duration, "time-unit", "total-planning-duration").lower()
    if unit not in _MS:
        raise InvalidInputError(f"time-unit must be one of {', '.join(_MS)}, not {unit!r}.")
    return require_int(duration, "total-duration", "total-planning-duration") * _MS[unit]


REPORT_OPERATIONS = (
    Operation(
        "POST",
        "/namespaces/{namespace}/tables/{table}/metrics",
        report_metrics,
        asks=on_table(Privilege.READ),
        body_max=_BODY_MAX,
    ),
)
