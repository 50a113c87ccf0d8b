"""Turns on one machine: one at a time, threads of a process behind one that looks."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from lakehouse.catalog import machine_turns
from lakehouse.catalog.machine_turns import machine_turn
from tests.waiting import PATIENCE_SECONDS, reaped

HOLDS = """
import sys
from lakehouse.catalog.machine_turns import machine_turn
with machine_turn(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.readline()
"""


def turn_files():
    """How often this process has a file of turns open."""
    found = 0
    for one in Path("/proc/self/fd").iterdir():
        try:
            found += "lakehouse-turns" in str(one.readlink())
        except FileNotFoundError:
            continue
    return found


def test_threads_of_a_process_wait_behind_one_that_looks_at_the_file():
    key, before = f"t-{uuid.uuid4()}", turn_files()
    held, inside, most_inside = threading.Barrier(9), [], []

    def take(number):
        held.wait()
        with machine_turn(key, wait_seconds_max=200):
            inside.append(number)
            most_inside.append(len(inside))
            inside.remove(number)

    with ThreadPoolExecutor(8) as pool:
        with machine_turn(key):
            futures = [pool.submit(take, number) for number in range(8)]
            held.wait()
            opened = []
            for _ in range(100):
                opened.append(turn_files() - before)
                time.sleep(0.002)
        for future in futures:
            future.result()
    assert max(opened) == 1
    assert most_inside == [1] * 8


def test_a_turn_is_of_the_machine_and_waited_for_no_longer_than_said():
    key = f"t-{uuid.uuid4()}"
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDS, key], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with reaped(other):
        assert other.stdout.readline() == "held\n"
        got = threading.Event()

        def take():
            with machine_turn(key, wait_seconds_max=60):
                got.set()

        waiting = threading.Thread(target=take)
        waiting.start()
        # another process has it, and a thread of this one waits for it: neither is waited for
        with machine_turn(key, wait_seconds_max=0.01):
            assert not got.is_set()
        other.communicate("go on\n")
        waiting.join()
        assert got.is_set()


TAKES = """
import os, sys
from lakehouse.catalog.machine_turns import machine_turn
for _ in range(30):
    with machine_turn(sys.argv[1], wait_seconds_max=60):
        os.close(os.open(sys.argv[2], os.O_CREAT | os.O_EXCL))  # fails where somebody is inside
        os.unlink(sys.argv[2])
"""


@pytest.mark.slow
def test_turns_leave_no_files_and_are_one_at_a_time(tmp_path):
    """Also of a name whose file was there before, and whose holder was killed."""
    folder = tmp_path / f"lakehouse-turns-{os.getuid()}"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    killed = subprocess.Popen(
        [sys.executable, "-c", HOLDS, "key"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    with reaped(killed):
        assert killed.stdout.readline() == "held\n"
        assert len([*folder.iterdir()]) == 1
    with ExitStack() as processes:
        takers = []
        for key in ("key", "key", "key", "other"):
            command = [sys.executable, "-c", TAKES, key, str(tmp_path / f"inside-{key}")]
            taker = subprocess.Popen(command, env=environment)
            takers.append(processes.enter_context(reaped(taker)))
        assert [taker.wait(PATIENCE_SECONDS) for taker in takers] == [0] * 4
    assert [*folder.iterdir()] == []


def test_who_goes_on_without_a_turn_takes_it_from_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = machine_turns._path("key")
    handle = machine_turns._take(path, 0.0)
    with machine_turn("key", wait_seconds_max=0.01):
        assert path.exists()
    assert path.exists()
    os.close(handle)
    with machine_turn("key", wait_seconds_max=60):
        pass
    assert not path.exists()
