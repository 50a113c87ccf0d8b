"""Lines of a text in blocks: numbered from 1, none lost, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from lakehouse.ingestion.reading.content import UnreadableContentError

BLOCK_BYTES = 4 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class LineBlock:
    """Consecutive lines.

    Attributes:
        first: number of the first.
        text: the lines, ended by all line ends but the last; one that is too long is its beginning.
        lengths: position -> bytes of a line that is too long.
        cut: whether the text was cut off within the last line.
    """

    first: int
    text: bytes
    lengths: dict[int, int]
    cut: bool = False

    @cached_property
    def lines(self) -> list[bytes]:
        """Without their line ends."""
        return self.text.split(b"\n")


class LineReader:
    """The lines of a text in blocks; `count` and `problem` are set once iterated.

    Args:
        blocks: the text.
        max_line_bytes: longer lines are cut to so many bytes; they are never held whole.
        before: how many lines come before the text.

    Attributes:
        max_line_bytes: as it was given.
        count: lines so far. A last line without a line end is a line.
        problem: why the text ended early; None when it did not.
    """

    def __init__(self, blocks: Iterable[bytes], *, max_line_bytes: int, before: int = 0) -> None:
        self.count = before
        self.problem: UnreadableContentError | None = None
        self.max_line_bytes = max_line_bytes
        self._blocks, self._max = blocks, max_line_bytes
        self._rest, self._dropped = b"", 0

    def __iter__(self) -> Iterator[LineBlock]:
        pieces: list[bytes] = []
        size = 0
        for block in self._read():
            pieces.append(block)
            size += len(block)
            if size >= BLOCK_BYTES:
                yield from self._complete(b"".join(pieces))
                pieces, size = [], 0
        yield from self._complete(b"".join(pieces))
        if self._rest:
            yield self._block(self._rest, self._dropped, cut=self.problem is not None)

    def _read(self) -> Iterator[bytes]:
        try:
            yield from self._blocks
        except UnreadableContentError as error:
            self.problem = error

    def _complete(self, text: bytes) -> Iterator[LineBlock]:
        """The lines that end in the text; what follows them is kept for the next time."""
        end = text.rfind(b"\n")
        if end < 0:
            self._keep(text)
            return
        room = max(0, self._max - len(self._rest))
        first_end = text.find(b"\n")
        dropped = self._dropped + max(0, first_end - room)
        whole = text[:end]
        if self._rest or dropped:
            whole = b"".join((self._rest, text[: min(first_end, room)], text[first_end:end]))
        self._rest, self._dropped = b"", 0
        self._keep(text[end + 1 :])
        yield self._block(whole, dropped)

    def _keep(self, text: bytes) -> None:
        room = max(0, self._max - len(self._rest))
        self._rest += text[:room]
        self._dropped += max(0, len(text) - room)

    def _block(self, text: bytes, first_dropped: int, *, cut: bool = False) -> LineBlock:
        first = self.count + 1
        self.count += text.count(b"\n") + 1
        if first == 1:
            text = text.removeprefix(BYTE_ORDER_MARK)
        lengths = {}
        if first_dropped:
            lengths[0] = len(text.partition(b"\n")[0]) + first_dropped
        if len(text) > self._max:
            lines = text.split(b"\n")
            longer = {at: len(line) for at, line in enumerate(lines) if len(line) > self._max}
            if longer:
                lengths |= longer
                text = b"\n".join(line[: self._max] for line in lines)
        return LineBlock(first, text, lengths, cut)
