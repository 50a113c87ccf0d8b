"""The Java of this package in Spark's JVM: compiled by the Janino that Spark ships, as one JAR."""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import threading
import zipfile
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from lakehouse.errors import UnsupportedFeatureError
from lakehouse.spark.jvm.jre import cache_directory
from lakehouse.spark.jvm.spark_versions import note_on

logger = logging.getLogger(__name__)

_PACKAGE = "lakehouse.spark"
_ASKED_BY = {"views": "RelationCatalog", "evolution": "SupportsSchemaEvolution"}
"""Folders of Java, and the interfaces of Spark's catalogs for which they are compiled; where Spark
does not have one, it is the folder `without_...`."""
_lock = threading.Lock()
_added: set[str] = set()


def java_object(spark: SparkSession, name: str) -> Any:
    """The object of the class `lakehouse.spark.<name>` in the JVM of a session; one for all calls.

    The first call of a process makes one JAR of `lakehouse/spark/java`. The driver's class
    loader takes it in (so that Spark finds the classes by name, and no class exists twice), and
    executors fetch it as they fetch every JAR of an application.

    Raises:
        UnsupportedFeatureError: the session is a remote one (Spark Connect), without a JVM in
            reach.
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
            context._jsc.addJar(str(jar))
            _added.add(context.applicationId)
        return _made(context._gateway, loader, name)


@lru_cache(maxsize=4)
def _loaded(gateway: Any) -> tuple[Any, Path]:
    """The class loader that has the classes, and their JAR."""
    jvm = gateway.jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    jar = _jar(gateway, loader)
    loader.addURL(jvm.java.net.URL(jar.as_uri()))
    return loader, jar


@lru_cache(maxsize=16)
def _made(gateway: Any, loader: Any, name: str) -> Any:
    constructor = loader.loadClass(f"{_PACKAGE}.{name}").getConstructors()[0]
    return constructor.newInstance(gateway.new_array(gateway.jvm.java.lang.Object, 0))


def _jar(gateway: Any, loader: Any) -> Path:
    """The JAR of this package's Java sources for this Spark, compiled now or earlier.

    Compiling takes a few seconds, so the JAR stays in the user's cache, under a name that says what
    it was made of. A JAR that another user could have written is not used.
    """
    sources = {one.name: one.read_text(encoding="utf-8") for one in _sources(loader)}
    told = [pyspark.__version__, *(text for pair in sorted(sources.items()) for text in pair)]
    digest = hashlib.sha256("\0".join(told).encode()).hexdigest()[:16]
    cache = cache_directory(os.environ)
    final = cache / f"lakehouse-spark-{digest}.jar"
    if _is_own(final):
        return final
    classes = _compiled(gateway, loader, sources)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        return _written(classes, cache, final)
    except OSError as error:
        private = Path(_private_folder())
        logger.info("%s cannot be written (%s): the JAR goes to %s", cache, error, private)
        return _written(classes, private, private / final.name)


def _sources(loader: Any) -> list[Traversable]:
    """All of one Java package; the folders are for people, but for those that this Spark lacks."""
    left_out = {
        f"without_{folder}" if _has(loader, interface) else folder
        for folder, interface in _ASKED_BY.items()
    }
    roles = files("lakehouse.spark").joinpath("java").iterdir()
    kept = [one for one in roles if one.name not in left_out]
    return [one for role in kept for one in role.iterdir() if one.name.endswith(".java")]


def _has(loader: Any, interface: str) -> bool:
    """Whether this Spark asks catalogs by the interface."""
    name = f"org/apache/spark/sql/connector/catalog/{interface}.class"
    return loader.getResource(name) is not None


def _is_own(jar: Path) -> bool:
    """Whether it is there, and nobody but this user can have written it."""
    try:
        found, folder = jar.stat(), jar.parent.stat()
    except OSError:
        return False
    return all(
        one.st_uid == os.getuid() and not one.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        for one in (found, folder)
    )


def _compiled(gateway: Any, loader: Any, sources: dict[str, str]) -> dict[str, bytes]:
    """Bytes of all classes, by the names of their files in a JAR."""
    jvm = gateway.jvm
    resources = jvm.org.codehaus.commons.compiler.util.resource
    given = gateway.new_array(resources.Resource, len(sources))
    for position, (name, text) in enumerate(sources.items()):
        given[position] = resources.StringResource(f"lakehouse/spark/{name}", text)
    classes = jvm.java.util.HashMap()
    compiler = jvm.org.codehaus.janino.Compiler()
    compiler.setIClassLoader(jvm.org.codehaus.janino.ClassLoaderIClassLoader(loader))
    compiler.setClassFileCreator(resources.MapResourceCreator(classes))
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    compiler.setDebugLines(True)
    compiler.setDebugSource(True)
    try:
        compiler.compile(given)
    except Py4JJavaError as error:
        raise UnsupportedFeatureError(
            f"The catalog does not compile for Spark {pyspark.__version__}: {error.java_exception}."
            f"{note_on(pyspark.__version__)}"
        ) from error
    return {str(one): bytes(classes.get(one)) for one in classes.keySet()}


def _written(classes: dict[str, bytes], folder: Path, final: Path) -> Path:
    """Write beside the final name, then rename: racing processes see all or nothing."""
    handle, staging = tempfile.mkstemp(prefix=".jar-", dir=folder)
    with os.fdopen(handle, "wb") as stream, zipfile.ZipFile(stream, "w") as jar:
        for one in sorted(classes):
            jar.writestr(one, classes[one])
    Path(staging).replace(final)
    return final


@lru_cache(maxsize=1)
def _private_folder() -> str:
    folder = tempfile.mkdtemp(prefix="lakehouse-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
