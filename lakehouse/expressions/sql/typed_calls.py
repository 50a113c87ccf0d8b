"""Terms of typed arguments: types resolved, literals placed among values, constants computed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakehouse.errors import InvalidExpressionError
from lakehouse.expressions.bound_filter import Call, Term, Value
from lakehouse.expressions.filter_text import describe_term
from lakehouse.expressions.functions.monotonic import solve
from lakehouse.expressions.functions.sql_functions import FUNCTIONS
from lakehouse.expressions.row_evaluation import constant
from lakehouse.expressions.transforms.partition_transforms import Datum, arrow_type
from lakehouse.expressions.typed_literals import (
    Days,
    Instant,
    Literal,
    Position,
    TimeOfDay,
    as_literal,
    cast_literal,
)
from lakehouse.spec.schema.iceberg_types import VariantType
from lakehouse.spec.types.arrow_types import VARIANT, from_physical, physical_type

FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
TRUE, FALSE = Value(True, BooleanType()), Value(False, BooleanType())
NULL = Value(None)
_FLOATING = (FloatType, DoubleType)
_MOST_ALTERNATIVES = 100
_CONNECTIVES = frozenset({"and", "or", "not"})


def call(name: str, *args: Term) -> Term:
    """A function of terms; computed at once where they are all constants.

    Raises:
        InvalidExpressionError: it does not apply to these types, or cannot be computed.
    """
    function = FUNCTIONS[name]
    if name in ("and", "or") and len(args) == 1:
        return args[0]
    if name in _CONNECTIVES and all(_is_condition(arg) for arg in args):
        return Call(name, args, BooleanType())
    typed = tuple(_typed(arg, args if function.alike else ()) for arg in args)
    if function.strict and any(isinstance(arg, Value) and arg.value is None for arg in typed):
        return NULL
    try:
        result = function.compute(*(_example(arg) for arg in typed))
    except (pa.ArrowException, TypeError, ArithmeticError) as error:
        shown = describe_term(Call(name, typed, BooleanType()))
        raise InvalidExpressionError(f"{shown}: {_reason(error)}") from error
    if all(isinstance(arg, Value) for arg in typed):
        return _value(result)
    if pa.types.is_null(result.type):
        return NULL
    return Call(name, typed, _iceberg_type(result.type))


def _is_condition(term: Term) -> bool:
    return not isinstance(term, Value) and isinstance(term.type, BooleanType)


def compare(op: str, left: Term, right: Term) -> Term:
    """`left op right`, where `op` is `=`, `!=`, `<`, `<=`, `>` or `>=`.

    Raises:
        InvalidExpressionError: the two do not compare, or a literal is no value of the other
            side's type.
    """
    if isinstance(left, Value) and not isinstance(right, Value):
        left, right, op = right, left, FLIPPED[op]
    if is_null(left) or is_null(right):
        return NULL
    if not isinstance(right, Value) or isinstance(left, Value) or _is_finer(left, right):
        return call(op, left, right)
    kind = type_of(left)
    position = cast_literal(_literal(right), kind, describe_term(left))
    return _at(op, left, position)


def _is_finer(left: Term, right: Value) -> bool:
    """Whether a double meets a column of single precision: then both become doubles."""
    return isinstance(right.type, DoubleType) and isinstance(type_of(left), FloatType)


def _at(op: str, left: Term, position: Position) -> Term:
    """A term compared with a literal that stands somewhere among the values of its type."""
    kind = type_of(left)
    if isinstance(position.value, float) and math.isnan(position.value):
        return _beside_nan(op, left)
    if position.exact:
        return _with_value(op, left, Value(position.value, kind))
    if op in ("=", "!="):
        return unless_null(left, op == "!=")
    below = op in ("<", "<=")
    if not position.beyond:
        return _with_value("<=" if below else ">", left, Value(position.value, kind))
    if not isinstance(kind, _FLOATING):
        return unless_null(left, (position.beyond > 0) == below)
    # infinity and NaN are beyond every number
    if position.beyond > 0:
        return _with_value("<" if below else ">=", left, Value(math.inf, kind))
    return _with_value("<=" if below else ">", left, Value(-math.inf, kind))


def _beside_nan(op: str, left: Term) -> Term:
    """Compared with NaN, which equals itself and is above everything else."""
    if op in ("=", ">="):
        return call("is nan", left)
    if op in ("!=", "<"):
        return call("not", call("is nan", left))
    return unless_null(left, op == "<=")


def _with_value(op: str, left: Term, value: Value) -> Term:
    if isinstance(left, Call):
        solved = solve(left, op, value, compare, call)
        if solved is not None:
            return solved
    return Call(op, (left, value), BooleanType())


def cast(term: Term, kind: IcebergType, name: str = "cast") -> Term:
    """A term in another type: `cast`, or `try_cast`, which is null for what does not fit."""
    given = type_of(term)
    if given == kind or is_null(term):
        return term
    if isinstance(kind, DateType) and isinstance(given, (DateType, *_STAMPS)):
        return call("date", term)
    if isinstance(given, UUIDType) and isinstance(kind, StringType):
        return call("uuid text", term)
    return call("widen" if _widens(given, kind) else name, term, Value(str(kind)))


def _widens(given: IcebergType, kind: IcebergType) -> bool:
    """Whether a cast keeps every value, so that comparing before it and after it is the same."""
    if isinstance(given, DecimalType) and isinstance(kind, DecimalType):
        digits = given.precision - given.scale
        return kind.scale >= given.scale and kind.precision - kind.scale >= digits
    if isinstance(given, IntegerType | LongType) and isinstance(kind, DecimalType):
        return kind.precision - kind.scale >= (10 if isinstance(given, IntegerType) else 19)
    return (type(given), type(kind)) in _WIDENING


_STAMPS = (TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)
_WIDENING = {
    (IntegerType, LongType),
    (IntegerType, DoubleType),
    (FloatType, DoubleType),
    (DateType, TimestampType),
}


def unless_null(term: Term, holds: bool) -> Term:
    """A constant wherever the term is not null."""
    return call("unless null", term, TRUE if holds else FALSE)


def member(left: Term, values: Sequence[Term]) -> Term:
    """`left in (values)`. Raises InvalidExpressionError as `compare`."""
    if not values:
        return unless_null(left, False)
    if isinstance(left, Value) or not all(isinstance(value, Value) for value in values):
        return call("or", *(compare("=", left, value) for value in values))
    literals = [
        _literal(value) for value in values if isinstance(value, Value) and value.value is not None
    ]
    if isinstance(left, Call) and len(literals) <= _MOST_ALTERNATIVES:
        test = call("or", *(compare("=", left, Value(literal)) for literal in literals))
    else:
        test = _listed(left, literals)
    return test if len(literals) == len(values) else call("or", test, NULL)


def _listed(left: Term, literals: Sequence[Literal]) -> Term:
    kind, name = type_of(left), describe_term(left)
    positions = [cast_literal(literal, kind, name) for literal in literals]
    exact = [position.value for position in positions if position.exact]
    numbers = sorted({number for number in exact if number == number})
    test = unless_null(left, False)
    if len(numbers) == 1:
        test = _with_value("=", left, Value(numbers[0], kind))
    elif numbers:
        test = Call("listed", (left, Value(tuple(numbers), kind)), BooleanType())
    return (
        call("or", test, call("is nan", left))
        if len(numbers) < len(set(exact)) and _has_nan(exact)
        else test
    )


def _has_nan(values: Sequence[Any]) -> bool:
    return any(isinstance(value, float) and math.isnan(value) for value in values)


def same(left: Term, right: Term) -> Term:
    """`left is not distinct from right`: null equals null."""
    if is_null(left) or is_null(right):
        return call("is null", right if is_null(left) else left)
    if isinstance(left, Value) or isinstance(right, Value):
        other = right if isinstance(left, Value) else left
        return call("and", call("not", call("is null", other)), compare("=", left, right))
    return call("same", left, right)


def nan_test(term: Term) -> Term:
    """`term is nan`: false for every number of a type that has none."""
    if isinstance(type_of(term), _FLOATING):
        return call("is nan", term)
    return unless_null(term, False)


def prefix_test(term: Term, prefix: Value) -> Term:
    """`starts_with(term, prefix)`. Raises InvalidExpressionError unless both are text."""
    if not isinstance(type_of(term), StringType):
        raise InvalidExpressionError(
            f"{describe_term(term)} is a {type_of(term)}: only strings start with something"
        )
    return call("starts_with", term, prefix)


def is_null(term: Term) -> bool:
    """Whether the term is the constant null."""
    return isinstance(term, Value) and term.value is None


def type_of(term: Term) -> IcebergType:
    """The type of a term; of a literal the one that it has by itself."""
    if isinstance(term, Value):
        kind = natural(term).type
        return BooleanType() if kind is None else kind
    return term.type


def natural(value: Value) -> Value:
    """A literal with the type that it has by itself.

    `1` is a long, `1.5` a decimal(2, 1), `1e300` a double.
    """
    given = value.value
    if value.type is not None or given is None:
        return value
    kind = _natural_type(given)
    position = cast_literal(given, kind, "a literal")
    if not position.exact:
        raise InvalidExpressionError(f"{given} is beyond every type")
    return Value(position.value, kind)


def _natural_type(given: Literal) -> IcebergType:
    if isinstance(given, int) and not isinstance(given, bool):
        return LongType() if -(2**63) <= given < 2**63 else DecimalType(38, 0)
    if isinstance(given, Decimal):
        _, digits, exponent = given.as_tuple()
        scale = max(-int(exponent), 0)
        precision = max(len(digits) + max(int(exponent), 0), scale, 1)
        return DecimalType(precision, scale) if precision <= 38 else DoubleType()
    if isinstance(given, Instant):
        nano = given.nanos % 1000 != 0
        if given.zoned:
            return TimestamptzNanoType() if nano else TimestamptzType()
        return TimestampNanoType() if nano else TimestampType()
    return _NATURAL[type(given)]


_NATURAL: dict[type, IcebergType] = {
    bool: BooleanType(),
    float: DoubleType(),
    str: StringType(),
    bytes: BinaryType(),
    UUID: UUIDType(),
    Days: DateType(),
    TimeOfDay: TimeType(),
}


def _literal(value: Value) -> Literal:
    literal: Literal = as_literal(value)
    return literal


def _typed(term: Term, beside: Sequence[Term]) -> Term:
    """An argument with a type.

    A number takes the type of a floating point number beside it, a text that of a time or uuid.
    """
    if not isinstance(term, Value) or term.type is not None or term.value is None:
        return term
    kinds = [term.type for term in beside if not isinstance(term, Value)]
    wanted = (
        _FLOATING
        if isinstance(term.value, int | Decimal)
        else _FROM_TEXT
        if isinstance(term.value, str)
        else ()
    )
    for kind in kinds:
        if isinstance(kind, wanted) and not isinstance(term.value, bool):
            position = cast_literal(term.value, kind, "what is beside it")
            if not position.exact:
                raise InvalidExpressionError(f"{term.value!r} is no value of type {kind}")
            return Value(position.value, kind)
    return natural(term)


_FROM_TEXT = (
    DateType,
    TimeType,
    TimestampType,
    TimestamptzType,
    TimestampNanoType,
    TimestamptzNanoType,
    UUIDType,
)


def _example(term: Term) -> Datum:
    """No rows of the term's type, or the constant."""
    if isinstance(term, Value):
        return constant(term)
    if isinstance(term.type, VariantType):
        return pa.nulls(0, VARIANT)
    if not term.type.is_primitive:
        return pa.nulls(0, pa.struct([]))
    return pa.nulls(0, arrow_type(term.type))


def _value(datum: Datum) -> Value:
    array = datum if isinstance(datum, pa.Array) else pa.repeat(datum, 1)
    if pa.types.is_null(array.type) or not array[0].is_valid:
        return NULL
    kind = _iceberg_type(array.type)
    physical = array.cast(physical_type(kind))
    return Value(from_physical(physical[0].as_py(), physical.type), kind)


def _iceberg_type(kind: pa.DataType) -> IcebergType:
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return FixedType(kind.byte_width)
    if pa.types.is_integer(kind):
        return LongType()
    return _ICEBERG[kind]


_ICEBERG: dict[pa.DataType, IcebergType] = {
    arrow_type(type_): type_
    for type_ in (
        BooleanType(), FloatType(), DoubleType(), DateType(), TimeType(), TimestampType(),
        TimestamptzType(), TimestampNanoType(), TimestamptzNanoType(), StringType(), BinaryType(),
    )
}  # fmt: skip


def _reason(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if isinstance(error, pa.ArrowNotImplementedError):
        return "it does not apply to these types"
    return text
