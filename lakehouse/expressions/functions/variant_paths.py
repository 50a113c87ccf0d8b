"""`variant_get(v, '$.a[0]', 'bigint')`: what lies at a path of a variant, as a type.

It gives what Spark's function of that name gives, or an error: of the casts of Spark there is that
of numbers to doubles alone.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakehouse.expressions.transforms.partition_transforms import Datum, constant_of
from lakehouse.spec.types.arrow_types import VARIANT
from lakehouse.spec.types.variant_values import decode_variant

_ESCAPES = {number: f"\\u{number:04x}" for number in range(32)} | {
    ord(plain): f"\\{escape}" for plain, escape in zip("\b\t\n\f\r'\\", "btnfr'\\", strict=True)
}
_STEP = re.compile(r"""\.([^.\['"]+)|\[(\d+)\]|\['([^']*)'\]|\["([^"]*)"\]""")


def variant_get(data: Datum, path: Datum, kind: Datum) -> Datum:
    """Values of an Arrow column of variants; null where there is nothing, or the variant's null.

    Args:
        data: variants, as `struct<metadata: binary, value: binary>`.
        path: a constant: `$`, then `.name`, `['name']` and `[number]`.
        kind: a constant, a name of `TYPES`.

    Raises:
        TypeError: no variants, or a path or type that is none of these.
        ArrowInvalid: a value of another kind, or beyond the type's range.
    """
    if data.type != VARIANT:
        raise TypeError(f"it is for variants, not for {data.type}")
    steps = _steps(str(constant_of(path, "the path")))
    name = str(constant_of(kind, "the type")).lower()
    if name not in TYPES:
        raise TypeError(f"the type must be one of {', '.join(TYPES)}")

    def value_in(variant: dict[str, bytes] | None) -> Any:
        value = None if variant is None else _at(decode_variant(**variant), steps)
        return None if value is None else taken(value, name)

    return pa.array([value_in(variant) for variant in data.to_pylist()], TYPES[name][0])


def normalized_path(path: str) -> str | None:
    """A path as manifests spell it in the bounds of variants (RFC 9535, normalized path).

    None where it leads into an array: their bounds are those of all elements, without a number.

    Example:
        >>> normalized_path("$.a['b c']")
        "$['a']['b c']"
    """
    names = names_in(path)
    return None if names is None else normalized(names)


def normalized(names: Iterable[str]) -> str:
    """The normalized path of names below each other."""
    return "$" + "".join(f"['{name.translate(_ESCAPES)}']" for name in names)


def names_in(path: str) -> list[str] | None:
    """The names that a path consists of; None where it leads into an array."""
    steps = _steps(path)
    names = [step for step in steps if isinstance(step, str)]
    return names if len(names) == len(steps) else None


def taken(value: Any, kind: str) -> Any:
    """A value as `variant_get` gives it.

    Args:
        value: of a variant.
        kind: a name of `TYPES`.

    Raises:
        ArrowInvalid: a value of another kind, or beyond the type's range.
    """
    try:
        return TYPES[kind][1](value)
    except (TypeError, ArithmeticError, ValueError) as error:
        raise pa.ArrowInvalid(f"{str(value)[:80]!r} is no {kind}") from error


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    at = 1
    while path.startswith("$") and (step := _STEP.match(path, at)):
        name, number, single, double = step.groups()
        steps.append(int(number) if number else next(
            key for key in (name, single, double) if key is not None
        ))  # fmt: skip
        at = step.end()
    if path[:1] != "$" or at != len(path):
        raise TypeError("the path must be like $.name['a name'][0]")
    return steps


def _at(value: Any, steps: list[str | int]) -> Any:
    """What lies there; None where nothing does."""
    for step in steps:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def _only(kind: type) -> Callable[[Any], Any]:
    def take(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError
        return value

    return take


def _moment(*, zoned: bool) -> Callable[[Any], dt.datetime]:
    def take(value: Any) -> dt.datetime:
        if not isinstance(value, dt.datetime) or (value.tzinfo is not None) != zoned:
            raise TypeError
        return value

    return take


def _whole(bits: int) -> Callable[[Any], int]:
    def take(value: Any) -> int:
        number = int(_only(int)(value))
        if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
            raise OverflowError
        return number

    return take


def _double(value: Any) -> float:
    if type(value) not in (int, float, Decimal):
        raise TypeError
    return float(value)


TYPES: dict[str, tuple[pa.DataType, Callable[[Any], Any]]] = {
    "boolean": (pa.bool_(), _only(bool)),
    "smallint": (pa.int64(), _whole(16)),
    "int": (pa.int64(), _whole(32)),
    "bigint": (pa.int64(), _whole(64)),
    "double": (pa.float64(), _double),
    "string": (pa.string(), _only(str)),
    "date": (pa.date32(), _only(dt.date)),
    "timestamp": (pa.timestamp("us", "UTC"), _moment(zoned=True)),
    "timestamp_ntz": (pa.timestamp("us"), _moment(zoned=False)),
    "binary": (pa.binary(), _only(bytes)),
}
"""By the names of Spark: the Arrow type, and what makes a value of it."""
