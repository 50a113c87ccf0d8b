"""Table locations as Hadoop's file systems spell them."""

from __future__ import annotations

import logging
import os

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lakehouse.errors import UnsupportedFeatureError
from lakehouse.spark.hadoop_settings import hadoop_settings
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

    That file system is given the settings of the storage that the session does not have yet.

    Raises:
        UnsupportedFeatureError: a location that only this process can see.
    """
    scheme = spark_location(location).partition("://")[0]
    if scheme == "file":
        return True
    jvm = spark._jvm
    if jvm is None:
        return False
    hadoop = spark._jsc.hadoopConfiguration()
    for name, value in hadoop_settings(location, storage.properties, os.environ).items():
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
