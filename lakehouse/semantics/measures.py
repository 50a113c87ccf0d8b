"""What evidence counts in rows: sums over files, and the verdict that follows.

A measure is a flat mapping of numbers. Those of `evidence.INCREMENTAL` checks are sums over rows,
so the measure of a table after a change is that before, plus the added files', minus the removed
files'.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.errors import InvalidStatementError
from lakehouse.semantics.binding import check_mentions, claim_mentions
from lakehouse.semantics.claims import SLOTS, Shape
from lakehouse.semantics.evidence import Check, as_type_of
from lakehouse.semantics.judgement import Outcome, Verdict
from lakehouse.semantics.sql_names import sql_values
from lakehouse.semantics.statements import Statement

Measure = Mapping[str, Any]
MEASURE = "measure"
"""Key under which measures of incremental checks are kept, by side (`own`, `to`)."""

_MOST_VALUES = 200
_OTHERS = "…others"


def measure(check: Check, rows: Iterable[pa.Table | pa.RecordBatch]) -> dict[str, Any]:
    """The measure of rows of the statement's own table.

    Args:
        check: bounds, null_share, values, pattern, sum_equal or row_ratio.
        rows: with the check's column first; already filtered by its `where`.
    """
    total: dict[str, Any] = {}
    for part in rows:
        if part.num_rows:
            column = part.column(0) if part.num_columns else None
            total = combined(total, _MEASURES[check.name](check, column, part.num_rows))
    return total


def combined(measure: Measure, other: Measure, sign: int = 1) -> dict[str, Any]:
    """The sum of two measures, or with sign -1 their difference."""
    result = dict(measure)
    for key, value in other.items():
        if isinstance(value, Mapping):
            result[key] = combined(result.get(key, {}), value, sign)
        else:
            result[key] = result.get(key, 0) + sign * value
    return result


def verdict(check: Check, result: Measure, to: Measure | None = None) -> Verdict:
    """Whether a measure bears the check out.

    `to` is that of the other table, for `sum_equal` and `row_ratio`.
    """
    outcome, reason = _VERDICTS[check.name](check, result, to or {})
    observed = {**result, **({"to": dict(to)} if to else {})}
    return Verdict(Outcome.HOLDS if outcome else Outcome.FAILS, reason, observed=observed)


def concerns(statement: Statement, observed: Mapping[str, Any]) -> bool:
    """Whether what failed of a check is about what this statement, one of several with it, claims.

    The values that failed decide, where the check tells them, else its columns; those of a query
    that it names and says to be false, if it names any.

    Args:
        statement: with evidence that fails.
        observed: what was seen.
    """
    check, claim = statement.evidence, statement.claim
    claimed = {mention for mention in claim_mentions(statement) if mention[1] is not None}
    if check is None or not claimed:  # its evidence is all that it says
        return True
    if check.name == "values" and (failed := _failed_values(check, observed)) is not None:
        extra, unused = failed
        literals = {_text(literal) for literal in (*claim.get("values", ()), *_compared(statement))}
        return bool(literals & (extra | unused)) or bool(extra and claim.get("complete"))
    columns = {mention for mention in check_mentions(statement) if mention[1] is not None}
    named = {column for column in columns if observed.get(str(column[1])) is False}
    return not claimed.isdisjoint(named or columns)


def _failed_values(check: Check, observed: Mapping[str, Any]) -> tuple[Set[str], Set[str]] | None:
    """Values that occur and are not allowed, and those that should occur; None: not known."""
    measured = observed.get(MEASURE, {}).get("own", {})
    if "values" in measured:
        return _extra_and_unused(check, measured)
    if "value" in observed:
        return {_text(observed["value"])}, set()
    if observed.get("distinct", 0) > len(check.arguments["allowed"]):
        return {_OTHERS}, set()
    return None


def _compared(statement: Statement) -> Iterator[str]:
    """The values in the conditions and expressions of a claim."""
    for name, value in statement.claim.items():
        if SLOTS[statement.kind][name].shape in (Shape.PREDICATE, Shape.EXPRESSION):
            yield from sql_values(value)


def unique_verdict(check: Check, rows: pa.Table) -> Verdict:
    """Different keys against rows. A null is a value like any other."""
    keys = rows.group_by(rows.column_names).aggregate([]).num_rows if rows.num_columns else 0
    low, high = check.share()
    share = keys / rows.num_rows if rows.num_rows else 1.0
    names = ", ".join(check.arguments["columns"])
    reason = f"{keys:,} different ({names}) in {rows.num_rows:,} rows"
    outcome = Outcome.HOLDS if low <= share <= high else Outcome.FAILS
    return Verdict(outcome, reason, observed={"rows": rows.num_rows, "keys": keys})


def references_verdict(check: Check, values: pa.ChunkedArray, keys: pa.ChunkedArray) -> Verdict:
    """Values that the other table has, nulls and `except` left out."""
    present = values.drop_null()
    if exceptions := check.arguments.get("except"):
        left_out = pa.array(exceptions).cast(present.type)
        present = present.filter(pc.invert(pc.is_in(present, value_set=left_out)))
    keys = keys.drop_null()
    total, matched = len(present), 0
    if total and len(keys):
        is_key = pc.is_in(present, value_set=keys.unique().cast(present.type))
        matched = int(pc.sum(is_key).as_py() or 0)
    least = float(check.arguments.get("min", 1.0))
    reason = f"{total - matched:,} of {total:,} values are not in {check.arguments['to']}"
    outcome = Outcome.HOLDS if not total or matched / total >= least else Outcome.FAILS
    return Verdict(outcome, reason, observed={"rows": total, "matched": matched})


def query_verdict(rows: pa.Table) -> Verdict:
    """One row that begins with true or false.

    Raises:
        InvalidStatementError: the query returned anything else.
    """
    if rows.num_rows != 1 or not rows.num_columns:
        raise InvalidStatementError(f"evidence must return one row, not {rows.num_rows}")
    first = rows.column(0)[0].as_py()
    if first is not None and not isinstance(first, bool):
        raise InvalidStatementError(f"evidence must begin with true or false, not {first!r}")
    seen = {name: rows.column(at)[0].as_py() for at, name in enumerate(rows.column_names) if at > 0}
    reason = "the query returns " + {True: "true", False: "false", None: "null"}[first]
    if seen:
        reason += " (" + ", ".join(f"{name} {value}" for name, value in seen.items()) + ")"
    return Verdict(Outcome.HOLDS if first else Outcome.FAILS, reason, observed=seen)


# What rows add


def _count_outside(check: Check, column: Any, rows: int) -> dict[str, Any]:
    outside = pa.array([False] * rows)
    for end, beyond in (("min", pc.less), ("max", pc.greater)):
        limit = check.arguments.get(end)
        if limit is not None:
            outside = pc.or_(
                outside, pc.fill_null(beyond(column, _scalar(limit, column.type)), False)
            )
    if pa.types.is_floating(column.type):
        outside = pc.or_(outside, pc.fill_null(pc.is_nan(column), False))
    return {"rows": rows - column.null_count, "outside": int(pc.sum(outside).as_py() or 0)}


def _count_nulls(_: Check, column: Any, rows: int) -> dict[str, Any]:
    return {"rows": rows, "nulls": column.null_count}


def _count_values(check: Check, column: Any, rows: int) -> dict[str, Any]:
    counts: dict[str, int] = {}
    allowed = {_text(value) for value in check.arguments["allowed"]}
    for count in column.value_counts().to_pylist():
        if count["values"] is None:
            continue
        name = _text(count["values"])
        if name not in allowed and len(counts) >= _MOST_VALUES:
            name = _OTHERS
        counts[name] = counts.get(name, 0) + count["counts"]
    return {"rows": rows - column.null_count, "values": counts}


def _count_matches(check: Check, column: Any, rows: int) -> dict[str, Any]:
    regex = re.compile(check.arguments["regex"])
    counts = column.drop_null().value_counts().to_pylist()
    matched = sum(count["counts"] for count in counts if regex.fullmatch(str(count["values"])))
    return {"rows": rows - column.null_count, "matched": matched}


def _add_up(_: Check, column: Any, rows: int) -> dict[str, Any]:
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.decimal256(76, column.type.scale))
    total = pc.sum(column).as_py() or 0
    return {"rows": rows, "sum": float(total) if isinstance(total, (Decimal, float)) else total}


def _count_rows(_: Check, __: Any, rows: int) -> dict[str, Any]:
    return {"rows": rows}


_MEASURES: Mapping[str, Callable[[Check, Any, int], dict[str, Any]]] = {
    "bounds": _count_outside,
    "null_share": _count_nulls,
    "values": _count_values,
    "pattern": _count_matches,
    "sum_equal": _add_up,
    "row_ratio": _count_rows,
}


# What counts mean


def _bounds_hold(_: Check, measure: Measure, __: Measure) -> tuple[bool, str]:
    rows, outside = measure.get("rows", 0), measure.get("outside", 0)
    return not outside, f"{outside:,} of {rows:,} values lie outside"


def _null_share_holds(check: Check, measure: Measure, _: Measure) -> tuple[bool, str]:
    rows, nulls = measure.get("rows", 0), measure.get("nulls", 0)
    low, high = check.share(0.0, 0.0)
    return not rows or low <= nulls / rows <= high, f"{nulls:,} of {rows:,} rows are null"


def _values_hold(check: Check, measure: Measure, _: Measure) -> tuple[bool, str]:
    counts = measure.get("values", {})
    extra, unused = _extra_and_unused(check, measure)
    complaints = []
    if extra:
        shown = ", ".join(f"{value} ({counts[value]:,} rows)" for value in sorted(extra)[:5])
        complaints.append(f"other values occur: {shown}")
    if unused:
        complaints.append(f"these do not occur: {', '.join(sorted(unused)[:5])}")
    occurring = sum(map(bool, counts.values()))
    return not complaints, "; ".join(complaints) or f"{occurring} values occur, all of them listed"


def _extra_and_unused(check: Check, measure: Measure) -> tuple[Set[str], Set[str]]:
    occurring = {value for value, count in measure.get("values", {}).items() if count}
    allowed = {_text(value) for value in check.arguments["allowed"]}
    return occurring - allowed, allowed - occurring if check.arguments.get("all_used") else set()


def _pattern_holds(check: Check, measure: Measure, _: Measure) -> tuple[bool, str]:
    rows, matched = measure.get("rows", 0), measure.get("matched", 0)
    low, high = check.share()
    return not rows or low <= matched / rows <= high, f"{matched:,} of {rows:,} values match"


def _sums_equal(check: Check, measure: Measure, to: Measure) -> tuple[bool, str]:
    left = float(measure.get("sum", 0)) * float(check.arguments.get("factor", 1))
    right = float(to.get("sum", 0)) * float(check.arguments.get("to_factor", 1))
    tolerance = float(check.arguments.get("tolerance", 1e-9))
    equal = abs(left - right) <= tolerance * max(abs(left), abs(right))
    ratio = f", {left / right:.6g} times" if right and not equal else ""
    return equal, f"{left:,.2f} against {right:,.2f}{ratio}"


def _ratio_holds(check: Check, measure: Measure, to: Measure) -> tuple[bool, str]:
    rows, others = measure.get("rows", 0), to.get("rows", 0)
    low, high = check.share()
    ratio = rows / others if others else (float("inf") if rows else 0.0)
    return low <= ratio <= high, f"{rows:,} rows for {others:,} of {check.arguments['to']}"


_VERDICTS: Mapping[str, Callable[[Check, Measure, Measure], tuple[bool, str]]] = {
    "bounds": _bounds_hold,
    "null_share": _null_share_holds,
    "values": _values_hold,
    "pattern": _pattern_holds,
    "sum_equal": _sums_equal,
    "row_ratio": _ratio_holds,
}


def _scalar(written: Any, kind: pa.DataType) -> pa.Scalar:
    value = _comparable(written, kind)
    if pa.types.is_integer(kind) and isinstance(value, float):
        return pa.scalar(value)
    return pa.scalar(value, kind)


def _comparable(written: Any, kind: pa.DataType) -> Any:
    """A value as it is written, as Python has values of an Arrow type.

    Raises InvalidStatementError.
    """
    if pa.types.is_timestamp(kind):
        like: Any = dt.datetime(1970, 1, 1, tzinfo=dt.UTC if kind.tz else None)
    elif pa.types.is_date(kind):
        like = dt.date(1970, 1, 1)
    elif pa.types.is_decimal(kind):
        like = Decimal(0)
    elif pa.types.is_boolean(kind):
        like = True
    else:
        like = 0 if pa.types.is_integer(kind) or pa.types.is_floating(kind) else ""
    typed = as_type_of(written, like)
    if typed is None:
        raise InvalidStatementError(f"{written!r} cannot be compared with values of type {kind}")
    return typed


def _text(value: Any) -> str:
    """A value as a key: 1 and 1.0 and Decimal(1) are one."""
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return format(Decimal(str(value)).normalize(), "f")
    return str(value)
