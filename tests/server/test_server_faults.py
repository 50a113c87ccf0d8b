"""Clients behind a proxy that loses, repeats, delays and cuts, while the server is killed.

More of it: `make faults`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import pytest
import requests

import lakehouse as lh
from tests.server.conftest import SCHEMA
from tests.server.cutting_proxy import CuttingProxy
from tests.servers import ROOT, ServeProcess, postgres
from tests.waiting import reaped

CLIENTS = int(os.environ.get("LAKEHOUSE_REST_CLIENTS", "2"))
APPENDS = int(os.environ.get("LAKEHOUSE_REST_APPENDS", "5"))
KILLS = int(os.environ.get("LAKEHOUSE_REST_KILLS", "1"))
KILL_SECONDS = float(os.environ.get("LAKEHOUSE_REST_KILL_SECONDS", "1"))


@pytest.fixture(params=["filesystem", "sqlite", "postgresql"])
def catalog(request, tmp_path):
    """A kind of catalog, and the address of one."""
    if request.param == "postgresql":
        with postgres() as uri:
            yield request.param, uri
    else:
        folder, database = str(tmp_path / "wh"), f"sqlite:///{tmp_path}/c.db"
        yield request.param, folder if request.param == "filesystem" else database


def appending_client(url: str, number: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.server.appending_client"]
    return subprocess.Popen(
        [*command, url, str(number), str(APPENDS)], cwd=ROOT, stdout=subprocess.PIPE
    )


@pytest.mark.slow
def test_every_change_that_was_asked_for_happened_once(tmp_path, catalog):
    warehouse = str(tmp_path / "wh")
    kind, uri = catalog
    lake = lh.load_catalog(uri, warehouse=warehouse)
    with ExitStack() as processes:
        server = processes.enter_context(ServeProcess(uri, warehouse))
        direct = f"{server.url}/v1/namespaces"
        requests.post(direct, json={"namespace": ["ns"]}, timeout=30)
        many = {"write.metadata.previous-versions-max": "100000"}
        for name in ("t", "u"):
            body = {"name": name, "schema": SCHEMA, "properties": many}
            assert requests.post(f"{direct}/ns/tables", json=body, timeout=30).status_code == 200
        with CuttingProxy(server.port, seed=7) as proxy:
            threading.Thread(target=proxy.serve_forever, daemon=True).start()
            clients = [
                processes.enter_context(reaped(appending_client(proxy.url, number)))
                for number in range(CLIENTS)
            ]
            kills = 0
            while kills == 0 or (
                kills < KILLS and any(client.poll() is None for client in clients)
            ):
                time.sleep(KILL_SECONDS)
                server.kill()
                server.start()
                kills += 1
            told = [json.loads(client.communicate(timeout=1200)[0]) for client in clients]
            for late in proxy.late:
                late.join()
            proxy.shutdown()
        assert server.stop() == 0
    refused = sum(one["refused"] for one in told)
    sys.stdout.write(f"{kind}: {kills} kills, {refused} conflicts, {dict(proxy.faults)}\n")
    assert [one["appended"] for one in told] == [APPENDS] * CLIENTS
    assert sum(proxy.faults.values()) > CLIENTS * APPENDS / 2

    appended = lake.load_table("ns.t").metadata
    numbers = [
        ancestor.summary["number"] for ancestor in appended.ancestors(appended.current_snapshot_id)
    ]
    expected = {str(c * 1000 + n + 1) for c in range(CLIENTS) for n in range(APPENDS)}
    assert len(numbers) == len(appended.snapshots)  # nothing beside the line of parents
    assert (len(numbers), set(numbers)) == (len(expected), expected)
    # one version for each key: a change that was repeated would have left another
    assert len(lake.load_table("ns.u").metadata.metadata_log) == CLIENTS * APPENDS
