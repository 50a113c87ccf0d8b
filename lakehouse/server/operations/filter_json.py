"""Filters as REST clients send them (REST catalog: Expression), as far as a plan can use them.

A plan may keep more files than match: the client filters rows again. So a part of a conjunction
that cannot be read here (a transform as a term, bytes) is left out; what is left keeps every file
that the whole would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pyiceberg.expressions as ice

from lakehouse.errors import CorruptMetadataError
from lakehouse.spec.json_fields import require_list, require_object, require_str

_UNARY: dict[str, Callable[..., Any]] = {
    "is-null": ice.IsNull,
    "not-null": ice.NotNull,
    "is-nan": ice.IsNaN,
    "not-nan": ice.NotNaN,
}
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "lt": ice.LessThan,
    "lt-eq": ice.LessThanOrEqual,
    "gt": ice.GreaterThan,
    "gt-eq": ice.GreaterThanOrEqual,
    "eq": ice.EqualTo,
    "not-eq": ice.NotEqualTo,
    "starts-with": ice.StartsWith,
    "not-starts-with": ice.NotStartsWith,
}
_SETS: dict[str, Callable[..., Any]] = {"in": ice.In, "not-in": ice.NotIn}
_DEPTH_MAX = 200


class _NotPlannableError(Exception):
    """A part that says nothing to a plan."""


def filter_from_json(
    document: Any, is_readable: Callable[[str], bool] = lambda _name: True
) -> ice.BooleanExpression:
    """The filter, or one that keeps more.

    >>> filter_from_json({"type": "gt", "term": "id", "value": 3})
    GreaterThan(term=Reference(name='id'), literal=LongLiteral(3))

    Args:
        document: the JSON of the filter.
        is_readable: whether the JSON form of a column's values is what our filters read.

    Raises CorruptMetadataError.
    """
    return _conjunct(document, "filter", is_readable, 0)


def _conjunct(
    document: Any, where: str, is_readable: Callable[[str], bool], depth: int
) -> ice.BooleanExpression:
    """At the top, where a part can be left out."""
    if isinstance(document, dict) and document.get("type") == "and" and depth < _DEPTH_MAX:
        return ice.And(
            _conjunct(document.get("left"), f"{where}.left", is_readable, depth + 1),
            _conjunct(document.get("right"), f"{where}.right", is_readable, depth + 1),
        )
    try:
        return _expression(document, where, is_readable, depth)
    except _NotPlannableError:
        return ice.AlwaysTrue()


def _expression(
    document: Any, where: str, is_readable: Callable[[str], bool], depth: int
) -> ice.BooleanExpression:
    if depth > _DEPTH_MAX:
        raise CorruptMetadataError(f"{where}: the filter is nested too deeply.")
    if isinstance(document, bool):
        return ice.AlwaysTrue() if document else ice.AlwaysFalse()
    kind = require_str(document, "type", where)

    def below(key: str) -> ice.BooleanExpression:
        return _expression(document.get(key), f"{where}.{key}", is_readable, depth + 1)

    if kind in ("true", "false"):
        return ice.AlwaysTrue() if kind == "true" else ice.AlwaysFalse()
    if kind == "not":
        return ice.Not(below("child"))
    if kind in ("and", "or"):
        return (ice.And if kind == "and" else ice.Or)(below("left"), below("right"))
    if kind not in _UNARY and kind not in _COMPARISONS and kind not in _SETS:
        raise CorruptMetadataError(f"{where}: unknown expression {kind!r}.")
    name = _name(_operand(document, "left" if kind in _COMPARISONS else "child"), where)
    if kind in _UNARY:
        expression = _UNARY[kind](name)
    elif not is_readable(name):
        raise _NotPlannableError
    elif kind in _SETS:
        expression = _SETS[kind](name, _values(document.get("values"), where))
    else:
        value = document["value"] if "value" in document else document.get("right")
        expression = _COMPARISONS[kind](name, _value(value, where))
    return cast("ice.BooleanExpression", expression)


def _operand(document: Mapping[str, Any], key: str) -> Any:
    """What is compared: `term`, as it is called by clients of before 2026, or what `key` names."""
    return document["term"] if "term" in document else document.get(key)


def _name(term: Any, where: str) -> str:
    if isinstance(term, str):
        return term
    document = require_object(term, f"{where}.term")
    if document.get("type") != "reference" or "id" in document:
        raise _NotPlannableError
    return require_str(document, "name" if "name" in document else "term", f"{where}.term")


def _values(values: Any, where: str) -> list[Any]:
    if isinstance(values, dict):
        values = values.get("values")  # with their type
    return [_value(literal, where) for literal in require_list(values, f"{where}.values")]


def _value(value: Any, where: str) -> Any:
    if isinstance(value, dict):
        if value.get("type") in ("reference", "apply"):  # no literals
            raise _NotPlannableError
        value = value.get("value")  # a literal with its type
    if not isinstance(value, bool | int | float | str):
        raise CorruptMetadataError(f"{where}: a value must be a boolean, a number or a string.")
    return value
