"""A key on the filesystem: killed at any step, or run by two servers at once, a request takes
effect once.
"""

from __future__ import annotations

import shutil
import threading
import uuid
from pathlib import Path

import orjson
import pytest

import lakehouse as lh
from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog
from lakehouse.catalog.filesystem.request_files import FOLDER
from lakehouse.environment import Environment
from lakehouse.lake import Lakehouse
from lakehouse.server.error_answers import error_answer
from lakehouse.server.http_messages import Call
from lakehouse.server.repeated_requests import RepeatedRequests
from lakehouse.server.rest_app import operations_of
from lakehouse.server.rest_operation import Served
from lakehouse.storage.local import LocalStorage, PosixDisk
from tests.faulty_storage import FaultyStorage
from tests.server.conftest import SCHEMA
from tests.server.test_rest_protocol import append
from tests.server.test_view_operations import body as view_body

GZIP = {"write.metadata.compression-codec": "gzip"}


class KilledError(BaseException):
    """The process ends here: nothing in it catches this."""


class Disk(PosixDisk):
    """Without the waiting: power stays."""

    def fsync(self, handle):
        pass

    def fsync_folder(self, path):
        pass


class Server:
    """A server over a warehouse, without HTTP.

    Args:
        warehouse: a folder.
        before: called before each call to the storage that is no plain look.
        hours: that its clock is ahead.
    """

    def __init__(self, warehouse: Path, before=lambda: None, hours=0):
        def decide(_method, _location):
            before()

        system = Environment.system()
        clock = Environment(
            lambda: system.now_ms() + hours * 3_600_000,
            system.new_uuid,
            system.random,
            system.sleep,
        )
        self.catalog = FilesystemCatalog(
            str(warehouse),
            environment=clock,
            storage_factory=lambda _where, _properties: FaultyStorage(
                LocalStorage(disk=Disk()), decide
            ),
        )
        self.served = Served.of(Lakehouse(self.catalog, clock))
        self.repeated = RepeatedRequests()

    def ask(self, method, path, names, body=None, key=None):
        """(status, document) of what is answered."""
        operation = next(
            one for one in operations_of(self.catalog) if (one.method, one.path) == (method, path)
        )
        headers = {} if key is None else {"idempotency-key": key}
        call = Call(names, {}, headers, b"" if body is None else orjson.dumps(body))
        try:
            answer = self.repeated.answer(operation, self.served, call)
        # as the server does
        except Exception as error:  # noqa: BLE001
            answer = error_answer(error, changes=True)
        return answer.status, orjson.loads(answer.body) if answer.body else None


SPACE, TABLE, VIEW = {"namespace": "s"}, {"namespace": "s", "table": "t"}, {}
ONE_TABLE = "/namespaces/{namespace}/tables/{table}"
ONE_VIEW = "/namespaces/{namespace}/views/{view}"


def set_property(name):
    return {"updates": [{"action": "set-properties", "updates": {name: "x"}}]}


def appended(warehouse):
    return append(f"{warehouse}/s/t", 77)


# of each: what is asked for, and in which folder that leaves how many more versions
CASES = {
    "create namespace": ("POST", "/namespaces", {}, {"namespace": ["new"]}, None),
    "set properties of a namespace": (
        *("POST", "/namespaces/{namespace}/properties", SPACE),
        *({"updates": {"a": "b"}, "removals": []}, None),
    ),
    "drop namespace": ("DELETE", "/namespaces/{namespace}", {"namespace": "empty"}, None, None),
    "create": (
        *("POST", "/namespaces/{namespace}/tables", SPACE),
        *({"name": "new", "schema": SCHEMA}, "s/new"),
    ),
    "change": ("POST", ONE_TABLE, TABLE, set_property("asked"), "s/t"),
    "change gzip": ("POST", ONE_TABLE, {**TABLE, "table": "z"}, set_property("asked"), "s/z"),
    "append": ("POST", ONE_TABLE, TABLE, appended, "s/t"),
    "drop": ("DELETE", ONE_TABLE, TABLE, None, "s/t"),
    "unregister": ("POST", f"{ONE_TABLE}/unregister", TABLE, None, "s/t"),
    "register": (
        *("POST", "/namespaces/{namespace}/register", SPACE),
        *(lambda at: {"name": "r", "metadata-location": f"{at}/gone.metadata.json"}, "s/r"),
    ),
    "create view": ("POST", "/namespaces/{namespace}/views", SPACE, view_body("new"), "s/new"),
    "replace view": (
        *("POST", ONE_VIEW, {"namespace": "s", "view": "v"}),
        *({"updates": [{"action": "set-properties", "updates": {"a": "b"}}]}, "s/v"),
    ),
    "drop view": ("DELETE", ONE_VIEW, {"namespace": "s", "view": "v"}, None, "s/v"),
}
FEW = ("create", "change", "drop")


def prepare(warehouse):
    """A warehouse with something of everything."""
    server = Server(warehouse)
    for name in ("s", "empty"):
        assert server.ask("POST", "/namespaces", {}, {"namespace": [name]})[0] == 200
    tables = "/namespaces/{namespace}/tables"
    for name, properties in (("t", {}), ("z", GZIP), ("o", {})):
        made = {"name": name, "schema": SCHEMA, "properties": properties}
        assert server.ask("POST", tables, SPACE, made)[0] == 200
    views = "/namespaces/{namespace}/views"
    assert server.ask("POST", views, SPACE, view_body("v"))[0] == 200
    outside = warehouse / "gone.metadata.json"
    text = (warehouse / "s/o/metadata/v1.metadata.json").read_text()
    outside.write_text(text.replace("/s/o", "/s/r"))


def prepared(folder):
    """Such a warehouse in a folder; the first one is kept there, and copied for each further."""
    warehouse, kept = folder / "lake", folder / "kept"
    if kept.exists():
        shutil.rmtree(warehouse)
        shutil.copytree(kept, warehouse)
    else:
        prepare(warehouse)
        shutil.copytree(warehouse, kept)
    return warehouse


def versions(warehouse, folder):
    return len(list((warehouse / folder / "metadata").glob("v*.metadata.json")))


def asked(case, warehouse):
    method, path, names, body, folder = CASES[case]
    return (method, path, names, body(warehouse) if callable(body) else body), folder


def count_steps(case, folder):
    steps, warehouse = [], prepared(folder)
    request, folder = asked(case, warehouse)
    before = versions(warehouse, folder) if folder else 0
    status, _ = Server(warehouse, lambda: steps.append(1)).ask(*request, key=str(uuid.uuid4()))
    assert status in (200, 204)
    if folder:
        assert versions(warehouse, folder) == before + 1
    return len(steps), status


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in FEW else pytest.mark.slow) for case in CASES]
)
def test_killed_between_any_two_steps(case, tmp_path):
    """Another server is asked again; a third one, once that is done."""
    steps, status = count_steps(case, tmp_path)
    for last in range(steps + 1):
        warehouse, left = prepared(tmp_path), [last]
        request, folder = asked(case, warehouse)
        before = versions(warehouse, folder) if folder else 0

        def die(left=left):
            if left[0] == 0:
                raise KilledError
            left[0] -= 1

        key = str(uuid.uuid4())
        if last < steps:
            with pytest.raises(KilledError):
                Server(warehouse, die).ask(*request, key=key)
        else:
            Server(warehouse, die).ask(*request, key=key)
        # a stranger changes the table meanwhile
        if folder == "s/t" and case not in ("drop", "unregister") and last % 2:
            stranger = set_property("theirs")
            assert Server(warehouse).ask("POST", ONE_TABLE, TABLE, stranger)[0] == 200
            before += 1
        for _ in range(2):
            found, answer = Server(warehouse).ask(*request, key=key)
            assert found == status, (last, answer)
        if folder:
            assert versions(warehouse, folder) == before + 1, last
        other = (*request[:3], {"other": "body"})
        assert Server(warehouse).ask(*other, key=key)[0] == 422


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in FEW else pytest.mark.slow) for case in CASES]
)
def test_two_servers_at_once(case, tmp_path):
    """One waits at a step until the other has done all of it."""
    steps, status = count_steps(case, tmp_path)
    for at in range(steps):
        warehouse, step = prepared(tmp_path), [0]
        request, folder = asked(case, warehouse)
        before = versions(warehouse, folder) if folder else 0
        waits, goes_on = threading.Event(), threading.Event()

        def pause(at=at, step=step, waits=waits, goes_on=goes_on):
            step[0] += 1
            if step[0] == at + 1:
                waits.set()
                assert goes_on.wait(600)

        key, told = str(uuid.uuid4()), []
        slow = threading.Thread(
            target=lambda warehouse=warehouse, request=request, key=key, told=told, pause=pause: (
                told.append(Server(warehouse, pause).ask(*request, key=key))
            )
        )
        slow.start()
        assert waits.wait(600)
        quick = Server(warehouse).ask(*request, key=key)
        goes_on.set()
        slow.join()
        assert quick[0] == status, (at, quick)
        assert told[0][0] == status, (at, told)
        if folder:
            assert versions(warehouse, folder) == before + 1, at


def test_a_refusal_is_final_though_it_would_fit_later(tmp_path):
    prepare(tmp_path)
    key = str(uuid.uuid4())
    change = {
        "requirements": [{"type": "assert-last-assigned-field-id", "last-assigned-field-id": 9}],
        **set_property("asked"),
    }
    first = Server(tmp_path).ask("POST", ONE_TABLE, TABLE, change, key)
    assert first[0] == 409
    schema = {
        **SCHEMA,
        "fields": [*SCHEMA["fields"], {**SCHEMA["fields"][0], "id": 9, "name": "n"}],
    }
    grown = {"updates": [{"action": "add-schema", "schema": schema}]}
    assert Server(tmp_path).ask("POST", ONE_TABLE, TABLE, grown)[0] == 200
    assert Server(tmp_path).ask("POST", ONE_TABLE, TABLE, change, key) == first
    assert Server(tmp_path).ask("POST", ONE_TABLE, TABLE, change, str(uuid.uuid4()))[0] == 200


def test_a_version_that_was_cleaned_up_tells_nothing(tmp_path):
    """Killed before it was noted as done; then others commit until the version is deleted."""
    prepare(tmp_path)
    short = {
        "write.metadata.previous-versions-max": "1",
        "write.metadata.delete-after-commit.enabled": "true",
    }
    changed = {"updates": [{"action": "set-properties", "updates": short}]}
    assert Server(tmp_path).ask("POST", ONE_TABLE, TABLE, changed)[0] == 200
    key = str(uuid.uuid4())
    assert Server(tmp_path).ask("POST", ONE_TABLE, TABLE, set_property("asked"), key)[0] == 200
    (tmp_path / FOLDER / f"{key}.2.json").unlink()
    for n in range(3):
        assert Server(tmp_path).ask("POST", ONE_TABLE, TABLE, set_property(f"n{n}"))[0] == 200
    status, answer = Server(tmp_path).ask("POST", ONE_TABLE, TABLE, set_property("asked"), key)
    assert (status, answer["error"]["type"]) == (500, "CommitStateUnknownException")


def test_keys_are_forgotten_when_they_are_old(tmp_path):
    prepare(tmp_path)
    key = str(uuid.uuid4())
    assert Server(tmp_path).ask("POST", ONE_TABLE, TABLE, set_property("asked"), key)[0] == 200
    kept = list((tmp_path / FOLDER).iterdir())
    assert len(kept) == 2
    for hours, left in ((1, 2), (3, 0)):
        other = Server(tmp_path, hours=hours)
        other.ask("DELETE", ONE_TABLE, {**TABLE, "table": "no"}, None, str(uuid.uuid4()))
        assert len([one for one in kept if one.exists()]) == left


def test_what_fails_is_not_kept(tmp_path):
    """503 and 500 are for another try, which finds out."""
    prepare(tmp_path)
    key, broken = str(uuid.uuid4()), [True]
    request = ("POST", ONE_TABLE, TABLE, set_property("asked"))

    class FullDisk(LocalStorage):
        def create(self, location, data):
            if broken[0] and "/s/t/" in location:
                raise OSError(28, "full")
            super().create(location, data)

    server = Server(tmp_path)
    catalog = FilesystemCatalog(str(tmp_path), storage_factory=lambda *_: FullDisk())
    server.catalog, server.served = catalog, Served.of(Lakehouse(catalog, Environment.system()))
    assert server.ask(*request, key=key)[0] == 500
    broken[0] = False
    assert server.ask(*request, key=key)[0] == 200
    assert versions(tmp_path, "s/t") == 2


def test_the_folder_of_requests_is_no_namespace(tmp_path):
    prepare(tmp_path)
    Server(tmp_path).ask("POST", "/namespaces", {}, {"namespace": ["n"]}, str(uuid.uuid4()))
    assert (tmp_path / FOLDER).is_dir()
    assert Server(tmp_path).catalog.list_namespaces() == [("empty",), ("n",), ("s",)]


def test_keys_in_an_object_store(s3_properties):
    """Entries are objects created if absent, as versions are."""
    lake = lh.load_catalog(f"s3://lake/{uuid.uuid4().hex}", **s3_properties)

    class OnS3(Server):
        def __init__(self):
            self.catalog, self.served = lake.catalog, Served.of(lake)
            self.repeated = RepeatedRequests()

    def twice(*request):
        key = str(uuid.uuid4())
        first, second = (OnS3().ask(*request, key=key) for _ in range(2))
        assert first == second
        return first

    assert twice("POST", "/namespaces", {}, {"namespace": ["s"]})[0] == 200
    made = {"name": "t", "schema": SCHEMA}
    assert twice("POST", "/namespaces/{namespace}/tables", SPACE, made)[0] == 200
    changed = twice("POST", ONE_TABLE, TABLE, set_property("asked"))[1]
    assert changed["metadata-location"].endswith("/v2.metadata.json")
    assert twice("DELETE", ONE_TABLE, {**TABLE, "table": "no"})[0] == 404
    assert twice("POST", f"{ONE_TABLE}/unregister", TABLE)[1] == {
        name: changed[name] for name in ("metadata-location", "metadata")
    }
    assert twice("DELETE", "/namespaces/{namespace}", SPACE)[0] == 204
    later = Environment.system().now_ms() + 60_000
    assert lake.catalog.requests.forget(later) == 6
    assert lake.catalog.requests.forget(later) == 0
