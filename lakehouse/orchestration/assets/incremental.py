"""A derived table that follows its inputs by what changed in them since it was computed.

What follows is decided here: whether it can, whether that pays, and what rows of the table go and
come. How a query follows is compiled by `incremental_queries`; the table's refresh state says what
it was computed from, and is written by the same commit as the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from functools import reduce
from typing import Any, Literal, cast, get_args

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType
from sqlglot import exp

from lakehouse.data.conversion.row_codes import without_common
from lakehouse.data.reading.changelog_rows import CHANGE_COLUMNS, DELETE
from lakehouse.data.writing.input_columns import coerce
from lakehouse.errors import (
    CommitConflictError,
    CorruptMetadataError,
    InvalidInputError,
    LakehouseError,
    NoSuchSnapshotError,
    ValidationConflictError,
)
from lakehouse.expressions.bound_filter import (
    FALSE,
    TRUE,
    Bound,
    Leaf,
    Op,
    conjunction,
    disjunction,
)
from lakehouse.expressions.filter_binding import bind
from lakehouse.incremental_queries import DeltaPlan, Refusal
from lakehouse.ingestion.landing_ledger import day_ranges
from lakehouse.orchestration.assets.asset_write import AssetWrite
from lakehouse.orchestration.assets.frames import (
    EngineName,
    Frames,
    InputRows,
    ModelEngine,
    as_stored,
)
from lakehouse.orchestration.assets.partition_filter import Partitioning
from lakehouse.orchestration.assets.staleness import (
    RefreshState,
    Staleness,
    refresh_state,
    refresh_states,
)
from lakehouse.row_changes.row_change import RowChange, RowWriter
from lakehouse.row_changes.row_verbs import replace_rows
from lakehouse.row_changes.target_rows import TargetRows
from lakehouse.spec.metadata.snapshot import OPERATION_REPLACE, REFRESH_STATE, Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import AssertRefSnapshotId
from lakehouse.spec.types.arrow_types import no_rows, schema_to_arrow
from lakehouse.spec.types.internal_values import internal_values
from lakehouse.table import Table
from lakehouse.table.row_write import RowWrite
from lakehouse.transaction.operations.metadata_changes import MetadataChange

RefreshName = Literal["full", "auto", "incremental", "incremental_strict"]
REFRESHES: tuple[str, ...] = get_args(RefreshName)
MODE, REASON, TOOK = "lakehouse.mv.refresh", "lakehouse.mv.reason", "lakehouse.mv.took"
"""Entries of a snapshot's summary: how its rows were computed, why so, and what that took, beside
what the last refresh of the other mode took, whose snapshot may have expired."""
REFRESH_METADATA = "lakehouse/refresh"
_MUCH = 0.5
"""Of the rows of the inputs, or of the keys: from so many changed on all is computed again."""
_FEW = 100
"""Keys: they are always computed alone."""
_REMEMBERED = 20
"""After so many refreshes of one mode it is forgotten what the other took, and tried again."""
_UNITS_A_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


class NotFollowedError(LakehouseError):
    """A table cannot be brought up to date by what changed, or that costs too much.

    Attributes:
        rows: of the inputs, where they were counted.
        changed: of them.
    """

    def __init__(self, message: str, rows: int = 0, changed: int | None = None) -> None:
        super().__init__(message)
        self.rows, self.changed = rows, changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Refresh:
    """How a table was brought up to date.

    Attributes:
        mode: `full` or `incremental`.
        reason: why so.
        rows: of the inputs.
        changed: rows of the inputs that came or went; None: not counted.
        keys: that they touch; None: the query is followed row by row, or not at all.
        moved: rows of the inputs that came or went, with those that were written again beside them.
        seconds: that it took.
    """

    mode: Literal["full", "incremental"]
    reason: str
    rows: int = 0
    changed: int | None = None
    keys: int | None = None
    moved: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """For the metadata of a materialization."""
        return {name: getattr(self, name) for name in self.__slots__}

    def summary(self, past: History, seconds: Callable[[], float]) -> RefreshSummary:
        """For the snapshot.

        Args:
            past: see `history`; of the table as it is.
            seconds: that the refresh took so far.
        """
        return RefreshSummary({MODE: self.mode, REASON: self.reason}, self, past, seconds)


@dataclass(frozen=True)
class RefreshSummary(Mapping[str, str]):
    """Entries of a snapshot's summary; when the commit takes them they say what it took until then.

    Attributes:
        entries: that are known before.
        refresh: that the snapshot is of.
        past: see `history`.
        seconds: since it began.
    """

    entries: Mapping[str, str]
    refresh: Refresh
    past: History
    seconds: Callable[[], float]

    def __getitem__(self, key: str) -> str:
        return self._took() if key == TOOK else self.entries[key]

    def __iter__(self) -> Iterator[str]:
        yield from self.entries
        yield TOOK

    def __len__(self) -> int:
        return len(self.entries) + 1

    def beside(self, entries: Mapping[str, str]) -> RefreshSummary:
        """With further entries."""
        return replace(self, entries={**entries, **self.entries})

    def _took(self) -> str:
        done = self.refresh
        took = {
            mode: {**past, "ago": past["ago"] + 1}
            for mode, past in self.past.items()
            if past["ago"] + 1 < _REMEMBERED
        }
        seconds = round(self.seconds(), 3)
        took[done.mode] = {"seconds": seconds, "rows": done.rows, "moved": done.moved, "ago": 0}
        return orjson.dumps(took).decode()


History = Mapping[str, Mapping[str, Any]]
"""Of each mode the last refresh: the `seconds` that it took, `rows` of the inputs, `moved` of them,
and how many refreshes `ago`."""


def history(table: Table | None) -> History:
    """What the last refreshes took, as the table says.

    Raises:
        CorruptMetadataError: it cannot be read.
    """
    metadata = None if table is None else table.metadata
    line = () if metadata is None else metadata.ancestors(metadata.current_snapshot_id)
    text = next((ancestor.summary[TOOK] for ancestor in line if TOOK in ancestor.summary), "{}")
    try:
        return {
            str(mode): {
                "seconds": float(took["seconds"]),
                **{name: int(took[name]) for name in ("rows", "moved", "ago")},
            }
            for mode, took in orjson.loads(text).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        name = "" if table is None else table.name
        raise CorruptMetadataError(
            f"{name}: {TOOK} in the summary of a snapshot cannot be read: {text[:200]}. Drop the "
            "table, whose rows its query gives again"
        ) from error


@dataclass(frozen=True)
class FollowedQuery:
    """The SQL of a table, as something that follows.

    Attributes:
        views: input -> its name in the query.
        compiled: schemas by view -> how the query follows.
        text: a query of the plan -> text for the engine, by schemas.
        tree: the query, parsed, over views in place of tables.
        grammar: of sqlglot, in which it was written.
        dialect: the engine whose SQL it is.
    """

    views: Mapping[str, str]
    compiled: Callable[[Mapping[str, Schema]], DeltaPlan | Refusal]
    text: Callable[[exp.Query, Mapping[str, Schema]], str]
    tree: exp.Query
    grammar: str
    dialect: EngineName


@dataclass(frozen=True)
class ResultDelta:
    """What of a result goes and comes.

    Attributes:
        keys: the rows with values of these columns go.
        gone: of them these alone; None: all.
        come: new rows.
        refresh: how it was computed.
        before: what the result was computed from that it is a change of.
        computed: of the keys those whose rows are all in `come`; None: all.
        more: rows of other keys, each of which is put together with the row that there is.
        merged: how; see `DeltaPlan`.
    """

    keys: pa.Table
    gone: pa.Table | None
    come: pa.Table
    refresh: Refresh
    before: RefreshState
    computed: pa.Table | None = None
    more: tuple[pa.Table, ...] = ()
    merged: Mapping[str, str] = field(default_factory=dict)

    def rows(self, present: pa.Table) -> pa.Table:
        """The rows that take the place of those that there are of the keys."""
        if self.computed is None or not self.more:
            return self.come
        kept = _without_keys(present, self.computed)
        for part in self.more:
            kept = put_together(kept, part, self.merged)
        return pa.concat_tables([self.come, kept])


@dataclass
class DeltaWrite(AssetWrite):
    """Writes what goes and comes on top of the result that it was computed for, and of no other."""

    delta: ResultDelta | None = None

    def published(self) -> Snapshot:
        """Commit to the branch where the rows belong, at once. Raises what a call raises."""
        return self(self.onto, self.stamp.commit_id("rows"))

    def __call__(self, branch: str, commit_id: str) -> Snapshot:
        """Commit to a branch.

        Raises:
            CommitConflictError: another refresh came first, or others have written rows: decide
                again.
            RowsNotFoundError: the table does not hold the result of its query.
        """
        table, delta = self.table, cast("ResultDelta", self.delta)
        moved = CommitConflictError(
            f"{table.name} was written meanwhile: refresh it again", table=table.name
        )
        where = conjunction(
            [
                bind(self.where, table.schema()),
                *(
                    having(name, delta.keys[name], table.schema())
                    for name in delta.keys.column_names
                ),
            ]
        )

        def decide(target: TargetRows, writer: RowWriter) -> RowChange:
            metadata, head = target.metadata, target.snapshot_id
            state = next(refresh_states(metadata, head), None)
            if state != delta.before or written_by_others(metadata, head):
                raise moved
            change = replace_rows(target, where, delta.keys, delta.rows, writer, delta.gone)
            ref = metadata.refs.get(self.onto)
            unmoved = AssertRefSnapshotId(self.onto, None if ref is None else ref.snapshot_id)
            return replace(change, before=(MetadataChange((), (unmoved,)),))

        with RowWrite(table, branch, self.summary, commit_id) as write:
            done = write.replayed()
            if done is None:
                try:
                    done = write.change_rows(decide, "overwrite", always=True).committed
                except ValidationConflictError as error:
                    raise moved from error
        return done.snapshot


class Follower:
    """One refresh of one table by what changed.

    Args:
        name: of the table.
        query: its SQL.
        engine: runs it.
        computed: runs the table's own query over frames.
        inputs: rows of the inputs as they are now, of the partitions that are computed.
        target: the table.
        before: what it was computed from.

    Raises:
        NotFollowedError: its query cannot be followed.
    """

    def __init__(
        self,
        name: str,
        query: FollowedQuery,
        engine: ModelEngine,
        computed: Callable[[Frames], Any],
        inputs: Mapping[str, InputRows],
        target: Table,
        before: RefreshState,
    ) -> None:
        self.name, self._query, self._engine, self._computed = name, query, engine, computed
        self._now, self._target, self._before = dict(inputs), target, before
        self._then = {name: self._rows_then(name) for name in inputs}
        self._schemas = {query.views[name]: rows.schema() for name, rows in inputs.items()}
        compiled = query.compiled(self._schemas)
        if isinstance(compiled, Refusal):
            raise NotFollowedError(f"its query cannot be followed, {compiled}")
        self._plan = compiled

    def delta(self, *, pays: bool) -> ResultDelta:
        """What goes and comes.

        Args:
            pays: whether it has to cost less than computing in full.

        Raises:
            NotFollowedError: what changed is unknown, or it costs too much.
        """
        names = self.changed_inputs()
        most, rows = self.counted(names)
        by_past = ""
        if pays and names:
            follows, by_past = predicted(history(self._target), most, rows)
            if not follows:
                raise NotFollowedError(by_past, rows, most)
        delta = self._delta(names)
        refresh = replace(delta.refresh, rows=rows, moved=most)
        table_rows = _count(self._target)
        of, keys = f"{refresh.changed:,} rows of the inputs changed, of {rows:,}", refresh.keys
        if keys is not None:
            of = f"{of}; they touch {keys:,} keys"
            if pays and keys > _FEW and keys >= table_rows * _MUCH:
                why = f"{of}, of {table_rows:,} rows of the table"
                raise NotFollowedError(why, rows, refresh.changed)
        reason = "; ".join(filter(None, (of, by_past)))
        return replace(delta, refresh=replace(refresh, reason=reason))

    def _rows_then(self, name: str) -> InputRows:
        now, since = self._now[name], self._before.inputs[name]
        if since is None:
            return replace(now, held=no_rows(schema_to_arrow(now.schema())))
        return now if since == self._id(name) else replace(now, snapshot_id=since)

    def _id(self, name: str) -> int | None:
        now = self._now[name]
        return (
            now.table.metadata.current_snapshot_id if now.snapshot_id is None else now.snapshot_id
        )

    def changed_inputs(self) -> list[str]:
        """The inputs that have another snapshot than they had.

        Raises:
            NotFollowedError: what changed is unknown.
        """
        changed = []
        for name, now in self._now.items():
            since, to = self._before.inputs[name], self._id(name)
            if since == to:
                continue
            metadata = now.table.metadata
            line = [ancestor.snapshot_id for ancestor in metadata.ancestors(to)]
            if since is not None and since not in line:
                is_kept = metadata.snapshot_or_none(since) is not None
                why = "is no ancestor of it any more" if is_kept else "has expired"
                raise NotFollowedError(f"snapshot {since} of {name}, which was read then, {why}")
            then = self._then[name].schema()
            read = self._plan.columns.get(self._query.views[name], frozenset())
            for column in sorted(read):
                if _field(then, column) != _field(now.schema(), column):
                    raise NotFollowedError(f"column {column} of {name} has changed since then")
            changed.append(name)
        return changed

    def counted(self, changed: Iterable[str]) -> tuple[int, int]:
        """How many rows came or went at most, and how many there are, as the metadata says."""
        moved = 0
        for name, now in self._now.items():
            if name in changed:
                for ancestor in now.table.metadata.ancestors(self._id(name)):
                    if ancestor.snapshot_id == self._before.inputs[name]:
                        break
                    if ancestor.operation != OPERATION_REPLACE:
                        moved += sum(int(ancestor.summary.get(key, 0)) for key in _MOVED)
        return moved, rows_of(self._now.values())

    def _delta(self, names: Sequence[str]) -> ResultDelta:
        target = self._target
        changes = {name: self._changes(name) for name in names}
        linear, merged = not self._plan.keys, self._plan.merged
        of_keys = Schema(*(target.schema().find_field(key) for key in self._plan.keys))
        # inputs before the one that changes are at the new version, those after it at the old one
        state = {name: self._then[name] for name in self._now}
        keys: list[pa.Table] = [no_rows(_bare(of_keys))]
        gone: list[pa.Table] = []
        come: list[pa.Table] = []
        for name in names:
            old, new = changes[name]
            part = (self._plan.deltas if linear else self._plan.parts).get(self._view(name))
            if linear or merged:
                gone += self._run(state, name, old, target.schema(), part)
                come += self._run(state, name, new, target.schema(), part)
            else:
                query = self._plan.deltas[self._view(name)]
                keys += self._run(state, name, pa.concat_tables([old, new]), of_keys, query)
            state[name] = self._now[name]
        counted = sum(rows.num_rows for pair in changes.values() for rows in pair)
        if linear:
            return _row_by_row(gone, come, target, self._before, counted)
        touched = _distinct([*keys, *(part.select(of_keys.column_names) for part in gone)])
        more = tuple(_without_keys(part, touched) for part in come)
        every = _distinct([touched, *(part.select(touched.column_names) for part in more)])
        refresh = Refresh(mode="incremental", reason="", changed=counted, keys=every.num_rows)
        rows, again = _nothing(target), touched
        if gone:
            rows, again = self._taken_apart(gone, come, alone=len(names) == 1)
        if again.num_rows:
            restricted = {name: self._restricted(name, again) for name in self._now}
            computed = self._stored(
                self._computed(Frames(self._engine, restricted)), target.schema()
            )
            rows = pa.concat_tables([rows, with_keys(computed, again)])
        return ResultDelta(every, None, rows, refresh, self._before, touched, more, merged)

    def _taken_apart(
        self, gone: Sequence[pa.Table], come: Sequence[pa.Table], *, alone: bool
    ) -> tuple[pa.Table, pa.Table]:
        """Rows of keys that lost rows, and those of the keys that have to be computed again."""
        merged, target = self._plan.merged, self._target
        went, came = (
            reduce(lambda left_rows, other: put_together(left_rows, other, merged), parts)
            for parts in (gone, [_nothing(target), *come])
        )
        keys = went.select(self._plan.keys)
        where = conjunction(
            having(name, keys[name], target.schema(), self._engine.listed)
            for name in keys.column_names
        )
        present = target.scan(where).to_arrow().cast(went.schema)
        return taken_apart(present, went, came, merged, self._plan.counted, alone=alone)

    def _view(self, name: str) -> str:
        return self._query.views[name]

    def _changes(self, name: str) -> tuple[pa.Table, pa.Table]:
        """Rows that went, and rows that came."""
        now = self._now[name]
        since = self._before.inputs[name]
        if self._id(name) is None:
            raise NotFollowedError(f"{name} has no snapshot any more")
        try:  # of the newest snapshot with the columns that the table has now
            log = now.table.changelog(since, now.snapshot_id, where=now.where, net=True)
            changes = log.to_arrow()
        except NoSuchSnapshotError as error:
            raise NotFollowedError(f"what changed in {name} is unknown: {error.message}") from error
        kinds = changes["_change_type"]
        changes = changes.drop_columns([column.name for column in CHANGE_COLUMNS])
        went = pc.equal(kinds, DELETE)
        return changes.filter(went), changes.filter(pc.invert(went))

    def _run(
        self,
        state: Mapping[str, InputRows],
        name: str,
        rows: pa.Table,
        columns: Schema,
        query: exp.Query | None,
    ) -> list[pa.Table]:
        """A query over some rows of an input, and the others in a state.

        Args:
            state: rows of the inputs.
            name: the input.
            rows: of it; of none nothing is asked.
            columns: of the table, in which the answer is given.
            query: None: the table's own.
        """
        if not rows.num_rows:
            return []
        inputs = {
            input_name: replace(held, held=rows)
            if input_name == name
            else self._met(held, input_name, name, rows)
            for input_name, held in state.items()
        }
        frames = Frames(self._engine, inputs)
        if query is None:
            result = self._computed(frames)
        else:
            result = frames.sql(self._query.text(query, self._schemas), self._query.views)
        return [self._stored(result, columns)]

    def _stored(self, frame: Any, columns: Schema) -> pa.Table:
        """Rows of the engine in columns of the table, read before its views change again."""
        result = self._engine.result(frame, self.name)
        rows = result.read_all() if isinstance(result, pa.RecordBatchReader) else result.toArrow()
        batches = coerce(as_stored(rows, columns, self.name), columns, table=self.name)
        bare = _bare(columns)
        return pa.Table.from_batches(
            [pa.RecordBatch.from_arrays(batch.columns, schema=bare) for batch in batches], bare
        )

    def _met(self, held: InputRows, input_name: str, changed: str, rows: pa.Table) -> InputRows:
        """Without rows that cannot meet the changed ones, where equal values are required."""
        places, views = self._plan.inputs, self._query.views
        if held.held is not None or places.count(views[input_name]) > 1:
            return held
        if places.count(views[changed]) > 1:
            return held
        parts = [
            having(right.column, rows[left.column], held.schema(), self._engine.listed)
            for left, right in self._plan.equal
            if not (left.days or right.days)
            and places[left.occurrence] == views[changed]
            and places[right.occurrence] == views[input_name]
        ]
        return _narrowed(held, parts)

    def _restricted(self, name: str, touched: pa.Table) -> InputRows:
        """Rows of an input that touched keys are made of, and maybe others."""
        now = self._now[name]
        parts = []
        for number, view in enumerate(self._plan.inputs):
            if view != self._query.views[name]:
                continue
            parts.append(
                conjunction(
                    having(
                        place.column,
                        touched[key],
                        now.schema(),
                        self._engine.listed,
                        days=place.days,
                    )
                    for key, places in self._plan.places.items()
                    for place in places
                    if place.occurrence == number
                )
            )
        return _narrowed(now, [disjunction(parts)] if parts else [])


def rows_of(inputs: Iterable[InputRows]) -> int:
    """How many rows inputs have, as the metadata says."""
    rows = 0
    for read in inputs:
        if read.where is not None:
            tasks = read.scan().plan().tasks
            rows += sum(task.data_file.record_count for task in tasks)
            continue
        head = read.head_id() if read.snapshot_id is None else read.snapshot_id
        if head is not None:
            summary = read.table.metadata.snapshot(head).summary
            rows += int(summary.get("total-records", 0))
    return rows


def written_by_others(metadata: TableMetadata, head: int | None) -> bool:
    """Whether rows of a derived table were changed since it was computed."""
    for ancestor in metadata.ancestors(head):
        if REFRESH_STATE in ancestor.summary:
            return False
        if ancestor.operation != OPERATION_REPLACE:
            return True
    return True


def followed(
    refresh: RefreshName,
    follower: Callable[[Table, RefreshState], Follower],
    stale: Staleness,
    target: Table | None,
    keys: Sequence[str] | None,
) -> ResultDelta | Refresh:
    """What of a table goes and comes; or that it is computed in full, and why.

    Args:
        refresh: how it is to be brought up to date.
        follower: of the table and its state.
        stale: what is stale, and why.
        target: the table; None: there is none.
        keys: of the partitions that are computed; None: all rows.

    Raises:
        InvalidInputError: it is to follow strictly, and cannot.
    """
    state = refresh_state(target)
    if target is None or state is None:
        return Refresh(mode="full", reason="the table has not been computed yet")
    behind = set(keys or ()) & set(state.behind)
    if behind:
        reason = f"partitions were left out before, such as {min(behind)}"
        return Refresh(mode="full", reason=reason)
    try:
        _refuse(stale, state, target)
        return follower(target, state).delta(pays=refresh == "auto")
    except NotFollowedError as error:
        if refresh == "incremental_strict":
            raise InvalidInputError(
                f"{target.name} is to be refreshed by what changed alone, and cannot be: "
                f"{error.message}. Launch a run with `full: true` in its configuration to compute "
                "it once in full",
                table=target.name,
            ) from error
        why = error.message
        return Refresh(mode="full", reason=why, rows=error.rows, changed=error.changed)


def _refuse(stale: Staleness, state: RefreshState, table: Table) -> None:
    """Raise where a table cannot follow, whatever its query is."""
    if stale.redefined or not stale.definition or state.definition != stale.definition:
        raise NotFollowedError("its definition has changed")
    if set(state.inputs) != set(stale.inputs):
        raise NotFollowedError("it reads other tables than before")
    if written_by_others(table.metadata, table.metadata.current_snapshot_id):
        raise NotFollowedError("others have written rows to it since it was computed")


def predicted(past: History, moved: int, rows: int) -> tuple[bool, str]:
    """Whether it pays to follow, and why; without a reason where nothing tells.

    Args:
        past: see `history`.
        moved: rows of the inputs that came or went, or were written again beside them.
        rows: of the inputs.
    """
    if moved >= rows * _MUCH:
        return False, f"{moved:,} rows of the inputs came or went, of {rows:,}"
    if not {"full", "incremental"} <= past.keys():
        return True, ""
    by_full, by_change = past["full"], past["incremental"]
    full = by_full["seconds"] * max(1.0, rows / max(1, by_full["rows"]))
    # what changes less takes as long as it took: much of it is the same for any change
    change = by_change["seconds"] * max(1.0, moved / max(1, by_change["moved"]))
    why = (
        f"by the last runs {moved:,} changed rows would take {change:.1f} s, and all {rows:,} rows "
        f"{full:.1f} s"
    )
    return change <= full, why


def refuse_other_partitions(
    rows: pa.Table, partitioning: Partitioning | None, keys: Sequence[str] | None, name: str
) -> None:
    """Raise InvalidInputError for a row of a partition that is not computed."""
    if partitioning is None or keys is None:
        return
    own = pc.is_in(partitioning.keys_of(rows), pa.array(keys, pa.string()))
    others = rows.filter(pc.invert(own)).slice(0, 1).to_pylist()
    if others:
        columns = ", ".join(column for column, _ in partitioning.dimensions)
        raise InvalidInputError(
            f"{name}: a row of another partition than those that are computed, such as "
            f"{others[0]}: compute {columns} from what tells the partitions of its inputs alone",
            table=name,
        )


_MOVED = "added-records", "deleted-records", "added-position-deletes", "added-equality-deletes"


def having(
    name: str,
    values: pa.ChunkedArray,
    schema: Schema,
    listed: int = 100_000,
    *,
    days: bool = False,
) -> Bound:
    """A filter that passes every row whose column has one of the values, and maybe others.

    Args:
        name: of the column.
        values: of it; nulls are values.
        schema: of its table.
        listed: so many are listed at most; of more the range is taken.
        days: the values are the days of the column; where it has a zone, give or take one.
    """
    field = schema.find_field(name)
    kind = schema_to_arrow(Schema(field)).field(0).type
    if not isinstance(field.field_type, PrimitiveType) or pa.types.is_floating(kind):
        return TRUE
    leaf = Leaf(Op.IS_NULL, field.field_id, (field.name,), field.field_type)
    filters: list[Bound] = [leaf] if values.null_count else []
    distinct = values.unique().drop_null()
    if not len(distinct):
        return disjunction(filters) if filters else FALSE
    if days and pa.types.is_timestamp(kind):
        unit = _UNITS_A_DAY[kind.unit]
        ranges = day_ranges(sorted(cast("list[date]", distinct.cast(pa.date32()).to_pylist())))
        epoch, zone = date(1970, 1, 1).toordinal(), int(kind.tz is not None)
        for first, last in ranges if len(ranges) <= 100 else [(ranges[0][0], ranges[-1][1])]:
            low, high = first.toordinal() - epoch - zone, last.toordinal() - epoch + 1 + zone
            filters.append(
                conjunction([leaf.asking(Op.GTE, low * unit), leaf.asking(Op.LT, high * unit)])
            )
        return disjunction(filters)
    try:
        distinct = distinct.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return TRUE
    distinct = distinct.take(pc.sort_indices(distinct))
    if len(distinct) <= listed:
        chosen = tuple(internal_values(distinct, field.field_type))
        filters.append(
            leaf.asking(Op.IN, chosen) if len(chosen) > 1 else leaf.asking(Op.EQ, chosen[0])
        )
    else:
        ends = pa.concat_arrays([distinct.slice(0, 1), distinct.slice(len(distinct) - 1)])
        low, high = internal_values(ends, field.field_type)
        filters.append(conjunction([leaf.asking(Op.GTE, low), leaf.asking(Op.LTE, high)]))
    return disjunction(filters)


def _narrowed(rows: InputRows, parts: Sequence[Bound]) -> InputRows:
    """Fewer rows of a table."""
    if rows.held is not None or not parts:
        return rows
    return replace(rows, where=conjunction([bind(rows.where, rows.schema()), *parts]))


def _field(schema: Schema, name: str) -> tuple[int, str] | None:
    for column in schema.fields:
        if column.name == name:
            return column.field_id, str(column.field_type)
    return None


def _count(table: Table) -> int:
    snapshot = table.current_snapshot()
    return 0 if snapshot is None else int(snapshot.summary.get("total-records", 0))


def _bare(schema: Schema) -> pa.Schema:
    return pa.schema([(field.name, field.type) for field in schema_to_arrow(schema)])


def _nothing(target: Table) -> pa.Table:
    return no_rows(_bare(target.schema()))


def with_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows that have one of the keys; nulls are equal."""
    return rows.take(_met(rows, keys, keys.column_names, "semi")["row of the left"].to_arrow())


def _without_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows that have none of the keys; nulls are equal."""
    return rows.take(_met(rows, keys, keys.column_names, "anti")["row of the left"].to_arrow())


def _met(left: pa.Table, right: pa.Table, names: Sequence[str], how: Any) -> Any:
    """Numbers of the rows that have equal columns; nulls are equal."""
    import polars as pl  # noqa: PLC0415 - takes long to load

    numbers = [str(at) for at in range(len(names))]  # names may be patterns to Polars
    rows, others = (
        pl.DataFrame(side.select(names).rename_columns(numbers)).with_row_index(
            f"row of the {which}"
        )
        for side, which in ((left, "left"), (right, "right"))
    )
    return rows.join(others, on=numbers, how=how, nulls_equal=True)


def put_together(present: pa.Table, more: pa.Table, merged: Mapping[str, str]) -> pa.Table:
    """Rows of both, one a key; the other columns are the key.

    Args:
        present: one row a key.
        more: one row a key.
        merged: how columns of two rows are put together; see `DeltaPlan`.

    Raises:
        NotFollowedError: a sum has no place in its type.
    """
    names = [name for name in present.column_names if name not in merged]
    pairs = _met(more, present, names, "left")
    new = more.take(pairs["row of the left"].to_arrow())
    old = present.take(pairs["row of the right"].to_arrow())
    columns = {name: new[name] for name in names}
    for name, how in merged.items():
        columns[name] = _both(new[name], old[name], how, name)
    put_rows = pa.table({name: columns[name] for name in present.column_names}, present.schema)
    return pa.concat_tables([put_rows, _without_keys(present, more.select(names))])


def _both(mine: pa.ChunkedArray, other: pa.ChunkedArray, how: str, name: str) -> pa.ChunkedArray:
    if how in ("least", "greatest"):
        smaller = pc.less(mine, other)
        both = pc.if_else(smaller if how == "least" else pc.invert(smaller), mine, other)
    else:
        both = _sum(mine, other, name)
    return pc.coalesce(both, mine, other)


def _sum(
    mine: pa.ChunkedArray,
    other: pa.ChunkedArray,
    name: str,
    operation: Callable[..., pa.ChunkedArray] = pc.add_checked,
) -> pa.ChunkedArray:
    try:
        return operation(mine, other).cast(mine.type)
    except pa.ArrowInvalid as error:
        raise NotFollowedError(f"a sum of {name} does not fit its type: {error}") from error


def _or_zero(column: pa.ChunkedArray) -> pa.ChunkedArray:
    zero: Any = Decimal(0) if pa.types.is_decimal(column.type) else 0
    return pc.fill_null(column, pa.scalar(zero, column.type))


def taken_apart(
    present: pa.Table,
    went: pa.Table,
    came: pa.Table,
    merged: Mapping[str, str],
    counted: Mapping[str, str],
    *,
    alone: bool,
) -> tuple[pa.Table, pa.Table]:
    """What becomes of rows whose keys lost rows of the inputs, where that follows from these alone.

    Args:
        present: rows of the result, one a key.
        went: what the query gives for the rows that went, one a key.
        came: what it gives for those that came.
        merged: see `DeltaPlan`.
        counted: see `DeltaPlan`.
        alone: whether one input changed: then what came is there, and has not gone again.

    Returns:
        New rows of keys in `went`, none for a key without rows; and the keys to be computed again.

    Raises:
        NotFollowedError: a sum has no place in its type.
    """
    names = [name for name in went.column_names if name not in merged]
    at = [
        _met(went, side, names, "left").sort("row of the left")["row of the right"].to_arrow()
        for side in (present, came)
    ]
    old, new = present.take(at[0]), came.take(at[1])
    comes = pc.and_(pc.is_valid(at[1]), alone)
    columns = {name: went[name] for name in names}
    met = pc.is_valid(at[0])
    known, masks = {}, [comes]
    for name, how in merged.items():
        gone, both = went[name], _both(old[name], new[name], how, name)
        if how in ("least", "greatest"):
            inside = pc.less(gone, both) if how == "greatest" else pc.greater(gone, both)
            stays = pc.and_(pc.fill_null(pc.equal(new[name], both), False), comes)
            known[name] = pc.or_(pc.or_(pc.is_null(gone), pc.fill_null(inside, False)), stays)
        elif how == "sum":
            stays = pc.and_(pc.is_valid(new[name]), comes)
            known[name] = pc.or_(stays, pc.is_null(gone))
            both = _sum(both, _or_zero(gone), name, pc.subtract_checked)
        else:
            both = _sum(both, gone, name, pc.subtract_checked)
            masks.append(pc.greater(both, 0))
        columns[name] = both
    for name, count in counted.items():
        known[name] = pc.or_(known[name], pc.is_valid(columns[count]))
        nothing = pa.scalar(None, columns[name].type)
        columns[name] = pc.if_else(pc.greater(columns[count], 0), columns[name], nothing)
    there_are = reduce(pc.or_, masks)
    none = [pc.equal(columns[name], 0) for name, how in merged.items() if how == "rows"]
    ends = pc.and_(met, none[0]) if none else pc.and_(met, False)
    follows = reduce(pc.and_, known.values(), pc.and_(met, there_are))
    rows = pa.table({name: columns[name] for name in went.column_names}, went.schema)
    again = pc.invert(pc.or_(pc.fill_null(follows, False), pc.fill_null(ends, False)))
    return rows.filter(follows), went.select(names).filter(again)


def _distinct(parts: Sequence[pa.Table]) -> pa.Table:
    """Each row once."""
    whole = pa.concat_tables(parts)
    return whole.group_by(whole.column_names).aggregate([])


def _row_by_row(
    gone: Sequence[pa.Table],
    come: Sequence[pa.Table],
    target: Table,
    before: RefreshState,
    counted: int,
) -> ResultDelta:
    went, came = without_common(
        pa.concat_tables([_nothing(target), *gone]), pa.concat_tables([_nothing(target), *come])
    )
    refresh = Refresh(mode="incremental", reason="", changed=counted)
    plain = [
        field.name
        for field in target.schema().fields
        if isinstance(field.field_type, PrimitiveType)
        and not pa.types.is_floating(went.schema.field(field.name).type)
    ]
    keys = _distinct([went.select(plain)]) if plain else went.select(plain)
    return ResultDelta(keys, went, came, refresh, before)
