"""Text that stands for numbers and times, from a source's spelling into the usual one."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.ingestion.read_options import ReadOptions
from lakehouse.ingestion.reading.formats.record_chunks import Values
from lakehouse.ingestion.reading.typing.time_patterns import TimePattern

_STAMPS = ("timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
_NUMERIC = re.compile(r"int|long|float|double|decimal\(.*")
_OF_NUMBERS = frozenset({"decimal_separator", "thousands", "units", "accounting"})


@dataclass(frozen=True, slots=True)
class SpelledText:
    """What a source's options say of text.

    Attributes:
        options: of the source.
    """

    options: ReadOptions

    def usual(self, values: Values, column_type: str) -> tuple[Values, dict[int, str]]:
        """The values for a column, text in the spelling that every source has by default.

        Returns:
            The values, null for text that the options do not take; and for each such text its
            position and why not.
        """
        option = self.option_of(column_type)
        if option is None:
            return values, {}
        texts = _texts(values)
        if texts is None or texts.null_count == len(texts):
            return values, {}
        usual = self._respelled(texts, column_type)
        lost = pc.indices_nonzero(pc.and_(texts.is_valid(), usual.is_null())).to_pylist()
        bad = {at: f"{texts[at].as_py()!r} is no {column_type} by {option}" for at in lost}
        if isinstance(values, pa.Array):
            return usual, bad
        usual_values = usual.to_pylist()
        return [
            new if type(old) is str else old for old, new in zip(values, usual_values, strict=True)
        ], bad

    def option_of(self, column_type: str) -> str | None:
        """The options that set the notation of a column's values; None where none does."""
        options = self.options
        if column_type == "date" and options.date_format is not None:
            return f"date_format={options.date_format!r}"
        if column_type in _STAMPS and options.timestamp_format is not None:
            return f"timestamp_format={options.timestamp_format!r}"
        if _NUMERIC.fullmatch(column_type) and self.spells_numbers:
            names = options.used.keys() & _OF_NUMBERS
            return ", ".join(f"{name}={getattr(options, name)!r}" for name in sorted(names))
        return None

    @property
    def spells_numbers(self) -> bool:
        """Whether numbers have another notation than usual."""
        return not self.options.used.keys().isdisjoint(_OF_NUMBERS)

    def bare(self, texts: pa.Array) -> pa.Array:
        """Numbers without their unit, and with their sign before them."""
        if self.options.units:
            unit = f"(?:{'|'.join(map(re.escape, self.options.units))})"
            form = rf"^([+-]?\(?)\s*{unit}\s*|\s*{unit}\s*([)-]?)$"
            texts = pc.replace_substring_regex(texts, form, r"\1\2", max_replacements=1)
        if self.options.accounting:
            form = r"^\(\s*([^()+-]+?)\s*\)$|^([^()+-]+?)\s*-$"
            texts = pc.replace_substring_regex(texts, form, r"-\1\2")
        return texts

    def numbers(self, texts: pa.Array) -> pa.Array:
        """Numbers as usual, with a point and without groups; null for any other text."""
        point, group = re.escape(self.options.decimal_separator), self.options.thousands
        whole = r"[0-9]+"
        if group is not None:
            whole = rf"(?:{whole}|[0-9]{{1,3}}(?:{re.escape(group)}[0-9]{{3}})+)"
        form = rf"^[+-]?(?:{whole}(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?$"
        texts = self.bare(texts)
        text = pc.if_else(pc.match_substring_regex(texts, form), texts, pa.scalar(None, texts.type))
        if group is not None:
            text = pc.replace_substring(text, group, "")
        return pc.replace_substring(text, self.options.decimal_separator, ".")

    def _respelled(self, texts: pa.Array, column_type: str) -> pa.Array:
        if column_type == "date":
            form = self.options.date_format or ""
            return TimePattern.parsed("date_format", form).iso(texts, as_date=True)
        if column_type in _STAMPS:
            form = self.options.timestamp_format or ""
            return TimePattern.parsed("timestamp_format", form).iso(texts)
        return self.numbers(texts)


def _texts(values: Values) -> pa.Array | None:
    """The text among values, null elsewhere; None where there is none."""
    if isinstance(values, pa.Array):
        text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        return values.cast(pa.string()) if text else None
    if str not in set(map(type, values)):
        return None
    return pa.array([value if type(value) is str else None for value in values], pa.string())
