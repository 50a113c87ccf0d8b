"""What others did since to the rows that an operation decided on: all of it, not whether any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.expressions.bound_filter import Bound
from lakehouse.spec.manifests.data_file import CONTENT_EQUALITY_DELETES, DataFile
from lakehouse.spec.metadata.snapshot import OPERATION_REPLACE
from lakehouse.transaction.attempt.pending_operation import Attempt
from lakehouse.transaction.conflicts.concurrent_changes import ConcurrentChange
from lakehouse.transaction.conflicts.decided_rows import DecidedRows, Positions
from lakehouse.transaction.conflicts.key_test import KeyTest
from lakehouse.transaction.operations.file_replacement import concurrent_changes, scope_of
from lakehouse.transaction.operations.row_decisions.row_positions import deleted_since


@dataclass(frozen=True, slots=True)
class Overlap:
    """What others did.

    Attributes:
        removed: locations of data files that are gone, with all their rows.
        deleted: by the location of a data file that is there the rows deleted or replaced since.
        added: data files that may hold rows which the operation would have decided on; some of them
            may be gone again.
    """

    removed: frozenset[str]
    deleted: Mapping[str, Positions]
    added: tuple[DataFile, ...]


def overlap_since(
    attempt: Attempt, rows: Sequence[DecidedRows], where: Bound, keys: KeyTest
) -> Overlap | None:
    """What others did to the branch since; None where rows and keys do not say it.

    That is so when they added equality deletes, which may be about any row.

    Args:
        attempt: what the rows were decided on, and a later version.
        rows: those that go, and those that were seen; each item of another file.
        where: passes all rows that the operation decided on.
        keys: which of these it decided on.

    Raises:
        ValidationConflictError: the branch was rolled back or replaced, or a snapshot between has
            expired.
        NoSuchFileError: so it has since the later version was loaded.
    """
    changes = concurrent_changes(attempt)
    if any(_is_equality(change) for change in changes):
        return None
    removed = frozenset(
        path
        for change in changes
        for entries in change.removed_data
        for path in entries.table["file_path"].to_pylist()
    )
    there = [one for one in rows if one.path not in removed]
    since = {one.snapshot.snapshot_id for one in changes}
    deleted = deleted_since(attempt.workspace, attempt.metadata, attempt.head(), there, since)
    scope = scope_of(attempt, where, ())
    added: list[DataFile] = []
    for change in changes:
        if change.snapshot.operation != OPERATION_REPLACE:  # that adds no rows
            for entries in change.added_data:
                may = scope.mask(entries) & keys.may_hold(entries)
                added += entries.filter(pa.array(may)).to_data_files()
    by_path = {one.path: positions for one, positions in zip(there, deleted, strict=True)}
    return Overlap(removed, by_path, tuple(added))


def _is_equality(change: ConcurrentChange) -> bool:
    """Whether a change added equality deletes."""
    return any(
        pc.any(pc.equal(entries.table["content"], CONTENT_EQUALITY_DELETES)).as_py()
        for entries in change.added_deletes
    )
