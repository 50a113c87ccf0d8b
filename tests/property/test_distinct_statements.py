"""What a sketch says of keys and of allowed values, against the rows themselves.

The oracle counts Python values. Varied: types, nulls, empty texts, sketches that are exact and that
estimate, rows that came after the sketch, rewrites, shares and lists asked for.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lakehouse as lh
from lakehouse.curation.gathering import Gatherer, table_names
from lakehouse.semantics.binding import bind
from lakehouse.semantics.judgement import Outcome, judge
from lakehouse.semantics.statement_yaml import draft_of

TYPES = {
    "long": (pa.int64(), int),
    "text": (pa.string(), lambda number: "" if number == 0 else f"v{number}"),
    "amount": (pa.decimal128(12, 2), lambda number: Decimal(number).scaleb(-2)),
    "day": (pa.date32(), lambda number: dt.date(2000, 1, 1) + dt.timedelta(days=number)),
    "share": (pa.float64(), lambda number: -0.0 if number == 1 else number / 7),
}
LIMITS = [None, 0.5, 0.9, 1.0]


def table_of(lake, kind, values):
    type_, made = TYPES[kind]
    column = pa.array([None if value is None else made(value) for value in values], type_)
    data = pa.table({"c": column})
    if lake.table_exists("a.b"):
        lake.drop_table("a.b", purge=True)
    table = lake.create_table("a.b", data.schema)
    table.append(data)
    return table, column.to_pylist()


def said(table, **check):
    names = table_names(table)
    draft = draft_of({"table": "a.b", "kind": "warning", "evidence": check}, "test")
    statement = bind(draft, {"a.b": names}, 0)
    gatherer = Gatherer(table)
    return judge(
        statement, {table.metadata.table_uuid: gatherer.change(None)}, known=False, now_ms=0
    ).outcome


def agrees(outcome, truth):
    return outcome in (Outcome.UNKNOWN, Outcome.HOLDS if truth else Outcome.FAILS)


@pytest.fixture(scope="module")
def lake():
    made = lh.load_catalog("memory://distinct")
    made.create_namespace("a")
    return made


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    kind=st.sampled_from(list(TYPES)),
    different=st.sampled_from([1, 2, 5, 40, 4_095, 4_096, 4_097, 12_000]),
    repeats=st.sampled_from([0, 0, 0, 1, 100, 4_000]),
    nulls=st.sampled_from([0, 0, 1]),
    low=st.sampled_from(LIMITS),
    high=st.sampled_from(LIMITS),
)
@example(kind="share", different=2, repeats=0, nulls=0, low=None, high=None)  # 0.0 is -0.0
@example(kind="text", different=2, repeats=0, nulls=0, low=None, high=None)
@example(kind="long", different=12_000, repeats=0, nulls=0, low=None, high=None)
def test_keys(lake, kind, different, repeats, nulls, low, high):
    values = [*range(different), *(one % different for one in range(repeats)), *([None] * nulls)]
    table, written = table_of(lake, kind, values)
    table.compute_statistics()
    share = {name: end for name, end in (("min", low), ("max", high)) if end is not None}
    least, most = (low, high) if share else (1.0, 1.0)
    ratio = len(set(written)) / len(written)
    truth = (least is None or least <= ratio) and (most is None or ratio <= most)
    outcome = said(table, check="unique", columns=["c"], **share)
    assert agrees(outcome, truth)
    if different < 4_096 and not nulls and kind not in ("share", "text"):
        assert outcome is not Outcome.UNKNOWN, "a sketch of so few values is exact"


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(["long", "text", "share"]),
    values=st.lists(st.one_of(st.none(), st.integers(0, 6)), min_size=1, max_size=30),
    allowed=st.lists(st.integers(0, 6), min_size=1, max_size=6, unique=True),
    all_used=st.booleans(),
)
def test_allowed_values(lake, kind, values, allowed, all_used):
    table, written = table_of(lake, kind, values)
    table.compute_statistics()
    listed = [TYPES[kind][1](one) for one in allowed]
    found = {one for one in written if one is not None}
    truth = found <= set(listed) and (not all_used or set(listed) <= found)
    check = {"check": "values", "column": "c", "allowed": listed, "all_used": all_used}
    assert agrees(said(table, **check), truth)


def test_a_sketch_is_of_its_rows(lake):
    table, _ = table_of(lake, "long", range(100))
    for number in range(100, 110):
        table.append(pa.table({"c": [number]}))
    table.compute_statistics()
    assert said(table, check="unique", columns=["c"]) is Outcome.HOLDS
    table.compact()
    assert table.current_snapshot().operation == "replace"
    assert said(table, check="unique", columns=["c"]) is Outcome.HOLDS, "the rows are the same"
    table.append(pa.table({"c": [100]}))
    assert said(table, check="unique", columns=["c"]) is Outcome.UNKNOWN
    table.compute_statistics()
    assert said(table, check="unique", columns=["c"]) is Outcome.FAILS
    counted = Counter(table.scan().to_arrow()["c"].to_pylist())
    assert counted.most_common(1) == [(100, 2)]
