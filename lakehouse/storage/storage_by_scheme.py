"""The storage that keeps a location."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import lru_cache
from typing import cast

from lakehouse.errors import InvalidLocationError
from lakehouse.storage.bucket_clients import S3_SCHEMES, SCHEMES
from lakehouse.storage.local import LocalStorage
from lakehouse.storage.location import MEMORY_SCHEME, parse
from lakehouse.storage.memory import MemoryStorage
from lakehouse.storage.object_store import ObjectStorage
from lakehouse.storage.s3_client import is_signed_elsewhere
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
    if scheme in S3_SCHEMES and is_signed_elsewhere(dict(properties)):
        # its libraries take a while to import
        signed = importlib.import_module("lakehouse.storage.delegated.signed_s3")
        return cast("Storage", signed.SignedS3Storage(dict(properties)))
    if scheme in SCHEMES:
        return ObjectStorage(dict(properties))
    raise InvalidLocationError(
        f"No storage serves {scheme}:// locations; use a path, file://, memory://, "
        f"{', '.join(sorted(SCHEMES))}."
    )
