"""Functions and operators that filters may use, on Arrow arrays.

Only what Spark and DuckDB compute alike is here; where they differ (docs/filters.md), the
function is left out or, for division by zero, gives null. Integers that overflow are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.expressions.functions.bounding_boxes import bbox_intersects
from lakehouse.expressions.functions.sql_casts import cast_data
from lakehouse.expressions.functions.variant_paths import variant_get
from lakehouse.expressions.transforms.partition_transforms import Datum, constant_of

# Functions of dates and timestamps: exact for every value, also where Arrow's calendar ends.


def _parts(data: Datum) -> tuple[pa.Array, Any, Any]:
    """As an array, the days since 1970 and the seconds of the day."""
    array = data if isinstance(data, pa.Array) else pa.repeat(data, 1)
    if pa.types.is_date32(array.type):
        days = np.asarray(array.view(pa.int32()).fill_null(0)).astype(np.int64)
        return array, days, np.zeros(len(array), np.int64)
    if not pa.types.is_timestamp(array.type):
        raise TypeError(f"it is for dates and timestamps, not for {array.type}")
    second = _TICKS[array.type.unit]
    ticks = np.asarray(array.view(pa.int64()).fill_null(0))
    return array, ticks // (86_400 * second), ticks // second % 86_400


_TICKS = {"us": 1_000_000, "ns": 1_000_000_000}


def _calendar(part: Callable[[Any, Any], Any]) -> Callable[[Datum], Datum]:
    """A number made of the days since 1970 and the seconds of the day."""

    def compute(data: Datum) -> Datum:
        array, days, seconds = _parts(data)
        numbers = pa.array(np.asarray(part(days, seconds)).astype(np.int64), mask=_mask(array))
        return numbers if isinstance(data, pa.Array) else numbers[0]

    return compute


def _date(data: Datum) -> Datum:
    return _calendar(lambda days, _: days)(data).cast(pa.int32()).cast(pa.date32())


def _mask(array: pa.Array) -> Any:
    return np.asarray(array.is_null()) if array.null_count else None


def _months(days: Any) -> Any:
    """Months since January 1970."""
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def _first_of(months: Any) -> Any:
    """The first day of a month."""
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _week(days: Any, _: Any) -> Any:
    """By ISO 8601: that of the Thursday of the week."""
    thursday = days - (days + 3) % 7 + 3
    return (thursday - _first_of(_months(thursday) // 12 * 12)) // 7 + 1


def _truncated(days: Any, seconds: Any, unit: str) -> tuple[Any, Any]:
    if unit in _SECONDS:
        return days, seconds - seconds % _SECONDS[unit]
    if unit == "week":
        return days - (days + 3) % 7, 0
    months = _months(days)
    return (days if unit == "day" else _first_of(months - months % _MONTHS[unit])), 0


_SECONDS = {"hour": 3600, "minute": 60, "second": 1}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
UNITS = (*_MONTHS, "week", "day", *_SECONDS)
"""What times can be cut to, for `date_trunc`."""


def date_trunc(unit: Datum, data: Datum) -> Datum:
    """Cut to the start of a unit, one of `UNITS`."""
    name = str(constant_of(unit, "the unit")).lower()
    if name not in UNITS:
        raise TypeError(f"the unit must be one of {', '.join(UNITS)}")
    array, days, seconds = _parts(data)
    days, seconds = _truncated(days, seconds, name)
    if pa.types.is_date32(array.type):
        truncated = pa.array(days, pa.int64(), mask=_mask(array)).cast(pa.int32())
    else:
        ticks = pa.array(days, pa.int64()), pa.array(seconds + 0 * days, pa.int64())
        second = _TICKS[array.type.unit]
        day = pc.multiply_checked(ticks[0], pa.scalar(86_400 * second))
        summed = pc.add_checked(day, pc.multiply_checked(ticks[1], pa.scalar(second)))
        truncated = pc.if_else(array.is_null(), pa.scalar(None, pa.int64()), summed)
    truncated = truncated.view(array.type)
    return truncated if isinstance(data, pa.Array) else truncated[0]


def shift(data: Datum, micros: Datum) -> Datum:
    """A date or timestamp and microseconds; a date becomes a timestamp."""
    stamp = pc.cast(data, pa.timestamp("us")) if pa.types.is_date(data.type) else data
    if not pa.types.is_timestamp(stamp.type):
        raise TypeError(f"there is no interval to add to {data.type}")
    factor = _TICKS[stamp.type.unit] // 1_000_000
    ticks = pa.scalar(int(constant_of(micros, "the interval")) * factor, pa.int64())
    return pc.cast(pc.add_checked(pc.cast(stamp, pa.int64()), ticks), stamp.type)


DATE_PARTS: Mapping[str, Callable[[Datum], Datum]] = {
    "date": _date,
    "year": _calendar(lambda days, _: _months(days) // 12 + 1970),
    "quarter": _calendar(lambda days, _: _months(days) % 12 // 3 + 1),
    "month": _calendar(lambda days, _: _months(days) % 12 + 1),
    "week": _calendar(_week),
    "day": _calendar(lambda days, _: days - _first_of(_months(days)) + 1),
    "dayofyear": _calendar(lambda days, _: days - _first_of(_months(days) // 12 * 12) + 1),
    "isodow": _calendar(lambda days, _: (days + 3) % 7 + 1),
    "hour": _calendar(lambda _, seconds: seconds // 3600),
    "minute": _calendar(lambda _, seconds: seconds // 60 % 60),
    "second": _calendar(lambda _, seconds: seconds % 60),
}
"""By name: the date, and the fields of the calendar as integers."""


Kernel = Callable[..., Datum]


@dataclass(frozen=True, slots=True)
class Function:
    """What a call computes.

    Attributes:
        compute: Arrow data in, Arrow data out; constants come as scalars. Raises
            `pa.ArrowException` or `TypeError` for types that it does not apply to, and for
            values beyond its range.
        least, most: arguments; `most` None is any number.
        strict: whether the result is null wherever an argument is.
        alike: whether a literal among the arguments takes the type of the others.
        public: whether users may write it as `name(...)`.
    """

    compute: Kernel
    least: int = 1
    most: int | None = 1
    strict: bool = True
    alike: bool = False
    public: bool = True


def type_of(data: Sequence[Datum]) -> pa.DataType:
    """The type in which values of different types are compared; null counts as any.

    Raises:
        TypeError: they have nothing in common.
    """
    kinds = list(dict.fromkeys(array.type for array in data if not pa.types.is_null(array.type)))
    if not kinds:
        return pa.null()
    if len(kinds) == 1:
        return kinds[0]
    for kind in (pa.float64(), pa.float32()):
        if kind in kinds and all(_is_number(other) for other in kinds):
            return kind
    if all(pa.types.is_integer(kind) for kind in kinds):
        return pa.int64()
    if all(pa.types.is_integer(kind) or pa.types.is_decimal(kind) for kind in kinds):
        return _common_decimal([_as_decimal(kind) for kind in kinds])
    if all(_is_binary(kind) for kind in kinds):
        return pa.binary()
    if all(pa.types.is_temporal(kind) for kind in kinds):
        return _common_time(kinds)
    raise TypeError(
        f"{' and '.join(str(kind) for kind in kinds)} cannot be compared: cast one of them"
    )


def _common_decimal(kinds: Sequence[pa.DataType]) -> pa.DataType:
    scale = max(kind.scale for kind in kinds)
    digits = max(kind.precision - kind.scale for kind in kinds)
    if digits + scale > _DECIMAL_DIGITS:
        raise TypeError(
            f"{' and '.join(map(str, kinds))} together need more than 38 digits: cast one of them"
        )
    return pa.decimal128(digits + scale, scale)


def _common_time(kinds: Sequence[pa.DataType]) -> pa.DataType:
    stamps = [kind for kind in kinds if pa.types.is_timestamp(kind)]
    others = [kind for kind in kinds if kind not in stamps]
    if (
        stamps
        and all(pa.types.is_date(kind) for kind in others)
        and len({stamp.tz for stamp in stamps}) == 1
    ):
        return pa.timestamp(
            "ns" if any(stamp.unit == "ns" for stamp in stamps) else "us", stamps[0].tz
        )
    raise TypeError(
        f"{' and '.join(str(kind) for kind in kinds)} cannot be compared: cast one of them"
    )


_DECIMAL_DIGITS = 38


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _as_decimal(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(kind):
        return kind
    return pa.decimal128(10 if kind.bit_width <= 32 else 19, 0)


def _alike(data: Sequence[Datum]) -> list[Datum]:
    kind = type_of(data)
    # an integer becomes the nearest floating point number, as in every engine
    return [
        datum if datum.type == kind else pc.cast(datum, kind, safe=not pa.types.is_floating(kind))
        for datum in data
    ]


# Comparisons: NaN equals itself and is above every other number.


def _less(left: Datum, right: Datum) -> Datum:
    if not pa.types.is_floating(left.type):
        return pc.less(left, right)
    beside_nan = pc.and_kleene(pc.is_nan(right), pc.invert(pc.is_nan(left)))
    return pc.or_kleene(pc.less(left, right), beside_nan)


def _equal(left: Datum, right: Datum) -> Datum:
    if not pa.types.is_floating(left.type):
        return pc.equal(left, right)
    return pc.or_kleene(pc.equal(left, right), pc.and_kleene(pc.is_nan(left), pc.is_nan(right)))


def _comparison(name: str) -> Kernel:
    def compare(*given: Datum) -> Datum:
        left, right = _alike(given)
        if pa.types.is_boolean(left.type):
            left, right = (pc.cast(side, pa.int8()) for side in (left, right))
        elif pa.types.is_fixed_size_binary(left.type):
            left, right = (pc.cast(side, pa.binary()) for side in (left, right))
        elif pa.types.is_nested(left.type):
            raise TypeError("structs, lists and maps cannot be compared")
        return _COMPARISONS[name](left, right)

    return compare


_COMPARISONS: Mapping[str, Kernel] = {
    "=": _equal,
    "!=": lambda left, right: pc.invert(_equal(left, right)),
    "<": _less,
    ">=": lambda left, right: pc.invert(_less(left, right)),
    ">": lambda left, right: _less(right, left),
    "<=": lambda left, right: pc.invert(_less(right, left)),
}


def _same(left: Datum, right: Datum) -> Datum:
    """`is not distinct from`: null equals null."""
    equal = pc.coalesce(_comparison("=")(left, right), pa.scalar(False))
    return pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right)))


def _is_in(given: Datum, *values: Datum) -> Datum:
    return reduce(pc.or_kleene, (_comparison("=")(given, value) for value in values))


def _is_listed(given: Datum, values: pa.Array) -> Datum:
    """Whether a value is one of many constants."""
    array = pc.cast(given, pa.binary()) if pa.types.is_fixed_size_binary(given.type) else given
    return pc.if_else(pc.is_null(given), pa.scalar(None, pa.bool_()), pc.is_in(array, values))


# Numbers


def _arithmetic(kernel: Kernel) -> Kernel:
    def compute(*given: Datum) -> Datum:
        kind = type_of(given)
        if not _is_number(kind):
            raise TypeError(f"there is no arithmetic of {kind}")
        if pa.types.is_decimal(kind):
            return kernel(*(pc.cast(array, _as_decimal(array.type)) for array in given))
        wide = kind if pa.types.is_floating(kind) else pa.int64()
        return kernel(*(pc.cast(array, wide, safe=False) for array in given))

    return compute


def _divide(left: Datum, right: Datum) -> Datum:
    above, below = (pc.cast(side, pa.float64(), safe=False) for side in (left, right))
    return pc.divide(above, _not_zero(below))


def _whole_divide(left: Datum, right: Datum) -> Datum:
    return pc.divide_checked(_integer(left), _not_zero(_integer(right)))


def _remainder(left: Datum, right: Datum) -> Datum:
    above, below = _integer(left), _integer(right)
    # the smallest integer by -1 does not fit, its remainder does
    by = pc.if_else(pc.equal(below, -1), pa.scalar(1, pa.int64()), _not_zero(below))
    return pc.subtract(above, pc.multiply(pc.divide(above, by), by))


def _not_zero(data: Datum) -> Datum:
    return pc.if_else(pc.equal(data, pa.scalar(0, data.type)), pa.scalar(None, data.type), data)


def _integer(data: Datum) -> Datum:
    if not pa.types.is_integer(data.type) and not pa.types.is_null(data.type):
        raise TypeError(f"it is for integers, not for {data.type}")
    return pc.cast(data, pa.int64())


def _rounding(kernel: Kernel) -> Kernel:
    def compute(data: Datum, *rest: Datum) -> Datum:
        if pa.types.is_integer(data.type) and not rest:
            return data
        if pa.types.is_decimal(data.type) and data.type.precision < _DECIMAL_DIGITS:
            # 9.9 becomes 10.0
            data = pc.cast(data, pa.decimal128(data.type.precision + 1, data.type.scale))
        return kernel(data, *rest)

    return compute


def _round(data: Datum, digits: Datum | None = None) -> Datum:
    if pa.types.is_integer(data.type):
        raise TypeError("it is for numbers with a fraction")
    places = 0 if digits is None else int(constant_of(digits, "the number of digits"))
    return pc.round(data, places, round_mode="half_towards_infinity")


def _most(pick: Kernel) -> Kernel:
    def compute(*given: Datum) -> Datum:
        return reduce(lambda one, other: _picked(pick, one, other), _alike(given))

    return compute


def _picked(pick: Kernel, one: Datum, other: Datum) -> Datum:
    better = pc.or_kleene(pc.is_null(one), pick(other, one))
    return pc.if_else(pc.coalesce(better, pa.scalar(False)), other, one)


# Conditions


def _coalesce(*given: Datum) -> Datum:
    return pc.coalesce(*_alike(given))


def _null_if(data: Datum, value: Datum) -> Datum:
    same = pc.coalesce(_comparison("=")(data, value), pa.scalar(False))
    return pc.if_else(same, pa.scalar(None, data.type), data)


def _case(*given: Datum) -> Datum:
    """Conditions and results in turn, then what it is where none is true."""
    pairs = list(zip(given[:-1:2], given[1::2], strict=False))
    default = given[-1] if len(given) % 2 else pa.scalar(None)
    *results, chosen = _alike([*(result for _, result in pairs), default])
    for (condition, _), result in reversed(list(zip(pairs, results, strict=True))):
        chosen = pc.if_else(pc.coalesce(condition, pa.scalar(False)), result, chosen)
    return chosen


def _logic(kernel: Kernel) -> Kernel:
    return lambda *given: reduce(kernel, (pc.cast(array, pa.bool_()) for array in given))


# Text


def _text(data: Datum) -> Datum:
    if not pa.types.is_string(data.type):
        raise TypeError(f"it is for text, not for {data.type}")
    return data


def _of_text(kernel: Kernel) -> Kernel:
    return lambda data: kernel(_text(data))


def _with_pattern(kernel: Kernel) -> Kernel:
    return lambda data, pattern: kernel(_text(data), constant_of(pattern, "the pattern"))


def _like(data: Datum, pattern: Datum, *, ignore_case: bool = False) -> Datum:
    return pc.match_like(_text(data), constant_of(pattern, "the pattern"), ignore_case=ignore_case)


def _substring(data: Datum, start: Datum, length: Datum | None = None) -> Datum:
    first = _count(start, "the start", 1) - 1
    stop = None if length is None else first + _count(length, "the length", 0)
    return pc.utf8_slice_codeunits(_text(data), first, stop)


def _left(data: Datum, length: Datum) -> Datum:
    return pc.utf8_slice_codeunits(_text(data), 0, _count(length, "the length", 0))


def _right(data: Datum, length: Datum) -> Datum:
    count = _count(length, "the length", 0)
    return pc.utf8_slice_codeunits(_text(data), -count if count else _LONGEST_TEXT)


_LONGEST_TEXT = 2**31 - 1


def _count(data: Datum, what: str, least: int) -> int:
    number = int(constant_of(data, what))
    if number < least:
        raise TypeError(f"{what} must be at least {least}")
    return number


def _uuid_text(data: Datum) -> Datum:
    array = data if isinstance(data, pa.Array) else pa.repeat(data, 1)
    texts = [None if value is None else str(UUID(bytes=value)) for value in array.to_pylist()]
    column = pa.array(texts, pa.string())
    return column if isinstance(data, pa.Array) else column[0]


def _replace(data: Datum, old: Datum, new: Datum) -> Datum:
    pattern = constant_of(old, "what is replaced")
    if not pattern:
        raise TypeError("what is replaced must not be empty")
    return pc.replace_substring(_text(data), pattern, constant_of(new, "the replacement"))


def _joined(*given: Datum) -> Datum:
    return pc.binary_join_element_wise(*(_text(array) for array in given), "")


# What a null test asks is any value: of structs, lists and maps too.
_PREDICATES: dict[str, Function] = {
    **{name: Function(_comparison(name), 2, 2, public=False) for name in _COMPARISONS},
    "same": Function(_same, 2, 2, strict=False, public=False),
    "in": Function(_is_in, 2, None, strict=False, public=False),
    "listed": Function(_is_listed, 2, 2, public=False),
    "and": Function(_logic(pc.and_kleene), 1, None, strict=False, public=False),
    "or": Function(_logic(pc.or_kleene), 1, None, strict=False, public=False),
    "not": Function(pc.invert, public=False),
    "is null": Function(partial(pc.is_null, nan_is_null=False), strict=False, public=False),
    "is nan": Function(pc.is_nan, public=False),
    "unless null": Function(
        lambda data, value: pc.if_else(pc.is_valid(data), value, pa.scalar(None, pa.bool_())),
        2, 2, public=False,
    ),
    "like": Function(_like, 2, 2, public=False),
    "ilike": Function(partial(_like, ignore_case=True), 2, 2, public=False),
    "starts_with": Function(_with_pattern(pc.starts_with), 2, 2),
    "ends_with": Function(_with_pattern(pc.ends_with), 2, 2),
    "contains": Function(_with_pattern(pc.match_substring), 2, 2),
    "regexp_like": Function(_with_pattern(pc.match_substring_regex), 2, 2),
}  # fmt: skip
FUNCTIONS: Mapping[str, Function] = {
    **_PREDICATES,
    "+": Function(_arithmetic(pc.add_checked), 2, 2, alike=True, public=False),
    "-": Function(_arithmetic(pc.subtract_checked), 2, 2, alike=True, public=False),
    "*": Function(_arithmetic(pc.multiply_checked), 2, 2, alike=True, public=False),
    "/": Function(_divide, 2, 2, alike=True, public=False),
    "//": Function(_whole_divide, 2, 2, alike=True, public=False),
    "%": Function(_remainder, 2, 2, alike=True, public=False),
    "negative": Function(_arithmetic(pc.negate_checked), public=False),
    "abs": Function(_arithmetic(pc.abs_checked)),
    "sign": Function(lambda data: pc.cast(pc.sign(data), pa.int64())),
    "floor": Function(_rounding(pc.floor)),
    "ceil": Function(_rounding(pc.ceil)),
    "round": Function(_rounding(_round), 1, 2),
    "greatest": Function(
        _most(lambda one, other: _less(other, one)), 2, None, strict=False, alike=True
    ),
    "least": Function(_most(_less), 2, None, strict=False, alike=True),
    "coalesce": Function(_coalesce, 1, None, strict=False, alike=True),
    "nullif": Function(_null_if, 2, 2, strict=False, alike=True),
    "if": Function(_case, 3, 3, strict=False, alike=True),
    "case": Function(_case, 2, None, strict=False, alike=True, public=False),
    "cast": Function(partial(cast_data, strict=True), 2, 2, public=False),
    "try_cast": Function(partial(cast_data, strict=False), 2, 2, strict=False, public=False),
    "widen": Function(partial(cast_data, strict=True), 2, 2, public=False),
    "uuid text": Function(_uuid_text, public=False),
    "upper": Function(_of_text(pc.utf8_upper)),
    "lower": Function(_of_text(pc.utf8_lower)),
    "length": Function(lambda data: pc.cast(pc.utf8_length(_text(data)), pa.int64())),
    "trim": Function(_of_text(partial(pc.utf8_trim, characters=" "))),
    "ltrim": Function(_of_text(partial(pc.utf8_ltrim, characters=" "))),
    "rtrim": Function(_of_text(partial(pc.utf8_rtrim, characters=" "))),
    "substring": Function(_substring, 2, 3),
    "left": Function(_left, 2, 2),
    "right": Function(_right, 2, 2),
    "replace": Function(_replace, 3, 3),
    "||": Function(_joined, 2, None, public=False),
    **{name: Function(part) for name, part in DATE_PARTS.items()},
    "date_trunc": Function(date_trunc, 2, 2),
    "variant_get": Function(variant_get, 3, 3),
    "bbox_intersects": Function(bbox_intersects, 5, 5),
    "shift": Function(shift, 2, 2, public=False),
}
"""By name. Those that are not public are what operators and predicates of SQL become."""
