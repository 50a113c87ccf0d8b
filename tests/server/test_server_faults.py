"""Clients behind a proxy that loses, repeats, delays and cuts, while the server is killed.

More of it: `make faults`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import requests

import lakehouse as lh
from deploy.ports import free_port
from tests.server.conftest import SCHEMA
from tests.server.cutting_proxy import CuttingProxy
from tests.servers import postgres

CLIENTS = int(os.environ.get("LAKEHOUSE_REST_CLIENTS", "2"))
APPENDS = int(os.environ.get("LAKEHOUSE_REST_APPENDS", "5"))
KILLS = int(os.environ.get("LAKEHOUSE_REST_KILLS", "1"))
KILL_SECONDS = float(os.environ.get("LAKEHOUSE_REST_KILL_SECONDS", "1"))
ROOT = Path(__file__).parents[2]


def start(catalog: str, warehouse: str, port: int, *more: str) -> subprocess.Popen[bytes]:
    """`lakehouse serve`, once it answers."""
    cli = "from lakehouse.cli import app; app()"
    command = [sys.executable, "-c", cli, "serve", "--catalog", catalog]
    server = subprocess.Popen(
        [*command, "--warehouse", warehouse, "--port", str(port), *more],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 200
    while time.monotonic() < until:
        try:
            requests.get(f"http://127.0.0.1:{port}/v1/config", timeout=5).close()
        except requests.RequestException:
            assert server.poll() is None
            time.sleep(0.05)
        else:
            return server
    raise AssertionError("the server did not start")


@pytest.fixture(params=["filesystem", "sqlite", "postgresql"])
def catalog(request, tmp_path):
    """A kind of catalog, and the address of one."""
    if request.param == "postgresql":
        with postgres() as uri:
            yield request.param, uri
    else:
        folder, database = str(tmp_path / "wh"), f"sqlite:///{tmp_path}/c.db"
        yield request.param, folder if request.param == "filesystem" else database


def test_every_change_that_was_asked_for_happened_once(tmp_path, catalog):
    warehouse, port = str(tmp_path / "wh"), free_port()
    kind, uri = catalog
    lake = lh.load_catalog(uri, warehouse=warehouse)
    server = start(uri, warehouse, port)
    direct = f"http://127.0.0.1:{port}/v1/namespaces"
    requests.post(direct, json={"namespace": ["ns"]}, timeout=30)
    many = {"write.metadata.previous-versions-max": "100000"}
    for name in ("t", "u"):
        body = {"name": name, "schema": SCHEMA, "properties": many}
        assert requests.post(f"{direct}/ns/tables", json=body, timeout=30).status_code == 200
    with CuttingProxy(port, seed=7) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        clients = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.server.appending_client"),
                    *(proxy.url, str(n), str(APPENDS)),
                ],
                cwd=ROOT,
                stdout=subprocess.PIPE,
            )
            for n in range(CLIENTS)
        ]
        kills = 0
        while kills == 0 or (kills < KILLS and any(one.poll() is None for one in clients)):
            time.sleep(KILL_SECONDS)
            server.send_signal(signal.SIGKILL)
            server.wait()
            server, kills = start(uri, warehouse, port), kills + 1
        told = [json.loads(one.communicate(timeout=1200)[0]) for one in clients]
        for late in proxy.late:
            late.join()
        proxy.shutdown()
    server.terminate()
    assert server.wait(30) == 0
    refused = sum(one["refused"] for one in told)
    sys.stdout.write(f"{kind}: {kills} kills, {refused} conflicts, {dict(proxy.faults)}\n")
    assert [one["appended"] for one in told] == [APPENDS] * CLIENTS
    assert sum(proxy.faults.values()) > CLIENTS * APPENDS / 2

    appended = lake.load_table("ns.t").metadata
    numbers = [one.summary["number"] for one in appended.ancestors(appended.current_snapshot_id)]
    expected = {str(c * 1000 + n + 1) for c in range(CLIENTS) for n in range(APPENDS)}
    assert len(numbers) == len(appended.snapshots)  # nothing beside the line of parents
    assert (len(numbers), set(numbers)) == (len(expected), expected)
    # one version for each key: a change that was repeated would have left another
    assert len(lake.load_table("ns.u").metadata.metadata_log) == CLIENTS * APPENDS
