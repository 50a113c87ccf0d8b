"""Verbs on branches and tags."""

from __future__ import annotations

from typing import Self

from lakehouse.table.loaded_table import LoadedTable


class RefVerbs(LoadedTable):
    """Each verb is one commit, and moves the table to the version that it made."""

    def create_tag(
        self, name: str, snapshot_id: int | None = None, *, max_ref_age_ms: int | None = None
    ) -> Self:
        """Name a snapshot for good (the current one by default). Raises RefAlreadyExistsError, NoSuchSnapshotError."""
        return self._moved(
            self.transaction().create_tag(name, snapshot_id, max_ref_age_ms=max_ref_age_ms).commit()
        )

    def create_branch(
        self, name: str, snapshot_id: int | None = None, **retention: int | None
    ) -> Self:
        """Start a branch (at the current snapshot by default). Raises RefAlreadyExistsError, NoSuchSnapshotError."""
        return self._moved(
            self.transaction().create_branch(name, snapshot_id, **retention).commit()
        )

    def remove_ref(self, name: str) -> Self:
        """Remove a branch or tag. Raises NoSuchRefError."""
        return self._moved(self.transaction().remove_ref(name).commit())

    def fast_forward(self, branch: str, source: str) -> Self:
        """Point `branch` at the head of `source`, its descendant. Raises ValidationConflictError when it is none."""
        return self._moved(self.transaction(branch).fast_forward(source).commit())

    def cherry_pick(self, snapshot_id: int, *, branch: str = "main") -> Self:
        """Apply what a snapshot appended onto a branch."""
        return self._moved(self.transaction(branch).cherry_pick(snapshot_id).commit())

    def rollback_to(self, snapshot_id: int, *, branch: str = "main") -> Self:
        """Point a branch back at one of its ancestors. Raises NoSuchSnapshotError, ValidationConflictError."""
        return self._moved(self.transaction(branch).rollback_to(snapshot_id).commit())
