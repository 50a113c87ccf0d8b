"""The storage of a lakehouse as Hadoop's settings."""

from __future__ import annotations

import pytest

from lakehouse.spark.hadoop_locations import hadoop_settings

KEYS = {"s3.access-key-id": "id", "s3.secret-access-key": "secret"}
AZURE = "abfss://box@acc.dfs.core.windows.net/lake"
HOST = "acc.dfs.core.windows.net"
S3A = "org.apache.hadoop.fs.s3a"


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_endpoint_region_style_and_credentials_of_one_bucket(scheme):
    properties = {**KEYS, "s3.endpoint": "http://store:7070", "s3.region": "eu-1"}
    assert hadoop_settings(f"{scheme}://lake/a", properties, {}) == {
        "fs.s3a.bucket.lake.endpoint": "http://store:7070",
        "fs.s3a.bucket.lake.path.style.access": "true",
        "fs.s3a.bucket.lake.endpoint.region": "eu-1",
        "fs.s3a.bucket.lake.access.key": "id",
        "fs.s3a.bucket.lake.secret.key": "secret",
        "fs.s3a.bucket.lake.aws.credentials.provider": f"{S3A}.SimpleAWSCredentialsProvider",
    }


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"])
def test_the_environments_endpoint_is_reached_by_path(name):
    environ = {name: "http://s3:7070", "AWS_REGION": "us-east-1", "AWS_SECRET_ACCESS_KEY": "x"}
    assert hadoop_settings("s3://lake/a", {}, environ) == {
        "fs.s3a.bucket.lake.endpoint": "http://s3:7070",
        "fs.s3a.bucket.lake.path.style.access": "true",
        "fs.s3a.bucket.lake.endpoint.region": "us-east-1",
    }


def test_properties_come_before_the_environment():
    told = hadoop_settings(
        "s3://lake/a", {"s3.endpoint": "http://one:1"}, {"AWS_ENDPOINT_URL": "http://two:2"}
    )
    assert told["fs.s3a.bucket.lake.endpoint"] == "http://one:1"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"s3.force-virtual-addressing": "true", "s3.endpoint": "https://e"},
         {"endpoint": "https://e", "path.style.access": "false"}),
        ({"s3.anonymous": "true"},
         {"aws.credentials.provider": f"{S3A}.AnonymousAWSCredentialsProvider"}),
    ],
)  # fmt: skip
def test_other_ways_into_a_bucket(properties, expected):
    told = hadoop_settings("s3://b/a", properties, {})
    assert told == {f"fs.s3a.bucket.b.{name}": value for name, value in expected.items()}


@pytest.mark.parametrize(
    ("properties", "kind", "secret"),
    [
        ({"adls.account-key": "k"}, "SharedKey", "fs.azure.account.key."),
        ({"adls.sas-token": "k"}, "SAS", "fs.azure.sas.fixed.token."),
        ({"adls.sas-token.acc.dfs.core.windows.net": "k"}, "SAS", "fs.azure.sas.fixed.token."),
        ({"adls.connection-string": "AccountName=acc;AccountKey=k"}, "SharedKey",
         "fs.azure.account.key."),
        ({"adls.client-id": "i", "adls.client-secret": "k", "adls.tenant-id": "t"},
         "OAuth", "fs.azure.account.oauth2.client.secret."),
    ],
)  # fmt: skip
def test_azure_by_account(properties, kind, secret):
    told = hadoop_settings(AZURE, properties, {})
    assert told[f"fs.azure.account.auth.type.{HOST}"] == kind
    assert told[secret + HOST] == "k"
    assert all(name.endswith(HOST) for name in told)


def test_google_by_the_file_of_an_account_and_what_needs_nothing():
    told = hadoop_settings("gs://b/a", {"gcs.service-account-path": "/key.json"}, {})
    assert told["fs.gs.auth.service.account.json.keyfile"] == "/key.json"
    for location in ("gs://b/a", AZURE, "/data/lake", "file:///data/lake", "s3://b/a"):
        assert hadoop_settings(location, {}, {}) == {}
    assert hadoop_settings("/data", KEYS, {"AWS_ENDPOINT_URL": "http://x"}) == {}


@pytest.mark.parametrize(
    ("location", "name"),
    [
        *((AZURE, name) for name in ("adls.token", "adls.anon", "adls.endpoint")),
        (AZURE, "adls.connection-string"),
        (AZURE, "adls.sas-token-expires-at-ms.acc"),
        *(
            (f"{scheme}://b/a", name)
            for scheme in ("gs", "gcs")
            for name in ("gcs.oauth2.token", "gcs.service-account-key", "gcs.service.host")
        ),
        *((f"{scheme}://b/a", "s3.session-token") for scheme in ("s3", "s3a", "s3n")),
        ("s3://b/a", "s3.remote-signing-enabled"),
        *((location, "storage-credentials") for location in (AZURE, "gs://b/a", "s3a://b/a")),
    ],
)
def test_what_hadoop_cannot_be_told_is_left_to_python_workers(location, name):
    values = {
        "adls.connection-string": "AccountName=acc;BlobEndpoint=http://127.0.0.1:1/acc",
        "s3.remote-signing-enabled": "true",
    }
    assert hadoop_settings(location, {**KEYS, name: values.get(name, "x")}, {}) is None


def test_an_endpoint_of_azure_that_its_host_says():
    properties = {"adls.account-key": "k", "adls.endpoint": "https://acc.blob.core.windows.net/"}
    assert hadoop_settings(AZURE, properties, {})
    abroad = "abfss://box@acc.dfs.core.chinacloudapi.cn/lake"
    assert hadoop_settings(abroad, {"adls.account-key": "k"}, {})


def test_google_without_a_login():
    assert hadoop_settings(AZURE, {"gcs.oauth2.token": "of another cloud"}, {}) == {}
    for scheme in ("gs", "gcs"):
        assert hadoop_settings(f"{scheme}://b/a", {"gcs.no-auth": "true"}, {}) == {
            "fs.gs.auth.type": "UNAUTHENTICATED"
        }
