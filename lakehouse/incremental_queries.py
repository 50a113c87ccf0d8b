"""How the result of a SELECT follows its inputs by what changed in them: compiled, or refused.

Two kinds of queries can be kept. One of filters, expressions, inner joins and UNION ALL is
*linear*: run over the changed rows of an input instead of the input it gives the changed rows of
the result. Any other is kept by *keys*: output columns that say to which part of the inputs a row
of the result belongs (the columns of a GROUP BY, the rows on the left of a LEFT JOIN, the
partitions of a window). A change of an input touches some keys; the same query over the rows of
these keys alone gives all rows that the result has for them.

Inputs are taken one after the other, those before at the new version, those after at the old one:
between two neighbours of this line one input alone changes, so that no pair of changes is missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import cast

from sqlglot import exp

_SHOWN = 60
_EXACT = exp.DataType.INTEGER_TYPES | {exp.DataType.Type.DECIMAL, exp.DataType.Type.BOOLEAN}
_WIDE = {exp.DataType.Type.BIGINT, exp.DataType.Type.UBIGINT, exp.DataType.Type.INT128}
_KEY_TYPES = {
    *exp.DataType.INTEGER_TYPES, *exp.DataType.TEXT_TYPES, *exp.DataType.TEMPORAL_TYPES,
    exp.DataType.Type.BOOLEAN, exp.DataType.Type.DECIMAL,
}  # fmt: skip
_WITHOUT_ORDER = (
    exp.Count, exp.CountIf, exp.Min, exp.Max, exp.LogicalAnd, exp.LogicalOr, exp.BitwiseAndAgg,
    exp.BitwiseOrAgg, exp.BitwiseXorAgg, exp.Median,
)  # fmt: skip
_RANKS = (exp.Rank, exp.DenseRank, exp.Lag, exp.Lead, exp.FirstValue)  # RowNumber is no aggregate
_NAN_IN_ORDER = "duckdb", "spark"
"""NaN is greater than any other number there."""
_WIDE_AVERAGES = ("duckdb",)
_PUT_TOGETHER: Mapping[type[exp.Expr], str] = {
    exp.Count: "count", exp.CountIf: "count", exp.Sum: "sum", exp.Min: "least",
    exp.Max: "greatest",
}  # fmt: skip
_CHANGING = ("Current", "Local", "Rand", "Session", "Sys", "Utc", "Uuid")
"""How classes of functions begin whose value is another one each time."""
_UNKNOWN = (exp.Anonymous, exp.AnonymousAggFunc, exp.CombinedAggFunc, exp.ParameterizedAgg)
_ROWS_OF_VALUES = (exp.UDTF, exp.Explode, exp.Posexplode, exp.Inline, exp.GenerateSeries)
_JOINS = {"LEFT", "INNER", "CROSS", "SEMI", "ANTI", "OUTER"}
_OF_THE_LEFT = "ANTI", "SEMI", "LEFT"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a query cannot be kept incrementally.

    Attributes:
        part: of the query, as text; empty: the query as a whole.
        why: the reason.
    """

    part: str
    why: str

    def __str__(self) -> str:
        return f"{self.part}: {self.why}" if self.part else self.why


@dataclass(frozen=True, slots=True)
class Place:
    """A column of an input, where the query names the input once.

    Attributes:
        occurrence: number of that place, in the order of the text.
        column: of the table.
        days: the value is the day of the column, a time.
    """

    occurrence: int
    column: str
    days: bool = False


@dataclass(frozen=True, slots=True)
class DeltaPlan:
    """How a result follows.

    Attributes:
        inputs: the table of each place of the query that names one, in the order of the text.
        columns: columns that the query reads, by input.
        keys: output columns; none: the query is linear.
        deltas: input -> the query that is run over its changed rows, and reads inputs by the same
            names as the query: it gives the keys that these rows belong to. Of a linear query it
            gives the changed rows of the result; where it is not here, the query itself does.
        places: key -> columns of the inputs that have its value, in every row of that place which
            the rows of the key are made of.
        equal: columns that are equal in every row which the result is made of.
        merged: how a row of the result and those that the query gives for rows that came and went
            are put together, where they have the same key: by output column `rows` (a count of
            all), `count`, `sum`, `least` or `greatest`. Empty: all rows of a key are read again.
        counted: sum -> the count of the same values, where it is selected, too.
        parts: of a merged query, as `deltas` of a linear one.
    """

    inputs: tuple[str, ...]
    columns: Mapping[str, frozenset[str]]
    keys: tuple[str, ...] = ()
    deltas: Mapping[str, exp.Query] = field(default_factory=dict)
    places: Mapping[str, tuple[Place, ...]] = field(default_factory=dict)
    equal: tuple[tuple[Place, Place], ...] = ()
    merged: Mapping[str, str] = field(default_factory=dict)
    counted: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, exp.Query] = field(default_factory=dict)


def compile_deltas(query: exp.Query, engine: str) -> DeltaPlan | Refusal:
    """How the result of a query follows its inputs.

    Args:
        query: qualified and with types (sqlglot's `qualify` and `annotate_types`); tables have
            names of one part.
        engine: that runs it: what depends on the order of rows is not the same in all.
    """
    try:
        return _compiled(query, engine)
    except _RefusedError as refused:
        return refused.refusal


class _RefusedError(Exception):
    def __init__(self, part: exp.Expr | None, why: str) -> None:
        super().__init__(why)
        text = "" if part is None else part.sql("spark")
        shown = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
        self.refusal = Refusal(shown.replace("`", ""), why)


@dataclass
class _Relation:
    """A table or subquery, as what reads it sees it.

    Attributes:
        keys: its columns that split it, and the inputs with it, into parts that do not meet.
        places: of these, where they are columns of inputs.
        linear: see the module.
        inputs: occurrence -> table, of those inside.
        equal: see DeltaPlan.
    """

    keys: set[str]
    places: dict[str, set[Place]]
    linear: bool
    inputs: dict[int, str]
    equal: set[tuple[Place, Place]] = field(default_factory=set)


@dataclass(frozen=True)
class _Source:
    """What a SELECT reads by an alias.

    Attributes:
        node: a table or subquery.
        relation: what it is.
        kind: `LEFT`, `SEMI` or `ANTI` on the right of such a join, else empty.
    """

    node: exp.Expr
    relation: _Relation
    kind: str

    def reads(self, table: str) -> bool:
        return table in self.relation.inputs.values()


_Sources = Mapping[str, _Source]


def _compiled(query: exp.Query, engine: str) -> DeltaPlan:
    compiler = _Compiler(engine)
    query = inlined(query)
    for recursive in query.find_all(exp.With):
        raise _RefusedError(recursive, "recursion is not followed")
    top = compiler.relation(query)
    inputs = tuple(top.inputs[number] for number in sorted(top.inputs))
    columns = {name: frozenset(compiler.read[name]) for name in inputs}
    both = tuple({*top.equal, *((right, left) for left, right in top.equal)})
    parts = {table: _with(query.copy(), table) for table in inputs} if query.find(exp.Union) else {}
    if top.linear:
        return DeltaPlan(inputs, columns, deltas=parts, equal=both)
    keys = [
        select.alias_or_name
        for select in query.selects
        if select.alias_or_name in top.keys
        and select.type is not None
        and select.type.this in _KEY_TYPES
    ]
    if not keys:
        raise _RefusedError(
            None,
            "no column of the result says which rows of the inputs it was computed from: select a "
            "column of the GROUP BY (of the DISTINCT, of the PARTITION BY of every window, of the "
            "left side of an outer join) whose type is neither floating nor nested",
        )
    places = {key: tuple(_spread(top.places.get(key, set()), top.equal)) for key in keys}
    if not any(places.values()):
        raise _RefusedError(
            None,
            f"none of the keys {', '.join(keys)} is a plain column of an input, so that every "
            "change would read all rows",
        )
    named = [exp.column(key, "touched", quoted=True) for key in keys]
    deltas = {
        name: exp.select(*named).distinct().from_(touching.subquery("touched"))
        for name in inputs
        if (touching := compiler.touching(query, {key: key for key in keys}, name)) is not None
    }
    merged, counted = _merged(query, keys, compiler)
    return DeltaPlan(inputs, columns, tuple(keys), deltas, places, both, merged, counted, parts)


def _merged(
    query: exp.Expr, keys: Sequence[str], compiler: _Compiler
) -> tuple[dict[str, str], dict[str, str]]:
    """`merged` and `counted` of DeltaPlan."""
    if not isinstance(query, exp.Select) or query.find(exp.Window, exp.Having, exp.Distinct):
        return {}, {}
    group = query.args.get("group")
    terms = [] if group is None else list(group.expressions)
    linear = all(
        source.relation.linear and not source.kind for source in compiler.sources(query).values()
    )
    if not terms or not linear:
        return {}, {}
    functions, left, values = {}, terms, {}
    for select in query.selects:
        name, value = select.alias_or_name, select.unalias()
        kind = select.type.this if select.type is not None else None
        if name in keys and value in terms:
            left = [term for term in left if term != value]
        elif type(value) in _PUT_TOGETHER and kind in _KEY_TYPES - {exp.DataType.Type.BOOLEAN}:
            functions[name] = _PUT_TOGETHER[type(value)]
            if isinstance(value, exp.Count) and isinstance(value.this, exp.Star | exp.Literal):
                functions[name] = "rows"
            values[name] = value
        else:
            return {}, {}
    counts = {
        value.this: name
        for name, value in values.items()
        if type(value) is exp.Count and not value.expressions
    }
    counted = {
        name: counts[value.this]
        for name, value in values.items()
        if type(value) is exp.Sum and value.this in counts
    }
    return ({}, {}) if left else (functions, counted)


def _spread(places: set[Place], equal: Iterable[tuple[Place, Place]]) -> list[Place]:
    """With the columns that are equal to them."""
    reached, added = set(places), True
    while added:
        more = {right for left, right in equal if left in reached}
        added = not more <= reached
        reached |= more
    return sorted(reached, key=lambda place: (place.occurrence, place.column))


class _Compiler:
    """One query.

    Attributes:
        read: columns that are read, by input.
    """

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._occurrences = 0
        self.read: dict[str, set[str]] = {}

    def relation(self, query: exp.Expr) -> _Relation:
        """What a SELECT, UNION or subquery is."""
        query = query.unnest()
        if isinstance(query, exp.Select):
            return self._select(query)
        if isinstance(query, exp.Union):
            return self._union(query)
        raise _RefusedError(query, "only SELECT and UNION are followed")

    def _union(self, union: exp.Union) -> _Relation:
        _refuse_clauses(union)
        left, right = self.relation(union.left), self.relation(union.right)
        renamed = dict(zip(_names(union.right), _names(union.left), strict=True))
        keys = left.keys & {renamed[name] for name in right.keys}
        places = {name: set(of_column) for name, of_column in left.places.items() if name in keys}
        for name, of_column in right.places.items():
            if renamed[name] in keys:
                places.setdefault(renamed[name], set()).update(of_column)
        linear = left.linear and right.linear and not union.args.get("distinct")
        inputs = left.inputs | right.inputs
        return _Relation(keys, places, linear, inputs, left.equal | right.equal)

    def _select(self, select: exp.Select) -> _Relation:
        _refuse_clauses(select)
        own = list(_own_nodes(select))
        for node in own:
            self._refuse_node(node)
        sources = self.sources(select)
        inputs: dict[int, str] = {}
        for source in sources.values():
            twice = set(inputs.values()) & set(source.relation.inputs.values())
            if twice:
                raise _RefusedError(select.args["joins"][0], "a table is joined with itself")
            inputs |= source.relation.inputs
        equal = {pair for source in sources.values() for pair in source.relation.equal}
        for join in select.args.get("joins") or []:
            equal |= _joined(join, sources)
        equal |= _compared(_where(select), sources)
        windows = [node for node in own if isinstance(node, exp.Window)]
        grouped = bool(select.args.get("group")) or any(
            isinstance(node, exp.AggFunc) and node.find_ancestor(exp.Window) is None for node in own
        )
        group = select.args.get("group")
        splitting = [group.expressions if group else []] if grouped else []
        splitting += [window.args.get("partition_by") or [] for window in windows]
        places = {
            selected.alias_or_name: _places(selected.unalias(), sources)
            for selected in select.selects
            if _splits(selected.unalias(), splitting, sources)
        }
        linear = not (splitting or select.args.get("distinct")) and all(
            source.relation.linear and not source.kind for source in sources.values()
        )
        return _Relation(set(places), places, linear, inputs, equal)

    def sources(self, select: exp.Select) -> _Sources:
        """What it reads, by alias."""
        sources: dict[str, _Source] = {}
        first = select.args.get("from_")
        if first is None:
            raise _RefusedError(select, "a SELECT without FROM reads no table")
        sources[first.this.alias_or_name] = _Source(first.this, self._read(first.this), "")
        for join in select.args.get("joins") or []:
            words = {join.side.upper(), join.kind.upper()} - {""}
            if words - _JOINS or join.method:
                raise _RefusedError(join, "of outer joins only LEFT JOIN is followed")
            kind = next((word for word in _OF_THE_LEFT if word in words), "")
            if kind and not _pairs(join.args.get("on")):
                raise _RefusedError(join, "an outer join without columns that are equal")
            relation = self._read(join.this)
            sources[join.this.alias_or_name] = _Source(join.this, relation, kind)
        return sources

    def _read(self, source: exp.Expr) -> _Relation:
        if not isinstance(source, (exp.Table, exp.Subquery)):
            raise _RefusedError(source, "only tables and subqueries are read")
        if isinstance(source, exp.Subquery):
            return self.relation(source)
        number, self._occurrences = self._occurrences, self._occurrences + 1
        select = source.find_ancestor(exp.Select)
        names = {
            column.name
            for column in select.find_all(exp.Column)  # type: ignore[union-attr]
            if column.table == source.alias_or_name
        }
        self.read.setdefault(source.name, set()).update(names)
        places = {name: {Place(number, name)} for name in names}
        return _Relation(names, places, linear=True, inputs={number: source.name})

    def touching(
        self, query: exp.Expr, wanted: Mapping[str, str], changed: str
    ) -> exp.Query | None:
        """Some columns, by their new names, of every row that may change with rows of a table.

        None: of no row.

        It has no groups, windows and conditions on them, so that it gives too many rows, not too
        few.
        """
        query = query.unnest()
        if isinstance(query, exp.Union):
            names = dict(zip(_names(query.left), _names(query.right), strict=True))
            left = self.touching(query.left, wanted, changed)
            of_right = {name: names[output] for name, output in wanted.items()}
            right = self.touching(query.right, of_right, changed)
            both = [part for part in (left, right) if part is not None]
            return exp.union(*both, distinct=False) if len(both) == 2 else next(iter(both), None)
        select = cast("exp.Select", query)
        sources = self.sources(select)
        if not any(source.reads(changed) for source in sources.values()):
            return None
        # who joins what did not change only looks something up there
        kept = {
            alias for alias, source in sources.items() if not source.kind or source.reads(changed)
        }
        values = {selected.alias_or_name: selected.unalias() for selected in select.selects}
        chosen = [
            exp.alias_(values[output].copy(), name, quoted=True) for name, output in wanted.items()
        ]
        conditions = [
            conjunct for conjunct in _conjuncts(_where(select)) if _known(conjunct, sources)
        ]
        on = {
            join.this.alias_or_name: [
                conjunct
                for conjunct in _conjuncts(join.args.get("on"))
                if _known(conjunct, sources, join.this.alias_or_name)
            ]
            for join in select.args.get("joins") or []
            if join.this.alias_or_name in kept
        }
        needed: dict[str, set[str]] = {alias: set() for alias in sources}
        for term in (*chosen, *conditions, *(term for terms in on.values() for term in terms)):
            for column in term.find_all(exp.Column):
                needed[column.table].add(column.name)
        made = exp.Select(expressions=chosen or [exp.alias_(exp.Literal.number(1), "one")])
        for number, alias in enumerate(source for source in sources if source in kept):
            read = self._touching_source(sources[alias], alias, needed[alias], changed)
            if not number:
                made = made.from_(read)
            elif on[alias]:
                made = made.join(read, on=exp.and_(*on[alias]), join_type="inner")
            else:
                made = made.join(read, join_type="cross")
        return made.where(*conditions) if conditions else made

    def _touching_source(
        self, source: _Source, alias: str, needed: set[str], changed: str
    ) -> exp.Expr:
        if isinstance(source.node, exp.Table) or not source.reads(changed):
            return source.node.copy()
        touching = self.touching(source.node, {name: name for name in sorted(needed)}, changed)
        return cast("exp.Query", touching).subquery(exp.to_identifier(alias, quoted=True))

    def _refuse_node(self, node: exp.Expr) -> None:
        name = type(node).__name__
        if isinstance(node, _UNKNOWN):
            called = node.name or name
            raise _RefusedError(node, f"{called}() is not known to give the same each time")
        if isinstance(node, exp.Func) and name.startswith(_CHANGING):
            raise _RefusedError(node, "its value is another one each time")
        if isinstance(node, _ROWS_OF_VALUES):
            raise _RefusedError(node, "rows that are made of values are not followed")
        if isinstance(node, (exp.Exists, exp.Subquery, exp.In)) and (
            isinstance(node, (exp.Exists, exp.Subquery)) or node.args.get("query")
        ):
            raise _RefusedError(
                node, "a subquery inside an expression: say it as LEFT SEMI JOIN, or as a join"
            )
        if isinstance(node, (exp.Rollup, exp.Cube, exp.GroupingSets)) or (
            isinstance(node, exp.Group) and (node.args.get("all") or node.args.get("totals"))
        ):
            raise _RefusedError(node, "several groupings at once")
        if isinstance(node, (exp.Sum, exp.Avg, exp.Min, exp.Max)):
            self._refuse_inexact(node)
        elif isinstance(node, exp.GroupConcat):
            _refuse_unordered(node)
        elif isinstance(node, _RANKS):
            if not isinstance(node.parent, (exp.Window, exp.IgnoreNulls, exp.RespectNulls)):
                raise _RefusedError(node, "it depends on the order of rows")
        elif isinstance(node, exp.AggFunc) and not isinstance(node, _WITHOUT_ORDER):
            raise _RefusedError(node, "it is not known to be independent of the order of rows")

    def _refuse_inexact(self, node: exp.AggFunc) -> None:
        value = node.this.expressions[0] if isinstance(node.this, exp.Distinct) else node.this
        kind = None if value.type is None else value.type.this
        if isinstance(node, (exp.Min, exp.Max)):
            if kind in exp.DataType.FLOAT_TYPES and self._engine not in _NAN_IN_ORDER:
                raise _RefusedError(
                    node, f"beside NaN it depends on the order of rows in {self._engine}"
                )
            return
        if kind not in _EXACT:
            raise _RefusedError(
                node,
                "the sum of floating-point numbers depends on their order: cast them to a decimal",
            )
        if isinstance(node, exp.Avg) and kind in _WIDE and self._engine not in _WIDE_AVERAGES:
            raise _RefusedError(
                node,
                f"{self._engine} averages 64-bit integers by adding doubles, whose sum may depend "
                "on their order: cast them to int or to a decimal",
            )


def _splits(value: exp.Expr, splitting: Sequence[Sequence[exp.Expr]], sources: _Sources) -> bool:
    """Whether rows of two values of an output column have nothing to do with each other.

    Args:
        value: of the column.
        splitting: the terms of the GROUP BY, and those of each window.
        sources: what is read.
    """
    columns = list(value.find_all(exp.Column))
    if not columns or value.find(exp.AggFunc, exp.Window):
        return False
    return all(_follows(column, sources) for column in columns) and all(
        value in terms or all(column in terms for column in columns) for terms in splitting
    )


def _places(value: exp.Expr, sources: _Sources) -> set[Place]:
    """The columns of inputs that have the value of a column, or its day."""
    if isinstance(value, exp.Column):
        return set(sources[value.table].relation.places.get(value.name, set()))
    is_day = isinstance(value, exp.TsOrDsToDate) or (
        isinstance(value, exp.Cast) and value.to.is_type("date")
    )
    if is_day and isinstance(value.this, exp.Column):
        return {
            replace(place, days=True) for place in _places(value.this, sources) if not place.days
        }
    return set()


def _joined(join: exp.Join, sources: _Sources) -> set[tuple[Place, Place]]:
    """What a join makes equal; an outer join only for its right: a left row may stay alone."""
    alias, equal = join.this.alias_or_name, set()
    for one, other in _pairs(join.args.get("on")):
        left, right = (other, one) if one.table == alias else (one, other)
        if right.table == alias and _follows(left, sources):
            for pair in product(_places(left, sources), _places(right, sources)):
                equal |= {pair} if sources[alias].kind else {pair, pair[::-1]}
    return equal


def _compared(where: exp.Expr | None, sources: _Sources) -> set[tuple[Place, Place]]:
    return {
        each
        for left, right in _pairs(where)
        if _follows(left, sources) and _follows(right, sources)
        for pair in product(_places(left, sources), _places(right, sources))
        for each in (pair, pair[::-1])
    }


def _pairs(condition: exp.Expr | None) -> list[tuple[exp.Column, exp.Column]]:
    """Columns that a condition says are equal."""
    return [
        (conjunct.left, conjunct.right)
        for conjunct in _conjuncts(condition)
        if isinstance(conjunct, exp.EQ)
        and isinstance(conjunct.left, exp.Column)
        and isinstance(conjunct.right, exp.Column)
        and conjunct.left.table != conjunct.right.table
    ]


def _known(term: exp.Expr, sources: _Sources, right: str = "") -> bool:
    """Whether the rows that a change touches decide a condition.

    Args:
        term: the condition.
        sources: what the SELECT reads.
        right: alias of what is joined where the term stands.
    """
    return not term.find(exp.AggFunc, exp.Window) and all(
        _follows(column, sources)
        or (column.table == right and column.name in sources[right].relation.keys)
        for column in term.find_all(exp.Column)
    )


def _follows(column: exp.Column, sources: _Sources) -> bool:
    """Whether a column splits what is read, and is never null for want of a partner."""
    source = sources.get(column.table)
    return source is not None and not source.kind and column.name in source.relation.keys


def _with(query: exp.Query, changed: str) -> exp.Query:
    """Without the parts of each UNION ALL that do not read a table."""
    for union in reversed(list(query.find_all(exp.Union))):
        left, right = union.left, union.right
        reading = [
            any(t.name == changed for t in part.find_all(exp.Table)) for part in (left, right)
        ]
        if all(reading) or not any(reading):
            continue
        stays = left if reading[0] else right
        if stays is right:
            for name, selected in zip(_names(left), _first(right).selects, strict=True):
                selected.replace(exp.alias_(selected.unalias().copy(), name, quoted=True))
        if union is query:
            query = cast("exp.Query", stays.unnest().copy())
        else:
            union.replace(stays.copy())
    return query


def _first(query: exp.Expr) -> exp.Query:
    query = query.unnest()
    return _first(query.left) if isinstance(query, exp.Union) else cast("exp.Query", query)


def inlined(query: exp.Query) -> exp.Query:
    """The query with subqueries in place of common table expressions; recursive ones stay."""
    query = query.copy()
    for with_ in [with_ for with_ in query.find_all(exp.With) if not with_.args.get("recursive")]:
        reader = cast("exp.Expr", with_.parent)
        for expression in reversed(with_.expressions):
            for table in [t for t in reader.find_all(exp.Table) if t.name == expression.alias]:
                alias = exp.to_identifier(table.alias_or_name, quoted=True)
                table.replace(expression.this.copy().subquery(alias))
        with_.pop()
    return query


_CLAUSES = {
    "expressions", "from_", "joins", "where", "group", "having", "distinct", "qualify", "this",
    "expression", "by_name", "side", "kind", "on", "windows", "hint",
}  # fmt: skip


def _refuse_clauses(query: exp.Expr) -> None:
    for name, value in query.args.items():
        if value and name not in _CLAUSES:
            words = name.upper().rstrip("_")
            part = value[0] if isinstance(value, list) else value
            shown = part if isinstance(part, exp.Expr) else None
            raise _RefusedError(shown, f"{words} is not followed")
    if isinstance(query, exp.Union) and query.args.get("by_name"):
        raise _RefusedError(query, "UNION BY NAME is not followed")
    distinct = query.args.get("distinct")
    if isinstance(distinct, exp.Distinct) and distinct.args.get("on"):
        raise _RefusedError(distinct, "DISTINCT ON depends on the order of rows")


def _refuse_unordered(node: exp.GroupConcat) -> None:
    """Raise where values that are put together have no order of their own."""
    within = node.parent if isinstance(node.parent, exp.WithinGroup) else None
    order = node.find(exp.Order) or (None if within is None else within.find(exp.Order))
    values = {column.sql() for column in node.this.find_all(exp.Column)}
    ordered = order is not None and all(
        {column.sql() for column in expression.find_all(exp.Column)} == values
        and isinstance(expression.this, exp.Column)
        for expression in order.expressions
    )
    if not ordered:
        raise _RefusedError(node, "it depends on the order of rows: order it by what it joins")


def _own_nodes(select: exp.Select) -> Iterator[exp.Expr]:
    """The nodes of a SELECT, without those of what it reads and of its common tables."""
    first = select.args.get("from_")
    read = [
        clause.this for clause in (first, *(select.args.get("joins") or [])) if clause is not None
    ]
    inside = {id(node) for node in read}
    for node in select.walk(
        prune=lambda node: (
            id(node) in inside or (node is not select and isinstance(node, exp.Query))
        )
    ):
        if node is not select and id(node) not in inside:
            yield node


def _where(select: exp.Select) -> exp.Expr | None:
    where = select.args.get("where")
    return None if where is None else where.this


def _conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    if condition is None:
        return []
    condition = condition.unnest()
    return [
        inner
        for part in (condition.flatten() if isinstance(condition, exp.And) else [condition])
        for inner in (_conjuncts(part) if isinstance(part.unnest(), exp.And) else [part.unnest()])
    ]


def _names(query: exp.Expr) -> list[str]:
    return list(cast("exp.Query", query.unnest()).named_selects)
