"""What a verb that writes rows gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakehouse.spec.metadata.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The snapshot that a write made, and how many rows it changed.

    >>> result = events.append(more)
    >>> result.rows_inserted, result.rows_deleted, result.operation
    (1, 0, 'append')
    >>> events.scan(snapshot_id=result.snapshot_id).count()
    4

    Attributes:
        snapshot: the last snapshot that the write made; a merge-on-read delete may make two.
        rows_inserted: rows of the data; None if an earlier run had committed them.
        rows_deleted: deleted rows; None if they were not counted, because an earlier run had
            committed the write, or because a file with deletes was removed as a whole.
        retries: attempts that lost against other writers before the one that won.
        replayed: whether an earlier run with the same `commit_id` had committed already.
        decided_again: how often the rows were decided on again, because others had changed them, or
            had added such rows.
        rows_decided_again: how many rows of a source that took, all times together; see
            MergeResult.
    """

    snapshot: Snapshot
    rows_inserted: int | None = None
    rows_deleted: int | None = None
    retries: int = 0
    replayed: bool = False
    decided_again: int = 0
    rows_decided_again: int = 0

    @property
    def snapshot_id(self) -> int:
        """Id of the snapshot that the write made."""
        return self.snapshot.snapshot_id

    @property
    def parent_snapshot_id(self) -> int | None:
        """The snapshot before it; None for the first one of a table."""
        return self.snapshot.parent_snapshot_id

    @property
    def sequence_number(self) -> int:
        """The snapshot's sequence number: the order of commits."""
        return self.snapshot.sequence_number

    @property
    def timestamp_ms(self) -> int:
        """When the snapshot was committed, in milliseconds since the epoch."""
        return self.snapshot.timestamp_ms

    @property
    def operation(self) -> str | None:
        """`append`, `overwrite` or `delete`."""
        return self.snapshot.operation

    @property
    def summary(self) -> Mapping[str, str]:
        """The snapshot's summary (specification: Snapshot Summary), which counts files as well."""
        return self.snapshot.summary

    @property
    def manifest_list(self) -> str:
        """Location of the snapshot's manifest list."""
        return self.snapshot.manifest_list

    @property
    def schema_id(self) -> int | None:
        """Id of the schema when the snapshot was written; None if not recorded."""
        return self.snapshot.schema_id

    @property
    def first_row_id(self) -> int | None:
        """The first row id that the snapshot assigned (version 3, specification: Row Lineage)."""
        return self.snapshot.first_row_id

    @property
    def added_rows(self) -> int | None:
        """How many row ids the snapshot assigned (version 3, specification: Row Lineage)."""
        return self.snapshot.added_rows
