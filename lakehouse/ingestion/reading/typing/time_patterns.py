"""Times as other feeds spell them: Spark's datetime patterns, read by column.

https://spark.apache.org/docs/latest/sql-ref-datetime-pattern.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.errors import InvalidInputError

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_SHORT = tuple(name[:3] for name in _MONTHS)
# letters of a pattern -> the field, and the text that it stands for
_LETTERS: Mapping[str, tuple[str, str]] = {
    "yyyy": ("year", "[0-9]{4}"), "uuuu": ("year", "[0-9]{4}"), "y": ("year", "[0-9]{4}"),
    "yy": ("year2", "[0-9]{2}"),
    "MM": ("month", "[0-9]{2}"), "M": ("month", "[0-9]{1,2}"),
    "MMM": ("short_month", f"(?i:{'|'.join(_SHORT)})"),
    "MMMM": ("month_name", f"(?i:{'|'.join(_MONTHS)})"),
    "dd": ("day", "[0-9]{2}"), "d": ("day", "[0-9]{1,2}"),
    "HH": ("hour", "[0-9]{2}"), "H": ("hour", "[0-9]{1,2}"),
    "hh": ("hour12", "0[1-9]|1[0-2]"), "h": ("hour12", "[1-9]|1[0-2]"), "a": ("half", "(?i:AM|PM)"),
    "mm": ("minute", "[0-9]{2}"), "m": ("minute", "[0-9]{1,2}"),
    "ss": ("second", "[0-9]{2}"), "s": ("second", "[0-9]{1,2}"),
    "XXX": ("offset", "Z|[+-][0-9]{2}:[0-9]{2}"), "xxx": ("offset", "[+-][0-9]{2}:[0-9]{2}"),
    "XX": ("offset", "Z|[+-][0-9]{4}"), "xx": ("offset", "[+-][0-9]{4}"),
    "X": ("offset", "Z|[+-][0-9]{2}"), "x": ("offset", "[+-][0-9]{2}"),
    "Z": ("offset", "[+-][0-9]{4}"),
}  # fmt: skip
_TOKEN = re.compile(r"''|'((?:[^']|'')+)'|(([A-Za-z])\3*)|(.)", re.DOTALL)
_MOST_FRACTION = 9


@dataclass(frozen=True, slots=True)
class TimePattern:
    """A pattern of times.

    Attributes:
        option: that it was given by.
        text: as it was given.
        regex: that the whole of a text matches; its groups are the fields.
        fields: that it has.
    """

    option: str
    text: str
    regex: str
    fields: frozenset[str]

    @staticmethod
    @lru_cache(maxsize=256)
    def parsed(option: str, text: str) -> TimePattern:
        """The pattern that an option was given.

        Raises:
            InvalidInputError: it names the option and what of it is no pattern.
        """
        return _parsed(option, text)

    @property
    def has_time(self) -> bool:
        """Whether it tells a time of day."""
        return bool(self.fields & {"hour", "hour12"})

    @property
    def has_offset(self) -> bool:
        """Whether it tells an offset from UTC."""
        return "offset" in self.fields

    def iso(self, texts: pa.Array, *, as_date: bool = False) -> pa.Array:
        """The texts as ISO 8601 spells them; null for a text that does not match.

        A day that does not exist (the 30th of February) is spelled like one.

        Args:
            texts: text.
            as_date: without a time of day.
        """
        # RE2 names no group twice, so nor does a pattern; those that are left out are ""
        matches = pc.extract_regex(texts, f"^(?:{self.regex})$")
        parts = {name: matches.field(at) for at, name in enumerate(matches.type.names)}
        if "year2" in parts:
            parts["year"] = _joined("20", parts["year2"])
        for name, months in (("short_month", _SHORT), ("month_name", _MONTHS)):
            if name in parts:
                number = pc.index_in(pc.utf8_capitalize(parts[name]), pa.array(months))
                parts["month"] = pc.cast(pc.add(number, 1), pa.string())
        date = _joined(parts["year"], "-", _two(parts["month"]), "-", _two(parts["day"]))
        if not as_date:
            clock = _joined(
                "T", _hour(parts), ":", _two(parts.get("minute")), ":", _two(parts.get("second"))
            )
            date = _joined(date, clock, _fraction(parts), _offset(parts))
        matched = matches.is_valid()
        return pc.if_else(matched, date, pa.scalar(None, pa.string()))


def _parsed(option: str, text: str) -> TimePattern:
    def refused(why: str) -> InvalidInputError:
        return InvalidInputError(
            f"{option}={text!r}: {why}; a pattern is such as 'dd.MM.yyyy HH:mm:ss'", option=option
        )

    regex, fields, depth = "", set[str](), 0
    for token in _TOKEN.finditer(text):
        quoted, letters, sign = token[1], token[2], token[4]
        if letters:
            name, form = _LETTERS.get(letters, ("", ""))
            if set(letters) == {"S"} and len(letters) <= _MOST_FRACTION:
                name, form = "fraction", f"[0-9]{{{len(letters)}}}"
            if not name:
                raise refused(f"it has no letters {letters!r}")
            if name in fields:
                raise refused(f"{letters!r} stands twice")
            fields.add(name)
            regex += f"(?P<{name}>{form})"
        elif sign == "[":
            regex, depth = regex + "(?:", depth + 1
        elif sign == "]":
            regex, depth = regex + ")?", depth - 1
            if depth < 0:
                raise refused("']' closes nothing")
        elif sign is not None and sign in "{}#'":
            raise refused(f"{sign!r} has to stand in quotes")
        else:
            regex += re.escape(sign if sign is not None else (quoted or "'").replace("''", "'"))
    if depth:
        raise refused("'[' is not closed")
    if why := _incomplete(fields):
        raise refused(why)
    return TimePattern(option, text, regex, frozenset(fields))


def _incomplete(fields: set[str]) -> str | None:
    """What is wrong with the fields of a pattern taken together."""
    for names, what in (
        (("year", "year2"), "one year (yyyy)"),
        (("month", "short_month", "month_name"), "one month (MM)"),
        (("day",), "one day (dd)"),
    ):
        if len(fields & set(names)) != 1:
            return f"it has to have {what}"
    if ("hour12" in fields) != ("half" in fields) or {"hour", "hour12"} <= fields:
        return "hours are H, or h with a"
    determined = fields | ({"hour"} if "hour12" in fields else set())
    for name, needed in (
        ("minute", "hour"), ("second", "minute"), ("fraction", "second"), ("offset", "hour"),
    ):  # fmt: skip
        if name in determined and needed not in determined:
            return f"{name} needs {needed}"
    return None


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _two(digits: pa.Array | None) -> pa.Array | str:
    return "00" if digits is None else pc.utf8_lpad(digits, 2, "0")


def _hour(parts: Mapping[str, pa.Array]) -> pa.Array | str:
    if "hour12" not in parts:
        return _two(parts.get("hour"))
    hours = pc.utf8_lpad(parts["hour12"], 2, "0")
    number = pc.index_in(hours, pa.array([f"{hour:02}" for hour in (12, *range(1, 12))]))
    later = pc.if_else(pc.equal(pc.utf8_upper(parts["half"]), "PM"), 12, 0)
    return pc.utf8_lpad(pc.cast(pc.add(number, later), pa.string()), 2, "0")


def _fraction(parts: Mapping[str, pa.Array]) -> pa.Array | str:
    digits = parts.get("fraction")
    if digits is None:
        return ""
    return pc.if_else(pc.equal(digits, ""), "", _joined(".", digits))


def _offset(parts: Mapping[str, pa.Array]) -> pa.Array | str:
    """`Z`, or hours and minutes with a colon."""
    offset = parts.get("offset")
    if offset is None:
        return ""
    whole = pc.replace_substring_regex(offset, r"^([+-]\d\d)$", r"\1:00")
    return pc.replace_substring_regex(whole, r"^([+-]\d\d)(\d\d)$", r"\1:\2")
