"""Tasks of a scan as a server tells them (REST catalog: ScanTasks, ContentFile)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.types import IcebergType

from lakehouse.errors import CorruptMetadataError, InvalidSchemaError
from lakehouse.expressions.bound_filter import Bound
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.json_fields import (
    as_int,
    optional_int,
    optional_list,
    optional_str,
    require_int,
    require_list,
    require_object,
    require_str,
)
from lakehouse.spec.manifests.data_file import (
    CONTENT_DATA,
    CONTENT_EQUALITY_DELETES,
    CONTENT_POSITION_DELETES,
    DataFile,
)
from lakehouse.spec.schema.field_types import FieldTypes
from lakehouse.spec.schema.schema_json import default_from_json
from lakehouse.spec.types.physical_types import partition_types

_CONTENTS = {
    "data": CONTENT_DATA,
    "position-deletes": CONTENT_POSITION_DELETES,
    "equality-deletes": CONTENT_EQUALITY_DELETES,
}


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
    kinds = {number: _types_of(spec, types) for number, spec in specs.items()}
    listed = optional_list(document, "delete-files", "tasks")
    deletes = [_file(one, f"delete-files[{n}]", kinds) for n, one in enumerate(listed)]
    vectors = {one.referenced_data_file: one for one in deletes if one.is_deletion_vector}
    found = []
    for position, item in enumerate(optional_list(document, "file-scan-tasks", "tasks")):
        where = f"file-scan-tasks[{position}]"
        task = require_object(item, where)
        named = [as_int(one, where) for one in optional_list(task, "delete-file-references", where)]
        if any(not 0 <= one < len(deletes) for one in named):
            raise CorruptMetadataError(f"{where} names a delete file that is not there.")
        file = _file(task.get("data-file"), f"{where}.data-file", kinds)
        found.append(
            FileScanTask(
                data_file=file,
                deletes=tuple(_meant(deletes[one], file, vectors, where) for one in named),
                residual=residual,
                length=file.file_size_in_bytes,
            )
        )
    return found


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


def _file(
    document: Any, where: str, kinds: Mapping[int, tuple[IcebergType | None, ...]]
) -> DataFile:
    found = require_object(document, where)
    content, spec_id = require_str(found, "content", where), require_int(found, "spec-id", where)
    if content not in _CONTENTS or spec_id not in kinds:
        raise CorruptMetadataError(f"{where}: content {content!r} or spec {spec_id} is not known.")
    values = require_list(found.get("partition") or [], f"{where}.partition")
    if len(values) != len(kinds[spec_id]):
        raise CorruptMetadataError(f"{where}.partition has {len(values)} values.")
    pairs = zip(kinds[spec_id], values, strict=True)
    key = optional_str(found, "key-metadata", where)
    return DataFile(
        content=_CONTENTS[content],
        file_path=require_str(found, "file-path", where),
        file_format=require_str(found, "file-format", where).lower(),
        partition=tuple(_value(kind, one, where) for kind, one in pairs),
        spec_id=spec_id,
        record_count=require_int(found, "record-count", where),
        file_size_in_bytes=require_int(found, "file-size-in-bytes", where),
        key_metadata=None if key is None else bytes.fromhex(key),
        split_offsets=_ints(found, "split-offsets", where),
        equality_ids=_ints(found, "equality-ids", where),
        sort_order_id=optional_int(found, "sort-order-id", where),
        first_row_id=optional_int(found, "first-row-id", where),
        referenced_data_file=optional_str(found, "referenced-data-file", where),
        content_offset=optional_int(found, "content-offset", where),
        content_size_in_bytes=optional_int(found, "content-size-in-bytes", where),
    )


def _value(kind: IcebergType | None, value: Any, where: str) -> Any:
    if kind is None:
        return None
    try:
        return default_from_json(kind, value)
    except InvalidSchemaError as error:
        raise CorruptMetadataError(f"{where}.partition: {error.message}") from error


def _ints(document: Any, key: str, where: str) -> tuple[int, ...] | None:
    if document.get(key) is None:
        return None
    return tuple(as_int(one, where) for one in optional_list(document, key, where))


def _types_of(spec: PartitionSpec, types: FieldTypes) -> tuple[IcebergType | None, ...]:
    found = partition_types(spec, types)
    return tuple(found.get(one.field_id) for one in spec.fields)
