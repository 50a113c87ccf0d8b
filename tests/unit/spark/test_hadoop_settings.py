"""The storage of a lakehouse as Hadoop's settings."""

from __future__ import annotations

import pytest

from lakehouse.errors import UnsupportedFeatureError
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
        ({**KEYS, "s3.session-token": "t"},
         {"access.key": "id", "secret.key": "secret", "session.token": "t",
          "aws.credentials.provider": f"{S3A}.TemporaryAWSCredentialsProvider"}),
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
    [(AZURE, "adls.token"), ("gs://b/a", "gcs.oauth2.token"),
     ("gs://b/a", "gcs.service-account-key")],
)  # fmt: skip
def test_what_hadoop_takes_by_a_class_of_java_alone_is_refused(location, name):
    with pytest.raises(UnsupportedFeatureError, match=f"takes no {name}"):
        hadoop_settings(location, {name: "x"}, {})


def test_google_elsewhere_and_without_a_login():
    properties = {"gcs.service.host": "http://h:1", "gcs.no-auth": "true"}
    assert hadoop_settings("gs://b/a", properties, {}) == {
        "fs.gs.storage.root.url": "http://h:1",
        "fs.gs.auth.type": "UNAUTHENTICATED",
    }
