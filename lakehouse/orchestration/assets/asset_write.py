"""The write of an asset's rows to its table: staged, audited, published, or in one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import dagster as dg
import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema

from lakehouse.ingestion.audit import MAIN, StagedWrite
from lakehouse.ingestion.stamp import RunStamp
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.assets.asset_table import AssetTable
from lakehouse.orchestration.assets.frames import as_stored, rows_of_frame
from lakehouse.orchestration.assets.staleness import RefreshState
from lakehouse.spec.metadata.snapshot import REFRESH_STATE, Snapshot
from lakehouse.table import Table, TableScan

PARTITION_ROWS = "dagster/partition_row_count"


@dataclass
class AssetWrite:
    """Writes what an asset gave, once or again, to a branch.

    Attributes:
        table: with room for the rows.
        target: says how they are written.
        frame: the rows; a stream can be written once, then they are read from what it became.
        where: which rows of the table they replace.
        one_partition: whether they are all those of one partition.
        stamp: the step.
        summary: of the snapshot: who wrote it, and what it was computed from.
        onto: the branch where they belong.
        rows: how many were written, where they are those of a partition and were counted.
    """

    table: Table
    target: AssetTable
    frame: Any
    where: BooleanExpression
    one_partition: bool
    stamp: RunStamp
    summary: Mapping[str, str]
    onto: str
    rows: int | None = None

    @classmethod
    def of(
        cls,
        lake: Lakehouse,
        target: AssetTable,
        rows: Any,
        where: Callable[[Schema], BooleanExpression],
        stamp: RunStamp,
        state: RefreshState,
        say: Callable[[str], None],
        onto: str = MAIN,
        partitions: dg.PartitionsDefinition | None = None,
        *,
        one_partition: bool = False,
        days: Sequence[date] | None = None,
    ) -> AssetWrite:
        """The write of rows, to a table that is made ready for them.

        Args:
            lake: where the table is.
            target: the table.
            rows: of a kind that assets give.
            where: which rows of the table they replace, by its schema.
            stamp: the step that writes.
            state: what they were computed from.
            say: takes a line for each change of the table.
            onto: the branch where they belong.
            partitions: of the asset, after which a new table is partitioned.
            one_partition: whether they are all those of one partition.
            days: whose rows they replace; None: not of days.

        Raises:
            InvalidInputError: these are no rows.
            InvalidSchemaError | InvalidPartitionSpecError: the table cannot be so.
        """
        frame, schema = rows_of_frame(rows, target.name)
        if isinstance(frame, pa.Table | pa.RecordBatchReader):
            frame, schema = target.typed(lake, frame)
        table = target.ready(lake, schema, partitions, say)
        if isinstance(schema, pa.Schema):
            frame = as_stored(frame, table.schema(), target.name)
        summary = stamp.summary(days) | {REFRESH_STATE: state.to_json()}
        return cls(table, target, frame, where(table.schema()), one_partition, stamp, summary, onto)

    def staged(self) -> StagedWrite:
        """The rows on a branch of their own, to be audited there and published."""
        return StagedWrite(self.table, self.stamp, "rows", self, self.onto)

    def __call__(self, branch: str, commit_id: str) -> Snapshot:
        """Commit to a branch. Raises Failure where there was nothing to write to an empty table."""
        table, rows = self.table, self.frame
        if isinstance(rows, TableScan):
            rows = rows.to_batches()
        how: dict[str, Any] = {"branch": branch, "summary": self.summary, "commit_id": commit_id}
        if self.target.write_mode == "upsert":
            if isinstance(rows, pa.RecordBatchReader) and branch != self.onto:
                rows = self.frame = rows.read_all()
            merged = table.upsert(rows, self.target.upsert_keys, **how)
            snapshot = merged.snapshot or table.current_snapshot(ref=self.onto)
        elif self.target.write_mode == "append":
            snapshot = table.append(rows, **how).snapshot
        else:
            done = table.overwrite(rows, self.where, must_match=True, **how)
            snapshot = done.snapshot
            self.rows = done.rows_inserted if self.one_partition else None
        if snapshot is None:
            raise dg.Failure(f"{table.name} has no snapshot: nothing was written to it")
        if isinstance(rows, pa.RecordBatchReader):
            self.frame = self._written(snapshot)
        return snapshot

    def _written(self, snapshot: Snapshot) -> TableScan:
        parent = snapshot.parent_snapshot_id
        if self.target.write_mode == "append" and parent is not None:
            return self.table.scan_appends(parent, snapshot.snapshot_id)
        return self.table.scan(self.where, snapshot_id=snapshot.snapshot_id)
