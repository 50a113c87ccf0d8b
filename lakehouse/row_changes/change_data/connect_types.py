"""Types of Kafka Connect and Debezium as Arrow types, and values of events as values of these.

Every conversion asks for the range of its type: JSON says less than the type of a field does, and
Arrow makes 1 of 1.5 and midnight of 24:00.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact
from typing import Any

import pyarrow as pa

from lakehouse.errors import InvalidInputError

Convert = Callable[[Any], Any]
_EXACT = Context(prec=100_000)
_EXACT.traps[Inexact] = True
_MOST_DIGITS = 38
_DAYS_IN_400_YEARS = 146_097


@dataclass(frozen=True, slots=True)
class ConnectType:
    """How a field of an event is read.

    Attributes:
        arrow: its Arrow type; None is what the values tell.
        convert: makes the value from what JSON has, or raises ArithmeticError, LookupError,
            TypeError or ValueError; never asked about null. Dates and times become numbers of the
            Arrow type's unit: Python's own end with the year 9999.
    """

    arrow: pa.DataType | None
    convert: Convert = lambda value: value


UNKNOWN = ConnectType(None)


def row_types(schema: Mapping[str, Any]) -> dict[str, ConnectType]:
    """Types of a row's fields, from the schema of its event.

    Raises:
        InvalidInputError: the schema is of no event of Debezium, or has a type that no column has.
    """
    try:
        for field in schema.get("fields") or ():
            if field.get("field") == "after" and field.get("type") == "struct":
                return {column["field"]: connect_type(column) for column in field["fields"]}
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"the schema of an event cannot be read: {error!r}") from error
    raise InvalidInputError("the schema of an event has no struct `after`: it is none of Debezium")


def connect_type(schema: Mapping[str, Any]) -> ConnectType:
    """The type of one schema of Kafka Connect. Raises InvalidInputError."""
    name, kind = schema.get("name"), schema.get("type")
    if name in _LOGICAL:
        return _LOGICAL[name]
    if name == "org.apache.kafka.connect.data.Decimal":
        return _decimal(schema)
    if name == "io.debezium.data.VariableScaleDecimal":
        return ConnectType(pa.string(), lambda it: f"{_scaled(it['value'], it['scale']):f}")
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind == "struct":
        return _struct({field["field"]: connect_type(field) for field in schema["fields"]})
    if kind == "array":
        return _list(connect_type(schema["items"]))
    if kind == "map":
        return _map(connect_type(schema["keys"]), connect_type(schema["values"]))
    raise InvalidInputError(f"the schema of an event has the unknown type {kind!r}")


def arrow_type(kind: pa.DataType) -> ConnectType:
    """How a value of an Arrow type is read whose dates and times are numbers."""
    if pa.types.is_time(kind):
        return ConnectType(kind, _time_of_day(_UNITS[kind.unit], _UNITS[kind.unit]))
    if pa.types.is_struct(kind):
        return ConnectType(
            kind, _struct({field.name: arrow_type(field.type) for field in kind}).convert
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return ConnectType(kind, _list(arrow_type(kind.value_type)).convert)
    if pa.types.is_map(kind):
        return ConnectType(
            kind, _map(arrow_type(kind.key_type), arrow_type(kind.item_type)).convert
        )
    return ConnectType(kind)


def counted(kind: pa.DataType) -> pa.DataType:
    """The Arrow type of the same layout whose dates and times are numbers."""
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(counted(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(counted(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(counted(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(counted(kind.key_type)),
            kind.item_field.with_type(counted(kind.item_type)),
        )
    return kind


def _struct(fields: Mapping[str, ConnectType]) -> ConnectType:
    def row(given: Any) -> dict[str, Any]:
        unknown = [name for name in given if name not in fields]
        if unknown:
            raise ValueError(f"it has {unknown[0]!r}, which is no field")
        return {name: _value(field, given.get(name)) for name, field in fields.items()}

    return ConnectType(pa.struct([(name, _arrow(field)) for name, field in fields.items()]), row)


def _list(item: ConnectType) -> ConnectType:
    def items(given: Any) -> list[Any]:
        if not isinstance(given, list):
            raise TypeError(f"{type(given).__name__} is no list")
        return [_value(item, element) for element in given]

    return ConnectType(pa.list_(_arrow(item)), items)


def _map(key: ConnectType, value: ConnectType) -> ConnectType:
    def pairs(given: Any) -> list[tuple[Any, Any]]:
        items = given.items() if isinstance(given, Mapping) else given
        return [(_value(key, its_key), _value(value, its_value)) for its_key, its_value in items]

    return ConnectType(pa.map_(_arrow(key), _arrow(value)), pairs)


def _arrow(kind: ConnectType) -> pa.DataType:
    return pa.null() if kind.arrow is None else kind.arrow


def _value(kind: ConnectType, value: Any) -> Any:
    return None if value is None else kind.convert(value)


def _decimal(schema: Mapping[str, Any]) -> ConnectType:
    """A decimal; one of a negative scale (1200 is 12 at scale -2) has its zeros written out."""
    parameters = schema.get("parameters") or {}
    scale = int(parameters["scale"])
    precision = parameters.get("connect.decimal.precision")
    digits = _MOST_DIGITS if precision is None else max(int(precision) - min(scale, 0), scale)
    if max(digits, scale) > _MOST_DIGITS:
        raise InvalidInputError(
            f"the field {schema.get('field')!r} of an event has decimals of {max(digits, scale)} "
            f"digits, and a column has at most {_MOST_DIGITS}: have Debezium send text "
            "(decimal.handling.mode=string)"
        )
    places = max(scale, 0)

    def fitting(text: Any) -> Decimal:
        value = _scaled(text, scale)
        if value.adjusted() + 1 + places > digits:
            raise ValueError(f"{value:f} has more than {digits} digits")
        return value

    return ConnectType(pa.decimal128(digits, places), fitting)


def _scaled(text: Any, scale: int) -> Decimal:
    unscaled = int.from_bytes(_bytes(text), "big", signed=True)
    return Decimal(unscaled).scaleb(-scale, _EXACT)


def _bytes(text: Any) -> bytes:
    return base64.b64decode(text, validate=True)


def _of(kind: type) -> Convert:
    def same(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"{type(value).__name__} is no {kind.__name__}")
        return value

    return same


def _whole(bits: int, times: int = 1) -> Convert:
    """Whole numbers of so many bits, each times a factor, which fits into 64 bits."""
    end = 1 << (bits - 1)

    def whole(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{type(value).__name__} is no whole number")
        if not -end <= value < end:
            raise OverflowError(f"it has more than {bits} bits")
        if not -(1 << 63) <= value * times < 1 << 63:
            raise OverflowError("it is beyond the microseconds of 64 bits")
        return value * times

    return whole


def _real(layout: str) -> Convert:
    """Floating point, whose `NaN` and infinities are text in JSON."""

    def real(value: Any) -> float:
        if isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity"):
            raise ValueError("text is no number but NaN, Infinity and -Infinity")
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise TypeError(f"{type(value).__name__} is no number")
        number = float(value)
        if isinstance(value, int) and int(number) != value:
            raise OverflowError("it has more digits than floating point")
        struct.pack(layout, number)
        return number

    return real


def _time_of_day(per_second: int, kept_per_second: int) -> Convert:
    """Units since midnight."""

    def time(value: Any) -> int:
        since = _whole(64)(value)
        if not 0 <= since < 86_400 * per_second:
            raise OverflowError(
                "a time of day is from 00:00 to before 24:00; what is longer or negative is a "
                "duration (MySQL's TIME may be): have it sent as a number or as text"
            )
        return _exact(since * kept_per_second, per_second)

    return time


def _exact(units: int, divisor: int) -> int:
    whole, rest = divmod(units, divisor)
    if rest:
        raise ValueError("it is no whole number of microseconds")
    return whole


def _nanos(value: Any) -> int:
    return _exact(_whole(64)(value), 1000)


_ZONED_TIME = re.compile(
    r"([+-]?\d{4,10})-(\d\d)-(\d\d)T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?"
    r"(?:Z|([+-])(\d\d):(\d\d)(?::(\d\d))?)"
)


def _instant(text: Any) -> int:
    """Microseconds of ISO-8601 with an offset, in any year: Python's end with 9999."""
    match = _ZONED_TIME.fullmatch(text)
    if match is None:
        raise ValueError("it is no time with an offset, such as 2026-06-01T12:00:00.5+02:00")
    year, month, day = (int(part) for part in match.group(1, 2, 3))
    cycles, like = divmod(year, 400)
    days = dt.date(2000 + like, month, day).toordinal() - dt.date(2000, 1, 1).toordinal()
    days += (cycles - 5) * _DAYS_IN_400_YEARS + dt.date(2000, 1, 1).toordinal() - _EPOCH
    hour, minute, second = (int(part or 0) for part in match.group(4, 5, 6))
    dt.time(hour, minute, second)
    seconds = days * 86_400 + hour * 3600 + minute * 60 + second
    east = [int(part or 0) for part in match.group(9, 10, 11)]
    offset = east[0] * 3600 + east[1] * 60 + east[2]
    seconds += offset if match[8] == "-" else -offset
    nanos = int((match[7] or "").ljust(9, "0"))
    return int(_whole(64)(seconds * 1_000_000 + _exact(nanos, 1000)))


_EPOCH = dt.date(1970, 1, 1).toordinal()
_UNITS = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_MICROS, _ZONED, _TIME = pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.time64("us")
_DATE = ConnectType(pa.date32(), _whole(32))
_MILLIS = ConnectType(_MICROS, _whole(64, 1000))
_TIME_MILLIS = ConnectType(_TIME, _time_of_day(1000, 1_000_000))
_PLAIN = {
    "int8": ConnectType(pa.int32(), _whole(8)),
    "int16": ConnectType(pa.int32(), _whole(16)),
    "int32": ConnectType(pa.int32(), _whole(32)),
    "int64": ConnectType(pa.int64(), _whole(64)),
    "float": ConnectType(pa.float32(), _real("<f")),
    "float32": ConnectType(pa.float32(), _real("<f")),
    "double": ConnectType(pa.float64(), _real("<d")),
    "float64": ConnectType(pa.float64(), _real("<d")),
    "boolean": ConnectType(pa.bool_(), _of(bool)),
    "string": ConnectType(pa.string(), _of(str)),
    "bytes": ConnectType(pa.binary(), _bytes),
}
_LOGICAL = {
    "io.debezium.time.Date": _DATE,
    "org.apache.kafka.connect.data.Date": _DATE,
    "io.debezium.time.Timestamp": _MILLIS,
    "org.apache.kafka.connect.data.Timestamp": _MILLIS,
    "io.debezium.time.MicroTimestamp": ConnectType(_MICROS, _whole(64)),
    "io.debezium.time.NanoTimestamp": ConnectType(_MICROS, _nanos),
    "io.debezium.time.ZonedTimestamp": ConnectType(_ZONED, _instant),
    "io.debezium.time.Time": _TIME_MILLIS,
    "org.apache.kafka.connect.data.Time": _TIME_MILLIS,
    "io.debezium.time.MicroTime": ConnectType(_TIME, _time_of_day(1_000_000, 1_000_000)),
    "io.debezium.time.NanoTime": ConnectType(_TIME, _time_of_day(1_000_000_000, 1_000_000)),
}
