"""The archive of Spark's classes, judged by the JVM: it starts only if it can use it."""

from __future__ import annotations

import os
import subprocess
import sys

import pyspark
import pytest

from lakehouse.spark.jvm.class_archive import archive_of, make_archive
from lakehouse.spark.jvm.jre import java_runtime, newest_java

SESSION = """
import sys
from lakehouse.spark import build_session
options = {"spark.driver.defaultJavaOptions": sys.argv[1]} if sys.argv[1] else {}
spark = build_session("x", master="local[1]", config=options)
print(spark.range(10).selectExpr("sum(id)").first()[0])
"""


def session(options, **environ):
    return subprocess.run(
        [sys.executable, "-c", SESSION, options],
        capture_output=True,
        text=True,
        env=os.environ | environ,
        check=False,
    )


@pytest.mark.slow
def test_a_session_starts_with_the_archive(tmp_path):
    path, _ = make_archive()
    is_aot = archive_of(java_runtime(newest=newest_java(pyspark.__version__))).is_aot
    required = "-XX:AOTMode=on" if is_aot else "-Xshare:on"
    done = session(required)
    assert done.stdout.strip() == "45", done.stderr
    assert "[warning]" not in done.stderr

    changed = bytearray(path.read_bytes())
    changed[:8] = bytes(8)
    other = tmp_path / "cache" / "lakehouse" / path.name
    other.parent.mkdir(parents=True)
    other.write_bytes(changed)
    elsewhere = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert session(required, **elsewhere).stdout.strip() != "45"
    without = session("", **elsewhere)
    assert without.stdout.strip() == "45", without.stderr
    assert "[warning]" not in without.stderr
