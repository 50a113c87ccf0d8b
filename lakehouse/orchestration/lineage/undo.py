"""Undo a run: every table that it wrote is again what it was.

A table moves back to the snapshot before the run's. Its ledger, which other runs write all the
time, gets the rows back that the run changed, so that the landing files are taken again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import TypeAlias

import dagster as dg
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, In
from rich.console import RenderableType

from lakehouse.errors import (
    InvalidInputError,
    NoSuchSnapshotError,
    NotFoundError,
    ValidationConflictError,
)
from lakehouse.ingestion.landing_ledger import (
    LEDGER_SCHEMA,
    LedgerRow,
    ledger_from_arrow,
    ledger_to_arrow,
)
from lakehouse.ingestion.source import LANDING_FILE
from lakehouse.ingestion.source_tables import read_ledger
from lakehouse.lake import Lakehouse
from lakehouse.maintenance.shown_plan import Report, listing
from lakehouse.orchestration.dagster_instance import open_instance
from lakehouse.orchestration.lineage.materialization import SNAPSHOT_ID, materialized_tables
from lakehouse.orchestration.lineage.undo_by_rows import Inverse, inverse_of
from lakehouse.spec.metadata.commit_names import COMMIT_ID, STREAM_PREFIX
from lakehouse.spec.metadata.snapshot import RUN_ID, Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.table import Table

UNDONE_TAG = "lakehouse/undone"
"""Tag of a run that was undone: when."""
_LEDGER = "_landing"
_Place: TypeAlias = tuple[str, date | None]


@dataclass(frozen=True, slots=True)
class UndoneTable:
    """What undoing a run does to a table.

    Attributes:
        name: dotted.
        head: its current snapshot, the run's or a compaction of it.
        target: the snapshot that becomes current again; None: there was none, its rows are deleted.
        snapshots: of the run, newest first.
        compactions: snapshots since, which changed no row, and go with the run's.
        files_given_back: of a ledger: landing files that are again as before the run; it does not
            move back.
        files_left: of a ledger: landing files that another run has taken since.
        inverse: rows that go and come back, where others have changed other rows since; the table
            does not move back.
    """

    name: str
    head: int
    target: int | None
    snapshots: tuple[int, ...]
    compactions: tuple[int, ...] = ()
    files_given_back: int | None = None
    files_left: tuple[str, ...] = ()
    inverse: Inverse | None = None

    def said(self) -> str:
        """What goes beside the rows of one snapshot, in a few words."""
        parts = []
        if self.files_given_back is not None:
            parts.append(f"{self.files_given_back:,} files as before")
        elif self.inverse is not None:
            gone, back = self.inverse.gone.total(), self.inverse.back.total()
            parts.append(f"{gone:,} rows removed, {back:,} brought back")
        elif self.target is None:
            parts.append("no rows, as before")
        if self.files_left:
            parts.append(f"{len(self.files_left):,} taken since by others")
        if len(self.snapshots) > 1:
            parts.append(f"{len(self.snapshots)} snapshots")
        if self.compactions:
            parts.append("compacted")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Undo(Report):
    """A run that is undone.

    Attributes:
        run_id: of Dagster.
        tables: what becomes of each table that it wrote.
        together: whether they change in one transaction; else one after another, what is derived
            first.
        dry_run: nothing was changed.
    """

    run_id: str
    tables: tuple[UndoneTable, ...]
    together: bool
    dry_run: bool

    def title(self) -> str:
        """Which run."""
        would = "would be" if self.dry_run else "is"
        how = "in one transaction" if self.together else "one table after another"
        return f"Run {self.run_id} {would} undone, {how}"

    def facts(self) -> Iterator[tuple[str, object]]:
        """How to go on."""
        yield "tables", len(self.tables)
        if not self.dry_run:
            for table in self.tables:
                if table.files_given_back is None and table.target is not None:
                    yield "to redo", f"lakehouse rollback {table.name} {table.head} --force"

    def detail(self) -> RenderableType:
        """A line for each table."""
        lines = [(table.name, table.head, table.target, table.said()) for table in self.tables]
        return listing(("table", "#snapshot", "#becomes", ""), lines)

    def to_dict(self) -> dict[str, object]:
        return {
            "run_id": self.run_id,
            "together": self.together,
            "dry_run": self.dry_run,
            "tables": [
                {
                    "table": table.name,
                    "snapshot_id": table.head,
                    "becomes_snapshot_id": table.target,
                    "undone_snapshot_ids": list(table.snapshots),
                    "undone_compaction_ids": list(table.compactions),
                    "files_given_back": table.files_given_back,
                    "files_left": list(table.files_left),
                    "rows_removed": table.inverse and table.inverse.gone.total(),
                    "rows_brought_back": table.inverse and table.inverse.back.total(),
                }
                for table in self.tables
            ],
        }


def undo(
    lake: Lakehouse,
    run: str,
    tables: Sequence[str] = (),
    *,
    take_again: bool = True,
    by_rows: bool = False,
    dry_run: bool = False,
    instance: dg.DagsterInstance | None = None,
) -> Undo:
    """Return every table that a run wrote to what it was.

    It is one transaction where the catalog has those. Nothing is deleted: the run's snapshots stay
    until they expire. The run gets the tag `lakehouse/undone`, its assets an observation.

    Args:
        lake: the catalog that the pipeline writes to.
        run: Dagster's run id, or its first characters.
        tables: that it wrote; none: those that it materialized, and the ledgers of raw ones.
        take_again: whether ledgers are to forget it, so that landing files are taken again. What a
            stream has read its checkpoint says, which is not ours.
        by_rows: where others have changed a table since, take back the run's rows alone.
        dry_run: say what would be done, change nothing.
        instance: of Dagster; None: this project's.

    Raises:
        NotFoundError: no such run, or no instance of Dagster.
        InvalidInputError: it wrote no table that is still as it left it, or has not ended; it was a
            stream, and `take_again` asks for what it cannot give back.
        ValidationConflictError: somebody changed rows of one of the tables since, with `by_rows`
            the same rows; nothing was done.
        NoSuchSnapshotError: what one of the tables was before has expired; nothing was done.
    """
    with open_instance() if instance is None else nullcontext(instance) as instance:
        dagster_run = _run(instance, run)
        if not dagster_run.is_finished:
            raise InvalidInputError(
                f"run {dagster_run.run_id} has not ended, and would go on writing: "
                "terminate it first",
                run=dagster_run.run_id,
            )
        keys = materialized_tables(instance, dagster_run.run_id)
        names = list(tables) or _with_ledgers(lake, keys.values(), take_again=take_again)
        planned = plan(lake, dagster_run.run_id, names, by_rows=by_rows)
        if take_again:
            _refuse_streams(lake, planned)
        done = replace(planned, dry_run=dry_run)
        if not dry_run:
            execute(lake, planned)
            now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
            instance.add_run_tags(dagster_run.run_id, {UNDONE_TAG: now})
            written = {table.name: table for table in planned.tables}
            for key, name in keys.items():
                if name in written:
                    _observe(instance, key, dagster_run.run_id, written[name])
    return done


def _refuse_streams(lake: Lakehouse, planned: Undo) -> None:
    """Raise InvalidInputError for a table whose rows come from a stream: they would not again."""
    for table in planned.tables:
        metadata = lake.load_table(table.name).metadata
        names = [
            metadata.snapshot(snapshot_id).summary.get(COMMIT_ID, "")
            for snapshot_id in table.snapshots
        ]
        batches = [name.rpartition(":") for name in names if name.startswith(STREAM_PREFIX)]
        if batches:
            stream, first = batches[0][0], min(int(number) for _, _, number in batches)
            raise InvalidInputError(
                f"{table.name} was written by {stream}, whose checkpoint notes what was read: it "
                "would not come again. Undo the run with --no-take-again. To have the stream read "
                f"it once more, remove batch {first} and all after it from the folders offsets and "
                "commits of its checkpoint before it starts again",
                table=table.name,
                first_batch=first,
            )


def plan(lake: Lakehouse, run_id: str, names: Iterable[str], *, by_rows: bool = False) -> Undo:
    """What undoing a run would do to tables; those that it did not write are left out.

    Raises:
        InvalidInputError: it wrote none of them.
        ValidationConflictError: somebody changed rows of one of them since.
        NoSuchSnapshotError: what one of them was before has expired.
    """
    plans = []
    for name in names:
        if lake.table_exists(name):
            table = lake.load_table(name)
            plan = (
                _ledger_plan(table, run_id)
                if _is_ledger(table)
                else _table_plan(table, run_id, by_rows=by_rows)
            )
            plans += [] if plan is None else [plan]
    if not plans:
        raise InvalidInputError(
            f"run {run_id} wrote none of {', '.join(names) or 'the tables'}, or its snapshots are "
            "rolled back or expired: there is nothing to undo"
        )
    order = sorted(plans, key=lambda planned: planned.name.startswith("raw."))
    together = lake.catalog.commits_together or lake.catalog.records_transactions
    return Undo(run_id, tuple(order), together, dry_run=True)


def execute(lake: Lakehouse, planned: Undo) -> None:
    """Do what was planned.

    Raises:
        ValidationConflictError | CommitConflictError: somebody committed to one of the tables
            meanwhile; where it is one transaction nothing was done.
    """
    with ExitStack() as stack:
        together = stack.enter_context(lake.transaction()) if planned.together else None
        for part in planned.tables:
            table = lake.load_table(part.name) if together is None else together.table(part.name)
            head = table.current_snapshot()
            if head is None or head.snapshot_id != part.head:
                raise ValidationConflictError(
                    f"{part.name} was at snapshot {part.head} when this was planned, and is at "
                    f"{None if head is None else head.snapshot_id} now: plan it again",
                    table=part.name,
                )
            if part.files_given_back is not None:
                rows, files = _given_back(lake.load_table(part.name), planned.run_id)[:2]
                if files:
                    of_files = In(term=LANDING_FILE, literals=set(files))
                    table.overwrite(ledger_to_arrow(rows), of_files)
            elif part.inverse is not None:
                current = lake.load_table(part.name)
                where = part.inverse.where(current)
                rows = part.inverse.apply(current, table.scan(where).to_arrow())
                table.overwrite(rows, where)
            elif part.target is None:
                table.delete(AlwaysTrue())
            else:
                table.rollback_to(part.target)


def _table_plan(table: Table, run_id: str, *, by_rows: bool) -> UndoneTable | None:
    metadata = table.metadata
    line = _since_run(metadata, run_id)
    if not line:
        return None
    others = [snapshot for snapshot in line if snapshot.summary.get(RUN_ID) != run_id]
    changed = [snapshot for snapshot in others if snapshot.operation != "replace"]
    snapshots = tuple(
        snapshot.snapshot_id for snapshot in line if snapshot.summary.get(RUN_ID) == run_id
    )
    if changed and not by_rows:
        raise ValidationConflictError(
            f"{table.name} was changed since run {run_id}: {_described(changed)}. "
            "Nothing was undone. Undo that first, or take back the run's rows alone with "
            "--by-rows, or name the other tables with --table",
            table=table.name,
            snapshots=[snapshot.snapshot_id for snapshot in changed],
        )
    _check_kept(table, line[-1], run_id)
    if changed:
        inverse = inverse_of(table, run_id, line)
        return UndoneTable(table.name, line[0].snapshot_id, None, snapshots, inverse=inverse)
    return UndoneTable(
        table.name,
        line[0].snapshot_id,
        line[-1].parent_snapshot_id,
        snapshots,
        tuple(snapshot.snapshot_id for snapshot in others),
    )


def _check_kept(table: Table, first: Snapshot, run_id: str) -> None:
    """Refuse a run before which the table's snapshot is not kept any more."""
    before = first.parent_snapshot_id
    kept = first.is_first if before is None else table.metadata.snapshot_or_none(before)
    if not kept:
        raise NoSuchSnapshotError(
            f"{table.name}: snapshot {before or 'unknown'}, which was current before run {run_id}, "
            "has expired. Nothing was undone. Name the other tables with --table; materialize this "
            "one again",
            table=table.name,
            snapshot_id=before,
        )


def _since_run(metadata: TableMetadata, run_id: str) -> list[Snapshot]:
    """The snapshots of main from the newest to the first that the run wrote; empty: none of it."""
    line = list(metadata.ancestors(metadata.current_snapshot_id))
    written = [at for at, snapshot in enumerate(line) if snapshot.summary.get(RUN_ID) == run_id]
    return line[: written[-1] + 1] if written else []


def _ledger_plan(table: Table, run_id: str) -> UndoneTable | None:
    line = _since_run(table.metadata, run_id)
    if not line:
        return None
    for snapshot in line:
        if snapshot.summary.get(RUN_ID) == run_id:
            _check_kept(table, snapshot, run_id)
    _, files, left = _given_back(table, run_id)
    return UndoneTable(
        table.name,
        line[0].snapshot_id,
        None,
        tuple(snapshot.snapshot_id for snapshot in line if snapshot.summary.get(RUN_ID) == run_id),
        files_given_back=len(files),
        files_left=tuple(left),
    )


def _given_back(ledger: Table, run_id: str) -> tuple[list[LedgerRow], list[str], list[str]]:
    """Rows of landing files as they were before a run, these files, and files changed since."""
    names = LEDGER_SCHEMA.names
    before: dict[_Place, LedgerRow | None] = {}
    after: dict[_Place, LedgerRow | None] = {}
    for snapshot in reversed(_since_run(ledger.metadata, run_id)):
        if snapshot.summary.get(RUN_ID) != run_id:
            continue
        changes = ledger.changelog(
            snapshot.parent_snapshot_id, snapshot.snapshot_id, net=True
        ).to_arrow()
        gone, new = (
            ledger_from_arrow(changes.filter(pc.equal(changes["_change_type"], kind)).select(names))
            for kind in ("DELETE", "INSERT")
        )
        for row in gone:
            before.setdefault((row.landing_file, row.event_day), row)
            after[row.landing_file, row.event_day] = None
        for row in new:
            before.setdefault((row.landing_file, row.event_day), None)
            after[row.landing_file, row.event_day] = row
    files = {file for file, _ in before}
    if not files:
        return [], [], []
    now = {
        (row.landing_file, row.event_day): row
        for row in read_ledger(ledger, In(term=LANDING_FILE, literals=files))
    }
    left = {key[0] for key in before if now.get(key) != after.get(key)}
    restored = {key: before.get(key, now.get(key)) for key in now.keys() | before.keys()}
    rows = [row for key, row in restored.items() if key[0] not in left and row is not None]
    return rows, sorted(files - left), sorted(left)


def _is_ledger(table: Table) -> bool:
    return table.name.endswith(_LEDGER) and table.schema().column_names == LEDGER_SCHEMA.names


def _described(snapshots: Sequence[Snapshot]) -> str:
    texts = [
        f"{snapshot.operation} {snapshot.snapshot_id} of "
        f"{snapshot.committed_at:%Y-%m-%d %H:%M:%S} UTC by "
        + (f"run {snapshot.summary[RUN_ID]}" if RUN_ID in snapshot.summary else "no run of Dagster")
        for snapshot in snapshots
    ]
    more = f" and {len(texts) - 3} more" if len(texts) > 3 else ""
    return f"{', '.join(texts[:3])}{more}"


def _run(instance: dg.DagsterInstance, run: str) -> dg.DagsterRun:
    exact = instance.get_run_by_id(run)
    if exact is not None:
        return exact
    near = [
        dagster_run
        for dagster_run in instance.get_runs(limit=1000)
        if dagster_run.run_id.startswith(run)
    ]
    if len(near) != 1:
        what = "no run" if not near else f"{len(near)} of the last 1,000 runs"
        raise NotFoundError(f"{what} of this instance has an id that begins with {run!r}")
    return near[0]


def _with_ledgers(lake: Lakehouse, names: Iterable[str], *, take_again: bool) -> list[str]:
    known = list(dict.fromkeys(names))
    ledgers = [f"{name}{_LEDGER}" for name in known if lake.table_exists(f"{name}{_LEDGER}")]
    names = dict.fromkeys([*known, *ledgers])
    return [name for name in names if take_again or not name.endswith(_LEDGER)]


def _observe(
    instance: dg.DagsterInstance, key: dg.AssetKey, run_id: str, undone: UndoneTable
) -> None:
    instance.report_runless_asset_event(
        dg.AssetObservation(
            key,
            description=f"Run {run_id} was undone.",
            metadata={
                "lakehouse/undone_run": run_id,
                SNAPSHOT_ID: "none" if undone.target is None else str(undone.target),
            },
        )
    )
