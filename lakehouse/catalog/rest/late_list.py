"""Long lists of table metadata that are fetched when they are needed.

REST catalog: loadTable with `snapshots=refs`; what an append answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from lakehouse.spec.metadata.lazy_json_list import JsonList

T = TypeVar("T")


class LateList(JsonList[T]):
    """All items of a list; they are fetched when one is asked for that is not there.

    Args:
        few: those that are, such as snapshots that a branch or tag names.
        fetch: gives all.
    """

    __slots__ = ("_fetch", "_few", "_lock")

    # what the list is made of is not there before it is asked for: see __getattr__
    def __init__(self, few: JsonList[T], fetch: Callable[[], JsonList[T]]) -> None:
        self._few, self._fetch = few, fetch
        self._lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        if name not in JsonList.__slots__:
            raise AttributeError(name)
        with self._lock:
            try:
                return object.__getattribute__(self, name)
            except AttributeError:
                super().__init__(*self._fetch().parts())
                return object.__getattribute__(self, name)

    def find(self, item_id: int) -> T | None:
        """The item with this id, or None."""
        found = self._few.find(item_id)
        return found if found is not None else super().find(item_id)

    def __reduce__(self) -> tuple[Any, ...]:
        # what is sent elsewhere is complete
        return (JsonList, self.parts())
