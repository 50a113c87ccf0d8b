"""Verbs that change what the table is: columns, partitions, sort order, properties, refs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from lakehouse.evolution.update_partition_spec import UpdatePartitionSpec
from lakehouse.evolution.update_schema import UpdateSchema
from lakehouse.evolution.update_sort_order import UpdateSortOrder
from lakehouse.spec.metadata.table_updates import Changes
from lakehouse.table.loaded_table import LoadedTable
from lakehouse.table.scan import chosen_point

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

    def create_tag(
        self,
        name: str,
        snapshot_id: int | None = None,
        *,
        ref: str = "main",
        max_ref_age_ms: int | None = None,
    ) -> Self:
        """Name a snapshot, by default that of `ref`; expiry keeps it.

        >>> _ = events.create_tag("reviewed")
        >>> _ = events.append(more)
        >>> events.scan(ref="reviewed").count(), events.scan().count()
        (3, 4)

        Raises:
            InvalidInputError: both `snapshot_id` and `ref`.
            RefAlreadyExistsError | NoSuchSnapshotError | NoSuchRefError: the name is taken, or
                there is nothing to name.
        """
        target = chosen_point(self.metadata, self.name, snapshot_id, ref).snapshot_id
        return self._moved(
            self.transaction().create_tag(name, target, max_ref_age_ms=max_ref_age_ms).commit()
        )

    def create_branch(
        self,
        name: str,
        snapshot_id: int | None = None,
        *,
        ref: str = "main",
        **retention: int | None,
    ) -> Self:
        """Create a branch, by default at the snapshot of `ref`.

        >>> _ = events.create_branch("audit")
        >>> _ = events.append(more, branch="audit")
        >>> events.scan().count(), events.scan(ref="audit").count()
        (3, 4)

        Args:
            name: of the branch.
            snapshot_id: where it starts.
            ref: the branch or tag where it starts.
            retention: `min_snapshots_to_keep`, `max_snapshot_age_ms`, `max_ref_age_ms`.

        Raises:
            InvalidInputError: both `snapshot_id` and `ref`.
            RefAlreadyExistsError | NoSuchSnapshotError | NoSuchRefError: the name is taken, or
                there is nothing to start at.
        """
        target = chosen_point(self.metadata, self.name, snapshot_id, ref).snapshot_id
        return self._moved(self.transaction().create_branch(name, target, **retention).commit())

    def remove_ref(self, name: str) -> Self:
        """Remove a branch or tag. Raises NoSuchRefError.

        >>> sorted(events.create_tag("reviewed").remove_ref("reviewed").refs())
        ['main']
        """
        return self._moved(self.transaction().remove_ref(name).commit())

    def fast_forward(self, branch: str, source: str) -> Self:
        """Point `branch` at the head of `source`.

        Raises ValidationConflictError if it is not a descendant of the head of `branch`.

        >>> _ = events.append(more, branch="audit")
        >>> events.fast_forward("main", "audit").scan().count()
        4
        """
        return self._moved(self.transaction(branch=branch).fast_forward(source).commit())

    def cherry_pick(self, snapshot_id: int, *, branch: str = "main") -> Self:
        """Apply the appended rows of a snapshot to a branch.

        >>> picked = events.append(more, branch="audit")
        >>> events.cherry_pick(picked.snapshot_id).scan().count()
        4
        """
        return self._moved(self.transaction(branch=branch).cherry_pick(snapshot_id).commit())

    def rollback_to(self, snapshot_id: int, *, branch: str = "main") -> Self:
        """Move a branch back to one of its earlier snapshots.

        Raises NoSuchSnapshotError, ValidationConflictError.

        >>> first = events.current_snapshot().snapshot_id
        >>> _ = events.append(more)
        >>> events.rollback_to(first).scan().count()
        3
        """
        return self._moved(self.transaction(branch=branch).rollback_to(snapshot_id).commit())

    def _commit_changes(self, changes: Changes) -> None:
        if changes.updates:
            self._moved(self.transaction().update(changes.updates, changes.requirements).commit())
