"""Columnar twins of manifests: derived, disposable, read column by column (docs/format.md)."""

from __future__ import annotations

from lakehouse.spec.entries import Entries

TWIN_SUFFIX = ".columnar.parquet"


def twin_path(manifest_path: str) -> str:
    """Where the twin of a manifest is: `X.avro` -> `X.columnar.parquet`."""
    return manifest_path.removesuffix(".avro") + TWIN_SUFFIX


def encode_twin(entries: Entries, *, manifest_path: str, manifest_length: int, checksum: str) -> bytes:
    """Serialize the entries of a manifest as its twin; `checksum` is `manifest_checksum(manifest bytes)`."""
    raise AssertionError(entries, manifest_path, manifest_length, checksum)


def manifest_checksum(data: bytes) -> str:
    """Checksum of a manifest's bytes as its twin and the cache record it."""
    raise AssertionError(data)
