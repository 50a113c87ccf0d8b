"""From parsed records to typed Arrow columns: a value fits its column or its record is rejected, never nulled."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation

import orjson
import pyarrow as pa

from lakehouse.orchestration.ingestion.kinds import exact_in_double, fits, kinds_of

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_INTEGER = re.compile(r"[+-]?\d{1,19}")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
# what looks like a number but may be a code (007, or more digits than a long has) stays text when the type is guessed
_PLAIN_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
_PLAIN_FRACTION = re.compile(r"-?(0|[1-9]\d*)(\.\d+([eE][+-]?\d+)?|[eE][+-]?\d+)")
_BOOLEANS = {"true": True, "false": False}

_ARROW: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "string": pa.string(), "json": pa.string(), "date": pa.date32(), "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"), "time": pa.time64("us"), "binary": pa.binary(),
}  # fmt: skip


def arrow_type(column_type: str) -> pa.DataType:
    """The Arrow type of a column's values."""
    decimal = _DECIMAL.fullmatch(column_type)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _ARROW[column_type]


def typed_column(values: Sequence[object], column_type: str) -> tuple[pa.Array, dict[int, str]]:
    """The values as one Arrow array.

    Returns:
        The array (null where a value does not fit) and for each value that does not fit its position and why.
    """
    kinds = kinds_of(values)
    as_it_is = column_type not in _CONVERT and not _DECIMAL.fullmatch(column_type)
    if as_it_is and all(fits(kind, column_type) for kind in kinds):
        try:
            return pa.array(values, type=arrow_type(column_type)), {}
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            pass  # some value of a fitting kind does not fit after all: find out which, one by one
    bad: dict[int, str] = {}
    good: list[object] = []
    for position, value in enumerate(values):
        try:
            good.append(None if value is None else convert(value, column_type))
        except (ValueError, InvalidOperation, OverflowError, pa.ArrowException) as error:
            good.append(None)
            bad[position] = str(error)
    return pa.array(good, type=arrow_type(column_type)), bad


def convert(value: object, column_type: str) -> object:
    """One value as the column wants it.

    Raises:
        ValueError | InvalidOperation | OverflowError | pa.ArrowException: it does not fit; the message says why.
    """
    (kind,) = kinds_of([value])
    if not fits(kind, column_type):
        raise ValueError(f"{kind} does not fit {column_type}")
    decimal = _DECIMAL.fullmatch(column_type)
    if decimal:
        return _decimal(value, int(decimal[1]), int(decimal[2]))
    if column_type == "double" and type(value) is int and not exact_in_double(value):
        raise ValueError(f"{value} is not exact as a double")
    change = _CONVERT.get(column_type)
    return pa.scalar(change(value) if change else value, type=arrow_type(column_type)).as_py()


def _decimal(value: object, precision: int, scale: int) -> Decimal:
    number = Decimal(str(value)) if isinstance(value, int | str) else value
    if not isinstance(number, Decimal) or not number.is_finite():
        raise ValueError(f"{value!r} is no decimal")
    return Decimal(str(pa.scalar(number, type=pa.decimal128(precision, scale)).as_py()))


def _date(value: object) -> object:
    return date.fromisoformat(value) if isinstance(value, str) else value


def _time(value: object) -> object:
    return time.fromisoformat(value) if isinstance(value, str) else value


def _timestamp(value: object) -> object:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        raise ValueError(f"{value!r} has an offset; the column has none")
    return moment


def _timestamptz(value: object) -> object:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if isinstance(moment, datetime) and moment.tzinfo is None:
        raise ValueError(f"{value!r} has no offset; the column needs one")
    return moment.astimezone(UTC) if isinstance(moment, datetime) else moment


def _json(value: object) -> object:
    return orjson.dumps(value).decode()


_CONVERT: Mapping[str, Callable[[object], object]] = {
    "date": _date, "time": _time, "timestamp": _timestamp, "timestamptz": _timestamptz, "json": _json,
}  # fmt: skip


def text_value(text: object, column_type: str) -> object:
    """What a CSV field says for a column of this type. Text that does not say it stays text, and so does not fit."""
    if not isinstance(text, str) or column_type in ("string", "json"):
        return text
    if column_type == "boolean":
        return _BOOLEANS.get(text.lower(), text)
    if column_type in ("int", "long") and _INTEGER.fullmatch(text):
        return int(text)
    if column_type in ("float", "double") and _NUMBER.fullmatch(text):
        return float(text)
    return text


def guessed_value(text: object) -> object:
    """What a CSV field looks like when no type is known."""
    if not isinstance(text, str):
        return text
    if _PLAIN_INTEGER.fullmatch(text):
        return int(text)
    if _PLAIN_FRACTION.fullmatch(text):
        return float(text)
    return _BOOLEANS.get(text.lower(), text)
