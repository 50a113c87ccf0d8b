"""Tasks of a scan as a server tells them (REST catalog: ScanTasks, ContentFile)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.partitioning import PartitionSpec

from lakehouse.errors import CorruptMetadataError
from lakehouse.expressions.bound_filter import Bound
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.json_fields import as_int, optional_list, require_object
from lakehouse.spec.manifests.content_file_json import file_from_json, types_of_partitions
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.schema.iceberg_types import FieldTypes


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
    deletes = [file_from_json(one, f"delete-files[{n}]", kinds) for n, one in enumerate(listed)]
    vectors = {one.referenced_data_file: one for one in deletes if one.is_deletion_vector}
    found = []
    for position, item in enumerate(optional_list(document, "file-scan-tasks", "tasks")):
        where = f"file-scan-tasks[{position}]"
        task = require_object(item, where)
        named = [as_int(one, where) for one in optional_list(task, "delete-file-references", where)]
        if any(not 0 <= one < len(deletes) for one in named):
            raise CorruptMetadataError(f"{where} names a delete file that is not there.")
        file = file_from_json(task.get("data-file"), f"{where}.data-file", kinds)
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
