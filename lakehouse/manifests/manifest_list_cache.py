"""Decoded manifest lists kept for the next commit and the next plan in this process.

A list is known by what its file holds, not by its name, so that what is kept is what decoding it
again would give.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from lakehouse.kept_by_bytes import KeptByBytes
from lakehouse.spec.manifests.manifest_list import ManifestFile, read_manifest_list

LISTS_BYTES_MAX = 64 * 1024 * 1024
_MANIFEST_BYTES, _SUMMARY_BYTES = 768, 192
"""What a manifest takes in memory, and what is said of each field of its partitions."""


T = TypeVar("T")


class Listed(tuple[ManifestFile, ...]):  # noqa: SLOT001 - it holds more than its items
    """The manifests of a snapshot, and what is worked out of them: kept as long as they are.

    Args:
        manifests: in the order of the list.
    """

    def __init__(self, manifests: Iterable[ManifestFile] = ()) -> None:  # noqa: ARG002
        self._derived: dict[Hashable, Any] = {}
        self._grown: Callable[[int], None] | None = None

    def derive(self, what: Hashable, make: Callable[[Listed], T], size: Callable[[T], int]) -> T:
        """What `make` gives, made once.

        Args:
            what: `make` depends on nothing else and on the manifests.
            make: never gives None.
            size: bytes that it takes.
        """
        found: T | None = self._derived.get(what)
        if found is None:
            found = self._derived.setdefault(what, make(self))
            if self._grown is not None:
                self._grown(size(found))
        return found


class ManifestLists:
    """The last lists that were read or written, least recently used ones dropped first.

    Safe between threads.

    Args:
        memory_bytes_max: bytes kept, as `lists_bytes` counts them.
    """

    def __init__(self, memory_bytes_max: int = LISTS_BYTES_MAX) -> None:
        self.kept: KeptByBytes[bytes, Listed] = KeptByBytes(memory_bytes_max)

    def read(self, data: bytes, location: str) -> list[ManifestFile]:
        """As `read_manifest_list`."""
        return list(self.listed(data, location))

    def listed(self, data: bytes, location: str) -> Listed:
        """As `read_manifest_list`, with what was worked out of it before."""
        key = _key(data)
        kept = self.kept.get(key)
        return self._keep(key, read_manifest_list(data, location)) if kept is None else kept

    def keep(self, data: bytes, manifests: Sequence[ManifestFile]) -> None:
        """What reading `data` gives, known to who wrote it."""
        self._keep(_key(data), manifests)

    def clear(self) -> None:
        """Forget all lists."""
        self.kept.clear()

    def _keep(self, key: bytes, manifests: Sequence[ManifestFile]) -> Listed:
        made, sizes = Listed(manifests), [list_bytes(manifests)]

        def grown(size: int) -> None:
            sizes.append(size)
            self.kept.resize(key, made, sum(sizes))

        made._grown = grown  # noqa: SLF001 - of this module
        self.kept.put(key, made, sizes[0])
        return made


def list_bytes(manifests: Sequence[ManifestFile]) -> int:
    """What a list takes in memory, at most; lists that follow each other may share manifests."""
    summaries = len(manifests[0].partitions or ()) if manifests else 0
    return len(manifests) * (_MANIFEST_BYTES + summaries * _SUMMARY_BYTES)


def _key(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32).digest()


LISTS = ManifestLists()
