"""From a materialization to the snapshots that it read, and back: is it reproducible?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from pyiceberg.expressions import BooleanExpression
from rich.console import Console, ConsoleOptions, RenderResult

from lakehouse.errors import InvalidInputError, NotFoundError
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.lineage.materialization import INPUTS, OPERATION, SNAPSHOT_ID
from lakehouse.orchestration.lineage.undo import UNDONE_TAG
from lakehouse.spec.metadata.snapshot import RUN_ID


@dataclass(frozen=True, slots=True)
class InputSnapshot:
    """A table as a materialization read it.

    Attributes:
        table: dotted name.
        snapshot_id: what was read; None: the table was empty.
        committed_at: when that snapshot was committed; None when it has expired.
        written_by: run that wrote it, if one did and the snapshot is still there.
        expired: whether the snapshot is gone, so that the materialization cannot be replayed.
    """

    table: str
    snapshot_id: int | None
    committed_at: datetime | None = None
    written_by: str | None = None
    expired: bool = False


@dataclass(frozen=True, slots=True)
class Lineage:
    """One materialization of an asset.

    Attributes:
        asset_key: slash-separated.
        partition: of the materialization; None for assets without partitions.
        table: dotted name of the asset's table.
        run_id: Dagster's run that materialized it; empty: none did (a materialized view).
        materialized_at: when.
        snapshot_id: the snapshot that it wrote.
        operation: append, overwrite, ...
        expired: whether that snapshot is gone.
        inputs: what was read for it.
        undone: when its run was undone, and the table does not have the snapshot any more.
    """

    asset_key: str
    partition: str | None
    table: str
    run_id: str
    materialized_at: datetime
    snapshot_id: int
    operation: str
    expired: bool
    inputs: tuple[InputSnapshot, ...]
    undone: str | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """For people."""
        partition = "" if self.partition is None else f" [{self.partition}]"
        gone = "  (expired)" if self.expired else ""
        yield (
            f"{self.asset_key}{partition}: {self.table} at snapshot {self.snapshot_id}{gone}, "
            f"{self.operation}"
        )
        by_run = f" by run {self.run_id}" if self.run_id else ""
        yield f"materialized {self.materialized_at:%Y-%m-%d %H:%M:%S} UTC{by_run}, from"
        for source in self.inputs:
            at = "empty" if source.snapshot_id is None else f"at snapshot {source.snapshot_id}"
            when = (
                ""
                if source.committed_at is None
                else f", committed {source.committed_at:%Y-%m-%d %H:%M:%S} UTC"
            )
            by = "" if source.written_by is None else f" by run {source.written_by}"
            yield f"  {source.table} {at}{when}{by}{', expired' if source.expired else ''}"
        if not self.inputs:
            yield "  what landed"
        if self.undone is not None:
            yield f"undone at {self.undone}: the table is what it was before"

    def to_dict(self) -> dict[str, object]:
        """The lineage as JSON-able data: ids as text, times in ISO 8601."""
        return {
            "asset": self.asset_key,
            "partition": self.partition,
            "table": self.table,
            "run_id": self.run_id,
            "materialized_at": self.materialized_at.isoformat(),
            "snapshot_id": str(self.snapshot_id),
            "operation": self.operation,
            "expired": self.expired,
            "inputs": [
                {
                    "table": i.table,
                    "snapshot_id": None if i.snapshot_id is None else str(i.snapshot_id),
                    "committed_at": None if i.committed_at is None else i.committed_at.isoformat(),
                    "run_id": i.written_by,
                    "expired": i.expired,
                }
                for i in self.inputs
            ],
            "undone": self.undone,
        }


@dataclass(frozen=True, slots=True)
class Recomputed:
    """Rows computed again, and which of the table's they are compared with.

    Attributes:
        rows: a frame of Spark, or rows of Arrow.
        where: the rows of the table that the materialization was about.
        keys: columns; not empty: of those only the rows with keys that were computed.
        added_since: a snapshot; not None: of those only the rows added after it.
    """

    rows: Any
    where: BooleanExpression
    keys: tuple[str, ...] = ()
    added_since: int | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """A materialization computed again from the snapshots that it had read.

    Attributes:
        lineage: what was replayed.
        rows: rows that the computation gives now.
        missing: rows of the table (in the materialized partition) that it does not give, as often
            as they are missing.
        unexpected: rows that it gives and the table does not have.
        examples: a few of both, as text.
    """

    lineage: Lineage
    rows: int
    missing: int
    unexpected: int
    examples: tuple[str, ...] = field(default=())

    @property
    def equal(self) -> bool:
        """Whether both are the same multiset of rows."""
        return self.missing == 0 and self.unexpected == 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """For people."""
        yield self.lineage
        if self.equal:
            yield f"replayed from exactly these snapshots: equal, {self.rows} rows"
        else:
            yield (
                f"replayed from exactly these snapshots: NOT equal, {self.missing} rows missing, "
                f"{self.unexpected} unexpected"
            )
            yield from self.examples

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            **self.lineage.to_dict(),
            "equal": self.equal,
            "rows": self.rows,
            "missing": self.missing,
            "unexpected": self.unexpected,
            "examples": list(self.examples),
        }


def parse_asset_key(asset: str) -> dg.AssetKey:
    """`raw/flights` or `raw.flights` as an asset key."""
    parts = [part for part in asset.replace(".", "/").split("/") if part]
    if not parts:
        raise InvalidInputError("name an asset, such as raw/flights")
    return dg.AssetKey(parts)


def read_lineage(
    instance: dg.DagsterInstance, lake: Lakehouse, asset: str, partition: str | None = None
) -> Lineage:
    """The latest materialization of an asset, or of one of its partitions.

    Raises:
        NotFoundError: it was never materialized, or not by this pipeline.
    """
    key = parse_asset_key(asset)
    records = instance.fetch_materializations(
        dg.AssetRecordsFilter(
            asset_key=key, asset_partitions=None if partition is None else [partition]
        ),
        limit=1,
    ).records
    if not records:
        of = "" if partition is None else f", partition {partition},"
        entries = [r.asset_entry for r in instance.get_asset_records(instance.all_asset_keys())]
        known = sorted(e.asset_key.to_user_string() for e in entries if e.last_materialization)
        raise NotFoundError(
            f"asset {key.to_user_string()}{of} was never materialized; materialized assets: "
            f"{', '.join(known) or 'none'}"
        )
    record = records[0]
    materialization = record.asset_materialization
    if materialization is None or SNAPSHOT_ID not in materialization.metadata:
        raise NotFoundError(
            f"the last materialization of {key.to_user_string()} in run {record.run_id} records no "
            "snapshot"
        )
    metadata = materialization.metadata
    table = str(metadata["dagster/table_name"].value)
    snapshot_id = int(str(metadata[SNAPSHOT_ID].value))
    return Lineage(
        asset_key=key.to_user_string(),
        partition=record.partition_key,
        table=table,
        run_id=record.run_id,
        materialized_at=datetime.fromtimestamp(record.timestamp, tz=UTC),
        snapshot_id=snapshot_id,
        operation=str(metadata[OPERATION].value),
        expired=read_snapshot(lake, table, snapshot_id).expired,
        inputs=_inputs(lake, metadata),
        undone=_undone(instance, lake, record.run_id, table, snapshot_id),
    )


def _undone(
    instance: dg.DagsterInstance, lake: Lakehouse, run_id: str, table: str, snapshot_id: int
) -> str | None:
    """When a run was undone; None: it was not, it was by rows alone, or it was redone since."""
    run = instance.get_run_by_id(run_id)
    if run is None or UNDONE_TAG not in run.tags or not lake.table_exists(table):
        return None
    metadata = lake.load_table(table).metadata
    line = metadata.ancestors(metadata.current_snapshot_id)
    is_there = any(ancestor.snapshot_id == snapshot_id for ancestor in line)
    return None if is_there else run.tags[UNDONE_TAG]


def _inputs(lake: Lakehouse, metadata: Mapping[str, dg.MetadataValue]) -> tuple[InputSnapshot, ...]:
    read = metadata[INPUTS].value if INPUTS in metadata else {}
    if not isinstance(read, Mapping):
        return ()
    return tuple(
        read_snapshot(lake, str(table), None if read[table] is None else int(str(read[table])))
        for table in sorted(read)
    )


def read_snapshot(lake: Lakehouse, table: str, snapshot_id: int | None) -> InputSnapshot:
    """A snapshot that was read, as far as it is still there."""
    if snapshot_id is None:
        return InputSnapshot(table, None)
    snapshot = (
        lake.load_table(table).metadata.snapshot_or_none(snapshot_id)
        if lake.table_exists(table)
        else None
    )
    if snapshot is None:
        return InputSnapshot(table, snapshot_id, expired=True)
    return InputSnapshot(
        table,
        snapshot_id,
        committed_at=snapshot.committed_at,
        written_by=snapshot.summary.get(RUN_ID),
    )
