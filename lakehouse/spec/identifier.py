r"""Names of tables and namespaces, and locations as metadata has them.

A name as text is its levels with dots between them; a dot that belongs to a level is written `\.`,
so that `raw.v1\.2` is the table `v1.2` of the namespace `raw`, and nothing else.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.errors import InvalidIdentifierError

MAX_PART_LENGTH = 255
_BETWEEN_LEVELS = re.compile(r"(?<!\\)\.")


@dataclass(frozen=True, slots=True, order=True)
class Identifier:
    r"""The name of a table: a namespace of one or more levels, then a name.

    No part is empty, `.` or `..`, or has backslashes, control characters or surrounding blanks.
    Dots and slashes are for the catalog to keep: those on a filesystem refuse them.

    >>> str(Identifier(("raw", "eu.west"), "events")), Identifier.parse("raw.events").namespace
    ('raw.eu\\.west.events', ('raw',))

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
        r"""Read `"raw.events"`, `("raw", "events")` or an Identifier.

        Dots of text stand between levels, but for those written `\.`; those of a tuple never do.

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
        return dotted((*self.namespace, self.name))


def dotted(levels: Sequence[str]) -> str:
    r"""Levels as text that `split_name` reads again: no two names have the same.

    >>> dotted(("raw", "events")), dotted(("raw", "v1.2"))
    ('raw.events', 'raw.v1\\.2')
    """
    return ".".join(level.replace(".", "\\.") for level in levels)


def split_name(text: str) -> tuple[str, ...]:
    r"""The levels of a name as text; none of them is checked.

    >>> split_name("raw.events"), split_name(r"raw.v1\.2")
    (('raw', 'events'), ('raw', 'v1.2'))
    """
    if "\\" not in text:
        return tuple(text.split("."))
    return tuple(level.replace("\\.", ".") for level in _BETWEEN_LEVELS.split(text))


def holds_state(name: str) -> bool:
    """Whether it names a table of an engine's state, which lists for people leave out.

    >>> holds_state("raw.__spark_autocdc_aux_state_users"), holds_state("raw.users")
    (True, False)
    """
    return name.rpartition(".")[2].startswith("__spark_autocdc_aux_state_")


def parse_namespace(value: str | Sequence[str]) -> tuple[str, ...]:
    r"""Read `"raw"`, `"raw.eu"` or `("raw", "eu")` and check every level.

    Dots of text stand between levels, but for those written `\.`.

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
    """Raise InvalidIdentifierError unless `part` can be a level of a name."""
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
        if character == "\\" or unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}:
            raise InvalidIdentifierError(
                f"Name {part!r} holds the character {character!r}, which is not allowed in names."
            )
    if len(part.encode()) > MAX_PART_LENGTH:
        raise InvalidIdentifierError(
            f"Name {part[:40]!r}... is longer than {MAX_PART_LENGTH} bytes."
        )


def _parts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return split_name(value)
    if isinstance(value, Sequence):
        return tuple(value)
    raise InvalidIdentifierError(
        f"A name must be a string or a sequence of strings, not {type(value).__name__}: {value!r}."
    )


_LOCAL = re.compile(r"(?:file:(?!//)|file://(?:localhost)?)?/+([^#?]*)", re.IGNORECASE)


def full_uri(location: str) -> str:
    """A location as metadata has it: what a local path is called with its scheme.

    >>> full_uri("/data/my lake"), full_uri("file:/data"), full_uri("s3://bucket/data")
    ('file:///data/my lake', 'file:///data', 's3://bucket/data')

    Nothing is percent-encoded: Iceberg's readers take locations literally. Readers that take URLs
    apart cut one at `#` and `?`: a path with these stays as it is.

    >>> full_uri("/data/#1")
    '/data/#1'
    """
    local = _LOCAL.fullmatch(location)
    return location if local is None else f"file:///{local[1]}"
