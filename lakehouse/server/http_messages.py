"""Requests and answers of the catalog's operations, without the web framework."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson

from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.errors import CorruptMetadataError, InvalidInputError
from lakehouse.kept_by_bytes import short_only
from lakehouse.spec.identifier import Identifier, parse_namespace
from lakehouse.spec.json_fields import require_list, require_object, require_str

SEPARATOR = "\x1f"
"""Between the levels of a namespace in a URL."""
DEPTH_MAX = 250
"""Levels of objects and lists in a body."""
_NAMES_MAX = 4096
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    Attributes:
        names: the named parts of the path, decoded.
        query: parameters of the URL; the last of several with one name.
        headers: with lower-case names.
        body: as it came.
        earlier_answer: what was kept of it, of a request that was carried out before.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    earlier_answer: str | None = None

    def namespace(self) -> tuple[str, ...]:
        """The namespace that the path names. Raises InvalidIdentifierError."""
        return _namespace(self.names["namespace"])

    def table(self) -> Identifier:
        """The table that the path names. Raises InvalidIdentifierError."""
        return _identifier(self.names["namespace"], self.names["table"])

    def view(self) -> Identifier:
        """The view that the path names. Raises InvalidIdentifierError."""
        return _identifier(self.names["namespace"], self.names["view"])

    def new(self) -> Identifier:
        """The table or view that the body names, in the namespace of the path.

        Raises InvalidInputError, InvalidIdentifierError.
        """
        document = self.document()
        name = self.read(lambda: require_str(document, "name", "body"))
        return Identifier(self.namespace(), name)

    def renaming(self) -> tuple[Identifier, Identifier]:
        """The old and the new name that the body has. Raises as `new` does."""
        document = self.document()

        def named(key: str) -> Identifier:
            return self.read(lambda: identifier_from_json(document.get(key), f"body.{key}"))

        return named("source"), named("destination")

    def document(self) -> Mapping[str, Any]:
        """The body, a JSON object. Raises InvalidInputError."""
        with before_the_swap():
            try:
                parsed = orjson.loads(self.body)
            except orjson.JSONDecodeError as error:
                raise InvalidInputError(f"The body is not JSON: {error}") from error
            _check_depth(parsed)
        return self.read(lambda: require_object(parsed, "body"))

    def read(self, reader: Callable[[], T]) -> T:
        """What `reader` finds in the body, before anything is changed.

        Raises InvalidInputError where it is malformed.
        """
        with before_the_swap(), _as_bad_request():
            return reader()

    def is_set(self, parameter: str) -> bool:
        """Whether a parameter of the URL is `true`. Raises InvalidInputError for other words."""
        text = self.query.get(parameter, "false").lower()
        if text not in ("true", "false"):
            raise InvalidInputError(f"{parameter} must be true or false, not {text!r}.")
        return text == "true"


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back.

    Attributes:
        status: of HTTP.
        body: empty, or of the content type.
        headers: more of them.
        content_type: of the body.
    """

    status: int = 204
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


def json_answer(
    document: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Answer:
    """An answer with a JSON body."""
    return Answer(status, orjson.dumps(document), headers or {})


def names_from_json(document: Any, where: str) -> tuple[str, ...]:
    """The levels of a namespace in a body. Raises InvalidIdentifierError, CorruptMetadataError."""
    levels = require_list(require_object(document, where).get("namespace"), f"{where}.namespace")
    return parse_namespace(tuple(levels))


def identifier_from_json(document: Any, where: str) -> Identifier:
    """A table's or view's name in a body.

    Raises InvalidIdentifierError, CorruptMetadataError.
    """
    return Identifier(names_from_json(document, where), require_str(document, "name", where))


def identifier_to_json(identifier: Identifier) -> dict[str, object]:
    """A table's or view's name as bodies have it."""
    return {"namespace": list(identifier.namespace), "name": identifier.name}


@short_only(_NAMES_MAX)
def _namespace(text: str) -> tuple[str, ...]:
    return parse_namespace(tuple(text.split(SEPARATOR)))


@short_only(_NAMES_MAX)
def _identifier(namespace: str, name: str) -> Identifier:
    return Identifier(_namespace(namespace), name)


def _check_depth(document: object) -> None:
    """Raise InvalidInputError where what reads it would run out of stack."""
    level: list[Iterable[object]] = [[document]]
    depth = 0
    while level:
        if depth > DEPTH_MAX:
            raise InvalidInputError(f"The body is nested deeper than {DEPTH_MAX} levels.")
        depth += 1
        inside = (child for value in level for child in value)
        level = [
            child.values() if isinstance(child, dict) else child
            for child in inside
            if child and isinstance(child, dict | list)
        ]


@contextmanager
def _as_bad_request() -> Iterator[None]:
    try:
        yield
    except CorruptMetadataError as error:
        raise InvalidInputError(error.message) from error


_PAGE_SIZE = 1000
_DIGITS_MAX = 18
"""Of a size that more than suffices."""
Names = tuple[str, ...]


def page(call: Call, names: Sequence[Names]) -> tuple[list[Names], str | None]:
    """The requested page of a sorted list, and the token of the next one.

    A client that sends no `pageToken` knows no pages and gets everything. A token says which name
    came last: what was created or dropped since neither repeats nor hides any other name.

    Raises InvalidInputError.
    """
    token = call.query.get("pageToken")
    size = _size(call.query.get("pageSize"))
    if token is None and size is None:
        return list(names), None
    last = _decode(token) if token else ()
    following = [name for name in names if name > last]
    shown = following[: size or _PAGE_SIZE]
    return shown, _encode(shown[-1]) if len(shown) < len(following) else None


def _size(text: str | None) -> int | None:
    if text is None:
        return None
    digits = text.lstrip("0")
    if not (digits.isascii() and digits.isdecimal()):
        raise InvalidInputError(f"pageSize must be a positive number, not {text[:40]!r}.")
    return int(digits[:_DIGITS_MAX])


def _encode(name: Names) -> str:
    return base64.urlsafe_b64encode("\x1f".join(name).encode()).decode()


def _decode(token: str) -> Names:
    try:
        text = base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError, ValueError) as error:
        raise InvalidInputError(
            f"pageToken {token[:40]!r} is none that this server gave."
        ) from error
    return tuple(text.split("\x1f"))
