"""A PostgreSQL that is full is waited for, by its own words; one that refuses us is not."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, make_url, text

from lakehouse.catalog.sql.sql_database import Database
from lakehouse.errors import LakehouseError
from lakehouse.patience import Patience
from tests.servers import postgres


@pytest.mark.parametrize(
    ("role", "words", "retryable"),
    [
        ("full_role", "too many connections for role", True),
        ("no_login", "is not permitted to log in", False),
    ],
)
def test_a_full_postgres_can_be_asked_again(role: str, words: str, retryable: bool) -> None:
    with postgres() as uri:
        engine = create_engine(uri, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text("CREATE ROLE full_role LOGIN CONNECTION LIMIT 0"))
            connection.execute(text("CREATE ROLE no_login NOLOGIN"))
        engine.dispose()
        address = make_url(uri).set(username=role).render_as_string(hide_password=False)
        database = Database(address, Patience(0))
        with pytest.raises(LakehouseError, match=words) as caught:
            database.create_tables()
        database.close()
    assert caught.value.retryable is retryable
