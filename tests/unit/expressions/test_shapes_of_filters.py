"""Conditions that are parsed by their shape mean what parsing their own text gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from lakehouse.errors import InvalidExpressionError
from lakehouse.expressions.filter_binding import bind
from lakehouse.expressions.sql import sql_terms
from lakehouse.expressions.sql.sql_grammar import shape_of

SCHEMA = Schema(
    NestedField(1, "i", IntegerType(), required=False),
    NestedField(2, "l", LongType(), required=False),
    NestedField(3, "s", StringType(), required=False),
    NestedField(4, "ts", TimestamptzType(), required=False),
    NestedField(5, "d", DateType(), required=False),
    NestedField(6, "f", DoubleType(), required=False),
    NestedField(7, "m", DecimalType(9, 2), required=False),
    NestedField(8, "a = 5 and b", LongType(), required=False),
    NestedField(9, "bin", BinaryType(), required=False),
)

NUMBERS = st.sampled_from(
    ["0", "7", "42", "1.5", "0.25", "3000000000", "9223372036854775808", "007", "1e3", "-4",
     "5days", "1_000", "0x10", "12.", ".5"]
)  # fmt: skip
TEXTS = st.sampled_from(
    ["'x'", "''", "'it''s'", "'a = 5 and b'", "'2026-06-01'", "'2026-06-01T00:00:00+00:00'", "'%'",
     "'lakehouse stand-in 1'", "'a\\b'", "'x' 'y'", "date '2026-06-01'", "'--'", "'/*'", "'\"'",
     "X'61'", "x'00ff'", "X''", "X'6'", "e'x'", "$$x$$"]
)  # fmt: skip
COLUMNS = st.sampled_from(
    ["i", "l", "s", "ts", "d", "f", "m", "bin", '"a = 5 and b"', "i + 1", "-l", "?"]
)
OPERATORS = st.sampled_from(
    ["=", "!=", "<>", "<", "<=", ">", ">=", " = ", " >=  ", "->", ">>", "<=>", " like ",
     " is distinct from ", " in ", "=="]
)  # fmt: skip
LEAVES = st.tuples(COLUMNS, OPERATORS, NUMBERS | TEXTS).map("".join)
OTHERS = st.sampled_from(
    ["s is null", "i between 1 and 5", "l in (1, 2)", "s like 'a = 5 and %'", "5 < i",
     "not (i = 3)", "ts < timestamp '2026-06-01' + interval '5' day",
     "case when i = 1 then l = 2 else s = 'y' end", "bin = X'61'", "bin in (X'00', X'6162')",
     "X'61' <= bin", "i = 0 or bin = X'61'", "s like 'a!%' escape '!'", "i::bigint = 5",
     "cast(m as decimal(12, 3)) = 1.5", "ts > timestamp '2026-06-01'", "extract(year from ts) = 5",
     "i = 5 -- and l = 6", "i = 5 /* and l = 6 */", "(i = 1", "", "true"]
)  # fmt: skip
JOINS = st.sampled_from([" and ", " or ", " AND ", "\nand\n", "and ", " and not ", ") and ("])
CONDITIONS = st.builds(
    lambda first, rest: first + "".join(join + one for join, one in rest),
    LEAVES | OTHERS,
    st.lists(st.tuples(JOINS, LEAVES | OTHERS), max_size=4),
)


def meaning(text: str) -> object:
    try:
        return bind(text, SCHEMA)
    except InvalidExpressionError as error:
        return str(error), dict(error.context)


@given(CONDITIONS)
def test_a_shape_means_what_the_text_means(text):
    by_shape = meaning(text), meaning(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql_terms, "shape_of", lambda _: None)
        assert by_shape == (meaning(text),) * 2


def test_what_differs_in_literals_has_one_shape():
    one = shape_of("i = 1 and ts >= '2026-06-01' and s < 'it''s'")
    other = shape_of("i = 25 and ts >= '1999-01-01' and s < ''")
    assert one is not None
    assert other is not None
    assert one.tree is other.tree
    assert list(one.literals.values()) == ["1", "2026-06-01", "it's"]
    assert list(other.literals.values()) == ["25", "1999-01-01", ""]


@pytest.mark.parametrize(
    "text",
    ["i in (1, 2)", "s like 'a = 5 and %'", "i = 5 -- and l = 6", "(i = 1", "i = 5days", "i = 1e3",
     "s = 'x' 'y'", "s = 'lakehouse stand-in 1'", " or ".join(["i = 1"] * 65)],
)  # fmt: skip
def test_what_is_not_certain_is_parsed_as_it_is(text):
    assert shape_of(text) is None
