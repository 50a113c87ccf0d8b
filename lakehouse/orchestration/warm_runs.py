"""Runs that start in a tenth of the time: forked from a process that has imported what they need.

Dagster's code server starts a run as a new Python, which imports Dagster, Spark's client and this
package before it looks at the run: two of the three seconds from the click to the first step. The
launcher here has `multiprocessing`'s fork server import these once. A run is forked from it, and
loads the project's code itself, fresh from the disk; so nothing that a project does when it is
imported (connections, threads, the time of day) is shared, and an edited file counts at once.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import signal
import sys
import sysconfig
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.launcher.base import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._core.launcher.default_run_launcher import DefaultRunLauncher
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import ConfigurableClassData, serialize_value
from dagster._utils import get_run_crash_explanation

import lakehouse

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from dagster._core.instance.ref import InstanceRef

PROCESS_TAG = ".dagster/lakehouse_process"
"""Tag of a run, of the prefix that Dagster's pages hide: its process (`process_tag`)."""
# none of them starts a thread but those that come through a fork: OpenBLAS's and jemalloc's
PRELOADED = (
    "dagster._cli.api",
    "lakehouse.orchestration.code_location",
    "lakehouse.orchestration.components.pipeline_component",
    # pyarrow imports it before it makes its first array, where it is installed
    "pandas",
)
CAN_FORK = sys.platform == "linux"
"""Whether a process that has imported much may be forked: macOS's libraries forbid it."""
_LOOK_SECONDS = 0.5
_LOCATION_VARIABLE = "DAGSTER_RUN_OF"
"""Of a run's process, and so of its steps' own: who forked it, and its code location.

A shared Spark takes variables of Dagster's prefix for those of one run.
"""
# runs whose end a thread of this process waits for: it knows more of it than the run monitor
_watched: set[str] = set()


class WarmRunLauncher(DefaultRunLauncher):
    """Dagster's default launcher, which forks the runs of code locations on this machine.

    For `dagster.yaml`; the daemon that launches the runs keeps the fork server, and both end
    together. Runs of a code location with another Python, in a container, behind a TCP port, and
    all on other systems than Linux, are started as Dagster does by default; so are runs after a
    package was installed or this one edited.

    The page terminates them, and a process that ends without a word fails its run, as by default.
    The run monitor fails a run whose process has ended while no daemon was there.
    """

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(inst_data)
        self._began_ns = 0

    def launch_run(self, context: LaunchRunContext) -> None:
        """Start a run's process. Raises what Dagster's launcher raises."""
        run, origin = context.dagster_run, context.job_code_origin
        reason = self._why_not(context)
        if reason is not None or origin is None or run.remote_job_origin is None:
            self._instance.report_engine_event(f"The code server starts this run: {reason}.", run)
            super().launch_run(context)
            return
        instance = self._instance.get_ref()
        arguments = serialize_value(ExecuteRunArgs(origin, run.run_id, instance))
        if not self._began_ns:
            self._began_ns = time.time_ns()
            multiprocessing.set_forkserver_preload(list(PRELOADED))
        location = run.remote_job_origin.location_name
        forking = multiprocessing.get_context("forkserver")
        waiting, go = forking.Pipe(duplex=False)
        process = forking.Process(
            target=_execute, args=(waiting, arguments, location), name=f"run-{run.run_id}"
        )
        try:
            process.start()
        except (OSError, EOFError) as error:
            # a package that fails to be imported ends the fork server
            reason = f"the fork server has ended ({error!r})"
            self._instance.report_engine_event(f"The code server starts this run: {reason}.", run)
            super().launch_run(context)
            return
        tag = process_tag(process.pid)
        # who writes a run's status or tags writes all of it: its process may not do so meanwhile
        with waiting, go:
            self._instance.add_run_tags(run.run_id, {PROCESS_TAG: tag})
            _watched.add(run.run_id)
            threading.Thread(
                target=_watch, args=(process, tag, run.run_id, instance), daemon=True
            ).start()
            with contextlib.suppress(BrokenPipeError):  # it was killed: that is told
                go.send(True)

    def terminate(self, run_id: str) -> bool:
        """Interrupt a run; whether its process was there."""
        run = self._instance.get_run_by_id(run_id) if self.has_instance else None
        if run is None or PROCESS_TAG not in run.tags:
            return bool(super().terminate(run_id))  # type: ignore[no-untyped-call]
        if run.is_finished:
            return False
        self._instance.report_run_canceling(run)
        host, process, _ = run.tags[PROCESS_TAG].rsplit(":", 2)
        if host != os.uname().nodename or not is_alive(run.tags[PROCESS_TAG]):
            return False
        os.kill(int(process), signal.SIGINT)
        return True

    @property
    def supports_check_run_worker_health(self) -> bool:
        """The run monitor may ask."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Whether the process of a run is there; of one that a code server started it is said."""
        tag = run.tags.get(PROCESS_TAG)
        if tag is None or run.run_id in _watched or is_alive(tag):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.FAILED, f"its process ({tag}) is gone")

    def _why_not(self, context: LaunchRunContext) -> str | None:
        """Why a run is not forked; None: it is."""
        from dagster._core.remote_representation.code_location import (  # noqa: PLC0415 - as above
            GrpcServerCodeLocation,
        )

        run, origin, workspace = context.dagster_run, context.job_code_origin, context.workspace
        if not CAN_FORK:
            return f"nothing is forked on {sys.platform}"
        if origin is None or run.remote_job_origin is None or workspace is None:
            return "it does not say where its job is"
        repository = origin.repository_origin
        if repository.executable_path != sys.executable or repository.container_image:
            return "its code location has another Python"
        location = workspace.get_code_location(run.remote_job_origin.location_name)
        if not isinstance(location, GrpcServerCodeLocation) or location.client.socket is None:
            return "its code location may be on another machine"
        if self._began_ns and _changed_since(self._began_ns):
            return "installed packages have changed since the daemon started"
        return None


def process_tag(process: int | None = None) -> str:
    """What names a process of this machine, this one where none is given, also when it has ended.

    >>> is_alive(process_tag())
    True
    """
    number = process or os.getpid()
    return f"{os.uname().nodename}:{number}:{_began(number)}"


def is_alive(tag: str) -> bool:
    """Whether a process that `process_tag` named runs; those of other machines are taken to.

    >>> is_alive(process_tag() + "0")
    False
    """
    host, process, began = tag.rsplit(":", 2)
    return host != os.uname().nodename or (began != "" and _began(int(process)) == began)


def code_location() -> tuple[int, str] | None:
    """The process that started this one's run, and the name of the run's code location.

    None in a process that is no run, or was not started on this machine by another one that still
    runs. The name is empty where the process is of one code location anyway.

    >>> code_location() is None
    True
    """
    parent = multiprocessing.parent_process()
    process, _, location = os.environ.get(_LOCATION_VARIABLE, "").partition(" ")
    starter = int(process) if process else parent and parent.pid
    return (starter, location) if starter and _began(starter) else None


def _execute(waiting: Connection, arguments: str, location: str) -> None:
    """What `dagster api execute_run` does, in a process that has it imported."""
    from dagster._cli.api import api_cli  # noqa: PLC0415 - for those who start runs, not for this

    try:
        waiting.recv()
    except EOFError:  # who launched it could not take note of it
        return
    sys.argv = ["dagster", "api", "execute_run"]
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        os.environ[_LOCATION_VARIABLE] = f"{parent.pid} {location}"
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()  # else every run would draw the same
    try:
        api_cli.main(["execute_run", arguments], standalone_mode=False)
    finally:
        # a process of multiprocessing does not run them
        atexit._run_exitfuncs()  # noqa: SLF001


def _watch(process: BaseProcess, tag: str, run_id: str, instance_ref: InstanceRef) -> None:
    """Wait until a run's process has ended, and fail the run if it has not ended itself."""
    try:
        process.join()
        # the fork server may have been killed, and not the run
        while is_alive(tag):
            time.sleep(_LOOK_SECONDS)
        with dg.DagsterInstance.from_ref(instance_ref) as instance:
            run = instance.get_run_by_id(run_id)
            if run is not None and run.status == dg.DagsterRunStatus.CANCELING:
                instance.report_run_canceled(run, "The process of this run has ended.")
            elif run is not None and not run.is_finished:
                prefix = f"Run execution process for {run_id}"
                message = get_run_crash_explanation(prefix, process.exitcode or 0)
                instance.report_engine_event(message, run, cls=WarmRunLauncher)
                instance.report_run_failed(run)
    finally:
        _watched.discard(run_id)


def _began(process: int) -> str:
    """When a process began, where the system says it; empty: it has ended."""
    if not CAN_FORK:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return ""
        except PermissionError:
            pass
        return "then"
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    # the state is the third field, the start the 22nd
    return "" if fields[0] == "Z" else fields[19]


def _changed_since(time_ns: int) -> bool:
    """Whether a package was installed, or this one edited."""
    return any(path.stat().st_mtime_ns > time_ns for path in _preloaded_files() if path.exists())


def _preloaded_files() -> Iterable[Path]:
    yield from {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    # also an editor's locks, links that lead nowhere
    yield from Path(lakehouse.__path__[0]).rglob("*.py")
