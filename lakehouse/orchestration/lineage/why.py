"""Why a row of a table is what it is: the landing lines that it was computed from, and the proof.

From rows of a result through the SELECTs of derived tables to raw rows, each at the snapshot that
the run recorded. The proof computes the tables again from exactly these lines.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression, In
from pyiceberg.schema import Schema
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table as Lines
from rich.text import Text
from sqlglot import exp

from lakehouse.engines import to_schema
from lakehouse.errors import (
    InvalidExpressionError,
    InvalidInputError,
    LakehouseError,
    NoSuchTableError,
    NotFoundError,
)
from lakehouse.expressions.bound_filter import conjunction
from lakehouse.expressions.filter_binding import Where, bind
from lakehouse.ingestion.audit import CheckOutcome
from lakehouse.ingestion.source import EVENT_TS, LANDING_FILE, LANDING_LINE
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.assets.frames import open_engine
from lakehouse.orchestration.assets.incremental import FollowedQuery, having, with_keys
from lakehouse.orchestration.assets.portable_sql import translated, typed
from lakehouse.orchestration.assets.staleness import RefreshState, refresh_states
from lakehouse.orchestration.checkout import Checkout, checkout_here
from lakehouse.orchestration.checks.expectations import UNEXPECTED_WHERE
from lakehouse.orchestration.lineage.asked_rows import asked_values
from lakehouse.orchestration.lineage.traced_query import (
    ROW,
    Same,
    TracedQuery,
    UntracedError,
    aliased,
    asked_of,
    column_of,
    is_row_by_row,
    keys_of,
    same,
    same_columns,
    traced,
)
from lakehouse.orchestration.lineage.undo_by_rows import comparable
from lakehouse.orchestration.lineage.view_definitions import plain_view, storage_of, with_views
from lakehouse.orchestration.resources import spark_when_asked
from lakehouse.orchestration.run_publication import checks_of
from lakehouse.spec.metadata.snapshot import (
    ASSET_KEY,
    OPERATION_REPLACE,
    REFRESH_STATE,
    RUN_ID,
    Snapshot,
)
from lakehouse.table import Table
from lakehouse.table.scan import snapshot_of_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

MOST_ROWS = 10_000
"""Rows of a result that are explained at once."""
MOST_LINES = 1_000_000
"""Lines of a table that is not followed further, of which each is named."""
KEY_METADATA = "lakehouse/why"
"""Metadata of a plain asset: columns, with commas between, that its rows have from its inputs'."""
_TARGETS = "__targets"
_SHOWN_ROWS, _SHOWN_FILES, _SHOWN_RANGES = 5, 20, 12
_QUARANTINE = "_quarantine"
Chosen = Callable[[Schema], BooleanExpression]


@dataclass(frozen=True, slots=True)
class Origin:
    """Rows of a table that took part, and where these come from.

    Attributes:
        table: dotted name.
        snapshot_id: at which it was read; None: a view, which has none.
        rows: these rows; of a table that is not followed further, at most their landing lines.
        count: how many they are.
        run_id: that last changed rows of the table by then; None: no run of Dagster.
        committed_at: of the snapshot.
        inputs: the rows that they were computed from; none for what landed.
        notes: what the answer does not follow exactly, and why.
        computed: these rows, computed again from the inputs' alone; of what landed themselves.
        keys: columns that tell the rows apart, where the query says so.
        asset: key of the asset that last changed rows of the table by then.
        definition: digest of the code that computed the table; empty: none was recorded.
    """

    table: str
    snapshot_id: int | None
    rows: pa.Table
    count: int
    run_id: str | None
    committed_at: datetime
    inputs: tuple[Origin, ...] = ()
    notes: tuple[str, ...] = ()
    computed: pa.Table | None = None
    keys: tuple[str, ...] | None = None
    asset: str | None = None
    definition: str = ""

    def all(self) -> Iterator[Origin]:
        """Itself and what it comes from, depth first."""
        yield self
        for source in self.inputs:
            yield from source.all()

    @property
    def landed(self) -> bool:
        """Whether its rows name landing files and lines."""
        return not self.inputs and LANDING_FILE in self.rows.column_names


@dataclass(frozen=True, slots=True)
class Why:
    """What rows of a table were computed from.

    Attributes:
        where: which rows.
        column: of them, None: all.
        origin: the rows, and what they come from.
        lines: (raw table, landing file) -> lines, sorted.
        quarantined: quarantine table -> reason -> lines of the same days that became no row.
        rejects: (quarantine table, landing file) -> these lines, sorted; none where the file as a
            whole has the problem.
        equal: whether the tables, computed again from these lines alone, have the same rows; None:
            it could not be tried.
        difference: how it is not so, or why it could not be tried.
        checks: table -> check -> whether it passed, in the run that last changed rows of the table.
        sample: so many rows of each table on the way are shown.
    """

    where: str
    column: str | None
    origin: Origin
    lines: Mapping[tuple[str, str], tuple[int, ...]]
    quarantined: Mapping[str, Mapping[str, int]]
    rejects: Mapping[tuple[str, str], tuple[int, ...]]
    equal: bool | None
    difference: str = ""
    checks: Mapping[str, Mapping[str, bool]] = field(default_factory=dict)
    sample: int = 0

    def to_dict(self) -> dict[str, object]:
        """For JSON: ids as text."""
        return {
            "table": self.origin.table,
            "where": self.where,
            "column": self.column,
            "rows": self.origin.rows.slice(0, MOST_ROWS).to_pylist(),
            "steps": [
                {
                    "table": origin.table,
                    "snapshot_id": None if origin.snapshot_id is None else str(origin.snapshot_id),
                    "committed_at": origin.committed_at.isoformat(),
                    "run_id": origin.run_id,
                    "definition": origin.definition or None,
                    "checks": dict(self.checks.get(origin.table, {})),
                    "rows": origin.count,
                    "notes": list(origin.notes),
                    "sample": origin.rows.slice(0, self.sample).to_pylist(),
                }
                for origin in self.origin.all()
            ],
            "lines": _listed(self.lines),
            "quarantined": {name: dict(reasons) for name, reasons in self.quarantined.items()},
            "quarantined_lines": _listed(self.rejects),
            "proved": self.equal,
            "difference": self.difference,
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """For people: the rows, the way down, the lines, the proof."""
        rows = self.origin.rows
        for row in rows.slice(0, _SHOWN_ROWS).to_pylist():
            yield Text(row_text(row))
        if rows.num_rows > _SHOWN_ROWS:
            yield Text(f"and {rows.num_rows - _SHOWN_ROWS:,} more rows")
        yield Text("")
        yield from _described(self.origin, self.checks, self.sample)
        yield Text("")
        yield from _files(self.lines)
        for name, reasons in self.quarantined.items():
            counts = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
            yield Text(f"of the same days in {name}, and so in no row: {counts}")
            yield from _files(
                {place: self.rejects[place] for place in self.rejects if place[0] == name}
            )
        yield Text(self.verdict(), style="green" if self.equal else "red")

    def verdict(self) -> str:
        """What the proof says, in a sentence."""
        count = sum(map(len, self.lines.values()))
        of = f"these {count:,} lines" if self.lines else "these rows"
        if self.equal is None:
            return f"not proved: {self.difference}"
        if not self.origin.inputs:
            return "these rows are what landed"
        what = "the same rows" if self.column is None else f"the same {self.column}"
        if self.equal:
            return f"proved: computed again from exactly {of}, the tables have {what}"
        return f"NOT proved: computed again from {of}, {self.difference}"


def row_text(row: Mapping[str, Any]) -> str:
    """Columns and values, in a line."""
    return "  ".join(f"{name} {'null' if value is None else value}" for name, value in row.items())


def _described(
    origin: Origin, checks: Mapping[str, Mapping[str, bool]], sample: int, depth: int = 0
) -> Iterator[Text]:
    """A line for each table, for its code and checks, for each note and some rows, indented."""
    by = "" if origin.run_id is None else f" by run {origin.run_id[:8]}"
    count = origin.count
    at = "of a view" if origin.snapshot_id is None else f"at snapshot {origin.snapshot_id}"
    yield Text.assemble(
        "  " * depth + ("from " if depth else ""),
        (origin.table, "bold"),
        f": {count:,} {'row' if count == 1 else 'rows'} {at}, "
        f"{origin.committed_at:%Y-%m-%d %H:%M:%S} UTC{by}",
    )
    facts = [f"code {origin.definition[:8]}"] if origin.definition else []
    results = checks.get(origin.table, {})
    passed, failed = sum(results.values()), [name for name, well in results.items() if not well]
    facts += [f"{passed} {'check' if passed == 1 else 'checks'} passed"] if passed else []
    facts += [f"failed: {', '.join(failed)}"] if failed else []
    if facts:
        yield Text("  " * (depth + 1) + "; ".join(facts), style="dim")
    for note in origin.notes:
        yield Text("  " * (depth + 1) + note, style="yellow")
    for row in origin.rows.slice(0, sample).to_pylist() if depth else ():
        yield Text("  " * (depth + 1) + row_text(row))
    for source in origin.inputs:
        yield from _described(source, checks, sample, depth + 1)


def _ranges(lines: Sequence[int]) -> str:
    """`3, 7-9` for sorted numbers."""
    ends: list[list[int]] = []
    for line in lines:
        if ends and line <= ends[-1][1] + 1:
            ends[-1][1] = line
        else:
            ends.append([line, line])
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in ends]
    more = f", and {len(texts) - _SHOWN_RANGES} more" if len(texts) > _SHOWN_RANGES else ""
    return ", ".join(texts[:_SHOWN_RANGES]) + more


def why(
    lake: Lakehouse,
    table: str,
    where: str,
    *,
    column: str | None = None,
    snapshot_id: int | None = None,
    run: str | None = None,
    sample: int = 0,
) -> Why:
    """What rows of a table were computed from, by the checkout's definitions.

    Args:
        lake: the catalog that the pipeline writes to.
        table: dotted name.
        where: which rows, at most `MOST_ROWS`.
        column: the one that is asked about; rows that an aggregate of that name does not count are
            left out.
        snapshot_id: of the table; None: the current one.
        run: of Dagster, whose last snapshot of the table is meant.
        sample: so many rows of each table on the way are shown.

    Raises:
        NotFoundError: no rows, or no checkout.
        InvalidInputError: too many rows, or no such column.
    """
    checkout = checkout_here()
    derived = with_views(lake, checkout.pipeline.derived)
    with spark_when_asked("lakehouse-why") as session:
        answer = explained_rows(
            lake,
            derived,
            table,
            where,
            column=column,
            snapshot_id=snapshot_id,
            run=run,
            keys=declared_keys(checkout),
            session=session,
        )
    answer = replace(answer, sample=sample)
    writers = {
        origin.table: [(origin.run_id, origin.asset)]
        for origin in answer.origin.all()
        if origin.run_id and origin.asset
    }
    try:
        return replace(answer, checks=checks_of(writers))
    except NotFoundError:  # no instance of Dagster is here
        return answer


def offending(
    lake: Lakehouse,
    derived: Mapping[str, DerivedTable],
    name: str,
    snapshot_id: int,
    outcome: CheckOutcome,
    session: Callable[[], SparkSession],
    judged: Where = None,
) -> dict[str, str]:
    """Of a failed check: the command that explains its rows, and a few of their landing lines.

    `judged` are the rows that the check was about; None: all.
    """
    where = outcome.metadata.get(UNEXPECTED_WHERE)
    if not where:
        return {}
    text = f'lakehouse why {name} --snapshot {snapshot_id} --where "{where}"'
    try:
        answer = explained_rows(
            lake, derived, name, str(where), snapshot_id=snapshot_id, among=judged, session=session
        )
    except LakehouseError as error:  # such as too many rows
        return {"explain": text, "landing lines": error.message[:1000]}
    except Exception as error:
        # of an engine: the run did what it did, and the check has failed, whatever this finds
        log.exception("the rows of a failed check of %s cannot be explained", name)
        return {"explain": text, "landing lines": repr(error)[:1000]}
    files = [] if answer.equal is None else list(answer.lines.items())
    lines = [f"{file}: {_ranges(numbers)}" for (_, file), numbers in files[:_SHOWN_FILES]]
    more = [f"and {len(files) - _SHOWN_FILES:,} more files"] if len(files) > _SHOWN_FILES else []
    return {"explain": text, **({"landing lines": "; ".join(lines + more)} if lines else {})}


def declared_keys(checkout: Checkout) -> dict[str, tuple[str, ...]]:
    """Table of a plain asset -> the columns that its metadata declares (`KEY_METADATA`)."""
    declared = {
        ".".join(spec.key.path): spec.metadata.get(KEY_METADATA)
        for spec in checkout.defs.resolve_all_asset_specs()
    }
    return {
        name: tuple(column.strip() for column in str(columns).split(","))
        for name, columns in declared.items()
        if columns
    }


def explained_rows(
    lake: Lakehouse,
    derived: Mapping[str, DerivedTable],
    name: str,
    where: str,
    *,
    column: str | None = None,
    snapshot_id: int | None = None,
    run: str | None = None,
    among: Where = None,
    keys: Mapping[str, Sequence[str]] | None = None,
    session: Callable[[], SparkSession],
) -> Why:
    """As `why`, by these definitions; `session` is asked where SQL needs Spark.

    Only rows `among` these are explained. `keys` are columns that rows of tables of functions have
    from their inputs' rows.
    """
    explaining = _Explaining(lake, derived, session, keys or {})
    view = plain_view(lake, name)
    if view is not None:
        if run is not None or snapshot_id is not None:
            raise InvalidInputError(f"{name} is a view: it has no snapshots and no runs")
        origin = explaining.of_view(view, where, column)
        return _answer(lake, where, column, origin)
    table = asked_table(lake, name)
    if run is not None:
        if snapshot_id is not None:
            raise InvalidInputError("say which snapshot: either its id, or the run that wrote it")
        snapshot_id = snapshot_of_run(table.metadata, run).snapshot_id
    snapshot = snapshot_at(table, snapshot_id)
    schema = table.metadata.schema_for(snapshot)
    if column is not None and column not in schema.column_names:
        known = ", ".join(schema.column_names)
        raise InvalidInputError(f"{name} has no column {column!r}; columns: {known}")
    check_condition(name, where, schema)
    chosen = conjunction([bind(where, schema), bind(among, schema)])
    scan = table.scan(chosen, snapshot_id=snapshot.snapshot_id)
    _refuse_many(name, where, scan.count())
    rows = scan.to_arrow()
    if not rows.num_rows:
        raise NotFoundError(f"no row of {name} at snapshot {snapshot.snapshot_id} is {where}")
    return _answer(lake, where, column, explaining.origin(table, snapshot, rows, column))


def _refuse_many(name: str, where: str, count: int) -> None:
    if count > MOST_ROWS:
        raise InvalidInputError(
            f"{count:,} rows of {name} are {where}: at most {MOST_ROWS:,} are explained at once; "
            "narrow --where"
        )


def _answer(lake: Lakehouse, where: str, column: str | None, origin: Origin) -> Why:
    equal, difference = _compared(origin, column)
    quarantined, rejects = _quarantined(lake, origin)
    return Why(where, column, origin, _lines(origin), quarantined, rejects, equal, difference)


@dataclass(frozen=True, slots=True)
class _Explaining:
    """One question.

    Attributes:
        lake: where the tables are.
        derived: their definitions.
        session: of Spark.
        keys: of tables of functions, which their rows have from their inputs'.
    """

    lake: Lakehouse
    derived: Mapping[str, DerivedTable]
    session: Callable[[], SparkSession]
    keys: Mapping[str, Sequence[str]]

    def origin(
        self, table: Table, snapshot: Snapshot, rows: pa.Table, column: str | None = None
    ) -> Origin:
        """Where rows of a table come from."""
        origin = _origin(table, snapshot, rows, rows.num_rows)
        if not rows.num_rows:
            return replace(origin, computed=rows)
        definition = self.derived.get(table.name)
        if definition is None:
            return origin if origin.landed else self._function(origin, table, snapshot)
        parts = [
            self._computed_from(definition, origin, inputs, days, of_state, column)
            for inputs, days, of_state in self._by_state(definition, table, snapshot, rows)
        ]
        first, *others = parts
        if not others:
            return replace(first, rows=rows)
        computed = [part.computed for part in parts]
        return replace(
            first,
            rows=rows,
            inputs=tuple(source for part in parts for source in part.inputs),
            notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
            computed=None if None in computed else pa.concat_tables(computed),
        )

    def of_view(self, view: DerivedTable, where: str, column: str | None) -> Origin:
        """Where rows of a view come from, as its tables are now.

        Raises NotFoundError: it has no such row. InvalidInputError: too many, or no such column.
        """
        schema = self.lake.load_view(view.name).schema()
        check_condition(view.name, where, schema)
        if column is not None and column not in schema.column_names:
            raise InvalidInputError(f"{view.name} has no column {column!r}")
        tables, _ = tables_at(self.lake, view.inputs, {})
        if view.query is None or len(tables) < len(view.inputs):
            raise NotFoundError(f"{view.name} has no rows: a table that it reads has none")
        model = Model(view.query, tables, view.name, self.session)
        rows = model.asked_for(*asked_values(schema, where))
        _refuse_many(view.name, where, rows.num_rows)
        if not rows.num_rows:
            raise NotFoundError(f"no row of {view.name} is {where}")
        now = datetime.fromtimestamp(self.lake.environment.now_ms() / 1000, UTC)
        origin = Origin(view.name, None, rows, rows.num_rows, None, now)
        heads = {name: snapshot.snapshot_id for name, (_, snapshot) in tables.items()}
        return self._computed_from(view, origin, heads, None, rows, column)

    def _function(self, origin: Origin, table: Table, snapshot: Snapshot) -> Origin:
        """Of a plain asset: the tables that its snapshot says were read."""
        state = next(refresh_states(table.metadata, snapshot.snapshot_id), None)
        if state is None:
            note = "no snapshot says what it was computed from"
            return replace(origin, notes=(note,), computed=None)
        tables, notes = tables_at(self.lake, state.inputs, state.inputs)
        keys = self.keys.get(table.name)
        if keys is not None:
            return self._by_keys(origin, tables, keys, notes)
        note = "computed by a function of all their rows, which are not followed"
        return self._coarse(origin, tables, None, [*notes, note])

    def _by_keys(
        self,
        origin: Origin,
        tables: Mapping[str, tuple[Table, Snapshot]],
        keys: Sequence[str],
        notes: list[str],
    ) -> Origin:
        """Of a function that declares keys: rows of its inputs with the same."""
        inputs = []
        for name, (table, snapshot) in tables.items():
            schema = table.metadata.schema_for(snapshot)
            if set(keys) <= set(schema.column_names) & set(origin.rows.column_names):
                where = conjunction([having(key, origin.rows[key], schema) for key in keys])
                rows = table.scan(where, snapshot_id=snapshot.snapshot_id).to_arrow()
                inputs.append(
                    self.origin(table, snapshot, with_keys(rows, origin.rows.select(keys)))
                )
            else:
                inputs += self._coarse(origin, {name: (table, snapshot)}, None, ()).inputs
                notes.append(f"{name} has no {', '.join(keys)}: all its rows, not followed")
        note = f"computed by a function: it declares that {', '.join(keys)} is that of its inputs"
        return replace(origin, inputs=tuple(inputs), notes=(*notes, note), computed=None)

    def _by_state(
        self, definition: DerivedTable, table: Table, snapshot: Snapshot, rows: pa.Table
    ) -> Iterator[tuple[Mapping[str, int | None], list[str] | None, pa.Table]]:
        """Rows by the snapshots that they were computed from, with their partitions."""
        partitioning = definition.partitioning
        keys = None if partitioning is None else partitioning.keys_of(rows)
        distinct = [] if keys is None else keys.unique().to_pylist()
        for inputs, partitions in states(definition, table, snapshot, distinct):
            if keys is None or partitions is None:
                yield inputs, None, rows
            else:
                chosen = pc.is_in(keys, pa.array(partitions, pa.string()))
                yield inputs, partitions, rows.filter(chosen)

    def _computed_from(
        self,
        definition: DerivedTable,
        origin: Origin,
        inputs: Mapping[str, int | None],
        keys: list[str] | None,
        rows: pa.Table,
        column: str | None,
    ) -> Origin:
        tables, notes = tables_at(self.lake, definition.inputs, inputs)
        query = definition.query
        chosen = partial(definition.where_read, keys)
        if query is None or len(tables) < len(definition.inputs):
            why_not = (
                "computed by a function" if query is None else "an input was empty"
            ) + ": rows of the inputs that it may have read"
            return self._coarse(origin, tables, chosen, [*notes, why_not])
        model = Model(query, tables, definition.name, self.session)
        try:
            parts = model.rows_behind(rows, column, chosen)
        except UntracedError as error:
            return self._coarse(
                origin,
                tables,
                chosen,
                [*notes, f"{error} is not followed: rows that it may have read"],
            )
        origins = {name: self.origin(*tables[name], part) for name, part in parts.items()}
        again = model.again({name: origin.computed for name, origin in origins.items()})
        return replace(
            origin,
            inputs=tuple(origins.values()),
            notes=tuple(notes),
            computed=_kept(again, rows, model.keys),
            keys=model.keys,
        )

    def _coarse(
        self,
        origin: Origin,
        tables: Mapping[str, tuple[Table, Snapshot]],
        chosen: Chosen | None,
        notes: Sequence[str],
    ) -> Origin:
        """All rows that may have been read, not followed further."""
        inputs = []
        for table, snapshot in tables.values():
            schema = table.metadata.schema_for(snapshot)
            where, names = None if chosen is None else chosen(schema), schema.column_names
            scan = table.scan(where, snapshot_id=snapshot.snapshot_id)
            count, rows = scan.count(), pa.table({})
            if LANDING_FILE in names and count <= MOST_LINES:
                columns = [LANDING_FILE, LANDING_LINE]
                rows = table.scan(where, columns, snapshot_id=snapshot.snapshot_id).to_arrow()
            inputs.append(_origin(table, snapshot, rows, count))
        return replace(origin, inputs=tuple(inputs), notes=tuple(notes), computed=None)


def tables_at(
    lake: Lakehouse, names: Iterable[str], inputs: Mapping[str, int | None]
) -> tuple[dict[str, tuple[Table, Snapshot]], list[str]]:
    """Inputs at the snapshots that were read, and which are not there any more."""
    tables, notes = {}, []
    for name in names:
        read = lake.load_table(name)
        at = inputs.get(name)
        snapshot = None if at is None else read.metadata.snapshot_or_none(at)
        if snapshot is None and (at is not None or name not in inputs):
            snapshot = read.current_snapshot()
            why_not = "nobody recorded which snapshot was read"
            notes.append(f"{name} as it is now: {why_not if at is None else f'{at} expired'}")
        if snapshot is not None:
            tables[name] = (read, snapshot)
    return tables, notes


def states(
    definition: DerivedTable, table: Table, snapshot: Snapshot, keys: Iterable[str]
) -> Iterator[tuple[Mapping[str, int | None], list[str] | None]]:
    """The snapshots that a table was computed from: with the partitions that were; None: all."""
    recorded = list(refresh_states(table.metadata, snapshot.snapshot_id))
    if not recorded or definition.partitioning is None:
        yield recorded[0].inputs if recorded else {}, None
        return
    by_state: dict[int, list[str]] = {}
    for key in keys:
        at = next((n for n, state in enumerate(recorded) if key not in state.behind), 0)
        by_state.setdefault(at, []).append(key)
    for at, partitions in by_state.items():
        yield recorded[at].inputs, partitions


class Model:
    """A query over tables at snapshots, run over some of their rows.

    Args:
        model: the query.
        tables: that it reads, by name.
        what: names it in messages.
        session: of Spark.

    Attributes:
        query: typed and qualified.
        keys: columns of the result that tell its rows apart, where the query says so.
    """

    def __init__(
        self,
        model: FollowedQuery,
        tables: Mapping[str, tuple[Table, Snapshot]],
        what: str,
        session: Callable[[], SparkSession],
    ) -> None:
        self._model, self._tables, self._what, self._session = model, tables, what, session
        self._schemas = {
            model.views[name]: table.metadata.schema_for(snapshot)
            for name, (table, snapshot) in tables.items()
        }
        tree = typed(model.tree, self._schemas, what, model.grammar)
        self.query = tree
        keys = keys_of(tree)
        self.keys = None if keys is None else tuple(keys)

    def rows_behind(
        self, rows: pa.Table, column: str | None, chosen: Chosen | None
    ) -> dict[str, pa.Table]:
        """The rows of each table that these rows of the result come from. Raises UntracedError."""
        query = traced(self.query, column)
        names = self._names(rows)
        targets = rows.select(names).group_by(names).aggregate([]) if names else rows.slice(0, 1)
        certain = {key: targets[key] for key in names if not targets[key].null_count}
        read = self.read(certain, chosen)
        columns = [leaf.column for leaf in query.leaves]
        on = [same("__traced", _TARGETS, key) for key in names]
        joined = _of_targets(query, columns, on)
        row_numbers: dict[str, list[pa.Array]] = {}
        for part, text in [(query, joined), *((side, side.query) for side in query.beside)]:
            numbers = self._numbers(text, {**read, **({_TARGETS: targets} if names else {})})
            for leaf in part.leaves:
                row_numbers.setdefault(leaf.table, []).append(
                    pc.drop_null(pc.unique(numbers[leaf.column].combine_chunks()))
                )
        result = {}
        for name, view in self._model.views.items():
            taking = row_numbers.get(view, [])
            taken = pc.unique(pa.concat_arrays(taking)) if taking else pa.array([], pa.int64())
            result[name] = read[view].take(taken.sort()).drop_columns(ROW)
        return result

    def again(self, inputs: Mapping[str, pa.Table | None]) -> pa.Table | None:
        """The query over other rows of its tables; None where some are not known."""
        known = {self._model.views[name]: rows for name, rows in inputs.items()}
        if any(rows is None for rows in known.values()):
            return None
        return self.run(self.query, {n: rows for n, rows in known.items() if rows is not None})

    def asked_for(
        self, values: Mapping[str, pa.ChunkedArray], conditions: Sequence[exp.Expr]
    ) -> pa.Table:
        """Rows of the result that meet conditions on its columns, which say these values."""
        return self.run(asked_of(self.query, conditions, exp.Star()), self.read(values, None))

    def rows_only_of(
        self, given: Mapping[str, pa.Table], rows: pa.Table
    ) -> Counter[tuple[Any, ...]] | None:
        """How often the query gives rows because of rows of some tables, all others as they are.

        None: a table joins or groups these, so that a row may be of others, too.

        Args:
            given: by the name of the table.
            rows: of the result, all that may be of these.
        """
        views = {self._model.views[name]: table for name, table in given.items()}
        if not is_row_by_row(self.query, views):
            return None
        certain = {
            field.name: rows[field.name]
            for field in rows.schema
            if _is_exact(field.type) and not rows[field.name].null_count
        }
        read = {view: table.drop_columns(ROW) for view, table in self.read(certain, None).items()}
        counts = []
        for mine in (views, {view: table.slice(0, 0) for view, table in views.items()}):
            result = self.run(self.query, read | mine).select(rows.column_names).cast(rows.schema)
            counts.append(Counter(comparable(row.values()) for row in result.to_pylist()))
        with_them, without = counts
        return with_them - without

    def rows_made_of(
        self,
        given: Mapping[str, pa.Table],
        schema: pa.Schema,
        chosen: Chosen | None,
    ) -> pa.Table | None:
        """Columns that tell rows of the result apart, of those that come from rows of tables.

        None: every row does. Equal rows of the tables count as one. Raises UntracedError.

        Args:
            given: by the name of the table.
            schema: of the result.
            chosen: filter on every table.
        """
        query = traced(self.query)
        names = self._names(schema)
        views = {self._model.views[name]: rows for name, rows in given.items()}
        read = self.read(_common_values(same_columns(self.query, names), views), chosen)
        marked = {
            view: pa.table({ROW: with_keys(read[view], _identity(rows))[ROW]})
            for view, rows in views.items()
        }
        for part in query.beside:
            for leaf in part.leaves:
                if leaf.table in marked and marked[leaf.table].num_rows:
                    numbers = self._numbers(part.query, read)[leaf.column]
                    if pc.any(pc.is_in(numbers, marked[leaf.table][ROW].combine_chunks())).as_py():
                        return None
        parts = []
        for leaf in query.leaves:
            targets = marked.get(leaf.table)
            if targets is not None and targets.num_rows:
                on = column_of("__traced", leaf.column).eq(column_of(_TARGETS, ROW))
                joined = _of_targets(query, names or [leaf.column], [on])
                parts.append(self._numbers(joined, {**read, _TARGETS: targets}))
        if not parts:
            return schema.empty_table().select(names)
        if not names:
            return None if any(rows.num_rows for rows in parts) else schema.empty_table()
        types = pa.schema([schema.field(column) for column in names])
        together = pa.concat_tables([rows.cast(types) for rows in parts])
        return together.group_by(names).aggregate([])

    def _names(self, rows: pa.Table | pa.Schema) -> list[str]:
        """Columns of the result that tell its rows apart."""
        schema = rows if isinstance(rows, pa.Schema) else rows.schema
        names = schema.names if self.keys is None else self.keys
        return [name for name in names if _is_exact(schema.field(name).type)]

    def read(
        self,
        values: Mapping[str, pa.ChunkedArray],
        chosen: Chosen | None,
        asked: Sequence[tuple[str, str]] = (),
    ) -> dict[str, pa.Table]:
        """The rows of each table that may be behind values of the result, numbered.

        Args:
            values: of columns of the result.
            chosen: filter on every table.
            asked: more conditions on the result: a column, and the condition on it, as SQL.
        """
        also: dict[str, list[str]] = {}
        for view, pairs in same_columns(self.query, [column for column, _ in asked]).items():
            for pair in (pair for pair in pairs if not pair.days):
                also.setdefault(view, []).extend(
                    text.replace(f'"{column}"', f'"{pair.column}"')
                    for column, text in asked
                    if column == pair.output
                )
        same_as = same_columns(self.query, values)
        by_view = {}
        for name, (table, snapshot) in self._tables.items():
            view = self._model.views[name]
            schema = self._schemas[view]
            parts = [
                having(pair.column, values[pair.output], schema, days=pair.days)
                for pair in same_as.get(view, ())
            ]
            parts += [bind(text, schema) for text in also.get(view, ())]
            where = conjunction([bind(chosen and chosen(schema), schema), *parts])
            rows = table.scan(where, snapshot_id=snapshot.snapshot_id).to_arrow()
            by_view[view] = rows.append_column(ROW, pa.array(np.arange(rows.num_rows)))
        return by_view

    def _numbers(self, query: exp.Query, tables: Mapping[str, pa.Table]) -> pa.Table:
        """The result of a traced query. Raises UntracedError: the engine does not take it."""
        try:
            return self.run(query, tables)
        except LakehouseError:
            raise
        except Exception as error:
            first = str(error).splitlines()[0]
            raise UntracedError(f"a query that the engine refuses ({first})") from error

    def run(self, query: exp.Query, tables: Mapping[str, pa.Table]) -> pa.Table:
        """The result of a query over rows of the tables, by their names in the query."""
        grammar, name = self._model.grammar, self._model.dialect
        schemas = {view: to_schema(rows.schema) for view, rows in tables.items()}
        if name != "spark":
            text = query.sql(dialect=grammar)
        else:
            try:
                text, name = translated(query, schemas, "datafusion", self._what), "datafusion"
            except InvalidInputError:
                text = query.sql(dialect="spark")
        engine = open_engine(name, self._session)
        frames = {view: engine.frame_of(rows) for view, rows in tables.items()}
        result = engine.result(engine.sql(text, frames), self._what)
        return result.read_all() if isinstance(result, pa.RecordBatchReader) else result.toArrow()


def _of_targets(query: TracedQuery, columns: Iterable[str], on: Sequence[exp.Expr]) -> exp.Query:
    """Columns of a traced query, of the rows that meet those of a table of targets."""
    joined = exp.select(*[column_of("__traced", column) for column in columns])
    joined = joined.from_(aliased(query.query, "__traced"))
    target = exp.alias_(exp.to_table(_TARGETS), _TARGETS, table=True, quoted=True)
    return joined.join(target, on=exp.and_(*on)) if on else joined


def _common_values(
    same_as: Mapping[str, Sequence[Same]], rows: Mapping[str, pa.Table]
) -> dict[str, pa.ChunkedArray]:
    """Values that columns of a result have, whichever of these tables' rows it comes from."""
    tables: list[dict[str, pa.ChunkedArray]] = []
    for view, table in rows.items():
        values = {}
        for pair in same_as.get(view, ()):
            column = table[pair.column]
            if not column.null_count:
                days = pa.date32()
                values[pair.output] = column.cast(days, safe=False) if pair.days else column
        tables.append(values)
    first, *others = tables
    return {
        output: pa.chunked_array(
            [*values.chunks, *(chunk for columns in others for chunk in columns[output].chunks)]
        )
        for output, values in first.items()
        if all(output in columns and columns[output].type == values.type for columns in others)
    }


def _identity(rows: pa.Table) -> pa.Table:
    """What tells rows of a table apart: where they landed, else all that can be compared."""
    if {LANDING_FILE, LANDING_LINE} <= set(rows.column_names):
        return rows.select([LANDING_FILE, LANDING_LINE])
    return rows.select([field.name for field in rows.schema if _is_exact(field.type)])


def asked_table(lake: Lakehouse, name: str, where: str | None = None) -> Table:
    """A table that somebody named, and perhaps a condition on its rows.

    Raises:
        NotFoundError: there is none; with names that are like it.
        InvalidInputError: the condition is empty, or cannot be read.
    """
    try:
        table = lake.load_table(storage_of(lake, name))
    except NoSuchTableError as error:
        if lake.view_exists(name):
            materialized = storage_of(lake, name) != name
            hint = f"was never refreshed: lakehouse materialized-view refresh {name}"
            is_view = "is a view without rows of its own: name a table that it reads"
            raise NotFoundError(f"{name} {hint if materialized else is_view}") from error
        near = get_close_matches(name, lake.list_tables(), 3)
        hint = f"did you mean {' or '.join(near)}?" if near else "`lakehouse tables` lists them"
        raise NotFoundError(f"there is no table {name}: {hint}") from error
    if where is not None:
        check_condition(name, where, table.schema())
    return table


def check_condition(name: str, where: str, schema: Schema) -> None:
    """Raises InvalidInputError: a condition on a table's rows is empty, or cannot be read."""
    if not where.strip():
        raise InvalidInputError(f"which rows of {name}? Its --where is empty; true means all")
    try:
        bind(where, schema)
    except InvalidExpressionError as error:
        raise InvalidInputError(f"{name}: {error.message}") from error


def snapshot_at(table: Table, snapshot_id: int | None) -> Snapshot:
    """A snapshot by its id, or the current one. Raises NotFoundError: there is none."""
    if snapshot_id is not None:
        return table.metadata.snapshot(snapshot_id)
    current = table.current_snapshot()
    if current is None:
        raise NotFoundError(f"{table.name} has no rows")
    return current


def _kept(computed: pa.Table | None, rows: pa.Table, keys: Sequence[str] | None) -> pa.Table | None:
    """What was computed again, in the table's columns and types, of the requested rows.

    A row of an input may be made into other rows, too: those are left out.
    """
    if computed is None:
        return None
    columns = [
        computed[field.name].cast(field.type)
        if field.name in computed.column_names
        else pa.nulls(computed.num_rows, field.type)
        for field in rows.schema
    ]
    typed = pa.table(columns, names=rows.column_names)
    names = [
        name
        for name in (rows.column_names if keys is None else keys)
        if _is_exact(rows.schema.field(name).type)
    ]
    return with_keys(typed, rows.select(names)) if names else typed


def _is_exact(kind: pa.DataType) -> bool:
    """Whether equal values are computed equal, and joins take them."""
    return not (pa.types.is_floating(kind) or pa.types.is_nested(kind))


def _origin(table: Table, snapshot: Snapshot, rows: pa.Table, count: int) -> Origin:
    line = table.metadata.ancestors(snapshot.snapshot_id)
    changed = next(
        (snapshot for snapshot in line if snapshot.operation != OPERATION_REPLACE), snapshot
    )
    state = changed.summary.get(REFRESH_STATE)
    return Origin(
        table.name,
        snapshot.snapshot_id,
        rows,
        count,
        changed.summary.get(RUN_ID),
        snapshot.committed_at,
        computed=rows,
        asset=changed.summary.get(ASSET_KEY),
        definition="" if state is None else RefreshState.from_json(state).definition,
    )


def _compared(origin: Origin, column: str | None) -> tuple[bool | None, str]:
    """Whether the rows were computed again, and what is different."""
    if origin.computed is None:
        return None, "rows are not followed exactly down to what landed"
    if not origin.inputs:
        return True, ""  # they are what landed
    names = origin.rows.column_names
    if column is not None and origin.keys is not None:
        names = list(dict.fromkeys((*origin.keys, column)))
    had, has = (_counted(rows.select(names)) for rows in (origin.rows, origin.computed))
    if had == has:
        return True, ""
    missing, unexpected = list((had - has).elements()), list((has - had).elements())
    differences = [f"{len(missing):,} rows are missing: {missing[0]}"] if missing else []
    differences += [f"{len(unexpected):,} rows are others: {unexpected[0]}"] if unexpected else []
    return False, "; ".join(differences)


def _counted(rows: pa.Table) -> Counter[str]:
    """Rows as text. Floating sums follow the order of their terms: twelve digits are compared."""

    def shown(value: Any) -> Any:
        return float(f"{value:.12g}") if isinstance(value, float) else value

    return Counter(
        str({name: shown(value) for name, value in row.items()}) for row in rows.to_pylist()
    )


def _lines(origin: Origin) -> dict[tuple[str, str], tuple[int, ...]]:
    """Landing lines of raw rows, by table and file."""
    lines: dict[tuple[str, str], set[int]] = {}
    for source in origin.all():
        if source.landed:
            rows = source.rows.select([LANDING_FILE, LANDING_LINE]).group_by(LANDING_FILE)
            grouped = rows.aggregate([(LANDING_LINE, "distinct")]).to_pylist()
            for row in grouped:
                place = source.table, row[LANDING_FILE]
                lines.setdefault(place, set()).update(row[f"{LANDING_LINE}_distinct"])
    return {place: tuple(sorted(lines[place])) for place in sorted(lines)}


def _quarantined(
    lake: Lakehouse, origin: Origin
) -> tuple[dict[str, dict[str, int]], dict[tuple[str, str], tuple[int, ...]]]:
    """Lines of the same days that became no row: by reason, and by file."""
    days: dict[str, set[date]] = {}
    for source in origin.all():
        if source.landed and EVENT_TS in source.rows.column_names:
            event_days = source.rows[EVENT_TS].cast(pa.date32(), safe=False).unique().to_pylist()
            days.setdefault(f"{source.table}{_QUARANTINE}", set()).update(event_days)
    reasons: dict[str, dict[str, int]] = {}
    places: dict[tuple[str, str], list[int]] = {}
    for name, literals in days.items():
        if not lake.table_exists(name):
            continue
        columns = ["reason", LANDING_FILE, LANDING_LINE]
        of_days = In(term="event_day", literals=literals)
        rejects = lake.load_table(name).scan(of_days, columns).to_arrow()
        if rejects.num_rows:
            reasons[name] = dict(Counter(rejects["reason"].to_pylist()).most_common())
        for file, line in zip(*(rejects[place].to_pylist() for place in columns[1:]), strict=True):
            places.setdefault((name, file), []).extend(() if line is None else (line,))
    return reasons, {place: tuple(sorted(places[place])) for place in sorted(places)}


def _listed(places: Mapping[tuple[str, str], Sequence[int]]) -> list[dict[str, object]]:
    return [
        {"table": table, "file": file, "lines": list(lines)}
        for (table, file), lines in places.items()
    ]


def _files(places: Mapping[tuple[str, str], Sequence[int]]) -> Iterator[RenderableType]:
    """Landing files with their lines, the first ones."""
    files = Lines("landing file", "lines", "which", box=None, pad_edge=False, header_style="bold")
    for (_, file), lines in list(places.items())[:_SHOWN_FILES]:
        files.add_row(file, f"{len(lines):,}", _ranges(lines))
    if places:
        yield files
    if len(places) > _SHOWN_FILES:
        yield Text(f"and {len(places) - _SHOWN_FILES:,} more files (--json has them all)")
