"""Any value as JSON text, no digit less: large integers and decimals are written out here."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from decimal import Decimal

import orjson

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
