"""Decoded manifest lists kept for the next commit and the next plan in this process.

A list is known by what its file holds, not by its name, so that what is kept is what decoding it
again would give.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence

from lakehouse.spec.manifests.manifest_list import ManifestFile, read_manifest_list

MANIFESTS_MAX = 50_000
"""Manifests kept, in all lists together. Lists that follow each other share most of them."""


class ManifestLists:
    """The last lists that were read or written, least recently used ones dropped first.

    Safe between threads.

    Args:
        manifests_max: manifests kept, in all lists together.
    """

    def __init__(self, manifests_max: int = MANIFESTS_MAX) -> None:
        self._manifests_max = manifests_max
        self._kept: OrderedDict[bytes, tuple[ManifestFile, ...]] = OrderedDict()
        self._manifests = 0
        self._lock = threading.Lock()

    def read(self, data: bytes, location: str) -> list[ManifestFile]:
        """As `read_manifest_list`."""
        key = _key(data)
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
                return list(kept)
        found = read_manifest_list(data, location)
        self._keep(key, found)
        return found

    def keep(self, data: bytes, manifests: Sequence[ManifestFile]) -> None:
        """What reading `data` gives, known to who wrote it."""
        self._keep(_key(data), manifests)

    def clear(self) -> None:
        """Forget all lists."""
        with self._lock:
            self._kept.clear()
            self._manifests = 0

    def _keep(self, key: bytes, manifests: Sequence[ManifestFile]) -> None:
        if len(manifests) > self._manifests_max:
            return
        with self._lock:
            replaced = self._kept.pop(key, ())
            self._kept[key] = tuple(manifests)
            self._manifests += len(manifests) - len(replaced)
            while self._manifests > self._manifests_max:
                self._manifests -= len(self._kept.popitem(last=False)[1])


def _key(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32).digest()


LISTS = ManifestLists()
