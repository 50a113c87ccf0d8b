"""JSON records: one object a line.

Numbers are those of the text: an integer of any size is itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import orjson

from lakehouse.ingestion.reading.content import UnreadableContentError, not_in_encoding
from lakehouse.ingestion.reading.formats.json_text import exact_json, inexact_lines, shown_json
from lakehouse.ingestion.reading.formats.line_blocks import BYTE_ORDER_MARK, LineBlock, LineReader
from lakehouse.ingestion.reading.formats.plain_lines import FIRST_LINES, plain_lines
from lakehouse.ingestion.reading.formats.record_chunks import (
    CHUNK_ROWS,
    Chunk,
    Records,
    Rejects,
    Values,
)

_BLANK = re.compile(r"[ \t\r\n]*")
_BETWEEN = re.compile(r"[ \t\r\n,]*")
# where an object ends that cannot be read: a line that begins with its bracket, or another one
# begins at once
_DAMAGED_END = re.compile(r"^\}|\}(?=[ \t]*\{)", re.MULTILINE)
_DECODER = json.JSONDecoder()
_LINES_LOOKED_AT = 100
_EXACT = frozenset({str, int, bool, type(None)})


class JsonRecords(Records):
    """Objects, and the lines that they were read from if they were lines; see `Records`."""

    untyped = False

    def __init__(
        self,
        lines: Sequence[int],
        values: list[dict[str, object]],
        texts: list[bytes] | None = None,
    ) -> None:
        self.lines = lines
        self._values, self._texts = values, texts
        self._columns = _columns(values)

    def column(self, name: str) -> Values:
        values = self._columns.get(name)
        return [value.get(name) for value in self._values] if values is None else values

    def fields(self) -> Mapping[str, Values]:
        if self._columns:
            return self._columns
        members: dict[str, list[object]] = {}
        for record in self._values:
            for name, value in record.items():
                if name in members:
                    members[name].append(value)
                else:
                    members[name] = [value]
        return dict(members)

    def strangers(self, known: frozenset[str]) -> Mapping[int, str]:
        by_position: dict[int, str] = {}
        if self._columns and known.issuperset(self._columns):
            return by_position
        for position, record in enumerate(self._values):
            if not known.issuperset(record):
                for name, value in record.items():
                    if value is not None and name not in known:
                        by_position[position] = name
                        break
        return by_position

    def unknown(self, known: frozenset[str]) -> Mapping[int, dict[str, object]]:
        return {
            position: unknown
            for position, record in enumerate(self._values)
            if not known.issuperset(record)
            and (
                unknown := {
                    name: value
                    for name, value in record.items()
                    if value is not None and name not in known
                }
            )
        }

    def is_exact(self) -> bool:
        """Whether it is certain that each number is that of the text: none is read as a double."""
        return bool(self._columns) and all(
            set(map(type, column)) <= _EXACT for column in self._columns.values()
        )

    def only(self, positions: Sequence[int]) -> JsonRecords:
        lines, values, texts = self.lines, self._values, self._texts
        return JsonRecords(
            [lines[at] for at in positions],
            [values[at] for at in positions],
            None if texts is None else [texts[at] for at in positions],
        )

    def text(self, position: int) -> bytes:
        if self._texts is None:
            return shown_json(self._values[position]).encode()
        return self._texts[position]


def _columns(values: list[dict[str, object]]) -> dict[str, list[object]]:
    """The fields of records that all have the same; nothing for others."""
    names = list(values[0]) if values else []
    if set(map(len, values)) != {len(names)}:
        return {}
    try:
        return {name: list(map(itemgetter(name), values)) for name in names}
    except KeyError:
        return {}


@dataclass(frozen=True)
class MalformedElement:
    """An element that ends where it seems to, and is no JSON; why not."""

    text: bytes
    why: str


def elements_before_damage(text: bytes) -> list[object]:
    """The elements of a damaged JSON array that are complete, in order."""
    try:
        readable = text.decode()
    except UnicodeDecodeError as error:
        readable = text[: error.start].decode()
    elements: list[object] = []
    at = readable.find("[") + 1
    while True:
        begin = _after_blanks(readable, at)
        try:
            _, end = _DECODER.raw_decode(readable, begin)
        except (ValueError, RecursionError):
            return elements
        after = _after_blanks(readable, end)
        if readable[after : after + 1] not in (",", "]"):
            return elements  # more of it may be missing
        element = readable[begin:end].encode()
        try:
            elements.append(exact_json(element))
        except ValueError as error:
            elements.append(MalformedElement(element, str(error)))
        if readable[after] == "]":
            return elements
        at = after + 1


def are_objects(head: bytes) -> bool:
    """Whether a text is one of objects that do not stand one a line.

    The first one is over several lines, or has more behind it, and no line is an object.
    """
    text = head.decode("latin-1").lstrip()
    line, ended, later = text.partition("\n")
    if not line.startswith("{") or any(
        map(_is_object, later.split("\n", _LINES_LOOKED_AT)[:_LINES_LOOKED_AT])
    ):
        return False
    if line.rstrip() == "{":
        return bool(ended)
    try:
        _, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return end > len(line) or line[end:].lstrip().startswith(("{", ","))


def _is_object(line: str) -> bool:
    """Whether it is a whole one, which no part of an object over several lines is.

    Those are indented, or have nothing in them.
    """
    if not line.startswith("{"):
        return False
    try:
        return bool(json.loads(line))
    except (ValueError, RecursionError):
        return False


def object_lines(blocks: Iterable[bytes], most: int) -> Iterator[bytes]:
    """A text of objects, however they stand in it, with each on a line of its own.

    One that is damaged is a line as well, up to where it seems to end.

    Args:
        blocks: the text.
        most: bytes that an object may have; more is held of none.

    Raises:
        UnreadableContentError: of the blocks; after what was before it.
    """
    text, damaged = "", False
    problem: UnreadableContentError | None = None
    source = iter(blocks)
    while True:
        try:
            block = next(source, b"")
        except UnreadableContentError as error:
            block, problem = b"", error
        text += block.decode("latin-1")  # a character a byte
        at = 0
        while (begin := at if damaged else _skipped(text, at)) < len(text):
            if damaged:
                match = _DAMAGED_END.search(text, begin)
                at, damaged = (len(text), True) if match is None else (match.end(), False)
            else:
                try:
                    _, at = _DECODER.raw_decode(text, begin)
                except (ValueError, RecursionError):
                    if block and len(text) - begin <= most:
                        break  # more of it may come
                    damaged = True
                    continue
            # no string of JSON has a line end
            line = re.sub("[\r\n]", " ", text[begin:at]).encode("latin-1")
            yield line if damaged else line + b"\n"
        text = text[begin:]
        if not block:
            break
    if problem is not None:
        raise problem


def _skipped(text: str, at: int) -> int:
    match = _BETWEEN.match(text, at)
    return at if match is None else match.end()


def _after_blanks(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return at if match is None else match.end()


def json_chunks(lines: LineReader, encoding: str = "utf-8") -> Iterator[Chunk]:
    """The records of JSON lines, which were written in an encoding."""
    first = FIRST_LINES  # one by one: they tell the fields in their order
    for block in lines:
        if first:
            yield _chunk(block, range(len(block.lines))[:first], encoding)
        plain, others = plain_lines(block, first)
        first = 0
        for records in plain:
            yield Chunk(records, Rejects())
        for start in range(0, len(others), CHUNK_ROWS):
            yield _chunk(block, others[start : start + CHUNK_ROWS], encoding)


def _chunk(block: LineBlock, positions: Sequence[int], encoding: str) -> Chunk:
    texts = [block.lines[position] for position in positions]
    rejects = Rejects()
    numbers: Sequence[int] = [block.first + position for position in positions]
    special = block.lengths.keys() & set(positions)
    if block.cut and positions[-1] == len(block.lines) - 1:
        special.add(positions[-1])
    values = None if special else _all_parsed(texts)
    if values is not None:
        records = None
        if set(map(type, values)) == {dict}:
            records = JsonRecords(numbers, values, texts)  # type: ignore[arg-type]
        inexact = [] if records is not None and records.is_exact() else inexact_lines(texts)
        if records is not None and not inexact:
            return Chunk(records, rejects)
        values = _read_again(values, texts, inexact)
    if values is None:
        values, numbers, texts = _one_by_one(block, positions, special, rejects, encoding)
    if set(map(type, values)) - {dict}:
        objects = [position for position, value in enumerate(values) if type(value) is dict]
        for position in sorted(set(range(len(values))) - set(objects)):
            kind = type(values[position]).__name__
            rejects.add(numbers[position], "not a JSON object", kind, texts[position])
        numbers = [numbers[position] for position in objects]
        texts = [texts[position] for position in objects]
        values = [values[position] for position in objects]
    objects_read: list[dict[str, object]] = values  # type: ignore[assignment]
    return Chunk(JsonRecords(numbers, objects_read, texts) if objects_read else None, rejects)


def _all_parsed(texts: list[bytes]) -> list[object] | None:
    """The values of all texts; None when one of them has to be looked at by itself."""
    try:
        return list(map(orjson.loads, texts))
    except orjson.JSONDecodeError:
        return None


def _read_again(
    values: list[object], texts: list[bytes], inexact: list[int]
) -> list[object] | None:
    """The values with those exact that orjson did not keep; None when one of them is refused."""
    try:
        exact = {position: exact_json(texts[position]) for position in inexact}
    except ValueError:
        return None
    return [exact.get(position, value) for position, value in enumerate(values)]


def _one_by_one(
    block: LineBlock,
    positions: Sequence[int],
    special: set[int],
    rejects: Rejects,
    encoding: str,
) -> tuple[list[object], list[int], list[bytes]]:
    values: list[object] = []
    numbers: list[int] = []
    texts: list[bytes] = []
    blank: list[int] = []
    for position in positions:
        text, number = block.lines[position], block.first + position
        if position in special:
            length = block.lengths.get(position)
            if length is None:
                rejects.add(number, "truncated line", "", text)
            else:
                rejects.add(number, "line too long", f"{length} bytes", text, size=length)
        elif not text.strip():
            blank.append(number)
        else:
            try:
                # where files were put together, a mark stands within
                values.append(exact_json(text.removeprefix(BYTE_ORDER_MARK)))
            except ValueError as error:
                odd = None if encoding == "utf-8" else not_in_encoding(text, encoding)
                rejects.add(number, "malformed JSON", odd or str(error), text)
            else:
                numbers.append(number)
                texts.append(text)
    rejects.extend_blank(blank)
    return values, numbers, texts
