"""Appends of many clients in one version of the table; pyiceberg reads what they made."""

from __future__ import annotations

import datetime as dt
import decimal
import gc
import sys
import threading
import traceback
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests
from pyiceberg.catalog.rest import RestCatalog

import lakehouse as lh
from lakehouse.catalog.posted_append import PostedAppend
from lakehouse.server.operations.table_operations import append_files
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.manifests.content_file_json import types_of_partitions
from lakehouse.spec.metadata.table_metadata import types_of
from lakehouse.storage.location import local_path
from lakehouse.transaction.snapshot_producer import SnapshotProducer
from tests.server.conftest import Rest, open_lake, serve
from tests.servers import ServeProcess
from tests.waiting import eventually

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
WRITERS, EACH = 8, 4
MANY = {"write.metadata.previous-versions-max": "9999"}


def rows_of(number: int) -> pa.Table:
    return pa.table({"id": [number], "name": [f"n{number}"]})


def line(metadata) -> list:
    """The snapshots from the first to the newest, by their parents."""
    return list(metadata.ancestors(metadata.current_snapshot_id))[::-1]


def append_all(rest, name: str, **properties: str) -> list:
    """Every writer has a connection of its own; some of their appends certainly meet."""

    def write(writer: int) -> list:
        table = lh.load_catalog(rest.url, **properties).load_table(name)
        return [table.append(rows_of(writer * 100 + n)) for n in range(EACH)]

    with ThreadPoolExecutor(WRITERS) as pool:
        with rest.lake.catalog.turn(Identifier.parse(name)):  # the first waits, and others gather
            writers = [pool.submit(write, number) for number in range(WRITERS)]
            eventually(lambda: requests_under_way() >= 3)
        return [one for writer in writers for one in writer.result()]


@pytest.mark.parametrize("version", [2, 3])
def test_each_append_makes_a_snapshot_of_a_shared_version(rest, version):
    name = f"own.v{version}"
    rest.lake.create_table(
        name,
        ROWS.schema,
        properties={"format-version": str(version), **MANY},
    )
    made = append_all(rest, name)
    metadata = rest.lake.load_table(name).metadata
    assert {one.snapshot_id for one in made} == {
        snapshot.snapshot_id for snapshot in metadata.snapshots
    }
    assert len(metadata.snapshots) == len(line(metadata)) == WRITERS * EACH
    assert [one.sequence_number for one in line(metadata)] == list(range(1, WRITERS * EACH + 1))
    assert len(metadata.metadata_log) < WRITERS * EACH  # versions, of which some have several
    found = RestCatalog("theirs", uri=rest.url).load_table(name).scan().to_arrow()
    expected = sorted(w * 100 + n for w in range(WRITERS) for n in range(EACH))
    assert sorted(found["id"].to_pylist()) == expected
    records = [one.summary["total-records"] for one in line(metadata)]
    assert records == [str(n + 1) for n in range(WRITERS * EACH)]
    if version == 3:
        assert metadata.next_row_id == WRITERS * EACH
        ids = rest.lake.load_table(name).scan(select=["id", "_row_id"]).to_arrow()["_row_id"]
        assert sorted(ids.to_pylist()) == list(range(WRITERS * EACH))


def test_clients_that_say_so_share_a_snapshot(rest):
    rest.lake.create_table("shared.t", ROWS.schema, properties=MANY)
    made = append_all(rest, "shared.t", **{"append-mode": "shared-snapshot"})
    metadata = rest.lake.load_table("shared.t").metadata
    snapshots = line(metadata)
    assert len(metadata.snapshots) == len(snapshots) < WRITERS * EACH
    assert {one.snapshot_id for one in made} == {snapshot.snapshot_id for snapshot in snapshots}
    numbers = [
        number
        for snapshot in snapshots
        for number in snapshot.summary.get("lakehouse.appends", str(snapshot.snapshot_id)).split(
            ","
        )
    ]
    assert len(numbers) == len(set(numbers)) == WRITERS * EACH
    assert sum(int(snapshot.summary["added-records"]) for snapshot in snapshots) == WRITERS * EACH
    found = RestCatalog("theirs", uri=rest.url).load_table("shared.t")
    assert found.scan().to_arrow().num_rows == WRITERS * EACH
    # files are of the snapshot that lists them, whatever id their writer had in mind
    entries = found.inspect.entries().to_pylist()
    assert {entry["snapshot_id"] for entry in entries} == {
        snapshot.snapshot_id for snapshot in snapshots
    }
    # the server writes one manifest for all who share a snapshot
    written = list(
        Path(local_path(rest.lake.load_table("shared.t").metadata.location)).glob("metadata/*-m*")
    )
    assert len(written) <= 2 * len(snapshots) < WRITERS * EACH


def test_the_server_joins_small_files_that_are_the_tables_own(rest):
    """It may read more than its clients: what lies elsewhere is not copied into the table."""
    made = rest.lake.create_table(
        "joined.t", ROWS.schema, properties={"lakehouse.write.join-files": "2"}
    )
    elsewhere = made.location.rpartition("/")[0] + "/elsewhere.parquet"
    pq.write_table(rows_of(1000), local_path(elsewhere))
    made.add_files([elsewhere])
    append_all(rest, "joined.t", **{"append-mode": "shared-snapshot"})
    table = rest.lake.load_table("joined.t")
    operations = [snapshot.operation for snapshot in line(table.metadata)]
    assert "replace" in operations
    assert len(table.scan().plan().tasks) < WRITERS * EACH
    assert elsewhere in {task.data_file.file_path for task in table.scan().plan().tasks}
    expected = sorted(w * 100 + n for w in range(WRITERS) for n in range(EACH))
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [*expected, 1000]


@pytest.mark.parametrize("version", [2, 3])
def test_manifests_are_merged_and_deletes_keep_their_place(rest, version):
    name = f"merged.v{version}"
    table = rest.lake.create_table(
        name,
        ROWS.schema,
        properties={
            "format-version": str(version),
            "commit.manifest.min-count-to-merge": "5",
            "write.delete.mode": "merge-on-read",
        },
    )
    remote = lh.load_catalog(rest.url).load_table(name)
    remote.append(rows_of(7))
    remote.delete(where="id = 7")
    remote.append(rows_of(7))  # after the delete: it stays
    append_all(rest, name)
    table.refresh()
    assert len(table.inspect.manifests()) < WRITERS * EACH
    expected = sorted([7, *(w * 100 + n for w in range(WRITERS) for n in range(EACH))])
    scan = RestCatalog("theirs", uri=rest.url).load_table(name).scan()
    assert sorted(scan.to_arrow()["id"].to_pylist()) == expected
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == expected
    entries = table.inspect.entries().to_pylist()
    by_snapshot = {
        snapshot.snapshot_id: snapshot.sequence_number for snapshot in table.metadata.snapshots
    }
    assert all(by_snapshot[entry["snapshot_id"]] == entry["sequence_number"] for entry in entries)
    if version == 3:
        ids = table.scan(select=["_row_id"]).to_arrow()["_row_id"].to_pylist()
        assert len(set(ids)) == len(expected)


@pytest.mark.parametrize("version", [2, 3])
def test_files_that_the_server_lists_are_as_their_writer_would_list_them(rest, version):
    moments = [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(1969, 3, 4, 5, tzinfo=dt.UTC)]
    rows = pa.table(
        {
            "id": pa.array([1, None], pa.int64()),
            "small": pa.array([-5, 7], pa.int32()),
            "day": pa.array([dt.date(2026, 1, 1), dt.date(1969, 1, 1)]),
            "at": pa.array(moments, pa.timestamp("us", "UTC")),
            "name": ["Oslo/ä", ""],
            "price": pa.array([decimal.Decimal("-1.25"), None], pa.decimal128(9, 2)),
            "share": [float("nan"), -0.0],
            "single": pa.array([float("-inf"), 0.1], pa.float32()),
            "flag": [True, None],
            "bytes": [b"\x00\xff", b""],
        }
    )
    tables = {}
    for mode in ("shared-snapshot", "commit"):
        name = f"listed.{mode[:6]}{version}"
        rest.lake.create_table(
            name, rows.schema, format_version=version, partition_by=list(rows.column_names)
        )
        client = lh.load_catalog(rest.url, **{"append-mode": mode})
        result = client.load_table(name).append(rows)
        assert result.rows_inserted == 2
        tables[mode] = rest.lake.load_table(name)

    def listed(table) -> list:
        dropped = {"snapshot_id", "file_path", "file_size_in_bytes", "column_sizes"}
        files = table.inspect.files().to_pylist()
        found = [{k: v for k, v in file.items() if k not in dropped} for file in files]
        return sorted(map(repr, found))

    assert listed(tables["shared-snapshot"]) == listed(tables["commit"])
    read = [
        RestCatalog("theirs", uri=rest.url).load_table(table.name).scan().to_arrow()
        for table in tables.values()
    ]
    assert repr(read[0].sort_by("small").to_pylist()) == repr(read[1].sort_by("small").to_pylist())
    summaries = [dict(table.current_snapshot().summary) for table in tables.values()]
    size = {"added-files-size", "total-files-size"}
    alike = [{k: v for k, v in summary.items() if k not in size} for summary in summaries]
    assert alike[0] == alike[1]


class Posting:
    """Appends as plain requests."""

    def __init__(self, rest, name: str) -> None:
        self.rest, (namespace, self.name) = rest, name.split(".")
        rest.table(namespace, self.name)
        self.path = f"/namespaces/{namespace}/tables/{self.name}/appends"
        self.table = rest.lake.load_table(name)

    def body(self, number: int, **other: object) -> dict:
        files = self.table.write_files(rows_of(number))
        metadata = self.table.metadata
        producer = SnapshotProducer(self.table.storage, self.table.environment, ())
        manifests = producer.manifest_writer.write_added(
            metadata, files, snapshot_id=number + 1, inherits_snapshot=True
        )
        producer.files.flush()
        asked = PostedAppend(
            append_id=number + 1, table_uuid=metadata.table_uuid, manifests=tuple(manifests)
        )
        return asked.to_json() | other

    def files(self, number: int) -> dict:
        """A file that is in no manifest."""
        metadata = self.table.metadata
        asked = PostedAppend(
            append_id=number + 1,
            table_uuid=metadata.table_uuid,
            files=tuple(self.table.write_files(rows_of(number))),
            shares=True,
        )
        return asked.to_json(types_of_partitions(metadata.specs(), types_of(metadata)))

    def post(self, body: dict, key: uuid.UUID | None = None):
        return self.rest.post(self.path, body, **{"Idempotency-Key": str(key or uuid.uuid4())})

    def ids(self) -> list[int]:
        return sorted(self.table.refresh().scan().to_arrow()["id"].to_pylist())


def test_what_the_table_cannot_take_is_refused(rest):
    posting = Posting(rest, "refused.t")
    rest.lake.load_table("refused.t").append(rows_of(1))
    rest.lake.load_table("refused.t").create_tag("v1")
    good = posting.body(5)
    manifest = good["manifests"][0]
    elsewhere = f"{rest.lake.warehouse}/elsewhere/m.avro"

    def changed(**values: object) -> dict:
        return {"manifests": [manifest | values]}

    cases = [
        (409, {"table-uuid": str(uuid.uuid4())}),
        (400, {"branch": "nowhere"}),
        (400, {"branch": "v1"}),
        (400, {"append-id": -4}),
        (400, {"manifests": []}),
        (400, changed(path=f"{manifest['path']}x")),
        (400, changed(path=elsewhere)),
        (400, changed(path=manifest["path"].replace("/metadata/", "/metadata/../metadata/"))),
        (400, changed(length=manifest["length"] + 1)),
        (400, changed(**{"partition-spec-id": 9})),
        (400, changed(**{"added-files-count": 0})),
        (400, changed(partitions=[{"contains-null": False}])),
        (400, {"manifests": [manifest, manifest]}),
    ]
    for status, other in cases:
        answer = posting.post(good | other)
        assert (answer.status_code, posting.ids()) == (status, [1]), (other, answer.text)
    assert rest.post(posting.path, good).status_code == 400  # no key
    assert posting.post(good).status_code == 200
    assert posting.ids() == [1, 5]
    again = posting.post(good | {"append-id": 99})  # the same manifest
    assert (again.status_code, posting.ids()) == (400, [1, 5])


def test_files_that_the_table_cannot_take_are_refused(rest):
    posting = Posting(rest, "files.t")
    good = posting.files(5)
    file = good["files"][0]

    def changed(**values: object) -> dict:
        return {"files": [file | values]}

    cases = [
        {"files": []},
        {"files": [file] * 101},
        {"files": [file, file]},
        changed(**{"file-path": f"{rest.lake.warehouse}/elsewhere/f.parquet"}),
        changed(**{"file-path": file["file-path"].replace("/data/", "/data/../../")}),
        changed(**{"spec-id": 9}),
        changed(content="equality-deletes"),
        changed(content="position-deletes"),
        changed(**{"first-row-id": 0}),
        changed(**{"record-count": -1}),
        changed(partition=[1]),
        changed(**{"lower-bounds": {"keys": [1], "values": ["no"]}}),
        changed(**{"value-counts": {"keys": [1, 2], "values": [1]}}),
    ]
    for other in cases:
        answer = posting.post(good | other)
        assert (answer.status_code, posting.ids()) == (400, []), (other, answer.text)
    folder = Path(local_path(posting.table.metadata.location), "metadata")
    assert not list(folder.glob("*-m*.avro"))  # nothing was left behind
    assert posting.post(good).status_code == 200
    assert posting.ids() == [5]


def test_one_that_cannot_be_taken_fails_alone(rest):
    posting = Posting(rest, "group.t")
    bodies = [posting.body(n) for n in range(6)]
    bodies[3]["manifests"] = bodies[2]["manifests"]  # whichever comes second is refused
    identifier = posting.table.identifier
    with ThreadPoolExecutor(6) as pool:
        with rest.lake.catalog.turn(identifier):  # the first waits, and the others gather
            asked = [pool.submit(posting.post, body) for body in bodies]
            eventually(lambda: requests_under_way() == 6)
        answers = [one.result() for one in asked]
    statuses = [answer.status_code for answer in answers]
    assert sorted(statuses) == [200] * 5 + [400], [answer.text for answer in answers]
    assert statuses[2] + statuses[3] == 600
    assert posting.ids() == [0, 1, 2, 4, 5]
    assert len(posting.table.metadata.snapshots) == 5


def requests_under_way() -> int:
    gc.disable()  # in CPython before 3.11.8 a collection within ends in a deadlock (gh-106883)
    try:
        frames = sys._current_frames()
    finally:
        gc.enable()
    return sum(
        frame.f_code is append_files.__code__
        for top in frames.values()
        for frame, _ in traceback.walk_stack(top)
    )


def test_a_key_that_comes_again_takes_effect_once(rest):
    posting, key = Posting(rest, "keys.t"), uuid.uuid4()
    body = posting.body(1)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: posting.post(body, key), range(4)))
    assert [answer.status_code for answer in answers] == [200] * 4
    assert {answer.json()["snapshot"]["snapshot-id"] for answer in answers} == {2}
    kind = "sqlite" if "sqlite" in rest.lake.catalog.uri else "filesystem"
    folder = rest.lake_folder() if kind == "sqlite" else Path(local_path(rest.lake.warehouse))
    with serve(open_lake(kind, folder)) as other:
        url = f"{other.url}/v1{posting.path}"
        again = rest.session.post(url, json=body, headers={"Idempotency-Key": str(key)}, timeout=30)
    assert (again.status_code, posting.ids()) == (200, [1])
    assert posting.post(posting.body(2), key).status_code == 422
    refused, other_key = body | {"append-id": 7}, uuid.uuid4()
    first = posting.post(refused, other_key)
    assert first.status_code == 400
    assert posting.post(refused, other_key).text == first.text


@pytest.mark.parametrize("kind", ["filesystem", "sqlite"])
@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("what", ["files", "manifests"])
@pytest.mark.parametrize("restarted", [False, True])
def test_an_append_whose_answer_was_lost_is_answered_again(tmp_path, kind, shares, what, restarted):
    """A server that asked the catalog to add its snapshot again would try for ever."""
    lake, key = open_lake(kind, tmp_path), uuid.uuid4()
    with ExitStack() as servers:
        answers = []
        for attempt in range(2):
            if attempt == 0 or restarted:
                url = servers.enter_context(serve(lake)).url
            session = servers.enter_context(requests.Session())
            rest = Rest(url, lake, session)
            if attempt == 0:
                posting = Posting(rest, "ns.t")
                body = posting.files(1) if what == "files" else posting.body(1)
                body["shares-snapshot"] = shares
            posting.rest = rest
            answers.append(posting.post(body, key))
        assert [answer.status_code for answer in answers] == [200, 200]
        assert answers[0].json()["snapshot"] == answers[1].json()["snapshot"]
        assert posting.ids() == [1]
        taken = posting.files(2) | {"append-id": body["append-id"]}
        refused = posting.post(taken)
        assert (refused.status_code, posting.ids()) == (409, [1])
        assert f"has a snapshot {body['append-id']} already" in refused.text


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["own-snapshot", "shared-snapshot"])
@pytest.mark.parametrize("kind", ["filesystem", "sqlite"])
def test_a_killed_server_loses_and_doubles_nothing(tmp_path, kind, mode):
    warehouse = str(tmp_path / "wh")
    uri = warehouse if kind == "filesystem" else f"sqlite:///{tmp_path}/c.db"
    lake = lh.load_catalog(uri, warehouse=warehouse)
    lake.create_table("ns.t", ROWS.schema, properties=MANY)
    done, stop = [], threading.Event()

    def write(url: str, writer: int) -> None:
        patient = {"rest.retry-timeout-ms": "120000", "append-mode": mode}
        table = lh.load_catalog(url, **patient).load_table("ns.t")
        number = 0
        while not stop.is_set():
            number += 1
            table.append(rows_of(writer * 100_000 + number))
            done.append(writer * 100_000 + number)

    with ServeProcess(uri, warehouse) as server:
        with ThreadPoolExecutor(4) as pool:
            try:
                writers = [pool.submit(write, server.url, n) for n in range(4)]
                eventually(lambda: len(done) >= 8)
                server.kill()
                before = len(done)
                server.start()
                eventually(lambda: len(done) >= before + 4)
            finally:
                stop.set()
            for one in writers:
                one.result()
        table = RestCatalog("theirs", uri=server.url).load_table("ns.t")
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == sorted(done)
        assert server.stop() == 0
    metadata = lake.load_table("ns.t").metadata
    assert len(metadata.snapshots) == len(line(metadata)) <= len(done)
    if mode == "own-snapshot":
        assert len(metadata.snapshots) == len(done)
