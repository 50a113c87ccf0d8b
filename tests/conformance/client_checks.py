"""What our client does with a REST catalog of somebody else, which alone has keys of the store.

What our client wrote pyiceberg reads back, through the same server.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import requests
from botocore.exceptions import ClientError
from pyiceberg.catalog.rest import RestCatalog

import lakehouse as lh
from lakehouse.catalog.rest.server_side import commit_report
from lakehouse.errors import CommitConflictError, NoSuchTableError, TableAlreadyExistsError
from lakehouse.lake import Lakehouse
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_updates import AssertRefSnapshotId
from lakehouse.table.scan_reports import report_to_json
from tests.guarded_s3 import GuardedStore

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
MORE = pa.table({"id": [4], "name": ["d"], "size": pa.array([7], pa.int32())})


@dataclass(frozen=True)
class Peer:
    """A catalog that runs.

    Attributes:
        url: where it answers.
        store: that it keeps tables in; clients know where it is, and have no keys.
        our_properties: what our client is told beside that.
        their_properties: what pyiceberg is told.
    """

    url: str
    store: GuardedStore
    our_properties: Mapping[str, str] = field(default_factory=dict)
    their_properties: Mapping[str, str] = field(default_factory=dict)

    def ours(self, **more: str) -> Lakehouse:
        """A lake of our client."""
        return lh.load_catalog(self.url, **self._where(), **self.our_properties, **more)

    def theirs(self) -> RestCatalog:
        """A catalog of pyiceberg's."""
        return RestCatalog("peer", uri=self.url, **self._where(), **self.their_properties)

    def _where(self) -> dict[str, str]:
        return {"s3.endpoint": self.store.endpoint, "s3.region": "us-east-1"}


Check = Callable[[Peer], None]


def has_tools(*tools: str) -> bool:
    """Whether they are on the PATH; says which one is not."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    for tool in missing:
        say(f"no {tool}: a JDK, 17 or newer, and Apache Maven are needed")
    return not missing


@contextmanager
def answering(server: subprocess.Popen[bytes], url: str) -> Iterator[str]:
    """A server that tells its configuration at a URL, which is given; ended with the context.

    Raises OSError when it ended, or takes longer than 90 s.
    """
    until = time.monotonic() + 90
    try:
        while True:
            try:
                urllib.request.urlopen(f"{url}/v1/config", timeout=5).close()  # noqa: S310
                break
            except OSError:
                if time.monotonic() > until or server.poll() is not None:
                    raise
                time.sleep(0.2)
        yield url
    finally:
        server.terminate()
        server.wait(20)


def run(checks: Sequence[Check], peer: Peer) -> int:
    """Run each check and tell what became of it; 1 when one fails."""
    failed = 0
    for check in checks:
        began = time.monotonic()
        try:
            check(peer)
        # each is told, whatever it was
        except Exception as error:  # noqa: BLE001
            failed += 1
            say(f"FAILED  {check.__name__}: {type(error).__name__}: {error}")
        else:
            say(f"ok      {check.__name__} ({time.monotonic() - began:.1f} s)")
    say(f"{len(checks) - failed} of {len(checks)} hold")
    return min(failed, 1)


@contextmanager
def refused(kind: type[Exception]) -> Iterator[None]:
    """Expects an error; pytest's own expectation is no Exception when it fails."""
    try:
        yield
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


def strangers(peer: Peer) -> None:
    """The store refuses who has no keys."""
    with refused(ClientError):
        peer.store.client().list_objects_v2(Bucket="lake")


def namespaces(peer: Peer) -> None:
    """Nested, with properties."""
    lake = peer.ours()
    lake.create_namespace("names", {"owner": "ada"})
    lake.create_namespace("names.deep")
    assert lake.namespace_properties("names")["owner"] == "ada"
    assert {"names", "names.deep"} <= {*lake.list_namespaces()}
    lake.drop_namespace("names.deep")
    assert "names.deep" not in lake.list_namespaces()


def rows(peer: Peer) -> None:
    """Of both versions."""
    for version in (2, 3):
        rows_of(version, peer)


def rows_of(version: int, peer: Peer) -> None:
    """Written, evolved, deleted, compacted by us; read by pyiceberg."""
    lake, name = peer.ours(), f"rows.v{version}"
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
    read = peer.theirs().load_table(name)
    assert read.metadata.format_version == version
    assert sorted(read.scan().to_arrow()["id"].to_pylist()) == [1, 3, 4]
    assert read.scan(row_filter="size = 7").to_arrow()["id"].to_pylist() == [4]


def written_by_pyiceberg(peer: Peer) -> None:
    """What pyiceberg wrote we read."""
    catalog = peer.theirs()
    catalog.create_namespace("theirs")
    table = catalog.create_table("theirs.t", ROWS.schema)
    table.append(ROWS)
    table.delete("id = 1")
    found = peer.ours().load_table("theirs.t").scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == [2, 3]


def names_of_tables(peer: Peer) -> None:
    """Taken, renamed, dropped, registered."""
    lake = peer.ours()
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


def conflicts(peer: Peer) -> None:
    """A stale requirement is a conflict; two appends at once are both there."""
    lake = peer.ours()
    made = lake.create_table("races.t", ROWS.schema)
    stale = peer.ours().load_table("races.t")
    made.append(ROWS)
    stale.append(ROWS)
    assert made.refresh().scan().count() == 6
    base = lake.catalog.load(Identifier.parse("races.t"))
    with refused(CommitConflictError):
        lake.catalog.commit(base.identifier, base, [AssertRefSnapshotId("main", 1)], [])


def transactions(peer: Peer) -> None:
    """Of two tables, all or none."""
    lake = peer.ours()
    for name in ("joint.a", "joint.b"):
        lake.create_table(name, ROWS.schema)
    with lake.transaction() as tx:
        tx.table("joint.a").append(ROWS)
        tx.table("joint.b").append(ROWS)
    assert {lake.load_table(name).scan().count() for name in ("joint.a", "joint.b")} == {3}
    with refused(CommitConflictError), lake.transaction() as tx:
        tx.table("joint.a").append(ROWS)
        tx.table("joint.b").append(ROWS)
        peer.ours().load_table("joint.b").append(ROWS)
    assert lake.load_table("joint.a").scan().count() == 3
    # a table that is only read has to be as it was read, and stays so
    before = list(lake.load_table("joint.a").metadata.snapshots)
    with lake.transaction() as tx:
        tx.table("joint.b").append(tx.table("joint.a").scan().to_arrow())
    assert list(lake.load_table("joint.a").metadata.snapshots) == before
    with refused(CommitConflictError), lake.transaction() as tx:
        tx.table("joint.b").append(tx.table("joint.a").scan().to_arrow())
        peer.ours().load_table("joint.a").append(ROWS)
    assert lake.load_table("joint.b").scan().count() == 9


def views(peer: Peer) -> None:
    """Created, replaced, renamed, dropped."""
    lake = peer.ours()
    lake.create_namespace("seen")
    made = lake.create_view("seen.v", "SELECT 1 AS n", pa.schema({"n": pa.int32()}))
    assert made.sql("spark") == "SELECT 1 AS n"
    assert lake.list_views("seen") == ["seen.v"]
    lake.rename_view("seen.v", "seen.w")
    lake.drop_view("seen.w")
    assert lake.list_views("seen") == []


def tags(peer: Peer) -> None:
    """Branches and tags; what has not changed is not sent again."""
    lake = peer.ours()
    made = lake.create_table("tags.t", ROWS.schema)
    made.append(ROWS)
    made.create_tag("first")
    made.append(ROWS)
    assert made.scan(ref="first").count() == 3
    identifier = Identifier.parse("tags.t")
    assert lake.catalog.load(identifier) is lake.catalog.load(identifier)


def planned(peer: Peer) -> None:
    """By the server: the rows of v2 and v3 are those that we plan ourselves."""
    lake = peer.ours()
    served = peer.ours(**{"scan-planning-mode": "server"})
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


def reported(peer: Peer) -> None:
    """Reports are what Java reads."""
    lake = peer.ours()
    made = lake.create_table("told.t", ROWS.schema)
    made.append(ROWS)
    reports = [
        commit_report(made.current_snapshot(), 3),
        report_to_json(made.scan(where="id = 1").plan().report),
    ]
    for report in reports:
        answer = requests.post(
            f"{peer.url}/v1/namespaces/told/tables/t/metrics",
            json={"table-name": "told.t", **report},
            timeout=30,
        )
        assert answer.status_code in (200, 204), answer.text


def staged(peer: Peer) -> None:
    """Where a table is going to lie is known before it is there."""
    lake = peer.ours()
    lake.create_namespace("staged")
    identifier = Identifier.parse("staged.t")
    location = lake.catalog.default_location(identifier, staged=True)
    assert location.startswith("s3://lake/peer/")
    assert not lake.table_exists("staged.t")


def say(text: str) -> None:
    """One line, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
