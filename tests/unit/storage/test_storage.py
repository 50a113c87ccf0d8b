"""What every storage promises."""

from __future__ import annotations

import pickle
import threading
import uuid

import obstore
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

from lakehouse.environment import Environment
from lakehouse.errors import (
    FileAlreadyExistsError,
    InvalidLocationError,
    InvalidPropertyError,
    NoSuchFileError,
    StorageError,
)
from lakehouse.storage import (
    LocalStorage,
    MemoryStorage,
    ObjectStorage,
    bucket_clients,
    storage_for,
)
from lakehouse.storage.delegated import vended_credentials
from lakehouse.storage.local import PosixDisk
from tests.faulty_storage import Fault, FaultyStorage
from tests.servers import clouds


@pytest.fixture(params=["local", "uri", "memory", "object", "faulty", *clouds()])
def place(request, tmp_path):
    """(storage, root)."""
    if request.param in clouds():
        root, properties = clouds()[request.param]
        return storage_for(root, properties), f"{root}/{uuid.uuid4().hex}"
    if request.param == "local":
        return LocalStorage(), str(tmp_path)
    if request.param == "uri":
        return LocalStorage(), f"file://{tmp_path}"
    if request.param == "object":
        store = MemoryStore()
        return ObjectStorage(connect=lambda *_: store), "s3://bucket/root"
    memory = MemoryStorage(files={})
    return (
        FaultyStorage(memory, lambda *_: None) if request.param == "faulty" else memory
    ), "memory://x/root"


def test_write_read_list_delete(place):
    storage, root = place
    names = [f"{root}/a/one", f"{root}/a/b=x%2Fy/two words", f"{root}/c"]
    storage.write(names[0], b"1")
    storage.write_new({names[1]: b"22", names[2]: b"333"})
    assert [storage.read(name) for name in names] == [b"1", b"22", b"333"]
    assert storage.read_range(names[2], 1, 5) == b"33"
    assert [storage.size(name) for name in names] == [1, 2, 3]
    assert sorted((info.location, info.size) for info in storage.list(root)) == sorted(
        zip(names, [1, 2, 3], strict=True)
    )
    assert {info.location for info in storage.list(f"{root}/a")} == set(names[:2])
    assert list(storage.list(f"{root}/nothing")) == []
    assert list(storage.list_folders(root)) == ["a"]
    storage.write(names[0], b"new")
    assert storage.read(names[0]) == b"new"
    report = storage.delete([*names, f"{root}/never"])
    assert set(names) <= set(report.deleted)
    assert not report.failed
    assert not storage.exists(names[0])
    for ask in (storage.read, storage.size):
        with pytest.raises(NoSuchFileError):
            ask(names[0])


def test_a_folder_is_not_a_prefix(place):
    storage, root = place
    storage.write(f"{root}/table/x", b"")
    storage.write(f"{root}/table2/y", b"")
    assert [info.location for info in storage.list(f"{root}/table")] == [f"{root}/table/x"]
    assert not storage.exists(f"{root}/table")


def test_create_if_absent_has_one_winner(place):
    storage, root = place
    winners = []

    def run(number):
        try:
            storage.create(f"{root}/v1", str(number).encode())
        except FileAlreadyExistsError:
            return
        winners.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(winners) == 1
    assert storage.read(f"{root}/v1") == str(winners[0]).encode()
    assert [info.location for info in storage.list(root)] == [f"{root}/v1"]


def test_streams_show_nothing_before_they_are_closed(place):
    storage, root = place
    stream = storage.open_output(f"{root}/data/file")
    stream.write(b"x" * 10)
    assert stream.tell() == 10
    assert not storage.exists(f"{root}/data/file")
    stream.close()
    assert storage.size(f"{root}/data/file") == 10
    with pytest.raises(ZeroDivisionError):
        _fail_while_writing(storage, f"{root}/data/other")
    assert not storage.exists(f"{root}/data/other")


def _fail_while_writing(storage, location):
    with storage.open_output(location) as stream:
        stream.write(b"y")
        raise ZeroDivisionError


def test_parquet_through_the_stream_and_the_file_system(place):
    storage, root = place
    table = pa.table({"id": list(range(1000))})
    with (
        storage.open_output(f"{root}/t.parquet") as stream,
        pq.ParquetWriter(stream, table.schema) as writer,
    ):
        writer.write_table(table)
    if isinstance(storage, ObjectStorage):
        return  # its file system is pyarrow's own S3 client: tests/integration/test_catalogs.py
    filesystem, path = storage.filesystem(f"{root}/t.parquet")
    assert pq.read_table(path, filesystem=filesystem) == table


def test_an_own_success_reported_as_412_is_recognised(monkeypatch):
    store = MemoryStore()
    storage = ObjectStorage(connect=lambda *_: store, environment=Environment.seeded(1))
    put = obstore.put
    calls = []

    def lossy(*args, **options):
        calls.append(1)
        result = put(*args, **options)
        if len(calls) == 1:
            raise obstore.exceptions.GenericError("connection reset")
        return result

    monkeypatch.setattr(obstore, "put", lossy)
    storage.create("s3://bucket/v1", b"mine")
    assert len(calls) == 2
    with pytest.raises(FileAlreadyExistsError):
        storage.create("s3://bucket/v1", b"mine")


def test_an_outage_leaves_the_outcome_open(monkeypatch):
    storage = ObjectStorage(connect=lambda *_: MemoryStore(), environment=Environment.seeded(1))

    def dead(*_args, **_options):
        raise obstore.exceptions.GenericError("timed out\nsecret configuration dump")

    monkeypatch.setattr(obstore, "put", dead)
    with pytest.raises(StorageError) as caught:
        storage.create("s3://bucket/v1", b"mine")
    assert caught.value.commit_outcome != "failed"
    assert caught.value.retryable
    assert "secret" not in caught.value.message


class FullDisk(PosixDisk):
    def write(self, handle, data):
        raise OSError(28, "No space left on device")


class UnsyncableFolder(PosixDisk):
    def __init__(self, folder):
        self.folder = str(folder)

    def fsync_folder(self, path):
        if path == self.folder:
            raise OSError(5, "Input/output error")


def test_a_full_disk_is_certain_and_leaves_nothing(tmp_path):
    storage = LocalStorage(disk=FullDisk())
    for act in (
        lambda: storage.create(f"{tmp_path}/v1", b"x"),
        lambda: storage.write_new({f"{tmp_path}/m": b"x"}),
    ):
        with pytest.raises(StorageError, match="Free space"):
            act()
    with pytest.raises(StorageError) as caught:
        storage.create(f"{tmp_path}/v1", b"x")
    assert caught.value.commit_outcome == "failed"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_synced_after_the_link_is_unknown(tmp_path):
    storage = LocalStorage(disk=UnsyncableFolder(tmp_path))
    with pytest.raises(StorageError) as caught:
        storage.create(f"{tmp_path}/v1", b"x")
    assert caught.value.commit_outcome != "failed"
    assert (tmp_path / "v1").read_bytes() == b"x"


def test_a_name_that_is_taken_is_not_overwritten_by_write_new(tmp_path):
    (tmp_path / "m").write_bytes(b"theirs")
    with pytest.raises(StorageError):
        LocalStorage().write_new({f"{tmp_path}/m": b"mine"})
    assert (tmp_path / "m").read_bytes() == b"theirs"


@pytest.mark.parametrize("location", ["/x", "memory://x", "s3://bucket/key"])
def test_workers_rebuild_it(location):
    storage = storage_for(location, {"s3.region": "us-east-1"})
    shared = isinstance(storage, MemoryStorage)
    pickled = pickle.dumps(storage) if not shared else b""
    again = (
        storage_for(location, storage.properties) if shared else pickle.loads(pickled)  # noqa: S301
    )
    assert type(again) is type(storage)
    assert again.properties == {"s3.region": "us-east-1"}


def test_unknown_schemes_are_refused():
    with pytest.raises(InvalidLocationError, match="ftp"):
        storage_for("ftp://host/x")


def test_faults():
    inner = MemoryStorage(files={})
    faults = iter([Fault.LOST_REPLY, Fault.TIMEOUT, Fault.DELAYED, Fault.FULL])
    later = []
    storage = FaultyStorage(inner, lambda *_: next(faults, None), later.append)
    root = f"memory://{uuid.uuid4().hex}"
    for name, there, outcome in (
        ("lost", True, None),
        ("timeout", False, None),
        ("delayed", False, None),
        ("full", False, "failed"),
    ):
        with pytest.raises(StorageError) as caught:
            storage.create(f"{root}/{name}", b"x")
        assert inner.exists(f"{root}/{name}") is there
        assert caught.value.commit_outcome == outcome
    later[0]()
    assert inner.exists(f"{root}/delayed")


AZURE = "box@acc.dfs.core.windows.net"
CHINA = "box@acc.dfs.core.chinacloudapi.cn"
SECRET = "c2VjcmV0MQ=="  # noqa: S105


@pytest.mark.parametrize(
    ("scheme", "authority", "properties", "expected"),
    [
        ("abfss", AZURE, {"adls.account-key": SECRET},
         {"account_name": "acc", "account_key": SECRET}),
        ("wasbs", "box@acc.blob.core.windows.net", {"adls.sas-token": "a=b"},
         {"account_name": "acc", "sas_key": "a=b"}),
        ("abfs", AZURE, {"adls.account-name": "other", "adls.token": "t"},
         {"account_name": "acc", "token": "t"}),
        ("az", "box", {"adls.account-name": "acc", "adls.account-key": SECRET},
         {"account_name": "acc", "account_key": SECRET}),
        ("abfss", AZURE, {"adls.sas-token.acc.dfs.core.windows.net": "a=b",
                          "adls.sas-token.two.dfs.core.windows.net": "c=d"},
         {"account_name": "acc", "sas_key": "a=b"}),
        ("abfss", CHINA, {"adls.sas-token.acc": "a=b"},
         {"account_name": "acc", "sas_key": "a=b",
          "endpoint": "https://acc.blob.core.chinacloudapi.cn"}),
        ("az", "box", {"adls.connection-string": f"AccountName=acc;AccountKey={SECRET};"
                       "DefaultEndpointsProtocol=https;EndpointSuffix=core.windows.net"},
         {"account_name": "acc", "account_key": SECRET}),
        ("az", "box", {"adls.connection-string": "BlobEndpoint=http://h:1/acc;AccountName=acc",
                       "adls.account-key": SECRET},
         {"account_name": "acc", "account_key": SECRET, "endpoint": "http://h:1/acc"}),
        ("gs", "box", {"gcs.service.host": "http://h:1", "gcs.oauth2.token": "t"},
         {"base_url": "http://h:1", "bearer_token": "t"}),
        ("gcs", "box", {"gcs.no-auth": "true"}, {"skip_signature": "true"}),
    ],
)  # fmt: skip
def test_clients_of_azure_and_google(monkeypatch, scheme, authority, properties, expected):
    given = {}
    for name in ("AzureStore", "GCSStore"):
        real = getattr(bucket_clients, name)

        def store(container, *, config, real=real, **more):
            given.update(config, container=container)
            return real(container, config=config, **more)

        monkeypatch.setattr(bucket_clients, name, store)
    bucket_clients.open_store(scheme, authority, properties, 0, None)
    plain = {"allow_http": "true"} if "http://h:1" in str(expected) else {}
    assert given == {"container": "box", "timeout": "30000 ms", **plain, **expected}


def test_a_connection_string_that_is_none_is_not_quoted():
    with pytest.raises(InvalidPropertyError, match="AccountName=") as caught:
        bucket_clients.open_store("az", "box", {"adls.connection-string": SECRET}, 0, None)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("location", "config", "renewed"),
    [
        ("gs://box/t", {"gcs.oauth2.token": "t{}", "gcs.oauth2.token-expires-at": "{}000"},
         {"token": "t{}"}),
        ("abfss://box@acc.dfs.core.windows.net/t",
         {"adls.sas-token.acc.dfs.core.windows.net": "s{}",
          "adls.sas-token-expires-at-ms.acc.dfs.core.windows.net": "{}000"},
         {"sas_token": "s{}"}),
    ],
)  # fmt: skip
def test_handed_out_credentials_of_azure_and_google_are_renewed(
    monkeypatch, location, config, renewed
):
    """As those of S3: before they end, for whoever holds the storage."""

    def listed(number):
        filled = {name: value.format(number) for name, value in config.items()}
        return orjson.dumps({"storage-credentials": [{"prefix": location, "config": filled}]})

    now = [0]
    environment = Environment(lambda: now[0], uuid.uuid4, lambda: 0.0, lambda _: None)
    asked = []

    def again(_properties, endpoint):
        asked.append(endpoint)
        return listed(2000).decode()

    monkeypatch.setattr(vended_credentials, "renewed_credentials", again)
    providers = []

    def connect(*told):
        providers.append(told[-1])
        return MemoryStore()

    properties = {
        "uri": "http://server",
        "client.refresh-credentials-endpoint": "v1/credentials",
        "storage-credentials": orjson.dumps(
            orjson.loads(listed(1000))["storage-credentials"]
        ).decode(),
    }
    storage = ObjectStorage(properties, connect=connect, environment=environment)
    storage.write(f"{location}/x", b"1")
    for number, at in ((1000, 0), (2000, 900_000)):
        now[0] = at
        given = providers[0]()
        assert given.pop("expires_at").timestamp() == number
        assert given == {name: value.format(number) for name, value in renewed.items()}
    assert asked == ["v1/credentials"]
