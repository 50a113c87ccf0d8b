"""What the pointer of a table or view in a database says about a commit, as errors."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitStateUnknownError,
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


def taken(found: Kind, identifier: Identifier, message: str, wanted: Kind) -> AlreadyExistsError:
    """The name is that of a table or view; `other_kind` says that it is not of the kind wanted."""
    return found.taken(message, **found.named(identifier), other_kind=found is not wanted)


def lost(kind: Kind, identifier: Identifier, current: str) -> CommitConflictError:
    """Somebody else moved the pointer, to `current`."""
    return CommitConflictError(
        f"{kind.word} {identifier}: {current.rpartition('/')[2]} was committed by someone else. "
        "Refresh and try again.",
        **kind.named(identifier),
        metadata_location=current,
    )


def unclear(
    kind: Kind, identifier: Identifier, location: str, reason: str
) -> CommitStateUnknownError:
    """Whether the pointer was moved to `location` cannot be told."""
    sign = "look for the snapshot id" if kind is TABLE else "look at its versions"
    return CommitStateUnknownError(
        f"{kind.word} {identifier}: the database did not tell whether {location} was committed "
        f"({reason}). Nothing was deleted. Refresh the {kind.word.lower()} and {sign}.",
        **kind.named(identifier),
        metadata_location=location,
    )
