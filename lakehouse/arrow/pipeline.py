"""Decoding on several threads, in order, with bounded memory."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

import pyarrow as pa

Group = TypeVar("Group")
_WAIT_SECONDS = 0.1
_QUEUED_BATCHES = 8


class Opened(Protocol[Group]):
    """A file whose row groups can be decoded independently, from several threads."""

    @property
    def row_groups(self) -> list[Group]:
        """Units of work, in order."""

    def batches(self, group: Group) -> Iterator[pa.RecordBatch]:
        """Decode one unit."""

    def close(self) -> None:
        """Release the file."""


@dataclass(slots=True)
class _Failed:
    error: BaseException


_Item: TypeAlias = pa.RecordBatch | _Failed | None


class _Unit:
    """Batches of one row group on their way from a worker to the consumer; None ends them."""

    def __init__(self, produce: Callable[[], Iterator[pa.RecordBatch]], done: Callable[[], None], stop: threading.Event) -> None:
        self._produce, self._done, self._stop = produce, done, stop
        self._queue: queue.Queue[_Item] = queue.Queue(_QUEUED_BATCHES)

    def run(self) -> None:
        try:
            for batch in self._produce():
                if not self._put(batch):
                    return
            self._put(None)
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer's thread
            self._put(_Failed(error))
        finally:
            self._done()

    def _put(self, item: _Item) -> bool:
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=_WAIT_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    def drain(self) -> Iterator[pa.RecordBatch]:
        while True:
            item = self._queue.get()
            if item is None:
                return
            if isinstance(item, _Failed):
                raise item.error
            yield item


class _Task(Generic[Group]):
    """An open file that closes itself after its last unit."""

    def __init__(self, opened: Opened[Group]) -> None:
        self.opened = opened
        self._lock = threading.Lock()
        self._left = len(opened.row_groups)

    def done(self) -> None:
        with self._lock:
            self._left -= 1
            last = self._left <= 0
        if last:
            self.opened.close()


class Pipeline(Generic[Group]):
    """Opens files ahead and decodes their row groups on several threads; batches come in the order of the files.

    Args:
        openers: one call per file; run on the threads, a few files ahead.
        threads: how many row groups are decoded at a time. Each holds at most a few batches that wait for the consumer.
    """

    def __init__(self, openers: Iterable[Callable[[], Opened[Group]]], threads: int) -> None:
        self._openers = iter(openers)
        self._window = threads + 1
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="lakehouse-read")
        self._stop = threading.Event()
        self._opening: deque[Future[Opened[Group]]] = deque()
        self._waiting: deque[tuple[_Task[Group], Group]] = deque()
        self._units: deque[_Unit] = deque()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            while self._fill():
                yield from self._units[0].drain()
                self._units.popleft()
        finally:
            self._close()

    def _fill(self) -> bool:
        """Keep the threads busy; False at the end."""
        self._open_ahead()
        while len(self._units) < self._window:
            if self._waiting:
                self._submit(*self._waiting.popleft())
            elif not self._opening or (self._units and not _succeeded(self._opening[0])):
                # Waiting for a file while units wait for the consumer could wait for ever.
                break
            else:
                task = _Task(self._opening.popleft().result())
                if task.opened.row_groups:
                    self._waiting.extend((task, group) for group in task.opened.row_groups)
                else:
                    task.done()
                self._open_ahead()
        return bool(self._units)

    def _open_ahead(self) -> None:
        while len(self._opening) < self._window:
            opener = next(self._openers, None)
            if opener is None:
                return
            self._opening.append(self._pool.submit(opener))

    def _submit(self, task: _Task[Group], group: Group) -> None:
        unit = _Unit(lambda: task.opened.batches(group), task.done, self._stop)
        self._units.append(unit)
        self._pool.submit(unit.run)

    def _close(self) -> None:
        self._stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        for future in self._opening:
            if _succeeded(future):
                future.result().close()


def _succeeded(future: Future[Opened[Group]]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
