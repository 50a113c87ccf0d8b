"""Table locations, and their storage's settings, as Hadoop's file systems spell them.

The settings of `s3a`, `abfss` and `gs` are documented with each of them: hadoop.apache.org,
"Hadoop-AWS", "Hadoop-Azure" (ABFS), "Hadoop-GCP".
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lakehouse.errors import UnsupportedFeatureError
from lakehouse.storage.bucket_clients import azure_properties
from lakehouse.storage.delegated.vended_credentials import STORAGE_CREDENTIALS
from lakehouse.storage.location import parse
from lakehouse.storage.s3_client import is_signed_elsewhere, s3_endpoint, s3_region
from lakehouse.storage.storage_protocol import Storage

logger = logging.getLogger(__name__)

_SCHEMES = {"": "file", "file": "file", "s3": "s3a", "s3a": "s3a", "s3n": "s3a", "gcs": "gs"}


def spark_location(location: str) -> str:
    """The location for Spark: `file://` for a bare path, `s3a://` for `s3://`; never a pattern.

    Raises:
        UnsupportedFeatureError: a location that only this process can see (`memory://`).
    """
    scheme, separator, rest = location.partition("://")
    if not separator:
        path = location.removeprefix("file:")
        return "file://" + path
    if scheme == "memory":
        raise UnsupportedFeatureError(
            f"Spark cannot read {location}: the files are in this process's memory",
            location=location,
        )
    return f"{_SCHEMES.get(scheme, scheme)}://{rest}"


def hadoop_reads(spark: SparkSession, location: str, storage: Storage) -> bool:
    """Whether the session has a Hadoop file system for it (S3's needs JARs PySpark lacks).

    That file system is given the settings of the storage that the session does not have yet; what
    it cannot be told, Python workers know.

    Raises:
        UnsupportedFeatureError: a location that only this process can see.
    """
    scheme = spark_location(location).partition("://")[0]
    if scheme == "file":
        return True
    jvm = spark._jvm
    settings = hadoop_settings(location, storage.properties, os.environ)
    if jvm is None or settings is None:
        return False
    hadoop = spark._jsc.hadoopConfiguration()
    for name, value in settings.items():
        if spark.conf.get(f"spark.hadoop.{name}", None) is None:
            hadoop.set(name, value)
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(
            scheme, spark._jsparkSession.sessionState().newHadoopConf()
        )
    except Py4JJavaError as error:
        logger.debug("no Hadoop file system for %s: %s", scheme, error.java_exception)
        return False
    return True


_AWS = "org.apache.hadoop.fs.s3a"
_AZURE = "org.apache.hadoop.fs.azurebfs.oauth2"
_BY_WORKERS = {
    # keys that end: Hadoop keeps a file system with those that it had first
    "s3a": ("s3.session-token",),
    # it takes a token and no login by classes of Java, which this project does not have
    "abfs": ("adls.token", "adls.anon", "adls.sas-token-expires-at-ms."),
    # and Hadoop's own file system knows one host
    "gs": ("gcs.oauth2.token", "gcs.service-account-key", "gcs.service.host"),
}
"""Beginnings of properties that only Python workers heed."""


def hadoop_settings(
    location: str, properties: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str] | None:
    """What Hadoop needs to reach a location as the storage with these properties does.

    They are those of one bucket or account, where Hadoop knows such. Credentials that only the
    environment has are not among them: each file system looks there by itself. None: Hadoop cannot
    be told.

    Args:
        location: of a table; a local one needs nothing.
        properties: of the storage (see `object_store`).
        environ: where the endpoint and the region may be.

    Example:
        >>> settings = hadoop_settings("s3://lake/a", {"s3.endpoint": "http://s3:7070"}, {})
        >>> settings["fs.s3a.bucket.lake.path.style.access"]
        'true'
    """
    parsed = parse(location)
    scheme = _SCHEMES.get(parsed.scheme, parsed.scheme)
    kind = "abfs" if scheme == "abfss" else scheme
    by_workers = (STORAGE_CREDENTIALS, *_BY_WORKERS.get(kind, ()))
    if any(name.startswith(by_workers) for name in properties):
        return None
    if kind == "s3a":
        if is_signed_elsewhere(properties):
            return None
        prefix = f"fs.s3a.bucket.{parsed.authority}."
        return {prefix + name: value for name, value in _s3(properties, environ).items()}
    if kind == "abfs":
        host = parsed.authority.partition("@")[2]
        return _azure(host, azure_properties(host, properties))
    return _google(properties) if kind == "gs" else {}


def _s3(properties: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    endpoint = s3_endpoint(properties, environ)
    region = s3_region(properties, environ)
    if endpoint:
        settings["endpoint"] = endpoint
        virtual = properties.get("s3.force-virtual-addressing", "false").lower() == "true"
        settings["path.style.access"] = "false" if virtual else "true"
    if region:
        settings["endpoint.region"] = region
    if properties.get("s3.anonymous", "false").lower() == "true":
        return settings | {"aws.credentials.provider": f"{_AWS}.AnonymousAWSCredentialsProvider"}
    if "s3.access-key-id" in properties:
        settings["access.key"] = properties["s3.access-key-id"]
        settings["secret.key"] = properties.get("s3.secret-access-key", "")
        settings["aws.credentials.provider"] = f"{_AWS}.SimpleAWSCredentialsProvider"
    return settings


def _google(properties: Mapping[str, str]) -> dict[str, str]:
    if properties.get("gcs.no-auth", "false").lower() == "true":
        return {"fs.gs.auth.type": "UNAUTHENTICATED"}
    if "gcs.service-account-path" not in properties:
        return {}
    return {
        "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
        "fs.gs.auth.service.account.json.keyfile": properties["gcs.service-account-path"],
    }


def _azure(host: str, properties: Mapping[str, str]) -> dict[str, str] | None:
    its_own = f"https://{host.replace('.dfs.', '.blob.', 1)}"
    if properties.get("adls.endpoint", its_own).rstrip("/") != its_own:
        return None  # Hadoop takes the host of the location
    if "adls.account-key" in properties:
        return {
            f"fs.azure.account.auth.type.{host}": "SharedKey",
            f"fs.azure.account.key.{host}": properties["adls.account-key"],
        }
    if "adls.sas-token" in properties:
        return {
            f"fs.azure.account.auth.type.{host}": "SAS",
            f"fs.azure.sas.fixed.token.{host}": properties["adls.sas-token"],
        }
    if "adls.client-secret" in properties:
        tenant = properties.get("adls.tenant-id", "common")
        login = f"https://login.microsoftonline.com/{tenant}/oauth2/token"
        return {
            f"fs.azure.account.auth.type.{host}": "OAuth",
            f"fs.azure.account.oauth.provider.type.{host}": f"{_AZURE}.ClientCredsTokenProvider",
            f"fs.azure.account.oauth2.client.endpoint.{host}": login,
            f"fs.azure.account.oauth2.client.id.{host}": properties.get("adls.client-id", ""),
            f"fs.azure.account.oauth2.client.secret.{host}": properties["adls.client-secret"],
        }
    return {}
