"""Verbs on branches and tags."""

from __future__ import annotations

from typing import Self

from lakehouse.table.loaded_table import LoadedTable
from lakehouse.table.scan import chosen_point


class RefVerbs(LoadedTable):
    """Each verb is one commit, and moves the table to the version that it made."""

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
