"""What a plan read, what it skipped, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table as RichTable


@dataclass(slots=True)
class ManifestCounts:
    """Manifests of one kind (data or delete).

    Attributes:
        total: listed by the snapshot.
        skipped_by_partition: no partition of theirs can match (partition summaries of the manifest
            list).
        skipped_empty: hold no live file.
        read: opened.
        read_columnar: of those, answered by the columnar one.
        read_cached: of those, answered by a cache.
        read_bulk: of those, decoded from Avro in bulk.
        read_slow: of those, decoded from Avro entry by entry: they are small, or bulk decoding was
            refused.
        bytes_total: manifest bytes listed.
        bytes_read: bytes of Avro manifests read from storage; columnar ones, of which only the
            columns that are needed are read, do not count.
    """

    total: int = 0
    skipped_by_partition: int = 0
    skipped_empty: int = 0
    read: int = 0
    read_columnar: int = 0
    read_cached: int = 0
    read_bulk: int = 0
    read_slow: int = 0
    bytes_total: int = 0
    bytes_read: int = 0


@dataclass(slots=True)
class FileCounts:
    """Data files, or delete files.

    Attributes:
        total: live in the snapshot (None when a manifest list does not say).
        skipped_by_manifest: in manifests that were skipped.
        skipped_by_partition: in manifests that were read, partition cannot match.
        skipped_by_metrics: partition can match, bounds or null and NaN counts cannot.
        planned: to be read.
        bytes_planned: size of those.
        rows_planned: record count of those, before deletes.
    """

    total: int | None = 0
    skipped_by_manifest: int = 0
    skipped_by_partition: int = 0
    skipped_by_metrics: int = 0
    planned: int = 0
    bytes_planned: int = 0
    rows_planned: int = 0


@dataclass(slots=True)
class PlanReport:
    """Counts, bytes and milliseconds of one plan.

    Attributes:
        snapshot_id: snapshot planned; None for an empty table.
        schema_id: schema that the filter was bound to.
        filter: the filter as text.
        projected_columns, projected_ids: of the columns to read.
        data_manifests, delete_manifests: see ManifestCounts.
        data_files, delete_files: see FileCounts.
        stage_ms: stage -> milliseconds (`manifest_list`, `prune_manifests`, `prune_files`,
            `deletes`).
        notes: what was unusual: ignored columnar manifests and bulk decoding that fell back, with
            the reason.
    """

    snapshot_id: int | None = None
    schema_id: int | None = None
    filter: str = "true"
    projected_columns: tuple[str, ...] = ()
    projected_ids: tuple[int, ...] = ()
    data_manifests: ManifestCounts = field(default_factory=ManifestCounts)
    delete_manifests: ManifestCounts = field(default_factory=ManifestCounts)
    data_files: FileCounts = field(default_factory=FileCounts)
    delete_files: FileCounts = field(default_factory=FileCounts)
    stage_ms: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def total_ms(self) -> float:
        """Milliseconds of all stages."""
        return sum(self.stage_ms.values())

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; snapshot ids stay integers."""
        return {**dataclasses.asdict(self), "total_ms": round(self.total_ms, 3)}

    def __rich__(self) -> RichTable:
        """A table for the terminal."""
        table = RichTable(
            title=f"Plan of snapshot {self.snapshot_id}",
            caption=f"where {self.filter}, {self.total_ms:.1f} ms",
        )
        for header in ("", "data manifests", "delete manifests", "data files", "delete files"):
            table.add_column(header, justify="left" if not header else "right")
        manifests = (self.data_manifests, self.delete_manifests)
        files = (self.data_files, self.delete_files)
        rows: list[tuple[str, Sequence[object]]] = [
            (
                "total",
                [m.total for m in manifests]
                + [f.total if f.total is not None else "unknown" for f in files],
            ),
            ("skipped: empty", [m.skipped_empty for m in manifests] + ["", ""]),
            ("skipped: manifest", ["", ""] + [f.skipped_by_manifest for f in files]),
            (
                "skipped: partition",
                [m.skipped_by_partition for m in manifests]
                + [f.skipped_by_partition for f in files],
            ),
            ("skipped: metrics", ["", ""] + [f.skipped_by_metrics for f in files]),
            ("read", [m.read for m in manifests] + [f.planned for f in files]),
            ("  columnar", [m.read_columnar for m in manifests] + ["", ""]),
            ("  cached", [m.read_cached for m in manifests] + ["", ""]),
            ("bytes", [m.bytes_read for m in manifests] + [f.bytes_planned for f in files]),
            ("rows", ["", ""] + [f.rows_planned for f in files]),
        ]
        for label, values in rows:
            table.add_row(
                label, *(f"{value:,}" if isinstance(value, int) else str(value) for value in values)
            )
        return table
