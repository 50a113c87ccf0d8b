"""Kinds of whole columns, as a file's index counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.ingestion.reading.formats.record_chunks import Values
from lakehouse.ingestion.reading.typing.spelled_text import SpelledText
from lakehouse.ingestion.reading.typing.typed_columns import GUESSED
from lakehouse.ingestion.reading.typing.value_kinds import (
    EXACT_IN_DOUBLE,
    INT_RANGE,
    LONG_RANGE,
    kinds_of,
)


def column_kinds(
    values: Values, *, untyped: bool, spelled: SpelledText | None = None
) -> Counter[str]:
    """How many values of each kind a column has; nulls do not count.

    Args:
        values: of a field of some records.
        untyped: they are text, and of the kind that they look like.
        spelled: how numbers are spelled; None: as usual.
    """
    if not isinstance(values, pa.Array):
        return kinds_of(values)
    if untyped:
        if spelled is not None and spelled.spells_numbers:
            return _guessed_otherwise(values.drop_null(), spelled)
        return _guessed(values)
    count = len(values) - values.null_count
    if not count:
        return Counter()
    if pa.types.is_integer(values.type):
        return _integers(values, count)
    if pa.types.is_decimal(values.type):
        return Counter({f"decimal({values.type.precision},{values.type.scale})": count})
    for kind, of_that_kind in _KINDS.items():
        if of_that_kind(values.type):
            return Counter({kind: count})
    return kinds_of(values.to_pylist())


_KINDS: Mapping[str, Callable[[pa.DataType], bool]] = {
    "double": pa.types.is_floating,
    "string": lambda type_: pa.types.is_string(type_) or pa.types.is_large_string(type_),
    "boolean": pa.types.is_boolean,
    "timestamp": lambda type_: pa.types.is_timestamp(type_) and type_.tz is None,
    "timestamptz": lambda type_: pa.types.is_timestamp(type_) and type_.tz is not None,
    "date": pa.types.is_date,
    "time": pa.types.is_time,
    "binary": lambda type_: pa.types.is_binary(type_) or pa.types.is_large_binary(type_),
}
"""Types of which every value is of one kind: its values need not be looked at."""


def _integers(values: pa.Array, count: int) -> Counter[str]:
    long = values if pa.types.is_unsigned_integer(values.type) else values.cast(pa.int64())
    kinds: Counter[str] = Counter()
    exact = (-EXACT_IN_DOUBLE, EXACT_IN_DOUBLE)
    for kind, (low, high) in (("int", INT_RANGE), ("long", exact), ("large", LONG_RANGE)):
        fitting = pc.sum(_within(long, low, high)).as_py() or 0
        kinds[kind] = fitting - kinds.total()
    kinds["huge"] = count - kinds.total()
    return +kinds


def _within(values: pa.Array, low: int, high: int) -> pa.BooleanArray:
    span = pc.min_max(values)
    if span["min"].as_py() >= low and span["max"].as_py() <= high:
        return values.is_valid()
    if pa.types.is_unsigned_integer(values.type):
        return pc.less_equal(values, pa.scalar(high, pa.uint64()))
    return pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))


def _guessed_otherwise(texts: pa.Array, spelled: SpelledText) -> Counter[str]:
    """A number in the usual notation counts as text where the source has another notation."""
    numbers = spelled.numbers(texts)
    others = _guessed(texts.filter(numbers.is_null()))
    kinds = Counter({"boolean": others.pop("boolean", 0), "string": others.total()})
    return +(kinds + _guessed(numbers))


def _guessed(texts: pa.Array) -> Counter[str]:
    """Most columns are of one kind: the pattern that fits the first value is tried on all."""
    kinds: Counter[str] = Counter()
    left = texts.drop_null()
    for kind, pattern in GUESSED.items():
        if not len(left):
            break
        fitting = pc.match_substring_regex(left, pattern)
        if not fitting.true_count:
            continue
        if kind == "long":
            kinds.update(_integers(left.filter(fitting).cast(pa.int64()), fitting.true_count))
        else:
            kinds[kind] += fitting.true_count
        left = left.filter(pc.invert(fitting))
    if len(left):
        kinds["string"] += len(left)
    return kinds
