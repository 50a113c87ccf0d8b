"""Table locations as Hadoop's file systems spell them."""

from __future__ import annotations

import logging

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lakehouse.errors import UnsupportedFeatureError

logger = logging.getLogger(__name__)

_SCHEMES = {"": "file", "file": "file", "s3": "s3a", "s3a": "s3a", "s3n": "s3a"}


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


def hadoop_reads(spark: SparkSession, location: str) -> bool:
    """Whether the session has a Hadoop file system for it (S3's needs JARs PySpark lacks).

    Raises:
        UnsupportedFeatureError: a location that only this process can see.
    """
    scheme = spark_location(location).partition("://")[0]
    if scheme == "file":
        return True
    jvm = spark._jvm
    if jvm is None:
        return False
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(
            scheme, spark._jsparkSession.sessionState().newHadoopConf()
        )
    except Py4JJavaError as error:
        logger.debug("no Hadoop file system for %s: %s", scheme, error.java_exception)
        return False
    return True
