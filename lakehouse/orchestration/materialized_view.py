"""Materialized views of the catalog: a view, its rows in a table, and how fresh they are.

After Iceberg's draft: the view keeps the SELECT and names its storage table, whose snapshots say
from which snapshots of the sources they were computed. The draft is not settled, so both are kept
behind our prefix. The view alone decides; no pipeline declares it, and no run of Dagster is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, cast

from pyiceberg.expressions import AlwaysTrue
from rich.console import RenderableType

from lakehouse.errors import (
    CommitConflictError,
    InvalidInputError,
    InvalidViewError,
    LakehouseError,
    NoSuchTableError,
    NotFoundError,
    TableAlreadyExistsError,
)
from lakehouse.incremental_queries import Refusal
from lakehouse.ingestion.stamp import AUDIT_BRANCH, RunStamp
from lakehouse.lake import Lakehouse
from lakehouse.maintenance.shown_plan import Report, listing
from lakehouse.orchestration.assets.derived_table import Computation, DerivedTable
from lakehouse.orchestration.assets.frames import EngineName, open_engine
from lakehouse.orchestration.assets.incremental import DeltaWrite, Refresh, RefreshName, ResultDelta
from lakehouse.orchestration.assets.sql_model import SqlModel
from lakehouse.orchestration.assets.staleness import (
    RefreshState,
    refresh_state,
    refresh_states,
    snapshots_since,
)
from lakehouse.orchestration.lineage.trace import Lineage, Recomputed, read_snapshot
from lakehouse.spec.metadata.snapshot import OPERATION_REPLACE, REFRESH_STATE, RUN_ID, Snapshot
from lakehouse.spec.views.view_metadata import OF_VIEW, STORAGE_TABLE
from lakehouse.table import Table
from lakehouse.view import SPARK, View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFRESH, ENGINE = "lakehouse.mv.mode", "lakehouse.mv.engine"
"""Properties of a view: how its rows are brought up to date, and by what."""
_LAYOUT = "partition_by", "sort_by"
_ABANDONED_MS = 86_400_000
"""A refresh whose branch is as old has died."""


@dataclass(frozen=True, slots=True)
class SourceLag:
    """How far a materialized view is behind one of its sources.

    Attributes:
        snapshot_id: that it was computed from; None: the source had none, or it never was computed.
        head: current snapshot of the source.
        snapshots: that have changed rows since; None: the history between is gone.
        seconds: since the oldest of these was committed.
    """

    snapshot_id: int | None
    head: int | None
    snapshots: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Freshness(Report):
    """Whether the rows of a materialized view are the answer of its SELECT now.

    Attributes:
        view: name of the view.
        storage: name of the table that has its rows.
        fresh: they are.
        reason: why not; empty where they are.
        sources: by name.
        refreshed_ms: when the rows were computed last; None: never.
    """

    view: str
    storage: str
    fresh: bool
    reason: str
    sources: Mapping[str, SourceLag]
    refreshed_ms: int | None

    @property
    def seconds_behind(self) -> float:
        """Since the oldest change that is not in the rows; 0 where none is missing."""
        return max((source.seconds for source in self.sources.values()), default=0.0)

    def title(self) -> str:
        """In a sentence."""
        return f"{self.view} is " + ("fresh" if self.fresh else f"not fresh: {self.reason}")

    def facts(self) -> Iterator[tuple[str, object]]:
        """Where the rows are."""
        yield "storage table", self.storage
        yield "seconds behind", round(self.seconds_behind, 1)

    def detail(self) -> RenderableType:
        """A line for each source."""
        lines = [
            (
                name,
                source.snapshot_id,
                source.head,
                "unknown" if source.snapshots is None else source.snapshots,
            )
            for name, source in sorted(self.sources.items())
        ]
        return listing(("source", "#computed from", "#is at", "#snapshots behind"), lines)

    def to_dict(self) -> dict[str, object]:
        return {
            "view": self.view,
            "storage_table": self.storage,
            "fresh": self.fresh,
            "reason": self.reason,
            "refreshed_ms": self.refreshed_ms,
            "seconds_behind": self.seconds_behind,
            "sources": {
                name: {
                    "snapshot_id": source.snapshot_id,
                    "current_snapshot_id": source.head,
                    "snapshots_behind": source.snapshots,
                    "seconds_behind": source.seconds,
                }
                for name, source in sorted(self.sources.items())
            },
        }


class MaterializedView:
    """A materialized view, as its view and its storage table are now.

    Args:
        lake: where it is.
        name: of the view.

    Raises:
        NoSuchViewError: there is none.
        InvalidViewError: it is a view without rows of its own.
    """

    def __init__(self, lake: Lakehouse, name: str) -> None:
        self._lake, self._view = lake, lake.load_view(name)
        self.name = self._view.name
        if STORAGE_TABLE not in self._view.properties:
            raise InvalidViewError(
                f"{self.name} is a view without rows of its own: it has no property "
                f"{STORAGE_TABLE}",
                view=self.name,
            )
        self.storage = self._view.properties[STORAGE_TABLE]

    @classmethod
    def create(
        cls,
        lake: Lakehouse,
        name: str,
        sql: str,
        *,
        refresh: RefreshName = "auto",
        engine: EngineName = "duckdb",
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        storage_table: str = "",
        session: Callable[[], SparkSession] | None = None,
    ) -> MaterializedView:
        """Create one, in one commit. It has rows after its first refresh.

        >>> from lakehouse.orchestration import MaterializedView
        >>> sql = "SELECT user_id, count(*) AS events FROM raw.events GROUP BY user_id"
        >>> users = MaterializedView.create(lake, "marts.users", sql, refresh="incremental")
        >>> users.refresh().mode, users.freshness().fresh
        ('full', True)
        >>> lake.load_table(users.storage).scan().count()
        2

        Args:
            lake: the catalog.
            name: dotted name of the view.
            sql: a SELECT of Spark SQL, which names its tables as `namespace.name`.
            refresh: as of an `SqlModel`.
            engine: that computes it.
            partition_by: partition terms of the storage table.
            sort_by: sort terms of it.
            storage_table: its name; by default that of the view and `_storage`.
            session: gives the session, of Spark alone.

        Raises:
            InvalidInputError: the SELECT cannot be computed by the engine, or with
                `incremental_strict` not be followed.
            NoSuchTableError: a source is no table.
            ViewAlreadyExistsError | TableAlreadyExistsError: the name, or that of the storage
                table, is taken.
        """
        storage = storage_table or f"{name}_storage"
        properties = {STORAGE_TABLE: storage, REFRESH: refresh, ENGINE: engine}
        given = zip(_LAYOUT, (partition_by, sort_by), strict=True)
        properties |= {f"lakehouse.mv.{key}": "; ".join(terms) for key, terms in given if terms}
        table = _definition(name, sql, properties)
        for source in table.inputs:
            if not lake.table_exists(source):
                what = "a view: name the storage table of a materialized one, or its tables"
                raise NoSuchTableError(
                    f"{name} reads {source}, which "
                    + (f"is {what}" if lake.view_exists(source) else "does not exist"),
                    table=source,
                )
        if refresh == "incremental_strict":
            _refuse_unfollowed(lake, table)
        schema = table.output_schema(lake, _session(session))
        if lake.table_exists(storage) or lake.view_exists(storage):
            raise TableAlreadyExistsError(
                f"{storage}, which is to keep the rows of {name}, exists already", table=storage
            )
        lake.create_view(name, sql, schema, properties=properties)
        return cls(lake, name)

    @classmethod
    def of(cls, lake: Lakehouse, name: str) -> MaterializedView | None:
        """That of a name; None where the catalog has none of it.

        >>> from lakehouse.orchestration import MaterializedView
        >>> MaterializedView.of(lake, "raw.events") is None
        True
        """
        if "." not in name or not lake.view_exists(name):
            return None
        return cls(lake, name) if STORAGE_TABLE in lake.load_view(name).properties else None

    @classmethod
    def all_of(cls, lake: Lakehouse) -> list[MaterializedView]:
        """Those of a catalog, each behind the ones whose rows it reads.

        >>> from lakehouse.orchestration import MaterializedView
        >>> sql = "SELECT user_id, count(*) AS n FROM raw.events GROUP BY user_id"
        >>> users = MaterializedView.create(lake, "marts.users", sql)
        >>> _ = users.refresh()
        >>> sql = f"SELECT max(n) AS most FROM {users.storage}"
        >>> _ = MaterializedView.create(lake, "marts.best", sql)
        >>> [view.name for view in MaterializedView.all_of(lake)]
        ['marts.users', 'marts.best']

        Raises:
            InvalidInputError: some read each other.
        """
        views = map(lake.load_view, lake.list_views())
        kept = [view for view in views if STORAGE_TABLE in view.properties]
        by_storage = {view.properties[STORAGE_TABLE]: view for view in kept}
        order = TopologicalSorter(
            {name: _reads(view) & by_storage.keys() for name, view in by_storage.items()}
        )
        try:
            return [cls(lake, by_storage[name].name) for name in order.static_order()]
        except CycleError as error:
            raise InvalidInputError(f"they read each other: {', '.join(error.args[1])}") from error

    def view(self) -> View:
        """Its view as it was loaded: the SELECT, which engines that know no better run each time.

        >>> from lakehouse.orchestration import MaterializedView
        >>> sql = "SELECT max(event_ts) AS last FROM raw.events"
        >>> MaterializedView.create(lake, "marts.last", sql).view().sql()
        'SELECT max(event_ts) AS last FROM raw.events'
        """
        return self._view

    def freshness(self) -> Freshness:
        """Whether its rows are those of its SELECT over the sources as they are; from metadata.

        Snapshots of compaction change no rows, and count for nothing.

        >>> from lakehouse.orchestration import MaterializedView
        >>> sql = "SELECT user_id, count(*) AS n FROM raw.events GROUP BY user_id"
        >>> users = MaterializedView.create(lake, "marts.users", sql)
        >>> users.freshness().reason
        'it has never been refreshed'
        >>> _ = users.refresh()
        >>> _ = events.append(more)
        >>> lag = users.freshness()
        >>> lag.reason, lag.sources["raw.events"].snapshots
        ('raw.events has changed', 1)

        Raises:
            NoSuchTableError: a source is not there any more.
        """
        definition, storage = self.definition(), self._storage()
        stale, state = definition.staleness(self._lake), refresh_state(storage)
        now = self._lake.environment.now_ms()
        sources = {}
        for name, head in stale.inputs.items():
            metadata = self._lake.load_table(name).metadata
            since = None if state is None else state.inputs.get(name)
            later = snapshots_since(metadata, since)
            changed = [
                snapshot for snapshot in later or () if snapshot.operation != OPERATION_REPLACE
            ]
            seconds = max(0, now - changed[-1].timestamp_ms) / 1000 if changed else 0.0
            sources[name] = SourceLag(since, head, None if later is None else len(changed), seconds)
        behind = [name for name, source in sources.items() if source.snapshots != 0]
        reason = ", ".join(behind) + " has changed" if behind else ""
        if state is None or storage is None:
            reason = "it has never been refreshed"
        elif stale.redefined:
            reason = "its SELECT is another one than that of its rows"
        newest = None if storage is None else storage.current_snapshot()
        refreshed = None if newest is None or state is None else newest.timestamp_ms
        return Freshness(self.name, self.storage, not reason, reason, sources, refreshed)

    def lineage(self) -> Lineage:
        """From which snapshots its rows were computed, all at one moment.

        >>> from lakehouse.orchestration import MaterializedView
        >>> sql = "SELECT user_id, count(*) AS n FROM raw.events GROUP BY user_id"
        >>> users = MaterializedView.create(lake, "marts.users", sql)
        >>> _ = users.refresh()
        >>> [source.table for source in users.lineage().inputs]
        ['raw.events']

        Raises:
            NotFoundError: it has never been refreshed, or that snapshot is gone.
        """
        storage = self._storage()
        metadata = None if storage is None else storage.metadata
        line = () if metadata is None else metadata.ancestors(metadata.current_snapshot_id)
        written = next((snapshot for snapshot in line if REFRESH_STATE in snapshot.summary), None)
        if written is None:
            raise NotFoundError(f"{self.name} has no rows yet: it was never refreshed")
        state = RefreshState.from_json(written.summary[REFRESH_STATE])
        return Lineage(
            asset_key=self.name.replace(".", "/"),
            partition=None,
            table=self.storage,
            run_id=written.summary.get(RUN_ID, ""),
            materialized_at=written.committed_at,
            snapshot_id=written.snapshot_id,
            operation=str(written.operation),
            expired=False,
            inputs=tuple(
                read_snapshot(self._lake, source, snapshot_id)
                for source, snapshot_id in sorted(state.inputs.items())
            ),
        )

    def recompute(self, lineage: Lineage, session: Callable[[], SparkSession]) -> Recomputed:
        """Its rows from the snapshots that were read for them; nothing is written.

        >>> from lakehouse.orchestration import MaterializedView
        >>> sql = "SELECT user_id, count(*) AS n FROM raw.events GROUP BY user_id"
        >>> users = MaterializedView.create(lake, "marts.users", sql)
        >>> _ = users.refresh()
        >>> users.recompute(users.lineage(), lambda: None).rows.read_all().num_rows
        2

        Args:
            lineage: of this view.
            session: gives the session, of Spark alone.

        Raises:
            InvalidInputError: its SELECT is another one by now.
        """
        definition = self.definition()
        if definition.staleness(self._lake).redefined:
            raise InvalidInputError(
                f"the SELECT of {self.name} is another one than that of its rows: refresh it first",
                view=self.name,
            )
        inputs = {source.table: source.snapshot_id for source in lineage.inputs}
        engine = open_engine(definition.engine, session)
        rows = definition.computed(engine, definition.inputs_at(self._lake, inputs, None))
        return Recomputed(rows, AlwaysTrue())

    def refresh(
        self,
        *,
        full: bool = False,
        session: Callable[[], SparkSession] | None = None,
        run_id: str = "",
    ) -> Refresh:
        """Bring the rows up to date: one snapshot, which readers see whole or not at all.

        >>> from lakehouse.orchestration import MaterializedView
        >>> sql = "SELECT user_id, count(*) AS n FROM raw.events GROUP BY user_id"
        >>> users = MaterializedView.create(lake, "marts.users", sql, refresh="incremental")
        >>> users.refresh().reason
        'the table has not been computed yet'
        >>> _ = events.append(more)
        >>> users.refresh().mode, users.refresh().reason
        ('incremental', 'nothing has been committed to its sources')

        Args:
            full: compute it again, whatever has changed.
            session: gives the session, of Spark alone.
            run_id: of Dagster's run that refreshes it, for the snapshot's summary.

        Returns:
            What was done and why.

        Raises:
            InvalidInputError: it is to follow strictly, and cannot.
            CommitConflictError | ValidationConflictError: another refresh came first.
            NoSuchTableError: a source is not there any more.
            TableAlreadyExistsError: what has the name of the storage table is not ours.
        """
        definition, storage = self.definition(), self._storage()
        stale, state = definition.staleness(self._lake), refresh_state(storage)
        same = state is not None and dict(state.inputs) == dict(stale.inputs)
        if same and not full and not stale.redefined:
            return Refresh(mode="incremental", reason="nothing has been committed to its sources")
        if storage is not None:
            self._drop_abandoned(storage)
        engine = open_engine(definition.engine, _session(session))
        work = Computation(definition, self._lake, engine, stale, None)
        delta = work.delta(full=full)
        asset = self.name.replace(".", "/")
        by_nobody = _Stamp(str(self._lake.environment.new_uuid()), asset)
        stamp = RunStamp(run_id, asset) if run_id else by_nobody
        write = work.write(stamp, delta, lambda _: None)
        moved = CommitConflictError(
            f"{self.name} was refreshed meanwhile: refresh it again", view=self.name
        )

        def unmoved(snapshot: Snapshot) -> tuple[()]:
            before = refresh_states(write.table.metadata, snapshot.parent_snapshot_id)
            if next(before, None) != state:
                raise moved
            return ()

        if isinstance(write, DeltaWrite) and isinstance(delta, ResultDelta):
            if delta.before != state:
                raise moved
            write.published()
            done = delta.refresh
        else:
            write.staged().publish(unmoved)
            done = cast("Refresh", delta)
        return replace(done, seconds=work.seconds())

    def drop(self) -> None:
        """Drop the view, then its rows; their files stay until orphans are removed.

        >>> from lakehouse.orchestration import MaterializedView
        >>> sql = "SELECT user_id, count(*) AS n FROM raw.events GROUP BY user_id"
        >>> MaterializedView.create(lake, "marts.users", sql).drop()
        >>> lake.list_views()
        []
        """
        storage = self._storage()
        self._lake.drop_view(self.name)
        if storage is not None:
            self._lake.drop_table(self.storage)

    def definition(self) -> DerivedTable:
        """How its storage table is computed.

        >>> from lakehouse.orchestration import MaterializedView
        >>> sql = "SELECT max(event_ts) AS last FROM raw.events"
        >>> MaterializedView.create(lake, "marts.last", sql).definition().inputs
        ('raw.events',)
        """
        return _definition(self.name, self._view.sql(SPARK), self._view.properties)

    def _storage(self) -> Table | None:
        if not self._lake.table_exists(self.storage):
            return None
        table = self._lake.load_table(self.storage)
        if table.properties.get(OF_VIEW) != self.name:
            raise TableAlreadyExistsError(
                f"{self.storage} has the name of the storage table of {self.name}, and is another "
                f"table: it has no property {OF_VIEW} = {self.name}",
                table=self.storage,
            )
        return table

    def _drop_abandoned(self, storage: Table) -> None:
        """Branches of refreshes that died."""
        oldest = self._lake.environment.now_ms() - _ABANDONED_MS
        for name, ref in storage.refs().items():
            written = storage.metadata.snapshot(ref.snapshot_id).timestamp_ms
            if name.startswith(AUDIT_BRANCH) and written < oldest:
                storage.remove_ref(name)


class _Stamp(RunStamp):
    """Of a refresh that no run of Dagster makes."""

    def summary(self, replaced: Sequence[date] | None = None) -> dict[str, str]:  # noqa: ARG002
        """No entries."""
        return {}


def _definition(name: str, sql: str, properties: Mapping[str, str]) -> DerivedTable:
    layout: dict[str, Any] = {
        key: tuple(filter(None, properties.get(f"lakehouse.mv.{key}", "").split("; ")))
        for key in _LAYOUT
    }
    model = SqlModel(
        name=properties[STORAGE_TABLE],
        sql=sql,
        engine=cast("EngineName", properties.get(ENGINE, "duckdb")),
        refresh=cast("RefreshName", properties.get(REFRESH, "auto")),
        table_properties={OF_VIEW: name},
        **layout,
    )
    table = model.table()
    if name in table.inputs or properties[STORAGE_TABLE] in table.inputs:
        raise InvalidInputError(f"{name} reads itself", view=name)
    return table


def _reads(view: View) -> set[str]:
    try:
        return set(_definition(view.name, view.sql(SPARK), view.properties).inputs)
    except LakehouseError:  # its refresh says so
        return set()


def _refuse_unfollowed(lake: Lakehouse, table: DerivedTable) -> None:
    query = table.query
    if query is None:
        return
    schemas = {
        query.views[view_name]: lake.load_table(view_name).schema() for view_name in table.inputs
    }
    compiled = query.compiled(schemas)
    if isinstance(compiled, Refusal):
        raise InvalidInputError(f"the SELECT cannot be kept incrementally, {compiled}")


def _session(given: Callable[[], SparkSession] | None) -> Callable[[], SparkSession]:
    def none() -> SparkSession:
        raise InvalidInputError("Spark computes this view: give a session")

    return given or none
