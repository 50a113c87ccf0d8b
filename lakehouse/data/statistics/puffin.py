"""Puffin files: blobs with a JSON footer (Puffin spec)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from lakehouse.errors import CorruptMetadataError

_MAGIC = b"PFA1"
_TRAILER = 12
_COMPRESSED_FOOTER = 1
_MOST_FOOTER_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """One blob's metadata, in the words of the Puffin spec.

    Attributes:
        type: such as `deletion-vector-v1` or `apache-datasketches-theta-v1`.
        fields: field ids it was computed for.
        snapshot_id: snapshot it was computed from, -1 when not known yet.
        sequence_number: of that snapshot, -1 when not known yet.
        offset: first byte in the file.
        length: bytes.
        properties: free text.
        compression_codec: None, or `lz4` or `zstd`.
    """

    type: str
    fields: tuple[int, ...]
    snapshot_id: int
    sequence_number: int
    offset: int
    length: int
    properties: Mapping[str, str] = field(default_factory=dict)
    compression_codec: str | None = None


class PuffinWriter:
    """Collects blobs and writes them as one file.

    Args:
        created_by: name and version of the writer.
    """

    def __init__(self, created_by: str) -> None:
        self._created_by = created_by
        self._data: list[bytes] = [_MAGIC]
        self._size = len(_MAGIC)
        self._blobs: list[Blob] = []

    def add(
        self,
        payload: bytes,
        kind: str,
        fields: Sequence[int],
        properties: Mapping[str, str],
        *,
        snapshot_id: int = -1,
        sequence_number: int = -1,
        compression_codec: str | None = None,
    ) -> Blob:
        """Append a blob as it is; `snapshot_id` -1 binds it to no snapshot. Returns its place."""
        blob = Blob(
            type=kind,
            fields=tuple(fields),
            snapshot_id=snapshot_id,
            sequence_number=sequence_number,
            offset=self._size,
            length=len(payload),
            properties=dict(properties),
            compression_codec=compression_codec,
        )
        self._data.append(payload)
        self._size += len(payload)
        self._blobs.append(blob)
        return blob

    def finish(self) -> bytes:
        """The bytes of the whole file."""
        return b"".join([*self._data, self.footer()])

    def footer(self) -> bytes:
        """The footer of the file, with the magic bytes around it."""
        text = orjson.dumps(
            {
                "blobs": [_to_json(blob) for blob in self._blobs],
                "properties": {"created-by": self._created_by},
            }
        )
        return b"".join([_MAGIC, text, struct.pack("<i", len(text)), bytes(4), _MAGIC])


def parse_footer(data: bytes, location: str) -> list[Blob]:
    """The blobs that the footer at the end of some bytes tells of.

    Args:
        data: the end of the file, with the whole footer in it.
        location: of the file, for messages.

    Raises:
        CorruptMetadataError: it is no footer, or a compressed one.
    """
    size, flags = struct.unpack("<iB", data[-_TRAILER:].ljust(_TRAILER)[:5])
    text = data[-_TRAILER - size : -_TRAILER]
    if data[-4:] != _MAGIC or not 0 <= size <= _MOST_FOOTER_BYTES or len(text) != size:
        raise CorruptMetadataError(f"{location} has no footer of Puffin", location=location)
    if flags & _COMPRESSED_FOOTER:
        raise CorruptMetadataError(f"{location}: its footer is compressed", location=location)
    try:
        return [_from_json(blob) for blob in orjson.loads(text)["blobs"]]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptMetadataError(f"{location}: its footer is damaged: {error!r}") from error


def _from_json(blob: Mapping[str, Any]) -> Blob:
    return Blob(
        type=blob["type"],
        fields=tuple(blob["fields"]),
        snapshot_id=blob["snapshot-id"],
        sequence_number=blob["sequence-number"],
        offset=blob["offset"],
        length=blob["length"],
        properties=blob.get("properties", {}),
        compression_codec=blob.get("compression-codec"),
    )


def _to_json(blob: Blob) -> dict[str, Any]:
    document = {
        "type": blob.type,
        "fields": list(blob.fields),
        "snapshot-id": blob.snapshot_id,
        "sequence-number": blob.sequence_number,
        "offset": blob.offset,
        "length": blob.length,
        "properties": dict(blob.properties),
    }
    if blob.compression_codec is not None:
        document["compression-codec"] = blob.compression_codec
    return document
