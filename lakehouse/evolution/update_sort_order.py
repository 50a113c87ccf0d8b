"""Changing how rows of future files are sorted."""

from __future__ import annotations

from typing import Literal

from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import (
    AddSortOrder,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertTableUUID,
    Changes,
    Requirement,
    SetDefaultSortOrder,
)
from lakehouse.spec.partitioning.compatibility import check_sort_order
from lakehouse.spec.partitioning.partition_terms import parse_sort_term, parse_term
from lakehouse.spec.partitioning.sort_order import NullOrder, SortDirection, SortField, SortOrder

Nulls = Literal["first", "last"]


class UpdateSortOrder:
    """Collects a new sort order; `changes()` gives it as one commit.

    The first call begins an empty order, each appends to it. What cannot be applied raises
    InvalidPartitionSpecError.
    """

    def __init__(self, metadata: TableMetadata) -> None:
        self._metadata = metadata
        self._fields: tuple[SortField, ...] | None = None

    def asc(self, term: str, *, nulls: Nulls = "first") -> UpdateSortOrder:
        """Then by a column or a transform of one, ascending."""
        return self._add(term, SortDirection.ASC, nulls)

    def desc(self, term: str, *, nulls: Nulls = "last") -> UpdateSortOrder:
        """Then by a column or a transform of one, descending."""
        return self._add(term, SortDirection.DESC, nulls)

    def set(self, *terms: str) -> UpdateSortOrder:
        """Sort by exactly these terms: `set("event_ts desc nulls last", "bucket(16, id)")`."""
        fields = tuple(parse_sort_term(term, self._metadata.schema()) for term in terms)
        check_sort_order(SortOrder(fields, order_id=1), self._metadata.schema())
        self._fields = fields
        return self

    def clear(self) -> UpdateSortOrder:
        """Leave new files unsorted."""
        self._fields = ()
        return self

    def sort_order(self) -> SortOrder:
        """The order as it is now; its id is that of an equal one if the table has one."""
        if self._fields is None:
            return self._metadata.sort_order()
        for known in self._metadata.sort_orders:
            if known.fields == self._fields:
                return known
        taken = {order.order_id for order in self._metadata.sort_orders} | {0}
        return SortOrder(self._fields, order_id=max(taken) + 1 if self._fields else 0)

    def changes(self) -> Changes:
        """Requirements and updates; empty when the order is as it was.

        A concurrent change of order or schema conflicts.
        """
        order = self.sort_order()
        if order.order_id == self._metadata.default_sort_order_id:
            return Changes()
        requirements: tuple[Requirement, ...] = (
            AssertTableUUID(self._metadata.table_uuid),
            AssertCurrentSchemaId(self._metadata.current_schema_id),
            AssertDefaultSortOrderId(self._metadata.default_sort_order_id),
        )
        return Changes(requirements, (AddSortOrder(order), SetDefaultSortOrder()))

    def _add(self, term: str, direction: SortDirection, nulls: Nulls) -> UpdateSortOrder:
        parsed = parse_term(term, self._metadata.schema())
        null_order = NullOrder.NULLS_FIRST if nulls == "first" else NullOrder.NULLS_LAST
        field = SortField(parsed.source_id, parsed.transform, direction, null_order)
        check_sort_order(SortOrder((field,), order_id=1), self._metadata.schema())
        self._fields = (*(self._fields or ()), field)
        return self
