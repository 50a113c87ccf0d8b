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

    It has `index(planner, name, root, bytes)`, `parquet(schema)`, `rule()` and `filePath(location)`.

    It also readies the session: JVM threads can call into this process, files are pruned while a query is optimized, and
    Parquet columns are found by field id.

    Raises:
        UnsupportedFeatureError: the session is remote (Spark Connect): it has no JVM to speak to.
    """
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        raise UnsupportedFeatureError("this Spark session is a remote one (Spark Connect), which planned relations cannot reach")
    gateway = spark.sparkContext._gateway
    with _lock:
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        helper = driver_object(spark, "PlannedFiles")
        _ready(spark, jvm, helper)
    return helper


def _ready(spark: SparkSession, jvm: Any, helper: Any) -> None:
    for key, value in READ_OPTIONS.items():
        if spark.conf.get(key, None) != value:
            spark.conf.set(key, value)
    convert = jvm.scala.jdk.javaapi.CollectionConverters
    experimental = spark._jsparkSession.experimental()
    rules = list(convert.asJava(experimental.extraOptimizations()))
    rule = helper.rule()
    if all(known.ruleName() != rule.ruleName() for known in rules):
        getattr(experimental, "extraOptimizations_$eq")(convert.asScala([*rules, rule]).toSeq())
