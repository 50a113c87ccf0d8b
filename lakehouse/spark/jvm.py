"""Java of this package, compiled by the Janino that Spark ships, in the driver and on executors."""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
import threading
import zipfile
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

_lock = threading.Lock()
_shipped: set[str] = set()


def driver_object(spark: SparkSession, name: str) -> Any:
    """The one object in the driver's JVM of the class `lakehouse.spark.<name>`, made of the source file of that name."""
    with _lock:
        return _compiled(spark.sparkContext._gateway, name)[0]


def shipped_object(spark: SparkSession, name: str, *uses: str) -> Any:
    """As `driver_object`, with its classes, and those of the files that it `uses`, on the executors of this session as well.

    Spark ships classes as JARs alone: one of a few kilobytes is made of what Janino compiled, in a temporary folder of this
    process, and added to the Spark application once.
    """
    with _lock:
        made, classes = _compiled(spark.sparkContext._gateway, name, uses)
        key = f"{spark.sparkContext.applicationId} {name}"
        if key not in _shipped:
            spark.sparkContext._jsc.addJar(str(_jar(name, classes)))
            _shipped.add(key)
        return made


@lru_cache(maxsize=8)
def _compiled(gateway: Any, name: str, uses: tuple[str, ...] = ()) -> tuple[Any, dict[str, bytes]]:
    jvm = gateway.jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    classes: dict[str, bytes] = {}
    for source in (*uses, name):
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(
            files("lakehouse.spark").joinpath(f"{source}.java").read_text(encoding="utf-8")
        )
        classes |= {one: bytes(code) for one, code in compiler.getBytecodes().items()}
        loader = compiler.getClassLoader()
    constructor = loader.loadClass(f"lakehouse.spark.{name}").getConstructors()[0]
    return constructor.newInstance(gateway.new_array(jvm.java.lang.Object, 0)), classes


def _jar(name: str, classes: dict[str, bytes]) -> Path:
    digest = hashlib.sha256(b"".join(classes[one] for one in sorted(classes))).hexdigest()[:16]
    path = Path(_folder()) / f"lakehouse-{name}-{digest}.jar"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as jar:
        for one in sorted(classes):
            jar.writestr(one.replace(".", "/") + ".class", classes[one])
    return path


@lru_cache(maxsize=1)
def _folder() -> str:
    folder = tempfile.mkdtemp(prefix="lakehouse-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
