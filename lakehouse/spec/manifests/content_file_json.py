"""Data and delete files as JSON (REST catalog: ContentFile)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.types import DoubleType, FloatType, IcebergType

from lakehouse.errors import CorruptMetadataError, InvalidSchemaError
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
from lakehouse.spec.schema.iceberg_types import FieldTypes
from lakehouse.spec.schema.schema_json import default_from_json, default_to_json
from lakehouse.spec.types.arrow_types import partition_types
from lakehouse.spec.types.internal_values import to_internal

_CONTENTS = {
    CONTENT_DATA: "data",
    CONTENT_POSITION_DELETES: "position-deletes",
    CONTENT_EQUALITY_DELETES: "equality-deletes",
}
_CODES = {name: code for code, name in _CONTENTS.items()}
_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")
_NO_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""As strings, for which JSON has no numbers."""
PartitionTypes = Mapping[int, tuple[IcebergType | None, ...]]
"""By spec id, the type of each partition field; None where the transform is not known."""


def types_of_partitions(specs: Mapping[int, PartitionSpec], types: FieldTypes) -> PartitionTypes:
    """What values of partitions are, by `types` of all fields that the table ever had."""
    types_by_spec = {number: partition_types(spec, types) for number, spec in specs.items()}
    return {
        number: tuple(types_by_spec[number].get(field.field_id) for field in spec.fields)
        for number, spec in specs.items()
    }


def file_to_json(file: DataFile, partition_types: PartitionTypes) -> dict[str, Any]:
    """A file without its metrics."""
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


def metrics_to_json(file: DataFile) -> dict[str, Any]:
    """The metrics of a file; bounds in hexadecimal (spec: Appendix D)."""
    metrics: dict[str, Any] = {}
    for name in (*_COUNTS, *_BOUNDS):
        values = getattr(file, name)
        if values:
            listed = (
                [value.hex() for value in values.values()]
                if name in _BOUNDS
                else [*values.values()]
            )
            metrics[_key(name)] = {"keys": list(values), "values": listed}
    return metrics


def file_from_json(document: Any, where: str, kinds: PartitionTypes) -> DataFile:
    """A file, without its metrics. Raises CorruptMetadataError."""
    fields = require_object(document, where)
    content, spec_id = require_str(fields, "content", where), require_int(fields, "spec-id", where)
    if content not in _CODES or spec_id not in kinds:
        raise CorruptMetadataError(f"{where}: content {content!r} or spec {spec_id} is not known.")
    values = require_list(fields.get("partition") or [], f"{where}.partition")
    if len(values) != len(kinds[spec_id]):
        raise CorruptMetadataError(f"{where}.partition has {len(values)} values.")
    pairs = zip(kinds[spec_id], values, strict=True)
    key = optional_str(fields, "key-metadata", where)
    return DataFile(
        content=_CODES[content],
        file_path=require_str(fields, "file-path", where),
        file_format=require_str(fields, "file-format", where).lower(),
        partition=tuple(_value(kind, value, where) for kind, value in pairs),
        spec_id=spec_id,
        record_count=require_int(fields, "record-count", where),
        file_size_in_bytes=require_int(fields, "file-size-in-bytes", where),
        key_metadata=None if key is None else _bytes(key, where),
        split_offsets=_ints(fields, "split-offsets", where),
        equality_ids=_ints(fields, "equality-ids", where),
        sort_order_id=optional_int(fields, "sort-order-id", where),
        first_row_id=optional_int(fields, "first-row-id", where),
        referenced_data_file=optional_str(fields, "referenced-data-file", where),
        content_offset=optional_int(fields, "content-offset", where),
        content_size_in_bytes=optional_int(fields, "content-size-in-bytes", where),
    )


def metrics_from_json(document: Any, where: str) -> dict[str, Any]:
    """What `metrics_to_json` wrote, as fields of DataFile. Raises CorruptMetadataError."""
    fields = require_object(document, where)
    metrics: dict[str, Any] = {}
    for name in (*_COUNTS, *_BOUNDS):
        if fields.get(_key(name)) is None:
            continue
        at = f"{where}.{_key(name)}"
        listed = require_object(fields[_key(name)], at)
        ids = _ints(listed, "keys", at) or ()
        values = require_list(listed.get("values"), at)
        if len(ids) != len(values):
            raise CorruptMetadataError(f"{at}: {len(ids)} keys, {len(values)} values.")
        read = _bytes if name in _BOUNDS else as_int
        metrics[name] = {number: read(value, at) for number, value in zip(ids, values, strict=True)}
    return metrics


def _key(name: str) -> str:
    return name.replace("_", "-")


def _partition_value(kind: IcebergType | None, value: Any) -> Any:
    if value is None or kind is None:
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return next((text for text, number in _NO_NUMBERS.items() if number == value), "NaN")
    return default_to_json(kind, value)


def _value(kind: IcebergType | None, value: Any, where: str) -> Any:
    if kind is None:
        return None
    if isinstance(kind, FloatType | DoubleType) and value in _NO_NUMBERS:
        return _NO_NUMBERS[value]
    try:
        return to_internal(default_from_json(kind, value), kind)
    except InvalidSchemaError as error:
        raise CorruptMetadataError(f"{where}.partition: {error.message}") from error


def _bytes(text: Any, where: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except (TypeError, ValueError) as error:
        raise CorruptMetadataError(f"{where}: expected hexadecimal digits.") from error


def _ints(document: Any, key: str, where: str) -> tuple[int, ...] | None:
    if document.get(key) is None:
        return None
    return tuple(as_int(number, where) for number in optional_list(document, key, where))
