"""Real processes on real storage.

LAKEHOUSE_RACE_WRITERS and LAKEHOUSE_RACE_APPENDS make it larger (make race).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import create_engine, event, text

from lakehouse.catalog import open_catalog
from lakehouse.catalog.sql.sql_catalog import SqlCatalog
from lakehouse.errors import ValidationConflictError
from lakehouse.maintenance.orphan_removal import OrphanOptions, remove_orphan_files
from lakehouse.maintenance.retention.snapshot_expiry import ExpiryOptions, expire_snapshots
from lakehouse.transaction import Transaction
from tests.servers import clouds
from tests.table_census import take_census
from tests.tables import EVENTS, create_table, data_file, delete_file, live_files
from tests.waiting import reaped

pytestmark = pytest.mark.slow
WRITERS = int(os.environ.get("LAKEHOUSE_RACE_WRITERS", "2"))
APPENDS = int(os.environ.get("LAKEHOUSE_RACE_APPENDS", "100"))
LARGE = "LAKEHOUSE_RACE_APPENDS" in os.environ
ROOT = Path(__file__).parents[2]


def start(job, worker, appends, log=None):
    argument = json.dumps({**job, "worker": worker, "appends": appends, "log": log})
    return subprocess.Popen(
        [sys.executable, str(ROOT / "tests/integration/race_worker.py"), argument],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def race(job, writers, appends):
    """All results, once every process was ready and then finished."""
    with ExitStack() as running:
        processes = [
            running.enter_context(reaped(start(job, f"w{number}", appends)))
            for number in range(writers)
        ]
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        return [json.loads(process.communicate(timeout=1800)[0]) for process in processes]


def check_race(catalog, job, writers, appends, *, fair=True):
    """All writers commit everything; fair: no one waits until another is done."""
    create_table(catalog)
    results = race(job, writers, appends)
    failed = [one for result in results for one in result["failed"]]
    assert failed == []
    expected = sorted(name for result in results for name in result["acknowledged"])
    assert len(expected) == writers * appends
    version = catalog.load(EVENTS)
    assert live_files(catalog, version) == expected
    line = list(version.metadata.ancestors(version.metadata.current_snapshot_id))
    assert len(line) == writers * appends
    assert [one.sequence_number for one in line] == list(range(writers * appends, 0, -1))
    retries = sum(result["retries"] for result in results)
    slowest = max(result["seconds"] for result in results)
    first_done = min(result["times"][-1] for result in results)
    progress = min(sum(moment <= first_done for moment in result["times"]) for result in results)
    sys.stdout.write(
        "\n"
        f"{writers} x {appends} appends, 0 lost, 0 failed, {retries} retries, "
        f"{writers * appends / slowest:.0f} commits/s, the slowest writer had {progress} when the "
        f"fastest had {appends}\n"
    )
    reported = sum(int(one.summary.get("lakehouse.retries", "0")) for one in line)
    assert reported == retries
    if appends >= 50 and fair:
        assert progress > 0
    check_nothing_is_left(catalog, line)
    return version


def check_nothing_is_left(catalog, line):
    """After expiry and orphan removal: every file is reached, every appended data file is there."""
    expire_snapshots(catalog, EVENTS, ExpiryOptions(older_than_ms=2**62, retain_last=1))
    before = take_census(catalog, EVENTS)
    # not even for orphan removal to find: all losers cleaned up
    assert before.unreachable == frozenset()
    remove_orphan_files(
        catalog, EVENTS, OrphanOptions(older_than_ms=2**62, force=True, trash=False)
    )
    census = take_census(catalog, EVENTS)
    assert census.unreachable == census.missing == frozenset()
    version = catalog.load(EVENTS)
    present = sorted(
        key.rpartition("/")[2]
        for key in census.present
        if key.endswith(".parquet") and "/data/" in key
    )
    assert present == [f"{name}.parquet" for name in live_files(catalog, version)]
    assert len(present) == len(line)
    leftover_metadata = [
        key
        for key in census.present.keys() - census.reachable
        if not key.endswith("version-hint.text")
    ]
    assert all(key.endswith(".metadata.json") for key in leftover_metadata)


def test_filesystem(tmp_path):
    catalog = open_catalog(str(tmp_path / "warehouse"))
    check_race(catalog, {"uri": str(tmp_path / "warehouse")}, WRITERS, APPENDS)


def test_filesystem_without_turns(tmp_path):
    """Writers collide for real: the compare-and-swap decides, losers retry, nobody gives up.

    Turns make it fair; without them the scheduler of the machine decides who waits.
    """
    job = {"uri": str(tmp_path / "warehouse"), "properties": {"commit.turns.enabled": "false"}}
    appends = APPENDS if LARGE else 10
    check_race(open_catalog(job["uri"]), job, max(3, WRITERS), appends, fair=False)


def test_sqlite(tmp_path):
    job = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": str(tmp_path / "warehouse")}
    catalog = open_catalog(job["uri"], warehouse=job["warehouse"])
    check_race(catalog, job, WRITERS, APPENDS if LARGE else 25)
    assert isinstance(catalog, SqlCatalog)
    catalog.close()


def test_postgres(tmp_path, postgres_uri):
    job = {"uri": postgres_uri, "warehouse": str(tmp_path / "warehouse"), "name": uuid.uuid4().hex}
    catalog = open_catalog(postgres_uri, warehouse=job["warehouse"], name=job["name"])
    check_race(catalog, job, WRITERS, APPENDS if LARGE else 10)
    assert isinstance(catalog, SqlCatalog)
    catalog.close()


def test_postgres_connection_killed_at_commit(tmp_path, postgres_uri):
    """The server drops us between UPDATE and COMMIT: we read the old pointer and try again."""
    catalog = open_catalog(
        postgres_uri, warehouse=str(tmp_path / "warehouse"), name=uuid.uuid4().hex
    )
    assert isinstance(catalog, SqlCatalog)
    create_table(catalog)
    killer = create_engine(postgres_uri)
    victims = []

    def kill(connection):
        if not victims and not connection.get_execution_options().get("lakehouse_read"):
            victims.append(connection.connection.dbapi_connection.info.backend_pid)
            with killer.connect() as other:
                other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": victims[0]})

    event.listen(catalog._database._engine, "commit", kill)
    committed = Transaction(catalog, EVENTS).append([data_file("one")]).commit()
    assert victims
    assert committed.retries == 1
    assert live_files(catalog, catalog.load(EVENTS)) == ["one"]
    catalog.close()
    killer.dispose()


@pytest.mark.parametrize("store", ["moto", *clouds()])
def test_object_store(request, store):
    root, properties = (
        clouds()[store]
        if store in clouds()
        else ("s3://lake", request.getfixturevalue("s3_properties"))
    )
    job = {"uri": f"{root}/{uuid.uuid4().hex}", "properties": properties}
    check_race(open_catalog(job["uri"], **properties), job, WRITERS, APPENDS if LARGE else 10)


@pytest.mark.parametrize("store", ["local", *clouds()])
def test_kill_at_random_moments(tmp_path, store):
    """kill -9 again and again: acknowledged commits are there once, and the table opens."""
    root, properties = clouds().get(store, (str(tmp_path), {}))
    uri, log = f"{root}/{uuid.uuid4().hex}", str(tmp_path / "acknowledged")
    catalog = open_catalog(uri, **properties)
    create_table(catalog)
    rng = random.Random(7)
    rounds = int(os.environ.get("LAKEHOUSE_KILL_ROUNDS", "3"))
    for number in range(rounds):
        job = {"uri": uri, "properties": properties}
        with reaped(start(job, f"k{number}", 1000, log)) as process:
            assert process.stdout.readline() == "ready\n"
            process.stdin.write("go\n")
            process.stdin.flush()
            time.sleep(rng.uniform(0.05, 0.8))
        version = open_catalog(uri, **properties).load(EVENTS)
        found = live_files(catalog, version)
        acknowledged = Path(log).read_text().split() if Path(log).exists() else []
        assert len(found) == len(set(found))
        assert set(acknowledged) <= set(found)
        assert len(found) - len(acknowledged) <= number + 1
    Transaction(catalog, EVENTS).append([data_file("after")]).commit()
    assert "after" in live_files(catalog, catalog.load(EVENTS))


def test_two_compactions_of_the_same_files(tmp_path):
    catalog = open_catalog(str(tmp_path))
    create_table(catalog)
    old = [data_file("one"), data_file("two")]
    base = Transaction(catalog, EVENTS).append(old).commit().version
    Transaction(catalog, EVENTS, decided_on=base).rewrite_files(
        old, [data_file("first", rows=20)]
    ).commit()
    with pytest.raises(ValidationConflictError, match="removed 2 files in partition p=a") as caught:
        Transaction(catalog, EVENTS, decided_on=base).rewrite_files(
            old, [data_file("second", rows=20)]
        ).commit()
    assert caught.value.context["snapshot_id"] == catalog.load(EVENTS).metadata.current_snapshot_id
    assert live_files(catalog, catalog.load(EVENTS)) == ["first"]


def test_a_compaction_keeps_a_concurrent_delete(tmp_path):
    catalog = open_catalog(str(tmp_path))
    create_table(catalog)
    old = [data_file("one"), data_file("two")]
    base = Transaction(catalog, EVENTS).append(old).commit().version
    Transaction(catalog, EVENTS, decided_on=base).row_delta(
        delete_files=[delete_file("x", old[0])]
    ).commit()
    with pytest.raises(ValidationConflictError, match="added deletes"):
        Transaction(catalog, EVENTS, decided_on=base).rewrite_files(
            old, [data_file("new", rows=20)]
        ).commit()
    assert live_files(catalog, catalog.load(EVENTS)) == ["one", "two"]
