"""The storage that keeps a location."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from lakehouse.errors import InvalidLocationError
from lakehouse.storage.bucket_clients import S3_SCHEMES, SCHEMES
from lakehouse.storage.local import LocalStorage
from lakehouse.storage.location import MEMORY_SCHEME, parse
from lakehouse.storage.memory import MemoryStorage
from lakehouse.storage.object_store import ObjectStorage
from lakehouse.storage.remote_signer import asks_for_signatures
from lakehouse.storage.signed_s3 import SignedS3Storage
from lakehouse.storage.storage_protocol import Storage


def storage_for(location: str, properties: Mapping[str, str] | None = None) -> Storage:
    """The storage of a location, shared by all callers in this process with equal properties.

    Raises:
        InvalidLocationError: no storage serves the scheme.
    """
    return _shared(parse(location).scheme, tuple(sorted((properties or {}).items())))


@lru_cache(maxsize=32)
def _shared(scheme: str, properties: tuple[tuple[str, str], ...]) -> Storage:
    if scheme in {"", "file"}:
        return LocalStorage(dict(properties))
    if scheme == MEMORY_SCHEME:
        return MemoryStorage(dict(properties))
    if scheme in S3_SCHEMES and asks_for_signatures(dict(properties)):
        return SignedS3Storage(dict(properties))
    if scheme in SCHEMES:
        return ObjectStorage(dict(properties))
    raise InvalidLocationError(
        f"No storage serves {scheme}:// locations; use a path, file://, memory://, "
        f"{', '.join(sorted(SCHEMES))}."
    )
