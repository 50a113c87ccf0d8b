"""What a verb that writes rows gives back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from lakehouse.maintenance.shown_plan import Report, human_bytes
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


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What a merge, upsert or update changed.

    Attributes:
        snapshot: that it made; None when nothing changed and nothing was committed.
        rows_inserted: new rows.
        rows_updated: rows with new values.
        rows_deleted: rows that are gone.
        retries: attempts that lost against other writers before the one that won.
        replayed: whether an earlier run with the same `commit_id` had committed already; the
            counts are 0 then.
        decided_again: how often the rows were decided on again, because others had changed them, or
            had added such rows.
        rows_decided_again: how many rows of the source that took, all times together; 0 for an
            update, which has no source.
    """

    snapshot: Snapshot | None
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    retries: int = 0
    replayed: bool = False
    decided_again: int = 0
    rows_decided_again: int = 0

    @property
    def snapshot_id(self) -> int | None:
        """Id of the snapshot; None when nothing was written."""
        return None if self.snapshot is None else self.snapshot.snapshot_id


@dataclass(frozen=True, slots=True)
class ApplyResult(MergeResult):
    """What a batch of changes did.

    Attributes:
        changes: how many there were.
        superseded: of these, how many a later change of the same key in the batch made pointless.
        ignored: how many of the others are older than what the table holds of their key, or than
            a delete that is remembered.
        columns_changed: columns that were added or promoted.
    """

    changes: int = 0
    superseded: int = 0
    ignored: int = 0
    columns_changed: tuple[str, ...] = ()

    @property
    def applied(self) -> int:
        """How many changes count: they took effect, or delete a row that is not there."""
        return self.changes - self.superseded - self.ignored


@dataclass(frozen=True, slots=True)
class MergePlan(Report):
    """What a merge would do to the table as it is: everything was read, nothing was written.

    Attributes:
        table: its name.
        snapshot_id: of the rows looked at; None for an empty table.
        mode: `copy-on-write` or `merge-on-read`.
        files: data files of the snapshot; None where its summary does not count them.
        files_opened: data files that may hold a key, which were read.
        bytes_opened: of these.
        files_changed: data files with rows that are updated or deleted.
        rows_inserted: new rows.
        rows_updated: rows with new values.
        rows_deleted: rows that would go.
    """

    table: str
    snapshot_id: int | None
    mode: str
    files: int | None
    files_opened: int
    bytes_opened: int
    files_changed: int
    rows_inserted: int
    rows_updated: int
    rows_deleted: int

    def title(self) -> str:
        """`Merge into raw.events`."""
        return f"Merge into {self.table}"

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    def facts(self) -> Iterable[tuple[str, object]]:
        """Files, then rows."""
        of = "" if self.files is None else f" of {self.files:,}"
        yield "files opened", f"{self.files_opened:,}{of}, {human_bytes(self.bytes_opened)}"
        rewritten = "rewritten" if self.mode == "copy-on-write" else "with deletes beside them"
        yield "files changed", f"{self.files_changed:,}, {rewritten}"
        yield "rows inserted", self.rows_inserted
        yield "rows updated", self.rows_updated
        yield "rows deleted", self.rows_deleted
