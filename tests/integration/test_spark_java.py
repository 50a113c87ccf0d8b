"""The JARs of the wheel fit every Spark: each compiles the sources to the same bytes."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pyspark
import pytest

from lakehouse.spark.jvm import compiled_java
from lakehouse.spark.jvm.compiled_java import LEFT_OUT, compiled, jar_since
from lakehouse.spark.jvm.jre import java_since


@pytest.mark.spark
def test_this_spark_compiles_the_java_to_the_bytes_that_are_packaged():
    since = java_since(pyspark.__version__)
    with zipfile.ZipFile(jar_since(since)) as jar:
        packaged = {name: jar.read(name) for name in jar.namelist()}
    assert packaged == compiled(Path(pyspark.__file__).parent / "jars", LEFT_OUT[since])


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Other sources and JARs than those of the package; the folder of the sources."""
    sources = tmp_path / "java"
    shutil.copytree(compiled_java._SOURCES, sources)
    monkeypatch.setattr(compiled_java, "_SOURCES", sources)
    monkeypatch.setattr(compiled_java, "_JARS", tmp_path / "jars")
    return sources


def test_the_jars_know_every_text_and_folder_that_they_are_made_of(checkout):
    before = compiled_java._digest()
    file = checkout / "catalog" / "PipelineCaller.java"
    text = file.read_text()
    file.write_text(f"{text}// changed")
    changed = compiled_java._digest()
    file.write_text(text)
    assert compiled_java._digest() == before
    file.rename(checkout / "without_views" / file.name)
    assert len({before, changed, compiled_java._digest()}) == 3


@pytest.mark.spark
def test_java_that_does_not_compile_is_said_by_file_and_line(checkout):
    file = checkout / "catalog" / "PipelineCaller.java"
    file.write_text(f"{file.read_text()}\nnonsense")
    with pytest.raises(SystemExit, match=r"PipelineCaller\.java.*Line \d+"):
        compiled(Path(pyspark.__file__).parent / "jars", LEFT_OUT["4.2"])
