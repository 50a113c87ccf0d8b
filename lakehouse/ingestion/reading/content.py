"""A landing file by its first bytes: compression, and its content in bounded memory."""

from __future__ import annotations

import bz2
import codecs
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import PurePosixPath
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
_SNAPPY_START = b"\xff\x06\x00\x00sNaPpY"
_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (_SNAPPY_START, "snappy"),
    (b"PAR1", "parquet"),
    (b"Obj\x01", "avro"),
)
# a frame that zstd skips, of one of sixteen kinds; such as pzstd writes first
_SKIPPED_FRAME = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")
# other formats, which the problem names: they are not read as text
_FOREIGN = (
    (b"PK\x03\x04", "a zip archive"),
    (b"\xfd7zXZ\x00", "compressed by xz"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!", "a rar archive"),
    (b"\x04\x22\x4d\x18", "compressed by lz4"),
    (b"\x02\x21\x4c\x18", "compressed by lz4"),
    (b"\x1f\x9d", "compressed by compress"),
    (b"LZIP", "compressed by lzip"),
    (b"\x5d\x00\x00", "compressed by lzma"),
    (b"\x89LZO", "compressed by lzop"),
    (b"ARROW1", "an Arrow file"),
    (b"\xff\xff\xff\xff", "an Arrow stream"),
    (b"PARE", "Parquet with an encrypted footer"),
    (b"ORC", "an ORC file"),
    (b"SQLite format 3", "a SQLite database"),
    (b"%PDF", "a PDF"),
)
_MARKS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
# bytes of a text are no control characters, but for tabs, feeds and escapes
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
COMPRESSED = frozenset(
    {".gz", ".gzip", ".zst", ".zstd", ".bz2", ".sz", ".snappy", ".deflate", ".zlib", ".zz"}
    | {".br", ".lz4", ".xz", ".lzma", ".lzo", ".z"}
)
"""How names of compressed files end."""
_TAR_AT, _TAR = 257, b"ustar"
_SOME_ZEROS = 20


class _DamageError(Exception):
    """What a decompressor says of bytes that it cannot take."""


class ByteStream(Protocol):
    """A file opened for reading."""

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes, none at the end."""


class SeekableStream(ByteStream, Protocol):
    """A file that can be read again."""

    def seek(self, position: int, /) -> object:
        """Go to a byte."""


class UnreadableContentError(LakehouseError):
    """What is wrong with the bytes of a file; `reason` is one of few, to group by."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason} {detail}".strip())
        self.reason, self.detail = reason, detail


def kind_of(head: bytes, *, wide: bool = False) -> str:
    """`gzip`, `zlib`, `zstd`, `bzip2`, `snappy`, `parquet`, `avro`, or `text` for anything else.

    Args:
        head: the first bytes.
        wide: text is in an encoding such as UTF-16, of which bytes tell nothing.

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
    if _SKIPPED_FRAME.match(head):
        return "zstd"
    if _is_zlib(head):
        return "zlib"
    if wide:
        return "text"
    encoding = wide_encoding(head)
    if encoding is not None:
        detail = f"it is text in {encoding.upper()}, or none: ReadOptions(encoding={encoding!r})"
        raise UnreadableContentError("unsupported file", detail)
    return "text"


def refuse_binary(head: bytes, name: str) -> None:
    """Raise for what a compressor without magic bytes, or none that is known, may have written.

    A text may have odd bytes in it, too: what begins with a line of text is taken for text.

    Raises:
        UnreadableContentError: it is no text.
    """
    odd, suffix = _CONTROLS.findall(head), PurePosixPath(name).suffix.lower()
    if not _CONTROLS.search(head.partition(b"\n")[0]):
        return
    if suffix in COMPRESSED:
        raise UnreadableContentError("unsupported file", f"it is no text, and is named {suffix}")
    if len(odd) * 20 > len(head) and len(set(odd)) > 2:
        raise UnreadableContentError("unsupported file", "it is no text")


def marked_encoding(head: bytes) -> str | None:
    """The encoding that a byte order mark tells; None without one."""
    return next((name for mark, name in _MARKS if head.startswith(mark)), None)


def wide_encoding(head: bytes) -> str | None:
    """The encoding of text whose characters have two or four bytes each; None for other text."""
    marked = marked_encoding(head)
    if marked is not None:
        return None if marked == "utf-8" else marked
    if not _is_wide(head):
        return None
    first, second = head[::2].count(0), head[1::2].count(0)
    bits = 32 if min(first, second) * 8 > len(head) else 16
    return f"utf-{bits}-{'le' if second > first else 'be'}"


def _is_wide(head: bytes) -> bool:
    """Whether it is UTF-16 or UTF-32 without a mark.

    Every other byte of their digits, blanks and signs is 0, always on the same side.
    """
    most, least = sorted((head[::2].count(0), head[1::2].count(0)), reverse=True)
    has_zeros = most >= _SOME_ZEROS and most * 20 > len(head) and least * 10 <= most
    return has_zeros or most * 5 > len(head) * 2


def _is_zlib(head: bytes) -> bool:
    """Its two bytes of header are a text's, too (`x^`): what follows has to inflate."""
    if head[:1] != b"x" or len(head) < _ZLIB_LEAST or int.from_bytes(head[:2]) % 31:
        return False
    try:
        return bool(zlib.decompressobj().decompress(head, 1))
    except zlib.error:
        return False


def _marked(error: UnicodeError) -> tuple[str, int]:
    """Bytes that an encoding has not as halves of pairs, which no text has and UTF-8 neither."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    odd = error.object[error.start : error.end]
    return "".join(chr(_MARK + byte) for byte in odd), error.end


_MARK, _ERRORS = 0xDC00, "lakehouse.marked"
# what `as_utf8` makes of such a byte
_MARKED = re.compile(rb"\xed[\xb2\xb3][\x80-\xbf]")
codecs.register_error(_ERRORS, _marked)


def as_utf8(blocks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Text of an encoding as UTF-8; bytes that the encoding has not stay apart from all text.

    The encoding that a byte order mark tells is that of the text. Text in UTF-8 is given as it is.

    Args:
        blocks: the text; the first block holds all of the mark.
        encoding: of text without a mark.

    Raises:
        UnreadableContentError: what reading the blocks raises.
    """
    first = next(blocks, b"")
    encoding = marked_encoding(first) or encoding
    blocks = chain([first], blocks)
    if encoding == "utf-8":
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(encoding)(_ERRORS)
    for block in blocks:
        if text := decoder.decode(block):
            yield text.encode("utf-8", "surrogatepass")
    if text := decoder.decode(b"", True):
        yield text.encode("utf-8", "surrogatepass")


def not_in_encoding(text: bytes, encoding: str) -> str | None:
    """Why a text, which `as_utf8` may have made, is none of its encoding; None where it is."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        odd = text[error.start : error.start + 3]
        if encoding == "utf-8" or not _MARKED.match(odd):
            return f"not UTF-8: {error.reason} at byte {error.start + 1}"
        byte = ord(odd.decode("utf-8", "surrogatepass")) - _MARK
        return f"not {encoding} (encoding): byte 0x{byte:02x}"
    return None


def plain_blocks(stream: SeekableStream, kind: str, *, wide: bool = False) -> Iterator[bytes]:
    """The bytes of a stream in blocks of bounded size, decompressed as its `kind` asks.

    What is compressed twice is decompressed twice. The stream is read from its beginning, and
    where it is damaged once more, up to there. `wide` is that of `kind_of`.

    Raises:
        UnreadableContentError: cut off or damaged; what could be read was yielded before.
        OSError: the stream cannot be read.
    """

    def opened() -> ByteStream:
        stream.seek(0)
        return stream

    return _unpacked(opened, kind, _MOST_LAYERS, wide=wide)


def _unpacked(
    opened: Callable[[], ByteStream], kind: str, layers: int, *, wide: bool
) -> Iterator[bytes]:
    if kind not in _DECODERS:
        stream = opened()
        while block := stream.read(READ_BYTES):
            yield block
        return
    if not layers:
        raise UnreadableContentError(
            "unsupported file", f"it is compressed more than {_MOST_LAYERS} times"
        )

    def plain() -> _BlockStream:
        return _BlockStream(_decompressed(opened, kind))

    first = plain()
    inner = kind_of(first.head(HEAD_BYTES), wide=wide)
    if inner in _DECODERS:
        yield from _unpacked(plain, inner, layers - 1, wide=wide)
    else:
        yield from _unpacked(lambda: first, "text", layers, wide=wide)


def _decompressed(opened: Callable[[], ByteStream], kind: str) -> Iterator[bytes]:
    """All that comes before the damage, if there is one.

    A call that fails takes with it what it had decompressed. So the stream is decompressed again,
    and what comes after the last good call byte by byte.
    """
    yielded = 0
    try:
        for block in _DECODERS[kind](opened(), None):
            yielded += 1
            yield block
    except EOFError:
        raise UnreadableContentError(f"truncated {kind}") from None
    except _DamageError as error:
        failure = UnreadableContentError(f"corrupt {kind}", str(error))
        left = bytearray()
        with suppress(_DamageError, EOFError, UnreadableContentError):
            for number, block in enumerate(_DECODERS[kind](opened(), yielded)):
                left += block if number >= yielded else b""
        if left:
            yield bytes(left)
        raise failure from error


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
        data = held if size < 0 else held[:size]
        self._left = held[len(data) :]
        return data

    def _next(self) -> bytes:
        if self._failure is not None:
            return b""
        try:
            return next(self._blocks, b"")
        except UnreadableContentError as error:
            self._failure = error
            return b""


class _Decoder(Protocol):
    """Decompresses a member of a stream."""

    @property
    def eof(self) -> bool:
        """Whether the member has ended."""

    @property
    def needs_input(self) -> bool:
        """Whether there is nothing left to give of what it was given."""

    @property
    def unused_data(self) -> bytes:
        """What it was given beyond its end."""

    def take(self, data: bytes | memoryview, most: int) -> bytes:
        """What the data makes; a decoder that can gives no more than `most` bytes at a time."""


class _Inflater:
    """A member of gzip or zlib."""

    def __init__(self) -> None:
        self._inflater, self._left, self.needs_input = (
            zlib.decompressobj(_ANY_HEADER), memoryview(b""), True,
        )  # fmt: skip

    @property
    def eof(self) -> bool:
        return self._inflater.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflater.unused_data + bytes(self._left)

    def take(self, data: bytes | memoryview, most: int) -> bytes:
        data = self._left or memoryview(data)
        # where the caller reads single bytes, the checksum must not come with the last of them
        piece, later = (data[:1], data[1:]) if most == 1 else (data, data[:0])
        plain = self._inflater.decompress(piece, most)
        taken = len(piece) - len(self._inflater.unconsumed_tail)
        # at the end the rest is unused data; Python may have it in the tail, too
        self._left = later if self.eof else data[taken:]
        self.needs_input = not self._left and len(plain) < most
        return plain


class _Bunzipper:
    """A stream of bzip2."""

    def __init__(self) -> None:
        self._inflater = bz2.BZ2Decompressor()

    @property
    def eof(self) -> bool:
        return self._inflater.eof

    @property
    def needs_input(self) -> bool:
        return self._inflater.needs_input

    @property
    def unused_data(self) -> bytes:
        return self._inflater.unused_data

    def take(self, data: bytes | memoryview, most: int) -> bytes:
        return self._inflater.decompress(data, most)


class _ZstdFrame:
    """A frame of zstd, which says where it ends."""

    needs_input = True

    def __init__(self) -> None:
        self._inflater = zstandard.ZstdDecompressor().decompressobj()

    @property
    def eof(self) -> bool:
        return self._inflater.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflater.unused_data

    def take(self, data: bytes | memoryview, most: int) -> bytes:  # noqa: ARG002
        return self._inflater.decompress(data)


def _members(
    decoder: Callable[[], _Decoder], piece: int, stream: ByteStream, whole: int | None
) -> Iterator[bytes]:
    """The members of a stream, one after the other; zeros may pad the last one.

    Args:
        decoder: of a member.
        piece: so many bytes are decompressed at a time.
        stream: it begins with a member.
        whole: after so many blocks the others are of one byte; None: none is.
    """
    members = ended = 0
    current, fresh, unread = decoder(), True, memoryview(b"")
    while True:
        single = whole is not None and members >= whole
        compressed = memoryview(b"")
        if current.needs_input:
            unread = unread or memoryview(stream.read(READ_BYTES))
            if fresh and ended:
                unread = memoryview(bytes(unread).lstrip(b"\0"))
            end = 1 if single else piece
            compressed, unread = unread[:end], unread[end:]
            if not compressed:
                if fresh and ended:
                    return
                raise EOFError
        fresh = False
        try:
            plain = current.take(compressed, 1 if single else READ_BYTES)
        except (zlib.error, zstandard.ZstdError, OSError, ValueError) as error:
            raise _DamageError(str(error)) from error
        if plain:
            members += 1
            yield plain
        if current.eof:
            unread = memoryview(current.unused_data + bytes(unread))
            current, fresh, ended = decoder(), True, ended + 1


def _snappy(stream: ByteStream, _: int | None) -> Iterator[bytes]:
    """Chunks of the framing format: type, length (3 bytes), and for data a checksum (4 bytes)."""
    while header := _exactly(stream, 4, at_end=b""):
        kind, length = header[0], int.from_bytes(header[1:], "little")
        body = _exactly(stream, length)
        try:
            if kind == 0x00:
                _within_chunk(cramjam.snappy.decompress_raw_len(body[4:]))
            if kind == 0x01:
                _within_chunk(length - 4)
            if kind in (0x00, 0x01):  # as a stream of its own: its checksum is compared
                yield bytes(cramjam.snappy.decompress(_SNAPPY_START + header + body))
        except cramjam.DecompressionError as error:
            raise _DamageError(str(error)) from error
        if 0x02 <= kind <= 0x7F:
            raise _DamageError(f"chunk of unknown type {kind}")


def _within_chunk(plain_bytes: int) -> None:
    if plain_bytes > _SNAPPY_CHUNK_BYTES:
        raise _DamageError("chunk beyond 64 KiB")


def _exactly(stream: ByteStream, size: int, at_end: bytes | None = None) -> bytes:
    data = b""
    while len(data) < size:
        more = stream.read(size - len(data))
        if not more:
            if not data and at_end is not None:
                return at_end
            raise EOFError
        data += more
    return data


_DECODERS: dict[str, Callable[[ByteStream, int | None], Iterator[bytes]]] = {
    "gzip": partial(_members, _Inflater, READ_BYTES),
    "zlib": partial(_members, _Inflater, READ_BYTES),
    "bzip2": partial(_members, _Bunzipper, READ_BYTES),
    "zstd": partial(_members, _ZstdFrame, _ZSTD_PIECE),
    "snappy": _snappy,
}
