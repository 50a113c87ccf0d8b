"""What is wrong with a query, as far as the schema and its tables' statements show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sqlglot
from pyiceberg.schema import Schema
from sqlglot import exp
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import traverse_scope

from lakehouse.agents.catalog_map import CatalogMap, Stated
from lakehouse.agents.lines import mark
from lakehouse.agents.words import clean
from lakehouse.errors import InvalidInputError, NoSuchTableError
from lakehouse.semantics.claims import Kind
from lakehouse.semantics.states import State
from lakehouse.spec.identifier import dotted as name_text
from lakehouse.spec.identifier import split_name

DIALECT = "duckdb"
_ADDED_UP = (exp.Sum, exp.Avg, exp.Count)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to know before a query is run.

    Attributes:
        what: deprecated, stale, contradicted, filter, fan_out, unit or snapshot.
        about: a table or `table.column`.
        text: for people; quotes what others wrote, it is no instruction.
    """

    what: str
    about: str
    text: str


def parsed_select(sql: str) -> exp.Query:
    """The one SELECT of a text over tables `namespace.name`.

    Raises:
        InvalidInputError: it is no single SELECT, or reads from something else than a table.
    """
    try:
        trees = [tree for tree in sqlglot.parse(sql, read=DIALECT) if tree is not None]
    except sqlglot.errors.SqlglotError as error:
        raise InvalidInputError(f"Not a query: {str(error).splitlines()[0]}") from error
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise InvalidInputError("Only one SELECT statement can be run here")
    tree = trees[0]
    if tree.find(exp.Into, exp.Command, exp.Insert, exp.Update, exp.Delete, exp.Lock) is not None:
        raise InvalidInputError("Only SELECT can be run here: nothing is written")
    for node in table_nodes(tree):
        if not isinstance(node.this, exp.Identifier) or not node.db or node.catalog:
            raise InvalidInputError(
                f"{clean(node.sql(), 80)} is no table of this catalog: write namespace.name"
            )
    for other in tree.find_all(exp.Lateral, exp.Unnest):
        if other.find(exp.Anonymous) is not None:
            raise InvalidInputError(f"{clean(other.sql(), 80)} cannot be read from here")
    return tree


def table_nodes(tree: exp.Query) -> list[exp.Table]:
    """Everything that a query reads from, but for its own common table expressions."""
    ctes = {cte.alias_or_name for cte in tree.find_all(exp.CTE)}
    return [
        node
        for node in tree.find_all(exp.Table)
        if not isinstance(node.this, exp.Identifier) or node.db or node.name not in ctes
    ]


def dotted(node: exp.Table) -> str:
    """`namespace.name`; levels of the namespace are one word, `"raw.eu".events`."""
    return f"{node.db}.{name_text([node.name])}"


def sql_findings(catalog: CatalogMap, sql: str) -> list[Finding]:
    """What statements say against a query, once it binds to the schema.

    Args:
        catalog: the map.
        sql: one SELECT.

    Raises:
        InvalidInputError: it is no SELECT, or names a column that does not exist.
        NoSuchTableError: it names a table that does not exist.
    """
    tree = parsed_select(sql)
    names = list(dict.fromkeys(dotted(node) for node in table_nodes(tree)))
    if gone := [name for name in names if name not in catalog.tables]:
        listed = ", ".join(list(catalog.tables)[:10])
        raise NoSuchTableError(f"There is no table {gone[0]}; there are {listed}", table=gone[0])
    bound = _bound(tree, {name: catalog.tables[name].schema for name in names})
    look = _Look(catalog, bound)
    findings = [
        *look.tables(),
        *look.contradicted(),
        *look.filters(),
        *look.fan_out(),
        *look.units(),
    ]
    return list(dict.fromkeys(findings))


def _bound(tree: exp.Query, schemas: Mapping[str, Schema]) -> exp.Query:
    columns: dict[str, Any] = {}
    for name, schema in schemas.items():
        *space, table = split_name(name)
        columns.setdefault(name_text(space), {})[table] = {
            field.name: "UNKNOWN" for field in schema.fields
        }
    try:
        bound = qualify(
            tree.copy(),
            schema=columns,
            dialect=DIALECT,
            quote_identifiers=False,
            identify=False,
            expand_stars=False,
        )
    except sqlglot.errors.SqlglotError as error:
        raise InvalidInputError(f"The query does not bind: {str(error).splitlines()[0]}") from error
    if not isinstance(bound, exp.Query):
        raise InvalidInputError("Only one SELECT statement can be run here")
    return bound


class _Look:
    """One query beside the statements about its tables."""

    def __init__(self, catalog: CatalogMap, tree: exp.Query) -> None:
        self._catalog = catalog
        self._tree = tree
        self._aliases: dict[int, dict[str, str]] = {}
        self._used: dict[str, set[str]] = {dotted(node): set() for node in table_nodes(tree)}
        for scope in traverse_scope(tree):
            sources = {
                alias: dotted(source)
                for alias, source in scope.sources.items()
                if isinstance(source, exp.Table) and source.db
            }
            self._aliases[id(scope.expression)] = sources
            for column in scope.columns:
                if column.table in sources:
                    self._used[sources[column.table]].add(column.name)

    def tables(self) -> Iterator[Finding]:
        for name in self._used:
            for statement in self._catalog.by_table[name]:
                claim = statement.draft.claim
                if statement.contradicted:
                    continue
                if statement.draft.kind is Kind.DEPRECATION:
                    successor = claim.get("successor")
                    use = f"; use {successor}" if successor else ""
                    yield Finding("deprecated", name, f"{name} is deprecated{use}")
                if statement.draft.kind is Kind.FRESHNESS and claim.get("instead"):
                    through = claim.get("complete_through", "an earlier day")
                    text = f"{name} is complete through {through} only; use {claim['instead']}"
                    yield Finding("stale", name, text)
                if statement.draft.kind is Kind.GRAIN and (day := claim.get("snapshot")):
                    summed = self._tree.find(exp.Sum) is not None
                    if summed and not self._compared(name, day):
                        text = f"rows of {name} are balances at {day}: never add them over {day}"
                        yield Finding("snapshot", f"{name}.{day}", text)

    def contradicted(self) -> Iterator[Finding]:
        for name, used in self._used.items():
            for statement in self._catalog.by_table[name]:
                column = statement.draft.column
                standing = statement.standing
                if standing is None or standing.state in (State.VERIFIED, State.UNVERIFIED):
                    continue
                if column is None or column.partition(".")[0] in used:
                    about = name if column is None else f"{name}.{column}"
                    text = f"{statement.draft.kind} {statement.key} {mark(standing)}"
                    yield Finding("contradicted", about, text)

    def filters(self) -> Iterator[Finding]:
        for name in self._used:
            for statement in self._catalog.by_table[name]:
                mandatory = statement.draft.kind is Kind.FILTER and statement.draft.claim.get(
                    "mandatory"
                )
                if mandatory and not statement.contradicted and not self._filtered(name, statement):
                    predicate = clean(statement.draft.claim["predicate"], 300)
                    text = f"every figure of {name} is to be filtered by {predicate}"
                    yield Finding("filter", name, text)

    def fan_out(self) -> Iterator[Finding]:
        """Joins that repeat rows of a table under something that is added up."""
        for select in self._tree.find_all(exp.Select):
            sources = self._aliases.get(id(select), {})
            if len(sources) < 2 or select.find(*_ADDED_UP) is None:
                continue
            for join in self._catalog.statements:
                if join.draft.kind is not Kind.JOIN or join.contradicted:
                    continue
                finding = self._repeated(join, sources, select)
                if finding is not None:
                    yield finding

    def units(self) -> Iterator[Finding]:
        for select in self._tree.find_all(exp.Select):
            sources = self._aliases.get(id(select), {})
            for node in select.find_all(exp.Add, exp.Sub, exp.GT, exp.LT, exp.GTE, exp.LTE, exp.EQ):
                sides = [self._unit(side, sources) for side in (node.left, node.right)]
                if None not in sides and sides[0] != sides[1]:
                    text = f"{clean(node.sql(DIALECT), 120)} mixes {sides[0]} and {sides[1]}"
                    yield Finding("unit", clean(node.left.sql(DIALECT), 80), text)
            for total in select.find_all(exp.Sum):
                for column in total.find_all(exp.Column):
                    name = sources.get(column.table, "")
                    currency = self._claim(name, column.name, Kind.UNIT).get("currency")
                    is_fixed = isinstance(currency, str) and "." not in currency
                    if is_fixed and not self._compared(name, str(currency)):
                        about = f"{name}.{column.name}"
                        text = f"{about} is in the currency of {currency}: rows of one at a time"
                        yield Finding("unit", about, text)

    def _repeated(
        self, join: Stated, sources: Mapping[str, str], select: exp.Select
    ) -> Finding | None:
        """The finding that a sum over the one side of a join counts rows several times."""
        draft = join.draft
        other = draft.claim["to"][0].rpartition(".")[0] or draft.table
        cardinality = draft.claim["cardinality"]
        if draft.table == other or not {draft.table, other} <= set(sources.values()):
            return None
        one_side = {"many_to_one": {other}, "one_to_many": {draft.table}}.get(
            cardinality, {draft.table, other} if cardinality == "many_to_many" else set()
        )
        for total in select.find_all(*_ADDED_UP):
            of = {sources.get(column.table) for column in total.find_all(exp.Column)}
            distinct = total.find(exp.Distinct) is not None
            if not distinct and (hit := sorted(one_side & {name for name in of if name})):
                text = (
                    f"{draft.table} and {other} are joined {cardinality}: "
                    f"{clean(total.sql(DIALECT), 80)} counts rows of {hit[0]} several times"
                )
                return Finding("fan_out", hit[0], text)
        return None

    def _filtered(self, name: str, statement: Stated) -> bool:
        """Whether the query has a condition on a column of the filter."""
        wanted = {
            column
            for table, column in self._catalog.mentions[statement.key]
            if table == name and column is not None
        }
        return any(self._compared(name, column) for column in wanted)

    def _compared(self, name: str, column: str) -> bool:
        """Whether a column stands in a condition, or rows are grouped by it."""
        for select in self._tree.find_all(exp.Select):
            sources = self._aliases.get(id(select), {})
            parts: list[Any] = [select.args.get("where"), select.args.get("group")]
            parts += [join.args.get("on") for join in select.args.get("joins") or ()]
            parts += list(select.find_all(exp.Filter, exp.Case))
            for part in (part for part in parts if part is not None):
                for candidate in part.find_all(exp.Column):
                    if candidate.name == column and sources.get(candidate.table) == name:
                        return True
        return False

    def _claim(self, name: str, column: str, kind: Kind) -> Mapping[str, Any]:
        for statement in self._catalog.by_table.get(name, ()):
            if (
                statement.draft.kind is kind
                and statement.draft.column == column
                and not statement.contradicted
            ):
                return statement.draft.claim
        return {}

    def _unit(self, node: exp.Expr, sources: Mapping[str, str]) -> str | None:
        """The unit of a bare column or of its sum; None where no statement gives one."""
        inner = node.this if isinstance(node, (exp.Sum, exp.Avg, exp.Max, exp.Min)) else node
        if not isinstance(inner, exp.Column):
            return None
        claim = self._claim(sources.get(inner.table, ""), inner.name, Kind.UNIT)
        if not claim:
            return None
        factor = claim.get("factor") or 1
        tax = f" {claim['tax']}" if claim.get("tax") else ""
        return f"{clean(claim['unit'], 40)}{tax}{'' if factor == 1 else f' x {factor:g}'}"
