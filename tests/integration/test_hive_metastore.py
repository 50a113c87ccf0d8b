"""Catalogs in real Hive Metastores (`make test-metastores`), with Iceberg's Java beside us."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.catalog import open_catalog
from lakehouse.errors import (
    CommitStateUnknownError,
    InvalidIdentifierError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    StorageError,
    TableAlreadyExistsError,
    UnsupportedFeatureError,
)
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_updates import SetProperties
from lakehouse.transaction import Transaction
from tests.integration.test_catalogs import emptied
from tests.integration.test_races import check_race, start
from tests.servers import ServeProcess, metastores, metastores_store
from tests.tables import EVENTS, create_table, data_file, live_files
from tests.waiting import eventually, reaped
from tests.wire import Wire

pytestmark = pytest.mark.slow
LOCKING = "engine.hive.lock-enabled"
WAYS = [
    (name, locking)
    for name in metastores()
    for locking in ("true", "false")
    if (name, locking) != ("hive3", "false")  # it compares nothing
]
BIGINT = {"type": "struct", "schema-id": 0}
BIGINT["fields"] = [{"id": 1, "name": "id", "required": False, "type": "long"}]


@pytest.fixture(params=list(metastores()))
def catalog(request, tmp_path):
    opened = emptied(open_catalog(metastores()[request.param], warehouse=str(tmp_path / "lake")))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def java():
    from tests.conformance.metastores import java

    with java() as judge:
        yield judge


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0]}-{'locks' if way[1] == 'true' else 'none'}")
def both(request, tmp_path, java):
    """A lake of ours, Java on the same metastore, and whether tables are locked."""
    name, locking = request.param
    uri, warehouse = metastores()[name], f"file://{tmp_path}/lake"
    lake = lh.load_catalog(uri, warehouse=warehouse)
    emptied(lake.catalog.inside)
    lake.create_namespace("db")
    java(
        "open",
        kind="hive",
        properties={"uri": uri.replace("hms:", "thrift:"), "warehouse": warehouse},
    )
    yield lake, java, locking
    lake.catalog.close()


def ids(judge):
    return sorted(row["1"] for row in judge("rows", table="db.t"))


def create_by_java(judge, **properties):
    given = {"format-version": "2", "commit.retry.num-retries": "50", **properties}
    judge("create", table="db.t", schema=BIGINT, properties=given)


def kept(lake):
    return lake.catalog.inside._metastore.table("db", "t")


def let_go(catalog):
    """What an operator does on 3.1.3, which runs no housekeeping here: unlock for the dead."""
    from hive_metastore.ttypes import ShowLocksRequest, UnlockRequest

    kept = catalog._metastore.call(lambda client: client.show_locks(ShowLocksRequest())).locks
    for lock in kept:
        asked = UnlockRequest(lock.lockid)
        catalog._metastore.call(lambda client, asked=asked: client.unlock(asked))


def test_namespaces_have_one_level(catalog):
    with pytest.raises(NoSuchNamespaceError):
        catalog.list_tables(("raw",))
    catalog.create_namespace(("raw",), {"steward": "us", "comment": "as it came"})
    with pytest.raises(NamespaceAlreadyExistsError):
        catalog.create_namespace(("raw",))
    with pytest.raises(InvalidIdentifierError, match="knows one"):
        catalog.create_namespace(("raw", "eu"))
    with pytest.raises(InvalidIdentifierError, match="'raw2'"):
        catalog.create_namespace(("Raw2",))
    assert not catalog.namespace_exists(("raw", "eu"))
    assert catalog.list_namespaces() == [("default",), ("raw",)]
    assert catalog.list_namespaces(("raw",)) == []
    told = dict(catalog.namespace_properties(("raw",)))
    assert catalog.namespace_location(("raw",)) == f"{catalog.warehouse}/raw"
    assert told.pop("location").endswith("/lake/raw")
    assert told == {"steward": "us", "comment": "as it came"}
    changed = catalog.update_namespace_properties(("raw",), {"a": "b", "comment": "x"}, ["steward"])
    assert {**changed, "location": ""} == {"a": "b", "comment": "x", "location": ""}
    with pytest.raises(UnsupportedFeatureError, match="cannot forget"):
        catalog.update_namespace_properties(("raw",), {}, ["comment"])
    create_table(catalog)
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace(("raw",))


def test_a_storage_that_the_metastore_does_not_reach_is_named(catalog):
    with pytest.raises(StorageError, match="its own Hadoop needs a connector"):
        catalog.create_namespace(("far",), {"location": "gs://lake/far"})
    assert not catalog.namespace_exists(("far",))


def test_a_lake_that_is_served(catalog):
    check_served({"uri": catalog.uri, "warehouse": catalog.warehouse, "properties": {}})


def check_served(job):
    """`lakehouse serve` over it: pyiceberg by REST, and we, write in turn."""
    from pyiceberg.catalog.rest import RestCatalog

    options = [f"--property={name}={value}" for name, value in job["properties"].items()]
    with ServeProcess(job["uri"], job["warehouse"], *options) as server:
        rest = RestCatalog("r", uri=server.url)
        rest.create_namespace("db")
        rest.create_table("db.t", pa.schema([("id", pa.int64())])).append(pa.table({"id": [1]}))
        ours = lh.load_catalog(job["uri"], warehouse=job["warehouse"], **job["properties"])
        ours.load_table("db.t").append(pa.table({"id": [2]}))
        assert sorted(rest.load_table("db.t").scan().to_arrow()["id"].to_pylist()) == [1, 2]
        ours.catalog.close()


@pytest.mark.parametrize("name", ["Events", "a/b", "a b", "x'); --", "日本"])
def test_names_are_kept_or_refused(catalog, name):
    identifier = Identifier(("raw",), name)
    try:
        create_table(catalog, identifier)
    except InvalidIdentifierError:
        assert catalog.list_tables(("raw",)) == []
    else:
        assert name == name.lower()
        assert catalog.load(identifier).identifier == identifier
        assert catalog.list_tables(("raw",)) == [identifier]


def test_what_is_none_of_icebergs_is_not_listed_and_keeps_its_name(catalog):
    from hive_metastore.ttypes import SerDeInfo, StorageDescriptor, Table

    catalog.create_namespace(("raw",))
    storage = StorageDescriptor(
        cols=[], location=f"{catalog.warehouse}/raw/plain", serdeInfo=SerDeInfo(), bucketCols=[]
    )
    plain = Table("events", "raw", sd=storage, parameters={}, tableType="EXTERNAL_TABLE")
    plain.partitionKeys = []
    catalog._metastore.call(lambda client: client.create_table(plain))
    assert catalog.list_tables(("raw",)) == []
    assert not catalog.table_exists(EVENTS)
    with pytest.raises(TableAlreadyExistsError, match="none of Iceberg's"):
        create_table(catalog)


def test_without_locks_an_old_metastore_is_refused(tmp_path):
    if "hive3" not in metastores():
        pytest.skip("no metastore of version 3")
    uri = metastores()["hive3"]
    catalog = emptied(open_catalog(uri, warehouse=str(tmp_path)))
    base = create_table(catalog, properties={LOCKING: "false"})
    with pytest.raises(UnsupportedFeatureError, match="HIVE-26882"):
        catalog.commit(EVENTS, base, (), (SetProperties({"a": "1"}),))
    assert catalog.load(EVENTS).metadata == base.metadata
    catalog.close()


def test_java_and_we_write_in_turn(both):
    lake, java, locking = both
    create_by_java(java, **{LOCKING: locking})
    java("append", table="db.t", rows=[{"1": 1}, {"1": 2}])
    table = lake.load_table("db.t")
    assert lake.list_tables("db") == ["db.t"]
    table.append(pa.table({"id": [3]}))
    assert ids(java) == [1, 2, 3]
    java("append", table="db.t", rows=[{"1": 4}])
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]
    table.delete(where="id = 2")
    assert ids(java) == [1, 3, 4]


def test_the_metastore_has_what_java_writes_there(both):
    lake, java, locking = both
    create_by_java(java, **{LOCKING: locking, "gc.enabled": "false", "mine": "1"})
    java("append", table="db.t", rows=[{"1": 1}])
    by_java = kept(lake)
    lake.load_table("db.t").append(pa.table({"id": [2]}))
    ours = kept(lake)
    assert ours.parameters["previous_metadata_location"] == by_java.parameters["metadata_location"]
    changing = {"metadata_location", "previous_metadata_location", "transient_lastDdlTime"}
    changing |= {name for name in by_java.parameters if name.startswith("current-snapshot")}
    changing |= {"snapshot-count", "numFiles", "numRows", "totalSize"}
    assert by_java.parameters.keys() - ours.parameters.keys() == set()
    for name, value in by_java.parameters.items():
        if name not in changing and not value.startswith("{"):
            assert ours.parameters[name] == value, name
        elif value.startswith("{") and name not in changing:
            assert json.loads(ours.parameters[name]) == json.loads(value), name
    assert ours.parameters["numRows"] == "2"
    assert ours.sd == by_java.sd
    lake.load_table("db.t").remove_properties("mine")
    assert "mine" not in kept(lake).parameters


def test_commits_of_both_at_once_lose_nothing(both):
    lake, java, locking = both
    create_by_java(java, **{LOCKING: locking})
    java("storm", table="db.t", storm="s", batches=[[{"1": number}] for number in range(12)])
    failed = []

    def append(first):
        try:
            table = lake.load_table("db.t")
            for number in range(first, first + 12):
                table.append(pa.table({"id": [number]}))
        except Exception as error:  # noqa: BLE001 - told below
            failed.append(error)

    threads = [threading.Thread(target=append, args=(first,)) for first in (100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    java("join", storm="s")
    assert failed == []
    assert ids(java) == [*range(12), *range(100, 112), *range(200, 212)]
    assert lake.load_table("db.t").scan().count() == 36


def test_views_of_both(both):
    lake, java, _ = both
    create_by_java(java)
    lake.create_view("db.v", "SELECT id FROM db.t", pa.schema([("id", pa.int64())]))
    assert lake.list_tables("db") == ["db.t"]
    with pytest.raises(Exception, match=r"[Nn]ot an iceberg table|Table does not exist"):
        java("rows", table="db.v")
    assert kept_view(lake).tableType == "VIRTUAL_VIEW"
    assert kept_view(lake).parameters["table_type"].lower() == "iceberg-view"


def kept_view(lake):
    return lake.catalog.inside._metastore.table("db", "v")


@pytest.mark.parametrize(("name", "locking"), WAYS)
def test_processes_that_race(tmp_path, name, locking):
    options = {f"iceberg.{LOCKING}": locking, "commit.turns.enabled": "false"}
    job = {"uri": metastores()[name], "warehouse": str(tmp_path / "lake"), "properties": options}
    catalog = emptied(open_catalog(job["uri"], warehouse=job["warehouse"], **options))
    check_race(catalog, job, 3, 8, fair=False)
    catalog.close()


@pytest.mark.parametrize(("name", "locking"), WAYS)
def test_kill_at_random_moments(tmp_path, name, locking):
    """Acknowledged commits are there once; a lock of the dead is let go."""
    options = {f"iceberg.{LOCKING}": locking}
    job = {"uri": metastores()[name], "warehouse": str(tmp_path / "lake"), "properties": options}
    catalog = emptied(open_catalog(job["uri"], warehouse=job["warehouse"], **options))
    create_table(catalog)
    rng, log = random.Random(7), str(tmp_path / "acknowledged")
    for number in range(int(os.environ.get("LAKEHOUSE_KILL_ROUNDS", "3"))):
        with reaped(start(job, f"k{number}", 1000, log)) as process:
            assert process.stdout.readline() == "ready\n"
            process.stdin.write("go\n")
            process.stdin.flush()
            time.sleep(rng.uniform(0.3, 1.5))
        if name == "hive3":
            let_go(catalog)
        found = live_files(catalog, catalog.load(EVENTS))
        acknowledged = Path(log).read_text().split() if Path(log).exists() else []
        assert len(found) == len(set(found))
        assert set(acknowledged) <= set(found)
        assert len(found) - len(acknowledged) <= number + 1
    Transaction(catalog, EVENTS).append([data_file("after")]).commit()
    assert "after" in live_files(catalog, catalog.load(EVENTS))
    catalog.close()


@contextmanager
def wired(name, tmp_path, **options):
    wire = Wire(metastores()[name])
    wire.start()
    catalog = emptied(open_catalog(wire.uri, warehouse=str(tmp_path / "lake"), **options))
    try:
        yield wire, catalog
    finally:
        catalog.close()
        wire.close()


@pytest.mark.parametrize(("name", "locking"), WAYS)
def test_a_lost_reply_of_a_commit_that_landed(tmp_path, name, locking):
    with wired(name, tmp_path, **{f"iceberg.{LOCKING}": locking}) as (wire, catalog):
        create_table(catalog)
        wire.cut_at = b"alter_table_with_environment_context"
        committed = Transaction(catalog, EVENTS).append([data_file("one")]).commit()
        assert (wire.cuts, committed.retries) == (1, 0)
        assert live_files(catalog, catalog.load(EVENTS)) == ["one"]


@pytest.mark.parametrize(("name", "locking"), WAYS)
def test_a_commit_of_which_nobody_knows_keeps_its_files(tmp_path, name, locking):
    with wired(name, tmp_path, **{f"iceberg.{LOCKING}": locking}) as (wire, catalog):
        base = create_table(catalog)
        wire.cut_at, wire.delivered = b"alter_table_with_environment_context", False
        with pytest.raises(CommitStateUnknownError, match="metastore did not tell") as caught:
            catalog.commit(EVENTS, base, (), (SetProperties({"a": "1"}),))
        assert wire.cuts == 1
        location = caught.value.context["metadata_location"]
        assert catalog.storage(location).exists(location)
        assert catalog.load(EVENTS).metadata_location == base.metadata_location
        catalog.commit(EVENTS, base, (), (SetProperties({"a": "2"}),))  # no lock is left


@pytest.mark.parametrize(
    "call", [b"create_table", b"drop_table", b"lock", b"check_lock", b"unlock"]
)
@pytest.mark.parametrize("name", list(metastores()))
def test_lost_replies_of_other_calls(tmp_path, name, call):
    with wired(name, tmp_path, **{"iceberg.hive.lock-timeout-ms": "30000"}) as (wire, catalog):
        catalog.create_namespace(("raw",))
        wire.cut_at = call if call == b"create_table" else b""
        base = create_table(catalog)
        wire.cut_at = call if call not in (b"create_table", b"drop_table") else b""
        catalog.commit(EVENTS, base, (), (SetProperties({"a": "1"}),))
        wire.cut_at = call if call == b"drop_table" else b""
        catalog.drop(EVENTS)
        assert not catalog.table_exists(EVENTS)


def test_a_lock_of_others_is_waited_for(catalog):
    from lakehouse.catalog.metastores.hive_locks import HiveLocks

    base = create_table(catalog)
    locks = HiveLocks(catalog._metastore, {}, catalog._environment)
    impatient = open_catalog(
        catalog.uri, warehouse=catalog.warehouse, **{"iceberg.hive.lock-timeout-ms": "300"}
    )
    with locks.lock(EVENTS), pytest.raises(StorageError, match="not in 300 ms"):
        impatient.commit(EVENTS, base, (), (SetProperties({"a": "1"}),))
    impatient.commit(EVENTS, base, (), (SetProperties({"a": "1"}),))
    impatient.close()


def test_a_lock_of_the_dead_is_waited_for_until_it_is_let_go(catalog):
    code = (
        "import os, sys; from lakehouse.catalog import open_catalog;"
        "c = open_catalog(sys.argv[1]);"
        "from lakehouse.catalog.metastores.hive_locks import HiveLocks;"
        "from tests.tables import EVENTS;"
        "HiveLocks(c._metastore, {}, c._environment)._take(EVENTS); os._exit(9)"
    )
    base = create_table(catalog)
    assert subprocess.run([sys.executable, "-c", code, catalog.uri]).returncode == 9
    if catalog.uri == metastores().get("hive3"):
        impatient = {"iceberg.hive.lock-timeout-ms": "1000"}
        waiting = open_catalog(catalog.uri, warehouse=catalog.warehouse, **impatient)
        with pytest.raises(StorageError, match="not in 1000 ms"):
            waiting.commit(EVENTS, base, (), (SetProperties({"a": "1"}),))
        waiting.close()
        let_go(catalog)
    catalog.commit(EVENTS, base, (), (SetProperties({"a": "1"}),))


def test_kept_locks_do_not_end(catalog):
    """The metastore lets go of locks after 5 s without a heartbeat."""
    from lakehouse.catalog.metastores.hive_locks import HiveLocks

    every = {"iceberg.hive.lock-heartbeat-interval-ms": "2000"}
    with HiveLocks(catalog._metastore, every, catalog._environment).lock(EVENTS) as held:
        time.sleep(12)
        held.confirm()


def test_columns_that_hive_knows_otherwise(both):
    """Evolution that no Hive table could do is a commit as any other, or refused for certain."""
    lake, _, _ = both
    table = lake.create_table("db.t", schema=pa.schema([("a", pa.int64()), ("b", pa.string())]))
    table.append(pa.table({"a": [1], "b": ["x"]}))
    with suppress(StorageError), table.update_schema() as change:
        change.drop_column("a")
    assert lake.load_table("db.t").scan().to_arrow()["b"].to_pylist() == ["x"]


@pytest.mark.skipif("hive3" not in metastores(), reason="no metastore that pyiceberg can ask")
def test_pyiceberg_reads_and_writes_the_same(tmp_path):
    from pyiceberg.catalog.hive import HiveCatalog

    uri = metastores()["hive3"]
    lake = lh.load_catalog(uri, warehouse=f"file://{tmp_path}")
    emptied(lake.catalog.inside)
    table = lake.create_table("db.t", schema=pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    theirs = HiveCatalog("h", uri=uri.replace("hms:", "thrift:")).load_table("db.t")
    theirs.append(pa.table({"id": pa.array([2], pa.int64())}))
    table.refresh().append(pa.table({"id": [3]}))
    assert sorted(theirs.refresh().scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
    lake.catalog.close()


def test_a_metastore_that_is_killed_and_comes_back(tmp_path):
    """Its own PostgreSQL goes on; what was acknowledged is there once."""
    if not metastores():
        pytest.skip("no metastore")
    from tests.conformance.metastores import metastores as started

    with started(tmp_path / "own", metastores_store()) as servers:
        server = servers["hive4"]
        with server.running():
            catalog = open_catalog(server.uri, warehouse=str(tmp_path / "lake"))
            create_table(catalog)
        done, failed = [], []

        def append():
            for number in range(40):
                name = f"n{number}"
                try:
                    Transaction(catalog, EVENTS).append([data_file(name)]).commit(commit_id=name)
                except (CommitStateUnknownError, StorageError) as error:
                    failed.append((name, error))
                else:
                    done.append(name)
                time.sleep(0.1)

        thread = threading.Thread(target=append)
        with server.running():
            thread.start()
            eventually(lambda: len(done) > 3)
        with server.running():
            thread.join()
            found = live_files(catalog, catalog.load(EVENTS))
            assert len(found) == len(set(found))
            assert set(done) <= set(found)
            assert set(found) - set(done) <= {name for name, _ in failed}
            assert len(done) >= 38
        catalog.close()


def test_uuid_of_the_warehouse_is_not_needed(catalog):
    """Without a warehouse tables lie where the metastore puts its databases."""
    lake = lh.load_catalog(catalog.uri)
    name = f"n{uuid.uuid4().hex[:8]}"
    table = lake.create_table(f"{name}.t", schema=pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    assert f"/{name}.db/t-" in table.location
    lake.drop_table(f"{name}.t", purge=True)
    lake.catalog.close()


@pytest.mark.spark
@pytest.mark.parametrize(("name", "locking"), WAYS)
def test_spark_reads_and_writes_by_the_same_catalog(spark, tmp_path, java, name, locking):
    uri, warehouse = metastores()[name], f"file://{tmp_path}/lake"
    lake = lh.load_catalog(uri, warehouse=warehouse)
    emptied(lake.catalog.inside)
    lh.spark.attach(spark, lake, name="hv")
    java(
        "open",
        kind="hive",
        properties={"uri": uri.replace("hms:", "thrift:"), "warehouse": warehouse},
    )
    create_by_java(java, **{LOCKING: locking})
    java("append", table="db.t", rows=[{"1": 1}, {"1": 2}])
    spark.sql("INSERT INTO hv.db.t VALUES (3), (4)")
    spark.sql("DELETE FROM hv.db.t WHERE id = 1")
    spark.sql(
        "MERGE INTO hv.db.t t USING (SELECT 2L id UNION ALL SELECT 9L id) s ON t.id = s.id "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
    )
    assert ids(java) == [3, 4, 9]
    java("append", table="db.t", rows=[{"1": 10}])
    assert [row.id for row in spark.sql("SELECT id FROM hv.db.t ORDER BY id").collect()] == [
        *(3, 4, 9, 10)
    ]
    spark.sql(f"CREATE TABLE hv.db.made (id BIGINT) TBLPROPERTIES ('{LOCKING}' = '{locking}')")
    spark.sql("INSERT INTO hv.db.made SELECT id FROM hv.db.t")
    spark.sql("ALTER TABLE hv.db.made RENAME TO hv.db.named")
    assert lake.load_table("db.named").scan().count() == 4
    spark.sql("DROP TABLE hv.db.named PURGE")
    assert lake.list_tables("db") == ["db.t"]
    lake.catalog.close()
