"""A landing file by its first bytes: compression, and its content in bounded memory."""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

import cramjam
import zstandard

from lakehouse.errors import LakehouseError

READ_BYTES = 1 << 20
HEAD_BYTES = 512
# zlib or gzip, whichever the header tells
_ANY_HEADER = 47
_ZLIB_LEAST = 8
_MOST_LAYERS = 3
# a block of zstd gives at most 128 KiB and takes a few bytes: small pieces of input bound what
# comes out
_ZSTD_PIECE = 1 << 10
_SNAPPY_CHUNK_BYTES = 64 << 10
_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"\xff\x06\x00\x00sNaPpY", "snappy"),
    (b"PAR1", "parquet"),
    (b"Obj\x01", "avro"),
)
# what is told by its name instead of being read as text
_FOREIGN = (
    (b"PK\x03\x04", "a zip archive"),
    (b"\xfd7zXZ\x00", "compressed by xz"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!", "a rar archive"),
    (b"\x04\x22\x4d\x18", "compressed by lz4"),
    (b"ARROW1", "an Arrow file"),
    (b"ORC", "an ORC file"),
    (b"SQLite format 3", "a SQLite database"),
    (b"%PDF", "a PDF"),
    (b"\xff\xfe", "text in UTF-16"),
    (b"\xfe\xff", "text in UTF-16"),
)
_TAR_AT, _TAR = 257, b"ustar"
_DAMAGED: tuple[type[Exception], ...] = (
    zlib.error,
    zstandard.ZstdError,
    cramjam.DecompressionError,
    OSError,
)


class ByteStream(Protocol):
    """A file opened for reading."""

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes, none at the end."""


class UnreadableContentError(LakehouseError):
    """What is wrong with the bytes of a file; `reason` is one of few, to group by."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason} {detail}".strip())
        self.reason, self.detail = reason, detail


def kind_of(head: bytes) -> str:
    """`gzip`, `zlib`, `zstd`, `bzip2`, `snappy`, `parquet`, `avro`, or `text` for anything else.

    Raises:
        UnreadableContentError: an archive, or a format that is not read.
    """
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    for magic, name in _FOREIGN:
        if head.startswith(magic):
            raise UnreadableContentError("unsupported file", f"it is {name}")
    if head[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR:
        raise UnreadableContentError("unsupported file", "it is a tar archive")
    return "zlib" if _is_zlib(head) else "text"


def _is_zlib(head: bytes) -> bool:
    """Its two bytes of header are a text's, too (`x^`): what follows has to inflate."""
    if head[:1] != b"x" or len(head) < _ZLIB_LEAST or int.from_bytes(head[:2]) % 31:
        return False
    try:
        return bool(zlib.decompressobj().decompress(head, 1))
    except zlib.error:
        return False


class Replayed:
    """A stream whose first bytes were read already."""

    def __init__(self, head: bytes, stream: ByteStream) -> None:
        self._head, self._stream = head, stream

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes, none at the end. May give fewer bytes than there are."""
        if self._head:
            given = self._head if size < 0 else self._head[:size]
            self._head = self._head[len(given) :]
            return given + self._stream.read() if size < 0 else given
        return self._stream.read(size)


def plain_blocks(stream: ByteStream, kind: str) -> Iterator[bytes]:
    """The bytes of a stream in blocks of bounded size, decompressed as its `kind` asks.

    What is compressed twice is decompressed twice.

    Raises:
        UnreadableContentError: cut off or damaged; what could be read was yielded before.
    """
    return _unpacked(stream, kind, _MOST_LAYERS)


def _unpacked(stream: ByteStream, kind: str, layers: int) -> Iterator[bytes]:
    if kind not in _DECOMPRESS:
        while block := stream.read(READ_BYTES):
            yield block
        return
    if not layers:
        raise UnreadableContentError(
            "unsupported file", f"it is compressed more than {_MOST_LAYERS} times"
        )
    plain = _BlockStream(_decompressed(stream, kind))
    head = plain.head(HEAD_BYTES)
    inner = kind_of(head)
    yield from _unpacked(plain, inner if inner in _DECOMPRESS else "text", layers - 1)


def _decompressed(stream: ByteStream, kind: str) -> Iterator[bytes]:
    try:
        yield from _DECOMPRESS[kind](stream)
    except EOFError:
        raise UnreadableContentError(f"truncated {kind}") from None
    except _DAMAGED as error:
        raise UnreadableContentError(f"corrupt {kind}", str(error)) from error


class _BlockStream:
    """Blocks as a stream; their failure is raised once all that came before it was read."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._left = blocks, b""
        self._failure: UnreadableContentError | None = None

    def head(self, size: int) -> bytes:
        """The first bytes, which are read again afterwards."""
        while len(self._left) < size and (block := self._next()):
            self._left += block
        return self._left[:size]

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes, none at the end. May give fewer bytes than there are."""
        held = self._left or self._next()
        if not held and self._failure is not None:
            raise self._failure
        given = held if size < 0 else held[:size]
        self._left = held[len(given) :]
        return given

    def _next(self) -> bytes:
        if self._failure is not None:
            return b""
        try:
            return next(self._blocks, b"")
        except UnreadableContentError as error:
            self._failure = error
            return b""


def _inflated(stream: ByteStream) -> Iterator[bytes]:
    """Several members may follow each other, and zero padding the last one."""
    inflater, fresh, compressed = zlib.decompressobj(_ANY_HEADER), True, b""
    while True:
        compressed = compressed or stream.read(READ_BYTES)
        at_end = not compressed
        if at_end and fresh:
            return
        fresh = False
        # a call that fails gives nothing of what it had inflated
        before = inflater.copy()
        try:
            plain = inflater.decompress(compressed, READ_BYTES)
        except zlib.error:
            yield from _before_damage(before, compressed)
            raise
        compressed = inflater.unconsumed_tail
        if plain:
            yield plain
        if inflater.eof:
            compressed = (inflater.unused_data + compressed).lstrip(b"\0")
            inflater, fresh = zlib.decompressobj(_ANY_HEADER), True
        elif at_end and not plain:
            raise EOFError


def _before_damage(inflater: zlib._Decompress, compressed: bytes) -> Iterator[bytes]:
    """What inflates before the byte that does not, to the byte."""
    while len(compressed) > 1:
        half = len(compressed) // 2
        attempt = inflater.copy()
        try:
            plain = attempt.decompress(compressed[:half])
        except zlib.error:
            compressed = compressed[:half]
            continue
        if plain:
            yield plain
        inflater, compressed = attempt, compressed[half:]
    try:
        while plain := inflater.decompress(compressed, 1):
            yield plain
            compressed = inflater.unconsumed_tail
    except zlib.error:
        return


def _bzip2(stream: ByteStream) -> Iterator[bytes]:
    inflater = bz2.BZ2Decompressor()
    while True:
        compressed = stream.read(READ_BYTES) if inflater.needs_input else b""
        if inflater.needs_input and not compressed:
            raise EOFError
        plain = inflater.decompress(compressed, READ_BYTES)
        if plain:
            yield plain
        if inflater.eof:
            rest = inflater.unused_data or stream.read(READ_BYTES)
            if not rest:
                return
            stream, inflater = Replayed(rest, stream), bz2.BZ2Decompressor()


def _zstd(stream: ByteStream) -> Iterator[bytes]:
    """Frame after frame; a frame says where it ends, so that one that does not is noticed."""
    inflater, compressed = zstandard.ZstdDecompressor().decompressobj(), b""
    while True:
        compressed = compressed or stream.read(READ_BYTES)
        if not compressed:
            raise EOFError
        piece, compressed = compressed[:_ZSTD_PIECE], compressed[_ZSTD_PIECE:]
        plain = inflater.decompress(piece)
        if plain:
            yield plain
        if inflater.eof:
            compressed = (inflater.unused_data + compressed) or stream.read(READ_BYTES)
            if not compressed:
                return
            inflater = zstandard.ZstdDecompressor().decompressobj()


def _snappy(stream: ByteStream) -> Iterator[bytes]:
    """Chunks of the framing format: type, length (3 bytes), and for data a checksum (4 bytes)."""
    while header := _exactly(stream, 4, at_end=b""):
        kind, length = header[0], int.from_bytes(header[1:], "little")
        body = _exactly(stream, length)
        if kind == 0x00:
            if cramjam.snappy.decompress_raw_len(body[4:]) > _SNAPPY_CHUNK_BYTES:
                raise cramjam.DecompressionError("chunk beyond 64 KiB")
            yield bytes(cramjam.snappy.decompress_raw(body[4:]))
        elif kind == 0x01:
            yield body[4:]
        elif 0x02 <= kind <= 0x7F:
            raise cramjam.DecompressionError(f"chunk of unknown type {kind}")


def _exactly(stream: ByteStream, size: int, at_end: bytes | None = None) -> bytes:
    found = b""
    while len(found) < size:
        more = stream.read(size - len(found))
        if not more:
            if not found and at_end is not None:
                return at_end
            raise EOFError
        found += more
    return found


_DECOMPRESS: dict[str, Callable[[ByteStream], Iterator[bytes]]] = {
    "gzip": _inflated,
    "zlib": _inflated,
    "bzip2": _bzip2,
    "zstd": _zstd,
    "snappy": _snappy,
}
