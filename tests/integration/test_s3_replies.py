"""Create-if-absent by the real HTTP client; the server's replies lie, get lost or come late."""

from __future__ import annotations

import re
import traceback

import pytest

from lakehouse.errors import FileAlreadyExistsError, StorageError
from lakehouse.storage.object_store import WRITER_ID, ObjectStorage
from tests.flaky_s3 import flaky_s3

KEY = "s3://lake/raw/events/metadata/v2.metadata.json"


@pytest.fixture
def server():
    with flaky_s3() as started:
        yield started


@pytest.fixture
def storage(server):
    return ObjectStorage(server.properties, sleep=lambda _seconds: None)


@pytest.mark.parametrize(
    "script",
    [
        ["lost"],
        ["500 stored"],
        ["503"],
        ["409"],
        ["409", "409", "503"],
        ["lost", "409"],
        ["503", "lost", "500 stored"],
    ],
)
def test_it_is_created_once_whatever_the_replies(server, storage, script):
    server.script = list(script)
    storage.create(KEY, b"mine")
    assert server.script == []
    assert [content for content, _ in server.objects.values()] == [b"mine"]


@pytest.mark.parametrize("script", [[], ["503"], ["409"], ["409", "503"]])
def test_another_writers_file_is_never_taken_for_ours(server, storage, script):
    ObjectStorage(server.properties).create(KEY, b"theirs")
    server.script = list(script)
    with pytest.raises(FileAlreadyExistsError):
        storage.create(KEY, b"theirs")


def test_a_refusal_is_certain_only_where_nothing_was_sent_before(server, storage):
    server.script = ["403"]
    with pytest.raises(StorageError) as caught:
        storage.create(KEY, b"mine")
    assert caught.value.context["outcome"] == "failed"
    assert server.objects == {}
    server.script = ["lost", "403"]
    with pytest.raises(StorageError) as caught:
        storage.create(KEY, b"mine")
    assert caught.value.context["outcome"] == "unknown"
    assert len(server.objects) == 1


def test_an_endless_outage_is_unknown_and_shows_no_secret(server, storage):
    server.script = ["503"] * 1000
    with pytest.raises(StorageError) as caught:
        storage.create(KEY, b"mine")
    assert caught.value.context.get("outcome") != "failed"
    assert caught.value.retryable
    assert len(server.puts) < 20
    assert "canary" not in "".join(traceback.format_exception(caught.value)) + repr(
        caught.value.context
    )


@pytest.mark.parametrize("refusal", ["400", "403", "404", "501"])
def test_what_no_repetition_helps_is_sent_once(server, storage, refusal):
    server.script = [refusal] * 20
    with pytest.raises(StorageError) as caught:
        storage.create(KEY, b"mine")
    assert server.puts == [refusal]
    assert not caught.value.retryable
    assert caught.value.context["outcome"] == "failed"


ENDPOINT_IN_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
}


def test_the_environment_may_allow_http(server, monkeypatch):
    for name, value in ENDPOINT_IN_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.properties["s3.endpoint"])
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    storage = ObjectStorage()
    storage.create(KEY, b"mine")
    storage.write(f"{KEY}.other", b"other")
    assert storage.read(KEY) == b"mine"
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    pauses = []
    storage = ObjectStorage(sleep=pauses.append)
    with pytest.raises(StorageError, match="AWS_ALLOW_HTTP") as caught:
        storage.create(KEY, b"mine")
    assert not caught.value.retryable
    assert not pauses


def test_the_writers_mark_is_a_name_that_every_store_takes():
    """Azure wants metadata names to be identifiers of C#, proxies drop headers with underscores."""
    assert re.fullmatch("[a-z][a-z0-9]*", WRITER_ID)
