"""Fixtures and Hypothesis profiles shared by every test."""

from __future__ import annotations

import os

import duckdb
import pytest
from duckdb_extensions import import_extension
from hypothesis import HealthCheck, settings

from tests.spark_config import BRIEF

settings.register_profile(
    "default", max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "thorough", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def spark():
    """One local Spark session for the whole run, configured as users get it."""
    from lakehouse.spark.spark_session import build_session

    session = build_session(
        "lakehouse-tests",
        master="local[2]",
        config={**BRIEF, "spark.sql.shuffle.partitions": "4"},
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def duck():
    """DuckDB with its Iceberg extension, from PyPI; nothing is downloaded."""
    connection = duckdb.connect(
        config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "true"}
    )
    for name in ("avro", "httpfs", "iceberg"):
        import_extension(name, con=connection)
        connection.load_extension(name)
    connection.sql("SET TimeZone = 'UTC'")
    yield connection
    connection.close()
