"""Group commit: appends to one table that arrive together become one version of it.

An append that arrives while none is being committed leads: it takes all that wait, a snapshot
for each append (or one for all that share), and swaps once. Then the next one in the queue leads.
No append waits for company: while one group is being committed, the next one gathers.

A group is committed or not as a whole, with the keys of its requests. Where it certainly was not,
each append is tried by itself, so that one that the table cannot take fails alone.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from lakehouse.catalog.catalog_protocol import Catalog, Request
from lakehouse.catalog.commit_outcome import before_the_swap, is_certain
from lakehouse.catalog.confinement import ReadableFiles
from lakehouse.catalog.posted_append import PostedAppend
from lakehouse.environment import Environment
from lakehouse.errors import CommitStateUnknownError, LakehouseError
from lakehouse.kept_by_bytes import KeptByBytes, bytes_of
from lakehouse.maintenance.compaction.compaction import Tail
from lakehouse.server.access.asked_privileges import PRINCIPAL
from lakehouse.server.meters import Meters
from lakehouse.server.received_append import ReceivedAppend
from lakehouse.server.served_tables import APPENDED, ServedTables
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.table_properties import TableProperties
from lakehouse.transaction.commit import commit
from lakehouse.transaction.table_change import TableChange

_GROUP_MAX = 256
_TAILS_BYTES_MAX = 1 << 20

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AppendedBody:
    """What became of an append.

    Attributes:
        snapshot: that made it.
        body: LoadTableResult of the version that has it (`APPENDED`).
    """

    snapshot: Snapshot
    body: bytes


@dataclass(eq=False, slots=True)
class _Waiting:
    append: PostedAppend
    request: Request
    woken: threading.Event = field(default_factory=threading.Event)
    made: AppendedBody | None = None
    error: Exception | None = None

    @property
    def is_done(self) -> bool:
        return self.made is not None or self.error is not None


@dataclass(eq=False, slots=True)
class _Queue:
    waiting: deque[_Waiting] = field(default_factory=deque)
    is_led: bool = False


class GroupedAppends:
    """Appends to the tables of a catalog. Safe between threads.

    Args:
        catalog: holds the tables; notes requests.
        tables: the versions known to be newest.
        environment: clock and ids.
        meters: count commits.
    """

    def __init__(
        self, catalog: Catalog, tables: ServedTables, environment: Environment, meters: Meters
    ) -> None:
        self._catalog, self._tables, self._environment = catalog, tables, environment
        self._meters = meters
        self._lock = threading.Lock()
        self._queues: dict[tuple[Identifier, str], _Queue] = {}
        self._tails: KeptByBytes[tuple[Identifier, str], Tail] = KeptByBytes(_TAILS_BYTES_MAX)

    def append(
        self, identifier: Identifier, posted: PostedAppend, request: Request
    ) -> AppendedBody:
        """Commit an append with those of others, once for its request.

        Raises:
            RequestRepeatedError: nothing was done: it had been carried out.
            CommitStateUnknownError: perhaps committed.
            LakehouseError: certainly not committed.
        """
        mine, key = _Waiting(posted, request), (identifier, posted.branch)
        with self._lock:
            queue = self._queues.setdefault(key, _Queue())
            queue.waiting.append(mine)
            leads = not queue.is_led
            queue.is_led = True
        with self._meters.commit():
            if not leads:
                mine.woken.wait()
            if not mine.is_done:
                self._lead(key, queue)
            if mine.made is None:
                raise mine.error or AssertionError("an append without an outcome")
            return mine.made

    def _lead(self, key: tuple[Identifier, str], queue: _Queue) -> None:
        """Commit those who wait, the caller among them; then another one leads."""
        with self._lock:
            group = [queue.waiting.popleft() for _ in range(min(len(queue.waiting), _GROUP_MAX))]
        try:
            self._commit_new_and_begun(key, group)
        finally:
            with self._lock:
                if queue.waiting:
                    queue.waiting[0].woken.set()
                else:
                    queue.is_led = False
                    self._queues.pop(key, None)
            for member in group:
                if not member.is_done:
                    member.error = CommitStateUnknownError("The server was interrupted.")
                member.woken.set()
        self._join_tail(*key, [member.append for member in group if member.made is not None])

    def _join_tail(
        self, identifier: Identifier, branch: str, appended: Sequence[PostedAppend]
    ) -> None:
        """What `lakehouse.write.join-files` asks for; of appends in manifests nobody knows files.

        Only the caller waits for it: others are answered, and go on.
        """
        files = [file for append in appended for file in append.files]
        if not files:
            return
        try:
            version = self._tables.newest(identifier)
            width = TableProperties(version.metadata.properties).write_join_files
            if not width:
                return
            tail = self._tails.get((identifier, branch)) or Tail(branch, confined=True)
            tail.width = width
            self._tails.put((identifier, branch), tail, bytes_of(str(identifier), branch))
            tail.grew(self._catalog, version, files, self._environment)
        except LakehouseError as error:  # the append is answered with what became of it
            log.warning("%s: small files stay for now: %s", identifier, error)

    def _commit_new_and_begun(self, key: tuple[Identifier, str], group: Sequence[_Waiting]) -> None:
        """What was begun before is tried by itself, unless it was done."""
        begun: Collection[str] = ()
        if self._catalog.requests is not None:
            try:
                with before_the_swap():
                    begun = self._catalog.requests.begun([member.request.key for member in group])
            # whoever waits has to get it, whatever it was
            except Exception as error:  # noqa: BLE001
                for member in group:
                    member.error = copy.copy(error)
                return
        new = [member for member in group if member.request.key not in begun]
        for together in (new, *([member] for member in group if member.request.key in begun)):
            if together:
                self._commit(key, together, begun=together is not new)

    def _commit(
        self, key: tuple[Identifier, str], group: Sequence[_Waiting], *, begun: bool = False
    ) -> None:
        """Each of the group gets its outcome. Never raises an error of ours."""
        try:
            if begun:
                self._check_is_new(group)
            self._commit_together(*key, group)
        # whoever waits has to get it, whatever it was
        except Exception as error:  # noqa: BLE001
            is_unknown = not isinstance(error, LakehouseError) and not is_certain(error)
            if len(group) == 1 or is_unknown or isinstance(error, CommitStateUnknownError):
                for append in group:
                    append.error = copy.copy(error)
                return
            for append in group:
                self._commit(key, [append])

    def _check_is_new(self, group: Sequence[_Waiting]) -> None:
        """Raise RequestRepeatedError: one was done; CommitStateUnknownError: perhaps."""
        with before_the_swap():
            log = self._catalog.requests
            for waiting in group:
                if log is not None and log.find(waiting.request.key) is not None:
                    raise waiting.request.repeated()

    def _commit_together(
        self, identifier: Identifier, branch: str, group: Sequence[_Waiting]
    ) -> None:
        with before_the_swap():
            base = self._tables.newest(identifier)
        is_readable = ReadableFiles(self._catalog, base).hold
        operations = _operations([member.append for member in group], is_readable)
        snapshot_ids = {
            part.append_id: operation.snapshot_id
            for operation in operations
            for part in operation.parts
        }
        requests = [
            replace(member.request, answer=str(snapshot_ids[member.append.append_id]))
            for member in group
        ]
        with before_the_swap():
            catalog = self._catalog.during(*requests)
        change = TableChange(decided_on=base, branch=branch, operations=operations)
        done = commit(change, catalog, self._environment)
        for _ in range(done.retries):
            self._meters.lost_race()
        self._tables.keep(done.version)
        body = self._tables.document(done.version, APPENDED)
        by_id = {snapshot.snapshot_id: snapshot for snapshot in done.snapshots}
        for member in group:
            member.made = AppendedBody(by_id[snapshot_ids[member.append.append_id]], body)


def _operations(
    appends: Sequence[PostedAppend], is_readable: Callable[[str], bool]
) -> list[ReceivedAppend]:
    """A snapshot for each, in order, and one for all that share, of one principal each."""
    sharing: dict[str | None, list[PostedAppend]] = {}
    for append in appends:
        if append.shares:
            sharing.setdefault(append.summary.get(PRINCIPAL), []).append(append)
    parts = [(append,) for append in appends if not append.shares]
    return [ReceivedAppend(tuple(part), is_readable) for part in (*parts, *sharing.values())]
