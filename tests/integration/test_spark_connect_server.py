"""`lakehouse spark-connect`: a server process, and client processes that have PySpark alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import lakehouse as lh
from lakehouse.errors import InvalidInputError
from lakehouse.spark.connect.connect_server import start_connect_server
from tests.cluster.ports import free_port
from tests.waiting import PATIENCE_SECONDS, reaped

CLIENT = Path(__file__).with_name("remote_client.py")
LAKEHOUSE = [sys.executable, "-c", "from lakehouse.cli import app; app()"]


def run_client(url, folder):
    done = subprocess.run(
        [sys.executable, str(CLIENT), url],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.spark
@pytest.mark.slow
def test_a_client_has_the_catalog_in_full(tmp_path):
    pytest.importorskip("grpc", reason="Spark Connect needs grpc: pip install 'pylakehouse[spark]'")
    port = free_port()
    lake = lh.load_catalog(f"file://{tmp_path}/warehouse")
    command = [*LAKEHOUSE, "spark-connect", "--catalog", f"file://{tmp_path}/warehouse"]
    options = ["--port", str(port), "--master", "local[1]", "--json"]
    small = ["--spark-config", "spark.driver.memory=1g"]
    with reaped(
        subprocess.Popen(
            [*command, *options, *small], stdout=subprocess.PIPE, text=True, cwd=tmp_path
        )
    ) as server:
        told = ""
        while not told.endswith("}\n"):
            line = server.stdout.readline()
            assert line, "the server ended"
            told += line
        told = json.loads(told[told.index("{") :])
        assert told == {"url": f"sc://127.0.0.1:{port}", "catalog": "lake"}
        found = run_client(told["url"], tmp_path)
        server.terminate()
        assert server.wait(PATIENCE_SECONDS) == 0
    assert found["before"] == [[2, "z", None], [3, "c", None]]
    assert found["after"] == [*found["before"], [10, "w", 7], [11, "w", 7]]
    assert found["first"] == [[1, "a"], [2, "b"]]
    if pyspark.__version__ >= "4.2":
        assert found["views"] == [[[4], [6]], [[4], [6]], [["raw", "v", False]], []]
    assert found["operations"] == ["append", "overwrite", "overwrite", "append"]
    assert found["called"] == 4
    assert "nope" in found["error"]
    assert "UNRESOLVED_COLUMN" in found["error"]
    assert found["modules"] == []
    assert sorted(map(tuple, found["after"])) == sorted(
        tuple(row.values()) for row in lake.load_table("raw.t").scan().to_arrow().to_pylist()
    )


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"host": "0.0.0.0"}, "SPARK_CONNECT_AUTHENTICATE_TOKEN"),  # noqa: S104
        ({"host": "example.org"}, "SPARK_CONNECT_AUTHENTICATE_TOKEN"),
        ({"port": 0}, "1 to 65535"),
        ({"port": 70_000}, "1 to 65535"),
    ],
)
def test_servers_that_do_not_start(tmp_path, monkeypatch, options, match):
    monkeypatch.delenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", raising=False)
    with pytest.raises(InvalidInputError, match=match):
        start_connect_server(lh.load_catalog(f"file://{tmp_path}"), **options)
