"""From field values to typed Arrow columns: a misfit rejects its record, and is never nulled.

Whole columns are converted where that is certain to give what the conversion of each value gives;
`convert` decides the rest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.ingestion.reading.formats.json_text import json_text
from lakehouse.ingestion.reading.formats.record_chunks import Values, is_finer, python_values
from lakehouse.ingestion.reading.typing.value_kinds import exact_in_double, fits, kinds_of

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
INTEGER = re.compile(r"[+-]?[0-9]{1,4000}")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NANOSECONDS = re.compile(r"([.,]\d{6})\d+")
# how text of no declared type looks; what looks like a number but may be a code (007, or more
# digits than a long has) stays text
GUESSED: Mapping[str, str] = {
    "long": r"^-?(0|[1-9]\d{0,17})$",
    "double": (
        r"^(?:\+(0|[1-9]\d*)\.\d+|"
        r"-?(0|[1-9]\d*)(\.\d+([eE][+-]?\d{1,2})?|[eE][+-]?\d{1,2}))$"
    ),
    "boolean": "^(?i:true|false)$",
    # a number's text that says more than its value: zip codes, telephone numbers; +12.50 is none
    "code": (
        r"^(?:(?:\+(?:\d*\.?|0\d[\d.]*|\d*\.\d*\.[\d.]*|\.[\d.]*)|-?0\d[\d.]*)([eE][+-]?\d+)?|"
        r"\+[\d.]+[eE][+-]?\d+)$"
    ),
}
_NANOSECOND_TYPES = frozenset({"timestamp_ns", "timestamptz_ns"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BOOLEANS = {"true": True, "false": False}
_FAILURES = (ValueError, InvalidOperation, OverflowError, pa.ArrowException)

_ARROW: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(), "json": pa.string(), "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"), "time": pa.time64("us"), "binary": pa.binary(),
    "timestamp_ns": pa.timestamp("ns"), "timestamptz_ns": pa.timestamp("ns", "UTC"),
}  # fmt: skip
# Python types whose values Arrow takes for the column as they are, or not at all
_AS_THEY_ARE: Mapping[str, frozenset[type]] = {
    "boolean": frozenset({bool}),
    "int": frozenset({int}),
    "long": frozenset({int}),
    "double": frozenset({float, int}),
    "string": frozenset({str}),
    "binary": frozenset({bytes}),
}
_CLOCK = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?"
_FINE_CLOCK = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?"
_DAY = r"[12]\d{3}-\d{2}-\d{2}"
# text of which Arrow's cast and Python make the same; text that does not match may still be a value
_CERTAIN_TIMES: Mapping[str, str] = {
    "date": f"^{_DAY}$",
    "time": f"^{_CLOCK}$",
    "timestamp": f"^{_DAY}[T ]{_CLOCK}$",
    "timestamptz": rf"^{_DAY}[T ]{_CLOCK}(Z|[+-]\d{{2}}:[0-5]\d)$",
    "timestamp_ns": f"^{_DAY}[T ]{_FINE_CLOCK}$",
    "timestamptz_ns": rf"^{_DAY}[T ]{_FINE_CLOCK}(Z|[+-]\d{{2}}:[0-5]\d)$",
}
_CERTAIN_TEXT: Mapping[str, str] = {
    **_CERTAIN_TIMES,
    "boolean": "^(?i:true|false)$",
    "int": r"^-?\d{1,9}$",
    "long": r"^-?\d{1,18}$",
    "double": r"^-?\d{1,15}(\.\d{1,30})?([eE][+-]?\d{1,2})?$",
}


def arrow_type(column_type: str) -> pa.DataType:
    """The Arrow type of a column's values."""
    decimal = _DECIMAL.fullmatch(column_type)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _ARROW[column_type]


def typed_column(
    values: Values, column_type: str, *, from_text: bool = False, guessed: bool = False
) -> tuple[pa.Array, dict[int, str]]:
    """The values as one Arrow array.

    Args:
        values: Python values of a text format, text where `from_text`, or an Arrow array of any
            type.
        column_type: of the column.
        from_text: the values are text whose type only the column tells (CSV).
        guessed: the type is not declared: a code (`007`) is not taken for the number 7.

    Returns:
        The array (null where a value does not fit) and for each value that does not fit its
        position and why.
    """
    if from_text and guessed and column_type in _NUMBERS:
        codes = _codes(values)
        if codes:
            numbers = [None if at in codes else value for at, value in enumerate(_listed(values))]
            array, others = typed_column(numbers, column_type, from_text=True)
            reason = "is spelled like a code, not like a number: declare the column as a string"
            return array, others | {at: f"{text!r} {reason}" for at, text in codes.items()}
    certain = _certain(values, column_type, from_text=from_text)
    if certain is not None and certain.null_count == _null_count(values):
        return certain, {}
    listed = python_values(values) if isinstance(values, pa.Array) else values
    wanted, change = arrow_type(column_type), convert
    kept_as = wanted
    if column_type in _NANOSECOND_TYPES:  # which Python's times have not
        kept_as, change = pa.int64(), _nanoseconds
        certain = None if certain is None else certain.cast(kept_as)
    typed = [None] * len(listed) if certain is None else certain.to_pylist()
    bad: dict[int, str] = {}
    for position, value in enumerate(listed):
        if value is None or typed[position] is not None:
            continue
        try:
            meant = text_value(value, column_type) if from_text else value
            typed[position] = change(meant, column_type)
        except _FAILURES as error:
            bad[position] = str(error)
    return pa.array(typed, type=kept_as).cast(wanted), bad


_NUMBERS = frozenset({"int", "long", "float", "double"})


def _codes(values: Values) -> dict[int, str]:
    """Text that looks like a number but is written like a code, by position."""
    texts = values if isinstance(values, pa.Array) else pa.array(values, pa.string())
    positions = np.flatnonzero(
        pc.fill_null(pc.match_substring_regex(texts, GUESSED["code"]), False).to_numpy(
            zero_copy_only=False
        )
    )
    return {int(at): texts[int(at)].as_py() for at in positions}


def _listed(values: Values) -> Sequence[object]:
    return values.to_pylist() if isinstance(values, pa.Array) else values


def _null_count(values: Values) -> int:
    return int(values.null_count) if isinstance(values, pa.Array) else values.count(None)


def _certain(values: Values, column_type: str, *, from_text: bool) -> pa.Array | None:
    """Whole columns; null where it is not certain, None when nothing is."""
    if isinstance(values, pa.Array):
        if from_text:
            return certain_texts(values, column_type)
        return _from_arrow(values, column_type)
    types = set(map(type, values)) - {type(None)}
    try:
        if column_type == "json":
            texts = [None if value is None else json_text(value) for value in values]
            return pa.array(texts, pa.string())
        if types <= _AS_THEY_ARE.get(column_type, frozenset()):
            return pa.array(values, type=arrow_type(column_type))
        if types == {str} and (column_type in _CERTAIN_TIMES or _DECIMAL.fullmatch(column_type)):
            return certain_texts(pa.array(values, pa.string()), column_type)
    except (*_FAILURES, UnicodeEncodeError):
        return None
    return None


def certain_texts(texts: pa.Array, column_type: str) -> pa.Array:
    """Text in the usual spelling as values of the column; null for any other text.

    All of it is null when one of them only looks like a value (the 30th of February).
    """
    if column_type == "string":
        return texts
    pattern = _CERTAIN_TEXT.get(column_type) or _decimal_pattern(column_type)
    wanted = arrow_type(column_type)
    if pattern is None:
        return pa.nulls(len(texts), wanted)
    certain = pc.match_substring_regex(texts, pattern)
    if certain.false_count:
        texts = pc.if_else(certain, texts, pa.scalar(None, texts.type))
    try:
        return pc.cast(texts, wanted)
    except pa.ArrowException:
        return pa.nulls(len(texts), wanted)


@lru_cache(maxsize=64)
def _decimal_pattern(column_type: str) -> str | None:
    decimal = _DECIMAL.fullmatch(column_type)
    if decimal is None:
        return None
    precision, scale = int(decimal[1]), int(decimal[2])
    whole = rf"\d{{1,{precision - scale}}}" if precision > scale else "0"
    return rf"^-?{whole}(\.\d{{1,{scale}}})?$" if scale else f"^-?{whole}$"


def _from_arrow(values: pa.Array, column_type: str) -> pa.Array | None:
    wanted, kind = arrow_type(column_type), values.type
    decimal, have = _DECIMAL.fullmatch(column_type), kind
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if texts and (decimal or column_type in _CERTAIN_TIMES):
        return certain_texts(values, column_type)
    if decimal:
        room = pa.types.is_decimal(have) and (
            have.scale <= wanted.scale
            and have.precision - have.scale <= wanted.precision - wanted.scale
        )
        return pc.cast(values, wanted) if room else None
    if not any(same(kind) for same in _SAME.get(column_type, ())):
        return None
    try:
        if pa.types.is_timestamp(kind) and (kind.unit, wanted.unit) == ("ns", "us"):
            return whole_microseconds(values)
        return pc.cast(values, wanted)
    except pa.ArrowException:
        return None


def without_nanoseconds(values: Values) -> Values:
    """Times, also as text, cut to whole microseconds."""
    if not isinstance(values, pa.Array):
        return [
            _NANOSECONDS.sub(r"\1", value) if isinstance(value, str) else value for value in values
        ]
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pc.replace_substring_regex(values, _NANOSECONDS.pattern, r"\1")
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pc.cast(values, pa.timestamp("us", kind.tz), safe=False)
    if pa.types.is_time64(kind):
        return pc.cast(values, pa.time64("us"), safe=False)
    return values


def whole_microseconds(times: pa.Array) -> pa.Array:
    """Timestamps in microseconds; null where nanoseconds would be lost."""
    whole = pc.cast(times, pa.timestamp("us", times.type.tz), safe=False)
    same = pc.equal(pc.cast(whole, times.type, safe=False), times)
    return pc.if_else(same, whole, pa.scalar(None, whole.type))


_SAME: Mapping[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "boolean": (pa.types.is_boolean,),
    "int": (pa.types.is_integer,),
    "long": (pa.types.is_integer,),
    "double": (pa.types.is_float32, pa.types.is_float64, pa.types.is_integer),
    "float": (pa.types.is_float32,),
    "string": (pa.types.is_string, pa.types.is_large_string),
    "date": (pa.types.is_date32,),
    "time": (pa.types.is_time,),
    "timestamp": (lambda kind: pa.types.is_timestamp(kind) and kind.tz is None,),
    "timestamptz": (lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None,),
    "timestamp_ns": (lambda kind: pa.types.is_timestamp(kind) and kind.tz is None,),
    "timestamptz_ns": (lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None,),
    "binary": (pa.types.is_binary, pa.types.is_large_binary),
}


def convert(value: object, column_type: str) -> object:
    """One value as the column wants it.

    Raises:
        ValueError | InvalidOperation | OverflowError | pa.ArrowException: it does not fit; the
            message says why.
    """
    (kind,) = kinds_of([value])
    if not fits(kind, column_type):
        raise ValueError(f"{kind} does not fit {column_type}")
    decimal = _DECIMAL.fullmatch(column_type)
    if decimal:
        return _decimal(value, int(decimal[1]), int(decimal[2]))
    if getattr(value, "nanosecond", 0) and column_type in ("timestamp", "timestamptz"):
        raise ValueError(f"{value} has nanoseconds; a {column_type} has microseconds")
    if column_type in ("double", "float") and type(value) is int and not exact_in_double(value):
        raise ValueError(f"{value} is not exact as a double")
    change = _CONVERT.get(column_type)
    converted = pa.scalar(change(value) if change else value, type=arrow_type(column_type)).as_py()
    if column_type == "float" and math.isinf(converted) and not math.isinf(float(str(value))):
        raise ValueError(f"{value} does not fit float")
    return converted


def _nanoseconds(value: object, column_type: str) -> int:
    """Nanoseconds since the epoch: of text, of a time, of one of pandas'."""
    fine = 0
    if isinstance(value, str) and (match := _NANOSECONDS.search(value)):
        digits = match[0].removeprefix(match[1])
        if len(digits) > 3 and digits[3:].strip("0"):
            raise ValueError(f"{value!r} is finer than a nanosecond, which a {column_type} is not")
        fine = int(digits[:3].ljust(3, "0"))
        value = _NANOSECONDS.sub(r"\1", value)
    elif nanosecond := getattr(value, "nanosecond", 0):
        fine, value = nanosecond, value.to_pydatetime(warn=False)  # type: ignore[attr-defined]
    moment = convert(value, column_type.removesuffix("_ns"))
    if not isinstance(moment, datetime):
        raise TypeError(f"{value!r} became {moment!r}, which is no time")
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    whole = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if not -(2**63) <= whole * 1000 + fine < 2**63:
        raise ValueError(f"{value} is out of the range of {column_type}: 1677 to 2262")
    return int(whole * 1000 + fine)


def _decimal(value: object, precision: int, scale: int) -> Decimal:
    if isinstance(value, str) and not NUMBER.fullmatch(value):
        raise ValueError(f"{value!r} is no decimal")
    # a float's shortest text is what the file said
    number = Decimal(str(value)) if isinstance(value, int | float | str) else value
    if not isinstance(number, Decimal) or not number.is_finite():
        raise ValueError(f"{value!r} is no decimal")
    return Decimal(str(pa.scalar(number, type=pa.decimal128(precision, scale)).as_py()))


def _whole_us(text: str, column_type: str = "timestamp") -> str:
    if is_finer(text):
        raise ValueError(f"{text!r} is finer than a microsecond, which a {column_type} is not")
    return text


def _date(value: object) -> object:
    return date.fromisoformat(value) if isinstance(value, str) else value


def _time(value: object) -> object:
    if not isinstance(value, str):
        return value
    parsed = time.fromisoformat(_whole_us(value, "time"))
    if parsed.tzinfo is not None:
        raise ValueError(f"{value!r} has an offset; the column has none")
    return parsed


def _timestamp(value: object) -> object:
    moment = datetime.fromisoformat(_whole_us(value)) if isinstance(value, str) else value
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        raise ValueError(f"{value!r} has an offset; the column has none")
    return moment


def _timestamptz(value: object) -> object:
    moment = datetime.fromisoformat(_whole_us(value)) if isinstance(value, str) else value
    if isinstance(moment, datetime) and moment.tzinfo is None:
        raise ValueError(f"{value!r} has no offset; the column needs one")
    return moment.astimezone(UTC) if isinstance(moment, datetime) else moment


_CONVERT: Mapping[str, Callable[[object], object]] = {
    "date": _date, "time": _time, "timestamp": _timestamp, "timestamptz": _timestamptz,
    "json": json_text,
}  # fmt: skip


def text_value(text: object, column_type: str) -> object:
    """What a CSV field says for a column of this type.

    Text that does not say it stays text, and so does not fit.
    """
    if not isinstance(text, str) or column_type in ("string", "json"):
        return text
    if column_type == "boolean":
        return _BOOLEANS.get(text.lower(), text)
    if column_type in ("int", "long", "float", "double") and INTEGER.fullmatch(text):
        return int(text)
    if column_type in ("float", "double") and NUMBER.fullmatch(text):
        number = float(text)
        return text if math.isinf(number) else number
    return text


def picked(values: Values, positions: Sequence[int]) -> list[object]:
    """The values at some positions, as Python values."""
    if isinstance(values, pa.Array):
        return python_values(values.take(pa.array(positions, pa.int64())))
    return [values[position] for position in positions]
