"""Kinds of whole columns, as a file's index counts them."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.orchestration.ingestion.reading.formats.record_chunks import Values
from lakehouse.orchestration.ingestion.reading.typing.typed_columns import GUESSED
from lakehouse.orchestration.ingestion.reading.typing.value_kinds import INT_RANGE, kinds_of

_INT_LOW, _INT_HIGH = INT_RANGE


def column_kinds(values: Values, *, untyped: bool) -> Counter[str]:
    """How many values of each kind a column has; nulls do not count.

    Args:
        values: of a field of some records.
        untyped: they are text, and of the kind that they look like.
    """
    if not isinstance(values, pa.Array):
        return kinds_of(values)
    if untyped:
        return _guessed(values)
    count = len(values) - values.null_count
    if not count:
        return Counter()
    if pa.types.is_integer(values.type):
        return _integers(values, count)
    if pa.types.is_decimal(values.type):
        return Counter({f"decimal({values.type.precision},{values.type.scale})": count})
    if pa.types.is_floating(values.type):
        return Counter({"double": count})
    return kinds_of(values.to_pylist())


def _integers(values: pa.Array, count: int) -> Counter[str]:
    span = pc.min_max(values).as_py()
    if span["min"] >= _INT_LOW and span["max"] <= _INT_HIGH:
        return Counter({"int": count})
    return kinds_of(values.to_pylist())


def _guessed(texts: pa.Array) -> Counter[str]:
    """Most columns are of one kind: the pattern that fits the first value is tried on all."""
    found: Counter[str] = Counter()
    left = texts.drop_null()
    for kind, pattern in GUESSED.items():
        if not len(left):
            break
        fitting = pc.match_substring_regex(left, pattern)
        if not fitting.true_count:
            continue
        if kind == "long":
            found.update(_integers(left.filter(fitting).cast(pa.int64()), fitting.true_count))
        else:
            found[kind] += fitting.true_count
        left = left.filter(pc.invert(fitting))
    if len(left):
        found["string"] += len(left)
    return found
