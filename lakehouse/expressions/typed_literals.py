"""Literals cast to a column's type; one that falls between two values keeps its side."""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from pyiceberg.expressions.literals import DateLiteral, TimeLiteral, TimestampLiteral
from pyiceberg.expressions.literals import Literal as IcebergLiteral
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
from lakehouse.expressions.bound_filter import Value

_MICROS_PER_DAY = 86_400_000_000
# More than any integer or decimal has, on either side of its point.
_MOST_DIGITS = 80
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_INT_RANGES: dict[type, tuple[int, int]] = {
    IntegerType: (-(2**31), 2**31 - 1),
    LongType: (-(2**63), 2**63 - 1),
}
_FRACTION = re.compile(r"^(?P<head>.*\d)[.,](?P<fraction>\d{7,})(?P<zone>.*)$")


@dataclass(frozen=True, slots=True)
class Days:
    """A date, in days since 1970."""

    days: int


@dataclass(frozen=True, slots=True)
class TimeOfDay:
    """Microseconds since midnight."""

    micros: int


@dataclass(frozen=True, slots=True)
class Instant:
    """A date and time, in nanoseconds since 1970.

    Attributes:
        nanos: in UTC where it was written with a zone, else as a clock on the wall shows it.
        zoned: whether it was written with a zone; None where nobody knows (a `datetime` that
            pyiceberg took).
    """

    nanos: int
    zoned: bool | None = None


Literal = bool | int | float | Decimal | str | bytes | UUID | Days | TimeOfDay | Instant


def literal_of(given: IcebergLiteral[Any]) -> Literal:
    """A literal of a pyiceberg expression; a `datetime` in it has lost its zone, and is UTC."""
    if isinstance(given, DateLiteral):
        return Days(given.value)
    if isinstance(given, TimeLiteral):
        return TimeOfDay(given.value)
    if isinstance(given, TimestampLiteral):
        return Instant(given.value * 1000)
    literal: Literal = given.value
    return literal


@dataclass(frozen=True, slots=True)
class Position:
    """Where a literal stands among the values of a type.

    Attributes:
        value: the literal itself, or the greatest value of the type below it; None when it is
            beyond the range.
        exact: whether `value` is the literal.
        beyond: -1 below every value of the type, 1 above every value, 0 within.
    """

    value: Any
    exact: bool = True
    beyond: int = 0


BELOW = Position(None, exact=False, beyond=-1)
ABOVE = Position(None, exact=False, beyond=1)


def cast_literal(literal: Literal, to: IcebergType, column: str) -> Position:
    """Place a literal among the values of a type.

    Args:
        literal: as it was written.
        to: what it is compared with.
        column: what has that type, for messages.

    Raises:
        InvalidExpressionError: the literal means nothing for that type; names the column.
    """
    caster = _CASTERS.get(type(to))
    if caster is None:
        raise InvalidExpressionError(
            f"{column} is a {to}: only primitive fields can be compared", column=column
        )
    try:
        position = caster(literal, to)
    except (ValueError, ArithmeticError, struct.error) as error:
        raise _misfit(literal, to, column, f": {error}") from error
    if position is None:
        raise _misfit(literal, to, column)
    return position


def _misfit(
    literal: Literal, to: IcebergType, column: str, reason: str = ""
) -> InvalidExpressionError:
    return InvalidExpressionError(
        f"{shown(literal)} cannot be compared with {column} of type {to}{reason}", column=column
    )


def shown(literal: Literal) -> str:
    """A literal for messages."""
    if isinstance(literal, Days):
        return f"date {literal.days} (days since 1970)"
    if isinstance(literal, Instant):
        return f"timestamp {literal.nanos // 1000} (microseconds since 1970)"
    if isinstance(literal, TimeOfDay):
        return f"time {literal.micros} (microseconds since midnight)"
    return str(literal) if isinstance(literal, int | float | Decimal | UUID) else repr(literal)


def _whole(number: int | float | Decimal, low: int, high: int) -> Position:
    if isinstance(number, float) and math.isinf(number):
        return ABOVE if number > 0 else BELOW
    if isinstance(number, Decimal) and number and number.adjusted() > _MOST_DIGITS:
        return _beyond(number)
    floor = math.floor(number)
    return _placed(floor, low, high, exact=floor == number)


def _beyond(number: Decimal) -> Position:
    """Of a number whose exponent is too large to write its digits down."""
    return BELOW if number.is_signed() else ABOVE


def _number(value: Literal) -> int | float | Decimal | None:
    if isinstance(value, str):
        number = Decimal(value.strip())
        return number if number.is_finite() else float(number)
    if isinstance(value, bool):
        return None
    return value if isinstance(value, (int, float, Decimal)) else None


def _to_integer(literal: Literal, to: IcebergType) -> Position | None:
    number = _number(literal)
    return None if number is None else _whole(number, *_INT_RANGES[type(to)])


def _to_floating(literal: Literal, to: IcebergType) -> Position | None:
    number = _number(literal)
    if number is None:
        return None
    try:
        value = float(number)
    except OverflowError:
        return ABOVE if number > 0 else BELOW
    if isinstance(to, FloatType) and math.isfinite(value):
        try:
            (value,) = struct.unpack("<f", struct.pack("<f", value))
        except OverflowError:
            return ABOVE if value > 0 else BELOW
    if math.isinf(value) and not (isinstance(number, float) and math.isinf(number)):
        return ABOVE if value > 0 else BELOW
    return Position(value)


def _to_decimal(literal: Literal, to: IcebergType) -> Position | None:
    number = _number(literal)
    if number is None or not isinstance(to, DecimalType):
        return None
    if isinstance(number, float):
        if math.isinf(number):
            return ABOVE if number > 0 else BELOW
        number = Decimal(repr(number))
    number = Decimal(number)
    if number and number.adjusted() > _MOST_DIGITS:
        return _beyond(number)
    if number and number.adjusted() < -_MOST_DIGITS:  # between zero and its neighbour
        return Position(_unscaled(-1 if number.is_signed() else 0, to), exact=False)
    limit: int = 10**to.precision - 1
    numerator, denominator = number.as_integer_ratio()
    floor, rest = divmod(numerator * 10**to.scale, denominator)
    if floor > limit or (floor == limit and rest):
        return ABOVE
    return BELOW if floor < -limit else Position(_unscaled(floor, to), exact=rest == 0)


def _unscaled(value: int, to: DecimalType) -> Decimal:
    return Decimal((value < 0, tuple(int(digit) for digit in str(abs(value))), -to.scale))


def _to_boolean(value: Literal, _: IcebergType) -> Position | None:
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return Position(value.strip().lower() == "true")
    return Position(value) if isinstance(value, bool) else None


def instant(text: str) -> Instant:
    """An ISO date or timestamp. Raises ValueError."""
    text = text.strip()
    nanos, beyond = 0, _FRACTION.match(text)
    if beyond:
        fraction = beyond["fraction"]
        if len(fraction) > 9:
            raise ValueError("more than nine fractional digits")
        nanos = int(fraction[6:].ljust(3, "0"))
        text = f"{beyond['head']}.{fraction[:6]}{beyond['zone']}"
    parsed = dt.datetime.fromisoformat(text)
    zoned = parsed.tzinfo is not None
    moment = parsed if zoned else parsed.replace(tzinfo=dt.UTC)
    return Instant((moment - _EPOCH) // _MICROSECOND * 1000 + nanos, zoned)


def _instant_nanos(value: Literal, to: IcebergType) -> int | None:
    """Nanoseconds since the epoch; a bare number counts in the unit of the type."""
    if isinstance(value, Days):
        return value.days * _MICROS_PER_DAY * 1000
    if isinstance(value, str):
        value = instant(value)
    if isinstance(value, Instant):
        if value.zoned and isinstance(to, (TimestampType, TimestampNanoType, DateType)):
            raise ValueError("it has a time zone and the column has none; leave the zone out")
        return value.nanos
    if isinstance(value, int) and not isinstance(value, bool):
        nano_type = isinstance(to, (TimestampNanoType, TimestamptzNanoType))
        return value if nano_type else value * 1000
    return None


def _to_timestamp(literal: Literal, to: IcebergType) -> Position | None:
    nanos = _instant_nanos(literal, to)
    if nanos is None:
        return None
    unit = 1 if isinstance(to, (TimestampNanoType, TimestamptzNanoType)) else 1000
    value, rest = divmod(nanos, unit)
    low, high = _INT_RANGES[LongType]
    if not low <= value <= high:
        return ABOVE if value > 0 else BELOW
    return Position(value, exact=rest == 0)


def _to_date(value: Literal, to: IcebergType) -> Position | None:
    low, high = _INT_RANGES[IntegerType]
    if isinstance(value, Days):
        return _whole(value.days, low, high)
    if isinstance(value, int) and not isinstance(value, bool):
        return _whole(value, low, high)
    if not isinstance(value, str | Instant):
        return None
    nanos = _instant_nanos(value, to)
    if nanos is None:
        return None
    days, rest = divmod(nanos, _MICROS_PER_DAY * 1000)
    return _placed(days, low, high, exact=rest == 0)


def _placed(floor: int, low: int, high: int, *, exact: bool) -> Position:
    """Between two integers of a range."""
    if floor < low:
        return BELOW
    return ABOVE if floor > high or (floor == high and not exact) else Position(floor, exact=exact)


def _to_time(value: Literal, _: IcebergType) -> Position | None:
    if isinstance(value, TimeOfDay):
        return _whole(value.micros, 0, _MICROS_PER_DAY - 1)
    if isinstance(value, int) and not isinstance(value, bool):
        return _whole(value, 0, _MICROS_PER_DAY - 1)
    if not isinstance(value, str):
        return None
    moment = dt.time.fromisoformat(value.strip())
    if moment.tzinfo is not None:
        raise ValueError("a time has no zone")
    seconds = (moment.hour * 60 + moment.minute) * 60 + moment.second
    return Position(seconds * 1_000_000 + moment.microsecond)


def _to_string(value: Literal, _: IcebergType) -> Position | None:
    return Position(value) if isinstance(value, str) else None


def _to_uuid(value: Literal, _: IcebergType) -> Position | None:
    if isinstance(value, str):
        return Position(UUID(value.strip()))
    if isinstance(value, bytes):
        return Position(UUID(bytes=value))
    return Position(value) if isinstance(value, UUID) else None


def _to_bytes(value: Literal, _: IcebergType) -> Position | None:
    if isinstance(value, str):
        return Position(value.encode("utf-8"))
    return Position(value) if isinstance(value, bytes) else None


_CASTERS: dict[type, Callable[[Literal, IcebergType], Position | None]] = {
    BooleanType: _to_boolean,
    IntegerType: _to_integer,
    LongType: _to_integer,
    FloatType: _to_floating,
    DoubleType: _to_floating,
    DecimalType: _to_decimal,
    DateType: _to_date,
    TimeType: _to_time,
    TimestampType: _to_timestamp,
    TimestamptzType: _to_timestamp,
    TimestampNanoType: _to_timestamp,
    TimestamptzNanoType: _to_timestamp,
    StringType: _to_string,
    UUIDType: _to_uuid,
    FixedType: _to_bytes,
    BinaryType: _to_bytes,
}


def nanos_of(value: Value) -> int:
    """A date or timestamp as nanoseconds since 1970."""
    if isinstance(value.type, DateType):
        return int(value.value) * _MICROS_PER_DAY * 1000
    nano = isinstance(value.type, TimestampNanoType | TimestamptzNanoType)
    return int(value.value) * (1 if nano else 1000)


def as_literal(value: Value) -> Any:
    """A typed constant as it would have been written."""
    kind: IcebergType | None = value.type
    if isinstance(kind, DateType):
        return Days(value.value)
    if isinstance(kind, TimeType):
        return TimeOfDay(value.value)
    if isinstance(kind, TimestampType | TimestampNanoType):
        return Instant(nanos_of(value), zoned=False)
    if isinstance(kind, TimestamptzType | TimestamptzNanoType):
        return Instant(nanos_of(value), zoned=True)
    return value.value
