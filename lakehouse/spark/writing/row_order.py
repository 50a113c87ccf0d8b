"""How rows reach the writing tasks, by `write.distribution-mode` and the sort order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.types import TimeType, UUIDType

from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.spark.reading.table_facts import partition_term
from lakehouse.spark.spark_types import NANOSECONDS
from lakehouse.spec.partitioning.sort_order import NullOrder, SortDirection, SortField
from lakehouse.spec.table_properties import TableProperties

_MOST_ADVISED = 256 << 20
AS_THEY_COME: Mapping[str, Any] = {
    "clustering": [],
    "ordered_distribution": [],
    "ordering": [],
    "advisory_bytes": 0,
}
"""For positions alone, which have no column to go by."""


def row_order(request: WriteRequest, mode: str | None = None) -> dict[str, Any]:
    """Distribution and ordering for `LakehouseWrite.java`.

    `hash` brings the rows of a partition together, `range` orders them by partition and sort order
    over the whole table, `none` leaves them where they are. In each task rows are sorted by
    partition and sort order, where the table has one.

    Args:
        request: the table.
        mode: instead of the table's `write.distribution-mode`.

    Raises:
        InvalidPropertyError: an unknown mode.
    """
    properties = TableProperties(request.properties)
    chosen = mode or properties.distribution_mode
    partition = [
        term
        for term in (_shuffled(field, request.schema) for field in request.spec.fields)
        if term is not None
    ]
    sort = [
        term
        for term in (_sort_term(field, request.schema) for field in request.sort_order.fields)
        if term is not None
    ]
    by_partition = [_ordered(field) for field in partition]
    return {
        "clustering": partition if chosen == "hash" else [],
        "ordered_distribution": [*by_partition, *sort] if chosen == "range" else [],
        "ordering": [*by_partition, *sort] if sort else [],
        "advisory_bytes": (
            properties.advisory_partition_size_bytes
            or min(properties.target_file_size_bytes, _MOST_ADVISED)
        ),
    }


def _shuffled(field: PartitionField, schema: Schema) -> dict[str, Any] | None:
    """A partition field's term, or any that brings rows of one partition together."""
    term = partition_term(field, schema)
    if term is None or term["transform"] == "identity":
        return term
    kind = schema.find_type(field.source_id)
    # Spark's functions take no times, and uuids and nanoseconds as the text that they are to Spark:
    # the values themselves separate as well
    as_they_are = isinstance(kind, (UUIDType, TimeType, *NANOSECONDS))
    return {**term, "transform": "identity"} if as_they_are else term


def _sort_term(field: SortField, schema: Schema) -> dict[str, Any] | None:
    as_partition = PartitionField(field.source_id, 1000, field.transform, "sorted")
    term = partition_term(as_partition, schema)
    return (
        None
        if term is None
        else _ordered(
            term,
            ascending=field.direction == SortDirection.ASC,
            nulls_first=field.null_order == NullOrder.NULLS_FIRST,
        )
    )


def _ordered(
    term: Mapping[str, Any], *, ascending: bool = True, nulls_first: bool = True
) -> dict[str, Any]:
    return {"term": term, "ascending": ascending, "nulls_first": nulls_first}


def is_sorted(order: Mapping[str, Sequence[Any]]) -> bool:
    """Whether rows come partition by partition."""
    return bool(order["ordering"])
