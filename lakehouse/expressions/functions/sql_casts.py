"""`cast(x as type)`: exact or an error; `try_cast` gives null for what does not fit.

Typed literals (`date '2026-06-01'`) are casts of text.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
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
)

from lakehouse.errors import InvalidExpressionError
from lakehouse.expressions.transforms.partition_transforms import arrow_array, arrow_type
from lakehouse.expressions.typed_literals import Days, Instant, TimeOfDay, cast_literal, instant
from lakehouse.kept_by_bytes import short_only
from lakehouse.spec.schema.iceberg_types import type_from_name

_INTEGERS = (IntegerType, LongType)
_NUMBERS = (*_INTEGERS, FloatType, DoubleType, DecimalType)
_STAMPS = (TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)


def cast_data(data: Any, to: Any, *, strict: bool) -> Any:
    """Arrow data in another type; where not `strict`, null for what does not fit.

    Args:
        data: an array, or a scalar for a constant.
        to: the name of the type, as a scalar.
        strict: whether what does not fit is an error.

    Raises:
        TypeError: there is no such cast.
        ArrowException: a value does not fit.
    """
    kind = _kind(to.as_py())
    array = data if isinstance(data, pa.Array) else pa.repeat(data, 1)
    result = _cast(array, kind, strict=strict)
    return result if isinstance(data, pa.Array) else result[0]


@short_only(64)
def _kind(name: str) -> IcebergType:
    return type_from_name(name)


def _cast(array: pa.Array, kind: IcebergType, *, strict: bool) -> pa.Array:
    target = arrow_type(kind)
    if array.type == target or pa.types.is_null(array.type):
        return array.cast(target)
    if pa.types.is_string(array.type):
        return _parsed(array, kind, strict=strict)
    if not _has_cast(array.type, kind):
        raise TypeError(f"there is no cast of {array.type} to {kind}")
    if isinstance(kind, StringType):
        return _as_text(array)
    if isinstance(kind, DecimalType) and pa.types.is_integer(array.type):
        array = array.cast(pa.decimal128(19, 0))
    try:
        return pc.cast(array, target, safe=not isinstance(kind, FloatType | DoubleType))
    except pa.ArrowInvalid:
        if strict:
            raise
        return _parsed(array, kind, strict=False)


def _has_cast(given: pa.DataType, kind: IcebergType) -> bool:
    if isinstance(kind, StringType):
        return bool(
            pa.types.is_integer(given) or pa.types.is_boolean(given) or pa.types.is_date(given)
        )
    if isinstance(kind, _NUMBERS):
        to_integer = pa.types.is_boolean(given) and isinstance(kind, _INTEGERS)
        number = pa.types.is_integer(given) or pa.types.is_floating(given)
        return bool(number or pa.types.is_decimal(given) or to_integer)
    return isinstance(kind, _STAMPS) and bool(
        pa.types.is_date(given) or pa.types.is_timestamp(given)
    )


def _as_text(array: pa.Array) -> pa.Array:
    return array.cast(pa.string())


def _parsed(array: pa.Array, kind: IcebergType, *, strict: bool) -> pa.Array:
    """Value by value, each different one once: as literals are read."""
    encoded = array.dictionary_encode()
    values = [_value(value, kind, strict=strict) for value in encoded.dictionary.to_pylist()]
    return arrow_array(values, kind).take(encoded.indices)


def _value(given: Any, kind: IcebergType, *, strict: bool) -> Any:
    try:
        position = cast_literal(given, kind, "it")
    except InvalidExpressionError as error:
        if strict:
            raise pa.ArrowInvalid(f"{given!r} is no {kind}") from error
        return None
    if position.exact:
        return position.value
    if strict:
        raise pa.ArrowInvalid(f"{given!r} is no {kind}")
    return None


def typed_literal(text: str, kind: IcebergType) -> Any:
    """What `DATE '...'`, `TIMESTAMP '...'` and their like mean.

    A timestamp has a zone where its text has one; `TIMESTAMPTZ` without one is in UTC.

    Raises:
        InvalidExpressionError: the text is no value of the type.
    """
    if isinstance(kind, _STAMPS):
        try:
            moment = instant(text)
        except ValueError as error:
            raise InvalidExpressionError(f"{text!r} is no timestamp: {error}") from error
        return Instant(
            moment.nanos, moment.zoned or isinstance(kind, TimestamptzType | TimestamptzNanoType)
        )
    position = cast_literal(text, kind, "a literal")
    if not position.exact:
        raise InvalidExpressionError(f"{text!r} is no {kind}")
    if isinstance(kind, DateType):
        return Days(position.value)
    return TimeOfDay(position.value) if isinstance(kind, TimeType) else position.value
