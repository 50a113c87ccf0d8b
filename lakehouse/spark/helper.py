"""The Java half of a planned relation (`PlannedFiles.java`)."""

from __future__ import annotations

import threading
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from lakehouse.errors import UnsupportedFeatureError
from lakehouse.spark.jvm import driver_object
from lakehouse.spark.session import READ_OPTIONS

_lock = threading.Lock()


def planned_files(spark: SparkSession) -> Any:
    """The helper object of this session's JVM.

    It has `relation(session, planner, name, root, bytes, schema, options)` and `filePath(location)`.

    It also readies the session: JVM threads can call into this process, files are pruned while a query is optimized, and
    Parquet columns are found by field id.

    Raises:
        UnsupportedFeatureError: the session is remote (Spark Connect): it has no JVM to speak to.
    """
    if getattr(spark, "_jvm", None) is None:
        raise UnsupportedFeatureError(
            "this Spark session is a remote one (Spark Connect), which planned relations cannot reach"
        )
    gateway = spark.sparkContext._gateway
    with _lock:
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        helper = driver_object(spark, "PlannedFiles")
        helper.ready(spark._jsparkSession, dict(READ_OPTIONS))
    return helper
