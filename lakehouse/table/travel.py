"""Time travel: which snapshot a reader means."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.errors import InvalidInputError, NoSuchSnapshotError
from lakehouse.spec.metadata.snapshot import MAIN_BRANCH, RUN_ID, Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.table.times import Moment, to_ms


@dataclass(frozen=True, slots=True)
class Point:
    """A snapshot, and whether it is read with the table's current schema or its own.

    Attributes:
        snapshot_id: None is the head of main.
        current_schema: for `ScanRequest`.
    """

    snapshot_id: int | None
    current_schema: bool = False


def point_of(
    metadata: TableMetadata,
    table: str,
    *,
    snapshot_id: int | None,
    as_of: Moment | None,
    ref: str,
    run: str | None,
) -> Point:
    """The snapshot to read, from an id, time, ref or run.

    Raises:
        InvalidInputError: more than one of `snapshot_id`, `as_of` and `run`, or a `ref` beside a
            snapshot that is named already.
        NoSuchSnapshotError | NoSuchRefError: nothing there.
    """
    if sum(one is not None for one in (snapshot_id, as_of, run)) > 1:
        raise InvalidInputError(
            f"scan of {table}: give one of snapshot_id, as_of and run, not both", table=table
        )
    if ref != MAIN_BRANCH and (snapshot_id is not None or run is not None):
        raise InvalidInputError(
            f"scan of {table}: give a ref, or one of snapshot_id and run, not both", table=table
        )
    if snapshot_id is not None:
        return Point(metadata.snapshot(snapshot_id).snapshot_id)
    if as_of is not None:
        return Point(metadata.snapshot_as_of(to_ms(as_of), ref).snapshot_id)
    if run is not None:
        return Point(snapshot_of_run(metadata, run).snapshot_id)
    return point_of_ref(metadata, ref)


def point_of_ref(metadata: TableMetadata, ref: str) -> Point:
    """The head of a branch, or a tag. Raises NoSuchRefError."""
    if ref == MAIN_BRANCH:
        return Point(None, current_schema=True)
    named = metadata.ref(ref)
    return Point(named.snapshot_id, current_schema=named.type == "branch")


def chosen_point(metadata: TableMetadata, table: str, snapshot_id: int | None, ref: str) -> Point:
    """A snapshot that is named by its id, or by a branch or tag.

    Raises:
        InvalidInputError: both are given.
        NoSuchRefError: no such branch or tag.
    """
    if snapshot_id is not None and ref != MAIN_BRANCH:
        raise InvalidInputError(
            f"{table}: name the snapshot by id, {snapshot_id}, or by ref, {ref!r}, not by both",
            table=table,
        )
    return point_of_ref(metadata, ref) if snapshot_id is None else Point(snapshot_id)


def snapshot_of_run(metadata: TableMetadata, run_id: str) -> Snapshot:
    """The last snapshot that a Dagster run wrote, on whatever branch.

    Raises NoSuchSnapshotError.
    """
    wanted = run_id.encode()
    written: list[Snapshot] = []
    if any(wanted in part for part in metadata.snapshots.raw_parts()):
        written = [one for one in metadata.snapshots if one.summary.get(RUN_ID) == run_id]
    if not written:
        raise NoSuchSnapshotError(
            f"Table {metadata.location} has no snapshot of Dagster run {run_id!r}: it wrote none, "
            "or it has been expired.",
            run_id=run_id,
        )
    return max(written, key=lambda one: one.sequence_number)
