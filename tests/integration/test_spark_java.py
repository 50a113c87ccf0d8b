"""The JARs of the wheel fit every Spark: each compiles the sources to the same bytes."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pyspark
import pytest

from lakehouse.spark.jvm.compiled_java import LEFT_OUT, compiled, jar_since
from lakehouse.spark.jvm.spark_versions import java_since


@pytest.mark.spark
def test_this_spark_compiles_the_java_to_the_bytes_that_are_packaged():
    since = java_since(pyspark.__version__)
    with zipfile.ZipFile(jar_since(since)) as jar:
        packaged = {name: jar.read(name) for name in jar.namelist()}
    assert packaged == compiled(Path(pyspark.__file__).parent / "jars", LEFT_OUT[since])
