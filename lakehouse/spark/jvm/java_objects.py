"""Objects of this package's Java in Spark's JVM."""

from __future__ import annotations

import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyspark
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from lakehouse.errors import UnsupportedFeatureError
from lakehouse.spark.jvm.compiled_java import jar_since
from lakehouse.spark.jvm.jre import java_since

_PACKAGE = "lakehouse.spark"
_lock = threading.Lock()
_added: set[str] = set()


def java_object(spark: SparkSession, name: str) -> Any:
    """The object of the class `lakehouse.spark.<name>` in the JVM of a session; one for all calls.

    The driver's class loader takes in the package's JAR (so that Spark finds the classes by name,
    and no class exists twice), and executors fetch it as they fetch every JAR of an application.

    Raises:
        UnsupportedFeatureError: the session is a remote one (Spark Connect), without a JVM in
            reach, or of a version of Spark that the Java is not known to fit.
    """
    if getattr(spark, "_jvm", None) is None:
        raise UnsupportedFeatureError(
            "this Spark session is a remote one (Spark Connect): it has no JVM in reach. Its "
            "catalogs are those of its server"
        )
    context = spark.sparkContext
    with _lock:
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
        loader, jar = _loaded(context._gateway)
        if context.applicationId not in _added:
            # a JVM that runs share has started with it
            if jar.name not in context._jsc.sc().listJars().toString():
                context._jsc.addJar(str(jar))
            _added.add(context.applicationId)
        return _made(context._gateway, loader, name)


@lru_cache(maxsize=4)
def _loaded(gateway: Any) -> tuple[Any, Path]:
    """The class loader that has the classes, and their JAR."""
    jar = jar_since(java_since(pyspark.__version__))
    loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
    loader.addURL(gateway.jvm.java.net.URL(jar.as_uri()))
    return loader, jar


@lru_cache(maxsize=16)
def _made(gateway: Any, loader: Any, name: str) -> Any:
    constructor = loader.loadClass(f"{_PACKAGE}.{name}").getConstructors()[0]
    return constructor.newInstance(gateway.new_array(gateway.jvm.java.lang.Object, 0))
