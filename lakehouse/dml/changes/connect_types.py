"""Types of Kafka Connect and Debezium, as JSON events carry them, as Arrow types and values."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from lakehouse.errors import InvalidInputError

Convert = Callable[[Any], Any]
_EXACT = Context(prec=100_000)


@dataclass(frozen=True, slots=True)
class ConnectType:
    """How a field of an event is read.

    Attributes:
        arrow: its Arrow type; None is what the values tell.
        convert: makes the value from what JSON has; never asked about null.
    """

    arrow: pa.DataType | None
    convert: Convert = lambda value: value


UNKNOWN = ConnectType(None)


def row_types(schema: Mapping[str, Any]) -> dict[str, ConnectType]:
    """Types of a row's fields, from the schema of its event.

    Raises:
        InvalidInputError: the schema is of no event of Debezium.
    """
    for one in schema.get("fields") or ():
        if one.get("field") == "after" and one.get("type") == "struct":
            return {field["field"]: connect_type(field) for field in one["fields"]}
    raise InvalidInputError("the schema of an event has no struct `after`: it is none of Debezium")


def connect_type(schema: Mapping[str, Any]) -> ConnectType:
    """The type of one schema of Kafka Connect. Raises InvalidInputError."""
    name, kind = schema.get("name"), schema.get("type")
    if name in _LOGICAL:
        return _LOGICAL[name]
    if name == "org.apache.kafka.connect.data.Decimal":
        parameters = schema.get("parameters") or {}
        scale = int(parameters["scale"])
        precision = int(parameters.get("connect.decimal.precision", 38))
        return ConnectType(pa.decimal128(precision, scale), lambda text: _scaled(text, scale))
    if name == "io.debezium.data.VariableScaleDecimal":
        return ConnectType(pa.string(), lambda it: f"{_scaled(it['value'], it['scale']):f}")
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind == "struct":
        return _struct({one["field"]: connect_type(one) for one in schema["fields"]})
    if kind == "array":
        item = connect_type(schema["items"])
        return ConnectType(
            pa.list_(_arrow(item)), lambda items: [_value(item, one) for one in items]
        )
    if kind == "map":
        return _map(connect_type(schema["keys"]), connect_type(schema["values"]))
    raise InvalidInputError(f"the schema of an event has the unknown type {kind!r}")


def _struct(fields: Mapping[str, ConnectType]) -> ConnectType:
    return ConnectType(
        pa.struct([(name, _arrow(one)) for name, one in fields.items()]),
        lambda row: {name: _value(one, row.get(name)) for name, one in fields.items()},
    )


def _map(key: ConnectType, value: ConnectType) -> ConnectType:
    def pairs(given: Any) -> list[tuple[Any, Any]]:
        items = given.items() if isinstance(given, Mapping) else given
        return [(_value(key, one), _value(value, other)) for one, other in items]

    return ConnectType(pa.map_(_arrow(key), _arrow(value)), pairs)


def _arrow(kind: ConnectType) -> pa.DataType:
    return pa.null() if kind.arrow is None else kind.arrow


def _value(kind: ConnectType, value: Any) -> Any:
    return None if value is None else kind.convert(value)


def _scaled(text: str, scale: int) -> Decimal:
    unscaled = int.from_bytes(base64.b64decode(text), "big", signed=True)
    return Decimal(unscaled).scaleb(-scale, _EXACT)


def _whole_micros(nanos: int) -> int:
    micros, rest = divmod(nanos, 1000)
    if rest:
        raise InvalidInputError(f"a time of {nanos} nanoseconds is no whole microsecond")
    return micros


_TEXT = ConnectType(pa.string())
_MICROS, _ZONED = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
_PLAIN = {
    "int8": ConnectType(pa.int32()),
    "int16": ConnectType(pa.int32()),
    "int32": ConnectType(pa.int32()),
    "int64": ConnectType(pa.int64()),
    "float": ConnectType(pa.float32()),
    "float32": ConnectType(pa.float32()),
    "double": ConnectType(pa.float64()),
    "float64": ConnectType(pa.float64()),
    "boolean": ConnectType(pa.bool_()),
    "string": _TEXT,
    "bytes": ConnectType(pa.binary(), base64.b64decode),
}
_LOGICAL = {
    "io.debezium.time.Date": ConnectType(pa.date32()),
    "org.apache.kafka.connect.data.Date": ConnectType(pa.date32()),
    "io.debezium.time.Timestamp": ConnectType(_MICROS, lambda millis: millis * 1000),
    "org.apache.kafka.connect.data.Timestamp": ConnectType(_MICROS, lambda millis: millis * 1000),
    "io.debezium.time.MicroTimestamp": ConnectType(_MICROS),
    "io.debezium.time.NanoTimestamp": ConnectType(_MICROS, _whole_micros),
    "io.debezium.time.ZonedTimestamp": ConnectType(_ZONED, dt.datetime.fromisoformat),
    "io.debezium.time.Time": ConnectType(pa.time64("us"), lambda millis: millis * 1000),
    "org.apache.kafka.connect.data.Time": ConnectType(pa.time64("us"), lambda ms: ms * 1000),
    "io.debezium.time.MicroTime": ConnectType(pa.time64("us")),
    "io.debezium.time.NanoTime": ConnectType(pa.time64("us"), _whole_micros),
}
