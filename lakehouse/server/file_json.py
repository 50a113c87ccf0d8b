"""Data and delete files as REST clients read them (REST catalog: ContentFile)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pyiceberg.types import IcebergType

from lakehouse.spec.manifests.data_file import (
    CONTENT_DATA,
    CONTENT_EQUALITY_DELETES,
    CONTENT_POSITION_DELETES,
    DataFile,
)
from lakehouse.spec.schema.schema_json import default_to_json

_CONTENTS = {
    CONTENT_DATA: "data",
    CONTENT_POSITION_DELETES: "position-deletes",
    CONTENT_EQUALITY_DELETES: "equality-deletes",
}
PartitionTypes = Mapping[int, tuple[IcebergType | None, ...]]


def file_to_json(file: DataFile, partition_types: PartitionTypes) -> dict[str, Any]:
    """A file without its metrics.

    Args:
        file: the file.
        partition_types: by spec id, the type of each partition field; None where the transform is
            not known.
    """
    types = partition_types[file.spec_id]
    document: dict[str, Any] = {
        "content": _CONTENTS[file.content],
        "file-path": file.file_path,
        "file-format": file.file_format,
        "spec-id": file.spec_id,
        "partition": [
            _partition_value(kind, value) for kind, value in zip(types, file.partition, strict=True)
        ],
        "file-size-in-bytes": file.file_size_in_bytes,
        "record-count": file.record_count,
    }
    optional = {
        "key-metadata": None if file.key_metadata is None else file.key_metadata.hex(),
        "split-offsets": None if file.split_offsets is None else list(file.split_offsets),
        "sort-order-id": file.sort_order_id,
        "first-row-id": file.first_row_id,
        "equality-ids": None if file.equality_ids is None else list(file.equality_ids),
        "referenced-data-file": file.referenced_data_file,
        "content-offset": file.content_offset,
        "content-size-in-bytes": file.content_size_in_bytes,
    }
    return document | {key: value for key, value in optional.items() if value is not None}


def _partition_value(kind: IcebergType | None, value: Any) -> Any:
    if value is None or kind is None:
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    return default_to_json(kind, value)
