"""Real clients on our server: pyiceberg, DuckDB and our own; our engine reads what they wrote."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.types import LongType

import lakehouse as lh
from lakehouse.errors import CommitConflictError
from lakehouse.errors import TableAlreadyExistsError as TakenError
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_updates import AssertRefSnapshotId

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})


def ids(lake, name):
    return sorted(lake.load_table(name).scan().to_arrow()["id"].to_pylist())


@pytest.fixture
def client(rest):
    return RestCatalog("ours", uri=rest.url)


def test_pyiceberg_names(rest, client):
    client.create_namespace(("names", "deep"), {"owner": "ada"})
    assert client.list_namespaces("names") == [("names", "deep")]
    assert client.load_namespace_properties(("names", "deep")) == {"owner": "ada"}
    client.update_namespace_properties(("names", "deep"), {"owner"}, {"team": "b"})
    assert client.load_namespace_properties(("names", "deep")) == {"team": "b"}
    with pytest.raises(NoSuchNamespaceError):
        client.list_tables("nowhere")
    made = client.create_table("names.deep.t", ROWS.schema)
    with pytest.raises(TableAlreadyExistsError):
        client.create_table("names.deep.t", ROWS.schema)
    with pytest.raises(NamespaceNotEmptyError):
        client.drop_namespace(("names", "deep"))
    assert client.list_tables(("names", "deep")) == [("names", "deep", "t")]
    client.drop_table("names.deep.t")
    assert not client.table_exists("names.deep.t")
    with pytest.raises(NoSuchTableError):
        client.load_table("names.deep.t")
    client.register_table("names.deep.t", made.metadata_location)
    assert client.load_table("names.deep.t").metadata.table_uuid == made.metadata.table_uuid
    if "sqlite" in rest.lake.catalog.uri:
        client.rename_table("names.deep.t", "names.deep.u")
        assert rest.lake.list_tables(("names", "deep")) == ["names.deep.u"]


@pytest.mark.parametrize("version", [2, 3])
def test_pyiceberg_tables(rest, client, version):
    name = f"tables.v{version}"
    client.create_namespace_if_not_exists("tables")
    table = client.create_table(name, ROWS.schema, properties={"format-version": str(version)})
    if version == 3:  # its client leaves row ids out of the snapshots that it sends
        assert rest.lake.load_table(name).metadata.format_version == 3
        return
    table.append(ROWS)
    table.append(ROWS)
    with table.update_schema() as update:
        update.add_column("size", LongType())
    with table.update_spec() as update:
        update.add_identity("name")
    table.delete("id = 1")
    assert ids(rest.lake, name) == [2, 2, 3, 3]
    assert rest.lake.load_table(name).schema().column_names == ["id", "name", "size"]
    rest.lake.load_table(name).append(pa.table({"id": [9], "name": ["z"], "size": [1]}))
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [2, 2, 3, 3, 9]


def test_pyiceberg_creates_a_table_with_rows_in_one_commit(rest, client):
    client.create_namespace_if_not_exists("staged")
    with client.create_table_transaction("staged.t", ROWS.schema) as transaction:
        transaction.append(ROWS)
        assert not rest.lake.table_exists("staged.t")
    assert ids(rest.lake, "staged.t") == [1, 2, 3]
    late = client.create_table_transaction("staged.u", ROWS.schema)
    late.append(ROWS)
    client.create_table("staged.u", ROWS.schema)
    with pytest.raises((CommitFailedException, TableAlreadyExistsError)):
        late.commit_transaction()
    assert ids(rest.lake, "staged.u") == []


def test_our_client_creates_a_table_with_rows_in_one_commit(rest):
    remote = lh.load_catalog(rest.url)
    staged = remote.create_table("made.t", ROWS.schema, staged=True)
    assert not rest.lake.table_exists("made.t")
    staged.append(ROWS)
    assert ids(rest.lake, "made.t") == ids(remote, "made.t") == [1, 2, 3]
    assert rest.lake.load_table("made.t").metadata.table_uuid == staged.metadata.table_uuid
    late = remote.create_table("made.u", ROWS.schema, staged=True)
    rest.lake.create_table("made.u", ROWS.schema)
    with pytest.raises(TakenError):
        late.append(ROWS)
    assert ids(rest.lake, "made.u") == []


def test_pyiceberg_loses_a_race_and_says_so(rest, client):
    client.create_namespace_if_not_exists("races")
    ours = client.create_table("races.t", ROWS.schema)
    theirs = client.load_table("races.t")
    ours.append(ROWS)
    with theirs.transaction() as transaction:
        transaction.update_schema().add_column("size", LongType()).commit()
    with pytest.raises(CommitFailedException):
        ours.update_schema().add_column("weight", LongType()).commit()


def test_duckdb(rest, duck):
    warehouse = rest.lake.name
    duck.sql(
        f"ATTACH '{warehouse}' AS ours (TYPE iceberg, ENDPOINT '{rest.url}', "
        "AUTHORIZATION_TYPE 'none', STAGE_CREATE_TABLES false)"  # it makes no folders
    )
    try:
        duck.sql("CREATE SCHEMA ours.duck")
        duck.sql(
            "CREATE TABLE ours.duck.t AS SELECT range AS id, 'n' || range AS name FROM range(9)"
        )
        duck.sql("INSERT INTO ours.duck.t VALUES (100, 'x')")
        duck.sql("DELETE FROM ours.duck.t WHERE id < 7")
        assert ids(rest.lake, "duck.t") == [7, 8, 100]
        duck.sql("ALTER TABLE ours.duck.t ADD COLUMN size INTEGER")
        rest.lake.load_table("duck.t").append(pa.table({"id": [5], "size": [1]}))
        found = duck.sql("SELECT id, size FROM ours.duck.t ORDER BY id").fetchall()
        assert found == [(5, 1), (7, None), (8, None), (100, None)]
        duck.sql("DROP TABLE ours.duck.t")
        assert not rest.lake.table_exists("duck.t")
    finally:
        duck.sql("DETACH ours")


def test_our_own_client(rest):
    remote = lh.load_catalog(rest.url, warehouse=rest.lake.warehouse)
    location = rest.lake.catalog.default_location(Identifier.parse("own.t"))
    table = remote.create_table("own.t", ROWS.schema, location=location)
    table.append(ROWS)
    table.delete(where="id = 2")
    assert ids(rest.lake, "own.t") == [1, 3]
    stale = remote.load_table("own.t")
    table.set_properties({"a": "b"})
    stale.append(ROWS)
    assert rest.lake.load_table("own.t").properties["a"] == "b"
    assert ids(rest.lake, "own.t") == [1, 1, 2, 3, 3]
    base = remote.catalog.load(Identifier.parse("own.t"))
    requirement = AssertRefSnapshotId("main", 1)
    with pytest.raises(CommitConflictError):
        remote.catalog.commit(base.identifier, base, [requirement], [])
