"""What clients are told of the store, so that they need no settings of their own but their keys."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog.rest import RestCatalog
from typer.testing import CliRunner

import lakehouse as lh
from lakehouse.cli import app as cli
from lakehouse.server.http_server import HttpServer
from lakehouse.server.rest_app import rest_app
from lakehouse.storage.s3_client import s3_client_settings

ROWS = pa.table({"id": [1, 2, 3]})
KEYS = ("s3.access-key-id", "s3.secret-access-key")


@pytest.fixture
def store(s3_properties):
    return s3_properties


@pytest.fixture
def no_settings(monkeypatch):
    """An environment that says nothing of any store."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def serving(store, folder, **config):
    lake = lh.load_catalog(
        f"sqlite:///{folder}/c.db", warehouse=f"s3://lake/{folder.name}", **store
    )
    return HttpServer(rest_app(lake, config=config), "127.0.0.1", 0)


@pytest.mark.parametrize("name_of_client", ["pyiceberg", "ours"])
def test_a_client_needs_its_keys_alone(store, tmp_path, no_settings, name_of_client):
    with serving(store, tmp_path) as server:
        keys = {name: store[name] for name in KEYS}
        if name_of_client == "ours":
            lake = lh.load_catalog(server.url, **keys)
            lake.create_namespace("raw")
            lake.create_table("raw.events", ROWS.schema).append(ROWS)
        else:
            theirs = RestCatalog("lake", uri=server.url, **keys)
            theirs.create_namespace("raw")
            theirs.create_table("raw.events", ROWS.schema).append(ROWS)
            lake = RestCatalog("lake", uri=server.url, **keys)
        assert lake.load_table("raw.events").scan().to_arrow()["id"].to_pylist() == [1, 2, 3]


def configured(server):
    found = requests.get(f"{server.url}/v1/config", timeout=10).json()
    return found["defaults"], found["overrides"]


def test_what_a_client_is_given_stands_above_what_it_is_told(
    store, tmp_path, no_settings, monkeypatch
):
    """In another network the store has another address."""
    elsewhere = "http://127.0.0.1:9"
    with serving(store, tmp_path, **{"s3.endpoint": elsewhere}) as server:
        assert configured(server)[0]["s3.endpoint"] == elsewhere
        ours = lh.load_catalog(server.url, **store)
        ours.create_namespace("raw")
        ours.create_table("raw.events", ROWS.schema).append(ROWS)
        theirs = RestCatalog("lake", uri=server.url, **store)
        assert theirs.load_table("raw.events").scan().to_arrow().num_rows == 3
        # what our client has of its environment was given to it, too
        monkeypatch.setenv("AWS_ENDPOINT_URL", store["s3.endpoint"])
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        by_environment = lh.load_catalog(server.url, **{name: store[name] for name in KEYS})
        assert by_environment.load_table("raw.events").scan().to_arrow().num_rows == 3


def test_no_secret_is_told(store, tmp_path, no_settings):
    secrets = {"s3.secret-access-key": "canary-1", "s3.session-token": "canary-2"}
    with serving({**store, **secrets, "s3.access-key-id": "canary-3"}, tmp_path) as server:
        told, overrides = configured(server)
        assert told == {
            "s3.endpoint": store["s3.endpoint"],
            "s3.region": "us-east-1",
            "client.region": "us-east-1",
            "s3.path-style-access": "true",
        }
        assert "canary" not in str(overrides)


def test_nothing_is_told_of_a_store_that_nobody_uses(tmp_path, no_settings, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    lake = lh.load_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    with HttpServer(rest_app(lake), "127.0.0.1", 0) as server:
        assert configured(server)[0] == {}


def test_what_is_told():
    """By properties, else by the environment; hosts of buckets where the store wants those."""
    environ = {"AWS_ENDPOINT_URL_S3": "http://ann:canary@store:9000", "AWS_DEFAULT_REGION": "eu-1"}
    assert s3_client_settings({}, {}) == {}
    assert s3_client_settings({}, environ) == {
        "s3.endpoint": "http://store:9000",
        "s3.region": "eu-1",
        "client.region": "eu-1",
        "s3.path-style-access": "true",
    }
    virtual = s3_client_settings(
        {"s3.endpoint": "https://x", "s3.force-virtual-addressing": "true"}, environ
    )
    assert virtual["s3.endpoint"] == "https://x"
    assert virtual["s3.path-style-access"] == "false"
    assert virtual["s3.force-virtual-addressing"] == "true"


@pytest.mark.parametrize(
    ("told", "expected"),
    [("s3.secret-access-key=x", "is secret"), ("s3.endpoint", "KEY=VALUE"), ("=x", "KEY=VALUE")],
)
def test_what_cannot_be_told(tmp_path, told, expected):
    found = CliRunner().invoke(cli, ["serve", "--catalog", str(tmp_path), "--tell", told])
    assert found.exit_code != 0
    assert expected in " ".join(found.output.split())
