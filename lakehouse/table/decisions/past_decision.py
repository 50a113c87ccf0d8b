"""A decision about rows that lost to another writer, and what of it still holds."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.dml.merge.changed_files import ChangedFiles
from lakehouse.dml.merge.decided_merge import DecidedMerge
from lakehouse.dml.merge.overlapped_keys import decide_again, touched_rows
from lakehouse.dml.merge.target_rows import RowChanges, TargetRows
from lakehouse.errors import NoSuchFileError, UnsupportedFeatureError, ValidationConflictError
from lakehouse.table.decisions.row_write import layout
from lakehouse.table.loaded_table import LoadedTable
from lakehouse.transaction.attempt.pending_operation import Attempt
from lakehouse.transaction.attempt.uncommitted_files import Workspace
from lakehouse.transaction.operations.row_decisions.overlap import overlap_since


@dataclass(frozen=True, slots=True)
class PastDecision:
    """What was decided on a version of a table, and written for it.

    Attributes:
        version: decided on.
        changes: of its rows.
        files: with them.
    """

    version: TableVersion
    changes: RowChanges
    files: ChangedFiles

    def again(self, table: LoadedTable, target: TargetRows, branch: str) -> DecidedMerge | None:
        """The decision for the version that the table is at now, made for touched keys alone.

        None where it has to be made for all of them: touched keys cannot be told from others, or
        there are no others.

        Args:
            table: at a later version.
            target: its rows.
            branch: where to.
        """
        first, deletes = self.changes, self.files.deletes
        if not isinstance(first, DecidedMerge) or deletes is None:
            return None
        if first.part is None or first.keys is None:
            return None
        if layout(self.version.metadata) != layout(table.metadata):
            return None
        attempt = Attempt(
            started=self.version,
            base=table.version,
            branch=branch,
            workspace=Workspace(table.storage, table.environment, lambda _: None),
            summary={},
            retries=0,
            metadata=table.metadata,
        )
        try:
            since = overlap_since(attempt, deletes.rows, first.conflict_filter, first.keys)
            if since is None:
                return None
            touched = touched_rows(first, first.part, since, target)
        except (ValidationConflictError, NoSuchFileError, UnsupportedFeatureError):
            return None  # nobody can tell any more
        if touched.all() or not touched.any():
            return None
        return decide_again(first, first.part, self.files, touched, target, table.storage)
