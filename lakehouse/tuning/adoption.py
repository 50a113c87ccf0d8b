"""Adopting a layout: writers follow first, then old files are rewritten; measuring; undoing.

What there is to know of an adoption is a property of the table, so that any process goes on where
another stopped.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.errors import (
    CommitStateUnknownError,
    InvalidInputError,
    LakehouseError,
    TableAlreadyExistsError,
)
from lakehouse.evolution.update_partition_spec import UpdatePartitionSpec
from lakehouse.evolution.update_sort_order import UpdateSortOrder
from lakehouse.expressions.bound_filter import Bound
from lakehouse.lake import Lakehouse
from lakehouse.maintenance.compaction.compaction import CompactionResult, execute_compaction
from lakehouse.maintenance.compaction.compaction_plan import plan_compaction
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.maintenance.shown_plan import Progress, Report, human_bytes
from lakehouse.manifests.manifest_reader import ManifestReader, load_manifests
from lakehouse.manifests.manifest_writer import has_live
from lakehouse.scan.planner import ScanRequest, plan_scan
from lakehouse.scan.reports.listeners import silenced
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.manifests.data_file import STATUS_DELETED, DataFile
from lakehouse.spec.manifests.manifest_list import CONTENT_DATA_MANIFEST, ManifestFile
from lakehouse.spec.metadata.snapshot import OPERATION_REPLACE
from lakehouse.spec.table_properties import TableProperties
from lakehouse.table import Table
from lakehouse.tuning.layouts import Layout, Measured, Prices, Query, QueryCost, loss, slower
from lakehouse.tuning.pilot import confirm
from lakehouse.tuning.trial import Live, Trial, layout_of, measure_today, query_of, slower_by_clock

_UNNUMBERED, _DAY_S = 2, 24 * 3600
_COSTS = tuple(field.name for field in fields(QueryCost))
STATE = "lakehouse.tuning.state"
HISTORY, SCANS = "lakehouse.tuning", "ops.scans"
HISTORY_SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("why", pa.string()),
        pa.field("layout", pa.string()),
        pa.field("bytes_before", pa.int64()),
        pa.field("bytes_after", pa.int64()),
        pa.field("files_before", pa.int64()),
        pa.field("files_after", pa.int64()),
        pa.field("read_ms_before", pa.float64()),
        pa.field("read_ms_after", pa.float64()),
        pa.field("snapshot_id", pa.int64()),
    ]
)
"""What was tried and what came of it: a row for each step, in the table `lakehouse.tuning`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption(Report):
    """A step of an adoption.

    Attributes:
        action: `adopted` where old files wait, `kept` where the real table was measured and the
            layout stays, `undone` where it went.
        why: one line.
        waiting_files: still laid out as before.
        rewritten: by this step; None: nothing was.
        before, after: the real table, where it was measured.
    """

    identifier: Identifier
    action: str
    why: str
    layout: Layout
    waiting_files: int = 0
    rewritten: CompactionResult | None = None
    workload: tuple[Query, ...] = ()
    before: Measured | None = None
    after: Measured | None = None

    def title(self) -> str:
        return f"Layout of {self.identifier}: {self.action}"

    def to_dict(self) -> dict[str, object]:
        return {
            "table": str(self.identifier),
            "action": self.action,
            "why": self.why,
            **self.layout.to_dict(),
            "waiting_files": self.waiting_files,
            "rewritten": None if self.rewritten is None else self.rewritten.to_dict(),
            "before": None if self.before is None else self.before.to_dict(),
            "after": None if self.after is None else self.after.to_dict(),
            "snapshot_ids": [] if self.rewritten is None else list(self.rewritten.snapshot_ids),
        }

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "layout", self.layout.text()
        yield "why", self.why
        if self.rewritten is not None:
            done = self.rewritten
            yield "files", f"{done.rewritten_files:,} became {done.added_files:,}"
            sizes = human_bytes(done.rewritten_bytes), human_bytes(done.added_bytes)
            yield "bytes", f"{sizes[0]} -> {sizes[1]}"
        if self.waiting_files:
            yield "old files that wait", self.waiting_files
        if self.before is not None and self.after is not None:
            times = self.before.read_ms(self.workload), self.after.read_ms(self.workload)
            yield "queries of a day", f"{times[0]:,.1f} ms -> {times[1]:,.1f} ms of processor"


def adopt(table: Table, trial: Trial) -> Trial:
    """Make what a trial proposes the table's layout, in one commit; old files stay as they are.

    Files that came first are measured before (see `confirm`): they may choose another order, or
    refuse.

    Returns:
        The trial, confirmed or refused; of a refused one nothing was adopted.

    Raises:
        InvalidInputError: the trial is against it, or another adoption is under way.
        StorageError, NoSuchFileError, CorruptMetadataError: the files cannot be read.
    """
    if not trial.verdict.adopt or trial.proposed is None or trial.today is None:
        raise InvalidInputError(
            f"{table.name}: the trial proposes no layout: {trial.verdict.why}", table=table.name
        )
    if is_adopting(table):
        raise InvalidInputError(
            f"{table.name}: another layout is being adopted; let it be rewritten or undo it with "
            "lakehouse tune --undo",
            table=table.name,
        )
    trial = confirm(table, trial)
    if not trial.verdict.adopt or trial.proposed is None or trial.today is None:
        return trial
    layout, now = trial.proposed.layout, layout_of(table.metadata)
    state = {
        "before": {
            "partition_by": now.partition_by,
            "sort_by": now.sort_by,
            "properties": {name: table.properties.get(name) for name in layout.properties},
        },
        "layout": layout.to_dict(),
        "sequence_number": table.metadata.last_sequence_number,
        "rows": trial.rows,
        "row_ns": [trial.today.row_ns, trial.proposed.row_ns],
        "write_ns": [trial.today.write_ns, trial.proposed.write_ns],
        "bytes": trial.live_bytes,
        "files": trial.today.files,
        "queries": [
            [query.where, query.columns, query.runs, [getattr(cost, name) for name in _COSTS]]
            for query, cost in zip(trial.workload, trial.today.queries, strict=True)
        ],
        "snapshot_id": table.metadata.current_snapshot_id,
        "kept": False,
    }  # fmt: skip
    _follow(table, layout, {**layout.properties, STATE: orjson.dumps(state).decode()})
    return trial


def step(
    table: Table, *, budget_bytes: int | None = None, progress: Progress | None = None
) -> Adoption:
    """Rewrite old files within a budget, a commit a group; measure the table once none is left.

    A layout that does not help on the real table is undone.

    Raises:
        InvalidInputError: no layout is being adopted.
        what `execute_compaction` raises; what was committed until then stays.
    """
    state = _state(table)
    layout = _layout(state["layout"])
    old = waiting(table)
    rewritten = None
    if old:
        target = TableProperties(table.properties).target_file_size_bytes
        options = CompactionOptions(
            rewrite_all=True,
            files=old,
            sort_by=layout_of(table.metadata).sort_by,
            budget_bytes=budget_bytes,
            target_file_size_bytes=min(target, budget_bytes or target),
            groups_per_commit=1,
        )
        plan = plan_compaction(
            table.catalog, table.identifier, options, environment=table.environment
        )
        rewritten = execute_compaction(
            table.catalog, plan, environment=table.environment, progress=progress
        )
        table.refresh()
        old = waiting(table)
    if old:
        why = "old files wait for the next run"
        if rewritten is not None and rewritten.stopped:
            why = rewritten.stopped
        elif rewritten is not None and not rewritten.rewritten_files:
            why = f"each group of old files is larger than the budget of {budget_bytes:,} bytes"
        return Adoption(
            identifier=table.identifier,
            action="adopted",
            why=why,
            layout=layout,
            waiting_files=len(old),
            rewritten=rewritten,
        )
    return _judged(table, state, layout, rewritten)


def undo(table: Table, why: str = "requested", old: Sequence[DataFile] = ()) -> Adoption:
    """Spec, order and properties are again what they were; data stay as they are.

    Args:
        table: whose layout was adopted.
        why: for the report.
        old: files with the rows of the live ones, copies of which take their place.

    Raises:
        InvalidInputError: no layout was adopted.
        InvalidPartitionSpecError: a column of the layout before is gone.
    """
    state = _state(table)
    before = state["before"]
    properties = {name: text for name, text in before["properties"].items() if text is not None}
    gone = [name for name, text in before["properties"].items() if text is None]
    was = Layout(tuple(before["partition_by"]), tuple(before["sort_by"]))
    _follow(table, was, properties, [*gone, STATE], old)
    return Adoption(identifier=table.identifier, action="undone", why=why, layout=was)


def waiting(table: Table) -> frozenset[str]:
    """Paths of the live data files that were written before the layout was adopted."""
    boundary = _state(table)["sequence_number"]
    return _live(table, _data_manifests(table), lambda numbers: pc.less_equal(numbers, boundary))


def _data_manifests(table: Table) -> list[ManifestFile]:
    snapshot = table.current_snapshot()
    listed = [] if snapshot is None else load_manifests(table.storage, snapshot)
    return [
        manifest
        for manifest in listed
        if manifest.content == CONTENT_DATA_MANIFEST and has_live(manifest)
    ]


def _live(
    table: Table,
    manifests: Sequence[ManifestFile],
    wanted: Callable[[pa.ChunkedArray], pa.ChunkedArray],
) -> frozenset[str]:
    """Paths of live data files, by the sequence numbers of the snapshots that added them."""
    reader = ManifestReader.of(table.storage, table.metadata)
    paths: set[str] = set()
    for entries in reader.entries_of_all(manifests):
        rows = entries.table
        live = pc.not_equal(rows["status"], STATUS_DELETED)
        chosen = pc.and_(live, wanted(rows["file_sequence_number"]))
        paths.update(rows.filter(chosen)["file_path"].to_pylist())
    return frozenset(paths)


def is_adopting(table: Table) -> bool:
    """Whether a layout was adopted and was not judged on the real table yet."""
    return STATE in table.properties and not _state(table)["kept"]


def record(lake: Lakehouse, report: Trial | Adoption, snapshot_id: int | None) -> None:
    """Keep a step as a row of `lakehouse.tuning`, which is created where it is missing."""
    proposed: Measured | None
    if isinstance(report, Trial):
        action, why = "tried", report.verdict.why
        layout = report.today.layout if report.today else Layout()
        if report.verdict.adopt and report.proposed is not None:
            action, layout = "proposed", report.proposed.layout
        before, proposed = report.today, report.proposed
    else:
        action, why, layout = report.action, report.why, report.layout
        before, proposed = report.before, report.after
    row = {
        "at": lake.environment.now_ms() * 1000,
        "table": str(report.identifier),
        "action": action,
        "why": why,
        "layout": layout.text(),
        "snapshot_id": snapshot_id,
    }
    for name, costs in (("before", before), ("after", proposed)):
        row |= {
            f"bytes_{name}": None if costs is None else round(costs.bytes),
            f"files_{name}": None if costs is None else round(costs.files),
            f"read_ms_{name}": None if costs is None else costs.read_ms(report.workload),
        }
    if not lake.table_exists(HISTORY):
        with suppress(TableAlreadyExistsError):
            lake.create_table(HISTORY, HISTORY_SCHEMA)
    with silenced():
        lake.load_table(HISTORY).append(pa.Table.from_pylist([row], schema=HISTORY_SCHEMA))


def is_due(lake: Lakehouse, table: Table, *, adopts: bool) -> bool:
    """Whether an unattended trial or step is due: one a day, by `lakehouse.tuning`.

    What was judged on the real table was weighed by what it saves within a horizon. So one that
    adopts comes again after it, or when the table is twice as large: rewriting stays in proportion.
    """
    if not lake.table_exists(HISTORY):
        return True
    now_ms = lake.environment.now_ms()
    quoted = table.name.replace("'", "''")
    since = dt.datetime.fromtimestamp(now_ms / 1000 - Prices().days * _DAY_S, dt.UTC)
    where = f"\"table\" = '{quoted}' and at > '{since.isoformat()}'"
    with silenced():
        rows = lake.load_table(HISTORY).scan(where=where).to_arrow().sort_by("at").to_pylist()
    if rows and rows[-1]["at"].timestamp() > now_ms / 1000 - _DAY_S:
        return False
    judged = [row for row in rows if row["action"] in ("kept", "undone")]
    if not adopts or not judged or is_adopting(table):
        return True
    before, after = judged[-1]["bytes_before"], judged[-1]["bytes_after"]
    return before is not None and _size(table) >= 2 * max(before, after)


def _size(table: Table) -> int:
    snapshot = table.current_snapshot()
    return 0 if snapshot is None else int(snapshot.summary.get("total-files-size", 0))


def last_steps(lake: Lakehouse) -> dict[str, dict[str, Any]]:
    """The last row of `lakehouse.tuning` of each table, by the table's name."""
    if not lake.table_exists(HISTORY):
        return {}
    with silenced():
        rows = lake.load_table(HISTORY).scan().to_arrow().sort_by("at")
    return {row["table"]: row for row in rows.to_pylist()}


def recorded_scans(lake: Lakehouse) -> list[dict[str, Any]]:
    """The scan reports of the table `ops.scans`; none where there is none."""
    if not lake.table_exists(SCANS):
        return []
    with silenced():
        return list(lake.load_table(SCANS).scan().to_arrow().to_pylist())


def _judged(
    table: Table, state: Mapping[str, Any], layout: Layout, rewritten: CompactionResult | None
) -> Adoption:
    """Keep the layout where the real table says so, else undo it."""
    schema = table.metadata.schema()
    bound_queries = [query_of(where, schema, runs, of) for where, of, runs, _ in state["queries"]]
    queries = tuple(query for query, _ in bound_queries)
    rows, live, costs = _rewritten_today(table, state["sequence_number"], bound_queries)
    # nor are rows that came meanwhile and that compaction mixed with rewritten ones
    grown = state["rows"] / max(1, rows)
    before = Measured(
        layout=_layout(state["before"] | {"properties": {}}),
        bytes=state["bytes"],
        files=state["files"],
        row_ns=state["row_ns"][0],
        write_ns=state["write_ns"][0],
        queries=tuple(
            QueryCost(**dict(zip(_COSTS, numbers, strict=False)))
            for *_, numbers in state["queries"]
        ),
    )
    after = Measured(
        layout=layout,
        bytes=live.bytes * grown,
        files=live.files,
        row_ns=state["row_ns"][1],
        write_ns=state["write_ns"][1],
        queries=tuple(_scaled(cost, grown) for cost in costs),
    )
    old = None if state["kept"] else _files_before(table, state)
    worse = [queries[at].where for at in slower(after, before)]
    if not worse and old is not None:
        worse = slower_by_clock(table, bound_queries, state["snapshot_id"])
    gain = loss(after, before, queries)
    if worse or gain >= 0 or (after.bytes > before.bytes and rows == state["rows"]):
        why = "the real table gains nothing"
        if worse:
            why = f"{worse[0]} is more than 5 % slower on the real table"
        elif gain < 0:
            why = f"the real table takes {after.bytes / max(1, before.bytes):.2f} x the bytes"
        undone = undo(table, why, old or ())
        action, why, layout = undone.action, undone.why, undone.layout
    else:
        action = "kept"
        ratio = after.bytes / max(1, before.bytes), after.read_ms(queries) / before.read_ms(queries)
        why = f"the real table has {ratio[0]:.2f} x the bytes and {ratio[1]:.2f} x the read time"
        if not state["kept"]:
            state_text = orjson.dumps({**state, "kept": True}).decode()
            table.set_properties({STATE: state_text})
    return Adoption(
        identifier=table.identifier,
        action=action,
        why=why,
        layout=layout,
        rewritten=rewritten,
        workload=queries,
        before=before,
        after=after,
    )


def _rewritten_today(
    table: Table, boundary: int, workload: Sequence[tuple[Query, Bound]]
) -> tuple[int, Live, list[QueryCost]]:
    """The real table without what others added since: their small files are no layout's fault."""
    others = [
        snapshot
        for snapshot in table.metadata.snapshots
        if snapshot.sequence_number > boundary and snapshot.operation != OPERATION_REPLACE
    ]
    numbers = pa.array([snapshot.sequence_number for snapshot in others], pa.int64())
    ids = {snapshot.snapshot_id for snapshot in others}
    listed = _data_manifests(table)
    added = _live(table, listed, lambda values: pc.is_in(values, value_set=numbers))
    most = max(1, sum(manifest.added_snapshot_id not in ids for manifest in listed))
    rows, live, costs = measure_today(table, workload, added)
    return rows, live, [replace(cost, manifests=min(cost.manifests, most)) for cost in costs]


def _files_before(table: Table, state: Mapping[str, Any]) -> list[DataFile] | None:
    """The data files of before the adoption, where nothing but rewriting came since.

    None: other rows came, or deletes; files of v3 tables, whose rows are numbered, stay as well.
    """
    metadata = table.metadata
    before = metadata.snapshot_or_none(state.get("snapshot_id") or 0)
    since = list(
        itertools.takewhile(lambda snapshot: snapshot != before, reversed(table.history()))
    )
    if (
        before is None
        or metadata.format_version > _UNNUMBERED
        or len(since) == len(table.history())
    ):
        return None
    if any(snapshot.operation != OPERATION_REPLACE for snapshot in since):
        return None
    tasks = _tasks_of(table, before.snapshot_id)
    return None if any(task.deletes for task in tasks) else [task.data_file for task in tasks]


def _tasks_of(table: Table, snapshot_id: int | None) -> list[FileScanTask]:
    """Of a snapshot, the current one by default, with the metrics of its files."""
    request = ScanRequest(
        metadata=table.metadata, snapshot_id=snapshot_id, current_schema=True, include_metrics=True
    )
    return list(plan_scan(request, table.storage).tasks)


def _follow(
    table: Table,
    layout: Layout,
    properties: Mapping[str, str],
    gone: Sequence[str] = (),
    old: Sequence[DataFile] = (),
) -> None:
    """One commit: spec, sort order and properties that writers follow, and files to go back to."""
    now = layout_of(table.metadata)
    transaction = table.transaction()
    if layout.partition_by != now.partition_by:
        changes = UpdatePartitionSpec(table.metadata).set(*layout.partition_by).changes()
        transaction.update(changes.updates, changes.requirements)
    if layout.sort_by != now.sort_by:
        order = UpdateSortOrder(table.metadata)
        changes = (order.set(*layout.sort_by) if layout.sort_by else order.clear()).changes()
        transaction.update(changes.updates, changes.requirements)
    if properties:
        transaction.set_properties(properties)
    if gone:
        transaction.remove_properties(gone)
    copies: list[DataFile] = []
    try:
        if old:
            copies += _copied(table, old)
            live = [task.data_file for task in _tasks_of(table, None)]
            transaction.rewrite_files(live, copies)
        transaction.commit()
    except CommitStateUnknownError:
        raise
    except LakehouseError:
        table.storage.delete([file.file_path for file in copies])
        raise
    table.refresh()


def _copied(table: Table, files: Sequence[DataFile]) -> Iterator[DataFile]:
    """The same files by other names: what a snapshot removed, its expiry may delete."""
    for file in files:
        folder, _, name = file.file_path.rpartition("/")
        path = f"{folder}/{table.environment.new_uuid()}-{name[-40:]}"
        table.storage.write(path, table.storage.read(file.file_path))
        yield replace(file, file_path=path)


def _state(table: Table) -> dict[str, Any]:
    text = table.properties.get(STATE)
    if text is None:
        raise InvalidInputError(
            f"{table.name}: no layout was adopted here; lakehouse tune {table.name} --apply "
            "adopts one",
            table=table.name,
        )
    try:
        return dict(orjson.loads(text))
    except (orjson.JSONDecodeError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{table.name}: property {STATE} is not what lakehouse tune wrote ({error}); remove it",
            table=table.name,
        ) from error


def _layout(layout: Mapping[str, Any]) -> Layout:
    return Layout(tuple(layout["partition_by"]), tuple(layout["sort_by"]), layout["properties"])


def _scaled(cost: QueryCost, by: float) -> QueryCost:
    sizes = ("files", "footers", "groups", "rows", "manifests")
    return replace(cost, **{name: getattr(cost, name) * min(1.0, by) for name in sizes})
