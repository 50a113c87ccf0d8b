"""Decoding on several threads, in order, with bounded memory."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count, islice
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import pyarrow as pa

Group = TypeVar("Group")


class Opened(Protocol[Group]):
    """A file whose row groups can be decoded independently, from several threads."""

    @property
    def row_groups(self) -> list[Group]:
        """Units of work, in order."""

    def batches(self, group: Group) -> Iterator[pa.RecordBatch]:
        """Decode one unit."""

    def ready(self) -> list[pa.RecordBatch] | None:
        """All batches at once where that is little; None to decode by unit."""

    def close(self) -> None:
        """Release the file."""


@dataclass(slots=True)
class _Failed:
    error: BaseException


_Item: TypeAlias = pa.RecordBatch | _Failed | None


class _Budget:
    """Bytes of decoded batches that wait for the consumer.

    All units share the limit, so that several run ahead together when row groups are small. The
    unit that the consumer reads from gets a quarter of the limit on top, so that it never waits for
    the others.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._waiting: dict[int, int] = {}
        self._head = 0
        self._stopped = False

    @property
    def bounded(self) -> bool:
        """Whether there is a limit."""
        return self._limit is not None

    @property
    def stopped(self) -> bool:
        """Whether the reader wants no more batches."""
        return self._stopped

    def take(self, unit: int, size: int) -> bool:
        """Wait until a batch of a unit may be queued; False when the reader stopped."""
        with self._changed:
            while not self._stopped and not self._fits(unit, size):
                self._changed.wait()
            self._waiting[unit] = self._waiting.get(unit, 0) + size
            return not self._stopped

    def _fits(self, unit: int, size: int) -> bool:
        if self._limit is None or sum(self._waiting.values()) + size <= self._limit:
            return True
        mine = self._waiting.get(unit, 0)
        return unit == self._head and (mine == 0 or mine + size <= self._limit // 4)

    def give(self, unit: int, size: int) -> None:
        """Note that a batch was consumed, so that another one may be decoded."""
        with self._changed:
            self._waiting[unit] -= size
            self._changed.notify_all()

    def next_head(self) -> None:
        """The consumer goes on to the next unit."""
        with self._changed:
            self._waiting.pop(self._head, None)
            self._head += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop the threads: no more batches are wanted."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


class _Unit:
    """Batches of one row group on their way from a worker to the consumer; None ends them."""

    def __init__(
        self,
        number: int,
        produce: Callable[[], Iterator[pa.RecordBatch]],
        done: Callable[[], None],
        budget: _Budget,
    ) -> None:
        self._number, self._produce, self._done, self._budget = number, produce, done, budget
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()

    def run(self) -> None:
        try:
            for batch in [] if self._budget.stopped else self._produce():
                if not self._budget.take(self._number, batch.nbytes):
                    return
                self._queue.put(batch)
            self._queue.put(None)
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer's thread
            self._queue.put(_Failed(error))
        finally:
            self._done()
            if self._budget.bounded:
                # what this thread freed goes back to the system: allocators keep it for the thread,
                # and there are several
                pa.default_memory_pool().release_unused()

    def fail(self, error: BaseException) -> None:
        """Raise in the consumer, also one that waits for a batch now."""
        self._queue.put(_Failed(error))

    def drain(self) -> Iterator[pa.RecordBatch]:
        while True:
            item = self._queue.get()
            if item is None:
                self._budget.next_head()
                return
            if isinstance(item, _Failed):
                raise item.error
            self._budget.give(self._number, item.nbytes)
            yield item


class _Ready:
    """A small file that was decoded when it was opened."""

    def __init__(self, batches: list[pa.RecordBatch], budget: _Budget) -> None:
        self._batches, self._budget = batches, budget

    def fail(self, error: BaseException) -> None:
        """Nothing waits for it."""

    def drain(self) -> Iterator[pa.RecordBatch]:
        self._budget.next_head()
        yield from self._batches


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
    """Opens files and decodes row groups on several threads; batches come in the files' order.

    A file that is alone is decoded by who asks, where nothing could run beside it.

    Args:
        openers: one call per file; run on the threads, a few files ahead.
        threads: how many row groups are decoded at a time.
        buffer_bytes: most bytes of batches that wait for the consumer; None is without limit.
    """

    def __init__(
        self, openers: Iterable[Callable[[], Opened[Group]]], threads: int, buffer_bytes: int | None
    ) -> None:
        self._openers = iter(openers)
        self._window = threads + 1
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="lakehouse-read")
        self._budget = _Budget(buffer_bytes)
        self._numbers = count()
        self._opening: deque[Future[tuple[Opened[Group], list[pa.RecordBatch] | None]]] = deque()
        self._waiting: deque[tuple[_Task[Group], Group]] = deque()
        self._units: deque[_Unit | _Ready] = deque()
        _AT_EXIT.watch(self)

    def __iter__(self) -> Generator[pa.RecordBatch, None, None]:
        batches = self._batches()
        try:
            while True:
                with _AT_EXIT.inside():
                    batch = next(batches, None)
                if batch is None:
                    _AT_EXIT.forget(self)
                    return
                yield batch
        finally:
            batches.close()

    def end(self, error: BaseException) -> None:
        """Stop the threads, and raise in a consumer that waits."""
        self._budget.stop()
        for unit in list(self._units):
            unit.fail(error)

    def _batches(self) -> Generator[pa.RecordBatch, None, None]:
        first = list(islice(self._openers, 2))
        if len(first) > 1:
            self._openers = chain(first, self._openers)
        elif first:
            opened, ready = _open(first[0])
            here = ready is not None or not (self._budget.bounded or len(opened.row_groups) > 1)
            if here:  # nothing runs beside it: a thread would cost more than it does
                yield from _decoded(opened, ready)
                return
            self._opening.append(_result_of(opened, ready))
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
            elif not self._opening or (
                self._budget.bounded and self._units and not _succeeded(self._opening[0])
            ):
                # Waiting for a file while units wait for the consumer could wait for ever; without
                # a limit they never do.
                break
            else:
                opened, ready = self._opening.popleft().result()
                task = _Task(opened)
                if ready is not None:
                    next(self._numbers)
                    self._units.append(_Ready(ready, self._budget))
                    opened.close()
                elif task.opened.row_groups:
                    self._waiting.extend((task, group) for group in task.opened.row_groups)
                else:
                    task.done()
                self._open_ahead()
        return bool(self._units)

    def _open_ahead(self) -> None:
        while len(self._opening) < 2 * self._window:
            opener = next(self._openers, None)
            if opener is None:
                return
            self._opening.append(self._pool.submit(_open, opener))

    def _submit(self, task: _Task[Group], group: Group) -> None:
        unit = _Unit(
            next(self._numbers), lambda: task.opened.batches(group), task.done, self._budget
        )
        self._units.append(unit)
        self._pool.submit(unit.run)

    def _close(self) -> None:
        self._budget.stop()
        self._pool.shutdown(wait=True, cancel_futures=True)
        for future in self._opening:
            if _succeeded(future):
                future.result()[0].close()


def _open(opener: Callable[[], Opened[Group]]) -> tuple[Opened[Group], list[pa.RecordBatch] | None]:
    opened = opener()
    try:
        return opened, opened.ready()
    except BaseException:
        opened.close()
        raise


def _decoded(opened: Opened[Group], ready: list[pa.RecordBatch] | None) -> Iterator[pa.RecordBatch]:
    try:
        if ready is not None:
            yield from ready
            return
        for group in opened.row_groups:
            yield from opened.batches(group)
    finally:
        opened.close()


def _result_of(
    opened: Opened[Group], ready: list[pa.RecordBatch] | None
) -> Future[tuple[Opened[Group], list[pa.RecordBatch] | None]]:
    found: Future[tuple[Opened[Group], list[pa.RecordBatch] | None]] = Future()
    found.set_result((opened, ready))
    return found


def _succeeded(future: Future[tuple[Opened[Group], list[pa.RecordBatch] | None]]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


class _AtExit:
    """Ends readers that nobody has read to their end before the interpreter goes.

    An engine with threads of its own (DuckDB, DataFusion) that has enough rows drops a reader while
    one of its threads may still be inside it: that thread would come back to an interpreter that is
    gone, and ours would wait for ever to hand on what they decoded.
    """

    def __init__(self) -> None:
        self._pipelines: weakref.WeakSet[Pipeline[Any]] = weakref.WeakSet()
        self._changed = threading.Condition()
        self._inside = self._entered = self._unread = 0
        # before the pools' own hook, which joins their threads: hooks run last first
        threading._register_atexit(self.end)  # type: ignore[attr-defined]  # noqa: SLF001

    def watch(self, pipeline: Pipeline[Any]) -> None:
        """End this one, too, unless it was read to its end by then."""
        with self._changed:
            self._pipelines.add(pipeline)
            self._unread += 1

    def forget(self, pipeline: Pipeline[Any]) -> None:
        """It was read to its end."""
        with self._changed:
            self._pipelines.discard(pipeline)
            self._unread -= 1

    @contextmanager
    def inside(self) -> Iterator[None]:
        """A thread, whoever's, asks a reader for a batch."""
        with self._changed:
            self._inside += 1
            self._entered += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1

    def end(self) -> None:
        """Stop all that were left early, and wait until nobody has come into one for a while.

        A thread of an engine that comes now is told at once that there are no more rows, and goes.
        """
        if not self._unread:
            return
        until, quiet, entered = time.monotonic() + _LEAVING_S, 0, -1
        while quiet < _QUIET and time.monotonic() < until:
            with self._changed:
                pipelines, same = list(self._pipelines), entered == self._entered
                quiet = quiet + 1 if same and not self._inside else 0
                entered = self._entered
            for pipeline in pipelines:
                pipeline.end(RuntimeError("the interpreter is ending: no more rows are read"))
            time.sleep(_MOMENT_S)


_LEAVING_S, _MOMENT_S, _QUIET = 10, 0.02, 10
_AT_EXIT = _AtExit()
