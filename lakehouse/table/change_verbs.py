"""Verbs that change what the table is: columns, partitions, sort order, properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from lakehouse.evolution.schema_changes import Changes
from lakehouse.evolution.update_partition_spec import UpdatePartitionSpec
from lakehouse.evolution.update_schema import UpdateSchema
from lakehouse.evolution.update_sort_order import UpdateSortOrder
from lakehouse.table.loaded_table import LoadedTable
from lakehouse.table.pending_change import PendingChange


class ChangeVerbs(LoadedTable):
    """Each change is one commit, and moves the table to the version that it made."""

    def update_schema(self) -> PendingChange[UpdateSchema]:
        """Change columns: `with table.update_schema() as s: s.add_column("device", "string")`."""
        return PendingChange(UpdateSchema(self.metadata), self._commit_changes)

    def update_partition_spec(self) -> PendingChange[UpdatePartitionSpec]:
        """Partition future files otherwise: `with table.update_partition_spec() as p: p.replace("month(ts)", "day(ts)")`."""
        return PendingChange(UpdatePartitionSpec(self.metadata), self._commit_changes)

    def update_sort_order(self) -> PendingChange[UpdateSortOrder]:
        """Change the sort order of future files: `with table.update_sort_order() as o: o.asc("event_ts")`."""
        return PendingChange(UpdateSortOrder(self.metadata), self._commit_changes)

    def set_properties(self, properties: Mapping[str, str]) -> Self:
        """Set table properties; `format-version` raises the format version (2 or 3, never back)."""
        return self._moved(self.transaction().set_properties(properties).commit())

    def remove_properties(self, *names: str) -> Self:
        """Remove table properties."""
        return self._moved(self.transaction().remove_properties(names).commit())

    def _commit_changes(self, changes: Changes) -> None:
        if changes.updates:
            self._moved(self.transaction().update(changes.updates, changes.requirements).commit())
