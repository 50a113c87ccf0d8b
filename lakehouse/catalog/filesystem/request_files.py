"""Requests that were carried out in a warehouse of files, each in entries that are created once.

A version of a table or view is created if absent, so it is committed or not at one moment; what
cannot be in that moment is a note of the request. So it is noted before: the entries of a request,
`.requests/<key>.<n>.json`, say which version with which content was going to be created. A request
was carried out if one of those versions has the content of one of its entries. Whoever runs it
again notes another entry only when all versions of earlier entries have other content: they can
never be this request's any more. While a version is still to be created, both runs create that one.

Refusals, and that a request is done, are entries too. Namespaces have no versions: a run that was
cut off is taken up again, and what it wanted to be there, or not to be, is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

import orjson

from lakehouse.catalog.catalog_protocol import AnsweredRequest, Request, RequestLog
from lakehouse.catalog.commit_outcome import after_the_swap, before_the_swap
from lakehouse.errors import (
    CommitStateUnknownError,
    CorruptMetadataError,
    FileAlreadyExistsError,
    LakehouseError,
    NoSuchFileError,
    RequestRepeatedError,
)
from lakehouse.storage.location import join
from lakehouse.storage.storage_protocol import Storage

FOLDER = ".requests"


class Fate(Enum):
    """What became of a version that was going to be created."""

    OPEN = "open"
    """Nobody created it."""
    WRITTEN = "written"
    """It has the content that it was to have."""
    LOST = "lost"
    """Others created it."""
    UNKNOWN = "unknown"
    """It was there, and was cleaned up."""


@dataclass(frozen=True, slots=True)
class _Entry:
    fingerprint: str
    location: str | None = None
    digest: str | None = None
    status: int | None = None
    answer: str | None = None
    is_done: bool = False

    def to_json(self) -> bytes:
        return orjson.dumps(
            {
                "fingerprint": self.fingerprint,
                "location": self.location,
                "digest": self.digest,
                "status": self.status,
                "answer": self.answer,
                "done": self.is_done,
            }
        )

    @classmethod
    def from_json(cls, data: bytes, location: str) -> _Entry:
        try:
            document = orjson.loads(data)
            return cls(
                document["fingerprint"],
                document["location"],
                document["digest"],
                document["status"],
                document["answer"],
                document["done"],
            )
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise CorruptMetadataError(f"{location} is no entry of a request: {error}") from error


class RequestFiles(RequestLog):
    """The requests of one warehouse.

    Args:
        storage: keeps them.
        warehouse: whose requests they are.
        fate: what became of the version at a location, given digests of what it was to be.
    """

    def __init__(
        self, storage: Storage, warehouse: str, fate: Callable[[str, frozenset[str]], Fate]
    ) -> None:
        self._storage, self._folder, self._fate = storage, join(warehouse, FOLDER), fate

    def find(self, key: str) -> AnsweredRequest | None:
        """What became of the request with this key; None where it may be run.

        Raises CommitStateUnknownError where nobody can tell any more.
        """
        return self.answered(key, self.entries(key, []))

    def begun(self, keys: Sequence[str]) -> Collection[str]:
        return {key for key in keys if self._storage.exists(self._location(key, 1))}

    def refuse(self, request: Request, status: int, answer: str) -> None:
        """Keep a refusal, to refuse again. Raises RequestRepeatedError, CommitStateUnknownError."""
        entry = _Entry(request.fingerprint, status=status, answer=answer)
        entries: list[_Entry] = []
        while True:
            self.check_is_new(request, self.entries(request.key, entries))
            if any(fate is Fate.OPEN for fate in self._fates(entries).values()):
                raise unknown(request.key)  # another run may still create it
            if self.add(request.key, entries, entry):
                return

    def forget(self, before_ms: int) -> int:
        newest: dict[str, int] = {}
        files: dict[str, list[str]] = {}
        for info in self._storage.list(self._folder):
            key = info.location.rpartition("/")[2].partition(".")[0]
            newest[key] = max(newest.get(key, 0), info.modified_ms)
            files.setdefault(key, []).append(info.location)
        old = [key for key, at_ms in newest.items() if at_ms < before_ms]
        self._storage.delete([file for key in old for file in sorted(files[key])])
        return len(old)

    def entries(self, key: str, known: list[_Entry]) -> list[_Entry]:
        """All entries of a request: those that are known, and what was added behind them."""
        while True:
            location = self._location(key, len(known) + 1)
            try:
                known.append(_Entry.from_json(self._storage.read(location), location))
            except NoSuchFileError:
                return known

    def add(self, key: str, entries: list[_Entry], entry: _Entry) -> bool:
        """Add an entry behind these; false where another is there already."""
        try:
            self._storage.create(self._location(key, len(entries) + 1), entry.to_json())
        except FileAlreadyExistsError:
            return False
        entries.append(entry)
        return True

    def answered(self, key: str, entries: list[_Entry]) -> AnsweredRequest | None:
        """As `find`, of its entries."""
        for entry in entries:
            if entry.is_done or entry.status is not None:
                return AnsweredRequest(entry.fingerprint, entry.status, entry.answer)
        fates = self._fates(entries)
        for entry in entries:
            if entry.location is not None and fates[entry.location] is Fate.WRITTEN:
                return AnsweredRequest(entry.fingerprint, None, entry.answer)
        if Fate.UNKNOWN in fates.values():
            raise unknown(key)
        return None

    def check_is_new(self, request: Request, entries: list[_Entry]) -> None:
        """Raise RequestRepeatedError for what was answered, and for the key of another request."""
        is_another = any(entry.fingerprint != request.fingerprint for entry in entries)
        if is_another or self.answered(request.key, entries) is not None:
            raise request.repeated()

    def done(self, request: Request, entries: list[_Entry], answer: str | None) -> None:
        """Say that it is done, so that nobody has to look for what it did. Never fails."""
        data = _Entry(request.fingerprint, answer=answer, is_done=True).to_json()
        location = self._location(request.key, len(entries) + 1)
        # another run's entry in its place tells nothing that this one does not
        after_the_swap(
            f"Request {request.key}", lambda: self._storage.write(location, data, durable=False)
        )

    def _fates(self, entries: list[_Entry]) -> dict[str, Fate]:
        digests: dict[str, set[str]] = {}
        for entry in entries:
            if entry.location is not None and entry.digest is not None:
                digests.setdefault(entry.location, set()).add(entry.digest)
        return {where: self._fate(where, frozenset(wanted)) for where, wanted in digests.items()}

    def _location(self, key: str, number: int) -> str:
        return join(self._folder, f"{key}.{number}.json")


class RequestRun:
    """One run of one request.

    Args:
        files: the requests of the warehouse.
        request: the request.

    Attributes:
        answer: what is to be kept of it.
    """

    def __init__(self, files: RequestFiles, request: Request) -> None:
        self._files, self._request = files, request
        self._entries: list[_Entry] = []
        self._mine = 0
        self.answer = request.answer

    def intend(self, location: str, data: bytes) -> None:
        """Note which version is going to be created, before it is.

        Raises:
            RequestRepeatedError: the request was carried out before.
            CommitStateUnknownError: perhaps it was, or another run may still do so.
        """
        self._begin(
            _Entry(self._request.fingerprint, location, digest_of(data), answer=self.answer)
        )

    def check_is_new(self) -> None:
        """Raise RequestRepeatedError where another run carried it out meanwhile."""
        entries = self._files.entries(self._request.key, self._entries)
        self._files.check_is_new(self._request, entries)

    def done(self) -> None:
        """The version was created."""
        self._files.done(self._request, self._entries, self.answer)

    @contextmanager
    def towards(
        self, reached: tuple[type[LakehouseError], ...], *, is_to_do: bool
    ) -> Iterator[None]:
        """Change what has no versions, in the block.

        Args:
            reached: errors that say that nothing is left to do; none where another run began it.
            is_to_do: whether there is something to do.
        """
        if is_to_do or self._files.entries(self._request.key, self._entries):
            self._begin(_Entry(self._request.fingerprint))
        try:
            yield
        except reached:
            if len(self._files.entries(self._request.key, self._entries)) == self._mine:
                raise
        self.done()

    def _begin(self, entry: _Entry) -> None:
        key = self._request.key
        while True:
            try:
                with before_the_swap():
                    self._files.check_is_new(self._request, self._files.entries(key, self._entries))
                    if self._files.add(key, self._entries, entry):
                        self._mine += 1
                        return
            except (RequestRepeatedError, CommitStateUnknownError):
                raise
            except LakehouseError as error:
                if self._entries:  # this run did nothing; an earlier one may have
                    raise unknown(key) from error
                raise


def digest_of(data: bytes) -> str:
    """By which content is known."""
    return hashlib.sha256(data).hexdigest()


def unknown(key: str) -> CommitStateUnknownError:
    """Nobody can tell whether it was carried out."""
    return CommitStateUnknownError(
        f"Request {key} was begun before, and it is not known whether it was carried out. Nothing "
        "was deleted. Look whether what it asked for is there.",
        key=key,
    )
