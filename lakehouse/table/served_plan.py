"""Scans that a catalog's server plans: our request in its JSON, its answer as a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from lakehouse.catalog.catalog_protocol import ServerPlanner
from lakehouse.errors import CorruptMetadataError, UnsupportedFeatureError
from lakehouse.expressions.bound_filter import (
    TRUE,
    And,
    Bound,
    Computed,
    Leaf,
    Op,
    Or,
    conjunction,
    leaves,
    map_leaves,
)
from lakehouse.scan.planner import ScanPlan, ScanRequest, bound_request, split_options
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.json_fields import as_int, optional_list, require_object
from lakehouse.spec.manifests.content_file_json import file_from_json, types_of_partitions
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.table_metadata import types_of
from lakehouse.spec.schema.iceberg_types import FieldTypes
from lakehouse.spec.schema.schema_json import default_to_json

_OPERATORS = {
    Op.LT: "lt",
    Op.LTE: "lt-eq",
    Op.GT: "gt",
    Op.GTE: "gt-eq",
    Op.EQ: "eq",
    Op.STARTS_WITH: "starts-with",
}
_NULLS = {Op.IS_NULL: "is-null", Op.NOT_NULL: "not-null"}
_COMPARED = (
    *(BooleanType, IntegerType, LongType, DateType, TimestampType, TimestamptzType),
    *(StringType, DecimalType),
)
"""Types that everybody orders alike; NaN, for one, others put elsewhere."""
LEAVES_MAX, VALUES_MAX = 1_000, 10_000
"""Conditions and values of a filter sent to servers; our server takes no more by default."""
_NOT_PLANNED = "_last_updated_sequence_number"


@dataclass(frozen=True)
class ServedPlan(ScanPlan):
    """A plan without the metrics of its files, which servers need not tell."""

    def locations(self) -> pa.Table:
        return pa.table(
            {
                "file_path": pa.array([file.file_path for file in self.files], pa.string()),
                "file_size_in_bytes": pa.array(
                    [file.file_size_in_bytes for file in self.files], pa.int64()
                ),
                "record_count": pa.array([file.record_count for file in self.files], pa.int64()),
            }
        )

    def aggregates(self, aggregates: Sequence[Any]) -> list[int | None]:
        """Raises LookupError: rows have to be read."""
        raise LookupError(f"{len(aggregates)} aggregates: the server tells no metrics")

    def formats(self) -> set[str]:
        return {file.file_format.lower() for file in self.files}

    def all_rows_match(self, where: Bound, types: FieldTypes) -> list[bool]:  # noqa: ARG002
        """Of no file: nothing proves it."""
        return [False] * len(self.files)


def plan_at_server(
    request: ScanRequest, planner: ServerPlanner, *, appended_after: int | None = None
) -> ScanPlan:
    """Plan a scan at the catalog's server; rows are filtered here, by the whole filter.

    Args:
        request: the scan.
        planner: asks the server.
        appended_after: only what was appended after this snapshot.

    Raises:
        InvalidExpressionError | InvalidSchemaError | NoSuchSnapshotError: see `plan_scan`.
        UnsupportedFeatureError: a selected column is none of servers' plans.
        CorruptMetadataError: the server's answer makes no sense. StorageError: there is none.
    """
    snapshot = request.snapshot
    projected, where, report = bound_request(request)
    if any(field.name == _NOT_PLANNED for field in projected.fields):
        raise UnsupportedFeatureError(f"{_NOT_PLANNED} is not in the plans of servers.")
    report.notes.append("planned by the catalog's server")
    options = split_options(request)
    if snapshot is None:
        return ServedPlan(None, projected, report, (), (), options)
    document: dict[str, Any] = {
        "case-sensitive": True,
        "use-snapshot-schema": report.schema_id != request.metadata.current_schema_id,
    }
    if appended_after is None:
        document["snapshot-id"] = snapshot.snapshot_id
    else:
        document |= {
            "start-snapshot-id": appended_after,
            "end-snapshot-id": snapshot.snapshot_id,
        }
    filter_document = filter_to_json(where)
    if filter_document is not None:
        document["filter"] = filter_document
    types = types_of(request.metadata)
    tasks: list[FileScanTask] = []
    for page in planner.plan(document):
        tasks += tasks_from_json(page, request.metadata.specs(), types, where)
    files = tuple(task.data_file for task in tasks)
    report.data_files.total, report.data_files.planned = None, len(files)
    report.data_files.bytes_planned = sum(file.file_size_in_bytes for file in files)
    report.data_files.rows_planned = sum(file.record_count for file in files)
    deletes = {(d.file_path, d.content_offset): d for task in tasks for d in task.deletes}
    report.delete_files.planned = len(deletes)
    return ServedPlan(snapshot.snapshot_id, projected, report, files, tuple(tasks), options)


def filter_to_json(where: Bound) -> Any:
    """The filter as servers read it, or one that keeps more; None: one that keeps everything.

    What servers understand otherwise than we do is left out (REST catalog: Expression); so is
    what exceeds `LEAVES_MAX` and `VALUES_MAX`: their range stands for many values.
    """
    lists = [leaf for leaf in leaves(where) if leaf.op is Op.IN]
    if sum(len(leaf.value) for leaf in lists) > VALUES_MAX:
        most = VALUES_MAX // len(lists)
        where = map_leaves(where, lambda leaf: _range(leaf) if _is_longer(leaf, most) else leaf)
    return _to_json(_fitting(where))


def _is_longer(leaf: Leaf, most: int) -> bool:
    return leaf.op is Op.IN and len(leaf.value) > most and isinstance(leaf.type, _COMPARED)


def _range(leaf: Leaf) -> Bound:
    ends = leaf.asking(Op.GTE, min(leaf.value)), leaf.asking(Op.LTE, max(leaf.value))
    return conjunction(ends)


def _fitting(where: Bound) -> Bound:
    """The filter with as many of its conjuncts as servers read, the smallest first."""
    left, kept = LEAVES_MAX, []
    conjuncts = where.parts if isinstance(where, And) else (where,)
    sizes = [sum(1 for _ in leaves(conjunct)) for conjunct in conjuncts]
    for size, conjunct in sorted(zip(sizes, conjuncts, strict=True), key=itemgetter(0)):
        left -= size
        if left >= 0:
            kept.append(conjunct)
    return conjunction(kept)


def _to_json(where: Bound) -> Any:
    if isinstance(where, And):
        parts = [part for part in map(_to_json, where.parts) if part is not None]
        return _joined("and", parts) if parts else None
    if isinstance(where, Or):
        every = [_to_json(part) for part in where.parts]
        return None if None in every else _joined("or", every)
    if isinstance(where, Computed):
        return _to_json(where.implied)
    if isinstance(where, Leaf):
        return _leaf(where)
    return None if where == TRUE else {"type": "false"}


def _joined(kind: str, parts: Sequence[Any]) -> Any:
    """As flat as it can be: servers read so many levels and no more."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    left, right = _joined(kind, parts[:middle]), _joined(kind, parts[middle:])
    return {"type": kind, "left": left, "right": right}


def _leaf(leaf: Leaf) -> Any:
    if any("." in part for part in leaf.path):
        return None
    term = ".".join(leaf.path)
    if leaf.op in _NULLS:
        return {"type": _NULLS[leaf.op], "term": term}
    if not isinstance(leaf.type, _COMPARED):
        return None
    if leaf.op is Op.IN:
        return {
            "type": "in",
            "term": term,
            "values": [default_to_json(leaf.type, value) for value in leaf.value],
        }
    if leaf.op not in _OPERATORS:
        return None
    value = default_to_json(leaf.type, leaf.value)
    return {"type": _OPERATORS[leaf.op], "term": term, "value": value}


def tasks_from_json(
    document: Any, specs: Mapping[int, PartitionSpec], types: FieldTypes, residual: Bound
) -> list[FileScanTask]:
    """The tasks of one answer, whose deletes are named by their place in it.

    Args:
        document: the answer.
        specs: of the table.
        types: of all fields that the table ever had.
        residual: what rows are filtered by.

    Raises CorruptMetadataError.
    """
    kinds = types_of_partitions(specs, types)
    listed = optional_list(document, "delete-files", "tasks")
    deletes = [file_from_json(file, f"delete-files[{n}]", kinds) for n, file in enumerate(listed)]
    vectors = {
        delete.referenced_data_file: delete for delete in deletes if delete.is_deletion_vector
    }
    tasks = []
    for position, item in enumerate(optional_list(document, "file-scan-tasks", "tasks")):
        where = f"file-scan-tasks[{position}]"
        task = require_object(item, where)
        named = [
            as_int(index, where) for index in optional_list(task, "delete-file-references", where)
        ]
        if any(not 0 <= index < len(deletes) for index in named):
            raise CorruptMetadataError(f"{where} names a delete file that is not there.")
        file = file_from_json(task.get("data-file"), f"{where}.data-file", kinds)
        tasks.append(
            FileScanTask(
                data_file=file,
                deletes=tuple(_meant(deletes[index], file, vectors, where) for index in named),
                residual=residual,
                length=file.file_size_in_bytes,
            )
        )
    return tasks


def _meant(
    delete: DataFile, file: DataFile, vectors: Mapping[str | None, DataFile], where: str
) -> DataFile:
    """A delete file of a task.

    Servers that know vectors by their Puffin file alone name another one of the same (Iceberg's
    Java up to 1.11, apache/iceberg 17497). A vector says itself whose it is.
    """
    if not delete.is_deletion_vector or delete.referenced_data_file == file.file_path:
        return delete
    if file.file_path not in vectors:
        raise CorruptMetadataError(
            f"{where}: the deletion vector of {delete.referenced_data_file} is given for "
            f"{file.file_path}."
        )
    return vectors[file.file_path]
