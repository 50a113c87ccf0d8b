"""Metadata files as they lie on storage, gzip or not."""

from __future__ import annotations

import zlib

from lakehouse.errors import CorruptMetadataError, InvalidInputError

_GZIP = b"\x1f\x8b"
_INFLATED_AT_LEAST = 64 * 1024 * 1024
_INFLATED_RATIO = 200


def inflated(data: bytes, location: str) -> bytes:
    """The file's text; a gzip file may not inflate to far more than its size.

    Raises CorruptMetadataError naming `location`.
    """
    if data[:2] != _GZIP:
        return data
    limit = max(_INFLATED_AT_LEAST, _INFLATED_RATIO * len(data))
    parts: list[bytes] = []
    total = 0
    while data:
        stream = zlib.decompressobj(wbits=31)
        try:
            part = stream.decompress(data, limit - total + 1)
        except zlib.error as error:
            raise CorruptMetadataError(f"{location}: damaged gzip: {error}") from error
        total += len(part)
        if total > limit:
            raise CorruptMetadataError(f"{location}: inflates to more than {limit} bytes.")
        if not stream.eof:
            raise CorruptMetadataError(f"{location}: gzip stream is cut off.")
        parts.append(part)
        data = stream.unused_data
    return b"".join(parts)


def compressed(data: bytes, codec: str) -> bytes:
    """The text as a file: `codec` is "none" or "gzip". Raises InvalidInputError."""
    if codec == "gzip":
        compressor = zlib.compressobj(wbits=31)
        return compressor.compress(data) + compressor.flush()
    if codec != "none":
        raise InvalidInputError(
            f"Metadata files are not compressed with {codec!r}: use none or gzip."
        )
    return data
