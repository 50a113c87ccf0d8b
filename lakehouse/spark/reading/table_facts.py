"""What Spark gets of a version of a table when it loads it (`LakehouseTable.java`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import types as sp

from lakehouse.expressions.filter_binding import field_path
from lakehouse.maintenance.column_sketches import distinct_counts
from lakehouse.scan.planner import ScanRequest
from lakehouse.spark.spark_types import for_workers, quoted, shown_schema, shown_type
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.unified_partition import UnifiedPartition
from lakehouse.spec.schema.iceberg_types import LAST_UPDATED, METADATA_COLUMNS, PARTITION, ROW_ID
from lakehouse.spec.table_properties import NAME_MAPPING, TableProperties

UNKNOWN_SIZE = 1 << 40
FILE_METADATA = "_metadata"
FILE_HASH = "_lakehouse_file"
_FILE_FIELDS = sp.StructType(
    [
        sp.StructField("file_path", sp.StringType(), nullable=False),
        sp.StructField("file_name", sp.StringType(), nullable=False),
        sp.StructField("file_size", sp.LongType(), nullable=False),
        sp.StructField("file_block_start", sp.LongType(), nullable=False),
        sp.StructField("file_block_length", sp.LongType(), nullable=False),
        sp.StructField("file_modification_time", sp.TimestampType(), nullable=False),
        sp.StructField("row_index", sp.LongType(), nullable=False),
    ]
)
_COMPARED = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
"""Types whose values are in one partition exactly when Spark finds them equal."""
_PLURAL: Mapping[type[Transform[Any, Any]], str] = {
    YearTransform: "years",
    MonthTransform: "months",
    DayTransform: "days",
    HourTransform: "hours",
}


def table_facts(
    name: str, request: ScanRequest, schema: Schema, *, by_workers: bool
) -> dict[str, Any]:
    """Facts of the version, snapshot and schema of a request, for `LakehouseTable.java`.

    Args:
        name: dotted name.
        request: version and snapshot; its filter and projection do not matter.
        schema: the columns to show.
        by_workers: whether Python workers read the files, because Spark cannot.
    """
    metadata = request.metadata
    snapshot = request.snapshot
    return {
        "name": name,
        "id": metadata.table_uuid,
        "version": _version(metadata, snapshot, schema),
        "schema": shown_schema(schema).json(),
        "properties": dict(metadata.properties),
        "partitioning": partition_terms(metadata.spec(), schema),
        "grouping": _grouping(metadata, schema),
        "metadata_columns": _metadata_columns(metadata, by_workers=by_workers),
        "bytes": total_bytes(snapshot),
        "rows": -1 if _may_have_deletes(snapshot) else total_rows(snapshot),
        "records": total_rows(snapshot),
        "distinct": _distinct(metadata, snapshot, schema),
        "misleading": sorted(misleading_columns(schema, metadata)),
        "by_workers": by_workers,
        "for_workers": for_workers(schema),
        "splits": _splits(metadata),
        "knows_aggregates": True,
        "may_be_for_workers": _may_have_equality_deletes(snapshot)
        or NAME_MAPPING in metadata.properties,
    }


def total_bytes(snapshot: Snapshot | None) -> int:
    """Bytes of an unfiltered snapshot, from its summary; an overestimate if not recorded."""
    if snapshot is None:
        return 0
    total = snapshot.summary.get("total-files-size", "")
    return int(total) if total.isdigit() else UNKNOWN_SIZE


def total_rows(snapshot: Snapshot | None) -> int:
    """Rows of its data files, deleted ones too; -1 where the summary is silent."""
    if snapshot is None:
        return 0
    total = snapshot.summary.get("total-records", "")
    return int(total) if total.isdigit() else -1


def partition_terms(spec: PartitionSpec, schema: Schema) -> list[dict[str, Any]]:
    """Partition fields as Spark's transforms; fields without a column here are left out."""
    terms = [partition_term(field, schema) for field in spec.fields]
    return [term for term in terms if term is not None]


def _grouping(metadata: TableMetadata, schema: Schema) -> dict[str, Any] | None:
    """The partitioning by which Spark may join without a shuffle; None where it may not.

    Spark takes two partitionings for one when names and argument types of their functions are the
    same. That of a text and that of a uuid, which it sees as text, are not; nor are truncations of
    two widths.
    """
    spec = metadata.spec()
    fields = [field for field in spec.fields if not isinstance(field.transform, VoidTransform)]
    for field in fields:
        path = field_path(schema, field.source_id)
        if path is None or len(path) > 1 or isinstance(field.transform, TruncateTransform):
            return None
        if not isinstance(schema.find_field(field.source_id).field_type, _COMPARED):
            return None
    if not fields:
        return None
    known = _partition_fields(metadata)
    row = sp.StructType([known[field.field_id] for field in fields])
    return {"spec": spec.spec_id, "type": row.json()}


def _partition_fields(metadata: TableMetadata) -> Mapping[int, sp.StructField]:
    """The fields of `_partition` by id: those of all specs, each under its newest name."""
    return {
        field_id: sp.StructField(name, shown_type(kind, name))
        for field_id, (name, kind) in UnifiedPartition.of(metadata).fields.items()
        if kind is not None
    }


def partition_term(field: PartitionField, schema: Schema) -> dict[str, Any] | None:
    """A partition field as `PartitionTerms.java` reads it; None without a column of this schema."""
    path = field_path(schema, field.source_id)
    if path is None or isinstance(field.transform, VoidTransform):
        return None
    column = quoted(*path)
    if isinstance(field.transform, IdentityTransform):
        return {"transform": "identity", "column": column}
    if isinstance(field.transform, BucketTransform):
        return {"transform": "bucket", "column": column, "width": field.transform.num_buckets}
    if isinstance(field.transform, TruncateTransform):
        return {"transform": "truncate", "column": column, "width": field.transform.width}
    return {"transform": _PLURAL[type(field.transform)], "column": column}


def _version(metadata: TableMetadata, snapshot: Snapshot | None, schema: Schema) -> str:
    shown = 0 if snapshot is None else snapshot.snapshot_id
    return f"{shown}.{schema.schema_id}.{metadata.last_updated_ms}"


def _splits(metadata: TableMetadata) -> dict[str, int]:
    """What properties of the table say of splits (`SplitOptions`); empty: Spark's settings hold."""
    given = TableProperties(metadata.properties).usable().raw
    known = {
        "target_size_bytes": TableProperties.split_target_size,
        "lookback": TableProperties.split_lookback,
        "open_file_cost_bytes": TableProperties.split_open_file_cost,
    }
    return {name: field.read(given) for name, field in known.items() if field.name in given}


def _may_have_deletes(snapshot: Snapshot | None) -> bool:
    return snapshot is not None and snapshot.summary.get("total-delete-files") != "0"


def _may_have_equality_deletes(snapshot: Snapshot | None) -> bool:
    return _may_have_deletes(snapshot) and (
        snapshot is not None and snapshot.summary.get("total-equality-deletes") != "0"
    )


def _distinct(metadata: TableMetadata, snapshot: Snapshot | None, schema: Schema) -> dict[str, int]:
    if snapshot is None:
        return {}
    counts = distinct_counts(metadata, snapshot.snapshot_id)
    ids = {metadata.schema().find_field(name).field_id: count for name, count in counts.items()}
    return {field.name: ids[field.field_id] for field in schema.fields if field.field_id in ids}


def _metadata_columns(metadata: TableMetadata, *, by_workers: bool) -> list[dict[str, Any]]:
    columns = [
        _metadata_column(
            column.name, shown_type(column.field_type, column.name), required=column.required
        )
        for column in METADATA_COLUMNS.values()
        if metadata.format_version >= 3 or column.name not in (ROW_ID, LAST_UPDATED)
    ]
    columns.append(_metadata_column(FILE_HASH, sp.LongType(), required=True))
    partition = sp.StructType(list(_partition_fields(metadata).values()))
    columns.append(_metadata_column(PARTITION.name, partition, required=False))
    if not by_workers:
        columns.append(_metadata_column(FILE_METADATA, _FILE_FIELDS, required=True))
    return columns


def _metadata_column(name: str, kind: sp.DataType, *, required: bool) -> dict[str, Any]:
    # a row that moves into another file keeps its id; a row that changes is updated now
    keeps = {
        "__preserve_on_update": name == ROW_ID,
        "__preserve_on_reinsert": name == ROW_ID,
    }
    return {
        "name": name,
        "type": kind.json(),
        "nullable": not required,
        "comment": None,
        "metadata": json.dumps(keeps) if name in (ROW_ID, LAST_UPDATED) else None,
    }


def misleading_columns(schema: Schema, metadata: TableMetadata) -> set[str]:
    """Top-level columns that need another name in the reader, and take no pushed filters.

    The reader finds columns by id, but it checks their types and skips row groups by name, and by
    the file's own statistics and dictionaries. It would fail or lose rows

    - in a file where the name belongs to another column. A name is safe when no other schema of the
      table gives it, or one below it, to another id; when schemas were removed from the metadata
      nobody can know, and no name is;
    - of floating point columns: to Spark NaN is above every number and -0.0 equals 0.0, to the
      file's statistics and dictionaries they are not.

    Planning has skipped whole files already.
    """
    known = {schema.schema_id for schema in metadata.schemas}
    if known != set(range(max(known) + 1)):
        return {field.name for field in schema.fields}
    owners: dict[str, set[int]] = {}
    for known_schema in metadata.schemas:
        for path, nested in _paths(known_schema.fields, ""):
            owners.setdefault(path, set()).add(nested.field_id)
    return {
        field.name
        for field in schema.fields
        if any(
            owners.get(path, {nested.field_id}) != {nested.field_id}
            or isinstance(nested.field_type, FloatType | DoubleType)
            for path, nested in _paths([field], "")
        )
    }


def _paths(fields: Iterable[NestedField], prefix: str) -> Iterator[tuple[str, NestedField]]:
    for field in fields:
        # Spark compares names without regard to case
        path = f"{prefix}{field.name.lower()}"
        yield path, field
        if isinstance(field.field_type, StructType):
            yield from _paths(field.field_type.fields, f"{path}\0")
