"""Runs of `dagster dev` that are forked: what goes wrong with one is its own, and is told."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehouse.orchestration.warm_runs import CAN_FORK, _execute
from tests.scaffold.dev_server import DevServer
from tests.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CAN_FORK, reason="nothing is forked on this system"),
]
FORKING = multiprocessing.get_context("forkserver")
ROOT = Path(__file__).resolve().parents[2]
PROJECT = """
import contextlib, os, sys, time
import dagster as dg
import numpy
from lakehouse.orchestration.asset_results import RETRY
from lakehouse.orchestration.warm_runs import code_location

SAID = "as it was"

@dg.op(retry_policy=RETRY)  # as all of this package's assets have
def work(context):
    (what,) = [context.run.tags["what"]]
    context.log.info(f"{SAID}: {what} {numpy.random.random()}")
    context.log.info(f"of {code_location()}, {sys.argv}")
    if what == "exit":
        os._exit(3)
    open(os.environ["DAGSTER_HOME"] + f"/began-{context.run_id}", "w").close()
    if what == "wait":
        time.sleep(600)
    while what == "stubborn":
        with contextlib.suppress(BaseException):
            time.sleep(600)
    if what == "fail":
        raise dg.Failure("on purpose", allow_retries=False)

@dg.job
def do():
    work()

@dg.job(executor_def=dg.multiprocess_executor)
def by_itself():
    work()

@dg.sensor(job=do)
def never():
    return dg.SkipReason("never")

defs = dg.Definitions(jobs=[do, by_itself], sensors=[never], executor=dg.in_process_executor)
"""
# of a package that does not fit another one
BROKEN = """
import sys
if "forkserver" in " ".join(sys.orig_argv):
    raise ValueError("numpy.dtype size changed")
raise ImportError("none")
"""
LAUNCH = """mutation ($params: ExecutionParams!) { launchRun(executionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
TERMINATE = """mutation ($run: String!) { terminateRun(runId: $run) {
    __typename ... on TerminateRunFailure { message } ... on PythonError { message } } }"""
SELECTOR = {
    "repositoryLocationName": "project",
    "repositoryName": "__repository__",
}


class Forked(DevServer):
    """A `dagster dev` over the project, with the settings of the checkout."""

    home: Path

    def launch(self, what: str, job: str = "do") -> str:
        """As the page's button does; the run's id."""
        tags = [{"key": "what", "value": what}, {"key": "dagster/max_retries", "value": "0"}]
        params = {
            "selector": {**SELECTOR, "jobName": job},
            "runConfigData": {},
            "executionMetadata": {"tags": tags},
        }
        answer = self.ask(LAUNCH, params=params)["launchRun"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return str(answer["run"]["runId"])

    def status(self, run: str) -> str:
        """The run's."""
        (found,) = [one["status"] for one in self.runs() if one["runId"] == run]
        return str(found)

    def becomes(self, run: str, status: str) -> None:
        """Wait for it."""
        final = {"SUCCESS", "FAILURE", "CANCELED"}
        eventually(lambda: self.status(run) in final)
        assert self.status(run) == status, self.said(run)

    def begins(self, run: str) -> int:
        """Wait until its step works; its process."""
        eventually((self.home / f"began-{run}").exists)
        return self.process_of(run)

    def said(self, run: str) -> str:
        """All that was told of it."""
        return "\n".join(event.get("message") or "" for event in self.events(run))


def ancestors(process: int) -> Iterator[tuple[int, str]]:
    """Processes that a process comes of, nearest first, with their commands."""
    while process > 1:
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        command = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ")
        yield process, command.decode()


def named(process: int, name: str) -> int:
    """The nearest ancestor with a command of that name."""
    return next(number for number, command in ancestors(process) if name in command)


def laid_out(folder: Path) -> Path:
    (folder / "home").mkdir()
    shutil.copy(ROOT / "dagster.yaml", folder / "home")
    (folder / "project.py").write_text(PROJECT)
    # of its own, to be changed
    shutil.copytree(ROOT / "lakehouse", folder / "lakehouse")
    # the lock of an editor
    (folder / "lakehouse" / ".#errors.py").symlink_to("nobody@nowhere.1:2")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return laid_out(tmp_path_factory.mktemp("warm"))


def started(folder: Path) -> Forked:
    environment = os.environ | {
        "DAGSTER_HOME": str(folder / "home"),
        "PYTHONPATH": str(folder),
        # edited within a second, and of the same size
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "dagster", "dev", "-m", "project"]
    server = Forked(command, folder, environment, "project")
    server.home = folder / "home"
    return server


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Forked]:
    with started(folder) as running:
        yield running


def test_a_run_is_forked_from_a_process_without_threads_or_connections(server: Forked) -> None:
    waiting = server.launch("wait")
    forked = named(server.begins(waiting), "forkserver")
    assert next(iter(ancestors(server.process_of(waiting))))[0] == forked
    daemon = next(iter(ancestors(forked)))[0]
    said = f"of ({daemon}, 'project'), ['dagster', 'api', 'execute_run']"
    assert said in server.said(waiting)
    threads = {
        (thread / "comm").read_text().strip()
        for thread in Path(f"/proc/{forked}/task").iterdir()
        if thread.name != str(forked)
    }
    # OpenBLAS, which has its program's name, and jemalloc restart theirs in a fork
    assert threads <= {"jemalloc_bg_thd", Path(f"/proc/{forked}/comm").read_text().strip()}
    opened = [str(file.readlink()) for file in Path(f"/proc/{forked}/fd").iterdir()]
    assert not [name for name in opened if name.endswith((".db", ".db-wal"))]
    assert server.ask(TERMINATE, run=waiting)["terminateRun"]["__typename"] == "TerminateRunSuccess"
    server.becomes(waiting, "CANCELED")


def test_a_project_is_loaded_anew_for_each_run_which_draws_numbers_of_its_own(
    server: Forked, folder: Path
) -> None:
    said = []
    for text in ("as it was", "as it is!", "as it was"):
        (folder / "project.py").write_text(PROJECT.replace("as it was", text))
        run = server.launch("work")
        server.becomes(run, "SUCCESS")
        (line,) = [line for line in server.said(run).splitlines() if ": work " in line]
        assert text in line
        said.append(line.rpartition(" ")[2])
    assert len(set(said)) == 3


def test_a_step_with_a_process_of_its_own_is_of_the_same_code_location(server: Forked) -> None:
    both = [server.launch("work", job) for job in ("do", "by_itself")]
    for run in both:
        server.becomes(run, "SUCCESS")
    of = {re.search(r"of \(\d+, 'project'\)", server.said(run))[0] for run in both}
    assert len(of) == 1


def test_a_run_that_is_terminated_and_has_to_be_killed_is_canceled(server: Forked) -> None:
    run = server.launch("stubborn")
    process = server.begins(run)
    server.ask(TERMINATE, run=run)
    os.kill(process, signal.SIGKILL)
    server.becomes(run, "CANCELED")


def test_a_process_whose_launcher_is_gone_does_nothing() -> None:
    for is_there in (True, False):
        waiting, go = FORKING.Pipe(duplex=False)
        process = FORKING.Process(target=_execute, args=(waiting, "no arguments", "project"))
        process.start()
        with waiting, go:
            if is_there:
                go.send(True)
        process.join()
        assert (process.exitcode == 0) is not is_there


@pytest.mark.parametrize("what", ["exit", "killed", "fail"])
def test_a_run_that_dies_fails_alone(server: Forked, what: str) -> None:
    beside = server.launch("wait")
    server.begins(beside)
    run = server.launch("wait" if what == "killed" else what)
    if what == "killed":
        os.kill(server.begins(run), signal.SIGKILL)
    server.becomes(run, "FAILURE")
    why = {"exit": "exited with code 3", "killed": "terminated by signal 9", "fail": "on purpose"}
    assert why[what] in server.said(run) or what == "fail"
    assert server.status(beside) == "STARTED"
    server.ask(TERMINATE, run=beside)
    server.becomes(beside, "CANCELED")


def test_runs_outlive_the_process_that_they_were_forked_from(server: Forked) -> None:
    run = server.launch("wait")
    process = server.begins(run)
    os.kill(named(process, "forkserver"), signal.SIGKILL)
    after = server.launch("work")
    server.becomes(after, "SUCCESS")
    assert server.status(run) == "STARTED"
    os.kill(process, signal.SIGKILL)
    server.becomes(run, "FAILURE")


def test_runs_are_started_by_the_code_server_where_a_package_cannot_be_imported(
    tmp_path: Path,
) -> None:
    folder = laid_out(tmp_path)
    (folder / "pandas.py").write_text(BROKEN)
    with started(folder) as server:
        run = server.launch("work")
        server.becomes(run, "SUCCESS")
        assert "The code server starts this run: the fork server has ended" in server.said(run)


def test_a_run_that_died_while_no_daemon_was_there_fails(tmp_path: Path) -> None:
    folder = laid_out(tmp_path)
    with started(folder) as server:
        run = server.launch("wait")
        process = server.begins(run)
    os.kill(process, signal.SIGKILL)
    with started(folder) as server:
        server.becomes(run, "FAILURE")
        assert "is gone" in server.said(run)


def test_runs_are_started_by_the_code_server_once_a_package_has_changed(
    server: Forked, folder: Path
) -> None:
    (folder / "lakehouse" / "errors.py").touch()
    run = server.launch("work")
    server.becomes(run, "SUCCESS")
    assert "The code server starts this run: installed packages have changed" in server.said(run)
    waiting = server.launch("wait")
    assert not any("forkserver" in name for _, name in ancestors(server.begins(waiting)))
    server.ask(TERMINATE, run=waiting)
    server.becomes(waiting, "CANCELED")
