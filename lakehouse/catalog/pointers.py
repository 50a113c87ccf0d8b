"""A catalog's pointers: which metadata file each table or view is at, and what moves them.

What keeps them is a SQL database or a Hive Metastore. A name is a table or a view, never both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lakehouse.catalog.base_catalog import Namespaces
from lakehouse.catalog.catalog_protocol import Namespace
from lakehouse.catalog.metadata_files import Described
from lakehouse.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitStateUnknownError,
    LakehouseError,
    NoSuchTableError,
    NoSuchViewError,
    NotFoundError,
    TableAlreadyExistsError,
    ViewAlreadyExistsError,
)
from lakehouse.spec.identifier import Identifier


@dataclass(frozen=True, slots=True)
class Kind:
    """What a row of `iceberg_tables` names.

    Attributes:
        iceberg_type: the column's value.
        word: for messages.
        missing: the error where there is none.
        taken: the error where there is one.
    """

    iceberg_type: str
    word: str
    missing: type[NotFoundError]
    taken: type[AlreadyExistsError]

    def named(self, identifier: Identifier) -> dict[str, object]:
        """The context of an error about one."""
        return {self.word.lower(): str(identifier)}


TABLE = Kind("TABLE", "Table", NoSuchTableError, TableAlreadyExistsError)
VIEW = Kind("VIEW", "View", NoSuchViewError, ViewAlreadyExistsError)


def missing(kind: Kind, identifier: Identifier, uri: str) -> NotFoundError:
    """The database has no row for it."""
    return kind.missing(f"No {kind.word.lower()} {identifier} in {uri}.", **kind.named(identifier))


def taken(kind: Kind, identifier: Identifier, message: str, wanted: Kind) -> AlreadyExistsError:
    """The name is that of a table or view; `other_kind` says that it is not of the kind wanted."""
    return kind.taken(message, **kind.named(identifier), other_kind=kind is not wanted)


def lost(kind: Kind, identifier: Identifier, current: str) -> CommitConflictError:
    """Somebody else moved the pointer, to `current`."""
    return CommitConflictError(
        f"{kind.word} {identifier}: {current.rpartition('/')[2]} was committed by someone else. "
        "Refresh and try again.",
        **kind.named(identifier),
        metadata_location=current,
    )


def unclear(
    kind: Kind, identifier: Identifier, location: str, reason: str, keeper: str = "the database"
) -> CommitStateUnknownError:
    """The error that nobody knows whether the pointer was moved to `location`.

    `keeper`: who keeps the pointer.
    """
    sign = "look for the snapshot id" if kind is TABLE else "look at its versions"
    return CommitStateUnknownError(
        f"{kind.word} {identifier}: {keeper} did not tell whether {location} was committed "
        f"({reason}). Nothing was deleted. Refresh the {kind.word.lower()} and {sign}.",
        **kind.named(identifier),
        metadata_location=location,
    )


@dataclass(frozen=True, slots=True)
class PointerMove:
    """One table's or view's part of a commit.

    Attributes:
        identifier: its name.
        expected: the metadata file that it is at; None creates it.
        location: the metadata file that it moves to; the same one if it only has to be there.
        folder: where it lies.
        new: what the metadata file holds; None: read it.
        old: what the one before holds; None where there is none, or nobody has read it.
    """

    identifier: Identifier
    expected: str | None
    location: str
    folder: str
    new: Described | None = None
    old: Described | None = None

    @property
    def moves(self) -> bool:
        """Whether it does not stay where it is."""
        return self.location != self.expected


class NamedNamespaces(Namespaces, Protocol):
    """Namespaces that a catalog keeps by one text each."""

    def require(self, namespace: Namespace) -> str:
        """Its name as it is kept. Raises NoSuchNamespaceError."""


class Pointers(Protocol):
    """Metadata locations of the tables, or of the views, of one catalog."""

    def names(self, namespace: str) -> list[str]:
        """The names in a namespace, sorted."""

    def find(self, identifier: Identifier) -> str | None:
        """The metadata file; None where there is none."""

    def require(self, identifier: Identifier) -> str:
        """The metadata file. Raises NoSuchTableError or NoSuchViewError."""

    def missing(self, identifier: Identifier) -> LakehouseError:
        """The error where there is none of this name."""

    def check_free(self, identifier: Identifier, folder: str) -> None:
        """Raise an error unless something new can have this name and this folder.

        Raises TableAlreadyExistsError, ViewAlreadyExistsError, InvalidLocationError.
        """

    def check_folders(self, identifier: Identifier, folders: Iterable[str]) -> None:
        """Raise InvalidLocationError where a folder is that of another table or view."""

    def other_folders(self, besides: str) -> list[tuple[str, str]]:
        """(name, folder) of every table and view but the one whose metadata file is `besides`."""

    def swap(self, moves: Sequence[PointerMove]) -> None:
        """Move all pointers or none.

        Raises:
            CommitConflictError, NoSuchTableError, NoSuchViewError, TableAlreadyExistsError,
                ViewAlreadyExistsError, InvalidLocationError, StorageError, RequestRepeatedError,
                UnsupportedFeatureError: certainly not moved.
            CommitStateUnknownError: perhaps moved.
        """

    def remove(
        self, identifier: Identifier, *, at: str | None = None, answer: str | None = None
    ) -> bool:
        """Remove the name; with `at` only while it is at that metadata file. Whether it was.

        `answer`: of the requests that are being carried out.
        """

    def rename(self, source: Identifier, target: Identifier) -> None:
        """Give it another name.

        Raises NoSuchTableError or NoSuchViewError, TableAlreadyExistsError, ViewAlreadyExistsError.
        """
