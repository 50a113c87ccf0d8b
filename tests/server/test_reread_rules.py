"""Who may do what is read again while the server runs."""

from __future__ import annotations

import os
import signal

import pyarrow as pa
import pytest
import requests
import yaml

from lakehouse.errors import InvalidInputError
from lakehouse.server.access.hashed_secrets import HashedSecret
from lakehouse.server.access.principals_file import read_rules
from lakehouse.server.http_server import HttpServer
from lakehouse.server.rest_app import rest_app
from tests.server.conftest import open_lake
from tests.server.guarded import SECRETS, Guarded, guarded, rules_file
from tests.servers import ServeProcess
from tests.waiting import eventually

TABLE = "/namespaces/ann/tables/t"
BAD = {
    "no YAML": "principals: {ann: [",
    "no text": "principals: \x00",
    "nothing": "",
    "nobody": "roles: {}",
    "another role": "principals: {ann: {secret: 'SECRET', roles: [none]}}",
    "no hash": "principals: {ann: {secret: canary, roles: []}}",
    "deep": "[" * 5_000,
}


def status(server, token):
    return server.ask(token, "GET", TABLE).status_code


def by_secret(server, name, secret):
    return requests.get(server.url, auth=(name, secret), timeout=30).status_code


def changed(file, change):
    document = yaml.safe_load(file.read_text())
    change(document)
    file.write_text(yaml.safe_dump(document))
    return file


@pytest.fixture
def lake(tmp_path):
    made = open_lake("filesystem", tmp_path / "lake")
    made.create_table("ann.t", pa.schema({"id": pa.int64()}))
    return made


@pytest.mark.parametrize("has_key_file", [False, True])
def test_rules_hold_from_when_they_are_read(lake, tmp_path, has_key_file):
    """For tokens, and for names with secrets, that were good before, too."""
    (tmp_path / "own.key").write_bytes(b"k" * 48)
    more = {"tokens": {"key-file": "own.key"}} if has_key_file else {}
    file = rules_file(tmp_path, **more)
    with guarded(lake, file) as server:
        ann, bob = server.token("ann"), server.token("bob")
        assert (status(server, ann), status(server, bob)) == (200, 403)
        assert by_secret(server, "ann", SECRETS["ann"]) == 200

        def withdrawn(document):
            document["roles"]["ann"], document["roles"]["bob"] = (
                document["roles"]["bob"],
                document["roles"]["ann"],
            )
            document["principals"]["ann"]["secret"] = str(HashedSecret.of("another"))
            document["principals"]["eve"] = {
                "secret": str(HashedSecret.of("of eve")),
                "roles": ["ann"],
            }

        server.app.follow(read_rules(changed(file, withdrawn)))
        assert (status(server, ann), status(server, bob)) == (403, 200)
        assert by_secret(server, "ann", SECRETS["ann"]) == 401
        assert by_secret(server, "ann", "another") == 200
        assert by_secret(server, "bob", SECRETS["bob"]) == 200
        assert by_secret(server, "eve", "of eve") == 200
        with pytest.raises(AssertionError, match="invalid_client"):
            server.token("ann")

        def gone(document):
            del document["principals"]["bob"], document["principals"]["eve"]

        server.app.follow(read_rules(changed(file, gone)))
        assert status(server, bob) == 401
        assert by_secret(server, "eve", "of eve") == 401
        assert status(server, ann) == 403


def test_a_server_that_asks_nobody_does_not_begin_to(lake, tmp_path):
    app = rest_app(lake)
    with pytest.raises(InvalidInputError, match="without rules"):
        app.follow(read_rules(rules_file(tmp_path)))
    with HttpServer(app, "127.0.0.1", 0) as server:
        assert Guarded(server.url, lake).ask(None, "GET", TABLE).status_code == 200


@pytest.mark.slow
def test_the_signal_has_them_read_and_a_bad_file_changes_nothing(lake, tmp_path):
    (tmp_path / "own.key").write_bytes(b"k" * 48)
    file = rules_file(tmp_path, tokens={"key-file": "own.key"})
    good, told, lines = file.read_text(), tmp_path / "log", tmp_path / "access.log"
    options = ["--principals", str(file), "--access-log", str(lines)]

    with ServeProcess(lake.warehouse, lake.warehouse, *options, log=told) as running:
        server = Guarded(running.url, lake)

        def signalled(expected):
            before = told.read_text().count(expected)
            running.process.send_signal(signal.SIGHUP)
            eventually(lambda: told.read_text().count(expected) > before)
            assert running.process.poll() is None

        ann = server.token("ann")
        assert status(server, ann) == 200
        for text in BAD.values():
            file.write_text(text.replace("SECRET", str(HashedSecret.of("x"))))
            signalled("still holds")
            assert status(server, ann) == 200
        file.unlink()
        signalled("still holds")
        assert "canary" not in told.read_text()
        file.write_text(good)
        changed(file, lambda document: document["roles"].update(ann=document["roles"]["bob"]))
        os.rename(lines, tmp_path / "access.log.1")  # noqa: PTH104 - as logrotate does
        signalled("was read again")
        assert status(server, ann) == 403
        assert server.token("ann")
        assert '"status":403' in lines.read_text()
        assert running.stop() == 0
