"""Spark DataFrames over one snapshot of a table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    UUIDType,
)
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField
from pyspark.sql.types import StructType as SparkStruct

from lakehouse.arrow.deletes import POSITION_DELETE_SCHEMA
from lakehouse.errors import UnsupportedTypeError
from lakehouse.expressions.bind import bind, refuse_metadata_columns
from lakehouse.expressions.bound import TRUE, Bound, columns
from lakehouse.maintenance.statistics import distinct_counts
from lakehouse.scan.listeners import ENGINE_SPARK, Listeners
from lakehouse.scan.planner import ScanPlan, plan_scan, project_schema, schema_of, snapshot_of
from lakehouse.scan.request import ScanRequest
from lakehouse.scan.splits import combine
from lakehouse.scan.tasks import FileScanTask
from lakehouse.spark.connect import is_remote, read_paths, refuse_equality_deletes
from lakehouse.spark.deletes import (
    deleted_positions,
    deletes_of,
    files_with_positions,
    has_equality_deletes,
    untouched_files,
    without_deleted,
)
from lakehouse.spark.file_index import (
    Estimate,
    FilePlanner,
    FixedFiles,
    parquet_only,
    planned_relation,
    sized,
)
from lakehouse.spark.locations import hadoop_reads
from lakehouse.spark.predicates import quoted, to_condition
from lakehouse.spark.types import FIELD_ID, to_spark_schema
from lakehouse.spark.worker_reader import read_on_workers
from lakehouse.spec.data_file import DataFile
from lakehouse.spec.snapshot import Snapshot
from lakehouse.spec.table_metadata import TableMetadata
from lakehouse.storage.protocol import Storage

logger = logging.getLogger(__name__)

_UNKNOWN_SIZE = 1 << 40


def read(
    spark: SparkSession,
    name: str,
    request: ScanRequest,
    storage: Storage,
    listeners: Listeners | None = None,
) -> DataFrame:
    """The rows of a scan; every query over the result is planned again, with the query's own filters.

    The version and snapshot are those of the request, whatever is committed later; `listeners` are told of every plan.

    Raises:
        NoSuchSnapshotError: the snapshot does not exist.
        InvalidExpressionError: the scan's filter does not bind.
        InvalidSchemaError: `select` names no column.
        UnsupportedTypeError: a column is of a type that Spark cannot read.
        UnsupportedFeatureError: a location that Spark cannot reach, or what a Spark Connect session cannot read (see `connect`).
    """
    metadata = request.metadata
    snapshot = snapshot_of(request)
    known = schema_of(request, snapshot)
    where = bind(request.where, known, case_sensitive=request.case_sensitive)
    refuse_metadata_columns(where, "a frame of Spark")
    schema = _needed(known, request, where)
    aliases = guarded_columns(schema, metadata)
    kind = _RemoteSource if is_remote(spark) else _Source
    source = kind(
        spark,
        name,
        request,
        storage,
        schema,
        _physical_schema(schema, aliases),
        listeners or Listeners(),
    )
    physical = source.rows(snapshot)
    frame = _shown(physical, schema, aliases)
    if where != TRUE:
        frame = frame.where(to_condition(where))
    if request.select is None:
        return frame
    projected = project_schema(schema, request.select, case_sensitive=request.case_sensitive)
    return frame.select(*_projected(schema, projected))


def _needed(schema: Schema, request: ScanRequest, where: Bound) -> Schema:
    """The top-level columns that the projection and the filter name: the others may be of types that Spark cannot read."""
    if request.select is None:
        return schema
    projected = project_schema(schema, request.select, case_sensitive=request.case_sensitive)
    named = {field.name for field in projected.fields}
    named |= {one.path[0] for one in columns(where)}
    return Schema(
        *(field for field in schema.fields if field.name in named), schema_id=schema.schema_id
    )


@dataclass(frozen=True)
class _Source:
    """Makes the frames that a snapshot's rows come from; all have the columns of `shown`."""

    spark: SparkSession
    name: str
    request: ScanRequest
    storage: Storage
    schema: Schema
    shown: SparkStruct
    listeners: Listeners

    def rows(self, snapshot: Snapshot | None) -> DataFrame:
        if not hadoop_reads(self.spark, self.request.metadata.location):
            logger.info(
                "Spark has no file system for %s: its workers read %s",
                self.request.metadata.location,
                self.name,
            )
            return self._on_workers(_every_task)
        return self._by_spark(snapshot)

    def _by_spark(self, snapshot: Snapshot | None) -> DataFrame:
        deletes = deletes_of(snapshot, self.request.metadata, self.storage)
        if not deletes:
            return self._planned(_all_files, self._estimate(snapshot))
        unknown = Estimate(_size(snapshot))
        frame = self._planned(untouched_files, unknown)
        if deletes.positions or deletes.vectors:
            positions = deleted_positions(self.spark, deletes, self.storage, self._delete_files)
            frame = frame.union(
                without_deleted(self._planned(files_with_positions, unknown), positions)
            )
        return frame.union(self._on_workers(has_equality_deletes)) if deletes.equality else frame

    def _estimate(self, snapshot: Snapshot | None) -> Estimate:
        """Of a snapshot without deletes."""
        total = "0" if snapshot is None else snapshot.summary.get("total-records", "")
        metadata = self.request.metadata
        counts = {} if snapshot is None else distinct_counts(metadata, snapshot.snapshot_id)
        ids = {metadata.schema().find_field(name).field_id: count for name, count in counts.items()}
        names = {one.metadata[FIELD_ID]: one.name for one in self.shown.fields}
        distinct = {names[field_id]: count for field_id, count in ids.items() if field_id in names}
        return Estimate(_size(snapshot), int(total) if total.isdigit() else None, distinct)

    def _planned(self, choose: Callable[[ScanPlan], pa.Table], estimate: Estimate) -> DataFrame:
        planner = FilePlanner(
            self.name, self.request, self.schema, self.storage, choose, self.listeners
        )
        return self._relation(planner, self.shown, estimate)

    def _delete_files(self, files: Sequence[DataFile]) -> DataFrame:
        size = sum(one.file_size_in_bytes for one in files)
        return self._relation(
            FixedFiles(sized(files)), to_spark_schema(POSITION_DELETE_SCHEMA), Estimate(size)
        )

    def _relation(
        self, planner: FilePlanner | FixedFiles, shown: SparkStruct, estimate: Estimate
    ) -> DataFrame:
        root = self.request.metadata.location
        return planned_relation(
            self.spark, planner, name=self.name, root=root, schema=shown, estimate=estimate
        )

    def _on_workers(self, wanted: Callable[[FileScanTask], bool]) -> DataFrame:
        plan = plan_scan(replace(self.request, select=None), self.storage)
        self.listeners.planned(self.name, plan.report, engine=ENGINE_SPARK)
        groups = combine((task for task in plan.tasks if wanted(task)), plan.split_options)
        return read_on_workers(
            self.spark, list(groups), self.request, self.storage, self.schema, self.shown
        )


class _RemoteSource(_Source):
    """For Spark Connect: everything is planned once, here."""

    def rows(self, snapshot: Snapshot | None) -> DataFrame:
        return self._by_spark(snapshot)

    def _planned(self, choose: Callable[[ScanPlan], pa.Table], estimate: Estimate) -> DataFrame:  # noqa: ARG002 - Spark asks the files
        return read_paths(self.spark, self.name, choose(self._plan), self.shown)

    def _delete_files(self, files: Sequence[DataFile]) -> DataFrame:
        return read_paths(
            self.spark, self.name, sized(files), to_spark_schema(POSITION_DELETE_SCHEMA)
        )

    def _on_workers(self, wanted: Callable[[FileScanTask], bool]) -> DataFrame:
        refuse_equality_deletes(self.name, [task for task in self._plan.tasks if wanted(task)])
        return self.spark.createDataFrame([], self.shown)

    @cached_property
    def _plan(self) -> ScanPlan:
        plan = plan_scan(self.request, self.storage)
        parquet_only(self.name, plan)
        self.listeners.planned(self.name, plan.report, engine=ENGINE_SPARK)
        return plan


def guarded_columns(schema: Schema, metadata: TableMetadata) -> dict[int, str]:
    """Top-level columns that need a name of their own in Spark's Parquet reader: field id -> that name.

    The reader finds columns by id, but it skips row groups by name and by the file's own statistics and dictionaries. It would
    lose rows

    - in a file where the name belongs to another column. A name is safe when no other schema of the table gives it, or one
      below it, to another id; when schemas were removed from the metadata nobody can know, and no name is;
    - of floating point columns: to Spark NaN is above every number and -0.0 equals 0.0, to the file's statistics and
      dictionaries they are not.

    A name that no file has takes the column out of that skipping; planning has skipped whole files already.
    """
    known = {one.schema_id for one in metadata.schemas}
    if known != set(range(max(known) + 1)):
        return {field.field_id: _alias(field) for field in schema.fields}
    owners: dict[str, set[int]] = {}
    for one in metadata.schemas:
        for path, nested in _paths(one.fields, ""):
            owners.setdefault(path, set()).add(nested.field_id)
    return {
        field.field_id: _alias(field)
        for field in schema.fields
        if any(
            owners.get(path, {nested.field_id}) != {nested.field_id}
            or isinstance(nested.field_type, FloatType | DoubleType)
            for path, nested in _paths([field], "")
        )
    }


def _alias(field: NestedField) -> str:
    return f"_lakehouse_column_{field.field_id}"


def _paths(fields: Iterable[NestedField], prefix: str) -> Iterator[tuple[str, NestedField]]:
    for field in fields:
        # Spark compares names without regard to case
        path = f"{prefix}{field.name.lower()}"
        yield path, field
        if isinstance(field.field_type, StructType):
            yield from _paths(field.field_type.fields, f"{path}\0")


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
    if not aliases and not any(_holds_uuid(field.field_type) for field in schema.fields):
        return physical
    columns: list[Column] = []
    for field in schema.fields:
        column = F.col(quoted(aliases.get(field.field_id, field.name)))
        if isinstance(field.field_type, UUIDType):
            column = _uuid_text(column)
        elif _holds_uuid(field.field_type):
            raise UnsupportedTypeError(
                f"column {field.name!r} holds a uuid inside a struct, list or map, which Spark cannot show: select other columns",
                column=field.name,
            )
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


def _holds_uuid(kind: IcebergType) -> bool:
    if isinstance(kind, StructType):
        return any(_holds_uuid(field.field_type) for field in kind.fields)
    if isinstance(kind, ListType):
        return _holds_uuid(kind.element_type)
    if isinstance(kind, MapType):
        return _holds_uuid(kind.key_type) or _holds_uuid(kind.value_type)
    return isinstance(kind, UUIDType)


def _every_task(_: FileScanTask) -> bool:
    return True


def _all_files(plan: ScanPlan) -> pa.Table:
    return plan.locations()


def _size(snapshot: Snapshot | None) -> int:
    """Bytes of the unfiltered snapshot, from its summary; where that is silent too much rather than too little."""
    if snapshot is None:
        return 0
    total = snapshot.summary.get("total-files-size", "")
    return int(total) if total.isdigit() else _UNKNOWN_SIZE


def _projected(schema: Schema, projected: Schema) -> list[Column]:
    """The projection's columns; structs of which only some fields were selected are rebuilt."""
    whole = {field.field_id: field.field_type for field in schema.fields}
    columns = []
    for field in projected.fields:
        column = F.col(quoted(field.name))
        columns.append(
            column
            if field.field_type == whole[field.field_id]
            else _narrowed(column, field.field_type).alias(field.name)
        )
    return columns


def _narrowed(column: Column, kind: IcebergType) -> Column:
    if isinstance(kind, StructType):
        fields = [
            _narrowed(column.getField(field.name), field.field_type).alias(field.name)
            for field in kind.fields
        ]
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(kind, ListType):
        element = kind.element_type
        return F.transform(column, lambda item: _narrowed(item, element))
    if isinstance(kind, MapType):
        value = kind.value_type
        return F.transform_values(column, lambda _, item: _narrowed(item, value))
    return column
