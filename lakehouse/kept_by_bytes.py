"""What is kept in memory, at most so many bytes of it."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import lru_cache, wraps
from typing import Any, Generic, TypeVar, cast

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class KeptByBytes(Generic[K, V]):
    """Values by key, least recently used ones dropped first. Safe between threads.

    >>> kept = KeptByBytes[str, bytes](10)
    >>> kept.put("a", b"12345", 5), kept.put("b", b"1234567", 7)
    (None, None)
    >>> kept.get("a"), kept.get("b"), kept.held
    (None, b'1234567', 7)

    Args:
        bytes_max: bytes kept.
        dropped: called with each value that goes to make room, while the lock is held: it asks
            nothing of this.
    """

    def __init__(self, bytes_max: int, dropped: Callable[[V], object] | None = None) -> None:
        self._bytes_max, self._dropped = bytes_max, dropped
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._held = 0
        self._lock = threading.Lock()

    @property
    def bytes_max(self) -> int:
        """Bytes kept, at most; what is set takes effect at once."""
        return self._bytes_max

    @bytes_max.setter
    def bytes_max(self, bytes_max: int) -> None:
        with self._lock:
            self._bytes_max = bytes_max
            self._drop()

    @property
    def held(self) -> int:
        """Bytes kept now."""
        return self._held

    def get(self, key: K) -> V | None:
        """What is kept under a key."""
        with self._lock:
            entry = self._kept.get(key)
            if entry is None:
                return None
            self._kept.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Keep a value of so many bytes, instead of what had the key; larger than all: none."""
        with self._lock:
            self._remove(key)
            if size <= self._bytes_max:
                self._kept[key] = (value, size)
                self._held += size
                self._drop()

    def resize(self, key: K, value: V, size: int) -> None:
        """Count a value that has grown, if it is still what is kept under the key."""
        with self._lock:
            entry = self._kept.get(key)
            if entry is not None and entry[0] is value:
                self._kept[key] = (value, size)
                self._held += size - entry[1]
                self._drop()

    def remove(self, key: K) -> None:
        """Keep nothing under a key."""
        with self._lock:
            self._remove(key)

    def clear(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._kept.clear()
            self._held = 0

    def _remove(self, key: K) -> None:
        entry = self._kept.pop(key, None)
        self._held -= 0 if entry is None else entry[1]

    def _drop(self) -> None:
        while self._held > self._bytes_max:
            _, (value, size) = self._kept.popitem(last=False)
            self._held -= size
            if self._dropped is not None:
                self._dropped(value)


class MadeOnce(Generic[V]):
    """What is made of objects that never change, made once of each. Safe between threads.

    It is known by the objects themselves, not by what they equal, which would take longer to find
    out; they stay in memory with it. All that a process makes of schemas and other definitions has
    one bound together, `MADE.bytes_max`, unless it is said where to keep it.

    >>> columns = ("a", "b")
    >>> kept = MadeOnce[str]()
    >>> kept.of((columns,), "first", lambda: columns[0].upper(), len)
    'A'
    >>> kept.of((columns,), "first", lambda: "made again", len)
    'A'

    Args:
        kept: what to keep it in.
    """

    def __init__(self, kept: Made | None = None) -> None:
        self.kept = MADE if kept is None else kept

    def of(
        self,
        objects: tuple[object, ...],
        beside: Hashable,
        make: Callable[[], V],
        size: Callable[[V], int],
    ) -> V:
        """What `make` made of the objects, and of `beside`, which is compared by value.

        Args:
            objects: none of them may ever change.
            beside: what else `make` depends on.
            make: makes it.
            size: bytes that it takes at most, with the objects and what is beside; asked once.
        """
        key = (self, *map(id, objects), beside)
        entry = self.kept.get(key)
        if entry is not None:
            return cast("V", entry[1])
        made = make()
        self.kept.put(key, (objects, made), _ENTRY_BYTES + size(made))
        return made


Made = KeptByBytes[Hashable, tuple[tuple[object, ...], Any]]
MADE_BYTES_MAX = 128 * 1024 * 1024
MADE: Made = KeptByBytes(MADE_BYTES_MAX)
_ENTRY_BYTES = 512
_SHORT = 256


def short_only(kept_max: int) -> Callable[[Callable[..., V]], Callable[..., V]]:
    """As `lru_cache`, of functions of texts: of those whose arguments are short together.

    What it keeps has bounds, 4 KiB an entry, whatever clients send.
    """

    def decorated(function: Callable[..., V]) -> Callable[..., V]:
        kept = lru_cache(kept_max, typed=True)(function)

        @wraps(function)
        def called(*given: Any) -> V:
            length = sum(len(value) for value in given if isinstance(value, str | bytes))
            return (kept if length <= _SHORT else function)(*given)

        return called

    return decorated


def bytes_of(*values: object) -> int:
    """What JSON values take in memory: objects, lists, texts and numbers.

    >>> bytes_of({"a": ["b"]}) > bytes_of({"a": []}) > bytes_of({})
    True
    """
    size, pending = 0, [*values]
    while pending:
        value = pending.pop()
        size += sys.getsizeof(value)
        if isinstance(value, Mapping):
            size += 104 * len(value)
            pending += [*value.keys(), *value.values()]
        elif not isinstance(value, str | bytes) and isinstance(value, Iterable):
            pending += value
    return size
