"""A plan's files as the JVM reads them (`FilePlan.java`)."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import Transform
from pyiceberg.types import IcebergType

from lakehouse.errors import UnsupportedFeatureError
from lakehouse.scan.planner import ScanPlan
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spark.spark_types import NANOSECONDS, nanosecond_text
from lakehouse.spec.manifests.data_file import CONTENT_EQUALITY_DELETES, DataFile
from lakehouse.spec.metadata.table_metadata import TableMetadata, types_of
from lakehouse.spec.metadata.unified_partition import UnifiedPartition
from lakehouse.spec.schema.iceberg_types import LAST_UPDATED, ROW_ID, FieldTypes
from lakehouse.spec.table_properties import NAME_MAPPING, TableProperties

_WRITTEN_BY_ICEBERG = r"\d{5}-[^/]*\.parquet$"
_WITH_DETAILS = frozenset({"_spec_id", "_partition", ROW_ID, LAST_UPDATED})


def file_answer(plan: ScanPlan, columns: Collection[str], metadata: TableMetadata) -> str:
    """A JSON object, NUL, then location, size and details of each file, each with a NUL behind it.

    Args:
        plan: the plan.
        columns: names that are read; some metadata columns need details of each file.
        metadata: of the table.
    """
    wanted = bool(_WITH_DETAILS.intersection(columns))
    if not wanted and not plan.report.delete_files.planned:
        files = plan.locations()
        return _text(files, None, {"for_workers": may_lack_ids(files.column(0), metadata)})
    tasks = list(plan.tasks)
    specs, types = metadata.specs(), types_of(metadata)
    names = {id_: name for id_, (name, _) in UnifiedPartition.of(metadata).fields.items()}
    details = [_details(task, specs, names, types, wanted=wanted) for task in tasks]
    deletes = [delete for task in tasks for delete in task.deletes]
    files = sized([task.data_file for task in tasks])
    facts = {
        "deletes": bool(deletes),
        "delete_files": any(
            delete.content != CONTENT_EQUALITY_DELETES and not delete.is_deletion_vector
            for delete in deletes
        ),
        "for_workers": any(delete.content == CONTENT_EQUALITY_DELETES for delete in deletes)
        or may_lack_ids(files.column(0), metadata),
    }
    return _text(files, details, facts)


def may_lack_ids(locations: pa.ChunkedArray, metadata: TableMetadata) -> bool:
    """Whether some file may be without field ids, which Spark's Parquet reader cannot read.

    Such files are taken in as other writers made them; the table's name mapping resolves their
    columns. Those of Iceberg's writers, this one among them, have ids, and names that say so.
    """
    if NAME_MAPPING not in metadata.properties:
        return False
    folder = TableProperties(metadata.properties).data_location(metadata.location)
    own = f"^{re.escape(folder.rstrip('/'))}/(.*/)?{_WRITTEN_BY_ICEBERG}"
    return not pc.all(pc.match_substring_regex(locations, own)).as_py()


def _text(files: pa.Table, details: Sequence[str] | None, facts: Mapping[str, bool]) -> str:
    """Implements `file_answer`; `files` has file_path, file_size_in_bytes, record_count."""
    head: dict[str, Any] = {"deletes": False, "delete_files": False, "for_workers": False}
    head |= {"rows": 0, "prefix": "", **facts}
    if not files.num_rows:
        return json.dumps(head) + "\0"
    paths = files.column(0).combine_chunks()
    ends = pc.min_max(paths)
    prefix = os.path.commonprefix([ends["min"].as_py(), ends["max"].as_py()])
    head |= {"rows": pc.sum(files.column(2)).as_py(), "prefix": prefix}
    suffixes = pc.utf8_slice_codeunits(paths, len(prefix))
    sizes = files.column(1).combine_chunks().cast(pa.string())
    beside = pa.scalar("") if details is None else pa.array(details, pa.string())
    lines = pc.binary_join_element_wise(suffixes, sizes, beside, "\0")
    return json.dumps(head) + "\0" + "\0".join(lines.to_pylist()) + "\0"


def parquet_only(name: str, plan: ScanPlan) -> None:
    """Raise UnsupportedFeatureError for planned files other than Parquet.

    Spark would take one for a damaged file.
    """
    others = plan.formats() - {"parquet"}
    if others:
        raise UnsupportedFeatureError(
            f"{name} holds {', '.join(sorted(others))} files, which Spark's Parquet reader cannot "
            f"read. Compact it first: `lakehouse compact {name}` turns them into Parquet",
            table=name,
        )


def sized(files: Iterable[DataFile]) -> pa.Table:
    """Location, size and rows of files, as `ScanPlan.locations` has them."""
    files = list(files)
    return pa.table(
        {
            "file_path": pa.array([file.file_path for file in files], pa.string()),
            "file_size_in_bytes": pa.array([file.file_size_in_bytes for file in files], pa.int64()),
            "record_count": pa.array([file.record_count for file in files], pa.int64()),
        }
    )


def _details(
    task: FileScanTask,
    specs: Mapping[int, PartitionSpec],
    names: Mapping[int, str],
    types: FieldTypes,
    *,
    wanted: bool,
) -> str:
    details: dict[str, Any] = {}
    if task.deletes:
        details["deletes"] = [_delete(delete) for delete in task.deletes]
    if wanted:
        file = task.data_file
        values = zip(specs[file.spec_id].fields, file.partition, strict=True)
        details |= {
            "spec": file.spec_id,
            "partition": {
                names[field.field_id]: plain_value(
                    value, types.get(field.source_id), field.transform
                )
                for field, value in values
            },
            "first_row": file.first_row_id,
            "sequence": None if file.first_row_id is None else task.sequence_number,
        }
    return json.dumps(details) if details else ""


def _delete(file: DataFile) -> dict[str, Any]:
    if not file.is_deletion_vector:
        return {"path": file.file_path, "bytes": file.file_size_in_bytes}
    return {
        "path": file.file_path,
        "offset": file.content_offset,
        "length": file.content_size_in_bytes,
        "target": file.referenced_data_file,
        "cardinality": file.record_count,
    }


def plain_value(value: Any, kind: IcebergType | None, transform: Transform[Any, Any]) -> Any:
    """A partition value for `PartitionValues.java`: Iceberg's numbers, bytes as base64."""
    if value is not None and kind is not None:
        kind = transform.result_type(kind)
        if isinstance(kind, NANOSECONDS):
            return nanosecond_text(kind, value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, float):
        return repr(value) if value != value or value in (float("inf"), float("-inf")) else value
    return value
