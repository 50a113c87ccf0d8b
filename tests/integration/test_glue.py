"""Catalogs in Glue, on moto's server, with pyiceberg's beside us; the suite is test_catalogs.py."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from contextlib import contextmanager

import pyarrow as pa
import pytest
from pyiceberg.catalog.glue import GlueCatalog as PyicebergsCatalog
from pyiceberg.catalog.glue import _construct_table_input

import lakehouse as lh
from lakehouse.catalog import open_catalog
from lakehouse.catalog.commit_outcome import is_certain
from lakehouse.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    InvalidIdentifierError,
    InvalidInputError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchTableError,
    StorageError,
    TableAlreadyExistsError,
    UnsupportedFeatureError,
)
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_updates import SetProperties
from lakehouse.transaction import Transaction
from tests.integration.test_catalogs import GLUE_KEYS, emptied, glue_catalog
from tests.integration.test_hive_metastore import BIGINT, check_served, ids
from tests.integration.test_races import check_race, start
from tests.servers import metastores
from tests.tables import EVENTS, create_table, data_file, live_files
from tests.waiting import reaped
from tests.wire import Wire

CHANGE = (SetProperties({"a": "1"}),)


@pytest.fixture
def catalog(s3_properties, tmp_path):
    return emptied(glue_catalog(s3_properties, str(tmp_path / "lake")))


@pytest.fixture
def both(s3_properties, catalog):
    """A lake of ours, and pyiceberg on the same Glue."""
    options = {name: value for name, value in catalog.properties.items() if name[:5] == "glue."}
    lake = lh.load_catalog(
        "ours", type="glue", warehouse=catalog.warehouse, **options, **{"glue.region": "us-east-1"}
    )
    lake.create_namespace("db")
    theirs = PyicebergsCatalog(
        "theirs",
        warehouse=catalog.warehouse,
        **options,
        **{"glue.region": "us-east-1", "client.region": "us-east-1"},
    )
    return lake, theirs


@contextmanager
def before(catalog, operation, action):
    """Something that happens just before the catalog's next request of a kind."""
    events = catalog._databases._client._client.meta.events
    pending = [action]

    def happen(**_):
        if pending:
            pending.pop()()

    events.register(f"before-call.glue.{operation}", happen)
    yield
    events.unregister(f"before-call.glue.{operation}", happen)
    assert not pending


def kept(catalog):
    return catalog._databases._client.call("get_table", DatabaseName="db", Name="t")["Table"]


def test_pyiceberg_and_we_write_in_turn(both):
    lake, theirs = both
    table = lake.create_table("db.t", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1, 2]}))
    assert theirs.list_tables("db") == [("db", "t")]
    theirs.load_table("db.t").append(pa.table({"id": [3]}))
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
    table.delete(where="id = 2")
    assert sorted(theirs.load_table("db.t").scan().to_arrow()["id"].to_pylist()) == [1, 3]
    theirs.create_table("db.u", pa.schema([("id", pa.int64())]))
    lake.load_table("db.u").append(pa.table({"id": [9]}))
    assert theirs.load_table("db.u").scan().to_arrow()["id"].to_pylist() == [9]


def test_glue_has_what_pyiceberg_writes_there(both):
    lake, theirs = both
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field("at", pa.timestamp("us", "UTC"))]
    lake.create_table("db.t", pa.schema([*fields, ("gone", pa.list_(pa.decimal128(9, 2)))]))
    first = kept(lake.catalog.inside)["Parameters"]["metadata_location"]
    table = lake.load_table("db.t")
    with table.update_schema() as update:
        update.drop_column("gone").update_column("id", doc="a key")
    version = lake.catalog.load(Identifier.parse("db.t"))
    read = theirs.load_table("db.t")
    wanted = _construct_table_input("t", version.metadata_location, {}, read.metadata, None, first)
    ours = kept(lake.catalog.inside)
    assert {name: ours[name] for name in wanted} == wanted


@pytest.fixture
def java(both, s3_properties, monkeypatch):
    """Iceberg's Java on the same Glue."""
    if not metastores():
        pytest.skip("it needs Iceberg's Java: make test-metastores")
    from tests.conformance.metastores import java

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_properties["s3.access-key-id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_properties["s3.secret-access-key"])
    properties = {
        "warehouse": both[0].catalog.warehouse,
        "glue.endpoint": s3_properties["s3.endpoint"],
        "client.region": "us-east-1",
        "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
    }
    with java() as judge:
        judge("open", kind="glue", properties=properties)
        yield judge


@pytest.mark.slow
def test_java_and_we_write_in_turn_and_at_once(both, java):
    lake, _ = both
    given = {"format-version": "2", "commit.retry.num-retries": "50"}
    java("create", table="db.t", schema=BIGINT, properties=given)
    java("append", table="db.t", rows=[{"1": 1}, {"1": 2}])
    by_java, table = kept(lake.catalog.inside), lake.load_table("db.t")
    table.append(pa.table({"id": [3]}))
    ours = kept(lake.catalog.inside)
    was = by_java["Parameters"].pop("metadata_location")
    del by_java["Parameters"]["previous_metadata_location"]
    assert ours["Parameters"].pop("previous_metadata_location") == was
    del ours["Parameters"]["metadata_location"]
    for changing in ("UpdateTime", "VersionId"):
        del by_java[changing], ours[changing]
    assert ours == by_java
    table.delete(where="id = 2")
    assert ids(java) == [1, 3]
    java("storm", table="db.t", storm="s", batches=[[{"1": number}] for number in range(10, 22)])
    for number in range(100, 112):
        table.append(pa.table({"id": [number]}))
    java("join", storm="s")
    assert ids(java) == [1, 3, *range(10, 22), *range(100, 112)]
    assert table.refresh().scan().count() == 26


def test_what_others_keep_stays(both):
    lake, _ = both
    table = lake.create_table("db.t", pa.schema([("id", pa.int64())]))
    present = kept(lake.catalog.inside)
    storage = present["StorageDescriptor"]
    storage["Columns"][0]["Comment"] = "by a crawler"
    lake.catalog.inside._databases._client.call(
        "update_table",
        DatabaseName="db",
        TableInput={
            "Name": "t",
            "Owner": "them",
            "TableType": "EXTERNAL_TABLE",
            "StorageDescriptor": {**storage, "SerdeInfo": {"Name": "s"}},
            "Parameters": {**present["Parameters"], "classification": "x"},
        },
    )
    table.refresh().append(pa.table({"id": [1]}))
    after = kept(lake.catalog.inside)
    assert (after["Owner"], after["Parameters"]["classification"]) == ("them", "x")
    assert after["StorageDescriptor"]["SerdeInfo"] == {"Name": "s"}
    assert after["StorageDescriptor"]["Columns"][0]["Comment"] == "by a crawler"


def test_who_commits_between_the_look_and_the_swap_wins(catalog, s3_properties):
    """Planted: without `VersionId` the commit of the other one is lost, and nothing is said."""
    base, other = create_table(catalog), glue_catalog(s3_properties, catalog.warehouse)
    other_change = (SetProperties({"b": "2"}),)
    with (
        before(catalog, "UpdateTable", lambda: other.commit(EVENTS, base, (), other_change)),
        pytest.raises(CommitConflictError) as caught,
    ):
        catalog.commit(EVENTS, base, (), CHANGE)
    assert is_certain(caught.value)
    version = catalog.load(EVENTS)
    assert version.metadata.properties["b"] == "2"
    assert "a" not in version.metadata.properties
    folder = f"{base.metadata.location}/metadata"
    names = [one.location for one in catalog.storage(folder).list(folder)]
    assert len([name for name in names if name.endswith(".metadata.json")]) == 2


def test_a_table_is_renamed_unless_somebody_commits_meanwhile(catalog, s3_properties):
    base, other = create_table(catalog), glue_catalog(s3_properties, catalog.warehouse)
    target = Identifier(("raw",), "renamed")
    with (
        before(catalog, "CreateTable", lambda: other.commit(EVENTS, base, (), CHANGE)),
        pytest.raises(CommitConflictError),
    ):
        catalog.rename(EVENTS, target)
    assert catalog.list_tables(("raw",)) == [EVENTS]
    catalog.rename(EVENTS, target)
    assert catalog.list_tables(("raw",)) == [target]
    assert catalog.load(target).metadata.properties["a"] == "1"
    create_table(catalog)
    with pytest.raises(TableAlreadyExistsError):
        catalog.rename(target, EVENTS)


def test_a_table_that_goes_before_the_swap(catalog, s3_properties):
    base, other = create_table(catalog), glue_catalog(s3_properties, catalog.warehouse)
    with (
        before(catalog, "UpdateTable", lambda: other.drop(EVENTS)),
        pytest.raises(NoSuchTableError),
    ):
        catalog.commit(EVENTS, base, (), CHANGE)


def test_namespaces(catalog, s3_properties):
    catalog.create_namespace(("raw",), {"steward": "us", "comment": "as it came"})
    with pytest.raises(NamespaceAlreadyExistsError):
        catalog.create_namespace(("raw",))
    for name in ("raw", "eu"), ("Raw2",), ("a b",), ("a-b",):
        with pytest.raises(InvalidIdentifierError, match="Glue"):
            catalog.create_namespace(name)
    place = f"{catalog.warehouse}/raw"
    assert catalog.namespace_properties(("raw",)) == {
        "steward": "us",
        "comment": "as it came",
        "location": place,
    }
    changed = catalog.update_namespace_properties(("raw",), {"a": "b"}, ["steward", "comment"])
    assert changed == {"a": "b", "location": place}
    create_table(catalog)
    with pytest.raises(NamespaceNotEmptyError, match="events"):
        catalog.drop_namespace(("raw",))
    assert catalog.table_exists(EVENTS)
    homeless = glue_catalog(s3_properties, None)
    homeless.create_namespace(("bare",))
    with pytest.raises(InvalidInputError, match="no location"):
        homeless.default_location(Identifier(("bare",), "t"))


def test_views_are_refused_by_name(both):
    lake, _ = both
    with pytest.raises(UnsupportedFeatureError, match=r"View db\.v"):
        lake.create_view("db.v", "SELECT 1 AS id", pa.schema([("id", pa.int64())]))
    assert lake.list_views("db") == []


def test_tables_of_others_are_not_listed_and_keep_their_names(catalog):
    catalog.create_namespace(("raw",))
    plain = {"Name": "events", "StorageDescriptor": {"Location": f"{catalog.warehouse}/raw/plain"}}
    catalog._databases._client.call("create_table", DatabaseName="raw", TableInput=plain)
    assert catalog.list_tables(("raw",)) == []
    with pytest.raises(TableAlreadyExistsError, match="none of Iceberg's"):
        create_table(catalog)


def test_what_cannot_be_opened_says_why(s3_properties, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(InvalidInputError, match="region"):
        open_catalog("glue://")
    with pytest.raises(InvalidInputError, match="names no region") as refused:
        open_catalog("glue://user:pw@eu-west-1")
    assert "pw" not in str(refused.value)
    with pytest.raises(InvalidInputError, match="together"):
        open_catalog("glue://eu-west-1", **{"glue.access-key-id": "a"})
    with pytest.raises(InvalidInputError, match="no-such"):
        open_catalog("glue://eu-west-1", **{"glue.profile-name": "no-such"})
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(InvalidInputError, match=r"pylakehouse\[signing\]"):
        open_catalog("glue://eu-west-1")


@contextmanager
def wired(s3_properties, tmp_path):
    wire = Wire(s3_properties["s3.endpoint"])
    wire.start()
    catalog = emptied(
        glue_catalog({**s3_properties, "s3.endpoint": wire.uri}, str(tmp_path / "lake"))
    )
    try:
        yield wire, catalog
    finally:
        wire.close()


def test_a_lost_reply_of_a_commit_that_landed(s3_properties, tmp_path):
    with wired(s3_properties, tmp_path) as (wire, catalog):
        create_table(catalog)
        wire.cut_at = b"AWSGlue.UpdateTable"
        committed = Transaction(catalog, EVENTS).append([data_file("one")]).commit()
        assert (wire.cuts, committed.retries) == (1, 0)
        assert live_files(catalog, catalog.load(EVENTS)) == ["one"]


def test_a_commit_of_which_nobody_knows_keeps_its_files(s3_properties, tmp_path):
    with wired(s3_properties, tmp_path) as (wire, catalog):
        base = create_table(catalog)
        wire.cut_at, wire.delivered = b"AWSGlue.UpdateTable", False
        with pytest.raises(CommitStateUnknownError, match="metastore did not tell") as caught:
            catalog.commit(EVENTS, base, (), CHANGE)
        location = caught.value.context["metadata_location"]
        assert catalog.storage(location).exists(location)
        assert catalog.load(EVENTS).metadata_location == base.metadata_location


@pytest.mark.parametrize("call", [b"AWSGlue.CreateTable", b"AWSGlue.DeleteTable"])
def test_lost_replies_of_creating_and_renaming(s3_properties, tmp_path, call):
    with wired(s3_properties, tmp_path) as (wire, catalog):
        target = Identifier(("raw",), "renamed")
        if call == b"AWSGlue.DeleteTable":
            create_table(catalog)
        wire.cut_at = call
        if call == b"AWSGlue.CreateTable":
            create_table(catalog)
            wire.cut_at = call
        catalog.rename(EVENTS, target)
        assert catalog.list_tables(("raw",)) == [target]


def test_glue_that_is_away_is_a_storage_error():
    keys = {"glue.access-key-id": "a", "glue.secret-access-key": "b"}
    options = {"glue.endpoint": "http://127.0.0.1:9", "catalog.retry-timeout-ms": "0", **keys}
    with pytest.raises(StorageError, match="not reached") as caught:
        open_catalog("glue://eu-west-1", **options).list_namespaces()
    assert caught.value.retryable


def job_of(catalog):
    names = (*(f"glue.{name}" for name in GLUE_KEYS), "commit.turns.enabled")
    options = {name: catalog.properties[name] for name in names if name in catalog.properties}
    return {"uri": catalog.uri, "warehouse": catalog.warehouse, "properties": options}


@pytest.mark.slow
def test_processes_that_race(s3_properties, tmp_path):
    options = {"commit.turns.enabled": "false"}
    catalog = emptied(glue_catalog(s3_properties, str(tmp_path / "lake"), **options))
    check_race(catalog, job_of(catalog), 3, 8, fair=False)


@pytest.mark.slow
def test_kill_at_random_moments(catalog, tmp_path):
    create_table(catalog)
    rng, log = random.Random(7), tmp_path / "acknowledged"
    for number in range(3):
        with reaped(start(job_of(catalog), f"k{number}", 1000, str(log))) as process:
            assert process.stdout.readline() == "ready\n"
            process.stdin.write("go\n")
            process.stdin.flush()
            time.sleep(rng.uniform(0.3, 1.5))
        files = live_files(catalog, catalog.load(EVENTS))
        acknowledged = log.read_text().split() if log.exists() else []
        assert len(files) == len(set(files))
        assert set(acknowledged) <= set(files)
        assert len(files) - len(acknowledged) <= number + 1


@pytest.mark.slow
def test_a_lake_that_is_served(catalog):
    check_served(job_of(catalog))


def test_the_command_line_opens_it(both):
    lake, _ = both
    lake.create_table("db.t", pa.schema([("id", pa.int64())]))
    job = job_of(lake.catalog.inside)
    options = [f"--property={name}={value}" for name, value in job["properties"].items()]
    cli = "from lakehouse.cli import app; app()"
    command = [sys.executable, "-c", cli, "tables", "--catalog", job["uri"], *options]
    command += ["--warehouse", job["warehouse"]]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "db.t" in listed.stdout
