"""Which rows of its tables the rows of a SELECT come from: the query again, with their numbers.

Every table is given a column `__row`, and the query is rewritten so that it carries these numbers
beside its own columns: a row of the result stands there once for each combination of rows that it
is made from. Of a group or a window these are the rows of the group or of the partition; what a
`NOT IN`, a `NOT EXISTS` or an anti join did not find has no rows. Pure: trees in, trees out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlglot import exp
from sqlglot.optimizer.scope import find_all_in_scope

from lakehouse.incremental_queries import inlined

ROW = "__row"
_NOT_TRACED = ("limit", "offset", "laterals", "pivots", "match", "connect", "sample", "with_")
_GROUPINGS = (exp.Rollup, exp.Cube, exp.GroupingSets)


class UntracedError(Exception):
    """A part of a query through which rows are not followed; its text names the part."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A place where a query reads a table.

    Attributes:
        table: its name in the query.
        column: of the traced query, the number of the row; null where no row took part.
    """

    table: str
    column: str


@dataclass(frozen=True, slots=True)
class TracedQuery:
    """A query with the numbers of the rows that its rows come from.

    Attributes:
        query: its columns are those of the query, then one for each leaf.
        leaves: of this query.
        beside: queries of which every row took part in every row of the result, such as a
            comparison with the average of a table; their columns are those of leaves alone.
    """

    query: exp.Query
    leaves: tuple[Leaf, ...]
    beside: tuple[TracedQuery, ...] = ()


def traced(query: exp.Query, column: str | None = None) -> TracedQuery:
    """The query with the numbers of the rows that took part.

    Args:
        query: qualified: every column has the name of its table, every star is expanded.
        column: of the result; given, rows that do not count for an aggregate of that name are left
            out: those that it does not count, nulls, and what is neither least nor greatest.

    Raises:
        UntracedError: rows are not followed through a part of the query.

    >>> from sqlglot import parse_one
    >>> query = parse_one("SELECT t.k AS k, count(*) AS n FROM t AS t GROUP BY t.k")
    >>> traced(query).leaves
    (Leaf(table='t', column='__p0'),)
    """
    tracer = _Tracer()
    numbered, names = tracer.query(inlined(query), column)
    return TracedQuery(numbered, tuple(tracer.leaves[name] for name in names), tuple(tracer.beside))


def is_row_by_row(query: exp.Query, tables: Collection[str]) -> bool:
    """Whether a row of these tables is in rows of the result that are of no other row of them.

    They are where every one is read by a FROM, and neither joined, grouped, nor looked up.

    Args:
        query: qualified.
        tables: by their names in the query.

    >>> from sqlglot import parse_one
    >>> is_row_by_row(parse_one("SELECT t.k FROM t AS t JOIN u AS u ON u.k = t.k"), {"t"})
    True
    >>> is_row_by_row(parse_one("SELECT count(*) AS n FROM t AS t"), {"t"})
    False
    """
    query = cast("exp.Query", inlined(query).unnest())
    if not any(table.name in tables for table in query.find_all(exp.Table)):
        return True
    if type(query) is exp.Union:
        sides = cast("list[exp.Query]", [query.left, query.right])
        return not query.args.get("distinct") and all(is_row_by_row(side, tables) for side in sides)
    if not isinstance(query, exp.Select) or any(
        query.args.get(part) for part in (*_NOT_TRACED, "group", "having", "distinct", "qualify")
    ):
        return False
    if _windows(query) or _aggregates(query):
        return False
    first = query.args["from_"].this if query.args.get("from_") is not None else None
    if isinstance(first, exp.Subquery) and not is_row_by_row(first.this, tables):
        return False
    own = set() if first is None else {id(table) for table in first.find_all(exp.Table)}
    return all(id(table) in own for table in query.find_all(exp.Table) if table.name in tables)


class _Tracer:
    def __init__(self) -> None:
        self.leaves: dict[str, Leaf] = {}
        self.beside: list[TracedQuery] = []

    def query(self, query: exp.Expr, column: str | None = None) -> tuple[exp.Query, list[str]]:
        """The query with its rows' numbers, and the columns that these are."""
        query = query.unnest() if isinstance(query, exp.Subquery) else query
        if isinstance(query, exp.Select):
            return self._select(query.copy(), column)
        if not isinstance(query, exp.Union):
            raise UntracedError(query.key.upper())
        (left, lefts), (right, rights) = self.query(query.left), self.query(query.right)
        both = exp.Union(
            this=_with(left, [*map(_own, lefts), *map(_none, rights)]),
            expression=_with(right, [*map(_none, lefts), *map(_own, rights)]),
            distinct=False,
        )
        return both, [*lefts, *rights]

    def _select(self, node: exp.Select, column: str | None) -> tuple[exp.Select, list[str]]:
        for clause in _NOT_TRACED:
            if node.args.get(clause):
                raise UntracedError(clause.upper().strip("_"))
        node.set("order", None)
        windows = _windows(node)
        group = node.args.get("group")
        if group is None and not _aggregates(node) and not windows:
            node.set("distinct", None)  # rows that are equal come from the rows of them all
            return self._plain(node)
        if windows and (group is not None or _aggregates(node)):
            raise UntracedError("a window over groups")
        if windows:
            return self._by_keys(node, _common(windows))
        if group is not None and (group.args.get("all") or group.find(*_GROUPINGS)):
            raise UntracedError("GROUP BY of several groupings")
        keys = [] if group is None else group.expressions
        # what HAVING asks of a group is true of all of its rows
        counting = None if node.args.get("having") else _counting(node, column)
        return self._by_keys(node, keys, counting)

    def _plain(self, node: exp.Select) -> tuple[exp.Select, list[str]]:
        numbers = list(self._sources(node))
        for name, number in numbers:
            node.append("expressions", exp.alias_(number, name, quoted=True))
        return node, [name for name, _ in numbers]

    def _by_keys(
        self,
        node: exp.Select,
        keys: Sequence[exp.Expr],
        counting: Counting | None = None,
    ) -> tuple[exp.Select, list[str]]:
        """The result beside the rows that have its keys, those that count."""
        outer, hidden = (
            node.copy(),
            [exp.alias_(key.copy(), f"__k{at}", quoted=True) for at, key in enumerate(keys)],
        )
        outputs = [expression.alias_or_name for expression in node.expressions]
        for hidden_key in hidden:
            outer.append("expressions", hidden_key.copy())
        inner = exp.Select(
            expressions=hidden,
            **{part: _copied(node.args.get(part)) for part in ("from_", "joins", "where")},
        )
        on: list[exp.Expr] = [same("__outer", "__rows", hidden_key.alias) for hidden_key in hidden]
        if counting is not None:
            inner.append("expressions", exp.alias_(counting.value.copy(), "__v", quoted=True))
            on.append(
                counting.met(column_of("__outer", counting.column), column_of("__rows", "__v"))
            )
        self._nested(outer, [outer.args.get("having"), *outer.expressions])
        inner, names = self._plain(inner)
        joined = exp.Select(
            expressions=[
                *(
                    exp.alias_(column_of("__outer", output), output, quoted=True)
                    for output in outputs
                ),
                *(exp.alias_(column_of("__rows", name), name, quoted=True) for name in names),
            ],
            from_=exp.From(this=aliased(outer, "__outer")),
            joins=[
                exp.Join(
                    this=aliased(inner, "__rows"),
                    side=None if keys else "LEFT",
                    on=exp.and_(*on, copy=False) if on else exp.true(),
                )
            ],
        )
        return joined, names

    def _sources(self, node: exp.Select) -> Iterator[tuple[str, exp.Expr]]:
        """The numbers of the rows that a FROM combines; nested queries become traced ones."""
        self._membership(node)
        conditions = [join.args.get("on") for join in node.args.get("joins") or ()]
        self._nested(node, [node.args.get("where"), *conditions, *node.expressions])
        if node.args.get("from_") is None:
            return
        for holder in [node.args["from_"], *(node.args.get("joins") or ())]:
            if holder.args.get("kind") == "ANTI":
                continue
            if holder.args.get("kind") == "SEMI":
                holder.set("kind", None)
                holder.set("side", None)
            source = holder.this
            if isinstance(source, exp.Table):
                name = self._leaf(source.name)
                yield name, column_of(source.alias_or_name, ROW)
            elif isinstance(source, exp.Subquery):
                inner, names = self.query(source)
                source.set("this", inner)
                for name in names:
                    yield name, column_of(source.alias, name)
            else:
                raise UntracedError(f"{source.sql()[:40]} in FROM")

    def _membership(self, node: exp.Select) -> None:
        """`x IN (SELECT ...)` of a WHERE as the join that it is."""
        where = node.args.get("where")
        if where is None:
            return
        for part in list(where.this.flatten() if isinstance(where.this, exp.And) else [where.this]):
            bare = part.unnest()
            query = bare.args.get("query") if isinstance(bare, exp.In) else None
            if query is None or _correlated(query):
                continue
            inner = query.unnest().copy()
            alias = f"__in{len(node.args.get('joins') or ())}"
            (value,) = inner.selects
            on = exp.EQ(this=bare.this.copy(), expression=column_of(alias, value.alias_or_name))
            node.append("joins", exp.Join(this=aliased(inner, alias), on=on))
            part.replace(exp.true())

    def _nested(self, node: exp.Select, parts: Iterable[exp.Expr | None]) -> None:
        """Queries within expressions: what they read took part in every row."""
        for part in parts:
            for query in [] if part is None else list(part.find_all(exp.Select)):
                if query.find_ancestor(exp.Select) is not node:
                    continue
                if _correlated(query):
                    raise UntracedError("a subquery that reads columns of the query around it")
                if isinstance(query.parent, (exp.Exists, exp.In, exp.Subquery)) and _denied(query):
                    continue
                inner = _Tracer()
                numbered, names = inner.query(query.copy())
                self.beside.append(
                    TracedQuery(numbered, tuple(inner.leaves[name] for name in names))
                )
                self.beside += inner.beside

    def _leaf(self, table: str) -> str:
        # tracers of queries beside have numbers of their own: their queries run alone
        name = f"__p{len(self.leaves)}"
        self.leaves[name] = Leaf(table, name)
        return name


def _denied(query: exp.Expr) -> bool:
    """Whether it stands under a NOT that takes effect when it finds nothing."""
    test = query.find_ancestor(exp.Exists, exp.In)
    above = None if test is None else test.parent
    while isinstance(above, exp.Paren):
        above = above.parent
    return isinstance(above, exp.Not)


def _correlated(query: exp.Expr) -> bool:
    """Whether a qualified query reads columns of a table that is not its own."""
    own = {
        source.alias_or_name
        for source in query.find_all(exp.Table, exp.Subquery)
        if source.alias_or_name
    }
    return any(column.table and column.table not in own for column in query.find_all(exp.Column))


def _windows(node: exp.Select) -> list[exp.Window]:
    parts = [*node.expressions, *filter(None, [node.args.get("qualify")])]
    return [window for part in parts for window in find_all_in_scope(part, exp.Window)]


def _aggregates(node: exp.Select) -> bool:
    parts = [*node.expressions, *filter(None, [node.args.get("having")])]
    return any(
        not isinstance(aggregate.parent, exp.Window)
        and aggregate.find_ancestor(exp.Window, exp.Select) is node
        for part in parts
        for aggregate in find_all_in_scope(part, exp.AggFunc)
    )


def _common(windows: Sequence[exp.Window]) -> list[exp.Expr]:
    """Expressions by which each of the windows is partitioned."""
    first, *others = ([*(window.args.get("partition_by") or ())] for window in windows)
    return [key for key in first if all(key in other for other in others)]


@dataclass(frozen=True, slots=True)
class Counting:
    """Which rows of a group count for an aggregate.

    Attributes:
        column: of the result.
        value: of a row: whether it counts, or what is compared with the result.
        compared: the second of these.
        none: the result where no row counts; null: null.
    """

    column: str
    value: exp.Expr
    compared: bool
    none: exp.Expr

    def met(self, result: exp.Expr, value: exp.Expr) -> exp.Expr:
        """Whether a row counts; where none does, each is why: without them there is no group."""
        counts = exp.EQ(this=result.copy(), expression=value) if self.compared else value
        kind = exp.Is if isinstance(self.none, exp.Null) else exp.EQ
        return exp.paren(exp.or_(counts, kind(this=result, expression=self.none.copy())))


def _counting(node: exp.Select, column: str | None) -> Counting | None:
    """Which rows count for one column of a group; None: all."""
    output = next(
        (expression for expression in node.expressions if expression.alias_or_name == column), None
    )
    aggregate = None if output is None else output.unalias()
    value = None if aggregate is None else aggregate.this
    if isinstance(value, exp.Distinct):
        value = value.expressions[0] if len(value.expressions) == 1 else None
    if column is None or not isinstance(value, exp.Expr) or isinstance(value, exp.Star):
        return None
    is_there = exp.Not(this=exp.Is(this=value, expression=exp.null()))
    if isinstance(aggregate, exp.CountIf):
        return Counting(column, value, compared=False, none=exp.Literal.number(0))
    if isinstance(aggregate, (exp.Min, exp.Max)):
        return Counting(column, value, compared=True, none=exp.null())
    if isinstance(aggregate, (exp.Count, exp.Sum, exp.Avg)) and not aggregate.expressions:
        none = exp.Literal.number(0) if isinstance(aggregate, exp.Count) else exp.null()
        return Counting(column, is_there, compared=False, none=none)
    return None


def keys_of(query: exp.Query) -> list[str] | None:
    """Columns of the result of a grouped query that tell its rows apart; None: it is none."""
    if not isinstance(query, exp.Select):
        return None
    if query.args.get("group") is None:
        return [] if _aggregates(query) and not _windows(query) else None  # one row
    keys = query.args["group"].expressions
    shown = {
        expression.unalias().sql(): expression.alias_or_name for expression in query.expressions
    }
    names = [shown.get(key.sql()) for key in keys]
    return None if None in names else [str(name) for name in names]


@dataclass(frozen=True, slots=True)
class Same:
    """A column of the result that is one of a table in every row that it comes from.

    Attributes:
        output: of the result.
        column: of the table.
        days: the value is the day of the column.
    """

    output: str
    column: str
    days: bool


def same_columns(query: exp.Query, names: Iterable[str]) -> dict[str, list[Same]]:
    """Which columns of the tables that a query reads at one place have values of the result.

    Args:
        query: qualified.
        names: columns of the result, none of whose values is null: of the right of an outer join
            a null may mean that there is no row.
    """
    pairs: list[tuple[str, list[Same]]] = []
    _same(inlined(query), {name: name for name in names}, pairs.append)
    tables = [table for table, _ in pairs]
    return {table: columns for table, columns in pairs if tables.count(table) == 1}


def _same(
    query: exp.Expr, wanted: Mapping[str, str], tell: Callable[[tuple[str, list[Same]]], None]
) -> None:
    """Tell of each place. `wanted` are columns of this query, with those of the whole result."""
    query = query.unnest()
    if isinstance(query, exp.Union):
        names = [select.alias_or_name for select in query.selects]
        for side in (query.left, query.right):
            own = zip([select.alias_or_name for select in side.selects], names, strict=True)
            _same(side, {own_name: wanted[name] for own_name, name in own if name in wanted}, tell)
        return
    if not isinstance(query, exp.Select):
        return
    windows = _windows(query)
    partition = _common(windows) if windows else None
    known: dict[str, list[Same]] = {}
    for select in query.expressions:
        term = select.unalias()
        if select.alias_or_name not in wanted or (partition is not None and term not in partition):
            continue
        days = isinstance(term, exp.TsOrDsToDate) or (
            isinstance(term, exp.Cast) and bool(term.to.is_type("date"))
        )
        column = term.this if days else term
        if isinstance(column, exp.Column):
            same_as = Same(wanted[select.alias_or_name], column.name, days)
            known.setdefault(column.table, []).append(same_as)
    read: set[int] = set()
    for holder in filter(None, [query.args.get("from_"), *(query.args.get("joins") or ())]):
        source = holder.this
        columns = known.get(source.alias_or_name, [])
        read |= {id(table) for table in source.find_all(exp.Table)}
        if isinstance(source, exp.Table):
            tell((source.name, columns))
        elif isinstance(source, exp.Subquery):
            _same(
                source,
                {
                    same_column.column: same_column.output
                    for same_column in columns
                    if not same_column.days
                },
                tell,
            )
    for table in query.find_all(exp.Table):  # of subqueries in expressions
        if id(table) not in read:
            tell((table.name, []))


def _with(query: exp.Query, columns: Sequence[exp.Expr]) -> exp.Query:
    """The query with its own columns, and then these; the numbers that it ends with go."""
    numbers = sum(1 for select in query.selects if select.alias_or_name.startswith("__p"))
    names = [select.alias_or_name for select in query.selects][: len(query.selects) - numbers]
    own = [exp.alias_(column_of("__part", name), name, quoted=True) for name in names]
    return exp.Select(expressions=[*own, *columns], from_=exp.From(this=aliased(query, "__part")))


def _own(name: str) -> exp.Expr:
    return exp.alias_(column_of("__part", name), name, quoted=True)


def _none(name: str) -> exp.Expr:
    zero = exp.Literal.number(0)
    return exp.alias_(exp.Nullif(this=zero, expression=zero.copy()), name, quoted=True)


def same(left: str, right: str, column: str) -> exp.Expr:
    """Whether two tables have the same value, or null, in a column."""
    return exp.Paren(
        this=exp.NullSafeEQ(this=column_of(left, column), expression=column_of(right, column))
    )


def column_of(table: str, name: str) -> exp.Column:
    """A column by its exact name."""
    return exp.column(name, table=table, quoted=True)


def asked_of(query: exp.Query, conditions: Sequence[exp.Expr], what: exp.Expr) -> exp.Select:
    """What is asked of the rows of a query that meet conditions on its columns."""
    return exp.select(what).from_(aliased(query.copy(), "__asked")).where(*conditions)


def aliased(query: exp.Query, name: str) -> exp.Subquery:
    """The query as a table of this exact name."""
    return exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(name, quoted=True)))


def _copied(part: Any) -> Any:
    if isinstance(part, list):
        return [item.copy() for item in part]
    return None if part is None else part.copy()
