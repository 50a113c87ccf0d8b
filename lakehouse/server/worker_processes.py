"""Several processes that serve one catalog at one address, so that a server uses all cores.

Each is a server like the only one: what it keeps is a cache, the catalog tells all of them what
happened. What more they need of each other is in `sibling_workers`. The supervisor listens for
them: a client that connects while a process is started again waits for it.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from lakehouse.catalog.redaction import hide_in_urls
from lakehouse.errors import InvalidInputError, LakehouseError, StorageError
from lakehouse.lake import Lakehouse, load_catalog
from lakehouse.server.access.principals_file import Rules
from lakehouse.server.http_server import HttpServer, listening, url_of
from lakehouse.server.operations.plan_bounds import PlanBounds
from lakehouse.server.rest_app import rest_app
from lakehouse.server.sibling_workers import Siblings
from lakehouse.server.watching.access_log import open_log
from lakehouse.storage.location import parse

log = logging.getLogger(__name__)

_CONTEXT = multiprocessing.get_context("spawn")
_AGAIN_SECONDS, _AGAIN_SECONDS_MAX = 0.1, 30.0
_FOLLOW_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Served:
    """What each process serves.

    Attributes:
        catalog: what `load_catalog` is given; may hold secrets.
        options: what `rest_app` is given beside the catalog, rules and plans.
        plans: bounds of plans, of all processes together.
        access_log: file of the access log; None: there is none.
    """

    catalog: Mapping[str, Any] = field(repr=False)
    options: Mapping[str, Any]
    plans: PlanBounds
    access_log: str | None


@dataclass(eq=False, slots=True)
class _Worker:
    """A process, as the supervisor has it.

    Attributes:
        siblings: as it sees them.
        sockets: that it serves.
        pipe: to it; None while there is none.
        follows: number of the rules that it follows; None: it does not serve yet, or no more.
    """

    siblings: Siblings
    sockets: Sequence[socket.socket]
    pipe: Connection | None = None
    follows: int | None = None


class WorkerProcesses:
    """Processes that serve a catalog, while the context lasts. One that dies is started again.

    They end as `HttpServer` ends, and at once if this process is killed.

    Args:
        served: what.
        host: the interface.
        port: 0 takes one that is free.
        workers: how many.
        rules: who may do what; None: without authentication.

    Attributes:
        url: where they answer.
    """

    def __init__(
        self,
        served: Served,
        host: str,
        port: int,
        workers: int,
        *,
        rules: Rules | None = None,
    ) -> None:
        self._served = replace(served, plans=served.plans.shared_by(workers))
        self._host, self._port, self._count = host, port, workers
        self._token_key = secrets.token_bytes(64)
        self._rules, self._version = self._with_key(rules), 0
        self._changed = threading.Condition()
        self._is_started, self._ending = threading.Event(), threading.Event()
        self._workers: list[_Worker] = []
        self._keepers: list[threading.Thread] = []
        self._folder = tempfile.TemporaryDirectory(prefix="lakehouse-serve-")

    @property
    def url(self) -> str:
        """Where they answer, `http://host:port`."""
        return url_of(self._host, self._port)

    def __enter__(self) -> WorkerProcesses:
        """Start them, and wait until all of them answer.

        Raises InvalidInputError: the address cannot be had. StorageError: one does not start.
        """
        sockets = listening(self._host, self._port, self._count)
        self._port = int(sockets[0].getsockname()[1])
        private = [socket.create_server(("127.0.0.1", 0)) for _ in sockets]
        resource_tracker.ensure_running()  # which unblocks signals that `_keep` blocks
        ports = tuple(int(listener.getsockname()[1]) for listener in private)
        secret, folder = secrets.token_hex(32), Path(self._folder.name)
        for number, both in enumerate(zip(sockets, private, strict=True)):
            worker = _Worker(Siblings(number, ports, folder, secret), both)
            keeper = threading.Thread(target=self._keep, args=(worker,), daemon=True)
            self._workers.append(worker)
            self._keepers.append(keeper)
            keeper.start()
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._ending.is_set()
                    or None not in [worker.follows for worker in self._workers]
                )
            )
            self._is_started.set()
        if self._ending.is_set():
            self.__exit__(None, None, None)
            raise StorageError(f"The server at {self.url} did not start: see what was logged.")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        with self._changed:
            for worker in self._workers:  # do not wait for a process that does not start
                for listener in worker.sockets:
                    listener.close()
            self._tell(None)
        for keeper in self._keepers:
            keeper.join()
        self._folder.cleanup()

    def follow(self, rules: Rules) -> None:
        """From now on other rules hold, in each process once this returns.

        Raises InvalidInputError: there is no authentication.
        """
        if self._rules is None:
            raise InvalidInputError("The server was started without rules, and asks nobody.")
        with self._changed:
            self._rules, self._version = self._with_key(rules), self._version + 1
            self._tell((self._version, self._rules))
            version = self._version
            is_followed = self._changed.wait_for(
                lambda: all(worker.follows in (None, version) for worker in self._workers),
                _FOLLOW_SECONDS,
            )
        if not is_followed:
            log.warning("A worker has not read the new rules yet: it is busy.")

    def _with_key(self, rules: Rules | None) -> Rules | None:
        """What one of them signs, all of them can read."""
        return rules and replace(rules, token_key=rules.token_key or self._token_key)

    def _tell(self, message: object) -> None:
        """Send it to all that live. The condition is held."""
        for worker in self._workers:
            if worker.pipe is not None:
                try:
                    worker.pipe.send(message)
                except OSError:  # it ended
                    continue

    def _keep(self, worker: _Worker) -> None:
        """Start a process, again and again; a thread for each."""
        # of a terminal: they are for the supervisor alone, and processes begin with this mask
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
        seconds = 0.0
        while not self._ending.wait(seconds):
            process = self._start(worker)
            if process is None:
                return
            did_serve = self._listen(worker)
            process.join()
            if not self._is_started.is_set():  # each of the first has to serve
                self._ending.set()
            if self._ending.is_set():
                break
            seconds = _AGAIN_SECONDS if did_serve else min(10 * seconds, _AGAIN_SECONDS_MAX)
            log.error(
                "Worker %d ended (%s). Another one is started in %s s.",
                worker.siblings.number,
                process.exitcode,
                seconds,
            )
        with self._changed:
            self._changed.notify_all()

    def _start(self, worker: _Worker) -> SpawnProcess | None:
        """Start a process; None: all are to end."""
        ours, theirs = _CONTEXT.Pipe()
        with self._changed, theirs:
            if self._ending.is_set():
                return None
            arguments = (worker.siblings, worker.sockets, theirs, self._rules, self._version)
            process = _CONTEXT.Process(target=_work, args=(self._served, *arguments), daemon=True)
            process.start()
            worker.pipe = ours
        return process

    def _listen(self, worker: _Worker) -> bool:
        """Take what a process tells until it ends; whether it served."""
        pipe, did_serve = worker.pipe, False
        while pipe is not None:
            try:
                version = pipe.recv()
            except (EOFError, OSError):
                pipe.close()
                pipe = version = None
            did_serve = did_serve or version is not None
            with self._changed:
                worker.pipe, worker.follows = pipe, version
                self._changed.notify_all()
        return did_serve


def check_shared(lake: Lakehouse, workers: int) -> None:
    """Raise InvalidInputError for a catalog that each process would have one of."""
    if workers > 1 and parse(lake.warehouse).scheme == "memory":
        raise InvalidInputError(
            f"{lake.name} at {lake.warehouse} is in the memory of one process: {workers} workers "
            "would serve as many catalogs. Serve it with --workers 1, or serve a folder, a bucket "
            "or a database."
        )


def _work(
    served: Served,
    siblings: Siblings,
    sockets: Sequence[socket.socket],
    pipe: Connection,
    rules: Rules | None,
    version: int,
) -> None:
    """Serve, until the supervisor says so or somebody terminates this process alone."""
    inbox: SimpleQueue[tuple[int, Rules] | None] = SimpleQueue()
    signal.signal(signal.SIGTERM, lambda *_: inbox.put(None))
    threading.Thread(target=_receive, args=(pipe, inbox), daemon=True).start()
    siblings.began()
    if served.access_log is not None:
        open_log(served.access_log)
    try:
        lake = load_catalog(**served.catalog)
        app = rest_app(lake, rules=rules, plans=served.plans, siblings=siblings, **served.options)
    except LakehouseError as error:
        log.error("A worker cannot start: %s", hide_in_urls(str(error)))  # noqa: TRY400
        sys.exit(1)
    host, port = sockets[0].getsockname()[:2]
    # whether it may listen there was asked before
    with HttpServer(app, host, port, is_guarded=True, sockets=sockets):
        pipe.send(version)
        while (change := inbox.get()) is not None:
            version, rules = change
            app.follow(rules)
            pipe.send(version)


def _receive(pipe: Connection, inbox: SimpleQueue[tuple[int, Rules] | None]) -> None:
    """Follow the supervisor. Nothing else ends this process, or starts it again."""
    while True:
        try:
            inbox.put(pipe.recv())
        except (EOFError, OSError):
            os._exit(1)
