"""What servers say when they start, stop or are full, in their own words, is waited for."""

from __future__ import annotations

import pyarrow as pa
import pytest
from sqlalchemy.exc import OperationalError

import lakehouse as lh
from lakehouse.catalog.sql.sql_database import _is_transient as is_transient
from lakehouse.errors import TableAlreadyExistsError


def failed(text: str) -> OperationalError:
    return OperationalError("SELECT 1", {}, Exception(text))


@pytest.mark.parametrize("blanks", [" ", "  ", "\t", "   "])
@pytest.mark.parametrize(
    "text",
    [
        "the database system is starting up",
        "the database system is shutting down",
        "the database system is in recovery mode",
        "the database system is not yet accepting connections",
        "sorry, too many clients already",
        'too many connections for role "lake"',
        "remaining connection slots are reserved for roles with the SUPERUSER attribute",
        "terminating connection due to administrator command",
    ],
)
def test_a_server_that_starts_stops_or_is_full_is_waited_for(text, blanks):
    assert is_transient(failed(f"connection failed: FATAL:{blanks}{text}"))


@pytest.mark.parametrize("blanks", [" ", "  "])
@pytest.mark.parametrize(
    "text", ['password authentication failed for user "x"', 'database "x" does not exist']
)
def test_a_refusal_is_told_at_once(text, blanks):
    assert not is_transient(failed(f"connection failed: FATAL:{blanks}{text}"))


def test_a_writer_that_is_about_to_create_a_table_takes_its_place_from_nobody(tmp_path):
    """Its temporary file is no file of a dropped table: the swap says who comes first."""
    schema = pa.schema([("a", pa.int64())])
    lake = lh.load_catalog(str(tmp_path))
    lake.create_namespace("raw")
    folder = tmp_path / "raw" / "events" / "metadata"
    folder.mkdir(parents=True)
    (folder / ".v1.metadata.json.0123.tmp").write_bytes(b"{")
    location = str(tmp_path / "raw" / "events")
    table = lake.create_table("raw.events", schema, location=location)
    assert table.location.endswith("/raw/events")
    with pytest.raises(TableAlreadyExistsError):
        lake.create_table("raw.events", schema, location=location)
