"""Assumption: something outside the table that has to hold still when the commit is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.transaction.attempt.pending_operation import Attempt
from lakehouse.transaction.attempt.uncommitted_files import Workspace


@dataclass(frozen=True, eq=False)
class Assumption:
    """A check beside the changes; see Transaction.assume."""

    check: Callable[[], None]

    def prepare(self, workspace: Workspace, metadata: TableMetadata) -> None:
        """Nothing is written."""

    def apply(self, attempt: Attempt) -> None:
        """Check again when others have committed to the table since the caller decided."""
        if attempt.base.metadata_location != attempt.started.metadata_location:
            self.check()
