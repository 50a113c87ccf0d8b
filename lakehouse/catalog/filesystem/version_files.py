"""The version files of a folder: `metadata/v<N>.metadata.json`, of which the highest N is current.

They are those of a table or of a view; a view says so in its first bytes.

`version-hint.text` says where to start looking and nothing more: readers probe forward from it, and
list the folder when it misleads. A dropped table ends in a version that says so. A later table of
that name goes on counting behind it, so that a late writer finds the next number taken; it never
touches the versions before.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from uuid import UUID

import orjson

from lakehouse.catalog.commit_outcome import after_the_swap, before_the_swap, is_certain
from lakehouse.catalog.filesystem.request_files import Fate, RequestRun, digest_of
from lakehouse.catalog.metadata_files import create_resolved, version_name
from lakehouse.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    FileAlreadyExistsError,
    InvalidLocationError,
    LakehouseError,
    NoSuchFileError,
    StorageError,
    UnsupportedFeatureError,
)
from lakehouse.spec.views.view_json import BEGINNING as VIEW_BEGINNING
from lakehouse.storage.location import join, parent
from lakehouse.storage.object_store import ObjectStorage
from lakehouse.storage.storage_protocol import Storage

HINT = "version-hint.text"

_VERSION = re.compile(r"^v(\d{1,18})(?:\.gz)?\.metadata\.json(?:\.gz)?$")
_SPELLINGS = ("v{}.metadata.json", "v{}.gz.metadata.json", "v{}.metadata.json.gz")
_DROPPED = b'{"lakehouse-dropped":'
_HEAD_BYTES = max(len(_DROPPED), len(VIEW_BEGINNING))
_LOOKS_MAX = 100
_CHAIN_MAX = 10_000
_THREADS = 16


class VersionKind(Enum):
    """Of what a version is."""

    TABLE = "table"
    VIEW = "view"
    NOTHING = "nothing"
    """None, or one that says that the table or view was dropped."""


class VersionFiles:
    """Versions in the folders of one storage.

    Args:
        storage: keeps them.
        new_uuid: gives names that no object has.
    """

    def __init__(self, storage: Storage, new_uuid: Callable[[], UUID]) -> None:
        self._storage, self._new_uuid = storage, new_uuid
        self._is_exclusive = not isinstance(storage, ObjectStorage)
        self._runs: Sequence[RequestRun] = ()

    def during(self, runs: Sequence[RequestRun]) -> VersionFiles:
        """The same, that notes in requests which version it is going to create."""
        same = copy.copy(self)
        same._runs = runs  # noqa: SLF001
        return same

    def location(self, folder: str, number: int, codec: str = "none") -> str:
        """Where version `number` is written."""
        return join(folder, "metadata", version_name(number, codec))

    def at(self, folder: str, number: int) -> str | None:
        """Where version `number` is, whichever way it is spelled; None when it is not there."""
        for spelling in _SPELLINGS:
            location = join(folder, "metadata", spelling.format(number))
            if self._storage.exists(location):
                return location
        return None

    def any(self, folder: str) -> bool:
        """Whether there is a version, of a table or of one that was dropped."""
        return self._newest(folder) is not None

    def read_newest(
        self, folder: str, read: Callable[[str], bytes]
    ) -> tuple[int, str, bytes] | None:
        """(number, location, content) of the newest version; None in a folder without versions.

        Args:
            folder: of the table.
            read: gives the content, or as much of the beginning as is needed.
        """
        newest = self._newest(folder)
        for _ in range(_LOOKS_MAX):
            if newest is None:
                return None
            number, location = newest
            try:
                content = read(location)
            except NoSuchFileError:
                newest = self._newest(folder)
                continue  # deleted between looking and reading: a newer version is there
            # behind a drop, versions of a later table may have been cleaned up: probing does not
            # get across
            later = self._listed(folder) if is_dropped(content) else None
            if later is None or later[0] <= number:
                return number, location, content
            newest = later
        raise StorageError(
            f"{folder} changes faster than it can be looked at. Try again.",
            retryable=True,
            location=folder,
        )

    def newest_and_kind(self, folder: str) -> tuple[int | None, VersionKind]:
        """The newest number, and of what it is a version."""
        newest = self.read_newest(folder, self._head)
        return (None, VersionKind.NOTHING) if newest is None else (newest[0], kind_of(newest[2]))

    def swap(self, name: str, location: str, data: bytes, **context: object) -> None:
        """Write the next version, if it is absent; the first time prove that a store can tell.

        Args:
            name: for messages, such as "Table raw.events".
            location: of the version.
            data: its content.
            context: of the errors.

        Raises:
            CommitConflictError: certainly not written: others wrote that version.
            CommitStateUnknownError: perhaps written.
            RequestRepeatedError: not written: the request was carried out before.
            StorageError: outcome "failed": certainly not written.
            UnsupportedFeatureError: the object store overwrites what it should refuse.
        """
        if not self._is_exclusive:
            with before_the_swap():
                check_create_is_exclusive(self._storage, parent(location), str(self._new_uuid()))
            self._is_exclusive = True
        self._each(lambda run: run.intend(location, data))
        try:
            create_resolved(self._storage, location, data)
        except FileAlreadyExistsError as error:
            self._each(RequestRun.check_is_new)
            raise lost(name, require_number(location), **context) from error
        except LakehouseError as error:
            if is_certain(error):
                raise
            raise CommitStateUnknownError(
                f"{name}: writing {location} gave no clear answer ({error.message}). Nothing was "
                "deleted. Refresh it and look whether the change is there.",
                **context,
                metadata_location=location,
            ) from error
        self._each(RequestRun.done)

    def _each(self, do: Callable[[RequestRun], None]) -> None:
        """Do something for every request, for several at once: most of it is waiting for disks."""
        if len(self._runs) < 2:
            for run in self._runs:
                do(run)
            return
        with ThreadPoolExecutor(min(len(self._runs), _THREADS)) as pool:
            for done in [pool.submit(do, run) for run in self._runs]:
                done.result()

    def fate(self, location: str, digests: frozenset[str]) -> Fate:
        """What became of a version that was to have content of one of these digests."""
        folder, number = parent(parent(location)), require_number(location)
        newest = self.newest_and_kind(folder)[0] or 0
        try:
            is_written = digest_of(self._storage.read(location)) in digests
        except NoSuchFileError:
            return Fate.UNKNOWN if number < newest else Fate.OPEN
        if not is_written:
            return Fate.LOST
        # versions are one unbroken range: what a late writer left below it is no part of that
        is_in_line = number >= newest or self.at(folder, number + 1) is not None
        return Fate.WRITTEN if is_in_line else Fate.UNKNOWN

    def chain(self, folder: str, number: int) -> list[str]:
        """Versions from `number` down to a gap or the drop of an earlier table, oldest first."""
        locations: list[str] = []
        while number > 0 and len(locations) < _CHAIN_MAX:
            location = self.at(folder, number)
            if location is None or is_dropped(self._head(location)):
                break
            locations.append(location)
            number -= 1
        return locations[::-1]

    def write_hint(self, folder: str, number: int) -> None:
        """Say where to start looking.

        Never fails: a hint that stays behind costs readers some probing.
        """
        hint = join(folder, "metadata", HINT)
        after_the_swap(
            f"The version hint of {folder}",
            lambda: self._storage.write(hint, str(number).encode(), durable=False),
        )

    def _head(self, location: str) -> bytes:
        return self._storage.read_range(location, 0, _HEAD_BYTES)

    def _newest(self, folder: str) -> tuple[int, str] | None:
        hint = self._read_hint(folder)
        location = None if hint is None else self.at(folder, hint)
        if hint is None or location is None:
            listed = self._listed(folder)
            if listed is None:
                return None
            number, location = listed
        else:
            number = hint
        while (following := self.at(folder, number + 1)) is not None:
            number, location = number + 1, following
        return number, location

    def _listed(self, folder: str) -> tuple[int, str] | None:
        matches = (
            (_VERSION.match(info.location.rpartition("/")[2]), info.location)
            for info in self._storage.list(join(folder, "metadata"))
        )
        return max(
            ((int(match.group(1)), location) for match, location in matches if match), default=None
        )

    def _read_hint(self, folder: str) -> int | None:
        try:
            text = self._storage.read_range(join(folder, "metadata", HINT), 0, 32)
        except NoSuchFileError:
            return None
        stripped = text.strip()
        return int(stripped) if stripped.isdigit() and len(stripped) < 19 else None


def kind_of(content: bytes) -> VersionKind:
    """Of what a version is, by its content or the beginning of it."""
    if is_dropped(content):
        return VersionKind.NOTHING
    return VersionKind.VIEW if content.startswith(VIEW_BEGINNING) else VersionKind.TABLE


def lost(name: str, number: int, **context: object) -> CommitConflictError:
    """Others wrote this version."""
    return CommitConflictError(
        f"{name}: version {number} was committed by someone else. Refresh and try again.",
        **context,
        version=number,
    )


def is_dropped(content: bytes) -> bool:
    """Whether the content of a version, or its beginning, says that the table was dropped."""
    return content.startswith(_DROPPED)


def drop_record(now_ms: int, by: str) -> bytes:
    """The content of the version that ends a table."""
    return orjson.dumps({"lakehouse-dropped": now_ms, "by": by})


def version_number(location: str) -> int | None:
    """N of `v<N>.metadata.json`; None for other names."""
    match = _VERSION.match(location.rpartition("/")[2])
    return None if match is None else int(match.group(1))


def require_number(metadata_location: str) -> int:
    """`version_number`.

    Raises InvalidLocationError when it is no version of a filesystem catalog.
    """
    number = version_number(metadata_location)
    if number is None:
        raise InvalidLocationError(
            f"{metadata_location} is no version of a filesystem catalog (v<N>.metadata.json): "
            "load the table from this catalog.",
            location=metadata_location,
        )
    return number


# Whether an object store keeps what `create` promises: some ignore `If-None-Match`.


def check_create_is_exclusive(storage: Storage, folder: str, name: str) -> None:
    """Create one object twice; the second time must be refused. Nothing stays.

    Args:
        storage: of the folder.
        folder: where commits are going to be.
        name: that no object has.

    Raises:
        UnsupportedFeatureError: it was not refused: of two commits at once one would be lost.
        StorageError: the store cannot be reached, or refuses to be written to.
    """
    location = join(folder, f".lakehouse-probe-{name}")
    storage.create(location, b"first")
    try:
        storage.create(location, b"second")
    except FileAlreadyExistsError:
        return
    finally:
        storage.delete([location])
    raise UnsupportedFeatureError(
        f"The object store of {folder} ignores If-None-Match: two writers would overwrite each "
        "other's commits. Use a SQL catalog, or a store that refuses to create an object twice.",
        location=folder,
    )
