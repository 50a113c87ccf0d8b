"""Which archive belongs to which Java and JARs, and what a JVM is told of it."""

from __future__ import annotations

import os

import pytest

from lakehouse.errors import LakehouseError
from lakehouse.spark.jvm.class_archive import archive_of, archive_options, make_archive
from lakehouse.spark.jvm.jre import JavaRuntime


def runtime(home, version="17.0.15"):
    return JavaRuntime(home, version, has_vector_module=True)


@pytest.fixture
def jars(tmp_path):
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "spark-core.jar").write_bytes(b"1")
    return folder


def test_another_java_or_another_jar_is_another_archive(tmp_path, jars):
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    def path(java):
        return archive_of(java, environ, jars).path_of(1)

    java = runtime(tmp_path / "a")
    seen = [path(java), path(runtime(tmp_path / "b")), path(runtime(tmp_path / "a", "17.0.16"))]
    (jars / "spark-sql.jar").write_bytes(b"2")
    seen.append(path(java))
    (jars / "spark-sql.jar").write_bytes(b"23")
    seen.append(path(java))
    os.utime(jars / "spark-sql.jar", (1, 1))
    seen.append(path(java))
    assert len(set(seen)) == 6
    assert {one.parent for one in seen} == {tmp_path / "cache" / "lakehouse"}
    (jars / "README").write_bytes(b"no jar")
    assert path(java) == seen[-1]


@pytest.mark.parametrize(
    ("version", "using", "dumping"),
    [
        ("17.0.15", "-XX:SharedArchiveFile=", "-XX:ArchiveClassesAtExit="),
        ("24.0.1", "-XX:SharedArchiveFile=", "-XX:ArchiveClassesAtExit="),
        ("25", "-XX:AOTCache=", "-XX:AOTCacheOutput="),
    ],
)
def test_a_jvm_is_told_of_an_archive_that_is_there(tmp_path, version, using, dumping):
    environ = {"XDG_CACHE_HOME": str(tmp_path / "a cache")}
    java = runtime(tmp_path, version)
    archive = archive_of(java, environ)
    assert archive_options(java, environ) == ""
    assert archive.dumping(tmp_path / "new")[0] == f"{dumping}{tmp_path / 'new'}"
    archive.folder.mkdir(parents=True)
    path = archive.path_of(7)
    path.write_bytes(b"classes")
    assert f'"{using}{path}" ' in archive_options(java, environ)
    # a tag that a Java does not know keeps it from starting
    assert ("aot" in archive_options(java, environ)) == (version == "25")
    assert archive_options(java, environ | {"LAKEHOUSE_SPARK_ARCHIVE": "off"}) == ""
    path.write_bytes(b"class")
    assert archive_options(java, environ) == ""  # cut off: Java would crash


def test_a_java_that_makes_none_is_an_error_that_repeats_it(tmp_path, monkeypatch):
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\ncase "$*" in *-version*) echo \'openjdk version "17.0.1"\' >&2;; '
        "*) echo not today; exit 3;; esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(LakehouseError, match=r"no archive of Spark's classes(?s:.*)exit"):
        make_archive()
    assert list((tmp_path / "cache" / "lakehouse").iterdir()) == []
