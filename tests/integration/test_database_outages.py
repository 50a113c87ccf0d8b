"""A PostgreSQL that is killed under a catalog, and one that refuses."""

from __future__ import annotations

import re
from dataclasses import replace

import psycopg
import pyarrow as pa
import pytest

from lakehouse.catalog.sql.sql_catalog import SqlCatalog
from lakehouse.environment import Environment
from lakehouse.errors import StorageError
from lakehouse.lake import Lakehouse
from tests.cluster.loopback import LoopbackPostgres
from tests.cluster.ports import free_port

ROWS = pa.table({"id": [1, 2, 3]})


class Waiting:
    """A clock that only sleeping moves; after some sleeps the server is back."""

    def __init__(self, comes_back=None):
        self.sleeps, self.comes_back = [], comes_back
        seeded = Environment.seeded(3)
        self.environment = replace(seeded, sleep=self.sleep)
        self._seeded = seeded

    def sleep(self, seconds):
        self.sleeps.append(seconds)
        self._seeded.sleep(seconds)
        if self.comes_back is not None and len(self.sleeps) == 3:
            self.comes_back()


@pytest.fixture
def server(tmp_path):
    with LoopbackPostgres(tmp_path / "pg", free_port()) as started:
        yield started


def opened(server, tmp_path, waiting, **properties):
    catalog = SqlCatalog(
        server.uri("postgres"),
        str(tmp_path / "warehouse"),
        environment=waiting.environment,
        properties=properties,
    )
    return Lakehouse(catalog, waiting.environment)


def test_a_database_that_is_away_is_waited_for_in_one_line(server, tmp_path, caplog):
    waiting = Waiting(server.start)
    lake = opened(server, tmp_path, waiting)
    table = lake.create_table("raw.events", ROWS.schema)
    server.kill()
    table.append(ROWS)
    assert len(waiting.sleeps) == 3
    assert len({round(wait / 2**n, 3) for n, wait in enumerate(waiting.sleeps)}) == 3, "jitter"
    told = [
        record.getMessage() for record in caplog.records if "Trying again" in record.getMessage()
    ]
    assert len(told) == 1
    assert "for up to 60 s" in told[0]
    assert lake.load_table("raw.events").scan().count() == 3


def test_a_database_that_stays_away_is_given_up_at_the_total(server, tmp_path):
    waiting = Waiting()
    lake = opened(server, tmp_path, waiting, **{"catalog.retry-timeout-ms": "5000"})
    table = lake.create_table("raw.events", ROWS.schema)
    server.kill()
    with pytest.raises(StorageError) as caught:
        table.append(ROWS)
    assert caught.value.retryable
    assert 2 < sum(waiting.sleeps) <= 5
    server.start()
    assert table.refresh().scan().count() == 0


@pytest.mark.parametrize(
    ("user", "database"), [("nobody", "postgres"), ("postgres", "none"), ("who:wrong", "postgres")]
)
def test_a_refusal_is_told_at_once(server, tmp_path, user, database):
    with psycopg.connect(server.uri("postgres").replace("+psycopg", "")) as connection:
        connection.execute("CREATE ROLE who LOGIN PASSWORD 'right'")
    server.kill()
    rules = server.folder / "pg_hba.conf"
    rules.write_text(f"host all who all scram-sha-256\n{rules.read_text()}")
    server.start()
    waiting = Waiting()
    uri = re.sub(r"//[^@]+@", f"//{user}@", server.uri(database))
    with pytest.raises(StorageError) as caught:
        SqlCatalog(uri, str(tmp_path / "warehouse"), environment=waiting.environment)
    assert not caught.value.retryable
    assert waiting.sleeps == []
