"""Which tables and columns a piece of SQL names, and the same piece after they were renamed.

Pieces are conditions and expressions over a table (its columns bare, those of others as
`namespace.table.column`), or whole queries. Names of subqueries and aliases are resolved by scope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from lakehouse.errors import InvalidStatementError
from lakehouse.spec.identifier import dotted, split_name

Columns = Callable[[str], frozenset[str] | None]
"""Dotted table name -> its columns; None when there is no such table."""


@dataclass(frozen=True, slots=True)
class Renames:
    """New names: tables by dotted name, columns by table and name as written."""

    tables: Mapping[str, str]
    columns: Mapping[tuple[str, str], str]


def sql_mentions(sql: str, table: str | None, columns: Columns) -> set[tuple[str, str | None]]:
    """(table, column) pairs that SQL names; (table, None) for a table.

    Args:
        sql: a condition or an expression over `table`, or a query when that is None.
        table: dotted name of the table that bare columns belong to.
        columns: what there is.

    Raises:
        InvalidStatementError: it does not parse, or names a table or column that does not exist.
    """
    tree = _parse(sql, table)
    mentions: set[tuple[str, str | None]] = set()
    for node in _tables(tree):
        name = _dotted(node)
        if columns(name) is None:
            raise InvalidStatementError(f"there is no table {name}, which {sql!r} names")
        if name != table:
            mentions.add((name, None))
    for column, owner, path in _columns(tree, columns):
        if owner is None:
            raise InvalidStatementError(
                f"{column.sql()} in {sql!r} is no column of the tables that it could be of"
            )
        mentions.add((owner, path))
    return mentions


def sql_renamed(sql: str, table: str | None, columns: Columns, renames: Renames) -> str:
    """The piece with new names; the text as it was when nothing that it names was renamed."""
    tree = _parse(sql, table)
    changed = False
    for column, owner, path in list(_columns(tree, columns)):
        if owner is None:
            continue
        new = renames.columns.get((owner, path))
        if new is not None:
            column.set("this", exp.to_identifier(new.rpartition(".")[2]))
            changed = True
        if owner in renames.tables and column.args.get("db"):
            *space, name = split_name(renames.tables[owner])
            column.set("db", exp.to_identifier(dotted(space)))
            column.set("table", exp.to_identifier(name))
            changed = True
    for node in list(_tables(tree)):
        new_table = renames.tables.get(_dotted(node))
        if new_table is not None:
            *space, name = split_name(new_table)
            if not node.alias:
                node.set("alias", exp.TableAlias(this=exp.to_identifier(node.name)))
            node.set("this", exp.to_identifier(name))
            node.set("db", exp.to_identifier(dotted(space)))
            changed = True
    piece = tree if table is None else tree.selects[0]
    return piece.sql() if changed else sql


def sql_values(sql: str) -> set[str]:
    """The literals in a condition or expression, as text."""
    literals = _parse(sql, "t").find_all(exp.Literal)
    return {
        f"-{literal.this}" if isinstance(literal.parent, exp.Neg) else literal.this
        for literal in literals
    }


def _parse(sql: str, table: str | None) -> exp.Query:
    """A query: pieces are put into `SELECT piece FROM table`."""
    try:
        if table is None:
            tree = sqlglot.parse_one(sql)
        else:
            piece = sqlglot.parse_one(sql)
            tree = exp.select(piece).from_(_table_of(table))
    except sqlglot.errors.SqlglotError as error:
        raise InvalidStatementError(f"{sql!r} is no SQL: {str(error).splitlines()[0]}") from error
    if not isinstance(tree, exp.Query):
        raise InvalidStatementError(f"{sql!r} is no query")
    return tree


def _table_of(name: str) -> exp.Table:
    # quoted where they must be
    levels = (exp.to_identifier(level).sql() for level in split_name(name))
    return exp.to_table(".".join(levels))


def _tables(tree: exp.Query) -> Iterator[exp.Table]:
    ctes = {cte.alias_or_name for cte in tree.find_all(exp.CTE)}
    for node in tree.find_all(exp.Table):
        if node.db or node.name not in ctes:
            yield node


def _dotted(node: exp.Table) -> str:
    return dotted([part.name for part in node.parts])


def _columns(tree: exp.Query, columns: Columns) -> Iterator[tuple[exp.Column, str | None, str]]:
    """The columns in reach with table and dotted path; None if no table has the name."""
    scopes = {id(scope.expression): scope for scope in traverse_scope(tree)}
    for column in list(tree.find_all(exp.Column)):
        if isinstance(column.this, exp.Star):
            continue
        select = column.find_ancestor(exp.Select, exp.SetOperation)
        while select is not None and id(select) not in scopes:
            select = select.find_ancestor(exp.Select, exp.SetOperation)
        if select is None:
            continue
        owner = _owner(column, scopes[id(select)], columns)
        if owner is not None:
            yield column, *owner


def _owner(column: exp.Column, scope: Scope, columns: Columns) -> tuple[str | None, str] | None:
    """A column's table and path; None if it is a subquery's, or an alias of the query."""
    if column.args.get("db"):
        name = dotted([part.name for part in column.parts[:-1]])
        return (name if column.name in (columns(name) or ()) else None), column.name
    level: Scope | None = scope
    derived = column.name in _aliases(scope)
    while level is not None:
        if column.table in level.sources:
            source = level.sources[column.table]
            if not isinstance(source, exp.Table):
                return None
            name = _dotted(source)
            return (name if column.name in (columns(name) or ()) else None), column.name
        for source in level.sources.values():
            if not isinstance(source, exp.Table):
                derived = True
                continue
            paths = columns(_dotted(source)) or ()
            # `meta.ver` of a struct is a column `ver` of a table `meta` to the parser
            path = f"{column.table}.{column.name}" if column.table else column.name
            if path in paths:
                return _dotted(source), path
        level = level.parent
    return None if derived else (None, column.name)


def _aliases(scope: Scope) -> set[str]:
    """Names that the select list itself gives, which ORDER BY, GROUP BY and HAVING may use."""
    select = scope.expression
    named = select.selects if isinstance(select, exp.Query) else []
    return {table.alias for table in named if table.alias}
