"""Decoded manifest lists kept for the next commit and the next plan in this process.

A list is known by what its file holds, not by its name, so that what is kept is what decoding it
again would give.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from lakehouse.kept_by_bytes import KeptByBytes
from lakehouse.spec.manifests.manifest_list import ManifestFile, read_manifest_list

LISTS_BYTES_MAX = 64 * 1024 * 1024
_MANIFEST_BYTES, _SUMMARY_BYTES = 768, 192
"""What a manifest takes in memory, and what is said of each field of its partitions."""


class ManifestLists:
    """The last lists that were read or written, least recently used ones dropped first.

    Safe between threads.

    Args:
        memory_bytes_max: bytes kept, as `lists_bytes` counts them.
    """

    def __init__(self, memory_bytes_max: int = LISTS_BYTES_MAX) -> None:
        self.kept: KeptByBytes[bytes, tuple[ManifestFile, ...]] = KeptByBytes(memory_bytes_max)

    def read(self, data: bytes, location: str) -> list[ManifestFile]:
        """As `read_manifest_list`."""
        key = _key(data)
        kept = self.kept.get(key)
        if kept is not None:
            return list(kept)
        found = read_manifest_list(data, location)
        self._keep(key, found)
        return found

    def keep(self, data: bytes, manifests: Sequence[ManifestFile]) -> None:
        """What reading `data` gives, known to who wrote it."""
        self._keep(_key(data), manifests)

    def clear(self) -> None:
        """Forget all lists."""
        self.kept.clear()

    def _keep(self, key: bytes, manifests: Sequence[ManifestFile]) -> None:
        self.kept.put(key, tuple(manifests), list_bytes(manifests))


def list_bytes(manifests: Sequence[ManifestFile]) -> int:
    """What a list takes in memory, at most; lists that follow each other may share manifests."""
    summaries = len(manifests[0].partitions or ()) if manifests else 0
    return len(manifests) * (_MANIFEST_BYTES + summaries * _SUMMARY_BYTES)


def _key(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32).digest()


LISTS = ManifestLists()
