"""Filters as text: readable, and the same filter when parsed again."""

from __future__ import annotations

import pytest

from lakehouse.expressions.filter_binding import bind
from lakehouse.expressions.filter_text import describe
from tests.unit.expressions.test_bind import SCHEMA


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (None, "true"),
        ("i = 1.5", "false"),
        ("i < 5 and (s = 'it''s' or b = true)", "i < 5 and (s = 'it''s' or b = true)"),
        ("day = '1969-12-31'", "day = '1969-12-31'"),
        ("ts > '2026-06-01'", "ts > '2026-06-01T00:00:00'"),
        ("tz > '2026-06-01T01:00:00+01:00'", "tz > '2026-06-01T00:00:00+00:00'"),
        ("not s like 'a%'", "s not like 'a%'"),
        ("m in (1.10, 2.20)", "m in (1.10, 2.20)"),
        ("n.X is not null", "n.X is not null"),
        ("year(ts) >= 0", "ts >= -62167219200000000"),
        ("day < -719528", "day < -719528"),
        ("s like 'a\\c_' escape '!'", "s like 'a\\\\c_' escape '\\'"),
    ],
)
def test_text(where, text):
    assert describe(bind(where, SCHEMA)) == text
    assert bind(text, SCHEMA) == bind(where, SCHEMA)


def test_long_lists_are_cut():
    numbers = ", ".join(str(number) for number in range(100))
    assert describe(bind(f"i in ({numbers})", SCHEMA)).endswith("9, ... 90 more)")
