"""Any value as JSON text, and of it, no digit less: orjson keeps 64 bits."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal

import orjson
import pyarrow as pa
import pyarrow.compute as pc

# What orjson may read as another number, where a value begins (a string may look like one):
# integers beyond 64 bits, 16 digits around a point or before an exponent, and exponents at which
# doubles have fewer digits.
_LONG_NUMBER = (
    r"(?:^|[\[:,\s])(?:-?\d{19}|-?\d{16,}[.eE]|-?\d+(?:\.\d+)?[eE]-\d{3}|-?(?:"
    + "|".join(rf"\d{{{before}}}\.\d{{{16 - before}}}" for before in range(1, 16))
    + "))"
)
_HAS_LONG_NUMBER = re.compile(_LONG_NUMBER.encode()).search
_FRACTIONS_AND_LONG_INTEGERS = re.compile(
    r"[\[:,\s](-?\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE][+-]?\d+|(?<=\d{19})))"
).findall
_OPTIONS = orjson.OPT_NON_STR_KEYS
_DEEPEST = 254
"""Levels of nesting that a text may have, which orjson has, too; never what the stack has left:
finalizers that run at its end fail, too."""


class TooDeepError(ValueError):
    """The value is nested too deeply to be written, or read, as JSON."""

    def __init__(self) -> None:
        super().__init__("nested too deeply")


class LongFraction(float):
    """The double nearest to a number of a text whose digits say more; `str` gives the text."""

    text: str

    def __str__(self) -> str:
        return self.text


def exact_float(text: str) -> float:
    """The number of a JSON text, which a decimal or text column takes with all its digits."""
    number = float(text)
    shown = repr(number)
    if shown == text or math.isinf(number) or Decimal(shown) == Decimal(text):
        return number
    fraction = LongFraction(number)
    fraction.text = text
    return fraction


def exact_json(text: bytes) -> object:
    """The value of a JSON text, integers of any size and fractions of any length exact.

    NaN, Infinity and -Infinity are numbers, which JSON has not and Python and Spark write and read.

    Raises:
        ValueError: it is no JSON, is nested too deeply, or an integer has more than 4300 digits.
    """
    try:
        value: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        # within strings, too: that leaves them strings
        numbered = text.replace(b"NaN", b"0  ").replace(b"Infinity", b"0       ")
        if numbered == text:
            raise
        value = orjson.loads(numbered)
    else:
        if not _HAS_LONG_NUMBER(text):
            return value
    check_depth(value)
    return json.loads(text, parse_float=exact_float)


def inexact_lines(texts: Sequence[bytes]) -> list[int]:
    """Positions of the texts with a number that orjson reads as another one."""
    # Arrow's RE2 is ten times as fast as Python's `re` here
    long_numbers = pc.match_substring_regex(pa.array(texts, pa.large_binary()), _LONG_NUMBER)
    positions: list[int] = pc.indices_nonzero(long_numbers).to_pylist()
    if _are_kept(b"\n".join(texts[position] for position in positions)):
        return []
    return [position for position in positions if not _are_kept(texts[position])]


def _are_kept(text: bytes) -> bool:
    """Whether the long numbers of a text are integers of 64 bits, or what their doubles say."""
    return all(
        repr(float(number)) == number or _is_kept(number)
        for number in _FRACTIONS_AND_LONG_INTEGERS(" " + text.decode("latin-1"))
    )


def _is_kept(number: str) -> bool:
    if number.lstrip("-").isdecimal():
        return -(2**63) <= int(number) < 2**64
    return type(exact_float(number)) is float


def json_text(value: object) -> str:
    """The value as JSON text.

    Decimals are numbers with all their digits, bytes are base64, dates and times ISO 8601 text.

    Raises:
        TooDeepError: the value is nested too deeply.
        ValueError: JSON has no such number (NaN, infinity).
    """
    try:
        text = orjson.dumps(value, option=_OPTIONS).decode()
    except orjson.JSONEncodeError:
        return _written(value, strict=True, levels=_DEEPEST)
    # orjson writes null for a number that JSON has not
    return _written(value, strict=True, levels=_DEEPEST) if "null" in text else text


def rest_json(fields: Mapping[str, object]) -> str:
    """Fields as the text of a JSON object, by name; a number that JSON has not is its text.

    Raises:
        TooDeepError: a value is nested too deeply.
    """
    ordered = dict(sorted(fields.items()))
    try:
        return json_text(ordered)
    except TooDeepError:
        raise
    except ValueError:
        return json_text({name: _representable(value) for name, value in ordered.items()})


def _representable(value: object) -> object:
    try:
        json_text(value)
    except ValueError:
        return shown_json(value)
    return value


def shown_json(value: object) -> str:
    """The value for people to read: as `json_text` gives it, with NaN and Infinity spelled out."""
    try:
        return _written(value, strict=False, levels=_DEEPEST)
    except TooDeepError as error:
        return f"({error})"


def check_depth(value: object) -> None:
    """Find out whether a value is nested too deeply for a reader that recurses.

    Raises:
        TooDeepError: it is.
    """
    level = [value]
    for _ in range(_DEEPEST + 1):
        level = [inner for outer in level for inner in _inner(outer)]
        if not level:
            return
    raise TooDeepError


def _inner(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _written(value: object, *, strict: bool, levels: int) -> str:
    if isinstance(value, dict | list | tuple):
        if not levels:
            raise TooDeepError
        texts = [_written(inner, strict=strict, levels=levels - 1) for inner in _inner(value)]
        if isinstance(value, dict):
            items = [f"{_key(name)}:{text}" for name, text in zip(value, texts, strict=True)]
            return "{" + ",".join(items) + "}"
        return "[" + ",".join(texts) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        if strict:
            raise ValueError(f"{value} is no number in JSON")
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, LongFraction):
        return value.text
    if isinstance(value, bool) or not isinstance(value, int | Decimal | bytes):
        return orjson.dumps(value, option=_OPTIONS, default=str).decode()
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    return _decimal_text(value, strict=strict) if isinstance(value, Decimal) else str(value)


def _decimal_text(value: Decimal, *, strict: bool) -> str:
    if value.is_finite():
        return f"{value:f}"
    if strict:
        raise ValueError(f"{value} is no number in JSON")
    return str(value)


def _key(name: object) -> str:
    text = name.isoformat() if isinstance(name, date | datetime | time) else str(name)
    return orjson.dumps(text).decode()
