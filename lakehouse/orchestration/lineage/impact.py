"""What landing lines, or rows of a table, went into: the rows of the tables derived from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression, EqualTo, In
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from lakehouse.errors import InvalidInputError, NotFoundError
from lakehouse.expressions.bound_filter import conjunction
from lakehouse.expressions.filter_binding import bind
from lakehouse.ingestion.landing_ledger import LedgerRow
from lakehouse.ingestion.source import LANDING_FILE, LANDING_LINE
from lakehouse.ingestion.source_tables import read_ledger
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.assets.incremental import having, with_keys
from lakehouse.orchestration.assets.staleness import refresh_state, refresh_states
from lakehouse.orchestration.checkout import checkout_here
from lakehouse.orchestration.lineage.traced_query import UntracedError
from lakehouse.orchestration.lineage.view_definitions import with_views
from lakehouse.orchestration.lineage.why import (
    MOST_LINES,
    Model,
    asked_table,
    declared_keys,
    row_text,
    states,
    tables_at,
)
from lakehouse.orchestration.resources import spark_when_asked
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Where = BooleanExpression | str


@dataclass(frozen=True, slots=True)
class Reached:
    """Rows of a table that came from others.

    Attributes:
        table: dotted name.
        snapshot_id: of the table.
        committed_at: of the snapshot.
        rows: these rows; None: they are not followed exactly.
        inputs: tables that they came from.
        notes: what is not followed, and what may have been reached instead.
    """

    table: str
    snapshot_id: int
    committed_at: datetime
    rows: pa.Table | None
    inputs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Impact:
    """What landing lines, or rows of a table, went into.

    Attributes:
        table: that they are of.
        of: which they are.
        reached: rows of tables, each after those that it is computed from.
        quarantined: of the lines, those that became no row: reason -> lines.
        ledger: what became of the landing file's lines, as its ledger counts them.
        sample: so many rows of each table are shown.
    """

    table: str
    of: str
    reached: tuple[Reached, ...]
    quarantined: Mapping[str, int] = field(default_factory=dict)
    ledger: Mapping[str, int] = field(default_factory=dict)
    sample: int = 5

    def to_dict(self) -> dict[str, object]:
        """For JSON: ids as text."""
        return {
            "table": self.table,
            "of": self.of,
            "quarantined": dict(self.quarantined),
            "ledger": dict(self.ledger),
            "reached": [
                {
                    "table": reached.table,
                    "snapshot_id": str(reached.snapshot_id),
                    "committed_at": reached.committed_at.isoformat(),
                    "from": list(reached.inputs),
                    "rows": None if reached.rows is None else reached.rows.num_rows,
                    "sample": []
                    if reached.rows is None
                    else reached.rows.slice(0, self.sample).to_pylist(),
                    "notes": list(reached.notes),
                }
                for reached in self.reached
            ],
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """For people: what became of the lines, and a few rows of each table."""
        yield Text(f"{self.of} of {self.table}", style="bold")
        if self.ledger:
            counts = ", ".join(f"{count:,} {what}" for what, count in self.ledger.items())
            yield Text(f"the file, as the ledger counts: {counts}")
        for reason, count in self.quarantined.items():
            yield Text(f"{count:,} in {self.table}_quarantine: {reason}")
        for reached in self.reached:
            yield Text("")
            by = f" from {', '.join(reached.inputs)}" if reached.inputs else ""
            many = (
                "rows that are not known" if reached.rows is None else _rows(reached.rows.num_rows)
            )
            yield Text.assemble(
                (reached.table, "bold"), f": {many}{by}, at snapshot {reached.snapshot_id}"
            )
            for note in reached.notes:
                yield Text(f"  {note}", style="yellow")
            if reached.rows is not None:
                for row in reached.rows.slice(0, self.sample).to_pylist():
                    yield Text(f"  {row_text(row)}")
                if reached.rows.num_rows > self.sample:
                    yield Text(f"  and {_rows(reached.rows.num_rows - self.sample)} more")


def _rows(count: int) -> str:
    return f"{count:,} {'row' if count == 1 else 'rows'}"


def impact(
    lake: Lakehouse,
    table: str,
    *,
    file: str | None = None,
    lines: Sequence[int] = (),
    where: str | None = None,
    sample: int = 5,
) -> Impact:
    """What landing lines, or rows of a table, went into, by the checkout's definitions.

    Args:
        lake: the catalog that the pipeline writes to.
        table: dotted name.
        file: a landing file of the table.
        lines: of the file; none: all of them.
        where: which rows, instead of a file.
        sample: so many rows of each table are shown.

    Raises:
        NotFoundError: no such rows or lines, or no checkout.
        InvalidInputError: neither a file nor a condition, or both; more than `MOST_LINES` rows.
    """
    checkout = checkout_here()
    derived = with_views(lake, checkout.pipeline.derived)
    with spark_when_asked("lakehouse-impact") as session:
        return followed_rows(
            lake,
            derived,
            table,
            file=file,
            lines=lines,
            where=where,
            sample=sample,
            others={**dict.fromkeys(checkout.pipeline.others, ()), **declared_keys(checkout)},
            session=session,
        )


def followed_rows(
    lake: Lakehouse,
    derived: Mapping[str, DerivedTable],
    name: str,
    *,
    file: str | None = None,
    lines: Sequence[int] = (),
    where: str | None = None,
    sample: int = 5,
    others: Mapping[str, Sequence[str]] | None = None,
    session: Callable[[], SparkSession],
) -> Impact:
    """As `impact`, by these definitions; `others` are tables of functions, with their keys."""
    if (file is None) == (where is None):
        raise InvalidInputError("say which rows: either --file, with or without --line, or --where")
    if lines and file is None:
        raise InvalidInputError("--line is of a landing file: name it with --file")
    table = asked_table(lake, name, where)
    name = table.name
    if file is None:
        asked: _Where = where or ""
        of = f"rows where {where}"
    else:
        if LANDING_FILE not in table.schema().column_names:
            raise InvalidInputError(f"{name} has no landing lines: ask with --where instead")
        asked = EqualTo(term=LANDING_FILE, value=file)
        of = f"all lines of {file}"
        if lines:
            asked &= In(term=LANDING_LINE, literals=set(lines))
            of = f"line {', '.join(map(str, lines))} of {file}"
    below = rows_below(lake, derived, name, asked, session)
    rejected = _rejected(lake, name, asked) if file is not None else {}
    ledger = landed_in(lake, name, file) if file is not None else {}
    if not rejected and not (below and below[0].rows):
        reason = _nowhere(name, ledger) if file is not None else f"{name} has no such row"
        raise NotFoundError(f"{of}: {reason}")
    reached = [reached for reached in below if reached.rows is None or reached.rows.num_rows]
    reached += _by_functions(lake, others or {}, {arrival.table: arrival for arrival in reached})
    return Impact(name, of, tuple(reached), rejected, ledger, sample)


def rows_below(
    lake: Lakehouse,
    derived: Mapping[str, DerivedTable],
    name: str,
    asked: _Where,
    session: Callable[[], SparkSession],
) -> list[Reached]:
    """Rows of a table, and of every table derived from it those that came from them, if any did.

    Each table comes after those that it is computed from; tables without a snapshot are left out.
    """
    following = _Following(lake, derived, name, asked, session)
    tables = map(lake.load_table, filter(lake.table_exists, [name, *following.downstream()]))
    heads = [(table.name, table.current_snapshot()) for table in tables]
    return [following.rows_at(name, head) for name, head in heads if head is not None]


@dataclass(slots=True)
class _Following:
    """One question: where rows of a table went.

    Attributes:
        lake: where the tables are.
        derived: their definitions.
        base: the table.
        asked: which of its rows.
        session: of Spark.
        known: answers so far, by table and snapshot.
    """

    lake: Lakehouse
    derived: Mapping[str, DerivedTable]
    base: str
    asked: _Where
    session: Callable[[], SparkSession]
    known: dict[tuple[str, int], Reached] = field(default_factory=dict)

    def downstream(self) -> list[str]:
        """Tables that are computed from it, each after those that it is computed from."""
        inputs = {name: definition.inputs for name, definition in self.derived.items()}
        names = [self.base]
        for name in TopologicalSorter(inputs).static_order():
            if name != self.base and set(inputs.get(name, ())) & set(names):
                names.append(name)
        return names[1:]

    def rows_at(self, name: str, snapshot: Snapshot) -> Reached:
        """The rows of a table at a snapshot that came from those asked about."""
        place = name, snapshot.snapshot_id
        if place not in self.known:
            self.known[place] = self._rows_at(self.lake.load_table(name), snapshot)
        return self.known[place]

    def _rows_at(self, table: Table, snapshot: Snapshot) -> Reached:
        reached = Reached(table.name, snapshot.snapshot_id, snapshot.committed_at, None)
        if table.name == self.base:
            scan = table.scan(self.asked, snapshot_id=snapshot.snapshot_id)
            count = scan.count()
            if count > MOST_LINES:
                raise InvalidInputError(
                    f"{count:,} rows of {table.name}: at most {MOST_LINES:,} are followed at once; "
                    "name lines, or a narrower condition"
                )
            return replace(reached, rows=scan.to_arrow())
        definition = self.derived.get(table.name)
        if definition is None:
            return replace(reached, rows=table.schema().as_arrow().empty_table())
        keys = self._partitions(definition, table, snapshot)
        parts = [
            self._computed(definition, reached, table, snapshot, inputs, partitions)
            for inputs, partitions in states(definition, table, snapshot, keys)
        ]
        if not parts:
            return replace(reached, rows=_nothing(table, snapshot))
        known = [part.rows for part in parts if part.rows is not None]
        return replace(
            reached,
            rows=pa.concat_tables(known) if len(known) == len(parts) else None,
            inputs=tuple(dict.fromkeys(name for part in parts for name in part.inputs)),
            notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        )

    def _partitions(self, definition: DerivedTable, table: Table, snapshot: Snapshot) -> list[str]:
        """Of the inputs' rows, as they are and as they were read last."""
        keys_of_rows: set[str] = set()
        partitioning = definition.read_partitioning
        if partitioning is None:
            return []
        columns = {name for name, _ in partitioning.dimensions}
        state = next(refresh_states(table.metadata, snapshot.snapshot_id), None)
        read = {} if state is None else state.inputs
        for name in definition.inputs:
            now = self.lake.load_table(name)
            for at in {read.get(name), now.metadata.current_snapshot_id}:
                read_snapshot = None if at is None else now.metadata.snapshot_or_none(at)
                rows = None if read_snapshot is None else self.rows_at(name, read_snapshot).rows
                if rows is not None and columns <= set(rows.column_names):
                    keys_of_rows |= set(partitioning.keys_of(rows).unique().to_pylist())
        return sorted(keys_of_rows - {None})

    def _computed(
        self,
        definition: DerivedTable,
        reached: Reached,
        table: Table,
        snapshot: Snapshot,
        inputs: Mapping[str, int | None],
        keys: list[str] | None,
    ) -> Reached:
        """Of a table, or of partitions that were computed from the same snapshots."""
        tables, notes = tables_at(self.lake, definition.inputs, inputs)
        followed = {self.base, *self.downstream()}
        given = {
            name: self.rows_at(name, at) for name, (_, at) in tables.items() if name in followed
        }
        unknown = [name for name, part in given.items() if part.rows is None]
        known = {name: part.rows for name, part in given.items() if part.rows}
        if not unknown and not known:
            return replace(reached, rows=_nothing(table, snapshot))
        chosen = partial(definition.where_read, keys)
        schema = table.metadata.schema_for(snapshot)
        wheres = [] if keys is None else [bind(definition.where(keys, schema), schema)]
        count = table.scan(conjunction(wheres), snapshot_id=snapshot.snapshot_id).count()
        of = " of the same partitions" if wheres else ""
        may = f"it may be in any of the {_rows(count)}{of}"
        query = definition.query
        if unknown:
            notes.append(f"rows of {', '.join(unknown)} are not known: {may}")
        elif query is None:
            notes.append(f"computed by a function, which is not followed: {may}")
        elif len(tables) < len(definition.inputs):
            notes.append(f"an input was empty: {may}")
        else:
            model = Model(query, tables, definition.name, self.session)
            try:
                kept = _nothing(table, snapshot).schema
                values = model.rows_made_of(
                    {n: rows for n, rows in known.items() if rows is not None}, kept, chosen
                )
            except UntracedError as error:
                notes.append(f"{error} is not followed: {may}")
            else:
                if values is not None:
                    wheres += [having(key, values[key], schema) for key in values.column_names]
                scan = table.scan(conjunction(wheres), snapshot_id=snapshot.snapshot_id)
                rows = scan.to_arrow()
                rows = rows if values is None or not rows.num_rows else with_keys(rows, values)
                reached = replace(reached, rows=rows)
        return replace(reached, inputs=(*known, *unknown), notes=tuple(notes))


def _nothing(table: Table, snapshot: Snapshot) -> pa.Table:
    return table.scan("false", snapshot_id=snapshot.snapshot_id).to_arrow()


def _by_functions(
    lake: Lakehouse, others: Mapping[str, Sequence[str]], reached: Mapping[str, Reached]
) -> Iterator[Reached]:
    """Tables of functions that read some of these."""
    for name, keys in others.items():
        table = lake.load_table(name) if lake.table_exists(name) else None
        state = refresh_state(table)
        snapshot = None if table is None else table.current_snapshot()
        read = [source for source in state.inputs if source in reached] if state else []
        if table is None or snapshot is None or not read:
            continue
        inputs = [reached[source].rows for source in read]
        known = [
            rows for rows in inputs if rows is not None and set(keys) <= set(rows.column_names)
        ]
        rows, how = None, "which is not followed: it may be in any row"
        if keys and len(known) == len(inputs):
            values = pa.concat_tables([rows.select(keys) for rows in known])
            schema = table.schema()
            where = conjunction([having(key, values[key], schema) for key in keys])
            rows = with_keys(table.scan(where).to_arrow(), values)
            how = f"which declares that {', '.join(keys)} is that of its inputs, as they are now"
        yield Reached(
            name,
            snapshot.snapshot_id,
            snapshot.committed_at,
            rows,
            tuple(read),
            (f"computed by a function, {how}",),
        )


def _rejected(lake: Lakehouse, name: str, asked: _Where) -> dict[str, int]:
    """Lines in quarantine, by reason."""
    quarantine = f"{name}_quarantine"
    if not lake.table_exists(quarantine):
        return {}
    reasons = lake.load_table(quarantine).scan(asked, ["reason"]).to_arrow()["reason"]
    return dict(Counter(reasons.to_pylist()).most_common())


def landed_in(lake: Lakehouse, name: str, file: str) -> dict[str, int]:
    """What became of the lines of a landing file."""
    ledger = f"{name}_landing"
    if not lake.table_exists(ledger):
        return {}
    asked = EqualTo(term=LANDING_FILE, value=file)
    rows: list[LedgerRow] = read_ledger(lake.load_table(ledger), asked)
    counts = {
        what: sum(getattr(row, what) for row in rows)
        for what in ("lines", "rows", "quarantined", "duplicates")
    }
    counts["pending"] = sum(row.lines for row in rows if row.pending)
    return {what: count for what, count in counts.items() if count}


def _nowhere(name: str, ledger: Mapping[str, int]) -> str:
    if not ledger:
        return f"no row of {name} or of its quarantine, and its ledger knows no such file"
    counts = ", ".join(f"{count:,} {what}" for what, count in ledger.items())
    more = "; a duplicate repeats an event that landed before, and is in no table"
    return (
        f"no row of {name}, and not in quarantine. The ledger counts of the file {counts}"
        f"{more if ledger.get('duplicates') else ': it has no such line'}"
    )
