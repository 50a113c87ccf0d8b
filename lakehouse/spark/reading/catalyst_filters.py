"""Catalyst filters to Iceberg expressions, for pruning.

The translation of a filter is an expression that is true of every row the filter keeps; it may be
true of more. So what is not understood becomes `AlwaysTrue` and prunes nothing. Negation is not
applied to a translation, which would turn "more" into "less": each node has one translation for "is
true" and another for "is false", and null is neither.

Where Spark and Iceberg differ, the translation keeps more: to Spark NaN is a value greater than any
other, Iceberg's bounds leave it out; and a time zone other than UTC moves a bound by at most a day.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
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
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotIn,
    NotNull,
    NotStartsWith,
    Or,
    Reference,
    StartsWith,
)
from pyiceberg.expressions.literals import BooleanLiteral, StringLiteral
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    FloatType,
    IcebergType,
    NestedField,
    StringType,
    StructType,
)

from lakehouse.spark.reading.catalyst_literals import (
    SparkLiteral,
    iceberg_literal,
    parse_literal,
    spark_names,
    widens_exactly,
)

Node = Mapping[str, Any]

DAY_US = 86_400_000_000
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_UTC_NAMES = frozenset({"UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "+00:00"})
_NEGATED = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_FLIPPED = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_COMPARISONS = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_PREDICATES: Mapping[str, Callable[..., BooleanExpression]] = {
    "is null": IsNull,
    "not null": NotNull,
    "is nan": IsNaN,
    "in": In,
    "not in": NotIn,
    "starts with": StartsWith,
    "not starts with": NotStartsWith,
    "=": EqualTo,
    "!=": NotEqualTo,
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
}
_TRUNC_DAYS = {
    "year": 366, "yyyy": 366, "yy": 366, "quarter": 92, "month": 31, "mon": 31, "mm": 31, "week": 7,
    "day": 1, "dd": 1,
    "hour": 1, "minute": 1, "second": 1, "millisecond": 1, "microsecond": 1,
}  # fmt: skip
_WIDE_LIST = 200


def translate_filters(filters: str, schema: Schema) -> BooleanExpression:
    """What a planner may use of a query's filters.

    Args:
        filters: JSON list of Catalyst expressions as `PlannedFiles.java` writes them; all must
            hold.
        schema: the schema that the relation shows; field ids resolve columns in it.

    Returns:
        An unbound expression over the schema's column names, true of every row for which all
        filters are true.
    """
    return _translated(filters, schema)[0]


def files_condition(filters: str, schema: Schema) -> BooleanExpression | None:
    """As `translate_filters`; None where a part of the filters chooses no files."""
    condition, understood = _translated(filters, schema)
    return condition if understood else None


def _translated(filters: str, schema: Schema) -> tuple[BooleanExpression, bool]:
    nodes: Sequence[Node] = json.loads(filters)
    translator = _Translator(schema)
    result: BooleanExpression = AlwaysTrue()
    for node in nodes:
        result = And(result, translator.when_true(node))
    return result, translator.understood


@dataclass(frozen=True, slots=True)
class _Column:
    """A column the planner knows, and whether a null struct above it can make it null."""

    field_id: int
    name: str
    type: IcebergType
    under_optional: bool


class _Translator:
    def __init__(self, schema: Schema) -> None:
        self._columns = {
            column.field_id: column
            for column in _columns(schema, schema.fields, under_optional=False)
        }
        self.understood = True

    def when_true(self, node: Node) -> BooleanExpression:
        """Implied by: the node is true."""
        return self._translate(node, wanted=True)

    def _translate(self, node: Node, *, wanted: bool) -> BooleanExpression:
        op = node["op"]
        if op in ("And", "Or"):
            left, right = (self._translate(arg, wanted=wanted) for arg in node["args"])
            return And(left, right) if (op == "And") is wanted else Or(left, right)
        if op == "Not":
            return self._translate(node["args"][0], wanted=not wanted)
        if op == "Literal":
            return (
                AlwaysTrue() if node["value"] == ("true" if wanted else "false") else AlwaysFalse()
            )
        condition = self._leaf(node, wanted=wanted)
        self.understood &= condition != AlwaysTrue()
        return condition

    def _leaf(self, node: Node, *, wanted: bool) -> BooleanExpression:
        op = node["op"]
        if op in _COMPARISONS:
            return self._comparison(_COMPARISONS[op], node["args"], wanted=wanted)
        if op == "EqualNullSafe":
            return self._null_safe(node["args"], wanted=wanted)
        if op in ("IsNull", "IsNotNull"):
            return self._null_test(node["args"][0], null=(op == "IsNull") is wanted)
        if op == "IsNaN":
            return self._nan_test(node["args"][0], wanted=wanted)
        if op in ("In", "InSet"):
            return self._membership(node, wanted=wanted)
        if op == "StartsWith":
            return self._prefix(node["args"], wanted=wanted)
        return self._flag(node, wanted=wanted)

    def _flag(self, node: Node, *, wanted: bool) -> BooleanExpression:
        column = self._column(node)
        if column is None or not isinstance(column.type, BooleanType):
            return AlwaysTrue()
        return _predicate("=", column, BooleanLiteral(wanted))

    def _comparison(self, op: str, args: Sequence[Node], *, wanted: bool) -> BooleanExpression:
        left, right = args
        if left["op"] == "Literal":
            left, right, op = right, left, _FLIPPED[op]
        if right["op"] != "Literal":
            return AlwaysTrue()
        if right["value"] is None:
            return AlwaysFalse()  # a comparison with null is neither true nor false
        return self._bound(
            left, op if wanted else _NEGATED[op], parse_literal(right["type"], right["value"])
        )

    def _null_safe(self, args: Sequence[Node], *, wanted: bool) -> BooleanExpression:
        left, right = args
        if left["op"] == "Literal":
            left, right = right, left
        if right["op"] != "Literal":
            return AlwaysTrue()
        if right["value"] is None:
            return self._null_test(left, null=wanted)
        equal = self._bound(
            left, "=" if wanted else "!=", parse_literal(right["type"], right["value"])
        )
        return equal if wanted else Or(equal, self._null_test(left, null=True))

    def _null_test(self, term: Node, *, null: bool) -> BooleanExpression:
        column = self._column(term)
        if column is None:
            return AlwaysTrue()
        if not null:
            return _predicate("not null", column)
        # a required field of a null struct is null, yet binding takes "required" for "never null"
        return AlwaysTrue() if column.under_optional else _predicate("is null", column)

    def _nan_test(self, term: Node, *, wanted: bool) -> BooleanExpression:
        column = self._column(term)
        if column is None or not wanted or not isinstance(column.type, FloatType | DoubleType):
            return AlwaysTrue()
        return _predicate("is nan", column)

    def _membership(self, node: Node, *, wanted: bool) -> BooleanExpression:
        term = node["args"][0]
        if node["op"] == "InSet":
            raw = [(node["type"], value) for value in node["values"]]
        else:
            items = node["args"][1:]
            if any(item["op"] != "Literal" for item in items):
                return AlwaysTrue()
            raw = [(item["type"], item["value"]) for item in items]
        if not wanted and any(value is None for _, value in raw):
            return AlwaysFalse()  # `x IN (1, null)` is true or null, never false
        values = [parse_literal(kind, value) for kind, value in raw if value is not None]
        if any(value is None for value in values):
            return AlwaysTrue()
        known = [value for value in values if value is not None]
        column = self._column(term)
        if column is not None and (listed := _listed(column, known, wanted=wanted)) is not None:
            return listed
        if not wanted or len(known) > _WIDE_LIST:
            return AlwaysTrue()
        result: BooleanExpression = AlwaysFalse()
        for value in known:
            result = Or(result, self._bound(term, "=", value))
        return result

    def _prefix(self, args: Sequence[Node], *, wanted: bool) -> BooleanExpression:
        column = self._column(args[0])
        prefix = args[1]
        if (
            column is None
            or not isinstance(column.type, StringType)
            or prefix["op"] != "Literal"
            or prefix["type"] != "string"
        ):
            return AlwaysTrue()
        text = prefix["value"]
        if not isinstance(text, str):
            return AlwaysFalse() if text is None else AlwaysTrue()
        if not text:
            return _predicate("not null", column) if wanted else AlwaysFalse()
        return _predicate(
            "starts with" if wanted else "not starts with", column, StringLiteral(text)
        )

    def _bound(self, term: Node, op: str, value: SparkLiteral | None) -> BooleanExpression:
        """Implied by: `term op value` is true."""
        if value is None:
            return AlwaysTrue()
        column = self._column(term)
        if column is not None:
            return _column_predicate(column, op, value)
        kind = term["op"]
        if kind == "Cast":
            return self._cast_bound(term, op, value)
        if kind == "Year" and value.type == "int":
            return self._year_bound(term["args"][0], op, value.value)
        if kind in ("TruncTimestamp", "TruncDate"):
            return self._trunc_bound(term, op, value)
        return AlwaysTrue()

    def _cast_bound(self, term: Node, op: str, value: SparkLiteral) -> BooleanExpression:
        child, source, target = term["args"][0], term["from"], term["to"]
        slack = _zone_slack(term, source, target)
        if target == "date" and value.type == "date" and source in ("timestamp", "timestamp_ntz"):
            start, end = value.value * DAY_US, (value.value + 1) * DAY_US
            return self._interval_bound(
                child, op, SparkLiteral(source, start), SparkLiteral(source, end), slack
            )
        if {source, target} == {"timestamp", "timestamp_ntz"} and value.type == target:
            return self._interval_bound(
                child,
                op,
                SparkLiteral(source, value.value),
                SparkLiteral(source, value.value + 1),
                slack,
            )
        if widens_exactly(source, target) and value.type == target:
            return self._bound(child, op, value)
        return AlwaysTrue()

    def _interval_bound(
        self, child: Node, op: str, start: SparkLiteral, end: SparkLiteral, slack: int
    ) -> BooleanExpression:
        """The cast maps [start, end) of the child to the value, give or take `slack`."""
        low = SparkLiteral(start.type, start.value - slack)
        high = SparkLiteral(end.type, end.value + slack)
        if op == "=":
            return And(self._bound(child, ">=", low), self._bound(child, "<", high))
        if op == "<":
            return self._bound(child, "<", SparkLiteral(start.type, start.value + slack))
        if op == "<=":
            return self._bound(child, "<", high)
        if op == ">":
            return self._bound(child, ">=", SparkLiteral(end.type, end.value - slack))
        if op == ">=":
            return self._bound(child, ">=", low)
        return (
            AlwaysTrue()
            if slack
            else Or(self._bound(child, "<", start), self._bound(child, ">=", end))
        )

    def _year_bound(self, child: Node, op: str, year: int) -> BooleanExpression:
        if not 1 <= year <= 9998 or _type_of(child) != "date":
            return AlwaysTrue()
        start, end = (
            SparkLiteral("date", date(year + n, 1, 1).toordinal() - _EPOCH_ORDINAL) for n in (0, 1)
        )
        return self._interval_bound(child, op, start, end, 0)

    def _trunc_bound(self, term: Node, op: str, value: SparkLiteral) -> BooleanExpression:
        """`trunc(x) <= x < trunc(x) + unit`, plus what a change of the zone's offset can add."""
        unit, child = term["args"] if term["op"] == "TruncTimestamp" else reversed(term["args"])
        kind = "timestamp" if term["op"] == "TruncTimestamp" else "date"
        days = _TRUNC_DAYS.get(str(unit.get("value")).lower()) if unit["op"] == "Literal" else None
        if days is None or value.type != kind or _type_of(child) != kind:
            return AlwaysTrue()
        one_day = DAY_US if kind == "timestamp" else 1
        slack = _zone_slack(term, "timestamp", "timestamp_ntz") if kind == "timestamp" else 0
        end = SparkLiteral(kind, value.value + days * one_day + slack)
        if op == "=":
            return And(self._bound(child, ">=", value), self._bound(child, "<", end))
        if op in ("<", "<="):
            return self._bound(child, "<", end)
        return self._bound(child, ">=", value) if op in (">", ">=") else AlwaysTrue()

    def _column(self, node: Node) -> _Column | None:
        """The column that the node is, if outside lists and maps and of the schema's type."""
        top = node
        while top["op"] == "GetStructField":
            top = top["args"][0]
        if top["op"] != "AttributeReference" or top.get("id") is None or node.get("id") is None:
            return None
        column = self._columns.get(int(node["id"]))
        return column if column is not None and node["type"] in spark_names(column.type) else None


def _columns(
    schema: Schema, fields: Iterable[NestedField], *, under_optional: bool
) -> Iterator[_Column]:
    """Columns outside lists and maps that their name leads back to (dots can mislead)."""
    for field in fields:
        name = schema.find_column_name(field.field_id)
        if name is not None and schema.find_field(name).field_id == field.field_id:
            yield _Column(field.field_id, name, field.field_type, under_optional)
        if isinstance(field.field_type, StructType):
            yield from _columns(
                schema, field.field_type.fields, under_optional=under_optional or not field.required
            )


def _column_predicate(column: _Column, op: str, value: SparkLiteral) -> BooleanExpression:
    if isinstance(value.value, float) and math.isnan(value.value):
        return (
            _predicate("is nan", column)
            if op == "=" and isinstance(column.type, FloatType | DoubleType)
            else AlwaysTrue()
        )
    if (
        isinstance(column.type, FloatType)
        and isinstance(value.value, float)
        and math.isinf(value.value)
    ):
        return AlwaysTrue()  # as a double literal it lies beyond every float
    literal = iceberg_literal(column.type, value)
    if literal is None:
        return AlwaysTrue()
    if isinstance(column.type, BooleanType) and op not in ("=", "!="):
        return AlwaysTrue()
    if not isinstance(column.type, FloatType | DoubleType):
        return _predicate(op, column, literal)
    compared = _predicate(op, column, literal)
    return Or(compared, _predicate("is nan", column)) if op in (">", ">=", "!=") else compared


def _predicate(op: str, column: _Column, *literal: object) -> BooleanExpression:
    return _PREDICATES[op](Reference(column.name), *literal)


def _listed(
    column: _Column, values: Sequence[SparkLiteral], *, wanted: bool
) -> BooleanExpression | None:
    """`IN` as one predicate; None where the comparison has to be made value by value."""
    if isinstance(column.type, FloatType | DoubleType | BooleanType):
        return None
    literals = [iceberg_literal(column.type, value) for value in values]
    if any(literal is None for literal in literals):
        return AlwaysTrue()
    return _predicate("in" if wanted else "not in", column, literals)


def _type_of(node: Node) -> str | None:
    return node.get("to") or node.get("type")


def _zone_slack(node: Node, source: str, target: str) -> int:
    """Microseconds by which the node's zone can move a value; 0 where it plays no part."""
    if source == "timestamp_ntz" and target == "date":
        return 0
    return 0 if node.get("zone") in _UTC_NAMES else DAY_US
