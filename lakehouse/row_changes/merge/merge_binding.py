"""Binding a MERGE to the schemas of its two sides: names become columns, SQL becomes terms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from lakehouse.errors import InvalidExpressionError, InvalidInputError
from lakehouse.expressions.bound_filter import (
    TRUE,
    Bound,
    Call,
    Column,
    Leaf,
    Term,
    Value,
    columns,
    columns_of,
    conjunction,
)
from lakehouse.expressions.filter_binding import Names, to_bound
from lakehouse.expressions.sql import typed_calls as sql
from lakehouse.expressions.sql.sql_terms import read_filter
from lakehouse.expressions.typed_literals import cast_literal
from lakehouse.row_changes.merge.merge_statement import Action, Matched, MergeClause, MergeStatement

Resolve = Callable[[str], Column]


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Two terms that are equal where rows belong together.

    Attributes:
        target: of the target's columns.
        source: of the source's columns.
        nulls_match: whether null equals null (`IS NOT DISTINCT FROM`).
    """

    target: Term
    source: Term
    nulls_match: bool


@dataclass(frozen=True, slots=True)
class BoundClause:
    """A clause whose condition and values are terms.

    Attributes:
        when: see MergeClause.
        action: see MergeClause.
        condition: TRUE is always.
        assignments: new values by the name of the target's column.
    """

    when: Matched
    action: Action
    condition: Bound
    assignments: Mapping[str, Term]


@dataclass(frozen=True, slots=True)
class BoundMerge:
    """A MERGE over columns. Those of the source have negative field ids.

    Attributes:
        target: schema of the table.
        source: schema of the source rows.
        keys: what makes rows belong together.
        beside: what else has to be true of two rows.
        clauses: in order.
        unique_source: see MergeStatement.
    """

    target: Schema
    source: Schema
    keys: tuple[KeyPair, ...]
    beside: Bound
    clauses: tuple[BoundClause, ...]
    unique_source: bool = False

    def about(self, when: Matched) -> tuple[BoundClause, ...]:
        """The clauses about rows of one kind."""
        return tuple(clause for clause in self.clauses if clause.when == when)

    @property
    def key_columns(self) -> set[int]:
        """Field ids of the target that its keys are made of."""
        return _of_target(column for pair in self.keys for column in columns_of(pair.target))

    @property
    def needed_columns(self) -> set[int]:
        """Field ids of the target that the clauses about its rows name or keep."""
        needed = _of_target(columns(self.beside))
        for clause in (*self.about("matched"), *self.about("not matched by source")):
            needed |= _of_target(columns(clause.condition))
            needed |= _of_target(
                c for term in clause.assignments.values() for c in columns_of(term)
            )
            if clause.action == "update":
                names = self.target.fields
                needed |= {name.field_id for name in names if name.name not in clause.assignments}
        return needed


def bind_merge(statement: MergeStatement, target: Schema, source: Schema) -> BoundMerge:
    """Resolve names and types.

    A name with an alias is that side's; without one it is the column of the only side that has it.

    Raises:
        InvalidExpressionError: SQL that does not parse, or names that mean nothing or two things.
        InvalidInputError: `on` has no equality of both sides, or a clause cannot be.
    """
    sides = _Sides(statement, target, source)
    keys: list[KeyPair] = []
    beside: list[Term] = []
    for part in _equalities(statement.on, sides):
        pair = _key_pair(part)
        beside += [part] if pair is None else []
        keys += [] if pair is None else [pair]
    if not keys:
        raise InvalidInputError(
            f"on {statement.on!r}: no part joined by AND is an equality of a column of the target "
            f"with one of the source, such as {statement.target_alias}.id = "
            f"{statement.source_alias}.id"
        )
    clauses = tuple(_clause(clause, sides) for clause in statement.clauses)
    _check_order(clauses)
    return BoundMerge(
        target,
        source,
        tuple(keys),
        conjunction(map(to_bound, beside)),
        clauses,
        statement.unique_source,
    )


def bind_update(assignments: Mapping[str, str], target: Schema) -> Mapping[str, Term]:
    """The values of an UPDATE, by the name of the column.

    Raises:
        InvalidExpressionError | InvalidInputError: as `bind_merge`.
    """
    names = Names(target)
    return _assignments(assignments, target, names.column, "")


class _Sides:
    """What names mean on either side of a MERGE."""

    def __init__(self, statement: MergeStatement, target: Schema, source: Schema) -> None:
        if statement.source_alias == statement.target_alias:
            raise InvalidInputError(
                f"source and target have the same alias {statement.source_alias!r}"
            )
        self.statement, self.schema, self.source_schema = statement, target, source
        self._target, self._source = Names(target), Names(source)

    def target(self, name: str) -> Column:
        """A column of the target. Raises InvalidExpressionError."""
        alias, _, rest = name.partition(".")
        if alias == self.statement.source_alias and rest:
            raise InvalidExpressionError(f"{name}: there is no source row here", column=name)
        own = rest and alias == self.statement.target_alias
        return self._target.column(rest if own else name)

    def source(self, name: str) -> Column:
        """A column of the source. Raises InvalidExpressionError."""
        alias, _, rest = name.partition(".")
        if alias == self.statement.target_alias and rest:
            raise InvalidExpressionError(f"{name}: there is no target row here", column=name)
        own = rest and alias == self.statement.source_alias
        return _of_source(self._source.column(rest if own else name))

    def either(self, name: str) -> Column:
        """A column of one of the sides. Raises InvalidExpressionError."""
        alias, _, rest = name.partition(".")
        if rest and alias == self.statement.target_alias:
            return self._target.column(rest)
        if rest and alias == self.statement.source_alias:
            return _of_source(self._source.column(rest))
        here = [names for names in (self._target, self._source) if _has(names, name)]
        if len(here) == 2:
            raise InvalidExpressionError(
                f"{name} is a column of both: write {self.statement.target_alias}.{name} or "
                f"{self.statement.source_alias}.{name}",
                column=name,
            )
        if here and here[0] is self._source:
            return _of_source(self._source.column(name))
        return self._target.column(name)

    def resolve(self, when: Matched) -> Resolve:
        """What names mean in a clause about rows of one kind."""
        if when == "matched":
            return self.either
        return self.source if when == "not matched" else self.target


def _of_source(column: Column) -> Column:
    return Column(-column.field_id, ("source", *column.path), column.type)


def _has(names: Names, name: str) -> bool:
    try:
        names.column(name)
    except InvalidExpressionError:
        return False
    return True


def _equalities(on: str | Sequence[str], sides: _Sides) -> Iterator[Term]:
    if isinstance(on, str):
        yield from _parts(read_filter(on, sides.either))
        return
    source, target = sides.statement.source_alias, sides.statement.target_alias
    for name in on:
        columns = sides.target(f"{target}.{name}"), sides.source(f"{source}.{name}")
        yield sql.compare("=", *columns)


def _parts(term: Term) -> Iterator[Term]:
    if isinstance(term, Call) and term.name == "and":
        for arg in term.args:
            yield from _parts(arg)
    else:
        yield term


def _key_pair(term: Term) -> KeyPair | None:
    if not isinstance(term, Call) or term.name not in ("=", "same"):
        return None
    left, right = term.args
    sides = [{column.field_id > 0 for column in columns_of(side)} for side in (left, right)]
    nulls = term.name == "same"
    if sides == [{True}, {False}]:
        return KeyPair(left, right, nulls)
    return KeyPair(right, left, nulls) if sides == [{False}, {True}] else None


def _of_target(named: Iterable[Column | Leaf]) -> set[int]:
    return {column.field_id for column in named if column.field_id > 0}


def _clause(clause: MergeClause, sides: _Sides) -> BoundClause:
    allowed = {"matched": ("update", "delete"), "not matched": ("insert",)}
    if clause.action not in allowed.get(clause.when, ("update", "delete")):
        done = {"update": "updated", "delete": "deleted", "insert": "inserted"}[clause.action]
        raise InvalidInputError(f"rows that are {clause.when} cannot be {done}")
    resolve = sides.resolve(clause.when)
    condition = to_bound(read_filter(clause.condition, resolve)) if clause.condition else TRUE
    assignments: Mapping[str, Term] = {}
    if clause.action != "delete":
        given = clause.assignments
        if given is None:
            assignments = {
                field.name: sides.source(f"{sides.statement.source_alias}.{field.name}")
                for field in sides.source_schema.fields
            }
            _check_columns(assignments, sides.schema)
        else:
            assignments = _assignments(given, sides.schema, resolve, sides.statement.target_alias)
    return BoundClause(clause.when, clause.action, condition, assignments)


def _assignments(
    given: Mapping[str, str], schema: Schema, resolve: Resolve, alias: str
) -> Mapping[str, Term]:
    known = {field.name for field in schema.fields}
    terms: dict[str, Term] = {}
    for column, text in given.items():
        name = column if column in known else column.removeprefix(f"{alias}.")
        if name not in known:
            raise _no_column(name, schema)
        if not isinstance(text, str):
            raise InvalidInputError(
                f"the new value of {name} is SQL text, not {type(text).__name__}: write "
                f"{str(text)!r}, and a text in single quotes inside",
                column=name,
            )
        terms[name] = _assigned(read_filter(text, resolve), schema.find_field(name))
    if not terms:
        raise InvalidInputError("an update without assignments changes nothing")
    return terms


def _check_columns(names: Iterable[str], schema: Schema) -> None:
    known = {field.name for field in schema.fields}
    for name in names:
        if name not in known:
            raise _no_column(name, schema)


def _no_column(name: str, schema: Schema) -> InvalidInputError:
    known = ", ".join(field.name for field in schema.fields)
    return InvalidInputError(f"no column {name} to assign to; the table has {known}", column=name)


def _assigned(term: Term, field: NestedField) -> Term:
    """A literal as a value of the column; everything else is cast when rows are written."""
    if not isinstance(term, Value) or term.value is None or term.type is not None:
        return term
    position = cast_literal(term.value, field.field_type, field.name)
    if not position.exact:
        raise InvalidExpressionError(
            f"{term.value} is no value of column {field.name}, a {field.field_type}",
            column=field.name,
        )
    return Value(position.value, field.field_type)


def _check_order(clauses: Sequence[BoundClause]) -> None:
    if not clauses:
        raise InvalidInputError("a merge without clauses does nothing: add when_matched_... first")
    last: set[Matched] = set()
    for clause in clauses:
        if clause.when in last:
            raise InvalidInputError(
                f"a clause for rows that are {clause.when} comes after one without a condition, "
                "and would never act"
            )
        if clause.condition == TRUE:
            last.add(clause.when)
