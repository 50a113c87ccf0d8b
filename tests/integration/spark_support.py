"""What the Spark tests share."""

from __future__ import annotations

from contextlib import contextmanager

import pytest


@pytest.fixture
def lake(tmp_path):
    from lakehouse.lake import load_catalog

    return load_catalog(f"file://{tmp_path}/warehouse")


@pytest.fixture
def session(spark, lake):
    from lakehouse.spark import attach

    return attach(spark, lake)


def rows_in(spark):
    """Runs statements in a session, each to its rows."""
    return lambda text: [tuple(row) for row in spark.sql(text).collect()]


@pytest.fixture
def sql(spark, session):
    return rows_in(spark)


@contextmanager
def configured(spark, asked):
    """The session with other settings, and then as it was."""
    before = {name: spark.conf.get(name, None) for name in asked}
    try:
        for name, value in asked.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def collected(frame):
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def run(frame):
    """Rows of a frame without shuffle, and the files read according to Spark's own metric."""
    rows = collected(frame)
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    found = 0
    for position in range(leaves.size()):
        metric = leaves.apply(position).metrics().get("numFiles")
        found += metric.get().value() if metric.isDefined() else 0
    return rows, found


def day_files(table):
    return table.refresh().scan().plan().files
