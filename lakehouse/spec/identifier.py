"""Names of tables and namespaces."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.errors import InvalidIdentifierError

MAX_PART_LENGTH = 255


@dataclass(frozen=True, slots=True, order=True)
class Identifier:
    """The name of a table: a namespace of one or more levels, then a name.

    Every part is safe as one folder name: not empty, not `.` or `..`, without slashes, backslashes,
    dots, control characters or surrounding blanks.

    Raises:
        InvalidIdentifierError: when a part is not.
    """

    namespace: tuple[str, ...]
    name: str

    def __post_init__(self) -> None:
        if not self.namespace:
            raise InvalidIdentifierError(
                f"Table name {self.name!r} has no namespace: write it as 'namespace.table'."
            )
        for part in (*self.namespace, self.name):
            check_part(part)

    @classmethod
    def parse(cls, value: str | Sequence[str] | Identifier) -> Identifier:
        """Read `"raw.events"`, `("raw", "events")` or an Identifier.

        Raises:
            InvalidIdentifierError: when a part is missing or not allowed.
        """
        if isinstance(value, Identifier):
            return value
        parts = _parts(value)
        if len(parts) < 2:
            raise InvalidIdentifierError(
                f"Table name {value!r} has no namespace: write it as 'namespace.table'."
            )
        return cls(parts[:-1], parts[-1])

    def __str__(self) -> str:
        return ".".join((*self.namespace, self.name))


def parse_namespace(value: str | Sequence[str]) -> tuple[str, ...]:
    """Read `"raw"`, `"raw.eu"` or `("raw", "eu")` and check every level.

    Raises:
        InvalidIdentifierError: when a level is not allowed.
    """
    parts = _parts(value)
    if not parts:
        raise InvalidIdentifierError("A namespace needs at least one level.")
    for part in parts:
        check_part(part)
    return parts


def check_part(part: object) -> None:
    """Raise InvalidIdentifierError unless `part` can be a level of a name everywhere.

    Every catalog and every storage has to take it.
    """
    if not isinstance(part, str):
        raise InvalidIdentifierError(
            f"A name must be a string, not {type(part).__name__}: {part!r}."
        )
    if not part:
        raise InvalidIdentifierError("A name has an empty level.")
    if part in {".", ".."}:
        raise InvalidIdentifierError(f"{part!r} is not a name.")
    if part != part.strip():
        raise InvalidIdentifierError(f"Name {part!r} begins or ends with a blank.")
    for character in part:
        if character in "/\\." or unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}:
            raise InvalidIdentifierError(
                f"Name {part!r} holds the character {character!r}, which is not allowed in names."
            )
    if len(part.encode()) > MAX_PART_LENGTH:
        raise InvalidIdentifierError(
            f"Name {part[:40]!r}... is longer than {MAX_PART_LENGTH} bytes."
        )


def _parts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(value.split("."))
    if isinstance(value, Sequence):
        return tuple(value)
    raise InvalidIdentifierError(
        f"A name must be a string or a sequence of strings, not {type(value).__name__}: {value!r}."
    )
