"""Conditions of Spark that Iceberg has with exactly the same meaning.

Rows are replaced and deleted by such a condition without Spark looking at them again, so it has to
be true of the same rows, where `filters` may be true of more. What is not exact here is not
translated: Spark then decides on the rows itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotNull,
    Or,
    Reference,
    StartsWith,
)
from pyiceberg.expressions.literals import Literal
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, IcebergType, StringType

from lakehouse.expressions.bound_filter import Bound
from lakehouse.expressions.filter_binding import bind
from lakehouse.spark.reading.catalyst_literals import iceberg_literal, parse_literal, spark_names

_COMPARED: Mapping[str, Callable[..., BooleanExpression]] = {
    "=": EqualTo,
    "<>": NotEqualTo,
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
}
_NULL_TESTS: Mapping[str, Callable[..., BooleanExpression]] = {
    "IS_NULL": IsNull,
    "IS_NOT_NULL": NotNull,
}
Node = Mapping[str, Any]


def exact_condition(predicates: str, schema: Schema) -> Bound | None:
    """The condition of all predicates (`PredicateJson.java`); None if it cannot be exact.

    Comparisons are of a column with a literal of its type. Floating point is left out: what is
    equal and greater differs there.
    """
    result: BooleanExpression = AlwaysTrue()
    for node in json.loads(predicates):
        condition = _condition(node, schema)
        if condition is None:
            return None
        result = And(result, condition)
    return bind(result, schema)


def _condition(node: Node, schema: Schema) -> BooleanExpression | None:
    operation, arguments = str(node.get("op")), node.get("args", [])
    if operation in ("ALWAYS_TRUE", "ALWAYS_FALSE"):
        return AlwaysTrue() if operation == "ALWAYS_TRUE" else AlwaysFalse()
    if operation in ("AND", "OR", "NOT"):
        inside = [_condition(argument, schema) for argument in arguments]
        known = [condition for condition in inside if condition is not None]
        if len(known) != len(inside):
            return None
        if operation == "NOT":
            return Not(known[0])
        return And(*known) if operation == "AND" else Or(*known)
    column = _column(arguments[0], schema) if arguments else None
    if column is None:
        return None
    name, kind = column
    if operation == "<=>":
        if arguments[1].get("value", "") is None:
            return _NULL_TESTS["IS_NULL"](Reference(name))
        equal = _compared("=", name, kind, arguments[1:])
        # false, not null, for a null: its negation is true
        return None if equal is None else And(_NULL_TESTS["IS_NOT_NULL"](Reference(name)), equal)
    if operation in _NULL_TESTS:
        return _NULL_TESTS[operation](Reference(name))
    return _compared(operation, name, kind, arguments[1:])


def _compared(
    operation: str, name: str, kind: IcebergType, others: Sequence[Node]
) -> BooleanExpression | None:
    literals = [_literal(literal, kind) for literal in others]
    values = [literal for literal in literals if literal is not None]
    if len(values) != len(others) or not values:
        return None
    if operation in _COMPARED and len(values) == 1:
        return _build(_COMPARED[operation], name, values[0])
    if operation == "IN":
        return _build(In, name, values)
    if operation == "STARTS_WITH" and isinstance(kind, StringType):
        return _build(StartsWith, name, values[0])
    return None


def _build(make: Callable[..., BooleanExpression], name: str, value: object) -> BooleanExpression:
    return make(Reference(name), value)


def _column(node: Node, schema: Schema) -> tuple[str, IcebergType] | None:
    """A column outside structs: a null struct nulls its fields, a case that is left out."""
    path = node.get("column")
    if path is None or len(path) != 1 or path[0] not in {field.name for field in schema.fields}:
        return None
    return path[0], schema.find_type(path[0])


def _literal(node: Node, kind: IcebergType) -> Literal[Any] | None:
    spark_type = str(node.get("type"))
    if isinstance(kind, FloatType | DoubleType) or spark_type not in spark_names(kind):
        return None
    value = parse_literal(spark_type, node.get("value"))
    return None if value is None else iceberg_literal(kind, value)
