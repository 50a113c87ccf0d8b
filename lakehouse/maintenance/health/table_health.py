"""Health of a table and its partitions, from metadata alone."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from rich.console import Group, RenderableType

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.environment import Environment
from lakehouse.maintenance.compaction.file_groups import output_file_count
from lakehouse.maintenance.health.disk_use import DiskUse, disk_use
from lakehouse.maintenance.health.file_layout import sort_overlap
from lakehouse.maintenance.health.scan_use import ScanUse, scan_use
from lakehouse.maintenance.layout_by_age import LayoutByAge
from lakehouse.maintenance.maintenance_policy import MaintenancePolicy, policy_of
from lakehouse.maintenance.manifest_rewrite import manifest_overlap
from lakehouse.maintenance.reachability.neighbours import KnownTables
from lakehouse.maintenance.reachability.reachable_files import in_parallel
from lakehouse.maintenance.retention.retention_rules import decide_retention
from lakehouse.maintenance.shown_plan import Report, gauge, human_bytes, human_ms, listing
from lakehouse.manifests.manifest_cache import DEFAULT_CACHE
from lakehouse.manifests.manifest_merging import Grouping
from lakehouse.manifests.manifest_reader import ManifestReader, load_manifests
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.manifests.data_file import CONTENT_DATA, STATUS_DELETED, partition_key
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.metadata.table_metadata import TableMetadata, why_unwritable
from lakehouse.spec.partitioning.partition_terms import partition_path
from lakehouse.spec.table_properties import TableProperties

_TOGETHER = 16
"""Manifests read by one task: most are in memory, and a task each would cost more than they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHealth:
    """One partition of one spec; files of a closed period count to the partition they belong in.

    Attributes:
        partition: as in paths, `event_ts_day=2026-06-02/user_id_bucket=3`; empty when
            unpartitioned.
        small_files: data files that are small by the policy (below 0.75 x target if it does not
            say).
        expected_files: data files left when the small ones are packed.
        deleted_records: rows of delete files (an equality delete counts once, whatever it matches).
        last_sequence_number: of its newest rows; compaction moves rows and keeps it.
        last_updated_ms: when they were committed; None when that snapshot has been expired.
        waiting_since_ms: when the oldest small file or delete file came that no compaction has
            taken; 0 when that snapshot has been expired, None when none waits.
        entropy: how far its data files are from the target size, 0 (all full) to 1 (all tiny): mean
            of (1 - size / target)².
    """

    spec_id: int
    partition: str
    data_files: int
    small_files: int
    bytes: int
    small_bytes: int
    records: int
    delete_files: int
    deleted_records: int
    expected_files: int
    last_sequence_number: int
    last_updated_ms: int | None
    waiting_since_ms: int | None = None
    entropy: float = 0.0

    @property
    def removable_files(self) -> int:
        """Data files that a compaction would save."""
        return self.data_files - self.expected_files


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHealth(Report):
    """The health of one table, by partition.

    Attributes:
        target_bytes: `write.target-file-size-bytes`.
        small_below: size in bytes below which the policy calls a file small.
        data_files, small_files, expected_files: expected is left when the small ones are packed.
        entropy: see PartitionHealth, over all data files.
        delete_ratio: deleted records / records.
        manifest_overlap: data manifests around a partition value, on average; 1.0 is perfect
            clustering.
        sort_overlap: data files of a partition around the range of a file in the leading sort
            column; 1.0 is perfectly sorted, None is unsorted.
        expirable_snapshots: snapshots and refs beyond retention.
        oldest_snapshot_age_ms, newest_snapshot_age_ms: None without snapshots.
        metadata_bytes: size of the current metadata file.
        skew: bytes of the largest partition / bytes of the mean partition.
        partitions: those with the most removable files first.
        unwritable: why no files can be written to the table, which then is not compacted; empty:
            they can.
        disk: bytes by what needs them; None when the files were not listed.
        scans: what queries filtered by and what planning skipped; None without scan reports.
    """

    identifier: Identifier
    snapshot_id: int | None
    target_bytes: int
    small_below: int
    data_files: int
    small_files: int
    expected_files: int
    entropy: float
    bytes: int
    small_bytes: int
    records: int
    delete_files: int
    deleted_records: int
    delete_ratio: float
    manifests: int
    manifest_bytes: int
    manifest_overlap: float
    sort_overlap: float | None
    snapshots: int
    expirable_snapshots: int
    oldest_snapshot_age_ms: int | None
    newest_snapshot_age_ms: int | None
    metadata_bytes: int
    refs: int
    skew: float
    partitions: tuple[PartitionHealth, ...]
    unwritable: str = ""
    disk: DiskUse | None = None
    scans: ScanUse | None = None

    @property
    def removable_files(self) -> int:
        """Data files that a compaction would save."""
        return self.data_files - self.expected_files

    def title(self) -> str:
        return f"Health of {self.identifier}"

    def to_dict(self) -> dict[str, object]:
        facts: dict[str, object] = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("identifier", "partitions", "disk", "scans")
        }
        return {
            "table": str(self.identifier),
            **facts,
            "removable_files": self.removable_files,
            "disk": None if self.disk is None else dataclasses.asdict(self.disk),
            "scans": None if self.scans is None else dataclasses.asdict(self.scans),
            "partitions": [dataclasses.asdict(partition) for partition in self.partitions],
        }

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "data files", f"{self.data_files:,}, {human_bytes(self.bytes)}, {self.records:,} rows"
        yield (
            "small files",
            f"{gauge(self.small_files, self.data_files)} {self.small_files:,} below "
            f"{human_bytes(self.small_below)}, {human_bytes(self.small_bytes)}",
        )
        yield (
            "files after compaction",
            f"{gauge(self.expected_files, self.data_files)} {self.expected_files:,}",
        )
        yield (
            "entropy",
            f"{gauge(self.entropy, 1)} {self.entropy:.2f} against files of "
            f"{human_bytes(self.target_bytes)}",
        )
        yield "delete files", f"{self.delete_files:,}, {self.delete_ratio:.1%} of rows deleted"
        yield (
            "manifests",
            f"{self.manifests:,}, {human_bytes(self.manifest_bytes)}, {self.manifest_overlap:.1f} "
            "around a value",
        )
        if self.sort_overlap is not None:
            yield (
                "overlap of sort ranges",
                f"{self.sort_overlap:.1f} files of a partition around a value",
            )
        oldest = (
            ""
            if self.oldest_snapshot_age_ms is None
            else f", oldest {human_ms(self.oldest_snapshot_age_ms)}"
        )
        yield (
            "snapshots",
            f"{self.snapshots:,}{oldest}, {self.expirable_snapshots:,} beyond retention, "
            f"{self.refs} refs",
        )
        yield "metadata file", human_bytes(self.metadata_bytes)
        yield "partitions", f"{len(self.partitions):,}, largest {self.skew:.1f} x the mean"
        if self.unwritable:
            yield "not compacted", self.unwritable
        if self.scans is not None:
            filtered = (
                ", ".join(f"{name} {count:,}" for name, count in self.scans.columns[:5])
                or "nothing"
            )
            yield (
                "scans",
                f"{self.scans.scans:,}, filtered by {filtered}; {self.scans.pruned:.1%} of files "
                "skipped",
            )
        if self.disk is not None:
            for kind in ("live", "historical", "unreferenced"):
                files, size = (
                    getattr(self.disk, f"{kind}_files"),
                    getattr(self.disk, f"{kind}_bytes"),
                )
                yield (
                    f"{kind} on disk",
                    f"{gauge(size, self.disk.bytes)} {human_bytes(size)} in {files:,} files",
                )

    def detail(self) -> RenderableType | None:
        parts = [
            part for part in (self._partitions_listed(), self._scans_listed()) if part is not None
        ]
        return Group(*parts) if parts else None

    def _partitions_listed(self) -> RenderableType | None:
        if not self.partitions:
            return None
        rows = (
            (
                partition.partition or "(whole table)",
                partition.data_files,
                f"{gauge(partition.small_files, partition.data_files)} {partition.small_files:,}",
                partition.expected_files,
                human_bytes(partition.bytes),
                partition.delete_files,
            )
            for partition in self.partitions
        )
        return listing(("partition", "#files", "small", "#after", "#bytes", "#deletes"), rows)

    def _scans_listed(self) -> RenderableType | None:
        if self.scans is None or not self.scans.scans:
            return None
        rows = (
            (
                predicate.predicate,
                f"{predicate.scans:,}",
                f"{gauge(predicate.pruned, 1)} {predicate.pruned:.1%}",
                f"{predicate.planning_ms:.1f}",
            )
            for predicate in self.scans.predicates
        )
        return listing(("predicate", "#scans", "files skipped", "#planning ms"), rows)


def health(
    catalog: Catalog,
    identifier: Identifier,
    *,
    version: TableVersion | None = None,
    environment: Environment | None = None,
    project: Mapping[str, str] | None = None,
    list_files: bool = False,
    tables: KnownTables | None = None,
    scan_reports: Iterable[Mapping[str, Any]] | None = None,
) -> TableHealth:
    """Measure the current snapshot of a table; reads manifests, no data.

    Args:
        catalog: where the table is.
        identifier: the table.
        version: of the table; None: the newest.
        environment: the clock.
        project: defaults of the project for `lakehouse.maintenance.*`.
        list_files: list the table's folders as well and walk all its snapshots, for `disk`.
        tables: for whoever measures many; None: `disk` has them loaded.
        scan_reports: of this table, and of others, for `scans`.

    Raises:
        NoSuchTableError: no such table.
        InvalidPropertyError: `write.target-file-size-bytes` or a property of maintenance is
            unusable.
    """
    now_ms = (environment or Environment.system()).now_ms()
    version, manifests, entries = read_current(catalog, identifier, version)
    policy = policy_of(version.metadata.properties, project)
    disk = (
        disk_use(
            catalog,
            identifier,
            orphans_before_ms=now_ms - policy.orphan_age_ms,
            tables=tables,
        )
        if list_files
        else None
    )
    metadata_bytes = catalog.storage(version.metadata.location).size(version.metadata_location)
    report = table_health(
        identifier,
        version.metadata,
        manifests,
        entries,
        policy=policy,
        metadata_bytes=metadata_bytes,
        now_ms=now_ms,
        disk=disk,
    )
    if scan_reports is None:
        return report
    return dataclasses.replace(
        report,
        scans=scan_use(scan_reports, str(identifier), version.metadata.schema().column_names),
    )


def read_current(
    catalog: Catalog, identifier: Identifier, version: TableVersion | None = None
) -> tuple[TableVersion, list[ManifestFile], list[Entries]]:
    """A table (the newest version by default), its current manifests and their entries."""
    version = version or catalog.load(identifier)
    metadata = version.metadata
    storage = catalog.storage(metadata.location)
    snapshot = metadata.current_snapshot()
    manifests = [] if snapshot is None else load_manifests(storage, snapshot)
    parts = [manifests[start : start + _TOGETHER] for start in range(0, len(manifests), _TOGETHER)]
    reader = ManifestReader.of(storage, metadata, DEFAULT_CACHE)
    read = in_parallel(lambda part: [reader.entries(manifest) for manifest in part], parts)
    return version, manifests, list(itertools.chain.from_iterable(read))


def table_health(
    identifier: Identifier,
    metadata: TableMetadata,
    manifests: Sequence[ManifestFile],
    entries: Sequence[Entries],
    *,
    policy: MaintenancePolicy,
    metadata_bytes: int,
    now_ms: int,
    disk: DiskUse | None = None,
) -> TableHealth:
    """Health from what was read. Pure."""
    target = TableProperties(metadata.properties).target_file_size_bytes
    small_below = policy.small_below(target)
    layout = LayoutByAge(metadata, now_ms)
    partitions = partition_health(entries, layout, target, small_below)
    times = [snapshot.timestamp_ms for snapshot in metadata.snapshots]
    retention = decide_retention(metadata, now_ms)
    sorted_by = sort_overlap(entries, metadata)
    return TableHealth(
        identifier=identifier,
        snapshot_id=metadata.current_snapshot_id,
        target_bytes=target,
        small_below=small_below,
        manifests=len(manifests),
        manifest_bytes=sum(manifest.manifest_length for manifest in manifests),
        manifest_overlap=manifest_overlap(manifests, Grouping(metadata).group),
        sort_overlap=None if sorted_by is None else sorted_by.depth,
        snapshots=len(times),
        expirable_snapshots=len(retention.expired) + len(retention.expired_refs),
        oldest_snapshot_age_ms=now_ms - min(times) if times else None,
        newest_snapshot_age_ms=now_ms - max(times) if times else None,
        metadata_bytes=metadata_bytes,
        refs=len(metadata.refs),
        partitions=partitions,
        unwritable=why_unwritable(metadata),
        disk=disk,
        **_totals(partitions),
    )


def partition_health(
    manifests: Sequence[Entries], layout: LayoutByAge, target_bytes: int, small_below: int
) -> tuple[PartitionHealth, ...]:
    """Health of every partition from manifest entries; most removable files first."""
    metadata = layout.metadata
    by_spec: dict[int, list[Entries]] = {}
    for entries in manifests:
        by_spec.setdefault(entries.spec.spec_id, []).append(entries)
    committed = {snapshot.sequence_number: snapshot.timestamp_ms for snapshot in metadata.snapshots}
    sums: dict[tuple[object, ...], _Sums] = {}
    for spec_id, members in by_spec.items():
        measures = _measures(members, target_bytes, small_below)
        for partition, row in _grouped(metadata.spec(spec_id), measures):
            spec, values = layout.place(spec_id, partition)
            key = partition_key(spec.spec_id, values)
            sums.setdefault(key, _Sums(spec, values)).add(row)
    partitions = [
        partition.health(metadata.schema(), target_bytes, committed) for partition in sums.values()
    ]
    return tuple(
        sorted(
            partitions,
            key=lambda partition: (
                -partition.removable_files,
                -partition.bytes,
                partition.partition,
            ),
        )
    )


_MEASURED = (
    "status",
    "content",
    "file_size_in_bytes",
    "record_count",
    "sequence_number",
    "file_sequence_number",
)


def _measures(manifests: Sequence[Entries], target_bytes: int, small_below: int) -> pa.Table:
    """What is added up of the live entries of manifests of one spec."""
    names = [f"partition.{field.field_id}" for field in manifests[0].spec.fields]
    listed = pa.concat_tables(
        [manifest.table.select([*names, *_MEASURED]) for manifest in manifests],
        promote_options="permissive",
    )
    table = listed.filter(pc.not_equal(listed["status"], STATUS_DELETED))
    is_data = pc.equal(table["content"], CONTENT_DATA)
    size = table["file_size_in_bytes"]
    small = pc.and_(is_data, pc.less(size, small_below))
    as_written = pc.equal(table["sequence_number"], table["file_sequence_number"])
    waiting = pc.and_(pc.or_(small, pc.invert(is_data)), as_written)
    columns = {name: table[name] for name in names}
    zero = pa.scalar(0, pa.int64())
    missing = pc.max_element_wise(
        pc.subtract(1.0, pc.divide(pc.cast(size, pa.float64()), float(target_bytes))), 0.0
    )
    return pa.table(
        {
            **columns,
            "key": pa.array([0] * table.num_rows, pa.int8()),
            "data_files": pc.cast(is_data, pa.int64()),
            "small_files": pc.cast(small, pa.int64()),
            "bytes": pc.if_else(is_data, size, zero),
            "small_bytes": pc.if_else(small, size, zero),
            "records": pc.if_else(is_data, table["record_count"], zero),
            "entropy": pc.if_else(is_data, pc.multiply(missing, missing), 0.0),
            "delete_files": pc.cast(pc.invert(is_data), pa.int64()),
            "deleted_records": pc.if_else(is_data, zero, table["record_count"]),
            "sequence_number": table["sequence_number"],
            "waiting": pc.if_else(waiting, table["sequence_number"], pa.scalar(None, pa.int64())),
        }
    )


_SUMS = (
    "data_files",
    "small_files",
    "bytes",
    "small_bytes",
    "records",
    "delete_files",
    "deleted_records",
)


def _grouped(
    spec: PartitionSpec, measures: pa.Table
) -> Iterable[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The partitions of a spec, each with its measures added up."""
    names = [f"partition.{field.field_id}" for field in spec.fields]
    wanted = [(name, "sum") for name in _SUMS] + [
        ("sequence_number", "max"),
        ("waiting", "min"),
        ("entropy", "sum"),
    ]
    grouped = measures.group_by(["key", *names]).aggregate(wanted)
    values = Entries(grouped.select(names), spec).partitions() if names else [()] * grouped.num_rows
    return zip(values, grouped.drop_columns(names).to_pylist(), strict=True)


class _Sums:
    """Measures of one partition, by rows of `_grouped`."""

    def __init__(self, spec: PartitionSpec, partition: tuple[Any, ...]) -> None:
        self._spec, self._partition = spec, partition
        self._sums: Counter[str] = Counter()
        self._entropy = 0.0
        self._newest = 0
        self._waiting: int | None = None

    def add(self, row: Mapping[str, Any]) -> None:
        """Take what one spec has of the partition."""
        self._sums.update({name: row[f"{name}_sum"] for name in _SUMS})
        self._entropy += row["entropy_sum"]
        self._newest = max(self._newest, row["sequence_number_max"] or 0)
        waiting = [time for time in (self._waiting, row["waiting_min"]) if time is not None]
        self._waiting = min(waiting, default=None)

    def health(
        self, schema: Schema, target_bytes: int, committed: Mapping[int, int]
    ) -> PartitionHealth:
        """What they say."""
        sums = {name: self._sums[name] for name in _SUMS}
        packed = output_file_count(sums["small_bytes"], target_bytes) if sums["small_files"] else 0
        return PartitionHealth(
            spec_id=self._spec.spec_id,
            partition=partition_path(self._spec, schema, self._partition),
            expected_files=sums["data_files"]
            - sums["small_files"]
            + min(packed, sums["small_files"]),
            last_sequence_number=self._newest,
            last_updated_ms=committed.get(self._newest),
            waiting_since_ms=None if self._waiting is None else committed.get(self._waiting, 0),
            entropy=self._entropy / sums["data_files"] if sums["data_files"] else 0.0,
            **sums,
        )


def _totals(partitions: Sequence[PartitionHealth]) -> dict[str, Any]:
    sums: dict[str, Any] = {
        name: sum(getattr(partition, name) for partition in partitions)
        for name in (*_SUMS, "expected_files")
    }
    largest = max((partition.bytes for partition in partitions), default=0)
    mean = sums["bytes"] / len(partitions) if partitions else 0
    return {
        **sums,
        "entropy": sum(partition.entropy * partition.data_files for partition in partitions)
        / sums["data_files"]
        if sums["data_files"]
        else 0.0,
        "delete_ratio": sums["deleted_records"] / sums["records"] if sums["records"] else 0.0,
        "skew": largest / mean if mean else 1.0,
    }
