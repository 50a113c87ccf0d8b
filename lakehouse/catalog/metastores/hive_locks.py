"""Locks of a Hive Metastore, as Iceberg's Java takes them for a commit.

An exclusive lock on one table is requested, waited for, kept by heartbeats and given back. Who dies
with a lock keeps others waiting until the metastore lets it go (`hive.txn.timeout`, 5 minutes): no
lock is broken by the clock of a client.
"""

from __future__ import annotations

import getpass
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from hive_metastore.ttypes import (
    CheckLockRequest,
    HeartbeatRequest,
    LockComponent,
    LockLevel,
    LockRequest,
    LockResponse,
    LockState,
    LockType,
    ShowLocksRequest,
    UnlockRequest,
)

from lakehouse.catalog.commit_outcome import after_the_swap
from lakehouse.catalog.metastores.metastore import Metastore
from lakehouse.catalog.metastores.metastore_catalog import Refusal
from lakehouse.environment import Environment
from lakehouse.errors import LakehouseError, StorageError
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.table_properties import positive

_TIMEOUT = "iceberg.hive.lock-timeout-ms"
_HEARTBEAT = "iceberg.hive.lock-heartbeat-interval-ms"
_FIRST_WAIT_SECONDS, _WAIT_SECONDS_MAX = 0.01, 1.0


class HeldLock:
    """A lock that was given.

    Args:
        metastore: keeps it.
        number: its id.
    """

    def __init__(self, metastore: Metastore, number: int) -> None:
        self._metastore, self._number = metastore, number
        self._over = threading.Event()

    def confirm(self) -> None:
        """Raise StorageError, outcome "failed", unless the lock is still ours."""
        try:
            self._metastore.call(lambda client: client.heartbeat(self._beat()))
        except Refusal as error:
            raise StorageError(
                f"{self._metastore.uri}: lock {self._number} was lost: {error}. Try again.",
                retryable=True,
                commit_outcome="failed",
            ) from error

    def beat(self, every_seconds: float) -> None:
        """Keep it until `give_back`; runs in a thread."""
        while not self._over.wait(every_seconds):
            try:
                self.confirm()
            except LakehouseError:  # whoever changes something confirms it before
                return

    def give_back(self) -> None:
        """Unlock."""
        self._over.set()
        request = UnlockRequest(lockid=self._number)
        self._metastore.call(lambda client: client.unlock(request))

    def _beat(self) -> HeartbeatRequest:
        return HeartbeatRequest(lockid=self._number)


class HiveLocks:
    """Takes locks.

    Args:
        metastore: keeps them.
        properties: of the catalog: `iceberg.hive.lock-timeout-ms` (180000),
            `iceberg.hive.lock-heartbeat-interval-ms` (60000).
        environment: clock, sleep, unique names.
    """

    def __init__(
        self, metastore: Metastore, properties: Mapping[str, str], environment: Environment
    ) -> None:
        self._metastore, self._environment = metastore, environment
        self._timeout_ms = positive(properties.get(_TIMEOUT, "180000"))
        self._beat_seconds = positive(properties.get(_HEARTBEAT, "60000")) / 2000

    @contextmanager
    def lock(self, identifier: Identifier) -> Iterator[HeldLock]:
        """Hold the lock of a table or view.

        Raises StorageError, outcome "failed": it was not given.
        """
        held = HeldLock(self._metastore, self._take(identifier))
        thread = threading.Thread(
            target=held.beat, args=(self._beat_seconds,), daemon=True, name="hive-lock"
        )
        thread.start()
        try:
            yield held
        finally:
            after_the_swap(f"The lock of {identifier}", held.give_back)

    def _take(self, identifier: Identifier) -> int:
        until = self._environment.now_ms() + self._timeout_ms
        answer = self._request(identifier)
        number: int = answer.lockid
        wait = _FIRST_WAIT_SECONDS
        try:
            while answer.state == LockState.WAITING and self._environment.now_ms() < until:
                self._environment.sleep(wait * (0.5 + self._environment.random()))
                wait = min(wait * 1.5, _WAIT_SECONDS_MAX)
                answer = self._metastore.ask(
                    lambda client: client.check_lock(CheckLockRequest(lockid=number))
                )
        except Refusal as error:
            raise _not_given(identifier, str(error)) from error
        except BaseException:
            self._forget(identifier, number)
            raise
        if answer.state != LockState.ACQUIRED:
            self._forget(identifier, number)
            raise _not_given(identifier, f"not in {self._timeout_ms} ms")
        return number

    def _forget(self, identifier: Identifier, number: int) -> None:
        after_the_swap(f"The lock of {identifier}", HeldLock(self._metastore, number).give_back)

    def _request(self, identifier: Identifier) -> LockResponse:
        """The answer to the request; after a lost one it is looked up by a name that it bears."""
        [database], table = identifier.namespace, identifier.name
        agent = f"lakehouse-{self._environment.new_uuid()}"
        request = LockRequest(
            component=[LockComponent(LockType.EXCLUSIVE, LockLevel.TABLE, database, table)],
            user=getpass.getuser(),
            hostname=socket.gethostname(),
            agentInfo=agent,
        )

        def once() -> LockResponse:
            try:
                return self._metastore.call(lambda client: client.lock(request))
            except StorageError as error:
                if error.commit_outcome != "unknown":
                    raise
                asked = ShowLocksRequest(dbname=database, tablename=table)
                locks = self._metastore.ask(lambda client: client.show_locks(asked)).locks or ()
                ours = next((lock for lock in locks if lock.agentInfo == agent), None)
                if ours is None:
                    raise
                return LockResponse(lockid=ours.lockid, state=ours.state)

        try:
            return self._metastore.patience.call(once)
        except Refusal as error:
            raise _not_given(identifier, str(error)) from error
        except StorageError as error:
            if "HIVE_LOCKS" in error.message:
                raise _not_given(
                    identifier,
                    "the metastore's database has no tables of locks; make them by its schematool, "
                    "or, where the metastore is of version 4, set engine.hive.lock-enabled to "
                    "false on every table and in every engine",
                ) from error
            raise


def _not_given(identifier: Identifier, reason: str) -> StorageError:
    return StorageError(
        f"The lock of {identifier} was not given: {reason}.",
        retryable=True,
        commit_outcome="failed",
    )
