"""Fixtures and Hypothesis profiles shared by every test."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections import Counter

import pandas as pd  # noqa: F401 - else commands run here would have pyarrow know no frames
import pytest
from hypothesis import HealthCheck, settings

from tests.spark_config import BRIEF

# workers, and processes that tests start, would else compile every module that they import
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# modules make no garbage while they are imported
gc.disable()

settings.register_profile(
    "default", max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "thorough", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_itemcollected(item):
    """No test of the shared session is without its marker: `make test` starts no JVM."""
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker("spark")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Files with slow tests first, then those with many: at the end no process waits for one."""
    of_file = Counter(item.path for item in items)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda one: (one.path not in slow, -of_file[one.path]))


def pytest_collection_finish():
    """What was imported lives to the end, and is not looked through again with each test."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def migrations_are_read_once():
    """Dagster stamps two databases for each instance; Alembic executes 178 files for that."""
    from alembic.script import ScriptDirectory

    read = ScriptDirectory.from_config
    directories = {}

    def from_config(config):
        location = config.get_alembic_option("script_location")
        if location not in directories:
            directories[location] = read(config)
        return directories[location]

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(ScriptDirectory, "from_config", from_config)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_spark_warehouse_in_the_checkout(tmp_path_factory):
    """Also where other processes start the session: Spark makes the folder where they run."""
    folder = tmp_path_factory.getbasetemp() / "spark-warehouse"
    with pytest.MonkeyPatch.context() as environment:
        settings = {"spark.sql.warehouse.dir": str(folder)}
        environment.setenv("LAKEHOUSE_SPARK_CONFIG", json.dumps(settings))
        yield


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
def postgres_uri():
    """A server that files share: each of them uses a name of its own."""
    from tests.servers import postgres

    with postgres() as uri:
        yield uri


@pytest.fixture(scope="session")
def s3_properties():
    """An object store that files share: each of them uses a prefix of its own."""
    from tests.servers import s3

    with s3() as properties:
        yield properties


@pytest.fixture(scope="session")
def duck():
    """DuckDB with its Iceberg extension, from PyPI; nothing is downloaded."""
    import duckdb
    from duckdb_extensions import import_extension

    connection = duckdb.connect(
        config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "true"}
    )
    for name in ("avro", "httpfs", "iceberg"):
        import_extension(name, con=connection)
        connection.load_extension(name)
    connection.sql("SET TimeZone = 'UTC'")
    yield connection
    connection.close()
