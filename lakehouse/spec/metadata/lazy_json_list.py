"""A long list of JSON objects that decodes items on demand and appends without decoding.

Table metadata can list tens of thousands of snapshots, of which a reader wants one and a commit
adds one. The text of the list is kept as it was read and spliced, as bytes, into the next version
of the file.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

import orjson

from lakehouse.errors import CorruptMetadataError

T = TypeVar("T")

_BOUNDARY = re.compile(rb"\}\s*,\s*\{")
_INNER_OBJECT = re.compile(rb'"summary"\s*:\s*\{')
_SEGMENT_LENGTH = 512
_SEARCHES_BEFORE_INDEX = 2
_LIST_BYTES, _SPAN_BYTES, _ITEM_BYTES = 1024, 384, 8192
_OBJECTS = 12
"""Times the bytes of its text that an item takes."""


class _Segment(Generic[T]):
    """Consecutive items: their JSON text without the brackets, separated by commas.

    Shared between versions of a list.
    """

    def __init__(
        self, raw: bytes, id_key: str, decode: Callable[[Any, str], T], where: str
    ) -> None:
        self.raw = raw
        self._id_key = id_key
        self._id_pattern = re.compile(rb'"' + id_key.encode() + rb'"\s*:\s*(-?\d+)\s*[,}]')
        self._decode = decode
        self._where = where
        self._spans: list[tuple[int, int]] | None = None
        self._index: dict[int, int] | None = None
        self._items: dict[int, T] = {}
        self._by_id: dict[int, T] = {}
        self._searches = 0

    @classmethod
    def of_items(
        cls,
        entries: Sequence[tuple[int, T, bytes]],
        id_key: str,
        decode: Callable[[Any, str], T],
        where: str,
    ) -> _Segment[T]:
        """A segment of items that are decoded already, given as id, item and text."""
        segment = cls(b",".join(text for _, _, text in entries), id_key, decode, where)
        segment._set_spans([text for _, _, text in entries])
        segment._index = {item_id: position for position, (item_id, _, _) in enumerate(entries)}
        segment._items = {position: item for position, (_, item, _) in enumerate(entries)}
        return segment

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Segment, (self.raw, self._id_key, self._decode, self._where))

    def spans(self) -> list[tuple[int, int]]:
        """Where each item begins and ends in `raw`."""
        if self._spans is None:
            spans = self._fast_spans()
            if spans is not None:
                self._spans = spans
                return spans
            pieces = [
                orjson.dumps(document) for document in _loads(b"[" + self.raw + b"]", self._where)
            ]
            self.raw = b",".join(pieces)
            return self._set_spans(pieces)
        return self._spans

    def _set_spans(self, pieces: Sequence[bytes]) -> list[tuple[int, int]]:
        spans = []
        position = 0
        for piece in pieces:
            spans.append((position, position + len(piece)))
            position += len(piece) + 1
        self._spans = spans
        return spans

    def _fast_spans(self) -> list[tuple[int, int]] | None:
        """Item boundaries by a pattern; None unless counting braces proves them right."""
        raw = self.raw
        if not raw.strip():
            return []
        cuts = list(_BOUNDARY.finditer(raw))
        inner = len(_INNER_OBJECT.findall(raw))
        if raw.count(b"{") != len(cuts) + 1 + inner or raw.count(b"}") != len(cuts) + 1 + inner:
            return None
        first, last = raw.index(b"{"), raw.rindex(b"}") + 1
        if raw[:first].strip() or raw[last:].strip():
            return None
        starts = [first, *(cut.end() - 1 for cut in cuts)]
        ends = [*(cut.start() + 1 for cut in cuts), last]
        return list(zip(starts, ends, strict=True))

    def item(self, index: int) -> T:
        """The decoded item at `index`."""
        item = self._items.get(index)
        if item is None:
            spans = self.spans()
            start, end = spans[index]
            item = self._decode(_loads(self.raw[start:end], self._where), f"{self._where}[{index}]")
            self._items[index] = item
        return item

    def index(self) -> dict[int, int]:
        """Id of each item -> its position."""
        if self._index is None:
            spans = self.spans()
            ids = [int(digits) for digits in self._id_pattern.findall(self.raw)]
            if len(ids) != len(spans):
                ids = []
                for start, end in spans:
                    document = _loads(self.raw[start:end], self._where)
                    value = document.get(self._id_key) if isinstance(document, dict) else None
                    if not isinstance(value, int):
                        raise CorruptMetadataError(f"{self._where}: an item has no {self._id_key}.")
                    ids.append(value)
            self._index = {item_id: position for position, item_id in enumerate(ids)}
        return self._index

    def find(self, item_id: int) -> T | None:
        """The item with this id.

        The first times its text is searched for, newest first; then an index is built.
        """
        if item_id in self._by_id:
            return self._by_id[item_id]
        item: T | None = None
        if self._index is None and self._searches < _SEARCHES_BEFORE_INDEX:
            self._searches += 1
            item = self._search(item_id)
            if item is None and str(item_id).encode() not in self.raw:
                return None
        if item is None:
            position = self.index().get(item_id)
            item = None if position is None else self.item(position)
            if len(self._index or ()) < len(self.spans()):
                raise CorruptMetadataError(
                    f"{self._where}: an id occurs twice, {item_id} or another."
                )
        if item is not None:
            self._by_id[item_id] = item
        return item

    def has(self, item_id: int) -> bool:
        """Whether there is an item with this id."""
        if self._index is None and self._searches < _SEARCHES_BEFORE_INDEX:
            self._searches += 1
            if str(item_id).encode() not in self.raw:
                return False
        return item_id in self.index()

    def held_bytes(self) -> int:
        """What it takes in memory, with the items that somebody looked at."""
        count = len(self._spans or ())
        item = _OBJECTS * (len(self.raw) // count) if count else _ITEM_BYTES
        looked_at = len(self._items) + len(self._by_id)
        return _LIST_BYTES + len(self.raw) + _SPAN_BYTES * count + (_SPAN_BYTES + item) * looked_at

    def _search(self, item_id: int) -> T | None:
        """The item, if its text occurs once and is an item's; None says nothing."""
        raw = self.raw
        key = b'"%s":%d' % (self._id_key.encode(), item_id)
        at = raw.rfind(key)
        if at < 0 or raw.find(key) < at:
            return None
        cut = _BOUNDARY.search(raw, at)
        end = cut.start() + 1 if cut else len(raw)
        try:
            document = orjson.loads(raw[raw.rfind(b"{", 0, at) : end])
        except orjson.JSONDecodeError:
            return None
        if not isinstance(document, dict) or document.get(self._id_key) != item_id:
            return None
        return self._decode(document, f"{self._where} {item_id}")


class _LateSegment(_Segment[T]):
    """Items of which a few are there; looking for another one fetches all."""

    def __init__(self, few: JsonList[T], fetch: Callable[[], JsonList[T]]) -> None:
        self._fetched: bytes | None = None
        self._few, self._fetch, self._lock = few, fetch, threading.RLock()
        super().__init__(b"", *few.kind())

    @property
    def raw(self) -> bytes:
        with self._lock:
            if self._fetched is None:
                self._fetched = b",".join(self._fetch().raw_parts())
            return self._fetched

    @raw.setter
    def raw(self, text: bytes) -> None:
        if text:  # before the first look there is none
            self._fetched = text

    def find(self, item_id: int) -> T | None:
        item = self._few.find(item_id)
        return item if item is not None else super().find(item_id)

    def held_bytes(self) -> int:
        few = self._few.held_bytes()
        return few if self._fetched is None else few + super().held_bytes()

    def __bool__(self) -> bool:
        return bool(self._few) or bool(self.raw)


class JsonList(Sequence[T]):
    """An immutable list over shared JSON text.

    Adding one item costs the same however long the list is.

    Decoding, and thereby checking, happens on access: an item that is not what the spec says raises
    CorruptMetadataError when it is first looked at.
    """

    __slots__ = ("_decode", "_id_key", "_segments", "_tail", "_where")

    def __init__(
        self,
        segments: tuple[_Segment[T], ...],
        tail: tuple[tuple[int, T, bytes], ...],
        id_key: str,
        decode: Callable[[Any, str], T],
        where: str,
    ) -> None:
        self._segments = segments
        self._tail = tail
        self._id_key = id_key
        self._decode = decode
        self._where = where

    @classmethod
    def from_raw(
        cls, raw: bytes, *, id_key: str, decode: Callable[[Any, str], T], where: str
    ) -> JsonList[T]:
        """Over the text between the brackets of a JSON list of objects."""
        segments = (_Segment(raw, id_key, decode, where),) if raw.strip() else ()
        return cls(segments, (), id_key, decode, where)

    @classmethod
    def late(cls, few: JsonList[T], fetch: Callable[[], JsonList[T]]) -> JsonList[T]:
        """A list of which a few items are there; what is sent elsewhere is complete.

        Args:
            few: those that are, such as snapshots that a branch or tag names.
            fetch: gives all, when somebody looks for one that is not there; called once.
        """
        return cls((_LateSegment(few, fetch),), (), *few.kind())

    @property
    def is_late(self) -> bool:
        """Whether looking for an item may still fetch."""
        return any(isinstance(segment, _LateSegment) for segment in self._segments)

    def kind(self) -> tuple[str, Callable[[Any, str], T], str]:
        """The key of ids, how an item is decoded, and where the list is."""
        return self._id_key, self._decode, self._where

    def append(self, item_id: int, item: T, document: Any) -> JsonList[T]:
        """A list with one more item; `document` is its JSON object."""
        tail = (*self._tail, (item_id, item, orjson.dumps(document)))
        if len(tail) < _SEGMENT_LENGTH:
            return JsonList(self._segments, tail, self._id_key, self._decode, self._where)
        segment = _Segment.of_items(tail, self._id_key, self._decode, self._where)
        return JsonList((*self._segments, segment), (), self._id_key, self._decode, self._where)

    def without(self, ids: Collection[int]) -> JsonList[T]:
        """A list without the items of these ids; the rest is copied as text, not decoded."""
        segments: list[_Segment[T]] = []
        for segment in self._segments:
            index = segment.index()
            gone = {index[item_id] for item_id in ids if item_id in index}
            if not gone:
                segments.append(segment)
                continue
            kept = [
                segment.raw[start:end]
                for position, (start, end) in enumerate(segment.spans())
                if position not in gone
            ]
            if kept:
                segments.append(_Segment(b",".join(kept), self._id_key, self._decode, self._where))
        tail = tuple(entry for entry in self._tail if entry[0] not in ids)
        return JsonList(tuple(segments), tail, self._id_key, self._decode, self._where)

    def find(self, item_id: int) -> T | None:
        """The item with this id, or None."""
        for own_id, item, _ in reversed(self._tail):
            if own_id == item_id:
                return item
        for segment in reversed(self._segments):
            item_or_none = segment.find(item_id)
            if item_or_none is not None:
                return item_or_none
        return None

    def has(self, item_id: int) -> bool:
        """Whether there is an item with this id; decodes nothing once the list has been indexed."""
        return any(own_id == item_id for own_id, _, _ in self._tail) or any(
            s.has(item_id) for s in reversed(self._segments)
        )

    def ids(self) -> list[int]:
        """The id of every item, in order, without decoding the items."""
        ids: list[int] = []
        for segment in self._segments:
            ids.extend(segment.index())
        ids.extend(item_id for item_id, _, _ in self._tail)
        return ids

    def raw_parts(self) -> list[bytes]:
        """The JSON text, to be joined with commas."""
        texts = [segment.raw for segment in self._segments] + [text for _, _, text in self._tail]
        return [text for text in texts if text]

    def held_bytes(self) -> int:
        """What it takes in memory, with the items that somebody looked at."""
        tail = _OBJECTS * len(self._tail[-1][2]) if self._tail else 0
        return (
            _LIST_BYTES
            + sum(segment.held_bytes() for segment in self._segments)
            + (_SPAN_BYTES + tail) * len(self._tail)
        )

    def __len__(self) -> int:
        return sum(len(segment.spans()) for segment in self._segments) + len(self._tail)

    def __bool__(self) -> bool:
        return bool(self._tail) or any(map(bool, self._segments))

    def __iter__(self) -> Iterator[T]:
        for segment in self._segments:
            for position in range(len(segment.spans())):
                yield segment.item(position)
        for _, item, _ in self._tail:
            yield item

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        position = index if index >= 0 else len(self) + index
        if position < 0:
            raise IndexError(index)
        for segment in self._segments:
            count = len(segment.spans())
            if position < count:
                return segment.item(position)
            position -= count
        return self._tail[position][1]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return self is other or (
            len(self) == len(other)
            and all(mine == theirs for mine, theirs in zip(self, other, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"JsonList({self._where}, {len(self)} items)"


def json_list(
    items: Iterable[T],
    *,
    id_key: str,
    decode: Callable[[Any, str], T],
    where: str,
    encode: Callable[[T], Any],
) -> JsonList[T]:
    """A list of given items."""
    raw = b",".join(orjson.dumps(encode(item)) for item in items)
    return JsonList.from_raw(raw, id_key=id_key, decode=decode, where=where)


def _loads(text: bytes, where: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise CorruptMetadataError(f"{where}: not JSON: {error}") from error
