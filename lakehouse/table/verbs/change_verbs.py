"""Verbs that change what the table is: columns, partitions, sort order, properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from lakehouse.evolution.update_partition_spec import UpdatePartitionSpec
from lakehouse.evolution.update_schema import UpdateSchema
from lakehouse.evolution.update_sort_order import UpdateSortOrder
from lakehouse.spec.metadata.table_updates import Changes
from lakehouse.table.loaded_table import LoadedTable

# Changes of a schema, partition spec or sort order: a block is one atomic commit, or none.


class Builder(Protocol):
    """Collects changes against one table version."""

    def changes(self) -> Changes:
        """Requirements and updates collected so far."""


B = TypeVar("B", bound=Builder)


class PendingChange(Generic[B]):
    """`with table.update_schema() as s: ...` commits when the block ends without an error.

    Args:
        builder: collects the changes.
        commit: makes them visible.
    """

    def __init__(self, builder: B, commit: Callable[[Changes], None]) -> None:
        self.builder = builder
        self._commit = commit

    def __enter__(self) -> B:
        return self.builder

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._commit(self.builder.changes())


class ChangeVerbs(LoadedTable):
    """Each change is one commit, and moves the table to the version that it made."""

    def update_schema(self) -> PendingChange[UpdateSchema]:
        """Change columns: `with table.update_schema() as s: s.add_column("device", "string")`.

        >>> with events.update_schema() as schema:
        ...     _ = schema.add_column("device", "string").rename_column("amount", "price")
        >>> events.schema().column_names
        ['event_ts', 'user_id', 'price', 'device']
        """
        return PendingChange(UpdateSchema(self.metadata), self._commit_changes)

    def update_partition_spec(self) -> PendingChange[UpdatePartitionSpec]:
        """Change the partition spec of future files.

        >>> with events.update_partition_spec() as spec:
        ...     _ = spec.replace("day(event_ts)", "month(event_ts)")
        >>> [field.name for field in events.spec().fields]
        ['event_ts_month']
        """
        return PendingChange(UpdatePartitionSpec(self.metadata), self._commit_changes)

    def update_sort_order(self) -> PendingChange[UpdateSortOrder]:
        """Change the sort order of future files.

        >>> with events.update_sort_order() as order:
        ...     _ = order.asc("user_id")
        >>> len(events.metadata.sort_order().fields)
        1
        """
        return PendingChange(UpdateSortOrder(self.metadata), self._commit_changes)

    def set_properties(self, properties: Mapping[str, str]) -> Self:
        """Set table properties; `format-version` raises the format version (2 or 3, never back).

        >>> events.set_properties({"write.delete.mode": "merge-on-read"}).properties
        {...'write.delete.mode': 'merge-on-read'...}
        """
        return self._moved(self.transaction().set_properties(properties).commit())

    def remove_properties(self, *names: str) -> Self:
        """Remove table properties.

        >>> _ = events.set_properties({"owner": "ada"})
        >>> "owner" in events.remove_properties("owner").properties
        False
        """
        return self._moved(self.transaction().remove_properties(names).commit())

    def _commit_changes(self, changes: Changes) -> None:
        if changes.updates:
            self._moved(self.transaction().update(changes.updates, changes.requirements).commit())
