"""Why a table has no such row: at which stage of its query the row is lost, down to what landed.

The query is counted stage by stage over rows that have the given values: its first input, each
join, each condition, its groups. Where an input has no such row, the question goes on to that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import reduce
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import orjson
import pyarrow as pa
from pyiceberg.expressions import And as And_
from pyiceberg.expressions import (
    BooleanExpression,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThanOrEqual,
    Or,
)
from pyiceberg.schema import Schema
from pyiceberg.types import StringType
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text
from sqlglot import exp, parse_one

from lakehouse.errors import InvalidInputError, LakehouseError
from lakehouse.expressions.bound_filter import And, Bound, Leaf, Op
from lakehouse.expressions.bound_filter import Or as AnyOf
from lakehouse.expressions.filter_binding import bind
from lakehouse.incremental_queries import inlined
from lakehouse.ingestion.landing_ledger import LedgerRow
from lakehouse.ingestion.source import EVENT_TS, LANDING_FILE, LANDING_LINE
from lakehouse.ingestion.source_tables import read_ledger
from lakehouse.ingestion.stamp import AUDIT_BRANCH
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.assets.staleness import refresh_state
from lakehouse.orchestration.checkout import checkout_here
from lakehouse.orchestration.lineage.asked_rows import TIMES, asked_values, conjuncts, with_names
from lakehouse.orchestration.lineage.traced_query import asked_of
from lakehouse.orchestration.lineage.value_traces import Key
from lakehouse.orchestration.lineage.view_definitions import plain_view, with_views
from lakehouse.orchestration.lineage.why import (
    Model,
    asked_table,
    check_condition,
    snapshot_at,
    tables_at,
)
from lakehouse.orchestration.resources import spark_when_asked
from lakehouse.orchestration.run_publication import RUN_BRANCH
from lakehouse.spec.metadata.snapshot import OPERATION_APPEND, OPERATION_REPLACE, RUN_ID, Snapshot
from lakehouse.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOKED_BACK = 50
"""Snapshots of a table that are asked whether they had the row."""
_SHOWN = 5
_DAY, _DAY_US = "event_day", 86_400_000_000
_ENDS = {
    Op.GT: (True,),
    Op.GTE: (True,),
    Op.LT: (False,),
    Op.LTE: (False,),
    Op.EQ: (True, False),
}
"""Comparisons of a time, and whether they say which day is the first, or the last."""
_PLAIN = (
    exp.Trim, exp.Nullif, exp.Upper, exp.Lower, exp.Coalesce, exp.Cast, exp.DataType, exp.Paren,
    exp.Column, exp.Identifier, exp.Literal,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a query.

    Attributes:
        table: whose query it is.
        what: the part, as SQL.
        rows: that are left after it, of those with the given values.
    """

    table: str
    what: str
    rows: int


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Why a table has no such row.

    Attributes:
        table: dotted name.
        where: which row.
        stages: of its query, and of those of its inputs that have no such row either.
        reasons: what took the row, from the table down to what landed.
    """

    table: str
    where: str
    stages: tuple[Stage, ...]
    reasons: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        stages = [{"table": o.table, "what": o.what, "rows": o.rows} for o in self.stages]
        return {
            "table": self.table,
            "where": self.where,
            "stages": stages,
            "reasons": list(self.reasons),
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """For people: rows after each stage, and what took the last."""
        yield Text(f"no row of {self.table} is {self.where}", style="bold")
        table = ""
        for stage in self.stages:
            if stage.table != table:
                table = stage.table
                yield Text(f"{table}, rows that are left:")
            yield Text(f"  {stage.rows:>9,}  {stage.what}", style="" if stage.rows else "red")
        for reason in self.reasons:
            yield Text(reason, style="yellow")


def why_not(lake: Lakehouse, table: str, where: str) -> WhyNot:
    """Why a table has no such row, by the checkout's definitions.

    Raises:
        InvalidInputError: it has such rows; or the condition cannot be read.
        NotFoundError: no checkout, or a table without rows.
    """
    derived = with_views(lake, checkout_here().pipeline.derived)
    with spark_when_asked("lakehouse-why-not") as session:
        return explained_absence(lake, derived, table, where, session=session)


def explained_absence(
    lake: Lakehouse,
    derived: Mapping[str, DerivedTable],
    name: str,
    where: str,
    *,
    session: Callable[[], SparkSession],
) -> WhyNot:
    """As `why_not`, by these definitions."""
    asking = _Asking(lake, derived, session)
    view = plain_view(lake, name)
    if view is None:
        table = asked_table(lake, name, where)
        if table.scan(where).count():
            raise _is_there(name, where)
        asking.table(table, snapshot_at(table, None), where)
    else:
        asking.view(view, where)
    return WhyNot(name, where, tuple(asking.stages), tuple(dict.fromkeys(asking.reasons)))


def _is_there(name: str, where: str) -> InvalidInputError:
    return InvalidInputError(
        f'rows of {name} are {where}: ask `lakehouse why {name} --where "{where}"`'
    )


@dataclass(slots=True)
class _Asking:
    """One question.

    Attributes:
        lake: where the tables are.
        derived: their definitions.
        session: of Spark.
        stages: that were counted.
        reasons: why rows are missing, in words.
    """

    lake: Lakehouse
    derived: Mapping[str, DerivedTable]
    session: Callable[[], SparkSession]
    stages: list[Stage] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def table(self, table: Table, snapshot: Snapshot, where: str) -> None:
        """Why a table has no such row at a snapshot."""
        self.reasons += _elsewhere(table, snapshot, where)
        definition = self.derived.get(table.name)
        state = refresh_state(table)
        if definition is None and state is None:
            self._landed(table, where)
            return
        if definition is None or definition.query is None:
            inputs = ", ".join(definition.inputs if definition else state.inputs if state else ())
            self.reasons.append(
                f"{table.name} is computed by a function, which is not followed: ask about its "
                f"inputs, {inputs}"
            )
            return
        tables, notes = tables_at(self.lake, definition.inputs, state.inputs if state else {})
        self.reasons += notes
        if len(tables) < len(definition.inputs):
            empty = ", ".join(name for name in definition.inputs if name not in tables)
            self.reasons.append(f"{table.name} was computed when {empty} had no rows")
            return
        values, conditions = asked_values(table.schema(), where)
        lost = self._staged(definition, tables, values, conditions)
        if lost is None:
            self.reasons.append(
                f"the SQL of {table.name} gives the row from the snapshots that it was computed "
                "from: the row was removed since, or the table was computed by another definition"
            )
            return
        self._since(definition, table, tables, values, conditions)
        self._lost(table.name, lost, tables)

    def view(self, view: DerivedTable, where: str) -> None:
        """Why a view has no such row, as its tables are now. Raises InvalidInputError: it has."""
        schema = self.lake.load_view(view.name).schema()
        check_condition(view.name, where, schema)
        tables, _ = tables_at(self.lake, view.inputs, {})
        if len(tables) < len(view.inputs):
            empty = ", ".join(name for name in view.inputs if name not in tables)
            self.reasons.append(f"{view.name} reads {empty}, which have no rows")
            return
        lost = self._staged(view, tables, *asked_values(schema, where))
        if lost is None:
            raise _is_there(view.name, where)
        self._lost(view.name, lost, tables)

    def _staged(
        self,
        definition: DerivedTable,
        tables: Mapping[str, tuple[Table, Snapshot]],
        values: Mapping[str, pa.ChunkedArray],
        conditions: Sequence[exp.Expr],
    ) -> list[_Lost] | None:
        """Where the rows are lost in the SQL of a table; None: it gives some."""
        query = definition.query
        assert query is not None  # noqa: S101 - the caller has asked
        model = Model(query, tables, definition.name, self.session)
        staged = _Staged(
            definition.name,
            model,
            model.read(values, None, _on_columns(conditions)),
            query.grammar,
            {query.views[table]: table for table in tables},
        )
        lost = list(staged.of(inlined(model.query), conditions))
        self.stages += staged.stages
        return None if staged.whole(conditions) else lost

    def _lost(
        self,
        name: str,
        lost: Sequence[_Lost],
        tables: Mapping[str, tuple[Table, Snapshot]],
    ) -> None:
        """Tell where rows are lost, and go on to the inputs that have none."""
        for loss in lost:
            self.reasons.append(f"{name}: {loss.reason}")
            if loss.input is not None:
                read, at = tables[loss.input]
                try:
                    count = read.scan(loss.where, snapshot_id=at.snapshot_id).count()
                except LakehouseError:
                    self.reasons.append(f"{loss.input} cannot be asked for {loss.where}")
                    continue
                if not count:
                    self.table(read, at, loss.where)

    def _since(
        self,
        definition: DerivedTable,
        table: Table,
        tables: Mapping[str, tuple[Table, Snapshot]],
        values: Mapping[str, pa.ChunkedArray],
        conditions: Sequence[exp.Expr],
    ) -> None:
        """Whether the inputs, as they are now, give the row."""
        now = {name: (read, snapshot_at(read, None)) for name, (read, _) in tables.items()}
        moved = [name for name, (_, at) in now.items() if at != tables[name][1]]
        query = definition.query
        if not moved or query is None:
            return
        model = Model(query, now, table.name, self.session)
        staged = _Staged(
            table.name, model, model.read(values, None, _on_columns(conditions)), query.grammar, {}
        )
        if staged.whole(conditions):
            self.reasons.append(
                f"{', '.join(moved)} changed since {table.name} was computed, and the row would be "
                f"there now: materialize {table.name.replace('.', '/')}"
            )

    def _landed(self, table: Table, where: str) -> None:
        """Of a raw table: lines in quarantine, and what the ledger counts."""
        quarantine, ledger = f"{table.name}_quarantine", f"{table.name}_landing"
        if not self.lake.table_exists(ledger) and not self.lake.table_exists(quarantine):
            self.reasons.append(f"{table.name} has no such row, and no definition computes it")
            return
        asked = _of_lines(where, table.schema())
        rejected = []
        if self.lake.table_exists(quarantine) and asked.names_something:
            rejected = list(asked.quarantined(self.lake.load_table(quarantine)))
        self.reasons += [asked.described(row) for row in rejected[:_SHOWN]]
        if len(rejected) > _SHOWN:
            self.reasons.append(f"and {len(rejected) - _SHOWN:,} more lines in {quarantine}")
        may_be = ["it never landed"]
        if self.lake.table_exists(ledger):
            may_be = self._counted(self.lake.load_table(ledger), asked)
        if rejected:
            return
        if asked.names_something:
            of = f"no line with these values is in {table.name} or its quarantine"
            self.reasons.append(f"{of}: {' or '.join(may_be)}")
        else:
            self.reasons.append(
                f"no row of {table.name} is so. {quarantine} was not searched: the condition names "
                "no value that a record has as it is"
            )

    def _counted(self, ledger: Table, asked: _OfLines) -> list[str]:
        """Tell what the ledger counts; returns what may have become of a line."""
        rows = [row for row in read_ledger(ledger) if asked.may_be_of(row)]
        unknown = sorted(set(asked.files) - {row.landing_file for row in rows})
        if unknown:
            self.reasons.append(f"{ledger.name} knows no landing file {', '.join(unknown)}")
        pending = sum(row.lines for row in rows if row.pending)
        duplicates = sum(row.duplicates for row in rows)
        of = "the source"
        if asked.files:
            of = ", ".join(asked.files)
            if rows:
                lines = sum(row.lines for row in rows)
                self.reasons.append(f"of {of}, {lines:,} lines landed")
        elif asked.first or asked.last:
            of = "the source on these days"
        if pending:
            files = sorted({row.landing_file for row in rows if row.pending})
            self.reasons.append(
                f"of {of}, {pending:,} lines are pending, of {len(files):,} files such as "
                f"{files[0]}"
            )
        if duplicates:
            self.reasons.append(
                f"of {of}, {duplicates:,} lines are duplicates of events that landed before"
            )
        return [
            *(["it never landed"] if unknown or not asked.files else ["the file has no such line"]),
            *(["it is pending"] if pending else []),
            *(["it repeats an event"] if duplicates else []),
        ]


@dataclass(frozen=True, slots=True)
class _OfLines:
    """What a condition on raw rows says of lines that became none.

    Attributes:
        keys: fields of the record with the values that they have to have.
        files: landing files; none: any.
        lines: numbers of them; none: any.
        first: day of UTC; None: any before `last`.
        last: day of UTC; None: any after `first`.
        is_all: whether that is all that the condition says.
    """

    keys: tuple[Key, ...]
    files: tuple[str, ...]
    lines: tuple[int, ...]
    first: date | None
    last: date | None
    is_all: bool

    @property
    def names_something(self) -> bool:
        """Whether it tells lines apart."""
        return bool(self.keys or self.files)

    def may_be_of(self, row: LedgerRow) -> bool:
        """Whether such a line may be of a file's day."""
        day = row.event_day
        return (not self.files or row.landing_file in self.files) and (
            day is None
            or ((not self.first or self.first <= day) and (not self.last or day <= self.last))
        )

    def quarantined(self, table: Table) -> Iterator[dict[str, Any]]:
        """Such lines in quarantine; of lines without a usable day all."""
        parts: list[BooleanExpression] = []
        if self.files:
            parts.append(In(term=LANDING_FILE, literals=set(self.files)))
        if self.lines:
            parts.append(In(term=LANDING_LINE, literals=set(self.lines)))
        for day, after in ((self.first, True), (self.last, False)):
            if day is not None:
                side = GreaterThanOrEqual if after else LessThanOrEqual
                parts.append(Or(IsNull(term=_DAY), side(term=_DAY, value=day.isoformat())))
        names = [_DAY, LANDING_FILE, LANDING_LINE, "reason", "detail", "record"]
        where = reduce(And_, parts) if parts else None
        for batch in table.scan(where, names).to_batches():
            candidates = (
                batch.filter(self.keys[0].may_be_in(batch["record"])) if self.keys else batch
            )
            yield from (
                row
                for row in candidates.to_pylist()
                if all(key.in_text(row["record"]) for key in self.keys)
            )

    def described(self, row: Mapping[str, Any]) -> str:
        """Of a line in quarantine, and whether it is certain that it is meant."""
        line = "" if row[LANDING_LINE] is None else f" line {row[LANDING_LINE]}"
        detail = f": {row['detail']}" if row["detail"] else ""
        is_day_known = row[_DAY] is not None or not (self.first or self.last)
        if self.is_all and is_day_known and (not self.keys or _is_json(row["record"])):
            return f"{row[LANDING_FILE]}{line} is in quarantine, {row['reason']}{detail}"
        return f"{row[LANDING_FILE]}{line}, in quarantine, may be it: {row['reason']}{detail}"


def _is_json(record: str | None) -> bool:
    try:
        orjson.loads(record or "")
    except orjson.JSONDecodeError:
        return False
    return True


def _of_lines(where: str, schema: Schema) -> _OfLines:
    """What a condition on raw rows says of lines."""
    keys: list[Key] = []
    places: dict[str, tuple[Any, ...]] = {}
    days: dict[bool, date] = {}
    is_all = True
    bound = bind(where, schema)
    for part in map(_as_one, bound.parts if isinstance(bound, And) else (bound,)):
        if not isinstance(part, Leaf) or len(part.path) > 1:
            is_all = False
            continue
        values = part.value if part.op is Op.IN else (part.value,)
        (name,) = part.path
        if part.op in (Op.EQ, Op.IN) and name in (LANDING_FILE, LANDING_LINE):
            places[name] = tuple(values)
        elif name == EVENT_TS and part.op in _ENDS:
            is_all &= values[0] % _DAY_US == 0 and part.op in (Op.GTE, Op.LT)
            for after in _ENDS[part.op]:
                # what is before midnight is of the day before
                ends = values[0] - (part.op is Op.LT)
                days[after] = date(1970, 1, 1) + timedelta(days=ends // _DAY_US)
        elif part.op in (Op.EQ, Op.IN) and not isinstance(part.type, TIMES):
            key = Key(name, 0, part.type, tuple(values))
            keys += [key] if key.texts else []
            is_all &= bool(key.texts)
        else:
            is_all = False
    keys += _as_written(where, schema)
    return _OfLines(
        tuple(keys),
        places.get(LANDING_FILE, ()),
        places.get(LANDING_LINE, ()),
        days.get(True),
        days.get(False),
        is_all,
    )


def _as_one(part: Bound) -> Bound:
    """`x = 1 or x = 2` as `x in (1, 2)`."""
    if not isinstance(part, AnyOf):
        return part
    sides = [leaf for leaf in part.parts if isinstance(leaf, Leaf) and leaf.op in (Op.EQ, Op.IN)]
    if len(sides) < len(part.parts) or {side.path for side in sides} != {sides[0].path}:
        return part
    values = [side.value if side.op is Op.IN else (side.value,) for side in sides]
    return sides[0].asking(Op.IN, tuple(value for group in values for value in group))


def _as_written(where: str, schema: Schema) -> Iterator[Key]:
    """Texts that a column has but for its case and what surrounds it, as by `trim(x) = 'y'`."""
    kinds = {field.name: field.field_type for field in schema.fields}
    for part in conjuncts(parse_one(where)):
        if isinstance(part, exp.EQ) and not isinstance(part.left, exp.Column):
            columns = {column.name for column in part.left.find_all(exp.Column)}
            is_plain = all(isinstance(node, _PLAIN) for node in part.left.walk())
            if is_plain and len(columns) == 1 and part.right.is_string:
                (name,) = columns
                if isinstance(kinds.get(name), StringType) and part.right.this:
                    yield Key(name, 0, StringType(), (part.right.this,))


@dataclass(frozen=True, slots=True)
class _Lost:
    """Where a row is lost.

    Attributes:
        reason: in words.
        input: the table that has no such row; None: a condition took it.
        where: of that table, which row.
    """

    reason: str
    input: str | None = None
    where: str = ""


@dataclass(slots=True)
class _Staged:
    """A query, stage by stage.

    Attributes:
        table: whose query it is.
        model: runs it.
        rows: of its inputs.
        grammar: in which it is shown.
        names: of the tables, by their names in the query.
        stages: that were counted.
    """

    table: str
    model: Model
    rows: Mapping[str, pa.Table]
    grammar: str
    names: Mapping[str, str]
    stages: list[Stage] = field(default_factory=list)

    def whole(self, conditions: Sequence[exp.Expr]) -> int:
        """Rows of the result that meet the conditions."""
        return self._rows(self.model.query, conditions)

    def of(self, query: exp.Expr, conditions: Sequence[exp.Expr]) -> Iterator[_Lost]:
        """Where rows that meet conditions on the result are lost."""
        query = query.unnest()
        if isinstance(query, exp.Union) and type(query) is exp.Union:
            names = [select.alias_or_name for select in query.selects]
            for side in (query.left, query.right):
                own = [select.alias_or_name for select in cast("exp.Query", side.unnest()).selects]
                renamed = dict(zip(names, own, strict=True))
                yield from self.of(
                    side, [with_names(condition, renamed) for condition in conditions]
                )
        elif isinstance(query, exp.Select):
            yield from self._of_select(query, conditions)
        else:
            yield _Lost(f"{query.key.upper()} is not followed")

    def _of_select(self, node: exp.Select, wanted: Sequence[exp.Expr]) -> Iterator[_Lost]:
        outputs = {select.alias_or_name: select.unalias() for select in node.selects}
        early: list[exp.Expr] = []
        late: list[exp.Expr] = []
        for term in wanted:
            resolved = _in_terms_of(term, outputs)
            bad = resolved.find(exp.AggFunc, exp.Window, exp.Subquery, exp.Select)
            (late if bad else early).append(term if resolved.find(exp.Window) else resolved)
        first = node.args.get("from_")
        sources = [] if first is None else [first, *(node.args.get("joins") or ())]
        known: list[exp.Expr] = []
        before = exp.Select(expressions=[_counted()])
        aliases: set[str] = set()
        for number, holder in enumerate(sources):
            before = before.copy()
            if number:
                before.append("joins", holder.copy())
            else:
                before.set("from_", holder.copy())
            aliases.add(holder.this.alias_or_name)
            text = self._said(holder)
            if number and not self._step(text, before, known):
                yield from self._of_join(node, number, known, early)
                return
            fresh = [
                condition
                for condition in early
                if condition not in known and _tables(condition) <= aliases
            ]
            for condition in fresh:
                known.append(condition)
                if number and not self._step(f"{text}: {self._said(condition)}", before, known):
                    yield _Lost(f"no joined row is {self._said(condition)}")
                    return
            if not number and not self._step(text + self._asked(known), before, known):
                yield from self._of_source(holder.this, known, text)
                return
        for part in conjuncts(node.args.get("where")):
            known.append(part)
            if not self._step(f"WHERE {self._said(part)}", before, known):
                yield _Lost(f"WHERE {self._said(part)} takes it")
                return
        yield from self._of_groups(node, before, known, late, wanted)

    def _of_groups(
        self,
        node: exp.Select,
        before: exp.Select,
        known: Sequence[exp.Expr],
        late: Sequence[exp.Expr],
        wanted: Sequence[exp.Expr],
    ) -> Iterator[_Lost]:
        group = node.args.get("group")
        parts = conjuncts(node.args.get("having"))
        aggregates = [
            condition
            for condition in late
            if not condition.find(exp.Window) and condition.find(exp.AggFunc)
        ]
        if group is not None or parts or aggregates:
            grouped = before.copy().where(*known, copy=False)
            grouped.set("expressions", [exp.alias_(exp.Literal.number(1), "one")])
            if group is not None:
                grouped.set("group", group.copy())
            for part in [*parts, *aggregates]:
                grouped = grouped.having(part.copy())
                count = self._rows(grouped, ())
                what = f"{'HAVING ' if part in parts else ''}{self._said(part)}"
                self.stages.append(Stage(self.table, what, count))
                if not count:
                    takes = "takes it" if part in parts else "is not so: the value is another"
                    yield _Lost(f"{what} {takes}")
                    return
        count = self._rows(node, wanted)
        if not count:
            rest = [
                part for part in ("qualify", "distinct", "limit", "offset") if node.args.get(part)
            ]
            what = (
                " and ".join(condition.upper() for condition in rest)
                or "values that are computed last"
            )
            self.stages.append(Stage(self.table, what, 0))
            yield _Lost(f"{what}: all that came before lets it pass")

    def _of_source(self, source: exp.Expr, known: Sequence[exp.Expr], text: str) -> Iterator[_Lost]:
        """The first source has no such row by itself."""
        own = [with_names(condition, {}) for condition in known]
        if isinstance(source, exp.Subquery):
            yield from self.of(source, own)
            return
        name = self.names.get(source.name)
        where = " AND ".join(_grouped(_by_range(condition)).sql() for condition in own) or "true"
        reason = f"{name or text} has no row{self._asked(known)}"
        yield _Lost(reason, name, where)

    def _of_join(
        self, node: exp.Select, number: int, known: Sequence[exp.Expr], early: Sequence[exp.Expr]
    ) -> Iterator[_Lost]:
        """No row of what is joined meets the rows before."""
        join = node.args["joins"][number - 1]
        alias = join.this.alias_or_name
        kind = join.args.get("kind") or ""
        reason = f"{self._said(join)} takes it"
        if kind.upper() == "ANTI":
            yield _Lost(f"{reason}: there is such a row")
            return
        conditions = [condition for condition in early if _tables(condition) == {alias}]
        for part in conjuncts(join.args.get("on")):
            if isinstance(part, exp.EQ):
                mine, other = part.left, part.right
                if _tables(mine) != {alias}:
                    mine, other = other, mine
                if _tables(mine) == {alias} and alias not in _tables(other):
                    values = self._values(node, number, known, other)
                    if values:
                        conditions.append(exp.In(this=mine.copy(), expressions=values))
        yield _Lost(reason)
        if conditions and isinstance(join.this, (exp.Table, exp.Subquery)):
            yield from self._of_source(join.this, conditions, alias)

    def _values(
        self, node: exp.Select, number: int, known: Sequence[exp.Expr], term: exp.Expr
    ) -> list[exp.Expr]:
        """A few values of a term before a join."""
        select = exp.select(exp.alias_(term, "v", quoted=True)).distinct().where(*known)
        select.set("from_", node.args["from_"].copy())
        select.set("joins", [join.copy() for join in node.args["joins"][: number - 1]])
        values = self.model.run(select, self.rows)["v"].to_pylist()
        return [exp.convert(value) for value in values if value is not None][:100]

    def _step(self, what: str, before: exp.Select, known: Sequence[exp.Expr]) -> int:
        count = self._count(before.where(*known))
        self.stages.append(Stage(self.table, what, count))
        return count

    def _rows(self, query: exp.Query, conditions: Sequence[exp.Expr]) -> int:
        """How many rows of a query meet conditions on its columns."""
        return self._count(asked_of(query, conditions, _counted()))

    def _count(self, query: exp.Query) -> int:
        return int(self.model.run(query, self.rows).column(0)[0].as_py())

    def _asked(self, known: Sequence[exp.Expr]) -> str:
        conditions = " and ".join(self._said(_grouped(condition)) for condition in known)
        return f" where {conditions}" if known else ""

    def _said(self, part: exp.Expr) -> str:
        """A part of the query as it was written, about."""
        plain = part.copy()
        for identifier in plain.find_all(exp.Identifier):
            identifier.set("quoted", False)
        for read in list(plain.find_all(exp.Table)):
            name = self.names.get(read.name)
            if name is not None:
                read.set("this", exp.to_identifier(name, quoted=False))
        text = " ".join(plain.sql(dialect=self.grammar).replace("`", "").split())
        return text if len(text) <= 100 else f"{text[:97]}..."


def _counted() -> exp.Expr:
    return exp.alias_(exp.Count(this=exp.Star()), "n", quoted=True)


def _grouped(part: exp.Expr) -> exp.Expr:
    """As a part of what AND joins."""
    return exp.paren(part) if isinstance(part, exp.Or) else part


def _tables(part: exp.Expr) -> set[str]:
    return {column.table for column in part.find_all(exp.Column)}


def _in_terms_of(condition: exp.Expr, outputs: Mapping[str, exp.Expr]) -> exp.Expr:
    """A condition on columns of a result as one on what they are computed from."""

    def replaced(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and node.name in outputs and not node.table:
            term = outputs[node.name].copy()
            return exp.Paren(this=term) if isinstance(term, exp.Binary) else term
        return node

    return condition.copy().transform(replaced)


def _on_columns(conditions: Sequence[exp.Expr]) -> list[tuple[str, str]]:
    """Conditions on one column each, as SQL of filters."""
    pairs = []
    for condition in conditions:
        columns = {column.name for column in condition.find_all(exp.Column)}
        if len(columns) == 1 and isinstance(
            condition, (exp.Between, exp.GT, exp.GTE, exp.LT, exp.LTE)
        ):
            pairs.append((columns.pop(), condition.sql()))
    return pairs


def _by_range(condition: exp.Expr) -> exp.Expr:
    """The day of a column, as times, which the bounds of files are compared with."""
    if not isinstance(condition, exp.EQ):
        return condition
    day, text = condition.left, condition.right.find(exp.Literal)
    is_day = isinstance(day, exp.TsOrDsToDate) or (
        isinstance(day, exp.Cast) and day.to.is_type("date")
    )
    if not (is_day and isinstance(day.this, exp.Column) and text is not None and text.is_string):
        return condition
    try:
        first = date.fromisoformat(text.this)
    except ValueError:
        return condition
    column = exp.column(day.this.name, quoted=True)
    low, high = (
        exp.cast(exp.Literal.string(str(day)), "timestamp")
        for day in (first, first + timedelta(days=1))
    )
    return exp.and_(
        exp.GTE(this=column, expression=low), exp.LT(this=column.copy(), expression=high)
    )


def _elsewhere(table: Table, snapshot: Snapshot, where: str) -> Iterator[str]:
    """Branches and tags that have the row, and the snapshot that removed it, or was taken back."""
    for name, ref in table.refs().items():
        try:
            count = ref.snapshot_id != snapshot.snapshot_id and table.scan(where, ref=name).count()
        except LakehouseError:
            continue  # it has not the columns
        if count:
            died = ": it was not published, since a check failed or the run died"
            own = name.startswith((AUDIT_BRANCH, RUN_BRANCH))
            yield f"{ref.type} {name} of {table.name} has it{died if own else ''}"
    line = {ancestor.snapshot_id for ancestor in table.metadata.ancestors(snapshot.snapshot_id)}
    logged = [entry.snapshot_id for entry in reversed(table.metadata.snapshot_log)]
    for id_ in islice(
        dict.fromkeys(snapshot_id for snapshot_id in logged if snapshot_id not in line),
        _LOOKED_BACK,
    ):
        taken_back = table.metadata.snapshot_or_none(id_)
        try:
            if taken_back is None or not table.scan(where, snapshot_id=id_).count():
                continue
        except LakehouseError:
            continue
        run = taken_back.summary.get(RUN_ID)
        by = "" if run is None else f" of run {run}"
        yield f"snapshot {id_}{by} of {table.name} had it, and was taken back"
        break
    after = snapshot
    for ancestor in islice(table.metadata.ancestors(snapshot.snapshot_id), 1, _LOOKED_BACK):
        if after.operation in (OPERATION_APPEND, OPERATION_REPLACE):
            after = ancestor  # it removed nothing
            continue
        try:
            count = table.scan(where, snapshot_id=ancestor.snapshot_id).count()
        except LakehouseError:
            return
        if count:
            run = after.summary.get(RUN_ID)
            by = "" if run is None else f" by run {run}"
            yield (
                f"{table.name} had it until snapshot {after.snapshot_id}, {after.operation} of "
                f"{after.committed_at:%Y-%m-%d %H:%M:%S} UTC{by}"
            )
            return
        after = ancestor
