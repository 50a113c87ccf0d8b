"""What the pointer of a table in a database says about a commit, as errors."""

from __future__ import annotations

from lakehouse.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    NoSuchTableError,
)
from lakehouse.spec.identifier import Identifier


def missing(identifier: Identifier, uri: str) -> NoSuchTableError:
    """The database has no row for the table."""
    return NoSuchTableError(f"No table {identifier} in {uri}.", table=str(identifier))


def lost(identifier: Identifier, current: str) -> CommitConflictError:
    """Somebody else moved the pointer, to `current`."""
    return CommitConflictError(
        f"Table {identifier}: {current.rpartition('/')[2]} was committed by someone else. Refresh "
        "and try again.",
        table=str(identifier),
        metadata_location=current,
    )


def unclear(identifier: Identifier, location: str, reason: str) -> CommitStateUnknownError:
    """Whether the pointer was moved to `location` cannot be told."""
    return CommitStateUnknownError(
        f"Table {identifier}: the database did not tell whether {location} was committed "
        f"({reason}). Nothing was deleted. Refresh the table and look for the snapshot id.",
        table=str(identifier),
        metadata_location=location,
    )
