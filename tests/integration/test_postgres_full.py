"""A PostgreSQL that is full is waited for, by its own words; one that refuses us is not."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, make_url, text

from lakehouse.catalog.sql.sql_database import Database
from lakehouse.errors import LakehouseError
from lakehouse.patience import Patience


@pytest.mark.parametrize(
    ("role", "rights", "words", "retryable"),
    [
        ("full_role", "LOGIN CONNECTION LIMIT 0", "too many connections for role", True),
        ("no_login", "NOLOGIN", "is not permitted to log in", False),
    ],
)
def test_a_full_postgres_can_be_asked_again(
    postgres_uri: str, role: str, rights: str, words: str, retryable: bool
) -> None:
    engine = create_engine(postgres_uri, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE ROLE {role} {rights}"))
    engine.dispose()
    address = make_url(postgres_uri).set(username=role).render_as_string(hide_password=False)
    database = Database(address, Patience(0))
    with pytest.raises(LakehouseError, match=words) as caught:
        database.create_tables()
    database.close()
    assert caught.value.retryable is retryable
