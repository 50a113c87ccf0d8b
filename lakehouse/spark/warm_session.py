"""One Spark for all runs of a code location: a JVM that stays, a session of it for each run.

A run of `dagster dev` is a process that the daemon or the code location started. The first one that
needs Spark starts the JVM (`java/bridge/WarmSpark.java`), which outlives it and ends with these.
Each run has a session with a py4j server of its own: nothing of another run's session is seen in
it, be it views, settings, functions, cached frames or tables in memory. The application is shared:
its memory and cores, Python's workers, Hadoop's file systems.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import site
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from lakehouse.errors import LakehouseError, SparkLostError
from lakehouse.spark.jvm.compiled_java import jar_since
from lakehouse.spark.jvm.jre import cache_directory, java_since

CAN_SHARE = os.name == "posix"
"""Whether a JVM can be shared here: it takes locks and modes of files."""
_MAIN = "lakehouse.spark.WarmSpark"
_START_SECONDS = 180
_ANSWER_SECONDS = 60
_LOG_BYTES = 2000
# of a process that has used Spark, and of a run of Dagster
_OF_A_RUN = ("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "DAGSTER_", "PYSPARK_GATEWAY_")
# PySpark gives them to each context that it makes; the runs share the cores by turns
_SHARED = {
    "spark.app.name": "lakehouse",
    "spark.serializer.objectStreamReset": "100",
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.scheduler.mode": "FAIR",
}


@dataclass(frozen=True)
class _Lease:
    """What the JVM grants to a run, for as long as the connection is open."""

    connection: socket.socket
    process: int
    port: int
    secret: str
    tag: str
    log: Path

    def is_over(self) -> bool:
        """Whether the JVM has ended."""
        try:
            self.connection.setblocking(False)
            return self.connection.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True


class _WarmContext(SparkContext):
    """The shared application as one run sees it: it ends with the run's part of it."""

    _lease: _Lease

    def cancelAllJobs(self) -> None:
        """Cancel those of this run."""
        self.cancelJobsWithTag(self._lease.tag)

    def stop(self) -> None:
        """Give the session back."""
        self._lease.connection.close()
        self._jsc = None
        if self._accumulatorServer is not None:
            self._accumulatorServer.shutdown()
            self._accumulatorServer = None  # type: ignore[assignment]
        if SparkContext._active_spark_context is self:
            _forget()


def warm_session(owner: int, location: str, config: Mapping[str, str]) -> SparkSession:
    """A session of the JVM of a code location, which starts with the first one.

    It is for this process alone, and ends with it. A JVM with other settings, another environment
    or older code ends when its last run has, and another one takes its place.

    Args:
        owner: the process that starts runs. The JVM ends when that has ended.
        location: the name of the code location; empty: the owner has only one. Each has a JVM.
        config: Spark's configuration (`spark_config`).

    Raises:
        LakehouseError: the JVM does not start; the message ends with what it said.
    """
    _forget()
    folder = _folder(owner, location)
    with _turn(folder):
        serves = _digest(config, _known_roots(folder / "roots"))
        lease = _asked(folder, serves)
        if lease is None:
            _start(folder, owner, serves, config)
            lease = _asked(folder, serves)
    if lease is None:
        raise LakehouseError(f"The Spark that runs share is gone again: {_end_of(_log(folder))}")
    return _attached(lease)


def lost_spark() -> SparkLostError | None:
    """What to say where the JVM that this process has a session of has ended; None: it has not."""
    context = SparkContext._active_spark_context
    if not isinstance(context, _WarmContext) or not context._lease.is_over():
        return None
    return SparkLostError(
        f"The Spark that runs share (process {context._lease.process}) has ended while this run "
        "used it. Run it again: that starts another one. Its last words: "
        f"{_end_of(context._lease.log)}"
    )


def shared_process(session: SparkSession) -> int | None:
    """The process of the JVM that runs share; None where the session is of another one."""
    context = session.sparkContext
    return context._lease.process if isinstance(context, _WarmContext) else None


def has_spark() -> bool:
    """Whether this process has a Spark, of its own or shared."""
    return SparkContext._active_spark_context is not None


def is_running(session: SparkSession | None) -> bool:
    """Whether it is a session that nobody has stopped."""
    return session is not None and session.sparkContext._jsc is not None


def leave_lost() -> None:
    """Have this process forget a session whose JVM has ended, so that it can have another one."""
    context = SparkContext._active_spark_context
    if context is not None and lost_spark() is not None:
        context.stop()


def _forget() -> None:
    """PySpark has one JVM a process for good: have it take another one."""
    with SparkContext._lock:
        SparkContext._active_spark_context = None
        SparkContext._gateway = None
        SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


def _attached(lease: _Lease) -> SparkSession:
    addresses = {"PYSPARK_GATEWAY_PORT": str(lease.port), "PYSPARK_GATEWAY_SECRET": lease.secret}
    os.environ.update(addresses)
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in addresses:
            del os.environ[name]
    class_ = getattr(gateway.jvm, "org.apache.spark.sql.classic.SparkSession")
    session = class_.active()
    java = gateway.jvm.JavaSparkContext(session.sparkContext())
    context = _WarmContext(conf=SparkConf(_jconf=java.getConf()), gateway=gateway, jsc=java)
    context._lease = lease
    # where it keeps what it broadcasts: files, which would stay as long as the JVM
    lease.connection.sendall(f"{context._temp_dir}\n".encode())
    # no subclass: who is given a session looks at its type
    spark = SparkSession(context, session)
    spark.stop = context.stop  # type: ignore[method-assign]
    # Spark's own for threads without a session; those of a run have theirs
    class_.clearDefaultSession()
    return spark


def _asked(folder: Path, serves: str) -> _Lease | None:
    """What the JVM grants; None where there is none, or it serves something else."""
    try:
        process, port, token = (folder / "door").read_text("ascii").split()
        connection = socket.create_connection(("127.0.0.1", int(port)), timeout=_ANSWER_SECONDS)
    except (OSError, ValueError):
        return None
    try:
        connection.sendall(f"{token} {serves}\n".encode("ascii"))
        answer = connection.makefile("r", encoding="ascii").readline().split()
    except OSError:
        answer = []
    if not answer:
        connection.close()
        return None
    own_port, secret, tag = answer
    return _Lease(connection, int(process), int(own_port), secret, tag, _log(folder))


def _start(folder: Path, owner: int, serves: str, config: Mapping[str, str]) -> None:
    """Start the JVM, and wait until it can be asked."""
    _clear_dead(folder.parent)
    door = folder / "door"
    door.unlink(missing_ok=True)
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    command = [str(home / "bin" / "spark-submit")]
    for name, value in {**config, **_SHARED}.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--class", _MAIN, str(jar_since(java_since(pyspark.__version__)))]
    with _log(folder).open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - Spark's own script
            [*command, str(owner), serves, str(door)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=os.environ | {"SPARK_CONNECT_MODE": "0"},
        )
    until = time.monotonic() + _START_SECONDS
    while not door.exists():
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            raise LakehouseError(
                f"The Spark that runs share does not start. It said: {_end_of(_log(folder))}"
            )
        time.sleep(0.02)


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """One run at a time asks for the JVM, so that one starts it."""
    import fcntl  # noqa: PLC0415 - not everywhere

    with (folder / "turn").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _folder(owner: int, location: str) -> Path:
    of_location = f"-{hashlib.sha256(location.encode()).hexdigest()[:16]}" if location else ""
    folder = cache_directory(os.environ) / "warm-spark" / f"{owner}{of_location}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _log(folder: Path) -> Path:
    return folder / "log"


def _end_of(log: Path) -> str:
    try:
        return log.read_text(errors="replace")[-_LOG_BYTES:].strip() or "none"
    except OSError:
        return "none"


def _clear_dead(folders: Path) -> None:
    """Remove what JVMs of code locations that have ended left."""
    for folder in folders.iterdir():
        owner = folder.name.partition("-")[0]
        if owner.isdigit() and not _is_alive(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _digest(config: Mapping[str, str], roots: Iterable[str]) -> str:
    """Of all that the JVM and Python's workers, which live as long, were started with."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(_OF_A_RUN)
    }
    facts = [
        dict(config),
        environment,
        sys.executable,
        str(Path.cwd()),
        jar_since(java_since(pyspark.__version__)).stat().st_mtime_ns,
        list(_own_code(roots)),
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _known_roots(file: Path) -> list[str]:
    """Where this run and those before have modules that may be changed between two runs.

    One that imports less than another one has the same Spark.
    """
    before = file.read_text().splitlines() if file.exists() else []
    roots = sorted({*before, *_own_roots()})
    if roots != before:
        file.write_text("\n".join(roots))
    return roots


def _own_roots() -> set[str]:
    """Files and folders of the modules that are not installed."""
    installed = [
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        *site.getsitepackages(),
    ]
    roots: set[str] = set()
    for name, module in list(sys.modules.items()):
        if "." in name or name.startswith("__"):
            continue
        file = getattr(module, "__file__", None)
        places = [file] if file else list(getattr(module, "__path__", ()))
        roots |= {
            str(Path(place).parent if Path(place).name == "__init__.py" else place)
            for place in places
            if not place.startswith(tuple(installed))
        }
    return roots


def _own_code(roots: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    for root in roots:
        files = sorted(Path(root).rglob("*.py")) if Path(root).is_dir() else [Path(root)]
        # not an editor's locks, links that lead nowhere
        for path in filter(Path.exists, files):
            with_times = path.stat()
            yield str(path), with_times.st_mtime_ns, with_times.st_size
