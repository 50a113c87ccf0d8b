"""Partition specs and sort orders as JSON (spec: Appendix C)."""

from __future__ import annotations

import re
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.table.sorting import (
    UNSORTED_SORT_ORDER_ID,
    NullOrder,
    SortDirection,
    SortField,
    SortOrder,
)
from pyiceberg.transforms import (
    BucketTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    parse_transform,
)

from lakehouse.errors import CorruptMetadataError
from lakehouse.spec.json_fields import (
    as_int,
    optional_int,
    require_int,
    require_list,
    require_object,
    require_str,
)

_PARAMETRIC = re.compile(r"(bucket|truncate)\s*\[\s*(\d{1,10})\s*\]")
_PLAIN = frozenset({"identity", "void", "year", "month", "day", "hour"})
_MAX_INT = 2**31 - 1


def spec_to_json(spec: PartitionSpec) -> dict[str, Any]:
    """The JSON object of the spec."""
    return {
        "spec-id": spec.spec_id,
        "fields": [partition_field_to_json(field) for field in spec.fields],
    }


def partition_field_to_json(field: PartitionField) -> dict[str, Any]:
    """The JSON object of one partition field."""
    return {
        "source-id": field.source_id,
        "field-id": field.field_id,
        "name": field.name,
        "transform": transform_name(field.transform),
    }


def spec_from_json(document: Any, where: str = "partition-spec") -> PartitionSpec:
    """Read the spec's JSON object; raises CorruptMetadataError.

    Field ids that v1 left out count from 1000.
    """
    fields = _fields(document, where)
    return partition_fields_from_json(fields, optional_int(document, "spec-id", where) or 0, where)


def partition_fields_from_json(fields: list[Any], spec_id: int, where: str) -> PartitionSpec:
    """Read a list of partition fields, the form of v1's `partition-spec`."""
    parsed: list[PartitionField] = []
    for position, document in enumerate(fields):
        here = f"{where}.fields[{position}]"
        field_id = optional_int(document, "field-id", here)
        transform, source_id = _transform_and_source(document, here)
        parsed.append(
            PartitionField(
                source_id=source_id,
                field_id=PARTITION_FIELD_ID_START + position if field_id is None else field_id,
                transform=transform,
                name=require_str(document, "name", here),
            )
        )
    if len({field.field_id for field in parsed}) != len(parsed):
        raise CorruptMetadataError(f"{where}: two fields have the same field-id.")
    return PartitionSpec(*parsed, spec_id=spec_id)


def sort_order_to_json(order: SortOrder) -> dict[str, Any]:
    """The JSON object of the spec."""
    fields = [
        {
            "transform": transform_name(field.transform),
            "source-id": field.source_id,
            "direction": field.direction.value,
            "null-order": field.null_order.value,
        }
        for field in order.fields
    ]
    return {"order-id": order.order_id, "fields": fields}


def sort_order_from_json(document: Any, where: str = "sort-order") -> SortOrder:
    """Read the JSON object of the spec; raises CorruptMetadataError naming `where`."""
    parsed: list[SortField] = []
    for position, item in enumerate(_fields(document, where)):
        here = f"{where}.fields[{position}]"
        transform, source_id = _transform_and_source(item, here)
        direction = require_str(item, "direction", here).lower()
        null_order = require_str(item, "null-order", here).lower()
        if direction not in ("asc", "desc") or null_order not in ("nulls-first", "nulls-last"):
            raise CorruptMetadataError(
                f"{here}: unknown direction {direction!r} or null-order {null_order!r}."
            )
        parsed.append(
            SortField(source_id, transform, SortDirection(direction), NullOrder(null_order))
        )
    return SortOrder(*parsed, order_id=require_int(document, "order-id", where))


def new_sort_order_from_json(document: Any, where: str = "sort-order") -> SortOrder:
    """The same of one that is to be added, whose id may be left out: whoever adds it gives one.

    >>> new_sort_order_from_json({"fields": []}).order_id
    0
    """
    order_id = 1 if _fields(document, where) else UNSORTED_SORT_ORDER_ID
    return sort_order_from_json({"order-id": order_id, **document}, where)


def transform_name(transform: Transform[Any, Any]) -> str:
    """The transform's string in the spec, also of one we do not know."""
    # No other access.
    return (
        transform._transform  # noqa: SLF001
        if isinstance(transform, UnknownTransform)
        else str(transform)
    )


def transform_from_string(text: str) -> Transform[Any, Any]:
    """The transform that a string of the spec names; UnknownTransform for one we do not know.

    Raises ValueError for a parameter that is out of range.
    """
    if text in _PLAIN:
        return parse_transform(text)
    match = _PARAMETRIC.fullmatch(text)
    if match is None:
        return UnknownTransform(text)
    parameter = int(match[2])
    if not 0 < parameter <= _MAX_INT:
        raise ValueError(f"{text!r}: the parameter must be between 1 and {_MAX_INT}.")
    return BucketTransform(parameter) if match[1] == "bucket" else TruncateTransform(parameter)


def _fields(document: Any, where: str) -> list[Any]:
    return require_list(require_object(document, where).get("fields"), f"{where}.fields")


def _transform_and_source(document: Any, where: str) -> tuple[Transform[Any, Any], int]:
    """The transform and its source column.

    A transform of several columns counts as unknown, with the first of them.
    """
    text = require_str(document, "transform", where)
    sources = require_object(document, where).get("source-ids")
    source = document.get("source-id")
    if source is not None:
        ids = [as_int(source, f"{where}.source-id")]
    else:
        ids = [
            as_int(item, f"{where}.source-ids")
            for item in require_list(sources, f"{where}.source-id")
        ]
    if not ids:
        raise CorruptMetadataError(f"{where}: a field needs a source column.")
    if len(ids) > 1:
        return UnknownTransform(text), ids[0]
    try:
        return transform_from_string(text), ids[0]
    except ValueError as error:
        raise CorruptMetadataError(f"{where}: {error}") from error
