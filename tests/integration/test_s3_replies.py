"""Create-if-absent by the real HTTP client; the server's replies lie, get lost or come late."""

from __future__ import annotations

import re
import traceback
from dataclasses import replace

import pytest

from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog
from lakehouse.environment import Environment
from lakehouse.errors import (
    FileAlreadyExistsError,
    InvalidPropertyError,
    StorageError,
    UnsupportedFeatureError,
)
from lakehouse.spec.identifier import Identifier
from lakehouse.storage.object_store import WRITER_ID, ObjectStorage
from tests.flaky_s3 import flaky_s3

KEY = "s3://lake/raw/events/metadata/v2.metadata.json"


@pytest.fixture
def server():
    with flaky_s3() as started:
        yield started


@pytest.fixture
def storage(server):
    return ObjectStorage(server.properties, environment=Environment.seeded(1))


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
    assert caught.value.commit_outcome == "failed"
    assert server.objects == {}
    server.script = ["lost", "403"]
    with pytest.raises(StorageError) as caught:
        storage.create(KEY, b"mine")
    assert caught.value.commit_outcome == "unknown"
    assert len(server.objects) == 1


def test_an_endless_outage_is_unknown_and_shows_no_secret(server, storage):
    server.script = ["503"] * 1000
    with pytest.raises(StorageError) as caught:
        storage.create(KEY, b"mine")
    assert caught.value.commit_outcome != "failed"
    assert caught.value.retryable
    assert 10 < len(server.puts) < 40
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
    assert caught.value.commit_outcome == "failed"


@pytest.mark.parametrize("reply", ["503", "lost"])
def test_an_outage_is_waited_out_and_told_in_one_line(server, storage, caplog, reply):
    server.script = [reply] * 15  # more than any number of retries that was ever set
    storage.write(KEY, b"mine")
    assert server.script == []
    assert [content for content, _ in server.objects.values()] == [b"mine"]
    (line,) = caplog.records
    assert "Trying again for up to 60 s" in line.getMessage()


@pytest.mark.parametrize("total_ms", [0, 2_000, 30_000])
def test_an_outage_is_waited_out_until_the_total(server, caplog, total_ms):
    server.script = ["503"] * 1000
    environment = Environment.seeded(7)
    began = environment.now_ms()
    properties = {**server.properties, "storage.retry-timeout-ms": str(total_ms)}
    storage = ObjectStorage(properties, environment=environment)
    for change in (storage.create, storage.write):
        with pytest.raises(StorageError, match="503") as caught:
            change(KEY, b"mine")
        assert caught.value.retryable
        assert environment.now_ms() - began <= total_ms + 100
        assert environment.now_ms() - began >= total_ms * 0.5
        began = environment.now_ms()
    assert len(caplog.records) == (0 if total_ms == 0 else 2)


def test_a_refusal_of_a_write_is_told_at_once(server, storage, caplog):
    server.script = ["403"]
    with pytest.raises(StorageError) as caught:
        storage.write(KEY, b"mine")
    assert (server.puts, caught.value.retryable, caplog.records) == (["403"], False, [])


def test_a_patience_that_is_no_number_is_refused():
    with pytest.raises(InvalidPropertyError, match=r"storage\.retry-timeout-ms"):
        ObjectStorage({"storage.retry-timeout-ms": "a minute"})


def test_a_request_that_is_under_way_is_no_object(server, storage):
    """S3's 409: the other request may fail, so it is asked again without looking."""
    server.script = ["409"] * 3
    storage.create(KEY, b"mine")
    assert server.gets == 0
    with pytest.raises(FileAlreadyExistsError):  # a 412
        storage.create(KEY, b"mine")
    assert server.gets == 1


def table_in(server):
    """The first commit of a filesystem catalog, which lists nothing yet."""
    catalog = FilesystemCatalog("s3://lake/warehouse", properties=server.properties)
    version = f"{catalog.warehouse}/raw/events/metadata/v1.metadata.json"
    catalog._swap(Identifier.parse("raw.events"), version, b"{}")
    return catalog


def test_a_store_that_creates_an_object_twice_is_refused_at_the_first_commit(server):
    server.honours_if_none_match = False
    with pytest.raises(UnsupportedFeatureError, match="If-None-Match") as caught:
        table_in(server)
    assert caught.value.commit_outcome == "failed"
    assert server.objects == {}


def test_a_store_is_proved_once_and_keeps_nothing_of_it(server):
    catalog = table_in(server)
    assert [key.rpartition("/")[2] for key in server.objects] == ["v1.metadata.json"]
    assert len(server.puts) == 3
    second = f"{catalog.warehouse}/raw/events/metadata/v2.metadata.json"
    catalog._swap(Identifier.parse("raw.events"), second, b"{}")
    assert len(server.puts) == 4


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
    filesystem, path = storage.filesystem(KEY)  # pyarrow's own client
    assert filesystem.open_input_stream(path).read() == b"mine"
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    pauses = []
    storage = ObjectStorage(environment=replace(Environment.system(), sleep=pauses.append))
    with pytest.raises(StorageError, match="AWS_ALLOW_HTTP") as caught:
        storage.create(KEY, b"mine")
    assert not caught.value.retryable
    assert not pauses


def test_the_writers_mark_is_a_name_that_every_store_takes():
    """Azure wants metadata names to be identifiers of C#, proxies drop headers with underscores."""
    assert re.fullmatch("[a-z][a-z0-9]*", WRITER_ID)


SKEWED = (
    b"<Error><Code>RequestTimeTooSkewed</Code><Message>The difference between the request time "
    b"and the current time is too large.</Message><RequestTime>20261125T215003Z</RequestTime>"
    b"<ServerTime>2026-11-25T22:10:03Z</ServerTime></Error>"
)
DECLARED = b'<?xml version="1.0" encoding="UTF-8"?>\n'


def streamed(storage):
    with storage.open_output(KEY) as stream:
        stream.write(b"mine")


VERBS = {
    "read": lambda storage: storage.read(KEY),
    "read_range": lambda storage: storage.read_range(KEY, 0, 1),
    "size": lambda storage: storage.size(KEY),
    "exists": lambda storage: storage.exists(KEY),
    "write": lambda storage: storage.write(KEY, b"mine"),
    "create": lambda storage: storage.create(KEY, b"mine"),
    "list": lambda storage: list(storage.list("s3://lake/raw")),
    "list_folders": lambda storage: storage.list_folders("s3://lake/raw"),
    "open_output": streamed,
}


@pytest.mark.parametrize("declaration", [b"", DECLARED])
@pytest.mark.parametrize("verb", VERBS)
def test_a_wrong_clock_is_told_as_that(server, storage, verb, declaration):
    server.refusal = declaration + SKEWED
    with pytest.raises(StorageError) as caught:
        VERBS[verb](storage)
    told = str(caught.value)
    assert "clock" in told
    assert "20261125T215003Z here, 2026-11-25T22:10:03Z there" in told
    assert "privileges" not in told
    assert not caught.value.retryable


def test_a_wrong_clock_is_told_of_each_file_that_is_not_deleted(server, storage):
    server.refusal = DECLARED + SKEWED
    (reason,) = storage.delete([KEY]).failed.values()
    assert "clock" in reason


@pytest.mark.parametrize("verb", VERBS)
def test_a_refusal_is_told_by_the_stores_own_words(server, storage, verb):
    error = b"<Error><Code>InvalidAccessKeyId</Code><Message>No such key.</Message></Error>"
    server.refusal = DECLARED + error
    with pytest.raises(StorageError, match="InvalidAccessKeyId No such key"):
        VERBS[verb](storage)
    server.refusal = None
