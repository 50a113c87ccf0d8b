"""Rows, files and deletes of each partition, in a file that metadata names.

Spec: Partition Statistics File. Everything comes from manifests; no data file is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StructType

from lakehouse.catalog.catalog_protocol import Catalog
from lakehouse.catalog.confinement import check_table
from lakehouse.environment import Environment
from lakehouse.errors import InvalidInputError
from lakehouse.maintenance.shown_plan import Report, human_bytes
from lakehouse.maintenance.statistics_file import commit_file, statistics_snapshot
from lakehouse.manifests.manifest_reader import ManifestReader, load_manifests
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.manifests.data_file import (
    CONTENT_DATA,
    CONTENT_EQUALITY_DELETES,
    STATUS_DELETED,
    ManifestEntry,
)
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import SetPartitionStatistics
from lakehouse.spec.metadata.unified_partition import Partition, UnifiedPartition
from lakehouse.spec.partitioning.partition_terms import is_unpartitioned
from lakehouse.spec.table_properties import TableProperties
from lakehouse.spec.types.arrow_types import schema_to_arrow
from lakehouse.storage.location import join
from lakehouse.storage.storage_protocol import Storage
from lakehouse.transaction.transaction import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatisticsPlan(Report):
    """What counting would read.

    Attributes:
        identifier: the table.
        snapshot_id: what would be counted.
        manifests, bytes: of the snapshot.
    """

    identifier: Identifier
    snapshot_id: int
    manifests: int
    bytes: int
    action_name: ClassVar[str] = "analyze-partitions"

    def title(self) -> str:
        return f"Count partitions of {self.identifier}"

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "snapshot", str(self.snapshot_id)
        yield "manifests to read", f"{self.manifests:,}, {human_bytes(self.bytes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatisticsResult(Report):
    """The partition statistics of one snapshot.

    Attributes:
        identifier: the table.
        snapshot_id: what was counted.
        location: of the file.
        bytes: its size.
        partitions: rows in it; None where the snapshot had the file already.
    """

    identifier: Identifier
    snapshot_id: int
    location: str
    bytes: int
    partitions: int | None

    def title(self) -> str:
        return f"Partition statistics of {self.identifier}"

    def to_dict(self) -> dict[str, object]:
        return {
            "table": str(self.identifier),
            "action": "analyze-partitions",
            "snapshot_id": self.snapshot_id,
            "partition_statistics_file": self.location,
            "bytes": self.bytes,
            "partitions": self.partitions,
        }

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "snapshot", str(self.snapshot_id)
        yield "partition statistics file", self.location
        yield "size", human_bytes(self.bytes)
        yield "partitions", "was there already" if self.partitions is None else self.partitions


def plan_partition_statistics(
    catalog: Catalog, identifier: Identifier | str, *, snapshot_id: int | None = None
) -> PartitionStatisticsPlan:
    """What `compute_partition_statistics` would read; changes nothing. Errors as there."""
    table = Identifier.parse(identifier)
    metadata = catalog.load(table).metadata
    snapshot = _counted(metadata, snapshot_id, table)
    manifests = load_manifests(catalog.storage(metadata.location), snapshot)
    return PartitionStatisticsPlan(
        identifier=table,
        snapshot_id=snapshot.snapshot_id,
        manifests=len(manifests),
        bytes=sum(manifest.manifest_length for manifest in manifests),
    )


def compute_partition_statistics(
    catalog: Catalog,
    identifier: Identifier | str,
    *,
    snapshot_id: int | None = None,
    environment: Environment | None = None,
) -> PartitionStatisticsResult:
    """Count rows, files and deletes of each partition into the snapshot's statistics file.

    A snapshot never changes, so one that has its file keeps it.

    Args:
        catalog: where the table is.
        identifier: the table.
        snapshot_id: the current snapshot when None.
        environment: clock and ids.

    Raises:
        InvalidInputError: the table has no snapshot, or was never partitioned.
        NoSuchSnapshotError: no such snapshot.
        InvalidLocationError: the table's metadata says to write outside the warehouse.
        CommitError: see `lakehouse.errors`; the new file is gone then, unless the outcome is
            unknown.
    """
    table = Identifier.parse(identifier)
    env = environment if environment is not None else Environment.system()
    version = catalog.load(table)
    metadata = version.metadata
    check_table(catalog, metadata)
    snapshot = _counted(metadata, snapshot_id, table)
    storage = catalog.storage(metadata.location)
    for record in metadata.partition_statistics:
        location = str(record["statistics-path"])
        if record.get("snapshot-id") == snapshot.snapshot_id and storage.exists(location):
            size = int(record["file-size-in-bytes"])
            return _result(table, snapshot, location, size, None)
    rows = partition_statistics(metadata, snapshot, storage)
    sink = BytesIO()
    pq.write_table(rows, sink, compression="zstd", store_schema=False)
    folder = TableProperties(metadata.properties).metadata_location(metadata.location)
    name = f"partition-stats-{snapshot.snapshot_id}-{env.new_uuid()}.parquet"
    location, size = join(folder, name), sink.tell()
    record = {
        "snapshot-id": snapshot.snapshot_id,
        "statistics-path": location,
        "file-size-in-bytes": size,
    }
    transaction = Transaction(catalog, table, decided_on=version, environment=env)
    update = SetPartitionStatistics(record)
    commit_file(transaction, update, location, sink.getvalue(), storage)
    return _result(table, snapshot, location, size, rows.num_rows)


def _counted(metadata: TableMetadata, snapshot_id: int | None, table: Identifier) -> Snapshot:
    if all(is_unpartitioned(spec) for spec in metadata.partition_specs):
        raise InvalidInputError(
            f"{table} is not partitioned: `compute_statistics` counts the values of its columns",
            table=str(table),
        )
    return statistics_snapshot(metadata, snapshot_id, table)


def _result(
    table: Identifier, snapshot: Snapshot, location: str, size: int, partitions: int | None
) -> PartitionStatisticsResult:
    return PartitionStatisticsResult(
        identifier=table,
        snapshot_id=snapshot.snapshot_id,
        location=location,
        bytes=size,
        partitions=partitions,
    )


def partition_statistics_schema(metadata: TableMetadata) -> Schema:
    """The file's columns (spec: Partition Statistics File).

    Fields of `partition` whose source column is in no schema any more, and whose type is unknown
    therefore, are left out.
    """
    unified = UnifiedPartition.of(metadata)
    struct = StructType(
        *(
            NestedField(field_id, name, kind, required=False)
            for field_id, (name, kind) in unified.fields.items()
            if kind is not None
        )
    )
    counted = metadata.format_version >= 3
    return Schema(
        NestedField(1, "partition", struct, required=True),
        NestedField(2, "spec_id", IntegerType(), required=True),
        NestedField(3, "data_record_count", LongType(), required=True),
        NestedField(4, "data_file_count", IntegerType(), required=True),
        NestedField(5, "total_data_file_size_in_bytes", LongType(), required=True),
        NestedField(6, "position_delete_record_count", LongType(), required=counted),
        NestedField(7, "position_delete_file_count", IntegerType(), required=counted),
        NestedField(8, "equality_delete_record_count", LongType(), required=counted),
        NestedField(9, "equality_delete_file_count", IntegerType(), required=counted),
        NestedField(10, "total_record_count", LongType(), required=False),
        NestedField(11, "last_updated_at", LongType(), required=False),
        NestedField(12, "last_updated_snapshot_id", LongType(), required=False),
        *([NestedField(13, "dv_count", IntegerType(), required=True)] if counted else []),
    )


@dataclass(slots=True)
class _Counts:
    """A partition."""

    partition: Partition
    data_record_count: int = 0
    data_file_count: int = 0
    total_data_file_size_in_bytes: int = 0
    position_delete_record_count: int = 0
    position_delete_file_count: int = 0
    equality_delete_record_count: int = 0
    equality_delete_file_count: int = 0
    dv_count: int = 0
    last_updated_at: int | None = None
    last_updated_snapshot_id: int | None = None
    live: bool = False

    @property
    def spec_id(self) -> int:
        return self.partition[0]

    def add(self, entry: ManifestEntry) -> None:
        """A live file."""
        self.live = True
        file = entry.data_file
        if file.content == CONTENT_DATA:
            self.data_record_count += file.record_count
            self.data_file_count += 1
            self.total_data_file_size_in_bytes += file.file_size_in_bytes
        elif file.content == CONTENT_EQUALITY_DELETES:
            self.equality_delete_record_count += file.record_count
            self.equality_delete_file_count += 1
        else:
            self.position_delete_record_count += file.record_count
            self.dv_count += file.is_deletion_vector
            self.position_delete_file_count += not file.is_deletion_vector

    def touched(self, snapshot: Snapshot | None) -> None:
        """The snapshot that added or removed a file; None when it is expired."""
        if snapshot is not None and snapshot.timestamp_ms >= (self.last_updated_at or 0):
            self.last_updated_at = snapshot.timestamp_ms
            self.last_updated_snapshot_id = snapshot.snapshot_id

    def figures(self, *, exact: bool) -> dict[str, int | None]:
        """By column; `exact` where all deletes are deletion vectors, which count the rows."""
        left = self.data_record_count - self.position_delete_record_count
        return {
            "spec_id": self.spec_id,
            "data_record_count": self.data_record_count,
            "data_file_count": self.data_file_count,
            "total_data_file_size_in_bytes": self.total_data_file_size_in_bytes,
            "position_delete_record_count": self.position_delete_record_count,
            "position_delete_file_count": self.position_delete_file_count,
            "equality_delete_record_count": self.equality_delete_record_count,
            "equality_delete_file_count": self.equality_delete_file_count,
            "total_record_count": left if exact else None,
            "last_updated_at": self.last_updated_at,
            "last_updated_snapshot_id": self.last_updated_snapshot_id,
            "dv_count": self.dv_count,
        }


def partition_statistics(metadata: TableMetadata, snapshot: Snapshot, storage: Storage) -> pa.Table:
    """A row for each spec and partition that has a file, in the order of their values.

    Columns are those of `partition_statistics_schema`. `total_record_count` is null as soon as the
    snapshot has position delete files or equality deletes: only rows tell what they delete.
    `last_updated_*` are those of the newest snapshot, of those that still exist, that changed the
    partition.
    """
    counts: dict[tuple[object, ...], _Counts] = {}
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    manifests = load_manifests(storage, snapshot)
    for entries in ManifestReader.of(storage, metadata).entries_of_all(manifests):
        for entry in entries.to_manifest_entries():
            file = entry.data_file
            partition_counts = counts.setdefault(
                file.partition_key, _Counts((file.spec_id, file.partition))
            )
            partition_counts.touched(snapshots.get(entry.snapshot_id or -1))
            if entry.status != STATUS_DELETED:
                partition_counts.add(entry)
    unified = UnifiedPartition.of(metadata)
    rows = sorted(
        (count for count in counts.values() if count.live),
        key=lambda statistics: (
            [_ordered(value) for value in unified.values(statistics.partition)],
            statistics.spec_id,
        ),
    )
    is_exact = not any(
        row.position_delete_file_count + row.equality_delete_file_count for row in rows
    )
    return _table(rows, unified, partition_statistics_schema(metadata), exact=is_exact)


def _table(
    rows: Sequence[_Counts], unified: UnifiedPartition, schema: Schema, *, exact: bool
) -> pa.Table:
    arrow = schema_to_arrow(schema)
    partitions = unified.array([row.partition for row in rows])
    struct = arrow.field("partition").type
    columns: list[pa.Array] = [
        pa.StructArray.from_arrays(
            [
                partitions.field(at)
                for at, (_, kind) in enumerate(unified.fields.values())
                if kind is not None
            ],
            fields=list(struct),
        )
    ]
    figures = [row.figures(exact=exact) for row in rows]
    columns += [
        pa.array([figure[field.name] for figure in figures], field.type)
        for field in list(arrow)[1:]
    ]
    return pa.Table.from_arrays(columns, schema=arrow)


def _ordered(value: Any) -> tuple[Any, ...]:
    """A key that sorts nulls first, NaN last, and -0.0 before 0.0."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (2,) if math.isnan(value) else (1, value, math.copysign(1.0, value))
    return (1, value)
