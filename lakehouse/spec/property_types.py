"""What a property is: its name, how its text is read, its default, its meaning."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, overload

from lakehouse.errors import InvalidPropertyError

T = TypeVar("T")

LONG_MAX = 2**63 - 1


class PropertyView(Protocol):
    """Whatever has properties as attributes: `raw` holds them as text."""

    raw: Mapping[str, str]


class Property(Generic[T]):
    """One table property.

    Attributes:
        name: as in table metadata.
        default: its value where it is not set.
        meaning: what it does, one line.
    """

    def __init__(self, name: str, parse: Callable[[str], T], default: T, meaning: str) -> None:
        self.name = name
        self.default = default
        self.meaning = meaning
        self._parse = parse

    @overload
    def __get__(self, instance: None, owner: type[object]) -> Property[T]: ...

    @overload
    def __get__(self, instance: PropertyView, owner: type[object]) -> T: ...

    def __get__(self, instance: PropertyView | None, owner: type) -> Property[T] | T:
        return self if instance is None else self.read(instance.raw)

    def read(self, properties: Mapping[str, str]) -> T:
        """The value set in `properties`, else the default; raises InvalidPropertyError."""
        text = properties.get(self.name)
        if text is None:
            return self.default
        try:
            return self._parse(text)
        except ValueError as error:
            raise InvalidPropertyError(
                f"Property {self.name} = {text!r}: {error} Set another value, or remove the "
                "property.",
                property=self.name,
            ) from error


def _integer(text: str, least: int) -> int:
    if re.fullmatch(r"[+-]?\d{1,19}", text.strip()) is None:
        raise ValueError("must be an integer.")
    value = int(text)
    if not least <= value <= LONG_MAX:
        raise ValueError(f"must be at least {least} and fit a long.")
    return value


def natural(text: str) -> int:
    """An integer from 0."""
    return _integer(text, 0)


def positive(text: str) -> int:
    """An integer from 1."""
    return _integer(text, 1)


def fraction(text: str) -> float:
    """A number from 0 to 1."""
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError("must be between 0 and 1.")
    return value


def boolean(text: str) -> bool:
    """`true` or `false`, in any case."""
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("must be true or false.")
    return lowered == "true"


def optional_of(parse: Callable[[str], T]) -> Callable[[str], T | None]:
    """The same, for a property that has no default."""
    return parse


def optional_text(text: str) -> str | None:
    """The text; None where it is empty."""
    return text or None


def optional_integer(text: str) -> int | None:
    """An int; None where it is empty or `null`, as Java writes it."""
    return None if text.strip() in ("", "null") else _integer(text, -(2**31))


def hours_of_day(text: str) -> frozenset[int]:
    """`22-6,12-13`: hours from the first up to but without the last; empty: all of the day."""
    if not text.strip():
        return frozenset(range(24))
    hours: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,2})\s*-\s*(\d{1,2})\s*", part)
        if (
            found is None
            or int(found[1]) > 23
            or int(found[2]) > 24
            or int(found[1]) == int(found[2])
        ):
            raise ValueError("must be ranges of hours such as 22-6 or 1-5,12-13.")
        first, last = int(found[1]), int(found[2])
        hours.update(range(first, last) if first < last else (*range(first, 24), *range(last)))
    return frozenset(hours)


@dataclass(frozen=True, slots=True)
class AgeStep:
    """From which age on, counted from the end of a period, files have which partition terms."""

    age_ms: int
    terms: tuple[str, ...]


NO_STEPS: tuple[AgeStep, ...] = ()
_HOUR_MS = 3600 * 1000
_STEP = re.compile(r"\s*(\d{1,6})\s*([hd])\s*:\s*(\S.*?)\s*", re.DOTALL)
_COMMA = re.compile(r",(?![^()]*\))")


def layout_by_age(text: str) -> tuple[AgeStep, ...]:
    """`30d: month(ts); 400d: year(ts)`: ages in days or hours, growing, and partition terms."""
    steps: list[AgeStep] = []
    for part in text.split(";") if text.strip() else ():
        found = _STEP.fullmatch(part)
        if found is None:
            raise ValueError("must be ages and partition terms such as 30d: month(event_ts).")
        age_ms = int(found[1]) * _HOUR_MS * (24 if found[2] == "d" else 1)
        if steps and age_ms <= steps[-1].age_ms:
            raise ValueError("must have ages that grow from one layout to the next.")
        terms = tuple(one.strip() for one in _COMMA.split(found[3]))
        steps.append(AgeStep(age_ms, terms))
    return tuple(steps)


def one_of(*allowed: str) -> Callable[[str], str]:
    """One of these words, in lower case."""

    def parse(text: str) -> str:
        lowered = text.strip().lower()
        if lowered not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}.")
        return lowered

    return parse


def metrics_mode(text: str) -> str:
    """`none`, `counts`, `truncate(N)` or `full`."""
    lowered = re.sub(r"\s", "", text.lower())
    if lowered in ("none", "counts", "full") or re.fullmatch(r"truncate\([1-9]\d{0,8}\)", lowered):
        return lowered
    raise ValueError("must be none, counts, truncate(N) or full.")
