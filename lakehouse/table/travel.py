"""Time travel: which snapshot a reader means."""

from __future__ import annotations

from lakehouse.errors import InvalidInputError, NoSuchSnapshotError
from lakehouse.spec.refs import MAIN_BRANCH
from lakehouse.spec.snapshot import RUN_ID, Snapshot
from lakehouse.spec.table_metadata import TableMetadata
from lakehouse.table.times import Moment, to_ms


def snapshot_id_of(
    metadata: TableMetadata, table: str, *, snapshot_id: int | None, as_of: Moment | None, ref: str, run: str | None
) -> int | None:
    """The snapshot to read; None for the head of main, which follows the table's current schema.

    Raises:
        InvalidInputError: more than one of `snapshot_id`, `as_of` and `run`.
        NoSuchSnapshotError | NoSuchRefError: nothing there.
    """
    if sum(one is not None for one in (snapshot_id, as_of, run)) > 1:
        raise InvalidInputError(f"scan of {table}: give one of snapshot_id, as_of and run, not both", table=table)
    if snapshot_id is not None:
        return metadata.snapshot(snapshot_id).snapshot_id
    if as_of is not None:
        return metadata.snapshot_as_of(to_ms(as_of), ref).snapshot_id
    if run is not None:
        return snapshot_of_run(metadata, run).snapshot_id
    return None if ref == MAIN_BRANCH else metadata.ref(ref).snapshot_id


def snapshot_of_run(metadata: TableMetadata, run_id: str) -> Snapshot:
    """The last snapshot that a Dagster run wrote, on whatever branch. Raises NoSuchSnapshotError."""
    wanted = run_id.encode()
    written: list[Snapshot] = []
    if any(wanted in part for part in metadata.snapshots.raw_parts()):
        written = [one for one in metadata.snapshots if one.summary.get(RUN_ID) == run_id]
    if not written:
        raise NoSuchSnapshotError(
            f"Table {metadata.location} has no snapshot of Dagster run {run_id!r}: it wrote none, or it has been expired.",
            run_id=run_id,
        )
    return max(written, key=lambda one: one.sequence_number)
