"""Processes of `make cluster`: started in order, started again, and none is left."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.compose_services import Service
from tests.cluster.supervisor import Supervisor
from tests.waiting import eventually

# a process with a child, which both write down who they are
FAMILY = """
import os, subprocess, sys, time
me = open(f"{sys.argv[1]}/pids", "a")
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
me.write(f"{os.getpid()} {child.pid}\\n"); me.close()
time.sleep(600)
"""


def service(name, *command, one_shot=False):
    health = () if one_shot else (sys.executable, "-c", "")
    return Service(name, (sys.executable, *command), {}, {}, health, one_shot)


def supervisor(folder, said):
    return Supervisor(os.environ, folder, said.append, commands={}, users={}, ready={})


def pids(folder):
    path = folder / "pids"
    lines = path.read_text().splitlines() if path.exists() else []
    return [list(map(int, line.split())) for line in lines]


def runs(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_killed_service_stays_away_and_comes_back_and_no_process_is_left(tmp_path):
    said = []
    family = service("family", "-c", FAMILY, str(tmp_path))
    with supervisor(tmp_path, said) as running:
        running.start(family)
        eventually(lambda: len(pids(tmp_path)) == 1)
        first = pids(tmp_path)[0]
        killed = time.monotonic()
        running.kill("family", down_seconds=2)
        eventually(lambda: not any(map(runs, first)))
        eventually(lambda: len(pids(tmp_path)) == 2)
        assert time.monotonic() - killed >= 2
        second = pids(tmp_path)[1]
        assert all(map(runs, second))
    eventually(lambda: not any(map(runs, second)))
    assert "family ended with -9: started again" in said


def test_a_health_check_that_hangs_is_one_that_failed(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.cluster.supervisor._CHECK_SECONDS", 1)
    hangs_once = "import os, sys, time; os.mkdir(sys.argv[1]) if not os.path.isdir(sys.argv[1])"
    hangs_once += " else sys.exit(0); time.sleep(600)"
    health = (sys.executable, "-c", hangs_once, str(tmp_path / "asked"))
    said = []
    with supervisor(tmp_path, said) as running:
        slow = service("slow", "-c", "import time; time.sleep(600)")
        running.start(replace(slow, health=health))
    assert (tmp_path / "asked").is_dir()
    assert said[0].startswith("slow is ready")


def test_a_job_that_fails_is_an_error_and_one_that_is_done_is_not_repeated(tmp_path):
    said = []
    with supervisor(tmp_path, said) as running:
        note = "open(__import__('sys').argv[1], 'a').write('x')"
        running.start(service("job", "-c", note, str(tmp_path / "done"), one_shot=True))
        with pytest.raises(RuntimeError, match=r"broken failed: see .*broken\.log"):
            running.start(service("broken", "-c", "raise SystemExit(3)", one_shot=True))
        time.sleep(1.5)
    assert (tmp_path / "done").read_text() == "x"
    assert said[0].startswith("job is done")


def interrupted(folder):
    with supervisor(folder, []) as running:
        running.start(service("family", "-c", FAMILY, str(folder)))
        eventually(lambda: len(pids(folder)) == 1)
        raise KeyboardInterrupt


def test_an_interruption_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path)
    eventually(lambda: not any(map(runs, pids(tmp_path)[0])))
