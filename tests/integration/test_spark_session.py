"""A session starts where no Java is on PATH and nothing is set."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lakehouse.errors import InvalidInputError
from lakehouse.spark.hadoop_locations import hadoop_reads
from lakehouse.spark.spark_session import driver_memory_bytes, spark_config
from lakehouse.storage.object_store import ObjectStorage

pytestmark = pytest.mark.spark

SCRIPT = """
import os
from lakehouse.spark import build_session
spark = build_session("stranger", master="local[1]")
rows = spark.range(10).mapInArrow(lambda batches: batches, "id long").count()
zone = spark.conf.get("spark.sql.session.timeZone")
print("rows", rows, zone, os.environ["JAVA_HOME"], os.environ["SPARK_LOCAL_IP"])
spark.stop()
"""
# what Spark's own start script needs
TOOLS = (
    "bash",
    "sh",
    "env",
    "dirname",
    "uname",
    "ps",
    "rm",
    "ls",
    "cat",
    "sed",
    "grep",
    "readlink",
    "head",
    "nice",
    "chmod",
    "id",
)


@pytest.mark.slow
def test_no_java_on_path_and_an_empty_home(tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in TOOLS:
        found = next(
            (
                one
                for one in ("/usr/bin", "/bin")
                if os.path.exists(f"{one}/{name}")  # noqa: PTH110
            ),
            None,
        )
        if found:
            (tools / name).symlink_to(f"{found}/{name}")
    work = tmp_path / "work"
    work.mkdir()
    environ = {
        "PATH": str(tools),
        "HOME": str(tmp_path / "home"),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environ,
        cwd=work,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("rows 10 UTC ")
    assert f"{tmp_path}/home/.cache/lakehouse/java-" in done.stdout
    assert done.stdout.rstrip().endswith("127.0.0.1")
    assert list(work.iterdir()) == []


def test_configuration():
    settings = spark_config(
        config={"spark.sql.session.timeZone": "Asia/Tokyo", "spark.app.name": "x"}
    )
    assert settings["spark.master"] == "local[*]"
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.sql.session.timeZone"] == "Asia/Tokyo"
    assert all(isinstance(value, str) for value in settings.values())
    assert "spark.driver.bindAddress" not in spark_config(master="spark://host:7077")


@pytest.mark.parametrize(("gib", "expected"), [(1, 1), (8, 2), (23, 5.75), (64, 8)])
def test_driver_memory(gib, expected):
    assert driver_memory_bytes(gib << 30) == expected * (1 << 30)


def test_any_setting_of_spark_comes_by_a_variable(monkeypatch):
    told = '{"spark.executor.memory": "3g", "spark.ui.enabled": "true"}'
    monkeypatch.setenv("LAKEHOUSE_SPARK_CONFIG", told)
    given = spark_config(master="spark://far:7077", config={"spark.ui.enabled": "false"})
    assert given["spark.executor.memory"] == "3g"
    assert given["spark.ui.enabled"] == "false"


@pytest.mark.parametrize("text", ["canary", "[]", '{"spark.executor.cores": 2}', '{"a": null}'])
def test_settings_that_cannot_be_read_are_refused_and_not_shown(monkeypatch, text):
    monkeypatch.setenv("LAKEHOUSE_SPARK_CONFIG", text)
    with pytest.raises(InvalidInputError, match="LAKEHOUSE_SPARK_CONFIG") as caught:
        spark_config()
    assert "canary" not in str(caught.value)


def test_the_storage_of_a_lakehouse_reaches_hadoop(spark):
    properties = {"s3.endpoint": "http://127.0.0.1:1", "s3.region": "eu-1"}
    spark.conf.set("spark.hadoop.fs.s3a.bucket.hadoopbucket.endpoint.region", "mine")
    hadoop_reads(spark, "s3://hadoopbucket/raw/events", ObjectStorage(properties))
    hadoop = spark._jsc.hadoopConfiguration()
    assert hadoop.get("fs.s3a.bucket.hadoopbucket.endpoint") == "http://127.0.0.1:1"
    assert hadoop.get("fs.s3a.bucket.hadoopbucket.path.style.access") == "true"
    assert hadoop.get("fs.s3a.bucket.hadoopbucket.endpoint.region") is None
