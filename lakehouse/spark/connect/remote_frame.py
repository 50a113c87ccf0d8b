"""Frames of a Spark Connect session over one snapshot of a table: planned once, read by paths.

Spark cannot ask back, so files are chosen once, when the frame is made, by the scan's own filter;
filters of later queries prune row groups only. Give the filter to the scan:
`table.scan(where=...).to_spark(spark)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import orjson
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, UUIDType
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField
from pyspark.sql.types import StructType as SparkStruct

from lakehouse.data.deletes.delete_loader import POSITION_DELETE_SCHEMA
from lakehouse.data.deletes.deletion_vector import decode_vector
from lakehouse.errors import CorruptMetadataError, UnsupportedFeatureError, UnsupportedTypeError
from lakehouse.manifests.manifest_reader import ManifestReader, load_manifests
from lakehouse.scan.planner import ScanPlan, ScanRequest, plan_scan
from lakehouse.scan.reports.listeners import ENGINE_SPARK, Listeners
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spark.connect.path_reader import read_paths, refuse_equality_deletes
from lakehouse.spark.reading.file_answer import parquet_only, sized
from lakehouse.spark.reading.table_facts import misleading_columns
from lakehouse.spark.spark_types import for_workers, quoted, to_spark_schema
from lakehouse.spark.worker_tasks import Batches, map_batches
from lakehouse.spec.manifests.data_file import CONTENT_EQUALITY_DELETES, STATUS_DELETED, DataFile
from lakehouse.spec.manifests.manifest_list import CONTENT_DATA_MANIFEST
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.storage.storage_protocol import Storage


def read_remotely(
    spark: SparkSession,
    name: str,
    request: ScanRequest,
    schema: Schema,
    storage: Storage,
    listeners: Listeners,
) -> DataFrame:
    """Every row of the files that the scan's filter leaves, with the columns of `schema`.

    Raises:
        UnsupportedFeatureError: equality deletes, a file that is not Parquet, a location that Spark
            cannot reach.
        UnsupportedTypeError: a column that Spark cannot show.
    """
    beyond = for_workers(schema)
    if beyond:
        raise UnsupportedTypeError(
            f"column {beyond[0]!r} of {name} holds what Spark's own Parquet reader does not give: "
            "nanoseconds, a uuid inside a column, or a default of rows that are older. Select "
            "other columns, or read the table in a session that has its catalog",
            column=beyond[0],
        )
    unsafe = misleading_columns(schema, request.metadata)
    aliases = {field.field_id: _alias(field) for field in schema.fields if field.name in unsafe}
    physical = _physical_schema(schema, aliases)
    plan = plan_scan(request, storage)
    parquet_only(name, plan)
    listeners.planned(name, plan.report, engine=ENGINE_SPARK)
    deletes = deletes_of(request.snapshot, request.metadata, storage)
    frame = read_paths(
        spark, name, untouched_files(plan) if deletes else plan.locations(), physical
    )
    if deletes.positions or deletes.vectors:
        position_schema = to_spark_schema(POSITION_DELETE_SCHEMA)
        positions = deleted_positions(
            spark,
            deletes,
            storage,
            lambda files: read_paths(spark, name, sized(files), position_schema),
        )
        touched = read_paths(spark, name, files_with_positions(plan), physical)
        frame = frame.union(without_deleted(touched, positions))
    refuse_equality_deletes(name, [task for task in plan.tasks if has_equality_deletes(task)])
    return _shown(frame, schema, aliases)


def _alias(field: NestedField) -> str:
    return f"_lakehouse_column_{field.field_id}"


def _physical_schema(schema: Schema, aliases: dict[int, str]) -> SparkStruct:
    spark_schema = to_spark_schema(schema)
    return SparkStruct(
        [
            StructField(
                aliases.get(field.field_id, field.name),
                shown.dataType,
                shown.nullable,
                shown.metadata,
            )
            for field, shown in zip(schema.fields, spark_schema.fields, strict=True)
        ]
    )


def _shown(physical: DataFrame, schema: Schema, aliases: dict[int, str]) -> DataFrame:
    """The columns under the names and types that users know."""
    if not aliases and not any(isinstance(field.field_type, UUIDType) for field in schema.fields):
        return physical
    columns: list[Column] = []
    for field in schema.fields:
        column = F.col(quoted(aliases.get(field.field_id, field.name)))
        if isinstance(field.field_type, UUIDType):
            column = _uuid_text(column)
        columns.append(column.alias(field.name))
    return physical.select(*columns)


def _uuid_text(column: Column) -> Column:
    digits = F.lower(F.hex(column))
    parts = [
        F.substring(digits, start, length)
        for start, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    ]
    dash = F.lit("-")
    return F.concat(parts[0], dash, parts[1], dash, parts[2], dash, parts[3], dash, parts[4])


_PATH, _POSITION = "_lakehouse_path", "_lakehouse_position"
_ROWS = pa.schema([pa.field(_PATH, pa.string()), pa.field(_POSITION, pa.int64())])
_BATCH = 1 << 20
_FEW = 2_000_000


@dataclass(frozen=True, slots=True)
class SnapshotDeletes:
    """The delete files of a snapshot, by how they are applied."""

    positions: tuple[DataFile, ...] = ()
    vectors: tuple[DataFile, ...] = ()
    equality: tuple[DataFile, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.positions or self.vectors or self.equality)


def deletes_of(
    snapshot: Snapshot | None, metadata: TableMetadata, storage: Storage
) -> SnapshotDeletes:
    """Every live delete file of a snapshot.

    Raises:
        UnsupportedFeatureError: position deletes in another format than Parquet and Puffin.
    """
    if snapshot is None or snapshot.summary.get("total-delete-files") == "0":
        return SnapshotDeletes()
    files: list[DataFile] = []
    manifests = [
        manifest
        for manifest in load_manifests(storage, snapshot)
        if manifest.content != CONTENT_DATA_MANIFEST
    ]
    for entries in ManifestReader.of(storage, metadata).entries_of_all(manifests):
        files += [
            entry.data_file
            for entry in entries.to_manifest_entries()
            if entry.status != STATUS_DELETED
        ]
    equality = tuple(file for file in files if file.content == CONTENT_EQUALITY_DELETES)
    vectors = tuple(file for file in files if file.is_deletion_vector)
    positions = tuple(
        file
        for file in files
        if file.content != CONTENT_EQUALITY_DELETES and not file.is_deletion_vector
    )
    for position in positions:
        if position.file_format != "parquet":
            raise UnsupportedFeatureError(
                f"position deletes {position.file_path} are {position.file_format}; only parquet "
                "is read",
                file=position.file_path,
            )
    return SnapshotDeletes(positions, vectors, equality)


def has_equality_deletes(task: FileScanTask) -> bool:
    """Whether some delete of the task compares column values."""
    return any(delete.content == CONTENT_EQUALITY_DELETES for delete in task.deletes)


def untouched_files(plan: ScanPlan) -> pa.Table:
    """Files that no delete applies to."""
    return sized(task.data_file for task in plan.tasks if not task.deletes)


def files_with_positions(plan: ScanPlan) -> pa.Table:
    """Files of which only positions are deleted."""
    return sized(
        task.data_file for task in plan.tasks if task.deletes and not has_equality_deletes(task)
    )


def without_deleted(frame: DataFrame, deleted: DataFrame) -> DataFrame:
    """The rows of a planned relation whose position is not among the deleted ones."""
    columns = [frame[field.name] for field in frame.schema.fields]
    placed = frame.select(
        *columns,
        _comparable(
            F.url_decode(F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B")))
        ).alias(_PATH),
        F.col("_metadata.row_index").alias(_POSITION),
    )
    return placed.join(deleted, [_PATH, _POSITION], "left_anti").drop(_PATH, _POSITION)


def deleted_positions(
    spark: SparkSession,
    deletes: SnapshotDeletes,
    storage: Storage,
    read_parquet: Callable[[tuple[DataFile, ...]], DataFrame],
) -> DataFrame:
    """All deleted positions of a snapshot, as (path, position).

    Args:
        spark: the session.
        deletes: of the snapshot.
        storage: where they are.
        read_parquet: a relation over position delete files, with the columns of
            `to_spark_schema(POSITION_DELETE_SCHEMA)`.
    """
    frames = []
    if deletes.positions:
        path, position = (field.name for field in to_spark_schema(POSITION_DELETE_SCHEMA).fields)
        rows = read_parquet(deletes.positions)
        frames.append(
            rows.select(_comparable(F.col(path)).alias(_PATH), F.col(position).alias(_POSITION))
        )
    if deletes.vectors:
        rows = _vector_positions(spark, deletes.vectors, storage)
        frames.append(rows.select(_comparable(F.col(_PATH)).alias(_PATH), _POSITION))
    deleted = frames[0]
    for frame in frames[1:]:
        deleted = deleted.union(frame)
    return deleted


def _vector_positions(
    spark: SparkSession, vectors: tuple[DataFile, ...], storage: Storage
) -> DataFrame:
    """Decoded here when they are few, by the workers when they are many."""
    if sum(vector.record_count for vector in vectors) <= _FEW:
        return spark.createDataFrame(
            pa.Table.from_batches(
                [b for vector in vectors for b in _decoded(vector, storage)], schema=_ROWS
            )
        )
    records = pa.table(
        {"record": pa.array([orjson.dumps(vector.to_record()) for vector in vectors], pa.binary())}
    )
    return map_batches(
        spark.createDataFrame(records),
        _vector_reader(storage.properties),
        f"{_PATH} string, {_POSITION} bigint",
    )


def _vector_reader(properties: Mapping[str, str]) -> Callable[[Batches], Batches]:
    def read(batches: Batches) -> Batches:
        for batch in batches:
            for record in batch.column(0).to_pylist():
                file = DataFile.from_record(orjson.loads(record))
                yield from _decoded(file, storage_for(file.file_path, properties))

    return read


def _decoded(vector: DataFile, storage: Storage) -> Iterator[pa.RecordBatch]:
    offset, length, target = (
        vector.content_offset,
        vector.content_size_in_bytes,
        vector.referenced_data_file,
    )
    if offset is None or length is None or target is None:
        raise CorruptMetadataError(
            f"the deletion vector in {vector.file_path} lacks its offset, length or data file"
        )
    blob = storage.read_range(vector.file_path, offset, length)
    positions = decode_vector(blob, vector.file_path, vector.record_count)
    for start in range(0, len(positions), _BATCH):
        rows = pa.array(positions[start : start + _BATCH]).cast(pa.int64())
        yield pa.RecordBatch.from_arrays(
            [pa.repeat(pa.scalar(target, pa.string()), len(rows)), rows], schema=_ROWS
        )


def _comparable(path: Column) -> Column:
    """A location spelled so that the table's spelling and Hadoop's agree."""
    return F.regexp_replace(F.regexp_replace(path, "^file:/+", "/"), "^s3[an]?://", "s3a://")
