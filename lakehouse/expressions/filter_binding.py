"""Binding a filter to a schema: from what a user gives to what planning and reading work with."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from pyiceberg import expressions as ice
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
)

from lakehouse.errors import InvalidExpressionError
from lakehouse.expressions.bound_filter import (
    FALSE,
    OPPOSITES,
    TRUE,
    And,
    Bound,
    Call,
    Column,
    Computed,
    Constant,
    Leaf,
    Op,
    Or,
    Term,
    Value,
    columns,
    conjunction,
    disjunction,
    leaves,
    map_leaves,
)
from lakehouse.expressions.functions.sql_functions import FUNCTIONS
from lakehouse.expressions.sql import typed_calls as sql
from lakehouse.expressions.sql.sql_terms import read_filter
from lakehouse.expressions.typed_literals import literal_of
from lakehouse.spec.schema.iceberg_types import (
    METADATA_COLUMNS,
    FieldTypes,
    child_fields,
    paths_of,
    spelled,
)

Where = str | ice.BooleanExpression | Bound | None
"""A filter as users give it: SQL, an expression of pyiceberg, or None for all rows."""

COMPARISONS = {
    "=": Op.EQ,
    "!=": Op.NOT_EQ,
    "<": Op.LT,
    ">=": Op.GTE,
    ">": Op.GT,
    "<=": Op.LTE,
    "is null": Op.IS_NULL,
    "is nan": Op.IS_NAN,
    "listed": Op.IN,
    "starts_with": Op.STARTS_WITH,
}
"""What a call is of one column, where it is true."""
_PREDICATES: dict[type[ice.BooleanExpression], str] = {
    ice.LessThan: "<",
    ice.LessThanOrEqual: "<=",
    ice.GreaterThan: ">",
    ice.GreaterThanOrEqual: ">=",
    ice.EqualTo: "=",
    ice.NotEqualTo: "!=",
}


class Names:
    """The columns that a filter can name.

    Args:
        schema: their schema.
        case_sensitive: whether names have to match exactly.
    """

    def __init__(self, schema: Schema, *, case_sensitive: bool = True) -> None:
        self._schema = schema
        self._case_sensitive = case_sensitive
        self._top_level = {field.field_id for field in schema.fields}

    def column(self, name: str) -> Column:
        """The column of a dotted name. Raises InvalidExpressionError."""
        try:
            own = spelled(name, self._schema, case_sensitive=self._case_sensitive)
        except ValueError as error:
            raise InvalidExpressionError(f"column {error}", column=name) from error
        try:
            field = self._schema.find_field(own)
        except ValueError as error:
            if name == "_deleted":
                raise InvalidExpressionError(
                    "deleted rows are filtered out: select _deleted, and filter what comes"
                ) from error
            if name in METADATA_COLUMNS:
                return _column(METADATA_COLUMNS[name], (name,))
            known = ", ".join(sorted(self._schema.column_names))
            raise InvalidExpressionError(
                f"no column {name} in the schema; it has {known}", column=name
            ) from error
        if field.field_id in self._top_level:
            return _column(field, (field.name,))
        path = field_path(self._schema, field.field_id)
        if path is None:
            raise InvalidExpressionError(
                f"column {name} is inside a list or map, which a filter cannot reach", column=name
            )
        return _column(field, path)


def _column(field: NestedField, path: tuple[str, ...]) -> Column:
    return Column(field.field_id, path, field.field_type)


def bind(where: Where, schema: Schema, *, case_sensitive: bool = True) -> Bound:
    """Resolve names to field ids and place literals among the values that they are compared with.

    A number beyond the range of a column, or between two of its values, compares as the number it
    is (`int_column < 3000000000` holds for every row that is not null, `int_column = 1.5` for
    none). A number compared with a `float` column is rounded to it first. Times are in UTC: a
    timestamp without zone compares with a `timestamptz` column as UTC; one with a zone is refused
    for a `timestamp` column. docs/filters.md has the rest.

    Args:
        where: SQL, an expression of pyiceberg, None or blank text for every row. What is bound
            already comes back as it is.
        schema: of the table.
        case_sensitive: whether names have to match exactly.

    Raises:
        InvalidExpressionError: it does not parse, names no column, or compares what does not
            compare.
    """
    if where is None:
        return TRUE
    if isinstance(where, Leaf | Computed | Constant | And | Or):
        return where
    names = Names(schema, case_sensitive=case_sensitive)
    try:
        if isinstance(where, ice.BooleanExpression):
            return to_bound(_term(where, names))
        if isinstance(where, str):
            return to_bound(read_filter(where, names.column)) if where.strip() else TRUE
    except RecursionError as error:
        raise InvalidExpressionError("the filter is nested too deeply") from error
    raise InvalidExpressionError(
        f"a filter is text or a pyiceberg expression, not {type(where).__name__}"
    )


def to_bound(term: Term, *, wanted: bool = True) -> Bound:
    """The filter that passes the rows for which a boolean term is `wanted`.

    Where the term is null, it is neither true nor false.

    Raises:
        InvalidExpressionError: the term is not boolean.
    """
    if isinstance(term, Value):
        if term.value is not None and not isinstance(term.value, bool):
            raise InvalidExpressionError(f"a filter is a condition, not {term.value!r}")
        return TRUE if term.value is wanted else FALSE
    if not isinstance(term.type, BooleanType):
        raise InvalidExpressionError(f"a filter is a condition, not a {term.type}")
    if isinstance(term, Column):
        return _leaf(Op.EQ, term, wanted)
    if term.name == "not":
        return to_bound(term.args[0], wanted=not wanted)
    if term.name in ("and", "or"):
        join = conjunction if (term.name == "and") == wanted else disjunction
        return join(to_bound(arg, wanted=wanted) for arg in term.args)
    if term.name == "unless null":
        holds = isinstance(term.args[1], Value) and term.args[1].value is wanted
        return to_bound(sql.call("is null", term.args[0]), wanted=False) if holds else FALSE
    return _simple(term, wanted=wanted) or _computed(term, wanted=wanted)


def _simple(term: Call, *, wanted: bool) -> Bound | None:
    """A column against a literal."""
    op, first, rest = COMPARISONS.get(term.name), term.args[0], term.args[1:]
    if op is None or not isinstance(first, Column):
        return None
    op = op if wanted else OPPOSITES[op]
    if not rest:
        return _leaf(op, first)
    value = rest[0]
    return _leaf(op, first, value.value) if isinstance(value, Value) else None


def _leaf(op: Op, column: Column, value: Any = None) -> Leaf:
    return Leaf(op, column.field_id, column.path, column.type, value)


def _computed(term: Call, *, wanted: bool) -> Computed:
    implied = conjunction(_leaf(Op.NOT_NULL, column) for column in _needed(term))
    if wanted and term.name == "like" and isinstance(term.args[0], Column):
        prefix = _prefix(term)
        if prefix:
            implied = _leaf(Op.STARTS_WITH, term.args[0], prefix)
    condition = term if wanted else Call("not", (term,), BooleanType())
    return Computed(condition, implied)


def _needed(term: Term) -> Iterator[Column]:
    """Columns without which a term is null."""
    if isinstance(term, Column):
        yield term
    elif isinstance(term, Call) and FUNCTIONS[term.name].strict:
        for arg in term.args:
            yield from _needed(arg)


def _prefix(like: Call) -> str:
    """The text with which everything begins that is like the pattern."""
    pattern = like.args[1].value if isinstance(like.args[1], Value) else ""
    prefix = ""
    position = 0
    while position < len(pattern) and pattern[position] not in "%_":
        position += pattern[position] == "\\"
        prefix += pattern[position]
        position += 1
    return prefix


def _term(node: ice.BooleanExpression, names: Names) -> Term:
    """An expression of pyiceberg."""
    if isinstance(node, ice.AlwaysTrue | ice.AlwaysFalse):
        return sql.TRUE if isinstance(node, ice.AlwaysTrue) else sql.FALSE
    if isinstance(node, ice.Not):
        return sql.call("not", _term(node.child, names))
    if isinstance(node, ice.And | ice.Or):
        name = "and" if isinstance(node, ice.And) else "or"
        return sql.call(name, *(_term(part, names) for part in _flat(node, type(node))))
    if not isinstance(node, ice.UnboundPredicate) or not isinstance(node.term, ice.Reference):
        raise InvalidExpressionError(
            f"a filter must be made of unbound predicates, not {type(node).__name__}: {node}"
        )
    return _predicate(node, names.column(node.term.name))


def _flat(node: Any, kind: type[Any]) -> Iterator[ice.BooleanExpression]:
    """The members of a chain of `and` or `or`, however long."""
    pending = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, kind):
            pending += [part.right, part.left]
        else:
            yield part


def _predicate(node: ice.UnboundPredicate, column: Column) -> Term:
    if isinstance(node, ice.IsNull | ice.NotNull):
        test = sql.call("is null", column)
        return test if isinstance(node, ice.IsNull) else sql.call("not", test)
    if isinstance(node, ice.IsNaN | ice.NotNaN):
        test = sql.nan_test(column)
        return test if isinstance(node, ice.IsNaN) else sql.call("not", test)
    if isinstance(node, ice.In | ice.NotIn):
        test = sql.member(column, [Value(literal_of(literal)) for literal in node.literals])
        return test if isinstance(node, ice.In) else sql.call("not", test)
    if isinstance(node, ice.StartsWith | ice.NotStartsWith):
        test = sql.prefix_test(column, Value(literal_of(node.literal)))
        return test if isinstance(node, ice.StartsWith) else sql.call("not", test)
    name = _PREDICATES.get(type(node))
    if name is None or not isinstance(node, ice.LiteralPredicate):
        raise InvalidExpressionError(f"unsupported predicate {node}")
    return sql.compare(name, column, Value(literal_of(node.literal)))


def widen(where: Bound, types: FieldTypes) -> Bound:
    """The filter in the types of `types`, if columns were promoted since it was bound.

    Only promotions under which every value stays the same value: int to long, float to double,
    decimals of one scale.
    """
    kinds = ((leaf.type, types.get(leaf.field_id)) for leaf in leaves(where))
    if all(now is None or now is bound or not _promotes(bound, now) for bound, now in kinds):
        return where

    def promoted(leaf: Leaf) -> Bound:
        now = types.get(leaf.field_id)
        return (
            dataclasses.replace(leaf, type=now)
            if now is not None and _promotes(leaf.type, now)
            else leaf
        )

    return map_leaves(
        where,
        promoted,
        lambda part: dataclasses.replace(part, implied=map_leaves(part.implied, promoted)),
    )


def _promotes(old: IcebergType, new: IcebergType) -> bool:
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale == new.scale and old.precision < new.precision
    numbers = ((IntegerType, LongType), (FloatType, DoubleType))
    return any(isinstance(old, narrow) and isinstance(new, wide) for narrow, wide in numbers)


def refuse_metadata_columns(where: Bound, what: str) -> None:
    """Raise InvalidExpressionError where a filter asks for what no column of the table holds."""
    known = {column.field_id for column in METADATA_COLUMNS.values()}
    for column in columns(where):
        if column.field_id in known:
            raise InvalidExpressionError(
                f"{what} cannot be filtered by {column.path[0]}, "
                "which belongs to files: filter a scan",
                column=column.path[0],
            )


def field_path(schema: Schema, field_id: int) -> tuple[str, ...] | None:
    """Names from the root to a field; None when it is absent or inside a list or map."""
    path = paths_of(schema).get(field_id)
    if path is None:
        return None
    names, fields = [], schema.fields
    for position in path:
        names.append(fields[position].name)
        fields = child_fields(fields[position].field_type)
    return tuple(names)
