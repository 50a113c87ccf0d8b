"""`make conformance-rest-client`: our client on Iceberg's REST catalog, which alone has keys of S3.

The catalog is Java's adapter over SQLite; the store is one that checks signatures. Iceberg's own
reader of Parquet is not asked: what our client wrote pyiceberg reads back, through the same server.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import requests
from botocore.exceptions import ClientError
from pyiceberg.catalog.rest import RestCatalog

import lakehouse as lh
from deploy.ports import free_port
from lakehouse.catalog.rest.posted_reports import commit_report
from lakehouse.errors import CommitConflictError, NoSuchTableError, TableAlreadyExistsError
from lakehouse.lake import Lakehouse
from lakehouse.scan.reports.catalog_reports import scan_report
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_requirements import AssertRefSnapshotId
from tests.guarded_s3 import GuardedStore, guarded_s3

HOME = Path(__file__).parent
ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
MORE = pa.table({"id": [4], "name": ["d"], "size": pa.array([7], pa.int32())})


def main() -> int:
    """Run every check; exit code 1 when one fails, 2 without Java."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            say(f"no {tool}: a JDK, 17 or newer, and Apache Maven are needed")
            return 2
    failed = 0
    with (
        guarded_s3() as store,
        tempfile.TemporaryDirectory() as folder,
        peer(store, Path(folder)) as url,
    ):
        for check in CHECKS:
            began = time.monotonic()
            try:
                check(url, store)
            except Exception as error:  # noqa: BLE001 - each is told
                failed += 1
                say(f"FAILED  {check.__name__}: {type(error).__name__}: {error}")
            else:
                say(f"ok      {check.__name__} ({time.monotonic() - began:.1f} s)")
    say(f"{len(CHECKS) - failed} of {len(CHECKS)} hold")
    return min(failed, 1)


def ours(url: str, store: GuardedStore, **more: str) -> Lakehouse:
    """Our client: it knows where the store is, and has no keys."""
    where = {"s3.endpoint": store.endpoint, "s3.region": "us-east-1"}
    return lh.load_catalog(url, **where, **more)


def theirs(url: str, store: GuardedStore) -> RestCatalog:
    """pyiceberg's, without keys alike."""
    where = {"s3.endpoint": store.endpoint, "s3.region": "us-east-1"}
    return RestCatalog("peer", uri=url, **where)


@contextmanager
def refused(kind: type[Exception]) -> Iterator[None]:
    """Expects an error; pytest's own expectation is no Exception when it fails."""
    try:
        yield
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


def strangers(_url: str, store: GuardedStore) -> None:
    """The store refuses who has no keys."""
    with refused(ClientError):
        store.client().list_objects_v2(Bucket="lake")


def namespaces(url: str, store: GuardedStore) -> None:
    """Nested, with properties."""
    lake = ours(url, store)
    lake.create_namespace("names", {"owner": "ada"})
    lake.create_namespace("names.deep")
    assert lake.namespace_properties("names")["owner"] == "ada"
    assert {"names", "names.deep"} <= {*lake.list_namespaces()}
    lake.drop_namespace("names.deep")
    assert "names.deep" not in lake.list_namespaces()


def rows(url: str, store: GuardedStore) -> None:
    """Of both versions: written, evolved, deleted, compacted by us; read by pyiceberg."""
    lake = ours(url, store)
    for version in (2, 3):
        name = f"rows.v{version}"
        made = lake.create_table(
            name, ROWS.schema, format_version=version, partition_by=["bucket(2, id)"]
        )
        assert made.location.startswith("s3://lake/peer/"), made.location
        made.append(ROWS)
        with made.update_schema() as change:
            change.add_column("size", "int")
        made.append(MORE)
        made.delete(where="id = 2")
        made.upsert(MORE, keys=["id"])
        made.compact()
        assert sorted(made.scan().to_arrow()["id"].to_pylist()) == [1, 3, 4]
        read = theirs(url, store).load_table(name)
        assert read.metadata.format_version == version
        assert sorted(read.scan().to_arrow()["id"].to_pylist()) == [1, 3, 4]
        assert read.scan(row_filter="size = 7").to_arrow()["id"].to_pylist() == [4]


def written_by_pyiceberg(url: str, store: GuardedStore) -> None:
    """What pyiceberg wrote we read."""
    catalog = theirs(url, store)
    catalog.create_namespace("theirs")
    table = catalog.create_table("theirs.t", ROWS.schema)
    table.append(ROWS)
    table.delete("id = 1")
    found = ours(url, store).load_table("theirs.t").scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == [2, 3]


def names_of_tables(url: str, store: GuardedStore) -> None:
    """Taken, renamed, dropped, registered."""
    lake = ours(url, store)
    made = lake.create_table("taken.t", ROWS.schema)
    made.append(ROWS)
    with refused(TableAlreadyExistsError):
        lake.create_table("taken.t", ROWS.schema)
    moved = lake.rename_table("taken.t", "taken.u")
    assert moved.scan().count() == 3
    location = moved.metadata_location
    lake.drop_table("taken.u")
    with refused(NoSuchTableError):
        lake.load_table("taken.u")
    assert lake.register_table("taken.v", location).scan().count() == 3


def conflicts(url: str, store: GuardedStore) -> None:
    """A stale requirement is a conflict; two appends at once are both there."""
    lake = ours(url, store)
    made = lake.create_table("races.t", ROWS.schema)
    stale = ours(url, store).load_table("races.t")
    made.append(ROWS)
    stale.append(ROWS)
    assert made.refresh().scan().count() == 6
    base = lake.catalog.load(Identifier.parse("races.t"))
    with refused(CommitConflictError):
        lake.catalog.commit(base.identifier, base, [AssertRefSnapshotId("main", 1)], [])


def transactions(url: str, store: GuardedStore) -> None:
    """Of two tables, all or none."""
    lake = ours(url, store)
    for name in ("joint.a", "joint.b"):
        lake.create_table(name, ROWS.schema)
    with lake.transaction() as tx:
        tx.table("joint.a").append(ROWS)
        tx.table("joint.b").append(ROWS)
    assert {lake.load_table(name).scan().count() for name in ("joint.a", "joint.b")} == {3}
    with refused(CommitConflictError), lake.transaction() as tx:
        tx.table("joint.a").append(ROWS)
        tx.table("joint.b").append(ROWS)
        ours(url, store).load_table("joint.b").append(ROWS)
    assert lake.load_table("joint.a").scan().count() == 3


def views(url: str, store: GuardedStore) -> None:
    """Created, replaced, renamed, dropped."""
    lake = ours(url, store)
    lake.create_namespace("seen")
    made = lake.create_view("seen.v", "SELECT 1 AS n", pa.schema({"n": pa.int32()}))
    assert made.sql("spark") == "SELECT 1 AS n"
    assert lake.list_views("seen") == ["seen.v"]
    lake.rename_view("seen.v", "seen.w")
    lake.drop_view("seen.w")
    assert lake.list_views("seen") == []


def tags(url: str, store: GuardedStore) -> None:
    """Branches and tags; what has not changed is not sent again."""
    lake = ours(url, store)
    made = lake.create_table("tags.t", ROWS.schema)
    made.append(ROWS)
    made.create_tag("first")
    made.append(ROWS)
    assert made.scan(ref="first").count() == 3
    identifier = Identifier.parse("tags.t")
    assert lake.catalog.load(identifier) is lake.catalog.load(identifier)


def planned(url: str, store: GuardedStore) -> None:
    """By the server: the rows of v2 and v3 are those that we plan ourselves."""
    lake = ours(url, store)
    served = ours(url, store, **{"scan-planning-mode": "server"})
    for version in (2, 3):
        name = f"planned.v{version}"
        made = lake.create_table(
            name,
            ROWS.schema,
            format_version=version,
            partition_by=["bucket(4, id)"],
            properties={"write.delete.mode": "merge-on-read"},
        )
        for _ in range(3):
            made.append(ROWS)
        made.delete(where="id = 2")
        for where in (None, "id = 1", "name >= 'b'", "id IN (2, 3) OR name IS NULL"):
            scan = served.load_table(name).scan(where=where)
            assert scan.plan().report.notes == ["planned by the catalog's server"]
            mine = lake.load_table(name).scan(where=where)
            assert sorted(scan.to_arrow()["id"].to_pylist()) == sorted(
                mine.to_arrow()["id"].to_pylist()
            ), (version, where)


def reported(url: str, store: GuardedStore) -> None:
    """Reports are what Java reads."""
    lake = ours(url, store)
    made = lake.create_table("told.t", ROWS.schema)
    made.append(ROWS)
    reports = [
        commit_report(made.current_snapshot(), 3),
        scan_report(made.scan(where="id = 1").plan().report),
    ]
    for one in reports:
        answer = requests.post(
            f"{url}/v1/namespaces/told/tables/t/metrics",
            json={"table-name": "told.t", **one},
            timeout=30,
        )
        assert answer.status_code in (200, 204), answer.text


def staged(url: str, store: GuardedStore) -> None:
    """Where a table is going to lie is known before it is there."""
    lake = ours(url, store)
    lake.create_namespace("staged")
    identifier = Identifier.parse("staged.t")
    location = lake.catalog.default_location(identifier, staged=True)
    assert location.startswith("s3://lake/peer/")
    assert not lake.table_exists("staged.t")


CHECKS: tuple[Callable[[str, GuardedStore], None], ...] = (
    strangers,
    namespaces,
    rows,
    written_by_pyiceberg,
    names_of_tables,
    conflicts,
    transactions,
    views,
    tags,
    planned,
    reported,
    staged,
)


@contextmanager
def peer(store: GuardedStore, folder: Path) -> Iterator[str]:
    """Iceberg's catalog, running; gives its URL."""
    target = HOME / "target"
    classpath = target / "classpath.txt"
    maven = ["mvn", "-q", "-B", "-f", str(HOME / "pom.xml"), "dependency:build-classpath"]
    subprocess.run([*maven, f"-Dmdep.outputFile={classpath}"], check=True)
    jars = classpath.read_text().strip()
    subprocess.run(
        ["javac", "-nowarn", "-cp", jars, "-d", str(target), str(HOME / "Peer.java")], check=True
    )
    port = free_port()
    properties = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "jdbc.schema-version": "V1",
        "uri": f"jdbc:sqlite:{folder}/catalog.db",
        "warehouse": "s3://lake/peer",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "client.region": "us-east-1",
        "s3.path-style-access": "true",
        "include-credentials": "true",
        **store.keys,
    }
    given = [f"{name}={value}" for name, value in properties.items()]
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    command = ["java", "-Xmx512m", quiet, "-cp", f"{jars}:{target}"]
    # it prints a trace for each thing that is not there
    server = subprocess.Popen(
        [*command, "org.apache.iceberg.rest.Peer", str(port), *given], stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{url}/v1/config", timeout=2).close()  # noqa: S310
                break
            except OSError:
                if time.monotonic() > until or server.poll() is not None:
                    raise
                time.sleep(0.2)
        yield url
    finally:
        server.terminate()
        server.wait(20)


def say(text: str) -> None:
    """One line, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
