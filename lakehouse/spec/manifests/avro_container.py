"""Avro object container files: header and blocks, read in bounded memory.

A damaged or hostile file can claim any size.
"""

from __future__ import annotations

import bz2
import hashlib
import json
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import cramjam
import zstandard
from fastavro.schema import SchemaParseException, UnknownType

from lakehouse.errors import CorruptMetadataError, UnsupportedFeatureError
from lakehouse.kept_by_bytes import MadeOnce

MAGIC = b"Obj\x01"
_ENCRYPTED_MAGIC = b"AGS1"
SYNC_BYTES = 16
INFLATED_FLOOR_BYTES = 16 * 1024 * 1024
CHECKSUM_KEY = "lakehouse.checksum"
"""Metadata key of the checksum that our own files carry."""
INFLATED_RATIO = 100
DECODING_ERRORS = (
    EOFError,
    IndexError,
    KeyError,
    ValueError,
    TypeError,
    OverflowError,
    RecursionError,
    SchemaParseException,
    UnknownType,
)
"""What fastavro raises for records or schemas that are damaged."""
_DECOMPRESSION_ERRORS = (
    zlib.error,
    OSError,
    lzma.LZMAError,
    zstandard.ZstdError,
    cramjam.DecompressionError,
    EOFError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before the first block.

    Attributes:
        metadata: the file's key-value metadata, `avro.schema` and `avro.codec` included.
        schema: the parsed `avro.schema`.
        codec: name of the compression codec.
        sync: the marker after each block.
        first_block: offset of the first block.
    """

    metadata: Mapping[str, bytes]
    schema: Any
    codec: str
    sync: bytes
    first_block: int

    @property
    def schema_text(self) -> bytes:
        """The `avro.schema` as it was written."""
        return self.metadata["avro.schema"]

    def text(self, key: str) -> str | None:
        """A metadata value as text."""
        value = self.metadata.get(key)
        return None if value is None else value.decode("utf-8", errors="replace")


AVRO_SCHEMA = 16
"""Times the bytes of a schema that its objects take."""
_SCHEMAS: MadeOnce[Any] = MadeOnce()


@dataclass(frozen=True, slots=True)
class Block:
    """One block of an Avro file: a run of records.

    Attributes:
        count: records in the block.
        data: their encoding, still compressed.
    """

    count: int
    data: memoryview


def read_header(data: bytes, location: str) -> Header:
    """Parse the header.

    Raises:
        CorruptMetadataError: not an Avro file, cut off within the header, or not what its checksum,
            where it has one, is of.
        UnsupportedFeatureError: an encrypted file.
    """
    if data[:4] == _ENCRYPTED_MAGIC:
        raise UnsupportedFeatureError(
            f"{location} is encrypted, which this version does not read", location=location
        )
    if data[:4] != MAGIC:
        raise CorruptMetadataError(f"{location} is not an Avro file", location=location)
    view = memoryview(data)
    metadata: dict[str, bytes] = {}
    offset = 4
    while True:
        count, offset = read_long(view, offset, location)
        if count == 0:
            break
        if count < 0:
            count = -count
            _, offset = read_long(view, offset, location)
        for _ in range(_at_most(count, len(view) - offset, location)):
            key, offset = _read_bytes(view, offset, location)
            value, offset = _read_bytes(view, offset, location)
            metadata[bytes(key).decode("utf-8", errors="replace")] = bytes(value)
    sync = bytes(view[offset : offset + SYNC_BYTES])
    schema = _checked_schema(metadata.get("avro.schema", b""), location)
    if len(sync) != SYNC_BYTES:
        raise CorruptMetadataError(f"{location} ends within its header", location=location)
    first = offset + SYNC_BYTES
    if CHECKSUM_KEY in metadata and metadata[CHECKSUM_KEY] != _checksum(
        metadata, sync, view[first:]
    ):
        raise CorruptMetadataError(
            f"{location} is not as it was written: its checksum is another one", location=location
        )
    return Header(
        metadata,
        schema,
        metadata.get("avro.codec", b"null").decode("ascii", "replace"),
        sync,
        first,
    )


def read_blocks(data: bytes, header: Header, location: str) -> Iterator[Block]:
    """The blocks, each checked against the file: sizes, counts and sync markers.

    Raises:
        CorruptMetadataError: a block claims more bytes than the file has, more records than bytes,
            or lacks its marker.
    """
    view = memoryview(data)
    offset = header.first_block
    while offset < len(view):
        count, offset = read_long(view, offset, location)
        size, offset = read_long(view, offset, location)
        end = offset + size
        if count < 0 or size < 0 or end + SYNC_BYTES > len(view):
            left = len(view) - offset
            raise CorruptMetadataError(
                f"{location}: a block claims {count} records in {size} bytes, {left} bytes are "
                "left",
                location=location,
            )
        if view[end : end + SYNC_BYTES] != header.sync:
            raise CorruptMetadataError(
                f"{location}: a block is not followed by the file's sync marker", location=location
            )
        yield Block(count, view[offset:end])
        offset = end + SYNC_BYTES


def inflated_blocks(data: bytes, header: Header, location: str) -> Iterator[tuple[int, bytes]]:
    """(records, uncompressed bytes) of each block.

    All blocks together may inflate to 16 MiB plus 100 times the file.

    Raises:
        CorruptMetadataError: damaged, or inflating beyond the limit.
        UnsupportedFeatureError: unknown codec.
    """
    budget = INFLATED_FLOOR_BYTES + INFLATED_RATIO * len(data)
    for block in read_blocks(data, header, location):
        plain = inflate_block(header, block.count, block.data, budget, location)
        budget -= len(plain)
        yield block.count, plain


def inflate_block(
    header: Header, count: int, data: memoryview, budget: int, location: str
) -> bytes:
    """The content of one block, at most `budget` bytes.

    Raises:
        CorruptMetadataError: damaged, larger than the budget, or smaller than its count of records.
        UnsupportedFeatureError: unknown codec.
    """
    inflate = _CODECS.get(header.codec)
    if inflate is None:
        raise UnsupportedFeatureError(
            f"{location} is compressed with the unknown Avro codec {header.codec!r}",
            location=location,
        )
    try:
        plain = inflate(data, budget)
    except _Bomb as error:
        message = (
            f"{location} inflates to far more than its size: a block of {len(data)} bytes to more "
            f"than {budget}"
        )
        raise CorruptMetadataError(message, location=location) from error
    except _DECOMPRESSION_ERRORS as error:
        raise CorruptMetadataError(
            f"{location}: a block does not decompress: {error}", location=location
        ) from error
    if count > len(plain):
        raise CorruptMetadataError(
            f"{location}: a block claims {count} records in {len(plain)} bytes", location=location
        )
    return plain


def write_container(
    schema: Mapping[str, Any],
    metadata: Mapping[str, str],
    blocks: Iterable[tuple[int, bytes]],
    *,
    level: int,
) -> bytes:
    """A whole file, deflated and with a checksum; equal input gives equal bytes.

    For that the sync marker is computed from the content.
    """
    packed = [(count, _deflate(plain, level)) for count, plain in blocks]
    digest = hashlib.sha256(json.dumps(dict(metadata), sort_keys=True).encode())
    for _, payload in packed:
        digest.update(payload)
    sync = digest.digest()[:SYNC_BYTES]
    named = {
        **metadata,
        "avro.schema": json.dumps(schema, separators=(",", ":")),
        "avro.codec": "deflate",
    }
    pairs = {key: value.encode() for key, value in named.items() if key != CHECKSUM_KEY}
    parts = []
    for count, payload in packed:
        parts += [write_long(count), write_long(len(payload)), payload, sync]
    content = b"".join(parts)
    return container_head({**pairs, CHECKSUM_KEY: _checksum(pairs, sync, content)}, sync) + content


def _checksum(pairs: Mapping[str, bytes], sync: bytes, content: bytes | memoryview) -> bytes:
    """The checksum of everything else in a file.

    Avro itself has none, and most changed bytes would decode to other values.
    """
    digest = hashlib.sha256(sync)
    for key, value in sorted(pairs.items()):
        if key != CHECKSUM_KEY:
            digest.update(b"%d %d " % (len(key.encode()), len(value)) + key.encode() + value)
    digest.update(content)
    return digest.hexdigest().encode()


def container_head(pairs: Mapping[str, bytes], sync: bytes) -> bytes:
    """What stands before the first block, with these metadata."""
    parts = [MAGIC, write_long(len(pairs))]
    for key, value in pairs.items():
        for text in (key.encode(), value):
            parts += [write_long(len(text)), text]
    return b"".join([*parts, b"\x00", sync])


def write_long(value: int) -> bytes:
    """Zig-zag variable-length encoding of a long."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest & ~0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def read_long(view: memoryview, offset: int, location: str) -> tuple[int, int]:
    """(value, offset after it)."""
    result = 0
    for shift in range(0, 70, 7):
        if offset >= len(view):
            raise CorruptMetadataError(f"{location} ends within a number", location=location)
        byte = view[offset]
        offset += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), offset
    raise CorruptMetadataError(
        f"{location} holds a number of more than ten bytes", location=location
    )


def _read_bytes(view: memoryview, offset: int, location: str) -> tuple[memoryview, int]:
    size, offset = read_long(view, offset, location)
    if size < 0 or offset + size > len(view):
        raise CorruptMetadataError(
            f"{location} claims {size} bytes where {len(view) - offset} are left", location=location
        )
    return view[offset : offset + size], offset + size


def _at_most(count: int, limit: int, location: str) -> int:
    if count > limit:
        raise CorruptMetadataError(
            f"{location} claims {count} items where {limit} bytes are left", location=location
        )
    return count


def _checked_schema(text: bytes, location: str) -> Any:
    """The schema of a header, cached: files of one writer share it, and it is large.

    Callers must not change it.
    """

    def make() -> Any:
        try:
            schema = json.loads(text)
            _check_schema(schema, location)
        except (ValueError, RecursionError) as error:
            raise CorruptMetadataError(
                f"{location} has no readable Avro schema: {error}", location=location
            ) from error
        return schema

    return _SCHEMAS.of((), text, make, lambda _: AVRO_SCHEMA * len(text))


def _check_schema(schema: Any, location: str) -> None:
    """Raise unless records have named fields and array items take bytes.

    Items of no bytes could be claimed by the billion, and no manifest has such.
    """
    if isinstance(schema, list):
        for branch in schema:
            _check_schema(branch, location)
    elif isinstance(schema, dict):
        for key in ("items", "values"):
            item = schema.get(key)
            empty = isinstance(item, dict) and (item.get("fields") == [] or item.get("size") == 0)
            if item == "null" or empty or (isinstance(item, dict) and item.get("type") == "null"):
                raise CorruptMetadataError(
                    f"{location}: its Avro schema has array items without content",
                    location=location,
                )
        fields = schema.get("fields") or []
        if not isinstance(fields, list) or not all(
            isinstance(field, dict) and {"name", "type"} <= field.keys() for field in fields
        ):
            raise CorruptMetadataError(
                f"{location}: its Avro schema has a record without named fields", location=location
            )
        for child in (schema.get("items"), schema.get("values"), *fields, schema.get("type")):
            if isinstance(child, (dict, list)):
                _check_schema(child, location)


class _Bomb(Exception):  # noqa: N818 - internal signal
    """Inflated data passed the budget."""


def _deflate(plain: bytes, level: int) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    return packer.compress(plain) + packer.flush()


def _inflate_null(data: memoryview, budget: int) -> bytes:
    return _within(bytes(data), budget)


def _inflate_deflate(data: memoryview, budget: int) -> bytes:
    unpacker = zlib.decompressobj(-15)
    plain = unpacker.decompress(data, budget + 1)
    if len(plain) <= budget and not unpacker.eof:
        raise EOFError("the compressed data is cut off")
    return _within(plain, budget)


def _inflate_snappy(data: memoryview, budget: int) -> bytes:
    payload, claimed = data[:-4], 0
    for shift, byte in zip(range(0, 35, 7), payload, strict=False):
        claimed |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    if claimed > budget:
        raise _Bomb
    plain = bytes(cramjam.snappy.decompress_raw(payload))
    if zlib.crc32(plain) != int.from_bytes(data[-4:], "big"):
        raise ValueError("checksum mismatch")
    return plain


def _inflate_zstandard(data: memoryview, budget: int) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(data) as stream:
        return _within(stream.read(budget + 1), budget)


def _inflate_bzip2(data: memoryview, budget: int) -> bytes:
    return _within(bz2.BZ2Decompressor().decompress(bytes(data), budget + 1), budget)


def _inflate_xz(data: memoryview, budget: int) -> bytes:
    return _within(lzma.LZMADecompressor().decompress(bytes(data), budget + 1), budget)


def _within(plain: bytes, budget: int) -> bytes:
    if len(plain) > budget:
        raise _Bomb
    return plain


_CODECS: dict[str, Callable[[memoryview, int], bytes]] = {
    "null": _inflate_null,
    "deflate": _inflate_deflate,
    "snappy": _inflate_snappy,
    "zstandard": _inflate_zstandard,
    "bzip2": _inflate_bzip2,
    "xz": _inflate_xz,
}
