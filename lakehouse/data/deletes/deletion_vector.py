"""Deletion vectors: the `deletion-vector-v1` Puffin blob (spec: Deletion Vectors)."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from lakehouse.errors import CorruptMetadataError

BLOB_TYPE = "deletion-vector-v1"

_MAGIC = b"\xd1\xd3\x39\x64"
_OVERHEAD = 12

Positions = npt.NDArray[np.int64]


def encode_vector(positions: Positions) -> bytes:
    """The blob: length, magic, 64-bit Roaring bitmap, CRC-32 of magic and bitmap.

    Length and checksum are big-endian.
    """
    bitmap = BitMap64(positions.astype(np.uint64))
    bitmap.run_optimize()
    body = _MAGIC + bitmap.serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def decode_vector(blob: bytes, path: str, cardinality: int | None = None) -> Positions:
    """Ascending deleted positions of a blob.

    Args:
        blob: `content_size_in_bytes` bytes at `content_offset`.
        path: of the Puffin file, for messages.
        cardinality: `record_count` of the manifest entry, to be compared.

    Raises:
        CorruptMetadataError: wrong length, magic or checksum, an unreadable bitmap, or another
            number of positions.
    """
    if len(blob) < _OVERHEAD or struct.unpack(">I", blob[:4])[0] != len(blob) - 8:
        raise CorruptMetadataError(
            f"deletion vector in {path} is cut short or has a wrong length", file=path
        )
    body, checksum = blob[4:-4], struct.unpack(">I", blob[-4:])[0]
    if body[:4] != _MAGIC:
        raise CorruptMetadataError(
            f"deletion vector in {path} does not start with its magic number", file=path
        )
    if zlib.crc32(body) != checksum:
        raise CorruptMetadataError(
            f"deletion vector in {path} does not match its checksum", file=path
        )
    try:
        bitmap = BitMap64.deserialize(body[4:])
    except (ValueError, MemoryError, OverflowError) as error:
        raise CorruptMetadataError(
            f"deletion vector in {path} holds no readable bitmap: {error}", file=path
        ) from error
    if cardinality is not None and len(bitmap) != cardinality:
        raise CorruptMetadataError(
            f"deletion vector in {path} holds {len(bitmap)} positions, its manifest entry says "
            f"{cardinality}",
            file=path,
        )
    return np.frombuffer(bitmap.to_array(), dtype=np.uint64).astype(np.int64)
