"""Filters that engines hand over as expressions of pyarrow, which has no way to look into one.

Two things are used that it has: an expression is pickled as an Arrow IPC stream, whose schema says
in its metadata, in order, what it consists of and whose columns are its literals; and the C data
interface shows metadata whole, where `Schema.metadata` keeps one value of a key. Whatever is not
understood is left to pyarrow.

https://arrow.apache.org/docs/format/CDataInterface.html
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from lakehouse.errors import InvalidExpressionError
from lakehouse.expressions.bound_filter import TRUE, Bound, Column, Term, Value, conjunction
from lakehouse.expressions.filter_binding import Names, to_bound
from lakehouse.expressions.sql import typed_calls as sql
from lakehouse.expressions.typed_literals import Days, Instant, Literal, TimeOfDay

_COMPARISONS = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_CONNECTIVES = {"and_kleene": "and", "or_kleene": "or"}
_EXACT_DOUBLES = 2**53
_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@dataclass(frozen=True, slots=True)
class Understood:
    """What is known of an expression.

    Attributes:
        where: true of every row for which the expression is true.
        whole: whether that is all: the expression is true of no other row. It means what engines
            mean that hand it over, and pyarrow does not: NaN equals itself and is above every
            number, a null is neither in a list nor not in it.
        columns: names of the columns that the expression refers to; None where nobody knows.
    """

    where: Bound
    whole: bool
    columns: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class _Field:
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Literal:
    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    args: tuple[_Node, ...]
    options: dict[str, Any]


_Node = _Field | _Literal | _Call


def understood(expression: Any, schema: Schema) -> Understood:
    """What of a `pyarrow.compute.Expression` can prune and filter.

    Args:
        expression: over the columns of `schema`.
        schema: of the table.
    """
    try:
        node = _parsed(expression)
    except (ValueError, LookupError, TypeError, struct.error, pa.ArrowException):
        return Understood(TRUE, whole=False, columns=None)
    names = Names(schema)
    bounds, whole = [], True
    for part in _conjuncts(node):
        try:
            bounds.append(to_bound(_term(part, names)))
        except (InvalidExpressionError, RecursionError):
            whole = False
    columns = frozenset(field.path[0] for field in _fields(node))
    return Understood(conjunction(bounds), whole, columns)


def _parsed(expression: Any) -> _Node:
    """Raises ValueError, LookupError, TypeError or ArrowException for what is not understood."""
    _, (buffer, *_) = expression.__reduce__()
    with pa.ipc.open_file(buffer) as opened:
        batch = opened.get_batch(0) if opened.num_record_batches else None
        return _node(_Parts(_ordered_metadata(opened.schema), batch))


class _Parts:
    """The parts of an expression in order, and what they refer to by number."""

    def __init__(self, parts: list[tuple[str, str]], batch: pa.RecordBatch | None) -> None:
        self._parts = iter(parts)
        self._batch = batch

    def next(self) -> tuple[str, str]:
        try:
            return next(self._parts)
        except StopIteration as error:
            raise ValueError("an expression ends early") from error

    def scalar(self, number: str) -> pa.Scalar:
        if self._batch is None:
            raise ValueError("an expression lacks its literals")
        return self._batch.column(int(number))[0]


def _node(parts: _Parts, part: tuple[str, str] | None = None) -> _Node:
    kind, value = part or parts.next()
    if kind == "literal":
        return _Literal(parts.scalar(value))
    if kind == "field_ref":
        return _Field((value,))
    if kind == "nested_field_ref":
        steps = [parts.next() for _ in range(int(value))]
        if any(kind != "field_ref" for kind, _ in steps):
            raise ValueError("a field is not known by its names")
        return _Field(tuple(name for _, name in steps))
    if kind != "call":
        raise ValueError(f"an expression has a {kind}")
    args, options = [], {}
    while (follows := parts.next()) != ("end", value):
        if follows[0] == "options":
            options = dict(parts.scalar(follows[1]).items())
        else:
            args.append(_node(parts, follows))
    return _Call(value, tuple(args), options)


class _ArrowSchema(ctypes.Structure):
    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
    )


def _ordered_metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """Keys and values of a schema, in order and all of them: numbers and texts, by length."""
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    start = _ArrowSchema.from_address(pointer(capsule, b"arrow_schema")).metadata
    if start is None:
        return []
    texts: list[str] = []
    (pairs,), at = struct.unpack("=i", ctypes.string_at(start, 4)), start + 4
    for _ in range(2 * pairs):
        (length,) = struct.unpack("=i", ctypes.string_at(at, 4))
        texts.append(ctypes.string_at(at + 4, length).decode())
        at += 4 + length
    return list(zip(texts[::2], texts[1::2], strict=True))


def _conjuncts(node: _Node) -> Iterator[_Node]:
    pending = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, _Call) and part.name == "and_kleene":
            pending += reversed(part.args)
        else:
            yield part


def _fields(node: _Node) -> Iterator[_Field]:
    if isinstance(node, _Field):
        yield node
    elif isinstance(node, _Call):
        for arg in node.args:
            yield from _fields(arg)


def _term(node: _Node, names: Names) -> Term:
    """A condition. Raises InvalidExpressionError for what has no exact counterpart here."""
    if isinstance(node, _Literal) and isinstance(value := node.value.as_py(), bool):
        return sql.TRUE if value else sql.FALSE
    if isinstance(node, _Field):
        return sql.compare("=", _column(node, names, BooleanType), sql.TRUE)
    if not isinstance(node, _Call):
        raise _unknown(node)
    args = node.args
    if node.name in _CONNECTIVES:
        return sql.call(_CONNECTIVES[node.name], *(_term(arg, names) for arg in args))
    if node.name == "invert":
        return sql.call("not", _term(args[0], names))
    if node.name in _COMPARISONS:
        left, right = args
        return _comparison(_COMPARISONS[node.name], left, right, names)
    column = _column(args[0], names)
    if node.name in ("is_valid", "is_null") and not node.options.get("nan_is_null", _FALSE).as_py():
        missing = sql.call("is null", column)
        return missing if node.name == "is_null" else sql.call("not", missing)
    if node.name == "is_nan" and isinstance(column.type, FloatType | DoubleType):
        return sql.nan_test(column)
    if node.name == "is_in":
        return _membership(column, node.options)
    if node.name == "starts_with" and not node.options["ignore_case"].as_py():
        return sql.prefix_test(column, Value(node.options["pattern"].as_py()))
    raise _unknown(node)


_FALSE = pa.scalar(False)


def _comparison(op: str, left: _Node, right: _Node, names: Names) -> Term:
    if isinstance(left, _Literal):
        left, right, op = right, left, sql.FLIPPED[op]
    column = _column(left, names)
    if not isinstance(right, _Literal):
        raise _unknown(right)
    return sql.compare(op, column, Value(_value(right.value, column.type)))


def _membership(column: Column, options: dict[str, Any]) -> Term:
    """`IN`: engines mean SQL's, which is null for null, where pyarrow's `is_in` is false."""
    values = options["value_set"].values
    if values is None or values.null_count:
        raise InvalidExpressionError("a list has a null")
    if not len(values):
        return sql.FALSE
    return sql.member(column, [Value(_value(value, column.type)) for value in values])


def _column(node: _Node, names: Names, *kinds: type[IcebergType]) -> Column:
    if not isinstance(node, _Field) or any("." in name for name in node.path):
        raise _unknown(node)
    column = names.column(".".join(node.path))
    if column.path != node.path or (kinds and not isinstance(column.type, kinds)):
        raise _unknown(node)
    return column


def _value(scalar: pa.Scalar, kind: IcebergType) -> Literal:
    """A literal that compares with a column as pyarrow has them compare. InvalidExpressionError."""
    given = scalar.type
    if not scalar.is_valid:
        raise _unknown(scalar)
    if pa.types.is_integer(given) and isinstance(kind, IntegerType | LongType | DecimalType):
        return int(scalar.as_py())
    if pa.types.is_decimal(given) and isinstance(kind, DecimalType):
        return Decimal(scalar.as_py())
    if isinstance(kind, FloatType | DoubleType):
        return _floating(scalar, kind)
    if isinstance(kind, StringType) and (pa.types.is_string(given) or _is_large_text(given)):
        return str(scalar.as_py())
    if isinstance(kind, BinaryType) and pa.types.is_binary(given):
        return bytes(scalar.as_py())
    if isinstance(kind, BooleanType) and pa.types.is_boolean(given):
        return bool(scalar.as_py())
    if isinstance(kind, DateType) and pa.types.is_date32(given):
        return Days(scalar.value)
    if isinstance(kind, TimeType) and pa.types.is_time64(given) and given.unit == "us":
        return TimeOfDay(scalar.value)
    if isinstance(kind, TimestampType | TimestamptzType) and pa.types.is_timestamp(given):
        zoned = given.tz is not None
        if zoned == isinstance(kind, TimestamptzType):
            return Instant(scalar.value * _NANOS[given.unit], zoned)
    raise _unknown(scalar)


def _is_large_text(given: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(given) or pa.types.is_string_view(given))


def _floating(scalar: pa.Scalar, kind: FloatType | DoubleType) -> float:
    """A number that a column of this type can hold: beside another, one of both is rounded."""
    given = scalar.type
    if not (pa.types.is_integer(given) or pa.types.is_floating(given)):
        raise _unknown(scalar)
    number = scalar.as_py()
    exact = not pa.types.is_integer(given) or abs(number) <= _EXACT_DOUBLES
    if exact and isinstance(kind, FloatType):
        with np.errstate(over="ignore"):
            exact = math.isnan(number) or float(np.float32(number)) == number
    if not exact:
        raise _unknown(scalar)
    return float(number)


def _unknown(what: object) -> InvalidExpressionError:
    return InvalidExpressionError(f"{what} has no exact counterpart in a filter")
