"""Statements on a lakehouse table do what they do on tables of Spark's own.

`LAKEHOUSE_SPARK_STATEMENTS` is how many are tried (default 300). `python -m tests.spark_statements`
tries as many as one likes.
"""

from __future__ import annotations

import os

import pytest

from tests.spark_statements.stated_tables import PER_TABLE, StatedTables, Tally

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STATEMENTS = int(os.environ.get("LAKEHOUSE_SPARK_STATEMENTS", "300"))


@pytest.fixture(scope="module")
def tables(spark, tmp_path_factory):
    made = StatedTables(spark, tmp_path_factory.mktemp("stated"))
    yield made
    made.own.drop()


@pytest.mark.parametrize("seed", range(1, 1 + -(-STATEMENTS // PER_TABLE)))
def test_statements_do_what_they_do_on_sparks_own_tables(tables, seed):
    tally = Tally()
    tables.one_table(seed, PER_TABLE, tally)
    assert not tally.differences, tally.differences[seed]
    assert tally.failed.total() < tally.statements.total()
